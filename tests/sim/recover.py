"""Generated workflows that skip, catch, clean up and undo, and what must hold of every journal of theirs.

The definitions are those of `workloads`, with `when`, `on_error`, `finally` and `compensate` on some of their steps. The model
is small on purpose: it does not follow every decision, but says what an author was promised, whatever the faults.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import (
    ArmTimer,
    BeginEnd,
    CompleteStep,
    Decision,
    FailStep,
    FinishRun,
    NoteUndo,
    OpenScope,
    StartAttempt,
    Undo,
)
from holdfast.engine.events import CancelRequested, Event, RunStarted, StepSucceeded, TimerFired
from holdfast.engine.fold import fold
from holdfast.engine.state import is_open
from holdfast.plan.compile import compile_definition
from holdfast.values import NULL, Millis, base_of, join, split
from tests.sim.checkers import Shadow, hold, whole
from tests.sim.workloads import Data, Info, Workload, _describe, _Maker, blocks_of, resolved

COMPENSATE: Final = "compensate"


class _Adder:
    """Adds to the steps of a definition what follows their ends."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.count = rng, 0

    def call(self, undone: bool = False) -> Data:
        self.count += 1
        step: Data = {"id": f"h{self.count}", "tool": "t0", "args": {"n": "{{inputs.n}}"}}
        if self.rng.random() < 0.3:
            step["args"]["error"] = "{{error.kind}}"
        if undone and self.rng.random() < 0.3:
            step[COMPENSATE] = self.undo("{{output.v}}")
        return step

    def undo(self, of: str) -> Data:
        undo: Data = {"tool": "t1", "args": {"of": of}}
        if self.rng.random() < 0.5:
            undo["retry"] = {"max_attempts": self.rng.choice((2, 3)), "initial_delay_ms": 5}
        if self.rng.random() < 0.2:
            undo["timeout_secs"] = self.rng.choice((0.2, 4))
        return undo

    def ends(self, of: Data, chance: float) -> None:
        """Handlers of a step, or of the whole definition."""
        if self.rng.random() < chance:
            of["on_error"] = {"steps": [self.call(undone=True) for _ in range(self.rng.choice((1, 1, 2)))]}
            if self.rng.random() < 0.4:
                of["on_error"]["kinds"] = self.rng.sample(("error", "transient", "timeout"), 2)
        if self.rng.random() < chance:
            of["finally"] = [self.call() for _ in range(self.rng.choice((1, 1, 2)))]

    def weave(self, block: list[Data]) -> None:
        for step in block:
            if step.get("kind", "tool") == "tool" and self.rng.random() < 0.6:
                step[COMPENSATE] = self.undo("{{output.v}}")
            if self.rng.random() < 0.2:
                step["when"] = {"gt": ["$.inputs.n", self.rng.randrange(100)]}
            for inner in blocks_of(step):
                self.weave(inner)
            self.ends(step, 0.25)


def parts_in(step: Data) -> list[Data]:
    return [*step.get("on_error", {}).get("steps", ()), *step.get("finally", ())]


def finals_in(of: Data) -> Iterator[str]:
    """The ids of the final steps of a definition or step, and of all inside."""
    yield from (step["id"] for step in of.get("finally", ()))
    inner = of["steps"] if "name" in of else [step for block in blocks_of(of) for step in block]
    for step in inner:
        yield from finals_in(step)


def _describe_all(block: list[Data], found: dict[str, Info]) -> None:
    for step in block:
        _describe(parts_in(step), None, None, found, {})
        for inner in blocks_of(step):
            _describe_all(inner, found)


@lru_cache(maxsize=4096)
def recover_load(number: int) -> Workload:
    data, inputs = _Maker(random.Random(number)).made(number)
    adder = _Adder(random.Random(f"recover {number}"))
    adder.weave(data["steps"])
    adder.ends(data, 0.3)
    done = resolved(data, {})
    steps: dict[str, Info] = {}
    _describe(data["steps"], None, None, steps, {})
    _describe_all(data["steps"], steps)
    _describe(parts_in(data), None, None, steps, {})
    return Workload(
        number, data, done.spec, compile_definition(done.spec, {}), inputs, steps, done, RecoverShadow
    )


