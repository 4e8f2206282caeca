"""The plan: the compiled form of a definition, the only form that the engine knows.

A plan is a tree of blocks. A block is a set of nodes joined by routes; a node that opens a scope (fan-out, choice) contains
blocks of its own. Routes are names, not positions, so a block may contain cycles and several entries. A plan does not record
its notation: every difference between notations is a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, assert_never

import msgspec

from holdfast.plan.view import Answer, Evaluate, ItemsOf, Render, View
from holdfast.spec.policy import RetryPolicy
from holdfast.values import Error, Millis, base_of, scope_of, split

END: Final = ""  # a route to the end of its block
FAIL: Final = None  # no route: the failure fails the block
TIMEOUTS: Final = frozenset({"timeout", "resume_timeout"})  # kinds of failures that take the timeout route

COMPENSATE: Final = "compensate"  # the last segment of the path of a compensation

PENDING_TTL_MS: Final = 86_400_000
NO_WORKER_WAIT_MS: Final = 60_000  # for a call that does not set its own

# How much of a finished step's output the run keeps in memory.
KEEP_NOTHING: Final = 0
KEEP_NAMED: Final = 1  # a later expression can refer to it
# Only part of the run's own output: kept while small, otherwise read from the journal.
KEEP_RESULT: Final = 2


class Routes(msgspec.Struct, frozen=True):
    """The successors of a node: names of nodes in its block, END, or FAIL."""

    ok: str
    error: str | None = FAIL
    timeout: str | None = FAIL

    def after_failure(self, kind: str) -> str | None:
        if kind in TIMEOUTS and self.timeout is not FAIL:
            return self.timeout
        return self.error


class Post(msgspec.Struct, frozen=True):
    """What follows from a node's output: variables to write, and the action that selects the next node.

    An action without an edge continues at `Routes.ok`. A node without this rule writes nothing and has no actions.
    """

    writes: Callable[[View, Any, Sequence[ChildError]], Mapping[str, bytes]]  # name → JSON text
    action: Callable[[View, Any], str]
    routes: Mapping[str, str]  # action → the name of the next node, or END


class Guard(msgspec.Struct, frozen=True):
    """What follows the end of a node, or of a block. The nodes that handle it are in the same block (`Block.parts`)."""

    handler: str | None = None  # where a caught failure leads; None: nothing is caught
    kinds: frozenset[str] | None = None  # the kinds that are caught; None: all
    last: str | None = None  # the node of the handler whose output is the output then
    final: str | None = None  # the first node that runs however it ended
    variable: str = ""  # which of the frame's variables holds the error

    def catches(self, kind: str) -> bool:
        return self.handler is not None and (self.kinds is None or kind in self.kinds)


class Around(msgspec.Struct, frozen=True):
    """What is decided around a node. Most nodes have none of this."""

    when: Evaluate | None = None  # the node is skipped unless this is true
    after: str = ""  # the node that follows it when it is skipped
    guard: Guard | None = None
    undo: Undo | None = None


class Undo(msgspec.Struct, frozen=True):
    """The call that undoes a completed call if the run does not complete. It is rendered when the call completes, because
    what it refers to may be gone later."""

    block: Block  # of one node
    inputs: Render
    variable: str  # which of the frame's variables holds the output meanwhile


def rendered_before(view: View) -> bytes:
    """The inputs of the call in an Undo: they were rendered when the call that it undoes completed."""
    raise AssertionError("a compensation is started with inputs that are stored")


class Joint(msgspec.Struct, frozen=True):
    """A place between the nodes of a guard: a failure has been `caught`, the `final` nodes begin, or they have `ended`.

    `of` is the guarded node; empty: the block itself.
    """

    of: str
    does: str
    routes: Routes
    name: str = ""
    around: Around | None = None


class ChildError(msgspec.Struct, frozen=True):
    """A child of a fan-out that failed."""

    index: int
    error: str


class KeyRule(msgspec.Struct, frozen=True):
    """An idempotency key: two executions are the same if their rendered keys are equal, within one run or across all runs."""

    text: Callable[[View], str]
    is_global: bool = False
    ttl_ms: int | None = None  # how long a stored output may be reused; None: as long as it is kept
    waits: bool = True  # wait for the holder of the key; otherwise the step fails


class PendingRule(msgspec.Struct, frozen=True):
    """How long to wait for a pending result, and how often to poll for it."""

    ttl_ms: int | None = None  # None: as long as the plan says
    poll_ms: int | None = None  # None: no polling
    poll_ms_max: int = 0
    has_callback: bool = False  # the call receives a callback URL


class ServiceRule(msgspec.Struct, frozen=True):
    """How to find a worker for a call. The call's `target` is a service; its inputs are `{"input": …, "params": {…}}`."""

    max_attempts: int = 0  # workers to try; 0: all of them
    attempt_delay_ms: int = 0  # before the next worker, after a failed result
    weighted_by_load: bool = False  # the least loaded first, else in the order of their registration
    call_timeout_ms: int | None = None  # for one call to a worker
    is_given: bool = False  # the inputs name the service too
    # While no worker serves it: fail at once, wait until the call's own timeout, or wait as long as the engine is set to.
    no_worker: Literal["fail", "wait", "setting"] = "setting"


