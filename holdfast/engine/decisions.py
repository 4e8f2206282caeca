"""Orders: what is to be done about a fact. Durable in the row of the fact before anyone carries them out.

Knows nothing of who carries them out. Encoded as arrays; new fields go to the end with a default.
"""

from __future__ import annotations

import msgspec

from holdfast.values import NULL, Error, Millis, Status


class StartAttempt(msgspec.Struct, array_like=True, tag="start", gc=False):
    """`inputs` stand with the first attempt only: rendered once per path, the later ones repeat nothing."""

    path: str
    attempt: int
    inputs: msgspec.Raw = NULL
    keep: int = 0
    overlapping: bool = False  # the former attempt outlived its grace and may still be at work


class ReserveKey(msgspec.Struct, array_like=True, tag="reserve"):
    """Ask for an idempotency key before a step begins. `inputs` stand with the first time only.

    `is_global`: the key is one for all runs; else each run has its own.
    """

    path: str
    key: str
    is_global: bool = False
    inputs: msgspec.Raw = NULL
    keep: int = 0


class StopAttempt(msgspec.Struct, array_like=True, tag="stop"):
    """Ends a step on behalf of `target`: the run (""), a scope, or the step itself (time-out)."""

    path: str
    target: str


class BeginStop(msgspec.Struct, array_like=True, tag="begin_stop"):
    """Attempts beneath `target` are asked to stop; what follows waits for their results or for the grace timer."""

    target: str
    error: Error


class ArmTimer(msgspec.Struct, array_like=True, tag="timer", gc=False):
    """`timer` says what for: delay, retry, grace, deadline, suspect (the pause before its next turn), or of a wait its
    expiry, the next poll, and the moment to ask somebody else."""

    path: str
    timer: str
    at: Millis


class OpenScope(msgspec.Struct, array_like=True, tag="open"):
    """`items` is a JSON array or a reference to one, or what a nested plan is given; `value` is the output-to-be of a choice."""

    path: str
    count: int
    items: msgspec.Raw = NULL
    value: msgspec.Raw = NULL
    keep: int = 0
    is_nested: bool = False
    is_gathered: bool = False  # its output is a value of its own: nothing of its children is kept after it


class CompleteStep(msgspec.Struct, array_like=True, tag="complete", gc=False):
    """A step that ends without a call, a child of a scope, a scope.

    `joined`: the output is that of the leaves, gathered when it is read and stored nowhere.
    """

    path: str
    value: msgspec.Raw = NULL
    keep: int = 0
    joined: bool = False


class FailStep(msgspec.Struct, array_like=True, tag="fail"):
    path: str
    error: Error


class OpenWait(msgspec.Struct, array_like=True, tag="wait", gc=False):
    """A step waits for an answer from outside. `kind` is callback, signal, approval or condition; `name` is a task id."""

    path: str
    kind: str
    name: str = ""
    expires_at: Millis | None = None
    detail: msgspec.Raw = NULL  # what those need to know who can end it
    keep: int = 0


class NoteAnswer(msgspec.Struct, array_like=True, tag="note"):
    """Part of what a step waits for has come, under a name; it waits on."""

    path: str
    name: str
    value: msgspec.Raw


class KeepSignal(msgspec.Struct, array_like=True, tag="keep"):
    """Nothing waits for a signal yet: it is kept until something does."""

    name: str
    value: msgspec.Raw
    correlation: str | None = None


class TakeSignal(msgspec.Struct, array_like=True, tag="take_signal"):
    """A step has what it waits for from a signal that was kept, by its number."""

    number: int


class Poll(msgspec.Struct, array_like=True, tag="poll"):
    """Ask once more for the answer that a step waits for."""

    path: str
    attempt: int


class SetVar(msgspec.Struct, array_like=True, tag="set"):
    """Write a variable of the plan that runs in `frame`: "" is the run's own."""

    frame: str
    name: str
    value: msgspec.Raw


class Take(msgspec.Struct, array_like=True, tag="take"):
    """A step is left with an action, and its block goes on to the node `to`: "" ends it.

    `visit` counts how often a node on a cycle was met; it is 0 for one that can be met only once.
    """

    path: str
    action: str
    to: str = ""
    visit: int = 0


class Continue(msgspec.Struct, array_like=True, tag="continue"):
    """The decision was cut here; `todo` is the rest of the work, taken up by the event Continued."""

    todo: list[tuple[str, str, str]]


class FinishRun(msgspec.Struct, array_like=True, tag="finish", gc=False):
    status: Status
    output: msgspec.Raw = NULL
    error: Error | None = None


Decision = (
    StartAttempt
    | ReserveKey
    | StopAttempt
    | BeginStop
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
