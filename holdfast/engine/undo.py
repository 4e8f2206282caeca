"""The end of a run that does not complete: its completed calls are undone, its final steps run, and then it ends.

    the run fails or is stopped ──► BeginEnd ──► Undo, Undo, … (the last call first) ──► final steps ──► FinishRun

Each compensation is an ordinary attempt at the path `<step>.compensate`, so retries, timeouts, callbacks and losses are those of
any call. If nothing is left to do, the run ends at once. Does not know why the run ends.
"""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.engine.decisions import ArmTimer, BeginEnd, FinishRun, NoteUndo, StartAttempt, StopAttempt, Undo
from holdfast.engine.draft import Draft
from holdfast.engine.state import End, Undoable, timer_key
from holdfast.plan.graph import COMPENSATE, Node
from holdfast.values import NULL, Error, Millis, Status, encode, split

ROOT = "."  # the guard of the run itself
MESSAGE_PATHS_MAX = 5


def cancel_grace_ms() -> int:
    """Return how long an attempt may take to end after it was asked to stop."""
    return limits.now.cancel_grace_secs_max * 1000


def note(draft: Draft, path: str, node: Node, output: msgspec.Raw) -> None:
    """Remember how to undo a call that has completed. Raises if that cannot be rendered."""
    undo = None if node.around is None else node.around.undo
    if undo is None:
        return
    frame = split(path)[0]
    before = draft.vars
    draft.vars = {**before, (frame, undo.variable): output}
    try:
        text = undo.inputs(draft.seen_from(frame))
    finally:
        draft.vars = before
        draft.seen.pop(f"var {frame} {undo.variable}", None) if draft.seen else None
    inputs = msgspec.Raw(text)
    draft.decisions.append(NoteUndo(path, inputs))
    draft.value_bytes += len(text)
    draft.undoable = (*draft.undoable, Undoable(path, inputs))


def end_run(draft: Draft, status: Status, error: Error) -> None:
    """End a run that does not complete, after what must follow."""
    draft.work.clear()
    draft.stopped = (*draft.stopped, "")
    _settle_final(draft)
    end = End(status, error)
    if not (draft.run.undo or draft.undoable) and not _has_final(draft):
        return _finish(draft, end)
    draft.stopped = ()
    draft.decisions.append(BeginEnd(status, error))
    _next(draft, end, [*draft.run.undo, *draft.undoable])


def _settle_final(draft: Draft) -> None:
    """The run was about to complete: its final steps have had their turn, or have it after the compensations if none has begun."""
    guard, state = draft.plan.root.guard, draft.guard(ROOT)
    if guard is not None and state is not None and state.phase == "final":
        is_unbegun = any(tuple(item) == ("enter", "", guard.final) for item in draft.run.todo)
        draft.set_guard(ROOT, "" if is_unbegun else "done")


def undone(draft: Draft, error: Error | None) -> None:
    """A compensation has succeeded, or failed for good: the others follow."""
    end = draft.run.end
    assert end is not None
    failed = end.failed if error is None else [*end.failed, error]
    _next(draft, End(end.status, end.error, failed), draft.run.undo)


def final_ended(draft: Draft, error: Error | None) -> None:
    """The final steps of a run that does not complete have ended."""
    end = draft.run.end
    assert end is not None
    why = end.error if error is None else msgspec.structs.replace(end.error, also=(*end.error.also, error))
    _finish(draft, End(end.status, why, end.failed))


def is_undoing(draft: Draft, frame: str) -> bool:
    end = draft.run.end
    return end is not None and frame != "" and end.at == frame


def hurry(draft: Draft) -> None:
    """Limit the time of the final steps: the run was cancelled, or has timed out, while they ran."""
    guard = draft.run.guards.get(ROOT)
    if guard is not None and guard.phase == "final" and timer_key("grace", "") not in draft.run.timers:
        _limit(draft)


def cut_short(draft: Draft) -> None:
    """The final steps have used up their time: what still runs is asked to stop, and the run ends."""
    draft.decisions.extend(StopAttempt(path, "") for path in draft.open_steps(""))
    end = draft.run.end
    assert end is not None
    seconds = limits.now.cancel_grace_secs_max
    final_ended(
        draft, Error("timeout", f"the final steps did not end within {seconds} s (cancel_grace_secs)")
    )


def _next(draft: Draft, end: End, left: list[Undoable]) -> None:
    if left:
        last = left[-1]
        draft.decisions.append(Undo(last.path))
        draft.decisions.append(StartAttempt(f"{last.path}.{COMPENSATE}", 1, last.inputs))
        return
    guard = draft.plan.root.guard
    if not _has_final(draft) or guard is None or guard.final is None:
        return _finish(draft, end)
    draft.set_var("", guard.variable, encode(end.error))
    draft.set_guard(ROOT, "final", end.error)
    if end.status != "failed" or end.error.kind == "run_timeout":
        _limit(draft)
    draft.go("", guard.final)


def _limit(draft: Draft) -> None:
    draft.decisions.append(ArmTimer("", "grace", Millis(draft.at + cancel_grace_ms())))


def _has_final(draft: Draft) -> bool:
    """Return whether the run has final steps that have not begun."""
    guard, state = draft.plan.root.guard, draft.guard(ROOT)
    is_due = state is None or state.phase not in ("final", "done")
    return guard is not None and guard.final is not None and is_due


def _finish(draft: Draft, end: End) -> None:
    draft.work.clear()
    draft.stopped = (*draft.stopped, "")
    status, error = end.status, end.error
    if end.failed:
        paths = ", ".join(split(one.path)[0] or one.path for one in end.failed[:MESSAGE_PATHS_MAX])
        more = len(end.failed) - MESSAGE_PATHS_MAX
        which = f"{paths} and {more} more" if more > 0 else paths
        also = (*error.also, *end.failed)
        if status == "failed":
            error = msgspec.structs.replace(
                error,
                message=f"{error.message}; not undone, because its compensation failed: {which}",
                also=also,
            )
        else:
            message = f"{error.message}; not undone, because its compensation failed: {which}"
            error = Error("compensation", message, "", 0, error, also)
        status = "failed"
    draft.decisions.append(FinishRun(status, NULL, error))
