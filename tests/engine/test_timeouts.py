"""Time limits: of an attempt, and of a whole run."""

from __future__ import annotations

from holdfast.engine.decisions import BeginStop, StartAttempt
from holdfast.engine.events import AttemptTimedOut, StepSucceeded, TimerFired
from holdfast.engine.undo import cancel_grace_ms
from holdfast.plan.graph import Call
from holdfast.values import NULL
from tests.engine.driver import BEGAN, Case, armed, finish, starts, stops

SLOW = "name: n\nsteps: [{id: a, tool: t, timeout_secs: 1.5}, {id: b, tool: t}]"
RETRIED = (
    "name: n\nsteps: [{id: a, tool: t, timeout_secs: 2, retry: {max_attempts: 2, initial_delay_ms: 100}}]"
)
LIMITED = "name: n\ntimeout_secs: 60\nsteps: [{id: a, tool: t}, {id: b, tool: t}]"


def started(definition: str) -> Case:
    case = Case(definition)
    case.start()
    return case


# ------------------------------------------------------------------------------------------------- of an attempt


def test_an_attempt_that_timed_out_is_asked_to_stop_and_gets_its_grace() -> None:
    case = started(SLOW)
    decisions = case.time_out("a")
    assert stops(decisions) == ["a"]
    assert armed(decisions) == {"grace a": BEGAN + cancel_grace_ms()}
    assert case.open == ["a"]


def test_the_step_fails_with_kind_timeout_once_the_attempt_has_answered() -> None:
    case = started(SLOW)
    case.time_out("a")
    error = finish(case.fail("a", "cancelled")).error
    assert error is not None and (error.kind, error.message) == ("timeout", "step a timed out after 1.5 s")


def test_what_an_attempt_says_after_its_time_is_no_success() -> None:
    case = started(SLOW)
    case.time_out("a")
    assert finish(case.succeed("a", "too late")).status == "failed"


def test_the_step_fails_when_the_grace_is_over_without_an_answer() -> None:
    case = started(SLOW)
    case.time_out("a")
    error = finish(case.fire("grace", "a")).error
    assert error is not None and error.kind == "timeout"


def test_a_time_out_is_retried_like_any_failure() -> None:
    case = started(RETRIED)
    case.time_out("a")
    assert armed(case.fail("a", "cancelled")) == {"retry a": BEGAN + 100}
    assert starts(case.fire("retry", "a")) == ["a"]
    assert "grace a" not in case.run.timers


def test_an_attempt_that_follows_one_which_outlived_its_grace_is_marked_overlapping() -> None:
    case = started(RETRIED)
    case.time_out("a")
    case.fire("grace", "a")
    (start,) = case.fire("retry", "a")
    assert isinstance(start, StartAttempt) and (start.attempt, start.overlapping) == (2, True)


def test_an_attempt_that_follows_one_which_answered_in_time_overlaps_nothing() -> None:
    case = started(RETRIED)
    case.time_out("a")
    case.fail("a", "cancelled")
    (start,) = case.fire("retry", "a")
    assert isinstance(start, StartAttempt) and not start.overlapping


def test_the_answer_of_an_attempt_that_outlived_its_grace_is_late() -> None:
    case = started(RETRIED)
    case.time_out("a")
    case.fire("grace", "a")
    case.fire("retry", "a")
    assert case.apply(StepSucceeded("a", 1, NULL)) == []
    assert case.step("a").attempt == 2


def test_a_time_out_heard_twice_changes_nothing() -> None:
    case = started(SLOW)
    case.time_out("a")
    assert case.time_out("a") == []


def test_a_time_out_of_a_former_attempt_is_late() -> None:
    case = started(RETRIED)
    case.fail("a")
    case.fire("retry", "a")
    assert case.apply(AttemptTimedOut("a", 1)) == []


