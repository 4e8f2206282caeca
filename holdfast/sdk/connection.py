"""The connection to a server: requests that are retried when a connection drops, errors as exceptions, streams that resume.

Every POST has an Idempotency-Key, so a retry never has an effect twice. Knows HTTP and retries; does not know what a URL is for.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from holdfast import errors
from holdfast.errors import HoldfastError, Problem, ServerUnreachable
from holdfast.local_socket import SCHEME, ShortPath
from holdfast.sdk.sse import Message, Parser, TooLarge
from holdfast.threads import start_threads_of_loop
from holdfast.tools.http import session_of
from holdfast.tools.results import refuse_bent
from holdfast.values import encode

T = TypeVar("T")

TIMEOUT_SECS: Final = 30.0  # of one try
PATIENCE_SECS: Final = 15.0  # without an answer, before giving up
STREAM_QUIET_SECS: Final = 60.0  # without a byte, comments included, before a stream counts as dropped
DELAY_SECS_FIRST: Final = 0.1
DELAY_SECS_MAX: Final = 2.0
# A page of runs with outputs of 25 MiB is valid; more is an error.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
AGAIN: Final = frozenset({429, 502, 503, 504})  # nothing was changed: the same request may succeed later

_KINDS: Final = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HoldfastError)
}


class Connection:
    def __init__(
        self,
        server: str,
        key: str | None = None,
        *,
        socket: str | None = None,
        timeout: float = TIMEOUT_SECS,
        patience: float = PATIENCE_SECS,
    ) -> None:
        """`socket` is the path of a local socket through which the server is reached; `unix:PATH` as the server means one too."""
        self.server, self._base, self._socket = _place(server, socket)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout, self._patience = timeout, patience
        self._session: aiohttp.ClientSession | None = None
        self._short: ShortPath | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._short is not None:
            self._short.close()
            self._short = None

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        yaml: str | None = None,
        request_key: str | None = None,
        is_repeatable: bool = True,
    ) -> T:
        """Send a request until there is a response or `patience` runs out; raises the server's error.

        The body is `body` as JSON, or the text `yaml`. `request_key` is the Idempotency-Key; an empty one sends none, if the body
        identifies the request itself.
        """
        key = str(uuid.uuid4()) if request_key is None else request_key
        headers = {"Idempotency-Key": key} if method == "POST" and key else {}
        refuse_bent(body, "the request")
        data = None if body is None else encode(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        if yaml is not None:
            data, headers["Content-Type"] = yaml.encode(), "application/yaml"
        tries = Tries(self._patience if is_repeatable else 0.0)
        while True:
            try:
                status, found, retry_after = await self._once(method, path, _plain(query), headers, data)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                await tries.again(self._unreachable(error))
                continue
            if status < 400:
                return self._read(found, answer)
            refused = error_of(status, found)
            if status not in AGAIN:
                raise refused
            await tries.again(refused, retry_after)

    async def stream(
        self, path: str, *, query: Mapping[str, Any] | None = None, after: str | None = None
    ) -> AsyncGenerator[Message, None]:
        """Yield messages without end. A dropped connection is resumed after the last id that was read."""
        tries = Tries(self._patience)
        while True:
            headers = {"Accept": "text/event-stream", **({} if after is None else {"Last-Event-ID": after})}
            try:
                session = await self._opened()
                async with session.get(
                    self._base + path,
                    params=_plain(query),
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=STREAM_QUIET_SECS),
                ) as response:
                    if response.status >= 400:
                        refused = error_of(response.status, await response.read())
                        if response.status not in AGAIN:
                            raise refused
                        await tries.again(refused)
                        continue
                    if response.status == 204:  # the end of a stream
                        return
                    parser = Parser()
                    async for chunk in response.content.iter_any():
                        for message in parser.feed(chunk):
                            after = after if message.id is None else message.id
                            tries = Tries(self._patience)
                            if message.data:
                                yield message
            except (aiohttp.ClientError, TimeoutError, OSError, TooLarge) as error:
                await tries.again(self._unreachable(error))
            else:
                await tries.again(self._unreachable("it ended the stream"))

    async def _once(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        data: bytes | None,
    ) -> tuple[int, bytes, float]:
        """Send a request once. Return status, body, and the earliest time to retry, in seconds."""
        session = await self._opened()
        async with session.request(
            method,
            self._base + path,
            params=query,
            headers=headers,
            data=data,
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            allow_redirects=False,
        ) as response:
            found = await response.content.read(ANSWER_BYTES_MAX + 1)
            while more := await response.content.read(ANSWER_BYTES_MAX + 1 - len(found)):
                found += more
            return response.status, found, _seconds(response.headers.get("Retry-After", ""))

    async def _opened(self) -> aiohttp.ClientSession:
        """Return the session, which is created on first use because it belongs to the running loop."""
        if self._session is None:
            await start_threads_of_loop()
        if self._session is None:
            through = {} if self._socket is None else {"connector": self._connector(self._socket)}
            self._session = session_of(headers=self._headers, **through)
        return self._session

    def _connector(self, path: str) -> aiohttp.BaseConnector:
        self._short = ShortPath(path)
        return aiohttp.UnixConnector(self._short.text)

    def _read(self, found: bytes, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(found, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreachable(f"its answer is none of this API: {error}") from None

    def _unreachable(self, why: Exception | str) -> ServerUnreachable:
        if isinstance(why, aiohttp.ClientConnectorError) and why.os_error.strerror:
            reason = f"{why.os_error.strerror}; start one with holdfast up, or name another with --server"
        else:
            reason = str(why) or type(why).__name__
        return ServerUnreachable(f"no answer from {self.server}: {reason}")


class Tries:
    """How long to keep retrying: delays that double, until `patience` runs out without a success."""

    def __init__(self, patience: float) -> None:
        self._left, self._delay = patience, DELAY_SECS_FIRST

    async def again(self, error: HoldfastError, at_least: float = 0.0) -> None:
        """Wait for the next try, or raise the error if there is none."""
        delay = max(self._delay, at_least)
        self._left -= delay
        self._delay = min(self._delay * 2, DELAY_SECS_MAX)
        if self._left < 0:
            raise error
        await asyncio.sleep(delay)


def error_of(status: int, body: bytes) -> HoldfastError:
    """Return a refusal by the server as the exception that the engine would raise."""
    try:
        fault = msgspec.json.decode(body, type=_Fault)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ServerUnreachable(f"the server answered {status}, not as this API does")
    kind = _KINDS.get(fault.error, HoldfastError)
    error = kind.__new__(kind)
    error.args = (fault.message,)
    error.__dict__["problems"] = fault.details
    if kind is HoldfastError:
        error.__dict__["code"] = fault.error
    return error


class _Fault(msgspec.Struct):
    error: str
    message: str = ""
    details: tuple[Problem, ...] = ()


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _plain(query: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The words of a query; a list is written as its name repeated."""
    said = {name: value for name, value in (query or {}).items() if value is not None}
    return [
        (name, str(one).lower() if isinstance(one, bool) else str(one))
        for name, value in said.items()
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]


def _place(server: str, socket: str | None) -> tuple[str, str, str | None]:
    """The name of a server for messages, the beginning of its URLs, and the socket through which it is reached."""
    if not server.startswith(SCHEME):
        address = _address(server)
        return address, address, socket
    path = server.removeprefix(SCHEME).removeprefix("//")
    if not path:
        raise ValueError(f"{server!r} names no socket; write unix:/path/to/holdfast.db.sock")
    return f"{SCHEME}{path}", "http://localhost", path


def _address(server: str) -> str:
    """`localhost:8070` → `http://localhost:8070`."""
    text = server.strip()
    if "://" not in text:
        text = f"http://{text}"
    text = text.rstrip("/")
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", text):
        raise ValueError(f"{server!r} is not the address of a server; write http://127.0.0.1:8070")
    return text
