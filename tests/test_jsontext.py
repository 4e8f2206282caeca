"""What a JSON text tells without being parsed: the same as reading it character by character, at a bounded cost."""

from __future__ import annotations

import re
import sys
import tracemalloc
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import jsontext, values

LIMIT = values.JSON_DEPTH_MAX
MIB = 1024 * 1024

# A string that does not end goes on to the end of the text.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)


def is_deeper_one_by_one(text: bytes, limit: int) -> bool:
    """The plain way, which takes an object per bracket. It ends where more is closed than was opened."""
    level = 0
    for found in _STRUCTURE.finditer(text):
        mark = text[found.start()]
        if mark in b"[{":
            level += 1
        elif mark in b"]}":
            level -= 1
        if level < 0 or level > limit:
            return level > limit
    return False


def of(size: int, pattern: bytes) -> bytes:
    return (pattern * (size // len(pattern) + 1))[:size]


def hostile(size: int) -> dict[str, bytes]:
    return {
        "only opening": b"[" * size,
        "only closing": b"]" * size,
        "braces in one string": b'"' + b"{" * size + b'"',
        "markup in one string": b'["' + of(size, b"<b class='x'>{y}</b> [z] ") + b'"]',
        "code with escapes": b'["' + of(size - 8, b'f(a={}):\\n return \\"[x]\\"\\n').rstrip(b"\\") + b'"]',
        "escaped quotes": b'["' + of(size, b'\\"[') + b'"]',
        "escaped backslashes": b'["' + b"\\\\" * (size // 2) + b'"]',
        "an odd run of backslashes": b'["' + b"\\\\" * (size // 2) + b'\\""]',
        "empty strings": b"[" + of(size, b'"",') + b'""]',
        "strings of one bracket": b"[" + of(size, b'"[",') + b'""]',
        "brackets between all quotes": b"[" + of(size, b'["["],') + b"0]",
        "keys of one bracket": b"[" + of(size, b'{"[":0},') + b"0]",
        "brackets between quotes, closed at last": b"[" + of(size, b'["["],') + b"]" * 9 + b"[" * 99,
        "empty lists": b"[" + of(size, b"[],") + b"0]",
        "objects in objects": b"[" + of(size, b'{"a":{}},') + b"0]",
        "sawtooth": of(size, b"[" * 60 + b"]" * 60),
        "sawtooth up to the limit": b"[" + of(size, b"{" * 63 + b"}" * 63),
        "sawtooth over the limit": b"[[" + of(size, b"{" * 63 + b"}" * 63),
        "empty lists at the limit": b"[" * 63 + of(size, b"[],"),
        "empty lists over the limit": b"[" * 63 + of(size, b"[],") + b"[[",
        "no brackets": of(size, b"abc, "),
        "every third a quote": of(size, b'["]'),
        "every second a quote": of(size, b'["'),
        "lists between strings of lists": b"[" + of(size, b'[],"[]",'),
        "long strings of brackets": b"[" + of(size, b'"[[[]]]",[],'),
        "strings of two brackets": b"[" + of(size, b'"][",'),
        "strings of one backslash": b"[" + of(size, b'"\\\\",[],'),
        "short texts far apart": b"[" + of(size, b"[]" * 30 + b'""'),
        "an escape between deep brackets": b"[" + of(size, b"[" * 17 + b'"\\n"' + b"]" * 17 + b","),
    }


@pytest.mark.parametrize("name", hostile(8))
def test_hostile_texts_get_the_answer_of_the_plain_scanner(name: str) -> None:
    for size in (1_000, jsontext.CHUNK - 3, jsontext.CHUNK, jsontext.CHUNK + 1, 3 * jsontext.CHUNK + 5):
        text = hostile(size)[name]
        assert jsontext.is_deeper(text, LIMIT) == is_deeper_one_by_one(text, LIMIT)


@pytest.mark.parametrize("name", hostile(8))
def test_checking_depth_takes_a_bounded_number_of_lines_and_bytes(name: str) -> None:
    """Not a time, which depends on the machine: Python's work is per chunk, and the C code under it is linear. The bytes
    show that there is no object for each string or bracket: those of one chunk would take up to 1 MiB."""
    text = hostile(4 * MIB)[name]
    lines = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        jsontext.is_deeper(text, LIMIT)
    finally:
        sys.settrace(before)
    chunks = len(text) // jsontext.CHUNK + 2
    # At most one chunk, the last that is looked at, is read bracket by bracket.
    assert lines < 60 * chunks + 5 * jsontext.CHUNK

    tracemalloc.start()
    try:
        jsontext.is_deeper(text, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 12 * jsontext.CHUNK
    finally:
        tracemalloc.stop()


# Backslashes only inside strings: anywhere else the text ends, for a parser, at the first of them.
_INSIDE = st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b"a", b'\\"', b"\\\\", b"\\n"]), max_size=6)
_STRING = _INSIDE.map(lambda parts: b'"' + b"".join(parts) + b'"')
_TOKEN = st.one_of(
    st.sampled_from([b"[", b"]", b"{", b"}", b",", b"[[[", b"]]]", b"[]", b"][", b'""', b'["["],', b'"],["']),
    _STRING,
)
_TEXT = st.lists(_TOKEN, max_size=80).map(b"".join)


@given(_TEXT, st.integers(0, 8), st.integers(1, 40))
@example(b'[["\\', 1, 3)
@example(b"[]" * 4 + b"]" + b"[" * 15, 8, 16)  # within eight brackets, more is closed than was opened
def test_the_answer_is_that_of_the_plain_scanner_wherever_chunks_end(
    text: bytes, limit: int, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "CHUNK", size)
        assert jsontext.is_deeper(text, limit) == is_deeper_one_by_one(text, limit)


@given(
    st.recursive(
        st.one_of(st.none(), st.text('[]{}"\\a,é')),
        lambda of: st.lists(of) | st.dictionaries(st.text('[{"\\'), of),
    )
)
def test_of_encoded_values_the_answer_is_their_depth(value: Any) -> None:
    def level(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(level, inner), default=0) if isinstance(value, dict | list) else 0

    text = values.written(value)
    assert not jsontext.is_deeper(text, level(value))
    assert level(value) == 0 or jsontext.is_deeper(text, level(value) - 1)


@given(
    st.lists(st.sampled_from([b"[", b"]", b'"', b"\\", b"\xff"])).map(b"".join),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_texts_that_are_not_json_get_an_answer_too(text: bytes, limit: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "CHUNK", size)
        assert jsontext.is_deeper(text, limit) in (True, False)


@given(
    st.recursive(
        st.one_of(st.none(), st.text(':"\\a,é')),
        lambda of: st.lists(of) | st.dictionaries(st.text(':{"\\'), of),
    ),
    st.integers(1, 40),
)
def test_members_are_counted_without_parsing(value: Any, size: int) -> None:
    def members(value: Any) -> int:
        inner = list(value.values()) if isinstance(value, dict) else value
        own = len(value) if isinstance(value, dict) else 0
        return own + sum(map(members, inner)) if isinstance(value, dict | list) else 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "CHUNK", size)
        assert jsontext.count_members(values.written(value)) == members(value)


JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a,"\\[]{}:é\n'), max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('a,"{', max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=st.dictionaries(st.text('ab,"[', max_size=3), JSON, max_size=5), chunk=st.integers(8, 64))
@example(value={"a": "", "b": "x,y" * 20, "c": [{"d": "],"}]}, chunk=16)
def test_the_members_of_an_object_are_found_as_texts(value: dict[str, Any], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "CHUNK", chunk)
        found = jsontext.few_members(values.written(value), 5)
        assert found is not None
        assert {name: values.decode(text) for name, text in found.items()} == value
        assert jsontext.few_members(values.written({**value, "more": 0, "most": 0}), 1) is None


@given(value=st.lists(JSON, min_size=2, max_size=8), chunk=st.integers(8, 64))
@example(value=["a", "x" * 6, "b,c,d" * 30, "e"], chunk=8)
def test_a_text_is_cut_between_members_and_never_within_a_string(value: list[Any], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "CHUNK", chunk)
        text, begin, found = values.written(value), 1, list[Any]()
        for cut in (*jsontext.cuts(text, 1), len(text) - 1):
            found += values.decode(b"[" + text[begin:cut] + b"]")
            begin = cut + 1
        assert found == value


def test_a_search_within_a_string_ends_with_its_chunk() -> None:
    """It went on to the end of the string, for every chunk of it: the time grew with the square of its length."""
    assert jsontext._next_comma(b"x" * 100 + b'",1]', 10, 20, 1, True) == (None, 1)


def test_counting_commas_stops_soon_after_the_limit() -> None:
    text = b'["a,b",' + b"0," * 10 * jsontext.CHUNK + b"0]"
    assert jsontext.count_commas(text, len(text)) == 10 * jsontext.CHUNK + 1
    assert 100 < jsontext.count_commas(text, 100) < jsontext.CHUNK
