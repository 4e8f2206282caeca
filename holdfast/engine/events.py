"""Facts: what happened to a run, in the past tense. Each carries no time; the row it stands in does.

Knows no decision and no table. Encoded as arrays, so a row costs no key names; new fields go to the end with a default.
"""

from __future__ import annotations

import msgspec

from holdfast.values import NULL, Error


class Destination(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A destination of the final callback; `secret_env` names the variable that holds the signing secret."""

    url: str
    secret_env: str | None = None


class Outcome(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True, gc=False):
    """How a step of another run ended. A run that takes it over ends the step the same way when it comes to it."""

    output: msgspec.Raw = NULL
    error: Error | None = None
    # Of a choice: the node that it led to, which is entered. Of a nested graph: the node that it begins at; the output is
    # its shared state there.
    to: str | None = None


class RunStarted(msgspec.Struct, array_like=True, tag="run_started", gc=False):
    """`drive` is false where the run was only accepted: another node, or this one later, begins it.

    A rerun carries what it takes over from the run before it: `taken` by path, and of a plan with variables `first`
    and `vars`. `copied` stands in journals of releases up to 0.3, with the outputs of the top-level nodes before `first`.
    """

    inputs: msgspec.Raw
    drive: bool = True
    env: dict[str, str | None] = {}  # variables of the environment that the plan names, as they were
    copied: dict[str, msgspec.Raw] = {}
    first: str | None = None  # the node to begin at
    vars: dict[str, msgspec.Raw] = {}  # variables as they were there
    destinations: tuple[Destination, ...] = ()
    taken: dict[str, Outcome] = {}


class Adopted(msgspec.Struct, array_like=True, tag="adopted"):
    """A node took over a run that its owner did not release, or woke one that has something ready.

    `lost` are the attempts found open, `alone` the path that had the suspects' lane to itself when the former owner died.
    `restarted`: a process ended with this run open.
    """

    lost: list[str] = []
    alone: str = ""
    drive: bool = True
    restarted: bool = False


class StepSucceeded(msgspec.Struct, array_like=True, tag="step_succeeded", gc=False):
    path: str
    attempt: int
    output: msgspec.Raw
    ran_ms: int = 0
    worker: tuple[str, ...] = ()  # who did it, if not this process: id, address, and the receipt of an answer


class StepFailed(msgspec.Struct, array_like=True, tag="step_failed"):
    path: str
    attempt: int
    error: Error
    ran_ms: int = 0
    worker: tuple[str, ...] = ()


class AttemptTimedOut(msgspec.Struct, array_like=True, tag="attempt_timed_out"):
    """An attempt timed out; its result is late from here on."""

    path: str
    attempt: int


class AttemptReleased(msgspec.Struct, array_like=True, tag="attempt_released"):
    """Given back unfinished and not counted: the node stops (`stopping`), or has no such tool (`no_tool`)."""

    path: str
    attempt: int
    reason: str


class SuspectsTurn(msgspec.Struct, array_like=True, tag="suspects_turn"):
    """The lane is free for this suspect; the commit of this row says that it is in it."""

    path: str


class TimerFired(msgspec.Struct, array_like=True, tag="timer_fired", gc=False):
    path: str
    timer: str


class CancelRequested(msgspec.Struct, array_like=True, tag="cancel_requested"):
    reason: str = ""


class StepPaused(msgspec.Struct, array_like=True, tag="step_paused"):
    """A call was taken and will be answered later, under this task id."""

    path: str
    attempt: int
    task_id: str
    poll_url: str = ""
    estimated_secs: float | None = None
    ran_ms: int = 0
    worker: tuple[str, ...] = ()


class CallbackReceived(msgspec.Struct, array_like=True, tag="callback_received", gc=False):
    """The later answer of a call; `by` says how it came: resume or poll. It may come before the pause is known."""

    path: str
    attempt: int
    output: msgspec.Raw
    error: Error | None = None
    by: str = "resume"


class SignalReceived(msgspec.Struct, array_like=True, tag="signal_received", gc=False):
    """Somebody outside said something to the run, under a name."""

    name: str
    value: msgspec.Raw
    correlation: str | None = None


class ApprovalAnswered(msgspec.Struct, array_like=True, tag="approval_answered"):
    path: str
    approved: bool
    reason: str = ""
    by: str = ""
    form: msgspec.Raw = NULL


class KeyGranted(msgspec.Struct, array_like=True, tag="key_granted"):
    """The idempotency key that a step asked for is reserved for it: it may begin."""

    path: str


class KeyHeld(msgspec.Struct, array_like=True, tag="key_held"):
    """Another step holds the key: this one waits until it is released, or gives up."""

    path: str


class KeyAnswered(msgspec.Struct, array_like=True, tag="key_answered"):
    """A step with the same key has succeeded: its output is the output of this one too."""

    path: str
    output: msgspec.Raw


class Continued(msgspec.Struct, array_like=True, tag="continued"):
    """What a bounded decision left to do is taken up."""


Event = (
    RunStarted
    | Adopted
    | StepSucceeded
    | StepFailed
    | AttemptTimedOut
    | AttemptReleased
    | SuspectsTurn
    | TimerFired
    | CancelRequested
    | Continued
    | KeyGranted
    | KeyHeld
    | KeyAnswered
    | StepPaused
    | CallbackReceived
    | SignalReceived
    | ApprovalAnswered
)
