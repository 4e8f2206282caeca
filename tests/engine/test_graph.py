"""Graphs: variables, actions, edges, cycles, calls side by side, and graphs within graphs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from holdfast.engine.decisions import Decision, Take
from holdfast.engine.events import RunStarted
from holdfast.values import decode, encode
from tests.engine.driver import Case, armed, failures, finish, starts
from tests.small_limits import with_limits


def graph(start: str, nodes: dict[str, Any], *edges: tuple[str, str, str], **more: Any) -> str:
    joined = [{"from": source, "action": action, "to": target} for source, action, target in edges]
    return json.dumps({"name": "g", "start": start, "nodes": nodes, "edges": joined, **more})


def executor(service: str = "work", **more: Any) -> dict[str, Any]:
    return {"kind": "executor", "service": service, **more}


def keeps(key: str, **more: Any) -> dict[str, Any]:
    return executor(post={"output_key": key}, **more)


def begun(definition: str, params: dict[str, Any] | None = None, **uses: str) -> Case:
    case = Case(definition, params, uses=uses)
    case.start()
    return case


def shared(decisions: list[Decision]) -> Any:
    """The final shared state of a run that completes with these decisions."""
    end = finish(decisions)
    assert end.status == "completed", end.error
    return decode(end.output)


def taken(decisions: list[Decision]) -> list[tuple[str, str, str]]:
    return [(order.path, order.action, order.to) for order in decisions if isinstance(order, Take)]


# ------------------------------------------------------------------------------------------------- what is given


PREPS: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    ({"input_key": "$params.x"}, {"x": 3}, 3),
    ({"input_key": "$params.x.y[1]"}, {"x": {"y": [4, 5]}}, 5),
    ({"input_key": "$params.missing"}, {"x": 3}, None),
    ({"input_key": "nothing.there"}, {}, None),
    ({"input_key": "$shared.nothing"}, {}, None),
    ({"input_key": "$input"}, {"x": 1}, None),
    ({"input_key": "$params"}, {"x": 1}, {"x": 1}),
    ({"input_map": {"a": "$params.x", "b": "'text", "c": 7, "d": "gone"}}, {"x": 1}, {"a": 1, "b": "text", "c": 7, "d": None}),
    ({"input_key": "$params.x", "input_map": {"a": "$params.x"}}, {"x": 1}, {"a": 1}),
    ({}, {"x": 1}, None),
]  # fmt: skip


@pytest.mark.parametrize(("prep", "params", "given"), PREPS)
def test_prep_says_what_a_node_is_given(prep: dict[str, Any], params: dict[str, Any], given: Any) -> None:
    case = begun(graph("a", {"a": executor(prep=prep)}), params)
    assert case.args("a") == {"input": given, "params": params}


def test_a_path_without_a_dollar_is_one_in_shared_state() -> None:
    case = begun(
        graph("a", {"a": keeps("out"), "b": executor(prep={"input_key": "out.x[0]"})}, ("a", "default", "b"))
    )
    case.succeed("a", {"x": [9]})
    assert case.args("b")["input"] == 9


def test_the_params_of_a_node_win_over_those_of_the_task() -> None:
    case = begun(graph("a", {"a": executor(params={"x": 2, "z": "$params.y"})}), {"x": 1, "y": 5})
    assert case.args("a")["params"] == {"x": 2, "y": 5, "z": 5}


def test_prep_sees_the_params_as_the_node_has_them() -> None:
    case = begun(graph("a", {"a": executor(params={"x": 2}, prep={"input_key": "$params.x"})}), {"x": 1})
    assert case.args("a")["input"] == 2


def test_large_params_are_referred_to_and_not_repeated() -> None:
    case = begun(graph("a", {"a": executor(params={"op": "upper"})}), {"text": "x" * 5_000, "n": 1})
    assert case.args("a")["params"] == {"op": "upper", "text": "x" * 5_000, "n": 1}
    assert len(bytes(case.step("a").inputs)) < 200


def test_keys_that_begin_with_a_dollar_come_through_as_they_are() -> None:
    odd = {"$of": "a", "$secret": "b", "x": {"$text": ["c"]}}
    definition = graph(
        "a",
        {"a": keeps("out"), "b": executor(prep={"input_key": "out"}, post={"output_key": "again"})},
        ("a", "default", "b"),
    )
    case = begun(definition, {"p": odd})
    case.succeed("a", odd)
    assert case.args("b") == {"input": odd, "params": {"p": odd}}
    finish(case.succeed("b", odd))


# ------------------------------------------------------------------------------------------- what it leaves behind


def test_a_result_is_kept_under_its_key_and_is_the_output_of_the_run() -> None:
    case = begun(graph("a", {"a": keeps("out")}))
    assert shared(case.succeed("a", [1, {"b": None}])) == {"out": [1, {"b": None}]}


def test_fields_of_a_result_are_copied_and_missing_ones_are_null() -> None:
    post = {"output_key": "all", "output_map": {"x": "a", "y": "b.c", "z": "none"}}
    case = begun(graph("a", {"a": executor(post=post)}))
    result = {"a": 1, "b": {"c": 2}}
    assert shared(case.succeed("a", result)) == {"all": result, "x": 1, "y": 2, "z": None}


def test_a_node_without_post_writes_nothing() -> None:
    case = begun(graph("a", {"a": executor()}))
    assert shared(case.succeed("a", 5)) == {}


def test_nothing_is_written_by_an_attempt_that_failed() -> None:
    case = begun(graph("a", {"a": keeps("out", max_retries=1)}))
    case.fail("a")
    assert case.run.frames[""].vars == {}


def test_variables_over_25_mib_fail_the_node_that_writes_them() -> None:
    case = begun(graph("a", {"a": keeps("x"), "b": keeps("y")}, ("a", "default", "b")))
    case.checks = False
    case.succeed("a", "x" * (13 * 2**20))
    case.go_on()
    end = finish(case.succeed("b", "y" * (13 * 2**20)))
    assert end.error is not None and end.error.kind == "vars_too_large"


# ------------------------------------------------------------------------------------------------ actions and edges


ACTIONS: list[tuple[dict[str, Any], Any, str]] = [
    ({"post": {"action_static": "go"}}, {"go": "other"}, "go"),
    ({"post": {"action_key": "next"}}, {"next": "go"}, "go"),
    ({"post": {"action_key": "next.name"}}, {"next": {"name": "go"}}, "go"),
    ({"post": {"action_key": "next", "action_static": "go"}}, {"next": "other"}, "go"),
    ({"post": {"action_key": "next"}, "default_action": "go"}, {"next": 5}, "go"),
    ({"post": {"action_key": "next"}, "default_action": "go"}, "text", "go"),
    ({"default_action": "go"}, None, "go"),
    ({"post": {"action_key": "kept", "output_map": {"kept": "inner"}}}, {"inner": "go"}, "go"),
    ({"post": {"action_key": "next"}}, {"next": True}, ""),
    ({}, {"action": "go"}, ""),
]


@pytest.mark.parametrize(("rules", "result", "action"), ACTIONS)
def test_the_action_of_a_node(rules: dict[str, Any], result: Any, action: str) -> None:
    nodes = {"a": executor(**rules), "b": executor(), "c": executor()}
    case = begun(graph("a", nodes, ("a", "go", "b"), ("a", "default", "c")))
    decisions = case.succeed("a", result)
    assert taken(decisions) == [("a", action, "b" if action == "go" else "c")]
    assert starts(decisions) == ["b" if action == "go" else "c"]


def test_an_action_that_no_edge_has_takes_the_default_edge() -> None:
    nodes = {"a": executor(post={"action_static": "elsewhere"}), "b": executor()}
    case = begun(graph("a", nodes, ("a", "default", "b")))
    assert starts(case.succeed("a")) == ["b"]


def test_without_an_edge_that_fits_the_run_completes() -> None:
    nodes = {"a": executor(post={"action_static": "elsewhere"}), "b": executor()}
    case = begun(graph("a", nodes, ("a", "go", "b")))
    assert finish(case.succeed("a")).status == "completed"


def test_an_edge_to_nowhere_ends_the_run() -> None:
    nodes = {"a": executor(post={"action_static": "stop"}), "b": executor()}
    case = begun(graph("a", nodes, ("a", "stop", ""), ("a", "default", "b")))
    assert finish(case.succeed("a")).status == "completed"


FAILS = [
    ("boom", {"error": "b", "default": "c"}, "b"),
    ("boom", {"default": "c"}, "c"),
    ("boom", {"timeout": "b", "default": "c"}, "c"),
    ("timeout", {"timeout": "b", "error": "c"}, "b"),
    ("timeout", {"error": "c"}, "c"),
    ("timeout", {"default": "c"}, "c"),
]


@pytest.mark.parametrize(("kind", "edges", "target"), FAILS)
def test_a_failure_takes_its_own_edge_then_error_then_default(
    kind: str, edges: dict[str, str], target: str
) -> None:
    nodes = {"a": executor(), "b": executor(), "c": executor()}
    case = begun(graph("a", nodes, *(("a", action, to) for action, to in edges.items())))
    decisions = case.fail("a", kind)
    assert starts(decisions) == [target]
    (said,) = [action for action, to in edges.items() if to == target]
    assert taken(decisions) == [("a", "" if said == "default" else said, target)]


def test_a_failure_that_no_edge_takes_fails_the_run() -> None:
    case = begun(graph("a", {"a": executor(), "b": executor()}, ("a", "go", "b")))
    end = finish(case.fail("a", message="it broke"))
    assert (end.status, end.error and end.error.message) == ("failed", "it broke")


def test_retries_wait_and_are_counted() -> None:
    case = begun(graph("a", {"a": executor(max_retries=2, wait_ms=50)}))
    assert armed(case.fail("a")) == {"retry a": case.now + 50}
    case.fire("retry", "a")
    case.fail("a")
    case.fire("retry", "a")
    assert case.step("a").attempt == 3
    assert finish(case.fail("a")).status == "failed"


# ----------------------------------------------------------------------------------------------------- choice


def choice(*cases: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "kind": "choice",
        "choice_cases": [{"action": name, "expr": expr} for name, expr in cases],
        **more,
    }


def test_the_first_case_that_holds_is_taken_without_a_call() -> None:
    nodes = {
        "c": choice(("big", {"gt": ["$params.n", 10]}), ("small", {"le": ["$params.n", 10]})),
        "b": executor(),
        "s": executor(),
    }
    edges = (("c", "big", "b"), ("c", "small", "s"))
    assert begun(graph("c", nodes, *edges), {"n": 11}).open == ["b"]
    assert begun(graph("c", nodes, *edges), {"n": "10"}).open == ["s"]


def test_the_cases_of_a_choice_share_one_budget_of_work() -> None:
    text = "x" * 3_000_000
    cases = [(f"c{number}", {"eq": ["$params.a", f"{text[:9]}{number}"]}) for number in range(100)]
    case = Case(graph("c", {"c": choice(*cases)}), {"a": text})
    assert failures(case.start())["c"].kind == "expression_too_costly"


def test_a_choice_keeps_its_input_and_compares_it() -> None:
    node = choice(
        ("yes", {"eq": ["$input.x", 1]}), prep={"input_key": "$params.o"}, post={"output_key": "seen"}
    )
    case = begun(graph("c", {"c": node, "b": executor()}, ("c", "yes", "b")), {"o": {"x": 1}})
    assert shared(case.succeed("b")) == {"seen": {"x": 1}}


def test_a_choice_without_a_match_asks_its_input_then_shared_state_then_the_default() -> None:
    never = ("no", {"eq": [1, 2]})
    edges = (("c", "x", "x"), ("c", "d", "d"), ("c", "no", "n"))
    others = {"x": executor(), "d": executor(), "n": executor()}
    by_key = choice(never, prep={"input_key": "$params.o"}, post={"action_key": "k"}, default_action="d")
    definition = graph("c", {"c": by_key, **others}, *edges)
    assert begun(definition, {"o": {"k": "x"}}).open == ["x"]
    assert begun(definition, {"o": {"k": 5}}).open == ["d"]


@pytest.mark.parametrize("cases", [{}, {"choice_cases": []}])
def test_a_choice_without_cases_goes_by_its_input(cases: dict[str, Any]) -> None:
    node = {"kind": "choice", "prep": {"input_key": "$params.o"}, "post": {"action_key": "k"}, **cases}
    definition = graph("c", {"c": node, "x": executor(), "y": executor()}, ("c", "x", "x"), ("c", "y", "y"))
    assert begun(definition, {"o": {"k": "y"}}).open == ["y"]


# ------------------------------------------------------------------------------------------------------ cycles


COUNTER = graph(
    "work",
    {
        "work": keeps("n", prep={"input_key": "n"}),
        "again": choice(("more", {"lt": ["$shared.n", 3]})),
        "done": executor(prep={"input_key": "n"}),
    },
    ("work", "default", "again"),
    ("again", "more", "work"),
    ("again", "default", "done"),
)


def test_each_visit_of_a_node_on_a_cycle_is_a_step_of_its_own() -> None:
    case = begun(COUNTER)
    assert starts(case.succeed("work", 1)) == ["work~2"]
    assert case.args("work~2")["input"] == 1
    assert starts(case.succeed("work~2", 2)) == ["work~3"]
    assert starts(case.succeed("work~3", 3)) == ["done"]
    assert shared(case.succeed("done")) == {"n": 3}


def test_a_cycle_goes_on_after_a_crash_where_it_was() -> None:
    case = begun(COUNTER)
    case.succeed("work", 1)
    assert starts(case.crash()) == ["work~2"]
    case.succeed("work~2", 2)
    assert case.open == ["work~3"]


def test_a_node_that_leads_to_itself_is_met_again() -> None:
    node = executor(post={"action_key": "next"})
    case = begun(graph("a", {"a": node}, ("a", "again", "a")))
    assert starts(case.succeed("a", {"next": "again"})) == ["a~2"]
    assert finish(case.succeed("a~2", {"next": "stop"})).status == "completed"


def test_a_failure_may_lead_back() -> None:
    case = begun(graph("a", {"a": executor()}, ("a", "error", "a")))
    assert starts(case.fail("a")) == ["a~2"]


def test_an_endless_cycle_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, visits_max=2_000)
    case = Case(graph("c", {"c": choice(("on", {"eq": [1, 1]}))}, ("c", "on", "c")), checks=False)
    case.start()
    case.go_on()
    assert (case.run.status, case.run.error and case.run.error.kind) == ("failed", "limit")


def test_a_cycle_keeps_nothing_of_the_visits_that_are_over() -> None:
    case = Case(COUNTER.replace('"$shared.n", 3', '"$shared.n", 300'), checks=False)
    case.start()
    for number in range(1, 300):
        case.succeed("work" if number == 1 else f"work~{number}", number)
    frame = case.run.frames[""]
    assert (list(case.run.frames), frame.outputs, frame.visits) == ([""], {}, {"work": 300, "again": 299})


# ------------------------------------------------------------------------------------------- calls side by side


def parallel(*services: str, **more: Any) -> dict[str, Any]:
    return {"kind": "parallel", "parallel_services": list(services), "post": {"output_key": "out"}, **more}


def foreach(**more: Any) -> dict[str, Any]:
    return {
        "kind": "foreach",
        "service": "work",
        "prep": {"input_key": "$params.items"},
        "post": {"output_key": "out"},
        **more,
    }


def test_services_are_called_one_after_another_unless_said_otherwise() -> None:
    case = begun(graph("p", {"p": parallel("a", "b", prep={"input_key": "$params.x"})}), {"x": 7})
    assert case.open == ["p[0].call"]
    assert case.args("p[0].call") == {"input": 7, "params": {"x": 7}, "service": "a"}
    assert starts(case.succeed("p[0].call", 1)) == ["p[1].call"]
    assert shared(case.succeed("p[1].call", 2)) == {"out": [1, 2]}


def test_results_stand_in_the_order_of_services_whichever_answers_first() -> None:
    case = begun(graph("p", {"p": parallel("a", "b", "c", parallel_mode="concurrent")}))
    for index in (2, 0):
        case.succeed(f"p[{index}].call", index)
    assert shared(case.succeed("p[1].call", 1)) == {"out": [0, 1, 2]}


def test_a_free_place_is_filled_at_once() -> None:
    case = begun(graph("p", {"p": parallel("a", "b", "c", parallel_mode="concurrent", max_parallel=2)}))
    assert case.open == ["p[0].call", "p[1].call"]
    assert starts(case.succeed("p[1].call")) == ["p[2].call"]


def test_services_may_be_named_twice_and_by_params() -> None:
    node = {"kind": "parallel", "params": {"services": "$params.who"}, "post": {"output_key": "out"}}
    case = begun(graph("p", {"p": node}), {"who": ["a", "a"]})
    case.succeed("p[0].call", 1)
    assert shared(case.succeed("p[1].call", 2)) == {"out": [1, 2]}


@pytest.mark.parametrize("who", [[], None, "a", [1], {"a": 1}])
def test_a_parallel_node_without_services_fails(who: Any) -> None:
    node = {"kind": "parallel", "params": {"services": "$params.who"}}
    case = Case(graph("p", {"p": node}), {"who": who})
    assert finish(case.start()).status == "failed"


def test_each_item_is_the_input_of_a_call() -> None:
    case = begun(
        graph("f", {"f": foreach(parallel_mode="concurrent", params={"mul": 2})}), {"items": [1, "b"]}
    )
    assert case.args("f[1].call") == {"input": "b", "params": {"mul": 2, "items": [1, "b"]}}
    case.succeed("f[1].call", "bb")
    assert shared(case.succeed("f[0].call", 2)) == {"out": [2, "bb"]}


def test_no_items_give_an_empty_list() -> None:
    case = Case(graph("f", {"f": foreach()}), {"items": []})
    assert shared(case.start()) == {"out": []}


@pytest.mark.parametrize("items", [None, {"a": 1}, "text", 5])
def test_an_input_that_is_no_array_fails_the_foreach(items: Any) -> None:
    case = Case(graph("f", {"f": foreach()}), {"items": items})
    end = finish(case.start())
    assert end.error is not None and "array" in end.error.message


# collect_errors is the default. `leads` is what the edges say.
STRATEGIES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {"out": [1, None, 3], "out_errors": [{"index": 1, "error": "no luck"}]}, True),
    (
        {"failure_strategy": "collect_errors"},
        {"out": [1, None, 3], "out_errors": [{"index": 1, "error": "no luck"}]},
        True,
    ),
    ({"failure_strategy": "ignore_errors"}, {"out": [1, 3]}, False),
]


@pytest.mark.parametrize(("strategy", "kept", "has_failed"), STRATEGIES)
@pytest.mark.parametrize("mode", ["sequential", "concurrent"])
def test_what_is_kept_where_a_call_failed(
    mode: str, strategy: dict[str, Any], kept: dict[str, Any], has_failed: bool
) -> None:
    nodes = {"f": foreach(parallel_mode=mode, **strategy), "e": executor(), "d": executor()}
    case = begun(graph("f", nodes, ("f", "error", "e"), ("f", "default", "d")), {"items": [1, 2, 3]})
    case.succeed("f[0].call", 1)
    case.fail("f[1].call")
    decisions = case.succeed("f[2].call", 3)
    assert starts(decisions) == ["e" if has_failed else "d"]
    assert ("f" in failures(decisions)) is has_failed
    assert shared(case.succeed("e" if has_failed else "d")) == kept


@pytest.mark.parametrize("mode", ["sequential", "concurrent"])
def test_fail_fast_begins_no_more_waits_for_the_others_and_keeps_what_succeeded(mode: str) -> None:
    node = foreach(parallel_mode=mode, max_parallel=2, failure_strategy="fail_fast")
    case = begun(graph("f", {"f": node, "e": executor()}, ("f", "error", "e")), {"items": [1, 2, 3, 4]})
    if mode == "sequential":
        case.succeed("f[0].call", 1)
        decisions = case.fail("f[1].call")
    else:
        assert starts(case.fail("f[0].call")) == []
        assert case.open == ["f[1].call"]
        decisions = case.succeed("f[1].call", 1)
    assert starts(decisions) == ["e"]
    assert shared(case.succeed("e")) == {"out": [1]}


def test_a_failed_fan_out_takes_error_then_its_action_then_default_and_else_fails() -> None:
    node = foreach(post={"output_key": "out", "action_static": "next"})
    nodes = {"f": node, "a": executor(), "b": executor()}
    for edges, target in (
        ((("f", "next", "a"), ("f", "error", "b")), "b"),
        ((("f", "next", "a"), ("f", "default", "b")), "a"),
        ((("f", "default", "b"),), "b"),
    ):
        case = begun(graph("f", nodes, *edges), {"items": [1]})
        assert starts(case.fail("f[0].call")) == [target]
    case = begun(graph("f", nodes, ("f", "other", "b")), {"items": [1]})
    end = finish(case.fail("f[0].call", "timeout"))
    assert end.error is not None and (end.error.kind, end.error.path) == ("timeout", "f")


def test_a_fan_out_keeps_nothing_of_its_calls_when_it_is_over() -> None:
    nodes = {"f": foreach(parallel_mode="concurrent"), "b": executor()}
    case = begun(graph("f", nodes, ("f", "default", "b")), {"items": [1, 2]})
    case.succeed("f[0].call", 1)
    case.fail("f[1].call")
    assert (list(case.run.frames), case.run.kept_bytes, case.run.frames[""].inner) == ([""], 0, {})


def test_calls_side_by_side_are_retried_each_by_itself() -> None:
    case = begun(graph("f", {"f": foreach(max_retries=1)}), {"items": [1]})
    assert starts(case.fail("f[0].call")) == ["f[0].call"]
    assert shared(case.succeed("f[0].call", 5)) == {"out": [5]}


# --------------------------------------------------------------------------------------------------- subflows


def subflow(start: str, nodes: dict[str, Any], *edges: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    inner = json.loads(graph(start, nodes, *edges))
    del inner["name"]
    return {"kind": "subflow", "subflow": inner, **more}


def test_a_subflow_has_shared_state_of_its_own_which_is_its_result() -> None:
    inner = subflow("x", {"x": keeps("k"), "y": keeps("l", prep={"input_key": "k"})}, ("x", "default", "y"), post={"output_key": "sub"})  # fmt: skip
    nodes = {"a": keeps("k"), "s": inner, "z": executor(prep={"input_key": "sub.l"})}
    case = begun(graph("a", nodes, ("a", "default", "s"), ("s", "default", "z")))
    case.succeed("a", "outer")
    assert case.open == ["s.x"]
    case.succeed("s.x", "inner")
    assert case.args("s.y")["input"] == "inner"
    case.succeed("s.y", 5)
    assert case.args("z")["input"] == 5
    assert shared(case.succeed("z")) == {"k": "outer", "sub": {"k": "inner", "l": 5}}


def test_the_params_of_a_subflow_are_those_around_it_then_its_own_then_the_nodes() -> None:
    inner = subflow("x", {"x": executor(params={"c": 3, "d": "$params.b"})}, params={"b": 2, "c": 2})
    case = begun(graph("s", {"s": inner}), {"a": 1, "b": 1})
    assert case.args("s.x")["params"] == {"a": 1, "b": 2, "c": 3, "d": 2}


def test_a_failure_inside_follows_the_edges_inside_and_else_fails_the_subflow() -> None:
    inner = subflow("x", {"x": executor(), "y": keeps("saved")}, ("x", "error", "y"))
    case = begun(graph("s", {"s": inner, "b": executor()}, ("s", "default", "b")))
    assert starts(case.fail("s.x")) == ["s.y"]
    assert starts(case.fail("s.y")) == ["b"]


def test_a_subflow_that_failed_leaves_nothing_behind() -> None:
    inner = subflow("x", {"x": keeps("k"), "y": executor()}, ("x", "go", "y"), ("x", "default", "y"))
    case = begun(graph("s", {"s": inner, "b": executor()}, ("s", "error", "b")))
    case.succeed("s.x", "v" * 100)
    case.fail("s.y")
    assert (list(case.run.frames), case.run.vars_bytes) == ([""], 0)


def test_any_kind_may_stand_in_a_subflow_and_subflows_within_subflows() -> None:
    innermost = subflow("f", {"f": foreach(parallel_mode="concurrent")}, post={"output_key": "deep"})
    inner = subflow(
        "c",
        {"c": choice(("go", {"exists": "$params.items"})), "t": {"kind": "timer", "params": {"delay_ms": 10}}, "s": innermost},
        ("c", "go", "t"),
        ("t", "default", "s"),
        post={"output_key": "sub"},
    )  # fmt: skip
    case = begun(graph("s", {"s": inner}), {"items": [1, 2]})
    case.fire("delay", "s.t")
    assert case.open == ["s.s.f[0].call", "s.s.f[1].call"]
    case.succeed("s.s.f[1].call", "b")
    assert shared(case.succeed("s.s.f[0].call", "a")) == {"sub": {"deep": {"out": ["a", "b"]}}}


def test_a_subflow_on_a_cycle_begins_anew_each_time() -> None:
    inner = subflow("x", {"x": keeps("k", prep={"input_key": "k"})}, post={"output_key": "sub"})
    nodes = {"s": inner, "c": choice(("again", {"ne": ["$shared.sub.k", "done"]}))}
    case = begun(graph("s", nodes, ("s", "default", "c"), ("c", "again", "s")))
    case.succeed("s.x", "first")
    assert case.args("s~2.x")["input"] is None
    assert shared(case.succeed("s~2.x", "done")) == {"sub": {"k": "done"}}


def test_a_named_flow_runs_as_a_subflow_with_its_own_shared_state() -> None:
    child = graph("x", {"x": keeps("k", prep={"input_key": "$params.who"})}).replace('"g"', '"child"')
    node = {"kind": "flow_ref", "flow": "child", "params": {"who": "Ada"}, "post": {"output_key": "out"}}
    case = begun(graph("r", {"r": node}), child=child)
    assert case.args("r.x")["input"] == "Ada"
    assert shared(case.succeed("r.x", "hello")) == {"out": {"k": "hello"}}


def test_a_graph_may_name_a_list_of_steps() -> None:
    child = "{name: child, steps: [{id: greet, tool: greet, args: {name: '{{inputs.who}}'}}]}"
    node = {"kind": "flow_ref", "flow": "child", "params": {"who": "Ada"}, "post": {"output_key": "out"}}
    case = begun(graph("r", {"r": node}), child=child)
    assert case.args("r.greet") == {"name": "Ada"}
    assert shared(case.succeed("r.greet", "hello")) == {"out": {"greet": "hello"}}


def test_a_list_of_steps_may_name_a_graph() -> None:
    child = graph("x", {"x": keeps("k", prep={"input_key": "$params.who"})}).replace('"g"', '"child"')
    steps = """
    name: outer
    steps:
      - {id: flow, workflow: child, inputs: {who: Ada}}
      - {id: after, tool: t, args: {k: "{{steps.flow.output.k}}"}}
    """
    case = begun(steps, child=child)
    assert case.args("flow.x") == {"input": "Ada", "params": {"who": "Ada"}}
    case.succeed("flow.x", 5)
    assert case.args("after") == {"k": 5}


# ------------------------------------------------------------------------------------------------- the rest


def test_a_timer_waits_keeps_its_input_and_goes_on_with_its_action() -> None:
    node = {
        "kind": "timer",
        "params": {"delay_ms": 3000},
        "prep": {"input_key": "$params.x"},
        "post": {"action_static": "next", "output_key": "seen"},
    }
    case = Case(graph("t", {"t": node, "b": executor()}, ("t", "next", "b")), {"x": 5})
    assert armed(case.start()) == {"delay t": case.now + 3000}
    assert case.run.status == "waiting"
    assert starts(case.fire("delay", "t")) == ["b"]
    assert shared(case.succeed("b")) == {"seen": 5}


@pytest.mark.parametrize("delay", [0, -5, "0"])
def test_a_timer_without_a_delay_fires_at_once(delay: Any) -> None:
    node = {"kind": "timer", "params": {"delay_ms": "$params.d"}}
    case = begun(graph("t", {"t": node, "b": executor()}, ("t", "default", "b")), {"d": delay})
    assert case.open == ["b"]


def test_a_delay_may_stand_in_shared_state() -> None:
    timer = {"kind": "timer", "params": {"delay_ms": "$shared.ms"}}
    case = begun(graph("a", {"a": keeps("ms"), "t": timer}, ("a", "default", "t")))
    assert armed(case.succeed("a", 40)) == {"delay t": case.now + 40}


def test_a_subflow_that_takes_too_long_takes_the_timeout_edge() -> None:
    inner = subflow("x", {"x": executor()}, timeout_ms=100)
    case = begun(graph("s", {"s": inner, "b": executor()}, ("s", "timeout", "b")))
    case.fire("deadline", "s")
    assert starts(case.fail("s.x", "cancelled")) == ["b"]


def test_cancelling_stops_calls_side_by_side() -> None:
    case = begun(graph("f", {"f": foreach(parallel_mode="concurrent")}), {"items": [1, 2]})
    case.cancel()
    case.fail("f[0].call", "cancelled")
    assert finish(case.fail("f[1].call", "cancelled")).status == "cancelled"


def test_an_idempotency_key_is_made_of_references() -> None:
    case = begun(graph("a", {"a": executor(idempotency_key="order-{{ params.id }}")}), {"id": 7})
    (work,) = case.key_work()
    assert work.key.text == "order-7"


def test_node_names_may_be_any_text() -> None:
    nodes = {"a.b [1]": keeps("x"), "ü~2": executor(prep={"input_key": "x"})}
    case = begun(graph("a.b [1]", nodes, ("a.b [1]", "default", "ü~2"), ("ü~2", "again", "a.b [1]")))
    (path,) = case.open
    case.succeed(path, 4)
    (path,) = case.open
    assert case.args(path)["input"] == 4
    assert shared(case.succeed(path)) == {"x": 4}


def test_a_signal_writes_a_variable_which_stays() -> None:
    case = begun(
        graph("a", {"a": keeps("x"), "b": executor(prep={"input_key": "flag"})}, ("a", "default", "b"))
    )
    assert starts(case.signal("flag", {"on": True})) == []
    case.succeed("a", 1)
    assert case.args("b")["input"] == {"on": True}
    assert shared(case.succeed("b")) == {"flag": {"on": True}, "x": 1}


def test_a_run_may_begin_at_a_node_with_the_variables_that_another_run_had_there() -> None:
    nodes = {"a": keeps("x"), "b": keeps("y", prep={"input_key": "x"})}
    case = Case(graph("a", nodes, ("a", "default", "b")))
    large = msgspec.Raw(encode("v" * 40_000))
    case.apply(RunStarted(msgspec.Raw(case.inputs), first="b", vars={"x": msgspec.Raw(b"5"), "large": large}))
    assert case.args("b")["input"] == 5
    assert shared(case.succeed("b", 6)) == {"x": 5, "large": "v" * 40_000, "y": 6}


def test_a_rerun_counts_visits_from_the_node_that_it_begins_with() -> None:
    """Else the second visit would be taken for the first, and have its path and its idempotency key."""
    nodes = {"a": executor(), "b": executor(post={"action_key": "action"})}
    edges = (("a", "default", "b"), ("b", "again", "b"), ("b", "back", "a"))
    case = Case(graph("a", nodes, *edges))
    case.apply(RunStarted(msgspec.Raw(case.inputs), first="b"))
    assert starts(case.succeed("b", {"action": "again"})) == ["b~2"]
    assert starts(case.succeed("b~2", {"action": "back"})) == ["a"]
    assert starts(case.succeed("a")) == ["b~3"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("signal", "go"),
        ("next", {"next": "go"}),
        ("signal.next", {"next": "go"}),
        ("a.b", {"a": {"b": "go"}}),
    ],
)
def test_the_action_of_a_wait_event_is_looked_up_in_the_value_of_the_signal_too(key: str, value: Any) -> None:
    wait = {"kind": "wait_event", "params": {"signal_key": "$shared.flag"}, "post": {"action_key": key}}
    case = begun(
        graph("w", {"w": wait, "a": executor(), "b": executor()}, ("w", "go", "a"), ("w", "default", "b"))
    )
    assert starts(case.signal("flag", value)) == ["a"]
