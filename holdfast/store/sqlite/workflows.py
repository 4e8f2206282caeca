"""Reads of workflows, their releases and their definitions, on SQLite."""

from __future__ import annotations

from holdfast.store.records import Release, StoredVersion, Workflow
from holdfast.store.sqlite.asking import Asking


class WorkflowReads(Asking):
    async def published(self, tenant: str, name: str) -> tuple[str, str, int] | None:
        """The version that a name means, its definition, and the number of its release."""
        return next(iter(self._ask("published", (tenant, name))), None)

    async def workflows(self, tenant: str, after: str, limit: int) -> list[Workflow]:
        found = self._ask("workflows", (tenant, after, limit))
        return [Workflow(*row) for row in found]

    async def workflow(self, tenant: str, name: str) -> Workflow | None:
        return self._one("workflow", Workflow, tenant, name)

    async def workflow_by_id(self, tenant: str, flow_id: str) -> Workflow | None:
        return self._one("workflow_by_id", Workflow, tenant, flow_id)

    async def releases(self, tenant: str, name: str, below: int, limit: int) -> list[Release]:
        found = self._ask("releases", (tenant, name, below, limit))
        return [Release(*row) for row in found]

    async def release_numbered(self, tenant: str, name: str, number: int) -> Release | None:
        return self._one("release", Release, tenant, name, number)

    async def release_by_id(self, tenant: str, release_id: str) -> Release | None:
        return self._one("release_by_id", Release, tenant, release_id)

    async def newest_published(self, tenant: str, name: str) -> Release | None:
        return self._one("newest_published", Release, tenant, name)

    async def workflow_names(self, tenant: str, limit: int) -> list[str]:
        return [name for (name,) in self._ask("workflow_names", (tenant, limit))]

    async def version(self, tenant: str, version: str) -> StoredVersion | None:
        """A version with its definition, and its text as written if it is known."""
        return self._one("version", StoredVersion, tenant, version)

    async def definition(self, tenant: str, version: str) -> tuple[str, str | None] | None:
        """The text of a definition, and the versions of those that it names."""
        return next(iter(self._ask("definition", (tenant, version))), None)
