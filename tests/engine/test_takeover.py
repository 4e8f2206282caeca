"""A process ends and the next one takes its runs over: lost attempts, suspects and their lane, and what is not lost."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.engine import draft
from holdfast.engine.events import Adopted, StepSucceeded, SuspectsTurn
from holdfast.values import NULL
from tests.engine.driver import Case, armed, failures, finish, starts, was_cut

ONE = "name: n\nsteps: [{id: a, tool: t}, {id: b, tool: t}]"
THREE = (
    "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: t}, {id: b, tool: t}, {id: c, tool: t}]}]"
)


def started(definition: str) -> Case:
    case = Case(definition)
    case.start()
    return case


def suspected(definition: str = ONE) -> Case:
    """Lost twice: from here on the step waits for its turn in the lane."""
    case = started(definition)
    case.crash()
    case.crash()
    return case


# --------------------------------------------------------------------------------------------------------- losses


def test_a_lost_attempt_is_started_again_under_the_next_number() -> None:
    case = started(ONE)
    assert starts(case.crash()) == ["a"]
    assert (case.step("a").attempt, case.step("a").lost) == (2, 1)


def test_a_lost_attempt_does_not_count_against_retry() -> None:
    case = started("name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 2, initial_delay_ms: 0}}]")
    case.crash()
    assert starts(case.fail("a")) == ["a"]
    assert case.step("a").attempt == 3
    assert finish(case.fail("a")).status == "failed"


def test_back_off_does_not_count_losses() -> None:
    case = started("name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 5, initial_delay_ms: 100}}]")
    case.crash()
    assert armed(case.fail("a")) == {"retry a": case.now + 100}


def test_attempts_that_counted_still_count_after_a_takeover() -> None:
    case = started("name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 2, initial_delay_ms: 0}}]")
    case.fail("a")
    case.crash()
    assert finish(case.fail("a")).status == "failed"


def test_a_step_without_retry_survives_a_loss() -> None:
    case = started(ONE)
    case.crash()
    assert starts(case.succeed("a")) == ["b"]


def test_the_answer_of_a_lost_attempt_is_late() -> None:
    case = started(ONE)
    case.crash()
    assert case.apply(StepSucceeded("a", 1, NULL)) == []


def test_on_crash_fail_gives_a_step_at_most_one_start() -> None:
    case = started("name: n\nsteps: [{id: a, tool: t, on_crash: fail, retry: {max_attempts: 5}}]")
    error = finish(case.crash()).error
    assert error is not None and (error.kind, error.path) == ("lost", "a")


def test_on_crash_fail_inside_a_parallel_stops_the_others_at_once() -> None:
    case = started(
        "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: t, on_crash: fail}, {id: b, tool: t}]}]"
    )
    decisions = case.crash()
    error = finish(decisions).error
    assert error is not None and (error.kind, starts(decisions)) == ("lost", [])


def test_each_of_many_lost_attempts_is_started_again() -> None:
    case = started(THREE)
    assert sorted(starts(case.crash())) == ["p[0].a", "p[1].b", "p[2].c"]


def test_a_back_off_survives_a_takeover() -> None:
    case = started("name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 2, initial_delay_ms: 4000}}]")
    case.fail("a")
    due = dict(case.run.timers)
    assert starts(case.crash()) == []
    assert case.run.timers == due
    assert starts(case.fire("retry", "a")) == ["a"]


def test_a_time_out_under_way_ends_with_the_process() -> None:
    case = started(
        "name: n\nsteps: [{id: a, tool: t, timeout_secs: 1, retry: {max_attempts: 2, initial_delay_ms: 0}}]"
    )
    case.time_out("a")
    assert starts(case.crash()) == ["a"]
    assert (case.step("a").tries, case.step("a").lost, case.run.timers) == (1, 0, {})


# ---------------------------------------------------------------------------------------------------------- lane


def test_a_step_lost_twice_waits_for_its_turn() -> None:
    case = started(ONE)
    case.crash()
    assert starts(case.crash()) == []
    assert (case.step("a").state, case.step("a").reason) == ("ready", "suspect")
    assert case.run.status == "running"


def test_a_suspect_starts_in_a_row_of_its_own() -> None:
    case = suspected()
    assert starts(case.turn("a")) == ["a"]
    assert case.step("a").attempt == 3


def test_a_turn_heard_twice_starts_once() -> None:
    case = suspected()
    case.turn("a")
    assert case.turn("a") == []


@pytest.mark.parametrize("path", ["a", "b", "nowhere"])
def test_a_turn_for_a_step_that_is_no_suspect_starts_nothing(path: str) -> None:
    assert started(ONE).apply(SuspectsTurn(path)) == []


def test_a_loss_beside_others_does_not_count() -> None:
    case = suspected()
    for _ in range(10):
        case.turn("a")
        case.crash()
    assert case.step("a").lost_alone == 0
    assert starts(case.turn("a")) == ["a"]


def test_losses_alone_count_and_delay_the_next_turn_longer_each_time() -> None:
    case = suspected()
    waits = []
    for _ in range(limits.DEFAULTS.losses_max - 1):
        case.turn("a")
        waits.append(armed(case.crash(alone="a"))["suspect a"] - case.now)
        case.fire("suspect", "a")
    assert waits == [1_000, 2_000]


def test_a_step_lost_three_times_alone_fails_with_kind_lost() -> None:
    case = suspected()
    for _ in range(limits.DEFAULTS.losses_max - 1):
        case.turn("a")
        case.crash(alone="a")
        case.fire("suspect", "a")
    case.turn("a")
    error = finish(case.crash(alone="a")).error
    assert error is not None and (error.kind, error.path) == ("lost", "a")
    assert error.message.startswith("step a was lost: its process ended 3 times while it ran alone")


def test_lost_is_never_retried_by_policy() -> None:
    case = suspected("name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 50, initial_delay_ms: 0}}]")
    for _ in range(limits.DEFAULTS.losses_max):
        case.turn("a")
        decisions = case.crash(alone="a")
        if not case.run.over:
            case.fire("suspect", "a")
    assert finish(decisions).status == "failed"


def test_one_step_that_kills_the_process_does_not_wear_its_neighbours_out() -> None:
    case = suspected(THREE)
    for _ in range(limits.DEFAULTS.losses_max):
        case.turn("p[0].a")
        case.turn("p[1].b")  # a has lived its time: the lane went on to b
        decisions = case.crash(alone="p[1].b")
        if "suspect p[1].b" in case.run.timers:
            case.fire("suspect", "p[1].b")
    assert next(iter(failures(decisions))) == "p[1].b"


def test_a_suspect_that_succeeds_is_like_any_step() -> None:
    case = suspected()
    case.turn("a")
    assert starts(case.succeed("a")) == ["b"]


def test_a_cancel_reaches_a_suspect_that_waits_for_its_turn() -> None:
    assert finish(suspected().cancel()).status == "cancelled"


# ------------------------------------------------------------------------------------------------ what is given back


def test_an_attempt_given_back_counts_nothing() -> None:
    case = started(ONE)
    case.release("a")
    step = case.step("a")
    assert (step.state, step.reason, step.tries, step.lost) == ("ready", "stopping", 0, 0)
    assert case.run.status == "running"


def test_a_step_given_back_starts_when_the_run_is_taken_up() -> None:
    case = started(ONE)
    case.release("a")
    assert starts(case.crash()) == ["a"]
    assert (case.step("a").attempt, case.step("a").lost) == (2, 0)


def test_a_step_whose_tool_is_missing_never_fails_for_it() -> None:
    case = started(ONE)
    for _ in range(20):
        case.release("a", "no_tool")
        assert case.step("a").reason == "no_tool"
        case.crash()
    assert (case.step("a").lost, case.run.status) == (0, "running")


def test_on_crash_fail_does_not_fail_a_step_that_was_given_back() -> None:
    case = started("name: n\nsteps: [{id: a, tool: t, on_crash: fail}]")
    case.release("a")
    assert starts(case.crash()) == ["a"]


# ------------------------------------------------------------------------------------------------- drive, interrupt


@pytest.mark.parametrize(
    "definition",
    [
        ONE,
        THREE,
        "name: n\nsteps: [{id: a, tool: t, timeout_secs: 1, retry: {max_attempts: 5, initial_delay_ms: 0}}]",
        """
        name: n
        steps:
          - id: loop
            kind: foreach
            items: $.inputs.xs
            on_any_fail: continue
            steps: [{id: a, tool: t, on_crash: fail}]
        """,
    ],
)
def test_a_takeover_that_does_not_drive_starts_nothing(definition: str) -> None:
    case = Case(definition, {"xs": [1, 2, 3]} if "xs" in definition else None)
    case.start()
    if "timeout_secs" in definition:
        case.time_out("a")
    assert starts(case.crash(drive=False)) == []


@pytest.mark.parametrize("definition", [ONE, THREE])
def test_a_takeover_that_does_not_drive_leaves_what_was_open_ready(definition: str) -> None:
    case = started(definition)
    before = case.open
    case.crash(drive=False)
    assert case.open == []
    assert [path for path, step in case.run.steps.items() if step.state == "ready"] == before


def test_what_a_takeover_without_drive_left_is_started_by_the_next_one() -> None:
    case = started(ONE)
    case.crash(drive=False)
    assert starts(case.crash()) == ["a"]


def test_a_run_with_nothing_open_goes_on_unchanged() -> None:
    case = started("name: n\nsteps: [{id: w, kind: timer, delay_ms: 9000}]")
    assert case.apply(Adopted()) == []
    assert case.run.status == "waiting"


def test_a_run_that_asks_for_it_is_interrupted_by_a_restart() -> None:
    case = started("name: n\non_restart: interrupt\nsteps: [{id: a, tool: t}]")
    end = finish(case.crash())
    assert (end.status, end.error and end.error.kind) == ("interrupted", "interrupted")


def test_a_run_that_waits_is_interrupted_too() -> None:
    case = started("name: n\non_restart: interrupt\nsteps: [{id: w, kind: timer, delay_ms: 9000}]")
    assert finish(case.crash()).status == "interrupted"


def test_interrupting_starts_nothing() -> None:
    case = started("name: n\non_restart: interrupt\nsteps: [{id: a, tool: t}]")
    assert starts(case.crash()) == []


def test_an_adoption_that_is_cut_takes_no_work_along_from_a_scope_that_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(
        """
        name: n
        steps:
          - id: outer
            kind: foreach
            items: $.inputs.xs
            on_any_fail: continue
            steps:
              - id: par
                kind: parallel
                branches:
                  - [{id: s, tool: t, on_crash: fail}]
                  - [{id: br, kind: branch, on: $.inputs.xs, then: [{id: x, tool: t, args: {i: "{{ item }}"}}]}]
          - {id: after, tool: t}
        """,
        {"xs": [1]},
    )
    monkeypatch.setattr(draft, "DECISIONS_MAX", 4)
    assert was_cut(case.start())
    monkeypatch.setattr(draft, "DECISIONS_MAX", 2)
    case.crash()
    case.go_on()
    assert case.open == ["after"]
