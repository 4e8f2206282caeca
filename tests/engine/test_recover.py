"""What follows the end of a step, a scope or a run: caught failures, final steps, compensations."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from holdfast.engine import draft
from holdfast.engine.codec import decode_parts, encode_parts
from holdfast.engine.decide import decide
from holdfast.engine.decisions import Decision, FinishRun, StartAttempt
from holdfast.engine.events import AttemptReleased, Event, StepSucceeded
from holdfast.engine.undo import cancel_grace_ms
from holdfast.errors import InvalidSpec
from holdfast.values import Error, encode
from tests.engine.driver import Case, armed, failures, finish, starts, state_of, stops

CAUGHT = """
name: n
steps:
  - id: a
    tool: t
    retry: {max_attempts: 2, initial_delay_ms: 0}
    on_error:
      kinds: [error, timeout]
      steps:
        - {id: h1, tool: t, args: {e: "{{ error }}"}}
        - {id: h2, tool: t, args: {h1: "{{ h1 }}", kind: "{{ error.kind }}"}}
  - {id: b, tool: t, args: {a: "{{ a }}", h1: "{{ h1 }}"}}
"""


def test_failure_is_caught_after_its_retries_and_the_last_handler_gives_the_output() -> None:
    case = Case(CAUGHT)
    case.start()
    assert starts(case.fail("a")) == ["a"]
    assert starts(case.fail("a", message="broken")) == ["h1"]
    assert case.args("h1") == {"e": {"kind": "error", "message": "broken", "path": "a", "attempt": 2}}
    assert starts(case.succeed("h1", 1)) == ["h2"]
    assert case.args("h2") == {"h1": 1, "kind": "error"}
    assert starts(case.succeed("h2", {"ok": True})) == ["b"]
    assert case.args("b") == {"a": {"ok": True}, "h1": 1}
    assert finish(case.succeed("b", 2)).status == "completed"
    assert case.output() == {"a": {"ok": True}, "b": 2}


def test_failure_of_another_kind_is_not_caught() -> None:
    case = Case(CAUGHT)
    case.start()
    case.fail("a", "odd")
    end = finish(case.fail("a", "odd"))
    assert (end.status, end.error) == ("failed", Error("odd", "no luck", "a", 2))


def test_failure_of_the_handler_fails_the_step_and_keeps_the_cause() -> None:
    case = Case(CAUGHT)
    case.start()
    case.fail("a")
    case.fail("a", message="first")
    decisions = case.fail("h1", "worse", "second")
    end = finish(decisions)
    assert end.error == Error("worse", "second", "h1", 1, Error("error", "first", "a", 2))
    assert failures(decisions)["a"] == end.error


def test_handler_without_steps_swallows_the_failure() -> None:
    case = Case(
        "name: n\nsteps: [{id: a, tool: t, on_error: {steps: []}}, {id: b, tool: t, args: {a: '{{ a }}'}}]"
    )
    case.start()
    assert starts(case.fail("a")) == ["b"]
    assert case.args("b") == {"a": None}


@pytest.mark.parametrize(
    ("body", "failing"),
    [
        ("kind: foreach, items: $.inputs.list, steps: [{id: s, tool: t}]", "x[0].s"),
        ("kind: parallel, steps: [{id: s, tool: t}]", "x[0].s"),
        ("kind: branch, on: true, then: [{id: s, tool: t}]", "x.s"),
        ("workflow: inner", "x.s"),
        ("kind: poll, tool: t, until: $.done", "x.call"),
    ],
)
def test_failure_inside_of_a_scope_is_caught_by_the_scope(body: str, failing: str) -> None:
    case = Case(
        f"name: n\nsteps:\n  - {{id: x, {body}, on_error: {{steps: [{{id: h, tool: t}}]}}}}\n  - {{id: b, tool: t, args: {{x: '{{{{ x }}}}'}}}}",
        {"list": [1]},
        uses={"inner": "name: inner\nsteps: [{id: s, tool: t}]"},
    )
    case.start()
    assert starts(case.fail(failing)) == ["h"]
    assert starts(case.succeed("h", "saved")) == ["b"]
    assert case.args("b") == {"x": "saved"}


def test_template_that_fails_to_render_is_caught_too() -> None:
    case = Case(
        "name: n\nsteps: [{id: a, kind: timer, delay_ms: '{{ inputs.x }}', on_error: {steps: [{id: h, tool: t}]}}]",
        {"x": "no number"},
    )
    assert starts(case.start()) == ["h"]


WHOLE = """
name: n
on_error: {steps: [{id: h, tool: t, args: {a: "{{ a }}", b: "{{ b }}", why: "{{ error.message }}"}}]}
finally: [{id: f, tool: t, args: {e: "{{ error }}"}}]
output: {a: "{{ a }}"}
steps: [{id: a, tool: t}, {id: b, tool: t}]
"""


def test_run_whose_failure_is_caught_completes_with_the_output_of_the_handler() -> None:
    case = Case(WHOLE)
    case.start()
    case.succeed("a", 1)
    assert starts(case.fail("b", message="no")) == ["h"]
    assert case.args("h") == {"a": 1, "b": None, "why": "no"}
    assert starts(case.succeed("h", "rescued")) == ["f"]
    assert case.args("f") == {"e": None}
    end = finish(case.succeed("f"))
    assert (end.status, bytes(end.output), end.caught) == ("completed", b'"rescued"', True)


def test_nested_workflow_catches_its_own_failure() -> None:
    case = Case(
        "name: o\nsteps: [{id: c, workflow: n}, {id: after, tool: t, args: {c: '{{ c }}'}}]",
        uses={"n": WHOLE},
    )
    case.start()
    case.succeed("c.a", 1)
    assert starts(case.fail("c.b")) == ["c.h"]
    assert starts(case.succeed("c.h", "rescued")) == ["c.f"]
    assert starts(case.succeed("c.f")) == ["after"]
    assert case.args("after") == {"c": "rescued"}


# ------------------------------------------------------------------------------------------------- final steps

FINAL = """
name: n
steps:
  - id: a
    tool: t
    finally: [{id: f1, tool: t, args: {a: "{{ a }}", e: "{{ error.kind }}"}}, {id: f2, tool: t}]
  - {id: b, tool: t, args: {a: "{{ a }}"}}
