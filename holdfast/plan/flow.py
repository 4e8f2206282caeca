"""Compile a graph to a block: nodes joined by the actions that lead from one to the next.

    prep  ──► the input of a node         post ──► the variables it writes, and its action
    edges ──► where each action leads, where a failure does, and which nodes can be visited again

Knows the graph notation, as steps.py knows the steps notation. Every rule of the notation (a missing value is null, a node's
params override the task's, failures take a `default` edge too) becomes a field or closure of a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Raw

from holdfast import limits
from holdfast.plan import composed, expr
from holdfast.plan.answers import answer_of
from holdfast.plan.composed import TooLarge, printed
from holdfast.plan.conditions import Holds, Lookup, condition
from holdfast.plan.expr import Merged, Source
from holdfast.plan.graph import (
    COMPENSATE,
    END,
    FAIL,
    KEEP_NAMED,
    Around,
    Block,
    Call,
    ChildError,
    Condition,
    Evaluate,
    FanOut,
    Gathered,
    Guard,
    Inner,
    ItemsOf,
    Joint,
    KeyRule,
    Nested,
    NestedOf,
    Node,
    PendingRule,
    Post,
    Render,
    Routes,
    ServiceRule,
    Timer,
    Undo,
    Value,
    View,
    rendered_before,
)
from holdfast.plan.unread import count_items, value_in
from holdfast.spec.flow_nodes import DEFAULT_ACTION, Edge, FlowNode, Graph, NodeCompensation, reached_from
from holdfast.spec.policy import BackoffKind, RetryPolicy
from holdfast.spec.reference import Literal, Reference, given, is_reference, key_parts, reference
from holdfast.spec.scope import OUTPUT
from holdfast.spec.work import Work, read
from holdfast.values import Error, Millis, NotJson, encode, segment, written

CALL_TIMEOUT_MS: Final = 10_000  # of one call to a worker, unless the node says otherwise
CALL: Final = "call"  # the only step of a child of a fan-out


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
    return expr.all_vars(depth, refers=refers)


def node_count(graph: Graph) -> int:
    inner = sum(node_count(node.subflow) for node in graph.nodes.values() if node.subflow is not None)
    return len(graph.nodes) + inner


class _Builder:
    def __init__(self, depth: int, nested: NestedOf) -> None:
        self._depth, self._nested = depth, nested
        self._task = Source("item", (), depth) if depth else Source("inputs", ())

    def node(self, node: FlowNode, edges: Mapping[str, str], end: str) -> Node:
        resolver = _Resolver(node, self._depth, self._task)
        rules = _Rules(node.key, _routes(edges, end), _post(node, edges, resolver))
        match node.kind:
            case "executor" | "local":
                return self._call(node, rules, resolver, resolver.prep, node.service or "")
            case "choice":
                return Value(*rules[:2], expr.render(resolver.prep, refers=False), post=rules.post)
            case "timer":
                shown = expr.render(resolver.prep, refers=False)
                return Timer(*rules[:2], _due(resolver), lambda view, at: shown(view), post=rules.post)
            case "foreach":
                items = _items(expr_of(resolver.prep))
                child = self._call(node, _INNER, resolver, self._item, node.service or "")
                return _fan_out(node, rules, items, child)
            case "parallel":
                child = self._call(node, _INNER, resolver, resolver.prep, "", {"service": self._item})
                return _fan_out(node, rules, _services(node, resolver), child)
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

    @property
    def _item(self) -> Source:
        """The item of a child of a fan-out in this block."""
        return Source("item", (), self._depth + 1)

    def _inside(self, node: FlowNode, name: str, inner: Inner, rules: _Rules, resolver: _Resolver) -> Nested:
        return Nested(
            rules.name,
            rules.routes,
            name,
            inner.block,
            expr.render(resolver.params, refers=False),
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
        resolver: _Resolver,
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
            inputs=expr.render({"input": given, "params": resolver.params, **(more or {})}, levels=1),
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


def _undo(node: FlowNode, undo: NodeCompensation, resolver: _Resolver) -> Undo:
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
    return Undo(Block({COMPENSATE: call}, COMPENSATE), expr.render(expr.copied(given), levels=1), OUTPUT)


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


# --------------------------------------------------------------------------------------------------- references


class _Resolver:
    """Resolves the references of one node."""

    def __init__(self, node: FlowNode, depth: int, task: Source) -> None:
        self._node, self.depth, self._task = node, depth, task
        self._own = {name: self._param(value) for name, value in node.params.items()}
        self.params = Merged(task, self._own)
        self.prep = self._prep(node)

    def _param(self, value: Any) -> Any:
        """Return a param as written, with `$params.x` taken from the task."""
        if isinstance(value, str) and is_reference(value):
            found = reference(value)
            return self._of_task(found.members) if found.root == "params" else value
        if isinstance(value, dict):
            return {name: self._param(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._param(member) for member in value]
        return value

    def of_undo(self, params: Mapping[str, Any]) -> Merged:
        """Return the params of a compensation: references to params, to shared state, and to the result as `$input`."""
        return Merged(self._task, {name: self._of_result(value) for name, value in params.items()})

    def _of_result(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._of_result(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._of_result(member) for member in value]
        if not (isinstance(value, str) and is_reference(value)):
            return value
        found = reference(value)
        if found.root == "params":
            return self._of_task(found.members)
        return Source(
            "vars", found.members if found.root == "shared" else (OUTPUT, *found.members), self.depth
        )

    def _of_task(self, members: tuple[str | int, ...]) -> Source:
        return Source(self._task.kind, members, self._task.depth)

    def _prep(self, node: FlowNode) -> Any:
        if node.prep.input_map is not None:
            return {to: self._given(value) for to, value in node.prep.input_map.items()}
        return None if node.prep.input_key is None else self._given(node.prep.input_key)

    def _given(self, value: Any) -> Any:
        """Compile a template for the values that prep names. The node has no input yet, so `$input` is null."""
        found = given(value)
        if isinstance(found, Literal):
            return found.value
        if found.root == "shared":
            return Source("vars", found.members, self.depth)
        if found.root == "input":
            return None
        return self._of_params(found.members)

    def _of_params(self, members: tuple[str | int, ...]) -> Any:
        """Return a place in the node's own params."""
        if not members:
            return self.params
        if members[0] not in self._own:
            return self._of_task(members)
        own = self._own[str(members[0])]
        if isinstance(own, Source):
            return Source(own.kind, (*own.members, *members[1:]), own.depth)
        return expr.walk(own, members[1:]) if members[1:] else own

    def value(self, found: Reference) -> Callable[[View, Any], Any]:
        """Return the value of a reference, given the node's input or result."""
        if found.root == "input":
            return lambda view, value: expr.walk(value, found.members)
        if found.root == "shared":
            of_vars = expr.evaluate(Source("vars", found.members, self.depth))
            return lambda view, value: of_vars(view)
        of_params = expr_of(self._of_params(found.members))
        return lambda view, value: of_params(view)

    def param(self, name: str) -> Evaluate:
        """Return a param that configures the node itself; it may be any reference."""
        written = self._node.params.get(name)
        if not (isinstance(written, str) and is_reference(written)):
            return expr_of(self._of_params((name,)))
        value_of, given_of = self.value(reference(written)), expr_of(self.prep)
        return lambda view: value_of(view, given_of(view))


