"""The tools that are always there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from holdfast import Context, ToolError, tool
from holdfast.tools.failures import ArgumentMismatch, OutputTooLarge, described
from holdfast.tools.registry import Registry
from holdfast.values import RunId


def call(name: str, told: list[Any] | None = None, **args: Any) -> Any:
    made = Registry().get(name)
    assert made is not None
    bound = made.bind(args)
    if made.context is not None:
        emit = None if told is None else lambda kind, data: told.append((kind, data))
        bound[made.context] = Context(RunId("r"), "a", 1, "k", emit=emit)
    return msgspec.json.decode(made.result(asyncio.run(made.fn(**bound))))


def test_they_are_in_every_registry() -> None:
    assert Registry().names() == {"http_request", "log", "echo", "transform", "fail", "sleep"}


def test_a_tool_of_the_user_takes_the_place_of_one() -> None:
    @tool
    async def echo(value: str) -> str:
        return value.upper()

    made = Registry([echo]).get("echo")
    assert made is not None
    assert made.fn is echo


def test_they_do_not_import_the_http_client_before_it_is_used() -> None:
    program = "import sys; from holdfast.tools.registry import Registry; Registry(); print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_one_has_a_schema_and_a_description() -> None:
    for name in Registry().names():
        made = Registry().get(name)
        assert made is not None
        assert made.schema["description"]
        assert msgspec.json.encode(made.schema)


def test_echo_gives_back_what_it_is_given() -> None:
    assert call("echo", value={"a": [1, None]}) == {"a": [1, None]}
    assert call("echo") is None


def test_log_writes_a_line_about_the_run() -> None:
    told: list[Any] = []
    call("log", told, message="hello", fields={"n": 1})
    assert told == [("log", {"message": "hello", "fields": {"n": 1}})]


def test_a_field_may_have_any_name() -> None:
    told: list[Any] = []
    call("log", told, message="hello", fields={"message": 1, "self": 2})
    assert told == [("log", {"message": "hello", "fields": {"message": 1, "self": 2}})]


def test_fail_fails_with_the_kind_it_is_told() -> None:
    with pytest.raises(ToolError, match="no stock") as caught:
        call("fail", message="no stock", kind="quota")
    assert caught.value.kind == "quota"


def test_sleep_ends_when_it_is_cancelled() -> None:
    async def run() -> None:
        made = Registry().get("sleep")
        assert made is not None
        task = asyncio.create_task(made.fn(seconds=3000.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [-1, 1e9, "1"])
def test_sleep_takes_a_number_of_seconds_within_bounds(seconds: Any) -> None:
    with pytest.raises(ArgumentMismatch):
        call("sleep", seconds=seconds)


DATA = {"people": [{"name": "A", "age": 1, "x": {"y": 2}}, {"name": "B", "age": 3, "x": {"y": 4}}], "n": 7}

TRANSFORMS: list[tuple[dict[str, Any], Any]] = [
    ({}, DATA),
    ({"select": "$.n"}, 7),
    ({"select": "$.none"}, None),
    ({"select": "$.none", "default": 0}, 0),
    ({"select": "$.people[*].name"}, ["A", "B"]),
    ({"select": "$.people[*].name", "first": True}, "A"),
    ({"select": "$.people[?@.age > 1].name"}, ["B"]),
    ({"select": "$.people[?@.age > 9].name"}, []),
    ({"select": "$.people[?@.age > 9].name", "first": True, "default": "nobody"}, "nobody"),
    ({"select": "$.people", "pick": ["name", "none"]}, [{"name": "A"}, {"name": "B"}]),
    (
        {"select": "$.people", "pick": {"who": "$.name", "y": "$.x.y"}},
        [{"who": "A", "y": 2}, {"who": "B", "y": 4}],
    ),
    ({"pick": ["n"]}, {"n": 7}),
    ({"omit": ["people"]}, {"n": 7}),
    ({"pick": ["n"], "merge": {"m": 1, "n": 8}}, {"n": 8, "m": 1}),
]


@pytest.mark.parametrize(("args", "found"), TRANSFORMS, ids=str)
def test_transform_reshapes_a_value(args: dict[str, Any], found: Any) -> None:
    assert call("transform", value=DATA, **args) == found


@pytest.mark.parametrize(
    "args", [{"select": "$["}, {"select": "$." + "a" * 2000}, {"pick": {"a": "no path"}}]
)
def test_a_path_that_is_none_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as caught:
        call("transform", value=DATA, **args)
    assert caught.value.kind == "inputs"


def test_picking_from_what_has_no_keys_is_refused() -> None:
    with pytest.raises(ToolError, match=r"`pick` wants an object or a list of objects, not int"):
        call("transform", value=3, pick=["a"])


MANY = [{"id": number} for number in range(50_000)]


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("output_too_large", {"value": MANY, "merge": {"text": "x" * 200_000}}),
        ("output_too_large", {"value": {"a": "x" * 500_000}, "pick": {f"k{n}": "$" for n in range(3_000)}}),
        ("expression_too_costly", {"value": MANY, "merge": {f"k{n}": n for n in range(1_000)}}),
        ("expression_too_costly", {"value": MANY, "pick": [f"k{n}" for n in range(1_000)]}),
        ("expression_too_costly", {"value": MANY, "pick": {f"k{n}": "$" for n in range(1_000)}}),
        ("expression_too_costly", {"value": MANY, "pick": {f"k{n}": "$.id" for n in range(30)}}),
        (
            "expression_too_costly",
            {"value": {"a": list(range(50_000))}, "pick": {f"k{n}": "$..*" for n in range(100)}},
        ),
    ],
)
def test_transform_makes_nothing_huge_and_takes_no_long_time(kind: str, args: dict[str, Any]) -> None:
    with pytest.raises((ToolError, OutputTooLarge)) as caught:
        call("transform", **args)
    assert described(caught.value)[0] == kind


def test_transform_takes_a_list_of_many_objects() -> None:
    made = call("transform", value=MANY, pick={"number": "$.id"}, merge={"is_new": True})
    assert made == [{"number": number, "is_new": True} for number in range(50_000)]
    assert call("transform", value=MANY, omit=[f"k{n}" for n in range(20_000)]) == MANY
