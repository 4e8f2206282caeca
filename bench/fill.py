"""`python -m bench.fill FILE --runs 1000000 --items 10000`: a large database to look at.

The engine runs some workflows once: with failures, retries, waits and labels. Their rows are then copied with new numbers, ids and
times, spread over 90 days, so that every copy folds. At the end the engine loops over many items in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import apsw

from holdfast import Holdfast, tool
from holdfast.store.beats import MINUTE_MS, STARTED, end_beat
from holdfast.values import Millis
from holdfast.views.pulse import added_up_before
from holdfast.views.stored_board import LONG_ROWS

Spec = dict[str, Any]

DAYS: Final = 90
DAY_MS: Final = 86_400_000
RUNS_PER_COMMIT: Final = 20_000
STORED_WITHIN: Final = 600  # tenths of a second
FAR_SECS: Final = 30 * 86_400  # the copies of waiting runs must not be due when an engine opens the file


@tool
async def charge(n: int) -> dict[str, int]:
    if n % 7 == 0:
        raise ValueError(f"n={n} is divisible by seven")
    return {"charged": n}


ORDER: Final[Spec] = {
    "name": "order",
    "inputs": {"n": {"type": "integer"}},
    "steps": [
        {"id": "load", "tool": "charge", "args": {"n": 1}},
        {"id": "charge", "tool": "charge", "args": {"n": "{{inputs.n}}"}},
        {"id": "ship", "tool": "charge", "args": {"n": 2}},
    ],
}
FLAKY: Final[Spec] = {
    "name": "flaky",
    "steps": [
        {"id": "try", "tool": "charge", "args": {"n": 7}, "retry": {"max_attempts": 3, "initial_delay_ms": 1}}
    ],
}
FAN: Final[Spec] = {
    "name": "fan",
    "inputs": {"items": {"type": "array"}},
    "steps": [
        {
            "id": "each",
            "kind": "foreach",
            "items": "$.inputs.items",
            "concurrency": 100,
            "on_any_fail": "continue",
            "steps": [{"id": "do", "tool": "charge", "args": {"n": "{{item}}"}}],
        }
    ],
}
GATE: Final[Spec] = {
    "name": "gate",
    "steps": [
        {"id": "prepare", "tool": "charge", "args": {"n": 1}},
        {"id": "ask", "kind": "approve", "prompt": "Ship 9 boxes?", "timeout_secs": FAR_SECS},
    ],
}
SIGNAL: Final[Spec] = {"name": "bill", "steps": [{"id": "paid", "kind": "wait_event", "signal_key": "paid"}]}
NAP: Final[Spec] = {"name": "nap", "steps": [{"id": "sleep", "kind": "timer", "delay_ms": FAR_SECS * 1000}]}

WAITING: Final = (GATE, SIGNAL, NAP)

# Of a thousand runs, how many are of each kind.
SHARES: Final[tuple[tuple[Spec, dict[str, Any], dict[str, str], int], ...]] = (
    (ORDER, {"n": 1}, {"team": "x"}, 500),
    (ORDER, {"n": 14}, {"team": "y", "place": "north"}, 90),
    (FLAKY, {}, {}, 40),
    (FAN, {"items": [1, 2, 3, 4, 5]}, {"team": "y"}, 300),
    (FAN, {"items": [6, 7, 8]}, {}, 50),
    (GATE, {}, {"team": "x"}, 8),
    (SIGNAL, {}, {}, 7),
    (NAP, {}, {}, 5),
)


class Template(NamedTuple):
    """The rows of one run, with times counted from its creation."""

    run: dict[str, Any]
    journal: list[tuple[Any, ...]]  # seq, epoch, at, kind, body
    waits: list[dict[str, Any]]
    labels: list[tuple[str, str]]
    share: int


async def originals(file: str) -> list[tuple[str, int]]:
    """Run each workflow once; returns the ids and shares."""
    found: list[tuple[str, int]] = []
    async with Holdfast(f"sqlite:///{file}", tools=[charge]) as hf:
        for spec, *_ in SHARES:
            await hf.publish(spec)
        for spec, inputs, labels, share in SHARES:
            run = await hf.start(spec["name"], inputs, labels=labels)
            async for event in run.events():
                if event["state"] == "waiting" and spec in WAITING:
                    break
            found.append((run.id, share))
    return found


async def large(file: str, items: int) -> str:
    async with Holdfast(f"sqlite:///{file}", tools=[charge]) as hf:
        run = await hf.start("fan", {"items": list(range(1, items + 1))}, labels={"size": "large"})
        await run.result(timeout=3_600)
        for _ in range(
            STORED_WITHIN if items >= LONG_ROWS else 0
        ):  # as in the file of a server that had time for it
            if rows(apsw.Connection(file), "board", "part", "head"):
                break
            await asyncio.sleep(0.1)
        return run.id


def rows(db: apsw.Connection, table: str, where: str, value: Any) -> list[dict[str, Any]]:
    cursor = db.execute(f"SELECT * FROM {table} WHERE {where} = ?", (value,))
    return [dict(zip((name for name, _ in cursor.get_description()), row, strict=True)) for row in cursor]


def template_of(db: apsw.Connection, run_id: str, share: int) -> Template:
    (run,) = rows(db, "run", "id", run_id)
    at = run["created_at"]
    journal = [
        (row["seq"], row["epoch"], row["at"] - at, row["kind"], row["body"])
        for row in sorted(rows(db, "journal", "run", run["no"]), key=lambda row: row["seq"])
    ]
    waits = rows(db, '"wait"', "run", run["no"])
    labels = [(row["name"], row["value"]) for row in rows(db, "label", "run", run["no"])]
    return Template(run, journal, waits, labels, share)


def move_originals(db: apsw.Connection, before: int) -> None:
    """Numbers follow creation, so the first runs must be the oldest."""
    (newest,) = next(iter(db.execute("SELECT max(created_at) FROM run")))
    by = newest - before
    db.execute("UPDATE run SET created_at = created_at - ?1, finished_at = finished_at - ?1", (by,))
    db.execute("UPDATE journal SET at = at - ?", (by,))
    db.execute('UPDATE "wait" SET since = since - ?', (by,))
    db.execute("UPDATE pulse SET minute = minute - ?", (by // MINUTE_MS,))


class Copies:
    """The rows of many copies, which are written together."""

    def __init__(self, db: apsw.Connection, templates: list[Template], seed: int = 1) -> None:
        self._db, self._templates, self._random = db, templates, random.Random(seed)
        self._weights = [one.share for one in templates]
        self._tally: Counter[tuple[int, str]] = Counter()
        self._beats: Counter[tuple[int, int, int]] = Counter()
        self._by_hour_before = added_up_before(Millis(int(time.time() * 1000)))
        self._columns = list(templates[0].run)

    def write(self, first: int, times: list[int]) -> None:
        chosen = self._random.choices(self._templates, self._weights, k=len(times))
        pairs = list(zip(range(first, first + len(times)), times, chosen, strict=True))
        places = ", ".join("?" * len(self._columns))
        self._db.executemany(
            f"INSERT INTO run ({', '.join(self._columns)}) VALUES ({places})",
            [self._run(no, at, one) for no, at, one in pairs],
        )
        self._db.executemany(
            "INSERT INTO journal (run, seq, epoch, at, kind, body) VALUES (?, ?, ?, ?, ?, ?)",
            self._journal(pairs),
        )
        self._db.executemany(
            'INSERT INTO "wait" (tenant, kind, scope, name, run, path, attempt, since, expires_at, detail)'
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [self._wait(no, at, one, wait) for no, at, one in pairs for wait in one.waits],
        )
        self._db.executemany(
            "INSERT INTO label (tenant, name, value, run) VALUES (?, ?, ?, ?)",
            [("default", name, value, no) for no, _, one in pairs for name, value in one.labels],
        )

    def _run(self, no: int, at: int, one: Template) -> list[Any]:
        made = one.run
        ended = made["finished_at"]
        took = None if ended is None else ended - made["created_at"]
        self._tally[made["series"], made["status"]] += 1
        self._beats[made["series"], self._minute(at), STARTED] += 1
        if took is not None:
            self._beats[made["series"], self._minute(at + took), end_beat(made["status"], took)] += 1
        changed = {
            "no": no,
            "id": str(
                uuid.UUID(
                    int=at << 80
                    | 7 << 76
                    | self._random.getrandbits(12) << 64
                    | 1 << 63
                    | self._random.getrandbits(62)
                )
            ),
            "created_at": at,
            "finished_at": None if took is None else at + took,
        }
        return [changed.get(name, made[name]) for name in self._columns]

    def _minute(self, at: int) -> int:
        minute = at // MINUTE_MS
        return minute if minute >= self._by_hour_before else minute - minute % 60

    def _journal(self, pairs: list[tuple[int, int, Template]]) -> Iterator[tuple[Any, ...]]:
        for no, start, one in pairs:
            for seq, epoch, at, kind, body in one.journal:
                yield no, seq, epoch, start + at, kind, body

    def _wait(self, no: int, at: int, one: Template, wait: dict[str, Any]) -> tuple[Any, ...]:
        since = at + wait["since"] - one.run["created_at"]
        same = (wait["tenant"], wait["kind"], wait["scope"], wait["name"])
        return (*same, no, wait["path"], wait["attempt"], since, wait["expires_at"], wait["detail"])

    def count(self) -> None:
        for (series, status), runs in self._tally.items():
            self._db.execute(
                "INSERT INTO tally (series, status, runs) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (series, status) DO UPDATE SET runs = runs + ?3",
                (series, status, runs),
            )
        self._db.executemany(
            "INSERT INTO pulse (series, minute, beat, runs) VALUES (?1, ?2, ?3, ?4)"
            " ON CONFLICT (series, minute, beat) DO UPDATE SET runs = runs + ?4",
            [(*beat, runs) for beat, runs in self._beats.items()],
        )


def fill(file: str, runs: int) -> None:
    found = asyncio.run(originals(file))
    now = int(time.time() * 1000)
    begin = now - DAYS * DAY_MS
    db = apsw.Connection(file)
    db.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")
    move_originals(db, begin)
    copies = Copies(db, [template_of(db, run_id, share) for run_id, share in found])
    (last,) = next(iter(db.execute("SELECT max(no) FROM run")))
    step = (now - 60_000 - begin) / max(runs, 1)
    for start in range(0, runs, RUNS_PER_COMMIT):
        count = min(RUNS_PER_COMMIT, runs - start)
        with db:
            copies.write(last + 1 + start, [int(begin + step * (start + i)) for i in range(count)])
    with db:
        copies.count()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA optimize")
    db.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=10_000, help="of one run at the end")
    given = parser.parse_args()
    began = time.perf_counter()
    fill(given.file, given.runs)
    run_id = asyncio.run(large(given.file, given.items)) if given.items else ""
    print(
        f"{given.runs:,} runs in {time.perf_counter() - began:.0f} s; the run with {given.items:,} items is {run_id}"
    )


if __name__ == "__main__":
    main()
