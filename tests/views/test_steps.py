"""The steps of a run as people see them, from rows: agreed with the fold at every row, and told in the right words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast
from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import ReserveKey
from holdfast.engine.events import KeyHeld, RunStarted, StepSucceeded
from holdfast.store.records import ReadRow
from holdfast.values import NULL, Millis, decode
from holdfast.views.step_pages import read_steps
from holdfast.views.steps import Steps, StepView
from tests.engine.driver import BEGAN, Case

PLAIN = "name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 2, initial_delay_ms: 50}}, {id: b, tool: t}]"
TIMED = "name: n\nsteps: [{id: a, tool: t, timeout_secs: 1, retry: {max_attempts: 2, initial_delay_ms: 50}}]"
PAUSE = "name: n\nsteps: [{id: pause, kind: timer, delay_ms: 700}]"
LOOP = """
name: n
steps:
  - id: loop
    kind: foreach
    items: $.inputs.of
    concurrency: 2
    on_any_fail: %s
    steps: [{id: s, tool: t, args: {x: "{{item}}"}}]
  - {id: after, tool: t}
"""
EVERYTHING = """
name: n
timeout_secs: 30
steps:
  - id: loop
    kind: foreach
    items: $.inputs.of
    concurrency: 3
    on_any_fail: continue
    retry: {max_attempts: 3, initial_delay_ms: 10, backoff: fixed}
    timeout_secs: 2
    steps:
      - {id: first, tool: t}
      - id: choice
        kind: branch
        on: $.first.ok
        then: [{id: yes, tool: t}]
        else: [{id: wait, kind: timer, delay_ms: 100}]
  - id: both
    kind: parallel
    branches:
      - [{id: left, tool: t, on_crash: fail}]
      - [{id: right, tool: t}, {id: nap, kind: timer, delay_ms: 20}]
      - [{id: inner, kind: foreach, items: $.inputs.of, steps: [{id: deep, tool: t, args: {x: "{{inputs.of}}"}}]}]
  - {id: bad, tool: t, args: {x: "{{loop.iterations[0].first.ok}}"}}