class Call(msgspec.Struct, frozen=True):
    """Calls a tool or service, in one or more attempts."""

    name: str
    routes: Routes
    target: str
    inputs: Render
    # The same text, or None, of the decoded inputs of the run, if `inputs` refers to nothing else.
    of_inputs: Callable[[dict[str, Any]], bytes | None] | None = None
    keep: int = KEEP_NOTHING
    retry: RetryPolicy | None = None
    timeout_ms: int | None = None
    fails_on_crash: bool = False
    key: KeyRule | None = None
    answer: Answer | None = None  # result → output; raises if the result is a failure
    pending: PendingRule | None = None  # None: what is usual
    service: ServiceRule | None = None
    spreads: bool = False  # its inputs have the form of a service call; the tool receives them as arguments
    post: Post | None = None
    around: Around | None = None
    is_plain: bool = True  # no timeout, key or polling: an attempt is just a call
    is_bare: bool = False  # nothing is added to its inputs or taken out of its answer either

    def __post_init__(self) -> None:
        is_bare = self.is_plain and self.answer is None and self.pending is None and not self.spreads
        msgspec.structs.force_setattr(self, "is_bare", is_bare and self.service is None)

    def block_of(self, index: int | None) -> Block:
        """The block of its compensation."""
        assert self.around is not None and self.around.undo is not None
        return self.around.undo.block


class Timer(msgspec.Struct, frozen=True):
    """Waits until an instant. `due` computes it from the visible values and the time of entry."""

    name: str
    routes: Routes
    due: Callable[[View, Millis], Millis]
    show: Callable[[View, Millis], bytes]  # when it fired → the text of the output
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None


class Value(msgspec.Struct, frozen=True):
    """Returns a value at once; used for the action that follows from it."""

    name: str
    routes: Routes
    value: Render
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None


class Condition(msgspec.Struct, frozen=True):
    """Waits until its condition is true, checked on entry and after each signal."""

    name: str
    routes: Routes
    ready: Callable[[View], tuple[bool, Any]]  # and the value, which is the output
    answers_to: str | None  # the variable that an approval writes, if this is an approval
    timeout_ms: Callable[[View], int | None]
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None
    signal_key: str | None = None  # the variable that a signal writes, if the condition reads only that one


class Signal(msgspec.Struct, frozen=True):
    """Waits for signals by name. Each signal is consumed once."""

    name: str
    routes: Routes
    names: Callable[[View], list[str]]
    mode: str  # one (its value is the output), any, all ({name: value})
    correlation: Callable[[View], str] | None
    timeout_ms: int | None = None
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None


class Approval(msgspec.Struct, frozen=True):
    """Waits until enough approvers have approved, or too many have rejected."""

    name: str
    routes: Routes
    prompt: Callable[[View], str]
    need: int = 1
    of: tuple[str, ...] = ()  # who may answer; empty: any caller with the scope `approve`
    form: Mapping[str, Any] | None = None  # JSON Schema of the form
    timeout_ms: int | None = None
    escalate_ms: int | None = None
    escalate_to: tuple[str, ...] = ()
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None


