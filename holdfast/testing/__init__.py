"""Testing workflows: the pytest fixture `engine`, a manual clock, and fake tools.

    async def test_a_reminder_is_sent_after_three_days(engine):
        send = engine.fake_tool("send", returns="sent")
        run = await engine.start("reminder.yaml", {"to": "ada"})
        await engine.advance(days=3)
        assert send.calls == [{"to": "ada"}]
        assert await run.status() == "completed"

The engine is the real one, on a real file. Only time is simulated: its clock and the event loop of the test read one
number, which changes only when the test advances it. Threads, processes and sockets are real, and the clock waits for them.

This module is a pytest plugin: it runs async tests that use the fixture, unless another plugin (anyio,
pytest-asyncio) runs them; the fixture works there too. Production code must not import this module.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.testing.clock import (
    BEGAN,
    JUMPS_MAX,
    MOMENT_SECONDS,
    SOCKET_SECONDS,
    STUCK_SECONDS,
    ManualClock,
    ManualLoop,
    manual_loop,
    next_call,
    settled,
)

if TYPE_CHECKING:  # pytest loads this file at every start, used or not: the rest is imported on first use
    from holdfast.embed import Holdfast, Resumption, RunHandle, Spec
    from holdfast.runtime.engine import Engine

__all__ = [
    "BEGAN",
    "FakeTool",
    "ManualClock",
    "ManualLoop",
    "TestEngine",
    "crash",
    "engine",
    "next_call",
    "settled",
]

TIDY_SECONDS: Final = 3_600.0  # the least simulated time between two rounds of upkeep


# ------------------------------------------------------------------------------------------------------------ tools


class FakeTool:
    """A tool that records its calls and returns what the test configured."""

    def __init__(self, name: str, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.name, self._answer = name, answer
        self.calls: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return f"<fake tool {self.name}, called {len(self.calls)} times>"

    async def __call__(self, **args: Any) -> Any:
        self.calls.append(args)
        answer = self._answer(args)
        return await answer if inspect.isawaitable(answer) else answer


def _answers(
    name: str, returns: Any, raises: BaseException | type[BaseException] | None, side_effect: Any
) -> Callable[[dict[str, Any]], Any]:
    """The result of a fake tool for the given arguments."""
    if raises is not None:
        return lambda args: _raised_or(raises)
    if callable(side_effect):
        return lambda args: side_effect(**args)
    if side_effect is not None:
        left: Iterator[Any] = iter(side_effect)
        return lambda args: _raised_or(_next(left, name))
    return lambda args: returns


def _next(left: Iterator[Any], name: str) -> Any:
    for answer in left:
        return answer
    raise AssertionError(f"the fake tool {name!r} was called more often than it has results")


def _raised_or(answer: Any) -> Any:
    if isinstance(answer, BaseException) or isinstance(answer, type) and issubclass(answer, BaseException):
        raise answer
    return answer


# ----------------------------------------------------------------------------------------------------------- engine


class TestEngine:
    """The value of the fixture `engine`: a real engine on its own file, opened on first use.

    `start`, and everything that it makes happen immediately, takes no time. Time advances only in `advance`, `run`
    and `finish`.
    """

    __test__ = False  # tells pytest that this is not a class of tests

    def __init__(self, file: Path) -> None:
        self.file = file
        self.options: dict[str, Any] = {}  # further arguments for `Holdfast(...)`: secrets, remote, …
        self.clock = ManualClock()
        self._tools: dict[str, Any] = {}
        self._runs: list[RunHandle] = []
        self._hf: Holdfast | None = None
        self._home: Any = None  # the loop on which it is open
        self._tidied = 0.0  # when upkeep last ran

    # ------------------------------------------------------------------------------------------------ workflows

    async def start(
        self,
        spec: Spec,
        inputs: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent_job_id: str | None = None,
        final_callback: str | Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """Start a run, then process everything that is due now. The handle stays valid after `restart`."""
        hf = await self.open()
        run = await hf.start(
            spec,
            inputs,
            request_id=request_id,
            labels=labels,
            parent_job_id=parent_job_id,
            final_callback=final_callback,
        )
        self._runs.append(run)
        await self._rest()
        return run

    async def run(self, spec: Spec, inputs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Run a workflow to its end, advancing time over every timer and retry. Returns its output, or raises
        RunFailed."""
        return await self.finish(await self.start(spec, inputs, **options))

    async def finish(self, run: RunHandle) -> Any:
        """Advance time until a run has finished. Returns its output, or raises RunFailed, RunCancelled or
        RunInterrupted."""
        await self.open()
        ending = asyncio.ensure_future(run.result())
        try:
            await self._rest()
            for _ in range(JUMPS_MAX):
                at = next_call()
                if ending.done():
                    return await ending
                if at is None or not await self._can_move(run):
                    raise AssertionError(f"run {run.id} makes no progress: {await run._why()}")
                self.clock.seconds = max(self.clock.seconds, at)
                await self._rest()
        finally:
            ending.cancel()
        raise AssertionError(f"run {run.id} does not finish: time was advanced {JUMPS_MAX:,} times")

    async def attach(self, run_id: str) -> RunHandle:
        """A run by its id. The handle stays valid after `restart`."""
        run = await (await self.open()).run(run_id)
        self._runs.append(run)
        return run

    # ------------------------------------------------------------------------------------------- answers from outside

    async def resume(self, task_id: str, answer: Any, *, run_id: str | None = None) -> Resumption:
        """Deliver the callback of a call, then process everything that is due now."""
        resumed = await (await self.open()).resume(task_id, answer, run_id=run_id)
        await self._rest()
        return resumed

    async def approve(self, run: RunHandle, path: str, **answer: Any) -> bool:
        """Answer an approval, as `Holdfast.approve` does, then process everything that is due now."""
        decided = await (await self.open()).approve(run.id, path, **answer)
        await self._rest()
        return decided

    async def signal(
        self, run: RunHandle, key: str, value: Any = None, *, correlation: str | None = None
    ) -> None:
        """Send a signal to a run, then process everything that is due now."""
        await (await self.open()).signal(run.id, key, value, correlation=correlation)
        await self._rest()

    # ------------------------------------------------------------------------------------------------------ time

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now() / 1000, UTC)

    async def advance(
        self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Advance time: every timer in between fires at its own time."""
        await self.open()
        passed = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        if passed < 0:
            raise ValueError(f"time cannot go back: {passed:g} s")
        self._tidy_in(passed)
        await self.clock.advance(passed, self._rest)

    def _tidy_in(self, passed: float) -> None:
        """Run the hourly upkeep only once, before the end of a long advance: a century has a million hours."""
        upkeep = self._engine.upkeep
        if upkeep is not None and self.clock.seconds + passed >= self._tidied + TIDY_SECONDS:
            self._tidied = self.clock.seconds + passed
            manual_loop().call_later(max(0.0, passed - TIDY_SECONDS / 2), upkeep.begin_round)

    # ----------------------------------------------------------------------------------------------------- tools

    def tool(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Register a real tool; also usable as a decorator. It replaces a tool of the same name."""
        from holdfast.tools.registry import Registry

        (made,) = Registry([fn])
        self._tools[made.name] = fn
        if self._hf is not None:
            self._engine.registry.add(fn, replace=True)
        return fn

    def fake_tool(
        self,
        name: str,
        returns: Any = None,
        *,
        raises: BaseException | type[BaseException] | None = None,
        side_effect: Callable[..., Any] | Sequence[Any] | None = None,
    ) -> FakeTool:
        """Register a fake tool, which returns a value, raises, or calls a function. Its `.calls` are the arguments of
        each call.

        A function given as the result is called with the arguments. A list as `side_effect` has one result, or
        exception, per call.
        """
        from holdfast.tools.registry import tool

        if side_effect is None and callable(returns):
            side_effect = returns
        fake = FakeTool(name, _answers(name, returns, raises, side_effect))

        @tool(name=name)
        async def call(**args: Any) -> Any:
            return await fake(**args)

        self.tool(call)
        return fake

    # ---------------------------------------------------------------------------------------------- open, crash, close

    async def open(self) -> Holdfast:
        """The Holdfast object, for everything else that it can do."""
        loop = manual_loop()
        if self._hf is not None and self._home is loop:
            return self._hf
        self.close()  # a test may run several loops one after another on the same file
        self._take_time(loop)
        from holdfast.embed import Holdfast

        class OnManualClock(Holdfast):
            _manual_clock = True

        # A test may advance time by months and read a run afterwards.
        options = {"durability": "relaxed", "retention_days": None, **self.options}
        hf = OnManualClock(str(self.file), tools=self._tools.values(), clock=self.clock, **options)
        self._tidied = self.clock.seconds
        self._hf = await hf.__aenter__()
        for run in self._runs:
            run._engine = hf._engine
        return hf

    async def restart(self) -> None:
        """Stop as a killed process would, writing nothing and giving back nothing, and open the file again."""
        await self.open()
        self._kill()
        await settled()
        await self.open()
        await self._rest()

    def close(self) -> None:
        """Close the engine, and restore the loop's own time."""
        if self._hf is not None:
            self._kill()
        if self._home is not None:
            self._home.__dict__.pop("time", None)
            self._home = None

    def _kill(self) -> None:
        hf, self._hf = self._hf, None
        assert hf is not None
        crash(hf._engine)
        hf._lock.free()

    def _take_time(self, loop: Any) -> None:
        """Make a loop read our clock, whichever library created it."""
        if not isinstance(loop, ManualLoop):
            self.clock.go_on_from(loop.time())  # calls that are already scheduled keep their delay
            loop.time = self.clock.loop_time
        else:
            loop.clock = self.clock
        self._home = loop

    @property
    def _engine(self) -> Engine:
        assert self._hf is not None, "the engine is not open; await one of its methods first"
        return self._hf._engine

    async def _rest(self) -> None:
        """Run until nothing is ready, and work in real time has finished or had its share of it."""
        await settled()
        spent = 0.0
        while spent < self.patience_seconds():
            await _moment()
            spent += MOMENT_SECONDS
            await settled()

    def patience_seconds(self) -> float:
        """How long, in real seconds, the clock waits for work outside the loop before it moves on. A test may override it."""
        attempts = self._engine.dispatch.attempts.values() if self._hf is not None else ()
        if any(not attempt.tool.is_async or attempt.tool.isolated for attempt in attempts):
            return STUCK_SECONDS
        if self._hf is not None and (self._engine.outbox.is_busy or self._engine.polling.is_busy):
            return STUCK_SECONDS
        # One socket is the loop's own.
        has_socket = len(self._home._selector.get_map()) > 1 or _has_busy_thread(self._home)
        return SOCKET_SECONDS if attempts and has_socket else 0.0

    async def _can_move(self, run: RunHandle) -> bool:
        """Whether an attempt is running, or a timer is armed. Advancing time cannot provide a missing tool."""
        row = await self._engine.runs.row_of(run.id)
        resident = self._engine.door.residents.get(row.no)
        wakes = row.wake_at is not None or resident is not None and resident.run.wake_at is not None
        return wakes or any(no == row.no for no, _ in self._engine.dispatch.attempts)


def crash(engine: Engine) -> None:
    """Stop an engine as a killed process would: nothing more is written or reported."""
    engine.committer.abandon()
    engine.abandon()
    engine.store.abandon()
    engine.gate.is_open = False


def _has_busy_thread(loop: Any) -> bool:
    """Whether a thread of the loop is busy. DNS lookups run there."""
    threads = loop._default_executor
    return threads is not None and len(threads._threads) > threads._idle_semaphore._value


async def _moment() -> None:
    """Wait for a moment of real time."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    threading.Timer(MOMENT_SECONDS, lambda: loop.call_soon_threadsafe(over.set_result, None)).start()
    await over


# ----------------------------------------------------------------------------------------------------------- pytest


@pytest.fixture
def engine(tmp_path: Path) -> Generator[TestEngine]:
    """A real engine on a temporary file, with a manual clock: see holdfast.testing.TestEngine."""
    made = TestEngine(tmp_path / "holdfast.db")
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Close the engine on the loop on which it was opened, whichever plugin runs the test."""
    test = _engine_of(item)
    if test is not None and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _closing(item.obj, test)


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses the fixture and that no other plugin runs."""
    if _engine_of(pyfuncitem) is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def _engine_of(item: pytest.Item) -> TestEngine | None:
    """The engine of a test. Found by its type, because other plugins may have a fixture of the same name."""
    values = getattr(item, "funcargs", {}).values()
    return next((value for value in values if isinstance(value, TestEngine)), None)


def _closing(
    test: Callable[..., Coroutine[Any, Any, None]], engine: TestEngine
) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        try:
            await test(*args, **kwargs)
        finally:
            engine.close()
            await asyncio.sleep(0)  # tools that are still running are cancelled

    return run
