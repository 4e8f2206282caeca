"""What each event changes in a run, before its decisions do. Part of fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.effects import Effects
from holdfast.engine.events import (
    Adopted,
    ApprovalAnswered,
    AttemptReleased,
    AttemptTimedOut,
    CallbackReceived,
    CancelRequested,
    Continued,
    KeyAnswered,
    KeyGranted,
    KeyHeld,
    RunStarted,
    SignalReceived,
    StepFailed,
    StepPaused,
    StepSucceeded,
    Supplied,
    SuspectsTurn,
    TimerFired,
)
from holdfast.engine.frames import keep_output
from holdfast.engine.open_steps import begin_wait, close_wait, drop, end_stop, let_go, rest
from holdfast.engine.state import (
    SUSPECT_AFTER,
    Parked,
    Run,
    Step,
    Wait,
    is_open,
    lacking_since,
    timer_key,
    waits_for_last_poll,
)
from holdfast.plan.graph import KEEP_NAMED
from holdfast.values import Millis


def _run_started(run: Run, event: RunStarted, effects: Effects) -> None:
    run.inputs, run.env, run.first = event.inputs, event.env, event.first
    run.created_at, run.destinations = run.at, event.destinations
    run.trigger = event.trigger
    run.begun, run.taken = event.drive, dict(event.taken)
    for path, output in event.copied.items():
        keep_output(run, path, output, KEEP_NAMED)
    if event.vars:
        run.frames[""].vars = dict(event.vars)
        run.vars_bytes = sum(map(len, event.vars.values()))


def _adopted(run: Run, event: Adopted, effects: Effects) -> None:
    run.begun = run.begun or event.drive
    run.todo = [] if event.drive else run.todo
    for path in event.lost:
        step = run.steps[path]
        if step.target is not None:
            if event.drive or step.target != path:
                _answered(run, path, step, effects)
                continue
            end_stop(run, path)  # no node drives the run: the attempt is lost and its step is ready
            step.target = None
        step.lost += 1
        step.lost_alone += path == event.alone
        step.state, step.reason = "ready", "suspect" if step.lost >= SUSPECT_AFTER else "lost"
        run.has_suspects = run.has_suspects or step.reason == "suspect"


def _step_succeeded(run: Run, event: StepSucceeded, effects: Effects) -> None:
    path, steps = event.path, run.steps
    step = steps.get(path)
    if step is None or step.attempt != event.attempt or step.state != "running":
        return  # late: the row records it and changes nothing
    if step.target is not None:
        return _answered(run, path, step, effects)
    del steps[path]
    run.active -= 1
    if step.key is not None:
        let_go(run, path, step, effects, event.output)
    if step.keep:
        keep_output(run, path, event.output, step.keep)


def _step_failed(run: Run, event: StepFailed, effects: Effects) -> None:
    if not is_open(run, event.path, event.attempt):
        return
    step = run.steps[event.path]
    if step.target is not None:
        return _answered(run, event.path, step, effects)
    step.tries += 1
    if step.lacks_since:
        step.lacks_since = Millis(0)
    rest(run, step, "retrying")


def _attempt_released(run: Run, event: AttemptReleased, effects: Effects) -> None:
    if not is_open(run, event.path, event.attempt):
        return
    step = run.steps[event.path]
    if step.target is not None:
        return _answered(run, event.path, step, effects)
    step.reason = event.reason
    if not event.waits:
        step.state = "ready"
        return
    step.lost_calls += event.lost
    step.lacks_since = lacking_since(step, event, run.at)
    rest(run, step, "waiting")


def _timer_fired(run: Run, event: TimerFired, effects: Effects) -> None:
    if run.timers.pop(timer_key(event.timer, event.path), None) is None:
        return  # disarmed before it fired
    if event.timer == "deadline":
        if run.end is None:
            run.ending = run.ending or ("" if event.path else "run_timeout")
    elif (
        event.timer == "grace"
        and (step := run.steps.get(event.path)) is not None
        and step.target == event.path
    ):
        step.overlapping = True
        _answered(run, event.path, step, effects)
    elif event.timer == "delay":
        drop(run, event.path, effects)
    elif event.timer == "worker":
        step = run.steps[event.path]
        step.state, step.reason, step.tries, step.lacks_since = "retrying", "", step.tries + 1, Millis(0)
    elif event.timer in ("expiry", "poll"):
        _wait_timer_fired(run, event.timer, event.path, effects)


def _wait_timer_fired(run: Run, timer: str, path: str, effects: Effects) -> None:
    step = run.steps[path]
    assert step.wait is not None
    if timer == "poll":
        step.wait.polls += 1
    elif waits_for_last_poll(step.wait):
        step.wait.is_last_poll = True
    elif step.wait.kind == "callback":
        close_wait(run, path, step, "expired", effects)
        step.state, step.tries = "retrying", step.tries + 1
    else:
        drop(run, path, effects, "expired")


def _cancel_requested(run: Run, event: CancelRequested, effects: Effects) -> None:
    if run.end is None:  # otherwise it is already decided how it ends
        run.ending = "cancelled"


def _key_held(run: Run, event: KeyHeld, effects: Effects) -> None:
    step = run.steps.get(event.path)
    if step is not None and step.state == "ready" and step.reason == "key":
        rest(run, step, "waiting")


def _key_answered(run: Run, event: KeyAnswered, effects: Effects) -> None:
    step = run.steps.get(event.path)
    if step is not None and step.reason == "key":
        drop(run, event.path, effects)


def _step_paused(run: Run, event: StepPaused, effects: Effects) -> None:
    if not is_open(run, event.path, event.attempt):
        return
    step = run.steps[event.path]
    if step.target is not None:
        return _answered(run, event.path, step, effects)
    if step.parked is not None:
        # The wait opens and closes in this row, so that a second result finds the stored outcome.
        begin_wait(run, event.path, step, Wait("callback", event.task_id, run.at), effects)
        return _called_back(run, event.path, step, step.parked, effects)
    rest(run, step, "waiting")


def _callback_received(run: Run, event: CallbackReceived, effects: Effects) -> None:
    step = run.steps.get(event.path)
    if step is None or step.attempt != event.attempt or step.target is not None:
        return
    answer = Parked(event.output, event.error)
    if step.wait is not None:
        _called_back(run, event.path, step, answer, effects, event.by)
    elif step.state in ("running", "ready"):
        step.parked = answer


def _called_back(
    run: Run, path: str, step: Step, answer: Parked, effects: Effects, by: str = "resume"
) -> None:
    """A paused call has received its result."""
    run.active -= step.state in ("running", "ready")
    if step.wait is not None:
        close_wait(run, path, step, by, effects)
    step.parked = None
    if answer.error is not None:
        step.state, step.tries = "retrying", step.tries + 1
        return
    del run.steps[path]
    if step.key is not None:
        let_go(run, path, step, effects, answer.output)
    if step.keep:
        keep_output(run, path, answer.output, step.keep)


def _continued(run: Run, event: Continued, effects: Effects) -> None:
    run.todo = []


def nothing(run: Run, event: Any, effects: Effects) -> None:
    """The event itself changes nothing; only its decisions do."""


def _answered(run: Run, path: str, step: Step, effects: Effects) -> None:
    """Count an attempt that was asked to stop as stopped, whatever its result."""
    target = step.target
    assert target is not None
    if target == path:  # it timed out: the step itself is retried or fails
        step.target, step.tries = None, step.tries + 1
        rest(run, step, "retrying")
        end_stop(run, target)
        return
    drop(run, path, effects)
    run.stops[target].left -= 1


EVENTS: Final[dict[type, Callable[[Run, Any, Effects], None]]] = {
    RunStarted: _run_started,
    Adopted: _adopted,
    StepSucceeded: _step_succeeded,
    StepFailed: _step_failed,
    AttemptTimedOut: nothing,
    AttemptReleased: _attempt_released,
    Supplied: nothing,
    SuspectsTurn: nothing,
    TimerFired: _timer_fired,
    CancelRequested: _cancel_requested,
    Continued: _continued,
    KeyGranted: nothing,
    KeyHeld: _key_held,
    KeyAnswered: _key_answered,
    StepPaused: _step_paused,
    CallbackReceived: _callback_received,
    SignalReceived: nothing,
    ApprovalAnswered: nothing,
}
