"""The commonest rows of all, in one go: a top-level call or timer is over, and a call follows it, or the end of the run.

What `decide` and `fold` do of it, without the objects that only odder cases need: a step costs a sixth less. Gives nothing
and changes nothing where anything is out of the ordinary, and the two are asked instead. That both come to the same is
held by the tests: every fact that they offer to the one is offered to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.decisions import CompleteStep, Decision, FinishRun, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.events import StepSucceeded, TimerFired
from holdfast.engine.fold import finish_run, keep_output
from holdfast.engine.scopes import BROKEN
from holdfast.engine.state import Run, Step, timer_key
from holdfast.plan import composed
from holdfast.plan.graph import Call, Plan, Timer
from holdfast.values import Millis


def _call_is_over(plan: Plan, run: Run, event: StepSucceeded, at: Millis) -> list[Decision] | None:
    """Take a success into the run and give what follows from it; None if there is more to it than that."""
    steps, path = run.steps, event.path
    step, way = steps.get(path), plan.root.plain.get(path)
    if step is None or way is None or step.attempt != event.attempt or step.state != "running":
        return None
    if step.key is not None or step.target is not None:
        return None
    if run.stops or run.status != "running" or run.kept_bytes > limits.now.kept_bytes_max or run.taken:
        return None
    name, after = way
    keep = step.keep
    if after is None:
        return _end(plan, run, event, at, keep)
    draft = Draft(plan, run, at)
    if keep:
        draft.outputs[path] = event.output
    try:
        inputs = msgspec.Raw(after.inputs(draft))
    except BROKEN:
        return None  # a failure, for decide to handle
    if name in steps:
        return None
    del steps[path]
    if keep:
        keep_output(run, path, event.output, keep)
    steps[name] = Step("running", 1, inputs, after.keep)
    run.seq += 1
    run.at = at
    return [StartAttempt(name, 1, inputs, after.keep)]


def _end(plan: Plan, run: Run, event: StepSucceeded, at: Millis, keep: int) -> list[Decision] | None:
    """The last call of a run is done, and so is the run."""
    if plan.output is not None or run.keyed or run.waits:
        return None
    if run.kept_bytes + run.result_bytes + len(event.output) > composed.COUNTED_FROM:
        return None  # its output may be too large
    order = FinishRun("completed")
    if keep:
        keep_output(run, event.path, event.output, keep)
    finish_run(run, order)
    run.seq += 1
    run.at = at
    return [order]


def _timer_is_over(plan: Plan, run: Run, event: TimerFired, at: Millis) -> list[Decision] | None:
    """Take the end of a delay into the run, where it waits for nothing else, and give the start that follows from it."""
    nodes, path = plan.root.nodes, event.path
    node, key = nodes.get(path), timer_key("delay", path)
    if type(node) is not Timer or event.timer != "delay" or key not in run.timers or node.post is not None:
        return None
    if len(run.steps) != 1 or run.stops or run.status != "waiting" or run.waits or run.keyed or run.taken:
        return None
    name, keep = node.routes.ok, node.keep
    after = nodes.get(name)
    if type(after) is not Call or after.key is not None:
        return None
    draft = Draft(plan, run, at)
    output = msgspec.Raw(node.show(draft, at))
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
    return [CompleteStep(path, output, keep), StartAttempt(name, 1, inputs, after.keep)]


SHORT_WAYS: Final[dict[type, Callable[[Plan, Run, Any, Millis], list[Decision] | None]]] = {
    StepSucceeded: _call_is_over,
    TimerFired: _timer_is_over,
}
