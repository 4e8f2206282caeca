"""The inputs of a call: the committed inputs, with references and secrets resolved. They exist in memory only."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from holdfast.engine.draft import Draft
from holdfast.execution.large_arguments import on_text
from holdfast.plan.graph import Call
from holdfast.plan.resolve import resolved, resolved_bytes
from holdfast.plan.unread import value_in
from holdfast.runtime.large_arguments import COUNTED_BYTES
from holdfast.runtime.resident_run import ResidentRun
from holdfast.tools.failures import ArgumentMismatch
from holdfast.tools.registry import Tool
from holdfast.tools.secrets import Secrets, SecretUnavailable
from holdfast.values import decode, written
from holdfast.workers.push import with_address

CallbackUrl = Callable[[ResidentRun, str, int], str]  # of an attempt: run, path, number


class Inputs:
    """Its methods raise ValueError or SecretUnavailable if the call cannot be made as written."""

    def __init__(self, secrets: Secrets, callback_url: CallbackUrl | None) -> None:
        self._secrets = secrets
        # Returns the callback URL of an attempt; None while this server has no public URL.
        self.callback_url = callback_url

    def of_tool(
        self, resident: ResidentRun, node: Call, tool: Tool, path: str, number: int, args: Any = None
    ) -> dict[str, Any]:
        """The arguments of a tool. Raises LargeArguments instead of making large ones: those are given to it, decoded."""
        if args is None:
            text = written(resident.run.steps[path].inputs)
            if text.find(b'"$') >= 0:
                if (size := self._resolved_bytes(resident, text)) > COUNTED_BYTES:
                    raise LargeArguments(size)
                text = self._resolved(resident, text)
            elif len(text) > COUNTED_BYTES:
                raise LargeArguments(len(text))
            args = decode(text)
        if self.callback_url is not None and self._takes_address(node, tool):
            self._add_address(resident, path, number, args["params"] if node.spreads else args)
        if node.spreads:
            args = tool.spread(args["input"], args["params"])
        if type(args) is not dict:
            raise ArgumentMismatch(f"the arguments of a tool must be an object, not {type(args).__name__}")
        # The process of an isolated tool converts them itself, because the converted values could not be sent to it.
        return args if tool.isolated else tool.bind(args)

    def text_of_tool(self, resident: ResidentRun, path: str) -> bytes:
        """The text of the arguments of a tool, however large they are."""
        text = bytes(resident.run.steps[path].inputs)
        return self._resolved(resident, text) if text.find(b'"$') >= 0 else text

    def binder(
        self, resident: ResidentRun, node: Call, tool: Tool, path: str, number: int
    ) -> Callable[[Any], dict[str, Any]] | None:
        """How the arguments of a tool are made of the value of their text; None if they are that value, for a tool in a process or one
        that works on the text."""
        if not node.spreads and not self._takes_address(node, tool) and (tool.isolated or on_text(tool)):
            return None
        return functools.partial(self.of_tool, resident, node, tool, path, number)

    def of_service(self, resident: ResidentRun, node: Call, path: str, number: int) -> tuple[str, bytes]:
        """The name of the service, and the request body for its worker."""
        rule, text, service = node.service, bytes(resident.run.steps[path].inputs), node.target
        assert rule is not None
        takes_address = self._takes_address(node)
        if rule.is_given or text.find(b'"$') >= 0 or takes_address:
            text = self._resolved(resident, text)
        if rule.is_given or takes_address:
            given = _members(text)
            if "service" in given:
                service = value_in(given.pop("service"))
            if takes_address and self.callback_url is not None:
                given["params"] = with_address(given["params"], lambda: self._address(resident, path, number))
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
        if type(args) is dict and "callback_url" not in args:
            args["callback_url"] = self._address(resident, path, number)

    def _address(self, resident: ResidentRun, path: str, number: int) -> str:
        assert self.callback_url is not None
        return self.callback_url(resident, path, number)

    def know_secrets(self, resident: ResidentRun) -> None:
        """A run of an earlier process may have used secrets there. Resolve them before the run continues, so that
        they are redacted."""
        for name in resident.plan.secrets:
            with contextlib.suppress(SecretUnavailable):  # the step that needs the secret reports the error
                self._secrets.get(name, resident.run.tenant)

    def bytes_of(self, resident: ResidentRun, path: str) -> int:
        """About how large the inputs of a call are."""
        text = bytes(resident.run.steps[path].inputs)
        return self._resolved_bytes(resident, text) if text.find(b'"$') >= 0 else len(text)

    def _resolved_bytes(self, resident: ResidentRun, text: bytes) -> int:
        return resolved_bytes(text, Draft(resident.plan, resident.run, resident.run.at).bytes_at)

    def _resolved(self, resident: ResidentRun, text: bytes | Raw) -> bytes:
        draft = Draft(resident.plan, resident.run, resident.run.at)
        secret_of = functools.partial(self._secrets.require, tenant=resident.run.tenant)
        return resolved(bytes(text), draft.text_at, secret_of)


class LargeArguments(Exception):
    """The arguments of a tool are too large to be made without room for them."""

    def __init__(self, size: int) -> None:
        self.size = size


class _Named(msgspec.Struct):
    """The service that the inputs of a call name."""

    service: Raw


_service: Final = msgspec.json.Decoder(_Named)
_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
