"""One task for each schedule of a kind that listens all the time: folders and sources. Knows when they begin and end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.schedule_records import Origin


class Tasks(ABC):
    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

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
