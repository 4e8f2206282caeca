"""The engine in your own process: the Holdfast class, handles of runs, and run_sync. No HTTP, no SQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from holdfast.errors import EngineClosed, InvalidInputs, RunCancelled, RunEnded, RunFailed, RunInterrupted
from holdfast.runtime.advance import Live
from holdfast.runtime.app import Engine
from holdfast.runtime.clock import Clock
from holdfast.runtime.owners import Lock
from holdfast.runtime.queries import output_of
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.sqlite import SqliteStore
from holdfast.tools.registry import Registry
from holdfast.values import Error, RunId, RunNo

Spec = WorkflowSpec | str | os.PathLike[str] | Mapping[str, Any]

_ENDED: dict[str, type[RunEnded]] = {
    "failed": RunFailed,
    "cancelled": RunCancelled,
    "interrupted": RunInterrupted,
}


class Holdfast:
    """A durable engine on one SQLite file.

        async with Holdfast("sqlite:///holdfast.db", tools=[add]) as hf:
            run = await hf.start("hello.yaml", {"a": 1})
            print(await run.result())

    Every open run of the file goes on as soon as it is entered.
    """

    def __init__(
        self,
        database: str = "sqlite:///holdfast.db",
        *,
        tools: Iterable[Any] = (),
        durability: str = "full",
        clock: Clock | None = None,
    ) -> None:
        self._path = database_path(database)
        self._lock = Lock(self._path)
        self._store = SqliteStore(self._path, durability=durability)
        self._engine = Engine(self._store, Registry(tools), clock)
        self._specs: dict[str, WorkflowSpec] = {}
        self._was_opened = False

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise EngineClosed("a Holdfast is opened once; make a new one")
        self._was_opened = True
        self._lock.take()
        try:
            await self._engine.open()
        except BaseException:
            self._lock.free()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._engine.close()
        finally:
            self._lock.free()

    async def start(
        self, spec: Spec, inputs: Mapping[str, Any] | None = None, *, labels: Mapping[str, str] | None = None
    ) -> RunHandle:
        """Start a run. When this returns, the run is durable: it will end, whatever happens to this process."""
        if inputs is not None and not isinstance(inputs, Mapping):
            raise InvalidInputs(f"inputs must be a mapping of names to values, not {type(inputs).__name__}")
        live = await self._engine.start(self._read(spec), dict(inputs or {}), dict(labels or {}))
        return RunHandle(self._engine, live.run.no, live.run.id)

    async def run(self, run_id: str) -> RunHandle:
        """Attach to a run again, also after a crash."""
        row = await self._engine.row_of(RunId(run_id))
        return RunHandle(self._engine, row.no, row.id)

    async def cancel(self, run_id: str, reason: str = "") -> None:
        """Stop a run: nothing new starts, what is at work is told, and the run ends `cancelled`."""
        await self._engine.cancel(RunId(run_id), reason)

    def _read(self, spec: Spec) -> WorkflowSpec:
        """A definition in any of its forms; the same text is read once."""
        if isinstance(spec, WorkflowSpec):
            return spec
        if isinstance(spec, Mapping):
            return WorkflowSpec.from_data(spec)
        if not isinstance(spec, str | os.PathLike):
            raise TypeError(
                f"a workflow is a WorkflowSpec, YAML text, a path or a dict, not {type(spec).__name__}"
            )
        text = os.fspath(spec)
        if isinstance(spec, os.PathLike) or "\n" not in text and text.endswith((".yaml", ".yml", ".json")):
            return WorkflowSpec.from_file(text)
        if text not in self._specs:
            self._specs[text] = WorkflowSpec.from_yaml_str(text)
        return self._specs[text]


class RunHandle:
    """One run, by its id."""

    __slots__ = ("_ended", "_engine", "_no", "id")

    def __init__(self, engine: Engine, no: RunNo, run_id: RunId) -> None:
        self._engine, self._no = engine, no
        self._ended: Live | None = None
        self.id = run_id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def status(self) -> str:
        """Where the run stands, as of its last durable row."""
        return (await self._engine.row_of(self.id)).status

    async def result(self, timeout: float | None = None) -> Any:
        """The output of the run once it completes; raises RunFailed, RunCancelled or RunInterrupted if it does not."""
        if self._ended is None:
            self._ended = await self._wait(timeout)
        live = self._ended
        run = live.run
        if run.status == "completed":
            return await output_of(self._engine.store, live.plan, run)
        raise _ENDED[run.status](run.id, run.error or Error(run.status, f"the run is {run.status}"))

    async def _wait(self, timeout: float | None) -> Live:
        if timeout is None:
            return await self._engine.ended(self._no)
        try:
            return await asyncio.wait_for(self._engine.ended(self._no), timeout)
        except TimeoutError:
            raise TimeoutError(f"run {self.id} is not over after {timeout} s: {await self._why()}") from None

    async def _why(self) -> str:
        row = await self._engine.row_of(self.id)
        return f"it is {row.status}" + (f" and needs the tools {row.needs}" if row.needs else "")


def database_path(database: str) -> str:
    """`sqlite:///file.db` (or a plain path) → the path of the file."""
    if ":memory:" in database:
        raise ValueError("a database in memory would survive nothing; give the name of a file")
    for prefix in ("sqlite:///", "sqlite://"):
        if database.startswith(prefix):
            return database[len(prefix) :]
    if "://" in database:
        raise ValueError(f"{database!r} is no SQLite address; write sqlite:///holdfast.db")
    return database


def run_sync(
    spec: Spec,
    inputs: Mapping[str, Any] | None = None,
    *,
    tools: Iterable[Any] = (),
    database: str = "sqlite:///holdfast.db",
) -> Any:
    """Run a workflow to its end and give its output: for scripts and notebooks."""

    async def main() -> Any:
        async with Holdfast(database, tools=tools) as hf:
            return await (await hf.start(spec, inputs)).result()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    # A notebook has a loop of its own at work in this thread: use one in another.
    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: asyncio.run(main())).result()
