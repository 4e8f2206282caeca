"""YAML or JSON text → plain data with the position of each value; and plain data → YAML text.

    text ──► size, encoding, characters ──► parser events ──► values and their places ──► Document
                                            (one at a time)

Knows the characters, YAML's grammar through the C parser, and the types of YAML 1.2's core schema, which are
JSON's. Must not know what any key means. JSON is read by the same parser, being a part of YAML, so it has
places too.

The text may be hostile. The C parser keeps a nested node on its own stack and crashes the process at some
25,000 levels, but only when it is asked to build a tree. As a stream of events it reads only a little ahead
of what was asked for, so a limit that is checked at each event stops it in time.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import msgspec

from holdfast import limits
from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.document import Document, Key, Mark, Place, pointer_to, unescaped
from holdfast.spec.mend import mended
from holdfast.spec.scalars import NUMBER, WORDS, core_value
from holdfast.values import JSON_DEPTH_MAX, NotJson, decode, encode

if TYPE_CHECKING:
    import yaml

# A definition as JSON, where each text has its quotation marks and `~` is `null`, is several times as long as its text at
# most. Each key, value, and bracket of a text is an event (nodes_max): a text of 256 KiB with 10,000 steps has 26 bytes for
# each step, which are at most 12 events.
DATA_PER_TEXT: Final = 8
# People do not read more at once, and a hostile text could consist of nothing but mistakes.
PROBLEMS_MAX: Final = 100

SPEC_SUFFIXES: Final = (".yaml", ".yml", ".json")


def read(text: str | bytes, source: str = "") -> Document:
    """Read one document, or raise InvalidSpec with every problem that was found."""
    document = parsed(text, source)
    if document.problems:
        raise InvalidSpec(document.problems)
    return document


def parsed(text: str | bytes, source: str = "") -> Document:
    """Read one document to its end, with the problems that did not prevent this."""
    builder = _Builder(source)
    try:
        for event in _events(_decoded(text, builder), builder):
            builder.take(event)
    except _Unreadable:
        raise InvalidSpec(_with_repair(text, builder.problems)) from None
    return Document(builder.data, builder.root, source, tuple(builder.repaired()), text)


def _with_repair(text: str | bytes, problems: list[Problem]) -> list[Problem]:
    """The problems of a text that cannot be read; the last one, which ended the reading, with the whole document as its
    patch, if the text can be mended."""
    for attempt in mended(text):
        builder = _Builder("")
        try:
            for event in _events(_decoded(attempt, builder), builder):
                builder.take(event)
        except _Unreadable:
            continue
        if isinstance(builder.data, dict | list):
            patch = ({"op": "replace", "path": "", "value": builder.data},)
            return [*problems[:-1], msgspec.structs.replace(problems[-1], patch=patch)]
    return problems


def text_of(path: str | os.PathLike[str]) -> bytes:
    """The text of a file; of a file that is too long, one byte more than allowed, so that the reader sees it."""
    return bytes_of(path, limits.now.spec_bytes_max + 1)


def bytes_of(path: str | os.PathLike[str], most: int, what: str = "a definition") -> bytes:
    """The first bytes of a regular file."""
    # to open a FIFO would wait for a writer, and to open a device may do anything
    _refuse_special(os.stat(path), path, what)
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        _refuse_special(os.fstat(file.fileno()), path, what)  # the file may have been replaced since
        return file.read(most)


def _refuse_special(found: os.stat_result, path: str | os.PathLike[str], wanted: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        what = next((name for is_one, name in _SPECIAL if is_one(found.st_mode)), "something else")
        raise OSError(errno.EINVAL, f"is {what}; {wanted} is a regular file", os.fspath(path))


_SPECIAL: Final = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def plain_from(data: Any, source: str = "") -> Any:
    """A copy of plain data, as JSON has it, or InvalidSpec."""
    return decode(plain_text(data, source))


def plain_text(data: Any, source: str = "") -> bytes:
    """The JSON text of a definition that was given as data, or InvalidSpec."""
    try:
        text = encode(data)
    except NotJson as error:
        message, hint = f"the definition is not JSON: {error}", "use texts, numbers, lists and dicts"
        raise InvalidSpec([Problem("not_json", message, hint=hint, source=source)]) from None
    most = DATA_PER_TEXT * limits.now.spec_bytes_max
    if len(text) > most:
        message = f"the definition is larger than {limits.size(most)} ({limits.met('spec_bytes_max')})"
        hint = "use several workflows, and give data as inputs"
        raise InvalidSpec([Problem("too_large", message, hint=hint, source=source)])
    return text


def named(data: Any, name: str | None) -> Any:
    """The data of a definition under a name that is given from outside, if one is."""
    return data | {"name": name} if name is not None and isinstance(data, dict) else data


def write(data: Any) -> str:
    """YAML text that `read` turns into the same data."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # `read` refuses them: a value that occurs twice is written twice

    def text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
        # The library quotes what YAML 1.1 would take for something else, which leaves out `1e3` and `0o17`.
        style = None if _is_text(value) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    Dumper.add_representer(str, text)
    return yaml.dump(data, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=100)


