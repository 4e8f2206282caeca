"""What is gathered, noted or at work is counted as it comes, and what is too much together fails where it becomes so."""

from __future__ import annotations

import pytest

from holdfast.engine import nodes as enter
from holdfast.engine.codec import decode_parts, encode_parts
from holdfast.plan import composed
from tests.engine.driver import Case, failures, finish, starts
from tests.engine.test_graph import begun, graph
from tests.small_limits import with_limits

LOOP = """
name: n
steps:
  - id: loop
    kind: foreach
    items: $.inputs.xs
    concurrency: AT_ONCE
    on_any_fail: continue
    steps: [{id: s, tool: t}]
"""


def loop(count: int, at_once: int = 1) -> Case:
    case = Case(LOOP.replace("AT_ONCE", str(at_once)), {"xs": list(range(count))})
    case.start()
    return case


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composed, "LIMIT", 20_000)
    monkeypatch.setattr(composed, "COUNTED_FROM", 0)


def test_a_loop_ends_with_the_iteration_that_is_too_much() -> None:
    case = loop(10)
    for index in range(3):
        case.succeed(f"loop[{index}].s", "x" * 6_000)
    end = finish(case.succeed("loop[3].s", "x" * 6_000))
    assert end.error is not None and (end.error.kind, end.error.path) == ("output_too_large", "loop")
    assert "collect: none" in end.error.message


def test_iterations_that_are_at_work_are_stopped_then() -> None:
    case = loop(10, at_once=3)
    case.succeed("loop[0].s", "x" * 15_000)
    case.succeed("loop[1].s", "x" * 15_000)
    assert {step.target for step in case.run.steps.values()} == {"loop"}
    case.succeed("loop[2].s")
    end = finish(case.succeed("loop[3].s"))
    assert end.error is not None and end.error.kind == "output_too_large"


def test_what_came_before_a_snapshot_is_counted_after_it() -> None:
    case = loop(10)
    for index in range(3):
        case.succeed(f"loop[{index}].s", "x" * 6_000)
    assert all(len(frame.outputs) == 0 for frame in case.run.frames.values())  # kept by the journal alone
    case.run = decode_parts(encode_parts(case.run))
    end = finish(case.succeed("loop[3].s", "x" * 6_000))
    assert end.error is not None and end.error.kind == "output_too_large"


def test_errors_of_iterations_count_too() -> None:
    case = loop(10)
    for index in range(4):
        case.fail(f"loop[{index}].s", message="m" * 4_500)
    end = finish(case.fail("loop[4].s", message="m" * 4_500))
    assert end.error is not None and end.error.kind == "output_too_large"


def test_a_loop_whose_outputs_are_not_kept_has_no_size_limit() -> None:
    case = Case(LOOP.replace("AT_ONCE", "1") + "output: done\n", {"xs": list(range(5))})
    case.start()
    for index in range(4):
        case.succeed(f"loop[{index}].s", "x" * 15_000)
    assert finish(case.succeed("loop[4].s", "x" * 15_000)).status == "completed"


def test_branches_that_are_named_one_by_one_may_be_too_large_together() -> None:
    case = Case(
        """
        name: n
        steps:
          - {id: p, kind: parallel, steps: [{id: a, tool: t}, {id: b, tool: t}]}
          - {id: c, tool: t, args: {x: "{{ a }}"}}
          - {id: d, tool: t, args: {x: "{{ b }}"}}
        output: done
        """,
        {},
    )
    case.start()
    case.succeed("p[0].a", "x" * 15_000)
    case.succeed("p[1].b", "y" * 15_000)
    assert case.args("c") == {"x": "x" * 15_000}


def test_results_of_a_graphs_loop_are_too_large_together() -> None:
    node = {
        "kind": "foreach",
        "service": "w",
        "prep": {"input_key": "$params.xs"},
        "post": {"output_key": "r"},
    }
    case = begun(graph("n", {"n": node}), {"xs": [1, 2, 3]})
    case.succeed("n[0].call", "x" * 15_000)
    end = finish(case.succeed("n[1].call", "x" * 15_000))
    assert end.error is not None and end.error.kind == "output_too_large"


def test_outputs_of_a_nested_workflow_are_too_large_together() -> None:
    child = "name: child\nsteps: [{id: a, tool: t}, {id: b, tool: t}]\n"
    case = Case("name: n\nsteps: [{id: inner, workflow: child}]", {}, uses={"child": child})
    case.start()
    case.succeed("inner.a", "x" * 15_000)
    assert failures(case.succeed("inner.b", "x" * 15_000))["inner"].kind == "output_too_large"


def test_an_output_that_is_named_twice_counts_twice() -> None:
    case = Case(
        """
        name: n
        steps:
          - {id: a, tool: t}
          - {id: b, tool: t, args: {x: ["{{ a }}", "{{ a }}"]}}
        output: done
        """,
        {},
    )
    case.start()
    end = finish(case.succeed("a", "x" * 15_000))
    assert end.error is not None and (end.error.kind, end.error.path) == ("input_too_large", "b")


def test_signals_that_are_waited_for_together_are_one_value() -> None:
    case = Case("name: n\nsteps: [{id: w, kind: wait_event, all: [a, b, c]}]", {})
    case.start()
    case.signal("a", "x" * 15_000)
    end = finish(case.signal("b", "x" * 15_000))
    assert end.error is not None and end.error.kind == "output_too_large"


def test_what_the_open_steps_of_a_run_were_given_is_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, at_work_bytes_max=50_000)
    monkeypatch.setattr(enter, "LARGE_BYTES", 1_000)
    definition = LOOP.replace("AT_ONCE", "10").replace("tool: t}", "tool: t, args: {x: '<{{ inputs.a }}>'}}")
    case = Case(definition, {"xs": list(range(6)), "a": "x" * 12_000})
    rows = case.start()
    assert len(starts(rows)) == 4
    assert {error.kind for error in failures(rows).values()} == {"state_too_large"}
