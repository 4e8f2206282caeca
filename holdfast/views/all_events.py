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
import re
from bisect import bisect_right, insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import NotFound
from holdfast.runtime.plans import Plans
from holdfast.signing import hidden_number, shown_number
from holdfast.store.base import Store
from holdfast.store.feed import BEGINNING, Committed, Cursor
from holdfast.values import DEFAULT_TENANT, TERMINAL, RunId, RunNo, is_text
from holdfast.views.events import Events, Feed, RunEvent, Tail
from holdfast.views.outputs import JOURNAL_PAGE
from holdfast.views.positions import Position, numbered, position_of
from holdfast.views.seen import Sees

PAGE_ROWS: Final = 50  # other tasks run between two pages, some milliseconds later
PAGES_BYTES_MAX: Final = 16 * 1024 * 1024
PAGE_BYTES: Final = 200  # the overhead of a page besides its events
PROJECTED_STEPS_MAX: Final = 100_000  # steps cached in projections, for all runs together

log = logging.getLogger("holdfast")

_PLAIN: Final = re.compile(r"[0-9]+(?:-[0-9]+)?")
_JOINT: Final = "~"  # between the sealed numbers of a cursor

_encode = msgspec.json.Encoder().encode


class EncodedEvent(NamedTuple):
    """One encoded event. `position` is where a reader continues after it, and `id` what a client is given for it; messages of tools
    have neither."""

    position: Position[Any] | None
    data: bytes
    workflow: str = ""
    statuses: tuple[str, ...] = ()  # what a filter by status finds it by
    kind: str = ""
    id: str = ""


class Page:
    """The events after a cursor, as far as they have been read."""

    __slots__ = ("events", "lock", "rows_read", "size", "start", "upto")

    def __init__(self, start: Cursor) -> None:
        self.start = self.upto = start
        self.events: list[
            tuple[Committed, int, EncodedEvent]
        ] = []  # each with its row, and its number in the row
        self.rows_read = 0  # rows, of all tenants, as far as that is known
        self.size = PAGE_BYTES
        self.lock = asyncio.Lock()

    @property
    def is_full(self) -> bool:
        return self.rows_read >= PAGE_ROWS

    def has(self, after: Cursor) -> bool:
        """Return whether what follows a cursor belongs on this page."""
        return after < self.upto or after == self.upto and not self.is_full

    def after(self, position: Position[Cursor]) -> Iterator[EncodedEvent]:
        return (
            event for row, nth, event in self.events if not position.has_sent(row.before, row.cursor, nth)
        )


