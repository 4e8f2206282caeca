"""A process that runs tools: it reads calls from a socket, writes results to it, and ends with its parent.

Knows how to find a tool by module and name, and how to call it. Must not know pools, or why a tool is called. The main thread runs
the tool; a second thread reads the socket, so that a busy tool can be cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import os
import queue
import resource
import runpy
import signal
import socket
import struct
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

import msgspec

from holdfast import limits
from holdfast.tools.context import Context, RunTrigger
from holdfast.tools.failures import OutputTooLarge, ToolError, described
from holdfast.tools.keeper import die_with_parent
from holdfast.tools.prints import Lines
from holdfast.tools.registry import Tool
from holdfast.tools.tracebacks import traceback_of
from holdfast.values import RunId

P = ParamSpec("P")
T = TypeVar("T")

HEADER: Final = struct.Struct("!I")
# The module name of the parent's script, so that its main part does not run.
MAIN: Final = "__holdfast_main__"
FAILURE_CHARS_MAX: Final = 1_000_000  # the engine redacts a message before it truncates it
TRACEBACK_CHARS_MAX: Final = 4_000_000  # the same


class Setting(msgspec.Struct):
    """The contents of a Context, in a form that can be sent."""

    run_id: str
    path: str
    attempt: int
    idempotency_key: str
    workdir: str
    trigger: RunTrigger | None = None


class Call(msgspec.Struct, tag=True):
    module: str
    qualname: str
    tool: str
    args: msgspec.Raw
    setting: Setting | None
    main_path: str | None = None
    main_module: str | None = None


class Cancel(msgspec.Struct, tag=True):
    pass


class Found(msgspec.Struct, tag=True):
    path: str
    problem: str = ""


class Answer(msgspec.Struct, tag=True):
    text: msgspec.Raw


class Failure(msgspec.Struct, tag=True):
    kind: str
    message: str
    spoilt: bool = False  # this process should not be used again
    traceback: str = ""


class Asked(msgspec.Struct, tag=True):
    """The path of this artefact."""

    uri: str


class Emitted(msgspec.Struct, tag=True):
    kind: str
    data: dict[str, Any]


Order = Call | Cancel | Found
Report = Answer | Failure | Emitted | Asked


def frame(message: Order | Report) -> bytes:
    body = msgspec.json.encode(message, enc_hook=str)
    return HEADER.pack(len(body)) + body


class Child:
    """Calls tools on request, one at a time."""

    is_loading_main: ClassVar = False

    def __init__(self, line: socket.socket, memory_bytes: int) -> None:
        self._line, self._memory_bytes = line, memory_bytes
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._context: Context | None = None
        self._tools: dict[tuple[str, str], Tool] = {}
        self._found: queue.SimpleQueue[Found] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._sending = threading.Lock()  # a tool may log from its own threads

    def run(self) -> None:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is not None:
                setattr(sys, name, Output(getattr(sys, name), name, lambda: self._context))
        threading.Thread(target=self._listen, name="holdfast-line", daemon=True).start()
        while True:
            self._send(self._answer_to(self._calls.get()))

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._line.makefile("rb") as line:
            decoder = msgspec.json.Decoder(Order)
            while header := line.read(HEADER.size):
                order = decoder.decode(line.read(*HEADER.unpack(header)))
                if isinstance(order, Call):
                    self._calls.put(order)
                elif isinstance(order, Found):
                    self._found.put(order)
                elif self._context is not None:
                    self._context.cancel()
        # The engine has ended. The keeper of this process ends everything that was started here.
        if sys.platform == "linux":
            os.kill(os.getppid(), signal.SIGTERM)
        else:
            os.killpg(0, signal.SIGKILL)

    is_remote: ClassVar = False  # this process does nothing else meanwhile

    async def work(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        return act(*args, **named)

    def fetch(
        self, uri: str, folder: Callable[[], Path]
    ) -> Path:  # the engine knows the folder of the attempt
        """Return the file of an artefact; only the engine knows its path."""
        with self._asking:
            self._send(Asked(uri))
            found = self._found.get()
        if found.problem:
            raise ToolError(found.problem, kind="artefact")
        return Path(found.path)

    def _send(self, report: Report) -> None:
        with self._sending:
            self._line.sendall(frame(report))

    def _answer_to(self, call: Call) -> Report:
        try:
            text = self._perform(call)
        except MemoryError:
            limit = self._memory_bytes // 2**20
            return Failure(
                "error", f"MemoryError: a process may use {limit} MiB (process_memory_bytes)", spoilt=True
            )
        except BaseException as error:
            kind, message = described(error, chars_max=FAILURE_CHARS_MAX)
            return Failure(kind, message, traceback=traceback_of(error)[-TRACEBACK_CHARS_MAX:])
        finally:
            _flush()
            self._context = None
        if len(text) > limits.now.value_bytes_max:
            return Failure(*described(OutputTooLarge()))
        return Answer(msgspec.Raw(text))

    def _perform(self, call: Call) -> bytes:
        tool = self._tool(call)
        args = tool.bind(msgspec.json.decode(call.args))
        if call.setting is not None:
            self._context = self._context_of(call.setting)
            if tool.context is not None:
                args[tool.context] = self._context
        output = asyncio.run(tool.fn(**args)) if tool.is_async else tool.fn(**args)
        return tool.result(output)

    def _context_of(self, setting: Setting) -> Context:
        def emit(kind: str, data: dict[str, Any]) -> None:
            self._send(Emitted(kind, data))

        context = Context(
            RunId(setting.run_id),
            setting.path,
            setting.attempt,
            setting.idempotency_key,
            emit=emit,
            artefacts=self,
            trigger=setting.trigger,
        )
        context.use_workdir(Path(setting.workdir))
        return context

    def _tool(self, call: Call) -> Tool:
        key = (call.module, call.qualname)
        if key not in self._tools:
            try:
                self._tools[key] = Tool(_found(call), call.tool)
            except (Exception, SystemExit) as error:  # importing a module runs its code
                _, why = described(error)
                raise ToolError(
                    f"the process of the tool {call.tool!r} cannot load it from {call.module!r}: {type(error).__name__}: {why}"
                ) from error
        return self._tools[key]


def _found(call: Call) -> Any:
    found: Any = _main_of(call) if call.module == "__main__" else importlib.import_module(call.module)
    for part in call.qualname.split("."):
        found = getattr(found, part)
    return found


def _main_of(call: Call) -> types.ModuleType:
    """Load the parent's script as a module; code under `if __name__ == "__main__"` does not run again."""
    if MAIN in sys.modules:
        return sys.modules[MAIN]
    Child.is_loading_main = True
    try:
        if call.main_module is not None:
            names = runpy.run_module(call.main_module, run_name=MAIN, alter_sys=True)
        else:
            names = runpy.run_path(str(call.main_path), run_name=MAIN)
    finally:
        Child.is_loading_main = False
    module = sys.modules[MAIN] = sys.modules["__main__"] = types.ModuleType(MAIN)
    vars(module).update(names)
    return module


