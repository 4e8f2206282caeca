"""A patch applied to the text of a definition: comments, order and layout stay where the patch does not touch them.

    text + patch ──► the same text with other keys and values     or, where that fails, the data written as a new text

Knows YAML's layout. Must not know what any key means. The edited text is read again: it must say what the patched data say.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.errors import InvalidSpec
from holdfast.spec.patch import PatchError
from holdfast.spec.read import read, write

_INLINE_CHARS_MAX: Final = 80  # a longer value gets lines of its own
_FIRST_KEYS: Final = ("id", "name")  # which stand at the top of their mapping


class Edited(NamedTuple):
    """A text after a patch. `is_rewritten` if its comments and layout could not be kept."""

    text: str
    is_rewritten: bool


def edited(text: str, patch: Sequence[Mapping[str, Any]], data: Any) -> Edited:
    """Apply a patch to the text; `data` is the patched data."""
    if text.lstrip().startswith("{"):
        return Edited(
            json.dumps(data, indent=2, ensure_ascii=False) + "\n", False
        )  # JSON has no comments to keep
    try:
        changed = text
        for operation in patch:
            changed = _apply(changed, operation)
        if read(changed).data == data:
            return Edited(changed, False)
    except (InvalidSpec, PatchError):
        pass
    return Edited(write(data), True)


class _Span(NamedTuple):
    """A member of a mapping or list: its nodes, and those of its neighbours."""

    parent: Any
    key: Any
    value: Any
    number: int


def _apply(text: str, operation: Mapping[str, Any]) -> str:
    op, path = operation["op"], operation["path"].split("/")[1:]
    root = _composed(text)
    if op == "move":
        source = operation["from"].split("/")[1:]
        if source[:-1] != path[:-1]:
            raise PatchError("only a rename can be made in the text")
        span = _find(root, source)
        if span.key is None or _find_or_none(root, path):
            raise PatchError("the entry cannot be renamed in the text")
        return _spliced(text, _start(span.key), _end(span.key), _inline(_unescaped(path[-1])))
    if op == "remove":
        return _removed(text, _find(root, path))
    span_or_none = _find_or_none(root, path)
    if span_or_none is not None and not (op == "add" and span_or_none.key is None):
        return _replaced(text, span_or_none, operation["value"])
    if op != "add":
        raise PatchError("there is nothing to replace in the text")
    return _added(text, root, path, operation["value"])


def _composed(text: str) -> Any:
    import yaml

    try:
        return yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise PatchError(str(error)) from None


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _find(root: Any, path: Sequence[str]) -> _Span:
    found = _find_or_none(root, path)
    if found is None:
        raise PatchError("the place is not in the text")
    return found


def _find_or_none(root: Any, path: Sequence[str]) -> _Span | None:
    found: _Span | None = None
    node = root
    for part in map(_unescaped, path):
        members = _members(node)
        found = next((span for span in members if _name_of(span) == part), None)
        if found is None:
            return None
        node = found.value
    return found


def _members(node: Any) -> list[_Span]:
    kind = getattr(node, "id", "")
    if kind == "mapping":
        return [_Span(node, key, value, number) for number, (key, value) in enumerate(node.value)]
    if kind == "sequence":
        return [_Span(node, None, value, number) for number, value in enumerate(node.value)]
    return []


def _name_of(span: _Span) -> str:
    return str(span.number) if span.key is None else str(span.key.value)


def _start(node: Any) -> int:
    return int(node.start_mark.index)


def _end(node: Any) -> int:
    """Where a node ends. A block ends with its last value: its own mark is where the next token begins."""
    while getattr(node, "id", "") in ("mapping", "sequence") and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _spliced(text: str, start: int, end: int, inserted: str) -> str:
    return text[:start] + inserted + text[end:]


def _replaced(text: str, span: _Span, value: Any) -> str:
    start, end = _start(span.value), _end(span.value)
    if start == end:  # an empty value: null
        return _spliced(text, start, end, f" {_inline(value)}")
    column = int((span.key or span.value).start_mark.column)
    return _spliced(
        text,
        start,
        end,
        _written(value, column, is_flow=bool(span.parent.flow_style), is_key=span.key is not None),
    )


def _added(text: str, root: Any, path: Sequence[str], value: Any) -> str:
    around = root if len(path) == 1 else _find(root, path[:-1]).value
    if getattr(around, "id", "") != "mapping" or not around.value:
        raise PatchError("only a key can be added in the text")
    name = _unescaped(path[-1])
    first, is_flow = around.value[0][0], bool(around.flow_style)
    column = int(first.start_mark.column)
    entry = f"{_inline(name)}: {_written(value, column, is_flow=is_flow, is_key=True)}"
    if name in _FIRST_KEYS:
        return _spliced(
            text, _start(first), _start(first), entry + (", " if is_flow else "\n" + " " * column)
        )
    end = _end(around.value[-1][1])
    return _spliced(text, end, end, f", {entry}" if is_flow else "\n" + " " * column + entry)


def _removed(text: str, span: _Span) -> str:
    members = _members(span.parent)
    if len(members) < 2:
        raise PatchError("the last entry cannot be removed in the text")
    own = span.key or span.value
    if span.number + 1 < len(members):
        after = members[span.number + 1]
        return _spliced(text, _start(own), _start(after.key or after.value), "")
    line = text.rfind("\n", 0, _start(own))
    is_alone = not text[line + 1 : _start(own)].strip() and not span.parent.flow_style
    start = line if is_alone else _end(members[span.number - 1].value)
    return _spliced(text, start, _end(span.value), "")


def _written(value: Any, column: int, *, is_flow: bool, is_key: bool) -> str:
    inline = _inline(value)
    if is_flow or not isinstance(value, dict | list) or not value or len(inline) <= _INLINE_CHARS_MAX:
        return inline
    block = write(value).rstrip("\n")
    indent = " " * (column + 2 if is_key else column)
    return "\n" + textwrap.indent(block, indent) if is_key else textwrap.indent(block, indent).lstrip()


def _inline(value: Any) -> str:
    """A value in one line: plain where YAML allows it."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False) if not value else _flow(value)
    return (
        write(value).removesuffix("...\n").strip()
        if not isinstance(value, str) or "\n" not in value
        else json.dumps(value)
    )


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {_flow_item(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(_flow_item(item) for item in value) + "]"


def _flow_item(value: Any) -> str:
    return _flow(value) if isinstance(value, dict | list) and value else _quoted(value)


def _quoted(value: Any) -> str:
    """A single value within brackets, where commas and brackets would end it."""
    if isinstance(value, str):
        plain = _inline(value)
        return json.dumps(value, ensure_ascii=False) if any(mark in value for mark in ",[]{}#:") else plain
    return json.dumps(value)
