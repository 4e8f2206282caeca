"""Blocks and scopes: what follows a node, starting and joining the children of a fan-out, failing, stopping.

Knows the order of nodes. Does not know what a step does, or its notation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.decisions import (
    ArmTimer,
    BeginStop,
    CompleteStep,
    FinishRun,
    StopAttempt,
)
from holdfast.engine.draft import Draft
from holdfast.engine.gather import added_bytes, child_bytes, frame_bytes
from holdfast.engine.state import Scope
from holdfast.errors import ExpressionTooCostly, LimitExceeded
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import (
    END,
    FAIL,
    TIMEOUTS,
    ChildError,
    FanOut,
    Gathered,
    Nested,
    Node,
    Post,
    Timer,
)
from holdfast.plan.unread import opened
from holdfast.values import NULL, Error, Millis, encode, scope_of, split, written

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


def timer_is_over(draft: Draft, path: str) -> None:
    node, frame = draft.plan.node(path), split(path)[0]
    assert isinstance(node, Timer)
    try:
        text = node.show(draft.seen_from(frame), draft.at)
    except BROKEN as error:
        return fail_step(draft, path, broken_output(error, path, f"step {path}"))
    give(draft, path, node, text)


def give(draft: Draft, path: str, node: Node, text: bytes) -> None:
    """Complete a step that makes no call, with this output."""
    if len(text) > composed.LIMIT:
        return fail_step(draft, path, broken_output(TooLarge(), path, f"step {path}"))
    value = msgspec.Raw(text)
    draft.complete(path, value, node.keep)
    leave(draft, path, node, value)


# --------------------------------------------------------------------------------------------- leaving a node


def leave(draft: Draft, path: str, node: Node, output: msgspec.Raw) -> None:
    """Continue after a step that succeeded with this output, along its route or action."""
    frame, post = split(path)[0], node.post
    if post is None:
        return draft.go(frame, node.routes.ok)
    value = opened(output)
    if not _write(draft, frame, path, post, value):
        return None
    try:
        action = post.action(draft.seen_from(frame), value)
    except BROKEN as error:
        return fail_step(draft, path, broken(error, path))
    _take(draft, frame, path, action, post.routes.get(action, node.routes.ok))


def _write(
    draft: Draft, frame: str, path: str, post: Post, value: Any, errors: Sequence[ChildError] = ()
) -> bool:
    """Write the variables that a step sets. If they are too large, the step fails instead."""
    try:
        texts = post.writes(draft.seen_from(frame), value, errors)
    except BROKEN as error:
        fail_step(draft, path, broken_output(error, path, f"step {path}, as it is to be written,"))
        return False
    if draft.run.vars_bytes + sum(map(len, texts.values())) > limits.now.vars_bytes_max:
        message = f"the variables of the run exceed {limits.size(limits.now.vars_bytes_max)} ({limits.met('vars_bytes_max')}); return file_refs instead of large results"
        fail_step(draft, path, Error("vars_too_large", message, path))
        return False
    for name, text in texts.items():
        draft.set_var(frame, name, text)
    return True


def _take(draft: Draft, frame: str, path: str, action: str, to: str) -> None:
    if draft.run.visits >= limits.now.visits_max and to != END:
        message = (
            f"the run has gone round its cycles {limits.now.visits_max:,} times ({limits.met('visits_max')})"
        )
        return _fail_block(draft, frame, Error("limit", message, path))
    draft.take(frame, path, action, to)


def end_nested_late(draft: Draft, path: str) -> None:
    node = draft.plan.node(path)
    assert isinstance(node, Nested) and node.timeout_ms is not None
    message = f"{node.what} {node.workflow} did not finish within {node.timeout_ms / 1000:g} s"
    stop(draft, path, Error(node.late, message, path))


def end_block(draft: Draft, frame: str) -> None:
    """End a block after its last node: a child of a scope is complete, or the run is."""
    if not frame:
        return _complete(draft)
    scope_path, index = scope_of(frame)
    scope = draft.scope(scope_path)
    assert scope is not None
    if index is None:
        return _end_only_child(draft, scope_path, scope)
    draft.decisions.append(CompleteStep(frame))
    scope.child_closed(failed=False)
    if scope.keep and draft.run.kept_bytes + draft.run.result_bytes > composed.COUNTED_FROM:
        return _count_child(draft, scope_path, scope, frame, None)
    draft.work.append(("fill", scope_path, ""))


def _count_child(draft: Draft, path: str, scope: Scope, frame: str, error: Error | None) -> None:
    """Continue a fan-out, unless the outputs of its children are already too large to gather."""
    scope.output_bytes += child_bytes(draft.output_bytes(frame), error)
    size = frame_bytes(draft.run, path) + scope.output_bytes
    if scope.keep and size > composed.LIMIT and draft.plan.node(path).is_named:  # type: ignore[union-attr]  # a fan-out
        advice = "use `collect: none`, or return file_refs"
        return stop(draft, path, broken_output(TooLarge(), path, f"step {path}", advice))
    draft.work.append(("fill", path, ""))


def _end_only_child(draft: Draft, path: str, scope: Scope) -> None:
    """End the node that opened the block of a choice or nested plan."""
    node, value = draft.plan.node(path), scope.value
    if isinstance(node, Nested):
        what = f"{node.what} {node.workflow}"
        if node.output is None and node.post is None:
            scope.output_bytes = added_bytes(draft, path)
            if node.keep and frame_bytes(draft.run, path) + scope.output_bytes > composed.LIMIT:
                return fail_step(draft, path, broken_output(TooLarge(), path, what, CHOOSE_OUTPUT))
            draft.join(path, node.keep)
            return leave(draft, path, node, NULL)
        try:
            value = msgspec.Raw(_output_of(draft, path, node))
        except BROKEN as error:
            return fail_step(draft, path, broken_output(error, path, what))
    draft.complete(path, value, node.keep)
    draft.note_scope(path, None)
    leave(draft, path, node, value)


def _output_of(draft: Draft, path: str, node: Nested) -> bytes:
    return draft.outputs_of(path) if node.output is None else node.output(draft.seen_from(path))


def _complete(draft: Draft) -> None:
    output = draft.plan.output
    if output is None:
        if draft.output_bytes("") > composed.LIMIT:
            return _fail_block(draft, "", broken_output(TooLarge(), "", "the run", CHOOSE_OUTPUT))
        draft.decisions.append(FinishRun("completed"))
        return
    try:
        text = output(draft.seen_from(""))
    except BROKEN as error:
        return _fail_block(draft, "", broken_output(error, "", "the run"))
    draft.decisions.append(FinishRun("completed", msgspec.Raw(text)))


def fill(draft: Draft, path: str) -> None:
    """Open the next children of a fan-out, or join it when the last one has closed."""
    scope = draft.scope(path)
    if scope is None or ((draft.stopped or draft.run.stops) and draft.is_stopped(path)):
        return
    node = draft.plan.node(path)
    assert isinstance(node, FanOut)
    if scope.next < scope.count and not (scope.failed and node.drains):
        if scope.open >= node.concurrency:
            return
        index = scope.next
        scope.child_opened()
        if scope.open < node.concurrency:
            draft.work.append(("fill", path, ""))
        draft.work.append(("child", f"{path}[{index}]", node.block_of(index).first))
    elif not scope.open:
        _join(draft, path, node, scope)


def _join(draft: Draft, path: str, node: FanOut, scope: Scope) -> None:
    if node.gather is not None:
        return _gather(draft, path, node, node.gather)
    value = NULL
    if node.count is not None:
        value = msgspec.Raw(encode(node.count(scope.count, scope.failed)))
        draft.complete(path, value, node.keep)
        draft.note_scope(path, None)
    else:
        draft.join(path, node.keep)
    leave(draft, path, node, value)


def _gather(
    draft: Draft, path: str, node: FanOut, gather: Callable[[list[dict[str, Any]]], Gathered]
) -> None:
    """Join children whose results are combined into one value. If some failed, the node fails: it writes that value and
    continues along an action, if there is one."""
    frame, post = split(path)[0], node.post
    try:
        gathered = gather(draft.children(path))
        text = written(gathered.value)
        if len(text) > composed.LIMIT:
            raise TooLarge
    except TooLarge as large:
        return fail_step(draft, path, broken_output(large, path, f"step {path}"))
    draft.note_scope(path, None)
    if gathered.failed is None:
        draft.complete(path, msgspec.Raw(text), node.keep)
        return leave(draft, path, node, msgspec.Raw(text))
    error = msgspec.structs.replace(gathered.failed, path=path)
    draft.fail(path, error)
    if post is None:
        return _fail_block(draft, frame, error)
    value = opened(msgspec.Raw(text))
    if not _write(draft, frame, path, post, value, gathered.errors):
        return None
    try:
        action = post.action(draft.seen_from(frame), value)
    except BROKEN as broke:
        return _fail_block(draft, frame, broken(broke, path))
    for name in ("error", action, "default"):
        if name in post.routes:
            return _take(draft, frame, path, name, post.routes[name])
    _fail_block(draft, frame, error)


# --------------------------------------------------------------------------------------- failing and stopping


def fail_step(draft: Draft, path: str, error: Error) -> None:
    """Handle the final failure of a step: its block takes the error route, or fails too."""
    draft.fail(path, error)
    if draft.scope(path) is not None:
        draft.note_scope(path, None)
    frame, node = split(path)[0], draft.plan.node(path)
    route = node.routes.after_failure(error.kind)
    if route is FAIL:
        return _fail_block(draft, frame, error)
    if node.post is None:
        return draft.go(frame, route)
    named = ("timeout", "error") if error.kind in TIMEOUTS else ("error",)
    action = next((name for name in named if name in node.post.routes), "")
    _take(draft, frame, path, action, route)


def _fail_block(draft: Draft, frame: str, error: Error) -> None:
    if not frame:
        draft.work.clear()
        draft.stopped = (*draft.stopped, "")
        draft.decisions.append(FinishRun("failed", NULL, error))
        return
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
        _count_child(draft, scope_path, scope, frame, error)
    else:
        stop(draft, scope_path, wrapped(error, f"{node.noun} {index} failed", scope_path))


def wrapped(error: Error, what: str, path: str) -> Error:
    """Wrap an error of a child. The wrapper keeps the kind of its cause, so that routes and retries can act on it."""
    return Error(error.kind, f"{what}: {error.message}", path, 0, error)


def cancel_grace_ms() -> int:
    """Return how long an attempt may take to end after it was asked to stop."""
    return limits.now.cancel_grace_secs_max * 1000


def stop(draft: Draft, target: str, error: Error) -> None:
    """Stop everything open beneath a target, and continue when all attempts have ended; at once if none is running."""
    steps = draft.open_steps(target)
    draft.decisions.extend(StopAttempt(path, target) for path in steps)
    if not any(step.state == "running" for step in steps.values()):
        return stopped(draft, target, error)
    draft.stopped = (*draft.stopped, target)
    draft.decisions.append(BeginStop(target, error))
    draft.decisions.append(ArmTimer(target, "grace", Millis(draft.at + cancel_grace_ms())))


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


def interrupt(draft: Draft, why: str) -> None:
    draft.decisions.append(FinishRun("interrupted", NULL, Error("interrupted", why)))


def stopped(draft: Draft, target: str, error: Error) -> None:
    """Continue after a stop: every attempt has ended, or the grace period has passed."""
    draft.stopped = (*draft.stopped, target)
    if target:
        return fail_step(draft, target, error)
    draft.work.clear()
    if draft.run.ending == "cancelled" and error.kind != "cancelled":
        error = Error("cancelled", "the run was cancelled")
    draft.decisions.append(FinishRun("cancelled" if error.kind == "cancelled" else "failed", NULL, error))
