"""Text becomes plain data with places, or a list of problems: quickly, whatever the text."""

from __future__ import annotations

import gc
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.errors import InvalidSpec, Problem
from holdfast.spec import read as module
from holdfast.spec.document import pointer_to
from holdfast.spec.read import PROBLEMS_MAX, read, text_of, write

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


def problems_of(text: str | bytes) -> list[Problem]:
    with pytest.raises(InvalidSpec) as refused:
        read(text, "f.yaml")
    return list(refused.value.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("12:30", "12:30"),
        ("190:20:30", "190:20:30"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T10:00:00Z", "2026-01-31T10:00:00Z"),
        ("1.2.3", "1.2.3"),
        ("'true'", "true"),
        ('"12"', "12"),
        ("|\n  12\n", "12\n"),
        ("=", "="),
    ],
)
def test_plain_scalars_have_the_types_of_yaml_1_2(text: str, value: Any) -> None:
    found = read(text).data
    assert (found, type(found)) == (value, type(value))


TEXT = """\
name: x
steps:
  - id: a
    args: {deep: [1, {k: v}]}
"a/b": 2
"""


@pytest.mark.parametrize(
    ("pointer", "mark"),
    [
        ("", (1, 1)),
        ("/name", (1, 7)),
        ("/steps", (3, 3)),
        ("/steps/0", (3, 5)),
        ("/steps/0/id", (3, 9)),
        ("/steps/0/args/deep/1/k", (4, 26)),
        ("/a~1b", (5, 8)),
        ("/steps/0/gone/further", (3, 5)),
        ("/steps/7", (3, 3)),
        ("/name/0", (1, 7)),
    ],
)
def test_a_value_is_found_at_its_place_or_at_its_nearest_ancestor(
    pointer: str, mark: tuple[int, int]
) -> None:
    assert read(TEXT).mark(pointer) == mark


@pytest.mark.parametrize(
    ("pointer", "mark"),
    [
        ("/name", (1, 1)),
        ("/steps", (2, 1)),
        ("/steps/0/args", (4, 5)),
        ("/steps/0/args/deep/1/k", (4, 23)),
        ("/a~1b", (5, 1)),
        ("/steps/0", (3, 5)),  # an element has no key
        ("/steps/0/gone", (3, 5)),
        ("/gone/further", (1, 1)),
        ("", (1, 1)),
    ],
)
def test_a_key_is_found_at_its_own_place(pointer: str, mark: tuple[int, int]) -> None:
    assert read(TEXT).key_mark(pointer) == mark


def test_pointers_escape_slashes_and_tildes() -> None:
    assert pointer_to(("a/b", 0, "~")) == "/a~1b/0/~0"


def test_json_has_places_too() -> None:
    document = read('{\n\t"steps": [{"id": "a"}],\n\t"b":1}')
    assert document.data == {"steps": [{"id": "a"}], "b": 1}
    assert document.mark("/steps/0/id") == (2, 19)


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("a: &x 1", "anchor", 1, 4),
        ("a: 1\nb: *x", "alias", 2, 4),
        ("a: {<<: {b: 1}}", "merge", 1, 5),
        ("a: !!str 1", "tag", 1, 4),
        ("a: ! 1", "tag", 1, 4),
        ("- !x {}", "tag", 1, 3),
        ("a: 1\nb: 2\na: 3", "duplicate_key", 3, 1),
        ("1: a", "invalid_key", 1, 1),
        ("true: a", "invalid_key", 1, 1),
        ("~: a", "invalid_key", 1, 1),
        ("? [a]\n: b", "invalid_key", 1, 3),
        ("a: {{ inputs.x }}", "invalid_key", 1, 5),
        ("a: .inf", "not_json", 1, 4),
        ("a: -.INF", "not_json", 1, 4),
        ("a: .nan", "not_json", 1, 4),
        ("a: 1e999", "not_json", 1, 4),
        ("a: " + "9" * 5000, "not_json", 1, 4),
        ("---\na\n---\nb", "many_documents", 3, 1),
        ("a: 1\n...\nb: 2", "syntax", 3, 1),
        ("a: b: c", "syntax", 1, 5),
        ("a:\n\t- b", "syntax", 2, 1),
        ("a: 'b", "syntax", 1, 6),
        ("a: [1, 2", "syntax", 2, 1),
        ("a: @b", "syntax", 1, 4),
        ("a: 1\nb: \x00", "invalid_character", 2, 4),
        ("a: \x07", "invalid_character", 1, 4),
        ("a: \x1b[31m", "invalid_character", 1, 4),
        ("a: \ud800", "invalid_character", 1, 4),
        (b"a: 1\nb: \xff", "not_utf8", 2, 4),
        ("a: 1".encode("utf-16"), "not_utf8", 1, 1),
        ('{"a": "\\ud83d"}', "syntax", 1, 10),
    ],
)
def test_what_is_refused_has_a_code_and_a_place(text: str | bytes, code: str, line: int, column: int) -> None:
    first = problems_of(text)[0]
    assert (first.code, first.line, first.column, first.source) == (code, line, column, "f.yaml")


