"""Bugs that are planted in the store on PostgreSQL, each of which a test of the store finds. A test that no bug fails proves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NodeIsOver
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.statements import statements
from tests.postgres import Proxy, Server
from tests.store import test_postgres as tests
from tests.store.conformance.fences import FencesConformance

pytestmark = pytest.mark.anyio


class Place:
    """What the tests of the store need. A test that fails leaves stores and connections open: they are closed here."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database, self.folder = server, database, folder

    async def open(self) -> PostgresStore:
        store = PostgresStore(self.database)
        await store.open()
        return store


@pytest.fixture
async def place(
    postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    stores, connections = list[PostgresStore](), list[Any]()
    right_open, right_connect = PostgresStore.open, Server.connect

    async def open_noted(store: PostgresStore) -> None:
        stores.append(store)
        await right_open(store)

    async def connect_noted(server: Server, url: str = "") -> Any:
        connections.append(await right_connect(server, url))
        return connections[-1]

    monkeypatch.setattr(PostgresStore, "open", open_noted)
    monkeypatch.setattr(Server, "connect", connect_noted)
    yield Place(postgres_server, await postgres_server.new_database(), tmp_path)
    for connection in connections:
        await connection.close()
    for store in stores:
        await store.close()


async def fences(place: Place) -> None:
    await FencesConformance().test_of_a_fenced_batch_nothing_is_left(place.open)


async def sent_twice(place: Place) -> None:
    await tests.test_a_commit_that_reaches_the_server_twice_is_written_once(place.database, place.server)


async def released(place: Place) -> None:
    await tests.test_a_run_that_is_released_while_a_letter_is_posted_is_due_at_once(place.database)


async def order(place: Place) -> None:
    await tests.test_rows_are_shown_in_the_order_of_commits_and_not_of_their_numbers(
        place.open, place.database, place.server
    )


async def unknown(place: Place) -> None:
    await tests.test_callers_of_a_commit_of_unknown_outcome_are_refused_and_it_is_settled_before_the_next(
        place.database, place.folder
    )


async def answer_lost(place: Place) -> None:
    async with Proxy(place.database, place.folder) as proxy:
        store = PostgresStore(proxy.url)
        await store.open()
        await tests.test_a_commit_whose_answer_is_lost_lands_once(store, proxy, 1)


Test = Callable[[Place], Awaitable[None]]

# name: (statement, its text, the bug, the test that finds it)
IN_SQL: dict[str, tuple[str, str, str, Test]] = {
    "rows of another node are passed over": ("append", "$6::text[])", "$6::text[]) ON CONFLICT DO NOTHING", fences),
    "commits are not counted": ("mine", "AND committed = $2::bigint - 1 ", "", sent_twice),
    "a node that is over commits": ("mine", " AND NOT over", "", lambda place: tests.test_a_node_whose_lease_expired_is_over_once_another_has_noticed(place.database)),
    "a release does not look for mail": ("change_run", "r.mail > b.read", "false", released),
    "the feed is in the order of numbers": ("feed", "AND xid < (", "AND (true OR xid < ", order),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_SQL)
async def test_a_bug_in_a_statement_is_found(
    name: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, old, new, test = IN_SQL[name]
    sql = statements("postgres")
    assert old in sql[statement]
    monkeypatch.setitem(sql, statement, sql[statement].replace(old, new))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await test(place)


async def test_a_store_that_decides_anew_before_the_outcome_is_known_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(store: Any) -> None:
        store._is_in_doubt = False

    monkeypatch.setattr(PostgresStore, "_settle_doubt", forget)
    with pytest.raises((AssertionError, NodeIsOver)):
        await unknown(place)


async def test_a_store_that_does_not_read_back_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def guess(store: Any, number: int) -> bool:
        return False

    monkeypatch.setattr(PostgresStore, "_has_landed", guess)
    with pytest.raises(NodeIsOver):  # it sends again what has landed, and cannot know what that means
        await answer_lost(place)
