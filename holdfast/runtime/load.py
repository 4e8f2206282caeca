"""From stored rows to a run: the snapshot, then fold alone. Nothing is decided here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.engine.codec import (
    blob_of,
    decode_parts,
    decode_row,
    has_blobs,
    put_blobs,
    referenced_blobs,
    with_output,
)
from holdfast.engine.decisions import Decision
from holdfast.engine.events import Outcome
from holdfast.engine.replay import replay_row
from holdfast.engine.state import Run
from holdfast.errors import RunSetAside
from holdfast.plan.graph import KEEP_NAMED
from holdfast.runtime.fatal_runs import set_aside_of
from holdfast.store.base import Store
from holdfast.store.records import ReadRow, RunRow, Stored
from holdfast.values import Millis, RunNo

Part = TypeVar("Part", bound=msgspec.Struct)

ROWS_AT_A_TIME: Final = 200  # some milliseconds


async def load_run(store: Store, stored: Stored) -> Run:
    """The run as of its last row, with every value that it needs at hand."""
    run = await _from_snapshot(store, stored) if stored.parts else new_run(stored.row)
    await replay(store, run, stored.rows)
    return run


async def load_run_in_turns(store: Store, stored: Stored) -> Run:
    """The same for a look: other work gets its turn between two pieces of what came after the snapshot.

    A run that processes died of is not folded to be looked at: that may be what they died of.
    """
    if (aside := await set_aside_of(store, stored.row.no)) is not None:
        raise RunSetAside(f"the run was set aside: {aside.reason}; {aside.retry}")
    run = await _from_snapshot(store, stored) if stored.parts else new_run(stored.row)
    for start in range(0, len(stored.rows), ROWS_AT_A_TIME):
        await replay(store, run, stored.rows[start : start + ROWS_AT_A_TIME])
        await asyncio.sleep(0)
    return run


async def _from_snapshot(store: Store, stored: Stored) -> Run:
    run = decode_parts(stored.parts)
    await fetch_blobs(store, run)
    return run


def new_run(row: RunRow) -> Run:
    return Run(row.no, row.id, row.version, row.tenant)


async def replay(store: Store, run: Run, rows: Iterable[ReadRow], *, keep_all: bool = False) -> None:
    """Fold rows. With `keep_all` nothing finished is forgotten: for looking at a run, not for going on with it."""
    for seq, epoch, at, _, body in rows:
        assert seq == run.seq + 1, f"the journal of run {run.id} has a gap before row {seq}"
        event, decisions = decode_row(body)
        if has_blobs(body):  # fold counts bytes: it must see what was there when the row was written
            event = await _with_blobs(store, run.no, event)
            decisions = [await _with_blobs(store, run.no, decision) for decision in decisions]
        if keep_all:
            decisions = [_kept(decision) for decision in decisions]
        replay_row(run, event, decisions, Millis(at), epoch)


def _kept(decision: Decision) -> Decision:
    return msgspec.structs.replace(decision, keep=KEEP_NAMED) if hasattr(decision, "keep") else decision


async def _with_blobs(store: Store, no: RunNo, part: Part) -> Part:
    """An event or decision with the text of its large values in the place of references."""
    changed: dict[str, Any] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, msgspec.Raw) and blob_of(value) is not None:
            changed[name] = await whole(store, no, value)
        elif name in ("copied", "vars"):  # what another run gave
            changed[name] = {path: await whole(store, no, output) for path, output in value.items()}
        elif name == "taken":
            changed[name] = await _whole_outcomes(store, no, value)
    return msgspec.structs.replace(part, **changed) if changed else part


async def _whole_outcomes(store: Store, no: RunNo, taken: dict[str, Outcome]) -> dict[str, Outcome]:
    return {path: with_output(one, await whole(store, no, one.output)) for path, one in taken.items()}


async def fetch_blobs(store: Store, run: Run) -> None:
    """Put the text of large values in the place of the references that a snapshot holds."""
    put_blobs(run, {sha256: await store.blob(run.no, sha256) for sha256 in referenced_blobs(run)})


async def whole(store: Store, no: RunNo, value: msgspec.Raw) -> msgspec.Raw:
    """A value, read from where large ones lie if it is a reference to one."""
    sha256 = blob_of(value)
    return value if sha256 is None else msgspec.Raw(await store.blob(no, sha256))
