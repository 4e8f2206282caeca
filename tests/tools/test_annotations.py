"""What a tool says about its effects."""

from __future__ import annotations

import pytest

from holdfast import tool
from holdfast.tools.annotations import Annotations
from holdfast.tools.registry import Registry


@tool(destructive=True, idempotent=False)
def wipe(path: str) -> None: ...


@tool(read_only=True)
async def look(path: str, depth: int = 1) -> list[str]:
    return [path] * depth


@tool
def plain(a: int) -> int:
    return a


def test_annotations_are_kept_with_the_tool() -> None:
    registry = Registry([wipe, look, plain])
    assert registry.annotations_of("wipe") == Annotations(destructive=True, idempotent=False)
    assert registry.annotations_of("look") == Annotations(read_only=True)
    assert registry.annotations_of("plain") == Annotations()
    assert registry.annotations_of("none") is None


def test_a_tool_cannot_be_both_destructive_and_read_only() -> None:
    with pytest.raises(ValueError, match="leave one of"):
        tool(destructive=True, read_only=True)
