"""What the compilers of the notations ask of each other: the compiled form of a definition that runs inside another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from holdfast.plan.graph import KEEP_NAMED, Block
from holdfast.plan.view import Render


class Inner(NamedTuple):
    """A compiled definition that runs inside another one."""

    name: str
    block: Block
    output: Render | None
    fill: Callable[[Any], dict[str, Any]] | None
    timeout_ms: int | None


class NestedOf(Protocol):
    """Compiles a definition, by name, to run in a frame of the given depth."""

    def __call__(self, name: str, depth: int, keep: int = KEEP_NAMED) -> Inner: ...
