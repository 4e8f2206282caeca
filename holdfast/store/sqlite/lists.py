"""Runs by what they are of, on SQLite: lists that take as long with a million runs as with ten, and their counts.

The index of lists is (series, status, number of the run); a series is one release of one workflow. So a list, whatever
it asks for, is a few stretches of that index, each in the order of creation: they are merged here. `tally` says which
stretches there are and how long each is, and is brought up to date once per commit. Knows no rule of the engine.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import apsw
import msgspec

from holdfast.store.batch import Batch
from holdfast.store.beats import MINUTE_MS, STARTED, end_beat
from holdfast.store.records import NewRun, RunChange, Wanted
from holdfast.values import RunNo

CHUNK_MAX: Final = 128  # numbers that are read from one stretch at a time; the first time only a few
NEWEST_TIMES: Final = 4  # as many of the newest runs as are asked for, which may be enough
LOOKED_AT_MAX: Final = 2_000  # runs that one page of a list by label reads
SHARE_MIN: Final = 64  # fewer runs of each stretch are read sooner than counted
NO_BOUND: Final = 2**62
SERIES_REMEMBERED_MAX: Final = 10_000
EVERY_RUN: Final = Wanted()

Series = tuple[str, str, int]  # tenant, workflow, number of the release (0: none)
Place = tuple[int, str]  # number of a series, and a status
Beat = tuple[int, int, int]  # number of a series, minute, and a beat of store/beats.py
Moved = dict[Place, int]
Beats = dict[Beat, int]


class Stretch(NamedTuple):
    series: int
    status: str
    runs: int
    newest: int | None


class Lists:
    """Looking runs up, on the connection that reads."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str]) -> None:
        self._db, self._sql = db, sql

    def part(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted
    ) -> tuple[list[int], RunNo | None]:
        """The numbers of up to `limit` runs, the newest first, and what the next part begins below."""
        found, below = self._part(tenant, before, limit, wanted)
        above = wanted.above
        if above is None:
            return found, below
        kept = [no for no in found if no > above]
        is_last = len(kept) < len(found) or below is not None and below <= above + 1
        return kept, None if is_last else below

    def _part(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted
    ) -> tuple[list[int], RunNo | None]:
        bound = NO_BOUND if before is None else before
        if wanted.label is None and wanted.workflow is None:
            found = self._newest(tenant, bound, limit + 1, wanted)
            if len(found) > limit:
                return _cut(found, limit)
        stretches = self._stretches(tenant, bound, wanted)
        if wanted.label is None:
            return _cut(list(islice(self._merged(stretches), limit + 1)), limit)
        if sum(stretch.runs for stretch in stretches) <= LOOKED_AT_MAX:
            having = (no for no in self._merged(stretches) if self._has_labels(tenant, no, wanted))
            return _cut(list(islice(having, limit + 1)), limit)
        return self._of_label(tenant, bound, limit, wanted, stretches)

    def below(self, tenant: str, before: RunNo | None, count: int, wanted: Wanted) -> RunNo | None:
        """The run number below which a list begins that leaves out `count` runs. They are counted, not read. None if there are no more runs."""
        assert wanted.label is None, "labelled runs are not passed over"
        bound = NO_BOUND if before is None else before
        if wanted == EVERY_RUN:
            last_two = self._newest(tenant, bound, 2, wanted, passed=count - 1)
            if len(last_two) == 2:
                return RunNo(last_two[0])
        left, stretches = self._passed_over(self._stretches(tenant, bound, wanted), count)
        next_one = list(islice(self._merged(stretches), left, left + 1))
        return RunNo(next_one[0] + 1) if next_one else None

    def _passed_over(self, stretches: list[Stretch], count: int) -> tuple[int, list[Stretch]]:
        """Skip nearly `count` runs: returns how many are still to be skipped, and the rest of the ranges.

        Read each range as far ahead as its share of the runs. Where that ends with the newest run, all runs up to there are
        among those to be left out: the other ranges have fewer newer runs than their share.
        """
        left = {stretch: stretch for stretch in stretches if stretch.newest is not None}
        while left and (share := count // len(left)) >= SHARE_MIN:
            ahead = {whole: self._ahead(stretch, share) for whole, stretch in left.items()}
            whole = max(left, key=lambda each: ahead[each] or 0)
            newest = ahead[whole]
            if newest is None:
                break  # they have no more than these
            left[whole] = left[whole]._replace(newest=newest)
            count -= share
        return count, list(left.values())

    def _ahead(self, stretch: Stretch, count: int) -> int | None:
        """The run of a stretch that so many newer ones stand before."""
        found: int | None = self._db.execute(
            self._sql["ahead"], (stretch.series, stretch.status, stretch.newest, count)
        ).get
        return found

    def count(self, tenant: str, wanted: Wanted) -> int:
        return sum(stretch.runs for stretch in self._stretches(tenant, 0, wanted))

    def _newest(self, tenant: str, before: int, limit: int, wanted: Wanted, passed: int = 0) -> list[int]:
        """If most runs match, reading the newest is enough: no range has to be found."""
        looked_at = NEWEST_TIMES * (limit + passed)
        asked = {"tenant": tenant, "before": before, "limit": limit, "looked_at": looked_at, "passed": passed}
        found = self._db.execute(self._sql["newest"], asked | {"statuses": json_names(wanted.status)})
        return [no for (no,) in found]

    def _stretches(self, tenant: str, before: int, wanted: Wanted) -> list[Stretch]:
        name, of = "stretches", wanted.workflow
        asked: dict[str, Any] = {"tenant": tenant, "before": before, "statuses": json_names(wanted.status)}
        if isinstance(of, str):
            name, asked = "stretches_of_workflow", asked | {"workflow": of, "number": wanted.number}
        elif of is not None:
            name, asked = "stretches_of_workflows", asked | {"workflows": json_names(of)}
        return [Stretch(*row) for row in self._db.execute(self._sql[name], asked)]

    def _merged(self, stretches: Iterable[Stretch]) -> Iterator[int]:
        """Their runs, the newest first; of each stretch only as much is read as is used."""
        return heapq.merge(*map(self._read, stretches), reverse=True)

    def _read(self, stretch: Stretch) -> Iterator[int]:
        if stretch.newest is None:
            return
        found, size = [stretch.newest], 1
        while found:
            yield from found
            size = min(4 * size, CHUNK_MAX)
            page = (stretch.series, stretch.status, found[-1], size)
            found = [no for (no,) in self._db.execute(self._sql["stretch"], page)]

    def _has_labels(self, tenant: str, no: int, wanted: Wanted, *, first: bool = True) -> bool:
        """Whether a run has all the labels that are wanted, or all but the first."""
        labels = (wanted.label, *wanted.more_labels) if first and wanted.label else wanted.more_labels
        return all(self._db.execute(self._sql["has_label"], (tenant, no, *label)).get for label in labels)

    def _of_label(
        self, tenant: str, bound: int, limit: int, wanted: Wanted, stretches: list[Stretch]
    ) -> tuple[list[int], RunNo | None]:
        """By label: the labelled runs that lie in the ranges, reading at most LOOKED_AT_MAX of them."""
        assert wanted.label is not None
        name, value = wanted.label
        page: tuple[Any, ...] = (tenant, name, bound, LOOKED_AT_MAX)
        if value is not None:
            page = (tenant, name, value, bound, LOOKED_AT_MAX)
        query = self._sql["labelled" if value is None else "labelled_so"]
        good = {(stretch.series, stretch.status) for stretch in stretches}
        found: list[int] = []
        seen = 0
        for (no,) in self._db.execute(query, page):
            seen += 1
            is_good = self._db.execute(self._sql["series_and_status"], (no,)).get in good
            if is_good and self._has_labels(tenant, no, wanted, first=False):
                found.append(no)
                if len(found) > limit:
                    return _cut(found, limit)
        return found, RunNo(no) if seen == LOOKED_AT_MAX else None


class Tallies:
    """Keeping series, counts and labels, within the transaction that writes the runs they are of."""

    def __init__(self, db: apsw.Cursor, sql: dict[str, str]) -> None:
        self._db, self._sql = db, sql
        self._pairs = {name: of_two_rows(sql[name]) for name in ("add_to_tally", "add_to_pulse")}
        self._series: dict[Series, int] = {}
        # Series, status and time of creation of the runs that are driven here, so that none has to be read.
        self._known: dict[RunNo, tuple[int, str, int]] = {}

    def forget(self) -> None:
        """A transaction was rolled back: what was made in it is not there."""
        self._series.clear()
        self._known.clear()

    def series(self, tenant: str, workflow: str, number: int | None) -> int:
        key = (tenant, workflow, number or 0)
        known = self._series.get(key)
        if known is None:
            if len(self._series) >= SERIES_REMEMBERED_MAX:
                self._series.clear()
            known = self._db.execute(self._sql["series_of"], key).get
            if known is None:
                known = self._db.execute(self._sql["add_series"], key).get
            self._series[key] = known
        return known

    def before(self, batch: Batch) -> tuple[Moved, Beats]:
        """What the commit takes from the counts, and adds: asked before the rows are changed."""
        # Plain dicts: a Counter calls Python for each new key, and this is asked for each run that starts or ends.
        moved: Moved = {}
        beats: Beats = {}
        changes, new_runs, known = batch.changes, batch.new_runs, self._known
        unknown: list[RunNo] = []
        for no, change in changes.items():
            if (new := new_runs.get(no)) is not None:
                created_at = new.created_at
                series = new.series = self.series(new.tenant, new.workflow, new.number)
                beat = (series, created_at // MINUTE_MS, STARTED)
                beats[beat] = beats.get(beat, 0) + 1
                if change.finished_at is None and change.owned:  # as nearly every run begins
                    place = (series, change.status)
                    moved[place] = moved.get(place, 0) + 1
                    known[no] = (series, change.status, created_at)
                else:
                    self._move(moved, beats, no, (series, "", created_at), change)
            elif (found := known.pop(no, None)) is not None:
                self._move(moved, beats, no, found, change)
            else:
                unknown.append(no)
        if unknown:
            asked = (msgspec.json.encode(unknown).decode(),)
            for one, series, status, created_at in self._db.execute(self._sql["statuses_before"], asked):
                self._move(moved, beats, one, (series, status, created_at), changes[one])
        return moved, beats

    def _move(
        self, moved: Moved, beats: Beats, no: RunNo, found: tuple[int, str, int], change: RunChange
    ) -> None:
        series, before, created_at = found
        after = change.status
        if before != after:
            place: Place = (series, after)
            moved[place] = moved.get(place, 0) + 1
            if before:
                place = (series, before)
                moved[place] = moved.get(place, 0) - 1
            if (ended := change.finished_at) is not None:
                beat = (series, ended // MINUTE_MS, end_beat(after, ended - created_at))
                beats[beat] = beats.get(beat, 0) + 1
        if change.owned:
            self._known[no] = (series, after, created_at)

    def add(self, moved: Moved, beats: Beats) -> None:
        self._execute("add_to_tally", [(*place, runs) for place, runs in moved.items() if runs])
        self._execute("add_to_pulse", [(*beat, runs) for beat, runs in beats.items()])

    def _execute(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        """Two rows in one statement, as when one run changes its status; others one by one."""
        if len(rows) == 2:
            self._db.execute(self._pairs[name], (*rows[0], *rows[1]))
            return
        for row in rows:
            self._db.execute(self._sql[name], row)

    def label(self, runs: Iterable[NewRun]) -> None:
        for new in runs:
            if new.labels is not None:
                labels = msgspec.json.decode(new.labels, type=dict[str, str])
                for name, value in labels.items():
                    self._db.execute(self._sql["add_label"], (new.tenant, name, value, new.no))

    def without(self, runs: Iterable[RunNo]) -> None:
        """Some runs are about to be deleted."""
        gone: Moved = {}
        for no in runs:
            row = self._db.execute(self._sql["series_and_status"], (no,)).get
            if row is not None:
                gone[row] = gone.get(row, 0) - 1
        self.add(gone, {})
        for series in {series for series, _ in gone}:  # unused label names must not slow down lists
            self._db.execute(self._sql["forget_empty_tallies"], (series,))
            self._db.execute(self._sql["forget_empty_pulse"], (series,))
            self._db.execute(self._sql["forget_empty_series"], (series,))
        if gone:
            self._series.clear()


def json_names(names: str | tuple[str, ...] | None) -> str | None:
    """One name or several as the JSON array that a statement takes; None is no limit."""
    if names is None:
        return None
    return msgspec.json.encode((names,) if isinstance(names, str) else names).decode()


def _cut(found: list[int], limit: int) -> tuple[list[int], RunNo | None]:
    return found[:limit], RunNo(found[limit - 1]) if len(found) > limit else None


def of_two_rows(statement: str) -> str:
    """The same INSERT with two rows of values."""
    head, tail = statement.split("VALUES (", 1)
    row, rest = tail.split(")", 1)
    return f"{head}VALUES ({row}), ({row}){rest}"
