"""The plan: what a definition means, in the one form that the engine knows.

A plan is a tree of blocks. A block is a set of nodes joined by routes; a node that opens a scope (fan-out, choice of
blocks) holds blocks of its own. Routes are names, not positions, so a block may hold cycles and several entries.
Nothing here remembers which notation it came from: every difference between notations is a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.spec.policy import RetryPolicy
from holdfast.values import Error, Millis, base_of, scope_of, split

END: Final = ""  # a route to the end of its block
FAIL: Final = None  # no route: the failure is the block's own
TIMEOUTS: Final = frozenset(
    {"timeout", "resume_timeout"}
)  # kinds of failures that take the route of a time-out

PENDING_TTL_MS: Final = 86_400_000

# How much of a finished step's output the run keeps in memory.
KEEP_NOTHING: Final = 0
KEEP_NAMED: Final = 1  # a later expression can name it
KEEP_RESULT: Final = (
    2  # only the run's own output is made of it: kept while small, else read back from the journal
)


class View(Protocol):
    """What an expression may see of a run: committed values, by the frame it stands in."""

    frames: tuple[str, ...]  # the frames around the step, outermost first; frames[0] is the top level
    size: int  # of the larger parts of the value that is being rendered, in bytes, with their references followed
    excess: int  # how much larger that value is than its text
    depth_max: int  # of such a value; more once something was gathered for it

    def env(self) -> Any: ...
    def inputs(self) -> Any: ...
    def output(self, path: str) -> Any: ...
    def item(self, frame: str) -> Any: ...  # of a nested plan's frame: its inputs
    def var(self, frame: str, name: str) -> Any: ...  # null where nothing was written
    def vars_text(self, frame: str) -> bytes: ...  # all of them, as a JSON object
    def met(self, frame: str, name: str) -> int: ...  # how often a node on a cycle was visited
    def raw(self, path: str) -> bytes | None: ...


Evaluate = Callable[[View], Any]
Answer = Callable[[Any], Any]
Render = Callable[[View], bytes]  # JSON text; parts over 1 KiB that already exist are references


class ItemsOf(Protocol):
    """The items of a fan-out: how many, and their JSON array (or a reference to one that exists)."""

    def __call__(self, view: View) -> tuple[int, bytes]: ...


class Routes(msgspec.Struct, frozen=True):
    """Where a node leads: the name of the next node in its block, END, or FAIL."""

    ok: str
    error: str | None = FAIL
    timeout: str | None = FAIL

    def after_failure(self, kind: str) -> str | None:
        if kind in TIMEOUTS and self.timeout is not FAIL:
            return self.timeout
        return self.error


class Post(msgspec.Struct, frozen=True):
    """What follows from what a node gave: variables of its plan are written, and an action says where to go on.

    An action that leads nowhere goes where `Routes.ok` says. A node without this rule writes nothing and has no actions.
    """

    writes: Callable[[View, Any, Sequence[ChildError]], Mapping[str, bytes]]  # name → JSON text
    action: Callable[[View, Any], str]
    routes: Mapping[str, str]  # action → the name of the next node, or END


class ChildError(msgspec.Struct, frozen=True):
    """A child of a fan-out that failed."""

    index: int
    error: str


class KeyRule(msgspec.Struct, frozen=True):
    """When two executions count as the same: their rendered keys are equal, within one run or across all runs."""

    text: Callable[[View], str]
    is_global: bool = False
    ttl_ms: int | None = None  # how long a stored output may be reused; None: as long as it is kept
    waits: bool = True  # wait for the holder of the key; otherwise the step fails


class PendingRule(msgspec.Struct, frozen=True):
    """How long an answer that comes later is waited for, and how often it is asked for meanwhile."""

    ttl_ms: int | None = None  # None: as long as the plan says
    poll_ms: int | None = None  # None: it is not asked for
    poll_ms_max: int = 0
    has_callback: bool = False  # the call receives a callback URL


class ServiceRule(msgspec.Struct, frozen=True):
    """How a worker is found for a call: its `target` is a service, its inputs are `{"input": …, "params": {…}}`."""

    max_attempts: int = 0  # workers that are tried; 0: all there are
    attempt_delay_ms: int = 0  # before the next one, after an answer that is a failure
    weighted_by_load: bool = False  # the least loaded first, else in the order of their registration
    call_timeout_ms: int | None = None  # of one call of one worker
    is_given: bool = False  # the inputs name the service too


class Call(msgspec.Struct, frozen=True):
    """Executes something outside the engine: one attempt or several."""

    name: str
    routes: Routes
    target: str
    inputs: Render
    keep: int = KEEP_NOTHING
    retry: RetryPolicy | None = None
    timeout_ms: int | None = None
    fails_on_crash: bool = False
    key: KeyRule | None = None
    answer: Answer | None = None  # what of an answer is the output; raises where the answer is a failure
    pending: PendingRule | None = None  # None: what is usual
    service: ServiceRule | None = None
    spreads: bool = False  # its inputs are those of a service, and the tool is given them as its arguments
    post: Post | None = None
    is_plain: bool = True  # no timeout, key or polling: an attempt is just a call


class Timer(msgspec.Struct, frozen=True):
    """Waits for an instant. `due` gives it from what it sees and the time of entering."""

    name: str
    routes: Routes
    due: Callable[[View, Millis], Millis]
    show: Callable[[View, Millis], bytes]  # when it fired → the text of the output
    keep: int = KEEP_NOTHING
    post: Post | None = None


class Value(msgspec.Struct, frozen=True):
    """Gives a value at once: what it is good for is the action that follows from it."""

    name: str
    routes: Routes
    value: Render
    keep: int = KEEP_NOTHING
    post: Post | None = None


class Condition(msgspec.Struct, frozen=True):
    """Waits until its condition is true: checked on entry, and after each signal."""

    name: str
    routes: Routes
    ready: Callable[[View], tuple[bool, Any]]  # and the value then, which is the output
    answers_to: str | None  # the variable that an approval writes, where it is one
    timeout_ms: Callable[[View], int | None]
    keep: int = KEEP_NOTHING
    post: Post | None = None
    signal_key: str | None = None  # the variable that a signal writes, if the condition reads only that one


class Signal(msgspec.Struct, frozen=True):
    """Waits for signals by name, each of which is taken once."""

    name: str
    routes: Routes
    names: Callable[[View], list[str]]
    mode: str  # one (its value is the output), any, all ({name: value})
    correlation: Callable[[View], str] | None
    timeout_ms: int | None = None
    keep: int = KEEP_NOTHING
    post: Post | None = None


class Approval(msgspec.Struct, frozen=True):
    """Waits until enough people have agreed, or too many have not."""

    name: str
    routes: Routes
    prompt: Callable[[View], str]
    need: int = 1
    of: tuple[str, ...] = ()  # who may answer; empty: any caller with the scope `approve`
    form: Mapping[str, Any] | None = None  # JSON Schema of what is to be filled in
    timeout_ms: int | None = None
    escalate_ms: int | None = None
    escalate_to: tuple[str, ...] = ()
    keep: int = KEEP_NOTHING
    post: Post | None = None


class Choice(msgspec.Struct, frozen=True):
    """Evaluates a condition and runs one part of its block: the one that `entries` names for the answer."""

    name: str
    routes: Routes
    condition: Evaluate
    block: Block
    entries: Mapping[bool, tuple[str, str]]  # truth → (label, first node)
    show: Callable[[Any, str], Any]  # the condition's value and the label → the output
    keep: int = KEEP_NOTHING
    post: Post | None = None

    def block_of(self, index: int | None) -> Block:
        return self.block


class FanOut(msgspec.Struct, frozen=True):
    """Runs a block once per item, or several blocks side by side, and joins them."""

    name: str
    routes: Routes
    blocks: tuple[Block, ...]  # one, run for each item; or one for each child
    items: ItemsOf | None  # None: as many children as there are blocks
    concurrency: int
    goes_on: bool  # a failed child is a result and its siblings continue; otherwise they are stopped and the node fails
    show: Callable[
        [list[dict[str, Any]]], Any
    ]  # children (status, error, texts of steps by name) → the output
    count: Callable[[int, int], Any] | None  # instead: how many children, and how many failed → the output
    noun: str  # what a child is called in messages
    keep: int = KEEP_NOTHING
    post: Post | None = None
    gather: Callable[[list[dict[str, Any]]], Gathered] | None = (
        None  # instead: the output and what failed, when joined
    )
    drains: bool = False  # after a failed child no other begins; those at work are waited for
    is_named: bool = True  # its output as a whole is asked for, and so must not be too large

    def block_of(self, index: int | None) -> Block:
        return self.blocks[0] if self.items is not None else self.blocks[index or 0]


class Gathered(msgspec.Struct, frozen=True):
    """What the children of a fan-out gave together, as texts among data. With `failed` the node has failed, and has an
    output all the same."""

    value: Any
    errors: Sequence[ChildError] = ()
    failed: Error | None = None


class Nested(msgspec.Struct, frozen=True):
    """Runs a whole plan as one node, with inputs of its own."""

    name: str
    routes: Routes
    workflow: str  # what it is called in messages
    block: Block
    inputs: Render
    fill: Callable[[Any], dict[str, Any]]  # checks the inputs, fills in defaults; raises ValueError
    output: Render | None  # None: the outputs of its top-level nodes
    timeout_ms: int | None = None
    keep: int = KEEP_NOTHING
    post: Post | None = None
    what: str = "workflow"  # what it is, in messages
    late: str = "run_timeout"  # the error kind when the run times out

    def block_of(self, index: int | None) -> Block:
        return self.block


Node = Call | Timer | Value | Condition | Signal | Approval | Choice | FanOut | Nested
SCOPES: Final = (
    Choice,
    FanOut,
    Nested,
)  # `Choice | FanOut | Nested` would be made anew wherever it is asked for


class Block(msgspec.Struct, frozen=True):
    nodes: Mapping[str, Node]
    first: str  # END when there is nothing to do
    again: frozenset[str] = frozenset()  # nodes on cycles: each visit of one is a step of its own
    # Calls that are followed by another call, or by the end (None), whatever they return, and timers that are followed by
    # a call: name → the successor. None of them has an idempotency key. engine/step has a short way for these.
    plain: Mapping[str, tuple[str, Call | None]] = {}

    def __post_init__(self) -> None:
        found = {name: way for name, node in self.nodes.items() if (way := self._plain_way(node)) is not None}
        msgspec.structs.force_setattr(self, "plain", found)

    def _plain_way(self, node: Node) -> tuple[str, Call | None] | None:
        name = node.routes.ok
        after = self.nodes.get(name)
        if node.post is not None or not isinstance(node, Call | Timer):
            return None
        if isinstance(node, Call) and node.key is not None:
            return None
        if name == END and isinstance(node, Call):
            return END, None
        return (name, after) if isinstance(after, Call) and after.key is None else None

    def node(self, tail: str) -> Node:
        return self.nodes.get(tail) or self.nodes[base_of(tail)]

    def leads(self, name: str, to: str) -> bool:
        """Whether a node can be reached from another one, or is the same node."""
        seen, ahead = {name}, [name]
        while ahead:
            if (at := ahead.pop()) == to:
                return True
            new = _followers(self.nodes[at]) - seen
            seen |= new
            ahead += new
        return False

    @property
    def asks_workers(self) -> bool:
        """Is anything in it for workers to do?"""
        return any(map(_asks_workers, self.nodes.values()))


def _followers(node: Node) -> set[str]:
    """The nodes that may come next."""
    routes = node.routes
    ways = {routes.ok, routes.error, routes.timeout, *(node.post.routes.values() if node.post else ())}
    return {name for name in ways if name is not FAIL and name != END}


def _asks_workers(node: Node) -> bool:
    match node:
        case Call():
            return node.service is not None
        case FanOut():
            return any(block.asks_workers for block in node.blocks)
        case Choice() | Nested():
            return node.block.asks_workers
    return False


class Plan(msgspec.Struct, frozen=True):
    name: str
    version: str
    root: Block
    output: Render | None  # None: the outputs of the top-level nodes
    keeps_result: bool  # the run's output can be put together from memory
    timeout_ms: int | None = None
    interrupted_by_restart: bool = False
    has_vars: bool = False  # its nodes write variables, and so may a signal
    asks_workers: bool = False  # some of its calls are of services
    pending_ttl_ms: int = PENDING_TTL_MS  # how long a later answer is waited for, where its call does not say
    steps_total: int = 0
    env: tuple[str, ...] = ()  # variables of the environment that expressions name
    advice_when_too_large: str = ""  # what its author can do about outputs that are too many to keep
    secrets: tuple[str, ...] = ()  # that expressions name

    def block(self, frame: str) -> Block:
        """The block that runs in a frame: `""` is the top level, `loop[3]` the body of `loop`."""
        if not frame:
            return self.root
        scope, index = scope_of(frame)
        prefix, tail = split(scope)
        node = (self.block(prefix) if prefix else self.root).node(tail)
        assert isinstance(node, SCOPES)
        return node.block_of(index)

    def node(self, path: str) -> Node:
        frame, tail = split(path)
        return self.block(frame).node(tail)
