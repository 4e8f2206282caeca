"""Compile a graph to a block: nodes joined by the actions that lead from one to the next.

    prep  ──► the input of a node         post ──► the variables it writes, and its action
    edges ──► where each action leads, where a failure does, and which nodes can be visited again

Knows the graph notation, as steps.py knows the steps notation. Every rule of the notation (a missing value is null, a node's
params override the task's, failures take a `default` edge too) becomes a field or closure of a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

from holdfast import limits
from holdfast.plan import composed, templates
from holdfast.plan.answers import answer_of
from holdfast.plan.composed import TooLarge, printed
from holdfast.plan.expr import Source
from holdfast.plan.flow_after import post_of
from holdfast.plan.flow_fan_out import CALL, gatherer, items_of, results_of, services_of
from holdfast.plan.flow_values import Resolver, expr_of
from holdfast.plan.graph import (
    COMPENSATE,
    END,
    FAIL,
    KEEP_NAMED,
    Around,
    Block,
    Call,
    Condition,
    FanOut,
    Guard,
    Joint,
    KeyRule,
    Nested,
    Node,
    PendingRule,
    Post,
    Routes,
    ServiceRule,
    Timer,
    Undo,
    Value,
    rendered_before,
)
from holdfast.plan.nested import Inner, NestedOf
from holdfast.plan.view import ItemsOf, Render, View
from holdfast.spec.flow_nodes import DEFAULT_ACTION, Edge, FlowNode, Graph, NodeCompensation, reached_from
from holdfast.spec.policy import BackoffKind, RetryPolicy
from holdfast.spec.reference import key_parts, reference
from holdfast.spec.scope import OUTPUT
from holdfast.values import Millis, NotJson, encode, segment

CALL_TIMEOUT_MS: Final = 10_000  # for one call to a worker, unless the node sets another


def block_of(graph: Graph, depth: int, nested: NestedOf) -> Block:
    """Compile a graph to the block that runs in the frame at `depth`."""
    builder = _Builder(depth, nested)
    final = reached_from(graph, graph.finally_) if graph.finally_ else set()
    ends = {key: _ENDED if key in final else _FINAL if final else END for key in graph.nodes}
    edges: dict[str, dict[str, str]] = {}
    for edge in graph.edges:
        target = segment(edge.target) if edge.target else ends[edge.source]
        edges.setdefault(edge.source, {})[edge.action] = target
    nodes = {
        segment(key): builder.node(node, edges.get(key, {}), ends[key]) for key, node in graph.nodes.items()
    }
    again = frozenset(map(segment, met_again(graph.nodes, graph.edges)))
    if not final:
        return Block(nodes, segment(graph.start), again)
    first = segment(graph.finally_)
    return Block(
        nodes,
        segment(graph.start),
        again,
        guard=Guard(final=first),
        parts={segment(key): ("", "finally") for key in final},
        joints={_FINAL: Joint("", "final", Routes(first)), _ENDED: Joint("", "ended", Routes(END))},
    )


_FINAL, _ENDED = "/final", "/ended"  # no key of a node is written so in a path


def output_of(depth: int, *, refers: bool = True) -> Render:
    """Return the output of a graph: its variables."""
    return templates.all_vars(depth, refers=refers)


def node_count(graph: Graph) -> int:
    inner = sum(node_count(node.subflow) for node in graph.nodes.values() if node.subflow is not None)
    return len(graph.nodes) + inner


class _Builder:
    def __init__(self, depth: int, nested: NestedOf) -> None:
        self._depth, self._nested = depth, nested
        self._task = Source("item", (), depth) if depth else Source("inputs", ())

    def node(self, node: FlowNode, edges: Mapping[str, str], end: str) -> Node:
        resolver = Resolver(node, self._depth, self._task)
        rules = _Rules(node.key, _routes(edges, end), post_of(node, edges, resolver))
        match node.kind:
            case "executor" | "local":
                return self._call(node, rules, resolver, resolver.prep, node.service or "")
            case "choice":
                return Value(*rules[:2], templates.render(resolver.prep, refers=False), post=rules.post)
            case "timer":
                shown = templates.render(resolver.prep, refers=False)
                return Timer(*rules[:2], _due(resolver), lambda view, at: shown(view), post=rules.post)
            case "foreach":
                items = items_of(expr_of(resolver.prep))
                child = self._call(node, _INNER, resolver, self._item, node.service or "")
                return _fan_out(node, rules, items, child)
            case "parallel":
                child = self._call(node, _INNER, resolver, resolver.prep, "", {"service": self._item})
                return _fan_out(node, rules, services_of(node, resolver), child)
            case "subflow":
                assert node.subflow is not None
                block = block_of(node.subflow, self._depth + 1, self._nested)
                inner = Inner("", block, output_of(self._depth + 1, refers=False), None, None)
                return self._inside(node, node.key, inner, rules, resolver)
            case "flow_ref":
                inner = self._nested(node.flow or "", self._depth + 1)
                return self._inside(node, node.flow or "", inner, rules, resolver)
            case "wait_event" | "approval":
                return _condition(node, rules, resolver)
            case _:
                assert_never(node.kind)

    @property
    def _item(self) -> Source:
        """The item of a child of a fan-out in this block."""
        return Source("item", (), self._depth + 1)

    def _inside(self, node: FlowNode, name: str, inner: Inner, rules: _Rules, resolver: Resolver) -> Nested:
        return Nested(
            rules.name,
            rules.routes,
            name,
            inner.block,
            templates.render(resolver.params, refers=False),
            inner.fill,
            inner.output,
            node.timeout_ms or inner.timeout_ms,
            post=rules.post,
            what="flow",
            late="timeout" if node.timeout_ms else "run_timeout",
        )

    def _call(
        self,
        node: FlowNode,
        rules: _Rules,
        resolver: Resolver,
        given: Any,
        target: str,
        more: Mapping[str, Any] | None = None,
    ) -> Call:
        is_local = node.kind == "local"
        limit = CALL_TIMEOUT_MS if node.timeout_ms is None else node.timeout_ms or None
        service = ServiceRule(
            node.max_attempts, node.attempt_delay_ms, node.weighted_by_load, limit, is_given=bool(more)
        )
        return Call(
            name=rules.name,
            routes=rules.routes,
            target=target,
            inputs=templates.render({"input": given, "params": resolver.params, **(more or {})}, levels=1),
            keep=KEEP_NAMED if rules is _INNER else 0,
            retry=_retry(node),
            timeout_ms=(node.timeout_ms or None) if is_local else None,
            key=_key(node, resolver, given),
            answer=None if node.result is None else answer_of(node.result),
            pending=_pending(node),
            service=None if is_local else service,
            post=rules.post,
            spreads=is_local,
            is_plain=False,
            around=None if node.compensate is None else Around(undo=_undo(node, node.compensate, resolver)),
        )


class _Rules(NamedTuple):
    name: str
    routes: Routes
    post: Post | None


_INNER: Final = _Rules(CALL, Routes(END), None)


# -------------------------------------------------------------------------------------------------------- edges


def _undo(node: FlowNode, undo: NodeCompensation, resolver: Resolver) -> Undo:
    """Compile the call that undoes a node: its input is the result of the node."""
    is_local = node.kind == "local"
    call = Call(
        name=node.key,
        routes=Routes(END),
        target=undo.service,
        inputs=rendered_before,
        retry=_retry(node),
        service=None if is_local else ServiceRule(call_timeout_ms=CALL_TIMEOUT_MS),
        spreads=is_local,
        is_plain=False,
    )
    given = {"input": Source("vars", (OUTPUT,), resolver.depth), "params": resolver.of_undo(undo.params)}
    return Undo(
        Block({COMPENSATE: call}, COMPENSATE), templates.render(templates.copied(given), levels=1), OUTPUT
    )


def _routes(edges: Mapping[str, str], end: str) -> Routes:
    """Return the routes of a node: a failure takes `error`, else `default`, else it fails the block."""
    default = edges.get(DEFAULT_ACTION, FAIL)
    error = edges.get("error", default)
    return Routes(end if default is FAIL else default, error, edges.get("timeout", error))


def met_again(nodes: Iterable[str], edges: Sequence[Edge]) -> set[str]:
    """Return the nodes on cycles and between two cycles: the rest after repeatedly removing nodes without successors, then nodes
    without predecessors."""
    left = set(nodes)
    arrows = {(edge.source, edge.target) for edge in edges if {edge.source, edge.target} <= left}
    for pairs in (arrows, {(target, source) for source, target in arrows}):
        before: dict[str, list[str]] = {}
        leads_on = dict.fromkeys(left, 0)
        for source, target in pairs:
            if source in left and target in left:
                before.setdefault(target, []).append(source)
                leads_on[source] += 1
        ends = [key for key, count in leads_on.items() if not count]
        while ends:
            left.discard(end := ends.pop())
            for source in before.get(end, ()):
                leads_on[source] -= 1
                if not leads_on[source]:
                    ends.append(source)
    return left


# ---------------------------------------------------------------------------------------------------- conditions


def _condition(node: FlowNode, rules: _Rules, resolver: Resolver) -> Condition:
    """Build a node that waits until a referenced value exists, checked on entry and after each signal."""
    is_approval = node.kind == "approval"
    named = reference(node.params["approval_key" if is_approval else "signal_key"])
    value_of, given = resolver.value(named), expr_of(resolver.prep)
    limit = resolver.param("timeout_ms")

    def ready(view: View) -> tuple[bool, Any]:
        value = value_of(view, given(view))
        is_decided = isinstance(value, bool) or (isinstance(value, str) and value != "")
        is_there = value is not None and value is not False and value != ""
        return (is_decided if is_approval else is_there), value

    def timeout_ms(view: View) -> int | None:
        said = node.timeout_ms if node.timeout_ms is not None else limit(view)
        return None if not said else max(1, round(_milliseconds(said, "timeout_ms")))

    writes = str(named.members[0]) if named.root == "shared" and len(named.members) == 1 else None
    return Condition(
        *rules[:2], ready, writes if is_approval else None, timeout_ms, post=rules.post, signal_key=writes
    )


# ----------------------------------------------------------------------------------------------- fan-out, timers


def _fan_out(node: FlowNode, rules: _Rules, items: ItemsOf, child: Call) -> FanOut:
    at_once = node.max_parallel or limits.now.concurrency_max
    return FanOut(
        name=rules.name,
        routes=rules.routes,
        blocks=(Block({CALL: child}, CALL),),
        items=items,
        concurrency=at_once if node.parallel_mode == "concurrent" else 1,
        goes_on=True,
        show=results_of,
        count=None,
        noun="call",
        post=rules.post,
        gather=gatherer(node),
        drains=node.failure_strategy == "fail_fast",
    )


def _due(resolver: Resolver) -> Callable[[View, Millis], Millis]:
    delay_of = resolver.param("delay_ms")

    def due(view: View, now: Millis) -> Millis:
        return Millis(now + round(_milliseconds(delay_of(view), "delay_ms")))

    return due


DELAY_MS_MAX: Final = 1_000 * 366 * 86_400_000


def _milliseconds(value: Any, name: str) -> float:
    try:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        said = encode(value).decode()
        raise NotJson(f"{name} must be a number of milliseconds, not {said:.50}") from None
    if number > DELAY_MS_MAX:
        raise NotJson(f"{name} is {value!r:.50} milliseconds, which is more than a thousand years")
    return number


# ------------------------------------------------------------------------------------------------------ policies


def _retry(node: FlowNode) -> RetryPolicy | None:
    if not node.max_retries:
        return None
    return RetryPolicy(
        node.max_retries + 1, BackoffKind.FIXED, initial_delay_ms=node.wait_ms, max_delay_ms=node.wait_ms
    )


def _pending(node: FlowNode) -> PendingRule | None:
    if node.poll is None and node.pending_ttl_secs is None and not node.supports_async_callback:
        return None
    ttl_ms = None if node.pending_ttl_secs is None else max(1, round(node.pending_ttl_secs * 1000))
    poll_ms, poll_ms_max = (None, 0) if node.poll is None else (node.poll.interval_ms, node.poll.max_ms)
    return PendingRule(ttl_ms, poll_ms, poll_ms_max, node.supports_async_callback)


def _key(node: FlowNode, resolver: Resolver, given: Any) -> KeyRule | None:
    if node.idempotency_key is None:
        return None
    parts = [
        part if isinstance(part, str) else resolver.value(part) for part in key_parts(node.idempotency_key)
    ]
    given_of = expr_of(given)

    def text(view: View) -> str:
        value, texts, size = given_of(view), list[str](), 0
        for part in parts:
            texts.append(part if isinstance(part, str) else printed(part(view, value)))
            size += len(texts[-1])
            if size > composed.LIMIT:
                raise TooLarge
        return "".join(texts)

    return KeyRule(text)
