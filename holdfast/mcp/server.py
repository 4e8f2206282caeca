"""The MCP server: the methods of the protocol, led to tools, tasks, resources and prompts.

    POST /mcp ──► http: Host, Origin, key, rate, body ──► session manager of the SDK ──► a method here ──► commands and queries

This module and what it imports is the only part of Holdfast that needs the MCP SDK, and it is imported with the first request.
Does not know HTTP: the caller of a request is in its scope.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

import msgspec
from mcp import types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import Field, StrictBool

from holdfast import limits
from holdfast.api.principal import Principal
from holdfast.api.services import Services
from holdfast.api.visible import seen
from holdfast.errors import HoldfastError, NotFound
from holdfast.mcp.answers import refused, shown
from holdfast.mcp.calls import Calls, Start, request_id_of
from holdfast.mcp.offers import Catalogue, Manner
from holdfast.mcp.open_sessions import OpenSessions, ending, nothing_more, session_in, unheard
from holdfast.mcp.prompts import Prompts
from holdfast.mcp.resources import Resources
from holdfast.mcp.sees import sees_by, sees_of
from holdfast.mcp.sessions import Sessions
from holdfast.mcp.table import Asked, Desk, Hints, Tool
from holdfast.mcp.talk import CALLER, TASKS, Caller, Context, Talk, invalid_params
from holdfast.mcp.tasks import TaskParams, Tasks, UpdateParams
from holdfast.mcp.tools import ALIASES, BY_NAME, TOOLS, tool_of
from holdfast.runtime.idempotency import Kept, Replies
from holdfast.values import canonical, sha256
from holdfast.version import VERSION
from holdfast.views.names import nearest
from holdfast.views.offers import Offer

LIST_TTL_MS: Final = 60_000  # clients that listen hear of changes; for others, a list is old after a minute
CALLERS_MAX: Final = 1_000  # that are kept in the words of the SDK
CACHED: Final = (
    "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover",
)  # fmt: skip
INSTRUCTIONS: Final = (
    "Holdfast runs workflows durably: a run goes on after crashes and restarts. Published workflows are tools of their own;"
    " workflows_run runs one that you write, and workflows_publish keeps it. A call that does not finish soon is a task, or gives a"
    " run_id to follow. workflows_help teaches the notation, with examples, and tools_list has the tools that steps may call."
)
WORKFLOW_HINTS: Final = Hints(
    destructive=True, open_world=True
)  # a workflow may do anything that its tools do

_schema: ContextVar[Mapping[str, Any] | None] = ContextVar("schema", default=None)
_found: ContextVar[tuple[Caller, str, Offer] | None] = ContextVar("found", default=None)


class McpServer:
    """Everything behind /mcp. `leaving` is set when the process stops."""

    def __init__(self, services: Services, leaving: asyncio.Event) -> None:
        settings = services.settings.mcp
        self._services = services
        taken = frozenset((*BY_NAME, *ALIASES))
        self._catalogue = Catalogue(services.offers, taken, settings.expose if settings.enabled else ())
        calls = Calls(services, settings, leaving)
        self._desk = Desk(services, settings, calls, self._catalogue)
        self._sessions, self._open = Sessions(services), OpenSessions()
        engine = services.engine
        self._replies = Replies(engine.store, engine.committer, engine.clock)
        self._server = self._made(calls)
        self._manager = StreamableHTTPSessionManager(
            self._server, max_request_body_size=limits.now.body_bytes_max + 1
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while this context is open, in the task that opened it."""
        watchers = self._services.commands.when_published
        watchers.append(self._published)
        try:
            async with self._manager.run():
                yield
        finally:
            watchers.remove(self._published)
            self._sessions.close()

    async def handle(self, caller: Caller, message: Any, scope: Any, receive: Any, send: Any) -> None:
        """Answer one HTTP request whose caller is known and whose body, if it has one, is `message`."""
        scope[CALLER] = caller
        scope["user"] = _user(caller.principal)  # a session belongs to the key that opened it
        _schema.set(await self._schema_for(caller, message))
        named: list[str] = []

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                named.extend(filter(None, [session_in(message.get("headers", ()))]))
            await send(message)

        try:
            await self._manager.handle_request(scope, receive, noted)
        finally:
            for session_id in named:
                await self._noted(caller.principal, scope, session_id)

    async def _noted(self, principal: Principal, scope: Any, session_id: str) -> None:
        """A caller has used a session: if it holds too many now, the one that it used least recently ends."""
        if scope["method"] == "DELETE":
            self._sessions.forget(session_id)
            self._open.forget(_holder(principal), session_id)
        elif (oldest := self._open.used(_holder(principal), session_id)) is not None:
            self._sessions.forget(oldest)
            await self._manager.handle_request(ending(scope, oldest), nothing_more, unheard)

    # ------------------------------------------------------------------------------------------- the methods

    def _made(self, calls: Calls) -> Server[Any]:
        resources, prompts, sessions = Resources(self._desk), Prompts(self._desk), self._sessions
        server: Server[Any] = Server(
            "holdfast",
            version=VERSION,
            title="Holdfast",
            instructions=INSTRUCTIONS,
            cache_hints={method: CacheHint(LIST_TTL_MS, "private") for method in CACHED},
            get_tool_input_schema=lambda name: _schema.get(),
            on_list_tools=_complete(self._list_tools),
            on_call_tool=_complete(self._call_tool),
            on_list_resources=_complete(resources.listed),
            on_list_resource_templates=_complete(resources.templates),
            on_read_resource=_complete(resources.read),
            on_subscribe_resource=sessions.subscribe,
            on_unsubscribe_resource=sessions.unsubscribe,
            on_subscriptions_listen=sessions.listen,
            on_list_prompts=_complete(prompts.listed),
            on_get_prompt=_complete(prompts.get),
            on_completion=_complete(prompts.complete),
        )
        server.extensions = {TASKS: {}}
        tasks = Tasks(self._services, calls)
        server.add_request_handler("tasks/get", TaskParams, tasks.get)
        server.add_request_handler("tasks/update", UpdateParams, tasks.update)
        server.add_request_handler("tasks/cancel", TaskParams, tasks.cancel)
        server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, sessions.opened
        )
        server.add_notification_handler(
            "notifications/$/dcc.approveResponse", ApproveResponse, self._approve_response
        )
        options = server.create_initialization_options
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        server.create_initialization_options = lambda *_, **__: options(changes)  # type: ignore[method-assign]
        return server

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> dict[str, Any]:
        talk, cursor = Talk(context), None if params is None else params.cursor
        own = TOOLS if self._desk.settings.enabled else ()
        offers, more = await self._catalogue.page(talk.tenant, cursor, sees_of(talk), own=len(own))
        found = [*(tool.data() for tool in own if cursor is None), *(self._tool_data(one) for one in offers)]
        return {"tools": found, **({"nextCursor": more} if more else {})}

    def _tool_data(self, offer: Offer) -> dict[str, Any]:
        return {
            "name": self._catalogue.tool_name(offer.name),
            "title": offer.name,
            "description": offer.description or f"Runs the workflow {offer.name}.",
            "inputSchema": offer.schema,
            "annotations": WORKFLOW_HINTS.data(),
        }

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        talk, tool = Talk(context), tool_of(params.name)
        if tool is not None and self._desk.settings.enabled:
            return await self._call_own(talk, tool, params)
        try:
            offer = self._found_before(talk, params.name) or await self._catalogue.named(
                talk.tenant, params.name, sees_of(talk)
            )
            if Manner.of(offer).kind != "tool":
                raise NotFound(f"the workflow {offer.name!a} is not offered as a tool")
        except NotFound:
            known = [*BY_NAME, *await self._catalogue.names(talk.tenant, sees_of(talk))]
            near = nearest(params.name, known)
            raise invalid_params(f"unknown tool {params.name[:100]!a}{near}") from None
        return await self._call_workflow(talk, offer, params)

    def _found_before(self, talk: Talk, name: str) -> Offer | None:
        """The workflow that this very request calls, if its headers were checked against it."""
        caller, called, offer = _found.get() or (None, "", None)
        return offer if caller is talk.caller and called == name else None

    async def _call_own(self, talk: Talk, tool: Tool, params: types.CallToolRequestParams) -> dict[str, Any]:
        given = params.arguments or {}
        most = self._desk.settings.max_tokens
        try:
            talk.caller.principal.need(tool.scope)
            arguments = tool.read(given)
            most = arguments.max_tokens or most
            responses = None if params.input_responses is None else dict(params.input_responses)
            asked = Asked(self._desk, talk, arguments, responses, params.request_state)
            if tool.is_once and (key := request_id_of(talk)) is not None:
                return await self._once(tool, asked, key)
            return await _done(tool, asked)
        except HoldfastError as error:
            return shown(refused(error), most)

    async def _once(self, tool: Tool, asked: Asked, key: str) -> dict[str, Any]:
        """The answer to a call that was perhaps made before."""

        async def do(kept: Kept) -> tuple[int, bytes]:
            return 200, msgspec.json.encode(await _done(tool, msgspec.structs.replace(asked, kept=kept)))

        digest = sha256(canonical(msgspec.to_builtins(asked.arguments)))
        _, raw = await self._replies.once(asked.tenant, f"mcp {tool.name}", key, digest, do)
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found

    async def _call_workflow(
        self, talk: Talk, offer: Offer, params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        try:
            talk.caller.principal.need("run")
            return await self._desk.calls.call(
                talk,
                Start(offer.name, params.arguments or {}),
                Manner.of(offer),
                responses=params.input_responses,
                state=params.request_state,
            )
        except HoldfastError as error:
            return shown(refused(error), self._desk.settings.max_tokens)

    async def _approve_response(self, context: Context, params: ApproveResponse) -> None:
        """An answer to an approval by a client of the older era. A notification gets no answer, so a refusal is not reported."""
        talk = Talk(context)
        if not talk.may("approve"):
            return
        with contextlib.suppress(HoldfastError):
            await seen(self._services, talk.caller.principal).commands.approve(
                talk.tenant,
                params.workflow_id,
                params.step_id,
                approved=params.approved,
                reason=params.reason or "",
                by=talk.caller.name,
                form=params.form,
            )

    # --------------------------------------------------------------------------------------------- beside them

    def _published(self, tenant: str) -> None:
        self._catalogue.forget(tenant)
        self._sessions.published(tenant)

    async def _schema_for(self, caller: Caller, message: Any) -> Mapping[str, Any] | None:
        """The input schema of the tool that a request calls: the SDK checks headers against it, and would list all tools."""
        if not isinstance(message, dict) or message.get("method") != "tools/call":
            return None
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if not isinstance(name, str):
            return None
        if (tool := tool_of(name)) is not None:
            return tool.schema
        try:
            offer = await self._catalogue.named(caller.tenant, name, sees_by(caller.principal))
        except HoldfastError:
            return None
        _found.set((caller, name, offer))
        return offer.schema


async def _done(tool: Tool, asked: Asked) -> dict[str, Any]:
    made = await tool.do(asked)
    return made if isinstance(made, dict) else asked.shown(made)


def _complete(handler: Any) -> Any:
    """A handler whose results say of what type they are, as the newer era wants it."""

    async def completed(context: Context, params: Any) -> dict[str, Any]:
        return {"resultType": "complete", **await handler(context, params)}

    return completed


class ApproveResponse(types.NotificationParams):
    """In the words of the steps dialect; the SDK would expect them in camel case."""

    workflow_id: str = Field(alias="workflow_id")
    step_id: str = Field(alias="step_id")
    approved: StrictBool
    reason: str | None = None
    form: Any = None


@lru_cache(maxsize=CALLERS_MAX)
def _user(principal: Principal) -> AuthenticatedUser:
    return AuthenticatedUser(
        AccessToken(token="", client_id=_holder(principal), scopes=sorted(principal.scopes))
    )


def _holder(principal: Principal) -> str:
    """Whose sessions they are: those of a key."""
    return f"{principal.tenant}/{principal.key_id}"
