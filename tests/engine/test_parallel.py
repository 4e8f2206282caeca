"""Parallel: steps and branches side by side, abort and continue, and what it gives."""

from __future__ import annotations

from holdfast.engine.undo import cancel_grace_ms
from tests.engine.driver import BEGAN, Case, armed, failures, finish, starts, stops

STEPS = """
name: n
steps:
  - {id: p, kind: parallel, steps: [{id: a, tool: t}, {id: b, tool: t}, {id: c, tool: t}]}
  - {id: after, tool: t, args: {a: "{{ a }}", b: "{{ steps.b.output.x }}", p: "{{ p.branch_results }}"}}
"""
BRANCHES = """
name: n
steps:
  - id: p
    kind: parallel
    on_any_fail: continue
    branches:
      - [{id: a, tool: t}, {id: a2, tool: t, args: {a: "{{ a }}"}}]
      - [{id: b, tool: t}, {id: b2, tool: t}]
  - {id: after, tool: t, args: {a: "{{ a }}", b: "{{ b }}", b2: "{{ b2 }}", r: "{{ p.branch_results }}"}}
"""


def started(definition: str) -> Case:
    case = Case(definition)
    case.start()
    return case


def test_all_steps_start_in_one_row_each_in_its_own_branch() -> None:
    assert starts(Case(STEPS).start()) == ["p[0].a", "p[1].b", "p[2].c"]


def test_the_next_step_starts_when_the_last_branch_is_done() -> None:
    case = started(STEPS)
    assert starts(case.succeed("p[1].b", {"x": 2})) == []
    assert starts(case.succeed("p[2].c")) == []
    assert starts(case.succeed("p[0].a", 1)) == ["after"]
    assert case.args("after") == {"a": 1, "b": 2, "p": ["completed"] * 3}


def test_branches_run_their_steps_in_order_independent_of_each_other() -> None:
    case = started(BRANCHES)
    assert starts(case.succeed("p[0].a", "A")) == ["p[0].a2"]
    assert case.args("p[0].a2") == {"a": "A"}
    assert case.open == ["p[1].b", "p[0].a2"]


def test_the_output_tells_of_each_branch() -> None:
    case = started(BRANCHES)
    case.succeed("p[0].a", 1)
    case.succeed("p[0].a2", 2)
    case.fail("p[1].b", message="oh")
    case.succeed("after")
    result = case.output()["p"]
    assert result["branch_results"] == ["completed", "failed"]
    assert result["branches"][0] == {"status": "completed", "error": None, "steps": {"a": 1, "a2": 2}}
    assert (result["branches"][1]["status"], result["branches"][1]["error"]["message"]) == ("failed", "oh")


# -------------------------------------------------------------------------------------------------------- abort


def test_the_first_failing_branch_stops_its_siblings() -> None:
    case = started(STEPS)
    decisions = case.fail("p[1].b")
    assert sorted(stops(decisions)) == ["p[0].a", "p[2].c"]
    assert armed(decisions) == {"grace p": BEGAN + cancel_grace_ms()}
    assert case.run.status == "running"


def test_the_step_fails_with_the_first_error_when_all_siblings_have_answered() -> None:
    case = started(STEPS)
    case.fail("p[1].b", "transient", "first")
    assert case.fail("p[0].a", "error", "second") == []
    error = finish(case.succeed("p[2].c")).error
    assert error is not None and (error.kind, error.path) == ("transient", "p")
    assert error.message == "parallel branch 1 failed: first"
    assert error.cause is not None and (error.cause.path, error.cause.message) == ("p[1].b", "first")


def test_the_step_fails_when_the_grace_of_its_siblings_is_over() -> None:
    case = started(STEPS)
    case.fail("p[1].b")
    assert finish(case.fire("grace", "p")).status == "failed"


def test_nothing_follows_in_a_branch_that_was_asked_to_stop() -> None:
    case = started(BRANCHES.replace("on_any_fail: continue", "on_any_fail: abort"))
    case.fail("p[1].b")
    end = finish(case.succeed("p[0].a"))
    assert end.status == "failed"


def test_a_step_of_a_stopped_branch_is_not_retried() -> None:
    case = started(
        "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: t, retry: {max_attempts: 9}}, {id: b, tool: t}]}]"
    )
    case.fail("p[1].b")
    assert finish(case.fail("p[0].a")).status == "failed"


def test_siblings_that_only_wait_end_at_once() -> None:
    case = started(
        "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: w, kind: timer, delay_ms: 60000}, {id: b, tool: t}]}]"
    )
    assert finish(case.fail("p[1].b")).status == "failed"


def test_abort_is_the_default() -> None:
    assert "on_any_fail" not in STEPS
    assert stops(started(STEPS).fail("p[0].a")) == ["p[1].b", "p[2].c"]


# ----------------------------------------------------------------------------------------------------- continue


def test_with_continue_the_others_go_on_and_the_step_succeeds() -> None:
    case = started(BRANCHES)
    assert stops(case.fail("p[1].b")) == []
    case.succeed("p[0].a", 1)
    assert starts(case.succeed("p[0].a2", 2)) == ["after"]
    assert case.args("after") == {"a": 1, "b": None, "b2": None, "r": ["completed", "failed"]}


def test_what_a_failed_branch_did_before_it_failed_can_still_be_seen() -> None:
    """Steps inside a parallel are visible after it, null only where not run."""
    case = started(BRANCHES)
    case.succeed("p[0].a")
    case.succeed("p[0].a2")
    case.succeed("p[1].b", "B")
    case.fail("p[1].b2")
    assert case.args("after")["b"] == "B"
    case.succeed("after")
    assert case.output()["p"]["branches"][1]["steps"] == {"b": "B"}


def test_with_continue_all_may_fail() -> None:
    case = started(BRANCHES)
    case.fail("p[0].a")
    assert starts(case.fail("p[1].b")) == ["after"]
    assert case.args("after")["r"] == ["failed", "failed"]


# -------------------------------------------------------------------------------------------------------- edges


def test_an_empty_parallel_is_done_at_once() -> None:
    case = Case(
        "name: n\nsteps: [{id: p, kind: parallel, steps: []}, {id: b, tool: t, args: {p: '{{ p }}'}}]"
    )
    assert starts(case.start()) == ["b"]
    assert case.args("b") == {"p": {"branch_results": [], "branches": []}}


def test_an_empty_branch_is_complete() -> None:
    case = Case("name: n\nsteps: [{id: p, kind: parallel, branches: [[], [{id: a, tool: t}]]}]")
    case.start()
    case.succeed("p[1].a", 1)
    assert case.output()["p"]["branches"][0] == {"status": "completed", "error": None, "steps": {}}


def test_a_branch_that_fails_before_it_starts_anything_aborts_what_the_same_row_started() -> None:
    """The second branch cannot render its arguments; the first one has its start in the same row."""
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    args = "{a: {b: {c: {d: {e: {f: '{{ inputs.deep }}'}}}}}}"
    case = Case(
        f"name: n\nsteps: [{{id: p, kind: parallel, steps: [{{id: a, tool: t}}, {{id: b, tool: t, args: {args}}}]}}]",
        {"deep": deep},
    )
    decisions = case.start()
    assert failures(decisions)["p[1].b"].kind == "template"
    if case.run.status != "failed":  # the start of a stands in the row: it must answer first
        assert finish(case.fail("p[0].a", "cancelled")).status == "failed"
