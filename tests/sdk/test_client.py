"""The client against a real server in a process of its own, directly and through a line that is cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

import holdfast
from holdfast import Client, SyncClient
from holdfast.errors import (
    InvalidInputs,
    InvalidSpec,
    NotFound,
    Refused,
    RunIsOver,
    ServerUnreachable,
    Unauthorised,
)
from tests.cli.conftest import Cli, Up

pytestmark = pytest.mark.anyio

SUM = {"name": "sum", "steps": [{"id": "s", "tool": "add", "args": {"a": 1, "b": 2}}]}
STEPS = {"name": "steps", "steps": [{"id": f"s{n}", "tool": "add", "args": {"a": n}} for n in range(50)]}
HELD = {"name": "held", "steps": [{"id": "s", "tool": "hold"}]}
KEY = "a-key-that-is-long-enough"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    found = Cli(tmp_path_factory.mktemp("server"))
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(folder: Cli) -> Up:
    return folder.up("--tools", "tools")


@pytest.fixture
async def client(server: Up) -> AsyncIterator[Client]:
    async with Client(server.address) as found:
        yield found


# ------------------------------------------------------------------------------------------------------- calls


async def test_a_run_is_started_and_waited_for(client: Client) -> None:
    run = await client.wait((await client.start(SUM, labels={"team": "x"})).run_id, timeout=120)
    assert (run.status, run.output, run.labels) == ("completed", {"s": 3}, {"team": "x"})


async def test_yaml_text_is_started_too(client: Client) -> None:
    started = await client.start("name: y\nsteps: [{id: s, tool: add, args: {a: 4}}]\n")
    assert (await client.wait(started.run_id, timeout=120)).output == {"s": 4}


async def test_waiting_ends_when_its_time_is_over(client: Client) -> None:
    started = await client.start(HELD)
    with pytest.raises(TimeoutError, match=r"is running after 0\.2 s"):
        await client.wait(started.run_id, timeout=0.2)
    assert (await client.cancel(started.run_id, "enough")).status in ("cancelling", "cancelled")


async def test_a_published_workflow_is_started_by_its_name(client: Client) -> None:
    release = await client.publish({**SUM, "name": "named"})
    started = await client.start("named")
    run = await client.wait(started.run_id, timeout=120)
    assert (release.number, run.number, run.version) == (1, 1, release.version)
    assert (await client.workflow("named")).definition["steps"][0]["tool"] == "add"
    assert "named" in [one.name for one in (await client.workflows()).items]


async def test_versions_are_listed_compared_and_rolled_back(client: Client) -> None:
    await client.publish({**SUM, "name": "twice"})
    await client.publish({**SUM, "name": "twice", "description": "again"})
    assert [one.number for one in (await client.versions("twice")).items] == [2, 1]
    assert "+description: again" in (await client.diff("twice", 1, 2)).text
    assert (await client.roll_back("twice", 1)).number == 1
    assert (await client.workflow("twice")).number == 1


async def test_a_definition_is_published_as_text_as_data_and_as_a_record(client: Client) -> None:
    text = "name: forms\nsteps: [{id: s, tool: add, args: {a: 4}}]\n"
    spec = holdfast.WorkflowSpec.from_yaml_str(text)
    assert [(await client.publish(form)).number for form in (text, spec.to_data(), spec)] == [1, 1, 1]
    with pytest.raises(InvalidSpec, match="toool") as refused:
        await client.publish("name: forms\nsteps: [{id: s, toool: add}]\n")
    assert refused.value.problems[0].line == 2


async def test_runs_are_listed_page_by_page(client: Client) -> None:
    ids = [(await client.start({**SUM, "name": "paged"})).run_id for _ in range(3)]
    first = await client.runs(workflow="paged", limit=2)
    rest = await client.runs(workflow="paged", limit=2, cursor=first.cursor)
    assert [run.run_id for run in first.items + rest.items] == ids[::-1]


async def test_steps_journal_and_explanation_can_be_read(client: Client) -> None:
    run_id = (await client.start(SUM)).run_id
    await client.wait(run_id, timeout=120)
    steps = await client.steps(run_id)
    journal = await client.journal(run_id)
    assert ([step.path for step in steps.items], steps.names) == (["s"], ["s"])
    assert [row.seq for row in journal.items] == list(range(1, len(journal.items) + 1))
    assert (await client.explain(run_id)).reasons[0].reason == "completed"


async def test_a_run_is_done_again(client: Client) -> None:
    run_id = (await client.start(SUM)).run_id
    await client.wait(run_id, timeout=120)
    assert (await client.preview(run_id)).runs == ["s"]
    again = await client.rerun(run_id)
    assert (await client.wait(again.run_id, timeout=120)).rerun_of == run_id


async def test_a_request_has_one_run_however_often_it_is_asked(client: Client) -> None:
    asked = [client.start(SUM, request_id="once") for _ in range(20)]
    assert len({started.run_id for started in await asyncio.gather(*asked)}) == 1
    with pytest.raises(Refused, match="request id 'once' belongs to run"):
        await client.start(HELD, request_id="once")


async def test_what_the_server_refuses_is_raised_as_what_it_is(client: Client) -> None:
    with pytest.raises(InvalidSpec) as refused:
        await client.start({"name": "x", "steps": [{"id": "s", "toool": "add"}]})
    assert {problem.code for problem in refused.value.problems} >= {"unknown_key"}
    with pytest.raises(NotFound, match="no run"):
        await client.run("01a1e29f-bae0-75e7-9965-b2bf36e7d867")
    with pytest.raises(InvalidInputs):
        await client.start({**SUM, "inputs": {"a": {"type": "integer"}}}, {"a": "text"})
    run_id = (await client.start(SUM)).run_id
    await client.wait(run_id, timeout=120)
    with pytest.raises(RunIsOver):
        await client.cancel(run_id)


async def test_a_name_with_any_characters_is_one_part_of_the_address(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.workflow("../runs?limit=1#ü/..")


async def test_nobody_at_an_address_is_an_error_of_its_own() -> None:
    async with Client("127.0.0.1:1", patience=0.2) as client:
        with pytest.raises(ServerUnreachable, match=r"http://127\.0\.0\.1:1"):
            await client.runs()


async def test_somebody_else_at_an_address_is_told_from_a_server_of_ours() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        writer.close()
        await writer.wait_closed()

    listener = await asyncio.start_server(other, "127.0.0.1", 0)
    async with listener, Client(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(ServerUnreachable, match="none of this API"):
            await client.runs()


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://a b", "http://x?y"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not the address of a server"):
        Client(address)


async def test_keys_are_made_shown_and_revoked(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Cli(tmp_path_factory.mktemp("guarded"))
    try:
        address = folder.up(HOLDFAST_API_KEY=KEY).address
        async with Client(address, KEY) as admin:
            made = await admin.create_key("looker", ["read"])
            async with Client(address, made.key) as looker:
                assert (await looker.runs()).items == []
                await admin.revoke_key(made.id)
                with pytest.raises(Unauthorised):
                    await looker.runs()
            assert [one.name for one in (await admin.keys()).items] == ["looker"]
            assert (await admin.workers()).items == []
    finally:
        for process in folder.started:
            process.kill()
            process.communicate()


# ----------------------------------------------------------------------------------------------- a line that is cut


class Line:
    """Passes bytes on to a server, and cuts each connection after so many bytes of its answers; at last no more."""

    def __init__(self, server: str, cuts: list[int]) -> None:
        self._port, self._cuts = int(server.rpartition(":")[2]), cuts
        self.used = 0
        self._passing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._begin, "127.0.0.1", 0) as listener:
            yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        await asyncio.gather(*self._passing)

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = asyncio.ensure_future(self._pass(reader, writer))
        self._passing.add(passing)
        await passing

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._cuts.pop(0) if self._cuts else None
        self.used += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.ensure_future(_copy(reader, far_writer))
        with contextlib.suppress(OSError):
            while data := await far_reader.read(4096):
                writer.write(data if left is None else data[:left])
                await writer.drain()
                if left is not None and (left := left - len(data)) <= 0:
                    break
        asking.cancel()
        for end in (writer, far_writer):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
        writer.close()  # else the far end waits for more until its patience is over


async def test_a_start_whose_answer_is_lost_makes_one_run(server: Up, client: Client) -> None:
    line = Line(server.address, [0, 0, 10])
    async with line.open() as address, Client(address) as cut:
        started = await cut.start({**SUM, "name": "lost_answer"})
    listed = await client.runs(workflow="lost_answer")
    assert ([run.run_id for run in listed.items], line.used) == ([started.run_id], 4)


async def test_events_come_once_and_in_order_over_a_line_that_is_cut(server: Up, client: Client) -> None:
    run_id = (await client.start(STEPS)).run_id
    await client.wait(run_id, timeout=120)
    whole = [event async for event in client.events(run_id)]
    line = Line(server.address, [700, 0, 1_111, 2_345, 300, 5_000, 4_000])
    async with line.open() as address, Client(address) as cut:
        pieces = [event async for event in cut.events(run_id)]
    assert pieces == whole
    assert line.used == 8


async def test_events_of_all_runs_go_on_after_the_last_one_that_was_read(client: Client) -> None:
    seen: list[str | None] = []
    events = client.events()
    first = asyncio.ensure_future(anext(events))
    while not first.done():
        await client.wait((await client.start(SUM)).run_id, timeout=120)
    seen.append((await first).id)
    await events.aclose()
    async with contextlib.aclosing(client.events(after=seen[0])) as rest:
        following = await anext(rest)
    assert following.id is not None and following.id != seen[0]


async def test_a_stream_that_nobody_answers_ends_with_an_error() -> None:
    async with Client("127.0.0.1:1", patience=0.2) as client:
        with pytest.raises(ServerUnreachable):
            await anext(client.events())


# -------------------------------------------------------------------------------------------------------- scripts


def test_a_script_needs_no_loop(server: Up) -> None:
    with SyncClient(server.address) as client:
        started = client.start(SUM)
        kinds = [event.kind for event in client.events(started.run_id)]
        assert client.wait(started.run_id, timeout=120).output == {"s": 3}
    assert (kinds[0], kinds[-1]) == ("workflow_started", "workflow_terminal")


async def test_inside_of_a_loop_a_script_s_client_says_so(server: Up) -> None:
    client = SyncClient(server.address)
    with pytest.raises(RuntimeError, match="running event loop"):
        client.runs()


def test_every_call_of_the_client_is_there_for_scripts_with_the_same_arguments() -> None:
    import inspect

    calls = {name: value for name, value in vars(Client).items() if not name.startswith("_")}
    for name, call in calls.items():
        sync = vars(SyncClient)[name]
        if not isinstance(call, property):
            assert list(inspect.signature(sync).parameters) == list(inspect.signature(call).parameters), name


def test_both_clients_are_public_names() -> None:
    assert {holdfast.Client, holdfast.SyncClient} == {Client, SyncClient}


# ---------------------------------------------------------------------------------------------------- schedules

FAR = {"workflow": "sum", "trigger": {"kind": "cron", "expression": "0 0 0 1 1 * 2096"}}


async def test_a_schedule_is_made_operated_and_deleted(client: Client) -> None:
    await client.publish(SUM)
    made = await client.put_schedule("far", FAR)
    assert (made.id, made.origin, made.next_at) == ("far", "api", "2096-01-01T00:00:00.000Z")
    assert (
        await client.put_schedule("far", "workflow: sum\ntrigger: {kind: interval, every: 366d}")
    ).kind == "interval"
    assert "far" in [one.id for one in (await client.schedules()).items]
    assert (await client.pause_schedule("far")).status == "paused"
    assert (await client.resume_schedule("far", missed=True)).status == "active"
    fired = await client.fire_schedule("far", {"n": 1})
    assert (await client.wait(fired.run_id)).output == {"s": 3}
    assert [row.occurrence for row in (await client.ledger("far")).items] == [fired.occurrence]
    assert [one.run_id for one in (await client.why("far")).items] == [fired.run_id]
    assert len((await client.next_fires("far", limit=2)).items) == 2
    assert (await client.backfill_schedule("far", "2026-01-01", "2026-02-01", preview=True)).count == 0
    assert (await client.delete_schedule("far")).id == "far"
    with pytest.raises(NotFound):
        await client.schedule("far")


async def test_a_repeated_fire_with_one_request_id_is_one_run(client: Client) -> None:
    await client.publish(SUM)
    await client.put_schedule("once", FAR)
    first, second = [await client.fire_schedule("once", request_id="r1") for _ in range(2)]
    assert first == second


async def test_a_schedule_with_a_mistake_is_refused_with_its_problems(client: Client) -> None:
    with pytest.raises(InvalidSpec) as refused:
        await client.put_schedule("wrong", {**FAR, "trigger": {"kind": "cron", "expression": "0 3 * * *"}})
    assert [problem.code for problem in refused.value.problems] == ["wrong_field_count"]


def test_the_client_for_scripts_has_the_same_calls_for_schedules(server: Up) -> None:
    with SyncClient(server.address) as client:
        client.publish(SUM)
        client.put_schedule("sync", FAR)
        assert client.pause_schedule("sync").status == "paused"
        assert client.resume_schedule("sync").status == "active"
        run_id = client.fire_schedule("sync").run_id
        assert [row.run_id for row in client.ledger("sync").items] == [run_id]
        assert client.why("sync").items[0].run_id == run_id
        assert client.next_fires("sync").never_fires is False
        assert client.backfill_schedule("sync", "2026-01-01", "2026-01-02").count == 0
        assert client.schedule("sync").id == client.delete_schedule("sync").id
        assert "sync" not in [one.id for one in client.schedules().items]
