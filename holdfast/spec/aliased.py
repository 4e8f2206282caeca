"""An object with members that can be found by name but are not listed. Used by the code that builds documents and by
JSONPath."""

from __future__ import annotations

from typing import Any


class Aliased(dict[str, Any]):
    """An object in which some members are second names of values that stand elsewhere in the same document.

    A path finds such a member by its name. `*`, `..` and filters pass over it, so they find each value once.
    """

    __slots__ = ("aliases",)

    def __init__(self) -> None:
        super().__init__()
        self.aliases: set[str] = set()
