"""What all calls of the clients share: how a path, a time and a definition are sent, and who sends them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

from holdfast.errors import InvalidInputs
from holdfast.sdk.connection import Connection

T = TypeVar("T")

API: Final = "/api/v1"


class HasData(Protocol):
    """A WorkflowSpec or a FlowSpec."""

    def to_data(self) -> dict[str, Any]: ...


Spec = Mapping[str, Any] | str | HasData


def in_path(part: str) -> str:
    """A name as it stands in a URL."""
    return quote(part, safe="")


def time_word(at: datetime | str | None) -> str | None:
    """A time as it stands in a query."""
    return at.isoformat() if isinstance(at, datetime) else at


def is_name(text: str) -> bool:
    """Return whether a text is the name of a workflow rather than a definition. A one-line definition has a colon, or is a mapping in braces."""
    return not ("\n" in text or ": " in text or text.endswith(":") or text.lstrip().startswith("{"))


def sendable(spec: Spec) -> Mapping[str, Any] | str:
    if isinstance(spec, str | Mapping):
        return spec
    if not hasattr(spec, "to_data"):
        raise InvalidInputs(f"a workflow is a name, YAML text, data or a record, not {type(spec).__name__}")
    return spec.to_data()


class Calls:
    """A group of calls of `Client`."""

    _connection: Connection

    async def _get(self, path: str, answer: type[T], query: Mapping[str, Any] | None = None) -> T:
        return await self._connection.ask("GET", API + path, answer, query=query)

    async def _post(
        self,
        path: str,
        answer: type[T],
        body: Any,
        *,
        request_key: str | None = None,
    ) -> T:
        return await self._connection.ask("POST", API + path, answer, body=body, request_key=request_key)


class SyncCalls:
    """The same group of `SyncClient`: each call blocks until it is answered."""

    @abstractmethod
    def _do(self, call: Coroutine[Any, Any, T]) -> T: ...
