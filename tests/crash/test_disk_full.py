"""A disk that is full for a while, gives errors, or does not sync: nothing is acknowledged that is not durable, nothing
finished is done again, everything goes on by itself, and after a failed sync the process ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from holdfast import Context, Holdfast, StoreUnavailable, tool
from holdfast.store.sqlite import store as sqlite
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.faults import Fault, Faults
from tests.crash.processes import Driver, Place
from tests.crash.workloads import chain
from tests.store.conformance.batches import appended, row, started

TWO_STEPS = """
name: two-steps
inputs: {n: {type: integer}}
steps:
  - {id: a, tool: work, args: {value: "{{inputs.n}}"}}
  - {id: b, tool: work, args: {value: "{{steps.a.output}}"}}
output: "{{steps.b.output}}"
"""

FAULTS = {
    "disk full": apsw.SQLITE_FULL,
    "write error": apsw.SQLITE_IOERR_WRITE,
}


@pytest.fixture
def disk() -> Iterator[Faults]:
    with Faults() as disk:
        yield disk


class Work:
    """A tool that waits at a gate, and counts what it did: the effects of this test."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.keys: set[str] = set()
        self.arrived = asyncio.Event()
        self.wanted = 0

    def tool(self) -> Callable[..., Awaitable[int]]:
        @tool
        async def work(context: Context, value: int) -> int:
            self.calls[context.run_id, context.path] += 1
            self.keys.add(context.idempotency_key)
            if self.calls.total() >= self.wanted:
                self.arrived.set()
            await self.gate.wait()
            return value + 1

        return work

    async def calls_reach(self, count: int) -> None:
        self.wanted = count
        self.arrived.clear()
        if self.calls.total() < count:
            await asyncio.wait_for(self.arrived.wait(), 120)


@asynccontextmanager
async def engine(folder: Path, work: Work, disk: Faults) -> AsyncIterator[Holdfast]:
    async with Holdfast(f"sqlite:///{folder / 'full.db'}", tools=[work.tool()]) as hf:
        disk.begin()
        yield hf


def broken(code: int) -> Fault:
    return lambda operation, file: code if operation == "write" else 0


@pytest.mark.anyio
@pytest.mark.parametrize("code", FAULTS.values(), ids=FAULTS.keys())
async def test_a_caller_learns_at_once_that_nothing_can_be_written(
    tmp_path: Path, disk: Faults, code: int
) -> None:
    work = Work()
    async with engine(tmp_path, work, disk) as hf:
        run = await hf.start(TWO_STEPS, {"n": 1})
        await work.calls_reach(1)
        disk.fault = broken(code)
        for _ in range(3):  # the first meets the failing commit, the others a node that knows
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(hf.start(TWO_STEPS, {"n": 2}), 120)
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(hf.cancel(run.id), 120)
        disk.fault = None


@pytest.mark.anyio
@pytest.mark.parametrize("code", FAULTS.values(), ids=FAULTS.keys())
async def test_everything_completes_when_space_is_back_and_no_finished_step_runs_again(
    tmp_path: Path, disk: Faults, code: int
) -> None:
    work = Work()
    async with engine(tmp_path, work, disk) as hf:
        runs = [await hf.start(TWO_STEPS, {"n": n}) for n in range(20)]
        await work.calls_reach(20)
        disk.fault = broken(code)
        work.gate.set()  # twenty outcomes meet a full disk
        with pytest.raises(StoreUnavailable):
            await hf.start(TWO_STEPS, {"n": 99})
        assert work.calls.total() == 20, "a step was started by a row that is not durable"
        disk.fault = None
        outputs = [await run.result(timeout=120) for run in runs]
    assert outputs == [n + 2 for n in range(20)]
    assert set(work.calls.values()) == {1}
    assert len(work.calls) == len(work.keys) == 40


@pytest.mark.anyio
async def test_nothing_is_acknowledged_while_the_disk_is_full(tmp_path: Path, disk: Faults) -> None:
    work = Work()
    async with engine(tmp_path, work, disk) as hf:
        run = await hf.start(TWO_STEPS, {"n": 1})
        await work.calls_reach(1)
        work.gate.set()
        disk.fault = broken(apsw.SQLITE_FULL)
        with pytest.raises(StoreUnavailable):
            await hf.start(TWO_STEPS, {"n": 99})
        assert await run.status() == "running"  # reads go on, and tell what is durable
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.3)
        disk.fault = None
        assert await run.result(timeout=120) == 3
    assert _statuses(tmp_path) == {"completed": 1}, "a start that was refused left something behind"


def _statuses(folder: Path) -> dict[str, int]:
    db = apsw.Connection(str(folder / "full.db"))
    found: dict[str, int] = dict(db.execute("SELECT status, count(*) FROM run GROUP BY status"))
    db.close()
    return found


@pytest.mark.anyio
async def test_new_runs_are_taken_again_without_an_operator(tmp_path: Path, disk: Faults) -> None:
    work = Work()
    work.gate.set()
    async with engine(tmp_path, work, disk) as hf:
        disk.fault = broken(apsw.SQLITE_FULL)
        with pytest.raises(StoreUnavailable):
            await hf.start(TWO_STEPS, {"n": 1})
        disk.fault = None
        assert await (await _first_accepted(hf)).result(timeout=120) == 9


