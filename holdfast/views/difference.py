"""The difference between two definitions, as text and as pointers. Both are bounded, whatever the definitions are."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from holdfast import limits
from holdfast.errors import LimitExceeded
from holdfast.spec.notation import Definition

POINTERS_MAX: Final = 2_000
POINTER_CHARS_MAX: Final = 500
DEPTHS: Final = (100, 8, 4, 2, 1)  # tried until there are few enough pointers
PAIRS_MAX: Final = 100_000  # pairs of equal lines in both texts; matching more takes too long
POPULAR_LINES: Final = 200  # in a longer text, difflib passes over lines that are more than a hundredth of it


def text_between(before: Definition, after: Definition, names: tuple[str, str]) -> str:
    """Return a unified diff. Texts with too many equal lines are shown as replaced where they differ."""
    old, new = (spec.to_yaml().splitlines(keepends=True) for spec in (before, after))
    if len(old) + len(new) > limits.now.diff_lines_max:
        raise LimitExceeded(
            "diff_lines_max",
            f"the two definitions together have more than {limits.now.diff_lines_max:,} lines",
        )
    if _pairs(old, new) <= PAIRS_MAX:
        return "".join(difflib.unified_diff(old, new, *names))
    return "".join(_replaced(old, new, names))


def _pairs(old: list[str], new: list[str]) -> int:
    mine, theirs = Counter(old), Counter(new)
    most = len(new) // 100 + 1 if len(new) >= POPULAR_LINES else len(new)
    return sum(count * theirs[line] for line, count in mine.items() if theirs[line] <= most)


def _replaced(old: list[str], new: list[str], names: tuple[str, str]) -> Iterator[str]:
    """Yield what is between the equal lines at the beginning and the equal lines at the end, removed and added."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter - head) if old[-1 - at] != new[-1 - at]), shorter - head)
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    yield f"--- {names[0]}\n"
    yield f"+++ {names[1]}\n"
    yield f"@@ -{head + 1},{len(removed)} +{head + 1},{len(added)} @@\n"
    yield from (f"-{line}" for line in removed)
    yield from (f"+{line}" for line in added)


def pointers_between(before: Definition, after: Definition) -> list[str]:
    """Return where two definitions differ, as JSON pointers: to the innermost places, or to the values around them if there are too
    many places or their pointers are too long."""
    old, new = before.to_data(), after.to_data()
    found: list[str] = []
    for depth in DEPTHS:
        found = []
        for pointer in _pointers(old, new, "", depth):
            found.append(pointer)
            if len(found) > POINTERS_MAX:
                break
        else:
            return found
    return found[:POINTERS_MAX]


def _pointers(a: Any, b: Any, at: str, depth: int) -> Iterator[str]:
    if a == b:
        return
    inner = _members(a, b) if depth else None
    if inner is None:
        yield at
        return
    differing = [(f"{at}/{_escaped(key)}", one, other) for key, one, other in inner if one != other]
    if any(len(pointer) > POINTER_CHARS_MAX for pointer, _, _ in differing):
        yield at
        return
    for pointer, one, other in differing:
        yield from _pointers(one, other, pointer, depth - 1)


def _members(a: Any, b: Any) -> list[tuple[str, Any, Any]] | None:
    if isinstance(a, dict) and isinstance(b, dict):
        return [(key, a.get(key, _GONE), b.get(key, _GONE)) for key in dict.fromkeys([*a, *b])]
    if isinstance(a, list) and isinstance(b, list):
        return [(str(i), _at(a, i), _at(b, i)) for i in range(max(len(a), len(b)))]
    return None


def _escaped(key: str) -> str:
    return key[: POINTER_CHARS_MAX + 1].replace("~", "~0").replace("/", "~1")


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _GONE


_GONE: Final = object()
