"""The one place that changes a run: fold(run, event, decisions, at).

Replay consists of fold alone: rows contain their decisions, so fold needs no plan and does not know why something was decided.
Outputs that are finished and that no later expression can refer to are dropped at once, so a loop of any length runs in flat
memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Final

from holdfast.engine.awaited import awaited_so_far
from holdfast.engine.decisions import (
    COMPLETED,
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
from holdfast.engine.effects import Effects, KeyWork
from holdfast.engine.events import Event
from holdfast.engine.fold_events import EVENTS, nothing
from holdfast.engine.frames import (
    close_child,
    drop_children,
    drop_sizes,
    is_child,
    keep_output,
    note_output,
    open_frame,
)
from holdfast.engine.gather import frame_bytes
from holdfast.engine.open_steps import begin_wait, close_scope, drop, drop_guards, drop_steps, end_stop
from holdfast.engine.state import (
    End,
    Frame,
    Guarded,
    Key,
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
    sizes_of,
    timer_key,
)
from holdfast.plan.graph import KEEP_NOTHING
from holdfast.values import NULL, TERMINAL, Millis, Status, split


def fold(run: Run, event: Event, decisions: Iterable[Decision], at: Millis, epoch: int) -> Effects:
    """Apply one journal row to the run. Return what the commit of a new row must do besides storing it."""
    effects: Effects = []
    run.seq += 1
    run.at = at
    if epoch != run.epoch:  # reading an attribute is cheaper than writing it
        run.epoch = epoch
    EVENTS[type(event)](run, event, effects)
    for decision in decisions:
        DECISIONS[type(decision)](run, decision, effects)
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


# ------------------------------------------------------------------------------------------------- decisions


def _start_attempt(run: Run, order: StartAttempt, effects: Effects) -> None:
    path = order.path
    step = run.steps.get(path)
    if step is None:
        if "." in path and (frame := split(path)[0]) not in run.frames:  # the top level is always open
            open_frame(run, frame)
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
        open_frame(run, split(path)[0])
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
        open_frame(run, split(path)[0])
        step = run.steps[path] = Step("waiting", keep=order.keep)
    wait = Wait(order.kind, order.name, run.at, order.expires_at, order.detail)
    begin_wait(run, path, step, wait, effects)


def _note_answer(run: Run, order: NoteAnswer, effects: Effects) -> None:
    wait = run.steps[order.path].wait
    assert wait is not None
    wait.got[order.name] = order.value
    if (waits := awaited_so_far(run)) is not None:
        waits.got(order.path, wait, order.name)


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
            end_stop(run, step.target)  # a larger stop includes the smaller one
        step.target = order.target
        return
    drop(run, order.path, effects)
    for timer in ("retry", "delay", "suspect", "worker"):
        run.timers.pop(timer_key(timer, order.path), None)


def _begin_stop(run: Run, order: BeginStop, effects: Effects) -> None:
    if order.target in run.steps:  # a single attempt that timed out
        run.stops[order.target] = Stop(order.error, 1)
        return
    finals = {guard_frame(key) for key, guard in run.guards.items() if guard.phase == "final"}
    for inner in [target for target in run.stops if target and beneath(order.target, target)]:
        if not any(frame != inner and is_at(frame, inner) for frame in finals if is_at(order.target, frame)):
            end_stop(run, inner)  # otherwise it is a part of what must run after any end
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
        drop(run, path, effects)
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


def _arm_timer(run: Run, order: ArmTimer, effects: Effects) -> None:
    run.timers[timer_key(order.timer, order.path)] = order.at
    if order.timer == "delay":
        open_frame(run, split(order.path)[0])
        run.steps[order.path] = Step("waiting")


def _open_scope(run: Run, order: OpenScope, effects: Effects) -> None:
    open_frame(run, split(order.path)[0])
    run.scopes[order.path] = Scope(
        order.count,
        items=order.items,
        value=order.value,
        keep=order.keep,
        is_nested=order.is_nested,
        is_gathered=order.is_gathered,
    )


def _complete_step(run: Run, order: CompleteStep, effects: Effects) -> None:
    if is_child(run, order.path):
        return close_child(run, order.path, None)
    if run.taken:
        run.taken.pop(order.path, None)
    scope = close_scope(run, order.path)
    if run.guards:
        drop_guards(run, order.path)
    frame = open_frame(run, split(order.path)[0])
    if run.waits and order.path in run.steps:
        drop(run, order.path, effects, "answered")
    if scope is not None and not (order.joined and order.keep):
        drop_children(run, order.path, scope)
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
    if is_child(run, order.path):
        return close_child(run, order.path, order.error)
    if run.taken:
        run.taken.pop(order.path, None)
    had_stop = order.path in run.stops
    scope = close_scope(run, order.path)
    if scope is not None:
        # Otherwise nothing beneath it is open or still to be entered: skip the search.
        if had_stop or run.todo or (scope.open and not scope.is_choice):
            drop_steps(run, order.path, effects)
        drop_children(run, order.path, scope)
        drop_sizes(run, order.path)
    elif order.path in run.steps:
        drop(run, order.path, effects, "denied")
    if run.guards:
        drop_guards(run, order.path)
    frame = split(order.path)[0]
    if run.end is not None and frame and frame == run.end.at:
        run.end.failed = [*run.end.failed, order.error]
    open_frame(run, frame)


def _set_var(run: Run, order: SetVar, effects: Effects) -> None:
    found = open_frame(run, order.frame).vars
    run.vars_bytes += len(order.value) - (len(found[order.name]) if order.name in found else 0)
    found[order.name] = order.value


def _take(run: Run, order: Take, effects: Effects) -> None:
    if order.visit:
        run.visits += 1
        open_frame(run, split(order.path)[0]).visits[order.to] = order.visit


def _continue(run: Run, order: Continue, effects: Effects) -> None:
    run.todo = [*run.todo, *order.todo]


def finish_run(run: Run, order: FinishRun, effects: Effects) -> None:
    run.status = order.status
    if order is not COMPLETED:
        run.output, run.error = order.output, order.error
    if run.keyed or run.waits:
        for path in list(run.steps):
            drop(run, path, effects)
    run.steps, run.active = {}, 0
    if run.scopes or run.stops or run.timers or run.todo:  # to look is cheaper than to write
        run.scopes, run.stops, run.timers, run.todo = {}, {}, {}, []
    if run.taken:
        run.taken = {}
    if run.guards or run.undo or run.end is not None:
        run.guards, run.undo, run.end, run.caught = {}, [], None, order.caught


DECISIONS: Final[dict[type, Callable[[Run, Any, Effects], None]]] = {
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
    Poll: nothing,
    SetVar: _set_var,
    Take: _take,
    Continue: _continue,
    FinishRun: finish_run,
}