class Output(io.TextIOBase):
    """Standard output or standard error of a tool. During a call its lines are log lines of the attempt, which the engine prints
    without secrets: a process of tools does not know them."""

    def __init__(self, stream: Any, level: str, context: Callable[[], Context | None]) -> None:
        self._stream, self._level, self._context, self._lines = stream, level, context, Lines()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self._context() is None:
            return int(self._stream.write(text))
        for line in self._lines.taken(text):
            self._keep(line)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def end_line(self) -> None:
        """The tool has returned: keep what it wrote after the last end of a line."""
        for line in self._lines.rest():
            self._keep(line)

    def _keep(self, line: str) -> None:
        context = self._context()
        if context is not None:
            context.printed(self._level, line)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a tool may have closed or replaced it
            stream.flush()
            if isinstance(stream, Output):
                stream.end_line()


def _limit(memory_bytes: int) -> None:
    # A core dump contains arguments, which may contain secrets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    if sys.platform == "linux":
        # If memory runs out, the kernel should kill this process, not the engine.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _die_with_parent(parent: int) -> None:
    """End this process with its parent, even while the tool holds the interpreter. Outside Linux, the closed socket is the signal."""
    if sys.platform == "linux":
        die_with_parent(parent, signal.SIGKILL)
    elif os.getppid() != parent:
        os._exit(1)


def main(handle: int, parent: int, memory_bytes: int, given: dict[str, int]) -> None:
    limits.put_in_force(limits.Limits(**given))
    _die_with_parent(parent)
    _limit(memory_bytes)
    Child(socket.socket(fileno=handle), memory_bytes).run()
