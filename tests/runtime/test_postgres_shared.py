"""What several nodes on one PostgreSQL database know of each other: what one of them changes, the others use next."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import tool
from holdfast.engine.codec import decode_row
from holdfast.engine.events import StepSucceeded
from holdfast.errors import Superseded
from holdfast.runtime.compose import Registry, parts_of
from holdfast.runtime.engine import Engine
from holdfast.runtime.options import Options
from holdfast.runtime.starts import StartRun
from holdfast.spec.schedule import schedule_from_data
from holdfast.store.postgres.ownership import LOOK_SECONDS, RENEW_SECONDS
from holdfast.store.postgres.store import PostgresStore
from holdfast.triggers import files, sources
from holdfast.triggers.definitions import Declared
from holdfast.values import DEFAULT_TENANT as TENANT
from tests.postgres import Server

pytestmark = pytest.mark.anyio

SECONDS = 60.0  # for what takes a moment, on a machine that is busy


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


async def test_idle_nodes_ask_nothing_but_their_look_and_their_lease_however_many_runs_wait(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = PostgresStore._asked

    async def noted(self: PostgresStore, name: str, args: Any) -> Any:
        asked.append(name)
        return await real(self, name, args)

    monkeypatch.setattr(PostgresStore, "look_every", 0.02)
    waits = {"name": "w", "steps": [{"id": "go", "kind": "wait_event", "signal_key": "go"}]}
    async with AsyncExitStack() as all_three:
        engines = [await all_three.enter_async_context(engine_on(f"{database}&node={one}")) for one in "abc"]
        for _ in range(20):
            definition = engines[0].plans.read(waits)
            await engines[0].starts.start(StartRun(definition=definition, inputs={}, tenant=TENANT))
        await until(lambda: not any(engine.door.residents for engine in engines))
        monkeypatch.setattr(PostgresStore, "_asked", noted)
        # What the start of the runs has set off is over once a hundred looks in turn have found nothing more.
        await until(lambda: len(asked) > 100 and set(asked[-100:]) <= {"look", "renew"})
    assert 3 * (1 / LOOK_SECONDS + 1 / RENEW_SECONDS) < 5  # statements a second


listening: list[str | None] = []  # the position with which each start of the source began
events: asyncio.Queue[str]


async def listened(position: str | None) -> AsyncIterator[tuple[str, object]]:
    listening.append(position)
    while True:
        yield await events.get(), {}


async def test_one_node_at_a_time_listens_to_a_source_and_another_goes_on_when_it_leaves(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    global events
    events = asyncio.Queue()
    listening.clear()
    monkeypatch.setattr(sources, "ELSEWHERE_SECS", 0.01)
    taken = _asked(monkeypatch)
    trigger = {"kind": "source", "source": f"{__name__}:listened"}
    async with engine_on(f"{database}&node=b") as b:
        async with engine_on(f"{database}&node=a") as a:
            await a.commands.publish(TENANT, flow(1))
            await a.schedules.put(
                TENANT, schedule_from_data({"id": "s", "workflow": "w", "trigger": trigger})
            )
            await until(lambda: taken["a"] and taken["b"] > 3)
            events.put_nowait("one")
            await _fired(b, "one")
            assert listening == [None]
        events.put_nowait("two")
        await _fired(b, "two")
    assert listening == [None, "one"]


async def test_one_node_at_a_time_reads_a_folder_and_another_goes_on_when_it_leaves(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ELSEWHERE_SECS", 0.01)
    looks = Counter[str]()
    right = files.Watching._report

    async def report(watching: Any, *args: Any) -> bool:
        looks[watching._duty._store.node] += 1
        return await right(watching, *args)

    monkeypatch.setattr(files.Watching, "_report", report)
    asked = _asked(monkeypatch)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one").touch()
    trigger = {"kind": "file", "path": str(tmp_path / "in"), "pattern": "*", "stable_secs": 0}
    stacks = {name: AsyncExitStack() for name in "ab"}
    async with stacks["a"], stacks["b"]:
        nodes = {
            name: await stack.enter_async_context(engine_on(f"{database}&node={name}"))
            for name, stack in stacks.items()
        }
        await nodes["a"].commands.publish(TENANT, flow(1))
        await nodes["a"].schedules.put(
            TENANT, schedule_from_data({"id": "s", "workflow": "w", "trigger": trigger})
        )
        await until(lambda: asked["a"] and asked["b"])
        await _fired(nodes["a"], "one")
        (first,) = looks
        await stacks[first].aclose()
        (other,) = set(nodes) - {first}
        (tmp_path / "in" / "two").touch()
        await _fired(nodes[other], "two")
        assert looks[other]


def _asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each node has asked for a duty."""
    asked = Counter[str]()
    right = PostgresStore.take_duty

    async def take_duty(store: PostgresStore, what: str, seconds: float) -> bool:
        asked[store.node] += what != "upkeep"
        return await right(store, what, seconds)

    monkeypatch.setattr(PostgresStore, "take_duty", take_duty)
    return asked


