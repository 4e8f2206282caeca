"""What a definition would do: its tree of steps, the tools that it calls, and how they are marked. Nothing is executed.

    definition and those it names ──► blocks of nodes, edges ──► tools touched, with the steps that call them ──► plan_hash

Knows both notations. Must not know runs. The hash changes with anything that a reader of the plan would want to see again: the
definition, those that it names, and the marks of the tools that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from holdfast.plan.compile import Resolved
from holdfast.plan.graph import COMPENSATE
from holdfast.spec import steps
from holdfast.spec.document import pointer_to
from holdfast.spec.flow import FlowSpec
from holdfast.spec.flow_nodes import DEFAULT_ACTION, END, FlowNode, Graph, NodeCompensation
from holdfast.spec.notation import Definition
from holdfast.spec.step_kinds import KINDS, CallKind, Target
from holdfast.spec.steps import NestedBody, WorkflowStep
from holdfast.tools.annotations import Annotations
from holdfast.values import canonical, join, segment, sha256

AnnotationsOf = Callable[
    [str], Annotations | None
]  # of a tool, by its name or server/name; None if it is not known here
Where = tuple[str | int, ...]


class Edge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """Which node follows which; `to` is empty at the end, and `on` is the action that leads there."""

    source: str
    target: str
    on: str = ""


class Node(msgspec.Struct, frozen=True):
    """A step. `does` names what it calls or waits for; `blocks` are the steps inside it."""

    name: str
    kind: str
    does: str
    line: int
    blocks: list[Block]


class Block(msgspec.Struct, frozen=True):
    """Steps that belong together; `of` is the key that they stand under in their step."""

    nodes: list[Node]
    edges: list[Edge]
    of: str = ""


class ToolUse(msgspec.Struct, frozen=True):
    """A tool or service that the definition calls, and the paths of the steps that call it. A mark is null if it is not known."""

    name: str
    kind: CallKind
    steps: list[str]
    destructive: bool | None
    read_only: bool | None
    idempotent: bool | None
    is_known: bool


class Outline(msgspec.Struct, frozen=True):
    workflow: str
    version: str
    plan_hash: str
    block: Block
    tools: list[ToolUse]
    workflows: list[str]
    destructive: bool  # whether any tool is marked as destructive
    approvals: list[str]  # the paths of the steps that wait for approval
    handlers: list[Block] = []  # the steps that follow a failure, and the end, of the whole run


class CallOf(NamedTuple):
    """A call of a tool or service: the path of its step, its place in the data, and what it calls."""

    path: str
    at: Where
    kind: CallKind
    target: str


def outline_of(whole: Resolved, annotations_of: AnnotationsOf) -> Outline:
    """What a definition, with those that it names, would do."""
    tools = tools_of(whole, annotations_of)
    marks = [[use.name, use.kind, use.destructive, use.read_only] for use in tools]
    return Outline(
        workflow=whole.spec.name,
        version=whole.version,
        plan_hash=sha256(canonical({"version": whole.version, "tools": marks})),
        block=_top(whole),
        tools=tools,
        workflows=sorted(_workflows(whole)),
        destructive=any(use.destructive for use in tools),
        approvals=[path for path, step in step_paths(whole.spec) if asks_person(step.what)],
        handlers=_handler_blocks(whole),
    )


def tools_of(whole: Resolved, annotations_of: AnnotationsOf) -> list[ToolUse]:
    """The tools and services that are called, in the order of the first step that calls each."""
    found: dict[Target, list[str]] = {}
    for call in calls_in(whole):
        found.setdefault((call.kind, call.target), []).append(call.path)
    return [_use(kind, name, paths, annotations_of) for (kind, name), paths in found.items()]


def _use(kind: CallKind, name: str, paths: list[str], annotations_of: AnnotationsOf) -> ToolUse:
    marks = None if kind == "service" else annotations_of(name)
    said = marks or Annotations()
    return ToolUse(
        name,
        kind,
        paths,
        said.destructive,
        said.read_only,
        said.idempotent,
        kind == "service" or marks is not None,
    )


def calls_in(whole: Resolved, prefix: str = "") -> Iterable[CallOf]:
    """Every call, also those of nested workflows, whose place is that of the step that runs them."""
    for path, step in step_paths(whole.spec, prefix):
        for kind, target in targets_of(step.what):
            yield CallOf(path, step.at, kind, target)
        for kind, target in undone_by(step.what):
            yield CallOf(f"{path}.{COMPENSATE}", (*step.at, COMPENSATE), kind, target)
        nested = named_workflow(step.what)
        if nested is not None and nested in whole.uses:
            for call in calls_in(whole.uses[nested], path):
                yield call._replace(at=step.at)


def kinds_in(whole: Resolved, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Every step with its kind, also those of nested workflows."""
    for path, step in step_paths(whole.spec, prefix):
        yield path, step.kind
        nested = named_workflow(step.what)
        if nested is not None and nested in whole.uses:
            yield from kinds_in(whole.uses[nested], path)


# ------------------------------------------------------------------------------------------------- both notations


class _Step(NamedTuple):
    kind: str
    at: Where
    what: WorkflowStep | FlowNode


def step_paths(spec: Definition, prefix: str = "") -> Iterable[tuple[str, _Step]]:
    """Every step with its path; an index is left out where it is not known before a run."""
    if isinstance(spec, FlowSpec):
        yield from _of_graph(spec.graph, prefix, ())
    else:
        yield from _of_steps(spec.steps, prefix, ("steps",))
        for block in steps.handlers(spec):
            yield from _of_steps(block.steps, prefix, block.key)


