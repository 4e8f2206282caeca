"""What the clients read of runs, workflows and the whole server, for pages and reports: `Reads` for `Client`, `SyncReads` for
`SyncClient`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.api.types import (
    Counts,
    Me,
    Plan,
    Pulse,
    StepDetail,
    Timeline,
    WaitingPage,
    WorkflowStats,
    WorkflowVersion,
)
from holdfast.arguments import checked
from holdfast.sdk.calls import Calls, SyncCalls, in_path, time_word


class Reads(Calls):
    async def me(self) -> Me:
        """Return who the caller is for the server: tenant, key and scopes."""
        return await self._get("/me", Me)

    @checked
    async def counts(self, by: str = "status", *, cursor: str | None = None, limit: int = 100) -> Counts:
        """Count the stored runs by status; with `by="workflow"` also those of each workflow."""
        return await self._get("/runs/counts", Counts, {"by": by, "cursor": cursor, "limit": limit})

    @checked
    async def pulse(
        self,
        *,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        buckets: int = 96,
        workflow: str | None = None,
    ) -> Pulse:
        """Count runs over time, by default of the last 24 hours: begun, ended by status, and how long they took."""
        query = {
            "from": time_word(created_from),
            "to": time_word(created_to),
            "buckets": buckets,
            "workflow": workflow,
        }
        return await self._get("/runs/pulse", Pulse, query)

    @checked
    async def step(self, run_id: str, path: str, *, values: str = "all") -> StepDetail:
        """Return one step of a run with its attempts, its input and output, its files and its newest log lines."""
        return await self._get(
            f"/runs/{in_path(run_id)}/steps/{in_path(path)}", StepDetail, {"values": values}
        )

    @checked
    async def timeline(self, run_id: str, *, under: str | None = None, buckets: int = 100) -> Timeline:
        """Return when each attempt of a run ran and when its steps waited, for all or for the inside of one step."""
        query = {"under": under, "buckets": buckets}
        return await self._get(f"/runs/{in_path(run_id)}/timeline", Timeline, query)

    @checked
    async def waits(
        self,
        *,
        kind: str | Sequence[str] | None = None,
        workflow: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> WaitingPage:
        """List what waits for an answer, a signal or a result from outside, least time left first, with counts by kind."""
        query = {"kind": kind, "workflow": workflow, "cursor": cursor, "limit": limit}
        return await self._get("/waits", WaitingPage, query)

    @checked
    async def plan_of_run(self, run_id: str) -> Plan:
        """Return the steps of the version that a run was started with."""
        return await self._get(f"/runs/{in_path(run_id)}/plan", Plan)

    @checked
    async def plan_of_workflow(self, name: str, number: int | None = None) -> Plan:
        """Return the steps of a published workflow: of its current version, or of the one with a number."""
        return await self._get(f"/workflows/{in_path(name)}/plan", Plan, {"number": number})

    @checked
    async def stats(
        self,
        name: str,
        *,
        last: int = 200,
        number: int | None = None,
        created_from: datetime | str | None = None,
    ) -> WorkflowStats:
        """Return how the last finished runs of a workflow went: how many completed, and how long each step took."""
        query = {"last": last, "number": number, "from": time_word(created_from)}
        return await self._get(f"/workflows/{in_path(name)}/stats", WorkflowStats, query)

    @checked
    async def version(self, version: str) -> WorkflowVersion:
        """Return a definition by its hash, which every run names, with its text."""
        return await self._get(f"/versions/{in_path(version)}", WorkflowVersion)

    @checked
    async def schema(self, notation: str = "steps") -> dict[str, Any]:
        """Return the JSON Schema of definitions: `steps`, `graph` or `schedules`."""
        return await self._get(f"/schema/{in_path(notation)}", dict[str, Any])


class SyncReads(SyncCalls):
    _client: Reads

    def me(self) -> Me:
        return self._do(self._client.me())

    def counts(self, by: str = "status", *, cursor: str | None = None, limit: int = 100) -> Counts:
        return self._do(self._client.counts(by, cursor=cursor, limit=limit))

    def pulse(
        self,
        *,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        buckets: int = 96,
        workflow: str | None = None,
    ) -> Pulse:
        asked = self._client.pulse(
            created_from=created_from, created_to=created_to, buckets=buckets, workflow=workflow
        )
        return self._do(asked)

    def step(self, run_id: str, path: str, *, values: str = "all") -> StepDetail:
        return self._do(self._client.step(run_id, path, values=values))

    def timeline(self, run_id: str, *, under: str | None = None, buckets: int = 100) -> Timeline:
        return self._do(self._client.timeline(run_id, under=under, buckets=buckets))

    def waits(
        self,
        *,
        kind: str | Sequence[str] | None = None,
        workflow: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> WaitingPage:
        return self._do(self._client.waits(kind=kind, workflow=workflow, cursor=cursor, limit=limit))

    def plan_of_run(self, run_id: str) -> Plan:
        return self._do(self._client.plan_of_run(run_id))

    def plan_of_workflow(self, name: str, number: int | None = None) -> Plan:
        return self._do(self._client.plan_of_workflow(name, number))

    def stats(
        self,
        name: str,
        *,
        last: int = 200,
        number: int | None = None,
        created_from: datetime | str | None = None,
    ) -> WorkflowStats:
        return self._do(self._client.stats(name, last=last, number=number, created_from=created_from))

    def version(self, version: str) -> WorkflowVersion:
        return self._do(self._client.version(version))

    def schema(self, notation: str = "steps") -> dict[str, Any]:
        return self._do(self._client.schema(notation))
