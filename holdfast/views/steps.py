"""The steps of a run as users see them: a projection of journal rows, one entry per step that was reached.

    rows ──► Steps.take(event, decisions, at) ──► {path: StepView}

`Steps` receives committed rows in order, new or stored, and needs no plan and no store. The output of a scope is not in any row
(it is gathered from its leaves), so `read_steps`, which has the store, fills it in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self, assert_never

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import (
    ArmTimer,
    BeginEnd,
    BeginStop,
    CompleteStep,
    Continue,
    Decision,
    FailStep,
    FinishRun,
    KeepSignal,
    NoteAnswer,
    NoteUndo,
    OpenScope,
    OpenWait,
    Poll,
    ReserveKey,
    SetGuard,
    SetVar,
    StartAttempt,
    StopAttempt,
    Take,
    TakeSignal,
    Undo,
)
from holdfast.engine.events import (
    Adopted,
    ApprovalAnswered,
    AttemptReleased,
    AttemptTimedOut,
    CallbackReceived,
    CancelRequested,
    Continued,
    Event,
    KeyAnswered,
    KeyGranted,
    KeyHeld,
    RunStarted,
    SignalReceived,
    StepFailed,
    StepPaused,
    StepSucceeded,
    Supplied,
    SuspectsTurn,
    TimerFired,
)
from holdfast.engine.state import LACKS, beneath
from holdfast.plan.graph import COMPENSATE
from holdfast.store.records import ReadRow
from holdfast.values import NULL, Error, Millis, StepState, scope_of, split

_ENDED: Final = frozenset({"completed", "skipped", "failed", "cancelled"})
_OF_STEPS: Final = (
    "delay",
    "retry",
    "suspect",
    "expiry",
    "poll",
    "worker",
)  # timers that a step itself waits for
_FOR_OTHERS: Final = (*LACKS, "key", "callback", "signal", "approval", "condition")
_OUTSIDE: Final = frozenset({("ready", "no_tool"), *(("waiting", kind) for kind in _FOR_OTHERS)})


class StepView(msgspec.Struct, omit_defaults=True):
    """One step instance. `attempt` is the number of the latest attempt. `attempts` counts all attempts, except those that were given
    back because this process does not have the tool, or no worker was there; a step that makes no call has none.

    `error` is the latest error while a step is retried, and the cause once it has failed. `due` is when a waiting or retrying step
    continues by itself. Of the `children` of a fan-out, `done` have ended, and `failed` of those have failed.
    """

    path: str
    status: StepState
    started: Millis
    attempts: int = 0
    output: msgspec.Raw = NULL
    error: Error | None = None
    finished: Millis | None = None
    due: Millis | None = None
    # why it is ready and not running: stopping, lost; running: on_error, while its failure is handled; or what it waits for: no_tool,
    # no_worker, key, callback, signal, approval, condition
    reason: str = ""
    is_scope: bool = False
    children: int = 0
    done: int = 0
    failed: int = 0
    joined: bool = False  # its output is gathered from its leaves
    stopping: str | None = None  # why its attempt was asked to stop
    order: int = 0  # its number in the order of reaching, from 1
    worker: tuple[str, ...] = ()  # the worker of its latest attempt, if any: id and address
    task_id: str = ""  # the task that its pending result belongs to
    waits_since: Millis | None = None  # when it last started to wait for a result from outside
    attempt: int = 0
    job_id: str | None = None  # the job of the latest attempt
    undoes: bool = False  # it is the compensation of another step

    @property
    def is_top(self) -> bool:
        """Whether it is shown where the steps inside of others are not."""
        return self.undoes or not split(self.path)[0]

    @property
    def is_over(self) -> bool:
        return self.status in _ENDED


class StepsState(msgspec.Struct):
    """What `Steps` knows besides the steps themselves."""

    open: list[str]
    outside: list[str]
    active: list[str]
    reached: int
    early: dict[str, tuple[msgspec.Raw, Error | None]]
    undone: list[str]


class Steps:
    """Steps by path, in the order in which they were reached.

    Without `every`, a step inside a scope is dropped once it has completed, so a loop of any length takes flat memory.
    """

    def __init__(self, *, every: bool = False) -> None:
        self.by_path: dict[str, StepView] = {}
        self._every = every
        self._open: dict[str, StepView] = {}
        self._outside: set[str] = set()  # open steps that wait for a tool, worker or key
        self._active: set[str] = set()  # open steps with an attempt that runs or could start
        self._changed: dict[str, StepView] = {}
        self._at = Millis(0)
        self._reached_so_far = 0
        self._early: dict[str, tuple[msgspec.Raw, Error | None]] = {}  # early callbacks
        self._undone: set[str] = set()  # the paths of compensations

    @classmethod
    def going_on(cls, state: StepsState, steps: Iterable[StepView]) -> Self:
        """Every step as it was, to take further rows."""
        found = cls(every=True)
        found.by_path = {step.path: step for step in steps}
        found._open = {path: found.by_path[path] for path in state.open}
        found._outside, found._active = set(state.outside), set(state.active)
        found._reached_so_far, found._early, found._undone = state.reached, state.early, set(state.undone)
        return found

    @property
    def state(self) -> StepsState:
        sets = list(self._open), sorted(self._outside), sorted(self._active)
        return StepsState(*sets, self._reached_so_far, self._early, sorted(self._undone))

    @property
    def open(self) -> list[StepView]:
        return list(self._open.values())

    @property
    def is_active(self) -> bool:
        """Return whether any attempt is open or ready. A run without one waits."""
        return bool(self._active)

    def has_open_upto(self, order: int) -> bool:
        """Return whether this step, or one that was reached before it, is open."""
        return any(step.order <= order for step in self._open.values())

    @property
    def stuck(self) -> list[StepView]:
        """Return the steps that wait for a tool or worker, or for a key that another run holds, if nothing else is open. Then this
        process cannot continue the run."""
        if not self._outside:
            return []  # called after every row, and there may be thousands of open steps
        leaves = [step for step in self._open.values() if not step.is_scope]
        return leaves if len(leaves) == len(self._outside) else []

    def take(self, event: Event, decisions: Iterable[Decision], at: Millis) -> list[StepView]:
        """Apply one row. Return the steps that it changed."""
        self._at, self._changed = at, {}
        self._fact(event)
        for decision in decisions:
            self._order(decision)
        return list(self._changed.values())

    def take_row(self, row: ReadRow) -> list[StepView]:
        _, _, at, _, body = row
        return self.take(*decode_row(body), Millis(at))

    def take_rows(self, rows: Iterable[ReadRow]) -> None:
        for row in rows:
            self.take_row(row)

    def _fact(self, event: Event) -> None:
        match event:
            case StepSucceeded() | StepFailed() | AttemptReleased():
                if (step := self._at_work(event.path, event.attempt)) and not self._stopped(step):
                    self._answered(step, event)
            case Adopted(lost):
                for path in lost:
                    if not self._stopped(step := self._open[path]):
                        self._set(step, "ready", "lost")
            case RunStarted(copied=copied):  # outcomes taken over from another run count as done
                for path, output in copied.items():
                    self._end(self._reached(path), "completed", output=output)
            case KeyHeld(path) if (found := self._open.get(path)) and found.reason == "key":
                self._set(found, "waiting", "key")
            case StepPaused() | CallbackReceived():
                self._later(event)
            case TimerFired():
                self._timer_fired(event)
            case (
                KeyHeld()
                | AttemptTimedOut()
                | Supplied()
                | SuspectsTurn()
                | CancelRequested()
                | Continued()
                | KeyGranted()
                | KeyAnswered()
                | SignalReceived()
                | ApprovalAnswered()
            ):
                pass  # their decisions change steps, if anything does
            case _:
                assert_never(event)

    def _timer_fired(self, event: TimerFired) -> None:
        step = self._open.get(event.path)
        if step is not None and event.timer in ("expiry", "worker"):
            self._set(step, "retrying")
        elif step is not None and event.timer == "grace" and step.stopping == event.path:
            self._stopped(step)

    def _later(self, event: StepPaused | CallbackReceived) -> None:
        """Apply a pause or its callback, which may arrive in either order."""
        step = self._open.get(event.path)
        if step is None or step.attempt != event.attempt:
            return
        if isinstance(event, CallbackReceived):
            if step.reason in ("callback", "poll"):
                self._called_back(step, event.output, event.error)
            elif step.stopping is None:
                self._early[event.path] = (event.output, event.error)
        elif step.status == "running" and not self._stopped(step):
            if event.path in self._early:
                self._called_back(step, *self._early.pop(event.path))
            else:
                self._set(step, "waiting", "callback")

    def _called_back(self, step: StepView, output: msgspec.Raw, error: Error | None) -> None:
        step.due = None
        if error is None:
            return self._end(step, "completed", output=output)
        step.error = error
        self._set(step, "retrying")

    def _answered(self, step: StepView, event: StepSucceeded | StepFailed | AttemptReleased) -> None:
        match event:
            case StepSucceeded(output=output, worker=worker):
                step.worker = worker[:2]
                self._end(step, "completed", output=output)
            case StepFailed(error=error, worker=worker):
                step.error, step.worker = error, worker[:2]
                self._set(step, "retrying")
            case AttemptReleased(reason=reason, waits=waits, lost=lost):
                step.attempts -= reason in LACKS and not lost
                self._set(step, "waiting" if waits else "ready", reason)

    def _order(self, decision: Decision) -> None:
        match decision:
            case StartAttempt(path, attempt):
                step = self._reached(path)
                step.attempt, step.attempts, step.due = attempt, step.attempts + 1, None
                self._set(step, "running")
            case ReserveKey(path):
                self._set(self._reached(path), "ready", "key")
            case StopAttempt(path, target):
                self._stop(self._open[path], target)
            case OpenWait(path, kind, name):
                step = self._reached(path)
                step.task_id, step.waits_since = name, self._at
                self._set(step, "waiting", kind)
            case ArmTimer():
                self._armed(decision)
            case BeginStop(target, error) if (found := self._open.get(target)) and not found.is_scope:
                found.error = error  # it timed out: the reason for the stop is the reason for the retry
            case OpenScope(path, count, _, value, _, is_nested):
                step = self._reached(path)
                # Only a fan-out has children to count.
                step.is_scope, step.children = True, count if value == NULL and not is_nested else 0
            case CompleteStep() | FailStep():
                self._closed(decision)
            case SetGuard() | BeginEnd() | Undo() | FinishRun():
                self._at_end(decision)
            case (
                BeginStop()
                | NoteUndo()
                | NoteAnswer()
                | KeepSignal()
                | TakeSignal()
                | Poll()
                | SetVar()
                | Take()
                | Continue()
            ):
                pass  # they change no step
            case _:
                assert_never(decision)

    def _at_end(self, decision: SetGuard | BeginEnd | Undo | FinishRun) -> None:
        """Apply what follows the end of a step or of the run."""
        if isinstance(decision, Undo):
            self._undone.add(f"{decision.path}.{COMPENSATE}")
        elif not isinstance(decision, SetGuard):
            for step in self.open:
                self._end(step, "cancelled")
        elif decision.phase == "on_error" and decision.error is not None and decision.path in self.by_path:
            # It has failed, and the steps that handle this run: it is open until they have ended.
            step = self._open[decision.path] = self.by_path[decision.path]
            step.finished = None
            self._set(step, "running", "on_error")

    def _closed(self, order: CompleteStep | FailStep) -> None:
        if self._is_child(order.path, failed=isinstance(order, FailStep)):
            return
        step = self._reached(order.path)
        if isinstance(order, FailStep):
            return self._end(step, "failed", error=order.error)
        step.joined = order.joined
        self._end(step, "skipped" if order.skipped else "completed", output=order.value)

    def _armed(self, order: ArmTimer) -> None:
        """Apply a timer, which may be the one that a step waits for."""
        if order.timer not in _OF_STEPS:
            return
        step = self._reached(order.path)
        if order.timer == "poll":
            return self._set(step, "waiting", "poll")
        step.due = order.at
        if order.timer == "expiry":
            self._set(step, "waiting", step.reason or "callback")
        else:
            self._set(step, "waiting" if order.timer == "delay" else step.status, step.reason)

    def _stop(self, step: StepView, target: str) -> None:
        if step.status == "running":
            step.stopping = target
        else:
            self._end(step, "cancelled")

    def _at_work(self, path: str, attempt: int) -> StepView | None:
        """Return the step if this attempt is its open one; the result of any other attempt is late."""
        step = self._open.get(path)
        return step if step is not None and step.status == "running" and step.attempt == attempt else None

    def _stopped(self, step: StepView) -> bool:
        """Count an attempt that was asked to stop as stopped, whatever its result."""
        target, step.stopping = step.stopping, None
        if target is None:
            return False
        if target == step.path:  # it timed out: the step itself is retried, or fails
            self._set(step, "retrying")
        else:
            self._end(step, "cancelled")
        return True

    def _reached(self, path: str) -> StepView:
        step = self._open.get(path)
        if step is None:
            # It completed in this row, but its output could not be kept, so it fails.
            step = self._changed.get(path) or self._new(path)
            self._open[path] = self.by_path[path] = step
        self._changed[path] = step
        return step

    def _new(self, path: str) -> StepView:
        self._reached_so_far += 1
        undoes = path in self._undone
        return StepView(path, "running", self._at, order=self._reached_so_far, undoes=undoes)

    def _set(self, step: StepView, status: StepState, reason: str = "") -> None:
        step.status, step.reason = status, reason
        self._changed[step.path] = step
        if status in ("running", "ready"):
            self._active.add(step.path)
        else:
            self._active.discard(step.path)
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
        if not self._remembers(step):
            self.by_path.pop(step.path, None)

    def _remembers(self, step: StepView) -> bool:
        """Return whether a step that has just ended is kept."""
        return self._every or step.is_top or step.status == "failed"

    def _is_child(self, path: str, *, failed: bool = False) -> bool:
        """Return whether a path is a child of a fan-out. It has the name of its frame, `loop[3]`; its scope counts it, and it is not a step."""
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
