"""`holdfast keys`: create, list and revoke API keys, on the server that owns the database or in a file without an owner."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol
from urllib.parse import quote

from holdfast.api.types import KeyPage, KeyView, MadeKey
from holdfast.cli.file import acting, finished, reading
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, ms_of, now_ms, table
from holdfast.cli.server import server_of
from holdfast.cli.source_protocol import PAGE
from holdfast.cli.streams import UNWRITTEN, give, put, say, show
from holdfast.config import Settings
from holdfast.http.routes.keys import key_view, made_view, new_rights
from holdfast.ops.api_keys import ApiKeys
from holdfast.sdk.connection import Connection
from holdfast.tools.registry import Registry
from holdfast.values import DEFAULT_TENANT, Millis

API: Final = "/api/v1/keys"
DAY_SECS: Final = 86_400
DAYS_MAX: Final = 3_660
HEADS: Final = ("ID", "NAME", "TENANT", "SCOPES", "SERVICES", "CREATED", "LAST USED", "STATE")


def create_command(given: Given) -> int:
    if not given.has("--scope"):
        raise Usage("keys create needs --scope; see holdfast keys create --help")
    return finished(_create(settings_of(given), given, _expires_in(given)))


def list_command(given: Given) -> int:
    return finished(_list(settings_of(given), given))


def revoke_command(given: Given) -> int:
    return finished(_revoke(settings_of(given), given))


def _expires_in(given: Given) -> int | None:
    text = given.text("--expires-days")
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= DAYS_MAX:
        raise Usage(f"--expires-days must be a number from 1 to {DAYS_MAX:,}, not {text!r}")
    return int(text) * DAY_SECS


async def _create(settings: Settings, given: Given, expires_in_secs: int | None) -> int:
    wanted = {
        "name": given.argument or "",
        "scopes": given.texts("--scope"),
        "services": given.texts("--service"),
        "tools": given.texts("--tools") or None,
        "workflows": given.texts("--workflows") or None,
        "skip_gate": given.has("--skip-gate"),
        "expires_in_secs": expires_in_secs,
    }
    async with _opened(settings, given.text("--tenant")) as keys:
        made = await keys.create(wanted)
    if given.has("--json"):
        return 0 if give(made) else UNWRITTEN
    if made.key is None:  # the connection broke after the key was made, and the request was repeated
        say(f"the response that contained the new key was lost; revoke {made.id}, and create another key")
        return UNWRITTEN
    say(f"created {made.id} ({made.name}) for the tenant {made.tenant}; the key is shown only once:")
    return 0 if put(f"{made.key}\n".encode()) else UNWRITTEN


async def _list(settings: Settings, given: Given) -> int:
    tenant = given.text("--tenant")
    if server_of(settings) is None:
        async with reading(settings) as store:  # while another process may own the file
            rows = [row for row in await store.api_keys() if row.tenant == (tenant or DEFAULT_TENANT)]
        found = [key_view(row) for row in rows]
    else:
        async with _opened(settings, tenant) as keys:
            found = await keys.all()
    if given.has("--json"):
        return 0 if give({"items": found}) else UNWRITTEN
    if not found:
        say("there are no keys; create one with holdfast keys create NAME --scope admin")
        return 0
    return 0 if show(table(HEADS, [_cells(key, now_ms()) for key in found])) else UNWRITTEN


async def _revoke(settings: Settings, given: Given) -> int:
    async with _opened(settings, given.text("--tenant"), may_create=False) as keys:
        key = await keys.revoke(given.argument or "")
    if given.has("--json"):
        return 0 if give(key) else UNWRITTEN
    say(f"revoked {key.id} ({key.name}): it is no longer accepted")
    return 0


def _cells(key: KeyView, now: int) -> tuple[str, ...]:
    times = [instant(ms_of(at)) if at else "never" for at in (key.created_at, key.last_used_at)]
    services = " ".join(key.services) or (
        "every" if "worker" in key.scopes or "admin" in key.scopes else "none"
    )
    return (key.id, key.name, key.tenant, " ".join(key.scopes), services, *times, _state(key, now))


def _state(key: KeyView, now: int) -> str:
    if key.revoked_at is not None:
        return f"revoked {instant(ms_of(key.revoked_at))}"
    if key.expires_at is None:
        return "counts"
    at = ms_of(key.expires_at)
    return f"expired {instant(at)}" if at <= now else f"until {instant(at)}"


# -------------------------------------------------------------------------------------------- server or file


class _Keys(Protocol):
    async def create(self, wanted: dict[str, Any]) -> MadeKey: ...
    async def all(self) -> list[KeyView]: ...
    async def revoke(self, key_id: str) -> KeyView: ...


@contextlib.asynccontextmanager
async def _opened(settings: Settings, tenant: str | None, *, may_create: bool = True) -> AsyncIterator[_Keys]:
    server = server_of(settings)
    if server is None:
        async with acting(settings, Registry(), may_create=may_create) as engine:
            keys = ApiKeys(engine.store, engine.clock, engine.gate)
            await keys.load()
            yield _OfFile(keys, tenant or DEFAULT_TENANT)
        return
    connection = server.connection()
    try:
        yield _OfServer(connection, tenant)
    finally:
        await connection.close()


class _OfFile:
    def __init__(self, keys: ApiKeys, tenant: str) -> None:
        self._keys, self._tenant = keys, tenant

    async def create(self, wanted: dict[str, Any]) -> MadeKey:
        lives_secs = wanted["expires_in_secs"]
        expires_at = None if lives_secs is None else Millis(self._keys.clock.now() + lives_secs * 1000)
        made = await self._keys.create(
            self._tenant,
            wanted["name"],
            wanted["scopes"],
            services=wanted["services"],
            expires_at=expires_at,
            rights=new_rights(wanted["tools"], wanted["workflows"], skip_gate=wanted["skip_gate"]),
        )
        return made_view(made)

    async def all(self) -> list[KeyView]:
        return [key_view(row) for row in self._keys.of_tenant(self._tenant)]

    async def revoke(self, key_id: str) -> KeyView:
        return key_view(await self._keys.revoke(self._tenant, key_id))


class _OfServer:
    def __init__(self, connection: Connection, tenant: str | None) -> None:
        self._connection, self._tenant = connection, tenant

    async def create(self, wanted: dict[str, Any]) -> MadeKey:
        body = {name: value for name, value in wanted.items() if value is not None}
        if self._tenant is not None:
            body["tenant"] = self._tenant
        return await self._connection.ask("POST", API, MadeKey, body=body)

    async def all(self) -> list[KeyView]:
        found: list[KeyView] = []
        cursor: str | None = None
        while True:
            query = {"tenant": self._tenant, "cursor": cursor, "limit": PAGE}
            page = await self._connection.ask("GET", API, KeyPage, query=query)
            found += page.items
            if (cursor := page.cursor) is None:
                return found

    async def revoke(self, key_id: str) -> KeyView:
        path = f"{API}/{quote(key_id, safe='')}"
        return await self._connection.ask("DELETE", path, KeyView, query={"tenant": self._tenant})
