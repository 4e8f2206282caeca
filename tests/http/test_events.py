"""ResidentRun events over HTTP: what happened, then what happens, each event once, wherever a reader left off."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from holdfast import Context, tool
from holdfast.config import Settings
from holdfast.http.routes import events as event_routes
from holdfast.http.serve import serving
from holdfast.ops.upkeep import retire
from holdfast.store.feed import BEGINNING, Committed, Cursor, Stretch
from holdfast.store.sqlite.feed import RowNumber
from holdfast.tools.registry import Registry
from holdfast.values import Millis
from holdfast.views import all_events as history
from holdfast.views.events import Events
from holdfast.views.positions import Position
from tests.http.conftest import Asker
from tests.http.sse import Heard, listening
from tests.small_limits import with_limits

pytestmark = pytest.mark.anyio

TWO = {"name": "two", "steps": [{"id": "a", "tool": "echo"}, {"id": "b", "tool": "echo"}]}
SIX = [
    "workflow_started",
    "step_enter a",
    "step_exit a",
    "step_enter b",
    "step_exit b",
    "workflow_terminal b",
]


@tool
async def echo(x: Any = None) -> Any:
    return x


def words(heard: list[Heard]) -> list[str]:
    return [one.words for one in heard]


def of(ask: Asker, run_id: str) -> str:
    return f"{ask.serving.address}/api/v1/runs/{run_id}/events"


def all_of(ask: Asker, query: str = "") -> str:
    return f"{ask.serving.address}/api/v1/events{query}"


async def two(ask: Asker) -> str:
    """A run of two steps, from its start to its end."""
    ask.serving.services.engine.registry.add(echo)
    return str((await ask.done(spec=TWO))["run_id"])


# ------------------------------------------------------------------------------------------------- of one run


async def test_a_stream_tells_a_run_from_its_first_event_to_its_last_and_ends(ask: Asker) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id)) as reader:
        heard = await reader.rest()
    assert words(heard) == SIX
    assert reader.response.content_type == "text/event-stream"
    assert heard[-1].data["workflow_id"] == run_id and heard[-1].data["status"] == "completed"


async def test_every_event_has_its_name_and_one_of_them_closes_the_stream(ask: Asker) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id)) as reader:
        heard = await reader.rest()
    assert reader.names == ["$/dcc.workflowUpdated"] * len(SIX)
    assert [one.kind for one in heard].count("workflow_terminal") == 1
    assert heard[-1].kind == "workflow_terminal"


async def test_the_last_event_of_a_row_has_the_number_of_the_row_and_those_before_it_that_of_the_row_before(
    ask: Asker,
) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id)) as reader:
        assert [one.id for one in await reader.rest()] == ["0.1", "1", "1.1", "2", "2.1", "3"]


async def test_a_reader_who_comes_back_hears_what_it_has_not_heard_wherever_it_left_off(ask: Asker) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id)) as reader:
        ids = [one.id for one in await reader.rest()]
    for heard, last_id in enumerate(ids[:-1], 1):
        async with listening(ask.session, of(ask, run_id), last_id) as reader:
            assert words(await reader.rest()) == SIX[heard:]


async def test_a_reader_who_kept_only_whole_numbers_misses_nothing(ask: Asker) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id), str(int(float("1.1")))) as reader:
        assert words(await reader.rest()) == SIX[2:]


async def test_where_a_reader_left_off_may_stand_in_the_address(ask: Asker) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id) + "?last_event_id=2") as reader:
        assert words(await reader.rest()) == SIX[4:]


async def test_the_header_goes_before_the_address_which_never_changes(ask: Asker) -> None:
    run_id = await two(ask)
    async with listening(ask.session, of(ask, run_id) + "?last_event_id=1", "2.1") as reader:
        assert words(await reader.rest()) == SIX[5:]


@pytest.mark.parametrize("last_id", ["3", "99"])
async def test_who_has_heard_the_end_is_told_not_to_come_back(ask: Asker, last_id: str) -> None:
    run_id = await two(ask)
    async with ask.session.get(of(ask, run_id), headers={"Last-Event-ID": last_id}) as response:
        assert response.status == 204


@pytest.mark.parametrize("last_id", ["x", "-1", "1.", "1.1.1", "0x1", "9" * 19, "٣", "NaN"])
async def test_a_position_that_is_none_is_refused(ask: Asker, last_id: str) -> None:
    run_id = await two(ask)
    answer = await ask("GET", f"/api/v1/runs/{run_id}/events", params={"last_event_id": last_id})
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_a_run_that_is_not_there_has_no_events(ask: Asker) -> None:
    answer = await ask("GET", "/api/v1/runs/nowhere/events")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_events_of_an_open_run_come_as_they_happen(ask: Asker) -> None:
    run_id = await ask.start(workflow="held")
    async with listening(ask.session, of(ask, run_id)) as reader:
        assert words(await reader.take(2)) == ["workflow_started", "step_enter wait"]
        ask.holds.free.set()
        assert words(await reader.rest()) == ["step_exit wait", "workflow_terminal wait"]


async def test_a_position_beyond_the_end_waits_for_what_comes_after_it(ask: Asker) -> None:
    run_id = await ask.start(workflow="held")
    async with listening(ask.session, of(ask, run_id), "1.1") as reader:
        await ask.holds.began.wait()
        ask.holds.free.set()
        assert words(await reader.rest()) == ["workflow_terminal wait"]


async def test_what_a_tool_says_is_heard_and_moves_no_reader(ask: Asker) -> None:
    said, free = asyncio.Event(), asyncio.Event()

    @tool
    async def talk(context: Context) -> None:
        await said.wait()
        context.log("half way", part=1)
        context.progress(0.5)
        await free.wait()

    ask.serving.services.engine.registry.add(talk)
    run_id = await ask.start(spec={"name": "talks", "steps": [{"id": "t", "tool": "talk"}]})
    async with listening(ask.session, of(ask, run_id)) as reader:
        await reader.take(2)
        said.set()
        heard = await reader.take(2)
        assert [(one.kind, one.id) for one in heard] == [("log", ""), ("progress", "")]
        assert heard[0].data["detail"]["message"] == "half way"
        assert reader.last_id == "1"
        free.set()
        assert [one.id for one in await reader.rest()] == ["1.1", "2"]


async def test_a_reader_is_told_when_to_come_back_and_where_it_is_before_anything_happens(ask: Asker) -> None:
    await two(ask)
    async with listening(ask.session, all_of(ask)) as reader:
        head = await reader.response.content.readuntil(b"\n\n")
    assert head.startswith(b"retry: 2000\nid: ")
    assert opened(ask, head.decode().split()[-1]) == "3"


async def test_a_quiet_stream_says_now_and_then_that_it_is_there(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_routes, "HEARTBEAT_SECS", 0.05)
    run_id = await ask.start(workflow="held")
    async with listening(ask.session, of(ask, run_id)) as reader:
        await reader.response.content.readuntil(b"\n:\n\n")
    ask.holds.free.set()


# ------------------------------------------------------------------------------------------------- of all runs


async def test_all_events_begin_now_unless_a_reader_says_where(ask: Asker) -> None:
    await two(ask)
    async with listening(ask.session, all_of(ask)) as reader:
        run_id = await two(ask)
        heard = await reader.take(6)
    assert words(heard) == SIX
    assert {one.data["workflow_id"] for one in heard} == {run_id}


async def test_the_whole_history_is_told_from_zero(ask: Asker) -> None:
    runs = [await two(ask) for _ in range(3)]
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        heard = await reader.take(18)
    assert [one.data["workflow_id"] for one in heard] == [run for run in runs for _ in range(6)]
    assert [opened(ask, one.id) for one in heard[-2:]] == ["8.1", "9"]


async def test_all_events_go_on_wherever_a_reader_left_off_also_with_the_beginning_in_its_address(
    ask: Asker,
) -> None:
    for _ in range(3):
        await two(ask)
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        whole = await reader.take(18)
    for count in range(1, 18):
        async with listening(ask.session, all_of(ask, "?from=0"), whole[count - 1].id) as reader:
            assert await reader.take(18 - count) == whole[count:]


async def test_events_of_runs_that_go_on_at_the_same_time_come_in_the_order_of_their_commits(
    ask: Asker,
) -> None:
    ask.serving.services.engine.registry.add(echo)
    async with listening(ask.session, all_of(ask)) as reader:
        await asyncio.gather(*(ask.done(spec=TWO) for _ in range(20)))
        heard = await reader.take(120)
    store = ask.serving.services.engine.store
    rows, _ = await store.feed("default", store.cursor(BEGINNING), 10**6)
    order = [row.run_id for row in rows for _ in range(2)]
    assert [one.data["workflow_id"] for one in heard] == order
    for run_id in set(order):
        assert words([one for one in heard if one.data["workflow_id"] == run_id]) == SIX


async def test_who_begins_in_the_middle_hears_the_same_as_who_heard_all(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(two(ask) for _ in range(5)))
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        whole = await reader.take(30)
    for number in (4, 9):
        fresh = history.History(*parts(ask))
        monkeypatch.setattr(ask.serving.services, "history", fresh)
        at = next(index for index, one in enumerate(whole) if opened(ask, one.id) == str(number))
        async with listening(ask.session, all_of(ask), str(number)) as reader:
            assert await reader.take(29 - at) == whole[at + 1 :]


class Pair(Cursor, frozen=True, order=True):
    """A cursor as a database has it that numbers transactions and rows."""

    transaction: int
    pos: int

    def __str__(self) -> str:
        return f"{self.transaction}-{self.pos}"


class PairedStore:
    """Any store, with cursors of two numbers."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def cursor(self, text: str) -> Cursor:
        transaction, _, pos = text.partition("-")
        return Pair(int(transaction), int(pos or 0))

    async def feed(self, tenant: str, after: Pair, limit: int) -> Stretch:
        rows, upto = await self._store.feed(tenant, self._store.cursor(str(after.pos)), limit)
        return Stretch([self._paired(row) for row in rows], self._pair(upto))

    async def feed_end(self) -> Cursor:
        return self._pair(await self._store.feed_end())

    def _paired(self, row: Committed) -> Committed:
        cursor = self._pair(row.cursor)
        return row._replace(cursor=cursor, before=Pair(cursor.transaction, cursor.pos - 1))

    def _pair(self, cursor: Cursor) -> Pair:
        pos = int(str(cursor))
        return Pair(700 + pos // 2, pos)


async def test_events_of_all_runs_are_read_by_cursors_that_only_the_store_understands(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, feed, plans = parts(ask)
    monkeypatch.setattr(
        ask.serving.services,
        "history",
        history.History(PairedStore(store), feed, plans),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(history, "PAGE_ROWS", 4)
    await asyncio.gather(*(two(ask) for _ in range(3)))
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        whole = await reader.take(18)
    assert opened(ask, whole[0].id) == "700-0.1" and opened(ask, whole[-1].id) == "704-9"
    for count in range(1, 18):
        async with listening(ask.session, all_of(ask), whole[count - 1].id) as reader:
            assert await reader.take(18 - count) == whole[count:]


def parts(ask: Asker) -> Any:
    engine = ask.serving.services.engine
    return engine.store, engine.feed, engine.plans


async def test_what_is_remembered_is_bounded_and_forgetting_changes_nothing(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PROJECTED_STEPS_MAX", 1)
    monkeypatch.setattr(history, "PAGES_BYTES_MAX", 1)
    monkeypatch.setattr(history, "PAGE_ROWS", 2)
    await asyncio.gather(*(two(ask) for _ in range(5)))
    async with (
        listening(ask.session, all_of(ask, "?from=0")) as one,
        listening(ask.session, all_of(ask, "?from=0")) as other,
    ):
        heard, again = await asyncio.gather(one.take(30), other.take(30))
    assert heard == again
    for run_id in {event.data["workflow_id"] for event in heard}:
        assert words([event for event in heard if event.data["workflow_id"] == run_id]) == SIX
    kept: Any = ask.serving.services.history
    assert len(kept._pages) <= 1 and len(kept._projections) <= 1


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("workflow=held", ["workflow_started", "step_enter", "step_exit", "workflow_terminal"]),
        ("kind=workflow_terminal", ["workflow_terminal", "workflow_terminal"]),
        ("status=completed&workflow=two", ["workflow_terminal"]),
    ],
)
async def test_a_reader_hears_only_what_it_asked_for(ask: Asker, query: str, kinds: list[str]) -> None:
    ask.holds.free.set()
    await two(ask)
    await ask.done(workflow="held")
    async with listening(ask.session, all_of(ask, f"?from=0&{query}")) as reader:
        assert [one.kind for one in await reader.take(len(kinds))] == kinds


async def test_what_was_not_asked_for_moves_a_reader_on_all_the_same(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_routes, "HEARTBEAT_SECS", 0.05)
    async with listening(ask.session, all_of(ask, "?workflow=nothing")) as reader:
        await two(ask)
        last = ask.serving.services.history.id_of("default", Position(RowNumber(3)))
        await reader.response.content.readuntil(b"id: %b\n\n" % last.encode())


async def test_rows_that_were_deleted_leave_a_gap_that_a_reader_passes_over(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PAGE_ROWS", 2)
    for _ in range(3):
        await two(ask)
    engine = ask.serving.services.engine
    assert await retire(engine.store, engine.committer, Millis(engine.clock.now() + 1)) == 3
    async with listening(ask.session, all_of(ask, "?from=0"), "1.1") as reader:
        await two(ask)
        heard = await reader.take(6)
    assert words(heard) == SIX and opened(ask, heard[-1].id) == "12"


def opened(ask: Asker, event_id: str, tenant: str = "default") -> str:
    return str(ask.serving.services.history.position(tenant, event_id))


async def test_the_ids_of_all_events_tell_a_tenant_nothing_about_the_others(ask: Asker) -> None:
    services = ask.serving.services
    for _ in range(2):
        await two(ask)
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        ids = [one.id for one in await reader.take(12)]
    assert not any(digits.isdecimal() for one in ids for digits in one.split(".")[:1])
    for text in (ids[-1], "3", "1.1", "-1", "~", ids[-1] + "~" + ids[-1]):
        with pytest.raises(ValueError, match=r"not a position|number"):
            services.history.position("other", text)
    assert str(services.history.position("other", "0")) == "0"
    assert opened(ask, services.history.id_of("other", Position(RowNumber(3))), "other") == "3"
    assert opened(ask, "1.1") == "1.1"  # kept by a client of an earlier release


async def test_a_tenant_hears_nothing_of_another(ask: Asker) -> None:
    services = ask.serving.services
    services.engine.registry.add(echo)
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        row, _ = await services.commands.start("other", TWO, {})
        await services.queries.wait_for("other", row.id, 120)
        run_id = await two(ask)
        heard = await reader.take(6)
    assert {one.data["workflow_id"] for one in heard} == {run_id}
    answer = await ask("GET", f"/api/v1/runs/{row.id}/events")
    assert answer.status == 404


async def test_a_run_whose_events_cannot_be_read_ends_no_stream(
    ask: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = await two(ask), await two(ask)
    take = Events.take

    def stumbling(events: Any, row: Any) -> Any:
        assert events._run_id != bad
        return take(events, row)

    monkeypatch.setattr(Events, "take", stumbling)
    async with listening(ask.session, all_of(ask, "?from=0")) as reader:
        heard = await reader.take(6)
    assert words(heard) == SIX and {one.data["workflow_id"] for one in heard} == {good}
    assert f"of run {bad} cannot be shown" in caplog.text


# --------------------------------------------------------------------------------------------- slow, many, gone


async def test_a_reader_that_reads_nothing_delays_no_other_reader(ask: Asker) -> None:
    with socket.create_connection((ask.host, ask.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.sendall(f"GET /api/v1/events?from=0 HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\n\r\n".encode())
        async with listening(ask.session, all_of(ask)) as reader:
            runs = [await two(ask) for _ in range(30)]
            heard = await reader.take(180)
    assert Counter(one.data["workflow_id"] for one in heard) == dict.fromkeys(runs, 6)


async def test_a_reader_who_goes_frees_its_place(ask: Asker) -> None:
    places = ask.serving.services.history.places
    async with listening(ask.session, all_of(ask)) as reader:
        await reader.response.content.readuntil(b"\n\n")
        assert places.total() == 1
        reader.response.close()
    async with asyncio.timeout(120):
        while places:
            await asyncio.sleep(0.01)
    assert ask.serving.services.history.readers == set()
    assert ask.serving.services.engine.door.watchers == [ask.serving.services.metrics._committed]


@pytest.mark.parametrize("limit", ["streams_per_key_max", "streams_per_tenant_max"])
async def test_there_are_only_so_many_streams(
    ask: Asker, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    with_limits(monkeypatch, **{limit: 1})
    async with listening(ask.session, all_of(ask)) as reader:
        await reader.response.content.readuntil(b"\n\n")
        answer = await ask("GET", "/api/v1/events")
        assert (answer.status, answer.code) == (429, "too_many_requests")
        assert f"setting limits.{limit}" in answer.body["message"]
        assert answer.headers["retry-after"] == "15"
    assert len(ask.serving.services.history.readers) <= 1


async def test_a_head_request_opens_no_stream(ask: Asker) -> None:
    async with ask.session.head(all_of(ask)) as response:
        assert response.status == 200
    assert not ask.serving.services.history.places


async def test_a_server_that_stops_says_so_and_its_readers_go_on_with_the_next_one(
    settings: Settings,
) -> None:
    async with aiohttp.ClientSession() as session, AsyncExitStack() as readers:
        async with serving(settings, registry=Registry([echo])) as server:
            await server.services.commands.start("default", TWO, {})
            address = f"{server.address}/api/v1/events?from=0"
            reader = await readers.enter_async_context(listening(session, address))
            before = await reader.take(6)
        assert await reader.rest() == []
        assert reader.comments == ["the server stops"] and reader.retry_ms == 1_000
        async with serving(settings, registry=Registry([echo])) as server:
            address = f"{server.address}/api/v1/events?from=0"
            again = await readers.enter_async_context(listening(session, address, reader.last_id))
            await server.services.commands.start("default", TWO, {})
            after = await again.take(6)
    assert words(before) == words(after) == SIX
