"""References of the graph notation."""

from __future__ import annotations

import pytest
from hypothesis import given as given_any

from holdfast.spec.condition import reference_text
from holdfast.spec.expr import ExprError
from holdfast.spec.reference import Literal, Reference, given, is_reference, key_parts, reference
from tests.spec.flows import REFERENCES, TEXTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$params", Reference("params")),
        ("$input", Reference("input")),
        ("$shared.a", Reference("shared", ("a",))),
        ("$params.a.b", Reference("params", ("a", "b"))),
        ("$input[0]", Reference("input", (0,))),
        ("$input[ 0 ].x[12]", Reference("input", (0, "x", 12))),
        ("$shared.a.0", Reference("shared", ("a", "0"))),
        ('$shared["a.b"].c', Reference("shared", ("a.b", "c"))),
        (r'$shared["say \"hi\""]', Reference("shared", ('say "hi"',))),
        ("$shared.naïve key-1", Reference("shared", ("naïve key-1",))),
        ("a", Reference("shared", ("a",))),
        ("a.b[1]", Reference("shared", ("a", "b", 1))),
        ('["a.b"].c', Reference("shared", ("a.b", "c"))),
    ],
)
def test_a_reference_is_a_path_from_a_root(text: str, expected: Reference) -> None:
    assert reference(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "$", "$foo", "$foo.x", "$inputs.x", "$params.", "$params..a", "$params[x]", "$params[-1]", "$params[1", "$shared.a]",
     "a.", "a..b", ".a", "a[", "a[b]", "[x]", '$shared["a', "$params.x" + "y" * 1024, "$sharedx"],
)  # fmt: skip
def test_what_is_no_reference_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ExprError) as refused:
        reference(text)
    assert refused.value.hint


@pytest.mark.parametrize("text", ["$5", "$foo.x", "$inputs", "params.x", "", "$", "$paramsx", " $params.x"])
def test_a_text_that_does_not_begin_like_a_reference_is_a_text(text: str) -> None:
    assert not is_reference(text)


@given_any(REFERENCES)
def test_a_reference_is_written_as_it_is_read(text: str) -> None:
    assert reference_text(reference(text)) == text


@given_any(TEXTS.filter(bool))
def test_any_member_can_be_named(member: str) -> None:
    named = Reference("shared", (member,))
    assert reference(reference_text(named)) == named


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("$params.a", Reference("params", ("a",))),
        ("a.b", Reference("shared", ("a", "b"))),
        ("'a.b", Literal("a.b")),
        ("'", Literal("")),
        ("''x", Literal("'x")),
        (3, Literal(3)),
        (None, Literal(None)),
        (["$params.a"], Literal(["$params.a"])),
    ],
)
def test_what_prep_is_given_is_a_reference_or_stands_for_itself(
    value: object, expected: Reference | Literal
) -> None:
    assert given(value) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", ("plain",)),
        ("$params.order", (Reference("params", ("order",)),)),
        ("{{ params.order }}", (Reference("params", ("order",)),)),
        ("o-{{ shared.a.b }}-{{ input }}", ("o-", Reference("shared", ("a", "b")), "-", Reference("input"))),
        ("$5", ("$5",)),
    ],
)
def test_an_idempotency_key_has_parts(text: str, parts: tuple[object, ...]) -> None:
    assert key_parts(text) == parts
