"""decide(plan, run, event, at): the decisions that follow from a new event. Called once per event, when it arrives.

Pure: no clock, store, await or log. Time is a parameter and the result is a list of decisions. The hot path is
`step_succeeded` → `enter` → StartAttempt: look up the node, render its inputs, start it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine import ends, retry, scopes, undo, waits
from holdfast.engine.decisions import ArmTimer, Decision
from holdfast.engine.draft import Draft
from holdfast.engine.events import (
    Adopted,
    ApprovalAnswered,
    AttemptReleased,
    AttemptTimedOut,
    CallbackReceived,
    CancelRequested,
    Continued,
    Event,
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
from holdfast.engine.nodes import enter
from holdfast.engine.state import LACKS, SUSPECT_AFTER, Run, is_open, lacking_since, timer_key
from holdfast.plan.graph import Call, Plan
from holdfast.values import TERMINAL, Error, Millis, split


def decide(plan: Plan, run: Run, event: Event, at: Millis) -> list[Decision]:
    if run.status in TERMINAL:
        return []  # late results are normal: senders retry, networks duplicate
    draft = Draft(plan, run, at)
    _ON[type(event)](draft, event)
    work = draft.work
    while work:
        if draft.spent and work[-1][0] != "child":  # a child scope is entered in the row that opens it
            draft.cut()
            break
        what, whom, how = work.pop()
        _WORK[what](draft, whom, how)
    return draft.decisions


# ------------------------------------------------------------------------------------------------- outcomes


def _step_succeeded(draft: Draft, event: StepSucceeded) -> None:
    run, path = draft.run, event.path
    step = run.steps.get(path)
    if step is None or step.attempt != event.attempt or step.state != "running":
        return
    if step.target is not None:
        if step.target != path:
            _succeeded_while_stopping(draft, path, event.output)
        return _answered(draft, path, step.target)
    plan = draft.plan
    if step.keep:
        if run.kept_bytes > limits.now.kept_bytes_max:
            return ends.fail_step(draft, path, _state_too_large(plan, path, step.attempt))
        draft.outputs[path] = event.output
    draft.subject = path
    node, frame = plan.root.nodes.get(path), ""
    if node is None:
        frame, tail = split(path)
        node = plan.block(frame).node(tail)
    if node.post is None and node.around is None:
        return enter(draft, frame, node.routes.ok)
    waits.completed(draft, path, node, event.output)


def _succeeded_while_stopping(draft: Draft, path: str, output: msgspec.Raw) -> None:
    """A call succeeded although it was asked to stop. The step does not go on, but what was done must be undone."""
    with suppress(*ends.BROKEN):  # then it cannot be undone, and the run ends anyway
        undo.note(draft, path, draft.plan.node(path), output)


def _step_failed(draft: Draft, event: StepFailed) -> None:
    if not is_open(draft.run, event.path, event.attempt):
        return
    step = draft.run.steps[event.path]
    if step.target is not None:
        return _answered(draft, event.path, step.target)
    _failed(draft, event.path, step.tries + 1, event.error)


def _failed(draft: Draft, path: str, tries: int, error: Error, *, overlapping: bool = False) -> None:
    draft.subject = path
    final = retry.again_or_fail(draft, path, tries, error, overlapping=overlapping)
    if final is not None:
        ends.fail_step(draft, path, final)


def _attempt_timed_out(draft: Draft, event: AttemptTimedOut) -> None:
    if not is_open(draft.run, event.path, event.attempt) or draft.run.steps[event.path].target is not None:
        return
    node = draft.plan.node(event.path)
    assert isinstance(node, Call) and node.timeout_ms is not None
    message = f"step {event.path} timed out after {node.timeout_ms / 1000:g} s"
    ends.stop_step(draft, event.path, Error("timeout", message, event.path, event.attempt))


def _attempt_released(draft: Draft, event: AttemptReleased) -> None:
    path = event.path
    if not is_open(draft.run, path, event.attempt):
        return
    step, node = draft.run.steps[path], draft.plan.node(path)
    if step.target is not None:
        return _answered(draft, path, step.target)
    assert isinstance(node, Call)
    if event.lost and step.lost_calls + event.lost >= limits.now.leases_max:
        why = f"{step.lost_calls + event.lost} workers in turn ended during it ({limits.met('leases_max')})"
        draft.subject = path
        return ends.fail_step(draft, path, Error("lost", f"step {path} was lost: {why}", path, step.attempt))
    if event.reason == "no_worker" and (wait_ms := draft.plan.worker_wait_ms(node)):
        since = lacking_since(step, event, draft.at)
        draft.decisions.append(ArmTimer(path, "worker", Millis(max(draft.at, since + wait_ms))))


def _supplied(draft: Draft, event: Supplied) -> None:
    draft.work.extend(("start", path, "") for path in reversed(event.paths))


def _no_worker_came(draft: Draft, path: str) -> None:
    step, node = draft.run.steps[path], draft.plan.node(path)
    assert isinstance(node, Call)
    seconds = (draft.plan.worker_wait_ms(node) or 0) / 1000
    message = f"no worker: none served {node.target!r} within {seconds:g} s"
    _failed(draft, path, step.tries + 1, Error("no_worker", message, path, step.attempt))


def _answered(draft: Draft, path: str, target: str) -> None:
    """Handle the result of an attempt that was asked to stop. After the last one, the stopped target continues."""
    stop = draft.run.stops[target]
    if target == path:
        _failed(draft, path, draft.run.steps[path].tries + 1, stop.error)
    elif stop.left == 1:
        ends.stopped(draft, target, stop.error)


def _state_too_large(plan: Plan, path: str, attempt: int) -> Error:
    most = f"{limits.size(limits.now.kept_bytes_max)} ({limits.met('kept_bytes_max')})"
    message = f"the outputs that later steps can name exceed {most}; {plan.advice_when_too_large}"
    return Error("state_too_large", message, path, attempt)


# ------------------------------------------------------------------------------------------- the run as a whole


def _run_started(draft: Draft, event: RunStarted) -> None:
    draft.outputs[""] = event.inputs
    draft.environment, draft.first, draft.taken = event.env, event.first, event.taken
    draft.outputs.update(event.copied)
    if event.vars:
        draft.vars = {("", name): value for name, value in event.vars.items()}
    if event.drive:
        _begin(draft, event.first)


def _begin(draft: Draft, first: str | None) -> None:
    timeout_ms, created_at = draft.plan.timeout_ms, draft.run.created_at or draft.at
    if timeout_ms is not None:
        if created_at + timeout_ms <= draft.at:
            return ends.end_late(draft)  # accepted, but no node had room for it before its deadline
        ends.arm_deadline(draft, timeout_ms)
    draft.go("", draft.plan.root.first if first is None else first)


def _cancel_requested(draft: Draft, event: CancelRequested) -> None:
    if draft.run.end is not None:
        return undo.hurry(draft)
    if "" in draft.run.stops:
        return  # already stopping: a second cancel does not extend the grace period
    ends.stop(draft, "", Error("cancelled", event.reason or "the run was cancelled"))


def _callback_received(draft: Draft, event: CallbackReceived) -> None:
    run, path = draft.run, event.path
    step = run.steps.get(path)
    is_awaited = step is not None and step.wait is not None and step.attempt == event.attempt
    if is_awaited and step.keep and event.error is None and run.kept_bytes > limits.now.kept_bytes_max:  # type: ignore[union-attr]
        draft.subject = path
        return ends.fail_step(draft, path, _state_too_large(draft.plan, path, event.attempt))
    waits.callback_received(draft, event)


def _step_paused(draft: Draft, event: StepPaused) -> None:
    step = waits.step_paused(draft, event)
    if step is None:
        return
    if step.target is not None:
        return _answered(draft, event.path, step.target)
    assert step.parked is not None
    waits.called_back(draft, event.path, step, step.parked.output, step.parked.error)


def _timer_fired(draft: Draft, event: TimerFired) -> None:
    run, path = draft.run, event.path
    if timer_key(event.timer, path) not in run.timers:
        return
    if event.timer == "retry":
        retry.start_again(draft, path, run.steps[path])
    elif event.timer == "delay":
        scopes.timer_is_over(draft, path)
    elif event.timer == "worker":
        _no_worker_came(draft, path)
    elif event.timer == "deadline" and path:
        # In a target that is being stopped, the step ends with that target.
        if not draft.is_stopped(path):
            ends.end_nested_late(draft, path)
    elif event.timer == "deadline":
        if run.end is not None:
            undo.hurry(draft)
        elif not run.ending:
            ends.end_late(draft)
    elif event.timer == "grace":
        _grace_is_over(draft, path)
    elif event.timer == "expiry":
        waits.wait_is_over(draft, path)
    elif event.timer == "poll":
        waits.poll_is_due(draft, path)


def _grace_is_over(draft: Draft, target: str) -> None:
    if draft.run.end is not None and not target:
        return undo.cut_short(draft)
    stop, step = draft.run.stops[target], draft.run.steps.get(target)
    if step is not None and step.target == target:
        _failed(draft, target, step.tries + 1, stop.error, overlapping=True)
    else:
        ends.give_up(draft, target, stop.error)


def _continued(draft: Draft, event: Continued) -> None:
    draft.work.extend(draft.run.todo)


# ------------------------------------------------------------------------------------------- idempotency keys


def _waits_for_key(draft: Draft, path: str) -> bool:
    step = draft.run.steps.get(path)
    return step is not None and step.reason == "key"


def _key_granted(draft: Draft, event: KeyGranted) -> None:
    if _waits_for_key(draft, event.path):
        retry.start_again(draft, event.path, draft.run.steps[event.path])


def _key_held(draft: Draft, event: KeyHeld) -> None:
    node = draft.plan.node(event.path)
    if not _waits_for_key(draft, event.path) or not isinstance(node, Call) or node.key is None:
        return
    if not node.key.waits:
        key = draft.run.steps[event.path].key
        message = f"another step is at work under the idempotency key {key.text if key else ''!r}"
        draft.subject = event.path
        ends.fail_step(draft, event.path, Error("key_conflict", message, event.path))


def _key_answered(draft: Draft, event: KeyAnswered) -> None:
    if not _waits_for_key(draft, event.path):
        return
    draft.subject = event.path
    draft.complete(event.path, event.output, draft.run.steps[event.path].keep)
    scopes.leave(draft, event.path, draft.plan.node(event.path), event.output)


# ------------------------------------------------------------------------------------------ takeover and losses


def _adopted(draft: Draft, event: Adopted) -> None:
    run = draft.run
    is_ending = run.end is not None or ("" in run.stops and run.stops[""].unwinds)
    if run.ending and not is_ending:
        return ends.stopped(draft, "", run.stops[""].error)  # every attempt that was still running is lost
    if event.drive and event.restarted and draft.plan.interrupted_by_restart and not is_ending:
        draft.lost = frozenset(event.lost)
        return ends.interrupt(draft, "the engine was restarted")
    if not event.drive:
        return  # open attempts become ready; nothing starts or fails until a node drives the run
    draft.lost = frozenset(event.lost)
    if run.timers.get(timer_key("deadline", ""), draft.at + 1) <= draft.at and not is_ending:
        return ends.end_late(draft)
    _take_up(draft)
    for path in event.lost:
        step, alone = run.steps[path], path == event.alone
        if draft.has_stopped(split(step.target or path)[0]):
            continue  # already dropped, because an earlier lost attempt stopped its scope
        if step.target is not None:
            _lost_while_stopping(draft, path, step.target)
        elif why := retry.why_lost_for_good(draft, path, step.lost_alone + alone):
            draft.work.append(("fail", path, why))
        elif alone:
            retry.delay_suspect(draft, path, step.lost_alone + 1)
        elif step.lost + 1 < SUSPECT_AFTER:
            draft.work.append(("start", path, ""))
    for target, stop in run.stops.items():
        is_there = target and draft.scope(target) is not None and not draft.has_stopped(target)
        if is_there and not stop.left and not stop.unwinds:
            ends.stopped(draft, target, stop.error)  # its last result arrived while no node drove the run
    # Failures are handled first: they may stop steps that would otherwise start for nothing.
    draft.work.sort(key=lambda item: item[0] == "fail")


def _take_up(draft: Draft) -> None:
    """Continue where the run stopped: unfinished decisions, steps given back, or the first node."""
    run = draft.run
    # these are ready: handled below
    draft.work.extend(item for item in run.todo if item[0] not in ("start", "fail"))
    if not run.begun:
        _begin(draft, run.first)
    for path, step in run.steps.items():
        if step.state != "ready" and step.reason != "key":
            continue
        if step.lost and (why := retry.why_lost_for_good(draft, path, step.lost_alone)):
            draft.work.append(("fail", path, why))
        elif step.reason != "suspect":
            draft.work.append(("start", path, ""))


def _lost_while_stopping(draft: Draft, path: str, target: str) -> None:
    """An attempt was lost while it was being stopped. All other attempts beneath the same target were lost with it."""
    stop = draft.run.stops[target]
    if target == path:
        _failed(draft, path, draft.run.steps[path].tries + 1, stop.error)
    elif draft.scope(target) is not None:
        ends.stopped(draft, target, stop.error)


def _start(draft: Draft, path: str, how: str) -> None:
    step = draft.run.steps.get(path)
    if step is None or draft.is_stopped(split(path)[0]):
        return
    if step.state == "ready" or step.reason == "key" or step.reason in LACKS or path in draft.lost:
        # otherwise the key was granted before the rest of a split decision was continued
        retry.begin_again(draft, path, step)


def _fail(draft: Draft, path: str, why: str) -> None:
    step = draft.run.steps.get(path)
    if step is not None and not draft.is_stopped(split(path)[0]):
        ends.fail_step(draft, path, Error("lost", f"step {path} was lost: {why}", path, step.attempt))


def _suspects_turn(draft: Draft, event: SuspectsTurn) -> None:
    step = draft.run.steps.get(event.path)
    if step is not None and step.state == "ready" and step.reason == "suspect":
        retry.start_again(draft, event.path, step)


_ON: Final[dict[type, Callable[[Draft, Any], None]]] = {
    RunStarted: _run_started,
    Adopted: _adopted,
    StepSucceeded: _step_succeeded,
    StepFailed: _step_failed,
    AttemptTimedOut: _attempt_timed_out,
    AttemptReleased: _attempt_released,
    Supplied: _supplied,
    SuspectsTurn: _suspects_turn,
    TimerFired: _timer_fired,
    CancelRequested: _cancel_requested,
    Continued: _continued,
    KeyGranted: _key_granted,
    KeyHeld: _key_held,
    KeyAnswered: _key_answered,
    StepPaused: _step_paused,
    CallbackReceived: _callback_received,
    SignalReceived: waits.signal_received,
    ApprovalAnswered: waits.approval_answered,
}
_WORK: Final[dict[str, Callable[[Draft, str, str], None]]] = {
    "enter": enter,
    "child": enter,
    "fill": lambda draft, path, _: scopes.fill(draft, path),
    "start": _start,
    "fail": _fail,
}
