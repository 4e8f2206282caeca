"""What a rerun takes over from the run before it, and what it does again.

    targets ──► the steps to do again: they, and in each block around them what came after them
    the rest ─► Outcomes by path: the new run ends these steps as they ended, without doing them

Knows the steps of the first run from its journal, and the plan. Starts nothing. A block runs one step at a time, so what
was reached later in the same block is what came after. Steps in other branches and other items came neither before nor
after: they keep their outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import Decision, OpenScope, SetVar, Take
from holdfast.engine.draft import Draft
from holdfast.engine.events import Event, Outcome, RunStarted
from holdfast.engine.state import Run, beneath
from holdfast.errors import InvalidInputs, LimitExceeded, NotFound
from holdfast.plan.graph import END, FAIL, Block, Choice, FanOut, Nested, Node, Plan
from holdfast.runtime.load import whole
from holdfast.spec.problems import did_you_mean
from holdfast.store.base import Store
from holdfast.values import NULL, base_of, encode, scope_of, split, written
from holdfast.views.outputs import JOURNAL_PAGE, whole_run
from holdfast.views.steps import Steps, StepView

NAMES_TOLD_MAX: Final = 20  # in a message


class Again(msgspec.Struct, frozen=True):
    """Which part of a run to re-run: from the named steps on, or what failed (among those, if any are named)."""

    paths: tuple[str, ...] = ()
    failed: bool = False

    @property
    def is_whole(self) -> bool:
        return not (self.paths or self.failed)


class Restart(NamedTuple):
    """What the first row of a rerun holds beside its inputs, and the same for people: names of top-level steps, and
    the paths inside one where only part of it is done again."""

    taken: Mapping[str, Outcome]
    first: str | None
    vars: Mapping[str, msgspec.Raw]
    copied: list[str]
    runs: list[str]


async def restart(store: Store, plan: Plan, run: Run, again: Again) -> Restart:
    """What a rerun of a finished run begins with; raises where it cannot begin so."""
    if again.is_whole:
        return Restart({}, None, {}, [], [node.name for node in plan.root.nodes.values()])
    if len(again.paths) > limits.now.rerun_paths_max:
        raise LimitExceeded("rerun_paths_max", f"a rerun names at most {limits.now.rerun_paths_max:,} paths")
    named = _paths(plan, again.paths)
    for path in named:
        _check_known(plan, run, path)
    past = Past(plan, named, failed=again.failed)
    await past.read(store, run)
    chosen = past.targets(run)
    cut = _Cut(past, chosen)
    taken = await _taken_over(store, run, past, cut)
    for frame in cut.graphs:
        if (
            frame
            and not cut.is_passed_over(frame)
            and (begins := await _begins_at(store, plan, run, cut, frame)) is not None
        ):
            taken[cut.renamed(frame)] = begins
    if not plan.has_vars:
        return Restart(taken, None, {}, cut.copied(), cut.runs())
    first = cut.graphs[""]
    variables, left = await _vars_before(store, plan, run, cut, "")
    return Restart(taken, base_of(first), variables, left, cut.runs_of_graph(base_of(first)))


# ------------------------------------------------------------------------------------------------ the first run


class Past(Steps):
    """The steps of a finished run, as far as a rerun needs them: not those inside of what is taken over as a whole."""

    def __init__(self, plan: Plan, named: list[str], *, failed: bool) -> None:
        super().__init__(every=failed)
        self.plan, self._named, self._only_failed = plan, named, failed
        self.values: dict[str, msgspec.Raw] = {}  # of choices: what they gave, also where their block failed
        self._around = {scope for path in named for scope in _scopes_of(path)}
        self._known: dict[str, bool] = {"": True}

    async def read(self, store: Store, run: Run) -> None:
        after = 0
        while rows := await store.journal(run.no, after, JOURNAL_PAGE):
            self.take_rows(rows)
            after = rows[-1][0]
            await asyncio.sleep(0)

    def take(self, event: Event, decisions: Iterable[Decision], at: int) -> list[StepView]:
        for order in decisions:
            if isinstance(order, OpenScope) and order.value != NULL:
                self.values[order.path] = order.value
        return super().take(event, decisions, at)  # type: ignore[arg-type]

    def _remembers(self, step: StepView) -> bool:
        return super()._remembers(step) or self._is_visible(split(step.path)[0])

    def _is_visible(self, frame: str) -> bool:
        """Can steps in this frame be named after it, or is one of them to be done again? Others are part of what the
        scope around them gave."""
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
                f"no step of run {run.id}{where} failed; rerun it from a step, or from its beginning"
            )
        return list(dict.fromkeys(found))

    def _failed(self, run: Run) -> list[str]:
        """The innermost steps that failed; of a run that did not complete, also those that it was stopped in."""
        ends = ("failed",) if run.status == "completed" else ("failed", "cancelled")
        found = {step.path for step in self.by_path.values() if step.status in ends}
        causes = {scope for path in found for scope in _scopes_of(path)}
        return [path for path in found if path not in causes]

    def _entered(self, path: str) -> str:
        """The step itself, or the outermost scope around it that a rerun cannot go into."""
        for scope in reversed(list(_scopes_of(path))):
            if self._why_closed(scope) is not None:
                return scope
        return path

    def _why_closed(self, scope: str) -> str | None:
        """Why a rerun cannot begin inside a scope; None if it can."""
        node = self.plan.node(scope)
        is_poll = isinstance(node, Nested) and node.what == "poll"
        return "a poll is made again as a whole" if is_poll else None

    def _check(self, run: Run, path: str) -> None:
        """Can a rerun begin here?"""
        for scope in _scopes_of(path):
            if (why := self._why_closed(scope)) is not None:
                raise InvalidInputs(f"step {path!r} cannot be the first: {why}; begin with {scope!r}")
        if path in self.by_path or self._is_child(path, of_past=True):
            return
        if path not in self.plan.root.nodes or self.plan.has_vars:
            raise InvalidInputs(f"step {path!r} cannot be the first: run {run.id} never came to it")
        for name, node in self.plan.root.nodes.items():
            if name == path:
                return
            step = self.by_path.get(name)
            if step is None or step.status != "completed":
                raise InvalidInputs(
                    f"step {path!r} cannot be the first: {node.name!r} before it did not complete; "
                    "begin with that one"
                )

    def _is_child(self, path: str, *, failed: bool = False, of_past: bool = False) -> bool:
        if not of_past:
            return super()._is_child(path, failed=failed)
        scope, index = scope_of(path)
        found = self.by_path.get(scope)
        return index is not None and found is not None and index < found.children


def _paths(plan: Plan, given: Iterable[str]) -> list[str]:
    """Paths as they were asked for; a step of the top level may be given by its id."""
    ids = {node.name: name for name, node in plan.root.nodes.items()}
    return [ids.get(path, path) for path in given]


def _check_known(plan: Plan, run: Run, path: str) -> None:
    """Does the definition have such a step?"""
    try:
        scope, index = scope_of(path)
        node = plan.node(path if index is None else scope)
        if index is not None and not isinstance(node, FanOut):
            raise KeyError
    except (KeyError, AssertionError, IndexError, ValueError, TypeError, AttributeError):
        names = [node.name for node in plan.root.nodes.values()]
        some = ", ".join(names[:NAMES_TOLD_MAX]) + (", …" if len(names) > NAMES_TOLD_MAX else "")
        hint = did_you_mean(path, names) or f"the steps are {some}"
        raise NotFound(f"run {run.id} has no step {path!r}; {hint}") from None


def is_open_to_later(node: Node) -> bool:
    """Can steps inside be named by those after it? Then a rerun goes in again and ends each as it ended."""
    return isinstance(node, Choice) or (isinstance(node, FanOut) and node.items is None and not node.gather)


def has_actions(block: Block) -> bool:
    return any(node.post is not None for node in block.nodes.values())


def _scopes_of(path: str) -> Iterator[str]:
    """The steps around a step or around a child of a fan-out, the innermost first."""
    scope, index = scope_of(path)
    if index is not None:
        yield scope
        path = scope
    while frame := split(path)[0]:
        path = scope_of(frame)[0]
        yield path


# ------------------------------------------------------------------------------------------------- what is redone


class _Cut:
    """Which steps are done again. `at` has, for each frame that a target stands in, when the first of them was reached."""

    def __init__(self, past: Past, targets: list[str]) -> None:
        self.past, self.targets = past, dict.fromkeys(targets)
        self.around = {scope for path in targets for scope in _scopes_of(path)}
        self.at: dict[str, int] = {}
        for path in (*targets, *self.around):
            if (step := past.by_path.get(path)) is not None:
                frame = split(path)[0]
                self.at[frame] = min(self.at.get(frame, step.order), step.order)
        self.graphs = self._firsts()

    def _firsts(self) -> dict[str, str]:
        """Frames of graphs that a target stands in → the earliest visit of a node there that is a target or has one inside.
        The rerun begins there, with the shared state of that moment; what came before it is not done and not taken over."""
        found: dict[str, str] = {}
        for path in (*self.targets, *self.around):
            frame = split(path)[0]
            step, best = self.past.by_path.get(path), found.get(frame)
            if step is None or not self._is_graph(frame):
                continue
            if best is None or step.order < self.past.by_path[best].order:
                found[frame] = path
        return found

    def _is_graph(self, frame: str) -> bool:
        if not frame:
            return self.past.plan.has_vars
        scope, index = scope_of(frame)
        node = self.past.plan.node(scope)
        return index is None and isinstance(node, Nested) and has_actions(node.block)

    def is_passed_over(self, path: str) -> bool:
        """Does a step stand in a graph, outside of the node that the graph begins at?"""
        return any(
            beneath(frame, path) and path != first and not beneath(first, path)
            for frame, first in self.graphs.items()
        )

    def renamed(self, path: str) -> str:
        """The start node of a graph counts as visited once, however often the earlier run visited it."""
        # the innermost first: the outer names still fit
        for frame in sorted(self.graphs, key=len, reverse=True):
            first = self.graphs[frame]
            if path == first or beneath(first, path):
                path = base_of(first) + path[len(first) :]
        return path

    def redoes(self, path: str) -> bool:
        while True:
            step = self.past.by_path.get(path)
            frame = split(path)[0]
            if path in self.targets or (step is not None and step.order > self.at.get(frame, step.order)):
                return True
            if not frame:
                return False
            if frame in self.targets:
                return True
            path = scope_of(frame)[0]

    def outcome(self, step: StepView) -> bool:
        """Is the outcome of a step taken over, as far as the step itself is concerned?"""
        if self.redoes(step.path):
            return False
        if step.path in self.around:  # a choice leads where it led
            return step.is_scope and isinstance(self.past.plan.node(step.path), Choice)
        if step.status not in ("completed", "failed"):
            return False
        if step.status == "failed":
            # A scope that failed is only entered again to complete: what made it fail is done again too.
            around = (self.past.by_path.get(scope) for scope in _scopes_of(step.path) if scope in self.around)
            return all(scope is None or scope.status == "completed" for scope in around)
        return True

    def is_inside_of_taken(self, path: str) -> bool:
        """Is a step part of one that is taken over as a whole?"""
        for scope in _scopes_of(path):
            if scope in self.around:
                continue
            step = self.past.by_path.get(scope)
            is_entered = step is not None and step.status == "completed" and step.is_scope
            if not (is_entered and is_open_to_later(self.past.plan.node(scope))):
                return True
        return False

    # ------------------------------------------------------------------------------------------ for people

    def _top(self) -> list[str]:
        return [name for name in self.past.plan.root.nodes if name not in self.around]

    def copied(self) -> list[str]:
        nodes, steps = self.past.plan.root.nodes, self.past.by_path
        return [nodes[name].name for name in self._top() if name in steps and not self.redoes(name)]

    def runs(self) -> list[str]:
        """Top-level steps that run, and the targets in the place of a step that runs in part."""
        names, nodes, done = [], self.past.plan.root.nodes, set(self.copied())
        for name, node in nodes.items():
            if name in self.around:
                names += [path for path in self.targets if beneath(name, path)]
            elif node.name not in done:
                names.append(node.name)
        return names

    def runs_of_graph(self, first: str) -> list[str]:
        inner = [path for path in self.targets if beneath(first, path)]
        return [*inner, *(name for name in reached_from(self.past.plan, first) if not inner or name != first)]


async def _taken_over(store: Store, run: Run, past: Past, cut: _Cut) -> dict[str, Outcome]:
    """The outcomes that the rerun begins with; in a graph, those inside of the node that it begins at."""
    taken, size = dict[str, Outcome](), 0
    gathered: Draft | None = None
    firsts = _first_of_choices(past)
    for path, step in past.by_path.items():
        if cut.is_passed_over(path) or not cut.outcome(step):
            continue
        node = past.plan.node(path)
        if cut.is_inside_of_taken(path) or (step.status == "completed" and _is_entered(node, step)):
            continue
        to = firsts.get(path) if isinstance(node, Choice) and step.is_scope else None
        if step.status == "failed" and path not in cut.around:
            taken[cut.renamed(path)] = Outcome(error=step.error)
            continue
        if step.joined and gathered is None:
            gathered = Draft(past.plan, await whole_run(store, run), run.at)
        if step.joined and gathered is not None:
            output = msgspec.Raw(encode(gathered.output(path)))
        else:
            output = await whole(store, run.no, past.values.get(path, NULL) if to else step.output)
        size += len(output)
        _check_size(path, len(output), size)
        taken[cut.renamed(path)] = Outcome(output, to=to)
    return taken


def _is_entered(node: Node, step: StepView) -> bool:
    """A parallel has no outcome of its own: its branches have."""
    return step.is_scope and isinstance(node, FanOut) and is_open_to_later(node)


def _first_of_choices(past: Past) -> dict[str, str]:
    """Choice → the node it led to: the first that was reached inside."""
    found: dict[str, str] = {}
    for path in past.by_path:  # in the order in which they were reached
        frame, tail = split(path)
        if frame and scope_of(frame)[1] is None:
            found.setdefault(frame, tail)
    return found


def _check_size(path: str, size: int, total: int) -> None:
    if size > limits.now.value_bytes_max:
        raise LimitExceeded(
            "output_too_large",
            f"the output of {path} exceeds {limits.size(limits.now.value_bytes_max)}, which is too large to copy; "
            f"begin with {path} or before it",
            "value_bytes_max",
        )
    if total > limits.now.rerun_bytes_max:
        raise LimitExceeded(
            "state_too_large",
            f"the outputs that the re-run would copy exceed {limits.size(limits.now.rerun_bytes_max)}; "
            "begin with an earlier step",
            "rerun_bytes_max",
        )


# -------------------------------------------------------------------------------------------- plans with variables


async def _begins_at(store: Store, plan: Plan, run: Run, cut: _Cut, frame: str) -> Outcome | None:
    """Where a nested graph begins, and with which shared state; None if at its first node, as always."""
    first = cut.graphs[frame]
    variables, left = await _vars_before(store, plan, run, cut, frame)
    node = base_of(split(first)[1])
    if not (variables or left) and node == plan.block(frame).first:
        return None
    state = msgspec.Raw(written(variables))
    _check_size(frame, len(state), len(state))
    return Outcome(state, to=node)


async def _vars_before(
    store: Store, plan: Plan, run: Run, cut: _Cut, frame: str
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """The variables of a graph as they were when the rerun begins, and the nodes that were left before that. Where it begins
    within a subflow, that is later than when the subflow began, and signals may have been heard meanwhile."""
    inner = frame
    while cut.graphs[inner] in cut.graphs:
        inner = cut.graphs[inner]
    first = cut.graphs[inner]
    moment = _Moment(plan, frame, inner, first)
    after = 0
    while not moment.is_there and (rows := await store.journal(run.no, after, JOURNAL_PAGE)):
        after = rows[-1][0]
        for *_, body in rows:
            moment.take(*decode_row(body))
            if moment.is_there:
                break
        await asyncio.sleep(0)
    if not moment.is_there:
        raise InvalidInputs(f"step {first!r} cannot be the first: run {run.id} never came to it")
    return await _whole_values(store, run, moment.vars), list(moment.left)


class _Moment:
    """The variables of a graph, row by row, up to the moment at which a visit of a node begins, in it or in a graph inside."""

    def __init__(self, plan: Plan, frame: str, inner: str, first: str) -> None:
        self._plan, self._frame, self._inner = plan, frame, inner
        tail = split(first)[1]
        self._target = base_of(tail)
        self._visit = int(tail[len(self._target) + 1 :] or 1)
        self._begins = plan.block(inner).first
        self.vars: dict[str, msgspec.Raw] = {}
        self.left: dict[str, None] = {}
        self.is_there = False

    def take(self, event: Event, decisions: Iterable[Decision]) -> None:
        if isinstance(event, RunStarted):
            self._start(event)
        for order in decisions:
            if self.is_there:
                return
            if isinstance(order, OpenScope) and order.path == self._inner:
                self._come_to(self._begins)
            elif isinstance(order, SetVar) and order.frame == self._frame:
                self.vars[order.name] = order.value
            elif isinstance(order, Take):
                self._leave(order, split(order.path)[0])

    def _start(self, event: RunStarted) -> None:
        """A rerun may have begun elsewhere."""
        if not self._frame:
            self.vars.update(event.vars)
        if not self._inner:
            self._come_to(event.first or self._begins)
        elif (taken := event.taken.get(self._inner)) is not None and taken.to is not None:
            self._begins = ""  # it is taken to its first node when its variables are written

    def _leave(self, order: Take, frame: str) -> None:
        if frame == self._frame:
            self.left[self._plan.node(order.path).name] = None
        if frame == self._inner:
            self._come_to(order.to, order.visit or 1)

    def _come_to(self, node: str, visit: int = 1) -> None:
        self.is_there = (node, visit) == (self._target, self._visit)


async def _whole_values(store: Store, run: Run, values: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name: await whole(store, run.no, value) for name, value in values.items()}


def reached_from(plan: Plan, name: str) -> list[str]:
    """The top-level steps that may run when a run begins at one of them, in the order of the definition."""
    todo, seen = [name], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen and name != END:
            seen.add(name)
            todo.extend(_next_of(plan.root.nodes[name]))
    return [node.name for name, node in plan.root.nodes.items() if name in seen]


def _next_of(node: Node) -> list[str]:
    routes = node.routes
    named = [route for route in (routes.ok, routes.error, routes.timeout) if route is not FAIL]
    return named if node.post is None else [*named, *node.post.routes.values()]