"""


def steps_of(rows: Iterable[ReadRow], *, every: bool = False) -> Steps:
    steps = Steps(every=every)
    steps.take_rows(rows)
    return steps


def of(case: Case, *, every: bool = False) -> dict[str, StepView]:
    return steps_of(case.rows, every=every).by_path


def begun(definition: str, inputs: dict[str, Any] | None = None) -> Case:
    case = Case(definition, inputs)
    case.start()
    return case


# ------------------------------------------------------------------------------------------------------- one step


def test_a_step_that_was_not_reached_has_no_entry() -> None:
    assert list(of(begun(PLAIN))) == ["a"]


def test_a_step_at_work_is_running() -> None:
    step = of(begun(PLAIN))["a"]
    assert (step.status, step.attempts, step.started, step.finished) == ("running", 1, BEGAN, None)


def test_a_finished_step_has_its_output_and_its_times() -> None:
    case = begun(PLAIN)
    case.now = Millis(BEGAN + 250)
    case.succeed("a", {"x": 1})
    step = of(case)["a"]
    assert (step.status, decode(step.output), step.error) == ("completed", {"x": 1}, None)
    assert (step.started, step.finished) == (BEGAN, BEGAN + 250)


def test_a_step_between_two_attempts_is_retrying_and_says_why_and_until_when() -> None:
    case = begun(PLAIN)
    case.fail("a", message="busy")
    step = of(case)["a"]
    assert (step.status, step.attempts, step.due) == ("retrying", 1, BEGAN + 50)
    assert step.error is not None and step.error.message == "busy"


def test_a_step_that_came_through_has_no_error_and_all_its_attempts() -> None:
    case = begun(PLAIN)
    case.fail("a")
    case.fire("retry", "a")
    case.succeed("a")
    step = of(case)["a"]
    assert (step.status, step.attempts, step.error, step.due) == ("completed", 2, None, None)


def test_a_step_that_failed_for_good_says_why() -> None:
    case = begun(PLAIN)
    case.fail("a")
    case.fire("retry", "a")
    case.fail("a", message="no use")
    step = of(case)["a"]
    assert (step.status, step.attempts) == ("failed", 2)
    assert step.error is not None and step.error.message == "no use"


def test_a_step_whose_time_is_over_is_retrying_once_it_has_stopped() -> None:
    case = begun(TIMED)
    case.time_out("a")
    assert of(case)["a"].status == "running"
    case.fail("a", kind="cancelled")
    assert (of(case)["a"].status, of(case)["a"].due) == ("retrying", case.now + 50)


def test_a_timer_waits_until_it_is_due() -> None:
    case = begun(PAUSE)
    step = of(case)["pause"]
    assert (step.status, step.due, step.attempts) == ("waiting", BEGAN + 700, 0)
    case.fire("delay", "pause")
    assert of(case)["pause"].status == "completed"


def test_an_attempt_that_was_given_back_is_ready_and_says_why() -> None:
    case = begun(PLAIN)
    case.release("a", "no_tool")
    assert (of(case)["a"].status, of(case)["a"].reason) == ("ready", "no_tool")


def test_an_attempt_that_was_lost_is_started_again() -> None:
    case = begun(PLAIN)
    case.crash()
    assert (of(case)["a"].status, of(case)["a"].attempts) == ("running", 2)


def test_a_template_that_fails_makes_a_failed_step_without_attempts() -> None:
    case = begun('name: n\nsteps: [{id: a, kind: timer, delay_ms: "{{inputs.x}}"}]', {"x": "soon"})
    step = of(case)["a"]
    assert (step.status, step.attempts) == ("failed", 0)


def test_what_was_open_when_the_run_was_cancelled_is_cancelled() -> None:
    case = begun(PLAIN)
    case.cancel()
    assert of(case)["a"].status == "running"
    case.fail("a", kind="cancelled")
    assert of(case)["a"].status == "cancelled"


def test_a_late_answer_changes_nothing() -> None:
    case = begun(PLAIN)
    case.crash()
    before = of(case)
    case.apply(StepSucceeded("a", 1, NULL))
    assert of(case) == before


# --------------------------------------------------------------------------------------------------------- scopes


def test_a_loop_says_how_many_of_its_children_are_done_and_failed() -> None:
    case = begun(LOOP % "continue", {"of": [1, 2, 3]})
    case.fail("loop[0].s")
    case.succeed("loop[1].s")
    loop = of(case)["loop"]
    assert (loop.status, loop.children, loop.done, loop.failed) == ("running", 3, 2, 1)


def test_steps_inside_a_loop_are_forgotten_once_they_ended_well_unless_every_one_is_wanted() -> None:
    case = begun(LOOP % "continue", {"of": [1, 2, 3]})
    case.fail("loop[0].s")
    case.succeed("loop[1].s")
    assert list(of(case)) == ["loop", "loop[0].s", "loop[2].s"]
    assert list(of(case, every=True)) == ["loop", "loop[0].s", "loop[1].s", "loop[2].s"]


def test_a_loop_of_any_length_takes_flat_memory() -> None:
    case = Case(LOOP % "abort", {"of": list(range(300))}, checks=False)
    steps, most = Steps(), 0
    case.start()
    while case.open:
        for path in case.open:
            case.succeed(path)
        steps = steps_of(case.rows)
        most = max(most, len(steps.by_path))
        if len(case.rows) > 40:
            break
    assert most <= 4  # the loop, two at work, and one between


def test_what_a_failed_loop_leaves_open_is_cancelled() -> None:
    case = begun(LOOP % "abort", {"of": [1, 2]})
    case.fail("loop[0].s")
    case.fail("loop[1].s", kind="cancelled")
    steps = of(case, every=True)
    assert [steps[path].status for path in ("loop", "loop[0].s", "loop[1].s")] == [
        "failed",
        "failed",
        "cancelled",
    ]


def test_what_does_not_stop_in_time_is_cancelled_with_its_loop_and_nothing_else_is() -> None:
    case = begun(
        """
name: n
steps:
  - id: both
    kind: parallel
    on_any_fail: continue
    branches:
      - [{id: loop, kind: foreach, items: $.inputs.of, concurrency: 2, steps: [{id: s, tool: t}]}]
      - [{id: other, tool: t}]
