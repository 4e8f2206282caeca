"""A worker in a process of its own that knows nothing of holdfast but the protocol: registers, beats, answers.

python push_worker.py SERVER ID [SERVICE …] prints its address once it is registered, and ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SERVICES = ("transform", "sum", "route", "fail")


def done(service: str, given: Any, params: dict[str, Any]) -> Any:
    if service == "transform" and isinstance(given, str):
        return getattr(given, params["op"])()
    if service == "transform":
        return given * params.get("mul", 1)
    if service == "sum":
        return sum(float(one) for one in given)
    if service == "route":
        return {"action": params.get("action", "goB")}
    raise ValueError("told to fail")


class Exec(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            answer = {
                "result": done(self.path.removeprefix("/exec/"), asked["input"], asked["params"]),
                "error": "",
            }
        except (ValueError, TypeError, KeyError) as error:
            answer = {"result": None, "error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that http.server gives it
        """Nobody reads it."""


def tell(server: str, path: str, said: dict[str, Any]) -> None:
    request = urllib.request.Request(server + path, json.dumps(said).encode(), method="POST")
    if key := os.environ.get("WORKER_KEY"):
        request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert json.load(answer) == {"ok": "1"}


def main(server: str, worker_id: str, *services: str) -> None:
    exec_server = ThreadingHTTPServer(("127.0.0.1", 0), Exec)
    threading.Thread(target=exec_server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{exec_server.server_port}"
    tell(server, "/workers/register", {"id": worker_id, "url": url, "services": list(services or SERVICES)})
    tell(server, "/workers/heartbeat", {"id": worker_id, "load": 0})
    print(url, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
