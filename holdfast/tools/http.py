"""http_request: one request over its own connection, checked by the guard, with typed failures.

Knows what may have happened to a request: `unsent` (it was not sent), `timeout` (sent, no response in time), `unknown`
(sent, and the connection broke), `http_3xx`, `http_4xx`, `http_429`, `http_5xx` (an unexpected response), `refused` (an address
that may not be called), `too_large` (a response over the limit), `inputs` (not a valid request). Must not know retries: a request
is sent once, and the client library's own retry is off. Each request has a fresh connection: one that was kept alive may be closed by the other
side just as it is used, and then it is unknown whether the request was read.
"""

from __future__ import annotations

import base64
import codecs
import importlib
import io
import socket
import textwrap
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from holdfast import limits
from holdfast.threads import in_pool, start_threads_of_loop
from holdfast.tools.context import Context
from holdfast.tools.failures import ToolError
from holdfast.tools.guard import Guard, Target, looked_up
from holdfast.tools.limit import Limit
from holdfast.tools.results import PIECE_BYTES, Unread
from holdfast.values import encode, written

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

TIMEOUT_SECONDS: Final = 30.0
TIMEOUT_SECONDS_MAX: Final = float(limits.bounds("http_secs_max")[1])
ANSWER_BYTES_MAX: Final = limits.bounds("http_answer_bytes_max")[1]
EXCERPT_CHARS_MAX: Final = 300  # of an unexpected response, shown in the error
CHUNK_BYTES: Final = 64 * 1024
FRAMING: Final = ("content-length", "transfer-encoding")  # headers that follow from the body

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_SECONDS_MAX)]
Bytes = Annotated[int, msgspec.Meta(gt=0, le=ANSWER_BYTES_MAX)]
Status = int | list[int] | None


def requester(guard: Guard) -> Callable[..., Any]:
    """Return the tool `http_request`, which calls only addresses that the guard allows."""

    async def http_request(
        url: str,
        context: Context,
        method: Method = "GET",
        headers: dict[str, str] | None = None,
        query: dict[str, str | int | float | bool | list[str]] | None = None,
        json: Any = msgspec.UNSET,
        body: str | None = None,
        timeout_secs: Seconds = TIMEOUT_SECONDS,
        expect_status: Status = None,
        max_bytes: Bytes = ANSWER_BYTES_MAX,
    ) -> Any:
        """Sends one HTTP request and returns `{status, headers, body}`; `body` is decoded if its content type is JSON, else it is text.

        A status outside 200 to 299, or not in `expect_status`, fails with kind `http_4xx`, `http_429`, `http_5xx` or
        `http_3xx`; redirects are not followed. A request that changes something carries the step's `Idempotency-Key`,
        the same in every attempt, unless `headers` contains one.
        """
        if json is not msgspec.UNSET and body is not None:
            raise ToolError("give `json` or `body`, not both", kind="inputs")
        if timeout_secs > limits.now.http_secs_max:
            most = f"{limits.now.http_secs_max:,} ({limits.met('http_secs_max')})"
            raise ToolError(f"`timeout_secs` is at most {most}", kind="inputs")
        max_bytes = min(max_bytes, limits.now.http_answer_bytes_max)
        sent = dict(headers or {})
        names = {name.lower() for name in sent}
        if method in ("POST", "PUT", "PATCH", "DELETE") and "idempotency-key" not in names:
            sent["Idempotency-Key"] = context.idempotency_key
        content = None if body is None else body.encode()
        if json is not msgspec.UNSET:
            content = bytes(json) if type(json) is msgspec.Raw else written(json)
            if "content-type" not in names:
                sent["Content-Type"] = "application/json"
        _check_framing(sent, content)
        request = _Request(method, url, sent, _query(query), content, timeout_secs, max_bytes)
        answer = await request.send(guard)
        answer.refuse_unexpected(expect_status)
        return answer.result()

    return http_request


async def get(guard: Guard, url: str, timeout_secs: float) -> tuple[bytes, str]:
    """Fetch JSON, whatever its content type. Return the body, and how to name the place in errors. Raise ToolError if the request
    fails."""
    request = _Request(
        "GET", url, {"Accept": "application/json"}, [], None, timeout_secs, limits.now.http_answer_bytes_max
    )
    answer = await request.send(guard)
    answer.refuse_unexpected(None)
    return answer.content, request.place


