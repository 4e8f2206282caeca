"""The one place that changes a run: fold(run, event, decisions, at).

Replay consists of fold alone: rows contain their decisions, so fold needs no plan and does not know why something was decided.
Outputs that are finished and that no later expression can refer to are dropped at once, so a loop of any length runs in flat
memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from holdfast.engine.decisions import (
    ArmTimer,
    BeginEnd,
    BeginStop,
    CompleteStep,
    Continue,
    Decision,
    FailStep,
    FinishRun,
    KeepSignal,
    NoteAnswer,
    NoteUndo,
    OpenScope,
    OpenWait,
    Poll,
    ReserveKey,
    SetGuard,
    SetVar,
    StartAttempt,
    StopAttempt,
    Take,
    TakeSignal,
    Undo,
)
from holdfast.engine.effects import Effects, KeyWork, WaitWork
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
from holdfast.engine.gather import ENTRY_BYTES, child_bytes, frame_bytes
from holdfast.engine.state import (
    SUSPECT_AFTER,
    End,
    Frame,
    Guarded,
    Key,
    Parked,
    Run,
    Scope,
    Signal,
    Step,
    Stop,
    Undoable,
    Wait,
    beneath,
    guard_frame,
    is_at,
    is_open,
    lacking_since,
    sizes_of,
    timer_key,
    timer_of,
    waits_for_last_poll,
)
from holdfast.plan import composed
from holdfast.plan.graph import KEEP_NAMED, KEEP_NOTHING, KEEP_RESULT
from holdfast.values import NULL, TERMINAL, Error, Millis, Status, scope_of, split

# Outputs that only the run's own output needs are kept in memory while they are small; otherwise they are read from the journal.
RESULT_VALUE_BYTES_MAX: Final = 4 * 1024
RESULT_BYTES_MAX: Final = 64 * 1024
RESULT_ENTRY_BYTES: Final = 32  # memory of an entry besides its text


def fold(run: Run, event: Event, decisions: Iterable[Decision], at: Millis, epoch: int) -> Effects:
    """Apply one journal row to the run. Return what the commit of a new row must do besides storing it."""
    effects: Effects = []
    run.seq += 1
    run.at = at
    if epoch != run.epoch:  # reading an attribute is cheaper than writing it
        run.epoch = epoch
    _FACTS[type(event)](run, event, effects)
    for decision in decisions:
        _ORDERS[type(decision)](run, decision, effects)
    status = "running" if run.active and run.begun and not run.ending else _status(run)
    if status != run.status:
        run.status = status
    return effects


def _status(run: Run) -> Status:
    if run.status in TERMINAL:
        return run.status
    if run.ending:
        return "cancelling"
    if not run.begun:
        return "pending"
    return "running" if run.active or run.todo else "waiting"


# ----------------------------------------------------------------------------------------------------- facts


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
            _end_stop(run, path)  # no node drives the run: the attempt is lost and its step is ready
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
        _let_go(run, path, step, effects, event.output)
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
    _rest(run, step, "retrying")


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
    _rest(run, step, "waiting")


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
        _drop(run, event.path, effects)
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
        _close_wait(run, path, step, "expired", effects)
        step.state, step.tries = "retrying", step.tries + 1
    else:
        _drop(run, path, effects, "expired")


def _cancel_requested(run: Run, event: CancelRequested, effects: Effects) -> None:
    if run.end is None:  # otherwise it is already decided how it ends
        run.ending = "cancelled"


def _key_held(run: Run, event: KeyHeld, effects: Effects) -> None:
    step = run.steps.get(event.path)
    if step is not None and step.state == "ready" and step.reason == "key":
        _rest(run, step, "waiting")


def _key_answered(run: Run, event: KeyAnswered, effects: Effects) -> None:
    step = run.steps.get(event.path)
    if step is not None and step.reason == "key":
        _drop(run, event.path, effects)


def _step_paused(run: Run, event: StepPaused, effects: Effects) -> None:
    if not is_open(run, event.path, event.attempt):
        return
    step = run.steps[event.path]
    if step.target is not None:
        return _answered(run, event.path, step, effects)
    if step.parked is not None:
        # The wait opens and closes in this row, so that a second result finds the stored outcome.
        _begin_wait(run, event.path, step, Wait("callback", event.task_id, run.at), effects)
        return _called_back(run, event.path, step, step.parked, effects)
    _rest(run, step, "waiting")


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
        _close_wait(run, path, step, by, effects)
    step.parked = None
    if answer.error is not None:
        step.state, step.tries = "retrying", step.tries + 1
        return
    del run.steps[path]
    if step.key is not None:
        _let_go(run, path, step, effects, answer.output)
    if step.keep:
        keep_output(run, path, answer.output, step.keep)


def _continued(run: Run, event: Continued, effects: Effects) -> None:
    run.todo = []


def _nothing(run: Run, event: Any, effects: Effects) -> None:
    """The event itself changes nothing; only its decisions do."""


def _answered(run: Run, path: str, step: Step, effects: Effects) -> None:
    """Count an attempt that was asked to stop as stopped, whatever its result."""
    target = step.target
    assert target is not None
    if target == path:  # it timed out: the step itself is retried or fails
        step.target, step.tries = None, step.tries + 1
        _rest(run, step, "retrying")
        _end_stop(run, target)
        return
    _drop(run, path, effects)
    run.stops[target].left -= 1


def _drop(run: Run, path: str, effects: Effects, outcome: str = "cancelled") -> None:
    """Remove an open step, and release its key and wait."""
    step = run.steps.pop(path)
    run.active -= step.state in ("running", "ready")
    if step.key is not None:
        _let_go(run, path, step, effects)
    if step.wait is not None:
        _close_wait(run, path, step, outcome, effects)


def _close_wait(run: Run, path: str, step: Step, outcome: str, effects: Effects) -> None:
    assert step.wait is not None
    run.waits -= 1
    for timer in ("expiry", "poll", "escalate"):
        run.timers.pop(timer_key(timer, path), None)
    effects.append(WaitWork(path, step.attempt, step.wait, outcome))
    step.wait = None


def _let_go(run: Run, path: str, step: Step, effects: Effects, output: msgspec.Raw | None = None) -> None:
    assert step.key is not None
    run.keyed -= 1
    effects.append(KeyWork(path, step.key, asks=False, output=output))


def _rest(run: Run, step: Step, state: str) -> None:
    step.state = state
    run.active -= 1


# ---------------------------------------------------------------------------------------------------- orders


def _start_attempt(run: Run, order: StartAttempt, effects: Effects) -> None:
    path = order.path
    step = run.steps.get(path)
    if step is None:
        if "." in path and (frame := split(path)[0]) not in run.frames:  # the top level is always open
            _open_frame(run, frame)
        run.steps[path] = Step("running", order.attempt, order.inputs, order.keep)
        run.active += 1
        return
    run.active += step.state != "ready"
    step.state, step.attempt, step.reason = "running", order.attempt, ""
    step.parked = None  # an early result of the previous attempt, which has ended
    run.timers.pop(timer_key("retry", path), None)
    run.timers.pop(timer_key("worker", path), None)


def _reserve_key(run: Run, order: ReserveKey, effects: Effects) -> None:
    path = order.path
    step = run.steps.get(path)
    if step is None:
        _open_frame(run, split(path)[0])
        key = Key(order.key, order.is_global)
        step = run.steps[path] = Step("waiting", 0, order.inputs, order.keep, key=key)
        run.keyed += 1
    assert step.key is not None
    run.active += step.state not in ("running", "ready")
    step.state, step.reason = "ready", "key"
    effects.append(KeyWork(path, step.key, asks=True))


def _open_wait(run: Run, order: OpenWait, effects: Effects) -> None:
    path = order.path
    step = run.steps.get(path)
    if step is None:
        _open_frame(run, split(path)[0])
        step = run.steps[path] = Step("waiting", keep=order.keep)
    wait = Wait(order.kind, order.name, run.at, order.expires_at, order.detail)
    _begin_wait(run, path, step, wait, effects)


def _begin_wait(run: Run, path: str, step: Step, wait: Wait, effects: Effects) -> None:
    step.wait = wait
    run.waits += 1
    effects.append(WaitWork(path, step.attempt, wait))


def _note_answer(run: Run, order: NoteAnswer, effects: Effects) -> None:
    wait = run.steps[order.path].wait
    assert wait is not None
    wait.got[order.name] = order.value


def _keep_signal(run: Run, order: KeepSignal, effects: Effects) -> None:
    signal = Signal(run.signals_kept, order.name, order.value, order.correlation)
    run.shelf.put(signal)
    run.signals.append(signal)
    run.signals_kept += 1


def _take_signal(run: Run, order: TakeSignal, effects: Effects) -> None:
    at = bisect_left(run.signals, order.number, key=lambda signal: signal.number)
    run.shelf.drop(run.signals.pop(at))


def _stop_attempt(run: Run, order: StopAttempt, effects: Effects) -> None:
    step = run.steps[order.path]
    if step.state == "running":
        if step.target is not None and step.target in run.stops:
            _end_stop(run, step.target)  # a larger stop includes the smaller one
        step.target = order.target
        return
    _drop(run, order.path, effects)
    for timer in ("retry", "delay", "suspect", "worker"):
        run.timers.pop(timer_key(timer, order.path), None)


def _begin_stop(run: Run, order: BeginStop, effects: Effects) -> None:
    if order.target in run.steps:  # a single attempt that timed out
        run.stops[order.target] = Stop(order.error, 1)
        return
    finals = {guard_frame(key) for key, guard in run.guards.items() if guard.phase == "final"}
    for inner in [target for target in run.stops if target and beneath(order.target, target)]:
        if not any(frame != inner and is_at(frame, inner) for frame in finals if is_at(order.target, frame)):
            _end_stop(run, inner)  # otherwise it is a part of what must run after any end
    left = sum(step.target == order.target for step in run.steps.values())
    run.stops[order.target] = Stop(order.error, left, order.unwinds)
    if not order.target:
        # A deadline that passed while no node drove the run is found at adoption, which has no event for it.
        run.ending = run.ending or "run_timeout"


def _set_guard(run: Run, order: SetGuard, effects: Effects) -> None:
    if order.phase:
        run.guards[order.path] = Guarded(order.phase, order.error, order.caught)
        if order.phase == "final" and run.todo:
            # Work of the step that has ended, from a decision that was cut: it must not be taken for that of the final steps.
            frame = guard_frame(order.path)
            run.todo = [item for item in run.todo if not is_at(frame, item[1])]
    else:
        run.guards.pop(order.path, None)


def _note_undo(run: Run, order: NoteUndo, effects: Effects) -> None:
    run.undo.append(Undoable(order.path, order.inputs))
    run.kept_bytes += len(order.inputs)


def _begin_end(run: Run, order: BeginEnd, effects: Effects) -> None:
    """Nothing of the run goes on any more, except what follows its end. The outputs stay, since that may refer to them."""
    for path in list(run.steps):
        _drop(run, path, effects)
    deadline = timer_key("deadline", "")
    run.timers = {key: at for key, at in run.timers.items() if key == deadline}
    run.scopes, run.stops, run.todo, run.active = {}, {}, [], 0
    run.guards = {key: guard for key, guard in run.guards.items() if key == "."}
    run.end = End(order.status, order.error)


def _undo(run: Run, order: Undo, effects: Effects) -> None:
    assert run.end is not None
    if run.end.at:
        run.frames.pop(run.end.at, None)
    run.kept_bytes -= len(run.undo.pop().inputs)
    run.end.at = order.path
    run.frames[order.path] = Frame()


def _end_stop(run: Run, target: str) -> None:
    run.stops.pop(target, None)
    run.timers.pop(timer_key("grace", target), None)


def _arm_timer(run: Run, order: ArmTimer, effects: Effects) -> None:
    run.timers[timer_key(order.timer, order.path)] = order.at
    if order.timer == "delay":
        _open_frame(run, split(order.path)[0])
        run.steps[order.path] = Step("waiting")


def _open_scope(run: Run, order: OpenScope, effects: Effects) -> None:
    _open_frame(run, split(order.path)[0])
    run.scopes[order.path] = Scope(
        order.count,
        items=order.items,
        value=order.value,
        keep=order.keep,
        is_nested=order.is_nested,
        is_gathered=order.is_gathered,
    )


def _complete_step(run: Run, order: CompleteStep, effects: Effects) -> None:
    if _is_child(run, order.path):
        return _close_child(run, order.path, None)
    if run.taken:
        run.taken.pop(order.path, None)
    scope = _close_scope(run, order.path)
    if run.guards:
        _drop_guards(run, order.path)
    frame = _open_frame(run, split(order.path)[0])
    if run.waits and order.path in run.steps:
        _drop(run, order.path, effects, "answered")
    if scope is not None and not (order.joined and order.keep):
        _drop_children(run, order.path, scope)
    size = 0 if scope is None else frame_bytes(run, order.path)
    if size:
        sizes_of(run).pop(order.path, None)
    if order.keep == KEEP_NOTHING:
        return
    if not order.joined:
        keep_output(run, order.path, order.value, order.keep)
    elif scope is not None:
        scope.items, tail = NULL, split(order.path)[1]
        frame.joined[tail] = scope
        note_output(run, order.path, size)


def _fail_step(run: Run, order: FailStep, effects: Effects) -> None:
    if _is_child(run, order.path):
        return _close_child(run, order.path, order.error)
    if run.taken:
        run.taken.pop(order.path, None)
    had_stop = order.path in run.stops
    scope = _close_scope(run, order.path)
    if scope is not None:
        # Otherwise nothing beneath it is open or still to be entered: skip the search.
        if had_stop or run.todo or (scope.open and not scope.is_choice):
            _drop_steps(run, order.path, effects)
        _drop_children(run, order.path, scope)
        _drop_sizes(run, order.path)
    elif order.path in run.steps:
        _drop(run, order.path, effects, "denied")
    if run.guards:
        _drop_guards(run, order.path)
    frame = split(order.path)[0]
    if run.end is not None and frame and frame == run.end.at:
        run.end.failed = [*run.end.failed, order.error]
    _open_frame(run, frame)


def _set_var(run: Run, order: SetVar, effects: Effects) -> None:
    found = _open_frame(run, order.frame).vars
    run.vars_bytes += len(order.value) - (len(found[order.name]) if order.name in found else 0)
    found[order.name] = order.value


def _take(run: Run, order: Take, effects: Effects) -> None:
    if order.visit:
        run.visits += 1
        _open_frame(run, split(order.path)[0]).visits[order.to] = order.visit


def _continue(run: Run, order: Continue, effects: Effects) -> None:
    run.todo = [*run.todo, *order.todo]


def finish_run(run: Run, order: FinishRun, effects: Effects) -> None:
    run.status, run.output, run.error = order.status, order.output, order.error
    if run.keyed or run.waits:
        for path in list(run.steps):
            _drop(run, path, effects)
    run.steps, run.scopes, run.stops, run.timers, run.todo, run.active = {}, {}, {}, {}, [], 0
    if run.taken:
        run.taken = {}
    if run.guards or run.undo or run.end is not None:
        run.guards, run.undo, run.end, run.caught = {}, [], None, order.caught


# ---------------------------------------------------------------------------------------- frames and children


def _is_child(run: Run, path: str) -> bool:
    """Return whether a path is a child of an open fan-out. The child has the name of its frame: `loop[3]`."""
    scope, index = scope_of(path)
    return index is not None and scope in run.scopes


def _open_frame(run: Run, frame: str) -> Frame:
    """Return the frame of a block instance. The first decision inside a child of a scope opens its frame."""
    found = run.frames.get(frame)
    if found is not None:
        return found
    scope_path, _ = scope_of(frame)
    run.scopes[scope_path].child_opened()
    run.frames[split(scope_path)[0]].inner[frame] = None
    made = run.frames[frame] = Frame()
    return made


def _close_child(run: Run, path: str, error: Error | None) -> None:
    opened = scope_of(path)[0]
    scope = run.scopes[opened]
    if path not in run.frames:
        scope.child_opened()  # nothing happened in it: an empty block
    scope.child_closed(error is not None)
    keeps = scope.keep and (scope.keep != KEEP_RESULT or run.result_whole)
    if error is not None and keeps:
        scope.errors[int(path[path.rindex("[") + 1 : -1])] = error
        _charge(run, scope.keep, len(error.message) + RESULT_ENTRY_BYTES)
    if scope.keep and (error is not None or run.kept_bytes + run.result_bytes > composed.COUNTED_FROM):
        sizes = sizes_of(run)
        sizes[opened] = sizes.get(opened, 0) + child_bytes(frame_bytes(run, path), error)
        sizes.pop(path, None)
    if path in run.frames:
        if not keeps:
            _drop_frame(run, path)
        elif scope.keep == KEEP_RESULT:
            _charge(run, scope.keep, sum(map(len, run.frames[path].outputs.values())))


def _close_scope(run: Run, path: str) -> Scope | None:
    scope = run.scopes.pop(path, None)
    if scope is None:
        return None
    run.__dict__.get("items", {}).pop(path, None)
    run.timers.pop(timer_key("deadline", path), None)
    _end_stop(run, path)
    return scope


def _drop_steps(run: Run, target: str, effects: Effects) -> None:
    """Drop every open step beneath a target; their results will be late."""
    for path in [path for path in run.steps if beneath(target, path)]:
        _drop(run, path, effects)
    for path in [path for path in run.scopes if beneath(target, path)]:
        del run.scopes[path]
        run.__dict__.get("items", {}).pop(path, None)
    for path in [path for path in run.stops if path and beneath(target, path)]:
        del run.stops[path]
    if run.todo:
        run.todo = [item for item in run.todo if item[1] != target and not beneath(target, item[1])]
    for key in [key for key in run.timers if timer_of(key)[1] and beneath(target, timer_of(key)[1])]:
        del run.timers[key]


def _drop_guards(run: Run, path: str) -> None:
    """Drop the guards inside a scope that has closed."""
    for key in [key for key in run.guards if beneath(path, key)]:
        del run.guards[key]


def _drop_children(run: Run, path: str, scope: Scope) -> None:
    """Drop the kept outputs of a scope's children that no expression can refer to any more."""
    if scope.is_nested:
        if path in run.frames:
            _drop_frame(run, path)
    elif scope.is_gathered:
        for index in range(scope.next):
            if (frame := f"{path}[{index}]") in run.frames:
                _drop_frame(run, frame)


