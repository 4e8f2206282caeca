"""Runs as the task API shows them: a task, and one node run per attempt, both built from journal rows alone.

    rows ──► NodeRuns.take(row) ──► a page of node runs, in the order of their beginning
         └─► Course.take(row)   ──► current node, last action, steps so far

A node is a step of the top level; what happens inside of one is shown under its key, with a branch: the index of a child, or
the key of a node of the graph inside. Times are Unix seconds, values are JSON in text. Knows no notation and no SQL.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, assert_never

import msgspec

from holdfast import limits
from holdfast.engine.codec import blob_of, decode_row
from holdfast.engine.decisions import (
    ArmTimer,
    BeginStop,
    CompleteStep,
    Continue,
    Decision,
    FailStep,
    FinishRun,
    KeepSignal,
    NoteAnswer,
    OpenScope,
    OpenWait,
    Poll,
    ReserveKey,
    SetVar,
    StartAttempt,
    StopAttempt,
    Take,
    TakeSignal,
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
    SuspectsTurn,
    TimerFired,
)
from holdfast.engine.state import Run, beneath
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Block, Plan
from holdfast.runtime.load import load_run_in_turns, whole
from holdfast.store.base import Store
from holdfast.store.records import ReadRow, RunRow, Wanted
from holdfast.values import NULL, TERMINAL, Error, Millis, RunNo, base_of, scope_of, split, written
from holdfast.views.outputs import UNSHOWN, output_text

ROWS_AT_A_TIME: Final = 200
NODE_RUN_CHARS_MAX: Final = 16 * 1024 * 1024  # of what those of one answer were given and gave, about
NODE_RUN_PAGES_REMEMBERED_MAX: Final = 8
COURSE_ROWS_MAX: Final = (
    20_000  # of a journal that was not read before; after them, only where nodes are left
)
TELLING_ROWS: Final = 20  # one of so many consecutive rows shows where a run is
LARGE_BYTES_MAX: Final = 16 * 1024 * 1024  # large values that one answer shows in full, together
PASSED_MAX: Final = 20_000  # of these, how many are passed over in one go
REMEMBERED_MAX: Final = 1_000
CALL: Final = "call"  # the one step inside a child of a node that calls many

# Our statuses → those of the task API. Several of ours map to the same one.
STATUS: Final = {
    "pending": "pending",
    "running": "running",
    "waiting": "running",
    "cancelling": "canceling",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
    "cancelled": "canceled",
}


_BEGINNING: Final = frozenset({StartAttempt, OpenScope, OpenWait, ArmTimer})
_ENDED: Final = frozenset({CompleteStep, FailStep})
_ENDING: Final = frozenset({StepSucceeded, CallbackReceived})

Answer = StepSucceeded | StepFailed | StepPaused | CallbackReceived | AttemptReleased


class Task(msgspec.Struct, frozen=True):
    id: str
    flow_version_id: str | None
    status: str
    params_json: str
    shared_json: str
    current_node_key: str
    last_action: str
    step_count: int
    retry_state_json: str
    lease_owner: str | None
    lease_expiry: int | None  # of a node on a file there is none: its lock ends with its process
    request_id: str | None
    created_at: int
    updated_at: int
    flow_id: str | None
    flow_name: str
    flow_version: int | None


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


# --------------------------------------------------------------------------------------------------- node runs


class NodeRuns:
    """Node runs as rows tell of them, with the values as they stand in the rows: those of one page, from the one behind
    `after` on. `further` is the reading of the next page as it begins, once there is one."""

    def __init__(self, run_id: str, *, after: int = 0, limit: int = limits.DEFAULTS.node_runs_max) -> None:
        self.found: dict[int, NodeRun] = {}  # by which one it was to begin, from 1
        self.further: NodeRuns | None = None
        self.seq = 0
        self.after = after
        self._run_id, self._limit = run_id, limit
        self._begun = self._chars = 0
        self._key = ""  # of the newest one
        self._open: dict[str, NodeRun] = {}  # by path
        self._last: dict[str, NodeRun] = {}  # by path, of those that this row ended
        self._inputs: dict[str, str] = {}  # by path; they stand with the first attempt only
        self._scopes: set[str] = set()
        self._paused: set[str] = set()  # paths whose calls are answered later
        self._early: dict[str, tuple[msgspec.Raw, Error | None]] = {}
        self._why: dict[str, Error] = {}  # why attempts were asked to stop
        self._at = Millis(0)

    def may_change(self, run: Run | None) -> bool:
        """Does a later row tell of a node run of this page? `run` is as of the last row; None if it is over."""
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
        """Once the page is full, what comes next is the next one's, which goes on from here by itself."""
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
                    self._end(path, "error", error=why)  # it was asked to stop before it answered
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
                | Take()
                | NoteAnswer()
                | KeepSignal()
                | TakeSignal()
                | Poll()
                | SetVar()
                | Continue()
            ):
                pass  # no node run changes by them
            case _:
                assert_never(decision)

    def _given(self, path: str, inputs: msgspec.Raw) -> None:
        if inputs != NULL:  # they stand with the first attempt only
            self._inputs[path] = bytes(inputs).decode()

    def _called_back(self, path: str, output: msgspec.Raw, error: Error | None) -> None:
        """The later answer of a call. One that comes before the call has said that it will is kept until then."""
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
        else:  # a timer: nothing is at work
            self._end(path, "error", error=self._why.get(target) or Error("stopped", "it was stopped"))

    def _fail(self, path: str, error: Error) -> None:
        if path in self._open or path not in self._last:
            self._ensure(path)  # it may never have begun: what it was to be given could not be made
            self._end(path, "error", error=error)
        else:
            self._last[path].status, self._last[path].error_text = "error", error.message
        self._is_over(path)

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
            started_at=_seconds(self._at),
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
        found.status, found.finished_at = status, _seconds(self._at)
        if status == "ok":
            found.exec_output_json = bytes(output).decode()
            if self.found:  # else it is of a page before this one
                self._chars += len(output)
            self._is_over(path)
        if error is not None:
            found.error_text = error.message
        if found.branch_id is not None:
            found.sub_status = "branch_complete" if found.branch_id.isdecimal() else "sub_node_complete"

    def _is_over(self, path: str) -> None:
        """There will be no other attempt: what was kept for one is forgotten, so that a long run takes no more memory."""
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
        """A child of a fan-out is named like its frame, `loop[3]`, and is no step."""
        scope, index = scope_of(path)
        return index is not None and scope in self._scopes