async def post(
    guard: Guard, url: str, headers: dict[str, str], content: bytes, timeout_secs: float, max_bytes: int
) -> None:
    """Send a message. Any status from 200 to 299 means that the receiver has it; the response body is ignored.

    Raise ToolError for any other status, with kind `gone` for 410.
    """
    request = _Request("POST", url, headers, [], content, timeout_secs, max_bytes)
    try:
        answer = await request.send(guard)
    except ToolError:
        if not request.status:
            raise
        answer = _Answer(request.place, request.status)  # the status is enough
    if answer.status == 410:
        raise ToolError(f"{request.place} answered 410: nothing more is wanted there", kind="gone")
    answer.refuse_unexpected(None)


def session_of(**options: Any) -> aiohttp.ClientSession:
    """A session that sends each request once.

    aiohttp sends GET, PUT, DELETE and some other methods a second time when the connection drops without an answer; the first one
    may have been carried out by then, so it is the caller who decides whether to try again.
    """
    import aiohttp

    if "connector" not in options:
        options["connector"] = aiohttp.TCPConnector(resolver=_resolver(looked_up))
    session = aiohttp.ClientSession(trust_env=False, **options)
    session._retry_connection = False  # there is no public switch; tests count the requests on a raw socket
    return session


_is_loaded = {"aiohttp": False}  # by this module


async def _load_client() -> None:
    """Import the client library in a thread: at the first request it takes 0.2 s, for which a server would not answer. Where no
    thread can be started the request must not wait for one."""
    if not _is_loaded["aiohttp"]:
        load = partial(importlib.import_module, "aiohttp")
        try:
            await in_pool(None, load, wait_secs=0)
        except RuntimeError:
            load()
        _is_loaded["aiohttp"] = True


def _check_framing(headers: dict[str, str], content: bytes | None) -> None:
    """Refuse headers that contradict the length of the body: such requests can be smuggled past a proxy."""
    for name in [name for name in headers if name.strip().lower() in FRAMING]:
        if name.lower() == "content-length" and headers[name].strip() == str(len(content or b"")):
            del headers[name]  # it is correct, and is sent anyway
            continue
        raise ToolError(
            f"take {name!a} out of `headers`: it follows from the body and is set for you", kind="inputs"
        )


def _query(given: dict[str, Any] | None) -> list[tuple[str, str]]:
    several = {name: value if isinstance(value, list) else [value] for name, value in (given or {}).items()}
    return [
        (name, str(one).lower() if isinstance(one, bool) else str(one))
        for name, values in several.items()
        for one in values
    ]


class _Request(msgspec.Struct):
    method: str
    url: str
    headers: dict[str, str]
    query: list[tuple[str, str]]
    content: bytes | None
    timeout_secs: float
    max_bytes: int
    connected: bool = False
    status: int = 0  # as soon as it is known

    @property
    def place(self) -> str:
        """The URL for error messages: without the query, which may contain tokens."""
        return f"{self.method} {self.url.partition('?')[0].partition('#')[0]}"

    async def send(self, guard: Guard) -> _Answer:
        await _load_client()
        import aiohttp

        targets = await guard.targets(self.url)
        trace = aiohttp.TraceConfig()

        async def has_connected(*_: Any) -> None:
            self.connected = True

        trace.on_connection_create_end.append(has_connected)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=min(limits.now.connect_secs_max, self.timeout_secs)
        )
        try:
            async with Limit(self.timeout_secs):
                await start_threads_of_loop()
                async with (
                    session_of(
                        connector=_connector(guard, targets),
                        timeout=timeout,
                        cookie_jar=aiohttp.DummyCookieJar(),
                        trace_configs=[trace],
                    ) as session,
                    session.request(
                        self.method,
                        self.url,
                        headers=self.headers,
                        params=self.query or None,
                        data=self._data(),
                        allow_redirects=False,
                    ) as response,
                ):
                    return await self._answer(response)
        except TimeoutError:
            raise self._timed_out() from None
        except aiohttp.InvalidURL:
            raise ToolError("the address cannot be read", kind="inputs") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from None
        except ValueError as error:  # for example a header with a line break
            raise ToolError(f"no request can be made of this: {error}", kind="inputs") from None

    def _data(self) -> bytes | io.BytesIO | None:
        """The body; aiohttp sends a large one in pieces if it is a file."""
        is_large = self.content is not None and len(self.content) > PIECE_BYTES
        return io.BytesIO(self.content or b"") if is_large else self.content

    def _most(self) -> str:
        which = (
            "max_bytes"
            if self.max_bytes < limits.now.http_answer_bytes_max
            else limits.met("http_answer_bytes_max")
        )
        return f"{self.max_bytes} bytes ({which})"

    async def _answer(self, response: aiohttp.ClientResponse) -> _Answer:
        self.status = response.status
        content = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            content += chunk
            if len(content) > self.max_bytes:
                raise ToolError(f"{self.place} answered more than {self._most()}", kind="too_large")
        headers: dict[str, str] = {}
        for name, value in response.headers.items():
            known = headers.get(name.lower())
            headers[name.lower()] = value if known is None else f"{known}, {value}"
        return _Answer(
            self.place, response.status, headers, response.content_type, response.charset, bytes(content)
        )

    def _timed_out(self) -> ToolError:
        if not self.connected:
            return ToolError(f"{self.place}: no connection within {self.timeout_secs:g} s", kind="unsent")
        return ToolError(f"{self.place}: no answer within {self.timeout_secs:g} s", kind="timeout")

    def _broken(self, error: BaseException) -> ToolError:
        reason = str(error) or type(error).__name__
        if not self.connected:
            return ToolError(f"{self.place} was not sent: {reason}", kind="unsent")
        return ToolError(
            f"{self.place} was sent, and the connection ended without a whole answer: {reason}",
            kind="unknown",
        )


