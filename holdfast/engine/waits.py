"""Waiting for results from outside: callbacks, signals, approvals, conditions; how a wait opens, ends and expires.

Results may arrive early, twice or never. Does not know who sends them, or by which interface.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.engine import ends, retry, scopes, undo
from holdfast.engine.awaited import awaited
from holdfast.engine.decisions import ArmTimer, KeepSignal, NoteAnswer, OpenWait, Poll, TakeSignal
from holdfast.engine.draft import Draft
from holdfast.engine.events import ApprovalAnswered, CallbackReceived, SignalReceived, StepPaused
from holdfast.engine.state import Run, Step, Wait, is_open, timer_key, waits_for_last_poll
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Approval, Call, Condition, Node, PendingRule, Plan, Signal
from holdfast.values import NULL, TASK_URL, Error, Millis, WaitKind, decode, encode, split, written

USUAL: Final = PendingRule()
# After this time another node makes the last poll, if the node that should have made it has ended.
TASK_POLL_MS: Final = 1_000  # first poll interval for tasks of MCP servers; doubles up to the next constant
TASK_POLL_MS_MAX: Final = 30_000
LAST_POLL_MS: Final = 10_000
NAMES_SHOWN: Final = 5  # how many missing signals an error names


# ------------------------------------------------------------------------------------------------- callbacks


def step_paused(draft: Draft, event: StepPaused) -> Step | None:
    """A call reported that its result is pending. Return the step if its early callback is already here and must be used."""
    if not is_open(draft.run, event.path, event.attempt):
        return None
    step = draft.run.steps[event.path]
    if step.target is not None or step.parked is not None:
        return step
    node = draft.plan.node(event.path)
    assert isinstance(node, Call)
    rule = _rule(node, event.poll_url)
    expires_at = Millis(draft.at + (rule.ttl_ms or draft.plan.pending_ttl_ms))
    detail: dict[str, Any] = {"estimated_secs": event.estimated_secs} if event.estimated_secs else {}
    if event.poll_url:
        detail["poll_url"] = event.poll_url
    draft.decisions.append(
        OpenWait(event.path, "callback", event.task_id, expires_at, msgspec.Raw(encode(detail)))
    )
    draft.decisions.append(ArmTimer(event.path, "expiry", expires_at))
    if rule.poll_ms is not None and event.poll_url:
        _arm_poll(draft, event.path, rule, 0)
    return None


def _arm_poll(draft: Draft, path: str, rule: PendingRule, polls: int) -> None:
    assert rule.poll_ms is not None
    delay = min(rule.poll_ms << min(polls, 40), rule.poll_ms_max)
    draft.decisions.append(ArmTimer(path, "poll", Millis(draft.at + delay)))


def poll_is_due(draft: Draft, path: str) -> None:
    step, node = draft.run.steps[path], draft.plan.node(path)
    assert isinstance(node, Call) and step.wait is not None
    draft.decisions.append(Poll(path, step.attempt))
    url = decode(step.wait.detail).get("poll_url", "")
    _arm_poll(draft, path, _rule(node, url), step.wait.polls + 1)


def _rule(node: Call, poll_url: str) -> PendingRule:
    """How a pending call is polled. No callback is sent for a task of an MCP server, so it is polled whether or not its step says so."""
    rule = node.pending or USUAL
    if rule.poll_ms is None and poll_url.startswith(TASK_URL):
        return msgspec.structs.replace(rule, poll_ms=TASK_POLL_MS, poll_ms_max=TASK_POLL_MS_MAX)
    return rule


def callback_received(draft: Draft, event: CallbackReceived) -> None:
    step = draft.run.steps.get(event.path)
    if step is None or step.attempt != event.attempt or step.target is not None or step.wait is None:
        return  # late; or early, and then it is kept with its attempt
    called_back(draft, event.path, step, event.output, event.error)


def called_back(draft: Draft, path: str, step: Step, output: msgspec.Raw, error: Error | None) -> None:
    """Handle the late result of a call as if the call had returned it."""
    draft.subject = path
    if error is not None:
        return _failed(draft, path, step, error)
    if step.keep:
        draft.outputs[path] = output
    completed(draft, path, draft.plan.node(path), output)


def completed(draft: Draft, path: str, node: Node, output: msgspec.Raw) -> None:
    """Continue after a call that was made and has succeeded. How to undo it is noted first."""
    if node.around is not None and node.around.undo is not None:
        try:
            undo.note(draft, path, node, output)
        except ends.BROKEN as error:
            return ends.fail_step(draft, path, ends.broken(error, path))
    scopes.leave(draft, path, node, output)


def _failed(draft: Draft, path: str, step: Step, error: Error) -> None:
    final = retry.again_or_fail(draft, path, step.tries + 1, error)
    if final is not None:
        ends.fail_step(draft, path, final)


def wait_is_over(draft: Draft, path: str) -> None:
    """Handle a wait that expired without a result."""
    step, node = draft.run.steps[path], draft.plan.node(path)
    wait = step.wait
    assert wait is not None
    if waits_for_last_poll(wait):
        draft.decisions.append(Poll(path, step.attempt))
        draft.decisions.append(ArmTimer(path, "expiry", Millis(draft.at + LAST_POLL_MS)))
        return
    draft.subject = path
    seconds = ((wait.until or draft.at) - wait.since) / 1000
    if isinstance(node, Call):
        message = f"step {path}: no callback for task {wait.name!r} within {seconds:g} s"
        _failed(draft, path, step, Error("resume_timeout", message, path, step.attempt))
    elif isinstance(node, Approval):
        ends.fail_step(draft, path, Error("denied", "approval denied: timeout", path))
    else:
        message = f"step {path}: {_missing(node, wait)} within {seconds:g} s"
        ends.fail_step(draft, path, Error("timeout", message, path))


def _missing(node: Node, wait: Wait) -> str:
    """Name the signals that did not arrive, so that the reader of the error knows what to send."""
    if not isinstance(node, Signal):
        return "its condition was not met"
    names = [name for name in decode(wait.detail)["names"] if name not in wait.got]
    word = "and" if node.mode == "all" else "or"
    return f"no signal {f' {word} '.join(repr(name) for name in names[:NAMES_SHOWN])}"


def open_wait(
    draft: Draft, path: str, kind: WaitKind, detail: dict[str, Any], timeout_ms: int | None, keep: int
) -> None:
    """Open a wait for a step, with its expiry timer if it has one."""
    expires_at = None if timeout_ms is None else Millis(draft.at + timeout_ms)
    text = msgspec.Raw(written(detail)) if detail else NULL
    if len(text) > composed.LIMIT:
        raise TooLarge
    draft.decisions.append(OpenWait(path, kind, "", expires_at, text, keep))
    draft.value_bytes += len(memoryview(text))
    if expires_at is not None:
        draft.decisions.append(ArmTimer(path, "expiry", expires_at))


def _end(draft: Draft, path: str, node: Condition | Signal | Approval, value: Any) -> None:
    draft.subject = path
    scopes.give(draft, path, node, written(value))


# ------------------------------------------------------------------------------------------------- conditions


def enter_condition(draft: Draft, frame: str, path: str, node: Condition) -> None:
    view = draft.seen_from(frame)
    is_ready, value = node.ready(view)
    if is_ready:
        return _end(draft, path, node, value)
    detail = {} if node.signal_key is None else {"signal_key": node.signal_key}
    if node.answers_to is not None:
        detail = {"answers_to": node.answers_to}
    kind: WaitKind = "condition" if node.answers_to is None else "approval"
    open_wait(draft, path, kind, detail, node.timeout_ms(view), node.keep)


def _recheck(draft: Draft) -> None:
    """Check the conditions of waiting steps again after a variable was written."""
    for path in _conditions(draft):
        node, frame = draft.plan.node(path), split(path)[0]
        assert isinstance(node, Condition)
        try:
            is_ready, value = node.ready(draft.seen_from(frame))
        except ends.BROKEN as error:
            draft.subject = path
            ends.fail_step(draft, path, ends.broken(error, path))
            continue
        if is_ready:
            _end(draft, path, node, value)


def _conditions(draft: Draft) -> list[str]:
    """Return the steps that wait for a condition and are not being stopped, oldest first."""
    return [path for path in awaited(draft.run).conditions if not draft.is_stopped(split(path)[0])]


# ---------------------------------------------------------------------------------------------------- signals


def enter_signal(draft: Draft, frame: str, path: str, node: Signal) -> None:
    view = draft.seen_from(frame)
    names = node.names(view)
    correlation = None if node.correlation is None else node.correlation(view)
    got: dict[str, msgspec.Raw] = {}
    for signal in draft.run.shelf.named(names) if draft.run.signals else ():
        fits = _fits(signal.name, signal.correlation, names, correlation)
        if not fits or signal.name in got or signal.number in draft.signals:
            continue
        draft.decisions.append(TakeSignal(signal.number))
        draft.signals |= {signal.number}
        got[signal.name] = signal.value
        if _has_all(node, names, got):
            return _end(draft, path, node, _value(node, got))
    detail = {"names": names, "mode": node.mode, "correlation": correlation}
    open_wait(draft, path, "signal", detail, node.timeout_ms, node.keep)
    for name, value in got.items():
        draft.decisions.append(NoteAnswer(path, name, value))


def signal_received(draft: Draft, event: SignalReceived) -> None:
    """Handle a signal: write a variable, or give it to the step that has waited longest, or keep it."""
    frames = _written_by_signals(draft)
    for frame in sorted(frames):
        draft.set_var(frame, event.name, bytes(event.value))
    if frames:
        _recheck(draft)
    if (taker := _taker(draft, event)) is not None:
        _give(draft, *taker, event)
    elif not frames:
        draft.decisions.append(KeepSignal(event.name, event.value, event.correlation))


def _written_by_signals(draft: Draft) -> set[str]:
    """Return the frames whose variables a signal writes."""
    frames = {split(path)[0] for path in _conditions(draft)}
    return frames | {""} if draft.plan.has_vars else frames


def would_keep(plan: Plan, run: Run, event: SignalReceived) -> bool:
    """Return whether the run would have to keep this signal because no step waits for it."""
    draft = Draft(plan, run, run.at)
    return not _written_by_signals(draft) and _taker(draft, event) is None


def _taker(draft: Draft, event: SignalReceived) -> tuple[str, Wait, Signal] | None:
    """Return the step that has waited longest for a signal, or None."""
    for path in awaited(draft.run).by(event.name, event.correlation):
        if draft.is_stopped(split(path)[0]):
            continue
        wait, node = draft.run.steps[path].wait, draft.plan.node(path)
        assert wait is not None and isinstance(node, Signal)
        return path, wait, node
    return None


def _give(draft: Draft, path: str, wait: Wait, node: Signal, event: SignalReceived) -> None:
    got = {**wait.got, event.name: event.value}
    if sum(map(len, got.values())) > composed.LIMIT:
        draft.subject = path
        return ends.fail_step(draft, path, ends.broken_output(TooLarge(), path, f"step {path}"))
    if _has_all(node, decode(wait.detail)["names"], got):
        _end(draft, path, node, _value(node, got))
    else:
        draft.decisions.append(NoteAnswer(path, event.name, event.value))


def _fits(name: str, correlation: str | None, names: list[str], wanted: str | None) -> bool:
    return name in names and (wanted is None or correlation == wanted)


def _has_all(node: Signal, names: list[str], got: dict[str, msgspec.Raw]) -> bool:
    return bool(got) if node.mode != "all" else set(names) <= got.keys()


def _value(node: Signal, got: dict[str, msgspec.Raw]) -> Any:
    return next(iter(got.values())) if node.mode == "one" else got


# -------------------------------------------------------------------------------------------------- approvals


def enter_approval(draft: Draft, frame: str, path: str, node: Approval) -> None:
    detail: dict[str, Any] = {"prompt": node.prompt(draft.seen_from(frame)), "need": node.need}
    if node.of:
        detail["of"] = list(node.of)
    if node.form is not None:
        detail["form"] = node.form
    if node.escalate_ms is not None:
        detail["escalate_to"] = list(node.escalate_to)
    open_wait(draft, path, "approval", detail, node.timeout_ms, node.keep)
    if node.escalate_ms is not None:
        draft.decisions.append(ArmTimer(path, "escalate", Millis(draft.at + node.escalate_ms)))


def approval_answered(draft: Draft, event: ApprovalAnswered) -> None:
    step, node = draft.run.steps.get(event.path), draft.plan.node(event.path)
    if step is None or step.wait is None or step.wait.kind != "approval":
        return
    if isinstance(node, Condition):
        assert node.answers_to is not None
        draft.set_var(split(event.path)[0], node.answers_to, encode(event.approved))
        return _recheck(draft)
    assert isinstance(node, Approval)
    answers = [decode(answer) for answer in step.wait.got.values()]
    agreed = [answer["by"] for answer in answers if answer["approved"]] + [event.by] * event.approved
    refused = len(answers) + 1 - len(agreed)
    if len(agreed) >= node.need:
        reason = event.reason or None  # null if none was given, as for the form
        output = {"approved": True, "reason": reason, "by": event.by, "form": decode(event.form)}
        if node.need > 1:
            output["approvers"] = agreed
        return _end(draft, event.path, node, output)
    if refused and not _can_be_reached(draft, event.path, node, refused):
        draft.subject = event.path
        return ends.fail_step(
            draft,
            event.path,
            Error("denied", f"approval denied: {event.reason or event.by or 'no reason given'}", event.path),
        )
    note = {"approved": event.approved, "reason": event.reason, "by": event.by}
    draft.decisions.append(NoteAnswer(event.path, event.by or str(len(answers)), msgspec.Raw(encode(note))))


def _can_be_reached(draft: Draft, path: str, node: Approval, refused: int) -> bool:
    """Return whether the quorum can still be reached. If anyone may answer, a single rejection ends the approval."""
    answerers = set(node.of)
    if answerers and node.escalate_ms is not None and timer_key("escalate", path) not in draft.run.timers:
        answerers.update(node.escalate_to)
    return len(answerers) - refused >= node.need
