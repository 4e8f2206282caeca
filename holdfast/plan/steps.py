"""Compile the steps notation to blocks, as flow.py compiles graphs.

Knows the kinds of steps and what each becomes. Every rule of the notation becomes a field or closure of a node.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from holdfast.plan import expr, templates
from holdfast.plan.answers import answer_of
from holdfast.plan.graph import (
    COMPENSATE,
    END,
    KEEP_NAMED,
    KEEP_NOTHING,
    Approval,
    Around,
    Block,
    Call,
    Choice,
    FanOut,
    Guard,
    Joint,
    KeyRule,
    Nested,
    Node,
    PendingRule,
    Routes,
    ServiceRule,
    Signal,
    Timer,
    Undo,
    rendered_before,
)
from holdfast.plan.nested import NestedOf
from holdfast.plan.polling import polling
from holdfast.plan.references import Names, condition_of, evaluated, is_joined, path_source, template_of
from holdfast.plan.timers import due_of, fired, millis
from holdfast.spec.expr import parse_jsonpath
from holdfast.spec.policy import NO_POLICY, StepPolicy
from holdfast.spec.scope import OUTPUT, Scope, error_variable
from holdfast.spec.steps import (
    Answer,
    ApproveBody,
    BranchBody,
    Compensation,
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
    bodies,
    handlers,
    policy_inside,
    walk,
)
from holdfast.spec.workflow import WorkflowSpec
from holdfast.values import segment


def block_of(spec: WorkflowSpec, scope: Scope, keep: int, nested: NestedOf) -> Block:
    """Compile the steps of a definition to the block that runs in the frame of `scope`."""
    return _Builder(spec, nested).whole(spec, scope, keep)


class _Builder:
    """Builds the blocks of one definition."""

    def __init__(self, spec: WorkflowSpec, nested: NestedOf) -> None:
        self._named, self._nested_of = Names(spec).found, nested

    def block(
        self, steps: tuple[WorkflowStep, ...], scope: Scope, outer: StepPolicy, keep: int = KEEP_NOTHING
    ) -> Block:
        made = _Made()
        return made.block(self._chain(made, steps, scope, outer, keep, END))

    def whole(self, spec: WorkflowSpec, scope: Scope, keep: int) -> Block:
        """Compile a definition, with the steps that follow its end."""
        made = _Made()
        parts = handlers(spec)
        end = _joint("", "final") if spec.finally_ else END
        first = self._chain(made, spec.steps, scope, NO_POLICY, keep, end)
        guard = None
        if parts:
            guard = self._handlers(made, spec, "", scope, NO_POLICY, END, None)
        return made.block(first, guard)

    def _chain(
        self,
        made: _Made,
        steps: tuple[WorkflowStep, ...],
        scope: Scope,
        outer: StepPolicy,
        keep: int,
        end: str,
        part: tuple[str, str] | None = None,
    ) -> str:
        """Add steps that run one after another, the last of which leads to `end`. Return the name of the first."""
        names = [segment(step.id) for step in steps]
        for step, name, after in zip(steps, names, (*names, end)[1:], strict=True):
            if part is not None:
                made.parts[name] = part
            self._add(made, step, name, after, scope, outer, keep)
            scope.finish(step)
        return names[0] if names else end

    def _add(
        self,
        made: _Made,
        step: WorkflowStep,
        name: str,
        after: str,
        scope: Scope,
        outer: StepPolicy,
        keep: int,
    ) -> None:
        """Add the node of a step, and what is decided around it."""
        ok = _joint(name, "final") if step.finally_ else after
        made.nodes |= self._node(step, name, Routes(ok=ok), scope, outer, keep)
        when = None if step.when is None else condition_of(step.when, scope)
        guard = None
        if handlers(step):
            guard = self._handlers(made, step, name, scope, outer, after, step)
        undo = None if step.compensate is None else self._undo(step, step.compensate, scope)
        if when is not None or guard is not None or undo is not None:
            around = Around(when, after, guard, undo)
            made.nodes[name] = msgspec.structs.replace(made.nodes[name], around=around)

    def _handlers(
        self,
        made: _Made,
        of: WorkflowStep | WorkflowSpec,
        name: str,
        scope: Scope,
        outer: StepPolicy,
        after: str,
        step: WorkflowStep | None,
    ) -> Guard:
        """Add the nodes that follow the end of a step or of the definition, and the joints between them."""
        handler = last = final = kinds = None
        caught, began, ended = (_joint(name, does) for does in ("caught", "final", "ended"))
        for part in handlers(of):
            inside, role = scope.following(step, part), (name, part.role)
            end = caught if part.role == "on_error" else ended
            first = self._chain(made, part.steps, inside, outer, KEEP_NOTHING, end, role)
            if part.role == "on_error":
                handler, last = first, segment(part.steps[-1].id) if part.steps else None
                made.joints[caught] = Joint(name, "caught", Routes(began if of.finally_ else after))
            else:
                final = first
                made.joints[began] = Joint(name, "final", Routes(first))
                made.joints[ended] = Joint(name, "ended", Routes(after))
            if step is None:
                for inner in part.steps:
                    scope.finish(inner)
        if of.on_error is not None and of.on_error.kinds is not None:
            kinds = frozenset(of.on_error.kinds)
        return Guard(handler, kinds, last, final, error_variable(step))

    def _undo(self, step: WorkflowStep, undo: Compensation, scope: Scope) -> Undo:
        """Compile the call that undoes a step. Its inputs are rendered when the step completes."""
        policy, inside = StepPolicy(timeout_secs=undo.timeout_secs, retry=undo.retry), scope.undoing()
        args: Any = undo.args or {}
        if undo.service is not None:
            args = {"input": undo.input, "params": undo.params or {}}
        call = Call(
            name=step.id,
            routes=Routes(END),
            target=undo.service or undo.tool or "",
            inputs=rendered_before,
            retry=policy.retry,
            timeout_ms=None if undo.service is not None else millis(policy.timeout_secs),
            service=None
            if undo.service is None
            else ServiceRule(call_timeout_ms=millis(policy.timeout_secs)),
            is_plain=policy.timeout_secs is None and undo.service is None,
        )
        levels = 0 if undo.service is None else 1
        inputs = templates.render(templates.copied(template_of(args, inside)), levels=levels)
        return Undo(Block({COMPENSATE: call}, COMPENSATE), inputs, OUTPUT)

    def _node(
        self, step: WorkflowStep, name: str, routes: Routes, scope: Scope, outer: StepPolicy, keep: int
    ) -> dict[str, Node]:
        # The outputs that form the run's own output: of this step, or of the steps inside it if its output consists of theirs.
        within = keep if is_joined(step) else KEEP_NOTHING
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
                return {name: Timer(step.id, routes, due_of(step.body, scope), fired, keep)}
            case WaitEventBody():
                return {name: _signal(step, step.body, routes, scope, keep)}
            case ApproveBody():
                return {name: _approval(step, step.body, routes, scope, keep)}
            case PollBody():
                return {name: self._poll(step, step.body, routes, scope, outer, keep)}
            case BranchBody() | ForeachBody() | ParallelBody() as body:
                return {name: self._scope(step, body, routes, scope, inside, keep, within)}
            case _:
                assert_never(step.body)

    def _scope(
        self,
        step: WorkflowStep,
        body: BranchBody | ForeachBody | ParallelBody,
        routes: Routes,
        scope: Scope,
        inside: StepPolicy,
        keep: int,
        within: int,
    ) -> Node:
        match body:
            case BranchBody():
                return self._choice(step, body, routes, scope, inside, keep)
            case ForeachBody():
                return self._foreach(step, body, routes, scope, inside, keep, within)
            case ParallelBody():
                return self._parallel(step, body, routes, scope, inside, keep, within)

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
        template = template_of(args or {}, scope)
        return Call(
            name=step.id,
            routes=routes,
            target=target,
            inputs=templates.render(template, levels=levels),
            of_inputs=templates.of_inputs(template),
            keep=keep,
            retry=policy.retry,
            timeout_ms=millis(policy.timeout_secs),
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
        """Build a call to a worker. `timeout_secs` applies to each worker that is tried, so it is part of the rule."""
        args = {"input": body.input, "params": {} if body.params is None else body.params}
        call = self._call(step, body.service, args, routes, scope, outer, keep, levels=1)
        rule = ServiceRule(
            body.max_attempts,
            body.attempt_delay_ms,
            body.weighted_by_load,
            call_timeout_ms=call.timeout_ms,
            no_worker=step.policy.on_no_worker,
        )
        return msgspec.structs.replace(call, service=rule, timeout_ms=None, is_plain=False)

    def _nested(
        self, step: WorkflowStep, body: NestedBody, routes: Routes, scope: Scope, keep: int
    ) -> Nested:
        inner = self._nested_of(body.workflow, scope.depth, keep)
        return Nested(
            name=step.id,
            routes=routes,
            workflow=inner.name,
            block=inner.block,
            inputs=templates.render(template_of(body.inputs or {}, scope), refers=False),
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
        """Build a nested plan that calls, checks the result, waits longer each time, and repeats until `timeout_secs` has passed."""
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
            timeout_ms=millis(body.timeout_secs),
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
        then, otherwise = (self.block(part.steps, scope.inside(step, part), inside) for part in bodies(step))
        entries = {True: ("then", then.first), False: ("else", otherwise.first)}
        both = Block(
            {**then.nodes, **otherwise.nodes},
            END,
            parts={**then.parts, **otherwise.parts},
            joints={**then.joints, **otherwise.joints},
        )
        return Choice(step.id, routes, condition_of(body.on, scope), both, entries, _taken, keep)

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
        source = None if path.singular is None or path.star else path_source(path.singular, scope)
        (part,) = bodies(step)
        return FanOut(
            name=step.id,
            routes=routes,
            blocks=(self.block(part.steps, scope.inside(step, part), inside, within),),
            items=expr.items_of(evaluated(body.items, scope), source),
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
            keep = KEEP_NAMED  # later expressions can refer to the steps inside
        return FanOut(
            name=step.id,
            routes=routes,
            blocks=tuple(
                self.block(part.steps, scope.inside(step, part), inside, within) for part in bodies(step)
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


class _Made:
    """The nodes of a block in the making."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.parts: dict[str, tuple[str, str]] = {}
        self.joints: dict[str, Joint] = {}

    def block(self, first: str, guard: Guard | None = None) -> Block:
        return Block(self.nodes, first, guard=guard, parts=self.parts, joints=self.joints)