def place_of(path: str) -> tuple[str, str | None]:
    """The node that a path belongs to, and where inside of it: `a~2` → (`a`, None), `p[1].call` → (`p`, `1`)."""
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
    """Is this attempt at a step, or the scope of that path, still open in the run as it is now?"""
    if run is None:
        return False
    step = run.steps.get(path)
    is_at_it = step is not None and step.state in ("running", "waiting") and max(step.attempt, 1) == attempt
    return is_at_it or path in run.scopes


class NodeRunPages:
    """Pages of node runs. One that may still change is remembered, and so is where the next one begins: looking at a run
    again reads only what is new, and the next page not what is before it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[tuple[RunNo, int, int], NodeRuns] = OrderedDict()

    async def page(self, row: RunRow, *, after: int, limit: int) -> tuple[list[NodeRun], int | None]:
        """The node runs behind the one that was the `after`th to begin, and behind which one the next page begins.

        Attempts that were given back since are not on it, so it may be shorter than asked for. It is empty only where no
        other comes after it: some people stop there.
        """
        told, further = await self._told(row, after, limit)
        while not told.found and further is not None:
            told, further = await self._told(row, further.after, limit)
        return await self._shown(row.no, told), None if further is None else further.after

    async def _told(self, row: RunRow, after: int, limit: int) -> tuple[NodeRuns, NodeRuns | None]:
        """A page, and the one after it. Others get their turn between two pieces of the journal."""
        key = (row.no, after, limit)
        told = self._known.get(key) or NodeRuns(row.id, after=after, limit=limit)
        self._remember(key, told)
        told.cut()  # one row may begin more of them than a page has
        run = None if row.status in TERMINAL else await _folded(self._store, row.no)
        while told.may_change(run) and (rows := await self._rows(row.no, told)):
            for each in rows:
                if each[0] > told.seq:  # else another request has read the same page meanwhile
                    told.take(each)
            await asyncio.sleep(0)
        further = told.further
        if further is not None:
            self._remember((row.no, further.after, limit), further)
        return told, further

    async def _rows(self, no: RunNo, told: NodeRuns) -> list[ReadRow]:
        return await self._store.journal(no, told.seq, ROWS_AT_A_TIME)

    def _remember(self, key: tuple[RunNo, int, int], told: NodeRuns) -> None:
        self._known.setdefault(key, told)
        self._known.move_to_end(key)
        while len(self._known) > NODE_RUN_PAGES_REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def _shown(self, no: RunNo, told: NodeRuns) -> list[NodeRun]:
        """With their values in full, and their own: what is remembered goes on changing."""
        shown, found = _Shown(self._store, no), list[NodeRun]()
        for each in list(told.found.values()):
            given = await shown.text(each.exec_input_json)
            gave = await shown.text(each.exec_output_json)
            found.append(
                msgspec.structs.replace(
                    each, exec_input_json=given, exec_output_json=gave, prep_json=_prepared(given)
                )
            )
            if len(found) % ROWS_AT_A_TIME == 0:
                await asyncio.sleep(0)
        return found


async def _folded(store: Store, no: RunNo) -> Run | None:
    stored = await store.load(no)
    return None if stored is None else await load_run_in_turns(store, stored)


class _Shown:
    """Values in full, as long as they are not too much together."""

    def __init__(self, store: Store, no: RunNo) -> None:
        self._store, self._no, self._left = store, no, LARGE_BYTES_MAX

    async def text(self, value: str | None) -> str | None:
        if value is None or blob_of(raw := msgspec.Raw(value.encode())) is None or self._left <= 0:
            return value
        full = bytes(await whole(self._store, self._no, raw)).decode()
        self._left -= len(full)
        return full


class _Given(msgspec.Struct):
    input: msgspec.Raw


def _prepared(given: str | None) -> str | None:
    """What a node took from shared state, of all that it was given."""
    if given is None:
        return None
    try:
        return bytes(msgspec.json.decode(given, type=_Given).input).decode()
    except msgspec.ValidationError:
        return given


# ------------------------------------------------------------------------------------------------------- tasks


class Course:
    """Where a run has come to at its top level."""

    def __init__(self) -> None:
        self.action, self.steps = "", 0
        self.seq = 0
        self.is_whole = True  # no row was skipped
        self.turn = ""  # the latest node in the rows, with its visit
        self._over: set[str] = set()  # nodes that have come to an end
        self._last_over = ""  # of them, with its visit
        self._path = ""

    @property
    def current(self) -> str:
        return place_of(self._path)[0] if self._path else ""

    def take(self, row: ReadRow) -> None:
        self.seq, *_, body = row
        event, decisions = decode_row(body)
        if type(event) in _ENDING and decisions:
            self._end(event.path)  # type: ignore[union-attr]  # both have one
        for decision in decisions:
            kind = type(decision)
            if kind in _BEGINNING:
                if kind is not ArmTimer or decision.timer == "delay":  # type: ignore[union-attr]
                    self._path = decision.path  # type: ignore[union-attr]
            elif kind in _ENDED:
                self._end(decision.path)  # type: ignore[union-attr]
            elif kind is Take:
                self._leave(decision)  # type: ignore[arg-type]
            elif kind is FinishRun:
                self._finish(decision)  # type: ignore[arg-type]
        self.turn = turn_after(decisions) or self.turn

    def _end(self, path: str) -> None:
        if not split(path)[0] and scope_of(path)[1] is None:
            self.steps += 1
            self._over.add(base_of(path))
            self._last_over = path

    def _leave(self, order: Take) -> None:
        if not split(order.path)[0]:
            self.action, self._path = order.action, order.to

    def _finish(self, order: FinishRun) -> None:
        self._path = order.error.path if order.status == "failed" and order.error is not None else ""

    def count_visits(self, run: Run, block: Block) -> None:
        """Count what was passed over: how often nodes were met that may be met again stands in the run."""
        visits, first = dict(run.frames[""].visits), run.first or block.first
        if first in block.again:
            visits.setdefault(first, 1)
        is_open = self.turn not in ("", self._last_over) and base_of(self.turn) in block.again
        self.steps = len(self._over - block.again) + sum(visits.values()) - is_open


def turn_after(decisions: list[Decision]) -> str:
    """The node of the top level, with its visit, that a row's decisions leave the run at; empty if they do not show it."""
    for decision in reversed(decisions):
        if isinstance(decision, Take) and decision.to and not split(decision.path)[0]:
            return f"{decision.to}~{decision.visit}" if decision.visit > 1 else decision.to
        if path := getattr(decision, "path", ""):
            while frame := split(path)[0]:
                path = frame
            return scope_of(path)[0]
    return ""


