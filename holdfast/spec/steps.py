"""The records of the steps notation, and the shape of the tree that they form.

    Definition ─► steps ─► WorkflowStep ─► body ─► blocks of steps ─► …

Knows what each kind of step holds and which steps stand inside which. Must not know the keys of the text, or
what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.errors import Problem
from holdfast.spec.policy import NO_POLICY, StepPolicy
from holdfast.spec.problems import Where
from holdfast.spec.read import Document

OnAnyFail = Literal["abort", "continue"]


class ToolBody(msgspec.Struct, frozen=True):
    tool: str
    args: Any = None


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
    on: str
    then: tuple[WorkflowStep, ...] = ()
    else_: tuple[WorkflowStep, ...] = ()


class TimerBody(msgspec.Struct, frozen=True):
    """Exactly one of the two. `until` is an instant: a number since 1970, or a date with time and zone."""

    delay_ms: int | float | str | None = None
    until: int | float | str | None = None


Body = ToolBody | ForeachBody | ParallelBody | BranchBody | TimerBody


class WorkflowStep(msgspec.Struct, frozen=True):
    id: str
    kind: str
    body: Body
    description: str = ""
    policy: StepPolicy = NO_POLICY


class Origin:
    """Where a definition came from. Two definitions that say the same are equal wherever they came from."""

    __slots__ = ("document", "notes", "source")

    def __init__(
        self, document: Document | None = None, source: str = "", notes: tuple[Problem, ...] = ()
    ) -> None:
        self.document, self.source, self.notes = document, source, notes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Origin({self.source!r})"


class Definition(msgspec.Struct, frozen=True):
    """All that an author can say. A `WorkflowSpec` is one that can be read, checked and written."""

    name: str
    description: str = ""
    inputs: Any = None
    steps: tuple[WorkflowStep, ...] = ()
    output: Any = None
    on_restart: Literal["resume", "interrupt"] = "resume"
    timeout_secs: float | None = None
    labels: dict[str, str] = {}
    origin: Origin = msgspec.field(default_factory=Origin)


# -------------------------------------------------------------------------------------- the shape of the tree


class Block(NamedTuple):
    """A list of steps inside a step.

    `key` is where the list stands in its step and `first` the place of the block's first step in it. `number`
    tells the blocks of a step apart; `indexed` ones have it in their path. `binding` names the item that a
    block is for.
    """

    steps: tuple[WorkflowStep, ...]
    key: Where
    number: int = 0
    first: int = 0
    indexed: bool = False
    binding: str | None = None


def blocks(step: WorkflowStep) -> tuple[Block, ...]:
    match step.body:
        case ForeachBody() as body:
            return (Block(body.steps, ("steps",), binding=body.as_),)
        case ParallelBody(branches, "steps"):
            return tuple(Block(branch, ("steps",), i, i, True) for i, branch in enumerate(branches))
        case ParallelBody(branches):
            return tuple(Block(branch, ("branches", i), i, 0, True) for i, branch in enumerate(branches))
        case BranchBody(_, then, else_):
            return (Block(then, ("then",), 0), Block(else_, ("else",), 1))
        case _:
            return ()


def walk(steps: Iterable[WorkflowStep]) -> Iterator[WorkflowStep]:
    """All steps of a tree, each before the steps inside it."""
    return (step for _, step in placed(steps, ()))


def placed(steps: Iterable[WorkflowStep], at: Where, first: int = 0) -> Iterator[tuple[Where, WorkflowStep]]:
    """The same, each with its place in the data, where the list itself has the place `at`."""
    for i, step in enumerate(steps, first):
        yield (*at, i), step
        for block in blocks(step):
            yield from placed(block.steps, (*at, i, *block.key), block.first)


def policy_inside(step: WorkflowStep, outer: StepPolicy) -> StepPolicy:
    """What the call steps inside a step inherit, where the step itself inherits `outer`.

    The policy of a call step is then `step.policy.within(inherited)`. A branch hands on what it stands in.
    """
    return step.policy.within(outer) if isinstance(step.body, ForeachBody | ParallelBody) else outer
