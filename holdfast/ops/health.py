"""Whether this engine can do its work now, and if not, why. Tries now and then whether it could, and looks after the
files of the database."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.errors import HoldfastError, StoreGone
from holdfast.runtime.engine import Engine
from holdfast.store.base import FileCheck
from holdfast.store.batch import Batch
from holdfast.tools.threads import in_thread

log = logging.getLogger("holdfast")

PROBED_SECS: Final = (
    5.0  # how long a probe that worked is believed: asking all the time makes no more commits
)
PROBE_SECS_MAX: Final = 2.0
FREE_BYTES_MIN: Final = (
    4 * 1024 * 1024
)  # on the disk: the log is grown beforehand, so that small commits still work with less
LOOK_SECS: Final = 2.0  # between two checks of the file names, which take some microseconds
CHECK_SECS_MAX: Final = 0.5  # for a check of every page, which continues in the background


class Health:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._written_at = float("-inf")  # when the store was last seen to write
        self._logged = ""
        self._probing: asyncio.Future[str] | None = None
        self._check: FileCheck | None = None
        self._checking: asyncio.Task[None] | None = None
        self._looking: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look after the files of an engine that was opened: at every page once, and at the files now and then."""
        self._begin_check()
        self._look_later()

    @property
    def is_checked(self) -> bool:
        """Whether every page has been checked."""
        return self._checking is not None and self._checking.done()

    async def end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self._end_check()

    def _begin_check(self) -> None:
        """Look at every page of the file in the background: damage shows before a run meets it."""
        self._check = self._engine.store.file_check()
        self._checking = asyncio.get_running_loop().create_task(self._check_file(self._check))

    async def _end_check(self) -> None:
        if self._check is not None and self._checking is not None:
            self._check.stop()
            if not self._check.has_begun:
                self._checking.cancel()  # it waits for a thread
            await asyncio.wait([self._checking])

    async def _check_file(self, check: FileCheck) -> None:
        wrong = await in_thread(check.run)
        if wrong and self._engine.is_open:
            self._engine.store.condemn(wrong)

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_SECS, self._look)

    def _look(self) -> None:
        """A commit finds out what became of the files; an idle engine makes none. The probe saves what is only in a log that
        was removed, while this process still has it open."""
        engine = self._engine
        if not engine.is_open or engine.advance.is_over:
            return
        self._look_later()
        if not engine.advance.is_stalled and (gone := engine.store.problem()) is not None:
            self._told(gone)
            self._probing = self._current_probe()

    async def reasons(self) -> list[str]:
        """Why it is not ready; nothing if it is."""
        engine, advance = self._engine, self._engine.advance
        if not engine.is_open:
            return ["engine_closed"]
        if advance.is_over:
            return ["node_is_over"]
        if self.is_checked and engine.store.was_touched():
            self._begin_check()
        if self._checking is not None and not self._checking.done():
            await asyncio.wait([self._checking], timeout=CHECK_SECS_MAX)
        if (gone := engine.store.problem()) is not None:
            return [self._told(gone)]
        if advance.is_stalled:
            return ["store_stalled"]
        if problem := await self._store_problem():
            return [problem]
        return ["disk_full"] if engine.store.free_bytes() < FREE_BYTES_MIN else []

    def _told(self, gone: StoreGone) -> str:
        """Its code. An idle server makes no commit that would log what is wrong."""
        if str(gone) != self._logged:
            self._logged = str(gone)
            log.error("not ready: %s", gone)
        self._written_at = float("-inf")  # when the files are back, the store is probed at once
        return gone.code

    async def _store_problem(self) -> str:
        """Can the store write and sync? An idle engine finds out only by doing it."""
        now = self._engine.clock.monotonic()
        if now - self._written_at < PROBED_SECS:
            return ""
        try:
            self._probing = self._current_probe()
            problem = await asyncio.wait_for(asyncio.shield(self._probing), PROBE_SECS_MAX)
        except TimeoutError:
            return "store_slow"
        if not problem:
            self._written_at = now
        return problem

    def _current_probe(self) -> asyncio.Future[str]:
        """The probe that is on its way, or a new one."""
        if self._probing is None or self._probing.done():
            return asyncio.ensure_future(self._probe())
        return self._probing

    async def _probe(self) -> str:
        batch = Batch()
        batch.is_probe = True
        try:
            await self._engine.commit(batch)
        except HoldfastError as error:
            return error.code
        return ""
