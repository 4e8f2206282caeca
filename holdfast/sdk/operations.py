"""The calls of the clients that operators use: final callbacks, workers, nodes and API keys: `OperationCalls` for `Client`, `SyncOperationCalls` for `SyncClient`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from holdfast.api.types import (
    CallbackDelivery,
    CallbackDeliveryPage,
    KeyPage,
    KeyView,
    MadeKey,
    NodePage,
    ServicePage,
    WorkerPage,
)
from holdfast.arguments import checked
from holdfast.sdk.calls import API, Calls, SyncCalls, in_path


class OperationCalls(Calls):
    @checked
    async def callback_deliveries(self, run_id: str) -> CallbackDeliveryPage:
        """The final-callback deliveries of a run, and their state."""
        return await self._get(f"/runs/{in_path(run_id)}/callbacks", CallbackDeliveryPage)

    @checked
    async def letters(self, run_id: str) -> CallbackDeliveryPage:
        """Deprecated name of `callback_deliveries`; the next release does not have it."""
        warnings.warn("use Client.callback_deliveries", DeprecationWarning, stacklevel=2)
        return await self.callback_deliveries(run_id)

    @checked
    async def dead_letters(self, *, cursor: str | None = None, limit: int = 100) -> CallbackDeliveryPage:
        """Final callbacks that could not be delivered, oldest first."""
        return await self._get("/dead-letters", CallbackDeliveryPage, {"cursor": cursor, "limit": limit})

    @checked
    async def replay(self, delivery_id: str) -> CallbackDelivery:
        """Redeliver a dead letter, as if it were new. Raises Refused if it is not dead."""
        return await self._connection.ask(
            "POST", f"{API}/dead-letters/{in_path(delivery_id)}/replay", CallbackDelivery
        )

    @checked
    async def discard(self, delivery_id: str) -> CallbackDelivery:
        """Discard a dead letter. It stays with its run, but is no longer listed."""
        return await self._connection.ask(
            "DELETE", f"{API}/dead-letters/{in_path(delivery_id)}", CallbackDelivery
        )

    @checked
    async def workers(
        self, *, service: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> WorkerPage:
        """List the live workers, or those that serve one service."""
        return await self._get("/workers", WorkerPage, {"service": service, "cursor": cursor, "limit": limit})

    @checked
    async def services(self, *, cursor: str | None = None, limit: int = 100) -> ServicePage:
        """List the services: how many workers each has, how much work waits for one, and since when."""
        return await self._get("/services", ServicePage, {"cursor": cursor, "limit": limit})

    @checked
    async def nodes(self) -> NodePage:
        """The engine processes of the server, each with its address, version, runs and state."""
        return await self._get("/nodes", NodePage, {})

    @checked
    async def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        services: Sequence[str] = (),
        tenant: str | None = None,
        expires_in_secs: int | None = None,
    ) -> MadeKey:
        """Create a key. It is shown only once. This request is not retried, because a repetition would create another key."""
        body = {"name": name, "scopes": list(scopes), "services": list(services)}
        more = {"tenant": tenant, "expires_in_secs": expires_in_secs}
        said = body | {name: value for name, value in more.items() if value is not None}
        return await self._connection.ask("POST", f"{API}/keys", MadeKey, body=said, is_repeatable=False)

    @checked
    async def keys(
        self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> KeyPage:
        """List keys, including revoked ones, without their secret text."""
        return await self._get("/keys", KeyPage, {"tenant": tenant, "cursor": cursor, "limit": limit})

    @checked
    async def revoke_key(self, key_id: str, *, tenant: str | None = None) -> KeyView:
        """Revoke a key; it is refused from now on."""
        return await self._connection.ask(
            "DELETE", f"{API}/keys/{in_path(key_id)}", KeyView, query={"tenant": tenant}
        )


class SyncOperationCalls(SyncCalls):
    _client: OperationCalls

    def callback_deliveries(self, run_id: str) -> CallbackDeliveryPage:
        return self._do(self._client.callback_deliveries(run_id))

    def letters(self, run_id: str) -> CallbackDeliveryPage:
        """Deprecated name of `callback_deliveries`; the next release does not have it."""
        warnings.warn("use callback_deliveries", DeprecationWarning, stacklevel=2)
        return self.callback_deliveries(run_id)

    def dead_letters(self, *, cursor: str | None = None, limit: int = 100) -> CallbackDeliveryPage:
        return self._do(self._client.dead_letters(cursor=cursor, limit=limit))

    def replay(self, delivery_id: str) -> CallbackDelivery:
        return self._do(self._client.replay(delivery_id))

    def discard(self, delivery_id: str) -> CallbackDelivery:
        return self._do(self._client.discard(delivery_id))

    def nodes(self) -> NodePage:
        return self._do(self._client.nodes())

    def workers(
        self, *, service: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> WorkerPage:
        return self._do(self._client.workers(service=service, cursor=cursor, limit=limit))

    def services(self, *, cursor: str | None = None, limit: int = 100) -> ServicePage:
        return self._do(self._client.services(cursor=cursor, limit=limit))

    def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        services: Sequence[str] = (),
        tenant: str | None = None,
        expires_in_secs: int | None = None,
    ) -> MadeKey:
        return self._do(
            self._client.create_key(
                name, scopes, services=services, tenant=tenant, expires_in_secs=expires_in_secs
            )
        )

    def keys(self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 100) -> KeyPage:
        return self._do(self._client.keys(tenant=tenant, cursor=cursor, limit=limit))

    def revoke_key(self, key_id: str, *, tenant: str | None = None) -> KeyView:
        return self._do(self._client.revoke_key(key_id, tenant=tenant))
