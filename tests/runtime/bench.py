"""A real engine on a real SQLite file, opened and ended as a test needs: gracefully, or as by a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from holdfast.embed import RunHandle
from holdfast.runtime import compose
from holdfast.runtime.clock import Clock
from holdfast.runtime.compose import Options
from holdfast.runtime.engine import Engine
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.starts import StartRun
from holdfast.spec.notation import Definition
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.batch import Batch
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import crash
from holdfast.tools.guard import Guard
from holdfast.tools.registry import Registry
from holdfast.values import RunId


class Store(SqliteStore):
    """The real store, with a valve in front of its commits.

    `refuse` decides what becomes of a batch: an error to answer with, or None to let it pass. `hold` keeps batches
    back until `let_go`, `lag` for that many seconds of the loop's time. Commits run on the loop, so a test sees them
    in order.
    """

    def __init__(self, path: Path | str) -> None:
        super().__init__(str(path), durability="relaxed", threads=False)
        self.refuse: Callable[[Batch], BaseException | None] = lambda batch: None
        self.lag: Callable[[], float] = lambda: 0.0
        self.hold = False
        self.held: list[tuple[Batch, Callable[[BaseException | None], None]]] = []
        self.is_closed = False

    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        if self.hold:
            self.held.append((batch, done))
            return
        if lag := self.lag():
            asyncio.get_running_loop().call_later(lag, self._commit_late, batch, done)
        else:
            self._commit_now(batch, done)

    def _commit_late(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        if not self.is_closed:  # a process that ended meanwhile took the batch with it
            self._commit_now(batch, done)

    def _commit_now(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        error = self.refuse(batch)
        if error is not None:
            return done(error)
        super().submit(batch, done)

    def close_file(self) -> None:
        self.is_closed = True
        super().close_file()

    def let_go(self) -> None:
        self.hold = False
        held, self.held = self.held, []
        for batch, done in held:
            self.submit(batch, done)


async def started(
    engine: Engine, definition: Definition, inputs: dict[str, Any] | None = None, **more: Any
) -> ResidentRun:
    """A run that begins now, as the engine holds it."""
    begun = await engine.starts.start(StartRun(definition=definition, inputs=inputs or {}, **more))
    assert begun.resident is not None
    return begun.resident


class Bench(Engine):
    """The engine with the few calls that tests repeat."""

    store: Store

    async def begin(
        self, definition: str, inputs: Mapping[str, Any] | None = None, **labels: str
    ) -> RunHandle:
        spec = WorkflowSpec.from_yaml_str(definition)
        resident = await started(self, spec, dict(inputs or {}), labels=labels)
        return RunHandle(self, resident.run.no, resident.run.id)

    async def attach(self, run_id: RunId) -> RunHandle:
        row = await self.runs.row_of(run_id)
        return RunHandle(self, row.no, row.id)

    def crash(self) -> None:
        """End as a killed process does: nothing more is written, nobody is told."""
        crash(self)


def engine_on(store: SqliteStore, registry: Registry, clock: Clock | None = None, **options: Any) -> Engine:
    """An engine on a store of the test's own."""
    return Engine(compose.parts_of(store, registry, clock, Options(**options)))


def bench(
    path: Path,
    tools: Iterable[Any],
    clock: Clock,
    store: Store | None = None,
    guard: Guard | None = None,
    **options: Any,
) -> Bench:
    made = compose.parts_of(
        store or Store(path / "h.db"), Registry(tools, guard=guard), clock, Options(**options)
    )
    return Bench(made)


@asynccontextmanager
async def opened(path: Path, tools: Iterable[Any], clock: Clock, **options: Any) -> AsyncIterator[Bench]:
    """An engine that is closed gracefully, unless the test has ended it already."""
    engine = bench(path, tools, clock, **options)
    await engine.open()
    try:
        yield engine
    finally:
        if not engine.door.is_over:
            await engine.close()


def rows(path: Path, query: str, *args: Any) -> list[tuple[Any, ...]]:
    """What the file says, by a connection of its own."""
    db = apsw.Connection(str(path / "h.db"))
    try:
        return list(db.execute(query, args))
    finally:
        db.close()