def _joint(name: str, does: str) -> str:
    """The name of a joint: no id of a step contains a slash, unless it is quoted."""
    return f"{name}/{does}"


def _key_rule(policy: StepPolicy, scope: Scope) -> KeyRule | None:
    if policy.idempotency_key is None:
        return None
    return KeyRule(
        text=templates.text_of(template_of(policy.idempotency_key, scope)),
        is_global=policy.idempotency_scope == "global",
        ttl_ms=millis(policy.idempotency_ttl_secs or None),
        waits=policy.on_conflict == "wait",
    )


def _pending(answer: Answer) -> PendingRule | None:
    poll = answer.poll
    if poll is None and answer.pending_ttl_secs is None and not answer.supports_async_callback:
        return None
    return PendingRule(
        millis(answer.pending_ttl_secs),
        None if poll is None else poll.interval_ms,
        0 if poll is None else poll.max_ms,
        answer.supports_async_callback,
    )


def _signal(step: WorkflowStep, body: WaitEventBody, routes: Routes, scope: Scope, keep: int) -> Signal:
    named = [body.signal_key] if body.signal_key is not None else list(body.any_ or body.all_ or ())
    names = templates.texts_of([template_of(name, scope) for name in named])
    mode = "one" if body.signal_key is not None else "any" if body.any_ is not None else "all"
    correlation = (
        None if body.correlation is None else templates.text_of(template_of(body.correlation, scope))
    )
    return Signal(
        step.id,
        routes,
        names,
        mode,
        correlation,
        millis(body.timeout_secs),
        keep,
    )


def _approval(step: WorkflowStep, body: ApproveBody, routes: Routes, scope: Scope, keep: int) -> Approval:
    quorum, escalate = body.quorum, body.escalate
    return Approval(
        name=step.id,
        routes=routes,
        prompt=templates.text_of(template_of(body.prompt, scope)),
        need=1 if quorum is None else quorum.need,
        of=() if quorum is None else tuple(quorum.of),
        form=body.form,
        timeout_ms=millis(body.timeout_secs),
        escalate_ms=None if escalate is None else millis(escalate.after_secs),
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
