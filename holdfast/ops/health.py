"""Whether this engine is ready, and if not, why. Probes the store and checks the database files periodically."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.errors import HoldfastError, StoreGone
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.gate import Gate
from holdfast.store.base import FileCheck, Store
from holdfast.store.batch import Batch
from holdfast.threads import in_thread

log = logging.getLogger("holdfast")

# How long the result of a successful probe is used, so that frequent requests cause no commits.
PROBED_SECS: Final = 5.0
PROBE_SECS_MAX: Final = 2.0
# on the disk: the log is grown beforehand, so that small commits still work with less
FREE_BYTES_MIN: Final = 4 * 1024 * 1024
CHECK_SECS: Final = 2.0  # between two checks of the file names, which take some microseconds
CHECK_SECS_MAX: Final = 0.5  # for a check of every page, which continues in the background


class Health:
    def __init__(self, store: Store, clock: Clock, committer: Committer, gate: Gate) -> None:
        self._store, self._clock, self._committer, self._gate = store, clock, committer, gate
        self._written_at = float("-inf")  # when the store was last seen to write
        self._logged = ""
        self._probing: asyncio.Future[str] | None = None
        self._check: FileCheck | None = None
        self._checking: asyncio.Task[None] | None = None
        self._next_check: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start checking the database files of an open engine: every page once, and the files periodically."""
        self._begin_check()
        self._check_later()

    @property
    def is_checked(self) -> bool:
        """Whether every page has been checked."""
        return self._checking is not None and self._checking.done()

    async def end(self) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
        await self._end_check()

    def _begin_check(self) -> None:
        """Check every page of the file in the background, so that damage is found before a run reads it."""
        self._check = self._store.file_check()
        self._checking = asyncio.get_running_loop().create_task(self._check_file(self._check))

    async def _end_check(self) -> None:
        if self._check is not None and self._checking is not None:
            self._check.stop()
            if not self._check.has_begun:
                self._checking.cancel()  # it waits for a thread
            await asyncio.wait([self._checking])

    async def _check_file(self, check: FileCheck) -> None:
        wrong = await in_thread(check.run)
        if wrong and self._gate.is_open:
            self._store.condemn(wrong)

    def _check_later(self) -> None:
        self._next_check = asyncio.get_running_loop().call_later(CHECK_SECS, self._check_names)

    def _check_names(self) -> None:
        """Check the files of an idle engine, which makes no commits that would. The probe saves the contents of a removed log while this
        process still has it open."""
        if not self._gate.is_open or self._committer.is_over:
            return
        self._check_later()
        if not self._committer.is_stalled and (gone := self._store.problem()) is not None:
            self._reported(gone)
            self._probing = self._current_probe()

    async def reasons(self) -> list[str]:
        """Return why the engine is not ready; empty if it is ready."""
        if not self._gate.is_open:
            return ["engine_closed"]
        if self._committer.is_over:
            return ["node_is_over"]
        if self.is_checked and self._store.was_touched():
            self._begin_check()
        if self._checking is not None and not self._checking.done():
            await asyncio.wait([self._checking], timeout=CHECK_SECS_MAX)
        if (gone := self._store.problem()) is not None:
            return [self._reported(gone)]
        if self._committer.is_stalled:
            return ["store_stalled"]
        if problem := await self._store_problem():
            return [problem]
        return ["disk_full"] if self._store.free_bytes() < FREE_BYTES_MIN else []

    def _reported(self, gone: StoreGone) -> str:
        """Return the code of a problem, and log it: an idle server makes no commit that would."""
        if str(gone) != self._logged:
            self._logged = str(gone)
            log.error("not ready: %s", gone)
        self._written_at = float("-inf")  # when the files are back, the store is probed at once
        return gone.code

    async def _store_problem(self) -> str:
        """Return why the store cannot write and sync, or None. An idle engine can only find out by trying."""
        now = self._clock.monotonic()
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
        """Return the probe in progress, or start one."""
        if self._probing is None or self._probing.done():
            return asyncio.ensure_future(self._probe())
        return self._probing

    async def _probe(self) -> str:
        batch = Batch()
        batch.is_probe = True
        try:
            await self._gate.commit(batch)
        except HoldfastError as error:
            return error.code
        return ""