def _drop_sizes(run: Run, target: str) -> None:
    sizes = sizes_of(run)
    for path in [path for path in sizes if path == target or (path and beneath(target, path))]:
        del sizes[path]


def _drop_frame(run: Run, name: str) -> None:
    parent = run.frames.get(split(scope_of(name)[0])[0])
    if parent is not None:
        parent.inner.pop(name, None)
    decoded, unread = run.__dict__.get("decoded"), run.__dict__.get("unread")
    doomed = [name]
    while doomed:
        name = doomed.pop()
        frame = run.frames.pop(name)
        doomed.extend(frame.inner)
        run.vars_bytes -= sum(map(len, frame.vars.values()))
        for tail, output in frame.outputs.items():
            run.kept_bytes -= len(output)
            if decoded:
                decoded.pop(f"{name}.{tail}", None)
            if unread:
                unread.pop(f"{name}.{tail}", None)


def keep_output(run: Run, path: str, output: msgspec.Raw, keep: int) -> None:
    size = len(output)
    if keep == KEEP_RESULT:
        run.result_bytes = spent = run.result_bytes + size + RESULT_ENTRY_BYTES
        if spent > RESULT_BYTES_MAX or size > RESULT_VALUE_BYTES_MAX or not run.result_whole:
            run.result_whole = False
            return note_output(run, path, size)
    run.kept_bytes += size
    if "." in path:
        frame, tail = split(path)
        run.frames[frame].outputs[tail] = output
    else:
        run.frames[""].outputs[path] = output


