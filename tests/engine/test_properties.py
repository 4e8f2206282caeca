"""Random histories: whatever comes, in whatever order, deciding is deterministic, rows fold to the live state, and
hearing a fact twice changes nothing."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engine.codec import decode_parts, encode_parts
from holdfast.engine.decide import decide
from holdfast.engine.events import (
    AttemptReleased,
    AttemptTimedOut,
    Event,
    StepFailed,
    StepSucceeded,
    TimerFired,
)
from holdfast.engine.state import timer_of
from holdfast.plan.graph import Call, FanOut
from holdfast.values import Error, scope_of
from tests.engine.driver import Case, state_of

# ------------------------------------------------------------------------------------------- random definitions


@st.composite
def definitions(draw: st.DrawFn) -> str:
    ids = iter(range(100))
    steps = _steps(draw, ids, depth=2, least=1)
    limit = draw(st.sampled_from(["", "timeout_secs: 40\n"]))
    restart = draw(st.sampled_from(["", "", "", "on_restart: interrupt\n"]))
    return f"name: n\n{limit}{restart}steps: [{', '.join(steps)}]"


def _steps(draw: st.DrawFn, ids: Any, depth: int, least: int = 0) -> list[str]:
    return [_step(draw, ids, depth) for _ in range(draw(st.integers(least, 3)))]


def _step(draw: st.DrawFn, ids: Any, depth: int) -> str:
    name = f"s{next(ids)}"
    kinds = ["tool", "tool", "tool", "timer"] + (["foreach", "parallel", "branch"] * 2 if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "tool":
        return f"{{id: {name}, tool: t{_policy(draw)}}}"
    if kind == "timer":
        return f"{{id: {name}, kind: timer, delay_ms: {draw(st.sampled_from([0, 700, 90_000]))}}}"
    if kind == "branch":
        then, other = _steps(draw, ids, depth - 1), _steps(draw, ids, depth - 1)
        on = draw(st.sampled_from(["$.inputs.yes", "$.inputs.no"]))
        return (
            f"{{id: {name}, kind: branch, 'on': {on}, then: [{', '.join(then)}], else: [{', '.join(other)}]}}"
        )
    fails = draw(st.sampled_from(["abort", "continue"]))
    if kind == "parallel":
        branches = [f"[{', '.join(_steps(draw, ids, depth - 1))}]" for _ in range(draw(st.integers(1, 3)))]
        return f"{{id: {name}, kind: parallel, on_any_fail: {fails}, branches: [{', '.join(branches)}]}}"
    items = draw(st.sampled_from(["$.inputs.three", "$.inputs.none", "$.inputs.yes", "$.inputs.three[*]"]))
    more = f"concurrency: {draw(st.integers(1, 3))}, collect: {draw(st.sampled_from(['outputs', 'none']))}"
    body = ", ".join(_steps(draw, ids, depth - 1))
    return f"{{id: {name}, kind: foreach, items: '{items}', on_any_fail: {fails}, {more}, steps: [{body}]}}"


def _policy(draw: st.DrawFn) -> str:
    options = ["", "", ", timeout_secs: 3", ", on_crash: fail"]
    retries = [
        "",
        ", retry: {max_attempts: 2, initial_delay_ms: 0}",
        ", retry: {max_attempts: 3, jitter: 0.4}",
    ]
    return draw(st.sampled_from(options)) + draw(st.sampled_from(retries))


INPUTS = {"three": [1, {"two": 2}, "three"], "yes": 1, "no": 0, "none": None}


# --------------------------------------------------------------------------------------------- random histories


class History:
    """A run that random things happen to until it ends, or until enough has happened."""

    def __init__(self, definition: str, seed: int, length: int = 60) -> None:
        self.case = Case(definition, INPUTS)
        self.random = random.Random(seed)
        self.last: Event | None = None
        self.case.start()
        for _ in range(length):
            if self.case.run.over:
                break
            self.move()

    def move(self) -> None:
        case, chance = self.case, self.random.random()
        case.go_on()
        if chance < 0.02:
            case.cancel()
        elif chance < 0.08:
            case.crash(alone=self._alone(), drive=self.random.random() < 0.8)
        elif case.run.timers and chance < 0.3:
            self._fire()
        elif (
            any(step.reason == "suspect" and step.state == "ready" for step in case.run.steps.values())
            and chance < 0.5
        ):
            case.turn(next(path for path, step in case.run.steps.items() if step.reason == "suspect"))
        elif case.open:
            self._answer(self.random.choice(case.open))
        elif case.run.timers:
            self._fire()
        else:
            case.crash()

    def _alone(self) -> str:
        suspects = [
            path for path, step in self.case.run.open_attempts() if step.lost >= 2 and step.target is None
        ]
        return suspects[0] if suspects and self.random.random() < 0.7 else ""

    def _fire(self) -> None:
        timer, path = timer_of(min(self.case.run.timers, key=lambda key: self.case.run.timers[key]))
        self.last = TimerFired(path, timer)
        self.case.fire(timer, path)

    def _answer(self, path: str) -> None:
        case, chance = self.case, self.random.random()
        attempt = case.step(path).attempt
        node = case.plan.node(path)
        assert isinstance(node, Call)
        if chance < 0.1 and node.timeout_ms is not None:
            event: Event = AttemptTimedOut(path, attempt)
        elif chance < 0.15:
            event = AttemptReleased(path, attempt, "no_tool")
        elif chance < 0.4:
            event = StepFailed(path, attempt, Error("error", "no luck", path, attempt))
        else:
            event = StepSucceeded(path, attempt, msgspec.Raw(b'{"n":1}'))
        self.last = event
        case.wait(self.random.choice([0, 1, 250]))
        case.apply(event)


histories = st.builds(History, definitions(), st.integers(0, 2**32))
thorough = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(histories)
@thorough
def test_deciding_changes_nothing_and_rows_fold_to_the_live_state(history: History) -> None:
    """The driver has checked both after every row; here once more, for the whole."""
    assert state_of(history.case.replayed()) == state_of(history.case.run)


@given(histories)
@thorough
def test_hearing_a_fact_twice_decides_nothing_and_changes_nothing_but_the_row_count(history: History) -> None:
    case = history.case
    if history.last is None:
        return
    step = case.run.steps.get(getattr(history.last, "path", ""))
    if (
        isinstance(history.last, TimerFired)
        and f"{history.last.timer} {history.last.path}" in case.run.timers
    ):
        return  # armed anew since: this is another firing
    if step is not None and step.state == "running" and step.attempt == getattr(history.last, "attempt", 0):
        if step.target is None:
            return  # given back and not heard: the attempt is open, the answer counts
        if not isinstance(history.last, AttemptTimedOut):
            return  # told to stop since: it may answer now
    before = state_of(case.run)
    assert case.apply(history.last) == []
    after = state_of(case.run)
    assert {**after, "seq": 0, "at": 0} == {**before, "seq": 0, "at": 0}


@given(histories)
@thorough
def test_a_snapshot_at_any_point_gives_the_run_back(history: History) -> None:
    run = history.case.run
    assert state_of(decode_parts(encode_parts(run))) == state_of(run)


@given(definitions(), st.integers(0, 2**32))
@thorough
def test_open_children_never_exceed_concurrency_and_end_with_their_parent(definition: str, seed: int) -> None:
    history = History(definition, seed, length=0)
    case = history.case
    for _ in range(40):
        if case.run.over:
            assert not case.run.steps and not case.run.scopes and not case.run.timers
            break
        history.move()
        for path, scope in case.run.scopes.items():
            node = case.plan.node(path)
            assert not isinstance(node, FanOut) or scope.open <= node.concurrency
        for path in case.run.steps:
            frame = path.rpartition(".")[0]
            assert not frame or frame in case.run.frames
            assert not frame or scope_of(frame)[0] in case.run.scopes


@given(definitions(), st.integers(0, 2**32))
@thorough
def test_every_run_whose_steps_answer_comes_to_an_end(definition: str, seed: int) -> None:
    """No history leaves a run with nothing open, no timer, nothing ready and nothing to do."""
    case = History(definition, seed, length=25).case
    for _ in range(400):
        case.go_on()
        if case.run.over:
            break
        if case.open:
            case.succeed(case.open[0])
        elif case.run.timers:
            case.fire(*timer_of(min(case.run.timers, key=lambda key: case.run.timers[key])))
        elif suspects := [path for path, step in case.run.steps.items() if step.reason == "suspect"]:
            case.turn(suspects[0])
        else:
            assert any(step.state == "ready" for step in case.run.steps.values()) or not case.run.begun
            case.crash()
    assert case.run.over


@given(histories)
@thorough
def test_the_rows_before_an_end_are_never_followed_by_a_start(history: History) -> None:
    case = history.case
    if case.run.over:
        for event in [history.last, TimerFired("", "deadline")]:
            if event is not None:
                assert decide(case.plan, case.run, event, case.now) == []
