"""`due` under a seeded driver: crashes, suspended machines, clocks that jump, pauses, edits, long runs, and two nodes at once.

    Disk     what is durable: definition, cursor, ledger, runs, outages
    World    time, chance and faults; it models the protocol that due.py describes, commit by commit
    checked  what must be true of the ledger and the runs in the end, worked out apart from `due`

Grids are multiples of a step, so that the checkers can list them by counting. All times are milliseconds.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Final

import msgspec

from holdfast.schedule import control
from holdfast.schedule import due as deciding
from holdfast.schedule.records import Cursor, Due, Outage, Pause, Running, Schedule, Skipped
from holdfast.schedule.timing import Timing
from holdfast.spec.moments import parse_moment
from holdfast.spec.triggers import Exclude, Overlap

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
EPOCH: Final = 1_767_225_600_000  # 2026-01-01
EXCLUDED_DAY: Final = EPOCH + DAY
TURNS_MAX: Final = 60_000  # more is a livelock

# The text of a grid, and its step; each begins at a whole minute.
GRIDS: Final = {
    "*/10 * * * * *": 10 * SECOND,
    "*/30 * * * * *": 30 * SECOND,
    "0 * * * * *": MINUTE,
    "0 */5 * * * *": 5 * MINUTE,
    "0 0 * * * *": HOUR,
}


OVERLAPS: Final[tuple[Overlap, ...]] = (
    "skip",
    "skip",
    "buffer_one",
    "buffer_all",
    "cancel_previous",
    "allow",
)


class Violation(AssertionError):
    """An invariant does not hold."""


def hold(fact: bool, invariant: str, *about: object) -> None:
    if not fact:
        raise Violation(f"{invariant}: {about}")


@dataclass
class Noted:
    """An outage or a pause, and the occurrences that it can have a say in: those decided while it was known."""

    what: Outage | Pause
    above: int
    upto: int = 1 << 60


@dataclass
class Run:
    at: int
    is_catchup: bool
    started: int  # by the wall clock, where it had come furthest
    order: int
    ends: int  # in true time


@dataclass
class Disk:
    schedule: Schedule
    cursor: Cursor
    last_seen: int
    outages: list[Outage] = field(default_factory=list)
    runs: dict[int, Run] = field(default_factory=dict)
    open: dict[int, Run] = field(default_factory=dict)
    rows: dict[int, Skipped] = field(default_factory=dict)

    @property
    def running(self) -> Running:
        return Running(len(self.open), sum(run.is_catchup for run in self.open.values()))


class World:
    """One schedule. Faults and policies follow from the seed."""

    # Planted bugs turn these on.
    commits_cursor_first = False
    commits_runs_first = False
    counts_runs_in_memory = False
    ignores_revision = False
    forgets_outages = False
    edit_resets_cursor = False

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.true, self.skew = EPOCH + rng.randrange(DAY), 0
        self.is_up, self.frozen_until, self.timer = True, 0, self.true
        text = rng.choice(list(GRIDS))
        self.step = GRIDS[text]
        self.pace = self.step * 4  # of faults and runs, so that each meets a few occurrences
        self.excludes = rng.random() < 0.3
        self.policy = self._policy()
        plan = self._schedule(text)
        self.disk = Disk(plan, control.registered(self.now), self.now)
        self.grids = [(self.now, self.step)]  # each from where on, and its step
        self.all_outages: list[Noted] = []
        self.all_pauses: dict[int, Noted] = {}
        self.memory = 0  # runs that this process has begun and not ended
        self.plans: list[tuple[int, int, str]] = []
        self.turns = self.commits = 0
        self.is_settling, self.races = False, 0
        # that the wall clock has ever shown; what was due once stays so when it is set back
        self.latest = self.now
        self._plan_faults()

    @property
    def now(self) -> int:
        return self.true + self.skew

    def _policy(self) -> Schedule:
        rng = self.rng
        overlap: Overlap = rng.choice(OVERLAPS)
        return Schedule(
            "nightly",
            Timing(),
            overlap=overlap,
            max_concurrent=1 if overlap == "allow" else rng.choice((1, 1, 1, 2, 3, 0)),
            missed_run_policy=rng.choice(("skip", "run_once", "run_all", "run_all")),
            max_catchup=rng.choice((0, 3, 20, 1_000)),
            jitter_ms=rng.choice((0, 0, self.step // 3, self.step * 3)),
            grace_ms=rng.choice((0, self.step // 2, self.step * 5)),
        )

    def _schedule(self, text: str) -> Schedule:
        day = parse_moment("2026-01-02")
        assert day is not None
        exclude = Exclude(dates=(day,)) if self.excludes else Exclude()
        return msgspec.structs.replace(self.policy, timing=Timing((text,), exclude=exclude))

    def _plan_faults(self) -> None:
        rng, at = self.rng, self.true
        kinds = (
            "crash",
            "suspend",
            "jump",
            "pause",
            "edit",
            "crash in commit",
            "race",
            "load",
            "crash twice",
        )
        chosen = rng.sample(kinds, rng.randint(1, len(kinds)))
        for _ in range(rng.randint(5, 60)):
            at += round(rng.expovariate(1 / (self.pace * 6)))
            heapq.heappush(self.plans, (at, rng.randrange(1 << 30), rng.choice(chosen)))
        self.end = at + self.pace * 10

    # --------------------------------------------------------------------------------------------- the driver

    def run(self) -> None:
        while self.true < self.end:
            self._turn()
        self._settle()

    def _turn(self) -> None:
        self.turns += 1
        hold(self.turns < TURNS_MAX, "liveness", "the world does not come to an end")
        self.true = max(self.true, min(self._next_moment(), self.end))
        if self.plans and self.plans[0][0] <= self.true:
            getattr(self, "_" + heapq.heappop(self.plans)[2].replace(" ", "_"))()
        if self.is_up and self.true >= self.frozen_until:
            self.disk.last_seen = max(self.disk.last_seen, self.now)
            if self._end_runs() or self.now >= self.timer:
                self.ask()

    def _next_moment(self) -> int:
        times = [self.plans[0][0]] if self.plans else [self.end]
        if self.is_up:
            times += [max(self.timer - self.skew, self.frozen_until)]
            times += [max(run.ends, self.frozen_until) for run in self.disk.open.values()]
        return max(min(times), self.true + 1)

    def _end_runs(self) -> bool:
        ended = [run for run in self.disk.open.values() if run.ends <= self.true]
        for run in ended:
            del self.disk.open[run.at]
            self.memory = max(self.memory - 1, 0)
        return bool(ended)

    def ask(self) -> None:
        while self.is_up:
            seen = self.disk.cursor
            answer = self._answer(self.disk.schedule, seen)
            other = self._answer(self.disk.schedule, seen) if self.races > 0 else None
            self.races -= 1
            self._commit(answer, seen)
            if other is not None:
                self._commit(other, seen)
            if not self.is_up:
                return
            self.timer = self.now + 10 * DAY if answer.next_at is None else answer.next_at
            if answer.cancels_oldest:
                self._cancel_oldest()
            if not answer.is_cut:
                return

    def _answer(self, plan: Schedule, cursor: Cursor) -> Due:
        outages = tuple(self.disk.outages)
        return deciding.due(
            plan, cursor, self._running(), self.now, self.rng.choice((1, 2, 100)), outages=outages
        )

    def _running(self) -> Running:
        running = self.disk.running
        return (
            Running(self.memory, min(running.catchups, self.memory))
            if self.counts_runs_in_memory
            else running
        )

    def _commit(self, answer: Due, seen: Cursor, plan: Schedule | None = None) -> bool:
        """All or nothing, if the cursor is still the one that was read."""
        if seen.revision != self.disk.cursor.revision and not self.ignores_revision:
            return False
        if answer.cursor == seen:
            hold(not answer.fires and not answer.skipped, "what is decided moves the cursor", answer)
            self.disk.schedule = plan or self.disk.schedule
            return True
        hold(
            answer.cursor.revision == seen.revision + 1,
            "a change has a revision of its own",
            seen,
            answer.cursor,
        )
        self.commits += 1
        hold(
            answer.cursor.at >= self.disk.cursor.at,
            "I19 the cursor moves forward",
            self.disk.cursor,
            answer.cursor,
        )
        is_paused = any(pause.until is None for pause in self.disk.cursor.pauses)
        hold(not (is_paused and answer.fires), "nothing fires while the schedule is paused", answer.fires[:1])
        if self.commits_cursor_first and self.rng.random() < 0.05:
            self.disk.cursor = answer.cursor
            self._go_down()
            return False
        self._write(answer)
        if self.commits_runs_first and self.rng.random() < 0.05:
            self._go_down()
            return False
        self.disk.cursor = answer.cursor
        self.disk.schedule = plan or self.disk.schedule
        self.disk.outages = [outage for outage in self.disk.outages if outage.woke_at > answer.cursor.at]
        return True

    def _write(self, answer: Due) -> None:
        for row in answer.skipped:
            self.disk.rows[row.first] = row
        for fire in answer.fires:
            hold(fire.at not in self.disk.runs, "I16 at most one run per occurrence", fire)
            busy = self.disk.running.catchups
            hold(not (fire.is_catchup and busy), "I17 catch-up is serial", fire)
            ends = (
                self.true + 1 + (0 if self.is_settling else round(self.rng.expovariate(1 / (self.pace / 4))))
            )
            order = len(self.disk.runs) + 1
            hold(fire.total_run_count == order, "total_run_count counts every run", fire)
            self.latest = max(self.latest, self.now)
            run = Run(fire.at, fire.is_catchup, self.latest, order, ends)
            self.disk.runs[fire.at] = self.disk.open[fire.at] = run
            self.memory += 1
        limit = self.disk.schedule.run_limit
        hold(
            not limit or self.disk.running.open <= limit,
            "I21 open runs stay within the limit",
            self.disk.running,
        )

    def _cancel_oldest(self) -> None:
        oldest = min(self.disk.open.values(), key=lambda run: run.order)
        hold(not oldest.is_catchup, "I17 no catch-up run is cancelled", oldest)
        oldest.ends = min(oldest.ends, self.true + SECOND)

    # ---------------------------------------------------------------------------------------------- the faults

    def _crash(self) -> None:
        self._go_down()

    def _crash_in_commit(self) -> None:
        """Down after the answer and before its commit: nothing of it is durable."""
        if self.is_up:
            self._answer(self.disk.schedule, self.disk.cursor)
            self._go_down()

    def _crash_twice(self) -> None:
        """The process that wakes first notes the outage and dies before it asks anything."""
        self._go_down()
        self._rest(self.pace)
        self._note_outage()
        self.disk.last_seen = max(self.disk.last_seen, self.now)
        if self.forgets_outages:
            self.disk.outages.clear()

    def _go_down(self) -> None:
        if self.is_up:
            self.is_up, self.memory = False, 0
            self.disk.last_seen = max(self.disk.last_seen, self.now - self.rng.randrange(5 * SECOND))
            heapq.heappush(self.plans, (self.true + self._length(), self.rng.randrange(1 << 30), "restart"))

    def _restart(self) -> None:
        if not self.is_up:
            self.is_up = True
            self._note_outage()
            self.ask()

    def _note_outage(self) -> None:
        self._cut_outages()
        outage = Outage(self.disk.last_seen, self.now)
        if outage.woke_at > outage.asleep_from:
            self.disk.outages.append(outage)
            self.all_outages.append(Noted(outage, self.disk.cursor.at))

    def _cut_outages(self) -> None:
        """After the clock was set back, an outage that ends in the future says nothing about the time to come."""
        for outage in list(self.disk.outages):
            if outage.woke_at > self.now:
                cut = Outage(outage.asleep_from, self.now)
                self.disk.outages[self.disk.outages.index(outage)] = cut
                for noted in [noted for noted in self.all_outages if noted.what == outage]:
                    noted.upto = self.disk.cursor.at
                self.all_outages.append(Noted(cut, self.disk.cursor.at))

    def _suspend(self) -> None:
        """The machine sleeps: the process finds that the wall clock has run and its own has not."""
        if self.is_up:
            asleep = self.now
            self._rest(self._length())
            self.disk.last_seen = asleep
            self._note_outage()
            self.disk.last_seen = self.now
            self.ask()

    def _jump(self) -> None:
        before = self.now
        self.latest = max(self.latest, before)
        self.skew += self.rng.choice((-1, 1)) * self._length()
        if self.is_up:
            self._cut_outages()
            if self.now > before:
                self.disk.last_seen = before
                self._note_outage()
            self.disk.last_seen = self.now
            self.ask()

    def _load(self) -> None:
        """The process is busy; it comes to what is due later, and nothing was missed."""
        if self.is_up:
            self.frozen_until = self.true + self._length()

    def _race(self) -> None:
        """For a while two nodes ask at once with the same cursor, and both try to commit."""
        self.races = 10

    def _pause(self) -> None:
        if not self.is_up:
            return
        self.ask()
        cursor = control.paused(self.disk.cursor, self.now)
        if cursor != self.disk.cursor:
            self.disk.cursor = cursor
            self._remember_pauses()
            heapq.heappush(self.plans, (self.true + self._length(), self.rng.randrange(1 << 30), "resume"))
            self.ask()

    def _resume(self) -> None:
        if not self.is_up:
            heapq.heappush(self.plans, (self.true + self.pace, self.rng.randrange(1 << 30), "resume"))
            return
        self.disk.cursor = control.resumed(self.disk.cursor, self.now, missed=self.rng.random() < 0.5)
        self._remember_pauses()
        self.ask()

    def _remember_pauses(self) -> None:
        for pause in self.disk.cursor.pauses:
            noted = self.all_pauses.setdefault(pause.since, Noted(pause, self.disk.cursor.at))
            noted.what = pause

    def _edit(self) -> None:
        """The schedule gets another grid, or the same one with other words about something else."""
        if not self.is_up:
            return
        old, text = (
            self.disk.schedule,
            self.rng.choice([text for text, step in GRIDS.items() if step * 6 >= self.step]),
        )
        new = self._schedule(text)
        while self.is_up:
            seen = self.disk.cursor
            answer = control.replaced(
                old, new, seen, self._running(), self.now, outages=tuple(self.disk.outages)
            )
            for pause in answer.cursor.pauses:
                self.all_pauses.setdefault(pause.since, Noted(pause, seen.at)).what = pause
            if self.edit_resets_cursor:
                fresh = control.registered(max(self.now, seen.at))
                count = {"revision": seen.revision + 1, "total_run_count": seen.total_run_count}
                answer = Due(msgspec.structs.replace(fresh, **count))
            committed = self._commit(answer, seen, None if answer.is_cut else new)
            if committed and not answer.is_cut:
                if old.timing != new.timing:
                    self.grids.append((self.disk.cursor.at, GRIDS[text]))
                self.ask()
                return

    def _length(self) -> int:
        return round(self.rng.choice((0.1, 1, 4)) * self.rng.expovariate(1 / self.pace)) + 1

    def _rest(self, length: int) -> None:
        """Time passes for everyone but the process. Runs go on elsewhere, or later; here they end no earlier than the rest."""
        self.true += length

    def _settle(self) -> None:
        """No more faults: everything that is due is decided, and what is owed is started."""
        self.plans.clear()
        self.is_settling, self.frozen_until = True, 0
        if not self.is_up:
            self._restart()
        self.is_up = True
        if any(pause.until is None for pause in self.disk.cursor.pauses):
            self._resume()
        if self.now < self.disk.cursor.at:
            self.skew += self.disk.cursor.at - self.now  # a clock that was set back has caught up
        self.ask()
        while self.disk.cursor.missed or self.disk.cursor.waiting or self.disk.running.open:
            self.turns += 1
            hold(self.turns < TURNS_MAX, "liveness", self.disk.cursor)
            ends = [run.ends for run in self.disk.open.values()] or [self.timer - self.skew]
            self.true = max(self.true + 1, min(ends))
            self._end_runs()
            self.ask()


# ------------------------------------------------------------------------------------------------- the checkers


def occurrences(world: World) -> Iterator[int]:
    """Every occurrence that the ledger must cover, by counting."""
    bounds = [*(start for start, _ in world.grids), world.disk.cursor.at]
    for (start, end), (_, step) in zip(pairwise(bounds), world.grids, strict=True):
        yield from range(start // step * step + step, end + 1, step)


def checked(world: World) -> int:
    """Raise Violation if the ledger and the runs break a promise; else say how many occurrences there were."""
    expected = set(occurrences(world))
    fired = set(world.disk.runs)
    hold(fired <= expected, "I17 only occurrences of the grid fire", sorted(fired - expected)[:3])
    _check_ledger(world, expected, fired)
    for run in world.disk.runs.values():
        _check_run(world, run)
    _check_catch_up(world, sorted(expected))
    return len(expected)


def _check_ledger(world: World, expected: set[int], fired: set[int]) -> None:
    """I18: every due occurrence has fired or is part of a row."""
    rows = list(world.disk.rows.values())
    skipped = expected - fired
    total = sum(row.count for row in rows)
    hold(total == len(skipped), "I18 the ledger covers every occurrence once", total, len(skipped))
    covered = _merged([(row.first, row.last) for row in rows])
    starts = [first for first, _ in covered]
    bare = [at for at in skipped if not (i := bisect_right(starts, at)) or at > covered[i - 1][1]]
    hold(not bare, "I18 every skipped occurrence lies in a row", bare[:3])
    overlaps = [row for row in rows if row.reason == "overlap"]
    hold(
        not overlaps or world.policy.overlap in ("skip", "buffer_one"),
        "overlap is skipped only if it may",
        overlaps[:1],
    )
    excluded = sum(row.count for row in rows if row.reason == "excluded")
    wanted = sum(EXCLUDED_DAY <= at < EXCLUDED_DAY + DAY for at in expected) if world.excludes else 0
    hold(excluded <= wanted, "only what is excluded is skipped as such", excluded, wanted)


def _check_run(world: World, run: Run) -> None:
    plan = world.policy
    hold(run.started >= run.at, "no run starts before its time", run)
    if world.excludes:
        hold(not EXCLUDED_DAY <= run.at < EXCLUDED_DAY + DAY, "no excluded occurrence fires", run)
    pause, missed = _pause_of(world, run.at), _outage_of(world, run.at)
    if not run.is_catchup:
        hold(missed is None, "I18 a missed occurrence fires as catch-up only", run, missed)
        hold(pause is None, "a paused occurrence fires as catch-up only", run, pause)
        drawn = int.from_bytes(blake2b(f"nightly\0{run.at}".encode(), digest_size=8).digest()) % (
            plan.jitter_ms + 1
        )
        hold(run.started >= run.at + drawn, "I22 jitter is a hash of schedule and occurrence", run, drawn)
        return
    is_owed = pause is not None and pause.is_owed
    hold(is_owed or missed is not None, "I17 only what was missed is caught up", run, pause)
    hold(is_owed or plan.missed_run_policy != "skip", "I18 skip catches nothing up", run)


def _check_catch_up(world: World, expected: list[int]) -> None:
    plan, runs = world.policy, world.disk.runs
    catchups = [run for run in runs.values() if run.is_catchup]
    in_order = sorted(catchups, key=lambda run: run.order)
    hold([run.at for run in in_order] == sorted(run.at for run in catchups), "I17 catch-up is ascending")
    missed = [
        at
        for at in expected
        if _outage_of(world, at) and not _pause_of(world, at) and not _is_excluded(world, at)
    ]
    if plan.missed_run_policy == "run_all" and plan.max_catchup == 0:
        hold(
            all(at in runs for at in missed),
            "I17 run_all catches everything up",
            [at for at in missed if at not in runs][:3],
        )
    if plan.missed_run_policy == "run_once":
        groups: dict[Outage | None, list[int]] = {}
        for at in missed:
            groups.setdefault(_outage_of(world, at), []).append(at)
        for outage, mine in groups.items():
            caught = [at for at in mine if at in runs]
            hold(len(caught) <= 1, "I18 run_once catches up once per outage", outage, caught)
            hold(
                not caught or len(world.grids) > 1 or caught == mine[-1:],
                "I18 run_once catches up the latest",
                outage,
            )
    if plan.max_catchup:
        _check_newest(world, in_order)


def _check_newest(world: World, catchups: list[Run]) -> None:
    """I17: what exceeds max_catchup is older than what was caught up after it."""
    dropped = [row for row in world.disk.rows.values() if row.reason == "max_catchup"]
    for row in dropped:
        newer = [run for run in catchups if run.at > row.last]
        hold(bool(newer), "I17 the newest are caught up", row)


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _is_excluded(world: World, at: int) -> bool:
    return world.excludes and EXCLUDED_DAY <= at < EXCLUDED_DAY + DAY


def _outage_of(world: World, at: int) -> Outage | None:
    early = world.policy.jitter_ms
    grace = max(world.policy.grace_ms, early)
    for noted in world.all_outages:
        if noted.above < at <= noted.upto:
            outage = noted.what
            assert isinstance(outage, Outage)
            if outage.asleep_from - early < at < outage.woke_at - grace:
                return outage
    return None


def _pause_of(world: World, at: int) -> Pause | None:
    for noted in world.all_pauses.values():
        pause = noted.what
        assert isinstance(pause, Pause)
        if noted.above < at and pause.since - world.policy.jitter_ms < at <= (pause.until or 0):
            return pause
    return None
