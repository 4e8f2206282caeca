"""The calls of the clients about published workflows: `WorkflowCalls` for `Client`, `SyncWorkflowCalls` for `SyncClient`."""

from __future__ import annotations

from holdfast.api.types import (
    Diff,
    FolderReport,
    Plan,
    Release,
    ReleasePage,
    Validation,
    Workflow,
    WorkflowPage,
)
from holdfast.arguments import checked
from holdfast.sdk.calls import API, Calls, Spec, SyncCalls, in_path, is_name, sendable


class WorkflowCalls(Calls):
    @checked
    async def publish(
        self, definition: Spec, *, number: int | None = None, draft: bool = False, strict: bool = False
    ) -> Release:
        """Publish a definition under its name. `draft` only stores it. Its `warnings` name tools that no engine has and services that
        no worker serves; `strict` refuses such a definition."""
        query = {"number": number, "draft": draft or None, "strict": strict or None}
        plain = sendable(definition)
        said = {"yaml": plain} if isinstance(plain, str) else {"body": plain}
        return await self._connection.ask("POST", f"{API}/workflows", Release, query=query, **said)

    @checked
    async def validate(self, definition: Spec) -> Validation:
        """Check a definition: every problem with its repair, and the plan of a valid one. Nothing is stored."""
        return await self._post("/validate", Validation, {"spec": sendable(definition)})

    @checked
    async def plan(self, workflow: Spec, number: int | None = None) -> Plan:
        """Return what a run of a published workflow or of a definition would do. Nothing is stored or executed."""
        what = "workflow" if isinstance(workflow, str) and is_name(workflow) else "spec"
        said = {what: sendable(workflow)} | ({} if number is None else {"number": number})
        return await self._post("/plan", Plan, said)

    @checked
    async def workflows(self, *, cursor: str | None = None, limit: int = 100) -> WorkflowPage:
        """List workflows by name, each with its current release."""
        return await self._get("/workflows", WorkflowPage, {"cursor": cursor, "limit": limit})

    @checked
    async def workflow(self, name: str, number: int | None = None) -> Workflow:
        """Return a workflow with its definition: the published version, or a version by number."""
        tail = "" if number is None else f"/versions/{number}"
        return await self._get(f"/workflows/{in_path(name)}{tail}", Workflow)

    @checked
    async def versions(self, name: str, *, cursor: str | None = None, limit: int = 100) -> ReleasePage:
        """List the versions of a workflow, newest first."""
        query = {"cursor": cursor, "limit": limit}
        return await self._get(f"/workflows/{in_path(name)}/versions", ReleasePage, query)

    @checked
    async def diff(self, name: str, a: int, b: int) -> Diff:
        """Return the difference between two versions of a workflow."""
        return await self._get(f"/workflows/{in_path(name)}/diff", Diff, {"from": a, "to": b})

    @checked
    async def roll_back(self, name: str, number: int) -> Release:
        """Make an earlier version of a workflow the current one again."""
        return await self._post(f"/workflows/{in_path(name)}/rollback", Release, {"number": number})

    @checked
    async def folder(self, of: str = "flows") -> FolderReport:
        """The state of the server's folder of workflows, or of `skills`: which files were published, and which have
        problems."""
        return await self._get("/folder", FolderReport, {"of": of})


class SyncWorkflowCalls(SyncCalls):
    _client: WorkflowCalls

    def publish(
        self, definition: Spec, *, number: int | None = None, draft: bool = False, strict: bool = False
    ) -> Release:
        return self._do(self._client.publish(definition, number=number, draft=draft, strict=strict))

    def validate(self, definition: Spec) -> Validation:
        return self._do(self._client.validate(definition))

    def plan(self, workflow: Spec, number: int | None = None) -> Plan:
        return self._do(self._client.plan(workflow, number))

    def workflows(self, *, cursor: str | None = None, limit: int = 100) -> WorkflowPage:
        return self._do(self._client.workflows(cursor=cursor, limit=limit))

    def workflow(self, name: str, number: int | None = None) -> Workflow:
        return self._do(self._client.workflow(name, number))

    def versions(self, name: str, *, cursor: str | None = None, limit: int = 100) -> ReleasePage:
        return self._do(self._client.versions(name, cursor=cursor, limit=limit))

    def diff(self, name: str, a: int, b: int) -> Diff:
        return self._do(self._client.diff(name, a, b))

    def roll_back(self, name: str, number: int) -> Release:
        return self._do(self._client.roll_back(name, number))

    def folder(self, of: str = "flows") -> FolderReport:
        return self._do(self._client.folder(of))
