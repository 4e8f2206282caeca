"""What must hold of waits, read off journals and tables. One Book follows one run; Deliveries follow the outbox.

A Book folds each row by the product's own rules (other layers hold these against a model) and asks of what the row says
about waits:

- each is opened once and ended once, and by something that can end it: its answer, its time, or a stop that takes it in
- nothing is over before its time, as the row that set the time said it
- the answer that counts is the first that came for its attempt; one that came before the pause is not lost with a process
- each signal is in one place; a gate is passed or shut by enough of those who may, each once
- a run that is not over waits for something that has a name
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import (
    CompleteStep,
    Decision,
    FailStep,
    FinishRun,
    Poll,
    StartAttempt,
    StopAttempt,
)
from holdfast.engine.effects import WaitWork
from holdfast.engine.events import (
    Adopted,
    ApprovalAnswered,
    AttemptReleased,
    CallbackReceived,
    CancelRequested,
    Event,
    SignalReceived,
    StepPaused,
    StepSucceeded,
    TimerFired,
)
from holdfast.engine.fold import fold
from holdfast.engine.state import Run, Step, beneath, timer_key
from holdfast.plan.graph import Approval, Signal
from holdfast.values import Error, Millis, RunId, RunNo, decode
from tests.sim.checkers import hold, whole
from tests.sim.waits_loads import BOSS
from tests.sim.workloads import Info, Workload

WaitKey = tuple[str, int, str]  # path, attempt, kind
Mark = tuple[str, int]  # path, attempt

TICKS_MS: Final = 5  # what may pass between a look at the clock and the row

LOOK_MS: Final = 8_000  # a look at an address, which may have to be made before a wait is over

_NUMBER: Final = re.compile(r"no (\d+)")


@dataclass
class Noted:
    """A wait, as the journal tells it."""

    name: str
    since: int
    until: int | None
    outcome: str | None = None
    resolved_at: int | None = None


def number_in(value: Any) -> int | None:
    """The number that tells an answer from every other one."""
    found = value.get("v") if isinstance(value, dict) else value
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def number_of(output: msgspec.Raw, error: Error | None) -> int | None:
    if error is None:
        return number_in(decode(output))
    found = _NUMBER.search(error.message)
    return int(found[1]) if found else None


class Book:
    def __init__(self, load: Workload, run_id: str, no: int, kept: set[int]) -> None:
        self.load, self.run_id = load, run_id
        self.kept = kept  # answers that came before anybody knew their task ids: these are never too late
        self.run = Run(RunNo(no), RunId(run_id), load.plan.version)
        self.epoch, self.at, self.is_clamped = -1, 0, False
        self.status, self.ending = "new", ""
        self.counts: Counter[str] = Counter()
        self.event: Event | None = None
        self.late_ms = 0  # how long after its time the last timer fired
        self.look_ms = 0  # how long a look may have held it back
        self.waits: dict[WaitKey, Noted] = {}
        self.journaled: dict[int, Mark] = {}  # answers that stand in the journal, by number
        self.counted: dict[int, Mark] = {}  # and those that ended a wait
        self.early: dict[Mark, int] = {}  # an answer that came before its pause
        self.outputs: dict[str, int | None] = {}  # what each call gave at last
        self.polls: Counter[Mark] = Counter()  # looks that were decided on
        self.signals: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        self.votes: dict[str, dict[str, bool]] = {}
        self.voices: Counter[str] = Counter()  # answers to approvals, by their reason, which is like no other
        self.escalated: set[str] = set()

    @property
    def over(self) -> bool:
        return self.run.over

    @property
    def ends_as_asked(self) -> bool:
        """Whether a run that was cancelled ended so."""
        return self.status == "cancelled"

    @property
    def timers(self) -> dict[str, Millis]:
        return self.run.timers

    def step(self, path: str) -> Info:
        """The step of a path, as its definition says it is; that of a poll for its call."""
        *_, before, last = ("", *re.sub(r"[\[~][^.]*", "", path).split("."))
        return self.load.steps[before if last == "call" else last]

    def open_waits(self) -> list[tuple[str, int, str, Noted]]:
        return [(*key, wait) for key, wait in self.waits.items() if wait.outcome is None]

    def named(self, task_id: str) -> list[tuple[Mark, Noted]]:
        """The waits of a task id."""
        return [
            ((path, attempt), wait)
            for (path, attempt, kind), wait in self.waits.items()
            if kind == "callback" and wait.name == task_id
        ]

    def is_at_work(self, path: str, attempt: int) -> bool:
        step = self.run.steps.get(path)
        return step is not None and (step.state, step.attempt, step.target) == ("running", attempt, None)

    # ------------------------------------------------------------------------------------------------- rows

    def row(self, seq: int, epoch: int, at: int, body: str | bytes, blobs: dict[str, bytes]) -> None:
        event, decisions = decode_row(body)
        event = whole(event, blobs)
        decisions = [whole(decision, blobs) for decision in decisions]
        hold(seq == self.run.seq + 1, "the journal is 1..n without a gap", seq, self.run.seq)
        hold(not self.over, "nothing follows the terminal row", event)
        hold(at >= self.at, "the journal's time never runs backwards", seq, at, self.at)
        hold(epoch >= self.epoch, "epochs never fall", seq, epoch, self.epoch)
        self.counts["new epoch"] += epoch > self.epoch >= 0
        self.is_clamped = at == self.at  # it may be later than the clock, which was set back
        self.epoch, self.at, self.event = epoch, at, event
        self._before(event, decisions)
        for work in fold(self.run, event, decisions, Millis(at), epoch):
            if isinstance(work, WaitWork):
                self._wait(work, event, decisions)
        self._after(event, decisions)

    def _before(self, event: Event, decisions: list[Decision]) -> None:
        """What an event says of the run as it is before it."""
        if isinstance(event, TimerFired):
            self._timer(event)
        elif isinstance(event, CallbackReceived):
            self._callback(event)
        elif isinstance(event, Adopted):
            self._adopted(event)
        elif isinstance(event, AttemptReleased):
            step = self.run.steps.get(event.path)
            kept = (
                step is None
                or step.attempt != event.attempt
                or step.parked is None
                or step.target is not None
            )
            hold(kept, "an attempt that has its answer is not given back", event)
        elif isinstance(event, StepPaused):
            self._paused(event)
        elif isinstance(event, StepSucceeded) and self.is_at_work(event.path, event.attempt):
            self.outputs[event.path] = number_in(decode(event.output))
        elif isinstance(event, ApprovalAnswered):
            self._voice(event)
        elif isinstance(event, SignalReceived):
            number = number_in(decode(event.value))
            assert number is not None
            self.signals[number] += 1
            hold(self.signals[number] == 1, "a signal that was sent once came once", event)
            self.counts["signal"] += 1
        elif isinstance(event, CancelRequested):
            self.ending = "cancelled"
            self.counts["cancel of a run that waits"] += bool(self.run.waits)

    def _timer(self, event: TimerFired) -> None:
        due = self.run.timers.get(timer_key(event.timer, event.path))
        if due is None:
            self.counts["timer that was disarmed"] += 1
            return
        step = self.run.steps.get(event.path)
        looks = (
            event.timer == "expiry" and step is not None and step.wait is not None and step.wait.is_last_poll
        )
        earliest = due
        if looks:  # it may end as soon as that look has brought nothing
            assert step is not None and step.wait is not None and step.wait.until is not None
            earliest = step.wait.until
        hold(self.at >= earliest, "nothing is over before its time", event, self.at, earliest)
        self.late_ms, self.look_ms = max(0, self.at - due), LOOK_MS if looks else 0
        self.counts[f"timer {event.timer}"] += 1
        if event.timer == "escalate":
            self.escalated.add(event.path)

    def _callback(self, event: CallbackReceived) -> None:
        number = number_of(event.output, event.error)
        mark, step = (event.path, event.attempt), self.run.steps.get(event.path)
        assert number is not None
        self.journaled[number] = mark
        if step is None or step.attempt != event.attempt or step.target is not None:
            self.counts["late callback in the journal"] += 1
        elif step.wait is None:
            hold(step.parked is None, "an answer that came before its pause is not replaced", event)
            self.early[mark] = number
            self.counts["answer before its pause"] += 1
        else:
            self._ends_with(mark, number, event.error)

    def _paused(self, event: StepPaused) -> None:
        mark, step = (event.path, event.attempt), self.run.steps.get(event.path)
        if step is None or step.attempt != event.attempt or step.target is not None or step.parked is None:
            self.counts["pause"] += 1
            return
        hold(mark in self.early, "a pause takes an answer that came", event)
        self.counts["pause that takes an early answer"] += 1
        self._ends_with(mark, self.early[mark], step.parked.error)

    def _ends_with(self, mark: Mark, number: int, error: Error | None) -> None:
        self.counted[number] = mark
        if error is None:
            self.outputs[mark[0]] = number

    def _adopted(self, event: Adopted) -> None:
        for path in event.lost:
            step = self.run.steps[path]
            hold(step.wait is None, "what waits for others is not lost with a process", path)
            answered = step.parked is not None and step.target is None
            hold(not answered, "an attempt that has its answer is not lost", path)
            self.counts["lost attempt"] += 1
        self.counts["run taken up that waits"] += bool(self.run.waits)

    def _voice(self, event: ApprovalAnswered) -> None:
        self.voices[event.reason] += 1
        hold(self.voices[event.reason] == 1, "an answer to an approval is taken once", event)
        step, info = self.run.steps.get(event.path), self.step(event.path).data
        if step is None or step.wait is None:
            return
        votes, allowed = self.votes[event.path], info.get("quorum", {}).get("of")
        if allowed is not None:
            may = event.by in allowed or (event.by == BOSS and event.path in self.escalated)
            hold(may, "only those answer who may", event, allowed)
            hold(event.by not in votes, "everybody answers once", event)
        votes[event.by or event.reason] = event.approved
        self.counts["approval"] += 1
        self.counts["approval by whom it was escalated to"] += event.by == BOSS

    # ------------------------------------------------------------------------------------------------ waits

    def _wait(self, work: WaitWork, event: Event, decisions: list[Decision]) -> None:
        path, attempt, wait, outcome = work
        key = (path, attempt, wait.kind)
        if outcome is None:
            hold(key not in self.waits, "a wait is opened once", key, event)
            self.waits[key] = Noted(wait.name, wait.since, wait.until)
            self.votes[path] = {}
            self.counts[f"wait for {wait.kind}"] += 1
            return
        noted = self.waits.get(key)
        hold(noted is not None and noted.outcome is None, "a wait is ended once", key, outcome, event)
        assert noted is not None
        noted.outcome, noted.resolved_at = outcome, self.at
        self.counts[f"{wait.kind} {outcome}"] += 1
        self._cause(path, attempt, noted, outcome, event, decisions)
        if wait.kind == "signal" and outcome != "answered":
            self.taken.update(number_in(decode(value)) or 0 for value in wait.got.values())  # they go with it

    def _cause(
        self, path: str, attempt: int, noted: Noted, outcome: str, event: Event, decisions: list[Decision]
    ) -> None:
        """What ended a wait is what can end it."""
        if outcome in ("resume", "poll"):
            is_answer = isinstance(event, CallbackReceived | StepPaused)
            right = is_answer and (event.path, event.attempt) == (path, attempt)  # type: ignore[union-attr]
            by = event.by if isinstance(event, CallbackReceived) else "resume"
            right = right and by == outcome
            was_kept = (
                isinstance(event, CallbackReceived) and number_of(event.output, event.error) in self.kept
            )
            no_limit = by == "poll" or noted.until is None or isinstance(event, StepPaused) or self.is_clamped
            in_time = no_limit or was_kept or self.at <= (noted.until or 0) + TICKS_MS
            hold(in_time, "an answer that comes too late ends nothing", path, self.at, noted)
        elif outcome == "expired":
            right = event == TimerFired(path, "expiry") and noted.until is not None and self.at >= noted.until
        elif outcome == "answered":
            right = isinstance(event, SignalReceived | ApprovalAnswered)
        elif outcome == "denied":
            right = event.path == path if isinstance(event, ApprovalAnswered) else False
        else:
            right = outcome == "cancelled" and self._is_stopped(path, decisions)
        hold(right, "a wait is ended by what can end it", path, attempt, noted, event)

    def _is_stopped(self, path: str, decisions: list[Decision]) -> bool:
        for order in decisions:
            if isinstance(order, FinishRun) or (isinstance(order, StopAttempt) and order.path == path):
                return True
            if isinstance(order, FailStep | CompleteStep) and beneath(order.path, path):
                return True
        return False

    # ------------------------------------------------------------------------------------- after every row

    @staticmethod
    def _is_named(step: Step) -> bool:
        return step.state == "ready" or step.lacks_since > 0

    def _after(self, event: Event, decisions: list[Decision]) -> None:
        run = self.run
        self.status = run.status
        for order in decisions:
            if isinstance(order, Poll):
                self.polls[order.path, order.attempt] += 1
            elif isinstance(order, StartAttempt):
                self.counts["attempt after a later failure"] += order.attempt > 1
            elif isinstance(order, CompleteStep | FailStep):
                self._decided(order)
        still_open = len(self.open_waits())
        hold(still_open == run.waits, "the run knows how many waits are open", still_open, run.waits)
        if self.over:
            self.counts[run.status] += 1
            return
        self._signals(decisions)
        named = run.waits or run.timers or any(map(self._is_named, run.steps.values()))
        hold(run.status != "waiting" or named, "a run that waits says what for", event)

    def _decided(self, order: CompleteStep | FailStep) -> None:
        """A gate is passed, or shut, by as many as it takes."""
        node = None if order.path.endswith("]") else self.load.plan.node(order.path)
        if not isinstance(node, Approval):
            return
        votes = list(self.votes[order.path].values())
        if isinstance(order, CompleteStep):
            hold(votes.count(True) >= node.need, "a gate is passed by enough", order.path, votes)
        elif order.error.message == "approval denied: timeout":
            self.counts["approval out of time"] += 1
        else:
            left = len(node.of or (1,)) + (order.path in self.escalated) - votes.count(False)
            hold(left < node.need, "a gate is shut by enough", order.path, votes)

    def _signals(self, decisions: list[Decision]) -> None:
        """Each signal is kept, or with a step that waits for more, or was taken by one step."""
        if self.load.plan.has_vars:
            return
        for order in decisions:
            is_child = isinstance(order, CompleteStep) and order.path.endswith("]")
            if isinstance(order, CompleteStep) and not is_child:
                node = self.load.plan.node(order.path)
                if isinstance(node, Signal):
                    value = decode(order.value)
                    many = isinstance(value, dict) and "v" not in value
                    self.taken.update(number_in(one) or 0 for one in (value.values() if many else [value]))
                    hold(
                        node.mode != "all" or set(value) == {"go", "more"},
                        "all that was waited for came",
                        value,
                    )
        kept = [number_in(decode(signal.value)) for signal in self.run.signals]
        noted = [
            number_in(decode(value))
            for step in self.run.steps.values()
            if step.wait is not None and step.wait.kind == "signal"
            for value in step.wait.got.values()
        ]
        everywhere = Counter([*kept, *noted, *self.taken.elements()])
        hold(everywhere == self.signals, "each signal is in one place", everywhere, self.signals)

    def check_output(self, output: Any) -> None:
        """What a call gave is what its answer said."""
        for step in self.load.data.get("steps", ()):
            if "tool" in step and step.get("kind") != "poll":
                said = self.outputs.get(step["id"])
                hold(
                    number_in(output[step["id"]]) == said,
                    "the output is the answer",
                    step["id"],
                    output,
                    said,
                )
