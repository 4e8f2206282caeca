"""Node runs of the task API: one per attempt at a node, a projection of journal rows.

    rows ──► NodeRuns.take(row) ──► a page of node runs, in the order in which they started

A node is a top-level step. Whatever happens inside it is shown under its key, with a branch: the index of a child, or the key of a
node of the nested graph. Times are Unix seconds, values are JSON in text. Knows no notation and no SQL.
"""

from __future__ import annotations

import copy
from typing import Any, Final, assert_never

import msgspec

from holdfast import limits
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
from holdfast.engine.state import LACKS, Run, beneath
from holdfast.store.records import ReadRow
from holdfast.values import NULL, Error, Millis, base_of, scope_of, split

NODE_RUN_CHARS_MAX: Final = 16 * 1024 * 1024  # inputs and outputs of one page together, approximately
CALL: Final = "call"  # the only step inside a child of a node that makes many calls

Answer = StepSucceeded | StepFailed | StepPaused | CallbackReceived | AttemptReleased


class NodeRun(msgspec.Struct):
    id: str
    task_id: str
    node_key: str
    attempt_no: int
    status: str  # running, ok, error, canceled
    started_at: int
    finished_at: int | None = None
    prep_json: str | None = None
    exec_input_json: str | None = None
    exec_output_json: str | None = None
    error_text: str | None = None
    action: str | None = None
    worker_id: str | None = None
    worker_url: str | None = None
    sub_status: str | None = None
    branch_id: str | None = None


