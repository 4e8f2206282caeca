"""The pages as programs: every block of a page, carried out in the order in which a reader meets it.

    ```yaml NAME, ```python NAME, ```toml NAME   a file that is written into the reader's folder
    ```yaml                                      a whole workflow, run then and there
    ```python                                    a script, run then and there
    ```console                                   commands (`$ …`), and what they print
    ```sql                                       a query that finds something in holdfast.db
    ```text, ```mermaid                          a picture

Of what a command prints, run ids, times and dates are blanked, and columns may be of any width. `…` in a line stands for whatever differs, a line `…` for any
lines. Lines are compared as a set, since side by side their order may vary. A command ends with 0, or as the block says
(```console exit=2), or with `Killed`.

Of `… & sleep 3; kill -9 $!` the sleep is as long as it takes to print what the page shows, however busy the machine is.
Variables that a command sets are there in the next one, as in a shell. What is left running in the background is ended
with the page. Port 8070, where `holdfast up` listens, is another free one here: somebody may be listening there.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests import forks
from tests.inner import PLAIN
from tests.ports import free_port

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES: Final = ("yaml", "python", "toml")
PICTURES: Final = ("text", "mermaid")
KILLED: Final = (-9, 137)  # by itself, and as a shell says it
SECONDS_MAX: Final = 120
USUAL_PORT: Final = "8070"
VARIABLES: Final = ".variables"  # of the reader's shell, from one command to the next

_FENCE = re.compile(r"^```(\S+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLUGGED = re.compile(r"(.*) & sleep \d+; kill -9 \$!")
_KILLED = re.compile(r"\bKilled$|^bash: line \d+: +\d+ Killed ")  # what a shell says of it
_BLANKS = {
    re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"): "RUN",
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?"): "DATE",
    re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|min)\b(?: \d+ s\b)?"): "TIME",
    re.compile(r"is cancelled$"): "is cancelling",  # how long it takes depends on the worker
    re.compile(r"(?<=\S) {2,}"): "  ",  # a column is as wide as its longest time
}


class Block(NamedTuple):
    kind: str
    info: str  # what stands behind the kind: the name of a file, or how a command ends
    text: str


class Shown(NamedTuple):
    """A command of a page, and what the page says that it prints."""

    command: str
    output: list[str]
    exit_code: int


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(page.read_text("utf-8"))]


def commands(block: Block) -> Iterator[Shown]:
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        else:
            found[-1][1].append(line)
    exit_code = int(block.info.removeprefix("exit=") or 0)
    for number, (command, output) in enumerate(found, 1):
        yield Shown(command, output, exit_code if number == len(found) else 0)


class Reader:
    """Somebody who does in a folder what a page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        said = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST", "PYTEST"))
        }
        commands = folder.parent / f"{folder.name}.commands"
        commands.mkdir()
        forks.put_command(commands, "holdfast")
        self.env = {
            **said,
            "PATH": f"{commands}:{Path(sys.executable).parent}:{said['PATH']}",
            "PYTHONWARNINGS": "error",
            "PYTEST_ADDOPTS": " ".join(PLAIN),
        }
        self._port = str(free_port())
        self.env["HOLDFAST_PORT"] = self._port
        self._groups: list[int] = []

    def follow(self, page: Path) -> None:
        try:
            for block in blocks(page):
                self._do(block._replace(text=block.text.replace(USUAL_PORT, self._port)))
        finally:
            self._end_all()

    def _end_all(self) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _do(self, block: Block) -> None:
        if block.kind == "console":
            for shown in commands(block):
                self._compare(shown)
        elif block.kind == "sql":
            self._ask(block.text)
        elif block.kind in FILES and block.info:
            path = self.folder / block.info
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.kind == "python":
            self._succeed("python", block.text)
        elif block.kind == "yaml":
            self._succeed("holdfast run", block.text)
        else:
            assert block.kind in PICTURES, f"nobody knows how to carry out a block of {block.kind!r}"

    def _succeed(self, program: str, text: str) -> None:
        (self.folder / "block").write_text(text, "utf-8")
        done = self.sh(f"{program} block")
        assert done.returncode == 0, f"{done.stdout}\n{text}"

    def _ask(self, query: str) -> None:
        with closing(sqlite3.connect(f"file:{self.folder}/holdfast.db?mode=ro", uri=True)) as database:
            assert database.execute(query).fetchall(), f"nothing is found by {query}"

    def _compare(self, shown: Shown) -> None:
        plugged = _PLUGGED.fullmatch(shown.command)
        done = self._unplugged(plugged[1], shown.output) if plugged else self.sh(shown.command)
        told = f"$ {shown.command}\n{done.stdout}"
        assert mismatch(shown.output, done.stdout.splitlines()) == "", told
        wanted = KILLED if "Killed" in shown.output else (shown.exit_code,)
        assert done.returncode in wanted, f"{told}ended with {done.returncode}"

    def _unplugged(self, command: str, shown: list[str]) -> subprocess.CompletedProcess[str]:
        """Kill a command once it has printed what is shown."""
        printed: list[str] = []
        with self._begun(command) as shell:
            assert shell.stdout is not None
            for line in shell.stdout:
                printed.append(line.rstrip("\n"))
                if not mismatch(shown, printed):
                    break
            os.killpg(shell.pid, signal.SIGKILL)
            shell.stdout.read()  # it ends when the last process of the command has ended
        return subprocess.CompletedProcess(command, 0, "\n".join(printed))

    def _begun(self, command: str) -> subprocess.Popen[str]:
        shell = subprocess.Popen(
            ["bash", "-c", f"set -a; trap 'env -0 >{VARIABLES}' EXIT\n{command}"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._groups.append(shell.pid)
        return shell

    def sh(self, command: str) -> subprocess.CompletedProcess[str]:
        variables = self.folder / VARIABLES
        with self._begun(command) as shell:
            try:
                printed, _ = shell.communicate(timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._end_all()
                raise
        if variables.exists():
            self.env = dict(one.split("=", 1) for one in variables.read_text("utf-8").split("\0") if one)
        return subprocess.CompletedProcess(command, shell.returncode, printed)


def mismatch(shown: list[str], printed: list[str]) -> str:
    """What a page shows and was not printed, or the other way round; empty if they agree."""
    left = [_blanked(line) for line in printed if line.strip() and not _KILLED.search(line)]
    for line in shown:
        if line.strip() in ("", "…", "Killed"):
            continue
        wanted = re.compile(".*".join(map(re.escape, _blanked(line).split("…"))))
        found = next((one for one in left if wanted.fullmatch(one)), None)
        if found is None:
            return f"not printed: {line}"
        left.remove(found)
    return f"not shown: {left[0]}" if left and "…" not in shown else ""


def _blanked(line: str) -> str:
    for pattern, word in _BLANKS.items():
        line = pattern.sub(word, line)
    return line.rstrip()