""",
        {"of": [1, 2]},
    )
    case.fail("both[0].loop[0].s")
    case.fire("grace", "both[0].loop")
    steps = of(case, every=True)
    assert steps["both[0].loop"].status == "failed"
    assert steps["both[0].loop[1].s"].status == "cancelled"
    assert steps["both[1].other"].status == "running"


def test_a_choice_counts_no_children() -> None:
    case = begun(
        "name: n\nsteps: [{id: c, kind: branch, on: $.inputs.x, then: [{id: y, tool: t}]}]", {"x": 1}
    )
    assert (of(case)["c"].is_scope, of(case)["c"].children) == (True, 0)


# --------------------------------------------------------------------------------------- waiting for the outside


def test_a_run_waits_for_a_tool_when_nothing_else_is_open() -> None:
    case = begun(LOOP % "continue", {"of": [1, 2]})
    case.release("loop[0].s", "no_tool")
    assert steps_of(case.rows).stuck == []
    case.release("loop[1].s", "no_tool")
    assert [step.path for step in steps_of(case.rows).stuck] == ["loop[0].s", "loop[1].s"]


def test_a_run_waits_for_a_key_that_another_run_holds() -> None:
    steps = Steps()
    steps.take(RunStarted(NULL), [ReserveKey("s", "k", True)], BEGAN)
    assert steps.stuck == []  # it is not known yet who has the key
    steps.take(KeyHeld("s"), [], BEGAN)
    assert [(step.path, step.status, step.reason) for step in steps.stuck] == [("s", "waiting", "key")]


def test_a_finished_run_waits_for_no_tool() -> None:
    case = begun(PAUSE)
    case.fire("delay", "pause")
    assert steps_of(case.rows).stuck == []


# --------------------------------------------------------------------------------------------- agreed with the fold


def one_fact(case: Case, draw: st.DataObject) -> None:
    """Let something happen that can happen now."""
    run = case.run
    if run.todo:
        case.go_on()
        return
    choices: list[tuple[str, str]] = (
        [("crash", ""), ("cancel", "")] if draw.draw(st.integers(0, 15)) == 0 else []
    )
    if not choices:
        told = [("time_out", path) for path in case.open if run.steps[path].target is None and "loop" in path]
        choices = [(what, path) for path in case.open for what in ("succeed", "fail", "release")] + told
        choices += [("fire", key) for key in run.timers if not key.startswith("deadline")]
        choices += [("turn", path) for path, step in run.steps.items() if step.reason == "suspect"]
        choices = choices or [("crash", "")]
    what, whom = draw.draw(st.sampled_from(choices))
    if what == "fire":
        case.fire(*whom.split(" ", 1))
    elif what == "succeed":
        case.succeed(whom, {"ok": draw.draw(st.booleans())})
    elif whom:
        getattr(case, what)(whom)
    else:
        getattr(case, what)()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_at_every_row_it_says_of_open_steps_what_the_fold_says(data: st.DataObject) -> None:
    case = Case(EVERYTHING, {"of": [1, 2, 3]}, checks=False)
    case.start()
    steps, seen = Steps(), 0
    for _ in range(60):
        for _, _, at, _, body in case.rows[seen:]:
            steps.take(*decode_row(body), Millis(at))
        seen = len(case.rows)
        said = {step.path: (step.status, step.attempts) for step in steps.open if not step.is_scope}
        assert said == {path: (step.state, step.attempt) for path, step in case.run.steps.items()}
        assert {step.path for step in steps.open if step.is_scope} == set(case.run.scopes)
        if case.run.over:
            assert not steps.open
            return
        one_fact(case, data)


# ------------------------------------------------------------------------------------------------- from the store


def steps_after(tmp_path: Path, definition: str, tools: list[Any], *, every: bool = False) -> dict[str, Any]:
    """Path → output, read back from a real file after a real run."""

    async def main() -> dict[str, Any]:
        async with Holdfast(str(tmp_path / "steps.db"), tools=tools) as hf:
            run = await hf.start(definition)
            await run.result(timeout=120)
            resident = await hf._engine.runs.find(run.id)
            found = await read_steps(hf._engine.store, resident.plan, resident.run, every=every)
            return {path: decode(step.output) for path, step in found.items()}

    return asyncio.run(main())


async def give(x: Any = None) -> Any:
    return x


async def big() -> str:
    return "x" * 50_000


@pytest.mark.parametrize("every", [False, True])
def test_outputs_are_whole_wherever_they_were_kept(tmp_path: Path, every: bool) -> None:
    definition = """
name: n
steps:
  - {id: large, tool: big}
  - {id: both, kind: parallel, steps: [{id: one, tool: give, args: {x: 1}}, {id: two, tool: big}]}
"""
    found = steps_after(tmp_path, definition, [give, big], every=every)
    assert found["large"] == "x" * 50_000
    assert found["both"]["branches"][1]["steps"] == {"two": "x" * 50_000}
    assert ("both[0].one" in found) is every


def test_a_start_that_was_given_back_for_a_missing_tool_is_no_attempt() -> None:
    case = Case(PLAIN)
    case.start()
    for _ in range(3):
        case.release("a", "no_tool")
        case.crash()
    steps = Steps(every=True)
    steps.take_rows(case.rows)
    assert (steps.by_path["a"].attempts, steps.by_path["a"].attempt) == (1, 4)
    case.fail("a")
    case.fire("retry", "a")
    case.succeed("a", 1)
    steps = Steps(every=True)
    steps.take_rows(case.rows)
    assert (steps.by_path["a"].attempts, steps.by_path["a"].status) == (2, "completed")
