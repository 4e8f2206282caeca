"""Jobs of pull workers that any node leases, renews and accepts the results of, on PostgreSQL: one statement each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.jobs import FetchedJob, JobKey, RenewedJob
from holdfast.store.postgres.asking import Asking
from holdfast.store.records import AssignmentRow
from holdfast.values import Millis, RunId, RunNo


class JobRows(Asking):
    epoch: int

    async def claim_jobs(
        self,
        tenant: str,
        services: Sequence[str],
        worker: str,
        tokens: Sequence[str],
        now: Millis,
        lease_ms: int,
    ) -> list[AssignmentRow]:
        found = await self._ask("claim_jobs", tenant, services, worker, tokens, now, lease_ms)
        return [AssignmentRow(*row[:8]) for row in found]

    async def shorten_lease(self, key: JobKey, token: str, lease_ms: int) -> None:
        await self._ask("shorten_lease", *key, token, lease_ms)

    async def renew_job(self, key: JobKey, token: str) -> RenewedJob | None:
        found = await self._first("renew_job", *key, token)
        return None if found is None else RenewedJob(*found)

    async def report_job(self, key: JobKey, token: str, report: bytes) -> bool:
        return bool(await self._ask("report_job", *key, token, report))

    async def report_of(self, key: JobKey, token: str) -> bytes | None:
        found: bytes | None = await self._value("report_of", *key, token)
        return found

    async def stopped_jobs(self, tenant: str, worker: str) -> list[tuple[RunId, str, int]]:
        return [tuple(row) for row in await self._ask("stopped_jobs", tenant, worker)]

    async def stop_job(self, key: JobKey) -> str | None:
        token: str | None = await self._value("stop_job", *key)
        return token

    async def take_back_job(self, key: JobKey, token: str) -> bool:
        return bool(await self._ask("take_back_job", *key, token, self.epoch))

    async def end_job(self, key: JobKey, token: str) -> bool:
        return bool(await self._ask("end_job", *key, token, self.epoch))

    async def fetched_jobs(self) -> list[FetchedJob]:
        found = await self._ask("fetched_jobs", self.epoch)
        return [FetchedJob(AssignmentRow(*row[:8]), row[8] or 0.0, row[9]) for row in found]

    async def take_over_jobs(self, runs: Sequence[RunNo]) -> list[AssignmentRow]:
        return [AssignmentRow(*row) for row in await self._ask("take_over_jobs", runs)]
