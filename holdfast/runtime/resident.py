"""Runs in memory: loading them from the store, and keeping the state of evicted ones at hand.

A run whose rows cannot be read or folded is set aside; a read that fails because the store is away is the caller's to repeat.
Does not decide who owns a run (ownership.py) or when one is evicted (door.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast.engine.state import Run
from holdfast.errors import Unavailable
from holdfast.runtime.door import Door
from holdfast.runtime.fatal_runs import LOADED, LOADING, FatalRuns
from holdfast.runtime.load import load_run
from holdfast.runtime.plans import Plans
from holdfast.runtime.remembered import Remembered
from holdfast.runtime.resident_run import ResidentRun, lacking
from holdfast.store.base import Store
from holdfast.store.ownership import Claim
from holdfast.store.records import Stored
from holdfast.values import RunNo

log = logging.getLogger("holdfast")

EVICTED_BYTES_MIN: Final = 4 * 1024  # smaller states are read from the store as quickly as they are kept
EVICTED_BYTES_MAX: Final = 32 * 1024 * 1024
EVICTED_MAX: Final = 1_000
READ_AT_ONCE: Final = 50  # runs, by the same queries


class _Reads:
    """Reads runs from the store: the first that is asked for in a turn of the loop at once, the others of that turn by the same queries,
    because many signals, answers and callbacks arrive together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: list[tuple[RunNo, asyncio.Future[Stored | None]]] = []
        self._reading: asyncio.Task[None] | None = None
        self._is_first = True

    def of(self, no: RunNo) -> Awaitable[Stored | None]:
        loop = asyncio.get_running_loop()
        if self._is_first:
            self._is_first = False
            loop.call_soon(self._begin_turn)
            return self._store.load(no)
        answer: asyncio.Future[Stored | None] = loop.create_future()
        self._asked.append((no, answer))
        if self._reading is None:
            self._reading = loop.create_task(self._read())
        return answer

    def _begin_turn(self) -> None:
        self._is_first = True

    async def _read(self) -> None:
        try:
            while self._asked:
                part = self._asked[:READ_AT_ONCE]
                del self._asked[:READ_AT_ONCE]
                await self._answer(part)
        finally:
            self._reading = None

    async def _answer(self, part: list[tuple[RunNo, asyncio.Future[Stored | None]]]) -> None:
        try:
            runs = list(dict.fromkeys(no for no, _ in part))
            found = {each.row.no: each for each in await self._store.load_many(runs)}
        except Exception as error:  # noqa: BLE001  # it is the outcome of these reads
            if len(part) > 1 and not isinstance(error, Unavailable):  # one of them cannot be read
                for one in part:
                    await self._answer([one])
                return
            for _, answer in part:
                if not answer.done():
                    answer.set_exception(error)
            return
        for no, answer in part:
            if not answer.done():  # else its caller has gone
                answer.set_result(found.get(no))


