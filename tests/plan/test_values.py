"""What templates and paths give over real values: types kept, nulls, large parts as references, and no disguise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.plan.composed import escaped_text
from holdfast.plan.expr import items_of, truthy, walk
from holdfast.plan.resolve import members_of, pointer_of, resolved
from holdfast.plan.templates import render
from holdfast.plan.unread import Items, count_items, locate
from holdfast.values import decode, encode
from tests.engine.driver import Case, starts


def args_of(template: str, inputs: dict[str, Any], *, output: Any = None) -> Any:
    """What a tool is handed for its arguments, after a first step `a` that gave `output`."""
    case = Case(
        f"name: n\nsteps: [{{id: a, tool: t}}, {{id: b, tool: t, args: {template}}}]",
        inputs,
    )
    case.start()
    case.succeed("a", output)
    return case.args("b")


# --------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -1, 1.5, 2**60, "", "text", "{{ inputs.x }}", [], [1, None], {}, {"a": {"b": 1}}],
)
def test_a_placeholder_that_is_the_whole_text_keeps_the_type_of_its_value(value: Any) -> None:
    assert args_of("{x: '{{ inputs.v }}', y: ' {{ inputs.v }} '}", {"v": value}) == {"x": value, "y": value}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),  # inside text null is nothing
        (True, "true"),
        (0, "0"),
        (1.5, "1.5"),
        ("as it is", "as it is"),
        ([1, "a", None], '[1,"a",null]'),
        ({"a": 1}, '{"a":1}'),
        ("{{ inputs.x }}", "{{ inputs.x }}"),  # what is rendered is never rendered again
    ],
)
def test_a_placeholder_inside_text_is_printed(value: Any, text: str) -> None:
    assert args_of("{x: '<{{ inputs.v }}>'}", {"v": value}) == {"x": f"<{text}>"}


def test_two_placeholders_make_a_text() -> None:
    assert args_of("{x: '{{ inputs.a }}{{ inputs.b }}'}", {"a": 1, "b": None}) == {"x": "1"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("inputs.missing", None),
        ("inputs.o.missing", None),
        ("inputs.o.n.deeper", None),  # a member of a number
        ("inputs.list[9]", None),
        ("inputs.list[1]", "b"),
        ("inputs.list.1", "b"),  # a number after a dot reaches into lists
        ("inputs.o.7", "seven"),  # and into objects
        ("inputs.list.name", None),
        ("steps.a.output.k", "v"),
        ("a.k", "v"),
        ("a.k.x", None),
        ('inputs.o["a b"]', 5),
    ],
)
def test_a_member_that_is_missing_is_null(path: str, value: Any) -> None:
    inputs = {"o": {"n": 1, "7": "seven", "a b": 5}, "list": ["a", "b"]}
    assert args_of(f"{{x: '{{{{ {path} }}}}'}}", inputs, output={"k": "v"}) == {"x": value}


def test_templates_are_rendered_in_lists_and_objects_but_not_in_keys() -> None:
    got = args_of("{'{{ inputs.v }}': ['{{ inputs.v }}', {deep: 'v={{ inputs.v }}'}]}", {"v": 3})
    assert got == {"{{ inputs.v }}": [3, {"deep": "v=3"}]}


def test_a_bare_name_is_a_binding_before_an_input_before_a_step() -> None:
    case = Case(
        """
        name: n
        inputs: {both: {}, b: {}}
        steps:
          - {id: a, tool: t}
          - id: l
            kind: foreach
            items: $.inputs.xs
            as: both
            steps: [{id: s, tool: t, args: {both: "{{ both }}", b: "{{ b }}", a: "{{ a }}"}}]
        """.replace("{both: {}, b: {}}", "{both: {default: 1}, b: {default: 2}, xs: {default: [9]}}")
    )
    case.start()
    case.succeed("a", "step")
    assert case.args("l[0].s") == {"both": 9, "b": 2, "a": "step"}


# ----------------------------------------------------------------------------------------------------- references


def rendered(template: str, inputs: dict[str, Any], output: Any) -> bytes:
    case = Case(f"name: n\nsteps: [{{id: a, tool: t}}, {{id: b, tool: t, args: {template}}}]", inputs)
    case.start()
    case.succeed("a", output)
    return bytes(case.step("b").inputs)


@pytest.mark.parametrize(
    ("template", "reference"),
    [
        ("{x: '{{ a }}'}", {"x": {"$of": "a", "at": ""}}),
        ("{x: '{{ a.big }}'}", {"x": {"$of": "a", "at": "/big"}}),
        ("{x: ['{{ inputs.big }}']}", {"x": [{"$of": "", "at": "/big"}]}),
        ("{x: '{{ a.list[0] }}'}", {"x": {"$of": "a", "at": "/list/0"}}),
        ("""{x: '{{ a["a/b~c"] }}'}""", {"x": {"$of": "a", "at": "/a~1b~0c"}}),
    ],
)
def test_a_part_over_1_kib_that_exists_is_written_as_a_reference(template: str, reference: Any) -> None:
    big = "x" * 1_100
    text = rendered(template, {"big": big}, {"big": big, "list": [big], "a/b~c": [big]})
    assert decode(text) == reference


@pytest.mark.parametrize("size", [1_020, 1_024, 1_025, 1_026, 5_000])
@pytest.mark.parametrize("shape", ["text", "list", "object", "number keys"])
def test_a_value_is_handed_over_the_same_whether_referred_to_or_not(size: int, shape: str) -> None:
    text = "é" * (size // 2)
    value: Any = {"text": text, "list": [text, 1], "object": {"$k": text}, "number keys": {"7": [text]}}[
        shape
    ]
    got = args_of("{x: '{{ a }}', y: '{{ a.7[0] }}', z: 'v{{ a }}'}", {}, output=value)
    assert got["x"] == value
    assert got["y"] == (text if shape == "number keys" else None)


def test_a_text_around_a_large_value_is_written_out() -> None:
    got = args_of("{x: 'v{{ a }}'}", {}, output="y" * 3_000)
    assert got == {"x": "v" + "y" * 3_000}


def test_a_reference_to_an_item_finds_its_own_item() -> None:
    items = [{"n": n, "pad": "x" * 2_000} for n in range(3)]
    case = Case(
        "name: n\nsteps: [{id: l, kind: foreach, items: $.inputs.xs, concurrency: 3, steps: [{id: s, tool: t, args: {x: '{{ item }}', p: '{{ item.pad }}'}}]}]",
        {"xs": items},
    )
    case.start()
    assert [case.args(f"l[{n}].s") for n in range(3)] == [{"x": item, "p": item["pad"]} for item in items]


def test_a_reference_to_the_result_of_a_loop_finds_it() -> None:
    case = Case(
        """
        name: n
        steps:
          - {id: l, kind: foreach, items: $.inputs.xs, steps: [{id: s, tool: t}]}
          - {id: b, tool: t, args: {all: "{{ l }}", one: "{{ l.iterations[1].s }}"}}
        """,
        {"xs": [1, 2]},
    )
    case.start()
    case.succeed("l[0].s", "x" * 2_000)
    case.succeed("l[1].s", "y" * 2_000)
    assert case.args("b") == {
        "all": {"iterations": [{"s": "x" * 2_000}, {"s": "y" * 2_000}]},
        "one": "y" * 2_000,
    }


# --------------------------------------------------------------------------------------------------- user's dollars

DISGUISES: list[Any] = [
    {"$of": "a", "at": ""},
    {"$$of": "a"},
    {"$secret": "KEY"},
    {"$text": ["a", {"$secret": "KEY"}]},
    {"$blob": "0" * 64},
    {"$": {"$$": {"$$$": 1}}},
    [{"$of": "", "at": "/x"}],
    {"plain": {"deep": {"$of": "x"}}},
]


@pytest.mark.parametrize("value", DISGUISES, ids=str)
def test_data_of_a_user_never_passes_for_a_reference(value: Any) -> None:
    got = args_of("{x: '{{ a }}', y: ['{{ inputs.v }}'], z: '{{ a }}'}", {"v": value}, output=value)
    assert got == {"x": value, "y": [value], "z": value}


@pytest.mark.parametrize("value", DISGUISES, ids=str)
def test_nor_does_data_that_is_large(value: Any) -> None:
    large = {"v": value, "pad": "x" * 2_000}
    assert args_of("{x: '{{ a }}', y: '{{ a.v }}'}", {}, output=large) == {"x": large, "y": value}


def test_nor_do_keys_that_stand_in_the_definition() -> None:
    got = args_of("{'$of': 1, 'at': '{{ inputs.v }}', '$$': {'$secret': 'X'}}", {"v": 2})
    assert got == {"$of": 1, "at": 2, "$$": {"$secret": "X"}}


def test_nor_do_constants_without_any_placeholder() -> None:
    assert args_of("{x: {'$of': 'a', at: ''}}", {}) == {"x": {"$of": "a", "at": ""}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$", "$of", "at", "$$of", "$secret", "$text", "k", "$blob"]), inner, max_size=4
        )
    ),
    max_leaves=15,
)


@given(json_values, json_values)
@settings(deadline=None)
def test_any_data_survives_rendering_and_resolving(constant: Any, value: Any) -> None:
    text = render({"c": constant} if constant is not None else {"c": None})(None)  # type: ignore[arg-type]
    assert decode(resolved(text, _never)) == {"c": constant}
    assert args_of("{x: '{{ a }}'}", {}, output=value) == {"x": value}


@given(json_values.filter(lambda value: value is not None))  # null prints as nothing
@settings(deadline=None)
def test_the_text_of_a_large_value_is_escaped_like_the_value(value: Any) -> None:
    assert b"".join(escaped_text(msgspec.Raw(encode(value)))) == b"".join(escaped_text(value))


@pytest.mark.parametrize("space", ["\n", "\r", "\t", " "])
def test_space_in_the_text_of_a_large_value_is_escaped(space: str) -> None:
    text = f'[1,{space}"a\\n"]'
    assert b"".join(escaped_text(msgspec.Raw(text.encode()))) == encode(text)[1:-1]


def _never(path: str, members: Any) -> Any:
    raise AssertionError("there is no reference to follow")


# ------------------------------------------------------------------------------------------------------- JSONPath


def foreach_items(path: str, inputs: dict[str, Any]) -> list[Any]:
    case = Case(
        f"name: n\nsteps: [{{id: l, kind: foreach, items: \"{path}\", concurrency: 99, steps: [{{id: s, tool: t, args: {{x: '{{{{ item }}}}'}}}}]}}]",
        inputs,
    )
    return [case.args(path)["x"] for path in starts(case.start())]


@pytest.mark.parametrize(
    ("path", "items"),
    [
        ("$.inputs.xs", [1, [2, 3], "4"]),
        ("$.inputs.xs[*]", [1, [2, 3], "4"]),
        ("$.inputs.xs[1]", [2, 3]),
        ("$.inputs.xs[-1]", ["4"]),
        ("$.inputs.xs[0:2]", [1, [2, 3]]),
        ("$['inputs']['xs']", [1, [2, 3], "4"]),
        ("$.inputs.one[*]", [7]),
        ("$.inputs.object", [{"p": 1, "q": 2}]),  # an object is one item
        ("$.inputs.object[*]", [1, 2]),
        ("$.inputs.object.*", [1, 2]),
        ("$..deep", ["found", "too"]),
        ("$.inputs.objs[?@.n > 1].n", [2, 3]),
        ("$.inputs.objs[?@.n > 2].n", [3]),  # one hit is that value
        ("$.inputs.nothing", []),
        ("$.inputs.nothing[*]", []),
        ("$.inputs.one[?@ > 99]", []),
        ("$.inputs.nulls", [None, None]),
        ("$.inputs.text", ["a,b"]),
    ],
)
def test_a_path_gives_null_one_value_or_a_list(path: str, items: list[Any]) -> None:
    inputs = {
        "xs": [1, [2, 3], "4"],
        "one": [7],
        "object": {"p": 1, "q": 2},
        "tree": [{"deep": "found"}, {"more": {"deep": "too"}}],
        "objs": [{"n": 1}, {"n": 2}, {"n": 3}],
        "nulls": [None, None],
        "text": "a,b",
    }
    assert foreach_items(path, inputs) == items


def test_the_root_of_the_document_holds_bare_names_too() -> None:
    case = Case(
        "name: n\nsteps: [{id: list, tool: t}, {id: l, kind: foreach, items: $.list.files, steps: [{id: s, tool: t, args: {f: '{{ item }}'}}]}]"
    )
    case.start()
    assert starts(case.succeed("list", {"files": ["a"]})) == ["l[0].s"]


def test_steps_of_a_branch_that_was_not_taken_are_null_in_the_document() -> None:
    case = Case(
        """
        name: n
        steps:
          - {id: br, kind: branch, on: $.inputs.no, then: [{id: y, tool: t}], else: []}
          - {id: b, kind: branch, on: "$.steps[?@.output == null]", then: [{id: z, tool: t}]}
        """
    )
    assert starts(case.start()) == ["b.z"]


# ---------------------------------------------------------------------------------------------------------- items


class Seen:
    """A view of one value, as the run would show it."""

    frames = ("",)

    def __init__(self, value: Any) -> None:
        self.text = encode(value)

    def inputs(self) -> Any:
        return decode(self.text)

    def raw(self, path: str) -> bytes | None:
        return self.text

    def output(self, path: str) -> Any:
        raise AssertionError

    def item(self, frame: str) -> Any:
        raise AssertionError


ARRAYS: list[list[Any]] = [
    [],
    [1],
    [1, 2, 3],
    [None, True, -1.5e-7],
    ["a,b", "c]d", "[", '"', '\\"', "\\", "{}", "é,\U0001f600"],
    [[1, [2, ","]], [], {}],
    [{"a": [1, {"b": "],["}]}, "x"],
    [[]],
    [""],
    [{"$of": "x"}, ["$blob"]],
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_members_are_counted_and_found_in_the_text_alone(array: list[Any]) -> None:
    text = encode(array)
    assert count_items(text) == len(array)
    items = Items(text)
    assert [decode(items.text(index)) for index in range(len(array))] == array


@given(st.lists(json_values | st.floats(allow_nan=False, allow_infinity=False), max_size=8))
@settings(deadline=None)
def test_members_of_any_array_are_found(array: list[Any]) -> None:
    text = encode(array)
    items = Items(text)
    found = [decode(items.text(index)) for index in range(len(array))]
    assert (count_items(text), found) == (len(array), array)


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ((), {"a": [1, {"b": ","}]}),
        (("a",), [1, {"b": ","}]),
        (("a", 1, "b"), ","),
        (("a", "1", "b"), ","),
        (("a", -1), {"b": ","}),
    ],
)
def test_a_place_is_found_in_the_text_as_in_the_value(members: Any, found: Any) -> None:
    text = encode({"a": [1, {"b": ","}]})
    cut = locate(text, members)
    assert cut is not None and decode(cut) == found


@pytest.mark.parametrize("members", [("b",), ("a", 2), ("a", -3), ("a", "x"), ("a", 0, "b")])
def test_a_place_that_is_not_there_is_none(members: Any) -> None:
    assert locate(encode({"a": [1, {"b": ","}]}), members) is None
    assert walk({"a": [1, {"b": ","}]}, members) is None


@given(st.lists(st.text(max_size=8) | st.integers(0, 10**6), max_size=5))
@settings(deadline=None)
def test_a_pointer_leads_back_to_its_members(members: list[str | int]) -> None:
    assert members_of(pointer_of(tuple(members))) == tuple(map(str, members))


def test_a_single_value_is_one_item_and_null_none() -> None:
    for value, count, text in [(None, 0, b"[]"), (7, 1, b"[7]"), ({"a": 1}, 1, b'[{"a":1}]')]:
        view: Any = Seen(value)
        assert items_of(lambda seen: seen.inputs(), None)(view) == (count, text)


# ------------------------------------------------------------------------------------------------------------ truth


@given(json_values)
@settings(deadline=None)
def test_truth_is_that_of_json(value: Any) -> None:
    assert truthy(value) is (
        value is not None and value is not False and value != 0 and value not in ("", [], {})
    )
