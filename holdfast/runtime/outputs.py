"""What runs and their steps gave, put together from committed rows. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.engine.decisions import SetVar, Take
from holdfast.engine.draft import Draft, value_at
from holdfast.engine.events import RunStarted
from holdfast.engine.rows import decode_row
from holdfast.engine.state import Run
from holdfast.errors import InvalidInputs, NotFound
from holdfast.plan.expr import resolved
from holdfast.plan.graph import END, FAIL, Node, Plan
from holdfast.runtime.load import replay, whole
from holdfast.spec.problems import did_you_mean
from holdfast.store.base import Store
from holdfast.values import encode, segment, split

JOURNAL_PAGE: Final = 1_000


async def output_of(store: Store, plan: Plan, run: Run) -> Any:
    """The output of a completed run: what its definition says, else what its top-level steps gave."""
    if plan.output is not None:
        return resolved(bytes(run.output), lambda of, at: value_at(plan, run, of, at))
    if not (plan.keeps_result and run.result_whole):
        run = await whole_run(store, run)
    return Draft(plan, run, run.at).outputs_of("")


async def whole_run(store: Store, run: Run) -> Run:
    """A run folded again with everything kept that it ever gave."""
    whole = Run(run.no, run.id, run.version, run.tenant)
    while rows := await store.journal(run.no, whole.seq, JOURNAL_PAGE):
        await replay(store, whole, rows, keep_all=True)
        if len(rows) == JOURNAL_PAGE:
            await asyncio.sleep(0)  # a long journal must not hold everything else up
    return whole


class Before(NamedTuple):
    """What a run had when it came to a step for the first time, so that another run can begin there."""

    names: list[str]  # the steps that count as done
    outputs: Mapping[str, msgspec.Raw]
    vars: Mapping[str, msgspec.Raw]


async def state_before(store: Store, plan: Plan, run: Run, step: str) -> Before:
    names = [node.name for node in plan.root.nodes.values()]
    if step not in names:
        hint = did_you_mean(step, names) or f"the steps are {', '.join(names)}"
        raise NotFound(f"run {run.id} has no top-level step {step!r}; {hint}")
    if plan.has_vars:
        return await _vars_before(store, plan, run, step)
    done = Draft(plan, await whole_run(store, run), run.at).outputs_of("")
    before = names[: names.index(step)]
    if missing := [name for name in before if name not in done]:
        raise InvalidInputs(
            f"step {step!r} cannot be the first: {missing[0]!r} before it did not complete; begin with that one"
        )
    return Before(before, {segment(name): msgspec.Raw(encode(done[name])) for name in before}, {})


async def _vars_before(store: Store, plan: Plan, run: Run, step: str) -> Before:
    """The variables as they were when a node was first met, read off the rows up to there."""
    target, left, found, after = segment(step), dict[str, None](), dict[str, msgspec.Raw](), 0
    if target == plan.root.first and run.first is None:
        return Before([], {}, {})
    while rows := await store.journal(run.no, after, JOURNAL_PAGE):
        after = rows[-1][0]
        for *_, body in rows:
            event, decisions = decode_row(body)
            if isinstance(event, RunStarted):
                found.update(event.vars)
                if event.first == target:
                    return Before([], {}, await _whole_values(store, run, found))
            for order in decisions:
                if isinstance(order, SetVar) and not order.frame:
                    found[order.name] = order.value
                elif isinstance(order, Take) and not split(order.path)[0]:
                    left[plan.node(order.path).name] = None
                    if order.to == target:
                        return Before(list(left), {}, await _whole_values(store, run, found))
        await asyncio.sleep(0)
    raise InvalidInputs(f"step {step!r} cannot be the first: run {run.id} never came to it")


async def _whole_values(store: Store, run: Run, values: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name: await whole(store, run.no, value) for name, value in values.items()}


def reached_from(plan: Plan, step: str) -> list[str]:
    """The top-level steps that may run when a run begins at one of them, in the order of the definition."""
    todo, seen = [segment(step)], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen and name != END:
            seen.add(name)
            todo.extend(_next_of(plan.root.nodes[name]))
    return [node.name for name, node in plan.root.nodes.items() if name in seen]


def _next_of(node: Node) -> list[str]:
    routes = node.routes
    named = [route for route in (routes.ok, routes.error, routes.timeout) if route is not FAIL]
    return named if node.post is None else [*named, *node.post.routes.values()]
