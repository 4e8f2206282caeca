"""Positions in the journal of all runs, and what is read there.

The rows of all runs have one order, the order of their commits. A cursor is a place in that order, between two rows. Only the
store that made a cursor knows what is in it: other code compares cursors, prints one with `str` for a client, and gives the
text back to `Store.cursor`. The text is a number, or two with a dash between them: they count the work of all tenants, so
`views/all_events` seals them before a client gets them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, NamedTuple

import msgspec

from holdfast.store.records import ReadRow
from holdfast.values import RunId, RunNo

BEGINNING: Final = "0"  # the text of the cursor before the first row, in every store


class Cursor(msgspec.Struct, frozen=True, order=True):
    """A place in the journal of all runs. Cursors of one store are ordered; those of two stores have nothing in common."""

    @abstractmethod
    def __str__(self) -> str: ...


class Committed(NamedTuple):
    """A journal row, with the run that it belongs to. No other row is between `before` and `cursor`."""

    before: Cursor
    cursor: Cursor
    no: RunNo
    run_id: RunId
    workflow: str
    version: str
    seq: int
    epoch: int
    at: int
    kind: str
    body: str

    @property
    def row(self) -> ReadRow:
        return self[6:]


class Stretch(NamedTuple):
    """The rows of a tenant in a part of the journal that ends at `upto`. If it has no end yet, `upto` is where it begins."""

    rows: list[Committed]
    upto: Cursor
