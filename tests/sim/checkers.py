"""What must hold whatever goes wrong, as checkers that read journals. Both layers use the same ones.

A Shadow follows one journal with a model of its own: it is written from the promises, not from the engine's code, and
shares nothing with it but the words of events and decisions. Beside it the rows are folded by the product, and the two
are compared after every row. What a shadow holds against each row:

- the journal is 1..n without a gap, and its time never runs backwards
- epochs never fall; every adoption raises the epoch, and lists exactly the attempts found open
- at most one terminal decision, nothing after it, and only legal changes of status
- attempt numbers are 1, 2, 3 … ; attempts ≤ max_attempts + lost + released ones; counted losses ≤ 3
- nothing starts after a step's outcome, after a cancel or a deadline, or beneath what is being stopped
- an answer that comes after the step moved on changes nothing
- open children ≤ concurrency, in item order; a scope closes when its children are closed, and leaves nothing open
- a retry starts when it is due, after the delay that the policy gives, and only where the policy allows one
- a step that failed is retried, failed or stopped; a stop that has all its answers goes on
- a step with a key begins when it is granted, takes the answer of another, or waits; who adopts a run asks again
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from holdfast.engine.codec import blob_of, decode_row
from holdfast.engine.decisions import (
    ArmTimer,
    BeginStop,
    CompleteStep,
    Continue,
    Decision,
    FailStep,
    FinishRun,
    OpenScope,
    ReserveKey,
    StartAttempt,
    StopAttempt,
)
from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    AttemptTimedOut,
    CancelRequested,
    Continued,
    Event,
    KeyAnswered,
    KeyGranted,
    KeyHeld,
    Outcome,
    RunStarted,
    StepFailed,
    StepSucceeded,
    Supplied,
    SuspectsTurn,
    TimerFired,
)
from holdfast.engine.fold import fold
from holdfast.engine.state import LACKS, Run
from holdfast.values import Error, Millis, RunId, RunNo, canonical, decode
from tests.sim.workloads import Data, Info, Workload, timeout_of

GRACE_MS: Final = 10_000
COUNTED_LOSSES_MAX: Final = 3
SUSPECT_AFTER: Final = 2
NEVER_RETRIED: Final = {"lost", "template", "inputs", "secret", "limit", "run_timeout"}
LEGAL: Final = {
    "new": {"pending", "running", "waiting", "completed", "failed"},
    "pending": {
        "pending",
        "running",
        "waiting",
        "cancelling",
        "completed",
        "failed",
        "cancelled",
        "interrupted",
    },
    "running": {"running", "waiting", "cancelling", "completed", "failed", "cancelled", "interrupted"},
    "waiting": {"waiting", "running", "cancelling", "completed", "failed", "cancelled", "interrupted"},
    "cancelling": {"cancelling", "cancelled", "failed"},
}


class Violation(AssertionError):
    """A promise was broken."""


def hold(fact: object, promise: str, *details: object) -> None:
    if not fact:
        raise Violation(f"{promise}: {', '.join(map(str, details))}" if details else promise)


@dataclass(slots=True)
class Call:
    """One call step. `phase`: open (at work), told (to stop), ready (given back or lost), rest (failed), done; before
    it has its key: asks, waits."""

    info: Info
    attempt: int = 0
    phase: str = "new"
    starts: int = 0
    tries: int = 0
    losses: int = 0
    alone: int = 0
    released: int = 0
    target: str = ""
    kind: str = ""  # of the last failure
    due: int = 0  # of the next retry
    suspect_due: int = 0
    is_suspect: bool = False
    in_lane: bool = False
    outlived: bool = False
    key: tuple[str, str] = ("", "")  # scope and text
    asked_at: int = 0
    is_asked: bool = True  # since the last adoption
    is_granted: bool = False  # for the law over many runs


@dataclass(slots=True)
class Fan:
    info: Info
    count: int
    next: int = 0
    open: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)


def parts_of(path: str) -> tuple[str, str, int | None]:
    """Frame, step id and index of a path: `a[1].b[2]` → (`a[1]`, `b`, 2). The workloads' ids need no quoting."""
    frame, _, tail = path.rpartition(".")
    name, bracket, index = tail.partition("[")
    return frame, name, int(index[:-1]) if bracket else None


def within(target: str, path: str) -> bool:
    return not target or path.startswith((target + ".", target + "["))


