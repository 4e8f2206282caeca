"""The steps of a run as people see them: a projection of journal rows, one entry per step that was reached.

    rows ──► Steps.take(event, decisions, at) ──► {path: StepView}

`Steps` only listens: it sees committed rows in order, alive or read back, and never a plan or a store. What a scope
gave is not in any row (it is gathered from its leaves), so `read_steps`, which has the store, fills that in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.engine.decisions import (
    ArmTimer,
    BeginStop,
    CompleteStep,
    Decision,
    FailStep,
    FinishRun,
    OpenScope,
    ReserveKey,
    StartAttempt,
    StopAttempt,
)
from holdfast.engine.draft import Draft
from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    Event,
    KeyHeld,
    RunStarted,
    StepFailed,
    StepSucceeded,
    TimerFired,
)
from holdfast.engine.rows import decode_row
from holdfast.engine.state import Run, beneath
from holdfast.plan.graph import Plan
from holdfast.runtime.load import whole
from holdfast.runtime.queries import JOURNAL_PAGE, whole_run
from holdfast.store.base import ReadRow, Store
from holdfast.values import NULL, Error, Millis, RunNo, StepState, encode, scope_of, split

_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_OUTSIDE: Final = frozenset({("ready", "no_tool"), ("waiting", "key")})


class StepView(msgspec.Struct):
    """One step instance. `attempts` is the number of the latest one; what ends without a call has none.

    `error` is the last one while a step is tried again, and why it failed once it has. `due` is when a waiting or
    retrying step moves by itself. Of the `children` of a fan-out some are `done`, and some of those `failed`.
    """

    path: str
    status: StepState
    started: Millis
    attempts: int = 0
    output: msgspec.Raw = NULL
    error: Error | None = None
    finished: Millis | None = None
    due: Millis | None = None
    reason: str = ""  # why it is ready and not running: stopping, no_tool, lost; or waits: key
    is_scope: bool = False
    children: int = 0
    done: int = 0
    failed: int = 0
    joined: bool = False  # the output is that of its leaves
    stopping: str | None = None  # what its attempt was told to stop for

    @property
    def is_top(self) -> bool:
        return not split(self.path)[0]

    @property
    def is_over(self) -> bool:
        return self.status in _ENDED


class Steps:
    """Steps by path, in the order in which they were reached.

    Without `every`, a step inside a scope is forgotten once it has ended well: a loop of any length takes flat memory.
    """

    def __init__(self, *, every: bool = False) -> None:
        self.by_path: dict[str, StepView] = {}
        self._every = every
        self._open: dict[str, StepView] = {}
        self._outside: set[str] = set()  # open steps that wait for what is not here
        self._changed: dict[str, StepView] = {}
        self._at = Millis(0)

    @property
    def open(self) -> list[StepView]:
        return list(self._open.values())

    @property
    def stuck(self) -> list[StepView]:
        """The steps that wait for a tool, or for a key that another run holds, if nothing else is open: then nothing
        here can bring the run further."""
        if not self._outside:
            return []  # asked after every row, and there may be thousands of open steps
        leaves = [step for step in self._open.values() if not step.is_scope]
        return leaves if len(leaves) == len(self._outside) else []

    def take(self, event: Event, decisions: Iterable[Decision], at: Millis) -> list[StepView]:
        """Take one row in; gives the steps that it changed."""
        self._at, self._changed = at, {}
        self._fact(event)
        for decision in decisions:
            self._order(decision)
        return list(self._changed.values())

    def take_rows(self, rows: Iterable[ReadRow]) -> None:
        for _, _, at, _, body in rows:
            self.take(*decode_row(body), Millis(at))

    def _fact(self, event: Event) -> None:
        match event:
            case StepSucceeded() | StepFailed() | AttemptReleased():
                if (step := self._at_work(event.path, event.attempt)) and not self._stopped(step):
                    self._answered(step, event)
            case Adopted(lost):
                for path in lost:
                    if not self._stopped(step := self._open[path]):
                        self._set(step, "ready", "lost")
            case RunStarted(copied=copied):  # what another run gave counts as done
                for path, output in copied.items():
                    self._end(self._reached(path), "completed", output=output)
            case KeyHeld(path) if (found := self._open.get(path)) and found.reason == "key":
                self._set(found, "waiting", "key")
            case TimerFired(path, "grace") if (found := self._open.get(path)) and found.stopping == path:
                self._stopped(found)

    def _answered(self, step: StepView, event: StepSucceeded | StepFailed | AttemptReleased) -> None:
        match event:
            case StepSucceeded(output=output):
                self._end(step, "completed", output=output)
            case StepFailed(error=error):
                step.error = error
                self._set(step, "retrying")
            case AttemptReleased(reason=reason):
                self._set(step, "ready", reason)

    def _order(self, decision: Decision) -> None:
        match decision:
            case StartAttempt(path, attempt):
                step = self._reached(path)
                step.attempts, step.due = attempt, None
                self._set(step, "running")
            case ReserveKey(path):
                self._set(self._reached(path), "ready", "key")
            case StopAttempt(path, target):
                self._stop(self._open[path], target)
            case ArmTimer(path, timer, due) if timer in ("delay", "retry", "suspect"):
                step = self._reached(path)
                step.due = due
                self._set(step, "waiting" if timer == "delay" else step.status, step.reason)
            case BeginStop(target, error) if (found := self._open.get(target)) and not found.is_scope:
                found.error = error  # its time is over: what it was stopped for is why it is tried again
            case OpenScope(path, count, _, value, _, is_nested):
                step = self._reached(path)
                # A choice is one or the other, and a nested plan is one: only a fan-out has children to count.
                step.is_scope, step.children = True, count if value == NULL and not is_nested else 0
            case CompleteStep(path, value, _, joined) if not self._is_child(path):
                step = self._reached(path)
                step.joined = joined
                self._end(step, "completed", output=value)
            case FailStep(path, error) if not self._is_child(path, failed=True):
                self._end(self._reached(path), "failed", error=error)
            case FinishRun():
                for step in self.open:
                    self._end(step, "cancelled")

    def _stop(self, step: StepView, target: str) -> None:
        if step.status == "running":
            step.stopping = target
        else:
            self._end(step, "cancelled")

    def _at_work(self, path: str, attempt: int) -> StepView | None:
        """The step whose attempt this is, if it is still the open one: any other answer is late."""
        step = self._open.get(path)
        return step if step is not None and step.status == "running" and step.attempts == attempt else None

    def _stopped(self, step: StepView) -> bool:
        """An attempt that was told to stop has stopped, whatever it says."""
        target, step.stopping = step.stopping, None
        if target is None:
            return False
        if target == step.path:  # its time was over: the step itself is tried again, or fails
            self._set(step, "retrying")
        else:
            self._end(step, "cancelled")
        return True

    def _reached(self, path: str) -> StepView:
        step = self._open.get(path)
        if step is None:
            # Changed in this row and not open: its output came and could not be kept, so it fails after all.
            step = self._changed.get(path) or StepView(path, "running", self._at)
            self._open[path] = self.by_path[path] = step
        self._changed[path] = step
        return step

    def _set(self, step: StepView, status: StepState, reason: str = "") -> None:
        step.status, step.reason = status, reason
        self._changed[step.path] = step
        if (status, reason) in _OUTSIDE:
            self._outside.add(step.path)
        elif self._outside:
            self._outside.discard(step.path)

    def _end(
        self, step: StepView, status: StepState, *, output: msgspec.Raw = NULL, error: Error | None = None
    ) -> None:
        self._set(step, status)
        step.output, step.error, step.finished, step.due = output, error, self._at, None
        self._open.pop(step.path, None)
        if step.is_scope and status != "completed":
            self._cancel_beneath(step.path)
        if not (self._every or step.is_top or status == "failed"):
            self.by_path.pop(step.path, None)

    def _is_child(self, path: str, *, failed: bool = False) -> bool:
        """A fan-out's child is named like its frame, `loop[3]`, and is no step: its scope counts it."""
        scope_path, index = scope_of(path)
        scope = self._open.get(scope_path)
        if index is None or scope is None:
            return False
        scope.done += 1
        scope.failed += failed
        self._changed[scope_path] = scope
        return True

    def _cancel_beneath(self, target: str) -> None:
        for step in [step for path, step in self._open.items() if beneath(target, path)]:
            self._end(step, "cancelled")


async def steps_so_far(store: Store, no: RunNo, *, every: bool = False) -> Steps:
    """The steps of a run as of its last durable row, read page by page."""
    steps, after = Steps(every=every), 0
    while rows := await store.journal(no, after, JOURNAL_PAGE):
        steps.take_rows(rows)
        after = rows[-1][0]
    return steps


async def read_steps(store: Store, plan: Plan, run: Run, *, every: bool = False) -> dict[str, StepView]:
    """The steps of a run with their outputs whole: top-level and failed ones, or every one."""
    steps = (await steps_so_far(store, run.no, every=every)).by_path
    shown = {path: step for path, step in steps.items() if every or step.is_top or step.status == "failed"}
    await _fill_outputs(store, plan, run, shown.values())
    return shown


async def _fill_outputs(store: Store, plan: Plan, run: Run, steps: Iterable[StepView]) -> None:
    gathered: Draft | None = None
    for step in steps:
        if step.joined and gathered is None:
            gathered = Draft(plan, await whole_run(store, run), run.at)
        if step.joined and gathered is not None:
            step.output = msgspec.Raw(encode(gathered.output(step.path)))
        else:
            step.output = await whole(store, run.no, step.output)
