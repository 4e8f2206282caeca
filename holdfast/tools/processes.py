"""A bounded pool of processes for tools: real parallelism, and calls that can always be killed.

Knows how processes are started, called, killed and replaced. Must not know runs or retries. A process is started on first use, with
a new interpreter: forking this process, with its threads and open database, would copy locks in an unknown state.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from holdfast import limits
from holdfast.threads import AGAIN_SECONDS_MAX, no_thread_now
from holdfast.tools import child, prints
from holdfast.tools.context import Context
from holdfast.tools.failures import ToolError, described
from holdfast.tools.registry import Tool
from holdfast.tools.secrets import Secrets
from holdfast.values import VALUE_BYTES_MAX, written

REPORT_BYTES_MAX: Final = VALUE_BYTES_MAX + 64 * 1024
# of address space, much of which an interpreter and its libraries only reserve
MEMORY_BYTES_MIN: Final = 2**30
FAREWELL_SECONDS: Final = 0.2  # for a tool that checks `cancelled`, before it is killed
REST_SECONDS: Final = 1.0  # to read the rest of the output of a process that has ended
CLOSE_SECONDS: Final = 2.0
PIECE_BYTES: Final = 64 * 1024  # read at a time from a standard stream of a process
PIECES_MAX: Final = 64  # that are read at once when a call ends; a pipe holds less than these


class Crashed(ToolError):
    """The process ended before it returned a result."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="crashed")


class Processes:
    """Processes for tools, by default one per core. Belongs to one event loop."""

    def __init__(
        self,
        limit: int | None = None,
        *,
        memory_bytes: int | None = None,
        environment: Callable[[], dict[str, str]] | None = None,
    ) -> None:
        self._environment = environment or Secrets().environment
        self.limit = limit or os.cpu_count() or 1
        self.memory_bytes = memory_bytes or default_memory_bytes()
        self._places = asyncio.Semaphore(self.limit)
        self._all: set[Process] = set()
        self._idle: list[Process] = []

    async def call(
        self, tool: Tool, args: dict[str, Any] | msgspec.Raw, context: Context | None = None
    ) -> bytes:
        """Call a tool and return the JSON text of its result. Cancelling this call kills the process; the next call gets a new one."""
        if child.Child.is_loading_main:
            raise ToolError(
                "this script starts runs while another process loads it to find its tools; "
                'put that code under `if __name__ == "__main__":`'
            )
        order = child.frame(_call(tool, args, context))
        async with self._places:
            process = await self._take()
            usable = False
            try:
                report = await process.ask(order, context)
                usable = not (isinstance(report, child.Failure) and report.spoilt)
            except asyncio.CancelledError:
                if context is not None and tool.context is not None:
                    await process.say_farewell()
                raise
            finally:
                self._give_back(process, usable=usable)
        if isinstance(report, child.Failure):
            error = ToolError(report.message, kind=report.kind)
            error.traceback_text = report.traceback
            raise error
        return bytes(report.text)

    def close(self) -> None:
        """Kill all processes."""
        for process in self._all:
            process.kill()
        until = time.monotonic() + CLOSE_SECONDS
        for process in self._all:
            process.reaper.join(max(0.0, until - time.monotonic()))
            if process.popen.returncode is None:
                process.kill_group()
        self._all.clear()
        self._idle.clear()

    @property
    def pids(self) -> list[int]:
        return [process.popen.pid for process in self._all]

    async def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            self._all.discard(process)  # it exited by itself while idle
            process.kill()
        process = await self._new()
        self._all.add(process)
        try:
            await process.connect()
        except BaseException:
            self._give_back(process, usable=False)
            raise
        return process

    async def _new(self) -> Process:
        """Start a process. At the system's limit on processes, wait until one can be started."""
        while True:
            try:
                return Process(self.memory_bytes, self._environment())
            except RuntimeError as error:
                if not no_thread_now(error):
                    raise
            except BlockingIOError:
                pass  # the error of a fork at the limit
            await asyncio.sleep(AGAIN_SECONDS_MAX)

    def _give_back(self, process: Process, *, usable: bool) -> None:
        if usable and process.is_alive and process in self._all:
            self._idle.append(process)
        else:
            process.kill()
            self._all.discard(process)


