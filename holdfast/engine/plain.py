"""The most common change of a run: the first attempt of a top-level call succeeded, and the next call starts.

`pass_on` does in one go what `step` and `encode_row` do with an event and a decision; it makes neither, because the row has both. The
tests apply every such success both ways and compare the run and the row.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.codec import PLAIN_BYTES_MAX, plain_texts
from holdfast.engine.draft import Draft
from holdfast.engine.ends import BROKEN
from holdfast.engine.frames import keep_output
from holdfast.engine.state import Run, Step
from holdfast.plan.graph import KEEP_NAMED, Plan, Way
from holdfast.values import Millis

# Decisions and work of a draft that only renders: two lists less for every step.
UNUSED: Final[list[Any]] = []
NO_OUTPUTS: Final[dict[str, msgspec.Raw]] = {}


def is_usual(run: Run, path: str, attempt: int, epoch: int) -> bool:
    """Return whether the attempt is open, and the run neither stops nor waits for anything that its end would change."""
    step = run.steps.get(path)
    if step is None or step.attempt != attempt or step.state != "running" or step.target is not None:
        return False
    if run.stops or run.status != "running" or run.epoch != epoch or run.taken:
        return False
    return run.kept_bytes <= limits.now.kept_bytes_max


def is_straight(run: Run, path: str, epoch: int) -> bool:
    """Return whether `pass_on` may be asked: the call is all that is open, in its first attempt, and nothing has happened to it. This
    stays so from one `pass_on` to the next."""
    if len(run.steps) != 1 or not is_usual(run, path, 1, epoch):
        return False
    step = run.steps[path]
    return step == Step("running", 1, step.inputs, step.keep)


def first_call(plan: Plan, run: Run) -> Way | None:
    """Return how the only call of a run that has just started was reached, if nothing in its inputs must be resolved."""
    way, steps = plan.root.entry, run.steps
    if way is None or len(steps) != 1 or run.taken or run.status != "running":
        return None
    step = steps.get(way.name)
    if step is None or step.state != "running" or len(step.inputs) > PLAIN_BYTES_MAX:
        return None
    return None if bytes(step.inputs).find(b'"$') >= 0 else way


def pass_on(plan: Plan, run: Run, way: Way, path: str, output: bytes, ran_ms: int, at: Millis) -> str | None:
    """Apply the success of the only open call, whose successor is known. Return the body of the row.

    None if anything is unusual, such as inputs with references or values that may have to be stored elsewhere: nothing is changed then.
    """
    steps, value = run.steps, msgspec.Raw(output)
    step = steps[path]
    if (keep := step.keep) and run.kept_bytes > limits.now.kept_bytes_max:
        return None
    seen = {path: value} if keep == KEEP_NAMED else NO_OUTPUTS
    try:
        inputs = way.call.inputs(Draft(plan, run, at, UNUSED, UNUSED, seen))  # type: ignore[union-attr]  # see Way.then
    except BROKEN:
        return None  # a failure
    if inputs.find(b'"$') >= 0 or output.find(b'{"$') >= 0 or len(output) + len(inputs) > PLAIN_BYTES_MAX:
        return None  # there may be references, or what looks like one
    head, middle, tail = way.texts or plain_texts(way, path)
    ran = b",%d" % ran_ms if ran_ms else b",0"
    if keep:
        keep_output(run, path, value, keep)
    del steps[path]
    steps[way.name] = step  # otherwise it is as a new one
    step.inputs, step.keep = msgspec.Raw(inputs), way.keep
    run.seq += 1
    run.at = at
    return b"".join((head, output, ran, middle, inputs, tail)).decode()
