"""Assemble the output of a scope or run from the texts of its leaves, without decoding them.

The size is counted while the value is assembled, so that many small outputs cannot add up to a value without limit. Knows the
shapes of scope outputs. Does not know why an output is needed, or what happens if it is too large.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from holdfast.engine.state import Frame, Run, Scope
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Choice, FanOut, Nested, Plan
from holdfast.values import Error, split, written

NO_FRAME: Final = Frame()


class Leaves(Protocol):
    """What gathering needs from a run and the decision in progress (engine/draft)."""

    plan: Plan
    run: Run
    outputs: dict[str, msgspec.Raw]
    joined: dict[str, Scope]

    def joined_at(self, path: str) -> Scope | None: ...


class Gather:
    """Assembles one value. Raises TooLarge when its parts together exceed `bytes_max`."""

    def __init__(self, leaves: Leaves, bytes_max: int | None = None) -> None:
        self._leaves = leaves
        self._left = composed.LIMIT if bytes_max is None else bytes_max

    def scope(self, path: str, scope: Scope) -> Any:
        """Return the output of a joined scope: data that contains encoded texts."""
        node = self._leaves.plan.node(path)
        if isinstance(node, Choice):
            self._spend(len(scope.value))
            return scope.value
        if isinstance(node, Nested):
            return self.steps(path)
        assert isinstance(node, FanOut)
        return node.show(self.children(path, scope, scope.count))

    def children(self, path: str, scope: Scope, count: int) -> list[dict[str, Any]]:
        """Return the output of each child of a fan-out, in order."""
        return [self._child(f"{path}[{index}]", scope.errors.get(index)) for index in range(count)]

    def _child(self, frame: str, error: Error | None) -> dict[str, Any]:
        if error is None:
            return {"status": "completed", "error": None, "steps": self.steps(frame)}
        self._spend(len(written(error)))
        return {"status": "failed", "error": msgspec.to_builtins(error), "steps": self.steps(frame)}

    def steps(self, frame: str) -> dict[str, Any]:
        """Return step id → output for the kept steps of one frame."""
        leaves = self._leaves
        found = leaves.run.frames.get(frame) or NO_FRAME
        prefix, kept, size = f"{frame}." if frame else "", found.outputs, 0
        outputs: dict[str, Any] = {}
        block = leaves.plan.block(frame)
        parts = block.parts
        shown = (
            [(tail, node) for tail, node in block.nodes.items() if tail not in parts]
            if parts
            else block.nodes.items()
        )
        for tail, node in shown:
            raw = kept.get(tail)
            if raw is None:
                raw = leaves.outputs.get(prefix + tail)
            if raw is not None:
                size += len(raw) + len(tail) + ENTRY_BYTES
                outputs[node.name] = raw
            elif (scope := leaves.joined_at(prefix + tail)) is not None:
                self._spend(len(tail) + ENTRY_BYTES)
                outputs[node.name] = self.scope(prefix + tail, scope)
        self._spend(size)
        return outputs

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge


# ------------------------------------------------------------------------------------------------------- sizes
#
# The size of a gathered value is counted as its parts arrive, so that it can be refused before it is built. A name adds quotes,
# a colon and a comma; a child adds brackets and a comma.

ENTRY_BYTES: Final = 4
CHILD_BYTES: Final = 3
ERROR_BYTES: Final = 60


def child_bytes(steps: int, error: Error | None) -> int:
    """Return how many bytes a closed child adds to the output of its scope."""
    if error is None:
        return steps + CHILD_BYTES
    return steps + CHILD_BYTES + len(error.message) + len(error.path) + ERROR_BYTES


def frame_bytes(run: Run, frame: str) -> int:
    """Return the size of the outputs of a frame's steps so far, kept or not; for a fan-out, of its closed children."""
    found, sizes = run.frames.get(frame), run.__dict__.get("sizes")
    size = sizes.get(frame, 0) if sizes else 0
    return size if found is None else size + _bytes_of(found.outputs)


def _bytes_of(outputs: dict[str, msgspec.Raw]) -> int:
    """Return the size of the outputs of some steps, with their names."""
    return sum(map(len, outputs.values())) + sum(map(len, outputs)) + ENTRY_BYTES * len(outputs)


def added_bytes(leaves: Leaves, frame: str) -> int:
    """Return how many bytes a decision adds to the outputs of one frame, as fold will count them."""
    size = 0
    for path, output in leaves.outputs.items():
        where, tail = split(path)
        if where == frame and tail:  # an empty path means the inputs
            size += len(output) + len(tail) + ENTRY_BYTES
    for path, scope in leaves.joined.items():
        where, tail = split(path)
        if where == frame:
            size += frame_bytes(leaves.run, path) + scope.output_bytes + len(tail) + ENTRY_BYTES
    return size