class Courses:
    """Courses of runs, read once: what was found is remembered. Of a very long journal, what lies between two rows that
    are inside of one node, or on one cycle, is not read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[RunNo, Course] = OrderedDict()

    async def of(self, run: Run, plan_of: Callable[[], Awaitable[Plan]]) -> Course:
        """As of the last row of the run as it is given."""
        course = self._known.setdefault(run.no, Course())
        self._known.move_to_end(run.no)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        until, last = course.seq + COURSE_ROWS_MAX, run.seq
        while course.seq < last:
            if course.seq >= until:
                course.is_whole = False
                await self._pass_over(course, run, (await plan_of()).root)
            rows = await self._store.journal(run.no, course.seq, ROWS_AT_A_TIME)
            if not rows:
                break  # the run is being deleted
            for row in rows:
                if course.seq < row[0] <= last:
                    course.take(row)
            await asyncio.sleep(0)
        if not course.is_whole:
            course.count_visits(run, (await plan_of()).root)
        return course

    async def _pass_over(self, course: Course, run: Run, block: Block) -> None:
        """Go on to the last row that tells nothing new: no node is met any more that was left for good, so between two
        rows on one cycle there is nothing else. Where the newest visit begins is read: it says what led there."""
        newest, here = await self._turn_at(run.no, run.seq), course.turn

        def tells_nothing(turn: str) -> bool:
            if "" in (turn, here) or newest in (turn, here):
                return turn == here == newest
            return block.leads(base_of(turn), base_of(here))

        low, high = course.seq, run.seq
        while high - low > ROWS_AT_A_TIME:
            middle = (low + high) // 2
            if tells_nothing(await self._turn_at(run.no, middle)):
                low = middle
            else:
                high = middle
        course.seq = max(course.seq, low)  # another request may have read further meanwhile

    async def _turn_at(self, no: RunNo, seq: int) -> str:
        """Where the run was after a row, or after one of a few before it; empty if none of them shows it."""
        rows = await self._store.journal(no, max(0, seq - TELLING_ROWS), TELLING_ROWS)
        turns = (turn_after(decode_row(body)[1]) for *_, body in reversed(rows))
        return next(filter(None, turns), "")


class Reader(Protocol):
    """What tasks are read with: rows, plans, and the courses that were followed before."""

    @property
    def store(self) -> Store: ...
    @property
    def courses(self) -> Courses: ...
    async def plan_of(self, row: RunRow) -> Plan: ...


async def task_of(reader: Reader, row: RunRow) -> Task:
    """A task read in one snapshot: a completed task is always shown with its final shared state."""
    store = reader.store
    stored = await store.load(row.no)
    assert stored is not None
    row, run = stored.row, await load_run_in_turns(store, stored)
    course = await reader.courses.of(run, lambda: reader.plan_of(row))
    release = await _release_of(store, row)
    return Task(
        id=row.id,
        flow_version_id=None if release is None else release[0],
        status=STATUS[row.status],
        params_json=bytes(run.inputs).decode(),
        shared_json=await _shared(reader, row, run),
        current_node_key=course.current,
        last_action=course.action,
        step_count=course.steps,
        retry_state_json=_retries(run),
        lease_owner=row.owner,
        lease_expiry=None,
        request_id=await store.request_of(row.no),
        created_at=_seconds(row.created_at),
        updated_at=_seconds(run.at),
        flow_id=None if release is None else release[1],
        flow_name=row.workflow,
        flow_version=row.number,
    )


async def _release_of(store: Store, row: RunRow) -> tuple[str | None, str] | None:
    if row.number is not None:
        release = await store.release(row.tenant, row.workflow, row.number)
        if release is not None:
            return release.id, release.flow_id
    workflow = await store.workflow(row.tenant, row.workflow)
    return None if workflow is None else (None, workflow.id)


async def _shared(reader: Reader, row: RunRow, run: Run) -> str:
    """The current shared state: that of a completed run is its output."""
    if run.status == "completed":
        return await _final(reader, row, run)
    kept = run.frames[""].vars
    shown = {name: await whole(reader.store, row.no, value) for name, value in kept.items()}
    return msgspec.json.encode(shown).decode()


async def _final(reader: Reader, row: RunRow, run: Run) -> str:
    """A task whose state is too large to be shown says so, and does not affect the rest of its page."""
    try:
        return (await output_text(reader.store, await reader.plan_of(row), run)).decode()
    except (TooLarge, RecursionError):
        return written({"error": {"kind": "output_too_large", "message": UNSHOWN}}).decode()


def _retries(run: Run) -> str:
    waiting = {path: step.tries for path, step in run.steps.items() if step.state == "retrying"}
    return msgspec.json.encode(waiting).decode()


async def tasks_page(
    reader: Reader, tenant: str, *, status: str | None, release_id: str | None, page: int, size: int
) -> tuple[list[Task], int]:
    wanted = await _wanted(reader, tenant, status, release_id)
    if page < 1 or not 1 <= size <= limits.now.page_max:
        raise LimitExceeded(
            "page_max", f"a page has from 1 to {limits.now.page_max} tasks, and the first is 1"
        )
    if (page - 1) * size > limits.now.offset_max:
        raise LimitExceeded("offset_max", f"a page lies behind at most {limits.now.offset_max:,} tasks")
    if wanted is None:
        return [], 0
    total = await reader.store.count_runs(tenant, wanted)
    below, skip = None, (page - 1) * size
    while skip > 0:
        passed = min(skip, PASSED_MAX)
        skip, below = skip - passed, await reader.store.below_runs(tenant, below, passed, wanted)
        if below is None:
            return [], total
        await asyncio.sleep(0)
    rows = (await reader.store.list_runs(tenant, below, size, wanted)).rows
    return await _tasks_of(reader, rows), total


async def _tasks_of(reader: Reader, rows: list[RunRow]) -> list[Task]:
    """Tasks with all that they hold, as long as that is not too much together: each may be as large as a run can be."""
    found: list[Task] = []
    left = most = limits.now.page_chars_max
    for row in rows:
        found.append(await task_of(reader, row))
        left -= len(found[-1].shared_json) + len(found[-1].params_json)
        if left < 0 and len(found) > 1:
            raise LimitExceeded(
                "page_chars_max",
                f"{len(found)} tasks of this page hold more than {most:,} characters; ask for a smaller"
                " page_size",
            )
        await asyncio.sleep(0)
    return found


async def _wanted(reader: Reader, tenant: str, status: str | None, release_id: str | None) -> Wanted | None:
    """Which runs a page of tasks is of; None if there can be none."""
    ours = None if status is None else tuple(own for own, theirs in STATUS.items() if theirs == status)
    if ours == ():
        raise InvalidInputs(
            f"no task has the status {status!r}; one of {', '.join(dict.fromkeys(STATUS.values()))}"
        )
    if release_id is None:
        return Wanted(status=ours)
    release = await reader.store.release_by_id(tenant, release_id)
    return None if release is None else Wanted(status=ours, workflow=release.name, number=release.number)


def _worker(worker: tuple[str, ...]) -> tuple[str | None, str | None]:
    name, url = (*worker, "", "")[:2]
    return name or None, url or None


def _seconds(at: Any) -> int:
    return int(at // 1000)
