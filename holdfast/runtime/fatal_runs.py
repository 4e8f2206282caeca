"""Runs that kill the process while they are decided or folded: found by a mark that outlives the process, and set aside.

Before a run is decided or loaded its number is written into a page of a file that is mapped into memory: that costs as much as
writing to a list, and the kernel keeps it however the process ends. A process that finds a number there knows what its
predecessor died of. The first death may be chance (a kill has to meet some run), so from then on the run is watched: what is
decided of it is written down too. After the second it is taken up later than the others. Three deaths, the last two at the
same event, set it aside. Knows no rule of the engine.
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
DEATHS_REMEMBERED_MAX: Final = 1_000  # the newest: a process dies of one run at a time
# how long the other runs have for themselves before one with two deaths is taken up
WATCHED_SECONDS: Final = 5.0
LOADING: Final = "loading its rows"

DECIDING, LOADED = (
    0,
    1,
)  # the numbers at the beginning of the page; what is said of a watched run stands after them
TEXT_AT: Final = 16
PAGE_BYTES: Final = 4096


class Death(msgspec.Struct):
    """Processes that died while they decided one run. `doing` is the event; unknown for the first of them."""

    no: RunNo
    run_id: RunId
    count: int
    doing: str
    at: Millis

    @property
    def is_enough(self) -> bool:
        return self.count >= DEATHS_MAX


class Mark:
    """The page. Without a file it is a list, and nothing outlives the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self.now: list[int] | memoryview[int] = [0, 0]

    def open(self) -> tuple[RunNo, str]:
        """Begin to mark; gives what the process before was deciding or loading when it died, or 0."""
        if self._path is None:
            return RunNo(0), ""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            left = os.pread(fd, PAGE_BYTES, 0).ljust(PAGE_BYTES, b"\0")
            # every byte: a page without room on the disk cannot be written to
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
        """Ended in order: there is nothing to find."""
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
        """Count what the process before died of, durably, before anything is taken up. Gives the runs to set aside."""
        known = {death.no: death for death in read_deaths(await self._store.fatal_runs())}
        self._known = {no: death for no, death in known.items() if await self._is_open(no) is not None}
        try:
            no, doing = self.mark.open()
        except OSError as error:
            log.warning("a run that kills the process cannot be told from others: %s", error)
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
        """Runs that are taken up after the others: one death may be chance, and a run is not to wait for that."""
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
                "the process before died while it worked on run %s (%d of %d times)",
                row.id,
                count,
                DEATHS_MAX,
            )

    def begins(self, no: RunNo, doing: str) -> None:
        """A watched run is about to be decided or loaded. If the loop gets to its next turn, that went well."""
        self.mark.say(no, doing)
        asyncio.get_running_loop().call_soon(self._survived, no, doing)

    def _survived(self, no: RunNo, doing: str) -> None:
        """What a process died of the last time went well now: that was chance."""
        if no in self.watched and self.watched[no].doing == doing:
            del self.watched[no], self._known[no]
            self._committer.submit(self._batch(), lambda error: None)

    async def forget(self, no: RunNo) -> bool:
        """Let a run be taken up again; gives whether it had been set aside."""
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
        f"{death.count} processes died while they decided this run, the last at: {what}",
        f"to let it be tried again: holdfast doctor --retry-run {death.run_id}",
    )


def read_deaths(text: str | None) -> list[Death]:
    return [] if text is None else msgspec.json.decode(text, type=list[Death])


def mark_beside(database: str) -> Path:
    """The file of the mark of a database."""
    return Path(f"{database}.deciding").absolute()


async def set_aside_of(store: Store, no: RunNo) -> SetAside | None:
    """Whether a run of a file was set aside for good."""
    deaths = read_deaths(await store.fatal_runs())
    return next((set_aside(death) for death in deaths if death.no == no and death.is_enough), None)


def _encoded(deaths: Iterable[Death]) -> str:
    return msgspec.json.encode(list(deaths)).decode()