class NodeRuns:
    """One page of node runs, built row by row, with large values as references. The page starts behind node run number `after`.
    `further` is the state at the start of the next page, once this page is full."""

    def __init__(self, run_id: str, *, after: int = 0, limit: int = limits.DEFAULTS.node_runs_max) -> None:
        self.found: dict[int, NodeRun] = {}  # by number, in the order of starting, from 1
        self.further: NodeRuns | None = None
        self.seq = 0
        self.after = after
        self._run_id, self._limit = run_id, limit
        self._begun = self._chars = 0
        self._key = ""  # the node key of the newest node run
        self._open: dict[str, NodeRun] = {}  # by path
        self._last: dict[str, NodeRun] = {}  # by path: those that this row ended
        self._inputs: dict[str, str] = {}  # by path; only the row of the first attempt has them
        self._scopes: set[str] = set()
        self._paused: set[str] = set()  # paths with a pending call
        self._early: dict[str, tuple[msgspec.Raw, Error | None]] = {}
        self._why: dict[str, Error] = {}  # why attempts were asked to stop
        self._at = Millis(0)

    def may_change(self, run: Run | None) -> bool:
        """Return whether a later row may change a node run of this page. `run` is the current state; None if it has finished."""
        if self.further is None:
            return True
        of_page = {id(found) for found in self.found.values()}
        return any(
            id(found) in of_page and not _is_open_in(run, path, found.attempt_no)
            for path, found in self._open.items()
        )

    def take(self, row: ReadRow) -> None:
        self.seq, _, self._at, _, body = row  # type: ignore[assignment]
        event, decisions = decode_row(body)
        self._last = {}
        self._fact(event)
        for decision in decisions:
            self._order(decision)
        self.cut()

    def cut(self) -> None:
        """Once the page is full, give the rest to the next page, which continues from here."""
        is_full = len(self.found) > self._limit or self._chars > NODE_RUN_CHARS_MAX
        if self.further is not None or not is_full:
            return
        last = sorted(self.found)[: self._limit][-1]
        rest = {order: each for order, each in self.found.items() if order > last}
        self.found = {order: each for order, each in self.found.items() if order <= last}
        further = copy.copy(self)
        for name in ("_inputs", "_scopes", "_paused", "_early", "_why"):
            setattr(further, name, copy.copy(getattr(self, name)))
        own = {id(each): copy.copy(each) for each in (*self._open.values(), *rest.values())}
        further._open = {path: own[id(each)] for path, each in self._open.items()}
        further.found = {order: own[id(each)] for order, each in rest.items()}
        further.after, further._chars, self.further = last, 0, further

    def _fact(self, event: Event) -> None:
        match event:
            case RunStarted(copied=copied):
                for path, output in copied.items():
                    self._begin(path, 0)
                    self._end(path, "ok", output=output)
            case StepSucceeded() | StepFailed() | StepPaused() | CallbackReceived() | AttemptReleased():
                if self._is(event.path, event.attempt):
                    self._answered(event)
            case Adopted(lost=lost):
                for path in lost:
                    if path in self._open:
                        self._end(path, "error", error=Error("lost", "it was lost with its process"))
            case KeyAnswered(path, output):
                self._ensure(path)
                self._end(path, "ok", output=output)
            case CancelRequested():
                self._why[""] = Error("canceled", "canceled")
            case (
                AttemptTimedOut()
                | Supplied()
                | SuspectsTurn()
                | TimerFired()
                | Continued()
                | KeyGranted()
                | KeyHeld()
                | SignalReceived()
                | ApprovalAnswered()
            ):
                pass  # their decisions change node runs, if anything does
            case _:
                assert_never(event)

    def _answered(self, event: Answer) -> None:
        path = event.path
        if isinstance(event, StepSucceeded | StepFailed | StepPaused):
            self._open[path].worker_id, self._open[path].worker_url = _worker(event.worker)
        match event:
            case AttemptReleased():
                self._forget(path)  # it never began
            case StepSucceeded(output=output):
                if (why := self._why.pop(path, None)) is not None:
                    self._end(path, "error", error=why)  # it was asked to stop before it returned
                else:
                    self._end(path, "ok", output=output)
            case StepFailed(error=error):
                self._end(path, "error", error=self._why.pop(path, error))
            case StepPaused():
                self._paused.add(path)
                if path in self._early:
                    self._called_back(path, *self._early[path])
            case CallbackReceived(output=output, error=later):
                self._called_back(path, output, later)
            case _:
                assert_never(event)

    def _order(self, decision: Decision) -> None:
        match decision:
            case StartAttempt(path, attempt, inputs):
                self._given(path, inputs)
                self._begin(path, attempt)
            case ReserveKey(path, inputs=inputs):
                self._given(path, inputs)
            case ArmTimer(path, "delay", _) | OpenWait(path):
                self._ensure(path)
            case OpenScope(path):
                self._scopes.add(path)
                self._begin(path, 1)
            case BeginStop(target, error):
                self._why[target] = error
            case StopAttempt(path, target):
                self._stop(path, target)
            case CompleteStep(path, value) if not self._is_child(path):
                self._ensure(path)
                self._end(path, "ok", output=value)
                self._last[path].sub_status = "skipped" if decision.skipped else self._last[path].sub_status
            case FailStep(path, error) if not self._is_child(path):
                self._fail(path, error)
            case Take(path, action) if path in self._last:
                self._last[path].action = action
            case FinishRun(status, _, error):
                self._finish(status, error)
            case (
                ArmTimer()
                | CompleteStep()
                | FailStep()
                | SetGuard()
                | NoteUndo()
                | BeginEnd()
                | Undo()
                | Take()
                | NoteAnswer()
                | KeepSignal()
                | TakeSignal()
                | Poll()
                | SetVar()
                | Continue()
            ):
                pass  # they change no node run
            case _:
                assert_never(decision)

    def _given(self, path: str, inputs: msgspec.Raw) -> None:
        if inputs != NULL:  # only the first attempt has them
            self._inputs[path] = bytes(inputs).decode()

    def _called_back(self, path: str, output: msgspec.Raw, error: Error | None) -> None:
        """Apply the result of a pending call. An early callback is kept until the call reports that it is pending."""
        if path not in self._paused:
            self._early[path] = output, error
            return
        self._paused.discard(path)
        self._early.pop(path, None)
        self._end(path, "ok" if error is None else "error", output=output, error=error)

    def _stop(self, path: str, target: str) -> None:
        found = self._open.get(path)
        if found is None:
            return
        if found.attempt_no and found.exec_input_json is not None and path in self._inputs:
            self._why.setdefault(path, self._why.get(target) or Error("stopped", "it was stopped"))
        else:  # a timer: no attempt is running
            self._end(path, "error", error=self._why.get(target) or Error("stopped", "it was stopped"))

    def _fail(self, path: str, error: Error) -> None:
        if path in self._open or path not in self._last:
            self._ensure(path)  # it may not have started: its inputs could not be rendered
            self._end(path, "error", error=error)
        else:
            self._last[path].status, self._last[path].error_text = "error", error.message
        self._drop_kept(path)

    def _finish(self, status: str, error: Error | None) -> None:
        why = Error("canceled", "canceled") if status == "cancelled" else error
        for path in list(self._open):
            self._end(path, "error", error=why or Error("stopped", "it was stopped"))
        if status == "cancelled":
            made = self._new("", 0, self._key, None)
            made.status = made.action = "canceled"
            made.finished_at = made.started_at
            self._add(made)

    def _ensure(self, path: str) -> None:
        if path not in self._open:
            self._begin(path, 1)

    def _begin(self, path: str, attempt: int) -> None:
        if path in self._open:  # it was asked to stop, and its grace period has ended
            self._end(path, "error", error=self._why.get(path) or Error("stopped", "it was stopped"))
        made = self._open[path] = self._new(path, attempt, *place_of(path))
        made.prep_json = made.exec_input_json = self._inputs.get(path)
        self._add(made)

    def _new(self, path: str, attempt: int, key: str, branch: str | None) -> NodeRun:
        return NodeRun(
            id=f"run-{self._run_id}:{path}:{attempt}",
            task_id=self._run_id,
            node_key=key,
            attempt_no=attempt,
            status="running",
            started_at=seconds(self._at),
            branch_id=branch,
        )

    def _add(self, made: NodeRun) -> None:
        self._begun += 1
        self._key = made.node_key
        if self._begun > self.after and self.further is None:
            self.found[self._begun] = made
            self._chars += len(made.exec_input_json or "")

    def _end(self, path: str, status: str, *, output: msgspec.Raw = NULL, error: Error | None = None) -> None:
        found = self._last[path] = self._open.pop(path)
        self._why.pop(path, None)
        found.status, found.finished_at = status, seconds(self._at)
        if status == "ok":
            found.exec_output_json = bytes(output).decode()
            if self.found:  # otherwise it belongs to an earlier page
                self._chars += len(output)
            self._drop_kept(path)
        if error is not None:
            found.error_text = error.message
        if found.branch_id is not None:
            found.sub_status = "branch_complete" if found.branch_id.isdecimal() else "sub_node_complete"

    def _drop_kept(self, path: str) -> None:
        """Drop what was kept for another attempt, so that the memory for a long run stays flat."""
        self._inputs.pop(path, None)
        self._why.pop(path, None)
        if path in self._scopes:
            self._scopes.discard(path)
            for inner in [each for each in self._inputs if beneath(path, each)]:
                del self._inputs[inner]

    def _forget(self, path: str) -> None:
        gone = self._open.pop(path)
        self.found = {order: each for order, each in self.found.items() if each is not gone}
        if not self.found:
            self._chars = 0

    def _is(self, path: str, attempt: int) -> bool:
        found = self._open.get(path)
        return found is not None and found.attempt_no == attempt

    def _is_child(self, path: str) -> bool:
        """Return whether a path is a child of a fan-out, which has the name of its frame (`loop[3]`) and is not a step."""
        scope, index = scope_of(path)
        return index is not None and scope in self._scopes