class Shadow:
    def __init__(self, load: Workload, run_id: str, no: int = 1) -> None:
        self.load, self.run_id = load, run_id
        self.run = Run(RunNo(no), RunId(run_id), load.plan.version)
        self.epoch, self.at, self.created_at = -1, 0, 0
        self.begun = self.over = False
        self.visited = False
        self.driven = True  # false from an adoption that only looks, to the next that goes on
        self.status = "new"
        self.ending = ""
        self.todo: list[tuple[str, str, str]] = []  # work that was cut
        self.calls: dict[str, Call] = {}
        self.waits: dict[str, int] = {}  # timer steps that wait, and until when
        self.fans: dict[str, Fan] = {}
        self.stops: dict[str, set[str]] = {}
        self.timers: dict[str, int] = {}
        self.finished: dict[str, Any] = {}  # path → output as raw JSON, or None where it is gathered
        self.failures: dict[str, Error] = {}
        self.copied: dict[str, Outcome] = {}  # of the run that this one is a rerun of, until they are met
        self.fan_outs: dict[str, Fan] = {}  # closed ones, for the output
        self.counts: Counter[str] = Counter()
        self.event: Event = Continued()
        self.is_late = False  # the last row came too late to matter
        self.held: set[str] = set()  # attempts that workers have, when somebody adopts the run
        self.late_ms = 0  # how long after its time the last timer fired

    # ------------------------------------------------------------------------------------------------- rows

    def row(self, seq: int, epoch: int, at: int, body: str | bytes, blobs: dict[str, bytes]) -> None:
        """Take the next row of the journal; raises Violation where it breaks a promise."""
        event, decisions = decode_row(body)
        event = whole(event, blobs)
        decisions = [whole(decision, blobs) for decision in decisions]
        hold(seq == self.run.seq + 1, "the journal is 1..n without a gap", seq, self.run.seq)
        hold(not self.over, "nothing follows the terminal row", event)
        hold(at >= self.at, "the journal's time never runs backwards", seq, at, self.at)
        hold(epoch >= self.epoch, "epochs never fall", seq, epoch, self.epoch)
        if epoch > self.epoch >= 0:
            self.counts["new epoch"] += 1
        was = self.epoch
        self.epoch, self.at, self.event = epoch, at, event
        late = self.is_late = self.fact(event, was)
        before = self.bare() if late else b""
        fold(self.run, event, decisions, Millis(at), epoch)
        if late:
            hold(not decisions, "a late answer causes nothing", event, decisions)
            hold(self.bare() == before, "a late answer changes nothing", event)
            self.counts["late row"] += 1
        for decision in decisions:
            getattr(self, ORDERS[type(decision)])(decision)
        self.after()

    def bare(self) -> bytes:
        return text_of(msgspec.structs.replace(self.run, seq=0, epoch=0, at=Millis(0)))

    # ------------------------------------------------------------------------------------------------ facts

    def fact(self, event: Event, epoch_before: int) -> bool:
        """Take the event into the model. True if it came too late to matter."""
        if isinstance(event, RunStarted):
            hold(self.run.seq == 0, "a run starts once")
            self.begun, self.created_at = event.drive, self.at
            self.finished.update({path: bytes(output) for path, output in event.copied.items()})
            self.copied = dict(event.taken)
            self.counts["rerun"] += event.first is not None or bool(event.taken)
        elif isinstance(event, Adopted):
            self.adopted(event, epoch_before)
        elif isinstance(event, StepSucceeded | StepFailed | AttemptTimedOut | AttemptReleased):
            return self.answer(event)
        elif isinstance(event, TimerFired):
            return self.timer(event)
        elif isinstance(event, KeyGranted | KeyHeld | KeyAnswered):
            return self.verdict(event)
        elif isinstance(event, CancelRequested):
            self.ending = "cancelled"
            self.counts["cancel"] += 1
        elif isinstance(event, Continued):
            self.todo = []
        return False

    def adopted(self, event: Adopted, epoch_before: int) -> None:
        hold(self.epoch > epoch_before, "every adoption raises the epoch", self.epoch, epoch_before)
        open_now = {path for path, call in self.calls.items() if call.phase in ("open", "told")}
        # One that takes up a run of its own, after its commits failed, may have some of them at work.
        # What workers have fetched goes on without us.
        gone = open_now - self.held
        exact = event.restarted and not self.is_interrupted_by_restart  # else what is lost changes nothing
        known = set(event.lost) == gone if exact else set(event.lost) <= open_now
        hold(known, "an adoption lists the attempts found open", event.lost, open_now)
        hold(not event.alone or event.alone in open_now, "who was alone was at work", event.alone)
        self.begun = self.begun or event.drive
        self.driven = event.drive
        self.visited = self.visited or not event.drive
        self.todo = [] if event.drive else self.todo
        self.counts["adopted"] += 1
        for path in event.lost:
            self.lost(path, self.calls[path], alone=path == event.alone, drive=event.drive)
        for call in self.calls.values():
            call.is_asked = call.is_asked and not event.drive

    def verdict(self, event: KeyGranted | KeyHeld | KeyAnswered) -> bool:
        call = self.calls.get(event.path)
        if call is None or call.phase not in ("asks", "waits"):
            return True
        if isinstance(event, KeyHeld):
            call.phase = "waits"
            self.counts["key held"] += 1
        elif isinstance(event, KeyAnswered):
            call.phase = "done"
        return False

    def lost(self, path: str, call: Call, *, alone: bool, drive: bool) -> None:
        self.counts["lost attempt"] += 1
        if call.phase == "told" and (drive or call.target != path):
            return self.answered(path, call)
        if call.phase == "told":
            self.end_stop(path)  # nobody is here to try it again: it is lost, and ready
        if alone:
            hold(call.in_lane, "only a suspect that has the lane to itself is alone", path, call.attempt)
            self.counts["lost alone"] += 1
        call.losses += 1
        call.alone += alone
        call.phase, call.is_suspect, call.in_lane = "ready", call.losses >= SUSPECT_AFTER, False

    def answer(self, event: StepSucceeded | StepFailed | AttemptTimedOut | AttemptReleased) -> bool:
        call = self.calls.get(event.path)
        if call is None or call.attempt != event.attempt or call.phase not in ("open", "told"):
            return True
        if isinstance(event, AttemptTimedOut):
            if call.phase == "told":
                return True
            hold(call.info.timeout_ms is not None, "only a step with a time limit times out", event.path)
            return False
        if call.phase == "told":
            self.answered(event.path, call)
        elif isinstance(event, StepSucceeded):
            call.phase = "done"
            self.finished[event.path] = bytes(event.output)
        elif isinstance(event, StepFailed):
            call.phase, call.tries, call.kind = "rest", call.tries + 1, event.error.kind
        else:
            call.phase, call.released, call.is_suspect = (
                "lacks" if event.waits else "ready",
                call.released + 1,
                False,
            )
            self.counts["released"] += 1
        call.in_lane = False
        return False

    def is_supplied(self, path: str) -> bool:
        """A split decision may start the rest of the steps that were supplied together."""
        return isinstance(self.event, Continued) or (
            isinstance(self.event, Supplied) and path in self.event.paths
        )

    def answered(self, path: str, call: Call) -> None:
        """An attempt that was told to stop is gone, whatever it said."""
        told = self.stops.get(call.target)
        if told is not None:
            told.discard(path)
        call.in_lane = False
        if call.target == path:
            call.phase, call.tries, call.kind = "rest", call.tries + 1, "timeout"
            self.end_stop(path)
        else:
            call.phase = "done"

    def timer(self, event: TimerFired) -> bool:
        key = f"{event.timer} {event.path}"
        if key not in self.timers:
            return True
        due = self.timers.pop(key)
        hold(self.at >= due, "a timer never fires before its time", key, self.at, due)
        self.late_ms = max(self.late_ms, self.at - due)
        if event.timer == "deadline" and event.path:
            self.counts["nested deadline"] += 1
        elif event.timer == "deadline":
            self.ending = self.ending or "run_timeout"
            self.counts["deadline"] += 1
        elif event.timer == "delay":
            del self.waits[event.path]
        elif event.timer == "worker":
            lacking = self.calls[event.path]
            lacking.phase, lacking.tries, lacking.kind = "rest", lacking.tries + 1, "no_worker"
            self.counts["no worker came"] += 1
        elif event.timer == "grace":
            self.counts["grace over"] += 1
            call = self.calls.get(event.path)
            if call is not None and call.phase == "told" and call.target == event.path:
                call.outlived = True
                self.answered(event.path, call)
        return False

    # --------------------------------------------------------------------------------------------- decisions

    def start(self, order: StartAttempt) -> None:
        path = order.path
        self.may_begin(path)
        hold(path not in self.copied, "a rerun does not do again what it takes over", path)
        hold(not self.ending, "nothing starts once the run is being stopped", path, self.ending)
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = Call(self.step(path, "tool"))
            hold(call.info.key is None, "a step with a key asks for it before it begins", path)
            self.check_inputs(path, order.inputs)
        hold(
            order.attempt == call.attempt + 1,
            "attempt numbers are 1, 2, 3 …",
            path,
            order.attempt,
            call.attempt,
        )
        if call.phase in ("asks", "waits"):
            hold(
                self.event == KeyGranted(path),
                "a step with a key begins when it is granted",
                path,
                self.event,
            )
            call.phase = "new"
        if call.phase == "lacks":
            hold(
                self.is_supplied(path),
                "a step that lacks a tool or worker starts when it is supplied",
                path,
                self.event,
            )
            self.timers.pop(f"worker {path}", None)
            call.phase = "ready"
        hold(call.phase in ("new", "ready", "rest"), "a step has one attempt at a time, and none after its outcome",
             path, order.attempt, call.phase)  # fmt: skip
        self.may_start_again(order, call)
        call.attempt, call.starts = order.attempt, call.starts + 1
        bound = call.info.max_attempts + call.losses + call.released
        hold(call.starts <= bound, "attempts ≤ max_attempts + lost + released ones", path, call.starts, bound)
        hold(
            order.overlapping == call.outlived, "an attempt beside one that outlived its grace says so", path
        )
        call.in_lane = isinstance(self.event, SuspectsTurn)
        call.phase, call.is_suspect = "open", False

    def reserve(self, order: ReserveKey) -> None:
        path = order.path
        self.may_begin(path)
        hold(not self.ending, "nothing is asked for once the run is being stopped", path, self.ending)
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = Call(self.step(path, "tool"))
            self.check_inputs(path, order.inputs)
            call.key = ("" if call.info.is_global else self.run_id, self.key_text(path))
        else:
            hold(
                isinstance(self.event, Adopted | Continued),
                "a step asks once, or after an adoption",
                path,
                self.event,
            )
            hold(call.phase in ("asks", "waits"), "only who has no key asks again", path, call.phase)
        scope = "" if order.is_global else self.run_id
        hold(
            (scope, order.key) == call.key,
            "a step asks for the key that its definition says",
            order,
            call.key,
        )
        call.phase, call.asked_at, call.is_asked = "asks", self.at, True

    def key_text(self, path: str) -> str:
        text = self.step(path).key or ""
        if "item" not in text:
            return text.replace("{{inputs.n}}", str(self.load.inputs["n"]))
        return text.replace("{{item}}", str(self.item_for(path)))

    def may_start_again(self, order: StartAttempt, call: Call) -> None:
        path = order.path
        if call.losses:
            hold(call.info.on_crash != "fail", "on_crash: fail is never started again after a loss", path)
        if call.phase == "rest":
            hold(
                self.may_retry(call),
                "a retry is made only where the policy allows one",
                path,
                call.kind,
                call.tries,
            )
            key = f"retry {path}"
            hold(key not in self.timers, "a retry never starts before its due time", path)
            low, _ = delays_of(call.info.retry, call.tries)
            hold(call.due or low == 0, "a retry waits for its delay", path, low)
            hold(self.at >= call.due, "a retry never starts before its due time", path, self.at, call.due)
            call.due = 0
        elif call.phase == "ready" and call.is_suspect:
            turn = isinstance(self.event, SuspectsTurn) and self.event.path == path
            hold(turn, "a suspect starts in a row of its own", path, self.event)
            hold(self.at >= call.suspect_due, "a suspect lost alone waits before its next turn", path)
            self.counts["suspect started"] += 1

    def may_retry(self, call: Call) -> bool:
        retry = call.info.retry
        if retry is None or call.tries >= retry["max_attempts"] or call.kind in NEVER_RETRIED:
            return False
        return "retry_on" not in retry or call.kind in retry["retry_on"]

    def may_begin(self, path: str) -> None:
        """A step begins in open blocks only, after the step before it, and not beneath what is being stopped."""
        hold(self.begun, "nothing starts before the run has begun", path)
        frame, name, _ = parts_of(path)
        for target in self.stops:
            hold(
                target == path or not within(target, path),
                "nothing starts beneath what is being stopped",
                path,
                target,
            )
        if frame:
            fan_path, index = frame_of(frame)
            fan = self.fans.get(fan_path)
            hold(fan is not None, "nothing starts in a scope that is closed", path, fan_path)
            assert fan is not None
            self.child_opens(fan_path, fan, index or 0)
        before = self.predecessor(frame, name)
        if before is not None and path not in self.calls:
            hold(before in self.finished, "a step starts when the one before it is complete", path, before)
        hold(
            path not in self.finished and path not in self.failures, "no step begins after its outcome", path
        )

    def child_opens(self, path: str, fan: Fan, index: int) -> None:
        if index in fan.open:
            return
        hold(index not in fan.closed, "nothing starts in a child that is closed", path, index)
        hold(index == fan.next, "children open in item order", path, index, fan.next)
        fan.next += 1
        fan.open.add(index)

    def stop_attempt(self, order: StopAttempt) -> None:
        path = order.path
        if path in self.waits:
            del self.waits[path]
            self.timers.pop(f"delay {path}", None)
            return
        call = self.calls.get(path)
        hold(call is not None and call.phase != "done", "only what is open is told to stop", path)
        assert call is not None
        if call.phase in ("open", "told"):
            if call.phase == "told":
                self.end_stop(call.target)
            call.phase, call.target = "told", order.target
            self.counts["stop"] += 1
            return
        call.phase = "done"
        for timer in ("retry", "suspect"):
            self.timers.pop(f"{timer} {path}", None)

    def begin_stop(self, order: BeginStop) -> None:
        target = order.target
        for inner in [one for one in self.stops if one and one != target and within(target, one)]:
            self.end_stop(inner)
        told = {path for path, call in self.calls.items() if call.phase == "told" and call.target == target}
        hold(told, "a stop waits for somebody", target)
        # its time passed while nobody was there, and workers are still at it
        if not target and not self.ending:
            hold(isinstance(self.event, Adopted), "a run is stopped by a cancel or its deadline", self.event)
            self.ending = "run_timeout"
        self.stops[target] = told

    def end_stop(self, target: str) -> None:
        self.stops.pop(target, None)
        self.timers.pop(f"grace {target}", None)

    def arm(self, order: ArmTimer) -> None:
        self.timers[f"{order.timer} {order.path}"] = order.at
        getattr(self, f"arm_{order.timer}")(order)

    def arm_retry(self, order: ArmTimer) -> None:
        call = self.calls[order.path]
        hold(
            call.phase == "rest" and self.may_retry(call),
            "only a failed attempt is retried",
            order.path,
            call,
        )
        low, high = delays_of(call.info.retry, call.tries)
        delay = order.at - self.at
        hold(low <= delay <= high, "the delay before a retry is the policy's", order.path, delay, low, high)
        call.due = order.at
        self.counts["retry"] += 1

    def arm_delay(self, order: ArmTimer) -> None:
        self.may_begin(order.path)
        hold(not self.ending, "no wait begins once the run is being stopped", order.path)
        delay = self.delay_of(order.path)
        hold(
            order.at == self.at + delay,
            "a timer waits as long as it says",
            order.path,
            order.at - self.at,
            delay,
        )
        self.waits[order.path] = order.at

    def delay_of(self, path: str) -> int:
        given = self.step(path, "timer").data["delay_ms"]
        return int(given if isinstance(given, int) else self.load.inputs["n"])

    def arm_grace(self, order: ArmTimer) -> None:
        hold(order.path in self.stops, "a grace belongs to a stop", order.path)
        hold(order.at == self.at + GRACE_MS, "the grace is ten seconds", order.path, order.at - self.at)

    def arm_deadline(self, order: ArmTimer) -> None:
        if order.path:
            limit = timeout_of(self.step(order.path, "workflow").child or {})
            due = self.at + (limit or 0)
            return hold(
                limit and order.at == due, "the time of a nested workflow counts from its entering", order
            )
        hold(self.load.timeout_ms is not None, "only a run with a time limit has a deadline")
        due = self.created_at + (self.load.timeout_ms or 0)
        hold(order.at == due, "the time of a run counts from its creation", order.at, due)

    def arm_suspect(self, order: ArmTimer) -> None:
        call = self.calls[order.path]
        delay = min(60_000, 1000 * 2 ** (call.alone - 1))
        hold(
            order.at == self.at + delay,
            "the pause of a suspect doubles",
            order.path,
            order.at - self.at,
            delay,
        )
        call.suspect_due = order.at

    def open_scope(self, order: OpenScope) -> None:
        self.may_begin(order.path)
        hold(not self.ending, "nothing opens once the run is being stopped", order.path)
        info = self.step(order.path)
        self.fans[order.path] = fan = Fan(info, order.count)
        if info.kind == "parallel":
            hold(
                order.count == len(info.data["branches"]),
                "a parallel has as many children as branches",
                order.path,
            )
        elif info.kind == "foreach":
            items = self.items_of(info, order.path)
            hold(
                order.count == len(items),
                "a foreach has as many children as items",
                order.path,
                order.count,
                items,
            )
        else:
            fan.next, fan.open = 1, {0}
            hold(order.is_nested == (info.kind == "workflow"), "a scope says whether it is a plan of its own")
            if order.is_nested and b"$of" not in bytes(order.items):
                given = decode(order.items)
                hold(
                    given == self.load.inputs,
                    "a nested workflow is given what it is passed",
                    order.path,
                    given,
                )

    def complete(self, order: CompleteStep) -> None:
        path = order.path
        _, name, index = parts_of(path)
        if index is not None:
            return self.child_closes(path, index, failed=False)
        if (outcome := self.copied.pop(path, None)) is not None:
            return self.ends_as_before(order, outcome)
        kind = self.load.steps[name].kind
        fan = self.fans.pop(path, None)
        if fan is not None:
            self.joined(path, fan)
        elif kind == "timer":
            hold(path not in self.waits, "a timer completes when it is over", path)
            if self.event != TimerFired(path, "delay"):
                self.may_begin(path)
                hold(self.delay_of(path) == 0, "a timer waits as long as it says", path)
            self.counts["timer over"] += 1
        elif isinstance(self.event, KeyAnswered) and self.event.path == path:
            hold(bytes(order.value) == bytes(self.event.output), "an answer is taken as it is", path)
        else:
            hold(kind == "branch", "a call completes by its answer alone", path)
            self.may_begin(path)
        self.timers.pop(f"deadline {path}", None)
        info = self.load.steps[name]
        gathered = kind in ("foreach", "parallel") and info.data.get("collect") != "none"
        gathered = gathered or (info.child is not None and "output" not in info.child)
        self.finished[path] = None if gathered else bytes(order.value)

    def ends_as_before(self, order: CompleteStep, outcome: Outcome) -> None:
        """A step that a rerun does not do again."""
        self.may_begin(order.path)
        hold(outcome.error is None, "a rerun takes a failure over as a failure", order.path, outcome.error)
        same = decode(order.value) == decode(outcome.output)
        hold(same, "a rerun takes an output over as it was", order.path, order.value, outcome.output)
        self.finished[order.path] = bytes(order.value)

    def joined(self, path: str, fan: Fan) -> None:
        if fan.info.is_single:
            taken = self.taken(path) if fan.info.child is None else fan.info.child["steps"]
            last = f"{path}.{taken[-1]['id']}" if taken else ""
            hold(not last or last in self.finished, "a block is complete when its last step is", path, last)
            self.counts["nested over"] += fan.info.child is not None
        else:
            hold(not fan.open, "a scope is complete when no child is open", path, fan.open)
            hold(len(fan.closed) == fan.count, "a scope is complete when every child is closed", path, fan)
            hold(not fan.failed or fan.info.goes_on, "a failed child fails its scope unless it goes on", path)
            self.counts["join"] += 1
        self.nothing_open(path)
        self.fan_outs[path] = fan

    def taken(self, path: str) -> list[Data]:
        """The part of a branch that was entered, by the steps that were seen in it."""
        data = self.load.steps[parts_of(path)[1]].data
        begun = {
            parts_of(one)[1]
            for one in (*self.calls, *self.finished, *self.failures, *self.waits)
            if within(path, one)
        }
        return next(
            (part for part in (data["then"], data["else"]) if any(step["id"] in begun for step in part)), []
        )

    def child_closes(self, path: str, index: int, *, failed: bool) -> None:
        fan_path = frame_of(path)[0]
        fan = self.fans.get(fan_path)
        hold(fan is not None and index in fan.open, "a child closes once, in an open scope", path)
        assert fan is not None
        fan.open.discard(index)
        fan.closed.add(index)
        if failed:
            fan.failed.add(index)
            return self.drop(path)
        data = fan.info.data
        block = data["steps"] if fan.info.kind == "foreach" else data["branches"][index]
        last = f"{path}.{block[-1]['id']}"
        hold(last in self.finished, "a child is complete when its last step is", path, last)
        self.nothing_open(path)

    def nothing_open(self, path: str) -> None:
        for one, call in self.calls.items():
            hold(
                call.phase == "done" or not within(path, one),
                "nothing is open beneath what is closed",
                path,
                one,
            )
        for one in (*self.waits, *self.fans):
            hold(not within(path, one), "nothing is open beneath what is closed", path, one)

    def fail(self, order: FailStep) -> None:
        path = order.path
        index = parts_of(path)[2]
        if index is not None:
            return self.child_closes(path, index, failed=True)
        if (outcome := self.copied.pop(path, None)) is not None:
            self.may_begin(path)
            hold(order.error == outcome.error, "a rerun takes an error over as it was", path, order.error)
        elif path not in self.fans and path not in self.calls:
            self.may_begin(path)
            unbegun = order.error.kind in ("template", "input_too_large")
            hold(unbegun, "only what cannot begin fails unbegun", path)
        self.failures[path] = order.error
        if path in self.fans:
            self.drop(path)
            self.timers.pop(f"deadline {path}", None)
            self.fan_outs[path] = self.fans.pop(path)
            return self.end_stop(path)
        call = self.calls.get(path)
        if call is None:
            return
        self.may_fail(path, call, order.error)
        call.phase = "done"
        self.end_stop(path)

    def may_fail(self, path: str, call: Call, error: Error) -> None:
        if error.kind == "lost" and call.kind != "lost":
            enough = call.info.on_crash == "fail" and call.losses > 0 or call.alone >= COUNTED_LOSSES_MAX
            hold(enough and call.phase == "ready", "a loss fails a step only where it counts", path, call)
            self.counts["failed by loss"] += 1
            return
        if error.kind == "key_conflict":
            fails = call.info.data.get("on_conflict") == "fail" and self.event == KeyHeld(path)
            self.counts["key conflict"] += 1
            return hold(fails, "only who does not wait for a key fails when it is held", path, self.event)
        hold(call.phase == "rest", "a step fails by a failure of its attempt", path, call.phase, error)
        hold(
            not self.may_retry(call), "a failure that may be retried is retried", path, call.tries, error.kind
        )

    def drop(self, target: str) -> None:
        """A failed scope or child takes all beneath it along; what it still does is late."""
        for path, call in self.calls.items():
            if within(target, path):
                call.phase = "done"
        for path in [one for one in self.waits if within(target, one)]:
            del self.waits[path]
        for path in [one for one in self.fans if within(target, one)]:
            self.fan_outs[path] = self.fans.pop(path)
        for path in [one for one in self.stops if one and within(target, one)]:
            del self.stops[path]
        self.todo = [item for item in self.todo if item[1] != target and not within(target, item[1])]
        for key in [
            one for one in self.timers if one.partition(" ")[2] and within(target, one.partition(" ")[2])
        ]:
            del self.timers[key]

    def cut(self, order: Continue) -> None:
        self.todo += order.todo
        self.counts["continue"] += 1

    def finish(self, order: FinishRun) -> None:
        hold(not self.over, "a run ends once")
        self.over = True
        at_work = {path for path, call in self.calls.items() if call.phase in ("open", "told")}
        if order.status == "completed":
            hold(not self.ending, "a run that is being stopped never completes", self.ending)
            hold(self.is_complete(), "a run is complete when its last step is")
            self.nothing_open("")
        elif order.status == "cancelled":
            hold(self.ending == "cancelled", "only a cancelled run ends cancelled", self.ending)
            hard = isinstance(self.event, Adopted) or self.event == TimerFired("", "grace")
            hold(hard or not at_work, "a cancelled run ends when all has answered or had its grace", at_work)
        elif order.status == "interrupted":
            restarted = isinstance(self.event, Adopted) and self.event.restarted
            asked = self.is_interrupted_by_restart and restarted
            hold(asked, "only a restart interrupts a run that asks for it", self.event)
            hold(
                self.ending != "cancelled",
                "a cancelled run ends cancelled, whatever else happens",
                self.ending,
            )
        else:
            hold(
                self.ending != "cancelled",
                "a cancelled run ends cancelled, whatever else happens",
                order.error,
            )
            kind = order.error.kind if order.error else ""
            limit = self.load.timeout_ms
            is_late = limit is not None and self.at >= self.created_at + limit
            told_late = isinstance(self.event, Adopted) and is_late  # its time passed while nobody was there
            out_of_time = self.ending == "run_timeout" or told_late
            nested = any(error.kind == "run_timeout" for error in self.failures.values())
            told = kind == "run_timeout" if out_of_time or not nested else True
            hold(told == (out_of_time or nested), "a run out of time says so", kind)
        self.counts[order.status] += 1

    @property
    def is_interrupted_by_restart(self) -> bool:
        return self.load.data.get("on_restart") == "interrupt"

    def is_complete(self) -> bool:
        return self.load.data["steps"][-1]["id"] in self.finished

    # ---------------------------------------------------------------------------------------- after every row

    def after(self) -> None:
        run = self.run
        hold(
            run.status in LEGAL[self.status],
            "a status changes only as the model allows",
            self.status,
            run.status,
        )
        self.status = run.status
        hold(run.over == self.over, "a run is over when it was said to be", run.status)
        if self.over:
            return
        self.compare(run)
        if self.driven:
            self.follows(run)

    def compare(self, run: Run) -> None:
        """The product's fold and this model must tell the same story."""
        mine = {path: call.attempt for path, call in self.calls.items() if call.phase in ("open", "told")}
        theirs = {path: step.attempt for path, step in run.steps.items() if step.state == "running"}
        hold(mine == theirs, "the fold knows which attempts are open", mine, theirs)
        lacks = {path for path, call in self.calls.items() if call.phase == "lacks"}
        without = {
            path for path, step in run.steps.items() if step.state == "waiting" and step.reason in LACKS
        }
        hold(lacks == without, "the fold knows which steps lack a tool or worker", lacks, without)
        ready = {path for path, call in self.calls.items() if call.phase in ("ready", "asks")}
        waits = {path for path, call in self.calls.items() if call.phase == "waits"}
        known = {path for path, step in run.steps.items() if step.state == "waiting" and step.reason == "key"}
        hold(waits == known, "the fold knows which steps wait for a key", waits, known)
        found = {path for path, step in run.steps.items() if step.state == "ready"}
        hold(ready == found, "the fold knows which steps are ready", ready, found)
        hold(self.timers == run.timers, "the fold knows which timers are armed", self.timers, run.timers)
        hold(self.fans.keys() == run.scopes.keys(), "the fold knows which scopes are open", self.fans.keys())
        for path, fan in self.fans.items():
            if not fan.info.is_single:
                scope = run.scopes[path]
                counts = (scope.open, scope.next, scope.failed)
                hold(
                    counts == (len(fan.open), fan.next, len(fan.failed)),
                    "the fold counts children",
                    path,
                    counts,
                    fan,
                )
            hold(len(fan.open) <= fan.info.concurrency, "open children ≤ concurrency", path, fan.open)
        for path, call in self.calls.items():
            step = run.steps.get(path)
            if step is not None:
                counted = (step.tries, step.lost, step.lost_alone)
                hold(
                    counted == (call.tries, call.losses, call.alone),
                    "a loss is no failure",
                    path,
                    counted,
                    call,
                )
                hold(call.alone <= COUNTED_LOSSES_MAX, "counted losses ≤ 3", path, call.alone)
        hold(
            run.status == self.expected_status(bool(mine or ready)),
            "a run's status is that of its steps",
            run.status,
        )

    def expected_status(self, active: bool) -> str:
        if self.ending:
            return "cancelling"
        if not self.begun:
            return "pending"
        return "running" if active or self.run.todo else "waiting"

    def follows(self, run: Run) -> None:
        """Whatever came to rest has something that moves it on."""
        for path, call in self.calls.items():
            if call.phase == "rest":
                hold(
                    f"retry {path}" in self.timers, "a step that failed is retried or fails", path, self.event
                )
            if call.phase in ("asks", "waits"):
                hold(call.is_asked or self.todo, "whoever drives a run asks again for its keys", path)
            if self.event in (KeyGranted(path), KeyHeld(path)) and not self.is_late:
                fails = isinstance(self.event, KeyHeld) and call.info.data.get("on_conflict") == "fail"
                moved = call.phase not in ("asks", "waits")
                hold(moved or (isinstance(self.event, KeyHeld) and not fails), "a verdict is followed", path)
            if call.phase == "ready" and not self.todo:
                given_up = call.alone >= COUNTED_LOSSES_MAX or (call.losses and call.info.on_crash == "fail")
                hold(not given_up, "a loss that counts for good fails the step", path, call)
        for target, told in self.stops.items():
            hold(told or self.visited, "a stop that has all its answers goes on", target, self.event)
            hold(f"grace {target}" in self.timers, "a stop has a grace", target)
        if self.ending:
            hold("" in self.stops, "a run that is being stopped waits for somebody", self.ending)
        if self.begun and self.load.timeout_ms is not None and not self.ending:
            hold("deadline " in self.timers, "a run with a time limit has its deadline armed")
        hold(run.todo or not self.todo, "work that was cut is kept", run.todo, self.todo)
        self.moves()

    def moves(self) -> None:
        """An open run has something open in each of its open scopes, or work that was cut."""
        if self.run.todo or not self.begun or self.ending:
            return
        alive = [path for path, call in self.calls.items() if call.phase != "done"] + list(self.waits)
        if self.visited:  # a stop whose last answer a visitor took goes on when its grace is over
            alive += self.stops
        hold(alive, "an open run waits for something", self.event)
        for path, fan in self.fans.items():
            if any(target == path or within(target, path) for target in self.stops):
                continue  # it ends with what is being stopped
            hold(any(within(path, one) for one in alive), "an open scope waits for something", path, fan)
            if not fan.info.is_single and self.wants_more(fan):
                hold(
                    len(fan.open) >= fan.info.concurrency, "a scope is filled as far as it may be", path, fan
                )

    def wants_more(self, fan: Fan) -> bool:
        return fan.next < fan.count

    # ------------------------------------------------------------------------------------------------ values

    def phase_of(self, path: str, number: int) -> str:
        return self.calls[path].phase if self.calls[path].attempt == number else "superseded"

    def follows_an_end(self, path: str) -> bool:
        """Whether a step runs after a cancel too."""
        return False

    @property
    def ends_as_asked(self) -> bool:
        """Whether a run that was cancelled ended so."""
        return self.status == "cancelled"

    def step(self, path: str, kind: str = "") -> Info:
        info = self.load.steps[parts_of(path)[1]]
        hold(not kind or info.kind == kind, "a decision fits the kind of its step", path, info.kind)
        return info

    def predecessor(self, frame: str, name: str) -> str | None:
        block = self.block_of(frame, name)
        at = next(index for index, step in enumerate(block) if step["id"] == name)
        return join_path(frame, block[at - 1]["id"]) if at else None

    def block_of(self, frame: str, name: str) -> list[Data]:
        if not frame:
            found: list[Data] = self.load.data["steps"]
            return found
        fan_path, index = frame_of(frame)
        info = self.load.steps[parts_of(fan_path)[1]]
        data = info.data
        if info.child is not None:
            found = info.child["steps"]
        elif data["kind"] == "foreach":
            found = data["steps"]
        elif data["kind"] == "parallel":
            found = data["branches"][index or 0]
        else:
            found = next(
                part for part in (data["then"], data["else"]) if any(step["id"] == name for step in part)
            )
        return found

    def visible(self, path: str, name: str) -> Any:
        """The output of an earlier step, as a step at `path` sees it."""
        frame = parts_of(path)[0]
        while True:
            found = self.finished.get(join_path(frame, name))
            if found is not None:
                return decode(found)
            hold(frame, "an expression names a step that is complete", path, name)
            frame = parts_of(frame_of(frame)[0])[0]

    def items_of(self, info: Info, path: str) -> list[Any]:
        source = info.data["items"]
        if source == "$.inputs.xs":
            found: list[Any] = self.load.inputs["xs"]
            return found
        value = self.visible(path, source.split(".")[2])
        return list(value.get("xs") or []) if isinstance(value, dict) else []

    def item_for(self, path: str) -> Any:
        """The item of the innermost loop around a step."""
        fan_path, index = frame_of(parts_of(path)[0])
        while self.load.steps[parts_of(fan_path)[1]].kind != "foreach":
            fan_path, index = frame_of(parts_of(fan_path)[0])
        assert index is not None
        return self.items_of(self.load.steps[parts_of(fan_path)[1]], fan_path)[index]

    def check_inputs(self, path: str, inputs: msgspec.Raw) -> None:
        if b"$of" not in bytes(inputs):
            self.check_args(path, decode(inputs))

    def check_args(self, path: str, args: Data) -> None:
        """What a step is handed is what the steps before it gave."""
        for key, value in args.items():
            how, _, name = key.partition("_")
            if how == "of":
                hold(
                    value == self.visible(path, name)["v"],
                    "a step sees the accepted output",
                    path,
                    key,
                    value,
                )
            elif how == "whole":
                hold(value == self.visible(path, name), "a step sees the accepted output", path, key, value)
            elif key == "n":
                hold(value == self.load.inputs["n"], "a step sees the inputs", path, value)
            elif key == "item":
                hold(value == self.item_for(path), "a step sees the item it is for", path, value)

    def expected_output(self) -> Any:
        """The output of a completed run, put together from accepted answers in item order."""
        if "output" in self.load.data:
            return {"n": self.load.inputs["n"], "all": self.output_of(self.load.data["steps"][0], "")}
        return {step["id"]: self.output_of(step, "") for step in self.load.data["steps"]}

    def output_of(self, step: Data, frame: str) -> Any:
        path = join_path(frame, step["id"])
        raw = self.finished.get(path)
        if raw is not None:
            return decode(raw)
        fan = self.fan_outs[path]
        if fan.info.child is not None:
            return {inner["id"]: self.output_of(inner, path) for inner in fan.info.child["steps"]}
        children = [self.child_output(path, index, fan) for index in range(fan.count)]
        if fan.info.kind == "foreach":
            return {
                "iterations": [
                    child["steps"] if not child["error"] else {"error": True} for child in children
                ]
            }
        return {"branch_results": [child["status"] for child in children], "branches": children}

    def child_output(self, path: str, index: int, fan: Fan) -> Data:
        if index in fan.failed:
            return {"status": "failed", "error": True, "steps": {}}
        block = fan.info.data["steps"] if fan.info.kind == "foreach" else fan.info.data["branches"][index]
        steps = {step["id"]: self.output_of(step, f"{path}[{index}]") for step in block}
        return {"status": "completed", "error": None, "steps": steps}

    def check_output(self, output: Any) -> None:
        expected = without_errors(self.expected_output())
        hold(
            without_errors(output) == expected, "a run's output is its steps' in item order", output, expected
        )


