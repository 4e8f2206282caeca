"""A server that measures the turns of its event loop: `python -m tests.crash.turns up --port 8700 …`, as `holdfast up` otherwise.

While one turn is taken, no request is answered. Wall time says little on a machine with other work, so a turn is measured in CPU time:
what the thread of the loop used, and what the whole process used between two turns, when another thread kept the interpreter to
itself. A tick every 10 ms makes sure that there are turns. The longest of both kinds are written to the file that TURNS_FILE names,
with the code that was seen running, once a second: a server that is killed has written them. The loop is asyncio's own: uvloop, which
servers use, cannot be measured from inside, and what a turn does is the same in both.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import runpy
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

import msgspec

from tests.sdk.processes import House

KEPT: Final = 10
SAMPLE_SECONDS: Final = 0.01
TICK_SECONDS: Final = 0.01
WRITE_SECONDS: Final = 1.0
COUNTED_MS_MIN: Final = 20.0  # shorter turns are not written down
FILE: Final = "TURNS_FILE"
PACKAGE: Final = f"{os.sep}holdfast{os.sep}"
WAITING: Final = frozenset({"wait", "_wait_for_tstate_lock", "_worker", "select", "poll", "get", "_run_jobs"})

Kind = Literal["turn", "denied"]


class Turn(msgspec.Struct, order=True):
    """`turn`: the loop's own CPU in one turn. `denied`: the CPU of the process from the end of one turn to the beginning of the next."""

    ms: float
    at: float  # by the clock that all processes share
    kind: Kind
    cause: str


def read(file: Path) -> list[Turn]:
    """The longest turns of every server that wrote to this place, the longest first."""
    found = [
        turn
        for part in file.parent.glob(f"{file.name}.*.json")
        for turn in msgspec.json.decode(part.read_bytes(), type=list[Turn])
    ]
    return sorted(found, reverse=True)


def measured(folder: Path, file: Path) -> House:
    """A folder whose server measures its turns and writes them beside this file."""
    return House(folder, module=__name__, **{FILE: str(file)})


class Watch:
    """Measures the loop of the thread that it is made in."""

    def __init__(self, file: Path) -> None:
        self._file = file.with_name(f"{file.name}.{os.getpid()}.json")
        self._loop_thread = threading.get_ident()
        self._longest: dict[Kind, list[Turn]] = {"turn": [], "denied": []}
        self._seen: Counter[str] = Counter()  # code of the loop's thread, in the turn that is being taken
        self._in_turn = False
        self._ended = time.process_time()
        self._is_changed = False

    def begin(self) -> None:
        base: Any = asyncio.base_events.BaseEventLoop
        base._run_once = self._measured(base._run_once)
        threading.Thread(target=self._sample, name="turns", daemon=True).start()

    def _measured(self, run_once: Callable[[Any], None]) -> Callable[[Any], None]:
        """Around one pass of the loop. The wait for sockets in it takes no CPU, and ends with the first event."""

        def run(loop: Any) -> None:
            if not hasattr(loop, "_ticks"):
                loop._ticks = True
                self._tick(loop)
            select = loop._selector.select
            loop._selector.select = lambda timeout: self._awake(select(timeout))
            try:
                run_once(loop)
            finally:
                loop._selector.select = select
                self._asleep()

        return run

    def _tick(self, loop: Any) -> None:
        loop.call_later(TICK_SECONDS, self._tick, loop)

    def _awake(self, events: Any) -> Any:
        """A turn begins. If this process was busy since the last one, another thread had the interpreter."""
        self._note("denied", 1000 * (time.process_time() - self._ended), self._elsewhere)
        self._seen.clear()
        self._in_turn, self._began = True, time.thread_time()
        return events

    def _asleep(self) -> None:
        self._in_turn = False
        self._note("turn", 1000 * (time.thread_time() - self._began), self._here)
        self._ended = time.process_time()

    def _note(self, kind: Kind, ms: float, cause: Callable[[], str]) -> None:
        if ms < COUNTED_MS_MIN:
            return
        longest = self._longest[kind]
        if len(longest) == KEPT and ms <= longest[0].ms:
            return
        turn = Turn(ms, time.monotonic(), kind, cause())
        self._is_changed = True
        (heapq.heappush if len(longest) < KEPT else heapq.heappushpop)(longest, turn)

    def _here(self) -> str:
        return ", ".join(f"{code} ({count})" for code, count in self._seen.most_common(3))

    def _elsewhere(self) -> str:
        me = threading.get_ident()
        frames = [frame for thread, frame in sys._current_frames().items() if thread != me]
        return ", ".join(sorted({_place(frame) for frame in frames if frame.f_code.co_name not in WAITING}))

    def _sample(self) -> None:
        due = time.monotonic() + WRITE_SECONDS
        while True:
            time.sleep(SAMPLE_SECONDS)
            if self._in_turn and (frame := sys._current_frames().get(self._loop_thread)) is not None:
                self._seen[_place(frame)] += 1
            if self._is_changed and time.monotonic() > due:
                due, self._is_changed = time.monotonic() + WRITE_SECONDS, False
                self._write()

    def _write(self) -> None:
        turns = [turn for longest in self._longest.values() for turn in longest]
        part = self._file.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(turns))
        part.replace(self._file)


def _place(frame: FrameType) -> str:
    """The innermost code of the package that a thread is in, and that of the package which called it."""
    found: list[str] = []
    at: FrameType | None = frame
    while at is not None and len(found) < 3:
        name = at.f_code.co_filename
        if PACKAGE in name:
            found.append(f"{name.rpartition(PACKAGE)[2]}:{at.f_lineno} {at.f_code.co_name}")
        at = at.f_back
    return " < ".join(found) or f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"


def main() -> None:
    Watch(Path(os.environ[FILE])).begin()
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # so that importing it fails
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
