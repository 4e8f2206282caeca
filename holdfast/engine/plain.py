"""The most common changes of a run: it begins with a call, the first attempt of a top-level call succeeds and the next call starts, or the
run ends.

These do in one go what `step` and `encode_row` do with an event and a decision; most make neither, because the row has both. The
tests apply every such event both ways and compare the run and the row.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.codec import PLAIN_BYTES_MAX, first_body, plain_texts, timed
from holdfast.engine.decisions import COMPLETED, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.ends import BROKEN
from holdfast.engine.events import RunStarted
from holdfast.engine.fold import finish_run
from holdfast.engine.frames import keep_output
from holdfast.engine.state import Run, Step
from holdfast.plan import composed
from holdfast.plan.graph import KEEP_NAMED, Plan, Way
from holdfast.values import Millis, decode

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


def begin(plan: Plan, run: Run, event: RunStarted, at: Millis) -> tuple[StartAttempt, str] | None:
    """Apply the start of a new run that begins with a call. Return the start of that, and the body of the row; None as below."""
    way, given = plan.root.entry, event.inputs
    if way is None or (call := way.call) is None or call.around is not None or plan.timeout_ms is not None:
        return None
    if not event.drive or event.env or event.destinations or event.taken or event.vars or event.first:
        return None
    if len(given) > PLAIN_BYTES_MAX or run.seq:
        return None
    try:
        inputs = None
        if call.of_inputs is not None:
            run.__dict__["decoded"] = {"": (decoded := decode(given))}
            inputs = call.of_inputs(decoded)
        if inputs is None:
            inputs = call.inputs(Draft(plan, run, at, UNUSED, UNUSED, {"": given}))
    except BROKEN:
        return None
    body = first_body(way, given, event.trigger, inputs)
    if body.find(b'"$') >= 0 or len(body) > PLAIN_BYTES_MAX:
        return None
    start = StartAttempt(way.name, 1, msgspec.Raw(inputs), way.keep)
    run.inputs, run.created_at, run.at, run.begun = given, at, at, True
    if event.trigger is not None:
        run.trigger = event.trigger
    run.steps = {way.name: Step("running", 1, start.inputs, way.keep)}
    run.seq, run.active, run.status = 1, 1, "running"
    return start, body.decode()


def pass_on(plan: Plan, run: Run, way: Way, path: str, output: bytes, ran_ms: int, at: Millis) -> str | None:
    """Apply the success of the only open call, whose successor is known. Return the body of the row.

    None if anything is unusual, such as inputs with references or values that may have to be stored elsewhere: nothing is changed then.
    """
    steps, value, call = run.steps, msgspec.Raw(output), way.call
    step = steps[path]
    if (keep := step.keep) and run.kept_bytes > limits.now.kept_bytes_max:
        return None
    assert call is not None  # see Way.then
    try:
        inputs = None if (of_inputs := call.of_inputs) is None else of_inputs(run.__dict__["decoded"][""])
    except KeyError:
        inputs = None  # no expression has asked for the run's inputs yet
    if inputs is None:
        seen = {path: value} if keep == KEEP_NAMED else NO_OUTPUTS
        try:
            inputs = call.inputs(Draft(plan, run, at, UNUSED, UNUSED, seen))
        except BROKEN:
            return None  # a failure
    head, middle, tail = way.texts or plain_texts(way, path)
    text = b"".join((head, output, timed(middle, ran_ms) if ran_ms else middle, inputs, tail))
    body = text.decode()
    if '"$' in body or len(text) > PLAIN_BYTES_MAX:  # in text this is cheaper than in bytes
        return None  # there may be references, or what looks like one
    if keep:
        keep_output(run, path, value, keep)
    del steps[path]
    steps[way.name] = step  # otherwise it is as a new one
    step.inputs = msgspec.Raw(inputs)
    if keep != way.keep:
        step.keep = way.keep
    run.seq += 1
    run.at = at
    return body


def end(plan: Plan, run: Run, way: Way, path: str, output: bytes, ran_ms: int, at: Millis) -> str | None:
    """Apply the success of the only open call, after which the run ends. Return the body of the row, or None as above."""
    head, middle, _ = way.texts or plain_texts(way, path)
    text = b"".join((head, output, timed(middle, ran_ms) if ran_ms else middle))
    body = text.decode()
    if '"$' in body or len(text) > PLAIN_BYTES_MAX:
        return None
    return body if completes(plan, run, path, msgspec.Raw(output), at) else None


def completes(plan: Plan, run: Run, path: str, output: msgspec.Raw, at: Millis) -> bool:
    """Complete the run with the success of its last call. False if anything is unusual: nothing is changed then."""
    if plan.output is not None or run.keyed or run.waits:
        return False
    if run.kept_bytes + run.result_bytes + len(output) > composed.COUNTED_FROM:
        return False  # its output may be too large
    if keep := run.steps[path].keep:
        if run.kept_bytes > limits.now.kept_bytes_max:
            return False
        keep_output(run, path, output, keep)
    finish_run(run, COMPLETED, UNUSED)
    run.seq += 1
    run.at = at
    return True
