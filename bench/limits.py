"""What this machine can do at all: the figures that every other figure is divided by.

No program here knows Holdfast. `step_limit` is the shape of a durable step with nothing in it: a coroutine wakes,
a row is appended, one writer thread commits everything that is pending. `commit_limit` is one row per commit.
`pg_step_limit` and `pg_commit_limit` are the same on a PostgreSQL server, with one statement for each commit.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import apsw
import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import uvloop

from bench.scale import Scale

SCHEMA: Final = (
    "CREATE TABLE journal (pos INTEGER PRIMARY KEY, run INTEGER, seq INTEGER, body TEXT, UNIQUE (run, seq))"
)
BODY: Final = "x" * 100
ROWS_PER_STATEMENT_MAX: Final = 512
PG_SCHEMA: Final = "CREATE TABLE journal (pos bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run bigint, seq bigint, body text, UNIQUE (run, seq))"
PG_APPEND: Final = (
    "INSERT INTO journal (run, seq, body) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])"
)

Row = tuple[int, int, str]
Work = Callable[..., Awaitable[object]]
Pending = tuple[Row, asyncio.Future[None]]


def step_limit(folder: Path, *, runs: int = 1_000, steps: int = 10) -> float:
    """L-step: durable steps per second with so many coroutines of so many steps each."""
    path = folder / "limit-step.db"
    try:
        return uvloop.run(step_rows(path, runs, steps))
    finally:
        _remove(path)


def work_limit(folder: Path, work: Work, *, runs: int = 1_000, steps: int = 10) -> float:
    """L-work: the same with the call and the write of the trivial tool in each step, since that part is the user's."""
    path = folder / "limit-work.db"
    try:
        return uvloop.run(step_rows(path, runs, steps, work=work))
    finally:
        _remove(path)


def commit_limit(folder: Path, *, commits: int = 500, warm: int = 500) -> list[float]:
    """L-commit: the seconds that each of so many one-row commits took.

    Those to warm up are not counted: until the log was checkpointed once, each commit makes it longer, and that
    costs another write of the file system.
    """
    path = folder / "limit-commit.db"
    db = _open(path)
    took = []
    for seq in range(warm + commits):
        began = time.perf_counter()
        with db:
            db.execute("INSERT INTO journal (run, seq, body) VALUES (?,?,?)", (1, seq, BODY))
        took.append(time.perf_counter() - began)
    db.close()
    _remove(path)
    return took[warm:]


def commit_p50_ms(folder: Path, scale: Scale) -> float:
    return 1000 * statistics.median(commit_limit(folder, commits=scale.commits, warm=scale.warm_commits))


def _open(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", 2)
    db.execute(SCHEMA)
    return db


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class _Writer(threading.Thread):
    """Takes all that is pending into one commit, then wakes the loop once."""

    def __init__(self, db: apsw.Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(daemon=True)
        self.db, self.loop = db, loop
        self.pending: list[Pending] = []
        self.wake = threading.Event()
        self.stopping = False

    def append(self, row: Row, done: asyncio.Future[None]) -> None:
        self.pending.append((row, done))
        self.wake.set()

    def run(self) -> None:
        while True:
            self.wake.wait()
            self.wake.clear()
            if self.stopping:
                return
            batch, self.pending = self.pending, []
            if batch:
                self._commit(batch)
                self.loop.call_soon_threadsafe(_resolve, batch)

    def stop(self) -> None:
        self.stopping = True
        self.wake.set()
        self.join()
        self.db.close()

    def _commit(self, batch: list[Pending]) -> None:
        with self.db:
            for start in range(0, len(batch), ROWS_PER_STATEMENT_MAX):
                part = batch[start : start + ROWS_PER_STATEMENT_MAX]
                params: list[Any] = []
                for row, _ in part:
                    params += row
                values = ",".join(["(?,?,?)"] * len(part))
                self.db.execute(f"INSERT OR ROLLBACK INTO journal (run, seq, body) VALUES {values}", params)


class _OnLoop(_Writer):
    """Commits on the loop, between two of its turns: a tool that writes gives the interpreter up each time, and a thread that
    commits meanwhile would keep it waiting."""

    def start(self) -> None:
        pass

    def append(self, row: Row, done: asyncio.Future[None]) -> None:
        if not self.pending:
            self.loop.call_soon(self._flush)
        self.pending.append((row, done))

    def _flush(self) -> None:
        batch, self.pending = self.pending, []
        self._commit(batch)
        _resolve(batch)

    def stop(self) -> None:
        self.db.close()


def _resolve(batch: list[Pending]) -> None:
    for _, done in batch:
        done.set_result(None)


async def step_rows(path: Path, runs: int, steps: int, rounds: int = 1, work: Work | None = None) -> float:
    """The work of L-step on a file that stays, with as many new runs in each round; gives the steps per second."""
    loop = asyncio.get_running_loop()
    writer = (_Writer if work is None else _OnLoop)(_open(path), loop)
    writer.start()

    async def one(number: int) -> None:
        for run in range(number, runs * rounds, runs):
            for seq in range(steps):
                if work is not None:
                    await work(run=run, step=seq)
                done: asyncio.Future[None] = loop.create_future()
                writer.append((run, seq, BODY), done)
                await done

    began = time.perf_counter()
    await asyncio.gather(*[one(number) for number in range(runs)])
    took = time.perf_counter() - began
    writer.stop()
    return runs * rounds * steps / took


# ------------------------------------------------------------------------------------------------------ PostgreSQL


async def pg_commit_limit(url: str, *, commits: int, warm: int) -> list[float]:
    """L-commit-pg: the seconds that each of so many one-row commits took."""
    db = await _pg_journal(url)
    took = []
    for seq in range(warm + commits):
        began = time.perf_counter()
        await db.execute(PG_APPEND, [1], [seq], [BODY])
        took.append(time.perf_counter() - began)
    await db.close()
    return took[warm:]


async def pg_step_limit(url: str, *, runs: int, steps: int) -> float:
    """L-step-pg: durable steps per second with so many coroutines of so many steps each, and one connection."""
    db, loop = await _pg_journal(url), asyncio.get_running_loop()
    pending: list[Pending] = []
    has_work = asyncio.Event()

    async def write() -> None:
        nonlocal pending
        while True:
            await has_work.wait()
            has_work.clear()
            batch, pending = pending, []
            if batch:
                await db.execute(PG_APPEND, *map(list, zip(*[row for row, _ in batch], strict=True)))
                _resolve(batch)

    async def one(run: int) -> None:
        for seq in range(steps):
            done: asyncio.Future[None] = loop.create_future()
            pending.append(((run, seq, BODY), done))
            has_work.set()
            await done

    writer = loop.create_task(write())
    began = time.perf_counter()
    await asyncio.gather(*[one(run) for run in range(runs)])
    took = time.perf_counter() - began
    writer.cancel()
    await db.close()
    return runs * steps / took


async def _pg_journal(url: str) -> Any:
    db = await asyncpg.connect(url)
    await db.execute(f"DROP TABLE IF EXISTS journal; {PG_SCHEMA}")
    return db
