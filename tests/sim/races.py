"""Races for waits: answers, polls, expiries, signals, approvals, crashes and cancels meet in every order, by seed.

The pure core under a driver that picks the next fact at random and keeps a book of its own: which waits are open, which
answer each call took, which signals are whose. What it holds: a wait is opened once and closed once; the first answer
that counts is the one that is used, and no other; an answer that came before its pause is not lost; a signal is taken
once; nothing fires before its time; a run that is not over waits for something that has a name; and once everybody
answers, it ends.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.engine.codec import decode_row, encode_row
from holdfast.engine.decide import decide
from holdfast.engine.decisions import CompleteStep, Decision, FailStep, Poll, StartAttempt
from holdfast.engine.effects import Effects, WaitWork
from holdfast.engine.events import (
    Adopted,
    ApprovalAnswered,
    CallbackReceived,
    CancelRequested,
    Continued,
    Event,
    RunStarted,
    SignalReceived,
    StepFailed,
    StepPaused,
    StepSucceeded,
    SuspectsTurn,
    TimerFired,
)
from holdfast.engine.fold import fold
from holdfast.engine.state import Run, Step, timer_of
from holdfast.plan.compile import Resolved, compile_definition
from holdfast.plan.graph import Approval, Call, Node, Plan, Signal
from holdfast.spec.notation import definition_from
from holdfast.values import TERMINAL, Error, Millis, RunId, RunNo, decode, encode
from tests.engine.driver import state_of

BEGAN: Final = Millis(1_700_000_000_000)
STEPS_MAX: Final = 60  # facts by chance; after that everybody answers
DRAIN_MAX: Final = 400
NAMES: Final = ("go", "stop", "more")


class Broken(AssertionError):
    """What must hold does not."""


def hold(truth: bool, what: str, *about: Any) -> None:
    if not truth:
        raise Broken(f"{what}: {about!r}")


# ------------------------------------------------------------------------------------------------- what is run


def _call(rng: random.Random, name: str) -> dict[str, Any]:
    call: dict[str, Any] = {"id": name, "tool": "t"}
    if rng.random() < 0.5:
        call["pending_ttl_secs"] = rng.choice((1, 5, 60))
    if rng.random() < 0.4:
        call["poll"] = {"interval_ms": 500, "max_ms": 4000}
    if rng.random() < 0.5:
        call["retry"] = {"max_attempts": rng.choice((2, 3)), "initial_delay_ms": rng.choice((0, 1000))}
    return call


def _wait(rng: random.Random, name: str) -> dict[str, Any]:
    limit = {"timeout_secs": rng.choice((2, 30))} if rng.random() < 0.4 else {}
    if rng.random() < 0.5:
        gate: dict[str, Any] = {"id": name, "kind": "approve", "prompt": "?", **limit}
        if rng.random() < 0.4:
            gate["quorum"] = {"need": 2, "of": ["Ada", "Bob", "Eve"]}
        return gate
    wanted: dict[str, Any] = rng.choice(
        ({"signal_key": "go"}, {"any": ["go", "stop"]}, {"all": ["go", "more"]})
    )
    return {"id": name, "kind": "wait_event", **wanted, **limit}


def _steps(rng: random.Random) -> dict[str, Any]:
    def one(name: str) -> dict[str, Any]:
        return _call(rng, name) if rng.random() < 0.6 else _wait(rng, name)

    branches = [
        [one(f"b{index}{place}") for place in range(rng.choice((1, 2)))]
        for index in range(rng.choice((2, 3)))
    ]
    loop = {
        "id": "loop", "kind": "foreach", "items": "$.inputs.xs", "concurrency": rng.choice((1, 2)),
        "on_any_fail": rng.choice(("abort", "continue")), "steps": [_call(rng, "each")],
    }  # fmt: skip
    sides = {
        "id": "sides",
        "kind": "parallel",
        "on_any_fail": rng.choice(("abort", "continue")),
        "branches": branches,
    }
    steps = [one("first"), *rng.sample((sides, loop), rng.choice((1, 2))), one("last")]
    return {"name": "races", "steps": steps}


def _graph(rng: random.Random) -> dict[str, Any]:
    limit = {"timeout_ms": rng.choice((2000, 30_000))} if rng.random() < 0.5 else {}
    nodes = {
        "a": {"service": "t", "post": {"output_key": "a"}, "max_retries": rng.choice((0, 1))},
        "w": {"kind": "wait_event", "params": {"signal_key": "$shared.go"}, **limit},
        "g": {"kind": "approval", "params": {"approval_key": "$shared.ok"}},
        "z": {"service": "t", "post": {"output_key": "z"}},
    }
    edges = [("a", "default", "w"), ("w", "default", "g"), ("w", "timeout", "g"), ("g", "default", "z")]
    return {
        "name": "races", "start": "a", "nodes": nodes,
        "edges": [{"from": source, "action": action, "to": to} for source, action, to in edges],
    }  # fmt: skip


@lru_cache(maxsize=512)
def workload(number: int) -> Plan:
    rng = random.Random(f"races {number}")
    spec = definition_from(_graph(rng) if rng.random() < 0.25 else _steps(rng))
    spec.validate()
    return compile_definition(Resolved(spec, {}).spec)


# -------------------------------------------------------------------------------------------------- the driver


class Race:
    """One run, its journal, and the book that is kept beside it."""

    def __init__(self, seed: int, trace: bool) -> None:
        self.rng = random.Random(seed)
        self.plan = workload(self.rng.randrange(512))
        self.run = Run(RunNo(1), RunId("018bcfe5-6800-7000-8000-000000000001"), self.plan.version)
        self.now = BEGAN
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._traces = trace
        self.rows: list[tuple[Millis, str]] = []
        self.opened: Counter[tuple[str, int]] = Counter()
        self.closed: Counter[tuple[str, int]] = Counter()
        self.due: dict[str, Millis] = {}
        self.values = 0
        self.first_answer: dict[tuple[str, int], Any] = {}  # (path, attempt) → what its first answer said
        self.sent: list[int] = []
        self.taken: Counter[int] = Counter()
        self.votes: dict[str, list[bool]] = {}

    def apply(self, event: Event) -> list[Decision]:
        if self.run.status in TERMINAL:
            before = encode(msgspec.to_builtins(self.run.status))
            hold(
                decide(self.plan, self.run, event, self.now) == [], "nothing is decided after the end", event
            )
            hold(before == encode(msgspec.to_builtins(self.run.status)), "a late fact changes nothing", event)
            self.counts["late"] += 1
            return []
        decisions = decide(self.plan, self.run, event, self.now)
        effects = fold(self.run, event, decisions, self.now, self.run.epoch)
        body, _ = encode_row(event, decisions)
        self.rows.append((self.now, body))
        if self._traces:
            self.trace.append(f"{self.now - BEGAN} {body}")
        self._note(event, effects)
        self._check_signals(decisions)
        self._check_answers(decisions)
        if self.run.todo:
            self.apply(Continued())
        return decisions

    def _note(self, event: Event, effects: Effects) -> None:
        for path, attempt, wait, outcome in (work for work in effects if isinstance(work, WaitWork)):
            if outcome is None:
                self.votes[path] = []
            elif wait.kind == "signal" and outcome != "answered":
                self.taken.update(decode(value) for value in wait.got.values())  # they go with the wait
            book = self.opened if outcome is None else self.closed
            book[path, attempt] += 1
            hold(
                book[path, attempt] == 1,
                "a wait is opened once and closed once",
                path,
                attempt,
                outcome,
                event,
            )
            hold(self.opened[path, attempt] == 1, "only an open wait is closed", path, attempt, outcome)
            if outcome is not None:
                self.counts[f"wait {outcome}"] += 1
        still_open = sum(self.opened.values()) - sum(self.closed.values())
        hold(
            still_open == self.run.waits, "the run knows how many waits are open", still_open, self.run.waits
        )
        if self.run.status in TERMINAL:
            hold(self.run.waits == 0, "a run that is over waits for nothing")
        else:
            hold(bool(self.run.steps or self.run.timers), "an open run has something to wait for", event)
            hold(
                self.run.status != "waiting" or bool(self.run.waits or self.run.timers),
                "a run that waits says what for", event,
            )  # fmt: skip

    def _check_signals(self, decisions: list[Decision]) -> None:
        """Each signal is kept, or with a step that waits for more, or was taken by one step."""
        if self.plan.has_vars or self.run.status in TERMINAL:
            return
        for order in decisions:
            if isinstance(order, CompleteStep) and isinstance(node := self._node(order.path), Signal):
                output = decode(order.value)
                hold(
                    node.mode != "all" or set(output) == {"go", "more"},
                    "all that was waited for came",
                    output,
                )
                self.taken.update(output.values() if isinstance(output, dict) else [output])
        kept = [decode(signal.value) for signal in self.run.signals]
        waits = [
            step.wait
            for step in self.run.steps.values()
            if step.wait is not None and step.wait.kind == "signal"
        ]
        noted = [decode(value) for wait in waits for value in wait.got.values()]
        everywhere = Counter([*kept, *noted, *self.taken.elements()])
        hold(everywhere == Counter(self.sent), "each signal is in one place", everywhere, self.sent)

    def _check_answers(self, decisions: list[Decision]) -> None:
        """A gate is passed by as many as it needs, and no attempt is made that the policy does not allow."""
        for order in decisions:
            if isinstance(order, CompleteStep | FailStep) and isinstance(
                node := self._node(order.path), Approval
            ):
                votes = self.votes[order.path]
                yes, no = votes.count(True), votes.count(False)
                if isinstance(order, CompleteStep):
                    hold(yes >= node.need, "a gate is passed by enough", order.path, votes)
                elif order.error.message != "approval denied: timeout":
                    hold(len(node.of or (1,)) - no < node.need, "a gate is shut by enough", order.path, votes)
            elif isinstance(order, StartAttempt) and (step := self.run.steps.get(order.path)) is not None:
                node = self.plan.node(order.path)
                allowed = node.retry.max_attempts if isinstance(node, Call) and node.retry is not None else 1
                hold(
                    step.attempt <= allowed + step.lost,
                    "no more attempts than allowed",
                    order.path,
                    step.attempt,
                )

    def _node(self, path: str) -> Node | None:
        """The node of a step; a child of a fan-out has none."""
        return None if path.endswith("]") else self.plan.node(path)

    # ------------------------------------------------------------------------------------------------ facts

    def value(self) -> int:
        self.values += 1
        return self.values

    def calls(self, state: str) -> list[tuple[str, Step]]:
        return [(path, step) for path, step in self.run.steps.items() if step.state == state and step.attempt]

    def callback(self, path: str, attempt: int, *, fails: bool, by: str = "resume") -> None:
        """An answer that comes later, or before; what it says is like no other."""
        value, step = self.value(), self.run.steps.get(path)
        counts = step is not None and step.attempt == attempt and step.target is None
        if counts and step is not None and (step.wait is not None or step.parked is None):
            self.first_answer.setdefault((path, attempt), None if fails else value)
        error = Error("error", f"failed {value}", path, attempt) if fails else None
        was_waiting = step is not None and step.wait is not None and step.attempt == attempt
        self.apply(CallbackReceived(path, attempt, msgspec.Raw(encode(value)), error, by))
        if was_waiting:
            self._check_taken(path, attempt)

    def _check_taken(self, path: str, attempt: int) -> None:
        """The answer that a wait took is the first that came for it."""
        hold(self.closed[path, attempt] == 1, "an answer ends its wait", path, attempt)
        said = self.first_answer.get((path, attempt))
        frame = self.run.frames.get(path.rpartition(".")[0])
        kept = None if frame is None else frame.outputs.get(path.rpartition(".")[2])
        if said is not None and kept is not None:
            hold(decode(kept) == said, "the output is the first answer", path, decode(kept), said)

    def fire_next(self) -> bool:
        """The earliest timer, at its time: nothing fires before it is due, and none that was disarmed."""
        if not self.run.timers:
            return False
        key, at = min(self.run.timers.items(), key=lambda item: (item[1], item[0]))
        self.now = max(self.now, at)
        timer, path = timer_of(key)
        self.counts[f"timer {timer}"] += 1
        decisions = self.apply(TimerFired(path, timer))
        self._give_turns()
        for order in decisions:
            if isinstance(order, Poll):
                self.counts["poll"] += 1
                if self.rng.random() < 0.3:
                    self.callback(order.path, order.attempt, fails=False, by="poll")
        return True

    def crash(self) -> None:
        """Another process takes the run up: attempts are lost, but for those whose answer is here already."""
        self.counts["crash"] += 1
        replayed = Run(self.run.no, self.run.id, self.run.version)
        for at, body in self.rows:
            fold(replayed, *decode_row(body), at, self.run.epoch)
        replayed.__dict__.clear()
        self.run = replayed
        self.run.epoch += 1
        parked = [(path, step) for path, step in self.run.open_attempts() if step.parked is not None]
        lost = [path for path, step in self.run.open_attempts() if step.parked is None]
        self.apply(Adopted(lost, "", True, True))
        for path, step in parked:
            if self.run.steps.get(path) is step:
                self.counts["parked answer taken at a takeover"] += 1
                self.apply(StepPaused(path, step.attempt, ""))
        self._give_turns()

    def _give_turns(self) -> None:
        for path in self.run.suspects():
            self.counts["suspect started"] += 1
            self.apply(SuspectsTurn(path))

    def signal(self, name: str) -> None:
        value = self.value()
        self.sent.append(value)
        self.apply(SignalReceived(name, msgspec.Raw(encode(value))))
        self.counts["signal"] += 1

    def approve(self, path: str, approved: bool) -> None:
        self.votes[path].append(approved)
        who = ("Ada", "Bob", "Eve")[len(self.votes[path]) % 3]
        self.apply(ApprovalAnswered(path, approved, "", who))
        self.counts["approval"] += 1

    # ------------------------------------------------------------------------------------------------ chance

    def step(self) -> None:
        rng, at_work, resting = self.rng, self.calls("running"), self.calls("waiting")
        choices: list[tuple[float, Any]] = [
            (1, self.fire_next),
            (0.3, self.crash),
            (0.5, lambda: self.signal(rng.choice(NAMES))),
        ]
        for path, step in at_work:
            attempt = step.attempt
            choices += [
                (
                    1,
                    lambda p=path, a=attempt: self.apply(
                        StepSucceeded(p, a, msgspec.Raw(encode(self.value())))
                    ),
                ),
                (0.5, lambda p=path, a=attempt: self.apply(StepFailed(p, a, Error("error", "no", p, a)))),
                (2, lambda p=path, a=attempt: self._pause(p, a)),
                (0.7, lambda p=path, a=attempt: self._early(p, a)),
            ]
        for path, step in resting:
            attempt = step.attempt
            choices += [
                (2, lambda p=path, a=attempt: self.callback(p, a, fails=False)),
                (0.7, lambda p=path, a=attempt: self.callback(p, a, fails=True)),
                (0.3, lambda p=path, a=attempt: self.apply(StepSucceeded(p, a, msgspec.Raw(b"-1")))),
            ]
        for path, step in list(self.run.steps.items()):
            if step.wait is not None and step.wait.kind == "approval":
                choices.append((1, lambda p=path: self.approve(p, rng.random() < 0.7)))
            if step.attempt > 1:
                choices.append((0.3, lambda p=path, a=step.attempt - 1: self.callback(p, a, fails=False)))
        for path, attempt in list(self.closed)[-2:]:
            choices.append((0.3, lambda p=path, a=attempt: self._again(p, a)))
        if rng.random() < 0.02:
            self.counts["cancel"] += 1
            self.apply(CancelRequested())
            return
        rng.choices([act for _, act in choices], [weight for weight, _ in choices])[0]()

    def _pause(self, path: str, attempt: int) -> None:
        step = self.run.steps[path]
        had = step.parked
        self.counts["pause that takes an early answer" if had else "pause"] += 1
        url = "http://x" if self.rng.random() < 0.6 else ""
        self.apply(StepPaused(path, attempt, f"T{self.value()}", url))
        now = self.run.steps.get(path)
        if had is not None and step.target is None:
            is_waiting = now is not None and now.wait is not None and now.attempt == attempt
            hold(not is_waiting, "a pause takes the answer that was there before it", path)

    def _early(self, path: str, attempt: int) -> None:
        self.counts["early answer"] += 1
        self.callback(path, attempt, fails=self.rng.random() < 0.2)

    def _again(self, path: str, attempt: int) -> None:
        """A second answer to what is over: told, and without effect."""
        before = self.closed.copy()
        self.counts["answered again"] += 1
        self.callback(path, attempt, fails=False)
        hold(self.closed == before, "a second answer ends nothing", path, attempt)

    def drain(self) -> None:
        """Faults stop and everybody answers: the run must end."""
        for _ in range(DRAIN_MAX):
            if self.run.status in TERMINAL:
                return
            waits = [(path, step.wait) for path, step in self.run.steps.items() if step.wait is not None]
            if at_work := self.calls("running"):
                path, step = at_work[0]
                self.apply(StepSucceeded(path, step.attempt, msgspec.Raw(encode(self.value()))))
            elif waits and waits[0][1].kind == "callback":
                self.callback(waits[0][0], self.run.steps[waits[0][0]].attempt, fails=False)
            elif waits and waits[0][1].kind == "approval":
                self.approve(waits[0][0], True)
            elif waits:
                for name in NAMES:
                    self.signal(name)
            elif not self.fire_next():
                raise Broken(f"nothing can bring the run further: {list(self.run.steps)}")
        raise Broken("the run does not end although everybody answers")


def simulate(seed: int, trace: bool = False) -> Race:
    race = Race(seed, trace)
    try:
        race.apply(RunStarted(msgspec.Raw(encode({"xs": [1, 2, 3]}))))
        for _ in range(STEPS_MAX):
            if race.run.status in TERMINAL:
                break
            race.now = Millis(race.now + race.rng.choice((0, 1, 50)))
            race.step()
        race.drain()
        race.counts[race.run.status] += 1
        _folds_the_same(race)
    except Exception as error:
        error.__dict__["world"] = race
        raise
    return race


def _folds_the_same(race: Race) -> None:
    again = Run(race.run.no, race.run.id, race.run.version)
    for at, body in race.rows:
        fold(again, *decode_row(body), at, race.run.epoch)
    hold(state_of(again) == state_of(race.run), "the rows fold to the run")
