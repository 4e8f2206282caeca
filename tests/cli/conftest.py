"""The command itself, in a folder of its own: real processes, a real file, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.forks import Program

HOLDFAST = Path(sys.executable).with_name("holdfast")

TOOLS = '''
import asyncio, os, time
from holdfast import Context, tool

@tool
def add(a, b=0):
    return a + b

@tool
def note(text):
    """Leaves a mark outside of the engine, so that doing it twice can be seen."""
    print(f"noting {text}")
    with open("notes.txt", "a") as file:
        file.write(text + "\\n")
    return text

@tool
def fail(message="no luck"):
    raise RuntimeError(message)

@tool
async def hold(context: Context):
    """Never ends by itself, the first time."""
    if context.attempt == 1:
        print("at work")
        await asyncio.Event().wait()
    return context.attempt

@tool
async def begin():
    """Never ends by itself."""
    print("at work")
    await asyncio.Event().wait()

@tool
def stay(until):
    """Until there is such a file."""
    while not os.path.exists(until):
        time.sleep(0.02)

@tool
def flaky(times, context: Context):
    if context.attempt <= times:
        raise ConnectionError("busy")
    return context.attempt
'''


class Up:
    """A server that is up, in a process of its own. `said` is what it said of itself."""

    def __init__(self, process: Program, said: dict[str, Any]) -> None:
        self.process, self.said = process, said
        self.address: str = said["address"]

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stop it; gives the exit code and what it told the person."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        return self.process.wait(), said


class Cli:
    """`holdfast` in a folder with tools.py in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Program] = []
        self.write("tools.py", TOOLS)

    def write(self, name: str, text: str) -> Path:
        """Write a file of the folder, from one moment to the next: a server that watches it reads no half of it."""
        path, new = self.folder / name, self.folder.with_name("being-written")
        new.write_text(text, "utf-8")
        return new.replace(path)

    def flow(self, steps: str, **top: str) -> str:
        """Write flow.yaml with these steps; gives its name."""
        head = "".join(f"{key}: {value}\n" for key, value in top.items())
        lines = "".join(f"  {line}\n" for line in steps.strip("\n").splitlines())
        self.write("flow.yaml", f"name: flow\n{head}steps:\n{lines}")
        return "flow.yaml"

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return forks.run("holdfast", args, cwd=self.folder, env=self._env(env))

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json").stdout)

    def shell(self, line: str, *args: str) -> subprocess.CompletedProcess[str]:
        """The same in a line of bash, where "$@" is the command."""
        return subprocess.run(
            ["bash", "-c", line, "bash", HOLDFAST, *args],
            cwd=self.folder,
            env=self._env({}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(
        self, *args: str, deaf_to: signal.Signals | None = None, env: dict[str, str] | None = None
    ) -> Program:
        """Start the command; it hears all signals, as on a fresh terminal, but for one."""
        process = Program("holdfast", args, cwd=self.folder, env=self._env(env or {}), deaf_to=deaf_to)
        self.started.append(process)
        return process

    def up(self, *args: str, **env: str) -> Up:
        """Start a server on any free port, and wait until it says where it is."""
        command = ["up", "--port", "0", "--json", *args]
        process = self.start(*command, env=env)
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                return Up(process, json.loads(text))
        raise AssertionError(f"no server: {process.stderr.read()}")

    def stopped_by(self, number: signal.Signals, *args: str) -> tuple[int, str]:
        """Start, send the signal as soon as the tool `hold` is at work; gives exit code and what was said."""
        process = self.start(*args)
        said = self.until(process, "at work")
        process.send_signal(number)
        _, rest = process.communicate(timeout=120)
        return process.wait(), said + rest

    @staticmethod
    def until(process: Program, words: str) -> str:
        """Read what a process tells the person until it says this."""
        said = ""
        for line in process.stderr:
            said += line
            if words in line:
                return said
        raise AssertionError(f"it ended without saying {words!r}: {said}")

    def notes(self) -> list[str]:
        path = self.folder / "notes.txt"
        return path.read_text().split() if path.exists() else []

    def _env(self, more: dict[str, str]) -> dict[str, str]:
        ours = ("HOLDFAST_", "SCHEDULER_")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**plain, **more}


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    found = Cli(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()
