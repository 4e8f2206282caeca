"""What processes with schedules do, for bench.child: fire every second, catch up, or wait."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from bench.work import chain, many_runs, noting, whole_run
from holdfast import Holdfast, tool
from holdfast.runtime.clock import SystemClock
from holdfast.spec.schedule import schedule_from_data
from holdfast.triggers.definitions import Declared
from holdfast.values import DEFAULT_TENANT, Millis

Order = dict[str, Any]
WORKFLOW: Final = {
    "name": "tick",
    "inputs": {"schedule": {"type": "string"}, "at": {"type": "string"}},
    "steps": [
        {"id": "s", "tool": "ticked", "args": {"schedule": "{{inputs.schedule}}", "at": "{{inputs.at}}"}}
    ],
}
LOAD_SECONDS: Final = 0.005  # between two portions of a load
LATE_SECONDS_MAX: Final = 60  # an occurrence that has not begun by then counts as missed
EARLIER_SECONDS: Final = 120  # beyond the grace: the last of the missed occurrences was missed too


class Earlier(SystemClock):
    """A wall clock that is set back."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._behind_ms = round(1_000 * seconds)

    def now(self) -> Millis:
        return Millis(super().now() - self._behind_ms)


@contextmanager
def ticking(path: Path, begins: Callable[[int], object] = lambda at: None) -> Iterator[Any]:
    """A tool that appends a line for each occurrence: its schedule, its nominal time, and how late it is in ms."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @tool
    async def ticked(schedule: str, at: str) -> None:
        due_ms = _millis(at)
        os.write(fd, f"{schedule} {due_ms} {1_000 * time.time() - due_ms:.3f}\n".encode())
        begins(due_ms)

    try:
        yield ticked
    finally:
        os.close(fd)


def _millis(text: str) -> int:
    from datetime import datetime

    return round(1_000 * datetime.fromisoformat(text).timestamp())


def declared(name: str, expression: str, **fields: Any) -> Declared:
    data = {
        "id": name,
        "workflow": "tick",
        "trigger": {"kind": "cron", "expression": expression},
        "inputs": {"schedule": "{{trigger.schedule_id}}", "at": "{{trigger.scheduled_at}}"},
        **fields,
    }
    return Declared(schedule_from_data(data))


async def store(hf: Holdfast, schedules: list[Declared]) -> None:
    await hf.publish(WORKFLOW)
    await hf._engine.schedules.swap(DEFAULT_TENANT, "api", "bench", schedules)


def holdfast(db: str, *tools: Any, clock: SystemClock | None = None) -> Holdfast:
    return Holdfast(f"sqlite:///{db}", tools=tools, tune_gc=True, clock=clock)


async def fire(order: Order, say: Callable[..., None]) -> None:
    """So many schedules, each due every second, for so many seconds; beside a load of runs, if there is to be one."""
    begun: Counter[int] = Counter()
    with (
        ticking(Path(order["effects"]), lambda at: begun.update((at,))) as ticked,
        noting(Path(order["db"] + ".effects")) as note,
    ):
        async with holdfast(order["db"], ticked, note) as hf:
            load = Load(hf, order["load_runs"], order["load_steps"])
            await load.measure()
            await store(
                hf, [declared(f"s{n}", "* * * * * *", overlap="allow") for n in range(order["schedules"])]
            )
            at_work = asyncio.create_task(load.go_on())
            first = int(time.time()) + 2
            last = first + order["seconds"] - 1
            cpu = time.process_time()
            for _ in range(order["seconds"] + LATE_SECONDS_MAX):
                await asyncio.sleep(1)
                if begun[1_000 * last] >= order["schedules"]:
                    break
            cpu = time.process_time() - cpu
            at_work.cancel()
            await asyncio.wait([at_work])
            say(first_ms=1_000 * first, last_ms=1_000 * last, cpu=cpu, load=load.reached)


class Load:
    """Runs of some steps each, started at half the rate at which the process completes them alone."""

    def __init__(self, hf: Holdfast, runs: int, steps: int) -> None:
        self._hf, self._runs, self._steps = hf, runs, steps
        self._spec = chain(steps)
        self._per_second = 0.0
        self._ended = 0
        self._began = 0.0

    async def measure(self) -> None:
        if self._runs:
            await whole_run(self._hf, self._spec, 0)
            took = await many_runs(self._hf, self._spec, runs=self._runs, in_flight=self._runs)
            self._per_second = self._runs / took / 2

    @property
    def reached(self) -> float:
        """Steps per second so far."""
        return self._steps * self._ended / (time.perf_counter() - self._began) if self._ended else 0.0

    async def go_on(self) -> None:
        if not self._per_second:
            return
        self._began, started = time.perf_counter(), 0
        async with asyncio.TaskGroup() as runs:
            while True:
                await asyncio.sleep(LOAD_SECONDS)
                wanted = int((time.perf_counter() - self._began) * self._per_second)
                # a machine that is slower now than when it was measured is kept busy, and no busier
                for number in range(started, min(wanted, self._ended + self._runs)):
                    runs.create_task(self._run(number))
                    started = number + 1

    async def _run(self, number: int) -> None:
        await whole_run(self._hf, self._spec, number)
        self._ended += 1


async def catch_up(order: Order, say: Callable[..., None]) -> None:
    """A schedule that was due every second for so many seconds while no engine was awake."""
    rest = asyncio.Event()
    begun = 0

    def begins(at: int) -> None:
        nonlocal begun
        begun += 1
        if begun >= order["fires"]:
            rest.set()

    with ticking(Path(order["effects"]), begins) as ticked:
        earlier = Earlier(order["missed"] + EARLIER_SECONDS)
        async with holdfast(order["db"], ticked, clock=earlier) as hf:
            await store(hf, [declared("s", "* * * * * *", missed_run_policy="run_all", max_catchup=0)])
        async with holdfast(order["db"], ticked) as hf:
            await asyncio.sleep(1)
            before, cpu = _rss_mb(), time.process_time()
            await rest.wait()
            say(rss_before=before, rss_after=_rss_mb(), cpu=time.process_time() - cpu)


async def store_schedules(order: Order, say: Callable[..., None]) -> None:
    with ticking(Path(order["db"] + ".effects")) as ticked:
        async with holdfast(order["db"], ticked) as hf:
            count = order["schedules"]
            await store(hf, [declared(f"s{n}", f"{n % 60} {n // 60 % 60} 3 1 1 *") for n in range(count)])
            say(stored=count)


async def stay_idle(order: Order, say: Callable[..., None]) -> None:
    cpu = time.process_time()
    with ticking(Path(order["db"] + ".effects")) as ticked:
        async with holdfast(order["db"], ticked):
            await asyncio.sleep(1)  # what is done in the background after opening belongs to the start
            started = time.process_time()
            await asyncio.sleep(order["seconds"])
            say(start_cpu=started - cpu, idle_cpu=time.process_time() - started)


def _rss_mb() -> float:
    return psutil.Process().memory_info().rss / 1024 / 1024
