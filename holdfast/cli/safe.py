"""Text on a terminal: text from users, tools and callers is shown and never interpreted.

Every plain text that a command writes passes through `shown`, so a character that moves the cursor, starts another line,
changes the text direction or is invisible is written as an escape (`\\u001b`, `\\u202e`). Our own colours
carry a mark that is random in each process, so foreign text cannot contain it.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

_INVISIBLE: Final = (
    *range(0x7F, 0xA0),  # DEL and the C1 controls: U+009B alone begins an escape sequence
    0xAD,  # soft hyphen
    0x061C,  # Arabic letter mark
    0x180E,
    *range(0x200B, 0x2010),  # zero width, and marks of direction
    *range(0x2028, 0x202F),  # line and paragraph separator, embeddings and overrides of direction
    *range(0x2060, 0x2070),  # word joiner, isolates of direction
    *range(0xD800, 0xE000),  # bytes of a file name that are not UTF-8
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),  # tags
)


def _escape(code: int) -> str:
    """The JSON escape of a character; beyond the basic plane a surrogate pair."""
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


BEYOND_JSON: Final = {code: _escape(code) for code in _INVISIBLE}  # JSON itself escapes the first 32
CONTROLS: Final = {code: _escape(code) for code in range(32) if chr(code) != "\t"} | BEYOND_JSON
_BUT_LINES: Final = {code: text for code, text in CONTROLS.items() if chr(code) != "\n"}

_MARK: Final = os.urandom(8).hex()
_OURS: Final = re.compile(rf"\\u001b{_MARK}\[([0-9]+)m")
_OURS_UNSHOWN: Final = re.compile(rf"\x1b{_MARK}\[[0-9]+m")


def harmless(text: str) -> str:
    """Foreign text made safe for a terminal: it can neither move the cursor nor hide text."""
    return text.translate(_BUT_LINES)


def one_line(text: str) -> str:
    """A text that cannot start another line."""
    return text.replace("\n", CONTROLS[10])


def in_unicode(value: Any) -> Any:
    """Data that can be encoded as JSON: bytes of a file name that are not UTF-8 become escapes."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {in_unicode(key): in_unicode(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [in_unicode(member) for member in value]
    return in_unicode(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else value


def coloured(text: str, colour: str) -> str:
    """A text that `shown` colours."""
    return f"\x1b{_MARK}[{colour}m{text}\x1b{_MARK}[0m"


def shown(text: str) -> str:
    """A text as it is written: escaped, with our own colours."""
    return _OURS.sub("\x1b[\\1m", harmless(text))


def width_of(cell: str) -> int:
    """The number of visible characters."""
    return len(harmless(_OURS_UNSHOWN.sub("", cell)))
