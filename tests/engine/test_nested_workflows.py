"""Workflows within workflows in the core: scopes with inputs, output and time of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.engine import draft
from holdfast.engine.codec import decode_parts, encode_parts
from holdfast.engine.decisions import OpenScope
from holdfast.plan import composed
from holdfast.values import decode
from tests.engine.driver import Case, armed, failures, finish, starts, state_of, stops, was_cut

CHILD = """
name: child
inputs: {n: {type: integer}, by: {type: integer, default: 2}}
steps:
  - {id: s, tool: times, args: {a: "{{ inputs.n }}", b: "{{ by }}"}}
  - {id: t, tool: times, args: {a: "{{ s }}"}}
"""
PARENT = """
name: parent
steps:
  - {id: s, tool: t}
  - {id: inner, workflow: child, inputs: {n: "{{ s }}"}}
  - {id: last, tool: t, args: {all: "{{ inner }}"}}
"""
TWICE = """
name: middle
inputs: {xs: {type: array}}
steps:
  - id: loop
    kind: foreach
    items: $.inputs.xs
    concurrency: 9
    on_any_fail: HOW
    collect: WHAT
    steps: [{id: deep, workflow: child, inputs: {n: "{{ item }}"}}]
"""
OUTER = """
name: outer
steps: [{id: mid, workflow: middle, inputs: {xs: "{{ inputs.xs }}"}}, {id: end, tool: t, args: {m: "{{ mid }}"}}]
"""


def parent(child: str = CHILD, top: str = PARENT) -> Case:
    case = Case(top, uses={"child": child})
    case.start()
    return case


def outer(
    how: str = "abort", what: str = "outputs", xs: list[Any] | None = None, *, checks: bool = True
) -> Case:
    middle = TWICE.replace("HOW", how).replace("WHAT", what)
    case = Case(
        OUTER, {"xs": [1, 2] if xs is None else xs}, uses={"middle": middle, "child": CHILD}, checks=checks
    )
    case.start()
    return case


def test_entering_opens_a_scope_with_the_inputs_filled_in_and_starts_the_first_step() -> None:
    case = parent()
    opened, start = case.succeed("s", 3)
    assert isinstance(opened, OpenScope) and opened.is_nested
    assert decode(opened.items) == {"n": 3, "by": 2}
    assert starts([start]) == ["inner.s"]
    assert case.args("inner.s") == {"a": 3, "b": 2}


def test_a_step_inside_sees_its_own_siblings_and_not_those_around_it() -> None:
    case = parent()
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    assert case.args("inner.t") == {"a": 6}


def test_without_an_output_of_its_own_a_nested_workflow_gives_the_outputs_of_its_steps() -> None:
    case = parent()
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    case.succeed("inner.t", 60)
    assert case.args("last") == {"all": {"s": 6, "t": 60}}


def test_an_output_of_its_own_is_what_a_nested_workflow_gives() -> None:
    case = parent(CHILD + 'output: {double: "{{ t }}", of: "{{ inputs.n }}"}\n')
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    case.succeed("inner.t", 60)
    assert case.args("last") == {"all": {"double": 60, "of": 3}}


def test_paths_name_every_level_of_nesting_and_looping() -> None:
    case = outer()
    assert case.open == ["mid.loop[0].deep.s", "mid.loop[1].deep.s"]
    assert case.args("mid.loop[1].deep.s") == {"a": 2, "b": 2}


def test_nested_in_foreach_in_nested_gives_the_outputs_in_item_order() -> None:
    case = outer()
    for index in (1, 0):
        case.succeed(f"mid.loop[{index}].deep.s", index)
        case.succeed(f"mid.loop[{index}].deep.t", 10 * index)
    iterations = [{"deep": {"s": 0, "t": 0}}, {"deep": {"s": 1, "t": 10}}]
    assert case.args("end") == {"m": {"loop": {"iterations": iterations}}}


def test_a_failure_inside_is_wrapped_at_each_level_and_keeps_its_kind() -> None:
    case = outer(xs=[1])
    ended = case.fail("mid.loop[0].deep.s", "odd", "no luck")
    error = finish(ended).error
    assert error is not None and error.kind == "odd"
    paths = []
    while error is not None:
        paths.append(error.path)
        error = error.cause
    assert paths == ["mid", "mid.loop", "mid.loop[0].deep", "mid.loop[0].deep.s"]


def test_a_failed_nested_workflow_stops_what_is_at_work_beside_it_and_waits_for_that() -> None:
    case = outer()
    assert stops(case.fail("mid.loop[0].deep.s")) == ["mid.loop[1].deep.s"]
    assert case.run.status == "running"
    assert finish(case.fail("mid.loop[1].deep.s", "cancelled")).status == "failed"


def test_a_failed_iteration_with_a_nested_body_is_a_result_where_the_loop_goes_on() -> None:
    case = outer("continue")
    case.fail("mid.loop[0].deep.s", "odd")
    case.succeed("mid.loop[1].deep.s", 1)
    case.succeed("mid.loop[1].deep.t", 2)
    first, second = case.args("end")["m"]["loop"]["iterations"]
    assert first["error"]["kind"] == "odd" and second == {"deep": {"s": 1, "t": 2}}


@pytest.mark.parametrize("given", ['"text"', "null"])
def test_inputs_that_do_not_fit_fail_the_step_before_anything_inside_begins(given: str) -> None:
    case = Case(PARENT, uses={"child": CHILD})
    case.start()
    ended = case.succeed("s", "text" if given != "null" else None)
    assert failures(ended)["inner"].kind == "inputs"
    assert finish(ended).status == "failed"


def test_the_time_of_a_nested_workflow_counts_from_its_entering() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.wait(60_000)
    assert armed(case.succeed("s", 3)) == {"deadline inner": case.now + 5_000}


def test_a_nested_workflow_out_of_time_stops_its_steps_and_fails_when_they_have_answered() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.succeed("s", 3)
    assert stops(case.fire("deadline", "inner")) == ["inner.s"]
    assert case.run.ending == ""
    ended = case.fail("inner.s", "cancelled")
    assert failures(ended)["inner"].kind == "run_timeout"
    assert finish(ended).status == "failed"


def test_a_nested_workflow_out_of_time_goes_on_failing_when_its_grace_is_over() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.succeed("s", 3)
    case.fire("deadline", "inner")
    assert failures(case.fire("grace", "inner"))["inner"].kind == "run_timeout"
    assert case.run.over and case.run.timers == {}


def test_a_nested_workflow_that_ends_in_time_disarms_its_deadline() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    case.succeed("inner.t", 60)
    assert case.run.timers == {}


def test_a_nested_deadline_during_a_cancel_does_not_take_the_cancel_away() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.succeed("s", 3)
    case.cancel()
    assert case.fire("deadline", "inner") == []
    assert "" in case.run.stops
    assert finish(case.fire("grace")).status == "cancelled"


def test_a_nested_deadline_while_a_scope_around_it_is_stopped_changes_nothing() -> None:
    top = """
    name: top
    steps:
      - id: par
        kind: parallel
        branches: [[{id: inner, workflow: child, inputs: {n: 1}}], [{id: b, tool: t}]]
    """
    case = parent("timeout_secs: 5\n" + CHILD, top)
    case.fail("par[1].b", "odd")
    assert case.fire("deadline", "par[0].inner") == []
    error = finish(case.fail("par[0].inner.s", "cancelled")).error
    assert error is not None and (error.path, error.kind) == ("par", "odd")


def test_a_cancel_takes_the_stop_of_a_nested_workflow_in() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.succeed("s", 3)
    case.fire("deadline", "inner")
    assert stops(case.cancel()) == ["inner.s"]
    assert list(case.run.stops) == [""]
    assert finish(case.succeed("inner.s", 1)).status == "cancelled"


def test_an_inner_time_out_of_a_step_does_not_touch_the_scope_around_it() -> None:
    case = parent(
        CHILD.replace('b: "{{ by }}"}}', 'b: "{{ by }}"}, timeout_secs: 1, retry: {max_attempts: 2}}')
    )
    case.succeed("s", 3)
    case.time_out("inner.s")
    again = case.fail("inner.s", "cancelled")
    assert starts(again) == ["inner.s"] or armed(again)
    assert "inner" in case.run.scopes


def test_a_loss_while_a_nested_workflow_is_being_stopped_ends_the_stop() -> None:
    case = parent("timeout_secs: 5\n" + CHILD)
    case.succeed("s", 3)
    case.fire("deadline", "inner")
    assert failures(case.crash())["inner"].kind == "run_timeout"
    assert case.run.over


def test_steps_inside_a_nested_workflow_are_lost_and_started_again_like_any() -> None:
    case = outer()
    assert sorted(starts(case.crash())) == ["mid.loop[0].deep.s", "mid.loop[1].deep.s"]


def test_frames_of_a_nested_workflow_with_an_output_are_dropped_when_it_ends() -> None:
    case = parent(CHILD + 'output: "{{ t }}"\n')
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    case.succeed("inner.t", 60)
    assert sorted(case.run.frames) == [""]


def test_frames_of_a_nested_workflow_that_no_expression_names_are_dropped_when_it_ends() -> None:
    top = PARENT.replace(', args: {all: "{{ inner }}"}', "") + 'output: "{{ last }}"\n'
    case = parent(top=top)
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    case.succeed("inner.t", 60)
    assert sorted(case.run.frames) == [""]


def test_a_loop_that_collects_nothing_runs_nested_bodies_in_flat_memory() -> None:
    case = outer(what="none", xs=list(range(300)), checks=False)
    sizes = []
    for index in range(300):
        case.succeed(f"mid.loop[{index}].deep.s", "x" * 200)
        case.succeed(f"mid.loop[{index}].deep.t", "y" * 200)
        sizes.append((len(case.run.frames), len(case.run.scopes), case.run.kept_bytes))
        if case.run.over or "end" in case.run.steps:
            break
    assert max(sizes[20:200]) <= max(sizes[:20])
    assert case.args("end") == {"m": {"loop": {"count": 300, "failed": 0}}}


def test_a_loop_that_collects_nothing_keeps_nothing_of_nested_bodies_that_failed() -> None:
    case = outer("continue", "none", list(range(50)), checks=False)
    for index in range(50):
        case.fail(f"mid.loop[{index}].deep.s")
    assert sorted(case.run.frames) == ["", "mid"]
    assert case.args("end") == {"m": {"loop": {"count": 50, "failed": 50}}}
    assert case.run.kept_bytes < 50


@pytest.mark.parametrize("rows", range(1, 6))
def test_a_snapshot_brings_nested_scopes_back_as_they_were(rows: int) -> None:
    case = outer()
    facts: list[Callable[[], Any]] = [
        lambda: case.succeed("mid.loop[0].deep.s", 1),
        lambda: case.succeed("mid.loop[0].deep.t", "x"),
        lambda: case.succeed("mid.loop[1].deep.s", 2),
        lambda: case.succeed("mid.loop[1].deep.t", "y"),
    ]
    for fact in facts[: rows - 1]:
        fact()
    assert state_of(decode_parts(encode_parts(case.run))) == state_of(case.run)


def test_an_empty_loop_inside_a_nested_workflow_ends_it_at_once() -> None:
    case = outer(xs=[])
    assert case.open == ["end"]
    assert case.args("end") == {"m": {"loop": {"iterations": []}}}


def test_a_deadline_before_the_cut_work_that_enters_a_nested_workflow_leaves_nothing_to_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    middle = TWICE.replace("HOW", "continue").replace("WHAT", "none")
    uses = {"middle": middle, "child": "timeout_secs: 5\n" + CHILD}
    case = Case(OUTER, {"xs": [1]}, uses=uses)
    with monkeypatch.context() as small:
        small.setattr(draft, "DECISIONS_MAX", 4)
        assert was_cut(case.start())
    assert failures(case.fire("deadline", "mid.loop[0].deep"))["mid.loop[0].deep"].kind == "run_timeout"
    case.go_on()
    assert case.open == ["end"]


def test_an_output_of_a_nested_workflow_that_is_too_large_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    case = parent(CHILD + 'output: ["{{ t }}", "{{ t }}"]\n')
    case.succeed("s", 3)
    case.succeed("inner.s", 6)
    monkeypatch.setattr(composed, "LIMIT", 100)
    assert failures(case.succeed("inner.t", "x" * 60))["inner"].kind == "output_too_large"
