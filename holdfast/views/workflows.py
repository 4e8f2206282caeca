"""Queries over published workflows and their releases, from committed rows."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import NotFound
from holdfast.nearest import did_you_mean
from holdfast.runtime.plans import Plans
from holdfast.spec.notation import Definition
from holdfast.store.base import Store
from holdfast.store.records import Release, Workflow
from holdfast.threads import in_thread
from holdfast.values import is_text
from holdfast.views.cursors import cursor_of, cursor_of_text, number_of, text_of_cursor
from holdfast.views.difference import pointers_between, text_between
from holdfast.views.pages import NO_BOUND, PAGE, Page, page_size

NAMES_READ_MAX: Final = 1_000  # searched for a similar name when one is unknown


class WorkflowView(msgspec.Struct, frozen=True):
    """A workflow and its current release, if any."""

    workflow: Workflow
    release: Release | None


class Diff(msgspec.Struct, frozen=True):
    """The difference between two releases: as text, and as pointers to what differs."""

    name: str
    a: int
    b: int
    text: str
    pointers: list[str]


class WorkflowQueries:
    def __init__(self, store: Store, plans: Plans) -> None:
        self._store, self._plans = store, plans

    async def workflows(
        self, tenant: str, cursor: str | None = None, limit: int = PAGE
    ) -> Page[WorkflowView]:
        """List workflows by name."""
        limit = page_size(limit)
        after = "" if cursor is None else text_of_cursor(cursor)
        found = await self._store.workflows(tenant, after, limit + 1)
        items = [await self._view(tenant, workflow) for workflow in found[:limit]]
        return Page(items, cursor_of_text(found[limit - 1].name) if len(found) > limit else None)

    async def workflow(self, tenant: str, name: str) -> WorkflowView:
        """Return a workflow by its name or id."""
        found = await self._store.workflow(tenant, name) if is_text(name) else None
        if found is None and is_text(name):
            found = await self._store.workflow_by_id(tenant, name)
        if found is None:
            near = did_you_mean(name, await self._store.workflow_names(tenant, NAMES_READ_MAX))
            raise NotFound(f"there is no workflow {name!a}; {near or 'see holdfast flows list'}")
        return await self._view(tenant, found)

    async def _view(self, tenant: str, workflow: Workflow) -> WorkflowView:
        if workflow.number is None:
            return WorkflowView(workflow, None)
        return WorkflowView(
            workflow, await self._store.release_numbered(tenant, workflow.name, workflow.number)
        )

    async def releases(
        self, tenant: str, name: str, cursor: str | None = None, limit: int = PAGE
    ) -> Page[Release]:
        """List the releases and drafts of a workflow, newest first."""
        limit = page_size(limit)
        below = NO_BOUND if cursor is None else number_of(cursor)
        found = await self._store.releases(tenant, name, below, limit + 1) if is_text(name) else []
        if not found:
            name = (await self.workflow(tenant, name)).workflow.name  # raises NotFound if the name is unknown
        return Page(found[:limit], cursor_of(found[limit - 1].number) if len(found) > limit else None)

    async def release(self, tenant: str, release_id: str) -> Release:
        """Return a release by its id."""
        found = await self._store.release_by_id(tenant, release_id) if is_text(release_id) else None
        if found is None:
            raise NotFound(f"there is no release {release_id!a}")
        return found

    async def definition(
        self, tenant: str, name: str, number: int | None = None
    ) -> tuple[Release, Definition]:
        """Return a release with its definition: the current one, or the one with a number."""
        view = await self.workflow(tenant, name)
        release = view.release
        if number is not None:
            release = await self._store.release_numbered(tenant, view.workflow.name, number)
        if release is None:
            what = "has no published release" if number is None else f"has no release {number}"
            raise NotFound(f"the workflow {name!a} {what}")
        found = await self._store.definition(tenant, release.version)
        assert found is not None, f"the definition of {release.id} is missing"
        return release, await self._plans.spec_of(release.version, found[0])

    async def diff(self, tenant: str, name: str, a: int, b: int) -> Diff:
        """Return the difference between the releases `a` and `b`."""
        (first, before), (second, after) = [await self.definition(tenant, name, number) for number in (a, b)]
        names = (f"{first.name} {a}", f"{second.name} {b}")
        text = await in_thread(text_between, before, after, names)
        return Diff(first.name, a, b, text, await in_thread(pointers_between, before, after))
