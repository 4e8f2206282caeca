"""The steps of the finished run that a rerun repeats or takes over, read from its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from holdfast.engine.decisions import Decision, OpenScope, Undo
from holdfast.engine.events import Event
from holdfast.engine.state import Run, beneath
from holdfast.errors import InvalidInputs, NotFound
from holdfast.nearest import did_you_mean
from holdfast.plan.graph import Block, Choice, FanOut, Nested, Node, Plan
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.values import NULL, base_of, join, scope_of, split
from holdfast.views.outputs import JOURNAL_PAGE
from holdfast.views.steps import Steps, StepView

NAMES_SHOWN_MAX: Final = 20  # in a message


class Past(Steps):
    """The steps of a finished run that a rerun needs: not those inside a step that is copied as a whole."""

    def __init__(self, plan: Plan, named: list[str], *, failed: bool) -> None:
        super().__init__(every=failed)
        self.plan, self._named, self._only_failed = plan, named, failed
        self.values: dict[str, msgspec.Raw] = {}  # the result of choices, also where their block failed
        self.undone: list[str] = []  # steps whose compensation was started
        self._around = {scope for path in named for scope in scopes_of(path)}
        self._known: dict[str, bool] = {"": True}

    async def read(self, store: Store, run: Run) -> None:
        after = 0
        while rows := await store.journal(run.no, after, JOURNAL_PAGE, PIECE_BYTES):
            self.take_rows(rows)
            after = rows[-1][0]
            await asyncio.sleep(0)

    def take(self, event: Event, decisions: Iterable[Decision], at: int) -> list[StepView]:
        for order in decisions:
            if isinstance(order, OpenScope) and order.value != NULL:
                self.values[order.path] = order.value
            elif isinstance(order, Undo):
                self.undone.append(self._entered(order.path))
        return super().take(event, decisions, at)  # type: ignore[arg-type]

    def _remembers(self, step: StepView) -> bool:
        return super()._remembers(step) or self._is_visible(split(step.path)[0])

    def _is_visible(self, frame: str) -> bool:
        """Whether later expressions can refer to steps in this frame, or one of its steps is repeated. Otherwise its
        steps are part of the output of the enclosing scope."""
        if frame not in self._known:
            scope = scope_of(frame)[0]
            inner = is_open_to_later(self.plan.node(scope)) or scope in self._around
            self._known[frame] = inner and self._is_visible(split(scope)[0])
        return self._known[frame]

    # ------------------------------------------------------------------------------------------- targets

    def targets(self, run: Run) -> list[str]:
        named = self._named
        for path in named:
            self._check(run, path)
        if not self._only_failed:
            return named
        found = [self._entered(path) for path in self._failed(run)]
        if named:
            found = [
                path for path in found if any(path == target or beneath(target, path) for target in named)
            ]
        if not found:
            where = f" in {', '.join(named)[:200]}" if named else ""
            raise InvalidInputs(
                f"no step of run {run.id}{where} failed; rerun it from a step, or from the beginning"
            )
        return list(dict.fromkeys(found))

    def _failed(self, run: Run) -> list[str]:
        """The innermost failed steps; for a run that did not complete, also the steps during which it was stopped."""
        ends = ("failed",) if run.status == "completed" else ("failed", "cancelled")
        ended = [step for step in self.by_path.values() if step.status in ends and not step.undoes]
        found = {path for step in ended if (path := self._owner(step.path)) is not None}
        causes = {scope for path in found for scope in scopes_of(path)}
        return [path for path in found if path not in causes]

    def _owner(self, path: str) -> str | None:
        """The step itself, or the one whose end it handles; None if that is the run."""
        frame, tail = split(path)
        part = self.plan.block(frame).parts.get(base_of(tail))
        while part is not None:
            path, part = join(frame, part[0]), self.plan.block(frame).parts.get(part[0])
        return path if split(path)[1] else None

    def _entered(self, path: str) -> str:
        """The step itself, or the outermost enclosing scope that a rerun cannot start inside."""
        for scope in reversed(list(scopes_of(path))):
            if self._why_closed(scope) is not None:
                return scope
        return path

    def is_handler(self, path: str) -> bool:
        """Whether a step handles a failure, or is inside of one that does. The step that failed has its outcome."""
        for inner in (path, *scopes_of(path)):
            frame, tail = split(inner)
            if self.plan.block(frame).parts.get(base_of(tail), ("", ""))[1] == "on_error":
                return True
        return False

    def _why_closed(self, scope: str) -> str | None:
        """Why a rerun cannot start inside a scope; None if it can."""
        node = self.plan.node(scope)
        is_poll = isinstance(node, Nested) and node.what == "poll"
        return "a poll can only be repeated as a whole" if is_poll else None

    def _check(self, run: Run, path: str) -> None:
        """Raise if a rerun cannot start at this step."""
        for scope in scopes_of(path):
            if (why := self._why_closed(scope)) is not None:
                raise InvalidInputs(f"step {path!r} cannot be the first step: {why}; start with {scope!r}")
        for inner in (path, *scopes_of(path)):
            if scope_of(inner)[1] is None and (owner := self._owner(inner)) != inner:
                whose = "the run" if owner is None else repr(owner)
                hint = "" if owner is None else f"; start with {owner!r}"
                raise InvalidInputs(
                    f"step {path!r} cannot be the first step: it handles the end of {whose}{hint}"
                )
        if path in self.by_path or self._is_child(path, of_past=True):
            return
        if path not in self.plan.root.nodes or self.plan.has_vars:
            raise InvalidInputs(f"step {path!r} cannot be the first step: run {run.id} never reached it")
        for name, node in self.plan.root.main.items():
            if name == path:
                return
            step = self.by_path.get(name)
            if step is None or step.status not in ("completed", "skipped"):
                raise InvalidInputs(
                    f"step {path!r} cannot be the first step: {node.name!r} before it did not complete; "
                    "start with that one"
                )

    def _is_child(self, path: str, *, failed: bool = False, of_past: bool = False) -> bool:
        if not of_past:
            return super()._is_child(path, failed=failed)
        scope, index = scope_of(path)
        found = self.by_path.get(scope)
        return index is not None and found is not None and index < found.children


def paths_of(plan: Plan, given: Iterable[str]) -> list[str]:
    """The requested paths; a top-level step may be given by its id."""
    ids = {node.name: name for name, node in plan.root.nodes.items()}
    return [ids.get(path, path) for path in given]


def check_known(plan: Plan, run: Run, path: str) -> None:
    """Whether the definition has such a step."""
    try:
        scope, index = scope_of(path)
        node = plan.node(path if index is None else scope)
        if index is not None and not isinstance(node, FanOut):
            raise KeyError
    except (KeyError, AssertionError, IndexError, ValueError, TypeError, AttributeError):
        names = [node.name for node in plan.root.nodes.values()]
        some = ", ".join(names[:NAMES_SHOWN_MAX]) + (", …" if len(names) > NAMES_SHOWN_MAX else "")
        hint = did_you_mean(path, names) or f"the steps are {some}"
        raise NotFound(f"run {run.id} has no step {path!r}; {hint}") from None


def is_open_to_later(node: Node) -> bool:
    """Whether later steps can refer to steps inside this one. Then a rerun enters it again and copies the outcome of
    each."""
    return isinstance(node, Choice) or (isinstance(node, FanOut) and node.items is None and not node.gather)


def has_actions(block: Block) -> bool:
    return any(node.post is not None for node in block.nodes.values())


def scopes_of(path: str) -> Iterator[str]:
    """The steps that enclose a step or a child of a fan-out, innermost first."""
    scope, index = scope_of(path)
    if index is not None:
        yield scope
        path = scope
    while frame := split(path)[0]:
        path = scope_of(frame)[0]
        yield path