# ------------------------------------------------------------------------------------------------- characters


class _Unreadable(Exception):
    """The rest of the text cannot be read; the problem has been recorded."""


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|[\ud800-\udfff]|[\ufffe\uffff]")
_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _decoded(text: str | bytes, builder: _Builder) -> str:
    # The cheap test comes first: a text of gigabytes is not copied to learn that it is too long.
    if len(text) > limits.now.spec_bytes_max or len(_encoded(text)) > limits.now.spec_bytes_max:
        hint = "use several workflows, and give data as inputs"
        builder.stop(
            "too_large",
            f"the text is larger than {limits.size(limits.now.spec_bytes_max)} ({limits.met('spec_bytes_max')})",
            (1, 1),
            hint,
        )
    if isinstance(text, bytes):
        text = _from_utf8(text, builder)
    text = text.removeprefix("\ufeff")
    found = _FORBIDDEN.search(text)
    if found:
        name = f"U+{ord(found[0]):04X}"
        mark = _mark_at(text[: found.start()])
        builder.stop("invalid_character", f"the character {name} is not allowed", mark, "remove or escape it")
    return _without_surrogates(text)


def _from_utf8(data: bytes, builder: _Builder) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        mark = _mark_at(data[: error.start].decode("utf-8", "replace"))
        builder.stop("not_utf8", "the text is not UTF-8", mark, "save the file as UTF-8")


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


def _mark_at(before: str) -> Mark:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _without_surrogates(text: str) -> str:
    """Accept emoji that JSON writes as two escapes, which YAML forbids. Later columns of its line shrink by two."""
    if not _SURROGATE_PAIR.search(text) or not _is_json(text):
        return text  # in YAML the same characters may be plain text

    def joined(found: re.Match[str]) -> str:
        high, low = int(found[1], 16), int(found[2], 16)
        return f"\\U{0x10000 + ((high & 0x3FF) << 10 | low & 0x3FF):08x}"

    # An escaped backslash before the `u` makes it a plain letter, so step over escapes one by one.
    return re.sub(r"\\[^u]|" + _SURROGATE_PAIR.pattern, lambda m: joined(m) if m[1] else m[0], text)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


# ----------------------------------------------------------------------------------------------------- events


def _events(text: str, builder: _Builder) -> Iterable[yaml.Event]:
    import yaml  # here, because a process that runs stored plans reads no YAML and need not pay for it

    try:
        for count, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
            if count >= limits.now.nodes_max:
                message = f"the text has more than {limits.now.nodes_max:,} keys, values and brackets ({limits.met('nodes_max')})"
                builder.stop("too_many_values", message, _mark_of(event), "give data as inputs")
            yield event
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        mark = (where.line + 1, where.column + 1) if where else (1, 1)
        builder.stop("syntax", _syntax_message(error), mark, _syntax_hint(error))


def _syntax_message(error: Exception) -> str:
    context, problem = getattr(error, "context", None), getattr(error, "problem", None)
    return ", ".join(part for part in (context, problem) if part) or str(error).partition("\n")[0]


