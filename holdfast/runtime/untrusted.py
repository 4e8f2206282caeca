"""Holds a definition against the rights of its author: a caller whose key is limited, or an agent.

    definition and those it names ──► tools that the caller may not use, workflows that it may not see
                                  ──► calls of destructive tools without an approval before them, and the patch that adds it

An approval is before a call if no run reaches the call without passing it: it stands earlier in the same list of steps, or
earlier than a step around the call, without a condition, and its denial is not caught. What handles an error or runs at the end of a
definition is reached after a denial too, so it needs an approval of its own. The `approval` of a graph is a condition over shared state, which the plan itself or a
signal can fulfil, so it does not count. Knows both notations; must not know runs or keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from holdfast.errors import PlanRefused, Problem
from holdfast.nearest import did_you_mean
from holdfast.plan.compile import Resolved
from holdfast.runtime.rights import Rights
from holdfast.spec import steps
from holdfast.spec.flow import FlowSpec
from holdfast.spec.flow_nodes import FlowNode, placed
from holdfast.spec.notation import Definition
from holdfast.spec.patch import NO_PATCH, Patch, put
from holdfast.spec.problems import Report, one_of, quoted
from holdfast.spec.repairs import unique
from holdfast.spec.steps import WorkflowStep
from holdfast.spec.workflow import WorkflowSpec
from holdfast.values import join, segment
from holdfast.views.outline import (
    AnnotationsOf,
    CallOf,
    Where,
    asks_person,
    calls_in,
    named_workflow,
    step_paths,
    targets_of,
    undone_by,
)

GATE: Final = "approve"
CALLS_SHOWN_MAX: Final = 5


class _Ungated(NamedTuple):
    """A call that a run can reach without an approval, and the place of its step in the outermost list of steps."""

    call: CallOf
    top: Where


def hold(whole: Resolved, rights: Rights, annotations_of: AnnotationsOf) -> None:
    """Raise PlanRefused unless the caller may run this definition."""
    problems = refusals(whole, rights, annotations_of)
    if problems:
        raise PlanRefused(problems)


def refusals(whole: Resolved, rights: Rights, annotations_of: AnnotationsOf) -> tuple[Problem, ...]:
    """Every reason why the caller may not run this definition."""
    if not rights.are_limited:
        return ()
    report = whole.spec.origin.report()
    _hidden_workflows(whole, rights, report)
    _forbidden_tools(whole, rights, report)
    if not rights.skips_gate:
        _missing_gate(whole, annotations_of, report)
    return tuple(report.problems)


def calls_destructive(whole: Resolved, annotations_of: AnnotationsOf) -> bool:
    return any(_is_destructive(call, annotations_of) for call in calls_in(whole))


# ------------------------------------------------------------------------------------------------- what it names


def refused_name(spec: Definition, rights: Rights) -> tuple[Problem, ...]:
    """A run is listed, counted and awaited by the name of its definition, so a caller may not borrow the name of a workflow that
    it does not see, and would not find its own run either."""
    if rights.sees(spec.name):
        return ()
    report = spec.origin.report()
    message = f"this caller may not run a workflow with the name {quoted(spec.name)}"
    near = _seen_name(spec.name, rights)
    patch = NO_PATCH if near is None else put(("name",), near)
    report.add("workflow_not_allowed", ("name",), message, _allowed(rights.workflows), patch=patch)
    return tuple(report.problems)


def _seen_name(name: str, rights: Rights) -> str | None:
    """A name that the caller sees, made from its patterns. One that says how names begin or end is tried first, because a name
    without a wildcard belongs to a workflow that may be published."""
    for pattern in sorted(rights.workflows or (), key=lambda one: ("*" not in one, one)):
        made = pattern.replace("*", name, 1).replace("*", "").replace("?", "x")
        if rights.sees(made):
            return made
    return None


def _hidden_workflows(whole: Resolved, rights: Rights, report: Report) -> None:
    for path, step in step_paths(whole.spec):
        name = named_workflow(step.what)
        if name is not None and not rights.sees(name):
            key = "flow" if isinstance(step.what, FlowNode) else "workflow"
            message = f"step {quoted(path)}: this caller may not use the workflow {quoted(name)}"
            report.add("workflow_not_allowed", (*step.at, key), message, _allowed(rights.workflows))


def _forbidden_tools(whole: Resolved, rights: Rights, report: Report) -> None:
    for call in calls_in(whole):
        if not rights.allows(call.target):
            what = "service" if call.kind == "service" else "tool"
            message = f"step {quoted(call.path)}: this caller may not use the {what} {quoted(call.target)}"
            report.add("tool_not_allowed", call.at, message, _allowed(rights.tools, call.target))
    for path, at in _computed(whole):
        if not rights.allows("*"):
            message = f"step {quoted(path)}: its services are computed by the run, so they cannot be checked"
            report.add("tool_not_allowed", at, message, "name them in parallel_services")


def _allowed(names: frozenset[str] | None, wanted: str = "") -> str:
    known = sorted(names or ())
    near = did_you_mean(wanted, known) if wanted else ""
    return near or (f"it may use {one_of(known)}" if known else "it may use none")


def _computed(whole: Resolved, prefix: str = "") -> Iterator[tuple[str, Where]]:
    """The nodes that get the names of their services from data."""
    if isinstance(whole.spec, FlowSpec):
        for at, node in placed(whole.spec.graph):
            if node.kind == "parallel" and not node.parallel_services:
                yield f"{prefix}{node.key}", at
    for name, used in whole.uses.items():
        for path, _ in _computed(used, f"{name}."):
            yield path, ()


# ------------------------------------------------------------------------------------------------------- the gate


def _missing_gate(whole: Resolved, annotations_of: AnnotationsOf, report: Report) -> None:
    found = [one for one in _ungated(whole) if _is_destructive(one.call, annotations_of)]
    if not found:
        return
    calls = ", ".join(_named(one.call, annotations_of) for one in found[:CALLS_SHOWN_MAX])
    more = f" and {len(found) - CALLS_SHOWN_MAX} more" if len(found) > CALLS_SHOWN_MAX else ""
    message = f"a destructive tool needs an approval before it: {calls}{more}"
    first = found[0]
    spec = whole.spec
    if isinstance(spec, FlowSpec):
        hint = "write it in the steps notation, with a step `kind: approve` before it; a condition of a graph is no approval"
        report.add("approval_missing", first.call.at, message, hint)
        return
    hint = "put a step `kind: approve` before it, at the same level or around it"
    report.add("approval_missing", first.call.at, message, hint, patch=lambda: _gates(found, spec))


def _named(call: CallOf, annotations_of: AnnotationsOf) -> str:
    strange = ", which is not known here" if annotations_of(call.target) is None else ""
    return f"{call.path} ({call.target}{strange})"


def _gates(found: list[_Ungated], spec: WorkflowSpec) -> Patch:
    """One approval in each outermost list of steps, before the first step that needs it: it is before all that follow there."""
    ids = {step.id for _, step in steps.every_step(spec)}
    first: dict[Where, _Ungated] = {}
    for one in found:
        first.setdefault(one.top[:-1], one)
    return tuple(operation for one in first.values() for operation in _gate(one, ids))


def _gate(one: _Ungated, ids: set[str]) -> Patch:
    own = GATE if GATE not in ids else unique(GATE, ids)
    ids.add(own)
    prompt = f"Allow the step {one.call.path} to call {one.call.target}, and what follows?"
    return put(one.top, {"id": own, "kind": "approve", "prompt": prompt})


def _is_destructive(call: CallOf, annotations_of: AnnotationsOf) -> bool:
    """Services do not say what they do. A tool that is not known here may turn out to be anything."""
    if call.kind == "service":
        return False
    said = annotations_of(call.target)
    return said is None or bool(said.destructive)


def _ungated(whole: Resolved) -> Iterator[_Ungated]:
    if isinstance(whole.spec, FlowSpec):
        for path, step in step_paths(whole.spec):
            for call in _calls_of(path, step.at, step.what, whole.uses):
                yield _Ungated(call, step.at)
    else:
        yield from _of_list(whole.spec.steps, "", ("steps",), 0, whole.uses, None)
        for block in steps.handlers(whole.spec):
            yield from _of_list(block.steps, "", block.key, 0, whole.uses, None)


def _of_list(
    items: Iterable[WorkflowStep],
    prefix: str,
    at: Where,
    first: int,
    uses: Mapping[str, Resolved],
    top: Where | None,
) -> Iterator[_Ungated]:
    """The calls of a list of steps up to its first approval; whatever follows that is approved."""
    for i, step in enumerate(items, first):
        place = (*at, i)
        outermost = place if top is None else top
        path = join(prefix, segment(step.id)) if prefix else segment(step.id)
        for call in _calls_of(path, place, step, uses):
            yield _Ungated(call, outermost)
        for block in steps.blocks(step):
            inside = prefix if block.role else f"{path}[{block.number}]" if block.indexed else path
            yield from _of_list(block.steps, inside, (*place, *block.key), block.first, uses, outermost)
        if asks_person(step) and step.when is None and step.on_error is None:
            return


def _calls_of(
    path: str, at: Where, what: WorkflowStep | FlowNode, uses: Mapping[str, Resolved]
) -> Iterator[CallOf]:
    """What a step itself calls, and what the workflow that it runs calls without an approval of its own."""
    for kind, target in (*targets_of(what), *undone_by(what)):
        yield CallOf(path, at, kind, target)
    name = named_workflow(what)
    if name is not None and name in uses:
        for inner in _ungated(uses[name]):
            yield inner.call._replace(path=join(path, inner.call.path), at=at)
