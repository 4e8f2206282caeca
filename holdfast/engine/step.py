"""step(plan, run, event, at, epoch): the only way a run changes.

Decides a new event (`decide`) and applies the decisions to the run (`fold`). Returns the decisions, for the journal, and the
effects, for the commit of the row. Stored rows are not decided again: see `replay`.

The most common events take a fast path: a top-level call or timer has ended, and a call or the end of the run follows; or a child of a
fan-out has ended, and nothing follows. It does what `decide` and `fold` do in that case without their intermediate objects. If
anything is unusual it changes nothing and returns None. The tests apply every event both ways and compare the results.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.decide import decide
from holdfast.engine.decisions import COMPLETED, CompleteStep, Decision, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.effects import Effect
from holdfast.engine.ends import BROKEN
from holdfast.engine.events import Event, StepSucceeded, TimerFired
from holdfast.engine.fold import fold
from holdfast.engine.frames import keep_output
from holdfast.engine.plain import NO_OUTPUTS, UNUSED, completes, is_usual
from holdfast.engine.state import Run, Step, timer_key
from holdfast.plan import composed
from holdfast.plan.graph import Plan, Timer
from holdfast.values import Millis, scope_of, split

NO_EFFECTS: Final[tuple[Effect, ...]] = ()

Stepped = tuple[list[Decision], list[Effect] | tuple[Effect, ...]]


def step(plan: Plan, run: Run, event: Event, at: Millis, epoch: int) -> Stepped:
    """Apply a new event to a run. `epoch` is the owner's epoch, a column of the journal row."""
    decisions = None
    if type(event) is StepSucceeded:
        decisions = _call_succeeded(plan, run, event, at, epoch)
    elif type(event) is TimerFired:
        decisions = _delay_ended(plan, run, event, at, epoch)
    if decisions is not None:
        return decisions, NO_EFFECTS
    decisions = _of_child(plan, run, event, epoch) if type(event) is StepSucceeded else None
    if decisions is None:
        decisions = decide(plan, run, event, at)
    return decisions, fold(run, event, decisions, at, epoch)


def _call_succeeded(
    plan: Plan, run: Run, event: StepSucceeded, at: Millis, epoch: int
) -> list[Decision] | None:
    """A top-level call whose successor was known when the plan was compiled has succeeded."""
    path, output = event.path, event.output
    way = plan.root.plain.get(path)
    if way is None:
        return None
    if way.call is None:
        return _last_call_succeeded(plan, run, event, at, epoch)
    name = way.name
    if name in run.steps or not is_usual(run, path, event.attempt, epoch):
        return None
    keep = run.steps[path].keep
    try:
        text = way.call.inputs(Draft(plan, run, at, UNUSED, UNUSED, {path: output} if keep else NO_OUTPUTS))
    except BROKEN:
        return None  # a failure
    inputs = msgspec.Raw(text)
    del run.steps[path]
    if keep:
        keep_output(run, path, output, keep)
    run.steps[name] = Step("running", 1, inputs, way.keep)
    run.seq += 1
    run.at = at
    return [StartAttempt(name, 1, inputs, way.keep)]


def _last_call_succeeded(
    plan: Plan, run: Run, event: StepSucceeded, at: Millis, epoch: int
) -> list[Decision] | None:
    if not is_usual(run, event.path, event.attempt, epoch):
        return None
    return [COMPLETED] if completes(plan, run, event.path, event.output, at) else None


def _of_child(plan: Plan, run: Run, event: StepSucceeded, epoch: int) -> list[Decision] | None:
    """The last call of a child of a fan-out has succeeded. All children were opened before, and others are still at work."""
    frame, tail = split(event.path)
    scope_path, index = scope_of(frame)
    scope = run.scopes.get(scope_path)
    if index is None or scope is None or scope.next < scope.count or scope.open < 2 or run.active < 2:
        return None
    way = plan.block(frame).plain.get(tail)
    if way is None or way.call is not None or run.end is not None:
        return None
    if scope.keep and run.kept_bytes + run.result_bytes + len(event.output) > composed.COUNTED_FROM:
        return None  # the size of the scope's output is counted
    return [CompleteStep(frame)] if is_usual(run, event.path, event.attempt, epoch) else None


def _delay_ended(plan: Plan, run: Run, event: TimerFired, at: Millis, epoch: int) -> list[Decision] | None:
    """A top-level timer of a run that waits for nothing else has fired, and a call follows."""
    path = event.path
    way, key = plan.root.plain.get(path), timer_key("delay", path)
    if way is None or event.timer != "delay" or key not in run.timers:
        return None
    if len(run.steps) != 1 or run.stops or run.status != "waiting" or run.waits or run.keyed or run.taken:
        return None
    node, name, after = plan.root.nodes[path], way.name, way.call
    assert type(node) is Timer and after is not None
    draft = Draft(plan, run, at)
    output, keep = msgspec.Raw(node.show(draft, at)), node.keep
    if keep:
        draft.outputs[path] = output
    try:
        inputs = msgspec.Raw(after.inputs(draft))
    except BROKEN:
        return None
    del run.timers[key]
    if keep:
        keep_output(run, path, output, keep)
    run.steps = {name: Step("running", 1, inputs, after.keep)}
    run.active, run.status = 1, "running"
    run.seq += 1
    run.at = at
    if run.epoch != epoch:
        run.epoch = epoch
    return [CompleteStep(path, output, keep), StartAttempt(name, 1, inputs, after.keep)]
