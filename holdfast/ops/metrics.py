"""Counters, gauges and histograms of the engine, in the Prometheus text format.

    commit  ──► Metrics._committed: counts the rows of each commit
    request ──► Metrics.text: the counts, and what is open, queued and alive now

Nothing is counted per step: what a commit adds is put on lists, which the C loops of `Counter` count once they are long or asked for.
Histograms sort numbers into buckets then. Labels are bounded: workflows beyond the first hundred are `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast import limits
from holdfast.deliveries.outbox import Outbox
from holdfast.engine.events import StepFailed, StepSucceeded
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.entries import Entry
from holdfast.runtime.wakes import Wakes
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import OpenWait, RunChange
from holdfast.triggers.tally import LATE_SECS, Tally
from holdfast.values import OPEN, TERMINAL, Millis, RunNo
from holdfast.views.all_events import History

WORKFLOW_CHARS_MAX: Final = 100
GATHERED_MAX: Final = 1_000  # entries of a list before they are counted
LOOKED_AT_MAX: Final = 20_000  # runs that one pass checks for orphans; the next pass continues from there
OTHER: Final = "other"
MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"

STEP_SECS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0)
RUN_SECS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3600.0, 86_400.0, 604_800.0)
COMMIT_SECS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
COMMIT_ROWS: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0)
REQUEST_SECS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0)

WAIT_KINDS: Final = ("approval", "callback", "condition", "key", "signal")
DELIVERY_OUTCOMES: Final = ("delivered", "failed", "dead", "replayed", "discarded")

_SUCCESSES: Final = (tuple, StepSucceeded)  # a PlainRow is a tuple
_kind, _seq, _ending = itemgetter(4), itemgetter(1), attrgetter("kind", "outcome")

Label = TypeVar("Label")


class Counts(Generic[Label]):
    """How often each label was seen. To put one on a list is the cheapest way of counting it."""

    __slots__ = ("_counts", "_gathered")

    def __init__(self) -> None:
        self._counts: Counter[Label] = Counter()
        self._gathered: list[Label] = []

    def add_all(self, labels: Iterable[Label]) -> None:
        self._gathered += labels
        if len(self._gathered) > GATHERED_MAX:
            self.shown()

    def shown(self) -> Counter[Label]:
        self._counts.update(self._gathered)
        self._gathered.clear()
        return self._counts


class Histogram:
    """Numbers in buckets. Equal numbers are counted first, because finding the bucket is the expensive part."""

    __slots__ = ("_buckets", "_gathered", "_scale", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float], *, scale: float = 1.0) -> None:
        self.bounds, self._scale = (
            bounds,
            scale,
        )  # numbers are divided by it: milliseconds are whole and often equal
        self._buckets = [0] * (len(bounds) + 1)
        self._gathered: list[float] = []
        self._sum = 0.0

    def add(self, number: float) -> None:
        self._gathered.append(number)
        if len(self._gathered) > GATHERED_MAX:
            self._take_up()

    def add_all(self, numbers: Iterable[float]) -> None:
        self._gathered += numbers
        if len(self._gathered) > GATHERED_MAX:
            self._take_up()

    def shown(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative buckets and the sum."""
        self._take_up()
        return _cumulative(self.bounds, self._buckets), self._sum

    def _take_up(self) -> None:
        for number, count in Counter(self._gathered).items():
            value = number / self._scale
            self._buckets[bisect_left(self.bounds, value)] += count
            self._sum += value * count
        self._gathered.clear()


