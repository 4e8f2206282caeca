"""Calls tools on other MCP servers: those that the settings name, over stdio or streamable HTTP, of both protocol eras.

    tool_remote, tool: server/name ──► Servers.call ──► a link (connection) of that server ──► tools/call

A link is started when it is first needed, and again after it has died. Knows what a failure says about the call: `unsent` (it
certainly did not arrive), `unknown` (it may have been carried out), `timeout`, `tool` (the tool reported an error), `no_tool`. The
SDK is imported at the first call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.config import unknown_in
from holdfast.mcp.link import Addresses, Link, ServerSettings
from holdfast.mcp.remote_errors import RemoteFailure, TaskBegun
from holdfast.nearest import did_you_mean
from holdfast.values import TASK_URL, decode

LEARN_SECONDS: Final = 5.0  # for a plan to wait for what a server says of its tools
TASK_SECONDS: Final = 7.0  # for a server to say how far a task is: less than a poll may take

log = logging.getLogger("holdfast.mcp")

_SECRET: Final = re.compile(r"\{\{\s*secrets\.(\w+)\s*\}\}")


def from_environment(name: str) -> str | None:
    return os.environ.get(f"HOLDFAST_SECRET_{name}")


class Servers:
    """The MCP servers of the settings. `servers` are their names: no other can be called."""

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Any]],
        guard: Addresses,
        secret: Callable[[str], str | None] = from_environment,
    ) -> None:
        self._settings = {name: _read(name, table) for name, table in tables.items()}
        self._guard, self._secret = guard, secret
        self._links: dict[str, list[Link]] = {name: [] for name in self._settings}
        self._listed: dict[str, dict[str, Any]] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._settings)

    async def call(self, server: str, tool: str, args: dict[str, Any], context: Any) -> Any:
        """The result of a tool; raises RemoteFailure."""
        settings = self._settings[server]
        link = self._link(server, settings)
        async with link.used():
            await link.started()
            is_missing = tool not in await link.tools() and await link.lacks(tool)
            listed = self._listed[server] = await link.tools()
            if is_missing:
                raise RemoteFailure(f"the server {server} has no tool {tool!a}", "no_tool")
            try:
                return _output(await link.call(tool, args, settings.timeout_secs), listed.get(tool))
            except TaskBegun as begun:
                return _pending(server, begun.task_id)
            except RemoteFailure as failure:
                if failure.kind == "tool" and await link.lacks(tool):
                    raise RemoteFailure(
                        f"the server {server} no longer has a tool {tool!a}: {failure}", "no_tool"
                    ) from None
                raise

    async def poll(self, url: str) -> tuple[bool, Any]:
        """Whether a task has ended, and its answer as a callback would give it. Raise RemoteFailure if that is not known."""
        from holdfast.mcp.remote_tasks import result_of

        server, _, task_id = url.removeprefix(TASK_URL).partition("/")
        if server not in self._settings:
            raise RemoteFailure(f"no server {server!a} is configured", "unsent")
        try:
            state = await self._asked(server, "get", task_id)
        except RemoteFailure as failure:
            if failure.kind != "tool":
                raise
            return True, _failed(f"the server {server} does not know the task any more: {failure}", "unknown")
        match state.status:
            case "completed":
                try:
                    return True, _output(result_of(state), None)
                except RemoteFailure as failure:
                    return True, _failed(str(failure), failure.kind)
            case "failed" | "cancelled":
                said = (
                    (state.error or {}).get("message")
                    or state.status_message
                    or f"the task was {state.status}"
                )
                return True, _failed(f"{server}: {said}", "tool")
            case "input_required":
                await self.cancel(url)
                return True, _failed(f"the server {server} asks for input, which a step cannot give", "tool")
            case _:
                pass
        return False, None

    async def cancel(self, url: str) -> None:
        """Tell a server that the result of a task is not needed any more."""
        server, _, task_id = url.removeprefix(TASK_URL).partition("/")
        if server in self._settings:
            await self._asked(server, "cancel", task_id)

    async def _asked(self, server: str, method: str, task_id: str) -> Any:
        link = self._link(server, self._settings[server])
        async with link.used():
            await link.started()
            return await link.task(method, task_id, TASK_SECONDS)

    async def learn(self, server: str) -> None:
        """List the tools of a server, unless they are known. One that cannot be reached leaves them unknown."""
        if server not in self._settings or server in self._listed:
            return
        link = self._link(server, self._settings[server])
        try:
            async with asyncio.timeout(LEARN_SECONDS), link.used():
                await link.started()
                self._listed[server] = await link.tools()
        except (RemoteFailure, TimeoutError) as error:
            log.info("the tools of the MCP server %s are not known: %s", server, error)

    def tools_of(self, server: str) -> list[tuple[str, str, Any]]:
        """The tools of a server as far as they were listed: name, description, and schema of the arguments."""
        return [
            (name, getattr(said, "description", None) or "", getattr(said, "input_schema", None))
            for name, said in self._listed.get(server, {}).items()
        ]

    def marks_of(self, server: str, tool: str) -> tuple[bool | None, bool | None, bool | None]:
        """Whether a tool is destructive, read-only and idempotent, as its server says. Until its tools have been listed, and
        where it says nothing, MCP counts a tool as destructive."""
        said = getattr(self._listed.get(server, {}).get(tool), "annotations", None)
        read_only = getattr(said, "read_only_hint", None)
        destructive = getattr(said, "destructive_hint", None)
        is_destructive = (destructive is not False) if not read_only else None
        return is_destructive, read_only, getattr(said, "idempotent_hint", None)

    async def stop(self) -> None:
        """Close all connections, and end the server processes that were started as commands."""
        links = [link for some in self._links.values() for link in some]
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)

    def _link(self, server: str, settings: ServerSettings) -> Link:
        """The least busy connection that lives, or a new one."""
        links = self._links[server] = [link for link in self._links[server] if link.is_alive]
        idle = [link for link in links if not link.users]
        if idle:
            return idle[0]
        if len(links) < settings.connections:
            links.append(Link(server, settings, self._guard, self._given))
            return links[-1]
        return min(links, key=lambda link: link.users)

    def _given(self, text: str) -> str:
        """A value of the settings with the secrets that it refers to."""

        def value(found: re.Match[str]) -> str:
            secret = self._secret(found[1])
            if secret is None:
                raise RemoteFailure(f"the secret {found[1]} is not set", "secret")
            return secret

        return _SECRET.sub(value, text)


def _read(name: str, table: Mapping[str, Any]) -> ServerSettings:
    strange, known = unknown_in(table, ServerSettings), ServerSettings.__struct_fields__
    if strange is not None:
        hint = did_you_mean(strange, known) or f"known keys are {', '.join(known)}"
        raise ValueError(f'[servers.{name}]: unknown key "{strange}" ({hint})')
    try:
        return msgspec.convert(table, ServerSettings)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"[servers.{name}]: {error}") from None


def _pending(server: str, task_id: str) -> dict[str, Any]:
    return {"pending": True, "task_id": task_id, "poll_url": f"{TASK_URL}{server}/{task_id}"}


def _failed(message: str, kind: str) -> dict[str, Any]:
    return {"success": False, "error": {"message": message, "kind": kind}}


def _output(result: Any, tool: Any) -> Any:
    """What a tool returned: its structured content, or the text of its blocks."""
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if result.is_error:
        raise RemoteFailure("\n".join(texts) or "the tool reported an error", "tool")
    found = _found(result, tool, blocks, texts)
    if isinstance(found, dict) and str(found.get("poll_url", "")).startswith(TASK_URL):
        raise RemoteFailure(
            "the tool names a task of another call", "tool"
        )  # only a server's own answer makes a task
    return found


def _found(result: Any, tool: Any, blocks: list[Any], texts: list[Any]) -> Any:
    if result.structured_content is not None:
        schema = getattr(tool, "output_schema", None) or {}
        is_wrapped = schema.get("x-fastmcp-wrap-result") or result.structured_content.keys() == {"result"}
        return result.structured_content["result"] if is_wrapped else result.structured_content
    if len(texts) == len(blocks) == 1:
        return _value_of(texts[0])
    return blocks


def _value_of(text: str) -> Any:
    """A text that is a JSON object or list is that; any other text is itself."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return decode(text.encode())
    except ValueError:
        return text
