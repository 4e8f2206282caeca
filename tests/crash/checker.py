"""Reads what crashes left behind and says what is wrong with it. Trusts nobody: rows by apsw, JSON by the standard library.

Of every run: rows 1..n without a gap, epochs that never fall, one end and nothing after it. Of every attempt: a start in
a durable row, one fate (succeeded, failed, lost, released), an effect if it has an outcome, and never two. Of every loss:
a row that names it and a line in the log. Of everything acknowledged: it is there.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import apsw
import msgspec

from tests.crash.processes import Place, Told
from tests.crash.workloads import right_output


class Row(NamedTuple):
    seq: int
    epoch: int
    at: int
    event: list[Any]
    decisions: list[list[Any]]


class Effect(NamedTuple):
    run: str
    path: str
    attempt: int
    key: str


class Found(msgspec.Struct):
    """What the checker saw; `problems` are sentences, and a good end has none."""

    problems: list[str] = []
    runs: int = 0
    rows: int = 0
    effects: int = 0
    lost: int = 0
    released: int = 0
    executed_again: int = 0  # effects of attempts that were lost: each explained by a row
    statuses: dict[str, int] = {}


def journals(place: Place) -> dict[str, list[Row]]:
    """Run id → its rows."""
    found: dict[str, list[Row]] = defaultdict(list)
    blobs = dict(query_file(place, "SELECT sha256, body FROM blob"))
    query = (
        "SELECT r.id, j.seq, j.epoch, j.at, j.body FROM journal j JOIN run r ON r.no = j.run ORDER BY j.pos"
    )
    for run, seq, epoch, at, body in query_file(place, query):
        _, event, decisions = json.loads(body, object_hook=lambda data: _whole(data, blobs))
        found[run].append(Row(seq, epoch, at, event, decisions))
    return found


def _whole(data: dict[str, Any], blobs: dict[str, bytes]) -> Any:
    """A value that stands in a blob, in the place of the reference to it."""
    return json.loads(blobs[data["$blob"]]) if data.keys() == {"$blob"} else data


def query_file(place: Place, query: str) -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(place.db))
    try:
        return list(db.execute(query))
    finally:
        db.close()


def open_runs(place: Place) -> list[str]:
    """Runs that have not ended, also those whose start nobody was told of. The file is left as its process left it."""
    if not place.db.exists():
        return []
    db = apsw.Connection(str(place.db), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if not list(db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'run'")):
            return []
        return [run for (run,) in db.execute("SELECT id FROM run WHERE finished_at IS NULL ORDER BY no")]
    finally:
        db.close()


def unfinished(place: Place, told: Told) -> list[str]:
    """Those, and the ones whose end nobody was told of yet."""
    return [*told.open, *(run for run in open_runs(place) if run not in told.open)]


def effects(place: Place) -> list[Effect]:
    lines = [line.split(" ") for line in place.effects.read_text().splitlines()]
    return [Effect(run, path, int(attempt), key) for run, path, attempt, key in lines]


def check(
    place: Place, told: Told, *, expected_status: Callable[[Any], str] = lambda inputs: "completed"
) -> Found:
    found = Found()
    say = found.problems.append
    by_run = journals(place)
    statuses = dict(query_file(place, "SELECT id, status FROM run"))
    if query_file(place, "PRAGMA integrity_check") != [("ok",)]:
        say("the file is damaged")
    if orphans := query_file(place, "SELECT DISTINCT run FROM journal WHERE run NOT IN (SELECT no FROM run)"):
        say(f"rows of runs that do not exist: {orphans[:3]}")
    if open_runs := [
        run for run, status in statuses.items() if status in ("pending", "running", "waiting", "cancelling")
    ]:
        say(f"{len(open_runs)} runs are still open, such as {open_runs[0]}")
    _check_told(told, by_run, statuses, say)
    done = defaultdict(list)
    for effect in effects(place):
        done[effect.run].append(effect)
    for stray in done.keys() - by_run.keys():
        say(f"effects of {stray}, a run that is not there")
    log_text = place.log.read_text()
    for run, rows in by_run.items():
        _check_rows(run, rows, statuses.get(run, "missing"), expected_status, say)
        fates = _check_attempts(run, rows, say)
        _check_effects(run, fates, done[run], say)
        check_log(run, fates, log_text, say)
        _count(found, rows, fates, done[run])
    found.runs, found.statuses = len(by_run), dict(Counter(statuses.values()))
    return found


def _check_told(
    told: Told, by_run: dict[str, list[Row]], statuses: dict[str, str], say: Callable[[str], None]
) -> None:
    for run in told.started:
        if run not in by_run:
            say(f"the start of {run} was acknowledged and is lost")
    for run, (status, value) in told.ended.items():
        if statuses.get(run) != status:
            say(f"{run} was told to be {status} and is {statuses.get(run)}")
        elif status == "completed" and run in by_run and value != _end_of(by_run[run]):
            say(f"{run} was told to have given {_short(value)}, stored is {_short(_end_of(by_run[run]))}")


def _end_of(rows: list[Row]) -> Any:
    """The output of a run; one that refers to outputs in other rows is not put together here, but taken to be right."""
    finish = [order for order in rows[-1].decisions if order[0] == "finish"]
    if not finish:
        return "no end"
    refers = '"$of"' in json.dumps(finish[0][2])
    return right_output(rows[0].event[1]) if refers else finish[0][2]


def _short(value: Any) -> str:
    return repr(value)[:200]


def _check_rows(
    run: str, rows: list[Row], status: str, expected: Callable[[Any], str], say: Callable[[str], None]
) -> None:
    if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
        say(f"{run}: its rows are not 1..n in the order of commits: {[row.seq for row in rows]}")
    for before, after in pairwise(rows):
        if after.epoch < before.epoch:
            say(f"{run}: the epoch falls from {before.epoch} to {after.epoch} at row {after.seq}")
        if after.at < before.at:
            say(f"{run}: time runs back at row {after.seq}")
    ends = [(row.seq, order[1]) for row in rows for order in row.decisions if order[0] == "finish"]
    inputs: Any = rows[0].event[1] if rows[0].event[0] == "run_started" else None
    wanted = expected(inputs)
    if ends != [(len(rows), status)] or status != wanted:
        say(f"{run}: ends {ends} in {len(rows)} rows, its row says {status}, wanted is {wanted}")
    elif status == "completed" and _end_of(rows) != right_output(inputs):
        say(f"{run}: gave {_short(_end_of(rows))}, right is {_short(right_output(inputs))}")


Fates = dict[tuple[str, int], str]  # (path, attempt) → what became of it

_OUTCOMES = {"step_succeeded": "succeeded", "step_failed": "failed", "attempt_released": "released"}


def _check_attempts(run: str, rows: list[Row], say: Callable[[str], None]) -> Fates:
    """Follow every attempt from its start to its fate."""
    fates: Fates = {}
    latest: dict[str, int] = {}
    for row in rows:
        kind, *rest = row.event
        if kind in _OUTCOMES:
            _meets(run, row, fates, (rest[0], rest[1]), _OUTCOMES[kind], say)
        elif kind == "adopted":
            for path in rest[0] if rest else []:
                _meets(run, row, fates, (path, latest.get(path, 0)), "lost", say)
        for order in row.decisions:
            if order[0] != "start":
                continue
            path, attempt = order[1], order[2]
            if attempt != latest.get(path, 0) + 1:
                say(f"{run}: row {row.seq} starts attempt {attempt} of {path} after {latest.get(path, 0)}")
            if fates.get((path, attempt - 1)) in ("succeeded", "open"):
                say(f"{run}: row {row.seq} starts {path} again, which {fates[path, attempt - 1]}")
            latest[path] = attempt
            fates[path, attempt] = "open"
    return fates


def _meets(
    run: str, row: Row, fates: Fates, attempt: tuple[str, int], fate: str, say: Callable[[str], None]
) -> None:
    if fates.get(attempt) != "open":
        say(f"{run}: row {row.seq} says that {attempt} {fate}, but it is {fates.get(attempt, 'not started')}")
    fates[attempt] = fate


def _check_effects(run: str, fates: Fates, done: list[Effect], say: Callable[[str], None]) -> None:
    counts = Counter((effect.path, effect.attempt) for effect in done)
    for attempt, count in counts.items():
        if attempt not in fates:
            say(f"{run}: {attempt} was executed and no durable row starts it")
        if count > 1:
            say(f"{run}: {attempt} was executed {count} times")
    for attempt, fate in fates.items():
        if fate in ("succeeded", "failed") and not counts[attempt]:
            say(f"{run}: {attempt} {fate} and was never executed")
        if fate == "open":
            say(f"{run}: nothing says what became of {attempt}")
    keys = defaultdict(set)
    for effect in done:
        keys[effect.path].add(effect.key)
    every = [key for found in keys.values() for key in found]
    if len(every) != len(keys) or len(set(every)) != len(every):
        say(f"{run}: idempotency keys are not one per step instance")


def check_log(run: str, fates: Fates, log_text: str, say: Callable[[str], None]) -> None:
    for (path, attempt), fate in fates.items():
        if fate == "lost" and not re.search(
            rf"{run}: attempt {attempt} of {re.escape(path)} was lost", log_text
        ):
            say(f"{run}: the log does not explain the loss of attempt {attempt} of {path}")


def _count(found: Found, rows: list[Row], fates: Fates, done: list[Effect]) -> None:
    found.rows += len(rows)
    found.effects += len(done)
    found.lost += sum(fate == "lost" for fate in fates.values())
    found.released += sum(fate == "released" for fate in fates.values())
    found.executed_again += sum(fates.get((effect.path, effect.attempt)) == "lost" for effect in done)
