"""A server with things to see, a browser, and a page that remembers what went wrong in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pytest

from holdfast.http.routes.page import built
from tests.ports import free_port
from tests.ui.chromium import FLAGS, found

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
SECS_MAX: Final = 60.0  # of a busy machine
collect_ignore_glob = [] if found() and built() else ["test_*.py"]

if not collect_ignore_glob:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright


class Server:
    """A server process and its API."""

    def __init__(self, folder: Path, *, key: str | None = None, port: int | None = None) -> None:
        self.folder, self.key, self.port = folder, key, port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        command = [
            sys.executable, "-m", "holdfast", "up", "--port", str(self.port), "--db", f"sqlite:///{self.folder / 'page.db'}",
            "--tools", "page_tools", "--flows", str(HERE / "flows"), "--log", "json",
        ]  # fmt: skip
        env = {"PYTHONPATH": f"{ROOT}:{HERE}", "PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        if self.key:
            env["HOLDFAST_API_KEY"] = self.key
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)
        self.until(self.is_up, "the server is up")
        return self

    def is_up(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (
            self.folder / "server.log"
        ).read_text()
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(SECS_MAX)
            self.process = None

    def ask(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        headers = {"content-type": "application/json"}
        if key or self.key:
            headers["authorization"] = f"Bearer {key or self.key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/api/v1{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECS_MAX) as answer:
            return json.loads(answer.read() or b"null")

    def run(
        self, workflow: str, inputs: dict[str, Any] | None = None, *, until: str | None = None, **more: Any
    ) -> str:
        run_id = str(
            self.ask("POST", "/runs", {"workflow": workflow, "inputs": inputs or {}, **more})["run_id"]
        )
        if until:
            self.until(
                lambda: self.ask("GET", f"/runs/{run_id}")["status"] == until, f"{workflow} is {until}"
            )
        return run_id

    @staticmethod
    def until(is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECS_MAX
        while not is_so():
            assert time.monotonic() < deadline, f"waited for: {what}"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that change nothing others look at."""
    made = Server(tmp_path_factory.mktemp("server")).start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test stops, guards or fills by itself."""
    made = Server(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each module: while the player is at work, an event loop is running in this thread, and tests of other modules
    begin their own."""
    with sync_playwright() as player:
        made = player.chromium.launch(executable_path=found(), args=list(FLAGS))
        yield made
        made.close()


class Watched:
    """A page that notes console errors, violations of its policy, mistakes, and requests to another host."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.context, self.server = context, server
        self.wrong: list[str] = []
        self.expected: list[str] = []  # patterns of console errors that a test provokes
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('POLICY ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sourceFile + ':' + e.lineNumber))"
        )
        self.page: Page = context.new_page()
        self.page.set_default_timeout(SECS_MAX * 1000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"mistake: {error}"))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.wrong.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(
            self.server.address
        ).netloc and not request.url.startswith("data:"):
            self.wrong.append(f"a request to {request.url}")

    def open(self, path: str) -> Page:
        self.page.goto(self.server.address + path)
        return self.page

    def by(self, testid: str) -> Any:
        return self.page.get_by_test_id(testid)

    def until(self, script: str) -> None:
        """Wait until a script is true. The tool's own way to wait needs `eval`, which the page's policy refuses."""
        safely = f"(() => {{ try {{ return Boolean({script}) }} catch {{ return false }} }})()"  # of what is not there yet
        Server.until(lambda: bool(self.page.evaluate(safely)), script)

    def is_fine(self) -> None:
        left = [one for one in self.wrong if not any(re.search(pattern, one) for pattern in self.expected)]
        assert left == []


Open = Callable[..., Watched]


@pytest.fixture
def watched(browser: Browser) -> Iterator[Open]:
    """Opens pages; at the end each of them must have been fine."""
    made: list[Watched] = []

    def open_one(
        server: Server, *, theme: Literal["light", "dark"] = "light", width: int = 1280, **more: Any
    ) -> Watched:
        context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 800}, **more)
        made.append(Watched(context, server))
        return made[-1]

    yield open_one
    for one in made:
        one.context.close()
    for one in made:
        one.is_fine()
