"""What the campaign has left behind, and what is wrong with it: rows by SQL, JSON by the standard library.

Of every run that was acknowledged: it is there and completed, its rows are 1..n without a gap, epochs never fall and a new one begins with
`adopted` or after a release, each step succeeded once, it ended once and nothing follows. Of every attempt: one effect at
most, after a start in a durable row. So a node that was fenced off has started nothing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.cluster.node import STEPS, lines

CALLS = [step["id"] for step in STEPS if "tool" in step]


async def problems_of(connection: Any, folder: Path) -> list[str]:
    started = {int(n): run_id for n, run_id in lines(folder / "started")}
    asked, signalled = [{int(line[0]) for line in lines(folder / name)} for name in ("asked", "signalled")]
    found = [f"the start of run {n} was never acknowledged" for n in sorted(asked - started.keys())]
    found += [f"the signal to run {n} was never acknowledged" for n in sorted(asked - signalled)]
    if len(set(started.values())) < len(started):
        found.append("two requests have the same run")
    rows = await connection.fetch(
        "SELECT r.id, r.status, r.mail, j.seq, j.epoch, j.kind, j.body FROM run r LEFT JOIN journal j ON j.run = r.no ORDER BY r.no, j.seq"
    )
    journals: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        journals[row["id"]].append(row)
    if len(journals) != len(started):
        found.append(f"{len(journals)} runs are stored, and {len(started)} were acknowledged")
    effects = Counter((run, path, int(attempt)) for run, path, attempt, _ in lines(folder / "effects"))
    for run_id in started.values():
        found += [
            f"run {run_id}: {problem}" for problem in _of_run(run_id, journals.get(run_id, []), effects)
        ]
    return found


def _of_run(run_id: str, rows: list[Any], effects: Counter[tuple[str, str, int]]) -> list[str]:
    if not rows:
        return ["it was acknowledged, and is lost"]
    found = []
    if rows[0]["status"] != "completed":
        found.append(f"it is {rows[0]['status']}")
    if [row["seq"] for row in rows] != list(range(1, len(rows) + 1)):
        found.append("its journal has a gap or a row twice")
    if any(before["epoch"] > after["epoch"] for before, after in pairwise(rows)):
        found.append("a row of a former epoch follows one of a later")
    events = [json.loads(row["body"]) for row in rows]
    done = Counter(event[1][1] for event in events if event[1][0] == "step_succeeded")
    if done != Counter(CALLS):
        found.append(f"its steps succeeded {dict(done)} times")
    ends = [seq for seq, event in enumerate(events, 1) if any(one[0] == "finish" for one in event[2])]
    if ends != [len(rows)]:
        found.append(f"rows that end it: {ends} of {len(rows)}")
    starts = Counter((one[1], one[2]) for event in events for one in event[2] if one[0] == "start")
    found += [f"attempt {key} was started by {count} rows" for key, count in starts.items() if count > 1]
    for (run, path, attempt), count in effects.items():
        if run == run_id and count > 1:
            found.append(f"attempt {attempt} of {path} took place {count} times")
        if run == run_id and (path, attempt) not in starts:
            found.append(f"attempt {attempt} of {path} took place, and no row says that it starts")
    return found


async def all_have_ended(connection: Any, folder: Path) -> bool:
    asked = lines(folder / "asked")
    ended = await connection.fetchval("SELECT count(*) FROM run WHERE finished_at IS NOT NULL")
    return len(asked) == int(ended) == len({line[0] for line in lines(folder / "signalled")})


async def takeovers(connection: Any) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM journal WHERE kind = 'adopted'"))
