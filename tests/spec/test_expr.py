"""Templates and JSONPaths are read into trees, or refused with a reason; evaluation is bounded."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpath_rfc9535 import JSONPathEnvironment

from holdfast.errors import LimitExceeded
from holdfast.spec.expr import (
    JSONPATH_BYTES_MAX,
    ExprError,
    Ref,
    Template,
    Text,
    compiled,
    parse_jsonpath,
    parse_template,
    refs_in,
)

# -------------------------------------------------------------------------------------------------- templates


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a } b }} c", "a } b }} c"),
        ("{{x}}", Ref("x")),
        ("  {{ x }}\n", Ref("x")),
        ("{{ inputs.scene_id }}", Ref("inputs", ("scene_id",))),
        ("{{ steps.a.output.files[0].name }}", Ref("steps", ("a", "output", "files", 0, "name"))),
        ("{{ items.0.name }}", Ref("items", ("0", "name"))),
        ("{{ my-step.a_b-c }}", Ref("my-step", ("a_b-c",))),
        ("""{{ steps["a.b"]['c d'] }}""", Ref("steps", ("a.b", "c d"))),
        ("""{{ steps["say \\"}}\\""] }}""", Ref("steps", ('say "}}"',))),
        ("{{ x[ 12 ] }}", Ref("x", (12,))),
        ("{{ größe.é }}", Ref("größe", ("é",))),
        ("a {{ x }}", Text(("a ", Ref("x")))),
        ("{{x}}{{y}}", Text((Ref("x"), Ref("y")))),
        ("{{ x }} {{ y }}", Text((Ref("x"), " ", Ref("y")))),
        ("({{ x.y }})", Text(("(", Ref("x", ("y",)), ")"))),
    ],
)
def test_a_template_is_read_as_its_parts(text: str, template: Template) -> None:
    assert parse_template(text) == template


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("{{", 0, "unterminated"),
        ("abc {{ x", 4, "unterminated"),
        ("{{ x }} {{ y", 8, "unterminated"),
        ("{{}}", 0, "empty"),
        ("a {{  }}", 2, "empty"),
        ("{{ 1x }}", 3, "1x"),
        ("{{ a b }}", 5, "b"),
        ("{{ a | upper }}", 5, "| upper"),
        ("{{ a + 1 }}", 5, "+ 1"),
        ("{{ f(x) }}", 4, "(x)"),
        ("{{ a..b }}", 4, "..b"),
        ("{{ a. }}", 4, "."),
        ("{{ a[ }}", 4, "["),
        ("{{ a[-1] }}", 4, "[-1]"),
        ("{{ a[x] }}", 4, "[x]"),
        ('{{ a["x] }}', 4, '["x]'),
        ("{{ .a }}", 3, ".a"),
        ("{{{ a }}}", 2, "{ a"),
    ],
)
def test_a_broken_placeholder_says_where_and_why(text: str, offset: int, word: str) -> None:
    with pytest.raises(ExprError) as error:
        parse_template(text)
    assert error.value.offset == offset
    assert word in str(error.value)
    assert error.value.hint


@given(st.text() | st.text("{}[]. ab0\"'\\-"))
def test_reading_a_template_ends_with_a_template_or_an_expression_error(text: str) -> None:
    try:
        template = parse_template(text)
    except ExprError as error:
        assert 0 <= error.offset <= len(text)
    else:
        assert isinstance(template, str) == ("{{" not in text)


@given(st.text(st.characters(exclude_characters='\\"')))
def test_any_key_can_be_named_in_brackets(key: str) -> None:
    assert parse_template('{{ x["' + key + '"] }}') == Ref("x", (key,))


def test_a_long_template_is_read_in_one_go() -> None:
    began = time.thread_time()
    assert len(refs_in(parse_template("{{a.b}} " * 30_000))) == 30_000
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("template", "refs"),
    [("x", ()), (Ref("a"), (Ref("a"),)), (Text(("x", Ref("a"), Ref("b"))), (Ref("a"), Ref("b")))],
)
def test_the_references_of_a_template_are_found(template: Template, refs: tuple[Ref, ...]) -> None:
    assert refs_in(template) == refs


# --------------------------------------------------------------------------------------------------- JSONPath


@pytest.mark.parametrize(
    ("text", "singular", "star"),
    [
        ("$", (), False),
        ("$.a", ("a",), False),
        ("$.a.b_1", ("a", "b_1"), False),
        ("$['a b'][\"c\"]", ("a b", "c"), False),
        ("$.a[0][-1]", ("a", 0, -1), False),
        ("$.a[*]", ("a",), True),
        ("$.a.*", ("a",), True),
        ("$[*]", (), True),
        ("$ .a [0]", ("a", 0), False),  # blanks are rare enough to be left to the library
        ("$['it\\'s']", ("it's",), False),
        ("$.größe[ * ]", ("größe",), True),
        ("$.a[*][*]", None, False),
        ("$.a[*].b", None, False),
        ("$..a", None, False),
        ("$..*", None, False),
        ("$.a[0:2]", None, False),
        ("$['a','b']", None, False),
        ("$.a[?@.x > 1]", None, False),
        ("$.a[?(@.x > 1)]", None, False),
    ],
)
def test_paths_to_one_value_are_told_from_the_others(text: str, singular: Any, star: bool) -> None:
    path = parse_jsonpath(text)
    assert (path.singular, path.star) == (singular, star)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("$.a.b", (("a", "b"),)),
        ("$.a[*]", (("a",),)),
        ("$.a[?@.x == $.inputs.y]", (("a",), ("inputs", "y"))),
        ("$.a[?count($.b[*]) > length(@.c)]", (("a",), ("b",))),
        ("$..a", ((),)),
    ],
)
def test_a_path_knows_what_it_can_touch(text: str, reads: Any) -> None:
    assert parse_jsonpath(text).reads == reads


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "starts with $"),
        ("a.b", "$.a.b"),
        ("{{ inputs.x }}", "without braces"),
        ("$.my-step", "brackets"),
        ("$.a[?match(@.b, 'x')]", "regular expressions"),
        ("$.a[?search(@.b, '(a+)+$')]", "regular expressions"),
        ("$.", ""),
        ("$.a[01]", ""),
        ("$.a[9007199254740993]", ""),
        ("$[", ""),
        ("$.a b", ""),
        ("$[?@.a == 1e999]", ""),
        ("$[?" + "(" * 500 + "@.a" + ")" * 500 + "]", ""),
        ("$" + ".a" * JSONPATH_BYTES_MAX, ""),
    ],
)
def test_what_is_no_path_is_refused(text: str, hint: str) -> None:
    with pytest.raises(ExprError) as error:
        parse_jsonpath(text)
    assert hint in error.value.hint


@given(st.text("$.@[]?*:'\"()ab01-&|!=<> ,countlegh\\u", max_size=60).map(lambda tail: "$" + tail))
def test_reading_a_path_ends_with_a_path_or_an_expression_error(text: str) -> None:
    with contextlib.suppress(ExprError):
        assert parse_jsonpath(text).text == text


DATA: Any = {"a": [{"x": 1, "y": [1, 2]}, {"x": 2}, {"x": 3}], "b": 2}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$.a[?@.x > $.b].x", [3]),
        ("$..x", [1, 2, 3]),
        ("$.a[0:2].x", [1, 2]),
        ("$.a[?@.y].x", [1]),
        ("$.a[?@ == $.a[1]].x", [2]),
        ("$.a[?count(@.*) > 1].x", [1]),
        ("$.nothing..x", []),
        ("$.b", [2]),
    ],
)
def test_a_compiled_path_finds_all_that_it_names(text: str, found: list[Any]) -> None:
    assert compiled(parse_jsonpath(text))(DATA) == found


def nest(depth: int, width: int) -> Any:
    return [nest(depth - 1, width) for _ in range(width)] if depth else 1


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("$..*..*..*", nest(6, 8)),
        ("$..*..*..*..*", nest(10, 3)),
        ("$[?@[?@[?@ == 5]]]", [[list(range(100)) for _ in range(100)] for _ in range(100)]),
        ("$[?count(@..*) > 0]", [nest(4, 6) for _ in range(200)]),
        ("$.a[?@ == $.a[0]]", {"a": [list(range(500)) for _ in range(500)]}),
        ("$[?@ == $[0]]", [{str(i): i for i in range(1000)} for _ in range(1000)]),
        ("$[?@ <= $[0]]", ["x" * 10_000_000] * 50),
        ("$[" + "*," * 200 + "*]", list(range(10_000))),
        ("$.a[?$.p == $.q]", {"a": list(range(5_000)), "p": {"k" * 1_000_000: 1}, "q": {"k" * 1_000_000: 2}}),
        # Few values are visited, but each row is compared down to its last value.
        ("$[?count($[?@ == $[0]]) > 0]", [[list(range(1000))] for _ in range(900)]),
    ],
)
def test_a_path_that_looks_at_too_much_is_stopped(text: str, data: Any) -> None:
    with pytest.raises(LimitExceeded) as error:
        compiled(parse_jsonpath(text))(data)
    assert error.value.limit == "expression_work_max"


class Uncopied(list[Any]):
    def __getitem__(self, at: Any) -> Any:
        assert not isinstance(at, slice), "a part of the list was copied"
        return super().__getitem__(at)


@pytest.mark.parametrize("text", ["$[0]", "$[0,1,-1,7]", "$..[0]"])
def test_an_index_copies_nothing_of_the_list(text: str) -> None:
    """Copied for each of a few hundred indices, a long list would take seconds."""
    assert compiled(parse_jsonpath(text))({"a": Uncopied([1, 2])} if ".." in text else Uncopied([1, 2]))


def test_each_evaluation_has_the_whole_budget() -> None:
    find = compiled(parse_jsonpath("$..x"))
    data = [{"x": i} for i in range(40_000)]
    assert [len(find(data)) for _ in range(5)] == [40_000] * 5


def test_what_a_filter_reads_from_the_root_is_looked_for_once() -> None:
    """Looked for at each of the values, it would be the square of them, or the cube."""
    rows = [list(range(500)) for _ in range(500)]
    assert compiled(parse_jsonpath("$.a[?@ == $.a]"))({"a": rows}) == []
    assert compiled(parse_jsonpath("$[?$[?$[?@ == 5]]]"))(list(range(2000))) == list(range(2000))
    assert len(compiled(parse_jsonpath("$[?count($..*) > 0]"))(list(range(5000)))) == 5000


_LEAF = st.one_of(st.none(), st.integers(2, 5), st.sampled_from(["", "a", "b", 2.5]))
_DATA = st.recursive(
    _LEAF, lambda of: st.lists(of, max_size=4) | st.dictionaries(st.sampled_from("abx"), of, max_size=3)
)
_PATHS = (
    "$", "$.a", "$..a", "$..*", "$.*", "$..*..*", "$[0]", "$[-1]", "$[-2]", "$..[0]", "$[1:]", "$[::-1]", "$[:-1]", "$[::2]",
    "$[0,'a',*]", "$..['a','b']", "$..[?@.a]", "$[?@.a == 2]", "$[?@.a != $.b]", "$..[?@ > 2]", "$..[?@ >= 'a']", "$..[?@ <= 3]",
    "$..[?@ < 3 || @ == 'a']", "$..[?!@.a && @.b]", "$..[?count(@.*) > 1]", "$..[?length(@) == 1]", "$..[?length(@.a) != 2]",
    "$..[?value(@..a) == 2]", "$..[?@ == $.a]", "$..[?@ == null]", "$..[?@.a == @.b]", "$..[?@.x < $.x]", "$..[?@[?@ == 2]]",
)  # fmt: skip


@given(_DATA, st.sampled_from(_PATHS))
def test_paths_find_what_the_library_finds_in_the_same_order(data: Any, text: str) -> None:
    assert compiled(parse_jsonpath(text))(data) == JSONPathEnvironment().find(text, data).values()


def test_plain_templates_and_paths_need_no_library() -> None:
    code = (
        "import sys, holdfast.spec.workflow as w; from holdfast.spec.expr import *\n"
        "parse_template('{{ a.b[0] }}'); parse_jsonpath(\"$.a['b'][0][*]\")\n"
        "assert not {'yaml', 'jsonpath_rfc9535'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
