"""Drives the pure core by hand: a definition, a run, and facts offered one by one at a time that the test sets.

Knows the door's order (decide, fold, encode) and nothing of a store. Every row that passes through here is checked
for what must hold of all rows: deciding twice gives the same, deciding changes nothing, and folding the encoded rows
anew gives the state that the live run has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.engine import plain
from holdfast.engine.awaited import Awaited, awaited_so_far
from holdfast.engine.codec import blob_of, decode_row, encode_row, with_output
from holdfast.engine.decide import decide
from holdfast.engine.decisions import (
    ArmTimer,
    CompleteStep,
    Continue,
    Decision,
    FailStep,
    FinishRun,
    StartAttempt,
    StopAttempt,
)
from holdfast.engine.draft import Draft
from holdfast.engine.effects import Effect, KeyWork, WaitWork
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
from holdfast.engine.fold import fold
from holdfast.engine.state import Run, Step, timer_key
from holdfast.engine.step import step
from holdfast.plan.compile import Resolved, compile_definition, names_used
from holdfast.plan.graph import Plan
from holdfast.plan.resolve import resolved
from holdfast.spec.inputs import with_defaults
from holdfast.spec.notation import definition_from_text
from holdfast.values import Error, Millis, RunId, RunNo, decode, encode

BEGAN = Millis(1_700_000_000_000)
RUN_ID = RunId("018bcfe5-6800-7000-8000-000000000001")

Row = tuple[int, int, int, str, str]  # seq, epoch, at, kind, body


def plain_row(plan: Plan, run: Run, event: Event, at: Millis, epoch: int) -> tuple[str, Run] | None:
    """What the door makes of a start or a success without deciding: the body of its row, and the run. None if it must decide."""
    if isinstance(event, RunStarted):
        begun = plain.begin(plan, run, event, at)
        if begun is None:
            return None
        assert decode_row(begun[1])[1] == [begun[0]]
        return begun[1], run
    way = plan.root.plain.get(event.path) if isinstance(event, StepSucceeded) else None
    if way is None or not isinstance(event, StepSucceeded) or event.attempt != 1 or event.worker:
        return None
    if not plain.is_straight(run, event.path, epoch):
        return None
    change = plain.end if way.call is None else plain.pass_on
    body = change(plan, run, way, event.path, bytes(event.output), event.ran_ms, at)
    return None if body is None else (body, run)


def what_awaits(waits: Awaited) -> tuple[list[str], dict[tuple[str, str | None], list[str]]]:
    """The conditions, and the waits for each signal, oldest first."""
    return [*waits.conditions], {key: [*paths] for key, paths in waits._signals.items()}


class Case:
    """One run and its journal. `checks` off is for long histories, where checking every row takes its square."""

    def __init__(
        self,
        definition: str,
        inputs: dict[str, Any] | None = None,
        *,
        run_id: str = RUN_ID,
        checks: bool = True,
        uses: Mapping[str, str] | None = None,
    ) -> None:
        whole = resolved_of(definition, uses or {})
        self.spec = spec = whole.spec
        self.plan: Plan = compile_definition(spec, whole.uses)
        self.inputs = encode(with_defaults(spec.inputs, inputs or {}))
        self.run = Run(RunNo(1), RunId(run_id), self.plan.version)
        self.now, self.epoch = BEGAN, 0
        self.effects: list[Effect] = []
        self.rows: list[Row] = []
        self.blobs: dict[str, bytes] = {}
        self.checks = checks
        self.plain_rows = 0

    # -------------------------------------------------------------------------------------------- the door

    def apply(self, event: Event) -> list[Decision]:
        expected = self._decided_and_folded(event) if self.checks else None
        short = plain_row(self.plan, self.replayed(), event, self.now, self.epoch) if self.checks else None
        decisions, effects = step(self.plan, self.run, event, self.now, self.epoch)
        if expected is not None:
            assert (decisions, [*effects], state_of(self.run)) == expected, (
                "the short way comes to something else"
            )
        self.effects += effects
        body, blobs = encode_row(event, decisions)
        self.blobs.update(blobs)
        if short is not None:
            self.plain_rows += 1
            assert (short[0], state_of(short[1])) == (body, state_of(self.run)), "a plain row differs"
        kind = type(event).__struct_config__.tag
        self.rows.append((self.run.seq, self.run.epoch, self.now, str(kind), body))
        if self.checks:
            assert state_of(self.replayed()) == state_of(self.run), "the rows do not fold to the live state"
            if (kept := awaited_so_far(self.run)) is not None:
                assert what_awaits(kept) == what_awaits(Awaited(self.run)), (
                    "an open wait is not found, or a closed one is"
                )
        return decisions

    def _decided_and_folded(self, event: Event) -> tuple[list[Decision], list[Effect], Any]:
        """What `decide` and `fold` make of an event, on a copy of the run: step must come to the same by either way."""
        before = state_of(self.run)
        decisions = decide(self.plan, self.run, event, self.now)
        assert decide(self.plan, self.run, event, self.now) == decisions, "deciding again gave another answer"
        assert state_of(self.run) == before, "deciding changed the run"
        copy = self.replayed()
        effects = fold(copy, event, decisions, self.now, self.epoch)
        return decisions, effects, state_of(copy)

    def replayed(self) -> Run:
        """The run as another process finds it: its rows, with large values put back in their place."""
        run = Run(self.run.no, self.run.id, self.run.version)
        for _, epoch, at, _, body in self.rows:
            event, decisions = decode_row(body)
            fold(
                run, self._whole(event), [self._whole(decision) for decision in decisions], Millis(at), epoch
            )
        return run

    def _whole(self, part: Any) -> Any:
        values = {name: getattr(part, name) for name in part.__struct_fields__}
        large = {name: blob_of(value) for name, value in values.items() if isinstance(value, msgspec.Raw)}
        found: dict[str, Any] = {
            name: msgspec.Raw(self.blobs[sha256]) for name, sha256 in large.items() if sha256
        }
        if isinstance(part, RunStarted):
            found |= {name: self._whole_values(values[name]) for name in ("copied", "vars")}
            outputs = self._whole_values({path: one.output for path, one in part.taken.items()})
            found["taken"] = {path: with_output(one, outputs[path]) for path, one in part.taken.items()}
        return msgspec.structs.replace(part, **found) if found else part

    def _whole_values(self, values: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        return {
            name: msgspec.Raw(self.blobs[sha256]) if (sha256 := blob_of(value)) else value
            for name, value in values.items()
        }

    # -------------------------------------------------------------------------------------------- facts

    def start(self, *, drive: bool = True) -> list[Decision]:
        return self.apply(RunStarted(msgspec.Raw(self.inputs), drive))

    def succeed(self, path: str, output: Any = None) -> list[Decision]:
        return self.apply(StepSucceeded(path, self.step(path).attempt, msgspec.Raw(encode(output))))

    def fail(self, path: str, kind: str = "error", message: str = "no luck") -> list[Decision]:
        attempt = self.step(path).attempt
        return self.apply(StepFailed(path, attempt, Error(kind, message, path, attempt)))

    def time_out(self, path: str) -> list[Decision]:
        return self.apply(AttemptTimedOut(path, self.step(path).attempt))

    def release(
        self, path: str, reason: str = "stopping", *, waits: bool = False, lost: int = 0
    ) -> list[Decision]:
        return self.apply(AttemptReleased(path, self.step(path).attempt, reason, waits, lost))

    def fire(self, timer: str, path: str = "") -> list[Decision]:
        """Let a timer fire at the moment it is due."""
        self.now = max(self.now, self.run.timers[timer_key(timer, path)])
        return self.apply(TimerFired(path, timer))

    def wait(self, millis: int) -> None:
        self.now = Millis(self.now + millis)

    def cancel(self, reason: str = "") -> list[Decision]:
        return self.apply(CancelRequested(reason))

    def crash(self, alone: str = "", *, drive: bool = True) -> list[Decision]:
        """The process ends, and the next one takes the run over: every open attempt is lost."""
        self.epoch += 1
        lost = [path for path, _ in self.run.open_attempts()]
        return self.apply(Adopted(lost, alone, drive, restarted=True))

    def turn(self, path: str) -> list[Decision]:
        return self.apply(SuspectsTurn(path))

    def grant(self, path: str) -> list[Decision]:
        return self.apply(KeyGranted(path))

    def hold(self, path: str) -> list[Decision]:
        return self.apply(KeyHeld(path))

    def answer(self, path: str, output: Any = None) -> list[Decision]:
        return self.apply(KeyAnswered(path, msgspec.Raw(encode(output))))

    def signal(self, name: str, value: Any = None, correlation: str | None = None) -> list[Decision]:
        return self.apply(SignalReceived(name, msgspec.Raw(encode(value)), correlation))

    def pause(self, path: str, task_id: str = "T1", poll_url: str = "") -> list[Decision]:
        return self.apply(StepPaused(path, self.step(path).attempt, task_id, poll_url))

    def call_back(
        self, path: str, output: Any = None, error: str = "", attempt: int | None = None
    ) -> list[Decision]:
        number = self.step(path).attempt if attempt is None else attempt
        failure = Error("error", error, path, number) if error else None
        return self.apply(CallbackReceived(path, number, msgspec.Raw(encode(output)), failure))

    def approve(
        self, path: str, approved: bool = True, reason: str = "", by: str = "", form: Any = None
    ) -> list[Decision]:
        return self.apply(ApprovalAnswered(path, approved, reason, by, msgspec.Raw(encode(form))))

    def wait_work(self) -> list[WaitWork]:
        """What the rows since the last look say of waits, as the door takes it."""
        work = [effect for effect in self.effects if isinstance(effect, WaitWork)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, WaitWork)]
        return work

    def key_work(self) -> list[KeyWork]:
        """What the rows since the last look say of keys, as the door takes it."""
        work = [effect for effect in self.effects if isinstance(effect, KeyWork)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, KeyWork)]
        return work

    def go_on(self) -> list[list[Decision]]:
        """Take up what was cut, row by row, as the door does."""
        rows = []
        while self.run.todo:
            rows.append(self.apply(Continued()))
        return rows

    # -------------------------------------------------------------------------------------------- looking

    def step(self, path: str) -> Step:
        return self.run.steps[path]

    def args(self, path: str) -> Any:
        """What the tool would be handed."""
        view = Draft(self.plan, self.run, self.run.at)
        return decode(resolved(bytes(self.step(path).inputs), view.text_at))

    @property
    def open(self) -> list[str]:
        return [path for path, _ in self.run.open_attempts()]

    def output(self) -> dict[str, Any]:
        """The outputs of the top-level steps, all rows considered, as a reader of the journal finds them."""
        whole = Run(self.run.no, self.run.id, self.run.version)
        for _, _, at, _, body in self.rows:
            event, decisions = decode_row(body)
            kept = [self._whole(_kept(decision)) for decision in decisions]
            fold(whole, self._whole(event), kept, Millis(at), 0)
        outputs: dict[str, Any] = decode(Draft(self.plan, whole, whole.at).outputs_of(""))
        return outputs


def resolved_of(definition: str, known: Mapping[str, str]) -> Resolved:
    """A definition with those that it names, from their texts by name."""
    spec = definition_from_text(definition)
    spec.validate()
    return Resolved(spec, {name: resolved_of(known[name], known) for name in sorted(names_used(spec))})


def _kept(decision: Decision) -> Decision:
    return msgspec.structs.replace(decision, keep=1) if hasattr(decision, "keep") else decision


def state_of(run: Run) -> Any:
    """All that is state of a run, as plain data; what is only remembered is left out, and so is what is null."""
    return _without_nulls(msgspec.json.decode(msgspec.json.encode(run)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return value


def starts(decisions: list[Decision]) -> list[str]:
    return [order.path for order in decisions if isinstance(order, StartAttempt)]


def stops(decisions: list[Decision]) -> list[str]:
    return [order.path for order in decisions if isinstance(order, StopAttempt)]


def failures(decisions: list[Decision]) -> dict[str, Error]:
    return {order.path: order.error for order in decisions if isinstance(order, FailStep)}


def completed(decisions: list[Decision]) -> list[str]:
    return [order.path for order in decisions if isinstance(order, CompleteStep)]


def armed(decisions: list[Decision]) -> dict[str, Millis]:
    """`"retry a"` → due time."""
    return {
        timer_key(order.timer, order.path): order.at for order in decisions if isinstance(order, ArmTimer)
    }


def finish(decisions: list[Decision]) -> FinishRun:
    last = decisions[-1]
    assert isinstance(last, FinishRun), f"the run did not end but decided {decisions}"
    return last


def was_cut(decisions: list[Decision]) -> bool:
    return bool(decisions) and isinstance(decisions[-1], Continue)
