"""Pages of lists: one shape for every query, and the limits of a page."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from holdfast import limits
from holdfast.errors import LimitExceeded

PAGE: Final = 100

NO_BOUND: Final = 2**62

Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """A page of a list. `cursor` selects the next page; None if there is none. A short page may not be the last."""

    items: list[Item]
    cursor: str | None


def page_size(limit: int, name: str = "page_max") -> int:
    """Return the size of a page. A server with a lower limit returns shorter pages, so that clients need not know it."""
    most: int = getattr(limits.DEFAULTS, name)
    if not 1 <= limit <= most:
        raise LimitExceeded(name, f"limit is a number from 1 to {most:,}, not {limit}")
    return min(limit, int(getattr(limits.now, name)))
