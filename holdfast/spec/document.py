"""Data with the position of each value in its text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.errors import Problem

if TYPE_CHECKING:
    pass


Mark = tuple[int, int]
Key = str | int


class Place:
    """The position of a value and of its members. A tree, because pointers as texts would repeat every long key."""

    __slots__ = ("keys", "mark", "members")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.members: dict[Key, Place] = {}
        self.keys: dict[Key, Mark] = {}


class Document:
    """Plain data, and the line and column (both from 1) of every value and key in it."""

    __slots__ = ("_root", "data", "problems", "source", "text")

    def __init__(
        self,
        data: Any,
        root: Place,
        source: str = "",
        problems: tuple[Problem, ...] = (),
        text: str | bytes = "",
    ) -> None:
        self.data = data
        self.text = text  # as it was written, with its comments
        self.source = source
        self.problems = problems  # problems that did not prevent reading it
        self._root = root

    def mark(self, pointer: str) -> Mark:
        """Where the value at a JSON pointer stood, or its nearest ancestor if there is none."""
        return self._nearest(pointer)[0].mark

    def key_mark(self, pointer: str) -> Mark:
        """Where the key of the value at a JSON pointer stood; of an element, where the element did."""
        parent, _, last = pointer.rpartition("/")
        place, found = self._nearest(parent)
        if not found or not pointer:
            return place.mark
        key = _key_in(place, unescaped(last))
        if key is None:
            return place.mark
        return place.keys.get(key, place.members[key].mark)

    def _nearest(self, pointer: str) -> tuple[Place, bool]:
        place = self._root
        for part in pointer.split("/")[1:]:
            key = _key_in(place, unescaped(part))
            if key is None:
                return place, False
            place = place.members[key]
        return place, True


def pointer_to(keys: Iterable[Key]) -> str:
    """The JSON pointer of a way through the data: `("steps", 0, "a/b")` → `/steps/0/a~1b`."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _key_in(place: Place, part: str) -> Key | None:
    if part in place.members:
        return part
    if part.isascii() and part.isdigit() and len(part) < 10 and int(part) in place.members:
        return int(part)
    return None