def test_a_limit_on_a_container_is_the_default_of_each_call_inside_the_nearest_one_winning() -> None:
    case = started(
        """
        name: n
        steps:
          - id: p
            kind: parallel
            timeout_secs: 9
            retry: {max_attempts: 2, initial_delay_ms: 0}
            branches:
              - [{id: a, tool: t}]
              - [{id: b, tool: t, timeout_secs: 1}]
              - [{id: br, kind: branch, on: $.inputs, else: [{id: c, tool: t}]}]
              - [{id: l, kind: foreach, items: $.inputs.no, timeout_secs: 4, steps: [{id: d, tool: t}]}]
        """
    )
    found = {}
    for path in ["p[0].a", "p[1].b", "p[2].br.c", "p[3].l[0].d"]:
        node = case.plan.node(path)
        assert isinstance(node, Call) and node.retry is not None
        found[node.name] = (node.timeout_ms, node.retry.max_attempts)
    assert found == {"a": (9_000, 2), "b": (1_000, 2), "c": (9_000, 2), "d": (4_000, 2)}


# ----------------------------------------------------------------------------------------------------- of a run


def test_the_deadline_of_a_run_is_armed_with_its_first_row() -> None:
    case = Case(LIMITED)
    assert armed(case.start()) == {"deadline ": BEGAN + 60_000}


def test_a_run_past_its_deadline_is_shown_cancelling_until_all_has_answered() -> None:
    case = started(LIMITED)
    assert stops(case.fire("deadline")) == ["a"]
    assert case.run.status == "cancelling"


def test_a_run_past_its_deadline_fails_with_kind_run_timeout() -> None:
    case = started(LIMITED)
    case.fire("deadline")
    end = finish(case.fail("a", "cancelled"))
    assert (end.status, end.error and end.error.kind) == ("failed", "run_timeout")


def test_no_step_follows_a_deadline_even_if_the_open_one_succeeds() -> None:
    case = started(LIMITED)
    case.fire("deadline")
    assert finish(case.succeed("a")).status == "failed"


def test_a_deadline_is_not_retried() -> None:
    case = started("name: n\ntimeout_secs: 5\nsteps: [{id: a, tool: t, retry: {max_attempts: 9}}]")
    case.fire("deadline")
    assert finish(case.fail("a", "cancelled")).status == "failed"


def test_a_deadline_ends_a_back_off_at_once() -> None:
    case = started(
        "name: n\ntimeout_secs: 1\nsteps: [{id: a, tool: t, retry: {max_attempts: 9, initial_delay_ms: 9000}}]"
    )
    case.fail("a")
    assert finish(case.fire("deadline")).status == "failed"
    assert case.run.timers == {}


def test_a_deadline_counts_from_creation_though_the_run_is_begun_later() -> None:
    case = Case(LIMITED)
    case.start(drive=False)
    case.wait(45_000)
    assert armed(case.crash())["deadline "] == BEGAN + 60_000


def test_a_deadline_that_passed_while_the_process_was_away_still_ends_the_run() -> None:
    case = started(LIMITED)
    case.wait(3_600_000)
    decisions = case.crash()
    error = finish(decisions).error
    assert error is not None and error.kind == "run_timeout"
    assert starts(decisions) == []


def test_a_deadline_takes_a_smaller_stop_in() -> None:
    """The step's own time-out is under way when the run's time is over: one answer ends both."""
    case = started(
        "name: n\ntimeout_secs: 60\nsteps: [{id: a, tool: t, timeout_secs: 55, retry: {max_attempts: 3}}]"
    )
    case.wait(55_000)
    case.time_out("a")
    decisions = case.fire("deadline")
    assert [order.target for order in decisions if isinstance(order, BeginStop)] == [""]
    assert "grace a" not in case.run.timers
    assert finish(case.fail("a", "cancelled")).status == "failed"


def test_a_deadline_and_a_timer_due_in_the_same_moment_end_the_run_once() -> None:
    case = started(
        """
        name: n
        timeout_secs: 10
        steps: [{id: p, kind: parallel, steps: [{id: w, kind: timer, delay_ms: 10000}, {id: a, tool: t}]}]
        """
    )
    case.fire("deadline")
    assert case.apply(TimerFired("p[0].w", "delay")) == []  # offered beside the deadline, and late by now
    assert finish(case.fail("p[1].a", "cancelled")).status == "failed"
