"""The calls of the clients about schedules: `ScheduleCalls` for `Client`, `SyncScheduleCalls` for `SyncClient`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.types import (
    Backfill,
    FiredSchedule,
    LedgerPage,
    NextFires,
    Schedule,
    SchedulePage,
    WhyReport,
)
from holdfast.arguments import checked
from holdfast.sdk.calls import API, Calls, HasData, SyncCalls, in_path, sendable


class ScheduleCalls(Calls):
    @checked
    async def schedules(self, *, cursor: str | None = None, limit: int = 100) -> SchedulePage:
        """Schedules by id, each with its state and its next fire."""
        return await self._get("/schedules", SchedulePage, {"cursor": cursor, "limit": limit})

    @checked
    async def schedule(self, schedule_id: str) -> Schedule:
        """A schedule with its definition."""
        return await self._get(f"/schedules/{in_path(schedule_id)}", Schedule)

    @checked
    async def next_fires(self, schedule_id: str, *, limit: int = 10) -> NextFires:
        """The next occurrences of a schedule, in its zone and in UTC."""
        return await self._get(f"/schedules/{in_path(schedule_id)}/next", NextFires, {"limit": limit})

    @checked
    async def ledger(
        self, schedule_id: str, *, unfired: bool = False, cursor: str | None = None, limit: int = 100
    ) -> LedgerPage:
        """List the occurrences of a schedule with their outcomes, newest first; `unfired` leaves out those that
        started a run."""
        query = {"unfired": unfired or None, "cursor": cursor, "limit": limit}
        return await self._get(f"/schedules/{in_path(schedule_id)}/ledger", LedgerPage, query)

    @checked
    async def why(self, schedule_id: str, when: str | None = None, *, limit: int = 20) -> WhyReport:
        """Why a schedule did or did not fire: lately, or at a time or on a day, past or future."""
        return await self._get(
            f"/schedules/{in_path(schedule_id)}/why", WhyReport, {"when": when, "limit": limit}
        )

    @checked
    async def put_schedule(self, schedule_id: str, definition: Mapping[str, Any] | str | HasData) -> Schedule:
        """Create or replace a schedule: as data, as YAML text or as a record. An edit keeps how far it has come.

        Raises ManagedByFile if a file, a plugin or a program defines it."""
        plain = sendable(definition)
        said = {"yaml": plain} if isinstance(plain, str) else {"body": plain}
        return await self._connection.ask("PUT", f"{API}/schedules/{in_path(schedule_id)}", Schedule, **said)

    @checked
    async def delete_schedule(self, schedule_id: str) -> Schedule:
        """Delete a schedule; returns it as it was. Its runs go on, and its ledger stays."""
        return await self._connection.ask("DELETE", f"{API}/schedules/{in_path(schedule_id)}", Schedule)

    @checked
    async def fire_schedule(
        self, schedule_id: str, payload: Any = None, *, request_id: str | None = None
    ) -> FiredSchedule:
        """Fire a schedule now, besides its times. With a `request_id` it fires once however often this is asked."""
        body = {} if payload is None else {"payload": payload}
        return await self._post(
            f"/schedules/{in_path(schedule_id)}/fire", FiredSchedule, body, request_key=request_id
        )

    @checked
    async def redeliver(
        self, schedule_id: str, delivery: str, *, request_id: str | None = None
    ) -> FiredSchedule:
        """Start a run for a delivery once more, with the payload that its row of the ledger has kept."""
        path = f"/schedules/{in_path(schedule_id)}/redeliver"
        return await self._post(path, FiredSchedule, {"delivery": delivery}, request_key=request_id)

    @checked
    async def pause_schedule(self, schedule_id: str) -> Schedule:
        """Pause a schedule: it does not fire until it is resumed, and its ledger shows what it skipped."""
        return await self._post(f"/schedules/{in_path(schedule_id)}/pause", Schedule, {})

    @checked
    async def resume_schedule(self, schedule_id: str, *, missed: bool = False) -> Schedule:
        """Resume a paused schedule; with `missed`, the occurrences of the pause are caught up."""
        return await self._post(f"/schedules/{in_path(schedule_id)}/resume", Schedule, {"missed": missed})

    @checked
    async def backfill_schedule(
        self,
        schedule_id: str,
        start: str,
        end: str,
        *,
        max_per_sec: float | None = None,
        preview: bool = False,
        request_id: str | None = None,
    ) -> Backfill:
        """Start the occurrences from `start` to `end` that have no run; `preview` only lists them.

        Dates and times without an offset are meant in the zone of the schedule."""
        body: dict[str, Any] = {"from": start, "to": end, "preview": preview}
        if max_per_sec is not None:
            body["max_per_sec"] = max_per_sec
        path = f"/schedules/{in_path(schedule_id)}/backfill"
        return await self._post(path, Backfill, body, request_key=request_id)


class SyncScheduleCalls(SyncCalls):
    _client: ScheduleCalls

    def schedules(self, *, cursor: str | None = None, limit: int = 100) -> SchedulePage:
        return self._do(self._client.schedules(cursor=cursor, limit=limit))

    def schedule(self, schedule_id: str) -> Schedule:
        return self._do(self._client.schedule(schedule_id))

    def next_fires(self, schedule_id: str, *, limit: int = 10) -> NextFires:
        return self._do(self._client.next_fires(schedule_id, limit=limit))

    def ledger(
        self, schedule_id: str, *, unfired: bool = False, cursor: str | None = None, limit: int = 100
    ) -> LedgerPage:
        return self._do(self._client.ledger(schedule_id, unfired=unfired, cursor=cursor, limit=limit))

    def why(self, schedule_id: str, when: str | None = None, *, limit: int = 20) -> WhyReport:
        return self._do(self._client.why(schedule_id, when, limit=limit))

    def put_schedule(self, schedule_id: str, definition: Mapping[str, Any] | str | HasData) -> Schedule:
        return self._do(self._client.put_schedule(schedule_id, definition))

    def delete_schedule(self, schedule_id: str) -> Schedule:
        return self._do(self._client.delete_schedule(schedule_id))

    def fire_schedule(
        self, schedule_id: str, payload: Any = None, *, request_id: str | None = None
    ) -> FiredSchedule:
        return self._do(self._client.fire_schedule(schedule_id, payload, request_id=request_id))

    def redeliver(self, schedule_id: str, delivery: str, *, request_id: str | None = None) -> FiredSchedule:
        return self._do(self._client.redeliver(schedule_id, delivery, request_id=request_id))

    def pause_schedule(self, schedule_id: str) -> Schedule:
        return self._do(self._client.pause_schedule(schedule_id))

    def resume_schedule(self, schedule_id: str, *, missed: bool = False) -> Schedule:
        return self._do(self._client.resume_schedule(schedule_id, missed=missed))

    def backfill_schedule(
        self,
        schedule_id: str,
        start: str,
        end: str,
        *,
        max_per_sec: float | None = None,
        preview: bool = False,
        request_id: str | None = None,
    ) -> Backfill:
        return self._do(
            self._client.backfill_schedule(
                schedule_id, start, end, max_per_sec=max_per_sec, preview=preview, request_id=request_id
            )
        )