class Choice(msgspec.Struct, frozen=True):
    """Evaluates a condition and runs its block from the node that `entries` names for the result."""

    name: str
    routes: Routes
    condition: Evaluate
    block: Block
    entries: Mapping[bool, tuple[str, str]]  # truth → (label, first node)
    show: Callable[[Any, str], Any]  # the condition's value and the label → the output
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None

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
    # children (status, error, texts of steps by name) → the output
    show: Callable[[list[dict[str, Any]]], Any]
    count: Callable[[int, int], Any] | None  # instead: how many children, and how many failed → the output
    noun: str  # the word for a child in messages
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None
    # Instead: combines the children's results when they join.
    gather: Callable[[list[dict[str, Any]]], Gathered] | None = None
    drains: bool = False  # after a failed child no other starts; running ones are awaited
    is_named: bool = True  # its whole output is needed, and so must not be too large

    def block_of(self, index: int | None) -> Block:
        return self.blocks[0] if self.items is not None else self.blocks[index or 0]


class Gathered(msgspec.Struct, frozen=True):
    """The combined output of a fan-out's children, as data that contains texts. With `failed` the node has failed, but still has an
    output."""

    value: Any
    errors: Sequence[ChildError] = ()
    failed: Error | None = None


class Nested(msgspec.Struct, frozen=True):
    """Runs a plan as one node, with its own inputs."""

    name: str
    routes: Routes
    workflow: str  # its word in messages
    block: Block
    inputs: Render
    fill: Callable[[Any], dict[str, Any]] | None  # checks the inputs, fills in defaults; raises ValueError
    output: Render | None  # None: the outputs of its top-level nodes
    timeout_ms: int | None = None
    keep: int = KEEP_NOTHING
    post: Post | None = None
    around: Around | None = None
    what: str = "workflow"  # its word in messages
    late: str = "run_timeout"  # the error kind when the run times out

    def block_of(self, index: int | None) -> Block:
        return self.block


Node = Call | Timer | Value | Condition | Signal | Approval | Choice | FanOut | Nested
SCOPES: Final = (
    Choice,
    FanOut,
    Nested,
)  # evaluated once: `Choice | FanOut | Nested` would build a new object at every check


class Way(msgspec.Struct):
    """What follows a node whatever it returns: a call by its name, or the end."""

    name: str
    call: Call | None = None
    keep: int = KEEP_NOTHING  # of the call
    texts: tuple[bytes, bytes, bytes] | None = None  # the constant parts of its rows (engine/codec)
    then: Way | None = None  # what follows that call, if it is known


class Block(msgspec.Struct, frozen=True):
    nodes: Mapping[str, Node]
    first: str  # END when there is nothing to do
    again: frozenset[str] = frozenset()  # nodes on cycles: each visit of one is a step of its own
    # Calls that are followed by a call or by the end (None) whatever they return, and timers that are followed by a call:
    # name → what follows. None has an idempotency key. engine/step has fast paths for these.
    plain: Mapping[str, Way] = {}
    entry: Way | None = None  # how the first node is reached, if it is a call
    guard: Guard | None = None
    # Nodes that handle the end of a node or of the block: name → the guarded node (empty: the block) and the role, on_error or
    # finally. Their outputs are not part of the output of the block.
    parts: Mapping[str, tuple[str, str]] = {}
    joints: Mapping[str, Joint] = {}

    def __post_init__(self) -> None:
        found = {name: way for name, node in self.nodes.items() if (way := self._plain_way(node)) is not None}
        for way in found.values():
            way.then = found.get(way.name)
        msgspec.structs.force_setattr(self, "plain", found)
        first = self.nodes.get(self.first)
        if isinstance(first, Call) and first.key is None:
            entry = Way(self.first, first, first.keep, then=found.get(self.first))
            msgspec.structs.force_setattr(self, "entry", entry)

    def _plain_way(self, node: Node) -> Way | None:
        name = node.routes.ok
        after = self.nodes.get(name)
        if node.post is not None or not isinstance(node, Call | Timer):
            return None
        if node.around is not None or (isinstance(node, Call) and node.key is not None):
            return None
        if name == END and isinstance(node, Call):
            return Way(END)
        is_plain = isinstance(after, Call) and after.key is None and after.around is None
        return Way(name, after, after.keep) if is_plain else None  # type: ignore[arg-type, union-attr]  # a call, as was just checked

    def node(self, tail: str) -> Node:
        return self.nodes.get(tail) or self.nodes[base_of(tail)]

    def guard_of(self, name: str) -> Guard:
        """The guard of a node, or of the block itself."""
        if not name:
            assert self.guard is not None
            return self.guard
        around = self.node(name).around
        assert around is not None and around.guard is not None
        return around.guard

    @property
    def main(self) -> dict[str, Node]:
        """The nodes without those that handle an end."""
        return {name: node for name, node in self.nodes.items() if name not in self.parts}

    def leads(self, name: str, to: str) -> bool:
        """Return whether a node can be reached from another one, or is the same node."""
        seen, ahead = {name}, [name]
        while ahead:
            if (at := ahead.pop()) == to:
                return True
            new = _followers(self.nodes.get(at) or self.joints[at]) - seen
            seen |= new
            ahead += new
        return False

    @property
    def asks_workers(self) -> bool:
        """Whether any of its calls is to a service."""
        return any(map(_asks_workers, self.nodes.values()))