class RecoverShadow(Shadow):
    def __init__(self, load: Workload, run_id: str, no: int = 1) -> None:
        super().__init__(load, run_id, no)
        self.finals = set(finals_in(load.data))
        self.done: list[str] = []  # completed calls that must be undone if the run does not complete
        self.entered: dict[str, str] = {}  # steps with final steps → the first of these
        self.reached: set[str] = set()
        self.failed: set[str] = set()
        self.outputs: dict[str, bytes] = {}
        self.undoing = self.given_up = self.was_ending = self.is_not_undone = False

    def step(self, path: str, kind: str = "") -> Info:
        frame, tail = split(path)
        if tail != COMPENSATE:
            return super().step(path, kind)
        undo = self.load.steps[base_of(split(frame)[1])].data[COMPENSATE]
        timeout = undo.get("timeout_secs")
        millis = None if timeout is None else round(timeout * 1000)
        return Info(COMPENSATE, "tool", undo, undo.get("retry"), millis)

    def phase_of(self, path: str, number: int) -> str:
        return "open" if is_open(self.run, path, number) else "superseded"

    def follows_an_end(self, path: str) -> bool:
        return split(path)[1] == COMPENSATE or not self.finals.isdisjoint(map(base_of, path.split(".")))

    @property
    def ends_as_asked(self) -> bool:
        """A run that was already ending, or could not undo a call, ends failed."""
        return self.status == "cancelled" or self.was_ending or self.is_not_undone

    def check_args(self, path: str, args: dict[str, Any]) -> None:
        """What a compensation is given is the output of its step, whatever became of that since."""
        frame, tail = split(path)
        if tail == COMPENSATE:
            hold(
                args["of"] == msgspec.json.decode(self.outputs[frame])["v"],
                "it undoes this output",
                path,
                args,
            )

    def row(self, seq: int, epoch: int, at: int, body: str | bytes, blobs: dict[str, bytes]) -> None:
        event, decisions = decode_row(body)
        event, decisions = whole(event, blobs), [whole(decision, blobs) for decision in decisions]
        hold(seq == self.run.seq + 1, "the journal is 1..n without a gap", seq, self.run.seq)
        hold(not self.over, "nothing follows the terminal row", event)
        self.epoch, self.at, self.event, self.is_late = epoch, at, event, False
        self.before(event, decisions)
        fold(self.run, event, decisions, Millis(at), epoch)
        for decision in decisions:
            self.order(decision)
        self.status = self.run.status
        hold(not self.run.over or not self.run.steps, "a run that is over has no open step")

    def before(self, event: Event, decisions: list[Decision]) -> None:
        """What an event must cause, seen from the state before it."""
        if isinstance(event, RunStarted):
            self.begun = event.drive
        if isinstance(event, CancelRequested):
            self.counts["cancel"] += 1
            self.ending = "cancelled"
            self.was_ending = self.was_ending or self.run.end is not None
        if isinstance(event, TimerFired) and event.timer == "grace":
            stop = self.run.stops.get(event.path)
            if (stop is not None and stop.unwinds) or self.run.end is not None:
                self.given_up = True
                self.counts["final steps given up"] += 1
        noted = [order.path for order in decisions if isinstance(order, NoteUndo)]
        if not isinstance(event, StepSucceeded) or not is_open(self.run, event.path, event.attempt):
            return hold(not noted, "only a call that succeeded is noted to be undone", event, noted)
        self.outputs[event.path] = bytes(event.output)
        target = self.run.steps[event.path].target
        has_undo = split(event.path)[1] != COMPENSATE and COMPENSATE in self.step(event.path).data
        must = has_undo and target != event.path and self.run.end is None
        hold(noted == [event.path] * must, "a call that succeeded is noted to be undone", event, noted)
        return None

    def order(self, decision: Decision) -> None:
        if isinstance(decision, StartAttempt | ArmTimer | OpenScope | CompleteStep | FailStep):
            self.meet(decision)
        if isinstance(decision, NoteUndo):
            hold(decision.path not in self.done, "a call is noted once", decision.path)
            self.done.append(decision.path)
        elif isinstance(decision, BeginEnd):
            self.undoing = True
            self.counts["ends later"] += 1
        elif isinstance(decision, Undo):
            hold(self.undoing and self.done, "calls are undone when the run ends", decision.path)
            expected = self.done.pop()
            hold(decision.path == expected, "calls are undone in reverse order", decision.path, expected)
            self.counts["undone"] += 1
        elif isinstance(decision, FinishRun):
            self.finished_run(decision)

    def meet(self, order: StartAttempt | ArmTimer | OpenScope | CompleteStep | FailStep) -> None:
        path = order.path
        tail = split(path)[1]
        self.is_not_undone = self.is_not_undone or (tail == COMPENSATE and isinstance(order, FailStep))
        if tail == COMPENSATE or tail.endswith("]") or not path:
            return
        if isinstance(order, ArmTimer) and order.timer != "delay":
            return
        info = self.step(path)
        self.reached.add(path)
        skipped = isinstance(order, CompleteStep) and order.skipped
        self.check_when(path, info, order)
        if "finally" in info.data and not skipped:
            self.entered.setdefault(path, join(split(path)[0], info.data["finally"][0]["id"]))
        if isinstance(order, FailStep):
            self.failed.add(path)
        elif isinstance(order, CompleteStep):
            self.check_caught(path, info, order)
        elif isinstance(order, StartAttempt) and order.attempt == 1:
            names = {step["id"] for step in self.load.data.get("finally", ())}
            hold(not self.undoing or tail in names, "nothing else begins when the run ends", path)

    def check_when(self, path: str, info: Info, order: Any) -> None:
        skipped = isinstance(order, CompleteStep) and order.skipped
        wanted = True
        if "when" in info.data:
            ((_, (_, least)),) = info.data["when"].items()
            wanted = self.load.inputs["n"] > least
        hold(skipped != wanted, "a step runs if its condition is true, and is skipped otherwise", path)
        if skipped:
            hold(order.value == NULL, "the output of a skipped step is null", path, order.value)
            self.counts["skipped"] += 1

    def check_caught(self, path: str, info: Info, order: CompleteStep) -> None:
        if path not in self.failed or order.joined:
            return
        self.failed.discard(path)
        last = join(split(path)[0], info.data["on_error"]["steps"][-1]["id"])
        hold(
            bytes(order.value) == self.outputs[last],
            "the output of the last step that handled a failure is the output",
            path,
            order.value,
        )
        self.counts["caught"] += 1

    def finished_run(self, end: FinishRun) -> None:
        self.over = True
        self.counts[end.status] += 1
        if end.status == "completed":
            hold(not self.undoing, "a run that completes undoes nothing")
        else:
            hold(not self.done, "no compensation is forgotten", self.done)
        if not self.given_up:
            for path, first in self.entered.items():
                hold(first in self.reached, "final steps run, however it ended", path, first)
            for step in self.load.data.get("finally", ())[:1]:
                hold(step["id"] in self.reached, "the final steps of the run have run", step["id"])
        self.counts["final steps"] += sum(first in self.reached for first in self.entered.values())
        if end.caught:
            last = self.load.data["on_error"]["steps"][-1]["id"]
            hold(bytes(end.output) == self.outputs[last], "the output of a caught run is its handler's")
            self.counts["caught by the run"] += 1

    def check_output(self, output: Any) -> None:
        if self.run.caught:
            hold(msgspec.json.encode(output) == bytes(self.run.output), "a caught run has this output")
