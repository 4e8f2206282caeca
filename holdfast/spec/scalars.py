"""The values of plain YAML scalars, by the core schema of YAML 1.2."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    pass


# Python itself refuses to read integers of more than 4,300 digits; nothing that is counted needs a tenth of
# that.
NUMBER_CHARS_MAX: Final = 300
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUES: Final = frozenset({"true", "True", "TRUE"})
_FALSES: Final = frozenset({"false", "False", "FALSE"})
WORDS: Final = _NULLS | _TRUES | _FALSES
NUMBER = re.compile(
    r"(?P<int>[-+]?[0-9]+)\Z|0o(?P<oct>[0-7]+)\Z|0x(?P<hex>[0-9a-fA-F]+)\Z"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)\Z"
    r"|(?P<endless>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_BASES: Final = {"int": 10, "oct": 8, "hex": 16}


def core_value(text: str) -> Any:
    """The value of a plain scalar. Unlike YAML 1.1, `no`, `12:30` and `2026-01-01` are texts."""
    if text in _NULLS:
        return None
    if text in _TRUES:
        return True
    if text in _FALSES:
        return False
    found = NUMBER.match(text)
    if not found:
        return text
    return _number(text, found)


def _number(text: str, found: re.Match[str]) -> int | float:
    kind = found.lastgroup or ""
    if len(text) > NUMBER_CHARS_MAX:
        raise ValueError(f"has more than {NUMBER_CHARS_MAX} digits")
    if kind in _BASES:
        return int(found[kind], _BASES[kind])
    number = math.inf if kind == "endless" else float(text)
    if not math.isfinite(number):
        raise ValueError("has no JSON form")
    return number
