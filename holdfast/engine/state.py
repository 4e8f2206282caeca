"""The state of a run: open steps and scopes, kept outputs, waits, timers. Only fold changes it.

run ─┬─ steps    open ones by path: running, ready, retrying, waiting
     ├─ scopes   open fan-outs and choices by path: how far they are
     ├─ frames   one per block instance: the kept outputs of its finished steps
     ├─ stops    what is being stopped: the run, a scope, a step that timed out
     └─ timers   "retry a.b" → due time
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.events import AttemptReleased, Destination, Outcome, TriggeredBy
from holdfast.plan.graph import KEEP_NOTHING
from holdfast.values import (
    DEFAULT_TENANT,
    NULL,
    TERMINAL,
    Error,
    Millis,
    RunId,
    RunNo,
    Status,
    WaitKind,
    split,
)

# A crash also hits every attempt beside its cause; a step that was running in two crashes may be the cause.
SUSPECT_AFTER: Final = 2
# Why a step waits although nothing it was asked for is missing from the run: no process here can make its call.
LACKS: Final = frozenset({"no_tool", "no_worker"})


class Key(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """An idempotency key that a step requests, for its own run or for all runs."""

    text: str
    is_global: bool = False


class Wait(msgspec.Struct, omit_defaults=True):
    """What a step waits for: a callback, a signal, an approval, or a condition."""

    kind: WaitKind
    name: str = ""
    since: Millis = Millis(0)
    until: Millis | None = None
    detail: msgspec.Raw = NULL
    got: dict[str, msgspec.Raw] = {}  # the results that have arrived
    polls: int = 0
    is_last_poll: bool = msgspec.field(
        default=False, name="is_last_look"
    )  # it expired, and one last poll may still bring the result


class Parked(msgspec.Struct, array_like=True):
    """An early callback: the result arrived before the call reported that it is pending."""

    output: msgspec.Raw
    error: Error | None = None


class Signal(msgspec.Struct, array_like=True):
    """A signal that arrived before a step waited for it."""

    number: int
    name: str
    value: msgspec.Raw
    correlation: str | None = None


class Shelf:
    """The kept signals of a run by name, so that the cost of one signal does not grow with their number. Not part of the state: built
    from `Run.signals` on first use."""

    def __init__(self, signals: list[Signal]) -> None:
        self.by_name: dict[str, dict[int, Signal]] = {}
        self.bytes = 0
        for signal in signals:
            self.put(signal)

    def put(self, signal: Signal) -> None:
        self.by_name.setdefault(signal.name, {})[signal.number] = signal
        self.bytes += len(signal.value)

    def drop(self, signal: Signal) -> None:
        of_name = self.by_name[signal.name]
        del of_name[signal.number]
        self.bytes -= len(signal.value)
        if not of_name:
            del self.by_name[signal.name]

    def named(self, names: list[str]) -> list[Signal]:
        """Return the signals with one of these names, oldest first."""
        found = [signal for name in dict.fromkeys(names) for signal in self.by_name.get(name, {}).values()]
        return sorted(found, key=lambda signal: signal.number) if len(names) > 1 else found


class Step(msgspec.Struct, omit_defaults=True, gc=False):
    """An open step. `attempt` is the number of the latest attempt; `tries` counts the attempts that the retry policy counts."""

    state: str
    attempt: int = 0
    inputs: msgspec.Raw = NULL
    keep: int = KEEP_NOTHING
    tries: int = 0
    lost: int = 0
    lost_alone: int = 0
    # why it is ready and not running (stopping, lost, suspect, key), or waits (key, no_tool, no_worker)
    reason: str = ""
    target: str | None = None  # the target being stopped, if its attempt was asked to stop
    # An attempt did not end within its grace period: the next one may run beside it.
    overlapping: bool = False
    key: Key | None = None  # the idempotency key that it holds or has requested
    wait: Wait | None = None
    parked: Parked | None = None
    lost_calls: int = 0  # workers that ended while they had its call
    lacks_since: Millis = Millis(0)  # since when it lacks a tool or worker


class Scope(msgspec.Struct, omit_defaults=True):
    """An open fan-out or choice. Its progress is a few plain counts, so that a draft can copy them cheaply."""

    count: int
    next: int = 0
    open: int = 0
    failed: int = 0
    keep: int = KEEP_NOTHING
    items: msgspec.Raw = NULL
    value: msgspec.Raw = NULL
    errors: dict[int, Error] = {}
    is_nested: bool = False  # a nested plan: `items` is its input
    is_gathered: bool = False  # the outputs of its children are dropped when it closes
    # Outputs of the children that this decision closes; those of earlier ones are in `sizes_of`.
    output_bytes: int = 0

    def child_opened(self) -> None:
        self.next += 1
        self.open += 1

    def child_closed(self, failed: bool) -> None:
        self.open -= 1
        self.failed += failed

    @property
    def is_choice(self) -> bool:
        """A choice has its output when it opens, has one child, and ends with that child."""
        return len(self.value) > len(b"null")

    def ahead(self) -> Scope:
        """Return a copy of the counts for a draft."""
        return Scope(
            self.count,
            self.next,
            self.open,
            self.failed,
            self.keep,
            self.items,
            self.value,
            is_nested=self.is_nested,
            is_gathered=self.is_gathered,
        )


class Frame(msgspec.Struct, omit_defaults=True):
    """One execution of a block: kept outputs by segment, joined scopes to gather from, and nested frames.

    In the outermost block of a plan, `vars` are the plan's variables and `visits` counts the visits of nodes on cycles.
    """

    outputs: dict[str, msgspec.Raw] = {}
    joined: dict[str, Scope] = {}
    inner: dict[str, None] = {}
    vars: dict[str, msgspec.Raw] = {}
    visits: dict[str, int] = {}


class Stop(msgspec.Struct, omit_defaults=True):
    error: Error
    left: int
    unwinds: bool = False  # no attempt is awaited any more; what must run after any end is running


class Guarded(msgspec.Struct, omit_defaults=True):
    """A step or block whose end is handled. See decisions.SetGuard."""

    phase: str
    error: Error | None = None
    caught: bool = False


class Undoable(msgspec.Struct, array_like=True):
    """A completed call, and the inputs of the call that undoes it."""

    path: str
    inputs: msgspec.Raw


class End(msgspec.Struct, omit_defaults=True):
    """How the run will end, once its calls are undone and its final steps have run."""

    status: Status
    error: Error
    failed: list[Error] = []  # compensations that failed for good
    at: str = ""  # the step that is being undone


class Run(msgspec.Struct, omit_defaults=True, dict=True):
    """`__dict__` is a cache (decoded values, offsets of items, sizes). It can be recomputed and is not part of the state."""

    no: RunNo
    id: RunId
    version: str
    tenant: str = DEFAULT_TENANT
    seq: int = 0
    epoch: int = 0
    at: Millis = Millis(0)
    created_at: Millis = Millis(0)
    status: Status = "pending"
    inputs: msgspec.Raw = NULL
    env: dict[str, str | None] = {}
    begun: bool = False
    first: str | None = None  # the node to start at, if not the first one
    taken: dict[str, Outcome] = {}  # outcomes taken over from another run, until their steps are reached
    ending: str = ""  # `cancelled` or `run_timeout` while the run is being stopped
    steps: dict[str, Step] = {}
    scopes: dict[str, Scope] = {}
    frames: dict[str, Frame] = msgspec.field(default_factory=lambda: {"": Frame()})
    stops: dict[str, Stop] = {}
    timers: dict[str, Millis] = {}
    todo: list[tuple[str, str, str]] = []
    active: int = 0  # attempts open or ready
    kept_bytes: int = 0
    result_bytes: int = 0
    has_suspects: bool = False  # some step was lost twice
    keyed: int = 0  # open steps with an idempotency key
    waits: int = 0  # open steps that a result from outside can end
    signals: list[Signal] = []  # kept signals, oldest first
    signals_kept: int = 0  # the number of the next signal
    vars_bytes: int = 0
    visits: int = 0  # of nodes on cycles
    result_whole: bool = True  # every part of the result was small enough to keep
    output: msgspec.Raw = NULL
    error: Error | None = None
    destinations: tuple[Destination, ...] = ()
    trigger: TriggeredBy | None = None  # the occurrence of a schedule that started the run
    guards: dict[str, Guarded] = {}
    undo: list[Undoable] = []  # in the order of completion
    end: End | None = None
    caught: bool = False  # its failure was handled, and its output is that of the handler

    @property
    def over(self) -> bool:
        return self.status in TERMINAL

    @property
    def wake_at(self) -> Millis | None:
        """Return the time of the run's next timer; None if it has none."""
        return min(self.timers.values(), default=None)

    @property
    def only_called_back(self) -> bool:
        """Return whether everything open waits for callbacks, and nothing else."""
        is_still = not (self.over or self.active or self.todo) and self.waits > 0
        return is_still and all(
            step.wait is not None and step.wait.kind == "callback" for step in self.steps.values()
        )

    @property
    def shelf(self) -> Shelf:
        found: Shelf | None = self.__dict__.get("shelf")
        if found is None:
            found = self.__dict__["shelf"] = Shelf(self.signals)
        return found

    def waits_for_key(self) -> bool:
        """Return whether a step waits for a key that another step holds. The node that wakes the run requests it again."""
        return self.keyed > 0 and any(step.reason == "key" for step in self.steps.values())

    def suspects(self) -> list[str]:
        """Return the steps that wait for their turn under crash isolation. Searched only if there can be any, since it visits all steps."""
        if not self.has_suspects:
            return []
        held = {timer_of(key)[1] for key in self.timers if key.startswith("suspect ")}
        return [path for path, step in self.steps.items() if step.reason == "suspect" and path not in held]

    @property
    def is_idle(self) -> bool:
        """Return whether a step could start at once and only waits for a node to drive the run."""
        waits = any(
            step.reason == "key" or (step.state == "ready" and step.reason in ("lost", "stopping"))
            for step in self.steps.values()
        )
        return not self.over and (waits or not self.begun)

    def open_attempts(self) -> list[tuple[str, Step]]:
        return [(path, step) for path, step in self.steps.items() if step.state == "running"]

    def output_at(self, path: str) -> msgspec.Raw | None:
        frame, tail = split(path)
        found = self.frames.get(frame)
        return None if found is None else found.outputs.get(tail)


