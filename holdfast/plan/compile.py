"""Compile a definition to a plan, with the definitions it refers to. The last module that sees both notations.

steps.py compiles the steps notation and flow.py graphs; every difference between them becomes a field of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.plan import flow, steps, templates
from holdfast.plan.graph import KEEP_NAMED, KEEP_NOTHING, KEEP_RESULT, Block, Plan
from holdfast.plan.nested import Inner, NestedOf
from holdfast.plan.references import template_of, templates_of, texts_in, undo_templates_of
from holdfast.plan.timers import millis
from holdfast.plan.view import Render
from holdfast.spec.expr import parse_template, refs_in
from holdfast.spec.flow import FlowSpec
from holdfast.spec.inputs import Inputs
from holdfast.spec.notation import Definition
from holdfast.spec.scope import Scope
from holdfast.spec.steps import (
    NestedBody,
    every_step,
)
from holdfast.spec.workflow import WorkflowSpec
from holdfast.values import canonical, sha256


class Resolved(NamedTuple):
    """A definition together with the definitions it refers to, by name. A run is pinned to this when it starts."""

    spec: Definition
    uses: Mapping[str, Resolved]

    @property
    def version(self) -> str:
        """The hash of a definition and of all definitions it refers to."""
        if not self.uses:
            return sha256(self.spec.canonical())
        return sha256(self.spec.canonical() + canonical(self.versions))

    @property
    def versions(self) -> dict[str, str]:
        return {name: used.version for name, used in self.uses.items()}


def names_used(spec: Definition) -> set[str]:
    """Return the names of the workflows that a definition refers to."""
    if isinstance(spec, FlowSpec):
        return set(spec.names)
    return {step.body.workflow for _, step in every_step(spec) if isinstance(step.body, NestedBody)}


def compile_definition(spec: Definition, uses: Mapping[str, Resolved] | None = None) -> Plan:
    """Compile a valid definition, in either notation, and the definitions it refers to."""
    return compile_flow(spec, uses) if isinstance(spec, FlowSpec) else compile_workflow(spec, uses)


def compile_flow(spec: FlowSpec, uses: Mapping[str, Resolved] | None = None) -> Plan:
    whole = Resolved(spec, uses or {})
    root = flow.block_of(spec.graph, 0, _nested_of(whole.uses))
    advice = "return file_refs, or use fewer items"
    return _plan(whole, root, flow.output_of(0), keeps_result=False, has_vars=True, advice=advice)


def compile_workflow(spec: WorkflowSpec, uses: Mapping[str, Resolved] | None = None) -> Plan:
    """Compile a valid definition in the steps notation, and the definitions it refers to."""
    whole = Resolved(spec, uses or {})
    keeps_result = spec.output is None
    scope = Scope.of(spec)
    top = KEEP_RESULT if keeps_result else KEEP_NOTHING
    root = steps.block_of(spec, scope, top, _nested_of(whole.uses))
    output = None if spec.output is None else templates.render(template_of(spec.output, scope))
    return _plan(
        whole, root, output, keeps_result=keeps_result, advice="use collect: none, or return file_refs"
    )


def _plan(
    whole: Resolved,
    root: Block,
    output: Render | None,
    *,
    keeps_result: bool,
    has_vars: bool = False,
    advice: str,
) -> Plan:
    spec = whole.spec
    return Plan(
        name=spec.name,
        version=whole.version,
        root=root,
        output=output,
        keeps_result=keeps_result,
        has_vars=has_vars,
        asks_workers=root.asks_workers,
        timeout_ms=millis(spec.timeout_secs),
        interrupted_by_restart=spec.on_restart == "interrupt",
        steps_total=_steps_total(whole),
        env=_named_in(whole, "env"),
        secrets=_named_in(whole, "secrets"),
        advice_when_too_large=advice,
    )


def _steps_total(whole: Resolved) -> int:
    """Count every step once, including those of nested workflows."""
    if isinstance(whole.spec, FlowSpec):
        return flow.node_count(whole.spec.graph) + sum(map(_steps_total, whole.uses.values()))
    total = 0
    for _, step in every_step(whole.spec):
        total += 1
        if isinstance(step.body, NestedBody):
            total += _steps_total(whole.uses[step.body.workflow])
    return total


def _named_in(whole: Resolved, root: str) -> tuple[str, ...]:
    """Return the names under `env` or `secrets` in all templates, including those of nested workflows."""
    spec, names = whole.spec, set[str]()
    if isinstance(spec, WorkflowSpec):
        every = [templates_of(step) + undo_templates_of(step) for _, step in every_step(spec)]
        texts = texts_in([spec.output, *every])
        refs = (ref for text in texts for ref in refs_in(parse_template(text)))
        names = {str(ref.parts[0]) for ref in refs if ref.root == root and ref.parts}
    return tuple(sorted(names.union(*(_named_in(used, root) for used in whole.uses.values()))))


def _inner(used: Resolved, depth: int, keep: int) -> Inner:
    """Compile a definition that runs inside another one, in the frame at `depth`."""
    child = used.spec
    fill, timeout_ms = Inputs(child.inputs).filled, millis(child.timeout_secs)
    if isinstance(child, FlowSpec):
        block = flow.block_of(child.graph, depth, _nested_of(used.uses))
        return Inner(child.name, block, flow.output_of(depth, refers=False), fill, timeout_ms)
    inside = Scope.of(child, depth)
    kept = keep if child.output is None else KEEP_NOTHING
    block = steps.block_of(child, inside, kept, _nested_of(used.uses))
    output = (
        None if child.output is None else templates.render(template_of(child.output, inside), refers=False)
    )
    return Inner(child.name, block, output, fill, timeout_ms)


def _nested_of(uses: Mapping[str, Resolved]) -> NestedOf:
    return lambda name, depth, keep=KEEP_NAMED: _inner(uses[name], depth, keep)
