"""Definitions and their plans, each parsed, checked and compiled once.

A definition that is passed again, as a dict, text or file, is recognised by its content. A stored one is found by its
version. A definition that names other workflows is pinned to what those names refer to when a run starts. Every cache
is bounded, so a server that keeps receiving new definitions does not grow.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from holdfast import limits
from holdfast.errors import InvalidSpec, Problem
from holdfast.plan.compile import Resolved, compile_definition, names_used
from holdfast.plan.graph import NO_WORKER_WAIT_MS, PENDING_TTL_MS, Plan
from holdfast.runtime.remembered import Remembered
from holdfast.spec.flow import FlowSpec
from holdfast.spec.flow_nodes import placed
from holdfast.spec.inputs import Inputs
from holdfast.spec.notation import Definition, definition_from, definition_from_stored, definition_from_text
from holdfast.spec.read import plain_text, text_of
from holdfast.spec.steps import every_step
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import Version
from holdfast.threads import in_pool
from holdfast.values import Millis, decode, sha256

DEFINITIONS_REMEMBERED_MAX: Final = 1_000  # in each of the caches below
# As given, and as JSON. A parsed definition takes 13 to 23 times as much memory, its plan 24 to 33 times: at most 140 MB together.
TEXT_BYTES_REMEMBERED_MAX: Final = 1024 * 1024
PLAN_BYTES_REMEMBERED_MAX: Final = 2 * 1024 * 1024
DURABLE_REMEMBERED_MAX: Final = 10_000
# a definition up to this size is parsed, checked and compiled in some milliseconds
SMALL_BYTES: Final = 8 * 1024
LONG_STEPS: Final = 100  # a record with more steps takes over 10 ms to check and to compile

# Larger ones are parsed one at a time: with several threads at work the event loop would wait longer for each turn.
_READER: Final = ThreadPoolExecutor(1, "holdfast-definitions")

T = TypeVar("T")
Given = Definition | Mapping[str, Any] | str  # a definition: a record, data, or text
Find = Callable[[str, Definition], Awaitable[Definition]]  # what a name means in the definition that uses it
# The content of a definition, and of those that it names.
Content: TypeAlias = tuple[str, tuple[tuple[str, "Content"], ...]]


class Ready(msgspec.Struct):
    """A definition that runs can be started from."""

    whole: Resolved
    plan: Plan
    inputs: Inputs
    # a tenant for which it is known to be durable; nearly every start uses the same one
    stored_for: str | None = None


class Known(msgspec.Struct):
    """A definition that has been checked."""

    spec: Definition  # kept alive, because the plan is found by the identity of the record
    content: str  # the hash of its canonical text
    names: frozenset[str]  # the workflows that it names
    ready: Ready | None = None


class Plans:
    def __init__(
        self,
        store: Store,
        template_env: Collection[str] = (),
        pending_ttl_ms: int = PENDING_TTL_MS,
        no_worker_wait_ms: int = NO_WORKER_WAIT_MS,
    ) -> None:
        self._store, self._template_env = store, template_env
        self._pending_ttl_ms, self._no_worker_wait_ms = pending_ttl_ms, no_worker_wait_ms
        self._by_text: Remembered[tuple[str | bytes, str, str | None], Definition] = Remembered(
            count_max=DEFINITIONS_REMEMBERED_MAX, bytes_max=TEXT_BYTES_REMEMBERED_MAX
        )
        self._known: Remembered[int, Known] = _for_plans()
        self._wholes: Remembered[Content, Ready] = _for_plans()
        self._by_version: Remembered[str, Plan] = _for_plans()
        self._spec_of: Remembered[str, Definition] = _for_plans()
        self._reading = asyncio.Lock()
        # Tenant and version of definitions that are known to be durable.
        self._stored: Remembered[tuple[str, str], bool] = Remembered(
            count_max=DURABLE_REMEMBERED_MAX, bytes_max=DURABLE_REMEMBERED_MAX
        )

    def read(self, given: Given, name: str | None = None) -> Definition:
        """Parse a definition in any form except a file path. `name`, if given, replaces the name in the definition."""
        if isinstance(given, str):
            return self._read_text(given, "", name)
        if not isinstance(given, Mapping):
            return given
        return self._read_plain(plain_text(given), name)

    def _read_plain(self, text: bytes, name: str | None) -> Definition:
        """Parse data by way of its compact text. The content decides, because the same dict may have been changed
        since."""
        known = self._by_text.get((text, "", name))
        if known is None:
            known = definition_from(decode(text), name=name)
            self._by_text.put((text, "", name), known, len(text))
        return known

    async def read_in_turns(self, given: Given, name: str | None = None) -> Definition:
        """The same, also checked and compiled. A large new definition is processed in a thread, which takes up to a
        second, so that the event loop stays responsive."""
        if not isinstance(given, Mapping | str):
            return given
        text = given if isinstance(given, str) else plain_text(given)
        if len(text) <= SMALL_BYTES or (text, "", name) in self._by_text:
            return self._read_text(text, "", name) if isinstance(text, str) else self._read_plain(text, name)
        return await self._in_turns(lambda plans: plans._prepared(given, name))

    def _prepared(self, given: Given, name: str | None) -> Definition:
        spec = self.read(given, name)
        self.of_spec(spec)
        return spec

    async def _in_turns(self, work: Callable[[Plans], T]) -> T:
        """Process a large definition in a thread. The thread uses caches of its own, which are merged into these
        afterwards."""
        apart = Plans(self._store, self._template_env, self._pending_ttl_ms, self._no_worker_wait_ms)
        made = await in_pool(_READER, lambda: work(apart))
        self._by_text.add(apart._by_text)
        self._known.add(apart._known)
        self._by_version.add(apart._by_version)
        return made

    def read_file(self, path: str | os.PathLike[str]) -> Definition:
        """The definition in a file as it is now; parsing a small file costs less than trusting its modification time."""
        return self._read_text(text_of(path), os.fspath(path), None)

    def _read_text(self, text: str | bytes, source: str, name: str | None) -> Definition:
        if len(text) > limits.now.spec_bytes_max:
            # too large: refused by the parser, before anything is built
            return definition_from_text(text, source, name)
        known = self._by_text.get((text, source, name))
        if known is None:
            known = definition_from_text(text, source, name)
            self._by_text.put((text, source, name), known, len(text))
        return known

    def content_of(self, spec: Definition) -> str:
        """The hash of a definition's content, which identifies it. Raises InvalidSpec with every problem if it is not
        valid."""
        return self._examine(spec).content

    def at_hand(self, spec: Definition) -> Ready | None:
        """What runs of a definition need, if it is cached and names no other workflows."""
        known = self._known.get(id(spec))
        return None if known is None else known.ready

    def of_spec(self, spec: Definition) -> Ready | None:
        """What runs of a definition need; None if it names other workflows. Raises InvalidSpec with every problem."""
        known = self._known.get(id(spec)) or self._examine(spec)
        if known.ready is None and not known.names:
            known.ready = self._ready(Resolved(spec, {}))
        return known.ready

    def _examine(self, spec: Definition) -> Known:
        known = self._known.get(id(spec))
        if known is None:
            spec.validate(self._template_env)
            text = spec.canonical()
            known = Known(spec, sha256(text), frozenset(names_used(spec)))
            self._known.put(id(spec), known, len(text))
        return known

    async def of_any(self, spec: Definition, find: Find) -> Ready:
        """The same, also for a definition that names other workflows, with the current meaning of those names."""
        await self._examine_in_turns(spec)
        ready = self.of_spec(spec)
        if ready is not None:
            return ready
        whole = await self._resolve(spec, find, ())
        content = self._content(whole)
        ready = self._wholes.get(content)
        if ready is None:
            ready = await self._ready_in_turns(whole)
            self._wholes.put(content, ready, _size(whole))
        return ready

    async def _examine_in_turns(self, spec: Definition) -> None:
        """Check and compile a long definition in advance."""
        if id(spec) not in self._known and _is_long(spec):
            await self._in_turns(lambda plans: plans.of_spec(spec))

    async def _ready_in_turns(self, whole: Resolved) -> Ready:
        return (
            await self._in_turns(lambda plans: plans._ready(whole))
            if _has_long(whole)
            else self._ready(whole)
        )

    def _content(self, whole: Resolved) -> Content:
        return self._examine(whole.spec).content, tuple(
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
        await self._examine_in_turns(spec)
        for name in sorted(self._examine(spec).names):
            if name == spec.name:
                raise _refused(f"workflow {name!r} contains itself", "nested_cycle")
            child = await find(name, spec)
            uses[name] = await self._resolve(child, find, (*around, spec.name))
        return Resolved(spec, uses)

    def _ready(self, whole: Resolved) -> Ready:
        version = whole.version
        plan = self._by_version.get(version)
        if plan is None:
            plan = self._compiled(whole)
            self._by_version.put(version, plan, _size(whole))
        return Ready(whole, plan, Inputs(whole.spec.inputs))

    def _compiled(self, whole: Resolved) -> Plan:
        plan = compile_definition(whole.spec, whole.uses)
        return msgspec.structs.replace(
            plan, pending_ttl_ms=self._pending_ttl_ms, no_worker_wait_ms=self._no_worker_wait_ms
        )

    async def spec_of(self, version: str, definition: str) -> Definition:
        """A stored definition as a record; the same record each time, so that its plan is found by identity."""
        spec = self._spec_of.get(version)
        if spec is not None:
            return spec
        if len(definition) <= SMALL_BYTES:
            spec = definition_from_stored(definition)
        else:
            spec = await in_pool(_READER, lambda: _from_stored(definition))
            spec = self._spec_of.get(version) or spec  # another task may have finished first
        self._spec_of.put(version, spec, len(definition))
        return spec

    async def again(self, tenant: str, version: str) -> Ready:
        """What another run of a stored version needs."""
        whole = await self.whole(tenant, version)
        return self._ready(whole) if version in self._by_version else await self._ready_in_turns(whole)

    async def of_version(self, tenant: str, version: str) -> Plan:
        plan = self._by_version.get(version)
        if plan is None:
            async with self._reading:  # many runs of one version may be loaded at once
                plan = self._by_version.get(version) or (await self.again(tenant, version)).plan
        return plan

    async def whole(self, tenant: str, version: str) -> Resolved:
        """A stored version with those that it names."""
        found = await self._store.definition(tenant, version)
        assert found is not None, f"the definition {version} of a stored run is missing"
        definition, uses = found
        versions = msgspec.json.decode(uses, type=dict[str, str]) if uses else {}
        return Resolved(
            await self.spec_of(version, definition),
            {name: await self.whole(tenant, used) for name, used in versions.items()},
        )

    def store_with(self, batch: Batch, tenant: str, whole: Resolved, version: str, now: Millis) -> None:
        """Add a definition, and those it names, to a batch, unless they are known to be durable."""
        key = (tenant, version)
        if self._stored.get(key) or any((known.tenant, known.hash) == key for known in batch.versions):
            return
        for used in whole.uses.values():
            self.store_with(batch, tenant, used, used.version, now)
        uses = msgspec.json.encode(whole.versions).decode() if whole.uses else None
        spec = whole.spec
        batch.versions.append(Version(tenant, version, spec.name, spec.stored().decode(), now, uses))
        if (text := text_as_written(spec)) is not None:
            batch.sources.append((text, tenant, version))

    def is_durable(self, tenant: str, version: str) -> None:
        if (tenant, version) not in self._stored:
            self._stored.put((tenant, version), True, 1)


def text_as_written(spec: Definition) -> str | None:
    """The text that a definition was read from; None if it was given as data, or under another name than it says."""
    document = spec.origin.document
    if document is None or document.data.get("name") != spec.name:
        return None
    text = document.text
    return text if isinstance(text, str) else text.decode()


def _size(whole: Resolved) -> int:
    return len(whole.spec.canonical()) + sum(map(_size, whole.uses.values()))


def _from_stored(definition: str) -> Definition:
    spec = definition_from_stored(definition)
    spec.canonical()  # its version is needed next
    return spec


def _is_long(spec: Definition) -> bool:
    parts: Iterator[object] = (
        placed(spec.graph) if isinstance(spec, FlowSpec) else (step for _, step in every_step(spec))
    )
    return next(islice(parts, LONG_STEPS, None), None) is not None


def _has_long(whole: Resolved) -> bool:
    return _is_long(whole.spec) or any(map(_has_long, whole.uses.values()))


def _for_plans() -> Remembered[Any, Any]:
    return Remembered(count_max=DEFINITIONS_REMEMBERED_MAX, bytes_max=PLAN_BYTES_REMEMBERED_MAX)


def _refused(message: str, code: str) -> InvalidSpec:
    return InvalidSpec([Problem(code, message)])
