"""Names that a caller may have meant."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.nearest import did_you_mean


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says which name was probably meant; empty if none is near."""
    near = did_you_mean(name, list(known))
    return f"; {near}" if near else ""
