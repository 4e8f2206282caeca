"""`holdfast dead-letters`: list, replay and discard, on the server that owns the database or in a file without an owner."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final, Literal
from urllib.parse import quote

from holdfast.api import present
from holdfast.api.types import Letter, LetterPage
from holdfast.cli.file import acting, finished, reading
from holdfast.cli.options import Usage, load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, ms_of, shortened, table
from holdfast.cli.source import PAGE, PATIENCE_SECS, server_of
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.config import Settings
from holdfast.runtime.plans import Plans
from holdfast.sdk.connection import Connection
from holdfast.values import DEFAULT_TENANT
from holdfast.views.runs import Queries

API: Final = "/api/v1/dead-letters"
HEADS: Final = ("ID", "TO", "TRIES", "DEAD SINCE", "WHY")
CELL_CHARS: Final = 60

Act = Literal["replay", "discard"]


def list_command(given: Given) -> int:
    return finished(_list(settings_of(given), given))


def replay_command(given: Given) -> int:
    return finished(_act(settings_of(given), given, "replay"))


def discard_command(given: Given) -> int:
    return finished(_act(settings_of(given), given, "discard"))


async def _list(settings: Settings, given: Given) -> int:
    found = await _all(settings)
    if given.has("--json"):
        return 0 if give({"items": found}) else UNWRITTEN
    if not found:
        say("there are no dead letters")
        return 0
    return 0 if show(table(HEADS, [_cells(one) for one in found])) else UNWRITTEN


def _cells(one: Letter) -> tuple[str, ...]:
    since = instant(ms_of(one.done_at)) if one.done_at else ""
    return (
        one.id,
        shortened(one.url, CELL_CHARS),
        str(one.tries),
        since,
        shortened(one.last_error, CELL_CHARS),
    )


async def _all(settings: Settings) -> list[Letter]:
    server = server_of(settings)
    if server is None:
        async with reading(settings) as store:  # while another process may own the file
            return await _all_of(Queries(store, Plans(store, ())))
    found: list[Letter] = []
    cursor: str | None = None
    async with _connected(settings, server) as connection:
        while True:
            page = await connection.ask("GET", API, LetterPage, query={"cursor": cursor, "limit": PAGE})
            found += page.items
            if (cursor := page.cursor) is None:
                return found


async def _all_of(queries: Queries) -> list[Letter]:
    found: list[Letter] = []
    cursor: str | None = None
    while True:
        page = await queries.dead_letters(DEFAULT_TENANT, cursor=cursor, limit=PAGE)
        found += map(present.letter, page.items)
        if (cursor := page.cursor) is None:
            return found


async def _act(settings: Settings, given: Given, act: Act) -> int:
    letter_id, server = given.argument or "", server_of(settings)
    if server is None:
        letter = await _act_on_file(settings, letter_id, act)
    else:
        path = f"{API}/{quote(letter_id, safe='')}"
        async with _connected(settings, server) as connection:
            if act == "replay":
                letter = await connection.ask("POST", f"{path}/replay", Letter)
            else:
                letter = await connection.ask("DELETE", path, Letter)
    if given.has("--json"):
        return 0 if give(letter) else UNWRITTEN
    say(_said(letter))
    return 0


async def _act_on_file(settings: Settings, letter_id: str, act: Act) -> Letter:
    """Send a replayed dead letter from this process, with a single attempt."""
    async with acting(settings, load_tools(settings), may_create=False) as engine:
        if act == "discard":
            return present.letter(await engine.outbox.discard(DEFAULT_TENANT, letter_id))
        await engine.outbox.replay(DEFAULT_TENANT, letter_id)
        await engine.outbox.rests()
        now = await engine.store.letter(DEFAULT_TENANT, letter_id)
        assert now is not None
        return present.letter(now)


def _said(letter: Letter) -> str:
    match letter.status:
        case "discarded":
            return f"{letter.id} is discarded"
        case "delivered":
            return f"{letter.id} is delivered"
        case "dead":
            return f"{letter.id} is dead again: {letter.last_error}"
        case "waiting":
            why = f"; the first attempt failed: {letter.last_error}" if letter.tries else ""
            return f"{letter.id} is pending again{why}"


@contextlib.asynccontextmanager
async def _connected(settings: Settings, server: str) -> AsyncIterator[Connection]:
    try:
        connection = Connection(server, settings.key, patience=PATIENCE_SECS)
    except ValueError as error:
        raise Usage(str(error)) from None
    try:
        yield connection
    finally:
        await connection.close()
