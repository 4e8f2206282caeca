"""Expressions as closures: what a template or a JSONPath gives, over what a step can see.

Knows how values are walked, printed and referred to. Does not know text (the AST comes parsed) or where values are
stored (the View hands them over). Rendered text is data: nothing here, and nothing later, parses it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.plan.graph import Evaluate, ItemsOf, Render, View
from holdfast.values import JSON_DEPTH_MAX, NotJson, decode, encode, is_too_deep, written

# A part over this size that is wholly an existing value is stored as a reference to it, so that a large output
# used by a thousand items stands in the journal once.
REFERENCE_BYTES_MIN: Final = 1024

Members = tuple[str | int, ...]


class Source(msgspec.Struct, frozen=True):
    """A value that exists in a run, and a place within it.

    `kind` is "inputs", "env", "step" (frame depth and the path from there), "item" (the item of the frame at that depth)
    or "vars" (the variables of the plan in that frame).
    """

    kind: str
    members: Members
    depth: int = 0
    tail: str = ""
    strict: bool = False  # a JSONPath: names are of objects and numbers of arrays; a template is lenient

    def path(self, view: View) -> str:
        """How the journal names the value: a step by its path, an item by its frame, the inputs by nothing."""
        if self.kind == "inputs":
            return ""
        frame = view.frames[self.depth]
        if self.kind == "item":
            return frame
        return f"{frame}.{self.tail}" if frame else self.tail

    @property
    def stays(self) -> bool:
        """Can the journal refer to it? What is written again, or stands in no row, can not."""
        return self.kind not in ("env", "vars")

    def whole(self, view: View) -> Any:
        if self.kind == "inputs":
            return view.inputs()
        if self.kind == "env":
            return view.env()
        path = self.path(view)
        return view.item(path) if self.kind == "item" else view.output(path)


class Secret(msgspec.Struct, frozen=True):
    name: str


class Merged(msgspec.Struct, frozen=True):
    """An object that exists, with members of its own put over it."""

    base: Source
    own: dict[str, Any]  # templates


class Document(msgspec.Struct, frozen=True):
    """The whole document that a step can see, for paths that search it: names → values."""

    members: tuple[tuple[Members, Source], ...]


class Lookup(msgspec.Struct, frozen=True):
    """A place that can only be found in the document as a whole."""

    document: Document
    members: Members


def walk(value: Any, members: Members, *, strict: bool = False) -> Any:
    """The value at a place; null where there is none. Unless strict, a numeric name reaches into arrays and objects."""
    for member in members:
        if strict and not isinstance(value, dict if isinstance(member, str) else list):
            return None
        if isinstance(value, dict):
            value = value.get(member if isinstance(member, str) else str(member))
        elif isinstance(value, list) and (isinstance(member, int) or member.isdecimal()):
            index = int(member)
            value = value[index] if -len(value) <= index < len(value) else None
        else:
            return None
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
        return lambda view: decode(view.vars_text(view.frames[depth]))
    name, rest = str(members[0]), members[1:]
    return lambda view: walk(view.var(view.frames[depth], name), rest)


def _input_named(source: Source) -> str | None:
    """`inputs.name`, the commonest of all: inputs are always an object, so nothing has to be walked."""
    members = source.members
    is_plain = source.kind == "inputs" and len(members) == 1 and isinstance(members[0], str)
    return str(members[0]) if is_plain else None


def document(doc: Document) -> Callable[[View], dict[str, Any]]:
    def build(view: View) -> dict[str, Any]:
        root: dict[str, Any] = {}
        for members, source in doc.members:
            place = root
            for member in members[:-1]:
                place = place.setdefault(str(member), {})
            place[str(members[-1])] = walk(source.whole(view), source.members)
        return root

    return build


def search(doc: Document, find: Callable[[Any], list[Any]]) -> Evaluate:
    """A path that may hit several places: none is null, one is that value, several are a list."""
    build = document(doc)

    def evaluated(view: View) -> Any:
        hits = find(build(view))
        return hits[0] if len(hits) == 1 else hits or None

    return evaluated


def members_all(source: Source) -> Evaluate:
    """`$.a[*]`: the members of a value, by the same rule of none, one and several."""
    inner = evaluate(source)

    def evaluated(view: View) -> Any:
        value = inner(view)
        hits = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
        return hits[0] if len(hits) == 1 else hits or None

    return evaluated


# --------------------------------------------------------------------------------------------- rendering

Piece = Callable[[View], bytes]


class Text(msgspec.Struct, frozen=True):
    """Text around values, already resolved."""

    parts: tuple[str | Source | Lookup | Secret, ...]


Leaf = Source | Lookup | Secret


def render(template: Any) -> Render:
    """JSON data with leaves (Source, Secret, Text) among it → a closure that gives its JSON text.

    What does not change is text already: rendering is putting the leaves' texts between.
    """
    pieces = _merged(_pieces(template))
    if len(pieces) == 1 and isinstance(pieces[0], bytes):
        constant = pieces[0]
        return lambda view: constant
    if len(pieces) == 3 and callable(one := pieces[1]):  # one value in an object: the commonest of all
        head, tail = pieces[0], pieces[2]
        assert isinstance(head, bytes) and isinstance(tail, bytes)

        def around(view: View) -> bytes:
            text = head + one(view) + tail
            return text if len(text) <= 2 * JSON_DEPTH_MAX else _checked(text)

        return around

    return lambda view: _checked(
        b"".join([piece if isinstance(piece, bytes) else piece(view) for piece in pieces])
    )


def _checked(text: bytes) -> bytes:
    if len(text) > 2 * JSON_DEPTH_MAX and is_too_deep(text):
        raise NotJson(f"the value is nested deeper than {JSON_DEPTH_MAX} levels")
    return text


def _pieces(template: Any) -> Iterator[bytes | Piece]:
    if isinstance(template, dict):
        yield from _of_object(template)
    elif isinstance(template, list):
        yield b"["
        for index, value in enumerate(template):
            yield b"," if index else b""
            yield from _pieces(value)
        yield b"]"
    elif isinstance(template, Source):
        yield _whole(template)
    elif isinstance(template, Lookup):
        value_of = evaluate(template)
        yield lambda view: encode(_escaped(value_of(view)))
    elif isinstance(template, Text):
        yield _text(template)
    elif isinstance(template, Merged):
        yield _over(template)
    else:
        yield encode({"$secret": template.name} if isinstance(template, Secret) else template)


def _of_object(template: dict[str, Any]) -> Iterator[bytes | Piece]:
    yield b"{"
    for index, (key, value) in enumerate(template.items()):
        yield (b"," if index else b"") + encode(_escaped_key(key)) + b":"
        yield from _pieces(value)
    yield b"}"


def _merged(pieces: Iterator[bytes | Piece]) -> list[bytes | Piece]:
    merged: list[bytes | Piece] = []
    for piece in pieces:
        if merged and isinstance(piece, bytes) and isinstance(last := merged[-1], bytes):
            merged[-1] = last + piece
        else:
            merged.append(piece)
    return merged


def _whole(source: Source) -> Piece:
    """A placeholder that is the whole string keeps the type of its value."""
    value_of, name = evaluate(source), _input_named(source)

    def piece(view: View) -> bytes:
        value = value_of(view) if name is None else view.inputs().get(name)
        return written(value) if type(value) is int else _passed_on(value, source, view)

    return piece


def _over(merged: Merged) -> Piece:
    """Members that are only passed on are referred to one by one, as far as they are large."""
    if not merged.own:
        return _whole(merged.base)
    value_of, own = evaluate(merged.base), render(merged.own)
    names = frozenset(merged.own)

    def piece(view: View) -> bytes:
        parts = [own(view)[1:-1]]
        for key, value in (value_of(view) or {}).items():
            if key not in names:
                at = msgspec.structs.replace(merged.base, members=(*merged.base.members, key))
                parts.append(encode(_escaped_key(key)) + b":" + _passed_on(value, at, view))
        return b"{" + b",".join(parts) + b"}"

    return piece


def _passed_on(value: Any, source: Source, view: View) -> bytes:
    text = encode(value)
    if len(text) > REFERENCE_BYTES_MIN and source.stays:
        return encode({"$of": source.path(view), "at": pointer_of(source.members)})
    return encode(_escaped(value)) if b'"$' in text and not isinstance(value, str) else text


def all_vars(depth: int) -> Render:
    """All variables of the plan in a frame, as the text of a value."""

    def text_of_all(view: View) -> bytes:
        text = view.vars_text(view.frames[depth])
        return encode(_escaped(decode(text))) if b'"$' in text else text

    return text_of_all


def _text(text: Text) -> Piece:
    if any(isinstance(part, Secret) for part in text.parts):
        return _secret_text(text)
    pieces = [
        part if isinstance(part, str) else evaluate(part)
        for part in text.parts
        if not isinstance(part, Secret)
    ]

    def piece(view: View) -> bytes:
        return encode("".join([part if isinstance(part, str) else printed(part(view)) for part in pieces]))

    return piece


def _secret_text(text: Text) -> Piece:
    """Text around a secret stays in parts: only the caller, at the last moment, puts them together."""

    def piece(view: View) -> bytes:
        parts: list[Any] = []
        for part in text.parts:
            if isinstance(part, Secret):
                parts.append({"$secret": part.name})
            else:
                parts.append(part if isinstance(part, str) else printed(evaluate(part)(view)))
        return encode({"$text": parts})

    return piece


def text_of(template: Any) -> Callable[[View], str]:
    """A template that is text, whatever the type of the values in it; data is the text of its JSON."""
    if not isinstance(template, str | Text | Leaf):
        text = render(template)
        return lambda view: text(view).decode()
    parts = template.parts if isinstance(template, Text) else (template,)
    pieces = [
        part if isinstance(part, str) else evaluate(part) for part in parts if not isinstance(part, Secret)
    ]
    return lambda view: "".join([part if isinstance(part, str) else printed(part(view)) for part in pieces])


def printed(value: Any) -> str:
    """A value inside text: strings as they are, null as nothing, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()