def test_all_problems_are_reported_together() -> None:
    found = problems_of("a: &x 1\na: .inf\n3: !t z\n")
    assert [problem.code for problem in found] == [
        "anchor",
        "duplicate_key",
        "not_json",
        "invalid_key",
        "tag",
    ]


def test_a_problem_carries_the_pointer_of_its_value() -> None:
    assert problems_of("a:\n  - {b: .inf}")[0].pointer == "/a/0/b"


def test_a_duplicate_key_says_where_the_first_one_is() -> None:
    assert "line 1" in problems_of("a: 1\na: 2")[0].hint


def test_an_unquoted_placeholder_gets_a_hint_to_quote_it() -> None:
    assert "quote" in problems_of("args: {{ inputs.x }}")[0].hint


def test_problems_are_no_more_than_anyone_reads() -> None:
    assert len(problems_of("a: 1\n" * 5000)) == PROBLEMS_MAX


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 50_000, "too_deep"),
        ("[" * limits.now.spec_bytes_max, "too_deep"),
        ("- " * (limits.now.spec_bytes_max // 2), "too_deep"),
        ("{a: " * (limits.now.spec_bytes_max // 4), "too_deep"),
        ("{" * limits.now.spec_bytes_max, "invalid_key"),
        ("? " * (limits.now.spec_bytes_max // 2), "invalid_key"),
        ("[" * (limits.now.spec_bytes_max + 1), "too_large"),
        ("a: " + "b" * 10_000_000, "too_large"),
        ("é" * (limits.now.spec_bytes_max // 2 + 1), "too_large"),
        ("[" + "[]," * (limits.now.spec_bytes_max // 3 - 1) + "]", "too_many_values"),
        ("-\n" * (limits.now.spec_bytes_max // 2), "too_many_values"),
        ("'" + "\n" * (limits.now.spec_bytes_max - 1), "syntax"),
        ("&a " * (limits.now.spec_bytes_max // 3), "anchor"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "anchor"),
    ],
)
def test_hostile_text_is_refused_before_it_costs_anything(text: str, code: str) -> None:
    began = time.thread_time()
    assert problems_of(text)[0].code == code
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("depth", [63, 64])
def test_depth_is_allowed_up_to_the_limit(depth: int) -> None:
    assert read("[" * depth + "]" * depth).data is not None


def test_long_keys_do_not_multiply_in_memory() -> None:
    key, count = "k" * 100_000, limits.now.nodes_max // 2
    document = read(f'? "{key}"\n: [' + "1," * count + "]")
    assert document.mark(f"/{key}/{count - 1}")[0] == 2


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read(b"\xef\xbb\xbfa: 1").data == {"a": 1}


def test_json_may_write_a_character_as_two_escapes() -> None:
    assert read('{"a": "\\ud83d\\ude00 \\\\u0041"}').data == {"a": "😀 \\u0041"}


def test_backslashes_in_plain_yaml_text_are_left_alone() -> None:
    assert read("a: '\\ud83d\\ude00'").data == {"a": "\\ud83d\\ude00"}


@given(
    st.text(max_size=200) | st.text("[]{}:,-?!&*#|>'\"%@ \n\tab0.", max_size=200) | st.binary(max_size=100)
)
def test_reading_ends_with_data_or_with_problems(text: str | bytes) -> None:
    try:
        document = read(text)
    except InvalidSpec as refused:
        assert all(problem.line >= 1 and problem.column >= 1 for problem in refused.problems)
    else:
        json.dumps(document.data, allow_nan=False)


@given(json_values)
def test_written_data_is_read_back_as_it_was(value: Any) -> None:
    assert read(write(value)).data == value


def test_a_key_that_is_too_long_for_the_parser_is_a_clear_error() -> None:
    (problem,) = problems_of(json.dumps({"a": {"k" * 2000: 1}}))
    assert (problem.code, problem.line) == ("syntax", 1)
    assert "a key has more than 1,000 characters" in problem.hint


@given(json_values)
def test_json_is_read_as_the_json_that_it_is(value: Any) -> None:
    text = json.dumps(value, indent=1)
    assume(not re.search(r'"[^"\n]{1000,}":', text))
    if "\\u007f" not in text and "\x7f" not in text:
        assert read(text).data == value


def test_a_value_that_occurs_twice_is_written_twice() -> None:
    shared = {"a": [1]}
    assert "&" not in write([shared, shared])


def test_the_parser_is_loaded_by_reading_only() -> None:
    assert not hasattr(module, "yaml")


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_no_definition(path: str) -> None:
    with pytest.raises(OSError, match="is a device; a definition is a regular file"):
        text_of(path)


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.yaml")
    with pytest.raises(OSError, match="is a FIFO"):
        text_of(tmp_path / "f.yaml")


def test_a_text_that_was_read_leaves_nothing_to_the_garbage_collector() -> None:
    texts = ("name: n\nsteps:\n- {id: s, tool: echo}\n", '{"a": [1, {"b": null}]}')
    for text in texts:  # the first time modules may be imported, which leaves garbage of their own
        read(text)
    while gc.collect():
        pass  # what the tests before have left may be freed in several rounds
    gc.disable()  # a server collects rarely, and a definition takes twenty times its text
    try:
        for text in texts:
            read(text)
        left = gc.collect()
    finally:
        gc.enable()
    assert left == 0