"""


def test_final_steps_follow_a_success() -> None:
    case = Case(FINAL)
    case.start()
    assert starts(case.succeed("a", 1)) == ["f1"]
    assert case.args("f1") == {"a": 1, "e": None}
    assert starts(case.succeed("f1")) == ["f2"]
    assert starts(case.succeed("f2")) == ["b"]
    assert case.args("b") == {"a": 1}
    finish(case.succeed("b", 2))
    assert case.output() == {"a": 1, "b": 2}


def test_final_steps_follow_a_failure_which_goes_on_after_them() -> None:
    case = Case(FINAL)
    case.start()
    assert starts(case.fail("a", "odd")) == ["f1"]
    assert case.args("f1") == {"a": None, "e": "odd"}
    case.succeed("f1")
    end = finish(case.succeed("f2"))
    assert (end.status, end.error) == ("failed", Error("odd", "no luck", "a", 1))


def test_failure_of_a_final_step_wins_over_a_success() -> None:
    case = Case(FINAL)
    case.start()
    case.succeed("a", 1)
    decisions = case.fail("f1", "late", "spilled")
    assert finish(decisions).error == Error("late", "spilled", "f1", 1)
    assert failures(decisions)["a"].kind == "late"


def test_failure_of_a_final_step_is_recorded_beside_the_first_error() -> None:
    case = Case(FINAL)
    case.start()
    case.fail("a", "odd")
    end = finish(case.fail("f1", "late", "spilled"))
    assert end.error is not None
    assert (end.error.kind, [one.kind for one in end.error.also]) == ("odd", ["late"])


def test_final_steps_run_after_a_cancel_once_the_attempt_has_ended() -> None:
    case = Case(FINAL)
    case.start()
    assert stops(case.cancel()) == ["a"]
    assert starts(case.succeed("a", 1)) == ["f1"]
    assert case.args("f1") == {"a": None, "e": "cancelled"}
    assert case.run.status == "cancelling"
    assert starts(case.succeed("f1")) == ["f2"]
    assert finish(case.succeed("f2")).status == "cancelled"


def test_cancel_leaves_final_steps_alone_that_already_run() -> None:
    case = Case(FINAL)
    case.start()
    case.succeed("a", 1)
    assert stops(case.cancel()) == []
    assert starts(case.succeed("f1")) == ["f2"]
    assert finish(case.succeed("f2")).status == "cancelled"


def test_final_steps_after_a_cancel_have_the_grace_period() -> None:
    case = Case(FINAL)
    case.start()
    case.cancel()
    case.fail("a")
    assert case.run.timers["grace "] == case.now + cancel_grace_ms()
    decisions = case.fire("grace")
    assert stops(decisions) == ["f1"]
    assert finish(decisions).status == "cancelled"


def test_final_steps_run_when_the_run_times_out() -> None:
    case = Case("timeout_secs: 5\n" + FINAL.strip())
    case.start()
    case.fire("deadline")
    assert starts(case.succeed("a")) == ["f1"]
    case.succeed("f1")
    end = finish(case.succeed("f2"))
    assert end.error is not None and end.error.kind == "run_timeout"


def test_cancel_and_deadline_are_not_caught() -> None:
    case = Case(CAUGHT)
    case.start()
    case.cancel()
    assert finish(case.fail("a")).status == "cancelled"
    case = Case("timeout_secs: 5\n" + CAUGHT.strip())
    case.start()
    case.fire("deadline")
    assert finish(case.fail("a")).error.kind == "run_timeout"  # type: ignore[union-attr]


LOOP = """
name: n
steps:
  - id: loop
    kind: foreach
    items: $.inputs.list
    concurrency: 3
    steps:
      - id: outer
        kind: branch
        on: true
        then:
          - {id: s, tool: t, finally: [{id: inner_f, tool: t, args: {i: "{{ item }}"}}]}
        finally: [{id: outer_f, tool: t}]
    finally: [{id: last_f, tool: t}]
  - {id: after, tool: t}
