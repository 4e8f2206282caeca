"""A receiver of final callbacks: a real server on the loopback interface that answers as it is told, and can be away."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.ports import free_port


class Received(NamedTuple):
    path: str
    headers: dict[str, str]  # names in lower case
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.raw))

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses: list[int] = []  # of the next answers; 204 when there are no more
        self.headers: dict[str, str] = {}
        self.answer = b""
        self._heard = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._port = free_port()  # its own also while it is away
        self.up()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/ended"

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.received]

    def first(self) -> Received:
        """The first request, once it has come."""
        assert self._heard.wait(60), "no request came"
        return self.received[0]

    def up(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, raw))
                receiver._heard.set()
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.down()


def standard_signature(key: bytes, one: Received) -> str:
    """What Standard Webhooks say the signature is."""
    signed = b".".join([one.id.encode(), one.headers["webhook-timestamp"].encode(), one.raw])
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def hub_signature(key: bytes, one: Received) -> str:
    return "sha256=" + hmac.new(key, one.raw, hashlib.sha256).hexdigest()
