"""Pages of node runs, with their values in full. Reading a run again reads only what is new."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from holdfast.engine.codec import blob_of
from holdfast.engine.state import Run
from holdfast.runtime.load import load_run_in_turns, whole
from holdfast.store.base import Store
from holdfast.store.records import ReadRow, RunRow
from holdfast.values import TERMINAL, RunNo
from holdfast.views.node_runs import NodeRun, NodeRuns

ROWS_AT_A_TIME: Final = 200
PAGES_CACHED_MAX: Final = 8
LARGE_BYTES_MAX: Final = 16 * 1024 * 1024  # large values that one response contains in full, together


class NodeRunPages:
    """Pages of node runs. A page that may still change is cached, and so is the start of the next page, so reading again reads only
    new rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[tuple[RunNo, int, int], NodeRuns] = OrderedDict()

    async def page(self, row: RunRow, *, after: int, limit: int) -> tuple[list[NodeRun], int | None]:
        """Return the node runs behind number `after`, and the number behind which the next page starts.

        Attempts that were given back are left out, so a page may be short. It is empty only if no page follows, because some
        clients stop at an empty page.
        """
        page, further = await self._read(row, after, limit)
        while not page.found and further is not None:
            page, further = await self._read(row, further.after, limit)
        return await self._shown(row.no, page), None if further is None else further.after

    async def _read(self, row: RunRow, after: int, limit: int) -> tuple[NodeRuns, NodeRuns | None]:
        """Return a page and the next one. Other tasks run between two pieces of the journal."""
        key = (row.no, after, limit)
        page = self._known.get(key) or NodeRuns(row.id, after=after, limit=limit)
        self._remember(key, page)
        page.cut()  # one row may start more node runs than a page has
        run = None if row.status in TERMINAL else await _folded(self._store, row.no)
        while page.may_change(run) and (rows := await self._rows(row.no, page)):
            for each in rows:
                if each[0] > page.seq:  # otherwise another request has read the same page in the meantime
                    page.take(each)
            await asyncio.sleep(0)
        further = page.further
        if further is not None:
            self._remember((row.no, further.after, limit), further)
        return page, further

    async def _rows(self, no: RunNo, page: NodeRuns) -> list[ReadRow]:
        return await self._store.journal(no, page.seq, ROWS_AT_A_TIME)

    def _remember(self, key: tuple[RunNo, int, int], page: NodeRuns) -> None:
        self._known.setdefault(key, page)
        self._known.move_to_end(key)
        while len(self._known) > PAGES_CACHED_MAX:
            self._known.popitem(last=False)

    async def _shown(self, no: RunNo, page: NodeRuns) -> list[NodeRun]:
        """Return copies with their values in full; the cached ones keep changing."""
        shown, found = _Values(self._store, no), list[NodeRun]()
        for each in list(page.found.values()):
            given = await shown.text(each.exec_input_json)
            gave = await shown.text(each.exec_output_json)
            found.append(
                msgspec.structs.replace(
                    each, exec_input_json=given, exec_output_json=gave, prep_json=_prepared(given)
                )
            )
            if len(found) % ROWS_AT_A_TIME == 0:
                await asyncio.sleep(0)
        return found


async def _folded(store: Store, no: RunNo) -> Run | None:
    stored = await store.load(no)
    return None if stored is None else await load_run_in_turns(store, stored)


class _Values:
    """Loads values in full, up to a total size."""

    def __init__(self, store: Store, no: RunNo) -> None:
        self._store, self._no, self._left = store, no, LARGE_BYTES_MAX

    async def text(self, value: str | None) -> str | None:
        if value is None or blob_of(raw := msgspec.Raw(value.encode())) is None or self._left <= 0:
            return value
        full = bytes(await whole(self._store, self._no, raw)).decode()
        self._left -= len(full)
        return full


class _Given(msgspec.Struct):
    input: msgspec.Raw


def _prepared(given: str | None) -> str | None:
    """Return the part of a node's input that came from shared state."""
    if given is None:
        return None
    try:
        return bytes(msgspec.json.decode(given, type=_Given).input).decode()
    except msgspec.ValidationError:
        return given
