"""What a definition is worth before it runs: its problems with their repairs, and its plan. Nothing is stored or executed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from holdfast.errors import Forbidden, HoldfastError, PlanChanged, PlanRefused, Problem
from holdfast.nearest import did_you_mean, nearest
from holdfast.plan.compile import Resolved
from holdfast.runtime.plans import SMALL_BYTES
from holdfast.runtime.rights import EVERY_RIGHT, Rights
from holdfast.runtime.starts import Starts
from holdfast.runtime.untrusted import calls_destructive, refusals, refused_name
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.inputs import input_schema
from holdfast.spec.notation import Definition, Examined, examined, repair
from holdfast.spec.patch import Patch, applied
from holdfast.spec.problems import quoted
from holdfast.spec.repair import Repaired
from holdfast.store.records import RunRow
from holdfast.threads import in_pool
from holdfast.tools.annotations import Annotations
from holdfast.tools.registry import Registry
from holdfast.values import encode
from holdfast.views.misfits import report_misfits
from holdfast.views.outline import Outline, calls_in, outline_of
from holdfast.workers.outages import how_to_serve

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
    outline: Outline | None  # None if the definition is invalid or a nested workflow is unknown
    inputs: Any = None  # what it declares

    @property
    def inputs_schema(self) -> dict[str, Any]:
        return input_schema(self.inputs)


class Planning:
    def __init__(
        self,
        starts: Starts,
        registry: Registry,
        template_env: Collection[str],
        is_served: Callable[[str, str], bool],
    ) -> None:
        self._starts, self._registry, self._template_env = starts, registry, template_env
        self._is_served = is_served  # whether a worker of this tenant serves a service

    async def validate(
        self, tenant: str, given: str | Mapping[str, Any], rights: Rights = EVERY_RIGHT
    ) -> Validation:
        """Every problem of a definition, with the patch that repairs what can be repaired. What the rights of the caller do not
        allow is a problem of an otherwise valid definition."""
        size = len(given) if isinstance(given, str) else _size(given)
        if size <= SMALL_BYTES:
            found, mended = self._examine(given)
        else:
            found, mended = await in_pool(_EXAMINER, lambda: self._examine(given))
        if found.spec is None:
            after = None if mended.data is UNKNOWN else mended.data
            return Validation(tuple(found.problems), (), mended.patch, tuple(mended.problems), after, None)
        notes = (*found.notes, *self._tool_notes(Resolved(found.spec, {})))
        outline = await self._outline_or_none(tenant, found.spec)
        if not rights.are_limited or outline is None:
            return Validation((), notes, (), (), None, outline, found.spec.inputs)
        refused = await self.refusals(tenant, found.spec, rights)
        patch, left, after = await self._allowed(tenant, found.spec, notes, refused, rights)
        return Validation(refused, notes, patch, left, after, outline, found.spec.inputs)

    async def _allowed(
        self,
        tenant: str,
        spec: Definition,
        notes: tuple[Problem, ...],
        refused: tuple[Problem, ...],
        rights: Rights,
    ) -> tuple[Patch, tuple[Problem, ...], Any]:
        """The patch after which the caller may run a valid definition, what it leaves, and the data after it. A misspelt tool counts
        as destructive, so it is renamed before it is asked what else is needed."""
        if not refused:
            return (), (), None
        given = spec.origin.report().given.data
        if renamed := _joined(note for note in notes if note.code == "unknown_tool"):
            given = applied(given, renamed)
            meant = examined(given, template_env=self._template_env).spec
            assert meant is not None  # only names of tools are different
            refused = await self.refusals(tenant, meant, rights)
        patch = _joined(refused)  # they concern different places
        left = tuple(one for one in refused if not one.patch)
        whole = (*renamed, *patch)
        return whole, left, applied(given, patch) if whole else None

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
        await self._learn(ready.whole)
        return outline_of(ready.whole, self.annotations_of)

    async def hold(self, tenant: str, spec: Definition, rights: Rights) -> None:
        """Raise PlanRefused unless a caller with these rights may run this definition."""
        if refused := await self.refusals(tenant, spec, rights):
            raise PlanRefused(refused)

    async def refusals(self, tenant: str, spec: Definition, rights: Rights) -> tuple[Problem, ...]:
        """Every reason why a caller with these rights may not run a valid definition."""
        if not rights.are_limited:
            return ()
        # Names that the caller may not see are refused before they are looked up, so that it learns nothing of them.
        hidden = refusals(Resolved(spec, {}), Rights(workflows=rights.workflows), self.annotations_of)
        found = hidden or await self._refusals((await self._starts.ready(tenant, spec)).whole, rights)
        return (*refused_name(spec, rights), *found)

    async def _refusals(self, whole: Resolved, rights: Rights) -> tuple[Problem, ...]:
        await self._learn(whole)
        return refusals(whole, rights, self.annotations_of)

    async def hold_again(self, tenant: str, run: RunRow, rights: Rights, *, is_whole: bool) -> None:
        """Raise unless a caller with these rights may run a finished run again. A part of it would take over the approvals of the
        first run, so a caller that needs them repeats all of it."""
        if not rights.are_limited:
            return
        whole = await self._starts.definition_of(tenant, run.version)
        if run.number is not None:
            if not rights.sees(run.workflow):
                raise Forbidden(f"this caller may not start the workflow {run.workflow!a}")
        elif problems := await self._refusals(whole, rights):
            raise PlanRefused(problems)
        if not is_whole and not rights.skips_gate:
            await self._learn(whole)
            if calls_destructive(whole, self.annotations_of):
                raise Forbidden(
                    "it calls destructive tools, and a part of it would run without its approvals; run all of it again"
                )

    async def _learn(self, whole: Resolved) -> None:
        """Ask the servers of its remote tools what they say of these tools, if that is not known yet."""
        for server in {call.target.partition("/")[0] for call in calls_in(whole) if call.kind == "remote"}:
            await self._registry.learn(server)

    async def check_hash(self, tenant: str, spec: Definition, plan_hash: str) -> None:
        """Raise PlanChanged unless the plan of a definition is the one that the caller has seen."""
        found = (await self.outline(tenant, spec)).plan_hash
        if found != plan_hash:
            raise PlanChanged(spec.name, found)

    def annotations_of(self, name: str) -> Annotations | None:
        """What a tool says about its effects; None if no such tool is known here."""
        return self._registry.annotations_of(name)

    def lacks(self, tenant: str, whole: Resolved) -> tuple[Problem, ...]:
        """The calls of a definition that would wait now: their tool is not registered here, or no worker serves them."""
        report = whole.spec.origin.report()
        for call in calls_in(whole):
            if call.kind == "service" and not self._is_served(tenant, call.target):
                message = f"step {quoted(call.path)}: no worker serves {quoted(call.target)}"
                report.note("no_worker", call.at, message, how_to_serve(call.target))
        return (*self._tool_notes(whole), *report.notes)

    def _tool_notes(self, whole: Resolved) -> tuple[Problem, ...]:
        """Tools that are not here, and arguments that do not fit those that are: another node may have other tools, so neither is a
        problem of the definition."""
        report = whole.spec.origin.report()
        known = self._registry.names()
        for call in calls_in(whole):
            if call.kind == "tool" and call.target not in known:
                at = (*call.at, "service" if call.at[0] == "nodes" else "tool")
                message = f"step {quoted(call.path)}: unknown tool {quoted(call.target)}"
                hint = (
                    did_you_mean(call.target, known)
                    or "register it, or start a server that has it: holdfast up --tools MODULE"
                )
                report.note("unknown_tool", at, message, hint, near=nearest(call.target, known) or UNKNOWN)
        report_misfits(whole.spec, self._registry.get, report.note)
        return tuple(report.notes)


def _joined(problems: Iterable[Problem]) -> Patch:
    return tuple(operation for one in problems for operation in one.patch)


def _size(given: Mapping[str, Any]) -> int:
    try:
        return len(encode(given))
    except ValueError:
        return 0  # which is reported as no JSON