class Metrics:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        door: Door,
        dispatch: Dispatch,
        outbox: Outbox,
        wakes: Wakes,
        tally: Tally,
    ) -> None:
        self._store, self._clock, self._door = store, clock, door
        self._dispatch, self._outbox, self._tally = dispatch, outbox, tally
        self._kinds = Counts[str]()
        self._started = Counts[str]()
        self._finished: Counter[tuple[str, str]] = Counter()
        self._workflows: set[str] = set()
        self._step_secs = Histogram(STEP_SECS, scale=1000)
        self._run_secs = Histogram(RUN_SECS, scale=1000)
        self._first_step_secs = Histogram(STEP_SECS, scale=1000)
        self._commit_secs = Histogram(COMMIT_SECS, scale=100_000)
        self._commit_rows = Histogram(COMMIT_ROWS)
        self._requests: dict[tuple[str, str, int], Histogram] = {}
        self._waits_ended: Counter[tuple[str, str]] = Counter()
        self._callback_deliveries = 0
        self._open_waits = OpenWaits(store)
        self._orphans = Orphans(store, door, wakes)
        door.watchers.append(self._committed)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request. `route` is a template, so the number of labels is bounded; unknown methods count as one."""
        key = (method, route, status) if route else (OTHER, "", status)
        histogram = self._requests.get(key)
        if histogram is None:
            histogram = self._requests[key] = Histogram(REQUEST_SECS)
        histogram.add(seconds)

    # ------------------------------------------------------------------------------------------------ counting

    def _committed(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        rows = batch.rows
        if not rows:
            return
        self._kinds.add_all(map(_kind, rows))
        self._commit_rows.add(len(rows))
        self._commit_secs.add(int(seconds * 100_000 + 0.5))
        if succeeded := [
            event[0] if isinstance(event, tuple) else event.ran_ms
            for _, event, _, _ in entries
            if isinstance(event, _SUCCESSES)
        ]:
            self._step_secs.add_all(succeeded)
        if batch.has_rest:
            self._waits_ended.update(map(_ending, batch.closed_waits))
            self._callback_deliveries += len(batch.callback_deliveries)
        places = set(map(_seq, rows))
        if 2 in places:
            self._first_steps(batch, entries)
        if 1 in places:
            begun = [entry[0].plan.name for row, entry in zip(rows, entries, strict=True) if row[1] == 1]
            self._started.add_all(map(self._label, begun))
        if batch.changes and (
            ended := {no: one for no, one in batch.changes.items() if one.finished_at is not None}
        ):
            self._ends(ended, entries)

    def _first_steps(self, batch: Batch, entries: list[Entry]) -> None:
        """Record how long the first steps of runs waited to start, from the second row of each run."""
        self._first_step_secs.add_all([
            max(0, row[3] - (event[0] if isinstance(event, tuple) else event.ran_ms) - resident.run.created_at)
            for row, (resident, event, *_) in zip(batch.rows, entries, strict=True)
            if row[1] == 2 and isinstance(event, (tuple, StepSucceeded, StepFailed))
        ])  # fmt: skip

    def _ends(self, ended: dict[RunNo, RunChange], entries: list[Entry]) -> None:
        for resident, *_ in entries:
            run = resident.run
            if (change := ended.pop(run.no, None)) is not None and change.finished_at is not None:
                self._finished[self._label(resident.plan.name), change.status] += 1
                self._run_secs.add(change.finished_at - run.created_at)

    def _label(self, workflow: str) -> str:
        if workflow in self._workflows:
            return workflow
        is_plain = workflow.isprintable() and len(workflow) <= WORKFLOW_CHARS_MAX
        if len(self._workflows) >= limits.now.metrics_workflows_max or not is_plain:
            return OTHER
        self._workflows.add(workflow)
        return workflow

    # ------------------------------------------------------------------------------------------------- showing

    async def text(self, history: History, more: Mapping[str, float]) -> bytes:
        """Return all metrics in the Prometheus format. `more` are gauges of other services by name: workers, leases."""
        store = self._store
        statuses = await store.runs_by_status()
        now = {
            "holdfast_orphan_runs": float(await self._orphans.count()),
            "holdfast_feed_lag_rows": float(await history.lag()),
            "holdfast_event_streams": float(history.places.total()),
            "holdfast_overdue_seconds": await self._overdue(),
            "holdfast_schedules_overdue_seconds": self._ago(await store.next_due()),
            **more,
        }
        registry = CollectorRegistry(auto_describe=False)
        waits, deliveries = (
            await self._open_waits.count(),
            await store.callback_deliveries_by_state(LOOKED_AT_MAX),
        )
        outside = _of_outside(waits, deliveries)
        registry.register(
            _Given(
                [
                    *self._counted(),
                    *self._as_it_is(statuses, await store.sizes()),
                    *outside,
                    await self._next_fires(),
                    *_gauges(now),
                ]
            )
        )
        return generate_latest(registry)

    async def _overdue(self) -> float:
        """Return how long the oldest due run has been overdue; a large value means that timers are not served."""
        return self._ago(await self._store.next_wake())

    def _ago(self, at: Millis | None) -> float:
        return 0.0 if at is None else max(0.0, (self._clock.now() - at) / 1000)

    async def _next_fires(self) -> Metric:
        """Return when schedules are due next. Limited to the first schedules by tenant and id, so that every scrape shows the same ones."""
        about = "When schedules are due next, in seconds since 1970"
        family = GaugeMetricFamily(
            "holdfast_schedule_next_fire_seconds", about, labels=("plugin", "schedule")
        )
        soonest: dict[tuple[str, str], Millis] = {}
        for schedule_id, at in await self._store.next_fires(limits.now.metrics_schedules_max):
            label = self._tally.label(schedule_id)
            soonest[label] = min(at, soonest.get(label, at))
        for label, at in soonest.items():
            family.add_metric(label, at / 1000)
        return family

    def _counted(self) -> Iterator[Metric]:
        yield _counter("holdfast_runs_started", "Runs started", ("workflow",), {
            (name,): count for name, count in self._started.shown().items()})  # fmt: skip
        yield _counter("holdfast_runs_finished", "Runs finished", ("workflow", "status"), self._finished)
        kinds = self._kinds.shown()
        outcomes = {"step_succeeded": "succeeded", "step_failed": "failed", "attempt_timed_out": "timed_out",
                    "attempt_released": "released"}  # fmt: skip
        yield _counter("holdfast_attempts_finished", "Attempts finished", ("outcome",), {
            (outcome,): kinds[kind] for kind, outcome in outcomes.items()})  # fmt: skip
        yield _counter("holdfast_journal_rows", "Journal rows committed, by kind of event", ("kind",), {
            (kind,): count for kind, count in kinds.items()})  # fmt: skip
        yield _counter("holdfast_waits_ended", "Waits ended, by kind and outcome", ("kind", "outcome"),
                       self._waits_ended)  # fmt: skip
        yield _counter(
            "holdfast_callback_deliveries_queued",
            "Final callbacks queued by finished runs",
            (),
            {(): self._callback_deliveries},
        )
        counts = self._outbox.counts
        yield _counter("holdfast_callback_deliveries_tried", "Final callbacks sent, replayed or discarded, by outcome", (
            "outcome",), {(outcome,): counts[outcome] for outcome in DELIVERY_OUTCOMES})  # fmt: skip
        yield _histogram("holdfast_step_seconds", "Duration of successful attempts", self._step_secs)
        yield _histogram("holdfast_run_seconds", "Time from the start of a run to its end", self._run_secs)
        yield _histogram("holdfast_first_step_seconds", "Time from the start of a run to the start of its first step",
                         self._first_step_secs)  # fmt: skip
        yield _histogram("holdfast_commit_seconds", "Duration of commits", self._commit_secs)
        yield _histogram("holdfast_commit_rows", "Journal rows per commit", self._commit_rows)
        yield _counter("holdfast_schedule_occurrences", "Occurrences of schedules, by outcome",
                       ("plugin", "schedule", "outcome", "reason"), self._tally.occurrences)  # fmt: skip
        late = HistogramMetricFamily(
            "holdfast_schedule_lateness_seconds", "Time from a due occurrence to its durable run"
        )
        late.add_metric((), _cumulative(LATE_SECS, self._tally.late_buckets), self._tally.late_secs)
        yield late
        requests = HistogramMetricFamily("holdfast_http_request_seconds", "Duration of HTTP requests",
                                         labels=("method", "route", "status"))  # fmt: skip
        for (method, route, status), histogram in self._requests.items():
            requests.add_metric((method, route, str(status)), *histogram.shown())
        yield requests

    def _as_it_is(self, statuses: Mapping[str, int], sizes: Mapping[str, int]) -> Iterator[Metric]:
        """Yield gauges with labels for the current state."""
        door, dispatch = self._door, self._dispatch
        runs = GaugeMetricFamily("holdfast_runs", "Runs in the database", labels=("status",))
        for status in sorted(OPEN | TERMINAL):
            runs.add_metric((status,), float(statuses.get(status, 0)))
        yield runs
        waiting = GaugeMetricFamily("holdfast_starts_waiting", "Attempts waiting to start", labels=("for",))
        for what, count in dispatch.queues.counts.items():
            waiting.add_metric((what,), float(count))
        yield waiting
        size = GaugeMetricFamily("holdfast_database_bytes", "Size of the database files", labels=("file",))
        for name, count in sizes.items():
            size.add_metric((name,), float(count))
        yield size
        yield from _gauges({
            "holdfast_attempts_open": float(len(dispatch.attempts)),
            "holdfast_runs_in_memory": float(len(door.residents)),
            "holdfast_runs_set_aside": float(len(door.quarantined)),
            "holdfast_store_stalled": float(door.is_stalled),
        })  # fmt: skip


_HELP: Final[dict[str, str]] = {
    "holdfast_orphan_runs": "Open runs with no live owner, no wake time and no wait; must be 0",
    "holdfast_feed_lag_rows": "Journal rows that the slowest reader of all events has not read",
    "holdfast_event_streams": "Open event streams",
    "holdfast_overdue_seconds": "How long the oldest due run has been overdue",
    "holdfast_schedules_overdue_seconds": "How long the oldest due schedule has been overdue",
    "holdfast_attempts_open": "Attempts in progress in this process",
    "holdfast_runs_in_memory": "Runs in memory of this process",
    "holdfast_runs_set_aside": "Runs quarantined because of a defect; must be 0",
    "holdfast_store_stalled": "1 while the database cannot be written",
    "holdfast_workers_online": "Workers whose registration has not expired",
    "holdfast_assignments_open": "Jobs waiting for pull workers or held by them",
    "holdfast_lease_age_seconds": "Age of the oldest lease of a pull worker",
}


def _of_outside(waits: Mapping[str, int], deliveries: Mapping[str, int]) -> Iterator[Metric]:
    """Gauges of waiting runs and of final callbacks."""
    waiting = GaugeMetricFamily("holdfast_waits_open", "Open waits for something external", labels=("kind",))
    for kind in WAIT_KINDS:
        waiting.add_metric((kind,), float(waits.get(kind, 0)))
    yield waiting
    about = f"Final callbacks waiting to be sent, and dead letters; {LOOKED_AT_MAX:,} means that many or more"
    kept = GaugeMetricFamily("holdfast_callback_deliveries", about, labels=("state",))
    for state, count in deliveries.items():
        kept.add_metric((state,), float(count))
    yield kept


class _Given(Collector):
    """The collected metrics, for the exporter."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def _gauges(numbers: Mapping[str, float]) -> Iterator[Metric]:
    for name, number in numbers.items():
        yield GaugeMetricFamily(name, _HELP[name], value=number)