class Output:
    """Our end of a standard stream of a process. Text arrives line by line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fd, self._theirs = os.pipe()
        os.set_blocking(self.fd, False)
        self.is_over = False
        self._lines = prints.Lines()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @staticmethod
    @contextlib.contextmanager
    def written_by(outputs: list[Output]) -> Iterator[list[int]]:
        """The other ends, for a process that is started meanwhile. If it cannot be started, both ends are closed."""
        try:
            yield [output._theirs for output in outputs]
        except BaseException:
            for output in outputs:
                output.close()
            raise
        finally:
            for output in outputs:
                os.close(output._theirs)

    def lines(self) -> list[str]:
        """The next lines, if any were written."""
        try:
            data = os.read(self.fd, PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        self.is_over = not data
        return self._lines.taken(self._decoder.decode(data))

    def all_lines(self) -> list[str]:
        """Everything that was written by now, also a line without an end, up to what a pipe can hold."""
        found: list[str] = []
        for _ in range(PIECES_MAX):
            if self.fd < 0 or self.is_over:
                break
            before = len(found)
            found += self.lines()
            if len(found) == before and not self._is_readable():
                break
        return [*found, *self._lines.rest()]

    def _is_readable(self) -> bool:
        return bool(select.select([self.fd], [], [], 0)[0])

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Process(asyncio.Protocol):
    """One process: our end of its socket, and a thread that waits for its end."""

    def __init__(self, memory_bytes: int, environment: dict[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._report: asyncio.Future[child.Answer | child.Failure] | None = None
        self._context: Context | None = None
        self._answering: asyncio.Task[None] | None = None  # a question of the process; it asks one at a time
        self._lost = self._loop.create_future()  # the socket has ended
        self._gone: asyncio.Future[int] = self._loop.create_future()  # the process has, with this code
        self._ours, theirs = socket.socketpair()
        self._outputs = [Output("stdout"), Output("stderr")]
        with theirs, Output.written_by(self._outputs) as ends:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(path=sys.path, handle=theirs.fileno(), parent=os.getpid(), memory=memory_bytes, limits=limits.differing())],
                stdin=subprocess.DEVNULL,
                stdout=ends[0],
                stderr=ends[1],
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the engine
            )  # fmt: skip
        self.reaper = threading.Thread(target=self._reap, name="holdfast-reaper", daemon=True)
        try:
            self.reaper.start()
        except RuntimeError:
            self.popen.kill()  # its keeper ends when it does
            self.popen.wait()
            self._ours.close()
            self._close_outputs()
            raise

    @property
    def is_alive(self) -> bool:
        return self.popen.returncode is None and not self._lost.done()

    async def connect(self) -> None:
        await self._loop.create_unix_connection(lambda: self, sock=self._ours)
        for output in self._outputs:
            self._loop.add_reader(output.fd, self._hear, output)

    async def ask(self, order: bytes, context: Context | None) -> child.Answer | child.Failure:
        assert self._transport is not None
        self._report, self._context = self._loop.create_future(), context
        self._transport.write(order)
        ends = (self._report, self._lost, self._gone)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._report.done():
            # Its last output must still be read; processes that it forked may keep the socket open.
            await asyncio.wait(
                (self._report, self._lost), timeout=REST_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        self._hear_rest()
        if self._report.done():
            return self._report.result()
        self.kill()  # in case it only closed its socket
        raise Crashed(_how_it_ended(await self._gone))

    def _hear(self, output: Output) -> None:
        """Keep what was written to a standard stream as lines of the attempt: by the tool, by C code, or by processes it started."""
        for line in output.lines():
            self._keep(output, line)
        if output.is_over:
            self._loop.remove_reader(output.fd)

    def _hear_rest(self) -> None:
        """The call has ended: what it wrote is in the pipe by now."""
        for output in self._outputs:
            for line in output.all_lines():
                self._keep(output, line)

    def _keep(self, output: Output, line: str) -> None:
        if self._context is None:
            prints.show(output.name, line)
        else:
            self._context.heard(output.name, line)

    def _close_outputs(self) -> None:
        for output in self._outputs:
            if output.fd >= 0:
                self._loop.remove_reader(output.fd)
            output.close()

    async def say_farewell(self) -> None:
        """Set `cancelled` for the tool, and give it a moment to return."""
        assert self._transport is not None
        if self._report is not None and self.is_alive:
            self._transport.write(child.frame(child.Cancel()))
            ends = (self._report, self._gone)
            await asyncio.wait(ends, timeout=FAREWELL_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    def kill(self) -> None:
        """Kill the process and everything it has started. On Linux its keeper does this, and also finds processes in their own session."""
        if self.popen.returncode is None and sys.platform == "linux":
            self.popen.terminate()
        elif self.popen.returncode is None:
            self.kill_group()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._ours.close()
        self._hear_rest()
        self._close_outputs()

    def kill_group(self) -> None:
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:  # not yet the leader of its session
            self.popen.kill()

    def _reap(self) -> None:
        code = self.popen.wait()
        try:
            self._loop.call_soon_threadsafe(_settle, self._gone, code)
        except RuntimeError:
            return  # the loop was closed first; no caller is left

    # ------------------------------------------------------------------------------------------------ the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods, but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= child.HEADER.size:
            (size,) = child.HEADER.unpack_from(self._received)
            if size > REPORT_BYTES_MAX:
                return self.kill()
            end = child.HEADER.size + size
            if len(self._received) < end:
                return
            report = _decode(bytes(self._received[child.HEADER.size : end]))
            del self._received[:end]
            self._take_report(report)

    def connection_lost(self, error: Exception | None) -> None:
        _settle(self._lost, None)

    def _take_report(self, report: child.Report) -> None:
        if isinstance(report, child.Emitted):
            if self._context is not None:
                self._context.relay(report.kind, report.data)
        elif isinstance(report, child.Asked):
            self._answering = self._loop.create_task(self._answer(report.uri, self._context))
        elif self._report is not None:
            _settle(self._report, report)

    async def _answer(self, uri: str, context: Context | None) -> None:
        assert self._transport is not None
        try:
            found = child.Found(str(await context.fetch(uri) if context is not None else ""))
        except Exception as error:
            found = child.Found("", described(error)[1])
        self._transport.write(child.frame(found))


_decode = msgspec.json.Decoder(child.Report).decode
_PROGRAM: Final = """import sys
sys.path[:] = {path!r}
from holdfast.tools.keeper import keep
parent = keep({parent}, {handle})
from holdfast.tools.child import main
main({handle}, parent, {memory}, {limits!r})
"""


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _call(tool: Tool, args: dict[str, Any] | msgspec.Raw, context: Context | None) -> child.Call:
    setting = None
    if context is not None:
        workdir = str(context.planned_workdir())
        setting = child.Setting(
            context.run_id, context.path, context.attempt, context.idempotency_key, workdir, context.trigger
        )
    call = child.Call(
        tool.fn.__module__, tool.fn.__qualname__, tool.name, msgspec.Raw(written(args)), setting
    )
    if call.module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        call.main_module = None if spec is None else spec.name
        call.main_path = getattr(main, "__file__", None)
    return call


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"the process of the tool ended with exit code {code} before it answered"
    hint = "; often that is the system, out of memory" if -code == signal.SIGKILL else ""
    return f"the process of the tool was ended by signal {-code} ({_signal_name(-code)}){hint}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def default_memory_bytes() -> int:
    """Return half of the memory of this machine or container, so that one tool cannot use all of it."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            found = min(found, int(file.read()))
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return max(found // 2, MEMORY_BYTES_MIN)