finally: [{id: end_f, tool: t}]
"""


def test_abort_runs_the_final_steps_of_all_iterations_from_the_inside_out() -> None:
    case = Case(LOOP, {"list": [1, 2]})
    case.start()
    assert starts(case.fail("loop[0].outer.s")) == ["loop[0].outer.inner_f"]
    assert starts(case.succeed("loop[0].outer.inner_f")) == ["loop[0].outer_f"]
    assert stops(case.succeed("loop[0].outer_f")) == ["loop[1].outer.s"]
    assert starts(case.succeed("loop[1].outer.s")) == ["loop[1].outer.inner_f"]
    assert case.args("loop[1].outer.inner_f") == {"i": 2}
    assert starts(case.succeed("loop[1].outer.inner_f")) == ["loop[1].outer_f"]
    assert starts(case.succeed("loop[1].outer_f")) == ["last_f"]
    assert starts(case.succeed("last_f")) == ["end_f"]
    end = finish(case.succeed("end_f"))
    assert end.error is not None and end.error.message == "foreach iteration 0 failed: no luck"


def test_cancel_runs_the_final_steps_of_all_iterations_from_the_inside_out() -> None:
    case = Case(LOOP, {"list": [1, 2]})
    case.start()
    case.cancel()
    case.fail("loop[0].outer.s")
    assert starts(case.fail("loop[1].outer.s")) == ["loop[0].outer.inner_f", "loop[1].outer.inner_f"]
    assert starts(case.succeed("loop[1].outer.inner_f")) == ["loop[1].outer_f"]
    assert starts(case.succeed("loop[0].outer.inner_f")) == ["loop[0].outer_f"]
    assert starts(case.succeed("loop[1].outer_f")) == []
    assert starts(case.succeed("loop[0].outer_f")) == ["last_f"]
    assert starts(case.succeed("last_f")) == ["end_f"]
    assert finish(case.succeed("end_f")).status == "cancelled"


def test_final_steps_are_started_again_after_a_crash() -> None:
    case = Case(LOOP, {"list": [1]})
    case.start()
    case.cancel()
    assert starts(case.crash()) == ["loop[0].outer.inner_f"]
    assert starts(case.crash()) == ["loop[0].outer.inner_f"]
    case.succeed("loop[0].outer.inner_f")
    case.succeed("loop[0].outer_f")
    case.succeed("last_f")
    assert finish(case.succeed("end_f")).status == "cancelled"


# ----------------------------------------------------------------------------------------------- compensations

SAGA = """
name: n
steps:
  - {id: a, tool: t, compensate: {tool: undo, args: {was: "{{ output.id }}", in: "{{ inputs.x }}"}}}
  - id: loop
    kind: foreach
    items: $.inputs.list
    steps: [{id: s, tool: t, compensate: {tool: undo, args: {item: "{{ item }}", was: "{{ output }}"}}}]
  - {id: c, workflow: inner}
  - {id: last, tool: t}
