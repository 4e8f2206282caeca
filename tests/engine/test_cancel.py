"""Cancelling a run: what is told to stop, how long it may take, and that nothing starts any more."""

from __future__ import annotations

from holdfast.engine.decisions import FinishRun
from holdfast.engine.undo import cancel_grace_ms
from tests.engine.driver import BEGAN, Case, armed, finish, starts, stops

SIDE_BY_SIDE = """
name: n
steps:
  - id: p
    kind: parallel
    branches:
      - [{id: a, tool: t}, {id: a2, tool: t}]
      - [{id: b, tool: t}, {id: b2, tool: t}]
      - [{id: w, kind: timer, delay_ms: 60000}]
      - [{id: r, tool: t, retry: {max_attempts: 5, initial_delay_ms: 3000}}]
  - {id: after, tool: t}
"""


def side_by_side() -> Case:
    """Two calls at work, a timer running, and a step that waits for its next attempt."""
    case = Case(SIDE_BY_SIDE)
    case.start()
    case.fail("p[3].r")
    return case


def test_a_cancelled_run_is_cancelling_while_something_is_at_work() -> None:
    case = side_by_side()
    case.cancel()
    assert case.run.status == "cancelling"


def test_a_cancel_reaches_everything_that_is_open() -> None:
    case = side_by_side()
    assert sorted(stops(case.cancel())) == ["p[0].a", "p[1].b", "p[2].w", "p[3].r"]


def test_a_cancel_ends_timers_and_back_offs_and_leaves_one_grace() -> None:
    case = side_by_side()
    case.cancel()
    assert case.run.timers == {"grace ": BEGAN + cancel_grace_ms()}
    assert sorted(case.run.steps) == ["p[0].a", "p[1].b"]


def test_a_run_is_cancelled_when_the_last_open_attempt_has_answered() -> None:
    case = side_by_side()
    case.cancel("enough")
    assert case.fail("p[0].a", "cancelled") == []
    end = finish(case.fail("p[1].b", "cancelled"))
    assert (end.status, end.error and end.error.kind, end.error and end.error.message) == (
        "cancelled",
        "cancelled",
        "enough",
    )


def test_nothing_starts_after_a_cancel_even_where_an_attempt_succeeds() -> None:
    case = side_by_side()
    case.cancel()
    assert starts(case.succeed("p[0].a")) == []
    assert finish(case.succeed("p[1].b")).status == "cancelled"


def test_nothing_is_retried_after_a_cancel() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t, retry: {max_attempts: 9, initial_delay_ms: 0}}]")
    case.start()
    case.cancel()
    assert case.fail("a") == [FinishRun("cancelled", error=case.run.error)]


def test_a_run_with_nothing_at_work_is_cancelled_at_once() -> None:
    case = Case("name: n\nsteps: [{id: w, kind: timer, delay_ms: 60000}]")
    case.start()
    assert finish(case.cancel()).status == "cancelled"


def test_a_run_that_was_never_begun_is_cancelled_at_once() -> None:
    case = Case(SIDE_BY_SIDE)
    case.start(drive=False)
    assert finish(case.cancel()).status == "cancelled"


def test_a_run_is_cancelled_when_the_grace_is_over() -> None:
    case = side_by_side()
    case.cancel()
    case.fail("p[0].a", "cancelled")
    assert finish(case.fire("grace")).status == "cancelled"


def test_a_second_cancel_does_not_lengthen_the_grace() -> None:
    case = side_by_side()
    case.cancel()
    case.wait(5_000)
    assert case.cancel() == []
    assert case.run.timers["grace "] == BEGAN + cancel_grace_ms()


def test_a_step_given_back_counts_as_an_answer() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t}]")
    case.start()
    case.cancel()
    assert finish(case.release("a")).status == "cancelled"


def test_a_cancel_takes_the_time_out_of_a_step_in() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t, timeout_secs: 1, retry: {max_attempts: 3}}]")
    case.start()
    case.time_out("a")
    case.cancel()
    assert list(case.run.timers) == ["grace "]
    assert finish(case.fail("a", "cancelled")).status == "cancelled"


def test_a_cancel_takes_the_abort_of_a_scope_in() -> None:
    case = side_by_side()
    case.fail("p[0].a")  # aborts the parallel: b was told to stop
    assert list(case.run.stops) == ["p"]
    case.cancel()
    assert list(case.run.timers) == ["grace "]
    assert finish(case.fail("p[1].b", "cancelled")).status == "cancelled"


LIMITED = "name: n\ntimeout_secs: 30\nsteps: [{id: a, tool: t}]"


def test_a_cancel_wins_over_a_deadline_that_came_first() -> None:
    case = Case(LIMITED)
    case.start()
    case.fire("deadline")
    case.cancel("now")
    end = finish(case.fail("a", "cancelled"))
    assert (end.status, end.error and end.error.kind) == ("cancelled", "cancelled")


def test_a_cancel_wins_over_a_deadline_that_comes_after() -> None:
    case = Case(LIMITED)
    case.start()
    case.wait(25_000)
    case.cancel()
    case.fire("deadline")
    assert finish(case.fail("a", "cancelled")).status == "cancelled"


def test_a_deadline_during_a_cancel_does_not_lengthen_the_grace() -> None:
    case = Case(LIMITED)
    case.start()
    case.wait(25_000)
    due = armed(case.cancel())["grace "]
    case.fire("deadline")
    assert case.run.timers["grace "] == due


def test_a_cancelled_run_whose_process_ends_is_cancelled_by_the_next_one() -> None:
    case = side_by_side()
    case.cancel()
    end = finish(case.crash())
    assert (end.status, end.error and end.error.kind) == ("cancelled", "cancelled")


def test_a_cancelled_run_is_cancelled_although_a_restart_would_interrupt_it() -> None:
    case = Case("name: n\non_restart: interrupt\nsteps: [{id: a, tool: t}]")
    case.start()
    case.cancel()
    assert finish(case.crash()).status == "cancelled"


def test_a_cancelled_run_stays_cancelled() -> None:
    case = Case("name: n\nsteps: [{id: w, kind: timer, delay_ms: 60000}]")
    case.start()
    case.cancel()
    rows = len(case.rows)
    assert case.cancel() == []
    assert (case.run.status, len(case.rows)) == ("cancelled", rows + 1)
