"""Texts that are not YAML, changed to what their author probably meant: tabs, braces without quotation marks, code fences.

Knows common slips in a text. Must not know what any key means. Each slip is mended in the whole text, one after another, until
the text can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

MEND_CHARS_MAX: Final = 64 * 1024  # a longer text comes from a program, which makes other mistakes


def mended(text: str | bytes) -> Iterator[str]:
    """Candidate texts, each with one more mistake corrected than the one before."""
    if len(text) > MEND_CHARS_MAX:
        return
    current = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    for mend in _MENDS:
        changed = mend(current)
        if changed != current:
            current = changed
            yield current
    if isinstance(text, bytes):
        yield current


def _without_control(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffd-\uffff]", "", text)


def _out_of_fence(text: str) -> str:
    """The first block of code in a text of Markdown."""
    found = re.search(
        r"^[ \t]*(?:```|~~~)[\w-]*[ \t]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", text, re.MULTILINE | re.DOTALL
    )
    return found[1] if found else text


def _one_document(text: str) -> str:
    parts = [part for part in re.split(r"^---[ \t]*$", text, flags=re.MULTILINE) if part.strip()]
    return next(
        (part for part in parts if re.search(r"^(?:steps|nodes|schedules)\s*:", part, re.MULTILINE)), text
    )


def _without_tabs(text: str) -> str:
    return re.sub(r"^[ \t]+", lambda found: found[0].replace("\t", "  "), text, flags=re.MULTILINE)


_ENTRY: Final = re.compile(
    r"(?P<blanks> *)(?=- |[\w.$-]+:(?: |$))(?P<dashes>(?:- +)*)(?P<key>[\w.$-]+:(?= |$))?(?P<value>.*)"
)


def _aligned(text: str) -> str:
    """Move a key or an entry of a list that is aligned with nothing to the nearest column where one may stand. A line that is deeper
    than the one before is right if that one has no value. A block of text is left alone, and so are braces over several lines and a
    line that is as near to one column as to another."""
    lines: list[str] = []
    columns: list[tuple[int, bool]] = []  # of the lists (True) and mappings that are open, from the outermost
    may_open, block, open_braces = True, -1, 0
    for line in text.split("\n"):
        found = _ENTRY.fullmatch(line)
        is_inside = open_braces > 0
        open_braces = max(0, open_braces + len(re.findall(r"[{\[]", line)) - len(re.findall(r"[}\]]", line)))
        if found is None or is_inside or 0 <= block < len(found["blanks"]):
            lines.append(line)
            continue
        at, dashes, value = len(found["blanks"]), found["dashes"], found["value"].strip()
        fitting = [column for column, is_list in columns if is_list == bool(dashes)]
        if fitting and at not in fitting and not (may_open and at >= columns[-1][0]):
            first, *others = sorted(fitting, key=lambda column: abs(column - len(found["blanks"])))
            at = at if others and at - first == others[0] - at else first
        columns = [one for one in columns if one[0] < at]
        columns += [(at + nth, True) for nth, letter in enumerate(dashes) if letter == "-"]
        columns += [(at + len(dashes), False)] if found["key"] else []
        may_open, block = not value or value.startswith("#"), at if value[:1] in ("|", ">") else -1
        lines.append(" " * at + line[len(found["blanks"]) :])
    return "\n".join(lines)


_BRACED: Final = re.compile(
    r"""(?P<before>[:\[,-]\s*)(?P<braced>\{\{[^{}"'\n]*\}\})(?=\s*[,\]}]|\s*$)""", re.MULTILINE
)
_LINE: Final = re.compile(
    r"^(?P<key>[ ]*(?:- +)*[\w.$-]+:[ ]+|[ ]*(?:- +)+)(?P<value>\S.*?)[ ]*$", re.MULTILINE
)


def _braces_quoted(text: str) -> str:
    text = _BRACED.sub(lambda found: f'{found["before"]}"{found["braced"].strip()}"', text)
    return _each_value(
        text, lambda value: "{{" in value and value[0] not in "\"'[{" or value.startswith("{{")
    )


_IN_BRACES: Final = re.compile(r"^ *(?:- +)*(?:[\w.$-]+: +)?[{\[].*", re.MULTILINE)
_RESERVED: Final = re.compile(
    r"""(?P<quoted>"[^"\n]*"|'[^'\n]*')|(?P<before>[:,\[]\s+|\[)(?P<value>[@`%][^,\]}\n]*)"""
)


def _reserved_quoted(text: str) -> str:
    """Quote values in braces and brackets whose first character YAML reserves."""

    def quoted(found: re.Match[str]) -> str:
        return found["quoted"] or found["before"] + json.dumps(found["value"].strip(), ensure_ascii=False)

    return _IN_BRACES.sub(lambda line: _RESERVED.sub(quoted, line[0]), text)


def _values_quoted(text: str) -> str:
    """Quote values that would be read as something else: those with a colon, or with a first character that YAML reserves."""
    return _each_value(
        text,
        lambda value: (
            value[0] in "@`%&*!" or (value[0] not in "\"'[{|>#" and re.search(r":(?: |$)", value) is not None)
        ),
    )


def _each_value(text: str, is_meant: Callable[[str], bool]) -> str:
    def quoted(found: re.Match[str]) -> str:
        value = found["value"]
        return found["key"] + (json.dumps(value, ensure_ascii=False) if is_meant(value) else value)

    return _LINE.sub(quoted, text)


def _quotes_closed(text: str) -> str:
    def closed(found: re.Match[str]) -> str:
        value = found["value"]
        mark = value[0]
        is_open = mark in "\"'" and value.count(mark) - value.count(f"\\{mark}") == 1
        return found["key"] + (value + mark if is_open else value)

    return _LINE.sub(closed, text)


def _without_comments(text: str) -> str:
    """JSON with comments, and commas before a closing bracket."""
    if not text.lstrip().startswith(("{", "[", "//", "/*")):
        return text
    text = re.sub(r"/\*[^*]*(?:\*(?!/)[^*]*)*\*/", "", text)
    text = re.sub(r"^\s*//.*$|(?<=[,{\[\s])//[^\"\n]*$", "", text, flags=re.MULTILINE)
    return re.sub(r",(\s*[}\]])", r"\1", text)


def _brackets_closed(text: str) -> str:
    """Close the brackets that are open at the end of the text, or of a line of YAML."""
    if text.lstrip().startswith(("{", "[")):
        return text + _open_brackets(text)
    return "\n".join(
        line + _open_brackets(line) if re.search(r":\s*[{\[]|-\s+[{\[]", line) else line
        for line in text.split("\n")
    )


def _open_brackets(text: str) -> str:
    stack: list[str] = []
    quote = ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "{[":
            stack.append("}" if letter == "{" else "]")
        elif letter in "}]" and stack and stack[-1] == letter:
            stack.pop()
    return "".join(reversed(stack))


_MENDS: Final[tuple[Callable[[str], str], ...]] = (
    _without_control,
    _out_of_fence,
    _without_tabs,
    _aligned,
    _without_comments,
    _braces_quoted,
    _values_quoted,
    _reserved_quoted,
    _quotes_closed,
    _brackets_closed,
    _one_document,
)
