"""Decides which occurrences of due schedules fire, one page of schedules after another, and commits the decisions.

    timer, end of a run,    ┌──────► query what is due, a page at a time
    edit, end of an outage ─┘             │
                                    `due` decides about each (schedule/due.py)
                                          │
                 fires ◄──────────────────┴──────────────────► does not fire
    a subclass carries it out:                         cursors and rows of skipped
    fires.py starts runs                               occurrences, a page in one commit

Schedules stay in the database: of those that are not due, only the earliest time is in memory, and nothing polls. Knows in which
order to decide and commit. `due` decides whether an occurrence fires, and the subclass carries it out.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from holdfast.engine.events import TriggeredBy
from holdfast.errors import NodeIsOver, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.service import Service
from holdfast.runtime.timers import Timers
from holdfast.schedule.control import paused
from holdfast.schedule.due import due
from holdfast.schedule.records import Cursor, Due, Fire, Running
from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import CursorRow, Firing, LedgerEntry, ScheduleState
from holdfast.triggers.outages import Outages
from holdfast.triggers.rows import Key, cursor_of, cursor_row, entry_of_stretch, key_of, local_text
from holdfast.triggers.starting import Known, Occasion, known
from holdfast.triggers.tally import Tally
from holdfast.values import Millis, rfc3339

log = logging.getLogger("holdfast")

PAGE: Final = 1_000  # schedules that are read and decided at a time
# Occurrences that are examined in one turn of the loop, about 5 ms; deciding about a schedule counts as five. What is decided in
# one turn is committed together, and its runs start before the next ones are decided.
TURN_WORK: Final = 500
DECIDED_WORK: Final = 5
AHEAD_MS: Final = 500  # so long before schedules are due, their fires are made ready
QUERY_AGAIN_MS: Final = 1_000  # after a query or a commit that failed


class Away(NamedTuple):
    """When decisions could not be stored; without `until`, they still cannot."""

    since: Millis
    until: Millis | None = None


class Decided(NamedTuple):
    """A decision about a schedule: the state that was read, and the result of `due`."""

    key: Key
    state: ScheduleState
    known: Known
    due: Due
    now: Millis

    @property
    def is_changed(self) -> bool:
        was = self.state.cursor
        return self.due.cursor.revision != was.revision or self.due.next_at != was.next_at

    def firing(
        self, *entries: LedgerEntry, run: NewRun | None = None, cursor: Cursor | None = None
    ) -> Firing:
        """The rows that the commit of this decision writes besides a run."""
        moved = cursor_row(self.key, cursor or self.due.cursor, self.due.next_at)
        skipped = (entry_of_stretch(self.key, row, self.now) for row in self.due.skipped)
        return Firing(
            (*skipped, *entries), moved, self.state.cursor.revision, None if run is None else run.no
        )


class Deciding(Service):
    def __init__(
        self, store: Store, clock: Clock, committer: Committer, *, manual_clock: bool = False
    ) -> None:
        self._store, self._clock, self._committer = store, clock, committer
        self.outages = Outages(store, committer, clock)
        self.timers = Timers(clock, manual_clock=manual_clock)
        self.timers.begin(lambda no: None, self.query, self.outages.cut, self.outages.slept_from)
        self.tally = Tally()
        # one decision about a schedule at a time, whether a timer or a command asks for it
        self.deciding = asyncio.Lock()
        self.broken: dict[Key, str] = {}  # schedules that cannot be decided, and why
        self.run_counts: Counter[Key] = Counter()  # fires of this process
        self._wanted: dict[Key, None] = {}  # schedules to decide about although no timer is due
        self._owing: set[Key] = set()  # schedules with occurrences that wait for a run to end
        self._held: dict[Key, int] = {}  # schedules that are due and wait for a run to end, but not longer
        self._ended: set[Key] = set()  # schedules with a run that ended while decisions were made
        self._querying: asyncio.Task[None] | None = None
        self.prepares = False  # whether fires are made ready before they are due
        self.is_open = False  # whether it fires due schedules by itself
        self._away: Away | None = None  # the last time that the store was
        self._is_held = False
        self._is_asked = self._is_closed = False
        self._has_begun = False

    # --------------------------------------------------------------------------------------------- what is to be done

    @abstractmethod
    def running(self, state: ScheduleState) -> Running:
        """How many runs of a schedule are open."""

    @abstractmethod
    async def _start_all(self, decisions: list[Decided]) -> list[Firing]:
        """Carry out decisions that fire; returns those whose rows are still to be written."""

    async def _prepare(self, at: Millis) -> None:
        """Make the fires of schedules that are due at `at` ready, as long as nothing else is to be done."""

    async def _fire_ahead(self, now: Millis) -> None:
        """Carry out the fires that were made ready and are due."""

    def _changed(self, key: Key) -> None:
        """Something that decisions about a schedule depend on has changed."""

    def _all_changed(self) -> None:
        """The same for any number of schedules."""

    @abstractmethod
    def _make_room(self, key: Key) -> None:
        """An occurrence waits for the oldest open run to be cancelled. This is asked with each decision until it has ended."""

    # -------------------------------------------------------------------------------------------- open and close

    async def open(self, *, drive: bool) -> None:
        """Fire due schedules from now on, in the background."""
        if drive:
            self.is_open = True
            self.query()

    def hold(self) -> None:
        """Fire nothing until `release`: files that are still to be read may change or delete due schedules."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self.query()

    async def restored(self) -> None:
        self.query()

    async def close(self) -> None:
        """Finish the decision that is being committed, and fire nothing more."""
        self._is_closed = True
        self.timers.close()
        tasks = self._tasks
        if tasks:
            await asyncio.wait(tasks)

    def abandon(self, error: Exception | None = None) -> None:
        self._is_closed = True
        self.timers.close()
        for task in self._tasks:
            task.cancel()

    @asynccontextmanager
    async def command(self) -> AsyncIterator[None]:
        """Change schedules while no decision about any of them is made."""
        async with self.deciding:
            self._all_changed()
            yield

    def problem(self, tenant: str, schedule_id: str, slots: Iterable[str]) -> str:
        """Why a schedule cannot be decided in this process; empty if it can."""
        return next((why for slot in slots if (why := self.broken.get((tenant, schedule_id, slot)))), "")

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        """Background work in progress."""
        return [] if self._querying is None else [self._querying]

    # ---------------------------------------------------------------------------------------------------- asking

    def query(self) -> None:
        """Fire due schedules."""
        self._is_asked = True
        if self._querying is None and self.is_open and not (self._is_held or self._is_closed):
            self._querying = asyncio.get_running_loop().create_task(self._query())

    def ask(self, key: Key) -> None:
        """Decide about a schedule, whether or not its time has come."""
        self._wanted[key] = None
        self._changed(key)
        self.query()

    def ended(self, key: Key) -> None:
        """A run of a schedule has ended: there may be room for the next one."""
        if self.deciding.locked():
            self._ended.add(key)
        if (
            key in self._owing or key in self._held or self._store.look_every is not None
        ):  # another node may know that it owes
            self.ask(key)

    async def _query(self) -> None:
        self.timers.watch(True)
        try:
            while (self._is_asked or self._wanted) and not self._is_closed:
                self._is_asked = False
                now = await self.begin()
                await self._fire_ahead(now)
                await self._decide_pages(now)
                await self.outages.forget()
                await self._wait_for(await self._store.next_due(now))
                if self._away is not None and self._away.until is None:
                    self._away = Away(self._away.since, self._clock.now())
        except NodeIsOver:
            self._is_closed = True
        except Unavailable as error:
            log.warning("schedules are not fired for now: %s", error)
            if self._away is None or self._away.until is not None:
                self._away = Away(self._clock.now())
            self._query_later()
        except Exception:  # a bug must not stop all schedules
            log.exception("schedules cannot be fired now")
            self._query_later()
        finally:
            self._querying = None
            self.timers.watch(False)

    async def _wait_for(self, soonest: Millis | None) -> None:
        """Query again when the next schedule is due, and a little before, to make its run ready."""
        held = min(self._held.values(), default=None)
        if held is not None and (soonest is None or held < soonest):
            return self.timers.due_in_store(Millis(held))
        if soonest is None or not self.prepares:
            return self.timers.due_in_store(soonest)
        early = Millis(soonest - AHEAD_MS)
        if self._clock.now() < early:
            return self.timers.due_in_store(early)
        self.timers.due_in_store(soonest)
        await self._prepare(soonest)

    def late_because(self, due_at: int, now: Millis) -> str:
        """Why an occurrence fires late, if it is not for load; a word of `views.schedule_why.LATE`."""
        if self._away is None or now - due_at < QUERY_AGAIN_MS:
            return ""
        since, until = self._away
        is_within = since - QUERY_AGAIN_MS <= due_at and (until is None or due_at <= until)
        return "store_unavailable" if is_within else ""

    def _query_later(self) -> None:
        self.timers.due_in_store(Millis(self._clock.now() + QUERY_AGAIN_MS))

    async def begin(self) -> Millis:
        """Find the missed and pending occurrences, before the first decision and after a jump of the clock. Returns the time by which to
        decide: a jump after that is not an outage yet."""
        now = self.timers.check_clock()
        if self._has_begun:
            await self.outages.store()
            return now
        await self.outages.open()
        after = ("", "", "")
        while found := await self._store.owing_schedules(after, PAGE):
            self._wanted.update(dict.fromkeys(found))
            after = found[-1]
        self._has_begun = True
        return now

    # -------------------------------------------------------------------------------------------------- deciding

    async def _decide_pages(self, now: Millis) -> None:
        """Decide everything that is due, or what there is time for until the machine is suspended or the clock is set: that is an
        outage, which is stored before anything is decided by it."""
        while await self._decide_page(now):
            if self.outages.is_unstored:
                self._is_asked = True
                return

    async def _decide_page(self, now: Millis) -> bool:
        """Decide one page of due schedules; returns whether there were any."""
        async with self.deciding:
            self._ended.clear()  # before the read: it may not see the end of a run that ends meanwhile
            states = await self._read(now)
            if not states or self._is_closed:
                return False
            try:
                await self._carry_out_page(states, now)
            except BaseException:  # read all of them again, including those that no timer made due
                self._wanted.update(dict.fromkeys(key_of(state.cursor) for state in states))
                raise
        await asyncio.sleep(
            0
        )  # a commit may be done at once: everything else gets its turn between two pages
        return True

    async def _carry_out_page(self, states: list[ScheduleState], now: Millis) -> None:
        for decisions in self._decide_all(states, now):
            await self.carry_out(decisions)
            # Where runs start, their tools had their turn meanwhile, and the next commit has their ends too.
            if not any(one.due.fires for one in decisions):
                await asyncio.sleep(0)
            if self._is_closed:
                break

    def _decide_all(self, states: list[ScheduleState], now: Millis) -> Iterator[list[Decided]]:
        """Yield the decisions about a page of schedules, in portions that fit into one turn of the loop."""
        decisions: list[Decided] = []
        work = 0
        for state in states:
            if state.open and (key := key_of(state.cursor)) in self._ended:
                self._wanted[key] = None  # they were counted before one of them ended: count again
                continue
            if (one := self.decide(state, now)) is not None:
                decisions.append(one)
                work += one.due.examined
            work += DECIDED_WORK
            if work >= TURN_WORK:
                yield decisions
                decisions, work = [], 0
        yield decisions

    async def _read(self, now: Millis) -> list[ScheduleState]:
        wanted = list(self._wanted)[:PAGE]
        found = await self._store.schedule_states([key[:2] for key in wanted]) if wanted else []
        self._held = {key: until for key, until in self._held.items() if until > now}
        left_out = self.broken.keys() | self._held.keys()
        found += [
            state
            for state in await self._store.due_schedules(now, PAGE + len(left_out))
            if key_of(state.cursor) not in left_out
        ]
        for key in wanted:
            del self._wanted[key]
        states = {key_of(state.cursor): state for state in found if key_of(state.cursor) not in self.broken}
        return sorted(states.values(), key=order_of)

    def decide(self, state: ScheduleState, now: Millis) -> Decided | None:
        """The decision about a schedule now; None if it cannot be made."""
        key = key_of(state.cursor)
        try:
            schedule = known(state.schedule.body)
            return None if schedule.clock is None else self._decided(key, state, schedule, now)
        except Exception as error:  # one broken schedule must not stop the other schedules
            log.exception("schedule %s cannot be decided and is set aside until it is changed", key[1])
            self.broken[key] = repr(error)
            return None

    def _decided(self, key: Key, state: ScheduleState, schedule: Known, now: Millis) -> Decided:
        assert schedule.clock is not None
        cursor = cursor_of(state)
        if fails_too_often(schedule, state.cursor, cursor):
            log.warning(
                "schedule %s is paused: its last %d runs have failed", schedule.spec.id, state.cursor.failures
            )
            # the pause includes occurrences that are due and undecided
            cursor = paused(cursor, min(now, cursor.at))
        running, outages = self.running(state), self.outages.stretches
        # A commit moves a cursor once: one run to each. With a limit of two, an answer that fires once is not cut short.
        answer = due(schedule.clock, cursor, running, now, 2, outages=outages)
        if len(answer.fires) > 1:
            answer = due(schedule.clock, cursor, running, now, 1, outages=outages)
        is_stuck = answer.cursor == cursor and answer.next_at is not None and answer.next_at <= now
        assert answer.held_until or not is_stuck, f"schedule {schedule.spec.id} is due and nothing is decided"
        return Decided(key, state, schedule, answer, now)

    # ------------------------------------------------------------------------------------------------ carrying out

    async def carry_out(self, decisions: list[Decided]) -> None:
        """Commit decisions: those that fire with their runs, the others together. The caller holds `deciding`."""
        firing = [one for one in decisions if one.due.fires]
        rest = [one.firing() for one in decisions if not one.due.fires and one.is_changed]
        try:
            refused = await self._start_all(firing)
            await self.commit([*rest, *refused])
        except BaseException:
            self._wanted.update(dict.fromkeys(one.key for one in decisions))  # they are read again
            raise
        for one in decisions:
            self._settled(one)

    def _settled(self, one: Decided) -> None:
        """A decision is durable, or another process has made it."""
        key, cursor = one.key, one.due.cursor
        self._changed(key)
        if one.due.held_until is None:
            self._held.pop(key, None)
        else:
            self._held[key] = one.due.held_until
        if cursor.owes:
            self._owing.add(key)
        else:
            self._owing.discard(key)
        if key in self._ended and (key in self._owing or key in self._held):
            self._wanted[key] = None  # it ended perhaps after the open runs were counted
        if one.due.skipped:
            self.tally.skipped(key[1], cursor_of(one.state), one.due.skipped)
        if one.due.cancels_oldest:
            self._make_room(key)

    def _occasion(self, one: Decided, fire: Fire, at: Millis) -> Occasion:
        spec = one.known.spec
        shifted = "" if fire.shifted_from is None else local_text(fire.shifted_from)
        occurrence = rfc3339(Millis(fire.at))
        by = TriggeredBy(spec.id, spec.trigger.kind, occurrence, fire.at, fire.is_catchup, shifted)
        return Occasion(
            one.key[0],
            spec,
            by,
            at,
            run_count=fire.run_count,
            total_run_count=fire.total_run_count,
        )

    def heartbeat(self, now: Millis) -> Millis:
        """For each commit that fires schedules."""
        self.timers.check_clock()
        return self.outages.heartbeat(now)

    async def commit(self, firings: Iterable[Firing], batch: Batch | None = None) -> None:
        """Write decisions that start no run; schedules that another process has decided meanwhile are decided again."""
        batch = batch or Batch()
        batch.firings += firings
        while batch.is_due:
            batch.awake_at = self.heartbeat(self._clock.now())
            try:
                return await self._committer.commit(batch)
            except Fenced as error:
                batch.firings = [one for one in batch.firings if one not in error.firings]
                self._wanted.update(
                    dict.fromkeys(
                        (one.cursor[0], one.cursor[1], one.cursor[2]) for one in error.firings if one.cursor
                    )
                )


def order_of(state: ScheduleState) -> tuple[int, int, list[str]]:
    """By time and priority; of plugins, `plugin:<name>:<id>`, by name before id."""
    return state.cursor.next_at or 0, state.schedule.priority, state.schedule.id.split(":")


def fails_too_often(schedule: Known, row: CursorRow, cursor: Cursor) -> bool:
    limit = schedule.spec.pause_after_failures
    return 0 < limit <= row.failures and not cursor.is_paused
