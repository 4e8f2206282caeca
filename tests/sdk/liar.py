"""A worker that cannot be trusted, in a process of its own: `python -m tests.sdk.liar` prints its address.

It answers with broken JSON, with megabytes, with a wrong status, with nothing, with an error, or never, in turn.
"""

from __future__ import annotations

import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAYS = itertools.cycle(
    [
        b'{"result": tru',
        b'{"result": "' + b"x" * 10_000_000,
        b"<html>502</html>",
        b"",
        b'{"result": null, "error": "no luck"}',
        b"[1, 2, 3]",
    ]
)


class Liar(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        lie = next(WAYS)
        if lie == b"[1, 2, 3]":
            threading.Event().wait()
        self.send_response(502 if lie.startswith(b"<") else 200)
        self.send_header("Content-Length", str(len(lie) + (5 if lie.startswith(b"[") else 0)))
        self.end_headers()
        self.wfile.write(lie)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that http.server gives it
        """Nobody reads it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Those who hang up on a liar are right."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Liar)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
