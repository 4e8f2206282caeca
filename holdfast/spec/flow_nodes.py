"""The records of the graph notation, and the shape of the tree that they form.

    FlowDefinition ─► nodes ─► FlowNode ─► subflow ─► Graph ─► nodes ─► …

Knows the fields of nodes and how nodes are nested. Must not know the keys of the text, or what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from holdfast.spec.condition import Expr
from holdfast.spec.problems import Where
from holdfast.spec.steps import Origin, PollRule, ResultRule

NodeKind = Literal[
    "executor",
    "choice",
    "parallel",
    "subflow",
    "flow_ref",
    "timer",
    "foreach",
    "local",
    "wait_event",
    "approval",
]
ParallelMode = Literal["sequential", "concurrent"]
FailureStrategy = Literal["fail_fast", "collect_errors", "ignore_errors"]

DEFAULT_ACTION: Final = "default"  # the edge that is taken if no other matches
END: Final = ""  # the target of an edge that leads to the end


class Prep(msgspec.Struct, frozen=True):
    """The input of a node: one value, or a mapping built from several, which takes precedence."""

    input_key: str | None = None
    input_map: dict[str, Any] | None = None


class Post(msgspec.Struct, frozen=True):
    """What happens to a result: where it is stored, and which action it determines."""

    output_key: str | None = None
    output_map: dict[str, str] | None = None
    action_static: str | None = None
    action_key: str | None = None


class Case(msgspec.Struct, frozen=True):
    action: str
    expr: Expr


class Edge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    source: str
    action: str = DEFAULT_ACTION
    target: str = END


NO_PREP: Final = Prep()
NO_POST: Final = Post()


class NodeCompensation(msgspec.Struct, frozen=True):
    """The call that undoes a completed call if the run does not complete. `$input` in its params is the result of the node."""

    service: str
    params: dict[str, Any] = {}


class FlowNode(msgspec.Struct, frozen=True):
    """A node of any kind. `timeout_ms` and `max_parallel` are 0 for no limit; without `timeout_ms` the default of the
    kind applies."""

    key: str
    kind: NodeKind
    description: str = ""
    service: str | None = None
    params: dict[str, Any] = {}
    prep: Prep = NO_PREP
    post: Post = NO_POST
    default_action: str | None = None
    max_retries: int = 0
    wait_ms: int = 0
    max_attempts: int = 0
    attempt_delay_ms: int = 0
    weighted_by_load: bool = False
    timeout_ms: int | None = None
    choice_cases: tuple[Case, ...] = ()
    parallel_services: tuple[str, ...] | None = None
    parallel_mode: ParallelMode = "sequential"
    max_parallel: int = 0
    failure_strategy: FailureStrategy = "collect_errors"
    subflow: Graph | None = None
    flow: str | None = None
    idempotency_key: str | None = None
    pending_ttl_secs: float | None = None
    poll: PollRule | None = None
    result: ResultRule | None = None
    supports_async_callback: bool = False
    compensate: NodeCompensation | None = None


class Graph(msgspec.Struct, frozen=True, rename={"finally_": "finally"}):
    start: str = ""
    nodes: Mapping[str, FlowNode] = {}
    edges: tuple[Edge, ...] = ()
    finally_: str = ""  # the first node that runs however the others ended


class FlowDefinition(msgspec.Struct, frozen=True, rename={"finally_": "finally"}):
    """Everything that an author can write. A `FlowSpec` adds reading, checking and writing."""

    name: str
    description: str = ""
    inputs: Any = None
    start: str = ""
    nodes: Mapping[str, FlowNode] = {}
    edges: tuple[Edge, ...] = ()
    finally_: str = ""
    on_restart: Literal["resume", "interrupt"] = "resume"
    timeout_secs: float | None = None
    labels: dict[str, str] = {}
    origin: Origin = msgspec.field(default_factory=Origin)

    @property
    def graph(self) -> Graph:
        return Graph(self.start, self.nodes, self.edges, self.finally_)


def reached_from(graph: Graph, first: str) -> set[str]:
    """The nodes that edges lead to from a node, itself included."""
    after: dict[str, list[str]] = {}
    for edge in graph.edges:
        after.setdefault(edge.source, []).append(edge.target)
    seen, todo = set[str](), [first]
    while todo:
        key = todo.pop()
        if key in graph.nodes and key not in seen:
            seen.add(key)
            todo += after.get(key, ())
    return seen


def graphs(graph: Graph, at: Where = ()) -> Iterator[tuple[Where, Graph]]:
    """A graph and all those inside it, each with its place in the data."""
    yield at, graph
    for key, node in graph.nodes.items():
        if node.subflow is not None:
            yield from graphs(node.subflow, (*at, "nodes", key, "subflow"))


def placed(graph: Graph) -> Iterator[tuple[Where, FlowNode]]:
    """All nodes of a graph and of those inside it, each with its place in the data."""
    for at, inner in graphs(graph):
        for key, node in inner.nodes.items():
            yield (*at, "nodes", key), node
