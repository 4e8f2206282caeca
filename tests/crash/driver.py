"""The process that is killed: starts runs through the public API, and tells its parent only what it was told.

Its tools leave one line per execution (run, path, attempt, idempotency key) in a file that outlives it. `Order` says what
to do; the answers are tuples on a pipe: ("open", epoch), ("started", n, run id), ("ended", run id, status, value),
("cancelled", run id) when that is durable, ("refused", code, message), ("over",).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import apsw
import msgspec

import holdfast.store.open
import holdfast.store.sqlite.store
from holdfast import Context, Holdfast, RunEnded, tool
from holdfast.embed import RunHandle
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import SystemClock
from holdfast.store.batch import Batch
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import Millis
from tests.crash.faults import Faults

STARTS_AT_ONCE = 16


class Order(msgspec.Struct):
    """What a driver is to do in its life."""

    db: str
    effects: str
    log: str
    start: list[tuple[int, str, dict[str, Any]]] = []  # n, specification, inputs
    attach: list[str] = []  # runs that were acknowledged earlier and whose end was not
    cancel: bool = False  # ask every run to stop once its tool is at work
    kill_commit: int = 0  # kill ourselves at this commit, counted from 1; 0: never
    kill_after: bool = False  # when it is durable and nobody knows; else right before it
    lies: bool = False  # say that a commit is durable before it is: a planted bug, for the checker to find
    clock_rate: int = 1  # how much faster than ours the wall clock runs
    gate: str = ""  # tools named blocked and sync_blocked wait until this file exists
    stay: bool = False  # do not leave when all runs have ended
    checkpoint_pages: int = 0  # checkpoint this often; 0: as usual
    fail_sync_of: str = ""  # the file (wal or db) whose syncs fail once the first run was started


order: Order
_effects: int = -1
_holdfast: Holdfast
_asked: list[asyncio.Task[Any]] = []  # nobody else holds them


def main(the_order: Order, pipe: Connection) -> None:
    """The whole life of the process; whoever started it decides how it ends."""
    global order, _effects
    order = the_order
    _effects = os.open(order.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    logging.basicConfig(filename=order.log, level=logging.INFO, format="%(message)s", force=True)
    if order.kill_commit or order.lies:
        holdfast.store.open.SqliteStore = LyingStore if order.lies else KillingStore  # type: ignore[attr-defined]
    if order.checkpoint_pages:
        holdfast.store.sqlite.store.CHECKPOINT_PAGES = order.checkpoint_pages  # type: ignore[misc]
    try:
        asyncio.run(_live(pipe))
    except HoldfastError as error:
        pipe.send(("refused", error.code, str(error)))


# ---------------------------------------------------------------------------------------------------- tools


def _effect(context: Context) -> None:
    """One whole line, even if the process dies in the next instruction."""
    line = f"{context.run_id} {context.path} {context.attempt} {context.idempotency_key}\n"
    os.write(_effects, line.encode())


@tool
async def add(context: Context, a: int, b: int, ms: int = 0) -> int:
    _effect(context)
    if ms:
        await asyncio.sleep(ms / 1000)
    return a + b


@tool
def sync_add(context: Context, a: int, b: int, ms: int = 0) -> int:
    _effect(context)
    threading.Event().wait(ms / 1000)
    return a + b


@tool
async def fails_first(context: Context, value: int) -> int:
    _effect(context)
    if context.attempt == 1:
        raise RuntimeError("the first attempt always fails")
    return value


@tool
async def fails(context: Context) -> None:
    _effect(context)
    raise RuntimeError("it always fails")


@tool
async def cancels_its_run(context: Context) -> None:
    _effect(context)
    _asked.append(asyncio.create_task(_holdfast.cancel(context.run_id)))
    await asyncio.sleep(60)


@tool
async def pad(context: Context, value: int, size: int) -> dict[str, Any]:
    _effect(context)
    await asyncio.sleep(0.002)
    return {"value": value, "text": "x" * (size * 4 if value % 5 == 0 else size)}


@tool
async def killer(context: Context) -> None:
    _effect(context)
    os.kill(os.getpid(), signal.SIGKILL)


@tool
async def blocked(context: Context, value: int, plus: int = 0) -> int:
    """Waits until the gate is open: for a process that is stopped in the middle of its work."""
    _effect(context)
    while not os.path.exists(order.gate):
        await asyncio.sleep(0.005)
    return value + plus


@tool
def sync_blocked(context: Context, value: int) -> int:
    _effect(context)
    while not os.path.exists(order.gate):
        threading.Event().wait(0.005)
    return value


@tool
async def turn(context: Context, roles: list[str]) -> str:
    """One execution after another plays the next role: fails, hangs, is cancelled, takes the process down, or does well.

    It says when it begins and ends: two lines, unless its process dies between them.
    """
    count = os.pread(os.open(order.effects, os.O_RDONLY), 1 << 20, 0).count(b"begin")
    role = roles[min(count, len(roles) - 1)]
    os.write(_effects, f"begin {context.run_id} {os.getpid()} {role}\n".encode())
    try:
        await asyncio.sleep(0.003)
        if role == "fails":
            raise RuntimeError("by its role")
        if role == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if role == "is cancelled":
            _asked.append(asyncio.create_task(_holdfast.cancel(context.run_id)))
        if role in ("hangs", "is cancelled"):
            await asyncio.sleep(60)
        return context.run_id
    finally:
        os.write(_effects, f"end {context.run_id} {os.getpid()} {role}\n".encode())


@tool
async def makes_file(context: Context, text: str) -> dict[str, Any]:
    (context.workdir / "made").write_text(text * 1000, encoding="utf-8")
    return {"text": text, "file_refs": [{"path": str(context.workdir / "made")}]}


TOOLS: list[Callable[..., Any]] = [
    add, sync_add, fails_first, fails, cancels_its_run, pad, killer, blocked, sync_blocked, turn, makes_file,
]  # fmt: skip


# --------------------------------------------------------------------------------------------------- its life


class FastClock(SystemClock):
    """A wall clock that runs faster, the same in every process: waiting for hours costs no test time."""

    BEGIN = 1_700_000_000_000

    def __init__(self, rate: int) -> None:
        super().__init__()
        self._rate = rate

    def now(self) -> Millis:
        return Millis(self.BEGIN + (time.time_ns() // 1_000_000 - self.BEGIN) * self._rate)


class KillingStore(SqliteStore):
    """Kills the process right before its n-th commit, or when that one is durable and nobody has been told."""

    commits = 0

    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        self.commits += 1
        if self.commits != order.kill_commit:
            return super().submit(batch, done)
        if not order.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        super().submit(batch, lambda _: os.kill(os.getpid(), signal.SIGKILL))


class LyingStore(SqliteStore):
    """Says done at once and writes later: so late that whoever kills it is in time."""

    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(60, super().submit, batch, lambda error: None)
        loop.call_soon(done, None)


async def _live(pipe: Connection) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    global _holdfast
    hf = _holdfast = Holdfast(f"sqlite:///{order.db}", tools=TOOLS, clock=FastClock(order.clock_rate))
    with Faults() as disk:
        await _within(hf, pipe, disk, stopped)
    pipe.send(("over",))


async def _within(hf: Holdfast, pipe: Connection, disk: Faults, stopped: asyncio.Event) -> None:
    async with hf:
        pipe.send(("open",))
        if order.fail_sync_of:
            disk.begin()
        work = asyncio.create_task(_work(hf, pipe, disk))
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if work.done():
            await work
        else:
            work.cancel()


async def _work(hf: Holdfast, pipe: Connection, disk: Faults) -> None:
    places = asyncio.Semaphore(STARTS_AT_ONCE)

    async def begin(n: int, spec: str, inputs: dict[str, Any]) -> None:
        async with places:
            run = await hf.start(spec, inputs)
        pipe.send(("started", n, run.id))
        if order.fail_sync_of:
            disk.fault = _sync_fails
        if order.cancel:
            await hf.cancel(run.id)
            pipe.send(("cancelled", run.id))
        await see_the_end(run)

    async def see_the_end(run: RunHandle) -> None:
        try:
            pipe.send(("ended", run.id, "completed", await run.result()))
        except RunEnded as error:
            pipe.send(("ended", run.id, error.code.removeprefix("run_"), msgspec.to_builtins(error.error)))

    async def attach(run_id: str) -> None:
        await see_the_end(await hf.run(run_id))

    await asyncio.gather(*map(attach, order.attach), *(begin(*each) for each in order.start))
    if order.stay:
        await asyncio.Event().wait()


def _sync_fails(operation: str, file: str) -> int:
    return apsw.SQLITE_IOERR_FSYNC if (operation, file) == ("sync", order.fail_sync_of) else 0
