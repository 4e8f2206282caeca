"""A definition becomes a plan. The last place that remembers a notation: every difference is a field of a node.

Two walks over the tree: the first finds which outputs later expressions can name (only those are kept while a run
goes on), the second builds blocks and closures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.plan import expr, flow
from holdfast.plan.answers import answer_of
from holdfast.plan.graph import (
    END,
    KEEP_NAMED,
    KEEP_NOTHING,
    KEEP_RESULT,
    Approval,
    Block,
    Call,
    Choice,
    Evaluate,
    FanOut,
    KeyRule,
    Nested,
    Node,
    PendingRule,
    Plan,
    Routes,
    ServiceRule,
    Signal,
    Timer,
    View,
)
from holdfast.plan.polling import polling
from holdfast.spec.expr import JsonPath, Member, Ref, Text, compiled, parse_jsonpath, parse_template, refs_in
from holdfast.spec.flow import FlowSpec
from holdfast.spec.inputs import Inputs
from holdfast.spec.notation import Definition
from holdfast.spec.policy import NO_POLICY, StepPolicy
from holdfast.spec.scope import Scope
from holdfast.spec.steps import (
    Answer,
    ApproveBody,
    BranchBody,
    ForeachBody,
    NestedBody,
    ParallelBody,
    PollBody,
    RemoteBody,
    ServiceBody,
    TimerBody,
    ToolBody,
    WaitEventBody,
    WorkflowStep,
    blocks,
    policy_inside,
    walk,
)
from holdfast.spec.workflow import WorkflowSpec
from holdfast.values import Millis, NotJson, canonical, decode, rfc3339, segment, sha256

INSTANT_MAX: Final = 253_402_300_800_000  # the end of the year 9999, in milliseconds
_SECONDS_BELOW: Final = (
    10**11
)  # an instant below this number is in seconds: in milliseconds it would be before 1974


class Resolved(NamedTuple):
    """A definition with those that it names, by name: what a run is pinned to when it starts."""

    spec: Definition
    uses: Mapping[str, Resolved]

    @property
    def version(self) -> str:
        """The hash of a definition and of all that it names."""
        if not self.uses:
            return sha256(self.spec.canonical())
        return sha256(self.spec.canonical() + canonical(self.versions))

    @property
    def versions(self) -> dict[str, str]:
        return {name: used.version for name, used in self.uses.items()}


def names_used(spec: Definition) -> set[str]:
    """The workflows that a definition names."""
    if isinstance(spec, FlowSpec):
        return set(spec.names)
    return {step.body.workflow for step in walk(spec.steps) if isinstance(step.body, NestedBody)}


def compile_definition(spec: Definition, uses: Mapping[str, Resolved] | None = None) -> Plan:
    """The plan of a valid definition in either notation, and of those that it names."""
    return compile_flow(spec, uses) if isinstance(spec, FlowSpec) else compile_workflow(spec, uses)


def compile_flow(spec: FlowSpec, uses: Mapping[str, Resolved] | None = None) -> Plan:
    whole = Resolved(spec, uses or {})
    root = flow.block_of(spec.graph, 0, _nested_of(whole.uses))
    return Plan(
        name=spec.name,
        version=whole.version,
        root=root,
        output=flow.output_of(0),
        keeps_result=False,
        has_vars=True,
        asks_workers=root.asks_workers,
        timeout_ms=_millis(spec.timeout_secs),
        interrupted_by_restart=spec.on_restart == "interrupt",
        steps_total=_steps_total(whole),
        env=_named_in(whole, "env"),
        secrets=_named_in(whole, "secrets"),
        advice_when_too_large="return file_refs, or use fewer items",
    )


def compile_workflow(spec: WorkflowSpec, uses: Mapping[str, Resolved] | None = None) -> Plan:
    """The plan of a valid definition in the steps notation, and of those that it names."""
    whole = Resolved(spec, uses or {})
    keeps_result = spec.output is None
    scope = Scope.of(spec)
    top = KEEP_RESULT if keeps_result else KEEP_NOTHING
    root = _Builder(whole).block(spec.steps, scope, NO_POLICY, top)
    return Plan(
        name=spec.name,
        version=whole.version,
        root=root,
        output=None if spec.output is None else expr.render(_template(spec.output, scope)),
        keeps_result=keeps_result,
        asks_workers=root.asks_workers,
        timeout_ms=_millis(spec.timeout_secs),
        interrupted_by_restart=spec.on_restart == "interrupt",
        steps_total=_steps_total(whole),
        env=_named_in(whole, "env"),
        secrets=_named_in(whole, "secrets"),
        advice_when_too_large="use collect: none, or return file_refs",
    )


def _steps_total(whole: Resolved) -> int:
    """Each step once, those of nested workflows too."""
    if isinstance(whole.spec, FlowSpec):
        return flow.node_count(whole.spec.graph) + sum(map(_steps_total, whole.uses.values()))
    total = 0
    for step in walk(whole.spec.steps):
        total += 1
        if isinstance(step.body, NestedBody):
            total += _steps_total(whole.uses[step.body.workflow])
    return total


def _named_in(whole: Resolved, root: str) -> tuple[str, ...]:
    """What templates name under `env` or `secrets`, those of nested workflows too."""
    spec, names = whole.spec, set[str]()
    if isinstance(spec, WorkflowSpec):
        texts = _texts([spec.output, *(_templates_of(step) for step in walk(spec.steps))])
        refs = (ref for text in texts for ref in refs_in(parse_template(text)))
        names = {str(ref.parts[0]) for ref in refs if ref.root == root and ref.parts}
    return tuple(sorted(names.union(*(_named_in(used, root) for used in whole.uses.values()))))


def _templates_of(step: WorkflowStep) -> list[Any]:
    """All that a step says in templates."""
    match step.body:
        case ToolBody(args=given) | RemoteBody(args=given) | NestedBody(inputs=given):
            return [given, step.policy.idempotency_key]
        case TimerBody(delay_ms, until):
            return [delay_ms, until]
        case WaitEventBody(signal_key, any_of, all_of, correlation):
            return [signal_key, any_of, all_of, correlation]
        case ApproveBody(prompt):
            return [prompt]
        case PollBody(args=args, input=given, params=params):
            return [args, given, params, step.policy.idempotency_key]
        case ServiceBody(input=given, params=params):
            return [given, params, step.policy.idempotency_key]
    return []


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


# ------------------------------------------------------------------------------------------ which steps are named


class _Names:
    """The ids of all steps whose output some expression can name."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self.found: set[str] = set()
        scope = Scope.of(spec)
        self._visit(spec.steps, scope)
        self._templates(spec.output, scope)
        self._close_over({step.id: step for step in walk(spec.steps)})

    def _visit(self, steps: Iterable[WorkflowStep], scope: Scope) -> None:
        for step in steps:
            self._templates(_templates_of(step), scope)
            match step.body:
                case ForeachBody(items=path) | BranchBody(on=path):
                    self._path(parse_jsonpath(path), scope)
            for block in blocks(step):
                self._visit(block.steps, scope.inside(step, block))
            scope.finish(step)

    def _templates(self, value: Any, scope: Scope) -> None:
        for text in _texts(value):
            for ref in refs_in(parse_template(text)):
                self._name((ref.root, *ref.parts), scope)

    def _path(self, path: JsonPath, scope: Scope) -> None:
        for members in path.reads:
            self._name(members, scope)

    def _name(self, members: tuple[Member, ...], scope: Scope) -> None:
        source = _source(members, scope)
        if source is None:  # somewhere in the document: anything it holds may be meant
            self.found |= scope.step_ids()
        elif source.kind == "step":
            self.found.add(str(members[1] if members[0] == "steps" else members[0]))

    def _close_over(self, steps: dict[str, WorkflowStep]) -> None:
        """The output of a fan-out is that of the steps right inside it."""
        todo = list(self.found)
        while todo:
            step = steps[todo.pop()]
            if _is_joined(step):
                inner = {one.id for block in blocks(step) for one in block.steps} - self.found
                self.found |= inner
                todo.extend(inner)


