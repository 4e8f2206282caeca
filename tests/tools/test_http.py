"""http_request against a real server on this machine: what came back, and what may have happened when nothing did."""

from __future__ import annotations

import asyncio
import gzip
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Context, ToolError
from holdfast.errors import ServerUnreachable
from holdfast.sdk.connection import Connection
from holdfast.tools.failures import ArgumentMismatch
from holdfast.tools.guard import AddressRefused, Guard
from holdfast.tools.http import get, post
from holdfast.tools.registry import Registry
from holdfast.values import RunId
from tests.ports import free_port

Say = Callable[[bytes], bytes | None]


class Server:
    """Reads one request to a connection and answers what it is told: bytes, or None to say nothing until the end."""

    def __init__(self, say: Say) -> None:
        self._say, self.seen, self.port = say, list[bytes](), 0
        self.at_work: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_work.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            self.seen.append(head + await reader.readexactly(length))
            answer = self._say(self.seen[-1])
            if answer is None:
                await reader.read()  # until the other side gives up
            else:
                writer.write(answer)
                await writer.drain()


@asynccontextmanager
async def serving(say: Say) -> AsyncIterator[Server]:
    server = Server(say)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server
    await asyncio.gather(*server.at_work)


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(head).encode() + body


async def request(guard: Guard | None = None, **args: Any) -> Any:
    made = Registry(guard=guard).get("http_request")
    assert made is not None and made.context is not None
    bound = made.bind(args)
    bound[made.context] = Context(RunId("r"), "a", 1, "stable-key")
    return msgspec.json.decode(made.result(await made.fn(**bound)))


def saying(said: bytes | None, **args: Any) -> tuple[Any, list[bytes]]:
    async def run() -> tuple[Any, list[bytes]]:
        async with serving(lambda _: said) as server:
            return await request(url=server.url + args.pop("at", "/"), **args), server.seen

    return asyncio.run(run())


