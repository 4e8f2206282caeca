"""Entering a node: rendering its inputs, and the decisions that start it.

Knows the kinds of nodes. Does not know what follows a node (engine/scopes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.decisions import ArmTimer, OpenScope, ReserveKey, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.ends import BROKEN, broken, enter_joint, fail_step
from holdfast.engine.events import Outcome
from holdfast.engine.scopes import end_block, give, leave, timer_is_over
from holdfast.engine.state import Scope, guard_key
from holdfast.engine.waits import enter_approval, enter_condition, enter_signal
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.expr import read_whole, truthy
from holdfast.plan.graph import (
    END,
    KEEP_NAMED,
    KEEP_NOTHING,
    Approval,
    Around,
    Call,
    Choice,
    Condition,
    FanOut,
    Nested,
    Node,
    Signal,
    Timer,
    Value,
)
from holdfast.values import NULL, Error, Millis, split, written

# smaller inputs are not counted: no run has enough open steps for them to matter
LARGE_BYTES: Final = 32 * 1024


def enter(draft: Draft, frame: str, name: str) -> None:
    """Enter a node of the block in `frame`, or end the block if there is none."""
    if (draft.stopped or draft.run.stops) and draft.is_stopped(frame):
        return
    if name == END:
        return end_block(draft, frame)
    block, path = (draft.plan.block(frame), f"{frame}.{name}") if frame else (draft.plan.root, name)
    node = block.nodes.get(name)
    if node is None:
        if (joint := block.joints.get(name)) is not None:
            return enter_joint(draft, frame, joint)
        node = block.node(name)
    try:
        if (taken := draft.taken or draft.run.taken) and (outcome := taken.get(path)) is not None:
            return _take_over(draft, path, node, outcome)
        if node.around is not None and _is_skipped(draft, frame, path, node, node.around):
            return None
        if type(node) is not Call:
            return ENTER[type(node)](draft, frame, path, node)
        text = node.inputs(draft.seen_from(frame) if frame or len(draft.frames) > 1 else draft)
    except BROKEN as error:
        return fail_step(draft, path, broken(error, path))
    if len(text) > LARGE_BYTES and _at_work_bytes(draft) + len(text) > limits.now.at_work_bytes_max:
        return fail_step(draft, path, _too_much_at_work(path))
    draft.value_bytes += len(text)
    if node.key is not None:
        return _ask_for_key(draft, path, node, msgspec.Raw(text))
    draft.decisions.append(StartAttempt(path, 1, msgspec.Raw(text), node.keep))


def _is_skipped(draft: Draft, frame: str, path: str, node: Node, around: Around) -> bool:
    """Skip a node whose condition is false: its output is null, and the node after it follows."""
    if around.when is not None and not truthy(around.when(draft.seen_from(frame))):
        _skip(draft, frame, path, node)
        return True
    if around.guard is not None and around.guard.final is not None:
        draft.set_guard(path, "body")  # from here on, its final steps must run
    return False


def _skip(draft: Draft, frame: str, path: str, node: Node) -> None:
    draft.complete(path, NULL, node.keep, skipped=True)
    draft.go(frame, node.routes.ok if node.around is None else node.around.after)


def _at_work_bytes(draft: Draft) -> int:
    return draft.value_bytes + sum(len(step.inputs) for step in draft.run.steps.values())


def _too_much_at_work(path: str) -> Error:
    message = f"the inputs of the run's open steps exceed {limits.size(limits.now.at_work_bytes_max)} ({limits.met('at_work_bytes_max')}); lower `concurrency`"
    return Error("state_too_large", message, path)


def _take_over(draft: Draft, path: str, node: Node, outcome: Outcome) -> None:
    """End a step as it ended in the run that is being rerun. A choice leads to the same node as before."""
    if outcome.skipped:
        _skip(draft, split(path)[0], path, node)
    elif outcome.error is not None:
        fail_step(draft, path, outcome.error)
    elif isinstance(node, Nested) and outcome.to is not None:
        _enter_nested(draft, split(path)[0], path, node, outcome)
    elif outcome.to is not None:
        _open_choice(draft, path, outcome.output, outcome.to)
    else:
        draft.complete(path, outcome.output, node.keep)
        leave(draft, path, node, outcome.output)


def _ask_for_key(draft: Draft, path: str, node: Call, inputs: msgspec.Raw) -> None:
    assert node.key is not None
    try:
        text = node.key.text(draft)
    except BROKEN as error:
        return fail_step(draft, path, broken(error, path))
    most = limits.now.idempotency_key_chars_max
    if not 0 < len(text) <= most:
        which = limits.met("idempotency_key_chars_max")
        message = (
            f"the idempotency key of {path} must have 1 to {most:,} characters ({which}), not {len(text):,}"
        )
        return fail_step(draft, path, Error("template", message, path))
    draft.decisions.append(ReserveKey(path, text, node.key.is_global, inputs, node.keep))


def _enter_timer(draft: Draft, frame: str, path: str, node: Timer) -> None:
    due = node.due(draft.seen_from(frame), draft.at)
    if due > draft.at:
        draft.decisions.append(ArmTimer(path, "delay", due))
    else:
        timer_is_over(draft, path)


def _enter_value(draft: Draft, frame: str, path: str, node: Value) -> None:
    give(draft, path, node, node.value(draft.seen_from(frame)))


def _enter_choice(draft: Draft, frame: str, path: str, node: Choice) -> None:
    condition = node.condition(draft.seen_from(frame))
    label, first = node.entries[truthy(condition)]
    text = written(node.show(condition, label))
    if first == END or len(text) > composed.LIMIT:
        return give(draft, path, node, text)
    value = msgspec.Raw(text)
    _open_choice(draft, path, value, first)


def _open_choice(draft: Draft, path: str, value: msgspec.Raw, first: str) -> None:
    draft.decisions.append(OpenScope(path, 1, NULL, value, KEEP_NOTHING))
    draft.value_bytes += len(memoryview(value))
    draft.note_scope(path, Scope(1, value=value))
    draft.go(path, first)


def _enter_fan_out(draft: Draft, frame: str, path: str, node: FanOut) -> None:
    count, items = len(node.blocks), b"null"
    if node.items is not None:
        count, items = node.items(draft.seen_from(frame))
    gathers = node.gather is not None
    keep = KEEP_NAMED if gathers else node.keep if node.count is None else KEEP_NOTHING
    opened = OpenScope(path, count, msgspec.Raw(items), NULL, keep, is_gathered=gathers)
    draft.decisions.append(opened)
    draft.value_bytes += len(items)
    draft.note_scope(path, Scope(count, items=opened.items, keep=keep, is_gathered=gathers))
    draft.work.append(("fill", path, ""))


def _enter_nested(draft: Draft, frame: str, path: str, node: Nested, at: Outcome | None = None) -> None:
    """Open a nested plan. Its input is one value, and expressions inside see nothing else. A rerun may start a graph `at` a
    node, with the shared state of that moment."""
    items = node.inputs(draft.seen_from(frame))
    try:
        if node.fill is not None:
            items = written(node.fill(read_whole(items)))
    except ValueError as error:
        return fail_step(draft, path, Error("inputs", f"workflow {node.workflow}: {error}", path))
    if len(items) > composed.LIMIT:  # including defaults
        return fail_step(draft, path, broken(TooLarge(), path))
    opened = OpenScope(path, 1, msgspec.Raw(items), NULL, node.keep, is_nested=True)
    draft.decisions.append(opened)
    draft.value_bytes += len(items)
    draft.note_scope(path, Scope(1, items=opened.items, keep=node.keep, is_nested=True))
    if node.block.guard is not None and node.block.guard.final is not None:
        draft.set_guard(guard_key(path, ""), "body")
    if node.timeout_ms is not None:
        draft.decisions.append(ArmTimer(path, "deadline", Millis(draft.at + node.timeout_ms)))
    if at is None or at.to is None:
        return draft.go(path, node.block.first)
    for name, value in msgspec.json.decode(at.output, type=dict[str, msgspec.Raw]).items():
        draft.set_var(path, name, bytes(value))
    draft.begin_at(path, at.to)


ENTER: Final[dict[type, Callable[[Draft, str, str, Any], None]]] = {
    Timer: _enter_timer,
    Value: _enter_value,
    Condition: enter_condition,
    Signal: enter_signal,
    Approval: enter_approval,
    Choice: _enter_choice,
    FanOut: _enter_fan_out,
    Nested: _enter_nested,
}
