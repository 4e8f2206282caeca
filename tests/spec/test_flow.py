"""Graphs from text to records and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import FlowSpec
from holdfast.errors import InvalidSpec
from holdfast.spec.flow import Edge, FlowNode, Graph
from holdfast.spec.flow_keys import FLOW_KEYS, FLOW_KINDS, NODE_KEYS
from holdfast.spec.flow_nodes import placed
from tests.spec.flows import CALL, CONDITIONS, FULL, REFERENCES, TEXTS, choice, flow

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "graph").iterdir())


def read(data: Any, **rest: Any) -> FlowSpec:
    spec = FlowSpec.from_data(data, **rest)
    spec.validate()
    return spec


def notes_of(data: Any) -> list[tuple[str, str]]:
    return [(note.code, note.pointer) for note in read(data).notes]


# ------------------------------------------------------------------------------------------------- what is read


def test_everything_that_can_be_said_is_valid_and_comes_back_as_it_was_said() -> None:
    assert read(FULL).to_data() == FULL


def test_the_graph_that_says_everything_has_every_kind_and_every_key() -> None:
    nodes = [node for _, node in placed(read(FULL).graph)]
    assert {node.kind for node in nodes} == set(FLOW_KINDS)
    said = {key for node in FULL["nodes"].values() for key in node}
    assert said == {*NODE_KEYS, *(key for kind in FLOW_KINDS.values() for key in kind.keys)}
    assert set(FULL) == set(FLOW_KEYS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_valid_and_nothing_is_odd_about_them(path: Path) -> None:
    spec = FlowSpec.from_file(path)
    spec.validate()
    assert spec.notes == () and spec.name == path.stem


def test_json_and_yaml_are_read_alike() -> None:
    assert (
        FlowSpec.from_yaml_str(json.dumps(FULL)) == FlowSpec.from_yaml_str(read(FULL).to_yaml()) == read(FULL)
    )


def test_the_stored_text_is_read_back_as_the_same_graph() -> None:
    spec = read(FULL)
    assert FlowSpec.from_stored(spec.canonical()) == spec
    assert FlowSpec.from_stored(spec.canonical()).canonical() == spec.canonical()


def test_a_node_that_names_a_service_and_no_kind_is_an_executor() -> None:
    assert read(flow({"a": {"service": "s"}})).nodes["a"] == FlowNode("a", "executor", service="s")


@pytest.mark.parametrize("edge", [{"from": "a"}, {"from": "a", "action": "", "to": ""}, {"from": "a", "action": None, "to": None}])  # fmt: skip
def test_an_edge_that_says_nothing_more_is_the_default_one_to_the_end(edge: dict[str, Any]) -> None:
    assert read(flow(edges=[edge])).edges == (Edge("a", "default", ""),)


def test_edges_may_be_left_out() -> None:
    data = flow()
    del data["edges"]
    assert read(data).edges == ()


def test_edges_may_lead_back() -> None:
    assert read(flow(edges=[{"from": "a", "to": "a"}])).edges == (Edge("a", "default", "a"),)


@pytest.mark.parametrize("key", ["a.b", "a b", "Größe", "a/b~c", '"', "[0]", "$x", "日本"])
def test_a_node_may_have_any_key(key: str) -> None:
    assert list(read(flow({key: CALL}, [{"from": key, "to": key}])).nodes) == [key]


@pytest.mark.parametrize("delay", [0, -5, 1.5, "$params.delay", "$shared.a[0].b", "$input", None])
def test_a_timer_takes_a_number_or_a_reference(delay: Any) -> None:
    params = {"delay_ms": delay}
    assert read(flow({"a": {"kind": "timer", "params": params}})).nodes["a"].params == params


def test_the_keys_of_other_kinds_may_stand_there_with_nothing_in_them() -> None:
    empty: dict[str, Any] = {
        "choice_cases": None, "parallel_services": [], "parallel_mode": "", "max_parallel": 0, "failure_strategy": "",
        "subflow": None, "flow": "", "default_action": "", "weighted_by_load": False, "params": None, "prep": {},
        "post": {"output_key": "", "action_static": "", "action_key": "", "output_map": {}}, "timeout_ms": None,
    }  # fmt: skip
    assert read(flow({"a": {**CALL, **empty}})) == read(flow())


def test_what_concerns_calls_alone_may_stand_on_every_node() -> None:
    rules = {
        "max_retries": 1,
        "wait_ms": 5,
        "max_attempts": 2,
        "attempt_delay_ms": 5,
        "weighted_by_load": True,
    }
    spec = read(flow({"a": {"kind": "timer", **rules}}))
    assert [(note.code, note.pointer) for note in spec.notes] == [
        ("without_effect", f"/nodes/a/{key}") for key in rules
    ]


def test_a_name_from_outside_counts_instead_of_the_one_inside() -> None:
    assert read(flow(), name="g").name == "g"


def test_a_graph_without_a_name_takes_that_of_its_file(tmp_path: Path) -> None:
    data = flow()
    del data["name"]
    path = tmp_path / "by_file.json"
    path.write_text(json.dumps(data))
    assert FlowSpec.from_file(path).name == "by_file"


def test_the_name_is_part_of_the_canonical_text() -> None:
    assert read(flow(), name="g").canonical() != read(flow()).canonical()


def test_the_order_of_keys_and_what_goes_without_saying_do_not_change_the_canonical_text() -> None:
    said = {"failure_strategy": "", "service": "s", "max_retries": 0, "kind": "executor", "params": {}}
    data = dict(reversed(flow({"a": said}, [{"to": "", "from": "a"}]).items()))
    assert read(data).canonical() == read(flow(edges=[{"from": "a", "action": "default"}])).canonical()


def test_the_workflows_that_it_names_are_found_in_subflows_too() -> None:
    assert read(FULL).names == {"another", "deep"}


def test_the_steps_of_a_graph_are_the_nodes_of_its_top_level() -> None:
    assert read(FULL).step_count == len(FULL["nodes"])


def test_records_made_by_hand_meet_the_rules_of_any_other_graph() -> None:
    with pytest.raises(InvalidSpec) as refused:
        FlowSpec("f", start="a", nodes={"a": FlowNode("a", "executor", max_retries=-1)}).validate()
    assert {problem.pointer for problem in refused.value.problems} >= {
        "/nodes/a/max_retries",
        "/nodes/a/service",
    }


def test_a_graph_is_handed_on_as_the_part_that_subflows_share() -> None:
    assert read(flow()).graph == Graph("a", {"a": FlowNode("a", "executor", service="s")}, ())


# ----------------------------------------------------------------------------------------------- what is noted


def test_a_node_that_cannot_be_reached_is_noted() -> None:
    nodes = {"a": CALL, "b": CALL, "c": CALL}
    assert notes_of(flow(nodes, [{"from": "b", "to": "c"}])) == [
        ("unreachable", "/nodes/b"),
        ("unreachable", "/nodes/c"),
    ]


def test_a_node_of_a_subflow_that_cannot_be_reached_is_noted_at_its_place() -> None:
    inner = {"start": "x", "nodes": {"x": CALL, "y": CALL}}
    assert notes_of(flow({"a": {"kind": "subflow", "subflow": inner}})) == [
        ("unreachable", "/nodes/a/subflow/nodes/y")
    ]


def test_an_action_without_an_edge_is_noted_where_others_have_one() -> None:
    nodes = {"a": {**CALL, "post": {"action_static": "nxt"}}, "b": CALL}
    (note,) = read(flow(nodes, [{"from": "a", "action": "next", "to": "b"}])).notes
    assert (note.code, note.pointer, note.hint) == (
        "no_edge",
        "/nodes/a/post/action_static",
        "did you mean next?",
    )


@pytest.mark.parametrize("edges", [[], [{"from": "a", "to": "a"}]])
def test_an_action_is_not_noted_where_no_edge_or_the_default_is_meant(edges: list[Any]) -> None:
    assert notes_of(flow({"a": {**CALL, "post": {"action_static": "next"}}}, edges)) == []


def test_a_single_value_beside_a_mapping_is_noted() -> None:
    prep = {"input_key": "x", "input_map": {"a": "y"}}
    assert notes_of(flow({"a": {**CALL, "prep": prep}})) == [("without_effect", "/nodes/a/prep/input_key")]


def test_a_foreach_without_a_list_is_noted() -> None:
    assert notes_of(flow({"a": {"kind": "foreach", "service": "s"}})) == [("no_items", "/nodes/a")]


def test_a_misspelt_reference_in_a_comparison_is_noted_and_taken_as_it_stands() -> None:
    data = choice({"eq": ["$share.x", "$5"]})
    (note,) = read(data).notes
    assert (note.code, note.hint) == ("no_reference", "did you mean $shared?")
    assert note.pointer == "/nodes/a/choice_cases/0/expr/eq/0"
    assert read(data).to_data()["nodes"] == data["nodes"]


# -------------------------------------------------------------------------------------------------- properties


@given(CONDITIONS)
def test_every_condition_comes_back_as_it_was_said(expr: Any) -> None:
    assert read(choice(expr)).to_data()["nodes"] == choice(expr)["nodes"]


NODES = st.one_of(
    st.just(CALL),
    st.builds(lambda key: {**CALL, "prep": {"input_key": key}}, REFERENCES),
    st.builds(lambda expr: {"kind": "choice", "choice_cases": [{"action": "x", "expr": expr}]}, CONDITIONS),
    st.builds(
        lambda delay: {"kind": "timer", "params": {"delay_ms": delay}}, st.integers(-9, 9) | REFERENCES
    ),
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    keys = draw(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=5, unique=True))
    nodes = {key: draw(NODES) for key in keys}
    if draw(st.booleans()):
        nodes[keys[-1]] = {"kind": "subflow", "subflow": draw(graphs())}
    ways = draw(st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(["", "x", "error"])), unique=True))
    edges = [{"from": a, "action": action, "to": draw(st.sampled_from([*keys, ""]))} for a, action in ways]
    return {"start": draw(st.sampled_from(keys)), "nodes": nodes, "edges": edges}


@given(graphs())
def test_every_graph_is_the_same_after_having_been_written(data: dict[str, Any]) -> None:
    spec = read(data, name="f")
    assert FlowSpec.from_stored(spec.canonical()) == spec
    assert FlowSpec.from_yaml_str(spec.to_yaml()) == spec


# --------------------------------------------------------------------------------------- as people write them

WRITTEN: list[dict[str, Any]] = [
    {"kind": "timer", "params": {"delay_ms": 3000}, "post": {"action_static": "next"}},
    {
        "kind": "foreach",
        "service": "transform",
        "prep": {"input_key": "$shared.items"},
        "params": {"mul": 2.0},
        "post": {"output_key": "mapped", "action_static": "next"},
        "parallel_mode": "concurrent",
        "max_parallel": 8,
    },
    {
        "kind": "wait_event",
        "params": {"signal_key": "$shared.flag", "timeout_ms": 60000},
        "post": {"action_static": "next"},
    },
    {"kind": "approval", "params": {"approval_key": "$shared.approval"}, "post": {"action_key": "approval"}},
    {"kind": "choice", "choice_cases": [{"action": "big", "expr": {"gt": ["$input", 10]}}], "prep": {"input_key": "n"}},
    {"kind": "parallel", "params": {"services": ["a", "b"]}, "prep": {"input_key": "$params.x"}, "failure_strategy": "fail_fast"},
]  # fmt: skip


@pytest.mark.parametrize("node", WRITTEN, ids=lambda node: node["kind"])
def test_a_node_as_people_write_it_is_valid_and_not_odd(node: dict[str, Any]) -> None:
    assert read(flow({"a": node})).notes == ()
