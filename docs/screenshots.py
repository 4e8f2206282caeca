"""Takes the pictures of the web page for the README and docs/howto/page.md: `make screenshots`.

Starts a server on a new database with the examples, lets their first runs come to rest, and photographs three screens with
Debian's chromium.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from tests.ports import free_port
from tests.ui.chromium import FLAGS, found

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
SIZE: Final = {"width": 1180, "height": 720}
SECS_MAX: Final = 120


@contextmanager
def examples() -> Iterator[str]:
    """A server with the examples; its address."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"http://127.0.0.1:{(port := free_port())}"
        copy = shutil.copytree(
            ROOT / "examples", Path(folder) / "examples", ignore=shutil.ignore_patterns("*.db*")
        )
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "up",
            "--port",
            str(port),
            "--db",
            f"sqlite:///{folder}/examples.db",
        ]
        command += ["--tools", "tools", "--flows", ".", "--schedules", ".", "--demo"]
        with (Path(folder) / "log").open("wb") as log:
            server = subprocess.Popen(command, cwd=copy, stdout=log, stderr=log)
        try:
            until(lambda: ask(address, "/runs?label=demo")["items"])
            until(
                lambda: all(
                    run["status"] not in {"pending", "running"}
                    for run in ask(address, "/runs?label=demo")["items"]
                )
            )
            yield address
        finally:
            server.terminate()
            server.wait(60)


def ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}/api/v1{path}", timeout=10) as answer:
        return json.loads(answer.read())


def until(is_so: Any) -> None:
    deadline = time.monotonic() + SECS_MAX
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except OSError:
            pass  # it does not listen yet
        time.sleep(0.2)
    raise TimeoutError("the examples did not come to rest")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with examples() as address, sync_playwright() as player:
        browser = player.chromium.launch(executable_path=found(), args=list(FLAGS))
        runs = {
            name: ask(address, f"/runs?workflow={name}")["items"]
            for name in ("invoice", "release", "pictures")
        }
        bad = next(run["run_id"] for run in runs["invoice"] if run["status"] == "failed")
        for name, path, theme in (
            ("overview", "/", "light"),
            ("run", f"/ui/runs/{runs['release'][0]['run_id']}?step=may_ship", "light"),
            ("failed", f"/ui/runs/{bad}?step=charge", "dark"),
        ):
            page = browser.new_page(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
            page.goto(address + path)
            page.wait_for_selector("main h1")
            page.wait_for_timeout(1500)  # live data and drawing have settled
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
