"""Clients that hear of changes: lists that changed, and runs that moved.

From 2026-07-28 a client opens a stream with subscriptions/listen. A client of the older era has a session, and hears of changes
on its standing stream. Nothing is kept for a client that is not there: it reads again when it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Final

import anyio
import msgspec
from mcp import types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from holdfast.api.services import Services
from holdfast.api.visible import seen
from holdfast.errors import HoldfastError, NotFound
from holdfast.mcp.talk import Context, Talk
from holdfast.views.all_events import TailOfAll

SESSIONS_MAX: Final = 1_000  # of the older era that hear of changes
SUBSCRIPTIONS_MAX: Final = 100  # runs that one client follows
RUN: Final = "run://"
GONE: Final = (
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
)  # a client that left must not keep others from hearing
CHANGED: Final = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())


class _Event(msgspec.Struct):
    workflow_id: str


_event = msgspec.json.Decoder(_Event)


class Session:
    """A session of the older protocol version: its tenant, and the runs that it follows."""

    def __init__(self, tenant: str, session: ServerSession) -> None:
        self.tenant, self.session = tenant, session
        self.followed: set[str] = set()


class Sessions:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._buses: dict[str, tuple[InMemorySubscriptionBus, ListenHandler]] = {}
        self._older: OrderedDict[str, Session] = OrderedDict()
        self._followers: dict[str, asyncio.Task[None]] = {}  # by tenant, while a client follows runs
        self._telling: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for _, handler in self._buses.values():
            handler.close()
        for task in (*self._followers.values(), *self._telling):
            task.cancel()

    # ------------------------------------------------------------------------------------------------ hearing

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        talk = Talk(context)
        wanted = params.notifications
        uris = [uri for uri in wanted.resource_subscriptions or () if await self._is_there(talk, uri)]
        own = wanted.model_copy(update={"resource_subscriptions": uris[:SUBSCRIPTIONS_MAX] or None})
        if uris:
            self._follow(talk.tenant)
        return await self._of(talk.tenant)[1](context, params.model_copy(update={"notifications": own}))

    async def opened(self, context: Context, params: types.NotificationParams | None) -> None:
        """A client of the older era is ready."""
        self._session(context)

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        session = self._session(context)
        if session is None or len(session.followed) >= SUBSCRIPTIONS_MAX:
            return types.EmptyResult()
        if await self._is_there(Talk(context), str(params.uri)):
            session.followed.add(str(params.uri))
            self._follow(session.tenant)
        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        session = self._session(context)
        if session is not None:
            session.followed.discard(str(params.uri))
        return types.EmptyResult()

    def _session(self, context: Context) -> Session | None:
        key = None if context.request is None else context.request.headers.get("mcp-session-id")
        if key is None:
            return None
        found = self._older.get(key)
        if found is None:
            found = self._older[key] = Session(Talk(context).tenant, context.session)
            if len(self._older) > SESSIONS_MAX:
                self._older.popitem(last=False)
        return found

    def forget(self, session_id: str) -> None:
        """A client has ended its session."""
        self._older.pop(session_id, None)

    async def _is_there(self, talk: Talk, uri: str) -> bool:
        """Only runs that the caller sees are followed; other resources do not change by themselves."""
        if not uri.startswith(RUN):
            return True
        try:
            queries = seen(self._services, talk.caller.principal).queries
            await queries.number_of_run(talk.tenant, uri.removeprefix(RUN).partition("/")[0])
        except NotFound:
            return False
        return True

    # ------------------------------------------------------------------------------------------------ telling

    def published(self, tenant: str) -> None:
        """Something was published: lists may have changed."""
        if tenant not in self._buses and not self._older:
            return
        task = asyncio.get_running_loop().create_task(self._tell(tenant, CHANGED))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, tenant: str, events: tuple[ServerEvent, ...]) -> None:
        for event in events:
            if tenant in self._buses:
                await self._buses[tenant][0].publish(event)
        for one in [one for one in self._older.values() if one.tenant == tenant]:
            with contextlib.suppress(*GONE):
                await one.session.send_tool_list_changed()
                await one.session.send_prompt_list_changed()
                await one.session.send_resource_list_changed()

    def _follow(self, tenant: str) -> None:
        task = self._followers.get(tenant)
        if task is None or task.done():
            self._followers[tenant] = asyncio.get_running_loop().create_task(self._followed(tenant))

    async def _followed(self, tenant: str) -> None:
        """Tell clients of each run that moved."""
        tail: TailOfAll = await self._services.history.of_all(tenant, None)
        try:
            while True:
                told = await tail.read()
                for run_id in dict.fromkeys(_event.decode(one.data).workflow_id for one in told):
                    await self._moved(tenant, f"{RUN}{run_id}")
                await (asyncio.sleep(0) if told else tail.more())
        except HoldfastError:
            return  # the engine is closed
        finally:
            tail.close()

    async def _moved(self, tenant: str, uri: str) -> None:
        if tenant in self._buses:
            await self._buses[tenant][0].publish(ResourceUpdated(uri))
        for one in [one for one in self._older.values() if one.tenant == tenant and uri in one.followed]:
            with contextlib.suppress(*GONE):
                await one.session.send_resource_updated(uri)

    def _of(self, tenant: str) -> tuple[InMemorySubscriptionBus, ListenHandler]:
        if tenant not in self._buses:
            bus = InMemorySubscriptionBus()
            self._buses[tenant] = bus, ListenHandler(bus)
        return self._buses[tenant]