def failing(said: bytes | None, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        saying(said, **args)
    return caught.value


def test_an_answer_in_json_is_data() -> None:
    found, _ = saying(answer(b'{"a":[1]}'))
    assert (found["status"], found["body"]) == (200, {"a": [1]})
    assert found["headers"]["content-type"] == "application/json"


def test_an_answer_in_text_is_text() -> None:
    assert (
        saying(answer("grüß".encode("latin-1"), "200 OK", "text/plain; charset=latin-1"))[0]["body"] == "grüß"
    )


def test_an_answer_that_is_neither_is_base64() -> None:
    found, _ = saying(answer(b"\xff\x00", "200 OK", "image/png"))
    assert (found["body"], found["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize("charset", ["punycode", "idna", "no-such-charset"])
def test_an_answer_in_a_charset_that_is_not_for_text_is_base64(charset: str) -> None:
    """Reading punycode takes minutes for a megabyte."""
    found, _ = saying(answer(b"a" * 300_000, "200 OK", f"text/plain; charset={charset}"))
    assert (found["encoding"], len(found["body"])) == ("base64", 400_000)


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (b"[" + b"[1]," * 500_000 + b"2]", "application/json", [[1]] * 500_000 + [2]),
        (b"x\n" * 1_000_000, "text/plain", "x\n" * 1_000_000),
        (b"{" * 2_000_000, "application/json", "{" * 2_000_000),
    ],
    ids=["json", "text", "no json"],
)
def test_a_large_answer_is_read_like_a_small_one(body: bytes, kind: str, found: Any) -> None:
    said, _ = saying(answer(body, "200 OK", kind))
    assert (said["status"], said["headers"]["content-type"]) == (200, kind)
    assert said["body"] == found


def test_a_large_answer_that_is_not_expected_is_shown_by_its_beginning() -> None:
    error = failing(answer(b"no room " * 100_000, "507 Full", "text/plain"))
    assert error.kind == "http_5xx" and "answered 507: no room no room" in str(error)
    assert len(str(error)) < 500


def test_json_that_is_none_is_text() -> None:
    assert saying(answer(b"oops"))[0]["body"] == "oops"


def test_an_empty_answer_is_null() -> None:
    assert saying(answer(b"", "204 No Content"))[0]["body"] is None


def test_query_headers_and_json_are_sent() -> None:
    _, (sent,) = saying(
        answer(b"1"),
        method="POST",
        at="/p?x=1",
        query={"q": ["a", "b c"], "on": True},
        headers={"X-Mine": "yes"},
        json={"k": None},
    )
    assert sent.startswith(b"POST /p?x=1&q=a&q=b+c&on=true HTTP/1.1\r\n")
    assert b"X-Mine: yes\r\n" in sent
    assert b"Content-Type: application/json\r\n" in sent
    assert sent.endswith(b'\r\n\r\n{"k":null}')


def test_a_null_can_be_sent() -> None:
    assert saying(answer(b"1"), method="POST", json=None)[1][0].endswith(b"\r\n\r\nnull")


def test_a_text_can_be_sent() -> None:
    assert saying(answer(b"1"), method="PUT", body="grüß")[1][0].endswith("grüß".encode())


def test_json_and_body_at_once_are_refused() -> None:
    assert failing(answer(b"1"), method="PUT", body="x", json=1).kind == "inputs"


def test_a_request_that_changes_something_carries_the_key_of_its_step() -> None:
    assert b"Idempotency-Key: stable-key\r\n" in saying(answer(b"1"), method="POST")[1][0]
    own = saying(answer(b"1"), method="POST", headers={"idempotency-key": "mine"})[1][0]
    assert b"mine" in own
    assert b"stable-key" not in own
    assert b"stable-key" not in saying(answer(b"1"))[1][0]


STATUSES = [
    ("404 Not Found", "http_4xx"),
    ("429 Too Many Requests", "http_429"),
    ("503 Unavailable", "http_5xx"),
    ("302 Found", "http_3xx"),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_a_status_that_was_not_expected_is_a_failure_of_its_class(status: str, kind: str) -> None:
    error = failing(answer(b'{"why":"so"}', status), at="/p?token=hidden")
    assert error.kind == kind
    assert f"answered {status[:3]}" in str(error)
    assert '{"why":"so"}' in str(error)
    assert "hidden" not in str(error)


def test_a_status_that_was_expected_is_an_answer() -> None:
    assert saying(answer(b"1", "404 Not Found"), expect_status=404)[0]["status"] == 404
    assert saying(answer(b"1", "404 Not Found"), expect_status=[200, 404])[0]["status"] == 404
    assert failing(answer(b"1", "200 OK"), expect_status=[201]).kind == "http_2xx"


def test_a_redirect_is_not_followed_and_says_where_it_led() -> None:
    moved = answer(b"", "302 Found", "text/plain", "Location: http://169.254.169.254/")
    error = failing(moved)
    assert "answered 302 to http://169.254.169.254/" in str(error)


def test_no_connection_means_that_nothing_was_sent() -> None:
    with pytest.raises(ToolError, match="was not sent") as caught:
        asyncio.run(request(url=f"http://127.0.0.1:{free_port()}/"))
    assert caught.value.kind == "unsent"


def test_a_connection_that_ends_before_the_answer_leaves_it_unknown() -> None:
    assert failing(b"").kind == "unknown"


async def dropped(ask: Callable[[str], Awaitable[Any]]) -> int:
    """How many requests a server gets that reads each one and closes the connection without an answer."""
    async with serving(lambda _: b"") as server:
        with pytest.raises((ToolError, ServerUnreachable)):
            await ask(server.url)
        await asyncio.sleep(0.05)  # for one that would be sent again
        return len(server.seen)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"])
def test_a_request_is_sent_once_however_it_ends(method: str) -> None:
    assert asyncio.run(dropped(lambda url: request(url=url, method=method))) == 1


def test_a_poll_and_a_callback_are_sent_once_however_they_end() -> None:
    assert asyncio.run(dropped(lambda url: get(Guard(), url, 5.0))) == 1
    assert asyncio.run(dropped(lambda url: post(Guard(), url, {}, b"{}", 5.0, 100))) == 1


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_one_try_of_the_client_is_one_request(method: str) -> None:
    async def ask(url: str) -> None:
        connection = Connection(url, patience=0)
        try:
            await connection.ask(method, "/", dict)
        finally:
            await connection.close()

    assert asyncio.run(dropped(ask)) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Transfer-Encoding": "chunked"},
        {"transfer-encoding": "identity"},
        {"Content-Length": "1"},
        {"Content-Length": "4", "Transfer-Encoding": "chunked"},
        {" Transfer-Encoding ": "chunked"},
    ],
)
def test_headers_that_say_otherwise_how_long_the_body_is_are_refused(headers: dict[str, str]) -> None:
    refused = failing(answer(b"{}"), method="POST", body="abcd", headers=headers)
    assert refused.kind == "inputs" and "follows from the body" in str(refused)


