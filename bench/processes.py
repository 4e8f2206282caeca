"""Processes of their own, for what must be killed, weighed, or started from nothing. Knows no workload."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import psutil

ROOT: Final = Path(__file__).resolve().parent.parent
STOP_SECONDS: Final = 60
ERROR_BYTES: Final = 2_000


class Child:
    """A process that says what it has done in lines of JSON; killed when it is left."""

    def __init__(self, *command: str, folder: Path = ROOT) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed when this is left
        self.began = time.monotonic()
        # Bytecode is kept, as where a package is installed: a start that compiles 330 modules says nothing of the program.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    @classmethod
    def doing(cls, what: str, **order: Any) -> Child:
        """One of the functions of bench.child, with its order."""
        return cls("-m", "bench.child", what, msgspec.json.encode(order, enc_hook=str).decode())

    @classmethod
    def serving(cls, what: str, **order: Any) -> Child:
        """One of the servers of bench.servers, with its order."""
        return cls("-m", "bench.servers", what, msgspec.json.encode(order, enc_hook=str).decode())

    def hear(self) -> dict[str, Any]:
        """The next thing that it says."""
        text = self.hear_line()
        if not text:
            raise RuntimeError(f"a process of the bench ended early: {self.process.args!r}\n{self._said()}")
        return msgspec.json.decode(text, type=dict[str, Any])

    def hear_line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _said(self) -> str:
        """The end of what it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read()[-ERROR_BYTES:].decode(errors="replace")

    def rss_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1024 / 1024

    def kill(self) -> None:
        """kill -9"""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()
