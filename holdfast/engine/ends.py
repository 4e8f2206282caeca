"""The end of a step, a block or a scope that does not simply go on: failing, handling failures, stopping, final steps.

    fail_step ──► route ──► handler of the step ──► its final steps ──► the block around it, and so on up to the run
    stop ──► attempts end ──► final steps of all that was open inside, the innermost first ──► stopped

The steps that handle an end are nodes of the same block as what they guard (`Block.parts`). `run.guards` says how far each is.
Knows the order of these. Does not know what a step does, how a scope goes on, or how a run ends (engine/undo).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from holdfast import limits
from holdfast.engine import undo
from holdfast.engine.decisions import ArmTimer, BeginStop, FinishRun, StopAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.gather import child_bytes, frame_bytes
from holdfast.engine.state import Guarded, Scope, beneath, guard_frame, guard_key, is_at
from holdfast.engine.undo import cancel_grace_ms
from holdfast.errors import ExpressionTooCostly, LimitExceeded
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import END, FAIL, TIMEOUTS, FanOut, Guard, Joint, Nested
from holdfast.values import NULL, Error, Millis, base_of, encode, join, scope_of, split

BROKEN: Final = (ValueError, OverflowError, RecursionError, LimitExceeded)

PASS_FILES: Final = "pass files, or less of it"
RETURN_FILES: Final = "return file_refs instead"
CHOOSE_OUTPUT: Final = "select a part of it with `output`, or return file_refs"


def _value_max() -> str:
    return f"{limits.size(composed.LIMIT)} ({limits.met('value_bytes_max')})"


def broken(error: Exception, path: str) -> Error:
    """Fail a step whose expression cannot be evaluated; no attempt is made."""
    if isinstance(error, TooLarge):
        return Error("input_too_large", f"the input of {path} exceeds {_value_max()}; {PASS_FILES}", path)
    if isinstance(error, ExpressionTooCostly):
        return Error(error.code, str(error), path)
    return Error("limit" if isinstance(error, LimitExceeded) else "template", str(error), path)


def broken_output(error: Exception, path: str, what: str, advice: str = "") -> Error:
    """The same for the output of a step, a scope or the run."""
    if isinstance(error, TooLarge):
        message = f"the output of {what} exceeds {_value_max()}; {advice or RETURN_FILES}"
        return Error("output_too_large", message, path)
    return broken(error, path)


# ----------------------------------------------------------------------------------------------------- failing


def fail_step(draft: Draft, path: str, error: Error) -> None:
    """Handle the final failure of a step: its block takes the error route, or what guards it follows."""
    draft.fail(path, error)
    if draft.scope(path) is not None:
        draft.note_scope(path, None)
    (frame, tail), node = split(path), draft.plan.node(path)
    route = node.routes.after_failure(error.kind)
    if route is FAIL:
        guard = None if node.around is None else node.around.guard
        if guard is None or not _handled(draft, frame, path, guard, error):
            _failed_for_good(draft, frame, tail, error)
        return None
    if node.post is None:
        return draft.go(frame, route)
    named = ("timeout", "error") if error.kind in TIMEOUTS else ("error",)
    action = next((name for name in named if name in node.post.routes), "")
    take(draft, frame, path, action, route)


def take(draft: Draft, frame: str, path: str, action: str, to: str) -> None:
    """Leave a step by an action, unless the run has gone round its cycles too often."""
    if draft.run.visits >= limits.now.visits_max and to != END:
        message = (
            f"the run has gone round its cycles {limits.now.visits_max:,} times ({limits.met('visits_max')})"
        )
        return fail_block(draft, frame, Error("limit", message, path))
    draft.take(frame, path, action, to)


def fail_block(draft: Draft, frame: str, error: Error) -> None:
    """A block has failed: what guards it follows, or the node that opened it fails too."""
    if undo.is_undoing(draft, frame):
        return undo.undone(draft, error)
    guard, key = draft.plan.block(frame).guard, guard_key(frame, "")
    state = draft.guard(key)
    if guard is None or (state is not None and state.phase != "body"):
        return _fail_around(draft, frame, error)
    if guard.catches(error.kind) or frame:
        if not _handled(draft, frame, key, guard, error):
            _fail_around(draft, frame, error)
        return None
    _fail_around(draft, frame, error)  # the final steps of the run follow its compensations


def _fail_around(draft: Draft, frame: str, error: Error) -> None:
    if not frame:
        return undo.end_run(draft, "failed", error)
    scope_path, index = scope_of(frame)
    if index is None:
        around = draft.plan.node(scope_path)
        if isinstance(around, Nested):
            error = wrapped(error, f"{around.what} {around.workflow} failed", scope_path)
        return fail_step(draft, scope_path, error)
    node, scope = draft.plan.node(scope_path), draft.scope(scope_path)
    assert isinstance(node, FanOut) and scope is not None
    draft.fail(frame, error)
    scope.child_closed(failed=True)
    if node.goes_on:
        count_child(draft, scope_path, scope, frame, error)
    else:
        stop(draft, scope_path, wrapped(error, f"{node.noun} {index} failed", scope_path))


def count_child(draft: Draft, path: str, scope: Scope, frame: str, error: Error | None) -> None:
    """Continue a fan-out, unless the outputs of its children are already too large to gather."""
    scope.output_bytes += child_bytes(draft.output_bytes(frame), error)
    size = frame_bytes(draft.run, path) + scope.output_bytes
    if scope.keep and size > composed.LIMIT and draft.plan.node(path).is_named:  # type: ignore[union-attr]  # a fan-out
        advice = "use `collect: none`, or return file_refs"
        return stop(draft, path, broken_output(TooLarge(), path, f"step {path}", advice))
    draft.work.append(("fill", path, ""))


def wrapped(error: Error, what: str, path: str) -> Error:
    """Wrap an error of a child. The wrapper keeps the kind of its cause, so that routes and retries can act on it."""
    return Error(error.kind, f"{what}: {error.message}", path, 0, error)


# ----------------------------------------------------------------------------------------------------- handling


def _handled(draft: Draft, frame: str, key: str, guard: Guard, error: Error) -> bool:
    """Enter the handler of a failure, or the final steps. Return whether there is either."""
    if guard.catches(error.kind):
        assert guard.handler is not None
        _show_error(draft, frame, guard, error)
        draft.set_guard(key, "on_error", error)
        draft.go(frame, guard.handler)
        return True
    return _begin_final(draft, frame, key, guard, error)


def _begin_final(draft: Draft, frame: str, key: str, guard: Guard, error: Error | None) -> bool:
    if guard.final is None:
        return False
    _drop_work(draft, {frame})
    _enter_final(draft, key, guard, error)
    return True


def _enter_final(draft: Draft, key: str, guard: Guard, error: Error | None) -> None:
    assert guard.final is not None
    frame = guard_frame(key)
    _show_error(draft, frame, guard, error)
    draft.set_guard(key, "final", error)
    draft.go(frame, guard.final)


def _drop_work(draft: Draft, ended: Collection[str]) -> None:
    """Drop the work of frames that have ended."""
    draft.work[:] = [item for item in draft.work if not _is_in(ended, item[1])]


def _is_in(frames: Collection[str], path: str) -> bool:
    """Return whether a path is one of many frames, or inside of one."""
    while path not in frames:
        if not path:
            return False
        path = split(path)[0]
    return True


def _show_error(draft: Draft, frame: str, guard: Guard, error: Error | None) -> None:
    if guard.variable:
        draft.set_var(frame, guard.variable, encode(error))


def _failed_for_good(draft: Draft, frame: str, tail: str, error: Error) -> None:
    """A node has failed, and nothing guards it any more: the handler that it is part of fails, or its block."""
    block = draft.plan.block(frame)
    part = block.parts.get(base_of(tail))
    if part is None:
        return fail_block(draft, frame, error)
    of, role = part
    key, guard = guard_key(frame, of), block.guard_of(of)
    state = draft.guard(key)
    if role == "on_error":
        if state is not None and state.error is not None:
            error = _caused_by(error, state.error)
        if of:
            draft.fail(join(frame, of), error)
        if not (frame or of) or not _begin_final(draft, frame, key, guard, error):
            _pass_on(draft, frame, of, key, error)
        return None
    if draft.run.end is not None and not (frame or of):
        return undo.final_ended(draft, error)
    if (target := _stopping(draft, guard_frame(key))) is not None:
        return _unwound(draft, key, target, error)
    before = None if state is None else state.error
    if before is not None:
        error = msgspec.structs.replace(before, also=(*before.also, error))
    if of:
        draft.fail(join(frame, of), error)
    _pass_on(draft, frame, of, key, error)


def _pass_on(draft: Draft, frame: str, of: str, key: str, error: Error) -> None:
    """A guarded step or block has failed, and its guard has nothing left to do."""
    if of:
        draft.set_guard(key, "")
        return _failed_for_good(draft, frame, of, error)
    state = draft.guard(key)
    # The final steps of the run itself follow its compensations, unless they have begun.
    is_over = frame or (state is not None and state.phase == "final")
    draft.set_guard(key, "done" if is_over else "on_error", error)
    _fail_around(draft, frame, error)


def _caused_by(error: Error, cause: Error) -> Error:
    inner = cause if error.cause is None else _caused_by(error.cause, cause)
    return msgspec.structs.replace(error, cause=inner)


def enter_joint(draft: Draft, frame: str, joint: Joint) -> None:
    """Go on between the steps of a guard: after a handler, before the final steps, after them."""
    key = guard_key(frame, joint.of)
    state = draft.guard(key) or Guarded("body")
    if joint.does == "caught":
        return _caught(draft, frame, joint, key)
    if joint.does == "final":
        draft.set_guard(key, "final", caught=state.caught)
        return draft.go(frame, joint.routes.ok)
    if draft.run.end is not None and key == undo.ROOT:
        return undo.final_ended(draft, None)
    if (target := _stopping(draft, frame)) is not None:
        return _unwound(draft, key, target, None)
    if state.error is not None:
        return _pass_on(draft, frame, joint.of, key, state.error)
    draft.set_guard(key, "" if joint.of else "done", caught=state.caught)
    draft.go(frame, joint.routes.ok)


def _caught(draft: Draft, frame: str, joint: Joint, key: str) -> None:
    """A failure was handled: the output of the last step of the handler is the output of the step, or of the block."""
    guard = draft.plan.block(frame).guard_of(joint.of)
    _show_error(draft, frame, guard, None)
    if joint.of:
        text = output_of_handler(draft, frame, guard)
        if len(text) > composed.LIMIT:
            error = broken_output(TooLarge(), join(frame, joint.of), f"step {joint.of}")
            draft.fail(join(frame, joint.of), error)
            if not _begin_final(draft, frame, key, guard, error):
                _pass_on(draft, frame, joint.of, key, error)
            return
        node = draft.plan.block(frame).node(joint.of)
        draft.complete(join(frame, joint.of), msgspec.Raw(text), node.keep)
    is_over = guard.final is None
    draft.set_guard(key, ("" if joint.of else "done") if is_over else "on_error", caught=True)
    draft.go(frame, joint.routes.ok)


def output_of_handler(draft: Draft, frame: str, guard: Guard) -> bytes:
    """Return the output of the last step of a handler."""
    if guard.last is None:
        return b"null"
    path = join(frame, guard.last)
    return draft.seen_from(frame).raw(path) or draft.gathered(path) or b"null"


# ---------------------------------------------------------------------------------------------------- stopping


def stop(draft: Draft, target: str, error: Error) -> None:
    """Stop everything open beneath a target, and continue when all attempts have ended; at once if none is running. Steps that
    must run after any end go on."""
    finals = {frame for frame in draft.finals() if is_at(target, frame)}
    steps = {
        path: step
        for path, step in draft.open_steps(target).items()
        if not (finals and _is_in(finals, split(path)[0]))
    }
    draft.decisions.extend(StopAttempt(path, target) for path in steps)
    if not any(step.state == "running" for step in steps.values()):
        return stopped(draft, target, error)
    draft.stopped = (*draft.stopped, target)
    draft.decisions.append(BeginStop(target, error))
    draft.decisions.append(ArmTimer(target, "grace", Millis(draft.at + cancel_grace_ms())))


def stopped(draft: Draft, target: str, error: Error) -> None:
    """Continue after a stop: every attempt has ended, or the grace period has passed. What must run after any end runs first."""
    if _unwinds(draft, target, error):
        return None
    draft.stopped = (*draft.stopped, target)
    if target:
        return fail_step(draft, target, error)
    if draft.run.ending == "cancelled" and error.kind != "cancelled":
        error = Error("cancelled", "the run was cancelled", also=error.also)
    statuses: Final = {"cancelled": "cancelled", "interrupted": "interrupted"}
    undo.end_run(draft, statuses.get(error.kind, "failed"), error)  # type: ignore[arg-type]  # a status


def _unwinds(draft: Draft, target: str, error: Error) -> bool:
    """Begin the final steps of all that was open beneath a target, the innermost first. Return whether any still run."""
    found = draft.guards_beneath(target)
    if not found:
        return False
    guards = {key: _guard_at(draft, key) for key in found}
    final = [key for key, guard in guards.items() if guard.final is not None]
    around = {outer for key in final for outer in _guards_around(draft, key) if outer != key}
    ready = [key for key in final if key not in around]
    begin = [key for key in ready if found[key].phase != "final"]
    if begin:
        _drop_work(draft, {guard_frame(key) for key in begin})
    for key in reversed(begin):  # the work is a stack
        _enter_final(draft, key, guards[key], error)
    known = draft.run.stops.get(target)
    if final and (begin or known is None or not known.unwinds or known.error != error):
        draft.decisions.append(BeginStop(target, error, unwinds=True))
        draft.stopping = {**draft.stopping, target: error}
        if begin or known is None or not known.unwinds:
            draft.decisions.append(ArmTimer(target, "grace", Millis(draft.at + cancel_grace_ms())))
    return bool(final)


def _guard_at(draft: Draft, key: str) -> Guard:
    return draft.plan.block(guard_frame(key)).guard_of("" if key.endswith(".") else split(key)[1])


def _guards_around(draft: Draft, inner: str) -> Iterator[str]:
    """Yield the keys of guards that a guard is inside of, or inside of the steps that handle their end. Some of them may not be open."""
    frame, path = guard_frame(inner), inner.removesuffix(".")
    while frame:
        yield guard_key(frame, "")
        frame = split(scope_of(frame)[0])[0]
    while path:
        frame, tail = split(path)
        name, parts = base_of(tail), draft.plan.block(frame).parts
        while name:
            yield guard_key(frame, name)
            name = parts[name][0] if name in parts else ""
        path = scope_of(frame)[0]


def _stopping(draft: Draft, frame: str) -> str | None:
    """Return the target that is being stopped and contains a frame whose final steps have ended."""
    targets = {**dict.fromkeys(draft.run.stops), **dict.fromkeys(draft.stopping)}
    found = [target for target in targets if is_at(target, frame) and target not in draft.stopped]
    return max(found, key=len, default=None)


def _unwound(draft: Draft, key: str, target: str, error: Error | None) -> None:
    """The final steps of something that was stopped have ended: others follow, or the stop is complete."""
    draft.set_guard(key, "")
    known = draft.run.stops.get(target)
    why = draft.stopping[target] if target in draft.stopping or known is None else known.error
    if error is not None:
        why = msgspec.structs.replace(why, also=(*why.also, error))
    if known is not None and known.left and not known.unwinds:
        return
    if error is None and known is not None and known.unwinds and _others_unwind(draft, key, target):
        return
    stopped(draft, target, why)


def _others_unwind(draft: Draft, ended: str, target: str) -> bool:
    """Return whether other final steps still run and no guard waits for those that have ended: then nothing new begins. Thousands may
    run, so they are not all looked at."""
    for outer in _guards_around(draft, ended):
        guard = draft.guard(outer)
        if outer not in (ended, undo.ROOT) and guard is not None and guard.phase != "done":
            return False
    return any(
        guard.phase == "final" and key not in draft.guards and key != undo.ROOT and beneath(target, key)
        for key, guard in draft.run.guards.items()
    )


def give_up(draft: Draft, target: str, error: Error) -> None:
    """The grace period has passed: attempts that are still running are left behind, and final steps are asked to stop."""
    if draft.run.stops[target].unwinds:
        draft.decisions.extend(StopAttempt(path, target) for path in draft.open_steps(target))
        for key in draft.guards_beneath(target):
            draft.set_guard(key, "")
    stopped(draft, target, error)


def stop_step(draft: Draft, path: str, error: Error) -> None:
    """Stop an attempt that timed out. The retry or failure follows when it has ended."""
    draft.decisions.append(StopAttempt(path, path))
    draft.decisions.append(BeginStop(path, error))
    draft.decisions.append(ArmTimer(path, "grace", Millis(draft.at + cancel_grace_ms())))


def arm_deadline(draft: Draft, timeout_ms: int) -> None:
    """Arm the deadline of a run. It counts from the run's creation and includes waiting."""
    created_at = draft.run.created_at or draft.at
    draft.decisions.append(ArmTimer("", "deadline", Millis(created_at + timeout_ms)))


def end_late(draft: Draft) -> None:
    """Stop a run that has timed out: nothing of it starts any more."""
    seconds = (draft.plan.timeout_ms or 0) / 1000
    stop(draft, "", Error("run_timeout", f"the run did not finish within {seconds:g} s"))


def end_nested_late(draft: Draft, path: str) -> None:
    node = draft.plan.node(path)
    assert isinstance(node, Nested) and node.timeout_ms is not None
    message = f"{node.what} {node.workflow} did not finish within {node.timeout_ms / 1000:g} s"
    stop(draft, path, Error(node.late, message, path))


def interrupt(draft: Draft, why: str) -> None:
    """End a run because its process ended. What must follow any end follows this one too."""
    error, guard = Error("interrupted", why), draft.plan.root.guard
    if draft.run.undo or draft.guards_beneath("") or (guard is not None and guard.final is not None):
        return stop(draft, "", error)
    draft.decisions.append(FinishRun("interrupted", NULL, error))