def expr_of(template: Any) -> Evaluate:
    """Evaluate a template to a value. A composed value is rendered to text first, so that its size is counted: the same variable in a
    thousand places is a thousand copies."""
    if isinstance(template, Source):
        return expr.evaluate(template)
    if isinstance(template, Merged | dict | list):
        text = expr.render(template, refers=False)
        return lambda view: value_in(text(view))
    return lambda view: template


# --------------------------------------------------------------------------------------------- after a node


def _post(node: FlowNode, edges: Mapping[str, str], resolver: _Resolver) -> Post:
    return Post(_writes(node), _action(node, resolver), edges)


def _writes(node: FlowNode) -> Callable[[View, Any, Sequence[ChildError]], Mapping[str, bytes]]:
    key = node.post.output_key
    fields = {to: reference(field).members for to, field in (node.post.output_map or {}).items()}
    collects = node.failure_strategy == "collect_errors"

    def writes(view: View, value: Any, errors: Sequence[ChildError]) -> Mapping[str, bytes]:
        texts = dict[str, bytes]()
        left = composed.LIMIT
        for to, members in fields.items():
            texts[to] = written(expr.walk(value, members))
            left -= len(texts[to])
            if left < 0:
                raise TooLarge
        if key is not None:
            texts[key] = written(expr.walk(value, ()))
            if errors and collects:
                texts[f"{key}_errors"] = written(list(errors))
        return texts

    return writes


