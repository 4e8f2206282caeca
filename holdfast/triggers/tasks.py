"""One task for each schedule of a kind that listens all the time: folders and sources. Knows when they begin and end, and that of
several nodes on one database only one listens."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import Unavailable
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.base import Store
from holdfast.store.schedule_records import Origin

ELSEWHERE_SECS: Final = 5.0  # before asking again whether the node that listens is gone
FOR_LIFE_SECS: Final = 100 * 365 * 86_400.0  # a duty ends with its node


class Tasks(ABC):
    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        # Why a schedule notices no event now; empty if it does.
        self.problems: dict[tuple[str, str], str] = {}

    @abstractmethod
    def _listening(self, tenant: str, spec: ScheduleSpec) -> Coroutine[Any, Any, None]:
        """What the task of a schedule does until it is cancelled."""

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None:
        self.remove(tenant, spec.id)
        if spec.enabled:
            task = asyncio.get_running_loop().create_task(self._listening(tenant, spec))
            self._tasks[tenant, spec.id] = task

    def remove(self, tenant: str, schedule_id: str) -> None:
        task = self._tasks.pop((tenant, schedule_id), None)
        self.problems.pop((tenant, schedule_id), None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        self.abandon()
        if self._ending:
            await asyncio.wait(self._ending)

    def abandon(self) -> None:
        for tenant, schedule_id in list(self._tasks):
            self.remove(tenant, schedule_id)


class Duty:
    """To listen for a schedule. One node has it, until that node ends or cannot listen."""

    def __init__(self, store: Store, kind: str, tenant: str, spec: ScheduleSpec) -> None:
        self._store, self._what = store, f"{kind} {tenant} {spec.id}"

    async def is_ours(self) -> bool:
        return await self._store.take_duty(self._what, FOR_LIFE_SECS)

    async def pass_on(self) -> None:
        """Let another node try."""
        with suppress(Unavailable):
            await self._store.take_duty(self._what, 0)
