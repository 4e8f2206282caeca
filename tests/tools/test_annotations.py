"""What a tool says about its effects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_a_decorated_function_keeps_its_type(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(
        "from holdfast import tool\n\n"
        "@tool\ndef a(x: int) -> str:\n    return str(x)\n\n"
        "@tool(destructive=True)\nasync def b(x: int, *, y: str = '') -> bytes:\n    return b''\n\n"
        "reveal_type(a)\nreveal_type(b)\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--follow-imports=silent",
        str(file),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False).stdout
    assert 'Revealed type is "def (x: int) -> str"' in shown.replace("builtins.", "")
    assert "def (x: int, *, y: str =) -> " in shown.replace("builtins.", "")
