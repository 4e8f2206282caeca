"""A draft: the decisions made so far for one event, and the run as it will be once they are folded.

A draft never changes the run. It holds the few changes that a later part of the same decision must see (new outputs, the
progress of scopes, steps started and ended), and expressions read the run through it. The work is a stack of plain items, so
deciding is iterative and bounded, and can be split and continued in another row.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import msgspec

from holdfast.engine.decisions import (
    CompleteStep,
    Continue,
    Decision,
    FailStep,
    ReserveKey,
    SetGuard,
    SetVar,
    StartAttempt,
    Take,
)
from holdfast.engine.events import Outcome
from holdfast.engine.gather import NO_FRAME, Gather, added_bytes, frame_bytes
from holdfast.engine.state import Guarded, Run, Scope, Step, Undoable, beneath, guard_frame, guard_key
from holdfast.plan.expr import walk
from holdfast.plan.graph import Plan
from holdfast.plan.resolve import members_of
from holdfast.plan.unread import TEXT_BYTES_MIN, Items, Members, Meter, Unread, locate
from holdfast.values import (
    GATHERED_DEPTH_MAX,
    JSON_DEPTH_MAX,
    NULL,
    VALUE_BYTES_MAX,
    Error,
    Millis,
    decode,
    scope_of,
    split,
    written,
)

# Decisions in one row: about 10 ms of work, after which the event loop gets its turn.
DECISIONS_MAX: Final = 100
DECISION_BYTES_MAX: Final = 1024 * 1024  # values in one row
# Units of work of expressions in one row: about 10 ms. A single expression may take more.
DECISION_WORK_MAX: Final = 25_000
CACHE_BYTES_MIN: Final = 1024  # below this, decoding again is cheaper than remembering
DECODED_BYTES_MAX: Final = 4 * 1024 * 1024  # a run caches decoded values up to this size of their text
SEEN_BYTES_MAX: Final = VALUE_BYTES_MAX  # values that one decision remembers beside what the run does

# A shared default, since most decisions need none; replaced before the first write.
NOTHING: Final[Any] = MappingProxyType({})

Item = tuple[str, str, str]  # what to do, with which node or path, and how


class Draft(msgspec.Struct, gc=False):
    plan: Plan
    run: Run
    at: Millis
    decisions: list[Decision] = []
    work: list[Item] = []
    outputs: dict[str, msgspec.Raw] = {}  # "" are the inputs
    subject: str = ""  # the step whose attempt this event ended
    frames: tuple[str, ...] = ("",)
    # None: closed by this decision. The shared default is replaced before the first write.
    scopes: dict[str, Scope | None] = NOTHING
    joined: dict[str, Scope] = NOTHING
    vars: dict[tuple[str, str], msgspec.Raw] = NOTHING  # (frame, name) → as this decision writes it
    visits: dict[tuple[str, str], int] = NOTHING
    lost: frozenset[str] = frozenset()  # steps whose open attempt was lost, according to this event
    stopped: tuple[str, ...] = ()
    value_bytes: int = 0
    size: int = 0  # the size of the value being rendered; see plan/expr.py
    excess: int = 0
    depth_max: int = JSON_DEPTH_MAX
    worked: int = 0
    scans: Meter | None = None  # of large values, once there are any
    seen: dict[str, Any] = NOTHING  # large values that this decision has read, by path
    seen_bytes: int = 0
    environment: dict[str, str | None] | None = None  # only for a run that starts with this decision
    first: str | None = None  # the node it starts at, if not the first one
    taken: dict[str, Outcome] = NOTHING  # the outcomes it takes over from another run
    signals: frozenset[int] = frozenset()  # numbers of kept signals that this decision takes
    guards: dict[str, Guarded | None] = NOTHING  # as this decision leaves them
    undoable: tuple[Undoable, ...] = ()  # calls that completed with this event
    stopping: dict[str, Error] = NOTHING  # what this decision begins to stop

    # ------------------------------------------------------------------------------------------ deciding

    def go(self, frame: str, name: str) -> None:
        self.work.append(("enter", frame, name))

    @property
    def spent(self) -> bool:
        return (
            len(self.decisions) >= DECISIONS_MAX
            or self.value_bytes >= DECISION_BYTES_MAX
            or self.worked >= DECISION_WORK_MAX
            or (self.scans is not None and self.worked + self.scans.worked >= DECISION_WORK_MAX)
        )

    def cut(self) -> None:
        """Leave the rest of the work to the next row. Nothing that this decision has stopped is entered there."""
        rest = [item for item in self.work if not self.has_stopped(item[1])]
        if rest:
            self.decisions.append(Continue(rest))
        self.work = []

    def join(self, path: str, keep: int) -> None:
        """Close a scope whose output is gathered from its leaves."""
        self.decisions.append(CompleteStep(path, NULL, keep, joined=True))
        scope = self.scope(path)
        assert scope is not None
        scope.errors = self._errors(path)
        self.joined = {**self.joined, path: scope}
        self.note_scope(path, None)

    def _errors(self, path: str) -> dict[int, Error]:
        """Return the errors of a scope's failed children, by index."""
        known = self.run.scopes.get(path)
        fails = [
            order
            for order in self.decisions
            if isinstance(order, FailStep) and scope_of(order.path)[0] == path
        ]
        return (known.errors if known is not None else {}) | {
            index: order.error for order in fails if (index := scope_of(order.path)[1]) is not None
        }

    def children(self, path: str) -> list[dict[str, Any]]:
        """Return the output of each child of a fan-out that is about to join, in order. Raises TooLarge."""
        scope = self.scope(path)
        assert scope is not None
        scope.errors = self._errors(path)
        return Gather(self).children(path, scope, scope.next)

    def set_var(self, frame: str, name: str, text: bytes) -> None:
        value = msgspec.Raw(text)
        self.decisions.append(SetVar(frame, name, value))
        self.value_bytes += len(text)
        self.vars = {**self.vars, (frame, name): value}
        if self.seen:
            self.seen.pop(f"var {frame} {name}", None)

    def take(self, frame: str, path: str, action: str, to: str) -> None:
        """Leave a step by an action. If the next node is on a cycle, this counts as another visit."""
        block, visit = self.plan.block(frame), 0
        if to in block.again:
            visit = self.met(frame, to) + 1
            self.visits = {**self.visits, (frame, to): visit}
        self.decisions.append(Take(path, action, "" if to in block.joints else to, visit))
        self.go(frame, f"{to}~{visit}" if visit > 1 else to)

    def begin_at(self, frame: str, to: str) -> None:
        """Start a block at any of its nodes; this is that node's first visit."""
        block = self.plan.block(frame)
        visit = int(to in block.again)
        if visit:
            self.visits = {**self.visits, (frame, to): visit}
        self.decisions.append(Take(f"{frame}.{block.first}", "", to, visit))
        self.go(frame, to)

    def complete(self, path: str, value: msgspec.Raw, keep: int, *, skipped: bool = False) -> None:
        self.decisions.append(CompleteStep(path, value, keep, skipped=skipped))
        self.value_bytes += len(value)
        if keep:
            self.outputs[path] = value

    def fail(self, path: str, error: Error) -> None:
        self.decisions.append(FailStep(path, error))

    def scope(self, path: str) -> Scope | None:
        """Return the progress of a scope, including this draft's decisions; None if it is closed."""
        if path not in self.scopes:
            known = self.run.scopes.get(path)
            self.note_scope(path, known.ahead() if known is not None else None)
        return self.scopes[path]

    def note_scope(self, path: str, scope: Scope | None) -> None:
        if not self.scopes:
            self.scopes = {}
        self.scopes[path] = scope

    def guard(self, key: str) -> Guarded | None:
        return self.guards[key] if key in self.guards else self.run.guards.get(key)

    def set_guard(self, key: str, phase: str, error: Error | None = None, *, caught: bool = False) -> None:
        self.decisions.append(SetGuard(key, phase, error, caught))
        if self.guards is NOTHING:
            self.guards = {}
        self.guards[key] = Guarded(phase, error, caught) if phase else None

    def guards_beneath(self, target: str) -> dict[str, Guarded]:
        """Return the guards inside a target that have something left to do, those of the whole run excepted."""
        if not (self.guards or self.run.guards):
            return {}
        found = {**self.run.guards, **self.guards}
        return {
            key: guard
            for key, guard in found.items()
            if guard is not None and guard.phase != "done" and key != "." and beneath(target, key)
        }

    def finals(self) -> set[str]:
        """Return the frames in which steps run that must run after any end: nothing stops these."""
        if not (self.guards or self.run.guards):
            return set()
        found = {**self.run.guards, **self.guards}
        return {
            guard_frame(key) for key, guard in found.items() if guard is not None and guard.phase == "final"
        }

    def open_steps(self, target: str) -> dict[str, Step]:
        """Return all open steps beneath a target, including this draft's decisions."""
        steps = {
            path: step
            for path, step in self.run.steps.items()
            if path != self.subject and beneath(target, path)
        }
        for path in self.lost & steps.keys():
            if steps[path].target in (None, path):
                steps[path] = Step("ready")
            else:
                del steps[path]  # it was asked to stop, and has stopped
        for decision in self.decisions:
            if isinstance(decision, StartAttempt):
                if beneath(target, decision.path):
                    steps[decision.path] = Step("running", decision.attempt)
            elif isinstance(decision, ReserveKey):
                if beneath(target, decision.path):
                    steps[decision.path] = Step("ready")
            elif isinstance(decision, FailStep | CompleteStep):
                closed = decision.path
                steps = {
                    path: step for path, step in steps.items() if path != closed and not beneath(closed, path)
                }
        return steps

    def has_stopped(self, frame: str) -> bool:
        """Return whether this decision stopped or ended the scope that contains a frame."""
        return any(target == frame or beneath(target, frame) for target in self.stopped)

    def is_stopped(self, frame: str) -> bool:
        """Return whether a frame is being stopped, by this decision or an earlier one. Nothing starts in such a frame."""
        if not (self.stopped or self.stopping or self.run.stops):
            return False
        if self.has_stopped(frame):
            return True
        while frame:
            scope = scope_of(frame)[0]
            if self._is_final(frame):
                return False
            if self._stops(frame) or self._stops(scope):
                return True
            frame = split(scope)[0]
        return self._stops("") and not self._is_final("")

    def _stops(self, target: str) -> bool:
        return target in self.stopping or target in self.run.stops

    def _is_final(self, frame: str) -> bool:
        """Return whether steps run in a frame that must run after any end: as `finals` says, for one of thousands of frames."""
        if not (self.guards or self.run.guards):
            return False
        guarded = {of for of, _ in self.plan.block(frame).parts.values()}
        found = [self.guard(guard_key(frame, of)) for of in guarded]
        return any(guard is not None and guard.phase == "final" for guard in found)

    # ---------------------------------------------------------------------------------- seeing (plan.View)

    def seen_from(self, frame: str) -> Draft:
        """Return this draft as seen by a step in the given frame."""
        if not frame:
            self.frames = ("",)
        elif not (above := split(scope_of(frame)[0])[0]):
            self.frames = ("", frame)
        else:
            frames = [frame, above]
            while above:
                above = split(scope_of(above)[0])[0]
                frames.append(above)
            self.frames = tuple(reversed(frames))
        return self

    def inputs(self) -> Any:
        try:
            return self.run.__dict__["decoded"][""]
        except KeyError:
            return self._decoded("", self.outputs.get("") or self.run.inputs)

    def env(self) -> Any:
        return self.run.env if self.environment is None else self.environment

    def output(self, path: str) -> Any:
        raw = self.outputs.get(path) or self.run.output_at(path)
        if raw is not None:
            return self._decoded(path, raw)
        if path not in self.seen:
            text = self.gathered(path)
            return None if text is None else self._read(path, text)
        return self.seen[path]

    def gathered(self, path: str, bytes_max: int | None = None) -> bytes | None:
        """Return the text of a joined scope's output, assembled from its leaves. Raises TooLarge."""
        scope = self.joined_at(path)
        if scope is None:
            return None
        self.depth_max = GATHERED_DEPTH_MAX
        return written(Gather(self, bytes_max).scope(path, scope))

    def joined_at(self, path: str) -> Scope | None:
        if path in self.joined:
            return self.joined[path]
        frame, tail = split(path)
        found = self.run.frames.get(frame)
        return None if found is None else found.joined.get(tail)

    def item(self, frame: str) -> Any:
        if self.seen and (key := f"item {frame}") in self.seen:
            return self.seen[key]
        text = item_text(self, frame)
        return decode(text) if len(text) <= CACHE_BYTES_MIN else self._read(f"item {frame}", text)

    def var(self, frame: str, name: str) -> Any:
        raw = self.vars.get((frame, name)) or (self.run.frames.get(frame) or NO_FRAME).vars.get(name)
        if raw is None:
            return None
        if len(raw) <= CACHE_BYTES_MIN:
            return decode(raw)
        key = f"var {frame} {name}"
        return self.seen[key] if key in self.seen else self._read(key, raw)

    def vars_text(self, frame: str) -> bytes:
        found = dict((self.run.frames.get(frame) or NO_FRAME).vars)
        found |= {name: value for (where, name), value in self.vars.items() if where == frame}
        return written(found)

    def met(self, frame: str, name: str) -> int:
        known = (self.run.frames.get(frame) or NO_FRAME).visits
        first = (not frame and (self.first or self.run.first)) or self.plan.block(frame).first
        return self.visits.get((frame, name)) or known.get(name, int(name == first))

    def raw(self, path: str) -> bytes | None:
        """Return the text of a value: the inputs (""), an item (by its frame), or a step's output."""
        if not path:
            return bytes(self.outputs.get("") or self.run.inputs)
        raw = self.outputs.get(path) or self.run.output_at(path)
        if raw is not None:
            return bytes(raw)
        return item_text(self, path) if self._has_item(path) else None

    def _has_item(self, path: str) -> bool:
        opened, index = scope_of(path)
        scope = self.scope(opened)
        return scope is not None and (index is not None or scope.is_nested)

    def text_at(self, path: str, members: Members) -> bytes:
        """Return the text that a rendered reference refers to."""
        if members:
            return written(walk(self._value(path), members))
        text = self.raw(path)
        return (self.gathered(path) or b"null") if text is None else text

    def bytes_at(self, path: str, members: Members) -> int:
        """Return the size of the text that a rendered reference refers to, without making that text where it is large."""
        if members:
            value = walk(self._value(path), members)
            return len(value) if type(value) is msgspec.Raw else len(written(value))
        raw = self.outputs.get(path) or (self.run.output_at(path) if path else self.run.inputs)
        return len(raw) if raw is not None else len(self.text_at(path, members))

    def _value(self, path: str) -> Any:
        if not path:
            return self.inputs()
        is_output = path in self.outputs or self.run.output_at(path) is not None
        return self.item(path) if not is_output and self._has_item(path) else self.output(path)

    def outputs_of(self, frame: str, bytes_max: int | None = None) -> bytes:
        """Return the text of {step id: output} for the kept steps of one frame. Raises TooLarge."""
        return written(Gather(self, bytes_max).steps(frame))

    def output_bytes(self, frame: str) -> int:
        """Return the total size of the outputs of a frame's steps, kept or not."""
        return frame_bytes(self.run, frame) + added_bytes(self, frame)

    def _read(self, key: str, text: bytes | msgspec.Raw) -> Any:
        """Read each value once per decision: reading a large value again for every part that is rendered would be too slow."""
        value: Any
        if len(text) <= TEXT_BYTES_MIN:
            value = decode(text)
        else:
            value = Unread(text if type(text) is msgspec.Raw else msgspec.Raw(text), self.meter())
        if len(text) > CACHE_BYTES_MIN:
            self.seen_bytes += len(text)
            if not self.seen or self.seen_bytes > SEEN_BYTES_MAX:
                self.seen, self.seen_bytes = {}, len(text)
            self.seen[key] = value
        return value

    def meter(self) -> Meter:
        if self.scans is None:
            self.scans = Meter()
        return self.scans

    def _decoded(self, path: str, raw: msgspec.Raw) -> Any:
        """Decode a value when an expression refers to it, unless it is so large that only parts of it are. What is not small is cached.
        Sharing it is safe: rendered arguments are written as text and decoded again before a tool receives them."""
        about = self.run.__dict__
        if len(raw) > TEXT_BYTES_MIN:
            large: Unread = about.setdefault("unread", {}).setdefault(path, Unread(raw))
            large.meter = self.meter()
            return large
        cache = about.setdefault("decoded", {})
        if path in cache:
            return cache[path]
        value = decode(raw)
        if not path or len(raw) > CACHE_BYTES_MIN:
            about["decoded_bytes"] = size = about.get("decoded_bytes", 0) + len(raw)
            if size > DECODED_BYTES_MAX:
                cache.clear()
                about["decoded_bytes"] = len(raw)
            cache[path] = value
        return value


def item_text(draft: Draft, frame: str) -> bytes:
    """Return the JSON text of the item of one child of a fan-out."""
    scope_path, index = scope_of(frame)
    if index is None:  # a nested plan: its input
        scope = draft.scope(scope_path)
        assert scope is not None
        return bytes(scope.items)
    index_of = draft.run.__dict__.setdefault("items", {})
    if scope_path not in index_of:
        index_of[scope_path] = Items(_items_text(draft, scope_path))
    items: Items = index_of[scope_path]
    return items.text(index)


def _items_text(draft: Draft, scope_path: str) -> bytes:
    scope = draft.scope(scope_path)
    assert scope is not None
    text = bytes(scope.items)
    if text[:1] == b"[":
        return text
    reference = decode(text)
    whole = draft.raw(reference["$of"])
    assert whole is not None, f"the items of {scope_path} refer to {reference['$of']}, which is not kept"
    found = locate(whole, members_of(reference["at"]))
    assert found is not None
    return bytes(found)
