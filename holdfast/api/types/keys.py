"""API keys."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.api.types.common import PAGE, Cursor, Limit, Name, Scope, most

Patterns = Annotated[list[Name], msgspec.Meta(max_length=most("key_patterns_max"))]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`services` limits what a worker with this key may serve. `tools` limits which tools and services the definitions of its holder
    may call, `workflows` which published workflows it sees and may start: names, or patterns with `*`. null is no limit. With
    `skip_gate` its definitions need no approval before destructive tools. `tenant` defaults to the caller's."""

    name: Name
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1)]
    services: Annotated[list[Name], msgspec.Meta(max_length=most("key_services_max"))] = []
    tools: Patterns | None = None
    workflows: Patterns | None = None
    skip_gate: bool = False
    tenant: Name | None = None
    expires_in_secs: Annotated[int, msgspec.Meta(ge=1, le=10 * 366 * 86_400)] | None = None


class KeyView(msgspec.Struct, frozen=True):
    """A key as lists show it. `last_used_at` may be an hour behind."""

    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    services: list[str]  # empty: every service
    tools: list[str] | None  # null, here and below: no limit
    workflows: list[str] | None
    skip_gate: bool
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class MadeKey(KeyView, frozen=True, kw_only=True):
    """A new key. This is the only response that contains the key itself: it is null in one that is repeated."""

    key: str | None


class KeyPage(msgspec.Struct, frozen=True):
    items: list[KeyView]
    cursor: str | None


class TenantQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: Name | None = None


class KeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: Name | None = None
    cursor: Cursor | None = None
    limit: Limit = PAGE