@pytest.mark.parametrize("headers", [{}, {"content-length": "4"}])
def test_a_request_says_once_how_long_its_body_is(headers: dict[str, str]) -> None:
    _, (seen,) = saying(answer(b"{}"), method="PUT", body="abcd", headers=headers)
    head = seen.lower().partition(b"\r\n\r\n")[0]
    assert head.count(b"content-length: 4") == 1 and b"transfer-encoding" not in head


def test_half_an_answer_leaves_it_unknown() -> None:
    assert failing(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").kind == "unknown"


def test_an_answer_that_is_no_http_leaves_it_unknown() -> None:
    assert failing(b"SSH-2.0-OpenSSH\r\n\r\n").kind == "unknown"


def test_an_answer_that_does_not_come_in_time_is_a_timeout() -> None:
    error = failing(None, timeout_secs=1)
    assert error.kind == "timeout"
    assert "no answer within 1 s" in str(error)


def test_an_answer_over_the_limit_is_not_read_to_its_end() -> None:
    assert failing(answer(b"x" * 1000, "200 OK", "text/plain"), max_bytes=999).kind == "too_large"


def test_an_answer_that_swells_is_counted_as_it_swells() -> None:
    bomb = answer(gzip.compress(b"0" * 50_000_000), "200 OK", "text/plain", "Content-Encoding: gzip")
    assert failing(bomb, max_bytes=1_000_000).kind == "too_large"


@pytest.mark.parametrize(
    "args",
    [{"headers": {"X": "a\r\nInjected: yes"}}, {"headers": {"X\n": "a"}}],
    ids=["value", "name"],
)
def test_a_header_with_a_line_break_is_refused(args: dict[str, Any]) -> None:
    assert failing(answer(b"1"), **args).kind == "inputs"


@pytest.mark.parametrize(
    "args", [{"method": "BREW"}, {"timeout_secs": 0}, {"timeout_secs": "x"}, {"max_bytes": 10**9}]
)
def test_arguments_are_checked_before_anything_is_sent(args: dict[str, Any]) -> None:
    with pytest.raises(ArgumentMismatch):
        asyncio.run(request(url="http://127.0.0.1/", **args))


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    assert saying(answer(b"1"))[0]["body"] == 1


def test_a_guarded_engine_calls_nothing_inside() -> None:
    with pytest.raises(AddressRefused):
        asyncio.run(request(Guard(guarded=True), url="https://127.0.0.1/"))


def test_a_resolver_that_changes_its_mind_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address when judged, the server's when connected to: the connection goes to what was judged, so not there."""
    asked = []
    real = socket.getaddrinfo

    def answers(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *args, **kwargs)
        asked.append(host)
        address = "127.0.0.2" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)

    async def run() -> list[bytes]:
        async with serving(lambda _: answer(b"1")) as server:
            guard = Guard(guarded=True, allowed=["127.0.0.2/32"])
            with pytest.raises(ToolError):
                await request(guard, url=f"http://rebind.example:{server.port}/", timeout_secs=60)
            return server.seen

    assert asyncio.run(run()) == []
    assert len(asked) == 1


def test_a_cancelled_request_ends_its_connection() -> None:
    async def run() -> None:
        async with serving(lambda _: None) as server:
            task = asyncio.create_task(request(url=server.url))
            while not server.seen:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


IMPORTED_WHERE = """
import sys, threading
import holdfast

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "aiohttp":
            print(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Finder())
step = {"id": "s", "tool": "http_request", "args": {"url": "http://127.0.0.1:1/"}}
try:
    holdfast.run_sync({"name": "n", "steps": [step]}, {})
except holdfast.RunFailed:
    pass
"""


def test_the_first_request_does_not_import_the_client_library_on_the_event_loop(tmp_path: Path) -> None:
    words = [sys.executable, "-c", IMPORTED_WHERE]
    ran = subprocess.run(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout.split() == ["False"]
