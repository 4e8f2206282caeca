"""Stored definitions as readers see them: the text as written, the plan with its lines, and the kind of each step.

Knows versions and notations, and no runs. Plans are compiled for each request; only the kinds of steps are cached, because every
page of steps needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidSpec, NotFound
from holdfast.plan.compile import Resolved
from holdfast.runtime.plans import Plans
from holdfast.runtime.remembered import Remembered
from holdfast.spec.notation import Definition
from holdfast.store.base import Store
from holdfast.store.records import StoredVersion
from holdfast.threads import in_thread
from holdfast.values import Millis, definition_path, is_text
from holdfast.views.outline import AnnotationsOf, Outline, kinds_in, outline_of

VERSIONS_REMEMBERED_MAX: Final = 200
STEPS_REMEMBERED_MAX: Final = 100_000
PLACED_BYTES_MAX: Final = 4 * 1024 * 1024  # of text whose lines are remembered


class Text(msgspec.Struct, frozen=True):
    """The text of a definition. If it was given as data, the text is YAML made from it."""

    source: str
    is_as_written: bool


class VersionView(msgspec.Struct, frozen=True):
    """A version by its hash. `uses` are the versions of the workflows that it names."""

    version: str
    name: str
    definition: dict[str, Any]
    text: Text
    uses: dict[str, str]
    created_at: Millis


class Definitions:
    def __init__(self, store: Store, plans: Plans) -> None:
        self._store, self._plans = store, plans
        self._kinds: Remembered[str, Mapping[str, str]] = Remembered(
            count_max=VERSIONS_REMEMBERED_MAX, bytes_max=STEPS_REMEMBERED_MAX
        )
        self._placed: Remembered[str, tuple[str | None, Definition]] = Remembered(
            count_max=VERSIONS_REMEMBERED_MAX, bytes_max=PLACED_BYTES_MAX
        )

    async def version(self, tenant: str, version: str) -> VersionView:
        stored = await self._stored(tenant, version)
        spec = await self._plans.spec_of(version, stored.definition)
        uses = msgspec.json.decode(stored.uses, type=dict[str, str]) if stored.uses else {}
        text = await self._text(stored, spec)
        return VersionView(version, stored.name, spec.to_data(), text, uses, stored.created_at)

    async def text(self, tenant: str, version: str) -> Text:
        stored = await self._stored(tenant, version)
        return await self._text(stored, await self._plans.spec_of(version, stored.definition))

    async def outline(self, tenant: str, version: str, annotations_of: AnnotationsOf) -> Outline:
        """What a stored version does. The lines are those of its text; steps of nested workflows have none."""
        whole = await self._plans.whole(tenant, version)
        stored = await self._stored(tenant, version)
        known = self._placed.get(version)
        # The text of a version changes when it is published again with other comments.
        if known is None or known[0] != stored.source:
            text = await self._text(stored, whole.spec)
            known = stored.source, await self._with_lines(whole.spec, text)
            self._placed.put(version, known, len(text.source))
        return outline_of(Resolved(known[1], whole.uses), annotations_of)

    async def _with_lines(self, spec: Definition, text: Text) -> Definition:
        """A definition whose steps know their lines, if its text can still be read."""
        try:
            return await self._plans.read_in_turns(text.source, spec.name)
        except InvalidSpec:  # an earlier release was less strict
            return spec

    async def kinds(self, tenant: str, version: str) -> Mapping[str, str]:
        """The kind of each step, by its path in the definition."""
        known = self._kinds.get(version)
        if known is None:
            whole = await self._plans.whole(tenant, version)
            known = {definition_path(path): kind for path, kind in kinds_in(whole)}
            self._kinds.put(version, known, len(known))
        return known

    async def _stored(self, tenant: str, version: str) -> StoredVersion:
        found = await self._store.version(tenant, version) if is_text(version) else None
        if found is None:
            raise NotFound(f"there is no version {ascii(version)[1:-1]:.100} in this database")
        return found

    async def _text(self, stored: StoredVersion, spec: Definition) -> Text:
        if stored.source is not None:
            return Text(stored.source, True)
        return Text(await in_thread(spec.to_yaml), False)
