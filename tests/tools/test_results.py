"""What a tool returns becomes JSON text, or the error says what it was and where."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast.tools import results
from holdfast.tools.failures import OutputTooLarge, described
from holdfast.tools.registry import Tool
from holdfast.values import NotJson

result = Tool.result


@pytest.fixture(params=["whole", "in pieces"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result means the same, whether it is written at once or in pieces of a few bytes."""
    if request.param == "in pieces":
        monkeypatch.setattr(results, "PIECE_BYTES", 1)
        monkeypatch.setattr(results, "MEMBERS_OF_A_PIECE", 2)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    sku: Any


class Order(msgspec.Struct):
    lines: list[Line]


class Person(pydantic.BaseModel):
    name: Any
    born: dt.date | None = None


RETURNS: list[tuple[Any, str]] = [
    (None, "null"),
    (Line("x"), '{"sku":"x"}'),
    (Order([Line(1)]), '{"lines":[{"sku":1}]}'),
    (Person(name="A", born=dt.date(2026, 1, 2)), '{"name":"A","born":"2026-01-02"}'),
    ({"people": [Person(name="A")]}, '{"people":[{"name":"A","born":null}]}'),
    (Line(Person(name="A")), '{"sku":{"name":"A","born":null}}'),
    (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), '"2026-01-02T00:00:00Z"'),
    (dt.date(2026, 1, 2), '"2026-01-02"'),
    (dt.timedelta(seconds=90), '"PT90S"'),
    (Decimal("1.50"), '"1.50"'),
    (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    (Colour.RED, '"red"'),
    (Path("/tmp/x"), '"/tmp/x"'),
    ({"files": [Path("a")]}, '{"files":["a"]}'),
    ({1: 2}, '{"1":2}'),
    ((1, 2), "[1,2]"),
]


@pytest.mark.parametrize(("value", "text"), RETURNS, ids=[text for _, text in RETURNS])
@pytest.mark.usefixtures("how")
def test_a_result_becomes_json(value: Any, text: str) -> None:
    assert result(value) == text.encode()


class Foreign:
    pass


class Rude:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("leave me alone")


def circle() -> Any:
    around: dict[str, Any] = {}
    around["again"] = [around]
    return around


def deep() -> Any:
    value: Any = 1
    for _ in range(100):
        value = {"a": value}
    return value


def branching_circle() -> Any:
    around: dict[str, Any] = {}
    around["a"] = around["b"] = [around, Path("x")]
    return around


MISFITS: list[tuple[Any, str]] = [
    ({1, 2}, "a set at $ has no JSON form; return a list"),
    ({"a": [frozenset()]}, "a frozenset at $.a[0]"),
    ({"a": b"raw"}, "a bytes at $.a has no JSON form; return text, or a file in file_refs"),
    ([1, bytearray(b"raw")], "a bytearray at $[1]"),
    (({"a": memoryview(b"raw")},), "a memoryview at $[0].a"),
    ({b"k": 1}, "a bytes as a key of the object at $ has no JSON form; use text"),
    ({"a": [{b"": 1}]}, "a bytes as a key of the object at $.a[0]"),
    ({"a": {frozenset(): 1}}, "a frozenset as a key of the object at $.a"),
    (Line({1}), "a set at $.sku"),
    (Order([Line({"x": b""})]), "a bytes at $.lines[0].sku.x"),
    (Person(name={1}), "a set at $.name"),
    ([Path("a"), {1}], "a set at $[1]"),
    (branching_circle(), "circular or nested"),
    (Foreign(), "a Foreign at $; return JSON data"),
    ({"rows": [1, Foreign()]}, "a Foreign at $.rows[1]"),
    (Line(Foreign()), "a Foreign at $.sku"),
    (Order([Line({"x": Foreign()})]), "a Foreign at $.lines[0].sku.x"),
    (Person(name=Foreign()), "a Foreign at $.name"),
    ([Path("a"), Foreign()], "a Foreign at $[1]"),
    (float("nan"), "nan at $: NaN and infinity have no JSON form"),
    ({"a": [float("inf")]}, "inf at $.a[0]"),
    (Person(name=float("nan")), "nan at $.name"),
    (circle(), "circular or nested"),
    (deep(), "nested deeper than 64 levels"),
    ((n for n in [1]), "a generator; return a list"),
    (lambda: 1, "a function at $"),
    (Foreign, "a type at $"),
    ({"a": 3 + 1j}, "a complex at $.a"),
    ("\ud800", "half of a surrogate pair at $"),
    (Rude(), "Rude"),
    ({(1, 2): 3}, "Only dicts with"),
]


@pytest.mark.parametrize(("value", "words"), MISFITS, ids=[words for _, words in MISFITS])
@pytest.mark.usefixtures("how")
def test_what_has_no_json_form_is_said_with_its_type_and_place(value: Any, words: str) -> None:
    with pytest.raises(NotJson) as caught:
        result(value)
    assert words in str(caught.value)


def test_a_coroutine_that_nobody_awaited_says_what_to_do() -> None:
    async def later() -> int:
        return 1

    with pytest.raises(NotJson, match="make the tool `async def`"):
        result(later())


def test_an_async_generator_says_what_to_do() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(NotJson, match="an async_generator; return a list"):
        result(items())


def test_twenty_megabytes_of_text_are_a_result() -> None:
    assert len(result("x" * 20_000_000)) == 20_000_002


def test_a_part_that_a_value_holds_many_times_counts_each_time() -> None:
    megabyte = "x" * 2**20
    doubled: Any = [megabyte]
    for _ in range(40):  # 2**40 megabytes of text, in a few kilobytes of memory
        doubled = [doubled, doubled]
    shared: list[Any] = [
        [megabyte] * 10_000,
        [{megabyte: 1}] * 10_000,
        {str(number): (megabyte,) for number in range(10_000)},
        [[[]] * 10_000] * 10_000,
        [Line(megabyte)] * 10_000,
        doubled,
    ]
    for value in shared:
        with pytest.raises(OutputTooLarge, match="25 MiB"):
            result(value)


def test_a_value_of_nearly_the_limit_is_written() -> None:
    assert len(result(["x" * 2**20] * 24)) == 24 * (2**20 + 3) + 1


LARGE: list[Any] = [
    list(range(300_000)),
    [[number % 7] for number in range(100_000)],
    {str(number): {"a": [number]} for number in range(50_000)},
    {"a": [[number] * 100_000 for number in range(4)], "b": None, 'c"': "é\n" * 200_000},
    ("x" * 300_000, {"y": ("z" * 300_000,)}, [], {}, (), [Line(1)] * 1_001),
]


@pytest.mark.parametrize("value", LARGE, ids=["numbers", "lists", "members", "nested", "mixed"])
def test_a_large_result_is_the_same_text_as_a_small_one_would_be(value: Any) -> None:
    assert result(value) == msgspec.json.encode(value)


def test_a_large_result_names_the_place_of_what_has_no_json_form() -> None:
    with pytest.raises(NotJson, match=r"a set at \$\.rows\[299999\]\.x"):
        result({"rows": [*range(299_999), {"x": {1}}]})
    with pytest.raises(NotJson, match=r"nan at \$\[200000\]"):
        result([*range(200_000), float("nan")])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AssertionError(), "AssertionError"),
        (AssertionError("the list is empty"), "AssertionError: the list is empty"),
        (KeyError("name"), "KeyError: 'name'"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_exception_is_described_by_its_name_once(error: Exception, message: str) -> None:
    assert described(error) == ("error", message)
