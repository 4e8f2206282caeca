"""The engine on a PostgreSQL server, on one node and on two: any node serves any run, and a node that dies loses none."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RunCancelled, tool
from holdfast.errors import Unavailable
from tests.postgres import Proxy, Server

pytestmark = pytest.mark.anyio

SECONDS = 60.0  # for what takes a moment, on a machine that is busy


@tool
async def add(a: int) -> int:
    return a + 1


@pytest.fixture
async def database(postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return await postgres_server.clean_database()


@pytest.fixture
async def two(database: str) -> AsyncIterator[tuple[Holdfast, Holdfast]]:
    async with AsyncExitStack() as both:
        a, b = [
            await both.enter_async_context(Holdfast(f"{database}&node={name}", tools=[add])) for name in "ab"
        ]
        yield a, b


def steps(*which: dict[str, Any]) -> dict[str, Any]:
    return {"name": "w", "steps": list(which)}


ADD = {"id": "add", "tool": "add", "args": {"a": 1}}
GATE = {"id": "gate", "kind": "approve", "prompt": "Go on?"}


async def test_a_run_is_executed_and_found_again_by_the_next_process(database: str) -> None:
    async with Holdfast(database, tools=[add]) as one:
        handle = await one.start(steps(ADD))
        assert await handle.result(timeout=SECONDS) == {"add": 2}
    async with Holdfast(database, tools=[add]) as other:
        assert await (await other.run(handle.id)).result(timeout=SECONDS) == {"add": 2}


async def test_a_run_of_another_node_is_waited_for(two: tuple[Holdfast, Holdfast]) -> None:
    a, b = two
    begun = await a.start(steps(GATE, ADD))
    waiting = asyncio.create_task((await b.run(begun.id)).result(timeout=SECONDS))
    await a.approve(begun.id, "gate")
    assert (await waiting)["add"] == 2


async def test_any_node_decides_an_approval(two: tuple[Holdfast, Holdfast]) -> None:
    a, b = two
    begun = await a.start(steps(GATE, ADD))
    async for event in (await b.run(begun.id)).events():
        if event["state"] == "waiting":
            break
    await b.approve(begun.id, "gate")
    assert (await begun.result(timeout=SECONDS))["add"] == 2


async def test_any_node_cancels_a_run_whose_tool_is_at_work_on_another(database: str) -> None:
    begins, is_stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> None:
        begins.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()

    async with (
        Holdfast(f"{database}&node=a", tools=[hang]) as a,
        Holdfast(f"{database}&node=b", tools=[]) as b,
    ):
        begun = await a.start(steps({"id": "hang", "tool": "hang"}))
        await begins.wait()
        await b.cancel(begun.id)
        with pytest.raises(RunCancelled):
            await begun.result(timeout=SECONDS)
        await asyncio.wait_for(is_stopped.wait(), SECONDS)


async def test_any_node_signals_a_run_that_another_drives(database: str) -> None:
    begins, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        begins.set()
        await may_end.wait()
        return "done"

    wait = {"id": "wait", "kind": "wait_event", "signal_key": "go"}
    both = {"id": "both", "kind": "parallel", "branches": [[{"id": "work", "tool": "work"}], [wait]]}
    async with (
        Holdfast(f"{database}&node=a", tools=[work]) as a,
        Holdfast(f"{database}&node=b", tools=[]) as b,
    ):
        begun = await a.start(steps(both))
        await begins.wait()
        await b.signal(begun.id, "go", {"x": 1})
        may_end.set()
        await begun.result(timeout=SECONDS)


async def test_one_request_to_two_nodes_at_the_same_moment_begins_one_run(
    two: tuple[Holdfast, Holdfast],
) -> None:
    for n in range(10):
        begun = await asyncio.gather(*(each.start(steps(ADD), request_id=str(n)) for each in two))
        assert begun[0].id == begun[1].id
        assert await begun[0].result(timeout=SECONDS) == {"add": 2}


async def test_a_run_that_lacks_a_tool_goes_on_at_the_node_that_has_it(database: str) -> None:
    async with (
        Holdfast(f"{database}&node=a", tools=[]) as a,
        Holdfast(f"{database}&node=b", tools=[add]),
    ):
        begun = await a.start(steps(ADD))
        assert await begun.result(timeout=SECONDS) == {"add": 2}


async def test_a_key_passes_to_a_run_that_another_node_drives(database: str) -> None:
    """The run that waits for the key is at work in another branch, so it stays where it is."""
    begins, may_end, counts = asyncio.Event(), asyncio.Event(), [0]

    @tool
    async def once() -> int:
        counts[0] += 1
        begins.set()
        await may_end.wait()
        return counts[0]

    @tool
    async def beside() -> None:
        await asyncio.Event().wait()

    keyed = {"id": "once", "tool": "once", "idempotency_key": "k", "idempotency_scope": "global"}
    both = {"id": "both", "kind": "parallel", "branches": [[{"id": "beside", "tool": "beside"}], [keyed]]}
    async with (
        Holdfast(f"{database}&node=a", tools=[once, beside]) as a,
        Holdfast(f"{database}&node=b", tools=[once, beside]) as b,
    ):
        first = await a.start(steps(keyed))
        await begins.wait()
        second = await b.start(steps(both))
        async with asyncio.timeout(SECONDS):
            while "both[1].once" not in await second.steps(every=True):
                await asyncio.sleep(0.01)
            may_end.set()
            assert await first.result() == {"once": 1}
            while (await second.steps(every=True))["both[1].once"].status != "completed":
                await asyncio.sleep(0.01)
        assert counts == [1]


async def test_the_younger_of_two_nodes_of_one_name_goes_on_with_the_runs(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = asyncio.Event()

    @tool
    async def once() -> int:
        if begins.is_set():
            return 7
        begins.set()
        await asyncio.Event().wait()
        return 0

    elder = Holdfast(f"{database}&node=a", tools=[once])
    await elder.__aenter__()
    begun = await elder.start(steps({"id": "once", "tool": "once"}))
    await begins.wait()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # another machine, as far as the lock is concerned
    async with Holdfast(f"{database}&node=a", tools=[once]) as younger:
        assert await (await younger.run(begun.id)).result(timeout=SECONDS) == {"once": 7}
    await elder.__aexit__(None, None, None)


async def test_nothing_is_lost_or_doubled_while_connections_break(
    database: str, postgres_server: Server, tmp_path: Path
) -> None:
    runs, faults, effects = 40, 60, Counter[int]()

    @tool
    async def effect(n: int) -> int:
        effects[n] += 1
        return n

    async def begin(hf: Holdfast, n: int) -> Any:
        while True:
            try:
                return await hf.start(flow, {"n": n}, request_id=str(n))
            except Unavailable:
                await asyncio.sleep(0.05)

    async def break_things(proxy: Proxy) -> None:
        for fault in range(faults):
            if fault % 3 == 0:
                proxy.swallows = 1
            elif fault % 3 == 1:
                proxy.cut()
            else:
                await postgres_server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'"
                )
            await asyncio.sleep(0.02)
        proxy.swallows = 0

    flow = steps(*({"id": f"s{i}", "tool": "effect", "args": {"n": "{{inputs.n}}"}} for i in range(4)))
    (tmp_path / "socket").mkdir()
    async with Proxy(database, tmp_path / "socket") as proxy, Holdfast(proxy.url, tools=[effect]) as hf:
        breaking = asyncio.create_task(break_things(proxy))
        handles = [await begin(hf, n) for n in range(runs)]
        await breaking
        for handle in handles:
            await asyncio.wait_for(_ended(hf, handle.id), SECONDS)
    assert effects == dict.fromkeys(range(runs), 4)
    connection = await postgres_server.connect(database)
    journals = await connection.fetch("SELECT count(*), max(seq) FROM journal GROUP BY run")
    await connection.close()
    assert len(journals) == runs and all(rows == last for rows, last in journals)


async def _ended(hf: Holdfast, run_id: str) -> None:
    while True:
        try:
            if await (await hf.run(run_id)).status() == "completed":
                return
        except Unavailable:
            pass
        await asyncio.sleep(0.02)


# --------------------------------------------------------------------------------------------- real processes

PROGRAM = """
import asyncio, os, sys
from holdfast import Holdfast, tool

