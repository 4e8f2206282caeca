"""Sessions of the older era: how many a caller may hold, whose they are, and what is no message at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.mcp.open_sessions import OpenSessions
from tests.mcp.conftest import Asker
from tests.mcp.test_guard import key_of
from tests.mcp.test_older_era import HEAD, Session, opened

pytestmark = pytest.mark.anyio


async def is_open(session: Session) -> bool:
    message = {"jsonrpc": "2.0", "id": 99, "method": "ping"}
    async with session.ask.session.post(session.ask.url, json=message, headers=session.headers) as answer:
        assert answer.status in (200, 404)
        await answer.read()
        return answer.status == 200


@pytest.fixture
def two_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.mcp.server.OpenSessions", lambda: OpenSessions(2))


@pytest.mark.usefixtures("two_at_most")
async def test_the_session_that_a_caller_used_least_recently_ends_for_its_newest(ask: Asker) -> None:
    first, second = await opened(ask), await opened(ask)
    assert await is_open(first)
    third = await opened(ask)
    assert [await is_open(one) for one in (first, second, third)] == [True, False, True]


@pytest.mark.usefixtures("two_at_most")
async def test_sessions_of_one_key_take_no_place_of_another(ask: Asker) -> None:
    greedy, modest = await key_of(ask, "read"), await key_of(ask, "read")
    own = await opened(ask, modest)
    for _ in range(5):
        await opened(ask, greedy)
    assert await is_open(own)


@pytest.mark.usefixtures("two_at_most")
async def test_a_session_that_its_client_ended_takes_no_place(ask: Asker) -> None:
    first, second = await opened(ask), await opened(ask)
    async with ask.session.delete(ask.url, headers=second.headers) as answer:
        assert answer.status == 200
    await opened(ask)
    assert await is_open(first)


async def test_a_session_of_another_key_is_not_there(ask: Asker) -> None:
    owner, thief = await key_of(ask, "read"), await key_of(ask, "read")
    own = await opened(ask, owner)
    stolen = Session(ask, {**thief, "mcp-session-id": own.headers["mcp-session-id"]})
    assert not await is_open(stolen)
    async with ask.session.delete(ask.url, headers=stolen.headers) as answer:
        assert answer.status == 404
    assert await is_open(own)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({}, "jsonrpc"), ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, "jsonrpc"), ({"jsonrpc": "2.0"}, "method"),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, "`id`"), ({"jsonrpc": "2.0", "id": True, "method": "ping"}, "`id`"),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, "`id`"), ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, "`id`"),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, "`method`"), ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, "`params`"),
        ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, "`result` or an `error`"), ({"jsonrpc": "2.0", "result": {}}, "`id`"),
    ],
)  # fmt: skip
async def test_what_is_no_message_is_refused_in_plain_words_and_opens_no_session(
    ask: Asker, message: dict[str, Any], says: str
) -> None:
    async with ask.session.post(ask.url, json=message, headers=HEAD) as answer:
        said = msgspec.json.decode(await answer.read())
        assert (answer.status, said["error"]["code"]) == (400, -32600)
        assert says in said["error"]["message"] and "pydantic" not in said["error"]["message"]
        assert "mcp-session-id" not in answer.headers