def _of_steps(
    items: Iterable[WorkflowStep], prefix: str, at: Where, first: int = 0
) -> Iterable[tuple[str, _Step]]:
    for i, step in enumerate(items, first):
        path = join(prefix, segment(step.id)) if prefix else segment(step.id)
        yield path, _Step(step.kind, (*at, i), step)
        for block in steps.blocks(step):
            inside = prefix if block.role else f"{path}[{block.number}]" if block.indexed else path
            yield from _of_steps(block.steps, inside, (*at, i, *block.key), block.first)


def _of_graph(graph: Graph, prefix: str, at: Where) -> Iterable[tuple[str, _Step]]:
    for key, node in graph.nodes.items():
        path = join(prefix, segment(key)) if prefix else segment(key)
        place = (*at, "nodes", key)
        yield path, _Step(node.kind, place, node)
        if node.subflow is not None:
            yield from _of_graph(node.subflow, path, (*place, "subflow"))


def targets_of(what: WorkflowStep | FlowNode) -> Iterable[Target]:
    """What a step calls."""
    return _targets_of_node(what) if isinstance(what, FlowNode) else KINDS[what.kind].calls(what.body)


def asks_person(what: WorkflowStep | FlowNode) -> bool:
    return what.kind == "approval" if isinstance(what, FlowNode) else KINDS[what.kind].asks_person


def undone_by(what: WorkflowStep | FlowNode) -> Iterable[Target]:
    """What a compensation calls."""
    undo = what.compensate
    if isinstance(undo, NodeCompensation):
        yield "tool" if what.kind == "local" else "service", undo.service
    elif undo is not None and undo.service is not None:
        yield "service", undo.service
    elif undo is not None and undo.tool is not None:
        yield "remote" if "/" in undo.tool else "tool", undo.tool


def _targets_of_node(node: FlowNode) -> Iterable[Target]:
    if node.kind == "local" and node.service is not None:
        yield "tool", node.service
    elif node.service is not None:
        yield "service", node.service
    for service in node.parallel_services or ():
        yield "service", service


def named_workflow(what: WorkflowStep | FlowNode) -> str | None:
    if isinstance(what, FlowNode):
        return what.flow
    return what.body.workflow if isinstance(what.body, NestedBody) else None


def _workflows(whole: Resolved) -> set[str]:
    return {*whole.uses, *(name for used in whole.uses.values() for name in _workflows(used))}


# ------------------------------------------------------------------------------------------------------ the tree


def _top(whole: Resolved, of: str = "") -> Block:
    line_of = _lines(whole.spec)
    if isinstance(whole.spec, FlowSpec):
        return _graph_block(whole.spec.graph, (), whole.uses, line_of, of)
    return _steps_block(whole.spec.steps, ("steps",), 0, whole.uses, line_of, of)


def _handler_blocks(whole: Resolved) -> list[Block]:
    if isinstance(whole.spec, FlowSpec):
        return []
    line_of = _lines(whole.spec)
    return [
        _steps_block(block.steps, block.key, 0, whole.uses, line_of, str(block.key[0]))
        for block in steps.handlers(whole.spec)
    ]


def _lines(spec: Definition) -> Callable[[Where], int]:
    document = spec.origin.document
    return (lambda at: document.mark(pointer_to(at))[0]) if document else (lambda at: 0)


def _steps_block(
    items: Iterable[WorkflowStep],
    at: Where,
    first: int,
    uses: Mapping[str, Resolved],
    line_of: Callable[[Where], int],
    of: str,
) -> Block:
    nodes = []
    for i, step in enumerate(items, first):
        inner = [
            _steps_block(block.steps, (*at, i, *block.key), block.first, uses, line_of, str(block.key[0]))
            for block in steps.blocks(step)
            if block.steps
        ]
        nodes.append(
            Node(
                step.id,
                step.kind,
                _does(step),
                line_of((*at, i)),
                inner + _nested_blocks(named_workflow(step), uses),
            )
        )
    edges = [Edge(before.name, after.name) for before, after in pairwise(nodes)]
    return Block(nodes, edges, of)


def _graph_block(
    graph: Graph, at: Where, uses: Mapping[str, Resolved], line_of: Callable[[Where], int], of: str
) -> Block:
    nodes = []
    for key, node in graph.nodes.items():
        place = (*at, "nodes", key)
        inner = (
            []
            if node.subflow is None
            else [_graph_block(node.subflow, (*place, "subflow"), uses, line_of, "subflow")]
        )
        nodes.append(
            Node(key, node.kind, _does_node(node), line_of(place), inner + _nested_blocks(node.flow, uses))
        )
    edges = [Edge(edge.source, edge.target, edge.action) for edge in graph.edges]
    return Block(nodes, [Edge(END, graph.start, DEFAULT_ACTION), *edges], of)


def _nested_blocks(name: str | None, uses: Mapping[str, Resolved]) -> list[Block]:
    if name is None or name not in uses:
        return []
    return [_top(uses[name], "workflow"), *_handler_blocks(uses[name])]


def _does(step: WorkflowStep) -> str:
    """What a step calls, waits for or works on, in a word."""
    kind = KINDS[step.kind]
    called = [target for _, target in kind.calls(step.body)]
    return called[0] if called else kind.subject(step.body)


def _does_node(node: FlowNode) -> str:
    called = [target for _, target in _targets_of_node(node)]
    if called:
        return ", ".join(called)
    shown: Any = node.flow or next(
        (value for key, value in node.params.items() if key.endswith(("_key", "_ms"))), ""
    )
    return str(shown)
