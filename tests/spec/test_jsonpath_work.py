"""What a unit of work stands for: no path does much more for it than another, so the budget bounds the time of all."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from holdfast.errors import ExpressionTooCostly
from holdfast.spec.jsonpath import Query
from holdfast.spec.work import Work

UNITS = 4_000
LINES_OF_A_UNIT = 7  # of Python; 250,000 units take less than 0.1 s


def _tree(depth: int, width: int) -> dict[str, Any]:
    return {"id": depth, "c": [_tree(depth - 1, width) for _ in range(width)]} if depth else {"id": 0}


DATA: dict[str, Any] = {
    "a": list(range(300)),
    "t": _tree(4, 5),
    "s": ["x" * 1_000 + str(number) for number in range(300)],
    "o": [{"id": number, "name": f"n{number}", "v": [number, number + 1]} for number in range(300)],
    "m": [[number] * 10 for number in range(100)],
    "e": [{} for _ in range(300)],
    "l": [[["a"]]] * 300,
}


@pytest.mark.parametrize(
    "path",
    [
        "$.a[?@==$.a]",
        "$..*..*..*..*",
        "$..id",
        "$.o[?@.id==@.id]",
        "$.o[?@.v[?@>5]]",
        "$.t..[?@.id==0]",
        "$.a[?@>0 && @<5 && @!=3 || @==7]",
        "$.s[?@==$.s[299]]",
        "$.s[?@<=$.s[0]]",
        "$.o[?count(@.*)==3]",
        "$.o[?length(@.name)>2 && !(@.id<5)]",
        "$.e[?@.a.b.c.d.e.f]",
        "$.e..x",
        "$.o[?@==$.o[0]]",
        "$..[?@.id]",
        "$.l..[?length(@)==1]",
        "$.m[?@[?@[?@]]]",
        "$.l[*][*][?@=='a']",
        "$..[0,1,2,-1,::2]",
        "$.a[?!(!(!(@==0)))]",
        "$.e[?value(@.a)==$.q]",
        "$.t..[?count(@..id)>3]",
        "$.e[?@.a||@.b||@.c||@.d||@.e||@.f]",
        "$.l[?@==$.l[0]]",
        "$.e[?@" + ".a" * 300 + "]",
        "$.a[?" + "!" * 50 + "@]",
        "$.a[?" + " && ".join(["@"] * 50) + "]",
    ],
)
def test_a_unit_of_work_is_worth_few_lines_of_python(path: str) -> None:
    query, work, lines = Query(path), Work(), 0
    before = work.left = UNITS

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    former = sys.gettrace()
    sys.settrace(count)
    try:
        query.find(DATA, work)
    except ExpressionTooCostly:
        pass
    finally:
        sys.settrace(former)
    assert lines <= LINES_OF_A_UNIT * (before - work.left) + 100