def _action(node: FlowNode, resolver: _Resolver) -> Callable[[View, Any], str]:
    """Return the action of a node: `choice_cases`, `action_static`, `action_key` in the result and then in shared state, `default_action`."""
    if node.kind == "approval":
        return _decided(node, resolver)
    cases = [(case.action, condition(case.expr)) for case in node.choice_cases]
    static, default = node.post.action_static, node.default_action or ""
    named = None if node.post.action_key is None else reference(node.post.action_key)
    elsewhere = None if named is None else resolver.value(named)
    places = [] if named is None or named.root != "shared" else [named.members]
    if node.kind == "wait_event" and places and places[0][0] == "signal":
        places.insert(0, places[0][1:])
    values: dict[Reference, Callable[[View, Any], Any]] = {}

    def action(view: View, value: Any) -> str:
        def found_at(found: Reference) -> Any:
            if found not in values:
                values[found] = resolver.value(found)
            return values[found](view, value)

        if (name := _first_that_holds(cases, found_at, view)) is not None:
            return name
        if static:
            return static
        if named is not None and elsewhere is not None:
            in_result = [expr.walk(value, place) for place in places]
            for said in (*in_result, elsewhere(view, value)):
                if isinstance(said, str) and said:
                    return said
        return default

    return action


def _first_that_holds(cases: list[tuple[str, Holds]], resolver: Lookup, view: View) -> str | None:
    """The action of the first case whose condition holds. All cases of a node share one budget of work: a node may have
    thousands of them, and they are decided in one turn of the event loop."""
    work = Work()
    try:
        return next((name for name, holds in cases if holds(resolver, work)), None)
    finally:
        view.worked += work.spent


def _decided(node: FlowNode, resolver: _Resolver) -> Callable[[View, Any], str]:
    """Return the action of an approval: `approved`, `rejected`, or the text of the decision."""
    static, default, key = node.post.action_static, node.default_action or "", node.post.action_key
    elsewhere = None if key in (None, "approval") else resolver.value(reference(key))

    def action(view: View, value: Any) -> str:
        said = value if elsewhere is None else elsewhere(view, value)
        if isinstance(said, bool):
            said = "approved" if said else "rejected"
        return static or (said if isinstance(said, str) and said else default)

    return action


# ---------------------------------------------------------------------------------------------------- conditions


def _condition(node: FlowNode, rules: _Rules, resolver: _Resolver) -> Condition:
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
        show=_results,
        count=None,
        noun="call",
        post=rules.post,
        gather=_gatherer(node),
        drains=node.failure_strategy == "fail_fast",
    )


def _results(children: list[dict[str, Any]]) -> list[Any]:
    return [child["steps"].get(CALL) for child in children]


def _gatherer(node: FlowNode) -> Callable[[list[dict[str, Any]]], Gathered]:
    keeps_holes, ignores = node.failure_strategy == "collect_errors", node.failure_strategy == "ignore_errors"

    def gather(children: list[dict[str, Any]]) -> Gathered:
        results = [
            child["steps"].get(CALL) for child in children if keeps_holes or child["status"] == "completed"
        ]
        errors = [
            ChildError(index, child["error"]["message"])
            for index, child in enumerate(children)
            if child["status"] == "failed"
        ]
        if not errors or ignores:
            return Gathered(results, errors)
        first = children[errors[0].index]["error"]
        message = f"{len(errors)} of {len(children)} calls failed; call {errors[0].index}: {errors[0].error}"
        return Gathered(results, errors, Error(first["kind"], message))

    return gather


def _items(evaluated: Evaluate) -> ItemsOf:
    def items(view: View) -> tuple[int, bytes]:
        value = evaluated(view)
        if type(value) is Raw and (text := bytes(value))[:1] == b"[":
            return count_items(text), text
        if not isinstance(value, list):
            raise NotJson(f"a foreach needs an array as its input, not {_kind_of(value)}")
        return len(value), written(value)

    return items


def _services(node: FlowNode, resolver: _Resolver) -> ItemsOf:
    value_of = resolver.param("services")

    def items(view: View) -> tuple[int, bytes]:
        services = list(node.parallel_services) if node.parallel_services else read(value_of(view))
        is_list = isinstance(services, list) and all(isinstance(name, str) and name for name in services)
        if not services:
            raise NotJson("no services")
        if not is_list:
            raise NotJson("the services of a parallel node are an array of names")
        return len(services), encode(services)

    return items


def _kind_of(value: Any) -> str:
    names = {dict: "an object", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), "another value")


def _due(resolver: _Resolver) -> Callable[[View, Millis], Millis]:
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


def _key(node: FlowNode, resolver: _Resolver, given: Any) -> KeyRule | None:
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
