"""L1 with schedules: the real engine and store on virtual time, where every kind of trigger starts runs amid faults.

    ScheduleWorld   the nodes and faults of World; people who pause, resume, edit, backfill and fire; senders of events
    Book            what must be true of each schedule with a clock (schedule_book.py)

A world has one pace: grids, grace, long runs, outages and jumps are multiples of it, so each fault meets a few occurrences. The
clock starts shortly before a clock change. When faults have stopped, everything that is owed must start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from holdfast.errors import AtLimit, NodeIsOver, Unavailable
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.base import Fenced
from holdfast.store.batch import Batch
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import Firing, LedgerEntry
from holdfast.tools.registry import Context, ToolError
from holdfast.triggers import deciding, fires
from holdfast.triggers.occurrences import Delivered, Delivery
from holdfast.values import DEFAULT_TENANT, Millis, encode
from tests.sim.checkers import Violation, hold
from tests.sim.knobs import SMALL, Knobs, small_limits
from tests.sim.schedule_book import FOREVER, READ_MS, Book, Wake, decoded
from tests.sim.schedule_grids import Shape
from tests.sim.schedule_loads import (
    AFTER,
    PACES,
    WORK,
    beginning,
    event_fields,
    jittered,
    some_fields,
    some_shape,
)
from tests.sim.schedule_outside import Outside, simulated
from tests.sim.workloads import Workload
from tests.sim.world import SimNode, SimStore, World, to_its_end
from tests.store.yielding import Yielding

# More turns than these are a busy loop. As long as there is a deadline, the clock is read each second; a source of these worlds sleeps
# for a second after each look at its queue, and a folder is read every five. In the longest worlds that is most of what happens.
TURNS_MAX: Final = 20_000
TURNS_PER_SECOND: Final = 6
TURNS_PER_COMMIT: Final = 30
CALM_SECONDS: Final = 3.0  # after which a process has read its clock since a fault
STUCK_SECONDS: Final = 30.0
SLOWEST_READ: Final = 0.5  # of the pace
DAY_MS: Final = 86_400_000
KNOBS: Final[Knobs] = (*SMALL, (deciding, "PAGE", (1, 2)), (fires, "BEGUN_AT_ONCE", (1, 2)))
KINDS: Final = ("webhook", "run", "source", "file")
OPEN: Final = (
    "SELECT schedule, count(*) FROM run WHERE schedule IS NOT NULL AND finished_at IS NULL GROUP BY schedule"
)
CATCHING_UP: Final = """
SELECT count(*) FROM run r JOIN ledger l ON l.run = r.no
 WHERE r.schedule = ? AND r.is_catchup = 1 AND r.finished_at IS NULL AND l.reason = ''
