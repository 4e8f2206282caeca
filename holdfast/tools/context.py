"""What a tool can read and report about the attempt that it runs in.

Knows one attempt. Reports go to a function given by the caller, from the thread that the tool runs in.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from holdfast import limits
from holdfast.tools import prints
from holdfast.tools.secrets import Secrets
from holdfast.values import RunId

log = logging.getLogger("holdfast.tool")

P = ParamSpec("P")
T = TypeVar("T")


Emit = Callable[[str, dict[str, Any]], None]


class Files(Protocol):
    @property
    def is_remote(self) -> bool: ...
    def fetch(self, uri: str, folder: Callable[[], Path]) -> Path: ...
    async def work(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T: ...


class RunTrigger(msgspec.Struct, frozen=True):
    """The occurrence of a schedule that started a run. `scheduled_at` is its nominal time; `shifted_from` is the local time that
    it was due at, if clocks skipped that."""

    schedule_id: str
    kind: str
    occurrence: str
    scheduled_at: datetime
    is_catchup: bool = False
    shifted_from: str = ""


class Context:
    """What a tool can read about its attempt: declare a parameter annotated `Context` to receive it."""

    __slots__ = (
        "_artefacts",
        "_bytes",
        "_cancelled",
        "_emit",
        "_lines",
        "_logged",
        "_progress",
        "_secrets",
        "_shown",
        "_workdir",
        "_workdirs",
        "attempt",
        "idempotency_key",
        "path",
        "run_id",
        "trigger",
    )  # fmt: skip

    def __init__(
        self,
        run_id: RunId,
        path: str,
        attempt: int,
        idempotency_key: str,
        *,
        emit: Emit | None = None,
        workdirs: Path | None = None,
        secrets: Secrets | None = None,
        artefacts: Files | None = None,
        trigger: RunTrigger | None = None,
    ) -> None:
        self.trigger = trigger  # None: the run was not started by a schedule
        self.run_id, self.path, self.attempt, self.idempotency_key = run_id, path, attempt, idempotency_key
        self._emit, self._workdirs, self._secrets, self._artefacts = emit, workdirs, secrets, artefacts
        self._logged: Callable[[str], str] | None = None  # redacts lines; made when the first is logged
        self._cancelled = False
        self._lines = self._bytes = self._progress = 0
        self._shown: tuple[int, str] | None = None
        self._workdir: Path | None = None

    @property
    def cancelled(self) -> bool:
        """True once the run is being cancelled or this attempt has timed out. Check it regularly, and return."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True

    def log(self, message: str, /, **fields: Any) -> None:
        """Write a log line for this attempt. After 1,000 lines or 64 KiB, a note says that the rest is dropped."""
        self._log(str(message), fields)

    def printed(self, stream: str, line: str) -> None:
        """Keep a line that the tool has printed to `stdout` or `stderr`. The engine's process prints it, without secrets."""
        self._log(line, {}, stream)

    def _log(self, message: str, fields: dict[str, Any], stream: str = "") -> dict[str, Any] | None:
        if self._lines > limits.now.log_lines_max:
            return None
        self._lines += 1
        self._bytes += len(message.encode("utf-8", "replace")) + sum(
            len(f"{k}{v}") for k, v in fields.items()
        )
        if self._lines > limits.now.log_lines_max or self._bytes > limits.now.log_bytes_max:
            self._lines = limits.now.log_lines_max + 1
            message = f"further lines were dropped: an attempt may log {limits.now.log_lines_max} lines or {limits.now.log_bytes_max} bytes ({limits.met('log_lines_max')}, {limits.met('log_bytes_max')})"
            fields = {}
        data = {"message": message, "fields": fields}
        return self._say("log", {**data, "stream": stream} if stream else data)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress: a fraction from 0 to 1, or done of total. Changes too small to see are dropped."""
        fraction = min(max(done / total if total else float(done), 0.0), 1.0)
        shown = (round(fraction * 1_000), message)
        if shown == self._shown or self._progress >= limits.now.progress_max:
            return
        self._shown = shown
        self._progress += 1
        data = {"fraction": fraction, "message": message}
        self._say("progress", data if total is None else {**data, "done": done, "total": total})

    @property
    def workdir(self) -> Path:
        """A folder for this attempt only, created on first use and removed when the attempt ends."""
        folder = self.planned_workdir()
        if not folder.exists():
            if self._workdirs is not None:
                self._workdirs.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700)
        return folder

    @property
    def made_workdir(self) -> Path | None:
        """The folder, if the tool has used it."""
        return self._workdir if self._workdir is not None and self._workdir.exists() else None

    def artefact(self, uri: str) -> Path:
        """The file behind `artefact://sha256/…`, to read from. If it is in a bucket, this waits for a copy in `workdir`, so an async
        tool uses `fetch`."""
        files = self._files()
        if files.is_remote and _is_on_a_loop():
            raise RuntimeError("files are in a bucket here: in an async tool, use await context.fetch(uri)")
        return files.fetch(uri, lambda: self.workdir)

    async def fetch(self, uri: str) -> Path:
        """The same, for async tools: other work goes on while the file is copied."""
        files = self._files()
        return await files.work(files.fetch, uri, lambda: self.workdir)

    def _files(self) -> Files:
        if self._artefacts is None:
            raise RuntimeError("this engine has no artefact store")
        return self._artefacts

    def planned_workdir(self) -> Path:
        """The path of the folder, whether or not it exists: another process may create it, and this one must remove it."""
        if self._workdir is None:
            self._workdir = Path(self._workdirs or tempfile.gettempdir(), f"holdfast-{secrets.token_hex(8)}")
        return self._workdir

    def use_workdir(self, folder: Path) -> None:
        self._workdir, self._workdirs = folder, folder.parent

    def close(self) -> None:
        """Remove the folder of the attempt, which has ended."""
        if self._workdir is not None and os.path.lexists(self._workdir):
            shutil.rmtree(self._workdir, ignore_errors=True)

    def relay(self, kind: str, data: dict[str, Any]) -> None:
        """Forward a message of the same attempt in another process, which has applied the limits."""
        said = self._say(kind, data)
        if "stream" in said:
            prints.show(said["stream"], said["message"])

    def heard(self, stream: str, line: str) -> None:
        """Keep and print a line that was written to a standard stream of the process that performs the attempt."""
        if (said := self._log(line, {}, stream)) is not None:
            prints.show(stream, said["message"])

    def _say(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        if self._secrets is not None and self._secrets.are_known:
            data = {
                name: _redacted(part, self._secrets.redact)
                for name, part in self._in_line(kind, data).items()
            }
        if kind == "log" and "stream" not in data and log.isEnabledFor(logging.INFO):
            fields = "".join(f" {name}={value}" for name, value in data["fields"].items())
            about = {"run_id": self.run_id, "step": self.path, "attempt": self.attempt, "said": data}
            log.info("run %s: step %s: %s%s", self.run_id, self.path, data["message"], fields, extra=about)
        if self._emit is not None:
            self._emit(kind, data)
        return data

    def _in_line(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The message of a log line without secrets that began in the lines before."""
        if kind != "log" or self._secrets is None:
            return data
        if self._logged is None:
            self._logged = self._secrets.lines()
        return {**data, "message": self._logged(data["message"])}


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def line_of(data: dict[str, Any]) -> str:
    """A line of `context.log` as text."""
    return str(data["message"]) + "".join(f" {name}={value}" for name, value in data["fields"].items())


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): _redacted(part, redact) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(part, redact) for part in value]
    return value if value is None or isinstance(value, int | float) else redact(str(value))
