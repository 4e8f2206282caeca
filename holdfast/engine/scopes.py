"""Blocks and scopes: what follows a node, starting and joining the children of a fan-out.

Knows the order of nodes. Does not know what a step does, or its notation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast import limits
from holdfast.engine import undo
from holdfast.engine.decisions import CompleteStep, FinishRun
from holdfast.engine.draft import Draft
from holdfast.engine.ends import (
    BROKEN,
    CHOOSE_OUTPUT,
    broken,
    broken_output,
    count_child,
    fail_block,
    fail_step,
    output_of_handler,
    take,
)
from holdfast.engine.gather import added_bytes, frame_bytes
from holdfast.engine.state import Scope, guard_key
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import ChildError, FanOut, Gathered, Nested, Node, Post, Timer
from holdfast.plan.unread import opened
from holdfast.values import NULL, Error, encode, scope_of, split, written


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
    take(draft, frame, path, action, post.routes.get(action, node.routes.ok))


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


def end_block(draft: Draft, frame: str) -> None:
    """End a block after its last node: a child of a scope is complete, or the run is."""
    if not frame:
        return _complete(draft)
    if draft.run.end is not None and undo.is_undoing(draft, frame):
        return undo.undone(draft, None)
    scope_path, index = scope_of(frame)
    scope = draft.scope(scope_path)
    assert scope is not None
    if index is None:
        return _end_only_child(draft, scope_path, scope)
    draft.decisions.append(CompleteStep(frame))
    scope.child_closed(failed=False)
    if scope.keep and draft.run.kept_bytes + draft.run.result_bytes > composed.COUNTED_FROM:
        return count_child(draft, scope_path, scope, frame, None)
    draft.work.append(("fill", scope_path, ""))


def _end_only_child(draft: Draft, path: str, scope: Scope) -> None:
    """End the node that opened the block of a choice or nested plan."""
    node, value = draft.plan.node(path), scope.value
    if isinstance(node, Nested) and (caught := _caught_output(draft, path)) is not None:
        value = msgspec.Raw(caught)
    elif isinstance(node, Nested):
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


def _caught_output(draft: Draft, frame: str) -> bytes | None:
    """Return the output of a block whose failure was handled; None if it did not fail."""
    state, guard = draft.guard(guard_key(frame, "")), draft.plan.block(frame).guard
    if guard is None or state is None or not state.caught:
        return None
    return output_of_handler(draft, frame, guard)


def _complete(draft: Draft) -> None:
    if (caught := _caught_output(draft, "")) is not None:
        draft.decisions.append(FinishRun("completed", msgspec.Raw(caught), caught=True))
        return
    output = draft.plan.output
    if output is None:
        if draft.output_bytes("") > composed.LIMIT:
            return fail_block(draft, "", broken_output(TooLarge(), "", "the run", CHOOSE_OUTPUT))
        draft.decisions.append(FinishRun("completed"))
        return
    try:
        text = output(draft.seen_from(""))
    except BROKEN as error:
        return fail_block(draft, "", broken_output(error, "", "the run"))
    draft.decisions.append(FinishRun("completed", msgspec.Raw(text)))


def fill(draft: Draft, path: str) -> None:
    """Open the next children of a fan-out, or join it when the last one has closed."""
    scope = draft.scope(path)
    if scope is None or ((draft.stopped or draft.run.stops) and draft.is_stopped(path)):
        return
    node = draft.plan.root.nodes.get(path) or draft.plan.node(path)
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
        return fail_block(draft, frame, error)
    value = opened(msgspec.Raw(text))
    if not _write(draft, frame, path, post, value, gathered.errors):
        return None
    try:
        action = post.action(draft.seen_from(frame), value)
    except BROKEN as broke:
        return fail_block(draft, frame, broken(broke, path))
    for name in ("error", action, "default"):
        if name in post.routes:
            return take(draft, frame, path, name, post.routes[name])
    fail_block(draft, frame, error)
