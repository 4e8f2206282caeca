"""Finds runs that crash the process while they are decided or folded, and sets them aside.

Before a run is decided or loaded, its number is written to a memory-mapped page of a file. That is as cheap as
writing to a list, and the kernel keeps the page however the process ends. A process that finds a number there knows
which run its predecessor was working on. The run may not have caused the first crash: a kill always interrupts some run. From
then on the run is watched, and its events are written to the page too. After the second crash it is loaded after the other
runs. After three crashes, the last two at the same event, it is set aside. Knows no rule of the engine.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import RunRow, SetAside
from holdfast.values import TERMINAL, Millis, RunId, RunNo

log = logging.getLogger("holdfast")

DEATHS_MAX: Final = 3
DEATHS_REMEMBERED_MAX: Final = 1_000  # the newest ones: a process crashes on one run at a time
WATCHED_SECONDS: Final = 5.0  # head start of the other runs before a run with two crashes is loaded
LOADING: Final = "loading its rows"

DECIDING, LOADED = (
    0,
    1,
)  # the run numbers at the start of the page; the event of a watched run is stored after them
TEXT_AT: Final = 16
PAGE_BYTES: Final = 4096


class Death(msgspec.Struct):
    """How many processes crashed while they decided one run. `doing` is the event; it is not known for the first
    crash."""

    no: RunNo
    run_id: RunId
    count: int
    doing: str
    at: Millis

    @property
    def is_enough(self) -> bool:
        return self.count >= DEATHS_MAX


class Mark:
    """The page. Without a file it is a list, and is lost with the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self.now: list[int] | memoryview[int] = [0, 0]

    def open(self) -> tuple[RunNo, str]:
        """Start marking; returns the run that the previous process was deciding or loading when it crashed, or 0."""
        if self._path is None:
            return RunNo(0), ""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            left = os.pread(fd, PAGE_BYTES, 0).ljust(PAGE_BYTES, b"\0")
            # every byte: writing to a mapped page without space on the disk would crash the process
            os.pwrite(fd, bytes(PAGE_BYTES), 0)
            self._map = mmap.mmap(fd, PAGE_BYTES)
        finally:
            os.close(fd)
        self.now = memoryview(self._map)[:TEXT_AT].cast("q")
        numbers = memoryview(left)[:TEXT_AT].cast("q")
        no = numbers[DECIDING] or numbers[LOADED]
        of, _, doing = left[TEXT_AT:].partition(b"\0")[0].decode("utf-8", "replace").partition(" ")
        return RunNo(no), doing if of == str(no) else ""

    def say(self, no: RunNo, doing: str) -> None:
        if self._map is not None:
            text = f"{no} {doing}".encode()[: PAGE_BYTES - TEXT_AT - 1]
            self._map[TEXT_AT:] = text.ljust(PAGE_BYTES - TEXT_AT, b"\0")

    def close(self) -> None:
        """The process ends in an orderly way, so clear the page."""
        if self._map is not None and self._path is not None:
            self.now = [0, 0]
            self._map = None
            self._path.unlink(missing_ok=True)


class FatalRuns:
    def __init__(self, store: Store, committer: Committer, path: Path | None) -> None:
        self._store, self._committer = store, committer
        self.mark = Mark(path)
        self.watched: dict[RunNo, Death] = {}
        self._known: dict[RunNo, Death] = {}

    async def open(self, clock: Clock) -> list[tuple[RunNo, SetAside]]:
        """Count the crash of the previous process durably, before any run is loaded. Returns the runs to set aside."""
        known = {death.no: death for death in read_deaths(await self._store.fatal_runs())}
        self._known = {no: death for no, death in known.items() if await self._is_open(no) is not None}
        try:
            no, doing = self.mark.open()
        except OSError as error:
            log.warning("cannot detect runs that crash the process: %s", error)
            no, doing = RunNo(0), ""
        row = await self._is_open(no) if no else None
        if row is not None:
            self._count(row, doing, clock.now())
        if row is not None or known.keys() != self._known.keys():
            await self._committer.commit(self._batch())
        self.watched = {no: death for no, death in self._known.items() if not death.is_enough}
        return [(no, set_aside(death)) for no, death in self._known.items() if death.is_enough]

    @property
    def held(self) -> set[RunNo]:
        """Runs that are loaded after all other runs. A single crash may have another cause and does not delay a run."""
        return {no for no, death in self.watched.items() if death.count > 1}

    async def _is_open(self, no: RunNo) -> RunRow | None:
        row = await self._store.run_by_no(no)
        return None if row is None or row.status in TERMINAL else row

    def _count(self, row: RunRow, doing: str, at: Millis) -> None:
        before = self._known.pop(row.no, None)
        count = 1
        if before is not None and before.doing in ("", doing):
            count = before.count + 1
        self._known[row.no] = death = Death(row.no, row.id, count, doing, at)
        if death.is_enough:
            log.critical("run %s is set aside: %s", row.id, set_aside(death).reason)
        else:
            log.error(
                "the previous process crashed while it worked on run %s (crash %d of %d)",
                row.id,
                count,
                DEATHS_MAX,
            )

    def begins(self, no: RunNo, doing: str) -> None:
        """A watched run is about to be decided or loaded. If the loop reaches its next turn, that went well."""
        self.mark.say(no, doing)
        asyncio.get_running_loop().call_soon(self._survived, no, doing)

    def _survived(self, no: RunNo, doing: str) -> None:
        """The event that crashed the last process went well now, so that crash was chance."""
        if no in self.watched and self.watched[no].doing == doing:
            del self.watched[no], self._known[no]
            self._committer.submit(self._batch(), lambda error: None)

    async def forget(self, no: RunNo) -> bool:
        """Let a run be loaded again; returns whether it had been set aside."""
        death = self._known.pop(no, None)
        self.watched.pop(no, None)
        if death is None:
            return False
        try:
            await self._committer.commit(self._batch())
        except BaseException:
            self._known[no] = death
            raise
        return death.is_enough

    def _batch(self) -> Batch:
        batch = Batch()
        batch.fatal_runs = _encoded(list(self._known.values())[-DEATHS_REMEMBERED_MAX:])
        return batch


def set_aside(death: Death) -> SetAside:
    what = death.doing or "it"
    return SetAside(
        f"{death.count} processes crashed while they decided this run, the last one at: {what}",
        f"to retry it: holdfast doctor --retry-run {death.run_id}",
    )


def read_deaths(text: str | None) -> list[Death]:
    return [] if text is None else msgspec.json.decode(text, type=list[Death])


def mark_beside(database: str) -> Path:
    """The file that holds the mark of a database."""
    return Path(f"{database}.deciding").absolute()


async def set_aside_of(store: Store, no: RunNo) -> SetAside | None:
    """Whether a run of a database was set aside permanently."""
    deaths = read_deaths(await store.fatal_runs())
    return next((set_aside(death) for death in deaths if death.no == no and death.is_enough), None)


def _encoded(deaths: Iterable[Death]) -> str:
    return msgspec.json.encode(list(deaths)).decode()