class History:
    def __init__(self, store: Store, feed: Feed, plans: Plans) -> None:
        self._store, self._feed, self._plans = store, feed, plans
        self._pages: OrderedDict[tuple[str, Cursor], Page] = OrderedDict()
        self._starts: defaultdict[str, list[Cursor]] = defaultdict(
            list
        )  # of the pages of a tenant, ascending
        self._pages_size = 0
        self._projections: OrderedDict[tuple[RunNo, int], Events] = OrderedDict()
        self._projections_size = 0
        self.readers: set[TailOfAll] = set()
        self.places: Counter[tuple[str, str]] = Counter()  # streams that are open, by tenant and key

    async def of_run(self, tenant: str, run_id: str, position: Position[int] | None) -> Tail | None:
        """Return the events of one run after a position, or from now on; None if the run has finished and has no more."""
        row = await self._store.run_by_id(tenant, RunId(run_id)) if is_text(run_id) else None
        if row is None:
            raise NotFound(f"no run {ascii(run_id)[1:-1]:.100} here")
        if position is None:
            position = Position(await self._store.last_seq(row.no))
        if row.status in TERMINAL and not await self._store.journal(row.no, position.after, 1):
            return None
        plan = await self._plans.of_version(tenant, row.version)
        return Tail(self._store, self._feed, row.no, Events(row.id, plan.steps_total), position)

    def position(self, tenant: str, text: str) -> Position[Cursor]:
        """Parse a position among the events of all runs. Raise ValueError if the text is not one of this tenant."""

        def after_of(sealed: str) -> Cursor:
            # Earlier releases gave plain cursors, which anyone can make; the default tenant may still use them.
            is_plain = sealed == BEGINNING or tenant == DEFAULT_TENANT and _PLAIN.fullmatch(sealed)
            return self._store.cursor(sealed if is_plain else self._opened(tenant, sealed))

        return position_of(text, after_of)

    def id_of(self, tenant: str, position: Position[Cursor]) -> str:
        """A position as a client gets it: its numbers count the work of all tenants, so they are sealed."""
        numbers = enumerate(str(position.after).split("-"))
        key = self._store.server_key
        sealed = _JOINT.join(hidden_number(key, f"events {nth} {tenant}", int(one)) for nth, one in numbers)
        return f"{sealed}.{position.sent}" if position.sent else sealed

    def _opened(self, tenant: str, sealed: str) -> str:
        key = self._store.server_key
        numbers = [
            shown_number(key, f"events {nth} {tenant}", one)
            for nth, one in enumerate(sealed.split(_JOINT, 2))
        ]
        if None in numbers:
            raise ValueError(f"{sealed[:50]!a} is not a position among the events of all runs")
        return "-".join(map(str, numbers))

    async def of_all(
        self, tenant: str, position: Position[Cursor] | None, sees: Sees | None = None
    ) -> TailOfAll:
        """Return the events of all runs of a tenant, or of the workflows that the reader sees, after a position, or from now on."""
        if position is None:
            position = Position(await self._store.feed_end())
        return TailOfAll(self, self._feed, tenant, position, sees)

    async def lag(self) -> int:
        """Return how many rows the slowest reader of all runs has not read yet."""
        positions = [reader.position.after for reader in self.readers]
        return await self._store.rows_after(min(positions)) if positions else 0

    # -------------------------------------------------------------------------------------------------- pages

    async def page(self, tenant: str, after: Cursor) -> Page:
        """Return the page with what follows a cursor, as far as it is committed."""
        page = self._known(tenant, after) or self._new_page(tenant, after)
        self._pages.move_to_end((tenant, page.start))
        if not page.is_full:
            async with page.lock:
                await self._extend(tenant, page)
        while self._pages_size > PAGES_BYTES_MAX and len(self._pages) > 1:
            (of, start), dropped = self._pages.popitem(last=False)
            self._pages_size -= dropped.size
            self._starts[of].remove(start)
        return page

    def _known(self, tenant: str, after: Cursor) -> Page | None:
        starts = self._starts[tenant]
        at = bisect_right(starts, after)
        page = self._pages[tenant, starts[at - 1]] if at else None
        return page if page is not None and page.has(after) else None

    def _new_page(self, tenant: str, start: Cursor) -> Page:
        page = self._pages[tenant, start] = Page(start)
        insort(self._starts[tenant], start)
        self._pages_size += page.size
        return page

    async def _extend(self, tenant: str, page: Page) -> None:
        limit = PAGE_ROWS - page.rows_read
        if limit <= 0:  # another reader extended it meanwhile
            return
        rows, upto = await self._store.feed(tenant, page.upto, limit)
        if upto == page.upto:
            return
        for row in rows:
            try:
                found = await self._events_of(tenant, row)
            except Exception:  # a bug that concerns one run must not end the stream of all runs
                log.exception("the events of row %d of run %s cannot be shown", row.seq, row.run_id)
                found = []
            page.events += [(row, nth, one) for nth, one in enumerate(found, 1)]
            page.rows_read += 1
            page.upto = row.cursor
            grown = sum(len(one.data) + PAGE_BYTES for one in found)
            page.size += grown
            if self._pages.get((tenant, page.start)) is page:  # otherwise it was dropped during the read
                self._pages_size += grown
        if page.upto < upto:  # the last of them are rows of other tenants
            page.rows_read += 1
            page.upto = upto

    async def _events_of(self, tenant: str, row: Committed) -> list[EncodedEvent]:
        events = await self._before(tenant, row)
        found = events.take(row.row)
        if not any(event["detail"]["kind"] == "workflow_terminal" for event in found):
            self._remember((row.no, row.seq), events)
        numbers = numbered(row.before, row.cursor, found)
        return [
            encoded(position, event, row.workflow, self.id_of(tenant, position))
            for position, event in numbers
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

    def __init__(
        self,
        history: History,
        feed: Feed,
        tenant: str,
        position: Position[Cursor],
        sees: Sees | None = None,
    ) -> None:
        self._history, self._feed, self._tenant, self._sees = history, feed, tenant, sees
        self.position = position
        self._reader = feed.follow_all()
        history.readers.add(self)

    def close(self) -> None:
        self._feed.leave_all(self._reader)
        self._history.readers.discard(self)

    async def read(self) -> list[EncodedEvent]:
        """Return the next events; none only if there are no more for now."""
        self._reader.more.clear()  # before reading: later commits set it again
        if self._reader.error is not None:
            raise self._reader.error
        while True:
            page = await self._history.page(self._tenant, self.position.after)
            if page.upto <= self.position.after:
                return []
            found = [
                event
                for event in page.after(self.position)
                if self._sees is None or self._sees(event.workflow)
            ]
            self.position = Position(page.upto)
            if found:
                return found
            await asyncio.sleep(0)

    async def more(self) -> None:
        await self._reader.more.wait()

    @property
    def id(self) -> str:
        return self._history.id_of(self._tenant, self.position)


def encoded(
    position: Position[Any] | None, event: RunEvent, workflow: str = "", sealed: str = ""
) -> EncodedEvent:
    """Encode an event as JSON, without its `id`, which is the reader's position."""
    data: dict[str, Any] = {name: value for name, value in event.items() if name != "id"}
    if workflow:
        data["workflow"] = workflow
    # A step that ends in the last row of a run is not an event of a finished run.
    statuses = (event["status"],) if event["state"] in TERMINAL else (event["status"], event["state"])
    shown = sealed or ("" if position is None else str(position))
    return EncodedEvent(position, _encode(data), workflow, statuses, event["detail"]["kind"], shown)
