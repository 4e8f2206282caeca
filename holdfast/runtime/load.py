"""From stored rows to a run: the snapshot, then fold alone. Nothing is decided here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.engine.codec import (
    blob_of,
    decode_row,
    decode_state,
    has_blobs,
    put_outputs,
    references,
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

# Rows and decisions that are folded in one turn of the loop, and bytes of their text: some milliseconds.
TURN_WORK: Final = 1_000
TURN_BYTES: Final = 1024 * 1024

GiveWay = Callable[[], Awaitable[None]]


async def give_way() -> None:
    """Let other tasks have their turn."""
    await asyncio.sleep(0)


async def load_run(store: Store, stored: Stored, give_way: GiveWay | None = None) -> Run:
    """The run as of its last row, with every value that it needs at hand. `give_way` is awaited between two pieces of a long
    one; without it, the run is folded in one turn of the loop."""
    run = await _from_snapshot(store, stored, give_way) if stored.parts else new_run(stored.row)
    await replay(store, run, stored.rows, give_way)
    return run


async def load_run_in_turns(store: Store, stored: Stored) -> Run:
    """The same for a reader: other work gets its turn between two pieces.

    A run that has crashed processes is not folded for readers: folding may be what crashed them.
    """
    if (aside := await set_aside_of(store, stored.row.no)) is not None:
        raise RunSetAside(f"the run was set aside: {aside.reason}; {aside.retry}")
    return await load_run(store, stored, give_way)


async def _from_snapshot(store: Store, stored: Stored, give_way: GiveWay | None) -> Run:
    run = decode_state(stored.parts[0][1])
    for _, body in stored.parts[1:]:  # each is about as much as one turn may take
        if give_way is not None:
            await give_way()
        put_outputs(run, body)
    if any(has_blobs(body) for _, body in stored.parts):
        if give_way is not None:
            await give_way()
        await _fetch_blobs(store, run)
    return run


def new_run(row: RunRow) -> Run:
    return Run(row.no, row.id, row.version, row.tenant)


async def replay(
    store: Store,
    run: Run,
    rows: Iterable[ReadRow],
    give_way: GiveWay | None = None,
    *,
    keep_all: bool = False,
) -> None:
    """Fold rows. With `keep_all` nothing finished is forgotten: for looking at a run, not for going on with it."""
    work = size = 0
    for seq, epoch, at, _, body in rows:
        assert seq == run.seq + 1, f"the journal of run {run.id} has a gap before row {seq}"
        if give_way is not None and (work > TURN_WORK or size > TURN_BYTES):
            await give_way()
            work = size = 0
        event, decisions = decode_row(body)
        work += 1 + len(decisions)
        size += len(body)
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


async def _fetch_blobs(store: Store, run: Run) -> None:
    """Put large values in the place of the references that a snapshot holds."""
    found = list(references(run))
    values = {sha256: msgspec.Raw(await store.blob(run.no, sha256)) for sha256 in dict(found)}
    for sha256, put in found:
        put(values[sha256])


async def whole(store: Store, no: RunNo, value: msgspec.Raw) -> msgspec.Raw:
    """A value, read from where large ones lie if it is a reference to one."""
    sha256 = blob_of(value)
    return value if sha256 is None else msgspec.Raw(await store.blob(no, sha256))