async def _first_accepted(hf: Holdfast):  # type: ignore[no-untyped-def]  # a RunHandle, as start gives it
    """What a sensible caller does: try again until the engine has noticed that there is space."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await hf.start(TWO_STEPS, {"n": 7})
            except StoreUnavailable:
                await asyncio.sleep(0.02)


@pytest.mark.anyio
async def test_a_disk_that_is_full_again_and_again_changes_nothing(tmp_path: Path, disk: Faults) -> None:
    work = Work()
    work.gate.set()
    async with engine(tmp_path, work, disk) as hf:
        writes = 0

        def now_and_then(operation: str, file: str) -> int:
            nonlocal writes
            writes += operation == "write"
            return apsw.SQLITE_FULL if operation == "write" and writes % 60 < 5 else 0

        runs = [await hf.start(TWO_STEPS, {"n": n}) for n in range(10)]
        disk.fault = now_and_then
        outputs = [await run.result(timeout=60) for run in runs]
        disk.fault = None
    assert outputs == [n + 2 for n in range(10)]
    assert set(work.calls.values()) == {1}


@pytest.mark.anyio
async def test_leaving_while_the_disk_is_full_does_not_hang_and_the_next_process_goes_on(
    tmp_path: Path, disk: Faults
) -> None:
    work = Work()
    async with asyncio.timeout(120):
        async with engine(tmp_path, work, disk) as hf:
            run = await hf.start(TWO_STEPS, {"n": 1})
            await work.calls_reach(1)
            disk.fault = broken(apsw.SQLITE_FULL)
            with pytest.raises(StoreUnavailable):
                await hf.start(TWO_STEPS, {"n": 2})
        disk.fault = None
        work.gate.set()
        async with engine(tmp_path, work, disk) as hf:
            assert await (await hf.run(run.id)).result() == 3


# ------------------------------------------------------------------------------------ every single failing write


def outcome(store: SqliteStore, seq: int) -> BaseException | None:
    told: list[BaseException | None] = []
    store.submit(appended(row(1, seq), row(2, seq)), told.append)
    return told[0]


@pytest.mark.parametrize("code", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("file", ["wal", "db"])
def test_a_batch_that_meets_an_error_anywhere_is_refused_whole_or_taken_whole(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, code: int
) -> None:
    """The n-th write fails, for every n of a small workload with checkpoints in it."""
    monkeypatch.setattr(sqlite, "WAL_BYTES", 0)  # growing it takes longer than all the rest
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 2)
    refused = reached = 0
    for failing in range(1, 60):
        with Faults() as disk:
            refused += _with_one_error(disk, memory_folder / f"{failing}.db", ("write", file), failing, code)
            reached += disk.counts.get(("write", file), 0) >= failing
    assert reached > 5
    assert (refused > 0) == (file == "wal"), "only what stands in the way of a commit refuses it"


def _with_one_error(disk: Faults, path: Path, where: tuple[str, str], failing: int, code: int) -> int:
    store = SqliteStore(str(path), threads=False)
    store.open_file()
    told: list[BaseException | None] = []
    store.submit(started(1, 2), told.append)
    assert told == [None]
    disk.begin()
    disk.fault = lambda *what: code if what == where and disk.counts[where] == failing else 0
    refused = 0
    for seq in range(2, 31):
        error = outcome(store, seq)
        if error is not None:
            refused += 1
            assert isinstance(error, StoreUnavailable)
            assert _rows(store) == [(1, seq - 1), (2, seq - 1)], "a refused batch left something behind"
            assert outcome(store, seq) is None
    assert _rows(store) == [(1, 30), (2, 30)]
    assert store._read.execute("PRAGMA integrity_check").get == "ok"
    store.close_file()
    return refused


def _rows(store: SqliteStore) -> list[tuple[int, int]]:
    return list(store._read.execute("SELECT run, max(seq) FROM journal GROUP BY run ORDER BY run"))


# ---------------------------------------------------------------------------------------------- a failed sync


def test_a_failed_sync_of_a_commit_ends_the_process(tmp_path: Path) -> None:
    place = Place(tmp_path)
    driver = Driver(place.order(start=[chain(n) for n in range(10)], fail_sync_of="wal"))
    assert driver.end() == 70
    assert not [told for told in driver.told if told[0] == "ended"]


def test_what_was_acknowledged_before_a_failed_sync_goes_on_in_the_next_process(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = Driver(place.order(start=[chain(0)], fail_sync_of="wal"))
    assert first.end() == 70
    acknowledged = [told[2] for told in first.told if told[0] == "started"]
    second = Driver(place.order(attach=acknowledged))
    assert second.end() == 0
    assert [told[2] for told in second.told if told[0] == "ended"] == ["completed"]


def test_a_failed_sync_of_a_checkpoint_ends_the_process_too(tmp_path: Path) -> None:
    """The kernel may have thrown the pages away and will say nothing the next time: going on could lose commits."""
    place = Place(tmp_path)
    order = place.order(start=[chain(n) for n in range(50)], fail_sync_of="db", checkpoint_pages=20)
    assert Driver(order).end() == 70
