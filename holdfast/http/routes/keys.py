"""`/api/v1/keys`: create, list and revoke keys. An admin manages the keys of their tenant; an admin of `default`, all
keys.

Knows how keys are shown, not how they are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

from holdfast import limits
from holdfast.api.types import (
    KeyPage,
    KeysQuery,
    KeyView,
    MadeKey,
    NewKey,
    Scope,
    TenantQuery,
    time_or_none,
    time_text,
)
from holdfast.errors import Forbidden, InvalidInputs
from holdfast.http.table import Ask, Reply, Route
from holdfast.ops.api_keys import rights_of
from holdfast.runtime.rights import Rights
from holdfast.values import Millis

if TYPE_CHECKING:
    from holdfast.ops.api_keys import ApiKey, Made

TAG: Final = "keys"


async def create(ask: Ask) -> Reply:
    wanted: NewKey = ask.body
    keys = ask.services.api_keys
    lives_ms = None if wanted.expires_in_secs is None else wanted.expires_in_secs * 1000
    made = await keys.create(
        _tenant(ask, wanted.tenant),
        wanted.name,
        wanted.scopes,
        services=wanted.services,
        expires_at=None if lives_ms is None else Millis(keys.clock.now() + lives_ms),
        rights=new_rights(wanted.tools, wanted.workflows, skip_gate=wanted.skip_gate),
    )
    return Reply(
        MadeKey(key=made.key, **msgspec.structs.asdict(key_view(made.row))),
        201,
        {"cache-control": "no-store"},
    )


async def listed(ask: Ask) -> KeyPage:
    query: KeysQuery = ask.query
    rows = ask.services.api_keys.of_tenant(_tenant(ask, query.tenant))
    start = 0 if query.cursor is None else _place_after(rows, query.cursor)
    end = start + limits.page(query.limit)
    page, has_more = rows[start:end], end < len(rows)
    return KeyPage([key_view(row) for row in page], page[-1].id if has_more else None)


async def revoke(ask: Ask) -> KeyView:
    tenant = _tenant(ask, ask.query.tenant)
    return key_view(await ask.services.api_keys.revoke(tenant, ask.path["id"]))


def _tenant(ask: Ask, named: str | None) -> str:
    """The tenant whose keys are requested: the caller's own, unless the caller manages all tenants."""
    if named is None or named == ask.tenant:
        return ask.tenant
    if not ask.principal.is_operator:
        raise Forbidden("only an admin of the tenant default can manage the keys of another tenant")
    return named


def _place_after(rows: list[ApiKey], cursor: str) -> int:
    for place, row in enumerate(rows, 1):
        if row.id == cursor:
            return place
    raise InvalidInputs("this cursor is not from a list of keys; omit it to start from the beginning")


def key_view(row: ApiKey) -> KeyView:
    rights = rights_of(row)
    return KeyView(
        id=row.id,
        name=row.name,
        tenant=row.tenant,
        scopes=cast(list[Scope], row.scopes.split()),
        services=row.services.split(),
        tools=_listed(rights.tools),
        workflows=_listed(rights.workflows),
        skip_gate=rights.skips_gate or "admin" in row.scopes.split(),
        created_at=time_text(row.created_at),
        expires_at=time_or_none(row.expires_at),
        last_used_at=time_or_none(row.last_used_at),
        revoked_at=time_or_none(row.revoked_at),
    )


def _listed(patterns: frozenset[str] | None) -> list[str] | None:
    return None if patterns is None else sorted(patterns)


def new_rights(tools: list[str] | None, workflows: list[str] | None, *, skip_gate: bool) -> Rights:
    """The rights of a new key, as a caller writes them."""
    return Rights(
        None if tools is None else frozenset(tools),
        None if workflows is None else frozenset(workflows),
        skip_gate,
    )


def made_view(made: Made) -> MadeKey:
    return MadeKey(key=made.key, **msgspec.structs.asdict(key_view(made.row)))


ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/keys",
        "admin",
        create,
        "Create a key. Only the first response contains it; `key` is null in the response to a repeated Idempotency-Key.",
        TAG,
        body=NewKey,
        answer=MadeKey,
        status=201,
        errors=("invalid_inputs", "limit_exceeded"),
        conceals="key",
    ),
    Route(
        "GET",
        "/api/v1/keys",
        "admin",
        listed,
        "List keys, including revoked ones, oldest first.",
        TAG,
        query=KeysQuery,
        answer=KeyPage,
        errors=("invalid_inputs",),
    ),
    Route(
        "DELETE",
        "/api/v1/keys/{id}",
        "admin",
        revoke,
        "Revoke a key at once. Returns the key's new state.",
        TAG,
        query=TenantQuery,
        answer=KeyView,
        errors=("not_found",),
    ),
)
