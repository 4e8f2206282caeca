"""The commonest row of all, in one go: a top-level call has succeeded, and another call follows it.

What `decide` and `fold` do of it, without the objects that only odder cases need: a step costs a sixth less. Gives nothing
and changes nothing where anything is out of the ordinary, and the two are asked instead. That both come to the same is
held by the tests: every success that they offer to the one is offered to the other.
"""

from __future__ import annotations

import msgspec

from holdfast.engine.decide import KEPT_BYTES_MAX
from holdfast.engine.decisions import Decision, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.events import StepSucceeded
from holdfast.engine.fold import keep_output
from holdfast.engine.scopes import BROKEN
from holdfast.engine.state import Run, Step
from holdfast.plan.graph import Call, Plan
from holdfast.values import VALUE_BYTES_MAX, Millis


def next_call(plan: Plan, run: Run, event: StepSucceeded, at: Millis) -> list[Decision] | None:
    """Take a success into the run and give the start that follows from it; None if there is more to it than that."""
    nodes, steps, path = plan.root.nodes, run.steps, event.path
    step, node = steps.get(path), nodes.get(path)
    if step is None or node is None or step.attempt != event.attempt or step.state != "running":
        return None
    name = node.routes.ok
    after = nodes.get(name)
    if type(after) is not Call or after.key is not None or node.post is not None or step.key is not None:
        return None
    if step.target is not None or run.stops or run.status != "running" or run.kept_bytes > KEPT_BYTES_MAX:
        return None
    keep, draft = step.keep, Draft(plan, run, at)
    if keep:
        draft.outputs[path] = event.output
    try:
        text = after.inputs(draft)
    except BROKEN:
        return None  # a failure, for the others to decide on
    if len(text) > VALUE_BYTES_MAX or name in steps:
        return None
    inputs = msgspec.Raw(text)
    del steps[path]
    if keep:
        keep_output(run, path, event.output, keep)
    steps[name] = Step("running", 1, inputs, after.keep)
    run.seq += 1
    run.at = at
    return [StartAttempt(name, 1, inputs, after.keep)]
