"""A real server and real workers, each in a process of its own, on loopback; killed or stopped as a test says."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.forks import Program
from tests.ports import free_port

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


def until(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, once it finds something."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"it never came to this: {what}")


def written(file: Path) -> bool:
    """Whether a whole line is in the file: it is there, and empty, a moment before."""
    return file.exists() and file.read_text().endswith("\n")


class House:
    """A folder with a database, its server and its workers. `module` is the program: `holdfast`, or one that runs it and measures."""

    def __init__(self, folder: Path, *, module: str = "holdfast", **env: str) -> None:
        self.folder, self.port, self._module = folder, free_port(), module
        self.address = f"http://127.0.0.1:{self.port}"
        self._env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        self._running: list[Program] = []
        self._logs = 0
        self.server: Program

    def begin(self, *words: str, **env: str) -> tuple[Program, Path]:
        self._logs += 1
        log = self.folder / f"{self._logs}.log"
        process = Program(self._module, words, cwd=self.folder, env={**self._env, **env}, log=log)
        self._running.append(process)
        return process, log

    def up(self, *more: str, **env: str) -> None:
        words = ("up", "--port", str(self.port), "--db", "sqlite:///h.db", *more)
        self.server, log = self.begin(*words, **env)
        until(lambda: "is up at" in log.read_text() or self._ended(self.server, log), "the server is up")

    def worker(self, *words: str, module: str = "tests.sdk.tools", **env: str) -> tuple[Program, str]:
        """A worker that is registered, and what it said of itself."""
        process, log = self.begin(
            "worker", module, "--server", self.address, "--url", "http://127.0.0.1:0", *words, **env
        )
        until(lambda: "serves" in log.read_text() or self._ended(process, log), "the worker is registered")
        return process, log.read_text()

    def _ended(self, process: Program, log: Path) -> bool:
        assert process.poll() is None, log.read_text()
        return False

    def kill(self, process: Program) -> None:
        process.kill()
        process.communicate()

    def stop(self, process: Program) -> int:
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        for process in self._running:
            self.kill(process)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())

    def start(self, *steps: dict[str, Any]) -> str:
        status, body = self.ask("POST", "/api/v1/runs", {"spec": {"name": "n", "steps": list(steps)}})
        assert status == 202, body
        return str(body["run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        status, body = self.ask("GET", f"/api/v1/runs/{run_id}")
        assert status == 200, body
        return dict(body)

    def ended(self, run_id: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            try:
                view = self.run(run_id)
            except (OSError, urllib.error.URLError):
                return None
            return view if view["finished_at"] else None

        return until(look, f"run {run_id} is over")

    def workers(self) -> list[str]:
        return [worker["id"] for worker in self.ask("GET", "/api/v1/workers")[1]["items"]]


def port_of(said: str) -> int:
    found = re.search(r"called at http://[^:]+:(\d+)", said)
    assert found, said
    return int(found[1])
