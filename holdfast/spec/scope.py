"""Which names are visible at which point of a definition.

Knows the tree, and the order in which its steps run. Must not know how names are written, or their values
in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from holdfast import values
from holdfast.spec.inputs import declared_inputs
from holdfast.spec.steps import Block, Definition, ForeachBody, WorkflowStep, blocks, bodies, handlers

ROOTS: Final = ("inputs", "steps", "item", "env", "secrets")
OUTPUT: Final = (
    " output"  # the variable of the output that a compensation undoes; not a valid name for authors
)


class StepAddress(NamedTuple):
    """Where the output of a step is found.

    `depth` is the number of the frame in which the address starts, among those around the reader, the top
    level being 0. `tail` leads on from there: `par[1].br.s`.
    """

    depth: int
    tail: str


class Bound(NamedTuple):
    """A variable of a frame that a name stands for, by the depth of the frame."""

    depth: int
    variable: str


def error_variable(step: WorkflowStep | None) -> str:
    """The variable of the error of a step, or of the whole definition."""
    return "error" if step is None else f"error {values.segment(step.id)}"


class _Home(NamedTuple):
    """A block that contains a step: the step that the block belongs to, and which of its blocks it is."""

    step: str
    number: int
    is_loop: bool


class _Frame(NamedTuple):
    home: _Home | None
    binding: str | None
    tails: dict[str, str]


class Scope:
    """The names that are visible at one point of a definition. The code that walks the tree keeps the scope up to date:

        for step in steps:
            ...                                     # what `step` says is read in `scope`
            for block in blocks(step):
                visit(block.steps, scope.inside(step, block))
            scope.finish(step)                      # from here on it can be seen

    Each iteration of a foreach, each branch of a parallel and each body of a branch is its own frame. The steps inside a
    parallel or a branch are visible after it. Those inside a foreach are not, because each of them has run many times.
    """

    def __init__(
        self,
        homes: Mapping[str, tuple[_Home, ...]],
        inputs: frozenset[str],
        frames: tuple[_Frame, ...],
        top: int,
        bound: Mapping[str, Bound] | None = None,
        handled: str | None = None,
    ) -> None:
        self._homes, self._inputs, self._frames, self.top = homes, inputs, frames, top
        self._bound, self._handled = bound or {}, handled

    @classmethod
    def of(cls, spec: Definition, around: int = 0) -> Scope:
        """The scope before the first step. `around` are the frames in which the whole definition is nested: they are
        counted and hold nothing that it can see."""
        frames = tuple(_Frame(None, None, {}) for _ in range(around + 1))
        homes = dict(_homes(spec.steps, ()))
        for block in handlers(spec):
            homes |= dict(_homes(block.steps, ()))
        return cls(homes, declared_inputs(spec.inputs), frames, around)

    @property
    def depth(self) -> int:
        """How many frames there are around, this one included."""
        return len(self._frames)

    def inside(self, step: WorkflowStep, block: Block) -> Scope:
        if block.role:
            return self.following(step, block)
        frame = _Frame(_home(step, block), block.binding, {})
        return self._with((*self._frames, frame))

    def following(self, step: WorkflowStep | None, block: Block) -> Scope:
        """The scope of the steps that follow the end of a step, or of the whole definition: they run in the same frame.

        They see what the step saw, the steps inside it, null where not run, and `error`.
        """
        last = self._frames[-1]
        tails = dict(last.tails)
        if step is not None:
            tails.update(_seen_inside(step))
            if block.role == "finally":
                caught = () if step.on_error is None else step.on_error.steps
                tails.update({step.id: values.segment(step.id)})
                tails.update(seen for inner in caught for seen in _seen_after(inner))
        bound = {**self._bound, "error": Bound(len(self._frames) - 1, error_variable(step))}
        handled = step.id if step is not None and block.role == "on_error" else self._handled
        return self._with((*self._frames[:-1], last._replace(tails=tails)), bound, handled)

    def undoing(self) -> Scope:
        """The scope of a compensation: `output` is the output of the step that it undoes."""
        return self._with(self._frames, {**self._bound, "output": Bound(len(self._frames) - 1, OUTPUT)})

    def _with(
        self,
        frames: tuple[_Frame, ...],
        bound: Mapping[str, Bound] | None = None,
        handled: str | None = None,
    ) -> Scope:
        return Scope(
            self._homes,
            self._inputs,
            frames,
            self.top,
            self._bound if bound is None else bound,
            handled or self._handled,
        )

    def bound(self, name: str) -> Bound | None:
        """The variable that a name stands for: `error` after a failure, `output` in a compensation."""
        return self._bound.get(name)

    def finish(self, step: WorkflowStep) -> None:
        self._frames[-1].tails.update(_seen_after(step))

    def lookup(self, name: str) -> Literal["bound", "binding", "input", "step"] | None:
        """The meaning of a bare name."""
        if name in self._bound:
            return "bound"
        if self.binding(name) is not None:
            return "binding"
        if name in self._inputs:
            return "input"
        return "step" if self.step(name) else None

    def binding(self, name: str) -> int | None:
        """The depth of the frame whose item a name stands for. `item` is always the innermost."""
        for depth in range(len(self._frames) - 1, 0, -1):
            bound = self._frames[depth].binding
            if bound is not None and name in (bound, "item"):
                return depth
        return None

    def step(self, step_id: str) -> StepAddress | None:
        for depth in range(len(self._frames) - 1, -1, -1):
            tail = self._frames[depth].tails.get(step_id)
            if tail is not None:
                return StepAddress(depth, tail)
        return None

    def hidden(self, step_id: str) -> str | None:
        """Why a step that exists cannot be seen from here; None if it can be seen or does not exist."""
        home = self._homes.get(step_id)
        if home is None or self.step(step_id):
            return None
        if step_id == self._handled:
            return "it failed; `error` says why"
        here = tuple(frame.home for frame in self._frames if frame.home)
        if any(around.step == step_id for around in here):
            return "it is not over while the steps inside it run"
        shared = 0
        while shared < min(len(home), len(here)) and home[shared] == here[shared]:
            shared += 1
        beyond = home[shared:]
        if beyond and shared < len(here) and beyond[0].step == here[shared].step:
            return f'it stands in another branch of "{beyond[0].step}"'
        if beyond and self.step(beyond[0].step):
            loops = [around.step for around in beyond if around.is_loop]
            if loops:  # there is none where two steps have one id, which is a problem of its own
                return f'it stands inside the foreach "{loops[0]}", whose steps cannot be seen after it'
        return "it does not run before this point"

    def loop_of(self, step_id: str) -> str | None:
        """The finished foreach that a step stands in, whose output can be seen from here."""
        loops = [
            around.step
            for around in self._homes.get(step_id, ())
            if around.is_loop and self.step(around.step)
        ]
        return loops[0] if loops else None

    def names(self) -> set[str]:
        """All visible bare names: candidates for a misspelt one."""
        return (
            self.step_ids()
            | self._inputs
            | self._bound.keys()
            | {frame.binding for frame in self._frames if frame.binding}
        )

    def step_ids(self) -> set[str]:
        return {step for frame in self._frames for step in frame.tails if step}


def _home(step: WorkflowStep, block: Block) -> _Home:
    return _Home(step.id, block.number, isinstance(step.body, ForeachBody))


def _homes(
    steps: Iterable[WorkflowStep], around: tuple[_Home, ...]
) -> Iterator[tuple[str, tuple[_Home, ...]]]:
    for step in steps:
        yield step.id, around
        for block in blocks(step):
            yield from _homes(block.steps, (*around, _home(step, block)))


def _seen_after(step: WorkflowStep) -> Iterator[tuple[str, str]]:
    own = values.segment(step.id)
    yield step.id, own
    yield from _seen_inside(step)
    for block in handlers(step):
        for inner in block.steps:
            yield from _seen_after(inner)


def _seen_inside(step: WorkflowStep) -> Iterator[tuple[str, str]]:
    """The steps inside a step that can be seen after it."""
    own = values.segment(step.id)
    if isinstance(step.body, ForeachBody):
        return
    for block in bodies(step):
        frame = f"{own}[{block.number}]" if block.indexed else own
        for inner in block.steps:
            yield from ((name, values.join(frame, tail)) for name, tail in _seen_after(inner))
