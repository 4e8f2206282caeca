"""A server in a process of its own, on a disk that fails on command: `python -m tests.crash.faulty_server DATABASE PORT [DRAIN_SECS]`.

Each line of its standard input is an instruction:

    sound              everything works
    sync fails         every sync of the log fails
    sync hangs         a sync of the log lasts until the next instruction, and says `hangs` once it has begun
    full               every write fails as on a full disk

Each is answered with `done`.
"""

from __future__ import annotations

import asyncio
import sys
import threading

import apsw

from holdfast.config import Settings
from holdfast.http.serve import Serving, serve
from holdfast.tools.registry import Registry
from tests.crash.faults import Fault, Faults


def hanging(until: threading.Event) -> Fault:
    def hang(operation: str, file: str) -> int:
        if operation == "sync" and not until.is_set():
            print("hangs", flush=True)
            until.wait()
        return 0

    return hang


def fault_of(instruction: str, is_over: threading.Event) -> Fault | None:
    match instruction.split():
        case ["sync", "fails"]:
            return lambda operation, file: apsw.SQLITE_IOERR_FSYNC if operation == "sync" else 0
        case ["sync", "hangs"]:
            return hanging(is_over)
        case ["full"]:
            return lambda operation, file: apsw.SQLITE_FULL if operation == "write" else 0
        case _:
            pass
    return None


def main() -> None:
    with Faults() as disk:

        def obey() -> None:
            is_over = threading.Event()
            for line in sys.stdin:
                before, is_over = is_over, threading.Event()
                disk.fault = fault_of(line, is_over)
                print("done", flush=True)
                before.set()

        def say(server: Serving) -> None:
            disk.begin()
            threading.Thread(target=obey, daemon=True).start()
            print(server.address, flush=True)

        database, port, *drain = sys.argv[1:]
        limits = {"drain_secs_max": int(drain[0])} if drain else {}
        settings = Settings(db=f"sqlite:///{database}", port=int(port), limits=limits)
        asyncio.run(serve(settings, registry=Registry([]), ready=say))


if __name__ == "__main__":
    main()