def _counter(name: str, about: str, labels: Sequence[str], counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, float(count))
    return family


def _histogram(name: str, about: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, about)
    family.add_metric((), *histogram.shown())
    return family


def _cumulative(bounds: Sequence[float], buckets: Sequence[int]) -> list[tuple[str, float]]:
    names = [*map(_number, bounds), "+Inf"]
    return list(zip(names, map(float, accumulate(buckets)), strict=True))


def _number(bound: float) -> str:
    return repr(float(bound))


class OpenWaits:
    """Open external waits, by kind. Each pass reads a bounded number and continues where the last one ended. Until a round is complete,
    the larger of its count and the previous round's is reported."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after = OpenWait()
        self._found: Counter[str] = Counter()  # in this round
        self._found_before: Counter[str] = Counter()  # in the whole round before it

    async def count(self) -> Counter[str]:
        waits = await self._store.waits_open(self._after, LOOKED_AT_MAX)
        self._found.update(wait.kind for wait in waits)
        if len(waits) == LOOKED_AT_MAX:
            self._after = waits[-1]
            return self._found | self._found_before
        self._after, self._found, self._found_before = OpenWait(), Counter(), self._found
        return self._found_before


class Orphans:
    """Open runs that nothing will ever continue: no owner, no wake time, and no wait that could be resolved.

    Checks a bounded number in one pass and continues from there in the next: a pass costs the same with a million waiting runs.
    """

    def __init__(self, store: Store, door: Door, wakes: Wakes) -> None:
        self._store, self._door, self._wakes = store, door, wakes
        self._after = RunNo(0)
        self._found: set[RunNo] = set()  # in this round
        self._found_before = 0  # in the whole round before it

    async def count(self) -> int:
        return await self._unowned() + await self._resting()

    async def _unowned(self) -> int:
        """Return runs whose row names an owner that does not have them: a former process, or this one."""
        store, door, count = self._store, self._door, 0
        epoch = store.epoch
        for no, owner_epoch in await store.owned_runs(RunNo(0), LOOKED_AT_MAX):
            if owner_epoch == epoch:
                count += no not in door.residents and no not in door.away
            else:
                count += not self._wakes.is_filling
        return count

    async def _resting(self) -> int:
        runs = await self._store.resting_runs(self._after, LOOKED_AT_MAX)
        self._found |= {no for no, has_reason in runs if not has_reason}
        count = max(len(self._found), self._found_before)
        if len(runs) < LOOKED_AT_MAX:
            count = len(self._found)
            self._after, self._found, self._found_before = RunNo(0), set(), len(self._found)
        else:
            self._after = runs[-1][0]
        return count
