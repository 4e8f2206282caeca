"""The events of all runs of a tenant, in the order of commits, for readers that start at any position.

    journal by position ──► Page (50 positions, encoded once) ──► every reader near it
                                │
                 the projection of each run before its row: cached, or rebuilt from its own journal

A reader has a position and no queue, so a slow reader blocks nothing and costs nothing. Pages start at fixed positions, so
readers of the same range share the bytes. Turning a row into events needs the projection of its run before that row; it is
cached by (run, row), so that readers at different positions never use each other's state. Does not know how an event is framed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import NotFound
from holdfast.runtime.plans import Plans
from holdfast.store.base import Store
from holdfast.store.records import Committed
from holdfast.values import TERMINAL, RunId, RunNo, is_text
from holdfast.views.events import Events, Feed, Position, RunEvent, Tail, numbered
from holdfast.views.outputs import JOURNAL_PAGE

PAGE_POSITIONS: Final = 50  # other tasks run between two pages, some milliseconds later
PAGES_BYTES_MAX: Final = 16 * 1024 * 1024
PAGE_BYTES: Final = 200  # the overhead of a page besides its events
PROJECTED_STEPS_MAX: Final = 100_000  # steps cached in projections, for all runs together

log = logging.getLogger("holdfast")

_encode = msgspec.json.Encoder().encode


class Told(NamedTuple):
    """One encoded event. `position` is where a reader continues after it; messages of tools have none."""

    position: Position | None
    data: bytes
    row: int = 0
    nth: int = 0
    workflow: str = ""
    status: str = ""
    kind: str = ""


class Page:
    """The events of a range of positions, as far as it has been read."""

    __slots__ = ("end", "lock", "size", "told", "upto")

    def __init__(self, start: int) -> None:
        self.upto, self.end = start, start + PAGE_POSITIONS
        self.told: list[Told] = []
        self.size = PAGE_BYTES
        self.lock = asyncio.Lock()

    def after(self, position: Position) -> Iterator[Told]:
        return (told for told in self.told if not position.has_told(told.row, told.nth))


class History:
    def __init__(self, store: Store, feed: Feed, plans: Plans) -> None:
        self._store, self._feed, self._plans = store, feed, plans
        self._pages: OrderedDict[tuple[str, int], Page] = OrderedDict()
        self._pages_size = 0
        self._projections: OrderedDict[tuple[RunNo, int], Events] = OrderedDict()
        self._projections_size = 0
        self.readers: set[TailOfAll] = set()
        self.places: Counter[tuple[str, str]] = Counter()  # streams that are open, by tenant and key

    async def of_run(self, tenant: str, run_id: str, position: Position) -> Tail | None:
        """Return the events of one run after a position; None if the run has finished and has no more."""
        row = await self._store.run_by_id(tenant, RunId(run_id)) if is_text(run_id) else None
        if row is None:
            raise NotFound(f"no run {ascii(run_id)[1:-1]:.100} here")
        if row.status in TERMINAL and not await self._store.journal(row.no, position.after, 1):
            return None
        plan = await self._plans.of_version(tenant, row.version)
        return Tail(self._store, self._feed, row.no, Events(row.id, plan.steps_total), position)

    async def of_all(self, tenant: str, position: Position | None) -> TailOfAll:
        """Return the events of all runs of a tenant after a position, or from now on."""
        if position is None:
            position = Position(await self._store.last_pos())
        return TailOfAll(self, self._feed, tenant, position)

    async def lag(self) -> int:
        """Return how many rows the slowest reader of all runs has not read yet."""
        slowest = min((reader.position.after for reader in self.readers), default=None)
        return 0 if slowest is None else max(0, await self._store.last_pos() - slowest)

    # -------------------------------------------------------------------------------------------------- pages

    async def page(self, tenant: str, after: int) -> Page:
        """Return the page that contains the next position, as far as it is committed."""
        at = (tenant, after // PAGE_POSITIONS)
        page = self._pages.get(at)
        if page is None:
            page = self._pages[at] = Page(at[1] * PAGE_POSITIONS)
            self._pages_size += page.size
        self._pages.move_to_end(at)
        if page.upto < page.end:
            async with page.lock:
                await self._extend(at, page)
        while self._pages_size > PAGES_BYTES_MAX and len(self._pages) > 1:
            self._pages_size -= self._pages.popitem(last=False)[1].size
        return page

    async def next_row(self, after: int) -> int | None:
        """Return the position of the next row: many rows may have been deleted."""
        return await self._store.next_pos(after)

    async def _extend(self, at: tuple[str, int], page: Page) -> None:
        # Before reading, so that rows committed during the read are read next time.
        newest = await self._store.last_pos()
        until = min(page.end, newest)
        if until <= page.upto:
            return
        for row in await self._store.committed(at[0], page.upto, until):
            try:
                told = await self._told_by(at[0], row)
            except Exception:  # a bug that concerns one run must not end the stream of all runs
                log.exception("the events of row %d of run %s cannot be shown", row.seq, row.run_id)
                told = []
            page.told += told
            page.upto = row.pos
            grown = sum(len(one.data) + PAGE_BYTES for one in told)
            page.size += grown
            if self._pages.get(at) is page:  # otherwise it was dropped from the cache during the read
                self._pages_size += grown
        page.upto = until

    async def _told_by(self, tenant: str, row: Committed) -> list[Told]:
        events = await self._before(tenant, row)
        found = events.take(row.row)
        if not any(event["detail"]["kind"] == "workflow_terminal" for event in found):
            self._remember((row.no, row.seq), events)
        return [
            encoded(position, event, row.pos, nth, row.workflow)
            for nth, (position, event) in enumerate(numbered(row.pos, found), 1)
        ]

    # -------------------------------------------------------------------------------------------- projections

    async def _before(self, tenant: str, row: Committed) -> Events:
        """Return the projection of a run before a row."""
        known = self._projections.pop((row.no, row.seq - 1), None)
        if known is not None:
            self._projections_size -= known.size
            return known
        plan = await self._plans.of_version(tenant, row.version)
        events, after = Events(row.run_id, plan.steps_total), 0
        while after < row.seq - 1:
            rows = await self._store.journal(row.no, after, min(JOURNAL_PAGE, row.seq - 1 - after))
            if not rows:
                break  # the run is being deleted: the rest of it is sent as far as possible
            for one in rows:
                events.take(one)
            after = rows[-1][0]
            await asyncio.sleep(0)
        return events

    def _remember(self, at: tuple[RunNo, int], events: Events) -> None:
        if (former := self._projections.pop(at, None)) is not None:
            self._projections_size -= former.size
        self._projections[at] = events
        self._projections_size += events.size
        while self._projections_size > PROJECTED_STEPS_MAX and len(self._projections) > 1:
            self._projections_size -= self._projections.popitem(last=False)[1].size


class TailOfAll:
    """The events of all runs of a tenant after a position. Close it after use."""

    is_over = False  # it never is

    def __init__(self, history: History, feed: Feed, tenant: str, position: Position) -> None:
        self._history, self._feed, self._tenant = history, feed, tenant
        self.position = position
        self._reader = feed.follow_all()
        history.readers.add(self)

    def close(self) -> None:
        self._feed.leave_all(self._reader)
        self._history.readers.discard(self)

    async def read(self) -> list[Told]:
        """Return the next events; none only if there are no more for now."""
        self._reader.more.clear()  # before reading: later commits set it again
        if self._reader.error is not None:
            raise self._reader.error
        while True:
            page = await self._history.page(self._tenant, self.position.after)
            found = list(page.after(self.position))
            if page.upto <= self.position.after:
                return []
            if page.upto == page.end and not page.told:
                following = await self._history.next_row(page.end)
                self.position = Position(page.end if following is None else following - 1)
            else:
                self.position = Position(page.upto)
            if found:
                return found
            await asyncio.sleep(0)

    async def more(self) -> None:
        await self._reader.more.wait()


def encoded(
    position: Position | None, event: RunEvent, row: int = 0, nth: int = 0, workflow: str = ""
) -> Told:
    """Encode an event as JSON, without its `id`, which is the reader's position."""
    data = _encode({name: value for name, value in event.items() if name != "id"})
    return Told(position, data, row, nth, workflow, event["status"], event["detail"]["kind"])