class Residents:
    def __init__(
        self,
        store: Store,
        door: Door,
        plans: Plans,
        fatal_runs: FatalRuns,
        *,
        on_loaded: Callable[[ResidentRun], None],
        on_freed: Callable[[], None],
    ) -> None:
        self._store, self._door, self._plans, self._fatal_runs = store, door, plans, fatal_runs
        self._reads = _Reads(store)
        self._on_loaded = on_loaded
        self._on_freed = on_freed  # a run that was read does not stay: it took the room of another meanwhile
        self.loading: dict[RunNo, asyncio.Future[None]] = {}  # runs that a caller is reading, to take them up
        # A run that is signalled often would be folded again from its whole journal each time.
        self._evicted: Remembered[RunNo, ResidentRun] = Remembered(
            count_max=EVICTED_MAX, bytes_max=EVICTED_BYTES_MAX
        )

    def evicted(self, resident: ResidentRun) -> None:
        """Keep the state of a run that left memory, if reading it again would be dear."""
        if (size := resident.bytes) > EVICTED_BYTES_MIN:
            self._evicted.put(resident.run.no, resident, size)

    async def load(self, no: RunNo) -> ResidentRun | None:
        """A run from memory or from the store. An open one is in memory from here on, and its caller acts on it."""
        return (await self._bring_in(no, None))[0]

    async def bring_in(self, claim: Claim) -> tuple[ResidentRun | None, bool]:
        """A run that was claimed, and whether this call read it, so that its caller is the one to take it up."""
        return await self._bring_in(claim.no, claim.epoch)

    async def _bring_in(self, no: RunNo, epoch: int | None) -> tuple[ResidentRun | None, bool]:
        """`epoch` is that of the next row, if the run was claimed.

        Only one caller reads a run at a time: if the run came and went during another's read, that one would bring in an
        old state.
        """
        while (known := self._door.residents.get(no)) is None and (other := self.loading.get(no)) is not None:
            await other
        if known is not None:
            return known, False
        if no in self._door.quarantined:
            return None, False
        done = self._begin_reading((no,))
        try:
            resident = await self._read(no, self._remembered(no, epoch))
            if resident is not None:
                self._enter(resident)
        finally:
            self._end_reading((no,), done)
        if no not in self._door.residents:
            self._on_freed()
        return resident, True

    async def bring_in_many(self, claims: Sequence[Claim]) -> list[ResidentRun]:
        """The same for runs that are not in memory: those that can be read, and that no other caller is reading. They enter
        memory together, so that none of them is found there before the caller has taken it up."""
        runs = [claim.no for claim in claims]
        asked = [no for no in runs if no not in self._door.residents and no not in self.loading]
        done = self._begin_reading(asked)
        try:
            found = [resident for resident in await self._read_many(asked) if resident is not None]
            for resident in found:
                self._enter(resident)
        finally:
            self._end_reading(asked, done)
        return found

    def _begin_reading(self, runs: Sequence[RunNo]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for no in runs:
            self.loading[no] = done
        return done

    def _end_reading(self, runs: Sequence[RunNo], done: asyncio.Future[None]) -> None:
        for no in runs:
            del self.loading[no]
        done.set_result(None)

    async def _remembered(self, no: RunNo, epoch: int | None) -> ResidentRun | None:
        """An evicted run whose state is still at hand, else the run as it is stored. Both are the same if no other node has
        claimed the run since: that would have raised its epoch."""
        kept = self._evicted.take(no)
        if kept is not None and epoch in (None, kept.epoch + 1):
            return kept
        return await self.stored(no)

    async def _read_many(self, runs: Sequence[RunNo]) -> list[ResidentRun | None]:
        try:
            stored = await self._store.load_many(runs)
        except Unavailable:
            raise  # no run is to blame, and they are read again later
        except Exception:  # noqa: BLE001  # one of them cannot be read: it is found by itself
            return [await self._read(no, self.stored(no)) for no in runs]
        return [await self._read(each.row.no, self._folded(each)) for each in stored]

    async def _read(self, no: RunNo, reading: Awaitable[ResidentRun | None]) -> ResidentRun | None:
        try:
            return await reading
        except Unavailable:
            raise
        except Exception as error:  # a run whose rows cannot be read must not hold up the rest
            log.exception("run number %d cannot be loaded and is set aside", no)
            self._door.set_aside(no, error)
            return None

    def _enter(self, resident: ResidentRun) -> None:
        if not resident.run.over:
            self._door.residents[resident.run.no] = resident
            self._evicted.take(resident.run.no)  # it goes on from here, and that state would be an old one
            self._on_loaded(resident)

    async def stored(self, no: RunNo) -> ResidentRun | None:
        stored = await self._reads.of(no)
        return None if stored is None else await self._folded(stored)

    async def _folded(self, stored: Stored) -> ResidentRun:
        plan = await self._plans.of_version(stored.row.tenant, stored.row.version)
        run = await self._load_marked(stored)
        resident = ResidentRun(run, plan, owned=False, status=stored.row.status, trace=stored.trace)
        resident.schedule, resident.slot = stored.row.schedule, stored.row.slot or ""
        resident.lacks = any(lacking(resident))
        resident.journal_bytes = sum([len(row[-1]) for row in stored.rows])
        if stored.parts:
            resident.snapshot_at = max(resident.snapshot_at, len(stored.parts[0][1]))
        return resident

    async def _load_marked(self, stored: Stored) -> Run:
        """Load a run in turns, each with its number in the mark. One that is watched is loaded in one turn, because the next turn
        counts as proof that the process survived it."""
        no, now = stored.row.no, self._fatal_runs.mark.now

        async def give_way() -> None:
            now[LOADED] = 0
            await asyncio.sleep(0)
            now[LOADED] = no

        is_watched = no in self._fatal_runs.watched
        if is_watched:
            self._fatal_runs.begins(no, LOADING)
        now[LOADED] = no
        try:
            return await load_run(self._store, stored, None if is_watched else give_way)
        finally:
            now[LOADED] = 0
