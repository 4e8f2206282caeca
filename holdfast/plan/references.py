"""References in the steps notation: what a name in a template or JSONPath refers to, and which outputs can be referred to.

Knows which names are visible in a scope. Does not know how an expression is evaluated (plan/expr).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.plan import conditions, expr, templates
from holdfast.plan.view import Evaluate, View
from holdfast.spec.condition import paths_in
from holdfast.spec.expr import JsonPath, Member, Ref, Text, compiled, parse_jsonpath, parse_template, refs_in
from holdfast.spec.scope import Scope
from holdfast.spec.step_kinds import KINDS
from holdfast.spec.steps import (
    Block,
    Condition,
    ForeachBody,
    ParallelBody,
    WorkflowStep,
    blocks,
    bodies,
    every_step,
    handlers,
)
from holdfast.spec.work import Work
from holdfast.spec.workflow import WorkflowSpec


class Names:
    """Collects the ids of all steps whose output an expression can refer to."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self.found: set[str] = set()
        scope = Scope.of(spec)
        self._visit(spec.steps, scope)
        self._templates(spec.output, scope)
        for block in handlers(spec):
            self._visit_block(block, scope.following(None, block))
            for step in block.steps:
                scope.finish(step)
        self._close_over({step.id: step for _, step in every_step(spec)})

    def _visit(self, steps: Iterable[WorkflowStep], scope: Scope) -> None:
        for step in steps:
            self._templates(templates_of(step), scope)
            for path in paths_of(step):
                self._path(parse_jsonpath(path), scope)
            if step.compensate is not None:
                self._templates(undo_templates_of(step), scope.undoing())
            for block in blocks(step):
                self._visit_block(block, scope.inside(step, block))
            scope.finish(step)

    def _visit_block(self, block: Block, scope: Scope) -> None:
        self._visit(block.steps, scope)
        if block.role == "on_error" and block.steps:
            self.found.add(block.steps[-1].id)  # its output becomes that of the step that failed

    def _templates(self, value: Any, scope: Scope) -> None:
        for text in texts_in(value):
            for ref in refs_in(parse_template(text)):
                self._name((ref.root, *ref.parts), scope)

    def _path(self, path: JsonPath, scope: Scope) -> None:
        for members in path.reads:
            self._name(members, scope)

    def _name(self, members: tuple[Member, ...], scope: Scope) -> None:
        source = source_of(members, scope)
        if source is None:  # it searches the whole document, so it may refer to any output
            self.found |= scope.step_ids()
        elif source.kind == "step":
            self.found.add(str(members[1] if members[0] == "steps" else members[0]))

    def _close_over(self, steps: dict[str, WorkflowStep]) -> None:
        """Include the steps directly inside a fan-out, whose outputs form its output."""
        todo = list(self.found)
        while todo:
            step = steps[todo.pop()]
            if is_joined(step):
                inner = {one.id for block in bodies(step) for one in block.steps} - self.found
                self.found |= inner
                todo.extend(inner)


def is_joined(step: WorkflowStep) -> bool:
    """Return whether the output of a step consists of the outputs of the steps inside it."""
    body = step.body
    return isinstance(body, ParallelBody) or (isinstance(body, ForeachBody) and body.collect == "outputs")


def paths_of(step: WorkflowStep) -> Iterator[str]:
    """Return all JSONPaths of a step that refer to values of the run."""
    for condition in (step.when, *KINDS[step.kind].values(step.body, "paths").values()):
        if isinstance(condition, str):
            yield condition
        elif condition is not None:
            yield from (text for _, text in paths_in(condition, ()))


def templates_of(step: WorkflowStep) -> list[Any]:
    """Return all templates of a step."""
    own = KINDS[step.kind].values(step.body, "templates", "arguments")
    return [*own.values(), step.policy.idempotency_key]