def without_errors(value: Any) -> Any:
    """Error values by their presence alone: their wording is not the checkers' business."""
    if isinstance(value, dict):
        if value.get("error") and "steps" in value:
            value = value | {"steps": {}}  # what a failed branch shows of its steps is not promised
        return {key: True if key == "error" and part else without_errors(part) for key, part in value.items()}
    return [without_errors(part) for part in value] if isinstance(value, list) else value


def join_path(frame: str, name: str) -> str:
    return f"{frame}.{name}" if frame else name


def frame_of(frame: str) -> tuple[str, int | None]:
    """The scope that a frame is a child of, and which one."""
    scope, bracket, index = frame.rpartition("[")
    return (scope, int(index[:-1])) if bracket and frame.endswith("]") else (frame, None)


def delays_of(retry: Data | None, tries: int) -> tuple[int, int]:
    """The least and the largest delay before the try that follows `tries` failed ones."""
    assert retry is not None
    first, cap = retry["initial_delay_ms"], retry["max_delay_ms"]
    plain = {"fixed": first, "linear": first * tries, "exponential": first * 2 ** (tries - 1)}[
        retry["backoff"]
    ]
    plain = min(plain, cap)
    jitter = retry.get("jitter", 0)
    return max(0, int(plain * (1 - jitter))), min(cap, int(plain * (1 + jitter)) + 1) if jitter else plain