class _Answer(msgspec.Struct):
    """A whole response. Its body is decoded for the result alone."""

    place: str
    status: int
    headers: dict[str, str] = {}
    kind: str = ""
    charset: str | None = None
    content: bytes = b""

    def result(self) -> dict[str, Any] | Unread:
        """The result of the tool. A large body is not decoded here: that takes seconds."""
        if len(self.content) <= PIECE_BYTES:
            return self._read()
        head = msgspec.structs.replace(self, content=b"")
        return Unread(_read_text, encode(head) + b"\n" + self.content)

    def _read(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "headers": self.headers,
            **_body(self.content, self.kind, self.charset),
        }

    def refuse_unexpected(self, expected: Status) -> None:
        wanted = [expected] if isinstance(expected, int) else expected
        if self.status in wanted if wanted is not None else 200 <= self.status < 300:
            return
        kind = "http_429" if self.status == 429 else f"http_{self.status // 100}xx"
        to = self.headers.get("location") if 300 <= self.status < 400 else None
        where = "" if to is None else f" to {to}"
        raise ToolError(f"{self.place} answered {self.status}{where}: {self._excerpt()}", kind=kind)

    def _excerpt(self) -> str:
        if len(self.content) <= PIECE_BYTES:
            body = self._read()["body"]
            text = body if isinstance(body, str) else written(body).decode()
        else:
            text = self.content[: 20 * EXCERPT_CHARS_MAX].decode(errors="replace")
        # Cut between words: half a secret in the response would not be recognised.
        return textwrap.shorten(text[: 10 * EXCERPT_CHARS_MAX], EXCERPT_CHARS_MAX, placeholder=" …")


_answer_head = msgspec.json.Decoder(_Answer).decode


def _read_text(given: bytes) -> bytes:
    """The result for a large response: see `_Answer.result`."""
    end = given.index(b"\n")
    answer = _answer_head(given[:end])
    answer.content = given[end + 1 :]
    return encode(answer._read())


def _body(content: bytes, kind: str, charset: str | None) -> dict[str, Any]:
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return {"body": msgspec.json.decode(content) if content else None}
        except (msgspec.DecodeError, RecursionError):
            pass  # it is not JSON, despite its content type
    try:
        return {"body": content.decode(_codec(charset))}
    except (UnicodeError, LookupError):
        return {"body": base64.b64encode(content).decode(), "encoding": "base64"}


def _codec(charset: str | None) -> str:
    """The codec for a charset. Those for host names take a time that grows with the square of the text."""
    name = "utf-8" if charset is None else codecs.lookup(charset).name
    if name in ("idna", "punycode"):
        raise LookupError(name)
    return name


def _connector(guard: Guard, targets: list[Target]) -> aiohttp.TCPConnector:
    """Return a connector that connects only to checked addresses. They are checked again when connecting, because the resolver does not
    see numeric addresses."""
    import aiohttp

    async def pinned(host: str, port: int) -> list[Target]:
        return targets

    def judged_socket(address_info: Any) -> socket.socket:
        family, kind, protocol, _, address = address_info
        guard.judge(str(address[0]))
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(
        resolver=_resolver(pinned),
        socket_factory=judged_socket,
        use_dns_cache=False,
        force_close=True,
        limit=1,
    )


def _resolver(look_up: Callable[[str, int], Awaitable[list[Target]]]) -> AbstractResolver:
    """Return aiohttp's resolver, which never uses the event loop's own (see tools/guard.py)."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Resolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            return [
                ResolveResult(
                    hostname=host, host=target.host, port=port, family=target.family, proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for target in await look_up(host, port)
            ]  # fmt: skip

        async def close(self) -> None:
            pass

    return Resolver()
