"""The parent's side: drivers by fork from a warm server (twenty kills a second), and what they told before they ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from tests.crash import driver
from tests.crash.driver import Order

# A server that has imported everything forks each driver: a third of a second less per life, and still a process of
# its own with its own locks, threads and files.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.crash.driver", "holdfast.runtime.engine"])

PATIENCE_SECONDS = 120.0  # only a driver that hangs takes as long


class Place:
    """The files that outlive the processes: database, effects, log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db, self.effects, self.log = folder / "holdfast.db", folder / "effects", folder / "log"
        self.gate = folder / "gate"
        self.effects.touch()
        self.log.touch()

    def order(self, **what: Any) -> Order:
        return Order(str(self.db), str(self.effects), str(self.log), gate=str(self.gate), **what)


class Driver:
    def __init__(self, order: Order) -> None:
        self.pipe: Connection
        self.pipe, theirs = _context.Pipe(duplex=False)
        self.process = _context.Process(target=driver.main, args=(order, theirs), daemon=True)
        self.process.start()
        theirs.close()
        assert self.process.pid is not None
        self.pid: int = self.process.pid
        self.told: list[tuple[Any, ...]] = []

    def hears(self, seconds: float) -> bool:
        """Take in what the driver says within this time; False once it has nothing more to say."""
        try:
            if self.pipe.poll(seconds):
                self.told.append(self.pipe.recv())
            return True
        except (EOFError, OSError):
            return False

    def wait_for(self, what: str, count: int = 1) -> tuple[Any, ...]:
        """The count-th message of a kind, waiting for it."""
        while len(found := [each for each in self.told if each[0] == what]) < count:
            assert self.pipe.poll(PATIENCE_SECONDS), f"no {what} from the driver, only {self.told[-3:]}"
            if not self.hears(0):
                raise AssertionError(f"the driver ended without {what}: {self.told[-3:]}")
        return found[count - 1]

    def end(self) -> int:
        """Wait for its end, however it comes; gives the exit code (negative: the signal)."""
        while True:
            heard = len(self.told)
            if not self.hears(PATIENCE_SECONDS):
                break
            if len(self.told) == heard:
                self.process.kill()
                raise AssertionError(f"the driver hangs; the last it said was {self.told[-3:]}")
        self.process.join(PATIENCE_SECONDS)
        assert self.process.exitcode is not None, "the driver does not end"
        return self.process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and what it had said before."""
        self.send_signal(signal.SIGKILL)
        assert self.end() == -signal.SIGKILL


class Told(msgspec.Struct):
    """What drivers acknowledged, over all their lives."""

    started: dict[str, int] = {}  # run id → n
    ended: dict[str, tuple[str, Any]] = {}  # run id → status, value

    def take(self, driver: Driver) -> None:
        for what, *rest in driver.told:
            if what == "started":
                self.started[rest[1]] = rest[0]
            elif what == "ended":
                self.ended[rest[0]] = (rest[1], rest[2])
        driver.told = []

    @property
    def open(self) -> list[str]:
        return [run for run in self.started if run not in self.ended]
