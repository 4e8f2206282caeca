"""Compile templates and JSONPaths to closures over the values that a step can see.

Knows how values are traversed, formatted and referred to. Does not parse text (it receives an AST) and does not know where values
are stored (a View provides them). Rendered text is data and is never parsed as a template again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from holdfast.plan import composed
from holdfast.plan.composed import TooLarge, escaped_chunks, escaped_text, printed, refuse_large
from holdfast.plan.graph import Evaluate, ItemsOf, Render, View
from holdfast.plan.resolve import escaped, escaped_key, reference_to
from holdfast.plan.unread import Members, Unread, count_items, locate, members_in, value_in
from holdfast.spec.aliased import Aliased
from holdfast.spec.expr import Find
from holdfast.spec.work import Work, read
from holdfast.values import JSON_DEPTH_MAX, NotJson, decode, encode, is_too_deep, written

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
    if (name := _input_named(source)) is not None:
        return lambda view: view.inputs().get(name)
    if source.kind == "inputs":
        return lambda view: walk(view.inputs(), members, strict=source.strict)
    if source.kind == "vars":
        return _variable(source)
    return lambda view: walk(source.whole(view), members, strict=source.strict)


def _variable(source: Source) -> Evaluate:
    depth, members = source.depth, source.members
    if not members:
        return lambda view: value_in(view.vars_text(view.frames[depth]))
    name, rest = str(members[0]), members[1:]
    return lambda view: walk(view.var(view.frames[depth], name), rest)


def _input_named(source: Source) -> str | None:
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


# --------------------------------------------------------------------------------------------- rendering
#
# Two numbers are tracked while a value is rendered. `view.size` is the size of its larger parts so far, with references
# followed: above the limit nothing more is built. `view.excess` is the difference between the size of the value and of its
# text, because a reference is shorter than its value and an escaped key is longer; it makes the total exact.

Piece = Callable[[View], bytes]
SHORT: Final = 2 * JSON_DEPTH_MAX  # a shorter text cannot be too deep
# Smaller parts are not counted one by one: a definition has too few of them to matter.
COUNTED_BYTES_MIN: Final = 64


class Text(msgspec.Struct, frozen=True):
    """Text around values, already resolved."""

    parts: tuple[str | Source | Lookup | Secret, ...]


Leaf = Source | Lookup | Secret


def copied(template: Any) -> Any:
    """Return a resolved template whose values are copied where they would be referred to."""
    match template:
        case Source():
            return msgspec.structs.replace(template, is_copied=True)
        case Text(parts):
            return Text(tuple(copied(part) for part in parts))
        case Merged(base, own):
            return Merged(copied(base), copied(own))
        case dict():
            return {key: copied(member) for key, member in template.items()}
        case list():
            return [copied(member) for member in template]
        case _:
            pass
    return template


def render(template: Any, *, refers: bool = True, levels: int = 0) -> Render:
    """Compile JSON data that contains leaves (Source, Secret, Text) to a closure that returns its JSON text.

    Constant parts are prepared as text, and rendering inserts the texts of the leaves. With `refers`, large existing values become
    references that are resolved later; without, the text is the value itself. `levels` is the nesting that the author did not
    write. The closure raises TooLarge.
    """
    pieces = _merged(_pieces(template, refers))
    if len(pieces) == 1 and isinstance(pieces[0], bytes):
        constant = pieces[0]
        return lambda view: constant
    escapes = _escapes(template) if refers else 0
    if len(pieces) == 3 and callable(one := pieces[1]):  # one value in an object: the most common case
        head, tail = pieces[0], pieces[2]
        assert isinstance(head, bytes) and isinstance(tail, bytes)

        def around(view: View) -> bytes:
            if view.size or view.excess:  # left from an earlier value; a test is cheaper than a write
                view.size = view.excess = 0
            text = head + one(view) + tail
            if len(text) <= SHORT and not view.excess:
                return text
            return _checked(text, view, levels, escapes)

        return around
    join = _joined(pieces)

    def counted(view: View) -> bytes:
        view.size = view.excess = 0
        return _checked(join(view), view, levels, escapes)

    return counted


def _joined(pieces: Sequence[bytes | Piece]) -> Piece:
    return lambda view: b"".join([piece if isinstance(piece, bytes) else piece(view) for piece in pieces])


def _counted(size: int, view: View) -> None:
    """Count a large part of the value before it is built or referred to."""
    view.size += size
    if view.size > composed.LIMIT:
        raise TooLarge


def _checked(text: bytes, view: View, around: int, escapes: int) -> bytes:
    if len(text) + view.excess - escapes > composed.LIMIT:
        raise TooLarge
    if len(text) > SHORT and is_too_deep(text, view.depth_max + around):
        raise NotJson(f"the value is nested deeper than {view.depth_max} levels")
    return text


def _pieces(template: Any, refers: bool) -> Iterator[bytes | Piece]:
    if isinstance(template, dict):
        yield from _of_object(template, refers)
    elif isinstance(template, list):
        yield b"["
        for index, value in enumerate(template):
            yield b"," if index else b""
            yield from _pieces(value, refers)
        yield b"]"
    elif isinstance(template, Source):
        yield _whole(template, refers)
    elif isinstance(template, Lookup):
        value_of = evaluate(template)
        yield lambda view: _passed_on(value_of(view), None, view, refers)
    elif isinstance(template, Text):
        yield _text(template)
    elif isinstance(template, Merged):
        yield _over(template, refers)
    else:
        yield encode({"$secret": template.name} if isinstance(template, Secret) else template)


def _of_object(template: dict[str, Any], refers: bool) -> Iterator[bytes | Piece]:
    yield b"{"
    for index, (key, value) in enumerate(template.items()):
        yield (b"," if index else b"") + encode(escaped_key(key) if refers else key) + b":"
        yield from _pieces(value, refers)
    yield b"}"


def _escapes(template: Any) -> int:
    """Return how many keys of a template are escaped with a second `$`."""
    if isinstance(template, dict):
        return sum(key.startswith("$") + _escapes(member) for key, member in template.items())
    return sum(map(_escapes, template)) if isinstance(template, list) else 0


def _merged(pieces: Iterator[bytes | Piece]) -> list[bytes | Piece]:
    merged: list[bytes | Piece] = []
    constant: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            constant.append(piece)
            continue
        if constant:
            merged.append(b"".join(constant))
            constant = []
        merged.append(piece)
    return [*merged, b"".join(constant)] if constant else merged


def _whole(source: Source, refers: bool) -> Piece:
    """Render a placeholder that is the whole string: the value keeps its type."""
    value_of, name = evaluate(source), _input_named(source)

    def of_input(view: View) -> bytes:
        value = view.inputs().get(name)
        return written(value) if type(value) is int else _passed_on(value, source, view, refers)

    def piece(view: View) -> bytes:
        value = value_of(view)
        return written(value) if type(value) is int else _passed_on(value, source, view, refers)

    return piece if name is None else of_input


def _over(merged: Merged, refers: bool) -> Piece:
    """Render an object with replaced members. Large members that are passed on unchanged become references."""
    if not merged.own:
        return _whole(merged.base, refers)
    own = _joined(_merged(_pieces(merged.own, refers)))
    value_of, names = evaluate(merged.base), frozenset(merged.own)
    escapes = _escapes(merged.own) if refers else 0

    def piece(view: View) -> bytes:
        view.excess -= escapes
        parts = [own(view)[1:-1]]
        for key, value in members_in(value_of(view)).items():
            if key not in names:
                at = msgspec.structs.replace(merged.base, members=(*merged.base.members, key))
                part = _passed_on(value, at, view, refers)
                view.excess -= refers and key.startswith("$")
                parts.append(encode(escaped_key(key) if refers else key) + b":" + part)
        return b"{" + b",".join(parts) + b"}"

    return piece


def _passed_on(value: Any, source: Source | None, view: View, refers: bool) -> bytes:
    if type(value) is Raw and refers and source is not None and source.stays:  # without a copy of it
        _counted(len(value), view)
        return _referred(source, len(value), view)
    text = written(value)
    if len(text) > COUNTED_BYTES_MIN:
        _counted(len(text), view)
        if len(text) > REFERENCE_BYTES_MIN and refers and source is not None and source.stays:
            return _referred(source, len(text), view)
    if refers and text.find(b'"$') >= 0 and not isinstance(value, str):
        marked = escaped(text)
        view.excess += len(text) - len(marked)
        return marked
    return text


def _referred(source: Source, size: int, view: View) -> bytes:
    reference = reference_to(source.path(view), source.members)
    view.excess += size - len(reference)
    return reference


def all_vars(depth: int, *, refers: bool = True) -> Render:
    """Return all variables of the plan in a frame, as JSON text."""

    def text_of_all(view: View) -> bytes:
        text = view.vars_text(view.frames[depth])
        if len(text) > composed.LIMIT:
            raise TooLarge
        return escaped(text) if refers and b'"$' in text else text

    return text_of_all


def _text(text: Text) -> Piece:
    if any(isinstance(part, Secret) for part in text.parts):
        return _secret_text(text)
    pieces = [
        b"".join(escaped_chunks(part)) if isinstance(part, str) else evaluate(part)
        for part in text.parts
        if not isinstance(part, Secret)
    ]

    def piece(view: View) -> bytes:
        parts = [b'"']
        for each in pieces:
            for chunk in (each,) if type(each) is bytes else escaped_text(each(view)):  # type: ignore[operator]
                _counted(len(chunk), view)
                parts.append(chunk)
        parts.append(b'"')
        return b"".join(parts)

    return piece


def _secret_text(text: Text) -> Piece:
    """Keep text around a secret in parts. They are joined only when the call is made."""
    pieces = [part if isinstance(part, str | Secret) else evaluate(part) for part in text.parts]

    def piece(view: View) -> bytes:
        parts = []
        for each in pieces:
            for chunk in _secret_parts(each, view):
                _counted(len(chunk) + 1, view)
                parts.append(chunk)
        return b'{"$text":[' + b",".join(parts) + b"]}"

    return piece


def _secret_parts(part: str | Secret | Evaluate, view: View) -> Iterator[bytes]:
    if isinstance(part, Secret):
        yield encode({"$secret": part.name})
        return
    for chunk in escaped_chunks(part if isinstance(part, str) else printed(part(view))):
        yield b'"' + chunk + b'"'


def text_of(template: Any) -> Callable[[View], str]:
    """Compile a template whose result is text, whatever the types of its values. Other data becomes its JSON text."""
    if not isinstance(template, str | Text | Leaf):
        text = render(template, refers=False)
        return lambda view: text(view).decode()
    text = render(_as_text(template))
    return lambda view: decode(text(view))


def texts_of(templates: Sequence[Any]) -> Callable[[View], list[str]]:
    """The same for several templates, which count as one value towards the size limit."""
    text = render([_as_text(template) for template in templates])
    return lambda view: decode(text(view))


def _as_text(template: Any) -> str | Text:
    if isinstance(template, str):
        return template
    parts = template.parts if isinstance(template, Text) else (template,)
    return Text(tuple(part for part in parts if not isinstance(part, Secret)))


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
