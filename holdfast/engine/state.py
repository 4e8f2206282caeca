"""A run as it stands: what is open in it, what is kept, what it waits for. Changed by fold alone.

run ─┬─ steps    open ones by path: running, ready, retrying, waiting
     ├─ scopes   open fan-outs and choices by path: how far they are
     ├─ frames   one per block instance: the kept outputs of its finished steps
     ├─ stops    what is being stopped: the run, a scope, a step that timed out
     └─ timers   "retry a.b" → due time
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.events import Destination, Outcome
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
    split,
)

# One crash takes every neighbour of its cause along; a step that was there twice may be the cause.
SUSPECT_AFTER: Final = 2


class Key(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """An idempotency key as a step asks for it: its own run's, or one for all runs."""

    text: str
    is_global: bool = False


class Wait(msgspec.Struct, omit_defaults=True):
    """What a step waits for from outside: a callback, a signal, an approval, or a condition to come true."""

    kind: str
    name: str = ""
    since: Millis = Millis(0)
    until: Millis | None = None
    detail: msgspec.Raw = NULL
    got: dict[str, msgspec.Raw] = {}  # what of it has come
    polls: int = 0
    is_last_look: bool = False  # it expired, and one last poll may still bring the result


class Parked(msgspec.Struct, array_like=True):
    """An answer that came before its call said that there would be one."""

    output: msgspec.Raw
    error: Error | None = None


class Signal(msgspec.Struct, array_like=True):
    """Said to the run before anything waited for it."""

    number: int
    name: str
    value: msgspec.Raw
    correlation: str | None = None


class Shelf:
    """The signals that a run keeps, by name, so that the cost of one does not grow with the others. No state: it is
    made from `Run.signals` when it is first asked for."""

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
        """Those with one of these names, the oldest first."""
        found = [signal for name in dict.fromkeys(names) for signal in self.by_name.get(name, {}).values()]
        return sorted(found, key=lambda signal: signal.number) if len(names) > 1 else found


class Step(msgspec.Struct, omit_defaults=True, gc=False):
    """An open step. `attempt` is the latest number given out; `tries` are the attempts that count against retry."""

    state: str
    attempt: int = 0
    inputs: msgspec.Raw = NULL
    keep: int = KEEP_NOTHING
    tries: int = 0
    lost: int = 0
    lost_alone: int = 0
    reason: str = ""  # why it is ready and not running: stopping, no_tool, lost, suspect, key
    target: str | None = None  # what is being stopped, if its attempt was asked to
    overlapping: bool = False  # an attempt outlived its grace: the next one may run beside it
    key: Key | None = None  # the idempotency key that it holds, or asks for
    wait: Wait | None = None
    parked: Parked | None = None


class Scope(msgspec.Struct, omit_defaults=True):
    """An open fan-out or choice: plain counts, so that looking one step ahead copies five numbers."""

    count: int
    next: int = 0
    open: int = 0
    failed: int = 0
    keep: int = KEEP_NOTHING
    items: msgspec.Raw = NULL
    value: msgspec.Raw = NULL
    errors: dict[int, Error] = {}
    is_nested: bool = False  # a plan of its own: `items` is what it was given
    is_gathered: bool = False  # what its children gave is forgotten with it
    output_bytes: int = 0  # what the children gave that a decision closes; the others stand in `sizes_of`

    def child_opened(self) -> None:
        self.next += 1
        self.open += 1

    def child_closed(self, failed: bool) -> None:
        self.open -= 1
        self.failed += failed

    @property
    def is_choice(self) -> bool:
        """A choice knows its output when it opens; it has one child, and ends with it."""
        return len(self.value) > len(b"null")

    def ahead(self) -> Scope:
        """A copy of the counts, for a decision to count on."""
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
    """One run of one block: kept outputs by segment, joined scopes to gather from, and the frames within.

    Where it is the block of a whole plan, `vars` are that plan's; `visits` count the nodes that may be met again.
    """

    outputs: dict[str, msgspec.Raw] = {}
    joined: dict[str, Scope] = {}
    inner: dict[str, None] = {}
    vars: dict[str, msgspec.Raw] = {}
    visits: dict[str, int] = {}


class Stop(msgspec.Struct):
    error: Error
    left: int = 0


class Run(msgspec.Struct, omit_defaults=True, dict=True):
    """`__dict__` holds what is remembered and can be found again (decoded values, where items begin, sizes): no state."""

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
    first: str | None = None  # where to begin, if not at the beginning
    taken: dict[str, Outcome] = {}  # steps of another run that are not done again, until they are met
    ending: str = ""  # cancelled or run_timeout, once the run is being stopped
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
    waits: int = 0  # open steps that an answer from outside can end
    signals: list[Signal] = []  # not taken yet, the oldest first
    signals_kept: int = 0  # ever: the number of the next one
    vars_bytes: int = 0
    visits: int = 0  # of nodes that may be met again
    result_whole: bool = True  # no part of the result was too large to keep
    output: msgspec.Raw = NULL
    error: Error | None = None
    destinations: tuple[Destination, ...] = ()

    @property
    def over(self) -> bool:
        return self.status in TERMINAL

    @property
    def wake_at(self) -> Millis | None:
        """When the run next moves by itself; None while it waits for an answer from outside or is running."""
        return min(self.timers.values(), default=None)

    @property
    def only_called_back(self) -> bool:
        """Does all that is open wait for the later answers of calls, and nothing else?"""
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
        """Some step was told that another holds its key; whoever wakes the run asks again."""
        return self.keyed > 0 and any(step.reason == "key" for step in self.steps.values())

    def suspects(self) -> list[str]:
        """Steps that wait for their turn in the lane. Looked for only where there can be any: it costs a look at all."""
        if not self.has_suspects:
            return []
        held = {timer_of(key)[1] for key in self.timers if key.startswith("suspect ")}
        return [path for path, step in self.steps.items() if step.reason == "suspect" and path not in held]

    @property
    def is_idle(self) -> bool:
        """Whether a step could start at once, and only waits for a node to drive the run."""
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
    """How many bytes the steps of each open frame gave that are not kept in it, and the closed children of each open
    fan-out: what is gathered of them is refused before it is built. Counted by fold and no part of the state, so that
    journals fold to what they always did; snapshots have it beside the state."""
    sizes: dict[str, int] = run.__dict__.setdefault("sizes", {})
    return sizes


def timer_key(timer: str, path: str) -> str:
    return f"{timer} {path}"


def timer_of(key: str) -> tuple[str, str]:
    timer, _, path = key.partition(" ")
    return timer, path


def waits_for_last_look(wait: Wait) -> bool:
    """Whether it has just timed out with approvers left to escalate to."""
    return wait.kind == "callback" and not wait.is_last_look and b'"poll_url"' in bytes(wait.detail)


def is_open(run: Run, path: str, attempt: int) -> bool:
    """Is this attempt the one that the run still waits for? Anything else is late."""
    step = run.steps.get(path)
    return step is not None and step.attempt == attempt and step.state == "running"


def beneath(target: str, path: str) -> bool:
    """Does a path stand within a scope (`a` has `a.b` and `a[1].b`), or within the run?"""
    if not target:
        return True
    return path.startswith(target) and path[len(target) : len(target) + 1] in (".", "[")
