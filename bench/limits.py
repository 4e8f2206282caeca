"""What this machine can do at all: the figures that every other figure is divided by.

Neither program knows Holdfast. `step_limit` is the shape of a durable step with nothing in it: a coroutine wakes,
a row is appended, one writer thread commits everything that is pending. `commit_limit` is one row per commit.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from pathlib import Path
from typing import Any, Final

import apsw
import uvloop

from bench.scale import Scale

SCHEMA: Final = (
    "CREATE TABLE journal (pos INTEGER PRIMARY KEY, run INTEGER, seq INTEGER, body TEXT, UNIQUE (run, seq))"
)
BODY: Final = "x" * 100
ROWS_PER_STATEMENT_MAX: Final = 512

Row = tuple[int, int, str]
Pending = tuple[Row, asyncio.Future[None]]


def step_limit(folder: Path, *, runs: int = 1_000, steps: int = 10) -> float:
    """L-step: durable steps per second with so many coroutines of so many steps each."""
    path = folder / "limit-step.db"
    try:
        return uvloop.run(step_rows(path, runs, steps))
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


def _resolve(batch: list[Pending]) -> None:
    for _, done in batch:
        done.set_result(None)


async def step_rows(path: Path, runs: int, steps: int, rounds: int = 1) -> float:
    """The work of L-step on a file that stays, with as many new runs in each round; gives the steps per second."""
    loop = asyncio.get_running_loop()
    writer = _Writer(_open(path), loop)
    writer.start()

    async def one(number: int) -> None:
        for run in range(number, runs * rounds, runs):
            for seq in range(steps):
                done: asyncio.Future[None] = loop.create_future()
                writer.append((run, seq, BODY), done)
                await done

    began = time.perf_counter()
    await asyncio.gather(*[one(number) for number in range(runs)])
    took = time.perf_counter() - began
    writer.stop()
    return runs * rounds * steps / took
