"""Plans by version, compiled once: from a definition at hand, or from the text that is stored with the runs it made.

A definition that names others is pinned to what those names mean when a run starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec

from holdfast.errors import InvalidSpec, Problem
from holdfast.plan.compile import Resolved, compile_definition, names_used
from holdfast.plan.graph import PENDING_TTL_MS, Plan
from holdfast.spec.inputs import Inputs
from holdfast.spec.notation import Definition, definition_from_stored
from holdfast.store.base import Batch, Store, Version
from holdfast.values import Millis, written

SPECS_REMEMBERED_MAX: Final = 1_000
NESTING_MAX: Final = 16  # workflows within workflows

Find = Callable[[str, Definition], Awaitable[Definition]]  # what a name means to whoever names it


class Ready(msgspec.Struct, frozen=True):
    """A definition that runs can be made of."""

    whole: Resolved
    plan: Plan
    inputs: Inputs


class Plans:
    def __init__(
        self, store: Store, template_env: Collection[str] = (), pending_ttl_ms: int = PENDING_TTL_MS
    ) -> None:
        self._store, self._template_env, self._pending_ttl_ms = store, template_env, pending_ttl_ms
        self._by_version: dict[str, Plan] = {}
        self._by_spec: dict[int, Ready] = {}  # by identity; holding it keeps the id
        self._stored: set[tuple[str, str]] = set()  # tenant and version of what is known to be durable
        self._spec_of: dict[str, Definition] = {}

    def of_spec(self, spec: Definition) -> Ready | None:
        """What runs of a definition need; None if it names others. Refused with every problem if it is not valid."""
        known = self._by_spec.get(id(spec))
        if known is not None:
            return known
        spec.validate(self._template_env)
        if names_used(spec):
            return None
        if len(self._by_spec) >= SPECS_REMEMBERED_MAX:
            self._by_spec.clear()
        made = self._by_spec[id(spec)] = self._ready(Resolved(spec, {}))
        return made

    async def of_whole(self, spec: Definition, find: Find) -> Ready:
        """The same for one that names others, as those names stand now."""
        return self._ready(await self._resolve(spec, find, ()))

    async def _resolve(self, spec: Definition, find: Find, around: tuple[str, ...]) -> Resolved:
        if spec.name in around:
            raise _refused(
                f"workflow {spec.name!r} contains itself: {' → '.join((*around, spec.name))}", "nested_cycle"
            )
        if len(around) >= NESTING_MAX:
            raise _refused(
                f"workflows are nested deeper than {NESTING_MAX}: {' → '.join(around)}", "nested_too_deep"
            )
        uses = {}
        for name in sorted(names_used(spec)):
            if name == spec.name:
                raise _refused(f"workflow {name!r} contains itself", "nested_cycle")
            child = await find(name, spec)
            child.validate(self._template_env)
            uses[name] = await self._resolve(child, find, (*around, spec.name))
        return Resolved(spec, uses)

    def _ready(self, whole: Resolved) -> Ready:
        version = whole.version
        if version not in self._by_version:
            plan = compile_definition(whole.spec, whole.uses)
            self._by_version[version] = msgspec.structs.replace(plan, pending_ttl_ms=self._pending_ttl_ms)
        return Ready(whole, self._by_version[version], Inputs(whole.spec.inputs))

    def spec_of(self, version: str, definition: str) -> Definition:
        """A stored definition as a record; the same record each time, so that its plan is found by identity."""
        if version not in self._spec_of:
            if len(self._spec_of) >= SPECS_REMEMBERED_MAX:
                self._spec_of.clear()
            self._spec_of[version] = definition_from_stored(definition)
        return self._spec_of[version]

    async def again(self, tenant: str, version: str) -> Ready:
        """What is needed for another run of a stored version."""
        return self._ready(await self._stored_whole(tenant, version))

    async def of_version(self, tenant: str, version: str) -> Plan:
        plan = self._by_version.get(version)
        if plan is None:
            plan = (await self.again(tenant, version)).plan
        return plan

    async def _stored_whole(self, tenant: str, version: str) -> Resolved:
        found = await self._store.definition(tenant, version)
        assert found is not None, f"the definition {version} of a stored run is missing"
        definition, uses = found
        versions = msgspec.json.decode(uses, type=dict[str, str]) if uses else {}
        return Resolved(
            self.spec_of(version, definition),
            {name: await self._stored_whole(tenant, used) for name, used in versions.items()},
        )

    def store_with(self, batch: Batch, tenant: str, whole: Resolved, version: str, now: Millis) -> None:
        """Let a batch write the definition too, and those it names, unless they are known to be durable."""
        key = (tenant, version)
        if key in self._stored or any((known.tenant, known.hash) == key for known in batch.versions):
            return
        for used in whole.uses.values():
            self.store_with(batch, tenant, used, used.version, now)
        uses = msgspec.json.encode(whole.versions).decode() if whole.uses else None
        spec = whole.spec
        batch.versions.append(
            Version(tenant, version, spec.name, written(spec.to_data()).decode(), now, uses)
        )

    def is_durable(self, tenant: str, version: str) -> None:
        self._stored.add((tenant, version))


def _refused(message: str, code: str) -> InvalidSpec:
    return InvalidSpec([Problem(code, message)])