def pointer_of(members: Members) -> str:
    return "".join("/" + str(member).replace("~", "~0").replace("/", "~1") for member in members)


def members_of(pointer: str) -> Members:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _escaped_key(key: str) -> str:
    return "$" + key if key.startswith("$") else key


def _escaped(value: Any) -> Any:
    """A user's own keys that begin with `$` get a second one, so that no data can pass for a reference."""
    if isinstance(value, dict):
        return {_escaped_key(key): _escaped(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_escaped(member) for member in value]
    return value


class SecretMissing(ValueError):
    kind = "secret"


ValueAt = Callable[[str, Members], Any]
SecretOf = Callable[[str], str]


def _no_secrets(name: str) -> str:
    raise SecretMissing(f"the secret {name!r} stands where none can be filled in")


def resolved(text: bytes, value_at: ValueAt, secret_of: SecretOf = _no_secrets) -> Any:
    """Rendered JSON text → the value a caller is given: references followed, secrets filled in, escapes undone."""
    return _resolved(decode(text), value_at, secret_of)


def _resolved(value: Any, value_at: ValueAt, secret_of: SecretOf) -> Any:
    if isinstance(value, dict):
        if "$secret" in value:
            return secret_of(value["$secret"])
        if "$text" in value:
            parts = value["$text"]
            return "".join([part if isinstance(part, str) else secret_of(part["$secret"]) for part in parts])
        if "$of" in value:
            return value_at(value["$of"], members_of(value["at"]))
        return {
            key[1:] if key.startswith("$$") else key: _resolved(member, value_at, secret_of)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [_resolved(member, value_at, secret_of) for member in value]
    return value


# ------------------------------------------------------------------------------------------------- items


def items_of(evaluated: Evaluate, source: Source | None) -> ItemsOf:
    """The items of a fan-out: null is none, a list its members, anything else a single item.

    A list that exists already is referred to, not copied, and is never built as Python objects: its members are
    found in the text, so a million of them cost their text and an index.
    """

    def items(view: View) -> tuple[int, bytes]:
        if source is not None and (found := _located(view, source)) is not None:
            count = count_members(found)
            if len(found) <= REFERENCE_BYTES_MIN:
                return count, found
            return count, encode({"$of": source.path(view), "at": pointer_of(source.members)})
        value = evaluated(view)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        return len(listed), encode(listed)

    return items


def _located(view: View, source: Source) -> bytes | None:
    """The text of an existing list, cut out of the value that holds it; None where there is no list."""
    text = view.raw(source.path(view))
    found = None if text is None else locate(text, source.members, strict=source.strict)
    return found if found is not None and found[:1] == b"[" else None


_members_of_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_members_of_array = msgspec.json.Decoder(list[msgspec.Raw])


def locate(text: bytes, members: Members, *, strict: bool = False) -> bytes | None:
    """The JSON text at a place within a JSON text, without building what lies around it."""
    for member in members:
        if strict and text[:1] != (b"{" if isinstance(member, str) else b"["):
            return None
        if text[:1] == b"{":
            inner = _members_of_object.decode(text).get(str(member))
        elif text[:1] == b"[" and str(member).removeprefix("-").isdecimal():
            listed, index = _members_of_array.decode(text), int(member)
            inner = listed[index] if -len(listed) <= index < len(listed) else None
        else:
            inner = None
        if inner is None:
            return None
        text = bytes(inner)
    return text


def is_flat(array: bytes) -> bool:
    """No strings and nothing nested: every comma of the text divides two members."""
    return b'"' not in array and array.rfind(b"[") == 0 and b"{" not in array


def count_members(array: bytes) -> int:
    if array == b"[]":
        return 0
    if is_flat(array):
        return array.count(b",") + 1
    return len(_members_of_array.decode(array))


def offsets_of(array: bytes) -> Sequence[int]:
    """Where each member of a compact JSON array begins; one more entry for the end."""
    from array import array as packed

    offsets = packed("L", [1])
    if array == b"[]":
        return offsets
    if is_flat(array):
        at, find = 1, array.find
        while (at := find(b",", at) + 1) > 0:
            offsets.append(at)
    else:
        at = 1
        for member in _members_of_array.decode(array):
            at += len(bytes(member)) + 1
            offsets.append(at)
        offsets.pop()
    offsets.append(len(array))
    return offsets