finally: [{id: f, tool: t}]
"""
INNER = "name: inner\nsteps: [{id: s, tool: t, compensate: {service: undo, input: '{{ output }}', retry: {max_attempts: 2, initial_delay_ms: 0}}}]"


def saga(upto: int = 4) -> Case:
    case = Case(SAGA, {"x": 7, "list": [10, 20]}, uses={"inner": INNER})
    case.start()
    for path, output in (("a", {"id": 1}), ("loop[0].s", "A"), ("loop[1].s", "B"), ("c.s", "C"))[:upto]:
        case.succeed(path, output)
    return case


def undone(case: Case, decisions: list[Decision], *failing: str) -> tuple[list[str], list[Any], FinishRun]:
    """Answer every start until the run ends: the paths, their arguments, and the end."""
    paths, given = [], []
    while not isinstance(decisions[-1], FinishRun):
        (path,) = starts(decisions)
        paths.append(path)
        given.append(case.args(path))
        decisions = case.fail(path, "stuck") if path in failing else case.succeed(path)
    return paths, given, finish(decisions)


def test_failed_run_undoes_its_calls_in_reverse_order_and_then_runs_its_final_steps() -> None:
    case = saga()
    paths, given, end = undone(case, case.fail("last", "odd"))
    assert paths == ["c.s.compensate", "loop[1].s.compensate", "loop[0].s.compensate", "a.compensate", "f"]
    assert given[:4] == [
        {"input": "C", "params": {}},
        {"item": 20, "was": "B"},
        {"item": 10, "was": "A"},
        {"was": 1, "in": 7},
    ]
    assert (end.status, end.error) == ("failed", Error("odd", "no luck", "last", 1))


def test_cancelled_run_undoes_its_calls_and_ends_cancelled_after_that() -> None:
    case = saga(2)
    case.cancel()
    decisions = case.fail("loop[1].s")
    assert case.run.status == "cancelling"
    paths, _, end = undone(case, decisions)
    assert paths == ["loop[0].s.compensate", "a.compensate", "f"]
    assert end.status == "cancelled"


def test_call_that_succeeds_although_it_was_asked_to_stop_is_undone() -> None:
    case = saga(1)
    case.cancel()
    paths, given, _ = undone(case, case.succeed("loop[0].s", "late"))
    assert (paths[0], given[0]) == ("loop[0].s.compensate", {"item": 10, "was": "late"})


def test_completed_run_undoes_nothing() -> None:
    case = saga()
    case.succeed("last")
    assert finish(case.succeed("f")).status == "completed"


def test_call_that_failed_is_not_undone() -> None:
    case = saga(0)
    paths, _, _ = undone(case, case.fail("a"))
    assert paths == ["f"]


def test_caught_failure_undoes_nothing() -> None:
    case = Case(
        "name: n\non_error: {steps: [{id: h, tool: t}]}\nsteps: [{id: a, tool: t, compensate: {tool: u}}, {id: b, tool: t}]"
    )
    case.start()
    case.succeed("a")
    assert starts(case.fail("b")) == ["h"]
    assert finish(case.succeed("h", 1)).status == "completed"


def test_compensation_is_retried_by_its_own_policy() -> None:
    case = saga()
    case.fail("last")
    assert starts(case.fail("c.s.compensate")) == ["c.s.compensate"]
    assert starts(case.succeed("c.s.compensate")) == ["loop[1].s.compensate"]


def test_failed_compensation_is_listed_and_the_others_still_run() -> None:
    case = saga()
    paths, _, end = undone(case, case.fail("last", "odd"), "loop[1].s.compensate", "a.compensate")
    assert paths == ["c.s.compensate", "loop[1].s.compensate", "loop[0].s.compensate", "a.compensate", "f"]
    assert end.error is not None
    assert (end.status, end.error.kind) == ("failed", "odd")
    assert [one.path for one in end.error.also] == ["loop[1].s.compensate", "a.compensate"]
    assert end.error.message.endswith("not undone, because its compensation failed: loop[1].s, a")


def test_cancelled_run_with_a_failed_compensation_ends_failed() -> None:
    case = saga(1)
    case.cancel()
    _, _, end = undone(case, case.fail("loop[0].s"), "a.compensate")
    assert end.error is not None and end.error.cause is not None
    assert (end.status, end.error.kind, end.error.cause.kind) == ("failed", "compensation", "cancelled")


def test_cancel_and_deadline_do_not_stop_compensations() -> None:
    case = saga(1)
    case.fail("loop[0].s")
    assert case.cancel() == []
    assert case.run.status == "running"
    paths, _, end = undone(case, case.succeed("a.compensate"))
    assert (paths, end.status) == (["f"], "failed")


def test_no_compensation_is_forgotten_or_doubled_by_a_crash_at_any_row() -> None:
    case = saga()
    decisions = case.fail("last")
    begun: list[StartAttempt] = []
    while not isinstance(decisions[-1], FinishRun):
        begun += [one for one in decisions if isinstance(one, StartAttempt) and one.attempt == 1]
        again = case.crash()
        (path,) = starts(again)
        assert path == begun[-1].path, "the open attempt is made again, and no other"
        decisions = case.succeed(path)
    expected = ["c.s.compensate", "loop[1].s.compensate", "loop[0].s.compensate", "a.compensate", "f"]
    assert [one.path for one in begun] == expected


def test_snapshot_keeps_what_is_to_be_undone() -> None:
    case = saga()
    case.fail("last")
    assert state_of(decode_parts(encode_parts(case.run))) == state_of(case.run)


def test_branches_are_undone_in_the_order_of_their_completion() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: p
            kind: parallel
            branches:
              - [{id: x, tool: t, compensate: {tool: u}}, {id: x2, tool: t}]
              - [{id: y, tool: t, compensate: {tool: u}}]
              - [{id: z, tool: t, compensate: {tool: u}}]
        """
    )
    case.start()
    for path in ("p[2].z", "p[0].x"):
        case.succeed(path)
    case.fail("p[0].x2")
    paths, _, _ = undone(case, case.succeed("p[1].y"))
    assert paths == ["p[1].y.compensate", "p[0].x.compensate", "p[2].z.compensate"]


