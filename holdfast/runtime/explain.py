"""Why a run is not further: for each thing that is open what it waits for, since when, until when, and what unblocks it.

Looks at committed rows and at who holds the file. Changes nothing, starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.engine.rows import decode_row
from holdfast.engine.state import Run, Step, timer_key
from holdfast.plan.graph import Call, FanOut, Plan
from holdfast.runtime.load import load_run
from holdfast.runtime.queries import JOURNAL_PAGE
from holdfast.runtime.steps import Steps
from holdfast.store.base import RunRow, Store
from holdfast.values import TERMINAL, Millis, RunNo

REASONS_MAX: Final = 100  # nobody reads more; the rest is counted


class Reason(msgspec.Struct, frozen=True):
    """One thing that is open. `path` is empty where it is the run itself; `unblocks` is a sentence, or a command in one."""

    path: str
    reason: str
    since: Millis
    until: Millis | None
    unblocks: str


class Explanation(msgspec.Struct, frozen=True):
    run_id: str
    status: str
    driven_by: int | None  # the process that drives it now
    reasons: list[Reason]
    more: int = 0  # reasons beyond REASONS_MAX


async def explain(
    store: Store, row: RunRow, plan: Plan, *, holder: Mapping[str, object], epoch: int
) -> Explanation:
    """`holder` is who has the file now, `epoch` the newest incarnation of the engine on it."""
    if row.status in TERMINAL:
        over = Reason("", row.status, row.finished_at or row.created_at, None, _RERUN.format(row.id))
        return Explanation(row.id, row.status, None, [over])
    stored = await store.load(row.no)
    assert stored is not None
    run = await load_run(store, stored)
    pid = holder.get("pid") if holder else None
    is_driven = bool(holder) and row.owner is not None and row.owner_epoch == epoch
    looker = _Looker(run, plan, await _since(store, row.no), await _holders(store, run), is_driven=is_driven)
    found = [*_of_the_run(run, row, pid, is_driven=is_driven), *looker.of_steps(), *looker.of_scopes()]
    drives = pid if is_driven and isinstance(pid, int) else None
    return Explanation(row.id, row.status, drives, found[:REASONS_MAX], max(0, len(found) - REASONS_MAX))


_RERUN: Final = "nothing, it is over; holdfast runs rerun {} starts it again as a new run"


async def _since(store: Store, no: RunNo) -> dict[str, Millis]:
    """When each step came to be as it is."""
    steps, after = Steps(), 0
    states: dict[str, tuple[str, str, int]] = {}
    since: dict[str, Millis] = {}
    while rows := await store.journal(no, after, JOURNAL_PAGE):
        for seq, _, at, _, body in rows:
            for step in steps.take(*decode_row(body), Millis(at)):
                state = (step.status, step.reason, step.attempts)
                if states.get(step.path) != state:
                    states[step.path], since[step.path] = state, Millis(at)
                if step.is_over:
                    states.pop(step.path, None)
                    since.pop(step.path, None)
            after = seq
    return since


async def _holders(store: Store, run: Run) -> dict[str, str]:
    """Who holds the idempotency keys that steps wait for, by the paths of those steps."""
    holders: dict[str, str] = {}
    for path, step in run.steps.items():
        if step.key is not None and step.reason == "key" and len(holders) < REASONS_MAX:
            held = await store.key_holder(run.tenant, "" if step.key.is_global else run.id, step.key.text)
            holders[path] = f"step {held[1]} of run {held[0]}" if held else "the step"
    return holders


def _of_the_run(run: Run, row: RunRow, pid: object, *, is_driven: bool) -> list[Reason]:
    reasons = []
    if run.ending:
        until = min((at for key, at in run.timers.items() if key.startswith("grace ")), default=None)
        word = "cancelling" if run.ending == "cancelled" else run.ending
        reasons.append(
            Reason("", word, run.at, until, "the answer of what is at work, or the end of its grace")
        )
    go_on = f"holdfast run --continue {row.id}"
    if pid is None:
        reasons.append(Reason("", "not_driven", run.at, None, f"{go_on} (no process drives it)"))
    elif not is_driven and row.owner is not None:
        other = f"{go_on}, once process {pid}, which has the file and drives other runs, is done"
        reasons.append(Reason("", "not_driven", run.at, None, other))
    return reasons


class _Looker:
    """Says of each open step and scope of a run why it is open."""

    def __init__(
        self,
        run: Run,
        plan: Plan,
        since: Mapping[str, Millis],
        holders: Mapping[str, str],
        *,
        is_driven: bool,
    ) -> None:
        self._run, self._plan, self._since, self._holders = run, plan, since, holders
        self._is_driven = is_driven

    def of_steps(self) -> list[Reason]:
        return [self._of_step(path, step) for path, step in self._run.steps.items()]

    def of_scopes(self) -> list[Reason]:
        """Children of a fan-out that wait for a place."""
        reasons = []
        for path, scope in self._run.scopes.items():
            left, node = scope.count - scope.next, self._plan.node(path)
            if left > 0 and isinstance(node, FanOut) and not self._run.ending:
                which = (
                    "the one that is open" if scope.open == 1 else f"one of the {scope.open} that are open"
                )
                text = f"the end of {which}; {left} of {scope.count} wait"
                reasons.append(self._reason(path, "slot", None, f"{text} (concurrency {node.concurrency})"))
        return reasons

    def _of_step(self, path: str, step: Step) -> Reason:
        if step.key is not None and step.reason == "key":
            holder = self._holders.get(path, "the step")
            return self._reason(
                path, "key", None, f"the end of {holder} that holds the key {step.key.text!r}"
            )
        if step.state == "running":
            return self._at_work(path, step)
        if step.state == "ready":
            return self._ready(path, step)
        timers = self._run.timers
        if (due := timers.get(timer_key("retry", path))) is not None:
            return self._reason(
                path, "retry", due, f"the time of its next attempt; attempt {step.attempt} failed"
            )
        if (due := timers.get(timer_key("delay", path))) is not None:
            return self._reason(path, "timer", due, "that time")
        return self._reason(path, step.state, None, "the answer that it waits for")

    def _at_work(self, path: str, step: Step) -> Reason:
        if not self._is_driven:
            text = f"going on with the run; attempt {step.attempt} was at work when its process ended"
            return self._reason(path, "lost", None, text)
        node = self._plan.node(path)
        limit = node.timeout_ms if isinstance(node, Call) else None
        until = None if limit is None else Millis(self._since.get(path, self._run.at) + limit)
        if step.target is not None:
            return self._reason(
                path, "stopping", until, "its answer, or the end of its grace; it was told to stop"
            )
        return self._reason(path, "at_work", until, f"the end of attempt {step.attempt}")

    def _ready(self, path: str, step: Step) -> Reason:
        if step.reason == "no_tool":
            node = self._plan.node(path)
            tool = node.target if isinstance(node, Call) else path
            return self._reason(path, "no_tool", None, f"a process with the tool {tool!r}: --tools MODULE")
        if step.reason == "suspect":
            due = self._run.timers.get(timer_key("suspect", path))
            text = f"its turn to run alone; {step.lost} processes ended while it was at work"
            return self._reason(path, "suspect", due, text)
        return self._reason(path, step.reason or "slot", None, "a free place, when the run goes on")

    def _reason(self, path: str, reason: str, until: Millis | None, unblocks: str) -> Reason:
        return Reason(path, reason, self._since.get(path, self._run.at), until, unblocks)
