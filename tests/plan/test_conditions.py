"""How conditions are answered: the table of what compares how, and that there is always an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ExpressionTooCostly
from holdfast.plan.conditions import condition, is_equal, is_within
from holdfast.spec.condition import condition_from
from holdfast.spec.problems import Report
from holdfast.spec.reference import Reference
from holdfast.spec.work import Work
from tests.spec.flows import CONDITIONS, JSON

HELD: dict[str, Any] = {
    "params": {"yes": True, "no": False, "one": 1, "text": "true", "limit": "100", "list": [1, "b", None]},
    "shared": {"zero": 0, "empty": "", "null": None, "name": "Ada", "number": 9, "object": {"b": 1, "a": 2}},
    "input": {"v": 5},
}


def look(what: Reference) -> Any:
    value: Any = HELD[what.root]
    for member in what.members:
        value = value.get(member) if isinstance(value, dict) else None
    return value


def holds(data: Any) -> bool:
    report = Report(None, "")
    expr = condition_from(data, report, ())
    assert report.problems == []
    return condition(expr)(look, Work())


TRUE: list[Any] = [
    # numbers, and texts that look like numbers
    {"eq": [1, 1]},
    {"eq": [1, 1.0]},
    {"eq": ["1", 1]},
    {"eq": ["1.0", 1]},
    {"eq": ["1e2", "100"]},
    {"eq": ["+5", 5]},
    {"eq": [".5", 0.5]},
    {"eq": ["-0", 0]},
    {"gt": [10, "9"]},
    {"gt": ["10", "9"]},
    {"lt": ["9", "$params.limit"]},
    {"ge": [2, 2]},
    {"le": ["2", 2.0]},
    {"ne": [1, 2]},
    {"gt": [9007199254740993, 9007199254740992]},
    {"gt": ["90071992547409930000001", "90071992547409930000000"]},
    # anything else as texts
    {"eq": ["a", "a"]},
    {"ne": ["a", "A"]},
    {"gt": ["b", "a"]},
    {"lt": ["10x", "9"]},
    {"lt": [" 10", "9"]},
    {"lt": ["1_000", "2"]},
    {"ne": ["nan", "NaN"]},
    {"eq": ["inf", "inf"]},
    {"eq": [True, "true"]},
    {"ne": [True, 1]},
    {"ne": [False, 0]},
    {"ne": [False, None]},
    {"ne": ["", None]},
    {"ne": [0, None]},
    {"eq": ["null", None]},
    {"gt": [None, 5]},
    {"eq": [[1, "b"], [1.0, "b"]]},
    {"ne": [[1], ["1"]]},
    {"ne": [[True], [1]]},
    {"eq": ["$shared.object", {"a": 2, "b": 1}]},
    {"eq": ["$shared.object", '{"a":2,"b":1}']},
    {"lt": ["$shared.missing", "zzz"]},
    # what is missing
    {"eq": ["$shared.missing", None]},
    {"eq": ["$shared.missing", "$shared.null"]},
    {"eq": ["$shared.name.first", None]},
    {"not": {"lt": ["$shared.missing", 5]}},
    {"exists": "$params.no"},
    {"exists": "$shared.zero"},
    {"exists": "$shared.empty"},
    {"exists": "$input"},
    {"not": {"exists": "$shared.null"}},
    {"not": {"exists": "$shared.missing"}},
    # parts
    {"in": ["b", "$params.list"]},
    {"in": ["1", "$params.list"]},
    {"in": [None, "$params.list"]},
    {"in": ["$shared.missing", "$params.list"]},
    {"in": ["$shared.name", ["Bob", "Ada"]]},
    {"in": ["$params.one", ["x", "$params.one"]]},
    {"in": ["d", "$shared.name"]},
    {"in": ["", "$shared.name"]},
    {"in": [0, "100"]},
    {"contains": ["$params.list", "b"]},
    {"contains": ["$shared.name", "Ad"]},
    {"contains": [[[1, 2]], [1, 2]]},
    {"not": {"in": ["a", "$shared.name.x"]}},
    {"not": {"in": ["a", "$shared.object"]}},
    {"not": {"in": [None, "null"]}},
    {"not": {"contains": ["$shared.missing", "a"]}},
    {"not": {"contains": [5, 5]}},
    {"not": {"in": ["x", []]}},
    # references by themselves, and what joins
    "$params.yes",
    "$params.text",
    {"not": "$params.no"},
    {"not": "$params.one"},
    {"not": "$shared.name"},
    {"not": "$shared.missing"},
    True,
    {"not": False},
    {"and": []},
    {"not": {"or": []}},
    {"and": ["$params.yes", {"eq": ["$input.v", 5]}]},
    {"or": ["$params.no", {"and": [True, {"not": {"not": True}}]}]},
    # texts that are no references
    {"eq": ["$5", "$5"]},
    {"eq": ["$foo.bar", "$foo.bar"]},
    {"ne": ["params.yes", True]},
]


@pytest.mark.parametrize("data", TRUE, ids=str)
def test_a_condition_holds(data: Any) -> None:
    assert holds(data)


@pytest.mark.parametrize("data", TRUE, ids=str)
def test_its_opposite_does_not(data: Any) -> None:
    assert not holds({"not": data})


def test_parts_after_the_one_that_decides_are_not_looked_at() -> None:
    report, seen = Report(None, ""), []

    def watching(what: Reference) -> Any:
        seen.append(what.members)
        return True

    expr = condition_from({"or": ["$shared.a", "$shared.b"]}, report, ())
    assert condition(expr)(watching, Work())
    assert seen == [("a",)]


@given(CONDITIONS, JSON)
def test_every_condition_has_an_answer_whatever_it_meets(data: Any, met: Any) -> None:
    expr = condition_from(data, Report(None, ""), ())
    assert condition(expr)(lambda _: met, Work()) in (True, False)


@given(JSON, JSON)
def test_two_values_are_smaller_equal_or_larger(left: Any, right: Any) -> None:
    found = [holds_between(word, left, right) for word in ("lt", "eq", "gt")]
    assert found.count(True) == 1


@given(JSON, JSON)
def test_each_word_is_the_opposite_of_another(left: Any, right: Any) -> None:
    assert holds_between("ne", left, right) is not holds_between("eq", left, right)
    assert holds_between("ge", left, right) is not holds_between("lt", left, right)
    assert holds_between("le", left, right) is not holds_between("gt", left, right)


def holds_between(word: str, left: Any, right: Any) -> bool:
    expr = condition_from({word: ["$shared.a", "$shared.b"]}, Report(None, ""), ())
    return condition(expr)(lambda what: left if what.members == ("a",) else right, Work())


@given(JSON, st.lists(JSON, max_size=4))
def test_a_list_has_what_is_equal_to_one_of_its_items(item: Any, items: list[Any]) -> None:
    assert is_within(item, items, Work()) is any(is_equal(item, member, Work()) for member in items)
    assert is_within(item, [*items, item], Work())


ALIKE: st.SearchStrategy[Any] = st.sampled_from(
    [1, 1.0, "1", "1.0", True, "true", None, "null", [], "[]", [1], [1.0], "[1]", {}, "{}", "", 0, False]
)


@given(ALIKE, st.lists(ALIKE))
def test_a_list_has_what_is_equal_to_one_of_its_items_also_where_all_are_alike(
    item: Any, items: list[Any]
) -> None:
    assert is_within(item, items, Work()) is any(is_equal(item, member, Work()) for member in items)


@given(st.text("0123456789.+-eE", max_size=12), st.text("0123456789.+-eE", max_size=400))
def test_texts_that_nearly_are_numbers_are_compared_all_the_same(left: str, right: str) -> None:
    assert is_equal(left, right, Work()) is is_equal(right, left, Work())


@pytest.mark.parametrize(
    "text", ["9" * 301, "1e999", "-1e999", "0x10", "1_0", "\uff11", "--1", ".", "e5", ""]
)
def test_what_is_no_number_of_ours_is_a_text(text: str) -> None:
    assert is_equal(text, text, Work())
    assert not is_equal(text, 1, Work())


@pytest.mark.parametrize(
    ("compare", "left", "right"),
    [
        (is_within, "a" * 600 + "b" + "a" * 600, "a" * 2_400),  # a short text is searched place by place
        (is_within, "a" * 30 + "b" + "a" * 30, "a" * 29_000),
        (is_within, "1", ["9" * 290] * 100),
        (is_equal, {"k" * 100_000: 1}, {"k" * 100_000: 2}),  # names are text too
    ],
    ids=["short text", "longer text", "texts of digits", "names"],
)
def test_many_costly_comparisons_are_refused(compare: Any, left: Any, right: Any) -> None:
    def compare_often() -> None:
        work = Work()
        for _ in range(2_000):
            compare(left, right, work)

    with pytest.raises(ExpressionTooCostly):
        compare_often()


def test_a_text_is_looked_for_in_one_of_the_largest_size() -> None:
    assert not is_within("needle" * 20, "hay" * 8_000_000, Work())