@tool
async def effect(n: int) -> int:
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"{n}\\n")
    await asyncio.sleep(0.05)
    return n

STEPS = [{"id": f"s{i}", "tool": "effect", "args": {"n": "{{inputs.n}}"}} for i in range(4)]

async def main() -> None:
    async with Holdfast(sys.argv[1], tools=[effect]) as hf:
        for n in range(int(sys.argv[2]), int(sys.argv[3])):
            run = await hf.start({"name": "w", "steps": STEPS}, {"n": n}, request_id=str(n))
            print(run.id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def node(folder: Path, url: str, first: int, last: int) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    env = os.environ | {
        "EFFECTS": str(folder.parent / "effects"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", PROGRAM, url, str(first), str(last)]
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_the_runs_of_a_node_that_is_killed_go_on_at_another_and_nothing_is_lost_or_doubled(
    database: str, tmp_path: Path
) -> None:
    runs = 30
    url = f"{database}&lease_secs=2"
    with node(tmp_path / "a", f"{url}&node=a", 0, runs) as dying:
        assert dying.stdout is not None
        begun = [(await asyncio.to_thread(dying.stdout.readline)).strip() for _ in range(runs)]
        dying.send_signal(signal.SIGKILL)
    with node(tmp_path / "b", f"{url}&node=b", 0, 0):
        async with Holdfast(f"{url}&node=watcher", tools=[]) as watcher:
            for run_id in begun:
                await (await watcher.run(run_id)).result(timeout=SECONDS)
    effects = Counter(map(int, (tmp_path / "effects").read_text().split()))
    assert sorted(effects) == list(range(runs))
    assert all(4 <= count <= 5 for count in effects.values())  # an attempt that was open may have begun twice


async def test_of_three_nodes_one_killed_and_one_stopped_past_its_lease_lose_and_double_nothing(
    database: str, postgres_server: Server, tmp_path: Path
) -> None:
    runs, url = 20, f"{database}&lease_secs=2"
    with (
        node(tmp_path / "a", f"{url}&node=a", 0, runs) as killed,
        node(tmp_path / "b", f"{url}&node=b", runs, 2 * runs) as stopped,
        node(tmp_path / "c", f"{url}&node=c", 2 * runs, 3 * runs) as staying,
    ):
        begun = [await asyncio.to_thread(_lines, each, runs) for each in (killed, stopped, staying)]
        killed.send_signal(signal.SIGKILL)
        stopped.send_signal(signal.SIGSTOP)
        async with Holdfast(f"{url}&node=watcher", tools=[]) as watcher:
            await _over(postgres_server, database, "b")
            stopped.send_signal(
                signal.SIGCONT
            )  # it goes on with what it knew while another takes its runs over
            for run_id in chain(*begun):
                await (await watcher.run(run_id)).result(timeout=SECONDS)
    connection = await postgres_server.connect(database)
    ends = await connection.fetch(
        "SELECT run, count(*) FROM journal WHERE kind = 'step_succeeded' GROUP BY run"
    )
    journals = await connection.fetch("SELECT count(*), max(seq) FROM journal GROUP BY run")
    await connection.close()
    assert [count for _, count in ends] == [4] * (3 * runs)
    assert all(rows == last for rows, last in journals)


def _lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


async def _over(server: Server, database: str, name: str) -> None:
    """Wait until another node has noticed that the lease of this one has expired."""
    connection = await server.connect(database)
    async with asyncio.timeout(SECONDS):
        while await connection.fetchval("SELECT count(*) FROM node WHERE name = $1 AND NOT over", name):
            await asyncio.sleep(0.05)
    await connection.close()