def place_of(path: str) -> tuple[str, str | None]:
    """Return the node that a path belongs to, and the branch inside it: `a~2` → (`a`, None), `p[1].call` → (`p`, `1`)."""
    segments = []
    while path:
        path, tail = split(path)
        segments.append(tail)
    top, *inner = reversed(segments)
    _, index = scope_of(top)
    parts = [str(index)] if index is not None else []
    parts += [_key_of(tail) for tail in inner]
    if index is not None and parts[1:] == [CALL]:
        del parts[1:]
    return _key_of(top), ".".join(parts) or None


def _key_of(tail: str) -> str:
    base = base_of(tail)
    return msgspec.json.decode(base, type=list[str])[0] if base.startswith('["') else base


def _is_open_in(run: Run | None, path: str, attempt: int) -> bool:
    """Return whether this attempt, or the scope with this path, is still open in the run."""
    if run is None:
        return False
    step = run.steps.get(path)
    is_at_it = step is not None and step.state in ("running", "waiting") and max(step.attempt, 1) == attempt
    # a step that lacks a tool or worker waits, and its attempt was given back
    return (is_at_it and step is not None and step.reason not in LACKS) or path in run.scopes


def _worker(worker: tuple[str, ...]) -> tuple[str | None, str | None]:
    name, url = (*worker, "", "")[:2]
    return name or None, url or None


def seconds(at: Any) -> int:
    return int(at // 1000)
