"""The inputs of a call: the committed inputs, with references and secrets resolved. They exist in memory only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from holdfast.engine.draft import Draft
from holdfast.plan.expr import resolved
from holdfast.plan.graph import Call
from holdfast.runtime.resident_run import ResidentRun
from holdfast.tools.failures import ArgumentMismatch
from holdfast.tools.registry import Tool
from holdfast.tools.secrets import Secrets, SecretUnavailable
from holdfast.values import decode, written

CallbackUrl = Callable[[ResidentRun, str, int], str]  # of an attempt: run, path, number


class Inputs:
    """Its methods raise ValueError or SecretUnavailable if the call cannot be made as written."""

    def __init__(self, secrets: Secrets, callback_url: CallbackUrl | None) -> None:
        self._secrets = secrets
        # Returns the callback URL of an attempt; None while this server has no public URL.
        self.callback_url = callback_url

    def of_tool(
        self, resident: ResidentRun, node: Call, tool: Tool, path: str, number: int
    ) -> dict[str, Any]:
        """The arguments of a tool."""
        text = written(resident.run.steps[path].inputs)
        args = decode(self._resolved(resident, text) if text.find(b'"$') >= 0 else text)
        if self.callback_url is not None and self._takes_address(node, tool):
            self._add_address(resident, path, number, args["params"] if node.spreads else args)
        if node.spreads:
            args = tool.spread(args["input"], args["params"])
        if type(args) is not dict:
            raise ArgumentMismatch(f"the arguments of a tool must be an object, not {type(args).__name__}")
        # The process of an isolated tool converts them itself, because the converted values could not be sent to it.
        return args if tool.isolated else tool.bind(args)

    def of_service(self, resident: ResidentRun, node: Call, path: str, number: int) -> tuple[str, bytes]:
        """The name of the service, and the request body for its worker."""
        rule, text, service = node.service, bytes(resident.run.steps[path].inputs), node.target
        assert rule is not None
        takes_address = self._takes_address(node)
        if rule.is_given or text.find(b'"$') >= 0 or takes_address:
            text = self._resolved(resident, text)
        if rule.is_given or takes_address:
            given = decode(text)
            service = given.pop("service", service)
            if takes_address:
                self._add_address(resident, path, number, given["params"])
            text = written(given)
        if type(service) is not str or not service:
            raise ArgumentMismatch(f"the name of a service must be text, not {service!r:.50}")
        return service, text

    def service_of(self, resident: ResidentRun, path: str) -> str | None:
        """The name of the service that a step calls; None if it calls none."""
        node = resident.plan.node(path)
        if not isinstance(node, Call) or node.service is None:
            return None
        if not node.service.is_given:
            return node.target
        try:
            service = decode(
                self._resolved(resident, _service.decode(resident.run.steps[path].inputs).service)
            )
        except (ValueError, SecretUnavailable):
            return None  # the attempt fails when it starts
        return service if type(service) is str else None

    def _takes_address(self, node: Call, tool: Tool | None = None) -> bool:
        """Whether the call gets a callback URL for a later result."""
        asks = (node.pending is not None and node.pending.has_callback) or (
            tool is not None and tool.takes_callback
        )
        return asks and self.callback_url is not None

    def _add_address(self, resident: ResidentRun, path: str, number: int, args: Any) -> None:
        """The callback URL exists in memory only, because any program that has it may send a result."""
        assert self.callback_url is not None
        if type(args) is dict and "callback_url" not in args:
            args["callback_url"] = self.callback_url(resident, path, number)

    def _resolved(self, resident: ResidentRun, text: bytes | Raw) -> bytes:
        draft = Draft(resident.plan, resident.run, resident.run.at)
        secret_of = functools.partial(self._secrets.require, tenant=resident.run.tenant)
        return resolved(bytes(text), draft.text_at, secret_of)


class _Named(msgspec.Struct):
    """The service that the inputs of a call name."""

    service: Raw


_service: Final = msgspec.json.Decoder(_Named)
