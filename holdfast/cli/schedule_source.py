"""Where `holdfast schedules` reads and acts: on the server that owns the database, or in the file itself.

Both give the records of the API, so that the commands need not know which of the two it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.api import present_schedules as present
from holdfast.api.types import (
    Backfill,
    FiredSchedule,
    FolderReport,
    LedgerLine,
    NextFires,
    Schedule,
    ScheduleLine,
    WhyReport,
)
from holdfast.cli.file import acting, path_of, reading
from holdfast.cli.render import now_ms
from holdfast.cli.server import server_of
from holdfast.cli.source_protocol import PAGE, every_page
from holdfast.config import Settings
from holdfast.ops.schedule_commands import ScheduleCommands
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.base import Store
from holdfast.tools.registry import Registry
from holdfast.values import DEFAULT_TENANT
from holdfast.views.schedule_why import WhyQueries
from holdfast.views.schedules import ScheduleQueries

if TYPE_CHECKING:
    from holdfast.sdk.client import Client


class ScheduleSource(Protocol):
    @property
    def place(self) -> str: ...  # for sentences: the file, or the address

    async def schedules(self) -> list[ScheduleLine]: ...
    async def schedule(self, schedule_id: str) -> Schedule: ...
    async def next_fires(self, schedule_id: str, limit: int) -> NextFires: ...
    async def ledger(self, schedule_id: str, limit: int) -> list[LedgerLine]: ...
    async def why(self, schedule_id: str, when: str | None, limit: int) -> WhyReport: ...
    async def folder(self) -> FolderReport: ...

    async def put(self, spec: ScheduleSpec) -> Schedule: ...
    async def delete(self, schedule_id: str) -> Schedule: ...
    async def pause(self, schedule_id: str) -> Schedule: ...
    async def resume(self, schedule_id: str, *, missed: bool) -> Schedule: ...
    async def fire(self, schedule_id: str, payload: Any) -> FiredSchedule: ...
    async def redeliver(self, schedule_id: str, delivery: str) -> FiredSchedule: ...
    async def backfill(
        self, schedule_id: str, since: str, until: str, max_per_sec: float | None, *, preview: bool
    ) -> Backfill: ...


@contextlib.asynccontextmanager
async def schedules_of(settings: Settings) -> AsyncIterator[ScheduleSource]:
    server = server_of(settings)
    if server is None:
        yield OfFile(settings)
        return
    async with server.client() as client:
        yield OfServer(client)


class OfServer:
    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def place(self) -> str:
        return self._client.server

    async def schedules(self) -> list[ScheduleLine]:
        return await every_page(self._client.schedules)

    async def schedule(self, schedule_id: str) -> Schedule:
        return await self._client.schedule(schedule_id)

    async def next_fires(self, schedule_id: str, limit: int) -> NextFires:
        return await self._client.next_fires(schedule_id, limit=limit)

    async def ledger(self, schedule_id: str, limit: int) -> list[LedgerLine]:
        return (await self._client.ledger(schedule_id, limit=limit)).items

    async def why(self, schedule_id: str, when: str | None, limit: int) -> WhyReport:
        return await self._client.why(schedule_id, when, limit=limit)

    async def folder(self) -> FolderReport:
        return await self._client.folder("schedules")

    async def put(self, spec: ScheduleSpec) -> Schedule:
        return await self._client.put_schedule(spec.id, spec)

    async def delete(self, schedule_id: str) -> Schedule:
        return await self._client.delete_schedule(schedule_id)

    async def pause(self, schedule_id: str) -> Schedule:
        return await self._client.pause_schedule(schedule_id)

    async def resume(self, schedule_id: str, *, missed: bool) -> Schedule:
        return await self._client.resume_schedule(schedule_id, missed=missed)

    async def fire(self, schedule_id: str, payload: Any) -> FiredSchedule:
        return await self._client.fire_schedule(schedule_id, payload)

    async def redeliver(self, schedule_id: str, delivery: str) -> FiredSchedule:
        return await self._client.redeliver(schedule_id, delivery)

    async def backfill(
        self, schedule_id: str, since: str, until: str, max_per_sec: float | None, *, preview: bool
    ) -> Backfill:
        return await self._client.backfill_schedule(
            schedule_id, since, until, max_per_sec=max_per_sec, preview=preview
        )


class OfFile:
    """Reads a snapshot of the file, while another process may own it; changes need the file's lock."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def place(self) -> str:
        return path_of(self._settings)

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[Store, ScheduleQueries]]:
        async with reading(self._settings) as store:
            yield store, ScheduleQueries(store, now_ms)

    async def schedules(self) -> list[ScheduleLine]:
        async with self._reading() as (_, queries):
            found = await every_page(lambda **page: queries.schedules(DEFAULT_TENANT, **page))
        return [present.schedule_line(view) for view in found]

    async def schedule(self, schedule_id: str) -> Schedule:
        async with self._reading() as (_, queries):
            return present.schedule(await queries.schedule(DEFAULT_TENANT, schedule_id))

    async def next_fires(self, schedule_id: str, limit: int) -> NextFires:
        async with self._reading() as (_, queries):
            return present.next_fires(*await queries.next_fires(DEFAULT_TENANT, schedule_id, limit))

    async def ledger(self, schedule_id: str, limit: int) -> list[LedgerLine]:
        async with self._reading() as (_, queries):
            page = await queries.ledger(DEFAULT_TENANT, schedule_id, cursor=None, limit=min(limit, PAGE))
        return [present.ledger_line(row) for row in page.items]

    async def why(self, schedule_id: str, when: str | None, limit: int) -> WhyReport:
        async with self._reading() as (store, queries):
            found = await WhyQueries(store, queries).why(DEFAULT_TENANT, schedule_id, when, limit)
        return present.why(found)

    async def folder(self) -> FolderReport:
        return FolderReport(None, "", [])

    @contextlib.asynccontextmanager
    async def _acting(self, *, may_create: bool = False) -> AsyncIterator[ScheduleCommands]:
        async with acting(self._settings, Registry(()), may_create=may_create) as engine:
            yield ScheduleCommands(engine, ScheduleQueries(engine.store, engine.clock.now))

    async def put(self, spec: ScheduleSpec) -> Schedule:
        async with self._acting(may_create=True) as commands:
            return present.schedule((await commands.put(DEFAULT_TENANT, spec))[0])

    async def delete(self, schedule_id: str) -> Schedule:
        async with self._acting() as commands:
            return present.schedule(await commands.delete(DEFAULT_TENANT, schedule_id))

    async def pause(self, schedule_id: str) -> Schedule:
        async with self._acting() as commands:
            return present.schedule(await commands.pause(DEFAULT_TENANT, schedule_id))

    async def resume(self, schedule_id: str, *, missed: bool) -> Schedule:
        async with self._acting() as commands:
            return present.schedule(await commands.resume(DEFAULT_TENANT, schedule_id, missed=missed))

    async def fire(self, schedule_id: str, payload: Any) -> FiredSchedule:
        async with self._acting() as commands:
            return present.fired(await commands.fire(DEFAULT_TENANT, schedule_id, payload))

    async def redeliver(self, schedule_id: str, delivery: str) -> FiredSchedule:
        async with self._acting() as commands:
            return present.fired(await commands.redeliver(DEFAULT_TENANT, schedule_id, delivery))

    async def backfill(
        self, schedule_id: str, since: str, until: str, max_per_sec: float | None, *, preview: bool
    ) -> Backfill:
        async with self._acting() as commands:
            found = await commands.backfill(
                DEFAULT_TENANT, schedule_id, since, until, max_per_sec=max_per_sec, preview=preview
            )
        return present.backfill(found, preview=preview)
