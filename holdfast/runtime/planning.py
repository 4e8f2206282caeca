"""What a definition is worth before it runs: its problems with their repairs, and its plan. Nothing is stored or executed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, PlanChanged, Problem
from holdfast.plan.compile import Resolved
from holdfast.runtime.plans import SMALL_BYTES
from holdfast.runtime.starts import Starts
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.notation import Definition, Examined, examined, repair
from holdfast.spec.patch import Patch
from holdfast.spec.problems import did_you_mean, nearest, quoted
from holdfast.spec.repair import Repaired
from holdfast.tools.annotations import Annotations
from holdfast.tools.registry import Registry
from holdfast.tools.threads import in_pool
from holdfast.values import encode
from holdfast.views.outline import Outline, calls_in, outline_of

_EXAMINER: Final = ThreadPoolExecutor(
    1, "holdfast-validation"
)  # one at a time, as large definitions are read


class Validation(msgspec.Struct, frozen=True):
    """`patch` repairs all that can be repaired, and `left` are the problems that it leaves."""

    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    patch: Patch
    left: tuple[Problem, ...]
    repaired: Any  # the data after the patch; None without a patch
    outline: Outline | None  # of a valid definition whose nested workflows are known
    inputs: Any = None  # what it declares


class Planning:
    def __init__(self, starts: Starts, registry: Registry, template_env: Collection[str]) -> None:
        self._starts, self._registry, self._template_env = starts, registry, template_env

    async def validate(self, tenant: str, given: str | Mapping[str, Any]) -> Validation:
        """Every problem of a definition, with the patch that repairs what can be repaired."""
        size = len(given) if isinstance(given, str) else _size(given)
        if size <= SMALL_BYTES:
            found, mended = self._examine(given)
        else:
            found, mended = await in_pool(_EXAMINER, lambda: self._examine(given))
        if found.spec is None:
            after = None if mended.data is UNKNOWN else mended.data
            return Validation(tuple(found.problems), (), mended.patch, tuple(mended.problems), after, None)
        notes = (*found.notes, *self._tool_notes(found.spec))
        outline = await self._outline_or_none(tenant, found.spec)
        return Validation((), notes, (), (), None, outline, found.spec.inputs)

    def _examine(self, given: str | Mapping[str, Any]) -> tuple[Examined, Repaired]:
        found = examined(given, template_env=self._template_env)
        mended = Repaired((), UNKNOWN, ()) if found.spec else repair(found, template_env=self._template_env)
        return found, mended

    async def _outline_or_none(self, tenant: str, spec: Definition) -> Outline | None:
        try:
            return await self.outline(tenant, spec)
        except HoldfastError:
            return None  # a workflow that it names is not published yet

    async def outline(self, tenant: str, spec: Definition) -> Outline:
        """What a definition would do; raises InvalidSpec if it is not valid."""
        ready = await self._starts.ready(tenant, spec)
        return outline_of(ready.whole, self.annotations_of)

    async def check_hash(self, tenant: str, spec: Definition, plan_hash: str) -> None:
        """Raise PlanChanged unless the plan of a definition is the one that the caller has seen."""
        found = (await self.outline(tenant, spec)).plan_hash
        if found != plan_hash:
            raise PlanChanged(spec.name, found)

    def annotations_of(self, name: str) -> Annotations | None:
        """What a tool says about its effects; None if no such tool is known here."""
        return self._registry.annotations_of(name)

    def _tool_notes(self, spec: Definition) -> tuple[Problem, ...]:
        """Tools that no process may have: another node could, so this is no problem of the definition."""
        report = spec.origin.report()
        known = self._registry.names()
        for call in calls_in(Resolved(spec, {})):
            if call.kind == "tool" and call.target not in known:
                at = (*call.at, "service" if call.at[0] == "nodes" else "tool")
                message = f"step {quoted(call.path)}: unknown tool {quoted(call.target)}"
                hint = did_you_mean(call.target, known) or "register it, or start a server that has it"
                report.note("unknown_tool", at, message, hint, near=nearest(call.target, known) or UNKNOWN)
        return tuple(report.notes)


def _size(given: Mapping[str, Any]) -> int:
    try:
        return len(encode(given))
    except ValueError:
        return 0  # which is reported as no JSON