"""
WAITING: Final = "SELECT schedule, scheduled_at FROM ledger WHERE outcome = 'buffered'"
ENDED: Final = "SELECT id, status FROM run JOIN version ON version.hash = run.version WHERE name = 'work'"
EVENTS: Final = "SELECT occurrence, outcome, reason, run FROM ledger WHERE schedule = ?"


class Slow(Yielding):
    """Reads that take a few turns of the loop, and some of them time."""

    def __init__(self, store: SimStore, world: ScheduleWorld) -> None:
        super().__init__(store, world.rng)
        object.__setattr__(self, "_world", world)

    async def _turns(self) -> None:
        if not self._world.settled and self._random.random() < 0.05:
            await asyncio.sleep(self._random.choice((0.001, 0.05, SLOWEST_READ)) * self._world.pace)
        await super()._turns()


class ScheduleWorld(World):
    known_faults = (
        "crash", "crash in commit", "pause", "down", "slow commits", "clock jump", "suspend", "close", "few places",
    )  # fmt: skip
    harmless_faults = frozenset({"clock jump", "suspend"})
    faults_at_a_handle = ("crash", "pause", "clock jump", "suspend", "close", "down")
    settle_seconds = 200_000.0
    pauses_between_commits = True

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.pace, self.begins_at, self.outside = 1, 0, Outside()
        super().__init__(seed, trace=trace)
        rng = self.rng
        self.pace = rng.choice(PACES)
        self.zone, self.begins_at = beginning(rng)
        self.reads_are_slow = rng.random() < 0.5
        self.rate = rng.choice((0.0003, 0.001, 0.005))
        self.faults_until = self.pace * rng.choice((30.0, 60.0, 150.0))
        self.downtimes = tuple(self.pace * length for length in (0.0, 0.1, 1.0, 8.0, 60.0))
        self.books: dict[str, Book] = {}
        self.specs: dict[str, tuple[Shape, dict[str, Any]]] = {}  # by the text that is stored
        self.events: dict[str, dict[str, Any]] = {}
        self.seen: dict[tuple[str, str], LedgerEntry] = {}  # rows of events
        self.order = 0  # commits
        self.heart = 0, 0  # the last heartbeat, as it was read and as it was durable
        self.wakes: list[Wake] = []
        self.fresh: dict[str, list[Wake]] = {}  # by node: those that it has not acted on
        self.set_back: list[int] = []
        self.disturbed_at, self.frozen_at = 0.0, FOREVER
        self.wall_max = 0
        self.told: dict[str, bytes | None] = {}  # replies to senders of webhooks
        self.heard_count = 0  # deliveries, each of which an event that waits may have to let go first
        self.stuck: dict[str, tuple[float, int]] = {}
        self.generators: list[Any] = []
        self.is_prepared = self.is_quiet = False
        self.makes_schedules()

    def chosen(self) -> list[Workload]:
        return []

    def read_through(self, store: SimStore) -> Any:
        return Slow(store, self) if self.reads_are_slow else store

    def makes_schedules(self) -> None:
        rng = self.rng
        for number in range(rng.choice((1, 2, 3, 5))):
            shape = some_shape(rng, self.pace, self.zone, self.begins_at)
            fields = some_fields(rng, self.pace)
            fields["trigger"] = jittered(rng, shape.trigger, self.pace)
            book = Book(f"s{number}", shape, {**shape.fields, **fields})
            self.books[book.id] = book
        for kind in KINDS:
            if rng.random() < 0.4:
                self.events[kind] = event_fields(rng, kind)

    def now(self) -> Millis:
        at = Millis(self.begins_at + int(self.loop.time() * 1000) + self.skew_ms)
        self.wall_max = max(getattr(self, "wall_max", 0), at)
        return at

    # ------------------------------------------------------------------------------------------------- faults

    def disturbed(self) -> None:
        """Something happens to a process: what its clock was about to tell it is uncertain."""
        self.disturbed_at = self.loop.time()
        for wake in self.wakes[-9:]:
            if wake.woken == FOREVER and wake.asleep_from != wake.asleep:
                wake.is_certain = False

    def crash(self, node: SimNode) -> None:
        self.disturbed()
        self.counts["crash"] += 1
        super().crash(node)

    def open_node(self) -> None:
        self.disturbed()
        super().open_node()
        asleep_from, asleep = self.heart
        self.wake(Wake(asleep_from, max(asleep, asleep_from), self.now(), self.order, is_certain=True))

    async def open(self, node: SimNode) -> None:
        try:
            await super().open(node)
        except Unavailable:
            hold(node.closing or node.dead, "only a node that is being closed cannot be opened", node.name)

    def wake(self, wake: Wake) -> None:
        wake.at = self.loop.time()
        wake.cursors = {book.id: book.at for book in self.books.values() if book.at >= 0}
        self.wakes.append(wake)
        self.fresh.setdefault(self.newest().name, []).append(wake)

    def _pause(self, node: SimNode) -> None:
        """The process stands still, as under load: what it comes to later is late, not missed."""
        self.disturbed()
        self.say(f"{node.name} is paused")
        node.paused, self.frozen_at = True, min(self.frozen_at, self.now())
        self.counts["frozen"] += 1
        rng, pace = self.rng, self.pace
        if rng.random() < 0.3:
            self.later(rng.choice((0.0, 1.0, pace * 5.0)), lambda: self.take_over(node))
        self.later(pace * rng.choice((0.01, 1.0, 8.0, 30.0)), lambda: self.resume(node))

    def resume(self, node: SimNode) -> None:
        self.disturbed()
        super().resume(node)
        self.later(CALM_SECONDS, self.thawed)

    def thawed(self) -> None:
        if not self.newest().paused:
            self.frozen_at = FOREVER

    def _down(self, node: SimNode) -> None:
        self.disturbed()
        self.counts["database away"] += 1
        self.down_until = self.loop.time() + self.pace * self.rng.choice((0.01, 1.0, 12.0))
        if "crash" in self.faults and self.rng.random() < 0.3:
            self.later(self.pace * self.rng.choice((0.005, 0.5, 5.0)), lambda: self.crash_if_stalled(node))

    def _close(self, node: SimNode) -> None:
        self.disturbed()
        super()._close(node)

    def _suspend(self, node: SimNode) -> None:
        """The machine sleeps: nothing runs, the wall clock goes on."""
        longest = 60 if self.drains_slowly or self.skew_ms > 30 * DAY_MS else 3_000 if self.pace < 60 else 300
        self.counts["machine suspended"] += 1
        self.jump(self.pace * self.rng.choice((800, 8_000, 60_000, 1_000 * longest)))

    def _clock_jump(self, node: SimNode) -> None:
        by = round(self.pace * self.rng.choice((-60_000, -5_000, -300, 100, 2_000, 9_000, 90_000)))
        self.counts["clock set back" if by < 0 else "clock set forward"] += 1
        self.jump(by)

    @property
    def drains_slowly(self) -> bool:
        """Whether a long outage would start a run for each occurrence."""
        return any(
            book.fields["missed_run_policy"] == "run_all" and book.fields["max_catchup"] in (0, 1_000)
            for book in self.books.values()
        )

    def jump(self, by: int) -> None:
        self.say(f"the clock jumps by {by / 1000:g} s")
        is_calm = self.loop.time() - self.disturbed_at > CALM_SECONDS and self.loop.time() > self.down_until
        self.disturbed()
        before = self.now()
        self.jumped_at = self.loop.time()
        self.skew_ms += by
        self.skew_ms_max = max(self.skew_ms_max, self.skew_ms)
        if by < 0:
            self.set_back.append(self.order)
        elif by >= 1_000:
            is_certain = is_calm and self.newest().is_open and not self.newest().dead
            asleep_from = min(before - READ_MS, self.frozen_at - READ_MS)
            self.wake(Wake(asleep_from, before, before + by, self.order, is_certain))

    def settle(self) -> None:
        skew = self.skew_ms
        super().settle()
        ahead, self.skew_ms = self.skew_ms - skew, skew
        self.settled = True
        if ahead:
            self.jump(ahead)

    def not_taken(self, batch: Batch, error: BaseException) -> None:
        """A source's position and a pause may race for one cursor: the loser asks again."""
        is_race = isinstance(error, Fenced) and all(
            any(entry.schedule in self.events for entry in one.entries)
            or (one.cursor is not None and one.cursor.schedule in self.events)
            for one in error.firings
        )
        hold(is_race, "the store takes every batch of its owner", repr(error))
        self.counts["fenced"] += 1

    # ------------------------------------------------------------------------------------------ those who ask

    def begin(self) -> None:
        self.later(0.01, self.prepare)
        rng = self.rng
        asks: list[Callable[[SimNode], Coroutine[Any, Any, None]]] = [
            self.pauses,
            self.resumes,
            self.edits,
            self.backfills,
            self.starts_one,
        ]
        chosen = rng.sample(asks, rng.randint(0, len(asks)))
        for _ in range(rng.choice((0, 3, 12)) if chosen else 0):
            self.later(rng.random() * self.faults_until, partial(self.asked, rng.choice(chosen)))
        for number in range(rng.choice((3, 20, 60))):
            at = rng.random() * self.faults_until
            self.later(at, partial(self.happens, f"e{number}"))
        self.later(self.pace * 1.37, self.watch)
        self.later(self.faults_until + 2 * self.pace, self.resumes_all)

    def able(self) -> SimNode | None:
        node = self.newest()
        return None if node.dead or node.closing or node.paused or not node.is_open else node

    def prepare(self) -> None:
        if not self.is_prepared:
            self.later(self.pace * 0.3, self.prepare)
            if (node := self.able()) is not None:
                node.do(self.prepare_on(node))

    async def prepare_on(self, node: SimNode) -> None:
        try:
            for definition in (WORK, AFTER):
                await node.engine.commands.publish(DEFAULT_TENANT, definition)
            for fields in self.events.values():
                await node.engine.schedules.put(DEFAULT_TENANT, schedule_from_data(fields))
            for book in self.books.values():
                if book.at < 0:
                    await node.engine.schedules.put(DEFAULT_TENANT, self.spec(book, book.shape, book.fields))
            self.is_prepared = True
        except Unavailable:
            self.counts["change refused"] += 1

    def spec(self, book: Book, shape: Shape, fields: dict[str, Any]) -> ScheduleSpec:
        rest = {key: value for key, value in fields.items() if key not in ("dst", "exclude", "trigger")}
        trigger = {**shape.trigger, "jitter_secs": fields["trigger"].get("jitter_secs", 0)}
        data = {**rest, **shape.fields, "id": book.id, "trigger": trigger}
        spec = schedule_from_data(data)
        self.specs[spec.canonical().decode()] = shape, data
        return spec

    def asked(self, ask: Callable[[SimNode], Coroutine[Any, Any, None]]) -> None:
        if self.is_prepared and (node := self.able()) is not None:
            node.do(self.answered(ask, node))

    async def answered(self, ask: Callable[[SimNode], Coroutine[Any, Any, None]], node: SimNode) -> None:
        try:
            await ask(node)
        except (Unavailable, AtLimit):
            self.counts["change refused"] += 1

    def some_id(self) -> str:
        return self.rng.choice((*self.books, *self.books, *self.events))

    async def pauses(self, node: SimNode) -> None:
        name = self.some_id()
        await node.engine.schedules.pause(DEFAULT_TENANT, name)
        self.counts["paused"] += 1

    async def resumes(self, node: SimNode) -> None:
        missed = self.rng.random() < 0.5
        await node.engine.schedules.resume(DEFAULT_TENANT, self.some_id(), missed=missed)
        self.counts["resumed"] += 1

    async def edits(self, node: SimNode) -> None:
        """The grid changes, or something else does."""
        rng, book = self.rng, self.books[self.rng.choice(list(self.books))]
        shape, fields = book.shape, dict(book.fields)
        if rng.random() < 0.5:
            shape = some_shape(rng, self.pace, self.zone, self.now())
        else:
            fields["max_concurrent"] = 0 if fields["overlap"] == "allow" else rng.choice((1, 2, 0))
            fields["inputs"] = {"x": rng.randrange(9)}
        await node.engine.schedules.put(DEFAULT_TENANT, self.spec(book, shape, fields))
        self.counts["edited"] += 1

    async def backfills(self, node: SimNode) -> None:
        name, now = self.rng.choice(list(self.books)), self.now()
        since = Millis(now - self.rng.choice((3, 30)) * self.pace * 1_000)
        rate = self.rng.choice((None, None, 2.0))
        found = await node.engine.schedules.backfill(DEFAULT_TENANT, name, since, now, max_per_sec=rate)
        self.counts["backfilled"] += bool(found.count)

    async def starts_one(self, node: SimNode) -> None:
        await node.engine.schedules.fire(DEFAULT_TENANT, self.some_id())

    def resumes_all(self) -> None:
        """In the end everything that is paused goes on."""
        paused = [book.id for book in self.books.values() if book.is_paused]
        node = self.able()
        if node is not None and self.is_prepared:
            for name in (*paused, *self.events):
                node.do(self.resumed(node, name))
        if not self.is_quiet:
            self.later(5.0 * self.pace, self.resumes_all)

    async def resumed(self, node: SimNode, name: str) -> None:
        with_missed = self.rng.random() < 0.5 and not self.drains_slowly
        try:
            await node.engine.schedules.resume(DEFAULT_TENANT, name, missed=with_missed)
        except Unavailable:
            self.counts["change refused"] += 1

    # -------------------------------------------------------------------------------------------------- events

    def happens(self, name: str) -> None:
        kinds = [kind for kind in ("webhook", "source", "file") if kind in self.events]
        if kinds:
            kind = self.rng.choice(kinds)
            if kind == "webhook":
                self.sends(name, 0)
            elif kind == "source":
                self.outside.queue.append(name)
            else:
                self.outside.arrive(name, self.now())

    def sends(self, name: str, tries: int) -> None:
        """A sender repeats until it is answered, and sometimes once more."""
        if tries < 50:
            self.later(self.rng.choice((0.01, 1.0, self.pace * 1.0)), lambda: self.sends_again(name, tries))

    def sends_again(self, name: str, tries: int) -> None:
        if name in self.told and self.rng.random() < 0.7:
            return
        if self.is_prepared and (node := self.able()) is not None:
            node.do(self.deliver(node, name))
        self.sends(name, tries + 1)

    async def deliver(self, node: SimNode, name: str) -> None:
        spec = schedule_from_data(self.events["webhook"])
        delivery = Delivery(
            tenant=DEFAULT_TENANT,
            spec=spec,
            occurrence=name,
            payload=encode({"n": name}),
            scheduled_at=self.now(),
            reply=lambda accepted: encode({"run_id": accepted.run_id}),
            may_come_again=True,
        )
        try:
            answer = await node.engine.kinds.occurrences.deliver(delivery)
        except Unavailable:
            self.counts["delivery refused"] += 1
            return
        self.guarded(lambda: self.heard(name, answer))

    def heard(self, name: str, answer: Delivered) -> None:
        self.counts[f"delivery {answer.outcome}"] += 1
        self.heard_count += 1
        if answer.reply is not None:
            hold(("webhook", name) in self.seen, "a delivery that is accepted is durable", name)
            same = name not in self.told or self.told[name] == answer.reply
            hold(same, "a repeated delivery gets the same reply", name, answer)
            self.told[name] = answer.reply

    # --------------------------------------------------------------------------------------------- the commits

    def committed(self, node: SimNode, batch: Batch) -> None:
        hold(node is self.opened, "a stale node appends nothing", node.name, len(batch.rows))
        self.order += 1
        if batch.awake_at is not None:
            self.heart = int(batch.awake_at), max(int(batch.awake_at), self.now())
            self.acted(node, json.loads(batch.outages or "[]"))
        for firing in batch.firings:
            self.decided(node, firing)
        for row in batch.schedules:
            if row.id in self.books:
                self.books[row.id].defined(*self.specs[row.body])
        started = [new for new in batch.new_runs.values() if new.schedule is not None]
        for new in started:
            self.check_started(batch, new)
        if started:
            self.check_limits(started)

    def acted(self, node: SimNode, outages: list[tuple[int, int]]) -> None:
        """A node has written a heartbeat. One that was on its way while the clock jumped says nothing about that, unless that jump is among
        the outages beside it."""
        fresh, self.fresh[node.name] = self.fresh.get(node.name, []), []
        for wake in fresh:
            is_jump = wake.asleep_from != wake.asleep
            is_stored = any(start <= wake.asleep and wake.woke <= end for start, end in outages)
            if is_stored or not is_jump or self.loop.time() > wake.at + 2 * CALM_SECONDS:
                wake.woken, wake.is_stored = max(self.now(), wake.woke), is_stored
            else:
                self.fresh[node.name].append(wake)

    def decided(self, node: SimNode, firing: Firing) -> None:
        for entry in firing.entries:
            self.say(
                f"{node.name} {entry.schedule} {entry.occurrence} {entry.outcome} {entry.reason} x{entry.times}"
            )
            book = self.books.get(entry.schedule)
            if book is None:
                self.has_event(entry)
            else:
                book.has(entry, self.order, max(self.wall_max, self.now()))
        cursor = firing.cursor
        if cursor is not None and cursor.schedule in self.books:
            body = decoded(cursor.body)
            next_at = None if cursor.next_at is None else int(cursor.next_at)
            self.books[cursor.schedule].moved(
                body, cursor.revision, next_at, owes=cursor.owes, order=self.order
            )

    def has_event(self, entry: LedgerEntry) -> None:
        key = entry.schedule, entry.occurrence
        before = self.seen.get(key)
        fired_before = before is not None and before.outcome == "fired"
        hold(not fired_before, "I16 one run per event", key)
        if entry.until is None:
            self.seen[key] = entry

    def check_started(self, batch: Batch, new: NewRun) -> None:
        """A run, its row of the ledger and the cursor are one commit."""
        of_run = [one for one in batch.firings if one.no == new.no]
        rows = [entry for one in of_run for entry in one.entries if entry.run == new.no]
        hold(len(rows) == 1, "I16 a run has one row of the ledger, in its commit", new.schedule, new.no)
        has_cursor = any(one.cursor is not None for one in of_run)
        needs_cursor = new.schedule in self.books and rows[0].reason != "manual"
        hold(has_cursor or not needs_cursor, "I16 run and cursor are one commit", new.schedule, new.no)
        hold(bool(new.is_catchup) == rows[0].is_catchup, "a run and its row agree", new.schedule, new.no)

    def check_limits(self, started: list[NewRun]) -> None:
        running = self.running()
        for name in {new.schedule for new in started if new.schedule is not None}:
            book = self.books.get(name)
            event = self.events.get(name)
            limit = book.limit if book is not None else event_limit(event)
            hold(not limit or running.get(name, 0) <= limit, "I21 runs stay within the limit", name, running)
        for new in started:
            if new.is_catchup and new.schedule in self.books:
                ((busy,),) = self.asked_of_tables(CATCHING_UP, new.schedule)
                hold(busy <= 1, "I17 catch-up is serial", new.schedule, busy)

    def asked_of_tables(self, query: str, *args: Any) -> list[Any]:
        """What the tables say, read to the end: a query that is left half done would keep writers out."""
        return list(self.anchor.execute(query, args))

    def overdue(self) -> list[str]:
        """Events that wait although their time has come; after each run of a schedule there is one that is delayed."""
        return [name for name, due_at in self.asked_of_tables(WAITING) if due_at < self.now() - 1_000]

    def running(self) -> dict[str, int]:
        """Open runs, by schedule."""
        return dict(self.asked_of_tables(OPEN))

    # ------------------------------------------------------------------------------------------------- liveness

    def watch(self) -> None:
        """Every now and then: does something wait although nothing is in its way?"""
        self.guarded(self.check_waiting)
        if self.settled and self.loop.time() > self.faults_until + 12 * self.pace:
            self.is_quiet = self.is_prepared and self.nothing_is_left()
        if not self.is_quiet:
            self.later(max(self.pace * 0.97, 5.0), self.watch)

    def check_waiting(self) -> None:
        now = self.loop.time()
        is_calm = (
            self.able() is not None
            and now - self.disturbed_at > STUCK_SECONDS
            and now > self.down_until + STUCK_SECONDS
        )
        is_calm = is_calm and self.now() >= self.wall_max  # set back, a clock has to come there again
        running = self.running()
        waiting = Counter(name for name, due_at in self.asked_of_tables(WAITING) if due_at <= self.now())
        # the reads before one event starts, each of which may be slow
        patience = STUCK_SECONDS + (8 * SLOWEST_READ * self.pace if self.reads_are_slow else 0)
        stuck: dict[str, int] = {}
        for book in self.books.values():
            has_room = not book.limit or running.get(book.id, 0) < book.limit
            if book.owes and has_room and not running.get(book.id) and not (book.is_paused or book.jitter_ms):
                stuck[book.id] = book.revision
        for name in self.events:
            if waiting[name] and not running.get(name):
                stuck[name] = waiting[name] * 1_000_000 + len(self.seen) + self.heard_count
        before, self.stuck = self.stuck, {}
        for name, mark in stuck.items():
            since, was = before.get(name, (now, mark))
            self.stuck[name] = (since if was == mark else now), mark
            long = is_calm and was == mark and now - max(since, self.disturbed_at) > patience
            is_free = name in self.books or not self.is_paused(name)
            hold(not (long and is_free), "what waits starts when there is room", name, mark, since)

    def is_paused(self, name: str) -> bool:
        ((body,),) = self.asked_of_tables("SELECT body FROM cursor WHERE schedule = ?", name)
        return any(
            "until" not in pause or pause["until"] is None for pause in decoded(body).get("pauses", ())
        )

    def nothing_is_left(self) -> bool:
        node = self.able()
        if node is None or self.running() or self.overdue():
            return False
        behind = [
            book.id
            for book in self.books.values()
            if book.owes or book.is_paused or (book.next_at is not None and book.next_at <= self.now())
        ]
        is_heard = "source" not in self.events or self.outside.acknowledged >= set(self.outside.queue)
        files = sum(kind == "file" for kind, _ in self.seen)
        is_seen = "file" not in self.events or files >= len(self.outside.folder)
        return not behind and is_heard and is_seen

    def is_over(self) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.loop.errors:
            error = self.loop.errors[0]
            raise Violation(f"no callback fails: {error}") from error.get("exception")
        turns_max = TURNS_MAX + TURNS_PER_SECOND * self.loop.time() + TURNS_PER_COMMIT * self.order
        if self.loop.time() > self.faults_until + self.settle_seconds or self.loop.turns > turns_max:
            self.complain()
        return self.is_quiet

    def complain(self) -> None:
        running, waiting = self.running(), self.asked_of_tables(WAITING)[:5]
        owing = {book.id: (book.owes, book.is_paused, book.next_at) for book in self.books.values()}
        where = f"at {self.now()}, after {self.loop.time():.1f} s and {self.loop.turns} turns"
        raise Violation(
            f"once faults stop everything that is due starts: {running} {waiting} {owing} {self.is_prepared} {where}"
        )

    # --------------------------------------------------------------------------------------------------- the tools

    def make_tool(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def tool(context: Context, **args: Any) -> Any:
            if not self.settled:
                pace = self.pace
                await asyncio.sleep(
                    self.rng.choice((0.0, 0.0, 0.05 * pace, 0.7 * pace, 4.0 * pace, 20.0 * pace))
                )
                if self.rng.random() < 0.1:
                    raise ToolError("by chance")
            return None

        return tool

    # ---------------------------------------------------------------------------------------------------- the end

    def finish(self) -> None:
        super().finish()
        for book in self.books.values():
            self.counts["occurrences"] += book.check(self.wakes, set_back=self.set_back)
            self.counts.update(book.counts)
            self.counts.update(f"skipped: {row.reason}" for row in book.rows.values())
            self.counts[book.fields["overlap"]] += 1
            self.counts[book.fields["missed_run_policy"]] += 1
        for kind in self.events:
            self.check_events(kind)

    def is_failure(self, error: BaseException | None) -> bool:
        """Starts of one page are gathered: an error of the store is told to the one who gathers them."""
        return error is not None and not isinstance(error, Unavailable | NodeIsOver)

    def check_events(self, kind: str) -> None:
        rows = {row[0]: row for row in self.asked_of_tables(EVENTS, kind)}
        self.counts["occurrences"] += len(rows)
        self.counts.update(f"{kind} {row[1]}" for row in rows.values())
        if kind == "webhook":
            wanted = set(self.told)
        elif kind == "source":
            wanted = set(self.outside.queue)
        elif kind == "run":
            wanted = {row[0] for row in self.asked_of_tables(ENDED) if row[1] != "interrupted"}
        else:
            wanted = set()
            hold(len(rows) >= len(self.outside.folder), "each file is an event", len(rows))
        lost = sorted(wanted - rows.keys())
        hold(not lost, "no event is lost", kind, lost[:3])
        if not event_limit(self.events[kind]):
            bad = [row for row in rows.values() if row[1] == "skipped" and row[2] == "overlap"]
            hold(not bad, "no event is skipped where runs have no limit", kind, bad[:3])


def event_limit(fields: dict[str, Any] | None) -> int:
    assert fields is not None
    return 0 if fields["overlap"] == "allow" else int(fields["max_concurrent"])


@contextmanager
def _surroundings(world: ScheduleWorld) -> Iterator[dict[str, int]]:
    # The generators of a process that died are not closed: it is not there to close them.
    hooks = sys.get_asyncgen_hooks()
    logs = [logging.getLogger(name) for name in ("holdfast.sources", "holdfast.files")]
    sys.set_asyncgen_hooks(firstiter=world.generators.append, finalizer=lambda generator: None)
    for each in logs:
        each.disabled = True
    try:
        with small_limits(world.rng, KNOBS) as limits, simulated(world.outside):
            yield limits
    finally:
        for each in logs:
            each.disabled = False
        sys.set_asyncgen_hooks(*hooks)


def simulate(seed: int, *, trace: bool = False) -> ScheduleWorld:
    """One seed, to its end."""
    world = ScheduleWorld(seed, trace=trace)
    return to_its_end(world, seed, _surroundings(world))
