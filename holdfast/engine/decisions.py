"""Decisions: what to do about an event. A decision is durable, in the row of its event, before the runtime carries it out.

Does not know the runtime. Encoded as arrays; new fields are added at the end, with a default.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.values import NULL, Error, Millis, Status, WaitKind


class StartAttempt(msgspec.Struct, array_like=True, tag="start", gc=False):
    """`inputs` are stored with the first attempt only. They are rendered once per path and reused by later attempts."""

    path: str
    attempt: int
    inputs: msgspec.Raw = NULL
    keep: int = 0
    # The previous attempt did not end within its grace period and may still be running.
    overlapping: bool = False


class ReserveKey(msgspec.Struct, array_like=True, tag="reserve"):
    """Request an idempotency key before a step starts. `inputs` are stored with the first request only.

    `is_global`: the key is shared by all runs; otherwise it belongs to this run.
    """

    path: str
    key: str
    is_global: bool = False
    inputs: msgspec.Raw = NULL
    keep: int = 0


class StopAttempt(msgspec.Struct, array_like=True, tag="stop"):
    """Stop a step because `target` is being stopped: the run (""), a scope, or the step itself (timeout)."""

    path: str
    target: str


class BeginStop(msgspec.Struct, array_like=True, tag="begin_stop"):
    """All attempts beneath `target` are being stopped. The run continues when they have ended or the grace timer fires."""

    target: str
    error: Error
    unwinds: bool = False  # the attempts have ended; what must run after any end is running


class ArmTimer(msgspec.Struct, array_like=True, tag="timer", gc=False):
    """`timer` is its purpose: delay, retry, grace, deadline, suspect (the pause before the next isolated attempt), worker (how long to wait for one), or for a wait:
    expiry, poll, escalation."""

    path: str
    timer: str
    at: Millis


class OpenScope(msgspec.Struct, array_like=True, tag="open"):
    """`items` is a JSON array, a reference to one, or the input of a nested plan. `value` is the later output of a choice."""

    path: str
    count: int
    items: msgspec.Raw = NULL
    value: msgspec.Raw = NULL
    keep: int = 0
    is_nested: bool = False
    # Its output is stored as one value, so its children's outputs are dropped when it closes.
    is_gathered: bool = False


class CompleteStep(msgspec.Struct, array_like=True, tag="complete", gc=False):
    """End a step that makes no call, a child of a scope, or a scope.

    `joined`: the output is gathered from the leaves when it is read, and is not stored. `skipped`: its condition was false.
    """

    path: str
    value: msgspec.Raw = NULL
    keep: int = 0
    joined: bool = False
    skipped: bool = False


class FailStep(msgspec.Struct, array_like=True, tag="fail"):
    path: str
    error: Error


class SetGuard(msgspec.Struct, array_like=True, tag="guard"):
    """How far a guarded step or block is. `path` is the step, or the frame of the block with a dot behind it.

    `phase`: body, on_error, final, done (of a block), or "" when its guard is no longer needed. `error` is what it failed with;
    `caught`: a failure was handled.
    """

    path: str
    phase: str
    error: Error | None = None
    caught: bool = False


class NoteUndo(msgspec.Struct, array_like=True, tag="undoable"):
    """A call has completed that must be undone if the run does not complete. `inputs` are those of its compensation."""

    path: str
    inputs: msgspec.Raw


class BeginEnd(msgspec.Struct, array_like=True, tag="ending"):
    """The run will end like this. Before that its completed calls are undone, the last one first, and its final steps run."""

    status: Status
    error: Error


class Undo(msgspec.Struct, array_like=True, tag="undo"):
    """Undo the last call that is not undone yet. The start of its compensation follows."""

    path: str


class OpenWait(msgspec.Struct, array_like=True, tag="wait", gc=False):
    """Make a step wait for a result from outside. `kind` is callback, signal, approval or condition; `name` is a task id."""

    path: str
    kind: WaitKind
    name: str = ""
    expires_at: Millis | None = None
    detail: msgspec.Raw = NULL  # details for the callers that can resolve it
    keep: int = 0


class NoteAnswer(msgspec.Struct, array_like=True, tag="note"):
    """Record one of several results that a step waits for, by name. The step keeps waiting for the rest."""

    path: str
    name: str
    value: msgspec.Raw


class KeepSignal(msgspec.Struct, array_like=True, tag="keep"):
    """Keep a signal until a step waits for it."""

    name: str
    value: msgspec.Raw
    correlation: str | None = None


class TakeSignal(msgspec.Struct, array_like=True, tag="take_signal"):
    """Give a kept signal, identified by its number, to the step that waits for it."""

    number: int


class Poll(msgspec.Struct, array_like=True, tag="poll"):
    """Poll again for the result that a step waits for."""

    path: str
    attempt: int


class SetVar(msgspec.Struct, array_like=True, tag="set"):
    """Write a variable of the plan that runs in `frame` ("" is the run's own plan)."""

    frame: str
    name: str
    value: msgspec.Raw


class Take(msgspec.Struct, array_like=True, tag="take"):
    """Leave a step by an action and continue at the node `to`; "" ends the block.

    `visit` is the number of this visit if `to` is on a cycle, else 0.
    """

    path: str
    action: str
    to: str = ""
    visit: int = 0


class Continue(msgspec.Struct, array_like=True, tag="continue"):
    """The decision was split here. `todo` is the rest of the work; the event Continued resumes it."""

    todo: list[tuple[str, str, str]]


class FinishRun(msgspec.Struct, array_like=True, tag="finish", gc=False):
    """`caught`: a failure of the run was handled, and the output is that of the handler."""

    status: Status
    output: msgspec.Raw = NULL
    error: Error | None = None
    caught: bool = False


COMPLETED: Final = FinishRun("completed")  # of a run without an output of its own

Decision = (
    StartAttempt
    | ReserveKey
    | StopAttempt
    | BeginStop
    | SetGuard
    | NoteUndo
    | BeginEnd
    | Undo
    | ArmTimer
    | OpenScope
    | CompleteStep
    | FailStep
    | OpenWait
    | NoteAnswer
    | KeepSignal
    | TakeSignal
    | Poll
    | SetVar
    | Take
    | Continue
    | FinishRun
)
