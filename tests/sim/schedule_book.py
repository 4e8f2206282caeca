"""What must be true of schedules with a clock: I16 to I22, from commits as they happen and from the ledger in the end.

    Wake     an engine that came up, or a clock that jumped: since when none may have been awake, and until when
    Book     one schedule: its definitions, the commits about it, and what the ledger says of each of its occurrences

The occurrences themselves are counted by schedule_grids.py. Where the world cannot know exactly when a process last read its
clock, a fact is demanded only if it is certain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec

from holdfast.store.schedule_records import LedgerEntry
from tests.sim.checkers import hold
from tests.sim.schedule_grids import Shape

FOREVER: Final = 1 << 60
READ_MS: Final = 1_100  # the clock of an engine that waits for something is read every second


@dataclass
class Wake:
    """Nobody was awake after `asleep`, at the latest; somebody was at `woke`, at the earliest. `order` counts commits."""

    asleep_from: int  # at the earliest
    asleep: int
    woke: int
    order: int
    is_certain: bool
    woken: int = FOREVER  # at the latest
    is_stored: bool = False
    at: float = 0.0  # in true time
    cursors: dict[str, int] = field(default_factory=dict)  # how far each schedule had come


@dataclass
class Fired:
    at: int
    is_catchup: bool
    is_backfill: bool
    wall: int  # as far as the wall clock had ever come
    order: int
    no: int


@dataclass
class Paused:
    since: int
    until: int | None
    is_owed: bool
    order: int  # when it was first durable
    above: int  # what was decided before it

    def has(self, at: int, early: int = 0) -> bool:
        is_within = self.since - early < at and (self.until is None or at <= self.until)
        return is_within and at > self.above


@dataclass
class Book:
    id: str
    shape: Shape
    fields: dict[str, Any]
    registered_at: int = -1
    at: int = -1  # the durable cursor
    revision: int = -1
    is_paused: bool = False
    owes: bool = False
    next_at: int | None = None
    parts: list[tuple[int, int, Shape]] = field(default_factory=list)  # (after, until] had this shape
    fired: dict[int, Fired] = field(default_factory=dict)
    rows: dict[int, LedgerEntry] = field(default_factory=dict)  # of stretches, by their first occurrence
    failed: set[int] = field(default_factory=set)
    pauses: dict[int, Paused] = field(default_factory=dict)  # by when they began
    was_edited: bool = False  # got another grid
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def jitter_ms(self) -> int:
        return 1_000 * int(self.fields["trigger"].get("jitter_secs", 0))

    @property
    def late_ms_max(self) -> int:
        return max(1_000 * int(self.fields["grace_secs"]), self.jitter_ms)

    @property
    def limit(self) -> int:
        return 0 if self.fields["overlap"] == "allow" else int(self.fields["max_concurrent"])

    def drawn_ms(self, at: int) -> int:
        digest = blake2b(f"{self.id}\0{at}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % (self.jitter_ms + 1)

    # ------------------------------------------------------------------------------------------------ commits

    def defined(self, shape: Shape, fields: dict[str, Any]) -> None:
        """A definition is durable. Another grid counts from where the cursor has come to."""
        if shape != self.shape:
            self.parts.append((self.parts[-1][1] if self.parts else self.registered_at, self.at, self.shape))
            self.was_edited = True
        self.shape, self.fields = shape, fields

    def moved(
        self, body: dict[str, Any], revision: int, next_at: int | None, *, owes: bool, order: int
    ) -> None:
        at = int(body["at"])
        hold(at >= self.at, "I19 the cursor moves forward", self.id, self.at, at)
        is_new = revision > self.revision or (revision == self.revision and at == self.at)
        hold(is_new, "a change of a cursor has its own revision", self.id, revision)
        if self.registered_at < 0:
            self.registered_at = int(body["registered_at"])
        hold(self.registered_at == body["registered_at"], "I19 a cursor is never begun anew", self.id)
        self.at, self.revision, self.next_at, self.owes = at, revision, next_at, owes
        pauses = [
            (one["since"], one.get("until"), one.get("is_owed", False)) for one in _list(body, "pauses")
        ]
        self.is_paused = any(until is None for _, until, _ in pauses)
        for pause in self.pauses.values():
            if pause.until is None:
                pause.until = (
                    pause.since
                )  # an edit while it lasts begins another one, and it is among them else
        for since, until, is_owed in pauses:
            first = self.pauses.get(since)
            begun = (order, at) if first is None else (first.order, first.above)
            self.pauses[since] = Paused(since, until, is_owed, *begun)

    def has(self, entry: LedgerEntry, order: int, wall: int) -> None:
        """A row of the ledger is durable."""
        if entry.until is not None:
            before = self.rows.get(entry.scheduled_at)
            hold(before is None or before.times <= entry.times, "a stretch only grows", self.id, entry)
            self.rows[entry.scheduled_at] = entry
        elif entry.reason == "manual":
            self.counts["started by hand"] += 1
        elif entry.outcome == "fired":
            self._has_fired(entry, order, wall)
        else:
            hold(entry.outcome == "failed", "an occurrence with a clock fires or fails", self.id, entry)
            self.failed.add(entry.scheduled_at)

    def _has_fired(self, entry: LedgerEntry, order: int, wall: int) -> None:
        at, is_backfill = int(entry.scheduled_at), entry.reason == "backfill"
        hold(at not in self.fired, "I16 one run per occurrence", self.id, at)
        hold(not self.is_paused, "nothing fires while its schedule is paused", self.id, at)
        assert entry.run is not None
        self.fired[at] = Fired(at, entry.is_catchup, is_backfill, wall, order, entry.run)
        early = 0 if entry.is_catchup else self.drawn_ms(at)
        hold(
            wall >= at + early, "I22 an occurrence fires at its time and its jitter", self.id, at, early, wall
        )
        self.counts["catch-up" if entry.is_catchup else "fired"] += 1

    # ---------------------------------------------------------------------------------------------- in the end

    def check(self, wakes: list[Wake], *, set_back: list[int]) -> int:
        """Raise Violation if a promise is broken; else gives the number of occurrences."""
        due = self._due()
        self._check_coverage(due)
        for one in self.fired.values():
            if not one.is_backfill:
                self._check_fired(one, wakes, set_back)
        self._check_missed_rows(due, wakes)
        self._check_catch_up(due, wakes, set_back)
        return len(due)

    def _due(self) -> dict[int, bool]:
        """Each occurrence up to the cursor, and whether it is to fire."""
        after = self.parts[-1][1] if self.parts else self.registered_at
        found: dict[int, bool] = {}
        for start, end, shape in (*self.parts, (after, self.at, self.shape)):
            found |= shape.between(start, end, self.registered_at)
        return found

    def _check_coverage(self, due: dict[int, bool]) -> None:
        regular = {at for at, one in self.fired.items() if not one.is_backfill}
        strange = [at for at in (regular | self.failed) - due.keys() if not self._is_on_grid(at)]
        hold(not strange, "I17 only occurrences of the grid fire", self.id, sorted(strange)[:3])
        requested = [at for at in self.fired.keys() - regular if not self._is_on_grid(at)]
        hold(not requested, "I17 a backfill fires occurrences of the grid", self.id, sorted(requested)[:3])
        barred = sorted(at for at in regular if not due[at])
        hold(not barred, "I20 nothing fires that is excluded or does not exist", self.id, barred[:3])
        skipped = sorted(due.keys() - regular - self.failed)
        total = sum(row.times for row in self.rows.values())
        hold(total == len(skipped), "I18 the ledger has each occurrence once", self.id, total, len(skipped))
        spans = sorted((int(row.scheduled_at), int(row.until or 0)) for row in self.rows.values())
        bare = _outside(skipped, spans)
        hold(not bare, "I18 every occurrence that was skipped lies in a row", self.id, bare[:3])
        edges = (int(at) for row in self.rows.values() for at in (row.scheduled_at, row.until or 0))
        unfit = sorted(at for at in edges if at not in due)
        hold(not unfit, "a row begins and ends with occurrences", self.id, unfit[:3])
        barred_rows = sum(row.times for row in self.rows.values() if row.reason in ("excluded", "dst_gap"))
        hold(
            barred_rows <= sum(not fires for fires in due.values()),
            "I20 only what is excluded is so",
            self.id,
        )

    def _is_on_grid(self, at: int) -> bool:
        """Of one of its definitions: a backfill may ask for a time before the schedule was registered."""
        shapes = [shape for _, _, shape in self.parts]
        return any(shape.between(at - 1, at, self.registered_at) for shape in (*shapes, self.shape))

    def _check_fired(self, one: Fired, wakes: list[Wake], set_back: list[int]) -> None:
        if not one.is_catchup:
            within = [
                pause for pause in self.pauses.values() if pause.order < one.order and pause.has(one.at)
            ]
            hold(not within, "what was due in a pause fires as catch-up only", self.id, one, within)
            missed = [wake for wake in wakes if self._was_missed(wake, one.at, one.order, set_back)]
            hold(not missed, "I18 a missed occurrence fires as catch-up only", self.id, one, missed[:1])
            return
        is_owed = any(pause.is_owed and pause.has(one.at, self.jitter_ms) for pause in self.pauses.values())
        possible = any(self._may_be_missed(wake, one.at) for wake in wakes)
        hold(is_owed or possible, "S4.11 only what was missed is caught up", self.id, one.at)
        policy = self.fields["missed_run_policy"]
        hold(is_owed or policy != "skip", "I18 skip catches nothing up", self.id, one.at)

    def _was_missed(self, wake: Wake, at: int, order: int, set_back: list[int]) -> bool:
        """Certainly: it was due while nobody was awake, and nothing was decided about it before somebody was."""
        if not wake.is_certain or wake.order > order or any(wake.order <= back <= order for back in set_back):
            return False
        is_undecided = self.id in wake.cursors and wake.cursors[self.id] < at
        return is_undecided and wake.asleep < at < wake.woke - self.late_ms_max

    def _may_be_missed(self, wake: Wake, at: int) -> bool:
        return wake.asleep_from - self.jitter_ms < at < wake.woken - self.late_ms_max

    def _check_missed_rows(self, due: dict[int, bool], wakes: list[Wake]) -> None:
        """Load alone, however long, never makes an occurrence missed."""
        for row in self.rows.values():
            if row.reason != "missed":
                continue
            for at in (int(row.scheduled_at), int(row.until or row.scheduled_at)):
                possible = any(self._may_be_missed(wake, at) for wake in wakes)
                hold(possible, "S4.11 only what nobody was awake for is missed", self.id, at)

    def _check_catch_up(self, due: dict[int, bool], wakes: list[Wake], set_back: list[int]) -> None:
        policy, most = self.fields["missed_run_policy"], self.fields["max_catchup"]
        caught = sorted(
            (one for one in self.fired.values() if one.is_catchup and not one.is_backfill),
            key=lambda one: one.order,
        )
        instants = [one.at for one in caught]
        hold(instants == sorted(instants), "I17 catch-up is ascending", self.id, instants[:9])
        dropped = [row for row in self.rows.values() if row.reason == "max_catchup"]
        for row in dropped:
            hold(any(at > (row.until or 0) for at in instants), "I17 the newest are caught up", self.id, row)
        for wake in wakes:
            missed = [
                at
                for at in self._in(wake, due)
                if due[at] and self._was_missed(wake, at, FOREVER, set_back) and not self._is_paused_at(at)
            ]
            if policy == "run_all" and most == 0 and not self.was_edited:
                lost = [at for at in missed if at not in self.fired]
                hold(not lost, "I17 run_all catches everything up", self.id, lost[:3], wake)
            if policy == "run_once":
                hold(sum(at in instants for at in missed) <= 1, "I18 run_once catches up once", self.id, wake)
                if wake.is_stored and missed and not self.was_edited and not self._is_unsure(wake, due):
                    self._check_latest(missed[-1], wake, instants)

    def _check_latest(self, latest: int, wake: Wake, caught: list[int]) -> None:
        """Of outages that follow each other while no run can begin, the newest `max_catchup` are caught up, each once."""
        most = self.fields["max_catchup"]
        is_dropped = latest not in self.fired and any(
            row.reason == "max_catchup" and row.scheduled_at <= latest <= (row.until or 0)
            for row in self.rows.values()
        )
        has_newer = most > 0 and sum(at > latest for at in caught) >= most
        is_kept = latest in self.fired or (is_dropped and has_newer)
        hold(is_kept, "I18 run_once catches up the latest", self.id, latest, wake)

    def _in(self, wake: Wake, due: dict[int, bool]) -> list[int]:
        return [at for at in due if wake.asleep < at < wake.woke - self.late_ms_max]

    def _is_unsure(self, wake: Wake, due: dict[int, bool]) -> bool:
        """Whether an occurrence may belong to the outage or not, or a pause cuts it in two."""
        late = self.late_ms_max
        edge = any(wake.woke - late <= at <= wake.woken - late for at in due)
        return edge or bool(self.pauses)

    def _is_paused_at(self, at: int) -> bool:
        return any(pause.has(at, self.jitter_ms) for pause in self.pauses.values())


def _outside(instants: list[int], spans: list[tuple[int, int]]) -> list[int]:
    found, index, reach = [], 0, -1
    for at in instants:
        while index < len(spans) and spans[index][0] <= at:
            reach, index = max(reach, spans[index][1]), index + 1
        if at > reach:
            found.append(at)
    return found


def _list(body: dict[str, Any], name: str) -> list[Any]:
    return list(body.get(name, ()))


def decoded(text: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