_SYNTAX_HINTS: Final = {
    "mapping values are not allowed": "quote a text that contains `: `",
    "cannot start any token": "indent with blanks, not tabs, and quote a text that starts with @, ` or %",
    "did not find expected <document start>": "a definition is one document",
    "found unexpected end of stream": "close the quotation mark",
    "did not find expected ',' or": "a comma or a bracket is missing, or a key has more than 1,000 characters",
    "could not find expected ':'": "a `: ` is missing, or a key has more than 1,000 characters",
    "expected alphabetic or numeric character": "quote a text that starts with & or *",
}


def _syntax_hint(error: Exception) -> str:
    problem = str(getattr(error, "problem", ""))
    hints = (hint for part, hint in _SYNTAX_HINTS.items() if part in problem)
    return next(hints, "check the indentation and quotation marks of this line and the line before")


def _mark_of(event: yaml.Event) -> Mark:
    start = event.start_mark
    return (start.line + 1, start.column + 1) if start else (1, 1)


# --------------------------------------------------------------------------------------------------- building


class _Open(NamedTuple):
    """A mapping or sequence whose end has not been read yet."""

    value: dict[str, Any] | list[Any]
    place: Place


class _Builder:
    """Turns events into values. Keeps its own stack, so that depth costs no Python frames."""

    def __init__(self, source: str) -> None:
        self.data: Any = None
        self.root = Place((1, 1))
        self.problems: list[Problem] = []
        self._source = source
        self._documents = 0
        self._anchors: dict[str, Any] = {}
        self._aliases: dict[str, Any] = {}  # what stands at the pointer of an alias
        self._stack: list[_Open] = []
        self._path: list[Key] = []  # one entry per open collection that already waits for a value

    def take(self, event: yaml.Event) -> None:
        taker = _TAKERS.get(type(event).__name__)
        if taker:
            taker(self, event)

    def note(self, code: str, message: str, mark: Mark, hint: str = "") -> None:
        line, column = mark
        pointer = pointer_to(self._path)
        self.problems.append(Problem(code, message, pointer, line, column, hint, self._source))
        if len(self.problems) >= PROBLEMS_MAX:
            raise _Unreadable

    def stop(self, code: str, message: str, mark: Mark, hint: str = "") -> NoReturn:
        self.note(code, message, mark, hint)
        raise _Unreadable

    def repaired(self) -> list[Problem]:
        """The problems, each with the patch that writes out what was read."""
        return [
            problem
            if (patch := self._patch_for(problem)) is None
            else msgspec.structs.replace(problem, patch=patch)
            for problem in self.problems
        ]

    def _patch_for(self, problem: Problem) -> tuple[dict[str, Any], ...] | None:
        place, path = problem.pointer, [unescaped(part) for part in problem.pointer.split("/")[1:]]
        if problem.code == "merge":
            around: Any = _member_at(self.data, path[:-1])
            base = self._aliases.get(place)
            if not isinstance(around, dict) or not isinstance(base, dict):
                return None
            value = {**base, **{key: member for key, member in around.items() if key != "<<"}}
            return self._written_out(place.rpartition("/")[0], value)
        if problem.code == "alias" and path[-1:] != ["<<"] and place in self._aliases:
            return self._written_out(place, self._aliases[place])
        if problem.code in ("duplicate_key", "anchor", "tag", "invalid_key", "not_json"):
            return self._written_out(place, _member_at(self.data, path))
        return None

    def _written_out(self, place: str, value: Any) -> tuple[dict[str, Any], ...] | None:
        return ({"op": "replace", "path": place, "value": value},) if _is_small(value) else None

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            self.stop("many_documents", "the text holds more than one document", _mark_of(event), "split it")

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        mark = _mark_of(event)
        if self._awaits_key():
            hint = 'quote a text that starts with a brace, as in args: {x: "{{ inputs.x }}"}'
            self.stop("invalid_key", "a mapping or list cannot be a key", mark, hint)
        if len(self._stack) >= JSON_DEPTH_MAX:
            message = f"the text is nested deeper than {JSON_DEPTH_MAX} levels"
            self.stop("too_deep", message, mark, "move the inner part to a separate workflow")
        self._refuse_extras(event, mark)
        value: dict[str, Any] | list[Any] = {} if type(event).__name__ == "MappingStartEvent" else []
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        place = self._put(value, mark)
        self._stack.append(_Open(value, place))

    def _end(self, event: yaml.CollectionEndEvent) -> None:
        self._stack.pop()
        self._value_is_done()

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        mark = _mark_of(event)
        self._refuse_extras(event, mark)
        if self._awaits_key():
            self._key(event, mark)
            return
        value: Any = event.value
        if _is_plain(event):
            try:
                value = core_value(event.value)
            except ValueError as error:
                self.note("not_json", f"{_short(event.value)} {error}", mark, "quote it to make it a text")
                value = 0  # it meant to be a number
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        self._put(value, mark)
        self._value_is_done()

    def _key(self, event: yaml.ScalarEvent, mark: Mark) -> None:
        key: str = event.value
        top = self._stack[-1]
        self._path.append(key)
        if _is_plain(event) and key == "<<":
            self.note("merge", "merge keys (`<<`) are not allowed", mark, "write the keys out")
        elif _is_plain(event) and not _is_text(key):
            hint = f'write "{key}": in quotation marks' if len(key) < 80 else "quote it"
            self.note("invalid_key", f"the key {_short(key)} is not a text", mark, hint)
        elif key in top.place.keys:
            line, column = top.place.keys[key]
            message = f"duplicate key {_short(key)}"
            self.note("duplicate_key", message, mark, f"it stands in line {line}, column {column} too")
        top.place.keys[key] = mark

    def _alias(self, event: yaml.AliasEvent) -> None:
        # A few aliases of aliases stand for more values than fit into any memory.
        mark = _mark_of(event)
        self.note("alias", f"aliases (`*{event.anchor}`) are not allowed", mark, "write the value out")
        if self._awaits_key():
            self._path.append(str(event.anchor))
            return
        if isinstance(self._stack[-1].value if self._stack else None, dict):
            self._aliases[pointer_to(self._path)] = self._anchors.get(str(event.anchor))
        self._put(None, mark)
        self._value_is_done()

    def _refuse_extras(self, event: yaml.NodeEvent, mark: Mark) -> None:
        if event.anchor is not None:
            self.note("anchor", f"anchors (`&{event.anchor}`) are not allowed", mark, "write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.note("tag", f"tags (`{tag}`) are not allowed", mark, "only the types of JSON exist")

    def _awaits_key(self) -> bool:
        if not self._stack or isinstance(self._stack[-1].value, list):
            return False
        return len(self._path) < len(self._stack)

    def _put(self, value: Any, mark: Mark) -> Place:
        place = Place(mark)
        if not self._stack:
            self.data, self.root = value, place
            return place
        top = self._stack[-1]
        if isinstance(top.value, list):
            self._path.append(len(top.value))
            top.value.append(value)
        else:
            top.value[str(self._path[-1])] = value
        top.place.members[self._path[-1]] = place
        return place

    def _value_is_done(self) -> None:
        if self._stack:
            self._path.pop()


# Kept beside the class: a builder that held its own methods would keep every text that it read until the next collection.
_TAKERS: Final[dict[str, Callable[[_Builder, Any], None]]] = {
    "DocumentStartEvent": _Builder._start_document,
    "MappingStartEvent": _Builder._start,
    "SequenceStartEvent": _Builder._start,
    "MappingEndEvent": _Builder._end,
    "SequenceEndEvent": _Builder._end,
    "ScalarEvent": _Builder._scalar,
    "AliasEvent": _Builder._alias,
}


# ---------------------------------------------------------------------------------------------------- scalars


def _is_text(plain: str) -> bool:
    """Whether a plain scalar is a text; asks no number for its value, since it could have none."""
    return plain not in WORDS and not NUMBER.match(plain)


def _is_plain(event: yaml.ScalarEvent) -> bool:
    return bool(event.implicit[0]) and event.style in (None, "")


def _short(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}…"'


# --------------------------------------------------------------------------------------------------- pointers

REPAIR_BYTES_MAX: Final = 16 * 1024  # a patch does not write out a larger value


def _is_small(value: Any) -> bool:
    return len(encode(value)) <= REPAIR_BYTES_MAX


def _member_at(data: Any, path: list[str]) -> Any:
    for part in path:
        data = data[int(part)] if isinstance(data, list) else data.get(part)
    return data
