"""Which steps a rerun repeats, and which outcomes it copies from the original run.

    targets ──► the steps to repeat: these, and in each enclosing block the steps after them
    the rest ─► Outcomes by path: the new run completes these steps with the old outcome, without running them

Knows the steps of the first run from its journal, and the plan. Starts nothing. A block runs one step at a time, so what
was reached later in the same block is what came after. Steps in other branches and other items came neither before nor
after: they keep their outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast import limits
from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import Decision, OpenScope, SetVar, Take
from holdfast.engine.draft import Draft
from holdfast.engine.events import Event, Outcome, RunStarted
from holdfast.engine.state import Run, beneath
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.plan.graph import END, FAIL, Choice, FanOut, Joint, Nested, Node, Plan
from holdfast.runtime.load import whole
from holdfast.runtime.rerun_past import Past, check_known, has_actions, is_open_to_later, paths_of, scopes_of
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.values import NULL, base_of, encode, scope_of, split, written
from holdfast.views.outputs import JOURNAL_PAGE, whole_run
from holdfast.views.steps import StepView


class Again(msgspec.Struct, frozen=True):
    """Which part of a run to repeat: from the named steps on, or the failed steps (among the named ones, if any are
    named)."""

    paths: tuple[str, ...] = ()
    failed: bool = False

    @property
    def is_whole(self) -> bool:
        return not (self.paths or self.failed)


class Restart(NamedTuple):
    """What the first row of a rerun stores beside its inputs, and the same for people: the names of top-level steps,
    and paths inside a step of which only a part is repeated."""

    taken: Mapping[str, Outcome]
    first: str | None
    vars: Mapping[str, msgspec.Raw]
    copied: list[str]
    runs: list[str]


async def restart(store: Store, plan: Plan, run: Run, again: Again) -> Restart:
    """Compute the start of a rerun of a finished run; raises if the rerun cannot start as requested."""
    if again.is_whole:
        return Restart({}, None, {}, [], [node.name for node in plan.root.main.values()])
    if len(again.paths) > limits.now.rerun_paths_max:
        raise LimitExceeded(
            "rerun_paths_max", f"a rerun may name at most {limits.now.rerun_paths_max:,} paths"
        )
    named = paths_of(plan, again.paths)
    for path in named:
        check_known(plan, run, path)
    past = Past(plan, named, failed=again.failed)
    await past.read(store, run)
    # What was undone must be done again before anything that may rely on it.
    chosen = list(dict.fromkeys([*past.targets(run), *past.undone]))
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


# ------------------------------------------------------------------------------------------------- what is redone


class _Cut:
    """Select the steps to repeat. `at` has, for each frame that contains a target, when the first target was reached."""

    def __init__(self, past: Past, targets: list[str]) -> None:
        self.past, self.targets = past, dict.fromkeys(targets)
        self.around = {scope for path in targets for scope in scopes_of(path)}
        self.at: dict[str, int] = {}
        for path in (*targets, *self.around):
            if (step := past.by_path.get(path)) is not None:
                frame = split(path)[0]
                self.at[frame] = min(self.at.get(frame, step.order), step.order)
        self.graphs = self._firsts()

    def _firsts(self) -> dict[str, str]:
        """For each graph that contains a target: the earliest visit of a node that is a target or contains one.

        The rerun starts there, with the variables of that moment. Earlier nodes are neither repeated nor copied.
        """
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
        """Whether a step is inside a graph, but not inside the node at which the graph starts."""
        return any(
            beneath(frame, path) and path != first and not beneath(first, path)
            for frame, first in self.graphs.items()
        )

    def renamed(self, path: str) -> str:
        """The start node of a graph counts as visited once, however often the original run visited it."""
        # innermost first, so that the outer names still match
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
        """Whether the outcome of a step is copied, regarding only the step itself."""
        if self.redoes(step.path):
            return False
        if step.path in self.around:  # a choice takes the same route again
            return step.is_scope and isinstance(self.past.plan.node(step.path), Choice)
        if step.status not in ("completed", "skipped", "failed"):
            return False
        if step.status == "failed":
            # A failed scope is entered again only to complete: the step that made it fail is repeated too.
            around = (self.past.by_path.get(scope) for scope in scopes_of(step.path) if scope in self.around)
            return all(scope is None or scope.status == "completed" for scope in around)
        return True

    def is_inside_of_taken(self, path: str) -> bool:
        """Whether a step is inside a step that is copied as a whole."""
        for scope in scopes_of(path):
            if scope in self.around:
                continue
            step = self.past.by_path.get(scope)
            is_entered = step is not None and step.status == "completed" and step.is_scope
            if not (is_entered and is_open_to_later(self.past.plan.node(scope))):
                return True
        return False

    # ------------------------------------------------------------------------------------------ for people

    def _top(self) -> list[str]:
        return [name for name in self.past.plan.root.main if name not in self.around]

    def copied(self) -> list[str]:
        nodes, steps = self.past.plan.root.nodes, self.past.by_path
        return [nodes[name].name for name in self._top() if name in steps and not self.redoes(name)]

    def runs(self) -> list[str]:
        """The top-level steps that run; a step that runs only in part is replaced by the targets inside it."""
        names, nodes, done = [], self.past.plan.root.main, set(self.copied())
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
    """The outcomes with which the rerun starts; in a graph, those inside the node at which it starts."""
    taken, size = dict[str, Outcome](), 0
    gathered: Draft | None = None
    firsts = _first_of_choices(past)
    for path, step in past.by_path.items():
        if step.undoes or cut.is_passed_over(path) or not cut.outcome(step) or past.is_handler(path):
            continue
        node = past.plan.node(path)
        if cut.is_inside_of_taken(path) or (step.status == "completed" and _is_entered(node, step)):
            continue
        to = firsts.get(path) if isinstance(node, Choice) and step.is_scope else None
        if step.status == "failed" and path not in cut.around:
            taken[cut.renamed(path)] = Outcome(error=step.error)
            continue
        if step.status == "skipped":
            taken[cut.renamed(path)] = Outcome(skipped=True)
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
    """A parallel step has no outcome of its own; its branches have one each."""
    return step.is_scope and isinstance(node, FanOut) and is_open_to_later(node)


def _first_of_choices(past: Past) -> dict[str, str]:
    """By choice: the node to which it led, which is the first that was reached inside."""
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
            f"start with {path} or an earlier step",
            "value_bytes_max",
        )
    if total > limits.now.rerun_bytes_max:
        raise LimitExceeded(
            "state_too_large",
            f"the outputs that the re-run would copy exceed {limits.size(limits.now.rerun_bytes_max)}; "
            "start with an earlier step",
            "rerun_bytes_max",
        )


# -------------------------------------------------------------------------------------------- plans with variables


async def _begins_at(store: Store, plan: Plan, run: Run, cut: _Cut, frame: str) -> Outcome | None:
    """Where a nested graph starts, and with which variables; None if it starts at its first node, as usual."""
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
    """The variables of a graph at the moment the rerun starts, and the nodes that were left before it. If the rerun
    starts inside a subflow, that moment is later than the start of the subflow, and signals may have arrived in
    between."""
    inner = frame
    while cut.graphs[inner] in cut.graphs:
        inner = cut.graphs[inner]
    first = cut.graphs[inner]
    moment = _Moment(plan, frame, inner, first)
    after = 0
    while not moment.is_there and (rows := await store.journal(run.no, after, JOURNAL_PAGE, PIECE_BYTES)):
        after = rows[-1][0]
        for *_, body in rows:
            moment.take(*decode_row(body))
            if moment.is_there:
                break
        await asyncio.sleep(0)
    if not moment.is_there:
        raise InvalidInputs(f"step {first!r} cannot be the first step: run {run.id} never reached it")
    return await _whole_values(store, run, moment.vars), list(moment.left)


class _Moment:
    """The variables of a graph, row by row, up to the moment at which a visit of a node starts, in it or in a nested
    graph."""

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
        """A rerun may have started at another node."""
        if not self._frame:
            self.vars.update(event.vars)
        if not self._inner:
            self._come_to(event.first or self._begins)
        elif (taken := event.taken.get(self._inner)) is not None and taken.to is not None:
            self._begins = ""  # it is moved to its first node when its variables are written

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
    """The top-level steps that may run when a run starts at one of them, in the order of the definition."""
    todo, seen = [name], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen and name != END:
            seen.add(name)
            todo.extend(_next_of(plan.root.nodes.get(name) or plan.root.joints[name]))
    return [node.name for name, node in plan.root.main.items() if name in seen]


def _next_of(node: Node | Joint) -> list[str]:
    routes = node.routes
    named = [route for route in (routes.ok, routes.error, routes.timeout) if route is not FAIL]
    return named if isinstance(node, Joint) or node.post is None else [*named, *node.post.routes.values()]
