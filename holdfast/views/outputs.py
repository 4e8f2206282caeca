"""The outputs of runs and their steps, assembled from committed rows. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.engine.draft import Draft
from holdfast.engine.state import Run
from holdfast.errors import LimitExceeded
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Plan
from holdfast.plan.resolve import resolved
from holdfast.runtime.load import give_way, replay
from holdfast.store.base import Store
from holdfast.threads import in_thread
from holdfast.values import VALUE_BYTES_MAX, decode

P = ParamSpec("P")
T = TypeVar("T")

JOURNAL_PAGE: Final = 1_000
FRAMES_AT_ONCE: Final = 1_000  # frames whose outputs are gathered in one turn of the loop: some milliseconds
READ_BYTES_MAX: Final = (
    2 * VALUE_BYTES_MAX
)  # largest gathered value that is read; every accepted value is at most half of it


async def output_of(store: Store, plan: Plan, run: Run) -> Any:
    """Return the output of a completed run: its `output:`, or else the outputs of its top-level steps."""
    try:
        text = _at_hand(plan, run)
        return decode(await _gathered(store, plan, run) if text is None else text)
    except (TooLarge, RecursionError):
        raise LimitExceeded("output_too_large", UNSHOWN) from None


async def output_text(store: Store, plan: Plan, run: Run) -> bytes:
    """The same as JSON text. Raises TooLarge for a run of a release that did not limit it."""
    text = _at_hand(plan, run)
    return await _gathered(store, plan, run) if text is None else text


def _at_hand(plan: Plan, run: Run) -> bytes | None:
    """The output, unless it must be read from the journal."""
    if run.caught:
        return bytes(run.output)
    draft = Draft(plan, run, run.at)
    if plan.output is not None:
        return resolved(bytes(run.output), draft.text_at)
    return draft.outputs_of("", READ_BYTES_MAX) if plan.keeps_result and run.result_whole else None


async def _gathered(store: Store, plan: Plan, run: Run) -> bytes:
    run = await whole_run(store, run)
    await asyncio.sleep(0)  # large values have just been read, and are joined now
    return await apart_if_long(run, Draft(plan, run, run.at).outputs_of, "", READ_BYTES_MAX)


async def apart_if_long(run: Run, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Do work whose duration grows with the frames of a run that is only read: for many of them in a thread, so that the
    event loop gets its turns."""
    if len(run.frames) > FRAMES_AT_ONCE:
        return await in_thread(work, *args, **named)
    return work(*args, **named)


UNSHOWN: Final = "the output is too large to be shown, because an earlier release had a higher limit; read the steps one by one"


async def whole_run(store: Store, run: Run) -> Run:
    """Fold a run again with every output kept."""
    whole = Run(run.no, run.id, run.version, run.tenant)
    while rows := await store.journal(run.no, whole.seq, JOURNAL_PAGE):
        await replay(store, whole, rows, give_way, keep_all=True)
        if len(rows) == JOURNAL_PAGE:
            await give_way()
    return whole
