"""The caller of a request, as every interface sees it: a tenant, scopes, and the key that was presented."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import Forbidden
from holdfast.runtime.rights import Rights
from holdfast.values import DEFAULT_TENANT

LOCAL_ID: Final = "local"  # of a caller without a key, in local mode


class Principal(msgspec.Struct, frozen=True, gc=False):
    """The caller of a request. `services` limits what a worker with this key may serve; empty means no limit. `tools` and
    `workflows` limit what its definitions may use and which published workflows it may see; None means no limit."""

    tenant: str
    scopes: frozenset[str]
    key_id: str = ""
    services: frozenset[str] = frozenset()
    tools: frozenset[str] | None = None
    workflows: frozenset[str] | None = None
    skips_gate: bool = False  # as its key says; an admin needs no such key

    @property
    def rights(self) -> Rights:
        """What this caller's definitions may use. An administrator may skip the gate, except as an agent."""
        return Rights(self.tools, self.workflows, self.skips_gate or "admin" in self.scopes)

    @property
    def rights_of_agent(self) -> Rights:
        """The same over MCP, where definitions are written by agents, also for an administrator."""
        return Rights(self.tools, self.workflows, self.skips_gate)

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Forbidden(
                f"this API key lacks the scope {scope!r}; it has {', '.join(sorted(self.scopes))}"
            )

    @property
    def is_operator(self) -> bool:
        """Whether the caller may manage other tenants: only an admin of the tenant `default` may."""
        return self.tenant == DEFAULT_TENANT and "admin" in self.scopes
