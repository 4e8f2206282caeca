"""Programs of ours, started by forking a process that has imported the package already.

To import what a command needs takes 0.4 s of CPU, and the tests start hundreds. A fork is a process of its own all the same,
with its own folder, environment, files, signals and exit code. What an interpreter does before `main` is not tested this way.

    the test ──request──► the forking process ──fork──► a parent that waits ──fork──► the program
             ◄─────────────── process id, and at its end the exit code ──┘

A shell starts such programs too: `put_command` writes a script that asks the same process, passes signals on, and ends as the
program ends. Whoever kills the script kills the program.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parents[1]
NUMBER: Final = struct.Struct("i")
REQUEST_BYTES_MAX: Final = 1024 * 1024
NOT_AHEAD: Final = ("holdfast.__main__", "holdfast.testing")  # a program by itself, and a plugin of pytest


# ------------------------------------------------------------------------------------------------------ for tests


class Program:
    """A program that runs; as much of `subprocess.Popen` with pipes of text as tests use."""

    def __init__(
        self,
        module: str,
        args: Iterable[str],
        *,
        cwd: Path,
        env: dict[str, str],
        deaf_to: signal.Signals | None = None,
        log: Path | None = None,
        terminal: int | None = None,
    ) -> None:
        """With a log, all that it writes goes there instead of into pipes; with a terminal, that is its own."""
        self.args = [module, *args]
        self.returncode: int | None = None
        out, out_end = os.pipe() if log is None else _file(log)
        err, err_end = os.pipe() if log is None else _file(log)
        self._status, status_end = os.pipe()
        files = [1, 2] if terminal is None else [0]
        request = {"args": self.args, "cwd": str(cwd), "env": env, "deaf_to": deaf_to, "files": files}
        theirs = [out_end, err_end] if terminal is None else [terminal]
        socket.send_fds(_forking().requests, [json.dumps(request).encode()], [*theirs, status_end])
        for end in (out_end, err_end, status_end):
            os.close(end)
        self.stdout: IO[str] = os.fdopen(out, encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(err, encoding="utf-8")
        self.pid = self._number()
        assert self.pid

    def _number(self) -> int:
        found = os.read(self._status, NUMBER.size)
        return int(NUMBER.unpack(found)[0]) if found else 0

    def poll(self) -> int | None:
        return self.returncode if self._ends_within(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ends_within(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def _ends_within(self, seconds: float | None) -> bool:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(seconds):
                    return False
            self.returncode = self._number()
            os.close(self._status)
        return True

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it still writes, and its end."""
        began = time.monotonic()
        said = {id(file): "" for file in (self.stdout, self.stderr)}

        def read(file: IO[str]) -> None:
            if not file.closed:
                with file:
                    said[id(file)] = file.read()

        readers = [
            threading.Thread(target=read, args=(file,), daemon=True) for file in (self.stdout, self.stderr)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if timeout is None else max(0.0, began + timeout - time.monotonic()))
        self.wait(None if timeout is None else max(0.0, began + timeout - time.monotonic()))
        return said[id(self.stdout)], said[id(self.stderr)]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its end is not reported yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _file(log: Path) -> tuple[int, int]:
    """An end to read from, where nothing comes, and one to write to."""
    return os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def run(
    module: str, args: Iterable[str], *, cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    program = Program(module, args, cwd=cwd, env=env)
    out, err = program.communicate(timeout=120)
    return subprocess.CompletedProcess(program.args, program.wait(), out, err)


# Imports what an interpreter without `site` finds quickly: it starts in a fiftieth of a second.
COMMAND: Final = """#!{python} -IS
import json, os, signal, socket, struct, sys
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect({path!r})
request = {{"args": [{module!r}, *sys.argv[1:]], "cwd": os.getcwd(), "env": dict(os.environ), "deaf_to": None, "files": [0, 1, 2]}}
signals = {{signal.SIGINT, signal.SIGTERM, signal.SIGHUP}}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
socket.send_fds(asked, [json.dumps(request).encode()], [0, 1, 2])
(pid,) = struct.unpack("i", asked.recv(4))
for number in signals:
    signal.signal(number, lambda number, _: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
(code,) = struct.unpack("i", asked.recv(4))
if code < 0:
    if -code in signals:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def put_command(folder: Path, module: str) -> None:
    """Write a script of the module's name that runs it as a fork."""
    script = folder / module
    script.write_text(COMMAND.format(python=sys.executable, path=_forking().path, module=module))
    script.chmod(0o755)


class Forking(NamedTuple):
    requests: socket.socket
    path: str  # where it takes requests of others


@cache
def _forking() -> Forking:
    """Our end of the process that forks: one for this process, for as long as it lives."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tempfile.mkdtemp(prefix="forks-")
    path = f"{folder}/socket"
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()
        ends = [theirs.fileno(), listening.fileno()]
        command = [sys.executable, "-m", "tests.forks", *map(str, ends)]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=ends, stdin=subprocess.DEVNULL)

    def end() -> None:
        ours.close()
        process.wait()
        shutil.rmtree(folder)

    atexit.register(end)
    return Forking(ours, path)


# ---------------------------------------------------------------------------------------------- the process that forks


def serve(asked: socket.socket, listening: socket.socket) -> dict[str, Any]:
    """Fork for each request. Returns in the programs alone; the process that forks ends with the one that asks."""
    while True:
        readable, _, _ = select.select([asked, listening], [], [])
        if asked in readable:
            message, ends, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 4)
            if not message:
                sys.exit()
        else:
            asking, _ = listening.accept()
            message, ends, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 4)
            ends.append(asking.detach())
        if message and os.fork() == 0:
            asked.close()
            listening.close()
            return _program(json.loads(message), ends)
        for end in ends:
            os.close(end)
        _reap()


def _program(request: dict[str, Any], ends: list[int]) -> dict[str, Any]:
    """Fork once more: the program goes on from here, and its parent tells how it ends."""
    *outputs, status = ends
    ready, go = os.pipe()
    if (pid := os.fork()) != 0:
        _wait_for(pid, status, go, [*outputs, ready])
    os.close(go)
    os.read(ready, 1)  # its id is known by now
    os.close(ready)
    os.close(status)
    for number, end in zip(request["files"], outputs, strict=True):
        os.dup2(end, number)
        os.close(end)
    return request


def _wait_for(pid: int, status: int, go: int, others: list[int]) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the program, if for any
        signal.signal(number, signal.SIG_IGN)
    for end in (*others, 1, 2):
        os.close(end)
    try:
        os.write(status, NUMBER.pack(pid))
        os.close(go)
        _kill_without(status, pid)
        _, ended = os.waitpid(pid, 0)
        os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    finally:
        os._exit(0)


def _kill_without(status: int, pid: int) -> None:
    """Wait for the end of a program; kill it once nothing can be told of its end."""
    waiting = select.poll()
    waiting.register(program := os.pidfd_open(pid), select.POLLIN)
    waiting.register(status, 0)  # closed at the other end
    if all(end != program for end, _ in waiting.poll()):
        os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _become(request: dict[str, Any]) -> None:
    """What an interpreter that was just started would have."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["files"] == [0]:
        os.login_tty(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if request["deaf_to"] is not None:
        signal.signal(request["deaf_to"], signal.SIG_IGN)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", buffering=1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    ahead = [path for path in request["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
    if request["env"].get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    sys.path[:] = [*ahead, *(path for path in sys.path if path != str(ROOT)), str(ROOT)]


def _import_ahead() -> None:
    import holdfast

    gc.disable()
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if module.name not in NOT_AHEAD:
            import_module(module.name)
    gc.freeze()  # else each fork copies what its collector looks at
    gc.enable()


def _leave(code: int) -> NoReturn:
    """End as an interpreter does, but leave the modules standing: to take them down copies every page that forks share."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    with suppress(OSError):  # a terminal that was closed
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    _import_ahead()
    assert threading.active_count() == 1
    request = serve(*(socket.socket(fileno=int(end)) for end in sys.argv[1:]))
    _become(request)
    module, *args = request["args"]
    sys.argv = [module, *args]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise


if __name__ == "__main__":
    main()