def whole(part: Any, blobs: dict[str, bytes]) -> Any:
    """An event or decision with the text of its large values in place of their references."""
    changed: dict[str, Any] = {}
    for name in part.__struct_fields__ if blobs else ():
        value = getattr(part, name)
        if isinstance(value, msgspec.Raw) and (sha256 := blob_of(value)) is not None:
            changed[name] = msgspec.Raw(blobs[sha256])
        elif name == "taken":
            changed[name] = {path: whole(outcome, blobs) for path, outcome in value.items()}
        elif type(value) is dict:
            found = {path: blob_of(output) for path, output in value.items()}
            changed[name] = {
                path: msgspec.Raw(blobs[sha]) if sha else value[path] for path, sha in found.items()
            }
    return msgspec.structs.replace(part, **changed) if changed else part


def text_of(run: Run) -> bytes:
    """One text per state, whatever order things came to be in."""
    try:
        return canonical(run)
    except TypeError:  # errors by index: only text can be sorted
        return canonical(msgspec.to_builtins(run, str_keys=True, builtin_types=(msgspec.Raw,)))


def check_same(mine: Run, theirs: Run, promise: str) -> None:
    """Two states of a run are one state."""
    one, other = text_of(mine), text_of(theirs)
    if one != other:  # a default that was written and one that was never set are the same
        one, other = _DEFAULTS.sub(b"", one), _DEFAULTS.sub(b"", other)
    hold(one == other, promise, one.decode(), other.decode())


_DEFAULTS: Final = re.compile(rb',"(?:(?:output|inputs|items|value|detail)":null|tenant":"default")')

ORDERS: Final[dict[type[Decision], str]] = {
    StartAttempt: "start",
    ReserveKey: "reserve",
    StopAttempt: "stop_attempt",
    BeginStop: "begin_stop",
    ArmTimer: "arm",
    OpenScope: "open_scope",
    CompleteStep: "complete",
    FailStep: "fail",
    Continue: "cut",
    FinishRun: "finish",
}
