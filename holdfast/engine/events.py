"""Events: what happened to a run, in the past tense. An event has no time of its own; the journal row that contains it has.

Knows no decisions and no tables. Encoded as arrays, so rows contain no key names; new fields are added at the end, with a default.
"""

from __future__ import annotations

import msgspec

from holdfast.values import NULL, Error


class Destination(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A destination of the final callback; `secret_env` names the variable that holds the signing secret."""

    url: str
    secret_env: str | None = None


class Outcome(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True, gc=False):
    """How a step of another run ended. A rerun that takes it over ends the step in the same way when it reaches it."""

    output: msgspec.Raw = NULL
    error: Error | None = None
    # For a choice: the node that it leads to. For a nested graph: the node to start at; the output is its
    # shared state at that node.
    to: str | None = None
    skipped: bool = False  # its condition was false


class TriggeredBy(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True, gc=False):
    """The occurrence of a schedule that started a run. `scheduled_at` is its nominal time, without jitter."""

    schedule_id: str
    kind: str
    occurrence: str
    scheduled_at: int
    is_catchup: bool = False
    shifted_from: str = ""  # the local time that it was due at, if that did not exist on this day


class RunStarted(msgspec.Struct, array_like=True, tag="run_started", gc=False):
    """`drive` is false if the run was only accepted: another node, or this one later, will start it.

    A rerun contains the outcomes it takes over from the earlier run: `taken` by path, and for a plan with variables `first`
    and `vars`. `copied` occurs only in journals of releases up to 0.3: the outputs of the top-level nodes before `first`.
    """

    inputs: msgspec.Raw
    drive: bool = True
    env: dict[str, str | None] = {}  # the environment variables that the plan names, captured at the start
    copied: dict[str, msgspec.Raw] = {}
    first: str | None = None  # the node to start at
    vars: dict[str, msgspec.Raw] = {}  # the variables at that node
    destinations: tuple[Destination, ...] = ()
    taken: dict[str, Outcome] = {}
    trigger: TriggeredBy | None = None


class Adopted(msgspec.Struct, array_like=True, tag="adopted"):
    """A node took over a run that its owner did not release, or woke one that has something ready.

    `lost` are the attempts that were open. `alone` is the path that ran under crash isolation when the former owner died.
    `restarted`: a process ended while this run was open.
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
    # the worker that ran it, if not this process: id, address, receipt of its result
    worker: tuple[str, ...] = ()


class StepFailed(msgspec.Struct, array_like=True, tag="step_failed"):
    path: str
    attempt: int
    error: Error
    ran_ms: int = 0
    worker: tuple[str, ...] = ()


class AttemptTimedOut(msgspec.Struct, array_like=True, tag="attempt_timed_out"):
    """An attempt timed out. A result that arrives after this is late."""

    path: str
    attempt: int


class AttemptReleased(msgspec.Struct, array_like=True, tag="attempt_released"):
    """The attempt was given back and does not count: the node is stopping (`stopping`), does not have the tool (`no_tool`), or no
    worker serves the call (`no_worker`).

    `waits`: the step waits until it is supplied. Journals of releases up to 0.3 have steps that lack a tool as ready instead.
    `lost`: how many workers had the call, and ended before they answered.
    """

    path: str
    attempt: int
    reason: str
    waits: bool = False
    lost: int = 0


class Supplied(msgspec.Struct, array_like=True, tag="supplied"):
    """The tools or workers that these steps waited for are available."""

    paths: list[str]


class SuspectsTurn(msgspec.Struct, array_like=True, tag="suspects_turn"):
    """It is this suspect's turn to run under crash isolation. The commit of this row records that it is the isolated one."""

    path: str


class TimerFired(msgspec.Struct, array_like=True, tag="timer_fired", gc=False):
    path: str
    timer: str


class CancelRequested(msgspec.Struct, array_like=True, tag="cancel_requested"):
    reason: str = ""


class StepPaused(msgspec.Struct, array_like=True, tag="step_paused"):
    """A call was accepted; its result will follow later, under this task id."""

    path: str
    attempt: int
    task_id: str
    poll_url: str = ""
    estimated_secs: float | None = None
    ran_ms: int = 0
    worker: tuple[str, ...] = ()


class CallbackReceived(msgspec.Struct, array_like=True, tag="callback_received", gc=False):
    """The later result of a call. `by` is how it arrived: resume or poll. It may arrive before the pause is known."""

    path: str
    attempt: int
    output: msgspec.Raw
    error: Error | None = None
    by: str = "resume"


class SignalReceived(msgspec.Struct, array_like=True, tag="signal_received", gc=False):
    """A signal was sent to the run."""

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
    """The idempotency key that a step requested is reserved for it: the step may start."""

    path: str


class KeyHeld(msgspec.Struct, array_like=True, tag="key_held"):
    """Another step holds the key. This step waits until the key is released, or fails, as `on_conflict` says."""

    path: str


class KeyAnswered(msgspec.Struct, array_like=True, tag="key_answered"):
    """A step with the same key has succeeded, so this step completes with the same output."""

    path: str
    output: msgspec.Raw


class Continued(msgspec.Struct, array_like=True, tag="continued"):
    """The rest of a split decision is continued."""


Event = (
    RunStarted
    | Adopted
    | StepSucceeded
    | StepFailed
    | AttemptTimedOut
    | AttemptReleased
    | Supplied
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