def test_interrupted_run_undoes_its_calls() -> None:
    case = Case(
        "name: n\non_restart: interrupt\nsteps: [{id: a, tool: t, compensate: {tool: u}}, {id: b, tool: t}]"
    )
    case.start()
    case.succeed("a")
    assert starts(case.crash()) == ["a.compensate"]
    assert starts(case.crash()) == ["a.compensate"]
    assert finish(case.succeed("a.compensate")).status == "interrupted"


def test_steps_of_a_handler_can_be_guarded_and_undone_themselves() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: a
            tool: t
            on_error:
              steps:
                - id: h
                  tool: t
                  compensate: {tool: u}
                  on_error: {steps: [{id: hh, tool: t}]}
                  finally: [{id: hf, tool: t}]
            finally: [{id: f, tool: t}]
          - {id: b, tool: t}
        """
    )
    case.start()
    assert starts(case.fail("a")) == ["h"]
    case.cancel()
    assert starts(case.fail("h")) == ["hf"]
    assert starts(case.succeed("hf")) == ["f"]
    assert finish(case.succeed("f")).status == "cancelled"


# ------------------------------------------------------------------------------------------------------ graphs

GRAPH = """
name: g
start: a
finally: f
nodes:
  a: {kind: local, service: t, post: {output_key: got}, compensate: {service: u, params: {was: $input.id, of: $shared.got.id, x: $params.x}}}
  b: {kind: local, service: t}
  f: {kind: local, service: t}
  f2: {kind: local, service: t}