def undo_templates_of(step: WorkflowStep) -> list[Any]:
    """Return all templates of a step's compensation, which has a scope of its own."""
    undo = step.compensate
    return [] if undo is None else [undo.args, undo.input, undo.params]


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from texts_in(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from texts_in(member)


# ------------------------------------------------------------------------------------------------ names → sources


def source_of(members: tuple[Member, ...], scope: Scope) -> expr.Source | None:
    """Return the value that a path starts from; None if it starts from the whole document or from nothing."""
    if not members:
        return None
    root, rest = str(members[0]), members[1:]
    if (bound := scope.bound(root)) is not None:
        return expr.Source("vars", (bound.variable, *rest), bound.depth)
    if root == "inputs":
        return _inputs_source(rest, scope)
    if root == "env":
        return expr.Source("env", rest)
    if root == "steps":
        return _step_source(rest, scope)
    kind = scope.lookup(root)
    if kind == "binding":
        depth = scope.binding(root)
        assert depth is not None
        return expr.Source("item", rest, depth)
    if kind == "input":
        return _inputs_source(members, scope)
    return _of_step(root, rest, scope) if kind == "step" else None


def _inputs_source(members: tuple[Member, ...], scope: Scope) -> expr.Source:
    """Return the source of `inputs`. For a nested workflow this is the item of its frame."""
    return expr.Source("item", members, scope.top) if scope.top else expr.Source("inputs", members)


def path_source(members: tuple[Member, ...], scope: Scope) -> expr.Source | None:
    """Return the source for a JSONPath, which distinguishes names from indices."""
    source = source_of(members, scope)
    return None if source is None else msgspec.structs.replace(source, strict=True)


def _step_source(members: tuple[Member, ...], scope: Scope) -> expr.Source | None:
    """`steps.<id>.output…` or `steps.<id>.file_refs…`"""
    if len(members) < 2 or members[1] not in ("output", "file_refs"):
        return None
    rest = members[2:] if members[1] == "output" else members[1:]
    return _of_step(str(members[0]), rest, scope)


def _of_step(step_id: str, members: tuple[Member, ...], scope: Scope) -> expr.Source | None:
    address = scope.step(step_id)
    return None if address is None else expr.Source("step", members, address.depth, address.tail)


def document_of(scope: Scope) -> expr.Document:
    """Return the whole document that an expression can see, in search order: the inputs, then the steps by id.

    Bare names, loop variables and `file_refs` of a step are aliases of values in it.
    """
    members: list[tuple[tuple[Member, ...], expr.Source, bool]] = [
        (("inputs",), _inputs_source((), scope), False)
    ]
    for step_id in sorted(scope.step_ids()):
        for part in ("output", "file_refs"):
            source = _step_source((step_id, part), scope)
            assert source is not None
            members.append((("steps", step_id, part), source, part == "file_refs"))
    bare = sorted((scope.names() | {"item"}) - {"inputs", "steps"})
    sources = ((name, source_of((name,), scope)) for name in bare)
    members += [((name,), source, True) for name, source in sources if source is not None]
    return expr.Document(tuple(members))


def template_of(value: Any, scope: Scope) -> Any:
    """Resolve the leaves of JSON data that contains templates."""
    if isinstance(value, str):
        parsed = parse_template(value)
        if isinstance(parsed, Ref):
            return _leaf(parsed, scope)
        if isinstance(parsed, Text):
            return templates.Text(
                tuple(part if isinstance(part, str) else _leaf(part, scope) for part in parsed.parts)
            )
        return value
    if isinstance(value, dict):
        return {key: template_of(member, scope) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [template_of(member, scope) for member in value]
    return value


def _leaf(ref: Ref, scope: Scope) -> templates.Leaf:
    if ref.root == "secrets":
        return expr.Secret(".".join(map(str, ref.parts)))
    members = (ref.root, *ref.parts)
    return source_of(members, scope) or expr.Lookup(document_of(scope), members)


def evaluated(text: str, scope: Scope) -> Evaluate:
    """Return a JSONPath as a closure: a direct accessor if it names a single place, otherwise a search."""
    path = parse_jsonpath(text)
    if path.singular is not None:
        source = path_source(path.singular, scope)
        if source is not None:
            return expr.members_all(source) if path.star else expr.evaluate(source)
    return expr.search(document_of(scope), compiled(path), path.reads)


def condition_of(given: Condition, scope: Scope) -> Evaluate:
    """Return a condition as a closure: the value that a JSONPath finds, or whether a comparison holds."""
    if isinstance(given, str):
        return evaluated(given, scope)
    holds = conditions.condition(given)
    places = {text: evaluated(text, scope) for _, text in paths_in(given, ())}

    def is_true(view: View) -> bool:
        work = Work()
        try:
            return holds(lambda place: places[place.text](view), work)
        finally:
            view.worked += work.spent

    return is_true