def _followers(node: Node | Joint) -> set[str]:
    """Return the possible next nodes."""
    routes = node.routes
    post = None if isinstance(node, Joint) else node.post
    guard = None if node.around is None else node.around.guard
    ways = {routes.ok, routes.error, routes.timeout, *(post.routes.values() if post else ())}
    if guard is not None:
        ways |= {guard.handler, guard.final}
    return {name for name in ways if name is not FAIL and name != END}


def _asks_workers(node: Node) -> bool:
    match node:
        case Call():
            return node.service is not None
        case FanOut():
            return any(block.asks_workers for block in node.blocks)
        case Choice() | Nested():
            return node.block.asks_workers
        case Timer() | Value() | Condition() | Signal() | Approval():
            return False
        case _:
            assert_never(node)


RECENT_BLOCKS_MAX: Final = 1_024  # frames whose block a plan remembers


class Plan(msgspec.Struct, frozen=True):
    name: str
    version: str
    root: Block
    output: Render | None  # None: the outputs of the top-level nodes
    keeps_result: bool  # the run's output can be assembled from memory
    timeout_ms: int | None = None
    interrupted_by_restart: bool = False
    has_vars: bool = False  # its nodes write variables, and so may a signal
    asks_workers: bool = False  # some of its calls are of services
    pending_ttl_ms: int = PENDING_TTL_MS  # how long to wait for a pending result, unless the call says
    no_worker_wait_ms: int = NO_WORKER_WAIT_MS  # how long to wait for a worker, unless the call says
    steps_total: int = 0
    env: tuple[str, ...] = ()  # environment variables that expressions refer to
    advice_when_too_large: str = ""  # the hint for an author whose outputs are too large to keep
    secrets: tuple[str, ...] = ()  # secrets that expressions refer to
    recent_blocks: dict[str, Block] = {}  # by frame; see `block`

    def block(self, frame: str) -> Block:
        """Return the block that runs in a frame: `""` is the top level, `loop[3]` the body of `loop`."""
        if not frame:
            return self.root
        # One event asks several times about the same frame.
        if (block := self.recent_blocks.get(frame)) is None:
            if len(self.recent_blocks) >= RECENT_BLOCKS_MAX:
                self.recent_blocks.clear()
            block = self.recent_blocks[frame] = self._block(frame)
        return block

    def _block(self, frame: str) -> Block:
        scope, index = scope_of(frame)
        prefix, tail = split(scope)
        node = (self.block(prefix) if prefix else self.root).node(tail)
        assert isinstance(node, SCOPES) or type(node) is Call
        return node.block_of(index)

    def node(self, path: str) -> Node:
        frame, tail = split(path)
        return self.block(frame).node(tail)

    def worker_wait_ms(self, call: Call) -> int | None:
        """Return how long a call waits while no worker serves it: 0 is not at all, None as long as the run lasts."""
        if call.service is None or call.service.no_worker == "fail":
            return 0
        return self.no_worker_wait_ms if call.service.no_worker == "setting" else call.service.call_timeout_ms
