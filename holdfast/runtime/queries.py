"""Looking at runs: from committed rows, never from what is still on its way to disk. Writes nothing."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from holdfast.engine.draft import Draft, value_at
from holdfast.engine.state import Run
from holdfast.errors import InvalidInputs, NotFound
from holdfast.plan.expr import resolved
from holdfast.plan.graph import Plan
from holdfast.runtime.load import replay
from holdfast.spec.problems import did_you_mean
from holdfast.store.base import RunRow, Store, Wanted
from holdfast.values import DEFAULT_TENANT, OPEN, TERMINAL, RunNo, encode, segment

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


async def outputs_before(store: Store, plan: Plan, run: Run, step: str) -> dict[str, msgspec.Raw]:
    """What the top-level steps before this one gave, so that another run can begin at it."""
    names = [node.name for node in plan.root.nodes.values()]
    if step not in names:
        hint = did_you_mean(step, names) or f"the steps are {', '.join(names)}"
        raise NotFound(f"run {run.id} has no top-level step {step!r}; {hint}")
    done = Draft(plan, await whole_run(store, run), run.at).outputs_of("")
    before = names[: names.index(step)]
    if missing := [name for name in before if name not in done]:
        raise InvalidInputs(f"step {step!r} cannot be the first: {missing[0]!r} before it did not complete")
    return {segment(name): msgspec.Raw(encode(done[name])) for name in before}


async def list_runs(
    store: Store,
    *,
    status: str | None = None,
    workflow: str | None = None,
    label: str | None = None,
    before: RunNo | None = None,
    limit: int,
) -> list[RunRow]:
    """Runs, the newest first. `label` is `team=x`, or `team` for any value."""
    if status is not None and status not in OPEN | TERMINAL:
        hint = did_you_mean(status, OPEN | TERMINAL)
        raise InvalidInputs(
            f"no run has the status {status!r}; {hint or 'one of ' + ', '.join(sorted(OPEN | TERMINAL))}"
        )
    name, equals, value = (label or "").partition("=")
    if label is not None and not name:
        raise InvalidInputs(f"a label is given as name or name=value, not {label!r}")
    wanted = Wanted(
        status=status, workflow=workflow, label=(name, value if equals else None) if name else None
    )
    return await store.list_runs(DEFAULT_TENANT, before, limit, wanted)