async def test_a_schedule_of_each_node_for_itself_fires_at_every_node_that_was_given_it(
    two: tuple[Engine, Engine],
) -> None:
    data = {"workflow": "w", "trigger": {"kind": "interval", "every": "200ms"}, "locking": "node_local"}
    asked, in_file = (schedule_from_data({"id": name, **data}) for name in ("asked", "in_file"))
    await two[0].commands.publish(TENANT, flow(1))
    for engine in two:
        await engine.schedules.put(TENANT, asked)
        await engine.schedules.swap(TENANT, "file", "s.yaml", [Declared(in_file)])
    for name in ("asked", "in_file"):
        async with asyncio.timeout(SECONDS):
            while set(await two[0].store.ledger_slots(TENANT, name, 9)) != {"a", "b"}:
                await asyncio.sleep(0.01)


async def _fired(engine: Engine, occurrence: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not any(
            row.outcome == "fired" and occurrence in row.occurrence
            for row in await engine.store.ledger(TENANT, "s", None, 9)
        ):
            await asyncio.sleep(0.01)


async def test_nodes_follow_the_clock_of_the_database_whatever_their_own_says(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hour, right = 3_600_000_000_000, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + hour)
    async with engine_on(database) as ahead:
        run = await begun(ahead, {"name": "t", "steps": [{"id": "t", "kind": "timer", "delay_ms": 1000}]})
        assert (await outcome(ahead, run)).status == "completed"
        row = await ahead.store.run_by_no(run.no)
        assert row is not None and row.finished_at is not None
        assert row.finished_at - row.created_at >= 1000
        assert abs(row.created_at - right() // 1_000_000) < 60_000 * SECONDS
        (node,) = await ahead.store.nodes()
    assert "3600 s ahead of the database's" in caplog.text
    assert node.name == ahead.store.node


async def test_a_node_tells_what_another_one_does(two: tuple[Engine, Engine]) -> None:
    a, b = two
    gate = {
        "id": "p",
        "kind": "parallel",
        "branches": [[{"id": "s", "service": "none"}], [{"id": "g", "kind": "timer", "delay_ms": 4000}]],
    }
    run = await begun(a, {"name": "g", "steps": [gate]})
    await b.store.serve_at("http://b")
    seen = {node.name: node for node in await a.store.nodes()}
    assert (seen["b"].address, seen["b"].is_over, seen["a"].runs) == ("http://b", False, 1)
    why = await b.queries.explain(TENANT, run.run_id)
    assert ("other_node", "node a, which drives it") in [(one.reason, one.unblocks) for one in why.reasons]


# ---------------------------------------------------------------------------------------------------- workers

SERVED = {"name": "served", "steps": [{"id": "s", "service": "double", "params": {"x": 21}}]}


async def begun(engine: Engine, what: Any = SERVED) -> Any:
    return await engine.starts.start(StartRun(definition=engine.plans.read(what), inputs={}, tenant=TENANT))


async def outcome(engine: Engine, run: Any) -> Any:
    async with asyncio.timeout(SECONDS):
        return (await engine.waiters.ended(run.no)).run


async def fetched(engine: Engine, worker: str = "w") -> Any:
    async with asyncio.timeout(SECONDS):
        while True:
            found = await engine.workers.poll(TENANT, worker, wait_secs=5)
            if found.assignments or found.cancel:
                return found


async def test_a_worker_fetches_and_reports_at_another_node_than_the_one_that_drives_the_run(
    two: tuple[Engine, Engine],
) -> None:
    a, b = two
    await b.workers.register(TENANT, "w", None, ["double"], "pull")
    await until(lambda: a.workers.is_served(TENANT, "double"))
    run = await begun(a)
    (offer,) = (await fetched(b)).assignments
    assert offer.run_id == run.run_id
    renewed = await b.workers.job_heartbeat(TENANT, offer.id, offer.token)
    assert not renewed.cancel
    await b.workers.complete(TENANT, offer.id, offer.token, {"y": 42})
    await b.workers.complete(TENANT, offer.id, offer.token, {"y": 42})  # the response may have been lost
    ended = await outcome(a, run)
    assert ended.status == "completed"
    with pytest.raises(Superseded):
        await b.workers.complete(TENANT, offer.id, offer.token, {"y": 43})
    assert await a.store.assignments() == []


async def test_a_worker_of_one_node_is_known_at_the_other_at_once(two: tuple[Engine, Engine]) -> None:
    a, b = two
    await a.workers.register(TENANT, "w", None, ["double"], "pull")
    run = await begun(a)
    (offer,) = (await fetched(b)).assignments
    await a.workers.complete(TENANT, offer.id, offer.token, error="no", error_kind="bad")
    assert (await outcome(b, run)).status == "failed"
    await b.workers.forget(TENANT, "w")
    await until(lambda: not a.workers.list(TENANT))


async def test_two_workers_at_two_nodes_never_get_the_same_job(two: tuple[Engine, Engine]) -> None:
    a, b = two
    for node, name in zip(two, ("w", "v"), strict=True):
        await node.workers.register(TENANT, name, None, ["double"], "pull")
    await until(lambda: a.workers.is_served(TENANT, "double") and b.workers.is_served(TENANT, "double"))
    runs = [await begun(engine) for engine in (a, b) * 10]
    offers: list[str] = []

    async def work(engine: Engine, name: str) -> None:
        while len(offers) < len(runs):
            for offer in (await engine.workers.poll(TENANT, name, limit=3, wait_secs=0.2)).assignments:
                offers.append(offer.id)
                await engine.workers.complete(TENANT, offer.id, offer.token, 1)

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(work(a, "w"), work(b, "v"))
    assert len(set(offers)) == len(offers) == len(runs)
    assert {(await outcome(a, run)).status for run in runs} == {"completed"}


async def test_a_worker_at_another_node_is_asked_to_stop(two: tuple[Engine, Engine]) -> None:
    a, b = two
    await b.workers.register(TENANT, "w", None, ["double"], "pull")
    await until(lambda: a.workers.is_served(TENANT, "double"))
    run = await begun(a)
    (offer,) = (await fetched(b)).assignments
    polling = asyncio.create_task(fetched(b))
    await a.runs.cancel(run.run_id)
    assert (await polling).cancel == [offer.id]
    assert (await b.workers.job_heartbeat(TENANT, offer.id, offer.token)).cancel
    await b.workers.complete(TENANT, offer.id, offer.token, error="stopped", error_kind="cancelled")
    assert (await outcome(b, run)).status == "cancelled"


async def test_a_job_whose_lease_has_expired_at_another_node_is_offered_again(database: str) -> None:
    async with (
        engine_on(f"{database}&node=a", worker_lease_secs=0.3) as a,
        engine_on(f"{database}&node=b", worker_lease_secs=0.3) as b,
    ):
        await b.workers.register(TENANT, "w", None, ["double"], "pull")
        await until(lambda: a.workers.is_served(TENANT, "double"))
        run = await begun(a)
        (first,) = (await fetched(b)).assignments
        (second,) = (await fetched(b)).assignments
        assert second.id == first.id and second.token != first.token
        with pytest.raises(Superseded):
            await b.workers.complete(TENANT, first.id, first.token, 1)
        await b.workers.complete(TENANT, second.id, second.token, 2)
        assert (await outcome(a, run)).status == "completed"


async def test_a_job_that_a_worker_has_survives_the_node_that_drove_its_run(database: str) -> None:
    async with engine_on(f"{database}&node=b") as b, engine_on(f"{database}&node=a") as a:
        await b.workers.register(TENANT, "w", None, ["double"], "pull")
        await until(lambda: a.workers.is_served(TENANT, "double"))
        run = await begun(a)
        (offer,) = (await fetched(b)).assignments
        younger = PostgresStore(
            f"{database}&node=a"
        )  # ends the elder of its name, as a lease that expires does
        await younger.open()
        await b.workers.complete(TENANT, offer.id, offer.token, 7)
        await younger.close()
        assert (await outcome(b, run)).status == "completed"
        (body,) = await b.store.rows_of_kind(run.no, "step_succeeded")
        event, _ = decode_row(body)
        assert isinstance(event, StepSucceeded) and (event.attempt, bytes(event.output)) == (1, b"7")