def _is_joined(step: WorkflowStep) -> bool:
    """Is the output of a step made of the outputs of the steps inside it?"""
    body = step.body
    return isinstance(body, ParallelBody) or (isinstance(body, ForeachBody) and body.collect == "outputs")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts(member)


# ------------------------------------------------------------------------------------------------ names → sources


def _source(members: tuple[Member, ...], scope: Scope) -> expr.Source | None:
    """The value that a path starts in; None if that is the document as a whole, or nothing at all."""
    if not members:
        return None
    root, rest = str(members[0]), members[1:]
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
    """A nested workflow's inputs are what its frame was opened with."""
    return expr.Source("item", members, scope.top) if scope.top else expr.Source("inputs", members)


def _strict(members: tuple[Member, ...], scope: Scope) -> expr.Source | None:
    """The source of a JSONPath, whose members say whether they are names or indices."""
    source = _source(members, scope)
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


def _document(scope: Scope) -> expr.Document:
    """All that can be seen, in the order in which it is searched: the inputs, then the steps by their ids.

    Bare names, loop variables and `file_refs` of a step are second names of what stands there.
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
    sources = ((name, _source((name,), scope)) for name in bare)
    members += [((name,), source, True) for name, source in sources if source is not None]
    return expr.Document(tuple(members))


def _template(value: Any, scope: Scope) -> Any:
    """JSON data as written → the same data with resolved leaves."""
    if isinstance(value, str):
        parsed = parse_template(value)
        if isinstance(parsed, Ref):
            return _leaf(parsed, scope)
        if isinstance(parsed, Text):
            return expr.Text(
                tuple(part if isinstance(part, str) else _leaf(part, scope) for part in parsed.parts)
            )
        return value
    if isinstance(value, dict):
        return {key: _template(member, scope) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_template(member, scope) for member in value]
    return value


def _leaf(ref: Ref, scope: Scope) -> expr.Leaf:
    if ref.root == "secrets":
        return expr.Secret(".".join(map(str, ref.parts)))
    members = (ref.root, *ref.parts)
    return _source(members, scope) or expr.Lookup(_document(scope), members)


# ------------------------------------------------------------------------------------------------ building blocks


class _Builder:
    """Builds the blocks of one definition; each that it names gets a builder of its own."""

    def __init__(self, whole: Resolved) -> None:
        assert isinstance(whole.spec, WorkflowSpec)
        self._named, self._uses = _Names(whole.spec).found, whole.uses

    def block(
        self, steps: tuple[WorkflowStep, ...], scope: Scope, outer: StepPolicy, keep: int = KEEP_NOTHING
    ) -> Block:
        nodes: dict[str, Node] = {}
        names = [segment(step.id) for step in steps]
        for step, name, after in zip(steps, names, (*names, END)[1:], strict=True):
            nodes |= self._node(step, name, Routes(ok=after), scope, outer, keep)
            scope.finish(step)
        return Block(nodes, names[0] if names else END)

    def _node(
        self, step: WorkflowStep, name: str, routes: Routes, scope: Scope, outer: StepPolicy, keep: int
    ) -> dict[str, Node]:
        # What the run's own output is made of: this step, and if its output is that of the steps inside it, those.
        within = keep if _is_joined(step) else KEEP_NOTHING
        keep = KEEP_NAMED if step.id in self._named else keep
        inside = policy_inside(step, outer)
        match step.body:
            case ToolBody(tool, args):
                return {name: self._call(step, tool, args, routes, scope, outer, keep)}
            case RemoteBody(server, tool, args):
                return {name: self._call(step, f"{server}/{tool}", args, routes, scope, outer, keep)}
            case ServiceBody():
                return {name: self._service(step, step.body, routes, scope, outer, keep)}
            case NestedBody():
                return {name: self._nested(step, step.body, routes, scope, keep)}
            case TimerBody():
                return {name: Timer(step.id, routes, _due(step.body, scope), _fired, keep)}
            case WaitEventBody():
                return {name: _signal(step, step.body, routes, scope, keep)}
            case ApproveBody():
                return {name: _approval(step, step.body, routes, scope, keep)}
            case PollBody():
                return {name: self._poll(step, step.body, routes, scope, outer, keep)}
            case BranchBody():
                return {name: self._choice(step, step.body, routes, scope, inside, keep)}
            case ForeachBody():
                return {name: self._foreach(step, step.body, routes, scope, inside, keep, within)}
            case ParallelBody():
                return {name: self._parallel(step, step.body, routes, scope, inside, keep, within)}
            case _:
                raise AssertionError(f"{step.kind} was refused before")

    def _call(
        self,
        step: WorkflowStep,
        target: str,
        args: Any,
        routes: Routes,
        scope: Scope,
        outer: StepPolicy,
        keep: int,
        levels: int = 0,
    ) -> Call:
        policy, rule = step.policy.within(outer), step.answer.result
        return Call(
            name=step.id,
            routes=routes,
            target=target,
            inputs=expr.render(_template(args or {}, scope), levels=levels),
            keep=keep,
            retry=policy.retry,
            timeout_ms=_millis(policy.timeout_secs),
            fails_on_crash=policy.on_crash == "fail",
            key=_key_rule(policy, scope),
            answer=None if rule is None else answer_of(rule),
            pending=_pending(step.answer),
            is_plain=policy.timeout_secs is None and policy.on_crash != "fail" and rule is None,
        )

    def _service(
        self,
        step: WorkflowStep,
        body: ServiceBody,
        routes: Routes,
        scope: Scope,
        outer: StepPolicy,
        keep: int,
    ) -> Call:
        """A call of a worker; `timeout_secs` counts for each worker that is tried, and so stands in the rule."""
        args = {"input": body.input, "params": {} if body.params is None else body.params}
        call = self._call(step, body.service, args, routes, scope, outer, keep, levels=1)
        rule = ServiceRule(
            body.max_attempts, body.attempt_delay_ms, body.weighted_by_load, call_timeout_ms=call.timeout_ms
        )
        return msgspec.structs.replace(call, service=rule, timeout_ms=None, is_plain=False)

    def _nested(
        self, step: WorkflowStep, body: NestedBody, routes: Routes, scope: Scope, keep: int
    ) -> Nested:
        used = self._uses[body.workflow]
        inner = _inner(used, scope.depth, keep)
        return Nested(
            name=step.id,
            routes=routes,
            workflow=used.spec.name,
            block=inner.block,
            inputs=expr.render(_template(body.inputs or {}, scope), refers=False),
            fill=inner.fill,
            output=inner.output,
            timeout_ms=inner.timeout_ms,
            keep=keep,
        )

    def _poll(
        self,
        step: WorkflowStep,
        body: PollBody,
        routes: Routes,
        scope: Scope,
        outer: StepPolicy,
        keep: int,
    ) -> Nested:
        """A call, a check of its result, a growing pause, and back: a small plan of its own, ended by `timeout_secs`."""
        if body.service is not None:
            given = ServiceBody(body.service, body.input, body.params)
            call = self._service(step, given, Routes(END), scope, outer, KEEP_NOTHING)
        else:
            target = body.tool or "" if body.dcc is None else f"{body.dcc}/{body.tool}"
            call = self._call(step, target, body.args, Routes(END), scope, outer, KEEP_NOTHING)
        return polling(
            step.id,
            call,
            until=body.until,
            interval_ms=body.interval_ms,
            max_ms=body.max_ms,
            routes=routes,
            depth=scope.depth,
            timeout_ms=_millis(body.timeout_secs),
            keep=keep,
        )

    def _choice(
        self,
        step: WorkflowStep,
        body: BranchBody,
        routes: Routes,
        scope: Scope,
        inside: StepPolicy,
        keep: int,
    ) -> Choice:
        then, otherwise = (self.block(part.steps, scope.inside(step, part), inside) for part in blocks(step))
        entries = {True: ("then", then.first), False: ("else", otherwise.first)}
        both = Block({**then.nodes, **otherwise.nodes}, END)
        return Choice(step.id, routes, _evaluate(body.on, scope), both, entries, _taken, keep)

    def _foreach(
        self,
        step: WorkflowStep,
        body: ForeachBody,
        routes: Routes,
        scope: Scope,
        inside: StepPolicy,
        keep: int,
        within: int,
    ) -> FanOut:
        path = parse_jsonpath(body.items)
        source = None if path.singular is None or path.star else _strict(path.singular, scope)
        (part,) = blocks(step)
        return FanOut(
            name=step.id,
            routes=routes,
            blocks=(self.block(part.steps, scope.inside(step, part), inside, within),),
            items=expr.items_of(_evaluate(body.items, scope), source),
            concurrency=body.concurrency,
            goes_on=body.on_any_fail == "continue",
            show=_iterations,
            count=_count if body.collect == "none" else None,
            noun="foreach iteration",
            keep=keep,
        )

    def _parallel(
        self,
        step: WorkflowStep,
        body: ParallelBody,
        routes: Routes,
        scope: Scope,
        inside: StepPolicy,
        keep: int,
        within: int,
    ) -> FanOut:
        is_named = keep != KEEP_NOTHING
        if any(inner.id in self._named for branch in body.branches for inner in walk(branch)):
            keep = KEEP_NAMED  # the steps inside can be seen after it
        return FanOut(
            name=step.id,
            routes=routes,
            blocks=tuple(
                self.block(part.steps, scope.inside(step, part), inside, within) for part in blocks(step)
            ),
            items=None,
            concurrency=max(1, len(body.branches)),
            goes_on=body.on_any_fail == "continue",
            show=_branches,
            count=None,
            noun="parallel branch",
            keep=keep,
            is_named=is_named,
        )


def _inner(used: Resolved, depth: int, keep: int) -> flow.Inner:
    """A whole definition that runs inside another one, in the frame at `depth`."""
    child = used.spec
    fill, timeout_ms = Inputs(child.inputs).filled, _millis(child.timeout_secs)
    if isinstance(child, FlowSpec):
        block = flow.block_of(child.graph, depth, _nested_of(used.uses))
        return flow.Inner(block, flow.output_of(depth, refers=False), fill, timeout_ms)
    inside = Scope.of(child, depth)
    kept = keep if child.output is None else KEEP_NOTHING
    block = _Builder(used).block(child.steps, inside, NO_POLICY, kept)
    output = None if child.output is None else expr.render(_template(child.output, inside), refers=False)
    return flow.Inner(block, output, fill, timeout_ms)


def _nested_of(uses: Mapping[str, Resolved]) -> flow.NestedOf:
    return lambda name, depth: _inner(uses[name], depth, KEEP_NAMED)


def _key_rule(policy: StepPolicy, scope: Scope) -> KeyRule | None:
    if policy.idempotency_key is None:
        return None
    return KeyRule(
        text=expr.text_of(_template(policy.idempotency_key, scope)),
        is_global=policy.idempotency_scope == "global",
        ttl_ms=_millis(policy.idempotency_ttl_secs or None),
        waits=policy.on_conflict == "wait",
    )


def _pending(answer: Answer) -> PendingRule | None:
    poll = answer.poll
    if poll is None and answer.pending_ttl_secs is None and not answer.supports_async_callback:
        return None
    return PendingRule(
        _millis(answer.pending_ttl_secs),
        None if poll is None else poll.interval_ms,
        0 if poll is None else poll.max_ms,
        answer.supports_async_callback,
    )


def _signal(step: WorkflowStep, body: WaitEventBody, routes: Routes, scope: Scope, keep: int) -> Signal:
    named = [body.signal_key] if body.signal_key is not None else list(body.any_ or body.all_ or ())
    names = expr.texts_of([_template(name, scope) for name in named])
    mode = "one" if body.signal_key is not None else "any" if body.any_ is not None else "all"
    correlation = None if body.correlation is None else expr.text_of(_template(body.correlation, scope))
    return Signal(
        step.id,
        routes,
        names,
        mode,
        correlation,
        _millis(body.timeout_secs),
        keep,
    )


def _approval(step: WorkflowStep, body: ApproveBody, routes: Routes, scope: Scope, keep: int) -> Approval:
    quorum, escalate = body.quorum, body.escalate
    return Approval(
        name=step.id,
        routes=routes,
        prompt=expr.text_of(_template(body.prompt, scope)),
        need=1 if quorum is None else quorum.need,
        of=() if quorum is None else tuple(quorum.of),
        form=body.form,
        timeout_ms=_millis(body.timeout_secs),
        escalate_ms=None if escalate is None else _millis(escalate.after_secs),
        escalate_to=() if escalate is None else _names(escalate.to),
        keep=keep,
    )


def _names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _taken(condition: Any, label: str) -> dict[str, Any]:
    return {"condition": condition, "taken": label}


def _iterations(children: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "iterations": [{"error": child["error"]} if child["error"] else child["steps"] for child in children]
    }


def _branches(children: list[dict[str, Any]]) -> dict[str, Any]:
    return {"branch_results": [child["status"] for child in children], "branches": children}


def _count(count: int, failed: int) -> dict[str, int]:
    return {"count": count, "failed": failed}


def _evaluate(text: str, scope: Scope) -> Evaluate:
    """A JSONPath as a closure: our accessor where it names one place, the library where it searches."""
    path = parse_jsonpath(text)
    if path.singular is not None:
        source = _strict(path.singular, scope)
        if source is not None:
            return expr.members_all(source) if path.star else expr.evaluate(source)
    return expr.search(_document(scope), compiled(path))


# ------------------------------------------------------------------------------------------------------- timers


def _fired(view: View, at: Millis) -> bytes:
    return b'{"fired_at":"%b"}' % rfc3339(at).encode()


def _due(body: TimerBody, scope: Scope) -> Any:
    until = body.until is not None
    render = expr.render(_template(body.until if until else body.delay_ms, scope), refers=False)

    def due(view: View, now: Millis) -> Millis:
        value = decode(render(view))
        at = _instant(value) if until else Millis(now + round(_number(value)))
        if not -INSTANT_MAX < at < INSTANT_MAX:
            raise NotJson(f"a timer cannot wait for {value!r:.50}: that is after the year 9999")
        return at

    return due


def _number(value: Any) -> float:
    try:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
        return number
    except (TypeError, ValueError):
        raise NotJson(f"a timer needs a number of milliseconds, not {value!r:.50}") from None


def _instant(value: Any) -> Millis:
    """Milliseconds since 1970 of a number (seconds or milliseconds) or of a text with date, time and zone."""
    if isinstance(value, str):
        if value.replace(".", "", 1).isdecimal():
            return _instant(_number(value))
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise NotJson(f"{value!r:.50} is no instant: write 2026-01-31T12:00:00Z, or a number") from None
        if at.tzinfo is None:
            raise NotJson(f"the instant {value!r:.50} has no zone: write it with Z or an offset")
        return Millis(round(at.timestamp() * 1000))
    number = _number(value)
    return Millis(round(number * 1000 if abs(number) < _SECONDS_BELOW else number))
