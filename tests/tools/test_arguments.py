"""What a tool is given fits its signature, or the refusal says which parameter, what was expected and what came."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import msgspec
import pydantic
import pytest

from holdfast import Context, tool
from holdfast.tools.failures import ArgumentMismatch
from holdfast.tools.registry import Registry, Tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Other:
    name: str


class Order(msgspec.Struct):
    lines: list[Line]
    at: dt.datetime


class Person(pydantic.BaseModel):
    name: str
    born: dt.date
    tags: list[str] = []


class Strict(pydantic.BaseModel, strict=True):
    at: dt.datetime


class Address(TypedDict):
    city: str
    code: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Team:
    head: Person


ID = uuid.UUID("018f0000-0000-7000-8000-000000000001")
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)


def taking(annotation: Any, default: Any = ...) -> Tool:
    def f(x: Any = default) -> Any:
        return x

    def g(x: Any) -> Any:
        return x

    fn = g if default is ... else f
    fn.__annotations__["x"] = annotation
    return Tool(fn, "t")


FITS: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (int, 10**30, 10**30),
    (float, 3, 3.0),
    (float, 0.5, 0.5),
    (str, "a", "a"),
    (bool, True, True),
    (list, [1], [1]),
    (dict, {"a": 1}, {"a": 1}),
    (dict[str, Any], {"a": 1}, {"a": 1}),
    (Any, {"a": [None]}, {"a": [None]}),
    (object, 1, 1),
    (None, None, None),
    (int | None, None, None),
    (Optional[int], 4, 4),  # noqa: UP045
    (int | str, "a", "a"),
    (list[int], [1, 2], [1, 2]),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (tuple[int, ...], [1, 2], (1, 2)),
    (set[str], ["a"], {"a"}),
    (Sequence[int], [1], [1]),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (Literal["a", "b"], "b", "b"),
    (Colour, "red", Colour.RED),
    (Line, {"sku": "x"}, Line("x")),
    (list[Line], [{"sku": "x", "count": 2}], [Line("x", 2)]),
    (dict[str, Line], {"a": {"sku": "x"}}, {"a": Line("x")}),
    (Line | None, {"sku": "x"}, Line("x")),
    (Line | Other, {"name": "n"}, Other("n")),
    (dt.datetime | str, "2026-05-01T12:00:00Z", NOON),
    (dt.datetime | str, "soon", "soon"),
    (Order, {"lines": [{"sku": "x"}], "at": "2026-05-01T12:00:00Z"}, Order([Line("x")], NOON)),
    (Address, {"city": "Ulm"}, {"city": "Ulm"}),
    (Point, [1, 2], Point(1, 2)),
    (dt.datetime, "2026-05-01T12:00:00Z", NOON),
    (dt.date, "2026-05-01", dt.date(2026, 5, 1)),
    (dt.time, "12:00:00", dt.time(12)),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
    (Decimal, "1.50", Decimal("1.50")),
    (Decimal, 3, Decimal(3)),
    (uuid.UUID, str(ID), ID),
    (bytes, "aGk=", b"hi"),
    (Path, "/etc/hosts", Path("/etc/hosts")),
    (list[Path], ["a"], [Path("a")]),
    (Person, {"name": "Ada", "born": "1815-12-10"}, Person(name="Ada", born=dt.date(1815, 12, 10))),
    (list[Person], [{"name": "A", "born": "1815-12-10"}], [Person(name="A", born=dt.date(1815, 12, 10))]),
    (Person | None, None, None),
    (Strict, {"at": "2026-05-01T12:00:00Z"}, Strict(at=NOON)),
    (Team, {"head": {"name": "A", "born": "1815-12-10"}}, Team(Person(name="A", born=dt.date(1815, 12, 10)))),
    (Annotated[int, msgspec.Meta(ge=3)], 3, 3),
    (Annotated[int, pydantic.Field(ge=3)], 3, 3),
]


@pytest.mark.parametrize(("annotation", "given", "taken"), FITS, ids=lambda part: str(part)[:40])
def test_an_argument_becomes_what_its_annotation_says(annotation: Any, given: Any, taken: Any) -> None:
    found = taking(annotation).bind({"x": given})["x"]
    assert found == taken
    assert type(found) is type(taken)


MISFITS: list[tuple[Any, Any, str]] = [
    (int, "x", "x: expected int, got str"),
    (int, True, "x: expected int, got bool"),
    (int, 1.5, "x: expected int, got float"),
    (int, None, "x: expected int, got null"),
    (float, "1", "x: expected float, got str"),
    (str, 1, "x: expected str, got int"),
    (bool, 1, "x: expected bool, got int"),
    (list, {}, "x: expected array, got object"),
    (dict, [], "x: expected object, got array"),
    (list[int], [1, "a"], "x[1]: expected int, got str"),
    (list[Line], [{"count": 1}], "x[0]: object missing required field sku"),
    (Order, {"lines": [{"sku": 1}], "at": "2026-05-01T12:00:00Z"}, "x.lines[0].sku: expected str, got int"),
    (Literal["a"], "b", "x: invalid enum value"),
    (Colour, "green", "x: invalid enum value"),
    (dt.datetime, "soon", "x: invalid RFC3339"),
    (dt.timedelta, 5, 'x: expected duration such as "PT30S", got int'),
    (uuid.UUID, "no", "x: invalid UUID"),
    (Line | Other, 3, "x: expected"),
    (Path, 3, "expected path, got int"),
    (Person, {"name": "A"}, "x.born: Field required"),
    (list[Person], [{"born": 3}], "x[0].name: Field required (and 1 more)"),
    (Team, {"head": {}}, "x.head: field required"),
    (Annotated[int, msgspec.Meta(ge=3)], 2, "x: expected int >= 3"),
    (Annotated[int, pydantic.Field(ge=3)], 2, "greater than or equal to 3"),
]


@pytest.mark.parametrize(("annotation", "given", "words"), MISFITS, ids=lambda part: str(part)[:40])
def test_a_misfit_names_the_parameter_what_was_expected_and_what_came(
    annotation: Any, given: Any, words: str
) -> None:
    with pytest.raises(ArgumentMismatch) as caught:
        taking(annotation).bind({"x": given})
    assert words in str(caught.value)
    assert caught.value.kind == "inputs"


def test_a_misfit_of_pydantic_does_not_repeat_the_value() -> None:
    with pytest.raises(ArgumentMismatch) as caught:
        taking(Person).bind({"x": {"name": ["hunter2hunter2"], "born": "hunter2hunter2"}})
    assert "hunter2" not in str(caught.value)


class Fragile:
    def __init__(self) -> None:
        raise AssertionError("never made")


@dataclasses.dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        raise KeyError(self.n)


def test_a_class_that_raises_while_it_is_made_is_a_misfit() -> None:
    with pytest.raises(ArgumentMismatch, match=r"x: KeyError while it was being made Picky"):
        taking(Picky).bind({"x": {"n": 1}})


def three(a: int, b: str, *, limit: int = 10) -> None: ...


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ArgumentMismatch) as caught:
        Tool(three, "three").bind({"a": "x", "limt": 3})
    assert str(caught.value) == (
        "the arguments do not fit the tool 'three': a: expected int, got str; 'b' is missing; "
        "there is no parameter 'limt' (did you mean limit?)"
    )


def test_arguments_with_defaults_may_be_left_out() -> None:
    assert Tool(three, "three").bind({"a": 1, "b": "x"}) == {"a": 1, "b": "x"}


def test_the_given_arguments_are_left_as_they_are() -> None:
    given = {"x": {"sku": "a"}}
    taking(Line).bind(given)
    assert given == {"x": {"sku": "a"}}


def test_null_is_welcome_where_the_default_is_none() -> None:
    assert taking(int, None).bind({"x": None}) == {"x": None}
    assert taking(int, None).bind({"x": 3}) == {"x": 3}


def test_a_parameter_without_annotation_takes_anything() -> None:
    assert Tool(lambda x: x, "t").bind({"x": [{}]}) == {"x": [{}]}


def anything(a: int, **rest: int) -> None: ...


def test_further_names_go_to_the_double_star_and_are_checked_by_its_annotation() -> None:
    assert Tool(anything, "t").bind({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(ArgumentMismatch, match="b: expected int, got str"):
        Tool(anything, "t").bind({"a": 1, "b": "x"})


def test_extra_positions_are_nothing_a_step_can_give() -> None:
    assert Tool(lambda *args, **kwargs: None, "t").bind({"a": 1}) == {"a": 1}


def nameless(a: int, /) -> None: ...


def test_a_parameter_that_has_no_name_to_callers_is_refused_at_registration() -> None:
    with pytest.raises(TypeError, match=r"tool 'nameless': arguments are given by name, and 'a' has none"):
        Registry([nameless])


def unreadable(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_an_annotation_that_names_nothing_is_refused_at_registration() -> None:
    with pytest.raises(TypeError, match=r"parameter 'a': the annotation 'Missing' cannot be read"):
        Registry([unreadable])


def test_an_annotation_without_json_form_is_refused_at_registration() -> None:
    for annotation in (Fragile, complex, Callable[[], int], list[Fragile]):
        with pytest.raises(TypeError, match=r"tool 't', parameter 'x': .* has no JSON form \(accepted are"):
            taking(annotation)


def test_a_type_defined_around_the_function_is_found() -> None:
    @dataclasses.dataclass
    class Near:
        n: int

    def near(it: Near) -> Near:
        return Near(it.n)

    assert Tool(near, "near").bind({"it": {"n": 1}}) == {"it": Near(1)}


# ------------------------------------------------------------------------------------------------------- context


def plain_context(ctx: Context) -> None: ...
def optional_context(a: int, ctx: Context | None = None) -> None: ...
def old_context(ctx: Optional[Context] = None) -> None: ...  # noqa: UP045
def annotated_context(ctx: Annotated[Context, "mine"]) -> None: ...


@pytest.mark.parametrize("fn", [plain_context, optional_context, old_context, annotated_context])
def test_a_context_is_found_however_it_is_annotated(fn: Any) -> None:
    made = Tool(fn, "t")
    assert made.context == "ctx"
    assert "ctx" not in made.schema["properties"]
    with pytest.raises(ArgumentMismatch, match="there is no parameter 'ctx'"):
        made.bind({"a": 1, "ctx": 1})


def test_a_context_imported_for_the_type_checker_alone_is_found() -> None:
    def f(ctx: object) -> None: ...

    f.__annotations__["ctx"] = "somewhere.Context"
    assert Tool(f, "t").context == "ctx"


def test_two_contexts_are_one_too_many() -> None:
    def f(a: Context, b: Context) -> None: ...

    with pytest.raises(TypeError, match="both 'a' and 'b' are annotated Context"):
        Tool(f, "t")


def test_a_context_beside_a_double_star_cannot_be_given() -> None:
    def f(ctx: Context, **rest: Any) -> None: ...

    with pytest.raises(ArgumentMismatch, match="no parameter 'ctx'"):
        Tool(f, "t").bind({"ctx": 1})


# ------------------------------------------------------------------------------------------ functions of all kinds


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, a: int) -> int:
        return a + self.by

    def method(self, a: int) -> int:
        return a + self.by


class AsyncAdder:
    async def __call__(self, a: int) -> int:
        return a


def add(a: int, b: int) -> int:
    return a + b


def wrapped(fn: Any) -> Any:
    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


def test_a_partial_has_the_name_of_its_function_and_the_rest_of_its_parameters() -> None:
    (made,) = Registry([functools.partial(add, b=2)])
    assert made.name == "add"
    assert made.fn(**made.bind({"a": 1})) == 3


def test_a_partial_by_position_takes_only_what_is_left() -> None:
    made = Tool(functools.partial(add, 1), "t")
    assert made.fn(**made.bind({"b": 2})) == 3


def test_an_object_that_can_be_called_is_a_tool_under_a_given_name() -> None:
    (made,) = Registry([tool(name="plus")(Adder(2))])
    assert (made.name, made.fn(**made.bind({"a": 1}))) == ("plus", 3)


def test_an_object_without_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"has no name to be called by; give it one"):
        Registry([Adder(2)])


def test_an_object_whose_call_is_async_is_an_async_tool() -> None:
    assert Tool(AsyncAdder(), "t").is_async


def test_a_method_is_a_tool_marked_or_not() -> None:
    adder = Adder(2)
    assert [made.name for made in Registry([adder.method])] == ["method"]
    (made,) = Registry([tool(name="plus")(adder.method)])
    assert (made.name, made.fn(**made.bind({"a": 1}))) == ("plus", 3)


def test_the_same_method_given_twice_is_one_tool() -> None:
    adder = Adder(2)
    assert len(list(Registry([adder.method, adder.method]))) == 1


def test_two_functions_of_one_name_are_refused_unless_one_shall_replace_the_other() -> None:
    registry = Registry([tool(name="add")(add)])
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        registry.add(tool(name="add")(lambda a: a))
    registry.add(tool(name="add")(lambda a: a), replace=True)
    assert [made.schema["required"] for made in registry] == [["a"]]


def test_a_function_behind_a_decorator_keeps_its_signature() -> None:
    with pytest.raises(ArgumentMismatch, match="a: expected int, got str"):
        Tool(wrapped(add), "t").bind({"a": "x", "b": 1})


def test_a_generator_is_refused_at_registration() -> None:
    def items() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for fn in (items, later):
        with pytest.raises(TypeError, match="is a generator, and a step has one output"):
            Registry([fn])


def test_what_is_wrong_with_a_tool_is_told_with_its_file_and_line() -> None:
    def items() -> Any:
        yield 1

    place = f"{__file__}:{items.__code__.co_firstlineno}"
    with pytest.raises(TypeError, match=rf"instead of yielding \({re.escape(place)}\)$"):
        Registry([items])


def test_a_text_is_no_tool() -> None:
    with pytest.raises(TypeError, match=r"did you mean @tool\(name='add'\)"):
        tool("add")  # type: ignore[call-overload]


def test_a_function_of_c_that_says_nothing_of_its_parameters_takes_anything() -> None:
    assert Tool(dict, "t").bind({"a": 1}) == {"a": 1}


# -------------------------------------------------------------------------------------------------------- schema


def described(
    lines: list[Line],
    person: Person,
    at: dt.datetime,
    n: int = 3,
    odd: Any = Fragile,
    ctx: Context | None = None,
) -> None:
    """Does nothing."""


def test_the_schema_describes_every_argument() -> None:
    schema = Tool(described, "t").schema
    assert schema["description"] == "Does nothing."
    assert schema["required"] == ["at", "lines", "person"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["lines"] == {"type": "array", "items": {"$ref": "#/$defs/Line"}}
    assert schema["properties"]["at"] == {"type": "string"}
    assert schema["properties"]["n"] == {"type": "integer", "default": 3}
    assert schema["properties"]["odd"] == {}
    assert schema["properties"]["person"]["title"] == "Person"
    assert schema["$defs"]["Line"]["required"] == ["sku"]


@pytest.mark.parametrize("annotation", [annotation for annotation, _, _ in FITS], ids=str)
def test_every_accepted_annotation_has_a_schema_that_is_json(annotation: Any) -> None:
    assert msgspec.json.encode(taking(annotation).schema)


# ------------------------------------------------------------------------------------------------- in one go


def of_every_type(i: int, s: str, b: bool, f: float, d: dict, a: list[Any]) -> None:  # type: ignore[type-arg]
    """A tool whose arguments fit by their types alone."""


FITTING = {"i": 1, "s": "x", "b": True, "f": 1.5, "d": {"k": [1]}, "a": [{"k": None}]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in FITTING
        for value in (0, -1, 2**70, 10**400, 1.0, 1e300, "1", "", True, None, {}, {"k": 1}, [], [1, "2"])
    ],
    ids=lambda value: f"{value!r:.12}",
)
def test_arguments_decoded_in_one_go_are_those_that_would_be_bound(name: str, value: Any) -> None:
    called = Tool(of_every_type, "t")
    args = dict(reversed((FITTING | {name: value}).items()))
    assert called.decode is not None
    try:
        found = msgspec.structs.astuple(called.decode(json.dumps(args).encode()))
    except msgspec.DecodeError:
        return  # bound, or refused, by `bind`
    bound = called.bind(args)
    assert [(type(one), one) for one in found] == [(type(bound[each]), bound[each]) for each in FITTING]


@pytest.mark.parametrize("args", [{}, FITTING | {"more": 1}, {"i": 1}], ids=["none", "more", "fewer"])
def test_other_arguments_than_the_parameters_are_not_decoded_in_one_go(args: dict[str, Any]) -> None:
    decode = Tool(of_every_type, "t").decode
    assert decode is not None
    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.json.encode(args))


def named_only(a: int, *, b: int) -> None: ...


def with_default(a: int, b: int = 2) -> None: ...


def with_more(a: int, **more: int) -> None: ...


def with_context(a: int, context: Context) -> None: ...


def with_a_date(a: int, at: dt.datetime) -> None: ...


Either = float | int  # what a user may write, though type checkers take it for `float`


def with_either(a: Either, b: int) -> None: ...


def by_name(fn: Any) -> Any:
    @functools.wraps(fn)
    def inner(**kwargs: Any) -> Any:
        return fn(**kwargs)

    return inner


@pytest.mark.parametrize(
    "fn",
    [named_only, with_default, with_more, with_context, with_a_date, with_either, by_name(add), Adder(2)],
)
def test_arguments_that_types_do_not_decide_are_bound_one_by_one(fn: Callable[..., Any]) -> None:
    called = Tool(fn, "t")
    assert called.decode is not None
    with pytest.raises(msgspec.DecodeError):
        called.decode(b'{"a":1,"b":2,"at":"2024-01-01T00:00:00Z"}')
    assert called.decode is None