def note_output(run: Run, path: str, size: int) -> None:
    """Count the size of an output that is gathered in its frame but not kept there."""
    frame, tail = split(path)
    sizes = sizes_of(run)
    sizes[frame] = sizes.get(frame, 0) + size + len(tail) + ENTRY_BYTES


def _charge(run: Run, keep: int, size: int) -> None:
    """Count an output that is kept only for the run's own output; stop keeping such outputs when they become too large."""
    if keep == KEEP_RESULT:
        run.result_bytes += size
        run.result_whole = run.result_whole and run.result_bytes <= RESULT_BYTES_MAX


_FACTS: Final[dict[type, Callable[[Run, Any, Effects], None]]] = {
    RunStarted: _run_started,
    Adopted: _adopted,
    StepSucceeded: _step_succeeded,
    StepFailed: _step_failed,
    AttemptTimedOut: _nothing,
    AttemptReleased: _attempt_released,
    Supplied: _nothing,
    SuspectsTurn: _nothing,
    TimerFired: _timer_fired,
    CancelRequested: _cancel_requested,
    Continued: _continued,
    KeyGranted: _nothing,
    KeyHeld: _key_held,
    KeyAnswered: _key_answered,
    StepPaused: _step_paused,
    CallbackReceived: _callback_received,
    SignalReceived: _nothing,
    ApprovalAnswered: _nothing,
}
_ORDERS: Final[dict[type, Callable[[Run, Any, Effects], None]]] = {
    StartAttempt: _start_attempt,
    ReserveKey: _reserve_key,
    StopAttempt: _stop_attempt,
    BeginStop: _begin_stop,
    SetGuard: _set_guard,
    NoteUndo: _note_undo,
    BeginEnd: _begin_end,
    Undo: _undo,
    ArmTimer: _arm_timer,
    OpenScope: _open_scope,
    CompleteStep: _complete_step,
    FailStep: _fail_step,
    OpenWait: _open_wait,
    NoteAnswer: _note_answer,
    KeepSignal: _keep_signal,
    TakeSignal: _take_signal,
    Poll: _nothing,
    SetVar: _set_var,
    Take: _take,
    Continue: _continue,
    FinishRun: finish_run,
}
