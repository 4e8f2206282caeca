"""Large values stay text: parts of them are found as in the decoded value, and what would take too long is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from holdfast.engine import draft
from holdfast.errors import ExpressionTooCostly, LimitExceeded
from holdfast.jsontext import cuts, has_few_members
from holdfast.plan import expr, unread
from holdfast.plan.unread import (
    Items,
    Meter,
    Unread,
    count_items,
    decoded_in_pieces,
    locate,
    members_in,
    value_in,
)
from holdfast.spec.work import Work, read
from holdfast.values import decode, encode
from tests.engine.driver import Case
from tests.small_limits import with_limits

names = st.sampled_from(["a", "b", "0", "1", "-1", "$x", 'q"', "é"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x,y", '"', "\\", "]{", "\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=30,
)
paths = st.lists(names | st.integers(-2, 3), max_size=4)


@pytest.fixture
def small_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every value as large, and take texts in small pieces."""
    monkeypatch.setattr(unread, "TEXT_BYTES_MIN", 8)
    monkeypatch.setattr(draft, "TEXT_BYTES_MIN", 8)
    monkeypatch.setattr(unread, "PIECE_BYTES", 16)


def plain(value: Any) -> Any:
    return decode(value) if type(value) is Raw else value


@given(json_values, paths, st.booleans())
@settings(deadline=None)
def test_a_part_is_found_in_the_text_as_in_the_value(value: Any, path: list[str | int], strict: bool) -> None:
    members = tuple(member for member in path if member != "-1")  # a name to a value, an index to a pointer
    wanted = expr.walk(value, members, strict=strict)
    large = Unread(Raw(encode(value)))
    assert plain(large.at(members, strict=strict)) == wanted
    assert plain(large.at(members[:1], strict=strict)) == expr.walk(value, members[:1], strict=strict)
    assert plain(large.at(members, strict=strict)) == wanted  # by the index


@given(st.lists(json_values, max_size=12) | st.dictionaries(names, json_values, max_size=8))
@settings(deadline=None)
def test_a_text_is_decoded_in_pieces_as_at_once(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unread, "PIECE_BYTES", 16)
        patch.setattr("holdfast.jsontext.CHUNK", 8)
        text = encode(value)
        assert decoded_in_pieces(text) == value
        if isinstance(value, list):
            items = Items(text)
            assert [decode(items.text(index)) for index in range(len(value))] == value
            assert count_items(text) == len(value)


@given(st.lists(json_values, min_size=1, max_size=12))
@settings(deadline=None)
def test_a_text_is_cut_between_members_only(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.jsontext.CHUNK", 8)
        text = encode(value)
        begin = 1
        found = list[Any]()
        for cut in cuts(text, 4):
            found += decode(b"[" + text[begin:cut] + b"]")
            begin = cut + 1
        assert found + decode(b"[" + text[begin:]) == value


def test_members_are_estimated_from_above() -> None:
    nested = encode({"rows": [{"a": 1, "b": 2}] * 50_000, "last": 1})
    flat = encode({f"k{number}": 1 for number in range(50_000)})
    assert has_few_members(nested, 20_000) and not has_few_members(flat, 20_000)


STEPS = """
name: n
steps:
  - {id: a, tool: t}
  - id: pick
    kind: branch
    on: "$.steps.a.output.rows[?@.id==2]"
    then: [{id: yes, tool: t, args: {rows: "{{a.rows}}", id: "{{a.rows[1].id}}", text: "<{{a.text}}|{{a.rows[0]}}>", none: "{{a.x.y}}"}}]
  - {id: all, kind: foreach, items: "$.steps.a.output.rows[*]", steps: [{id: s, tool: t, args: {it: "{{item}}", of: "{{inputs.who}}"}}]}
output: {rows: "{{a.rows}}", text: "{{a.text}}", pick: "{{pick.condition}}"}
"""


def outcomes(case: Case) -> list[Any]:
    rows = [{"id": 1, "$ref": "x"}, {"id": 2, "long": "y" * 40}]
    case.start()
    case.succeed("a", {"rows": rows, "text": 'said "so"\n' * 3, "other": [1, 2, 3]})
    given_to_yes = case.args("pick.yes")
    case.succeed("pick.yes", None)
    items = list[Any]()
    for index in range(2):
        items.append(case.args(f"all[{index}].s"))
        case.succeed(f"all[{index}].s", index)
    return [given_to_yes, items, case.output()]


def test_a_run_decides_the_same_whether_its_values_are_text_or_not(
    request: pytest.FixtureRequest,
) -> None:
    inputs = {"who": {"name": "caller", "tags": ["a", "b"]}}
    wanted = outcomes(Case(STEPS, inputs))
    request.getfixturevalue("small_texts")
    assert outcomes(Case(STEPS, inputs)) == wanted


@pytest.mark.usefixtures("small_texts")
def test_an_object_is_merged_member_by_member() -> None:
    value = Raw(encode({"a": 1, "b": [1, 2, 3, 4]}))
    assert {name: plain(part) for name, part in members_in(value).items()} == {"a": 1, "b": [1, 2, 3, 4]}
    assert members_in(Raw(b"[1,2,3,4,5]")) == {} == members_in(7)


# ------------------------------------------------------------------------------------------------------------ refused


def test_decoding_a_text_of_many_values_is_too_costly_and_one_of_long_strings_is_not() -> None:
    million = b"[" + b"0," * 1_000_000 + b"0]"
    with pytest.raises(ExpressionTooCostly):
        read(Raw(million))
    commas = encode({"csv": "1,2,3\n" * 500_000})  # commas in a string are no values
    assert len(read(Raw(commas), Work())["csv"]) == 3_000_000


def test_many_different_parts_of_one_large_value_are_too_costly_in_one_decision() -> None:
    large = Unread(Raw(encode({f"k{number}": "x" * 10 for number in range(600_000)})), Meter())
    assert large.at(("k5",)) == "x" * 10
    with pytest.raises(ExpressionTooCostly):
        _ = [large.at((f"k{number}",)) for number in range(1_000)]


def test_a_list_of_more_items_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, items_max=1_000)
    assert count_items(encode(list(range(1_000)))) == 1_000
    with pytest.raises(LimitExceeded, match="items_max"):
        count_items(encode([[]] * 1_001))


def test_a_small_value_is_decoded_and_a_large_one_is_not() -> None:
    assert value_in(b"[1]") == [1]
    text = encode(["x" * unread.TEXT_BYTES_MIN])
    large = value_in(text)
    assert type(large) is Raw and bytes(large) == text
    assert locate(text, (0,)) is not None
