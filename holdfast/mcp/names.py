"""The MCP tool name of a workflow. Pure: knows names, not what they refer to.

A tool name has 1 to 64 of the characters A-Z a-z 0-9 _ . and -. A workflow whose name fits keeps it. In any other name,
characters that do not fit become `_`, and six digits of the hash of the whole name keep two such names apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from holdfast.values import sha256

CHARS_MAX: Final = 64
DIGITS: Final = 6

_PLAIN = re.compile(rf"[A-Za-z0-9_.-]{{1,{CHARS_MAX}}}\Z")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")


def tool_name(workflow: str, taken: Collection[str] = ()) -> str:
    """The tool name of a workflow; `taken` are the names of other tools."""
    if _PLAIN.match(workflow) and workflow not in taken:
        return workflow
    digits = sha256(workflow.encode())[:DIGITS]
    return f"{_OTHER.sub('_', workflow)[: CHARS_MAX - DIGITS - 1]}_{digits}"


def is_spelled(tool: str) -> bool:
    """Whether a tool name may be one that `tool_name` has spelled."""
    return tool[-DIGITS - 1 : -DIGITS] == "_" and all(one in "0123456789abcdef" for one in tool[-DIGITS:])
