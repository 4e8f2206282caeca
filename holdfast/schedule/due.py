"""Decides which occurrences of a schedule fire now, which are skipped and why, and when to decide again.

The one place that knows missed-run policy, overlap, catch-up, jitter, pauses and grace. It does not know cron text or zones
(timing.py), where schedules and cursors are stored, or what a fire starts. `now` is a parameter; nothing here reads a clock.

How the runtime uses it, for each schedule with a clock and each slot:

1. Load the schedule, its cursor (`control.registered` makes the first one), and count its open runs.
2. `due(schedule, cursor, running, now, outages=…)`.
3. If `due.cursor` differs: in one commit, replace the cursor and the stored `next_at` where the cursor's `revision` is still the one
   that was loaded; put each row of `skipped`, by its first occurrence (a longer stretch replaces a shorter one); and for each
   fire insert the ledger row, which is unique, and the run. An occurrence is written as `values.rfc3339`. A commit that finds
   another revision is dropped as a whole, and `due` is asked again.
4. If `cancels_oldest`, cancel the oldest open run. This is said each time until it has ended, so a crash cannot lose it.
5. If `is_cut`, begin again at 1; else arm a timer for `next_at`, if there is one, or for `held_until`.

Ask when the timer rings, when a run of the schedule ends, after an outage, and after pause, resume and edit (control.py). An idle
schedule is only its stored `next_at`: starting the engine reads the soonest and parses nothing.

*Outages* are stretches in which no engine was awake: from the last heartbeat of one process to the start of the next, or over a
jump of the wall clock against the monotonic clock. The runtime stores an outage before it asks, and keeps it until no stored `next_at`
is before its end, so that a second crash does not turn missed occurrences into late ones. When the clock is set back, an outage
that ends in the future is cut to end now.

The life of an occurrence:

    excluded, or its local time does not exist ──► skipped
    due during a pause ──► skipped, or caught up if the schedule was resumed so
    due during an outage, and the engine woke more than the grace later ──► missed: skipped, or caught up
    else: it is due at its time plus jitter ──► fires; or at the limit of runs ──► skipped, or waits, as `overlap` says

Catch-up runs begin one after the other, each when the one before has ended, and are never skipped for overlap. A backfill fires
occurrences of the past that its request names (control.py); nothing decides about them again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, assert_never

import msgspec

from holdfast.schedule.cron import NOTHING, Stretch, Tick
from holdfast.schedule.owed import Grids, needed
from holdfast.schedule.records import (
    Backfill,
    Cursor,
    Due,
    Fire,
    Outage,
    Owed,
    Pause,
    Reason,
    Running,
    Schedule,
    Search,
    Skipped,
)

FIRES_MAX: Final = 100  # fires per call, so that a commit stays small
# Occurrences that one answer examines, decided or passed over in a search: some 20 ms, in which nothing else runs. Those of a grid
# with very many expressions cost more, and count more.
EXAMINED_MAX: Final = 2_000
OWED_MAX: Final = 100  # outages whose occurrences are still to be caught up


def due(
    schedule: Schedule,
    cursor: Cursor,
    running: Running,
    now: int,
    limit: int = FIRES_MAX,
    *,
    outages: tuple[Outage, ...] = (),
) -> Due:
    assert limit > 0
    if not schedule.enabled:
        return Due(cursor)
    return Decision(schedule, cursor, running, now, limit, outages).made()


def jitter_ms(schedule: Schedule, at: int) -> int:
    """How much later than its nominal time an occurrence fires: a hash, so that a restart does not draw again."""
    if not schedule.jitter_ms:
        return 0
    digest = blake2b(f"{schedule.id}\0{at}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (schedule.jitter_ms + 1)


class Decision:
    """One answer in the making: the fields of the cursor, changed step by step."""

    def __init__(
        self,
        schedule: Schedule,
        cursor: Cursor,
        running: Running,
        now: int,
        limit: int,
        outages: tuple[Outage, ...],
    ) -> None:
        self.schedule, self.cursor, self.now, self.outages = schedule, cursor, now, outages
        self.grids = Grids(schedule.timing, cursor)
        self.grid = self.grids.now
        self.open, self.catchups, self.run_count = running.open, running.catchups, running.run_count
        self.newest = running.newest
        self.at, self.total = cursor.at, cursor.total_run_count
        self.missed, self.waiting = list(cursor.missed), list(cursor.waiting)
        self.backfills = list(cursor.backfills)
        self.catchup_from = cursor.catchup_from
        self.skipping, self.dropping = cursor.skipping, cursor.dropping
        self.fires: list[Fire] = []
        self.rows: dict[int, Skipped] = {}
        self.fires_left, self.ticks_left = limit, EXAMINED_MAX
        self.search = cursor.search
        self.is_paused = cursor.is_paused
        self.held_until: int | None = None

    def made(self) -> Due:
        if self.search is not None and self.search.until <= self.at:
            self._limit_catchup()
        self._start_owed()
        self._find_next()
        self._start_owed()
        if not self.is_paused:
            self._start_backfills()
        cursor = self._cursor()
        is_cut = self.is_spent
        return Due(
            cursor,
            tuple(self.fires),
            tuple(self.rows.values()),
            self._at_once() if is_cut else self._next_at(),
            is_cut,
            self._cancels_oldest(),
            EXAMINED_MAX - self.ticks_left,
            self.held_until,
        )

    @property
    def is_spent(self) -> bool:
        return self.fires_left <= 0 or self.ticks_left <= 0

    # ---------------------------------------------------------------------------------------- new occurrences

    def _find_next(self) -> None:
        """Decide on the occurrences since the cursor, in their order."""
        while not self.is_spent:
            tick = self.grid.after(self.at)
            if tick is None or tick.at > self.now or not self._decide(tick):
                return
            self.ticks_left -= self.grid.cost

    def _decide(self, tick: Tick) -> bool:
        """Decide on one occurrence, or on all up to the end of an outage or a pause; False if it is too early."""
        if not tick.fires:
            return self._skip(tick, "dst_gap", tick.at)
        if self.grid.is_excluded(tick):
            return self._skip(tick, "excluded", tick.at)
        if (pause := self._pause_of(tick)) is not None:
            return self._paused(tick, pause)
        if (until := self._missed_until(tick)) is not None:
            return self._missed(tick, until)
        if tick.at + jitter_ms(self.schedule, tick.at) > self.now:
            return False
        return self._regular(tick)

    def _skip(self, tick: Tick, reason: Reason, until: int) -> bool:
        """Skip an occurrence, and with it those up to an instant, as far as they need not be examined one by one."""
        more = self.grid.stretch(tick.at, until)
        self.skipping = self._row(self.skipping, tick, reason, more)
        self.at = max(tick.at, more.until)
        return True

    def _pause_of(self, tick: Tick) -> Pause | None:
        # What had not fired yet when the pause began, for its jitter, is part of it.
        early = self.schedule.jitter_ms
        for pause in self.cursor.pauses:
            if pause.since - early < tick.at and (pause.until is None or tick.at <= pause.until):
                return pause
        return None

    def _paused(self, tick: Tick, pause: Pause) -> bool:
        if pause.until is None:
            return False
        until = min(pause.until, self.now)
        return self._catch_up(until) if pause.is_owed else self._skip(tick, "paused", until)

    def _missed_until(self, tick: Tick) -> int | None:
        """The end of the outage in which an occurrence was missed, as the last instant that was; None if it was not missed."""
        if not self.outages:  # nearly always
            return None
        early, grace = self.schedule.jitter_ms, self.schedule.lateness_ms_max
        for outage in self.outages:
            until = outage.woke_at - grace - 1
            if outage.asleep_from - early < tick.at <= until:
                pauses = (pause.since - early for pause in self.cursor.pauses)
                return min([until, self.now, *(since for since in pauses if since >= tick.at)])
        return None

    def _missed(self, tick: Tick, until: int) -> bool:
        match self.schedule.missed_run_policy:
            case "run_all":
                return self._catch_up(until)
            case "run_once":
                latest = self._newest([Owed(self.at, until)], until, 1)
                if latest is None:
                    return False
                return self._catch_up(until) if tick.at >= latest else self._skip(tick, "missed", latest - 1)
            case "skip":
                return self._skip(tick, "missed", until)
            case _:
                assert_never(self.schedule.missed_run_policy)

    def _catch_up(self, until: int) -> bool:
        """Owe all occurrences up to an instant."""
        _owe(self.missed, self.at, until)
        self.at, self.skipping, self.search = until, None, None
        self._limit_catchup()
        if len(self.missed) > OWED_MAX:
            self.catchup_from = max(self.catchup_from, self.missed[-OWED_MAX].after + 1)
        return True

    def _limit_catchup(self) -> None:
        """Skip all missed occurrences but the newest ones. Until these are found, none of them starts."""
        count = self.schedule.max_catchup
        newest = self._newest(self.missed, self.at, count) if count else 0
        if newest is not None:
            self.catchup_from, self.search = max(self.catchup_from, newest), None

    def _newest(self, queue: list[Owed], until: int, count: int) -> int | None:
        """The first of the newest `count` occurrences up to an instant, or 0 if there are fewer; None if the next answer has
        to continue the search."""
        search = self.search
        if search is None or search.until != until:
            search = Search(until, until + 1, count)
        at, left = search.at, search.left
        for owed in reversed(queue):
            at = min(at, owed.until + 1)
            while left and self.ticks_left > 0:
                tick = self.grids.before(owed, at)
                if tick is None:
                    break
                at = tick.at
                grid = self.grids.of(owed)
                left -= grid.fires(tick)
                self.ticks_left -= grid.cost
        if left and self.ticks_left > 0:
            at, left = 0, 0
        self.search = Search(until, at, left)
        return None if left else at

    def _regular(self, tick: Tick) -> bool:
        self._start_owed()  # older occurrences go first
        if self.fires_left <= 0:
            return False
        if self._has_room:
            self._fire(tick, is_catchup=False)
            self.skipping = None
        elif self.schedule.overlap == "skip" or (self.schedule.overlap == "buffer_one" and self.waiting):
            if self.fires and not self.fires[-1].is_catchup:
                # The engine is late: the previous occurrence starts only now. Whether its run is still open when this occurrence is
                # decided is known at the next call.
                self.fires_left = 0
                return False
            self.held_until = self._held_until(tick)
            return self.held_until is None and self._skip(tick, "overlap", tick.at)
        else:
            if self.schedule.overlap == "cancel_previous" and not self._has_dropped_waiting():
                return False
            _owe(self.waiting, self.at, tick.at)
            self.skipping = None
        self.at = tick.at
        return True

    def _held_until(self, tick: Tick) -> int | None:
        """How long a late occurrence waits for the run before it, if that began late too, after the occurrence was due: until the
        next one may be due. Had the engine been in time, that run might have ended. None if it has ended."""
        if self.newest is None or self.newest <= tick.at + jitter_ms(self.schedule, tick.at):
            return None
        following = self.grid.after(self.newest - self.schedule.jitter_ms)
        return following.at if following is not None and following.at > self.now else None

    @property
    def _has_room(self) -> bool:
        return not self.schedule.run_limit or self.open < self.schedule.run_limit

    def _fire(self, tick: Tick, *, is_catchup: bool, is_backfill: bool = False) -> None:
        self.total += 1
        self.run_count += 1
        self.open += 1
        self.catchups += is_catchup
        self.fires_left -= 1
        self.fires.append(
            Fire(tick.at, is_catchup, self.run_count, self.total, tick.shifted_from, is_backfill)
        )

    # --------------------------------------------------------------------------------------- owed occurrences

    def _start_owed(self) -> None:
        """Start missed occurrences, then waiting ones, as far as there is room; drop those that must not fire any
        more."""
        if self.is_paused:
            return
        while self.missed and not self.is_spent:
            tick = self.grids.first(self.missed[0])
            if tick is not None and tick.at < self.catchup_from:
                tick = self._drop_to(tick, self.catchup_from - 1)
            elif tick is not None and not self._is_dropped(self.missed[0], tick):
                if self.catchups or not self._has_room:
                    break
                self._fire(tick, is_catchup=True)
                self.dropping = None
            self._advance(self.missed, tick)
        while self.waiting and self._has_room and not self.is_spent:
            tick = self.grids.first(self.waiting[0])
            if tick is not None and not self._is_dropped(self.waiting[0], tick):
                if tick.at + jitter_ms(self.schedule, tick.at) > self.now:
                    return
                self._fire(tick, is_catchup=False)
                self.dropping = None
            self._advance(self.waiting, tick)

    def _start_backfills(self) -> None:
        """Start occurrences of backfills. One that does not fire is skipped without a row, because the ledger has one
        already."""
        while self.backfills and self._has_room and not self.is_spent:
            backfill = self.backfills[0]
            if backfill.not_before > self.now:
                return
            queue, not_before = list(backfill.owed), backfill.not_before
            tick = self.grids.first(queue[0])
            if tick is not None and self.grids.of(queue[0]).fires(tick):
                self._fire(tick, is_catchup=True, is_backfill=True)
                not_before = self.now + backfill.every_ms
            self._advance(queue, tick)
            left = Backfill(tuple(queue), backfill.every_ms, not_before)
            self.backfills[:1] = [left] if queue else []

    def _drop_to(self, tick: Tick, until: int) -> Tick:
        """Drop missed occurrences that are more than may be caught up; returns the last one."""
        owed = self.missed[0]
        more = self.grids.of(owed).stretch(tick.at, min(until, owed.until))
        self.dropping = self._row(self.dropping, tick, "max_catchup", more)
        return Tick(more.until) if more.ticks else tick

    def _is_dropped(self, owed: Owed, tick: Tick) -> bool:
        """Whether an occurrence that is owed must not fire."""
        if tick.fires and not self.grids.of(owed).is_excluded(tick):
            return False
        self.dropping = self._row(self.dropping, tick, "excluded" if tick.fires else "dst_gap")
        return True

    def _has_dropped_waiting(self) -> bool:
        """Skip occurrences that wait, because a newer one does; False if some are left to the next answer."""
        while self.waiting and not self.is_spent:
            tick = self.grids.first(self.waiting[0])
            if tick is not None and not self._is_dropped(self.waiting[0], tick):
                self.dropping = self._row(self.dropping, tick, "superseded")
            self._advance(self.waiting, tick)
        return not self.waiting

    def _advance(self, queue: list[Owed], tick: Tick | None) -> None:
        """One occurrence of a queue is decided, or its first entry has none left."""
        self.ticks_left -= self.grids.of(queue[0]).cost
        if tick is None or tick.at >= queue[0].until:
            queue.pop(0)
        else:
            queue[0] = msgspec.structs.replace(queue[0], after=tick.at)

    # ---------------------------------------------------------------------------------------------- the answer

    def _row(self, row: Skipped | None, tick: Tick, reason: Reason, more: Stretch = NOTHING) -> Skipped:
        row = Skipped.grown(row, reason, tick.at, max(tick.at, more.until), 1 + more.ticks)
        self.rows[row.first] = row
        return row

    def _cursor(self) -> Cursor:
        changed = Cursor(
            self.cursor.registered_at,
            self.at,
            self.cursor.revision,
            self.total,
            tuple(self.missed),
            tuple(self.waiting),
            self.catchup_from if self.missed else 0,
            self._pauses(),
            self.skipping,
            self.dropping,
            tuple(self.backfills),
            search=self._search(),
            earlier=self.cursor.earlier,
        )
        if changed == self.cursor:
            return self.cursor
        return needed(msgspec.structs.replace(changed, revision=self.cursor.revision + 1))

    def _search(self) -> Search | None:
        """The search that the next answer needs: for the last occurrence of an outage, or unfinished."""
        search = self.search
        return search if search is not None and (search.until > self.at or search.left) else None

    def _pauses(self) -> tuple[Pause, ...]:
        """The pauses that later occurrences can still fall into."""
        return tuple(pause for pause in self.cursor.pauses if pause.until is None or pause.until > self.at)

    def _at_once(self) -> int:
        """Not later than the next occurrence that is undecided: an outage before it still counts for it."""
        tick = self.grid.after(self.at)
        return self.now if tick is None else min(self.now, tick.at)

    def _next_at(self) -> int | None:
        if self.is_paused:
            return None
        times = [self._due_at(self._next_tick())]
        if self.waiting and self._has_room:
            times.append(self._due_at(self.grids.first(self.waiting[0])))
        if self.backfills and self._has_room:
            times.append(self.backfills[0].not_before)
        return min((at for at in times if at is not None), default=None)

    def _next_tick(self) -> Tick | None:
        """The next occurrence that fires. If very many before it are excluded, a time at which to decide on some of these: it
        must not be late because they all have to be decided first."""
        first, tick = self.grid.after(self.at), self.grid.fire_after(self.at)
        if first is None or tick is None or first.at == tick.at:
            return tick
        second = self.grid.after(first.at)
        between = tick.at - first.at if second is None else second.at - first.at
        on_the_way = (
            first.at + EXAMINED_MAX // 2 // self.grid.cost * between
        )  # one answer can decide on these
        return Tick(on_the_way) if on_the_way < tick.at else tick

    def _due_at(self, tick: Tick | None) -> int | None:
        return None if tick is None else tick.at + jitter_ms(self.schedule, tick.at)

    def _cancels_oldest(self) -> bool:
        """Catch-up runs are not cancelled: no missed occurrence may be lost."""
        is_next = bool(self.waiting) and not self.missed and not self.catchups
        return (
            is_next
            and self.schedule.overlap == "cancel_previous"
            and not self._has_room
            and not self.is_paused
        )


def _owe(queue: list[Owed], after: int, until: int) -> None:
    """Add occurrences to a queue; those that follow its end extend the last entry."""
    if queue and queue[-1].until == after and not queue[-1].grid:
        queue[-1] = Owed(queue[-1].after, until)
    else:
        queue.append(Owed(after, until))
