"""What runs and their steps gave, put together from committed rows. Writes nothing."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.engine.draft import Draft, value_at
from holdfast.engine.state import Run
from holdfast.plan.expr import resolved
from holdfast.plan.graph import Plan
from holdfast.runtime.load import replay
from holdfast.store.base import Store

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
