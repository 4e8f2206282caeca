"""Compile references and JSONPaths to closures over the values that a step can see.

Knows how values are traversed and referred to. Does not parse text (it receives an AST) and does not know where values are stored
(a View provides them). plan/templates renders what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from holdfast.plan import composed
from holdfast.plan.composed import TooLarge, refuse_large
from holdfast.plan.resolve import reference_to
from holdfast.plan.unread import Members, Unread, count_items, locate, members_in, value_in
from holdfast.plan.view import Evaluate, ItemsOf, View
from holdfast.spec.aliased import Aliased
from holdfast.spec.expr import Find
from holdfast.spec.work import Work, read
from holdfast.values import written

# A part over this size that is exactly an existing value is stored as a reference, so that a large output used by a
# thousand items is in the journal once.
REFERENCE_BYTES_MIN: Final = 1024


class Source(msgspec.Struct, frozen=True):
    """A value of a run, and a place within it.

    `kind` is "inputs", "env", "step" (frame depth and the path from there), "item" (the item of the frame at that depth)
    or "vars" (the variables of the plan in that frame).
    """

    kind: str
    members: Members
    depth: int = 0
    tail: str = ""
    strict: bool = False  # a JSONPath: names are of objects and numbers of arrays; a template is lenient
    is_copied: bool = False  # it is needed when its own row may be gone from memory

    def path(self, view: View) -> str:
        """The name of the value in the journal: the path of a step, the frame of an item, nothing for the inputs."""
        if self.kind == "inputs":
            return ""
        frame = view.frames[self.depth]
        if self.kind == "item":
            return frame
        return f"{frame}.{self.tail}" if frame else self.tail

    @property
    def stays(self) -> bool:
        """Whether the journal can refer to it. Values that change, or that are in no row, cannot be referred to."""
        return self.kind not in ("env", "vars") and not self.is_copied

    def whole(self, view: View) -> Any:
        if self.kind == "inputs":
            return view.inputs()
        if self.kind == "env":
            return view.env()
        if self.kind == "vars":
            name = str(self.members[0])
            return {name: view.var(view.frames[self.depth], name)}
        path = self.path(view)
        return view.item(path) if self.kind == "item" else view.output(path)


class Secret(msgspec.Struct, frozen=True):
    name: str


class Merged(msgspec.Struct, frozen=True):
    """An existing object with some members replaced or added."""

    base: Source
    own: dict[str, Any]  # templates


class Document(msgspec.Struct, frozen=True):
    """The whole document that a step can see, for paths that search it: names → values.

    `True` marks an alias of a value that is in the document under another name.
    """

    members: tuple[tuple[Members, Source, bool], ...]


class Lookup(msgspec.Struct, frozen=True):
    """A place that can only be found by searching the whole document."""

    document: Document
    members: Members


def walk(value: Any, members: Members, *, strict: bool = False) -> Any:
    """Return the value at a place; null if there is none. Unless strict, a numeric name can index arrays and objects.

    A part of a large value may be large too, and is returned as text (`msgspec.Raw`)."""
    if type(value) is Unread:
        return value.at(members, strict=strict)
    found = value
    for member in members:
        if strict and not isinstance(found, dict if isinstance(member, str) else list):
            return _walk_in_text(value, members, strict) if type(found) is Raw else None
        if isinstance(found, dict):
            found = found.get(member if isinstance(member, str) else str(member))
        elif isinstance(found, list) and (isinstance(member, int) or member.isdecimal()):
            index = int(member)
            found = found[index] if -len(found) <= index < len(found) else None
        else:
            return _walk_in_text(value, members, strict) if type(found) is Raw else None
    return found


def read_whole(text: bytes) -> Any:
    """Decode a text whole, within the work budget of an expression. Raises ExpressionTooCostly."""
    return read(value_in(text))


def _walk_in_text(value: Any, members: Members, strict: bool) -> Any:
    """The same where a value on the way is text."""
    for at in range(len(members)):
        if type(value) is Raw:
            return Unread(value).at(members[at:], strict=strict)
        value = walk(value, members[at : at + 1], strict=strict)
    return value


def truthy(value: Any) -> bool:
    return value is not None and value is not False and value not in (0, "", [], {})


def evaluate(source: Source | Lookup) -> Evaluate:
    members = source.members
    if isinstance(source, Lookup):
        build = document(source.document)
        return lambda view: walk(build(view), members)
    if (name := input_named(source)) is not None:
        return lambda view: view.inputs().get(name)
    if source.kind == "inputs":
        return lambda view: walk(view.inputs(), members, strict=source.strict)
    if source.kind == "vars":
        return _variable(source)
    if source.kind == "item" and not members:
        depth = source.depth
        return lambda view: walk(view.item(view.frames[depth]), ())
    return lambda view: walk(source.whole(view), members, strict=source.strict)


def _variable(source: Source) -> Evaluate:
    depth, members = source.depth, source.members
    if not members:
        return lambda view: value_in(view.vars_text(view.frames[depth]))
    name, rest = str(members[0]), members[1:]
    return lambda view: walk(view.var(view.frames[depth], name), rest)


def input_named(source: Source) -> str | None:
    """`inputs.name`, the most common reference: inputs are always an object, so one lookup is enough."""
    members = source.members
    is_plain = source.kind == "inputs" and len(members) == 1 and isinstance(members[0], str)
    return str(members[0]) if is_plain else None


def document(doc: Document) -> Callable[[View], dict[str, Any]]:
    def build(view: View) -> dict[str, Any]:
        root = Aliased()
        for members, source, is_alias in doc.members:
            _put(root, members, walk(source.whole(view), source.members), is_alias=is_alias)
        return root

    return build


def _put(root: Aliased, members: Members, value: Any, *, is_alias: bool) -> None:
    place = root
    for member in members[:-1]:
        place = place.setdefault(str(member), Aliased())
    name = str(members[-1])
    place[name] = value
    if is_alias:
        place.aliases.add(name)


def search(doc: Document, find: Find, reads: Sequence[Members] = ((),)) -> Evaluate:
    """Evaluate a path that may match several places: no match gives null, one gives its value, several give a list.

    `reads` are the places that the path can touch at all. Of a large value only these are decoded, and the work of that is counted
    first.
    """

    def built(view: View, work: Work) -> Aliased:
        root, known = Aliased(), dict[tuple[int, Any], Any]()
        for members, source, is_alias in doc.members:
            rests = [rest for each in reads if (rest := _beyond(members, each)) is not None]
            if rests:
                whole = source.whole(view)
                value = walk(whole, source.members)
                if type(value) is Raw:  # an alias is the same value
                    key = id(whole), (source.members, *rests)
                    if key not in known:
                        known[key] = _parts(Unread(value, view.meter()), rests, work)
                    value = known[key]
                _put(root, members, value, is_alias=is_alias)
        return root

    def evaluated(view: View) -> Any:
        work = Work()
        try:
            hits = find(built(view, work), work)
        finally:
            view.worked += work.spent
        if len(hits) > 1:
            refuse_large(hits)
        return hits[0] if len(hits) == 1 else hits or None

    return evaluated


def _beyond(members: Members, path: Members) -> Members | None:
    """Return what a path reads of the value at a place; None if it does not touch that value."""
    count = min(len(members), len(path))
    return path[count:] if members[:count] == path[:count] else None


def _parts(value: Unread, rests: Sequence[Members], work: Work) -> Any:
    """Decode those parts of a large value that are named, as an object that has nothing else; or all of it."""
    names = {rest[0] for rest in rests if rest}
    is_object = bytes(memoryview(value.raw)[:1]) == b"{"
    if not is_object or not all(rests) or not all(isinstance(name, str) for name in names):
        return read(value.raw, work)
    found = dict[str, Any]()
    for name in names:
        text = value.text_at((name,), strict=True)
        if text is not None:
            inner = [rest[1:] for rest in rests if rest[0] == name]
            is_large = type(part := value_in(text)) is Raw
            found[str(name)] = _parts(Unread(part, value.meter), inner, work) if is_large else part
    return found


def members_all(source: Source) -> Evaluate:
    """Evaluate `$.a[*]`: the members of a value, by the same rule for none, one and several."""
    inner = evaluate(source)

    def evaluated(view: View) -> Any:
        value = inner(view)
        if type(value) is Raw:
            if bytes(memoryview(value)[:1]) == b"[":
                return value if locate(value, (1,)) is not None else walk(value, (0,))
            value = members_in(value)
        hits = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
        return hits[0] if len(hits) == 1 else hits or None

    return evaluated


# ------------------------------------------------------------------------------------------------- items


def items_of(evaluated: Evaluate, source: Source | None) -> ItemsOf:
    """Return the items of a fan-out: null has none, a list its members, any other value is a single item.

    An existing list is referred to, not copied, and never built as Python objects: its members are located in the text, so a
    million items cost their text and an index.
    """

    def items(view: View) -> tuple[int, bytes]:
        if source is not None and (found := _located(view, source)) is not None:
            count = count_items(found)
            if len(found) <= REFERENCE_BYTES_MIN:
                return count, found
            return count, reference_to(source.path(view), source.members)
        value = evaluated(view)
        if type(value) is Raw and (array := bytes(value))[:1] == b"[":
            return count_items(array), array
        listed = value if isinstance(value, list) else [] if value is None else [value]
        text = written(listed)
        if len(text) > composed.LIMIT:
            raise TooLarge
        return len(listed), text

    return items


def _located(view: View, source: Source) -> bytes | None:
    """Return the text of an existing list, cut out of the value that contains it; None if it is not a list."""
    text = view.raw(source.path(view))
    located = None if text is None else locate(text, source.members, strict=source.strict)
    found = None if located is None else bytes(located)
    return found if found is not None and found[:1] == b"[" else None