edges: [{from: a, to: b}, {from: f, to: f2}]
"""


def test_graph_undoes_its_calls_and_runs_its_final_chain_when_it_fails() -> None:
    case = Case(GRAPH, {"x": 7})
    case.start()
    assert starts(case.succeed("a", {"id": 5})) == ["b"]
    assert starts(case.fail("b")) == ["a.compensate"]
    assert case.args("a.compensate") == {"input": {"id": 5}, "params": {"was": 5, "of": None, "x": 7}}
    assert starts(case.succeed("a.compensate")) == ["f"]
    assert starts(case.succeed("f")) == ["f2"]
    assert finish(case.succeed("f2")).status == "failed"


def test_graph_runs_its_final_chain_when_it_completes_or_is_cancelled() -> None:
    case = Case(GRAPH, {"x": 7})
    case.start()
    case.succeed("a", {"id": 5})
    assert starts(case.succeed("b")) == ["f"]
    case.succeed("f")
    assert finish(case.succeed("f2")).status == "completed"
    case = Case(GRAPH, {"x": 7})
    case.start()
    case.cancel()
    assert starts(case.fail("a")) == ["f"]
    case.succeed("f")
    assert finish(case.succeed("f2")).status == "cancelled"


def test_subflow_runs_its_final_chain_before_the_outer_graph_goes_on() -> None:
    inner = {
        "start": "s",
        "finally": "f",
        "nodes": {"s": {"kind": "local", "service": "t"}, "f": {"kind": "local", "service": "t"}},
    }
    outer = {
        "name": "o",
        "start": "sub",
        "nodes": {"sub": {"kind": "subflow", "subflow": inner}, "after": {"kind": "local", "service": "t"}},
        "edges": [{"from": "sub", "action": "error", "to": "after"}],
    }
    case = Case(encode(outer).decode())
    case.start()
    assert starts(case.fail("sub.s")) == ["sub.f"]
    assert starts(case.succeed("sub.f")) == ["after"]


def test_final_chain_must_have_nodes_of_its_own() -> None:
    with pytest.raises(InvalidSpec, match="finally leads to"):
        Case(GRAPH.replace("finally: f", "finally: b"))


# --------------------------------------------------------------------------------------------- thousands at once

MANY_FINALS = """
name: n
steps:
  - id: loop
    kind: foreach
    items: $.inputs.xs
    concurrency: 100
    steps: [{id: s, tool: t, finally: [{id: f, tool: t}]}]
"""


def unwinding(count: int) -> Case:
    """A cancelled run in which the last of so many attempts is about to end."""
    case = Case(MANY_FINALS, {"xs": list(range(count))})
    case.start()
    case.go_on()
    case.cancel()
    for index in range(count - 1):
        case.release(f"loop[{index}].s", "stopping")
    return case


def calls_in(case: Case, event: Event) -> int:
    """How many calls it takes to decide about an event: this does not depend on the machine."""
    calls = 0

    def count(frame: object, kind: str, arg: object) -> None:
        nonlocal calls
        calls += kind in ("call", "c_call")

    sys.setprofile(count)
    try:
        decide(case.plan, case.run, event, case.now)
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_to_begin_final_steps_grows_with_their_number_and_not_faster() -> None:
    few, many = [
        calls_in(unwinding(count), AttemptReleased(f"loop[{count - 1}].s", 1, "stopping"))
        for count in (20, 80)
    ]
    assert many < 5 * few


def test_the_end_of_one_of_many_final_steps_costs_as_much_as_that_of_one_of_few() -> None:
    costs = []
    for count in (20, 80):
        case = unwinding(count)
        case.release(f"loop[{count - 1}].s", "stopping")
        case.go_on()
        costs.append(calls_in(case, StepSucceeded("loop[0].f", 1, msgspec.Raw(b"1"))))
    few, many = costs
    assert many < 2 * few


def test_final_steps_that_were_about_to_begin_follow_the_compensations_of_a_cancelled_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(
        "name: n\nsteps: [{id: a, tool: t, compensate: {tool: t}}]\nfinally: [{id: f, tool: t}]",
    )
    case.start()
    monkeypatch.setattr(draft, "DECISIONS_MAX", 2)
    assert starts(case.succeed("a")) == []  # the rest of the decision is in the next row
    assert starts(case.cancel()) == ["a.compensate"]
    monkeypatch.undo()
    assert starts(case.succeed("a.compensate")) == ["f"]
    assert finish(case.succeed("f")).status == "cancelled"


def test_a_second_cancel_does_not_limit_the_compensations_of_a_run_that_was_in_its_final_steps() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t, compensate: {tool: t}}]\nfinally: [{id: f, tool: t}]")
    case.start()
    assert starts(case.succeed("a")) == ["f"]
    assert starts(case.cancel()) == ["a.compensate"]
    assert armed(case.cancel()) == {}
    assert finish(case.succeed("a.compensate")).status == "cancelled"
