"""The caller of a request, as every interface sees it: a tenant, scopes, and the key that was presented."""

from __future__ import annotations

import msgspec

from holdfast.errors import Forbidden
from holdfast.values import DEFAULT_TENANT


class Principal(msgspec.Struct, frozen=True, gc=False):
    """The caller of a request. `services` limits what a worker with this key may serve, `workflows` which workflows are
    offered to it over MCP, by pattern; empty means no limit."""

    tenant: str
    scopes: frozenset[str]
    key_id: str = ""
    services: frozenset[str] = frozenset()
    workflows: frozenset[str] = frozenset()

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
