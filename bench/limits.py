"""What this machine can do at all: the figures that every other figure is divided by.

Neither program knows Holdfast. `step_limit` is the shape of a durable step with nothing in it: a coroutine wakes,
a row is appended, one writer thread commits everything that is pending. `commit_limit` is one row per commit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import apsw

SCHEMA = "CREATE TABLE journal (pos INTEGER PRIMARY KEY, run INTEGER, seq INTEGER, body TEXT, UNIQUE (run, seq))"
BODY = "x" * 100
Row = tuple[int, int, str]


def _open(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", 2)
    db.execute(SCHEMA)
    return db


class _Writer(threading.Thread):
    """Takes all that is pending into one multi-row insert and one commit, then wakes the loop once."""

    def __init__(self, db: apsw.Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(daemon=True)
        self.db, self.loop = db, loop
        self.pending: list[tuple[Row, asyncio.Future[None]]] = []
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

    def _commit(self, batch: list[tuple[Row, asyncio.Future[None]]]) -> None:
        with self.db:
            for start in range(0, len(batch), 512):
                part = batch[start : start + 512]
                params: list[Any] = []
                for row, _ in part:
                    params += row
                values = ",".join(["(?,?,?)"] * len(part))
                self.db.execute(f"INSERT OR ROLLBACK INTO journal (run, seq, body) VALUES {values}", params)


def _resolve(batch: list[tuple[Row, asyncio.Future[None]]]) -> None:
    for _, done in batch:
        done.set_result(None)


async def _steps(path: Path, runs: int, steps: int) -> float:
    loop = asyncio.get_running_loop()
    writer = _Writer(_open(path), loop)
    writer.start()

    async def one(run: int) -> None:
        for seq in range(steps):
            done: asyncio.Future[None] = loop.create_future()
            writer.append((run, seq, BODY), done)
            await done

    began = time.perf_counter()
    await asyncio.gather(*[one(run) for run in range(runs)])
    took = time.perf_counter() - began
    writer.stopping = True
    writer.wake.set()
    writer.join()
    writer.db.close()
    return runs * steps / took


def step_limit(folder: Path, *, runs: int = 1_000, steps: int = 10, name: str = "limit-step") -> float:
    """L-step: durable steps per second with 1,000 coroutines of 10 steps each."""
    import uvloop

    return uvloop.run(_steps(folder / f"{name}.db", runs, steps))


def commit_limit(folder: Path, *, commits: int = 500, name: str = "limit-commit") -> list[float]:
    """L-commit: the seconds that each of so many one-row commits took."""
    db = _open(folder / f"{name}.db")
    took = []
    for seq in range(commits):
        began = time.perf_counter()
        with db:
            db.execute("INSERT INTO journal (run, seq, body) VALUES (?,?,?)", (1, seq, BODY))
        took.append(time.perf_counter() - began)
    db.close()
    return took
