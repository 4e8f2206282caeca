"""Compile templates to closures that render JSON text or plain text. Rendered text is data and is never parsed as a template again.

Two numbers are tracked while a value is rendered. `view.size` is the size of its larger parts so far, with references followed:
above the limit nothing more is built. `view.excess` is the difference between the size of the value and of its text, because a
reference is shorter than its value and an escaped key is longer; it makes the total exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from holdfast.plan import composed
from holdfast.plan.composed import TooLarge, escaped_chunks, escaped_text, printed
from holdfast.plan.expr import REFERENCE_BYTES_MIN, Lookup, Merged, Secret, Source, evaluate, input_named
from holdfast.plan.resolve import escaped, escaped_key, reference_to
from holdfast.plan.unread import members_in
from holdfast.plan.view import Evaluate, Render, View
from holdfast.values import JSON_DEPTH_MAX, NotJson, decode, encode, is_too_deep, written

T = TypeVar("T")
Piece = Callable[[View], bytes]
SHORT: Final = 2 * JSON_DEPTH_MAX  # a shorter text cannot be too deep
# Smaller parts are not counted one by one: a definition has too few of them to matter.
COUNTED_BYTES_MIN: Final = 64
_SCALARS: Final = frozenset({int, str, bool, type(None)})


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
    constant = [piece if isinstance(piece, bytes) else b"" for piece in pieces]
    rendered = [(place, piece) for place, piece in enumerate(pieces) if not isinstance(piece, bytes)]

    def join(view: View) -> bytes:
        texts = constant.copy()
        for place, piece in rendered:
            texts[place] = piece(view)
        return b"".join(texts)

    return join


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


def of_inputs(template: Any) -> Callable[[dict[str, Any]], bytes | None] | None:
    """Compile a template that refers to nothing but single inputs of the run: the closure returns what that of `render` does, or None
    if a value or the text is not short. None if the template refers to anything else."""
    pieces: list[bytes | str] = []
    for part in _merged(_parts(template, refers=True)):
        if isinstance(part, bytes):
            pieces.append(part)
        elif isinstance(part, Source) and (name := input_named(part)) is not None:
            pieces.append(name)
        else:
            return None
    if len(pieces) == 1 and isinstance(constant := pieces[0], bytes):
        return lambda given: constant
    if len(pieces) == 3 and isinstance(one := pieces[1], str):  # as in `render`
        head, tail = pieces[0], pieces[2]
        assert isinstance(head, bytes) and isinstance(tail, bytes)

        def around(given: dict[str, Any]) -> bytes | None:
            value = given.get(one)
            if type(value) not in _SCALARS:
                return None
            text = head + written(value) + tail
            return text if len(text) <= SHORT else None

        return around

    def joined(given: dict[str, Any]) -> bytes | None:
        texts = []
        for piece in pieces:
            if isinstance(piece, bytes):
                texts.append(piece)
            elif type(value := given.get(piece)) in _SCALARS:
                texts.append(written(value))
            else:
                return None
        text = b"".join(texts)
        return text if len(text) <= SHORT else None

    return joined


def _pieces(template: Any, refers: bool) -> Iterator[bytes | Piece]:
    for part in _parts(template, refers):
        yield part if isinstance(part, bytes) else _piece(part, refers)


def _piece(part: Source | Lookup | Text | Merged, refers: bool) -> Piece:
    if isinstance(part, Source):
        return _whole(part, refers)
    if isinstance(part, Lookup):
        value_of = evaluate(part)
        return lambda view: _passed_on(value_of(view), None, view, refers)
    return _text(part) if isinstance(part, Text) else _over(part, refers)


def _parts(template: Any, refers: bool) -> Iterator[bytes | Source | Lookup | Text | Merged]:
    """Return the constant parts of a template as text, and between them what must be looked up."""
    if isinstance(template, dict):
        yield b"{"
        for index, (key, value) in enumerate(template.items()):
            yield (b"," if index else b"") + encode(escaped_key(key) if refers else key) + b":"
            yield from _parts(value, refers)
        yield b"}"
    elif isinstance(template, list):
        yield b"["
        for index, value in enumerate(template):
            yield b"," if index else b""
            yield from _parts(value, refers)
        yield b"]"
    elif isinstance(template, Source | Lookup | Text | Merged):
        yield template
    else:
        yield encode({"$secret": template.name} if isinstance(template, Secret) else template)


def _escapes(template: Any) -> int:
    """Return how many keys of a template are escaped with a second `$`."""
    if isinstance(template, dict):
        return sum(key.startswith("$") + _escapes(member) for key, member in template.items())
    return sum(map(_escapes, template)) if isinstance(template, list) else 0


def _merged(pieces: Iterator[bytes | T]) -> list[bytes | T]:
    merged: list[bytes | T] = []
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
    value_of, name = evaluate(source), input_named(source)

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
