"""The records of the steps notation, and the shape of the tree that they form.

    Definition ─► steps ─► WorkflowStep ─► body ─► blocks of steps ─► …

Knows the fields of each kind of step and how steps are nested. Must not know the keys of the text, or
what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, assert_never

import msgspec

from holdfast.errors import Problem
from holdfast.spec.condition import Expr
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.document import Document
from holdfast.spec.policy import NO_POLICY, RetryPolicy, StepPolicy
from holdfast.spec.problems import Report, Where
from holdfast.spec.repairs import Source

POLL_INTERVAL_MS: Final = 1_000  # the first poll is soon, since many calls finish within a second
POLL_MAX_MS: Final = 60_000

OnAnyFail = Literal["abort", "continue"]
Condition = str | Expr  # a JSONPath, which is true unless it finds null, false, 0 or nothing; or a comparison


class ToolBody(msgspec.Struct, frozen=True):
    tool: str
    args: Any = None


class RemoteBody(msgspec.Struct, frozen=True):
    """`dcc` names a server from the settings."""

    dcc: str
    tool: str
    args: Any = None


class ServiceBody(msgspec.Struct, frozen=True):
    """`max_attempts` is the number of workers to try; 0 means all of them."""

    service: str
    input: Any = None
    params: Any = None
    max_attempts: int = 0
    attempt_delay_ms: int = 0
    weighted_by_load: bool = False


class ForeachBody(msgspec.Struct, frozen=True, rename={"as_": "as"}):
    items: str
    as_: str = "item"
    steps: tuple[WorkflowStep, ...] = ()
    concurrency: int = 1
    on_any_fail: OnAnyFail = "abort"
    collect: Literal["outputs", "none"] = "outputs"


class ParallelBody(msgspec.Struct, frozen=True):
    """`form` is how the branches were written: as lists of steps, or as steps that are one branch each."""

    branches: tuple[tuple[WorkflowStep, ...], ...] = ()
    form: Literal["steps", "branches"] = "steps"
    on_any_fail: OnAnyFail = "abort"


class BranchBody(msgspec.Struct, frozen=True, rename={"else_": "else"}):
    on: Condition
    then: tuple[WorkflowStep, ...] = ()
    else_: tuple[WorkflowStep, ...] = ()


class TimerBody(msgspec.Struct, frozen=True):
    """Exactly one of the two. `until` is an instant: a number since 1970, or a date with time and zone."""

    delay_ms: int | float | str | None = None
    until: int | float | str | None = None


class NestedBody(msgspec.Struct, frozen=True):
    workflow: str
    inputs: Any = None


class Quorum(msgspec.Struct, frozen=True):
    need: int
    of: tuple[str, ...] = ()


class Escalation(msgspec.Struct, frozen=True):
    after_secs: float
    to: str | tuple[str, ...]


class ApproveBody(msgspec.Struct, frozen=True):
    prompt: str = ""
    timeout_secs: float | None = None
    form: dict[str, Any] | None = None
    quorum: Quorum | None = None
    escalate: Escalation | None = None


class WaitEventBody(msgspec.Struct, frozen=True, rename={"any_": "any", "all_": "all"}):
    """Exactly one of the first three."""

    signal_key: str | None = None
    any_: tuple[str, ...] | None = None
    all_: tuple[str, ...] | None = None
    correlation: Any = None
    timeout_secs: float | None = None


class PollBody(msgspec.Struct, frozen=True):
    """A call, of a tool or of a service, that is repeated until its answer contains what `until` names."""

    until: str
    tool: str | None = None
    dcc: str | None = None
    args: Any = None
    service: str | None = None
    input: Any = None
    params: Any = None
    interval_ms: int = POLL_INTERVAL_MS
    max_ms: int = POLL_MAX_MS
    timeout_secs: float | None = None


Body = (
    ToolBody
    | RemoteBody
    | ServiceBody
    | ForeachBody
    | ParallelBody
    | BranchBody
    | NestedBody
    | ApproveBody
    | TimerBody
    | WaitEventBody
    | PollBody
)


class ResultRule(msgspec.Struct, frozen=True):
    """How a result becomes an output: treat `{success: false}` as a failure, extract a part, parse JSON text."""

    envelope: bool = False
    select: str | None = None
    parse: Literal["json"] | None = None


class PollRule(msgspec.Struct, frozen=True):
    interval_ms: int = POLL_INTERVAL_MS
    max_ms: int = POLL_MAX_MS


class Answer(msgspec.Struct, frozen=True):
    """How the result of a call is handled, and how long to wait for one that is pending."""

    result: ResultRule | None = None
    pending_ttl_secs: float | None = None
    poll: PollRule | None = None
    supports_async_callback: bool = False


PLAIN_ANSWER: Final = Answer()


class OnError(msgspec.Struct, frozen=True):
    """What follows a failure of these kinds, or of any kind."""

    steps: tuple[WorkflowStep, ...] = ()
    kinds: tuple[str, ...] | None = None


class Compensation(msgspec.Struct, frozen=True):
    """The call that undoes a completed call if the run does not complete: of a tool or of a service."""

    tool: str | None = None
    args: Any = None
    service: str | None = None
    input: Any = None
    params: Any = None
    retry: RetryPolicy | None = None
    timeout_secs: float | None = None


class WorkflowStep(msgspec.Struct, frozen=True, rename={"finally_": "finally"}):
    """One step of a workflow. `body` has the keys of its `kind`, the other members are those of any step."""

    id: str
    kind: str
    body: Body
    description: str = ""
    policy: StepPolicy = NO_POLICY
    answer: Answer = PLAIN_ANSWER
    when: Condition | None = None
    on_error: OnError | None = None
    finally_: tuple[WorkflowStep, ...] = ()
    compensate: Compensation | None = None


class FinalCallback(msgspec.Struct, frozen=True):
    """The callback that is sent when a run has finished; `secret_env` names the variable with the signing secret."""

    url: str
    secret_env: str | None = None


class Origin:
    """Where a definition came from. Two definitions that say the same are equal wherever they came from."""

    __slots__ = ("document", "given", "is_stored", "notes", "source")

    def __init__(
        self,
        document: Document | None = None,
        source: str = "",
        notes: tuple[Problem, ...] = (),
        given: Source | None = None,
        *,
        is_stored: bool = False,
    ) -> None:
        self.document, self.source, self.notes, self.is_stored = document, source, notes, is_stored
        self.given = given  # the data that it was made of, to which patches apply

    def report(self) -> Report:
        """An empty report on the definition."""
        data = UNKNOWN if self.given is None else self.given.data
        return Report(self.document, self.source, is_stored=self.is_stored, data=data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Origin({self.source!r})"


class Definition(msgspec.Struct, frozen=True, rename={"finally_": "finally"}):
    """Everything that an author can write. A `WorkflowSpec` adds reading, checking and writing."""

    name: str
    description: str = ""
    inputs: Any = None
    steps: tuple[WorkflowStep, ...] = ()
    on_error: OnError | None = None
    finally_: tuple[WorkflowStep, ...] = ()
    output: Any = None
    on_restart: Literal["resume", "interrupt"] = "resume"
    timeout_secs: float | None = None
    labels: dict[str, str] = {}
    on_complete: tuple[FinalCallback, ...] = ()
    origin: Origin = msgspec.field(default_factory=Origin)


# -------------------------------------------------------------------------------------- the shape of the tree


class Block(NamedTuple):
    """A list of steps inside a step.

    `key` is where the list stands in its step and `first` the place of the block's first step in it. `number`
    identifies the block within its step; `indexed` ones have it in their path. `binding` names the item that a
    block is for. The steps of a block with a `role` (on_error, finally) follow the end of the step, in the frame of the
    step itself.
    """

    steps: tuple[WorkflowStep, ...]
    key: Where
    number: int = 0
    first: int = 0
    indexed: bool = False
    binding: str | None = None
    role: str = ""


def blocks(step: WorkflowStep) -> tuple[Block, ...]:
    """All lists of steps inside a step: those that it consists of, and those that follow its end."""
    return bodies(step) + handlers(step)


def handlers(of: WorkflowStep | Definition) -> tuple[Block, ...]:
    """The steps that follow a failure, and the end, of a step or of a whole definition."""
    found = []
    if of.on_error is not None:
        found.append(Block(of.on_error.steps, ("on_error", "steps"), -1, role="on_error"))
    if of.finally_:
        found.append(Block(of.finally_, ("finally",), -2, role="finally"))
    return tuple(found)


def bodies(step: WorkflowStep) -> tuple[Block, ...]:
    match step.body:
        case ForeachBody() as body:
            return (Block(body.steps, ("steps",), binding=body.as_),)
        case ParallelBody(branches, "steps"):
            return tuple(Block(branch, ("steps",), i, i, True) for i, branch in enumerate(branches))
        case ParallelBody(branches):
            return tuple(Block(branch, ("branches", i), i, 0, True) for i, branch in enumerate(branches))
        case BranchBody(_, then, else_):
            return (Block(then, ("then",), 0), Block(else_, ("else",), 1))
        case (
            ToolBody() | RemoteBody() | ServiceBody() | NestedBody() | ApproveBody() | TimerBody()
            | WaitEventBody() | PollBody()
        ):  # fmt: skip
            return ()
        case _:
            assert_never(step.body)


def walk(steps: Iterable[WorkflowStep]) -> Iterator[WorkflowStep]:
    """All steps of a tree, each before the steps inside it."""
    return (step for _, step in placed(steps, ()))


def every_step(spec: Definition) -> Iterator[tuple[Where, WorkflowStep]]:
    """All steps of a definition with their places, those that follow its end included."""
    yield from placed(spec.steps, ("steps",))
    for block in handlers(spec):
        yield from placed(block.steps, block.key)


def placed(steps: Iterable[WorkflowStep], at: Where, first: int = 0) -> Iterator[tuple[Where, WorkflowStep]]:
    """The same, each with its place in the data, where the list itself has the place `at`."""
    for i, step in enumerate(steps, first):
        yield (*at, i), step
        for block in blocks(step):
            yield from placed(block.steps, (*at, i, *block.key), block.first)


def policy_inside(step: WorkflowStep, outer: StepPolicy) -> StepPolicy:
    """The policy that call steps inside a step inherit, where the step itself inherits `outer`.

    The policy of a call step is then `step.policy.within(inherited)`. A branch passes on what it inherits.
    """
    return step.policy.within(outer) if isinstance(step.body, ForeachBody | ParallelBody) else outer
