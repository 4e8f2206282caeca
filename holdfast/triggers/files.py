"""Watched folders: a file that has arrived, and no longer changes, is an event of its schedule.

    notification, or every 5 s ──► scan the folder ──► unchanged? ──► an event, under the file's identity

The ledger knows which files were events before, so a restart repeats none and misses none. Rows of the ledger are deleted after
a while, and files may stay for longer: a file that is older than that, and not newer than the position that is stored with
the events, was decided before. Of several nodes on one database, one looks; if it cannot read the folder, another one may. Knows tasks and the ledger's rule; which files have arrived is read by arrivals.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from holdfast.errors import HoldfastError, LimitExceeded
from holdfast.ops.watching import watch
from holdfast.runtime.clock import Clock
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import FileTrigger
from holdfast.store.base import Store
from holdfast.threads import in_thread
from holdfast.triggers.arrivals import Arrival, Stillness, arrivals, content_of
from holdfast.triggers.occurrences import Delivery, Occurrences
from holdfast.triggers.tasks import ELSEWHERE_SECS, Duty, Tasks
from holdfast.values import Millis, rfc3339, written

log = logging.getLogger("holdfast.files")

AGAIN_SECS: Final = 5.0  # after a folder that cannot be read, or an event that could not be written
DAY_MS: Final = 86_400_000


class Files(Tasks):
    """`retention_days` is how long rows of the ledger are kept at least; None means forever."""

    def __init__(
        self, store: Store, clock: Clock, occurrences: Occurrences, retention_days: float | None = None
    ) -> None:
        super().__init__()
        self._store, self._clock, self._occurrences = store, clock, occurrences
        self._retention_ms = None if retention_days is None else int(retention_days * DAY_MS)

    def _listening(self, tenant: str, spec: ScheduleSpec) -> Coroutine[Any, Any, None]:
        def told(problem: str) -> None:
            self.problems[tenant, spec.id] = problem

        duty = Duty(self._store, "folder", tenant, spec)
        return Watching(duty, self._clock, self._occurrences, tenant, spec, self._retention_ms, told).run()


class Watching:
    """One folder, for one schedule."""

    def __init__(
        self,
        duty: Duty,
        clock: Clock,
        occurrences: Occurrences,
        tenant: str,
        spec: ScheduleSpec,
        retention_ms: int | None,
        told: Callable[[str], None],
    ) -> None:
        assert isinstance(spec.trigger, FileTrigger)
        self._clock, self._occurrences, self._retention_ms = clock, occurrences, retention_ms
        self._tenant, self._spec, self._trigger = tenant, spec, spec.trigger
        self._duty, self._is_ours = duty, False
        self._folder = Path(spec.trigger.path).absolute()
        self._stillness = Stillness(spec.trigger.stable_secs)
        self._decided: set[Arrival] = set()  # by this process
        self._position = 0
        self._problem, self._told = "", told
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Report the files that arrive, until cancelled."""
        noticing = asyncio.get_running_loop().create_task(
            watch([self._folder], self._notice, self._log_problem)
        )
        try:
            while True:
                self._changed.clear()
                await self._wait(await self._scan())
        finally:
            noticing.cancel()
            await asyncio.wait([noticing])

    async def _notice(self) -> None:
        self._changed.set()

    async def _wait(self, secs: float | None) -> None:
        try:
            async with asyncio.timeout(secs):
                await self._changed.wait()
        except TimeoutError:
            return

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("schedule %s: %s: %s", self._spec.id, self._folder, problem)
        self._problem = problem
        self._told(f"its folder {self._folder} cannot be read: {problem}" if problem else "")

    async def _scan(self) -> float | None:
        """Report files that have arrived; returns the seconds after which to scan again even without a notification."""
        try:
            if not await self._takes_duty():
                self._told("")  # what is wrong here keeps no file from being noticed
                return ELSEWHERE_SECS
            found = await in_thread(arrivals, str(self._folder), self._trigger.pattern)
            due, left = self._stillness.due(found, self._clock.monotonic())
            self._decided &= set(found)
            young = {one for one in found if one not in due}
            for one in due:
                if one not in self._decided and not await self._report(one, young):
                    left = self._trigger.stable_secs if left is None else left
            self._log_problem("")
        except (OSError, LimitExceeded) as error:
            self._log_problem(str(error))
            self._is_ours = False
            await self._duty.pass_on()
            return AGAIN_SECS
        except HoldfastError as error:  # the store cannot be written now
            log.warning("schedule %s: files are reported later: %s", self._spec.id, error)
            return AGAIN_SECS
        return left

    async def _takes_duty(self) -> bool:
        """Is it this node that looks? Then it goes on where the one before was."""
        if not self._is_ours and await self._duty.is_ours():
            self._position = int(await self._occurrences.position(self._tenant, self._spec.id) or 0)
            self._is_ours = True
        return self._is_ours

    async def _report(self, one: Arrival, young: set[Arrival]) -> bool:
        """Make an event of a file; False if it has changed meanwhile."""
        if not self._is_from_before(one):
            identity, payload = one.identity, self._payload(one)
            if self._trigger.identity == "content":
                sha256 = await in_thread(content_of, str(self._folder), one)
                if sha256 is None:
                    return False
                identity, payload = f"sha256:{sha256}", {**payload, "sha256": sha256}
            self._position = max(self._position, _decided_up_to(one, young))
            delivery = Delivery(
                tenant=self._tenant,
                spec=self._spec,
                occurrence=identity,
                payload=written(payload),
                position=str(self._position),
                scheduled_at=self._clock.now(),
            )
            await self._occurrences.deliver(delivery)
        self._decided.add(one)
        return True

    def _is_from_before(self, one: Arrival) -> bool:
        if self._retention_ms is None or one.changed_ns > self._position:
            return False
        return one.changed_ns // 1_000_000 < self._clock.now() - self._retention_ms

    def _payload(self, one: Arrival) -> dict[str, object]:
        modified_at = rfc3339(Millis(one.modified_ns // 1_000_000))
        return {
            "path": str(self._folder / one.name),
            "name": one.name,
            "size": one.size,
            "modified_at": modified_at,
        }


def _decided_up_to(one: Arrival, young: set[Arrival]) -> int:
    """The time up to which all files are decided once this one is: not beyond a file that is still changing."""
    return min([one.changed_ns, *(other.changed_ns - 1 for other in young)])
