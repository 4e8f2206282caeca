"""Published workflows as things that can be called: name, description, the schema of their inputs, labels.

Reads what is published now. Does not know how an interface spells a name or who may see it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import NotFound
from holdfast.runtime.plans import Plans
from holdfast.spec.inputs import input_schema
from holdfast.spec.notation import Definition
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.base import Store
from holdfast.store.records import Workflow

NAMES_MAX: Final = 100_000  # read at once, of one tenant


class Offer(msgspec.Struct, frozen=True):
    """A published workflow. `schema` is a JSON Schema of its inputs object."""

    name: str
    description: str
    version: str
    schema: dict[str, Any]
    labels: dict[str, str]


class Offers:
    def __init__(self, store: Store, plans: Plans) -> None:
        self._store, self._plans = store, plans

    async def names(self, tenant: str) -> list[str]:
        """The names of all workflows of a tenant, in order. Not all of them need to be published."""
        return await self._store.workflow_names(tenant, NAMES_MAX)

    async def page(self, tenant: str, after: str, limit: int) -> tuple[list[Offer], str | None]:
        """Published workflows whose names follow `after`, and the name that the next page follows, if there is one."""
        found = await self._store.workflows(tenant, after, limit + 1)
        offers = [await self._offer(tenant, one) for one in found[:limit]]
        more = found[limit - 1].name if len(found) > limit else None
        return [one for one in offers if one is not None], more

    async def named(self, tenant: str, name: str) -> Offer:
        """The workflow of this name; raises NotFound if nothing is published under it."""
        found = await self._store.workflow(tenant, name)
        offer = None if found is None else await self._offer(tenant, found)
        if offer is None:
            raise NotFound(f"no workflow {name!a} is published here")
        return offer

    async def definition(self, tenant: str, version: str) -> Definition:
        found = await self._store.definition(tenant, version)
        assert found is not None, f"the definition of version {version} is missing"
        return await self._plans.spec_of(version, found[0])

    async def _offer(self, tenant: str, one: Workflow) -> Offer | None:
        if one.number is None or one.version is None:
            return None
        spec = await self.definition(tenant, one.version)
        declared = spec.inputs if isinstance(spec, WorkflowSpec) else None
        return Offer(one.name, one.description, one.version, input_schema(declared), dict(spec.labels))
