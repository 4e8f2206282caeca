"""What several nodes on one PostgreSQL database know of each other: what one of them changes, the others use next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import tool
from holdfast.runtime.compose import Registry, parts_of
from holdfast.runtime.engine import Engine
from holdfast.runtime.options import Options
from holdfast.runtime.starts import StartRun
from holdfast.spec.schedule import schedule_from_data
from holdfast.store.postgres.store import PostgresStore
from holdfast.values import DEFAULT_TENANT as TENANT
from tests.postgres import Server

pytestmark = pytest.mark.anyio

SECONDS = 60.0  # for what takes a moment, on a machine that is busy


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def database(postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return await postgres_server.clean_database()


@tool
async def add(a: int) -> int:
    return a + 1


@asynccontextmanager
async def engine_on(url: str, **options: Any) -> AsyncIterator[Engine]:
    registry = Registry()
    registry.add(add)
    engine = Engine(parts_of(PostgresStore(url), registry, None, Options(**options)))
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def two(database: str) -> AsyncIterator[tuple[Engine, Engine]]:
    async with AsyncExitStack() as both:
        a, b = [await both.enter_async_context(engine_on(f"{database}&node={name}")) for name in "ab"]
        yield a, b


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


def flow(number: int) -> dict[str, Any]:
    return {"name": "w", "steps": [{"id": "add", "tool": "add", "args": {"a": number}}]}


async def result(engine: Engine, what: Any) -> Any:
    begun = await engine.starts.start(StartRun(definition=engine.plans.read(what), inputs={}, tenant=TENANT))
    async with asyncio.timeout(SECONDS):
        resident = await engine.waiters.ended(begun.no)
    assert resident.run.status == "completed"
    return begun


async def test_a_name_means_what_another_node_has_just_published(two: tuple[Engine, Engine]) -> None:
    a, b = two
    for number in range(1, 4):
        await a.commands.publish(TENANT, flow(number))
        assert (await b.starts.published("w", TENANT))[1] == number


async def test_a_webhook_that_another_node_made_is_served_and_one_that_it_deleted_is_not(
    two: tuple[Engine, Engine],
) -> None:
    a, b = two
    trigger = {"kind": "webhook", "path": "/p"}
    said = {"id": "s", "workflow": "w", "trigger": trigger, "allow_unsigned": True}
    await a.schedules.put(TENANT, schedule_from_data(said))
    await until(lambda: b.kinds.hooks.at("/p"))
    await a.schedules.delete(TENANT, "s")
    await until(lambda: not b.kinds.hooks.at("/p"))


async def test_a_schedule_made_at_one_node_starts_a_run_when_a_run_of_another_ends(
    two: tuple[Engine, Engine],
) -> None:
    a, b = two
    await a.commands.publish(TENANT, {**flow(1), "name": "then"})
    trigger = {"kind": "run", "workflow": "w"}
    await a.schedules.put(TENANT, schedule_from_data({"id": "s", "workflow": "then", "trigger": trigger}))
    await until(lambda: b.kinds.run_ends.are_wanted)
    await result(b, flow(1))
    async with asyncio.timeout(SECONDS):
        while not any(row.outcome == "fired" for row in await b.store.ledger(TENANT, "s", None, 9)):
            await asyncio.sleep(0.01)


async def test_three_idle_nodes_make_fewer_than_five_statements_a_second(
    database: str, postgres_server: Server
) -> None:
    """By the clock of the server. A busy machine makes them look less often, never more often."""
    async with AsyncExitStack() as nodes:
        for name in "abc":
            await nodes.enter_async_context(engine_on(f"{database}&node={name}"))
        connection = await nodes.enter_async_context(_connected(postgres_server, database))
        await _counted(connection, 2)  # what follows an opening
        made, seconds = await _counted(connection, 5)
    assert made < 5 * seconds


@asynccontextmanager
async def _connected(server: Server, database: str) -> AsyncIterator[Any]:
    connection = await server.connect(database)
    yield connection
    await connection.close()


async def _counted(connection: Any, seconds: int) -> tuple[int, float]:
    """How many statements others make while this one sleeps: each is a transaction of its own. And how long it slept."""
    first, began = await connection.fetchrow(COUNTED)
    await connection.fetchval("SELECT pg_sleep($1)", seconds)
    last, ended = await connection.fetchrow(COUNTED)
    return last - first - 1, ended - began


COUNTED = """
SELECT xact_commit + xact_rollback, extract(epoch FROM clock_timestamp())::float
  FROM pg_stat_database WHERE datname = current_database()
"""
