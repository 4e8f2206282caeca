"""Definitions and their plans, each read, checked and compiled once.

A definition that is given again, as a dict, as text or as a file, is recognised by its content. A stored one is found by
its version. One that names others is pinned to what those names mean when a run starts. Each cache is bounded: a server
that is sent ever new definitions does not grow.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import limits
from holdfast.errors import InvalidSpec, Problem
from holdfast.plan.compile import Resolved, compile_definition, names_used
from holdfast.plan.graph import PENDING_TTL_MS, Plan
from holdfast.runtime.remembered import Remembered
from holdfast.spec.inputs import Inputs
from holdfast.spec.notation import Definition, definition_from, definition_from_stored, definition_from_text
from holdfast.spec.read import plain_text, text_of
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import Version
from holdfast.tools.threads import in_thread
from holdfast.values import Millis, decode, sha256, written

DEFINITIONS_REMEMBERED_MAX: Final = 1_000  # in each of the caches below
TEXT_BYTES_REMEMBERED_MAX: Final = (
    2 * 1024 * 1024
)  # as given; with the places of its values, 55 times as much in memory
PLAN_BYTES_REMEMBERED_MAX: Final = 8 * 1024 * 1024  # as JSON; a definition and its plan take 30 times as much
DURABLE_REMEMBERED_MAX: Final = 10_000
SMALL_BYTES: Final = 8 * 1024  # of a definition that is read, checked and compiled in some milliseconds

Given = Definition | Mapping[str, Any] | str  # a definition, as a record, as data or as text
Find = Callable[[str, Definition], Awaitable[Definition]]  # what a name means in the definition that uses it
# The content of a definition, and of those that it names.
Content: TypeAlias = tuple[str, tuple[tuple[str, "Content"], ...]]


class Ready(msgspec.Struct):
    """A definition that runs can be made of."""

    whole: Resolved
    plan: Plan
    inputs: Inputs
    stored_for: str | None = (
        None  # a tenant for whom it is known to be durable: nearly every start is of the same one
    )


class Known(msgspec.Struct):
    """A definition that was checked."""

    spec: Definition  # held, because it is found by its identity
    content: str  # the hash of its canonical text
    names: frozenset[str]  # the workflows that it names
    ready: Ready | None = None


class Plans:
    def __init__(
        self, store: Store, template_env: Collection[str] = (), pending_ttl_ms: int = PENDING_TTL_MS
    ) -> None:
        self._store, self._template_env, self._pending_ttl_ms = store, template_env, pending_ttl_ms
        self._by_text: Remembered[tuple[str | bytes, str, str | None], Definition] = Remembered(
            count_max=DEFINITIONS_REMEMBERED_MAX, bytes_max=TEXT_BYTES_REMEMBERED_MAX
        )
        self._known: Remembered[int, Known] = _for_plans()
        self._wholes: Remembered[Content, Ready] = _for_plans()
        self._by_version: Remembered[str, Plan] = _for_plans()
        self._spec_of: Remembered[str, Definition] = _for_plans()
        # Tenant and version of what is known to be durable.
        self._stored: Remembered[tuple[str, str], bool] = Remembered(
            count_max=DURABLE_REMEMBERED_MAX, bytes_max=DURABLE_REMEMBERED_MAX
        )

    def read(self, given: Given, name: str | None = None) -> Definition:
        """A definition in any of its forms but the path of a file. `name`, if it is given, counts instead of its own."""
        if isinstance(given, str):
            return self._read_text(given, "", name)
        if not isinstance(given, Mapping):
            return given
        return self._read_plain(plain_text(given), name)

    def _read_plain(self, text: bytes, name: str | None) -> Definition:
        """Of data as compact text. The content decides: the same dict may have been changed since."""
        known = self._by_text.get((text, "", name))
        if known is None:
            known = definition_from(decode(text), name=name)
            self._by_text.put((text, "", name), known, len(text))
        return known

    async def read_in_turns(self, given: Given, name: str | None = None) -> Definition:
        """The same, checked and compiled too. A large one that is new takes a thread up to a second: meanwhile the event loop
        gets its turns."""
        if not isinstance(given, Mapping | str):
            return given
        text = given if isinstance(given, str) else plain_text(given)
        if len(text) <= SMALL_BYTES or (text, "", name) in self._by_text:
            return self._read_text(text, "", name) if isinstance(text, str) else self._read_plain(text, name)
        apart = Plans(self._store, self._template_env, self._pending_ttl_ms)  # no thread shares these caches
        spec = await in_thread(apart._prepared, given, name)
        self._by_text.add(apart._by_text)
        self._known.add(apart._known)
        self._by_version.add(apart._by_version)
        return spec

    def _prepared(self, given: Given, name: str | None) -> Definition:
        spec = self.read(given, name)
        self.of_spec(spec)
        return spec

    def read_file(self, path: str | os.PathLike[str]) -> Definition:
        """The definition in a file as it is now; reading a small file costs less than trusting its time stamp."""
        return self._read_text(text_of(path), os.fspath(path), None)

    def _read_text(self, text: str | bytes, source: str, name: str | None) -> Definition:
        if len(text) > limits.now.spec_bytes_max:
            return definition_from_text(text, source, name)  # refused there, before anything is made of it
        known = self._by_text.get((text, source, name))
        if known is None:
            known = definition_from_text(text, source, name)
            self._by_text.put((text, source, name), known, len(text))
        return known

    def content_of(self, spec: Definition) -> str:
        """What tells two definitions apart: the hash of what they say. Refused with every problem if it is not valid."""
        return self._look_at(spec).content

    def of_spec(self, spec: Definition) -> Ready | None:
        """What runs of a definition need; None if it names others. Refused with every problem if it is not valid."""
        known = self._known.get(id(spec)) or self._look_at(spec)
        if known.ready is None and not known.names:
            known.ready = self._ready(Resolved(spec, {}))
        return known.ready

    def _look_at(self, spec: Definition) -> Known:
        known = self._known.get(id(spec))
        if known is None:
            spec.validate(self._template_env)
            text = spec.canonical()
            known = Known(spec, sha256(text), frozenset(names_used(spec)))
            self._known.put(id(spec), known, len(text))
        return known

    async def of_whole(self, spec: Definition, find: Find) -> Ready:
        """The same for one that names others, as those names stand now."""
        whole = await self._resolve(spec, find, ())
        content = self._content(whole)
        ready = self._wholes.get(content)
        if ready is None:
            ready = self._ready(whole)
            self._wholes.put(content, ready, _size(whole))
        return ready

    def _content(self, whole: Resolved) -> Content:
        return self._look_at(whole.spec).content, tuple(
            (name, self._content(used)) for name, used in whole.uses.items()
        )

    async def _resolve(self, spec: Definition, find: Find, around: tuple[str, ...]) -> Resolved:
        if spec.name in around:
            raise _refused(
                f"workflow {spec.name!r} contains itself: {' → '.join((*around, spec.name))}", "nested_cycle"
            )
        if len(around) >= limits.now.nesting_max:
            raise _refused(
                f"workflows are nested deeper than {limits.now.nesting_max}: {' → '.join(around)} ({limits.met('nesting_max')})",
                "nested_too_deep",
            )
        uses = {}
        for name in sorted(self._look_at(spec).names):
            if name == spec.name:
                raise _refused(f"workflow {name!r} contains itself", "nested_cycle")
            child = await find(name, spec)
            uses[name] = await self._resolve(child, find, (*around, spec.name))
        return Resolved(spec, uses)

    def _ready(self, whole: Resolved) -> Ready:
        version = whole.version
        plan = self._by_version.get(version)
        if plan is None:
            plan = compile_definition(whole.spec, whole.uses)
            plan = msgspec.structs.replace(plan, pending_ttl_ms=self._pending_ttl_ms)
            self._by_version.put(version, plan, _size(whole))
        return Ready(whole, plan, Inputs(whole.spec.inputs))

    def spec_of(self, version: str, definition: str) -> Definition:
        """A stored definition as a record; the same record each time, so that its plan is found by identity."""
        spec = self._spec_of.get(version)
        if spec is None:
            spec = definition_from_stored(definition)
            self._spec_of.put(version, spec, len(definition))
        return spec

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
        if self._stored.get(key) or any((known.tenant, known.hash) == key for known in batch.versions):
            return
        for used in whole.uses.values():
            self.store_with(batch, tenant, used, used.version, now)
        uses = msgspec.json.encode(whole.versions).decode() if whole.uses else None
        spec = whole.spec
        batch.versions.append(
            Version(tenant, version, spec.name, written(spec.to_data()).decode(), now, uses)
        )

    def is_durable(self, tenant: str, version: str) -> None:
        if (tenant, version) not in self._stored:
            self._stored.put((tenant, version), True, 1)


def _size(whole: Resolved) -> int:
    return len(whole.spec.canonical()) + sum(map(_size, whole.uses.values()))


def _for_plans() -> Remembered[Any, Any]:
    return Remembered(count_max=DEFINITIONS_REMEMBERED_MAX, bytes_max=PLAN_BYTES_REMEMBERED_MAX)


def _refused(message: str, code: str) -> InvalidSpec:
    return InvalidSpec([Problem(code, message)])
