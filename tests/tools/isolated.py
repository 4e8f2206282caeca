"""Tools that run in processes of their own, most of them badly behaved."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import Context, ToolError, tool


@dataclasses.dataclass
class Box:
    n: int


@tool(isolate="process")
def double(box: Box) -> Box:
    return Box(box.n * 2)


@tool(isolate="process")
async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@tool(isolate="process")
def whoami() -> int:
    return os.getpid()


@tool(isolate="process")
def spin(beacon: str) -> None:
    Path(beacon).write_text(str(os.getpid()))
    while True:
        pass


@tool(isolate="process")
def meet(mine: str, other: str) -> str:
    """Says that it is here, and ends once the other one is."""
    Path(mine).touch()
    while not Path(other).exists():
        time.sleep(0.005)
    return "met"


@tool(isolate="process")
def hoard() -> None:
    kept = []
    while True:
        kept.append(bytearray(16 * 2**20))


@tool(isolate="process")
def segfault() -> None:
    ctypes.string_at(0)


@tool(isolate="process")
def leave(code: int) -> None:
    os._exit(code)


@tool(isolate="process")
def quit_politely() -> None:
    sys.exit(3)


@tool(isolate="process")
def shot() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tool(isolate="process")
def shot_with_a_child_that_lives() -> None:
    if os.fork() == 0:
        os.setsid()
        time.sleep(3)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@tool(isolate="process")
def with_a_subprocess(beacon: str) -> None:
    process = subprocess.Popen(["sleep", "600"])
    Path(beacon).write_text(str(process.pid))
    process.wait()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@tool(isolate="process")
def fails(how: str) -> Any:
    raise {
        "kind": ToolError("over quota", kind="quota"),
        "plain": ValueError("plain words"),
        "timeout": TimeoutError("slow"),
        "unprintable": Unprintable(),
        "stop": StopIteration(1),
        "keyboard": KeyboardInterrupt(),
    }[how]


@tool(isolate="process")
def returns(what: str) -> Any:
    return {"nan": float("nan"), "generator": (n for n in [1]), "object": object()}[what]


@tool(isolate="process")
def chatty(size: int) -> str:
    print("to the terminal")
    os.write(1, b"straight to the terminal\n")
    sys.stderr.write("to the other\n")
    return "x" * size


@tool(isolate="process")
def writes_past_python(said: str) -> str:
    os.write(1, f"{said} by the system\n".encode())
    subprocess.run(["sh", "-c", f"echo {said} by a child; printf 'no end' >&2"], check=True)
    return said


@tool(isolate="process")
def last_words() -> None:
    os.write(2, b"last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


@tool(isolate="process")
def about(ctx: Context) -> dict[str, Any]:
    ctx.log("at work", step=1)
    ctx.progress(1, 2)
    (ctx.workdir / "file").write_text("x")
    return {
        "run_id": ctx.run_id,
        "path": ctx.path,
        "attempt": ctx.attempt,
        "key": ctx.idempotency_key,
        "cancelled": ctx.cancelled,
        "workdir": str(ctx.workdir),
    }


@tool(isolate="process")
def patient(beacon: str, farewell: str, ctx: Context) -> None:
    Path(beacon).write_text("here")
    while not ctx.cancelled:
        time.sleep(0.005)
    Path(farewell).write_text("seen")


@tool(isolate="process")
def messy(beacon: str, ctx: Context) -> None:
    (ctx.workdir / "half").write_text("x")
    Path(beacon).write_text(str(ctx.workdir))
    while True:
        time.sleep(1)


@tool(isolate="process")
def reads(uri: str, ctx: Context) -> str:
    return ctx.artefact(uri).read_text()


@tool(isolate="process")
def long_words(size: int) -> None:
    raise ValueError("x" * size + "hunter2hunter2")


@tool(isolate="process")
def crash_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        os._exit(9)
    return ctx.attempt


@tool(isolate="process")
def spin_once(beacon: str) -> str:
    if Path(beacon).exists():
        return "done"
    spin(beacon)
    return "never"


DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""


@tool(isolate="process")
def with_a_daemon(beacon: str) -> None:
    """Starts a process that leaves its session and its parent, and never returns."""
    subprocess.run([sys.executable, "-c", DAEMON, beacon], check=True)
    time.sleep(600)


@tool(isolate="process")
def shot_with_a_daemon(beacon: str) -> None:
    subprocess.run([sys.executable, "-c", DAEMON, beacon], check=True)
    while not Path(beacon).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