def sizes_of(run: Run) -> dict[str, int]:
    """Return the sizes of outputs that are not kept: per open frame those of its steps, per open fan-out those of its closed children.
    With them an oversized gathered value is refused before it is built. Counted by fold but not part of the state, so that old
    journals still fold to the same state; snapshots store them beside it."""
    sizes: dict[str, int] = run.__dict__.setdefault("sizes", {})
    return sizes


def timer_key(timer: str, path: str) -> str:
    return f"{timer} {path}"


def timer_of(key: str) -> tuple[str, str]:
    timer, _, path = key.partition(" ")
    return timer, path


def waits_for_last_poll(wait: Wait) -> bool:
    """Return whether a wait has just timed out with approvers left to escalate to."""
    return wait.kind == "callback" and not wait.is_last_poll and b'"poll_url"' in bytes(wait.detail)


def is_open(run: Run, path: str, attempt: int) -> bool:
    """Return whether this attempt is the one that the run waits for. The result of any other attempt is late."""
    step = run.steps.get(path)
    return step is not None and step.attempt == attempt and step.state == "running"


def lacking_since(step: Step, event: AttemptReleased, at: Millis) -> Millis:
    """Return since when a step lacks a worker that could make its call. The time starts again after a worker has had the call."""
    return step.lacks_since if step.lacks_since and not event.lost else at


def beneath(target: str, path: str) -> bool:
    """Return whether a path is inside a scope (`a` contains `a.b` and `a[1].b`) or inside the run ("")."""
    if not target:
        return True
    return path.startswith(target) and path[len(target) : len(target) + 1] in (".", "[")


def is_at(target: str, frame: str) -> bool:
    """Return whether a frame is the one that a scope opened, or is inside of it."""
    return target == frame or beneath(target, frame)


def guard_key(frame: str, name: str) -> str:
    """Return the key of the guard of a step, or of the block in a frame if the name is empty."""
    return (f"{frame}.{name}" if frame else name) if name else f"{frame}."


def guard_frame(key: str) -> str:
    """Return the frame in which the steps run that handle an end."""
    return key[:-1] if key.endswith(".") else split(key)[0]
