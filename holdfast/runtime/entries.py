"""What the door keeps of each row until its commit is done: the run, the event, its decisions, and the caller who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import Decision
from holdfast.engine.events import Event
from holdfast.runtime.large_arguments import Start
from holdfast.runtime.resident_run import ResidentRun
from holdfast.store.batch import Batch
from holdfast.store.records import JournalRow
from holdfast.values import RunNo

KINDS: Final[dict[type, str]] = {kind: kind.__struct_config__.tag for kind in Event.__args__}
NO_DECISIONS: Final[list[Decision]] = []  # of a plain row, which has them in its body

Reply = asyncio.Future[None]


# Stands for the event and the decision of a plain row, which `read_back` makes: a call succeeded after so many milliseconds, and the next
# one starts, or the run has ended (None).
PlainRow = tuple[int, Start | None]

# One for each row of a batch, in the same order.
Entry = tuple[ResidentRun, Event | PlainRow, list[Decision], Reply | None]

# a commit, the rows it made durable, and the seconds it took
Watcher = Callable[[Batch, list[Entry], float], None]


class Ahead(NamedTuple):
    """New runs that were decided before their time, and are in no commit yet."""

    batch: Batch
    entries: list[Entry]


def read_back(entry: Entry, row: JournalRow) -> tuple[Event, list[Decision]]:
    """Return the event and the decisions of an entry, from the entry or from its row."""
    _, event, decisions, _ = entry
    return decode_row(row[5]) if isinstance(event, tuple) else (event, decisions)


def run_no(entry: Entry) -> RunNo:
    return entry[0].run.no


def answer(reply: Reply | None, error: BaseException | None) -> None:
    """Answer the caller of an event, if there is one and it still waits."""
    if reply is None or reply.done():
        return
    if error is None:
        reply.set_result(None)
    else:
        reply.set_exception(error)
