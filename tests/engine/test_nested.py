"""Scopes within scopes: paths, what is seen from where, and failures that travel outwards."""

from __future__ import annotations

import pytest

from tests.engine.driver import Case, finish, starts, stops

THREE = """
name: n
steps:
  - id: outer
    kind: foreach
    items: $.inputs.rows
    as: row
    concurrency: 3
    steps:
      - id: par
        kind: parallel
        branches:
          - [{id: quick, tool: t}]
          - - id: br
              kind: branch
              on: $.row.deep
              then:
                - id: inner
                  kind: foreach
                  items: $.row.cells
                  as: cell
                  concurrency: 9
                  steps: [{id: s, tool: t, args: {r: "{{ row.name }}", c: "{{ cell }}", i: "{{ item }}"}}]
  - {id: after, tool: t, args: {all: "{{ outer }}"}}
"""
ROWS = [
    {"name": "r0", "deep": True, "cells": ["a", "b"]},
    {"name": "r1", "deep": False, "cells": ["c"]},
    {"name": "r2", "deep": True, "cells": [["d"], None]},
]


def three() -> Case:
    return Case(THREE, {"rows": ROWS})


def test_paths_name_every_level() -> None:
    assert starts(three().start()) == [
        "outer[0].par[0].quick",
        "outer[0].par[1].br.inner[0].s",
        "outer[0].par[1].br.inner[1].s",
        "outer[1].par[0].quick",
        "outer[2].par[0].quick",
        "outer[2].par[1].br.inner[0].s",
        "outer[2].par[1].br.inner[1].s",
    ]


def test_a_step_sees_the_items_of_every_loop_around_it() -> None:
    case = three()
    case.start()
    assert case.args("outer[2].par[1].br.inner[0].s") == {"r": "r2", "c": ["d"], "i": ["d"]}
    assert case.args("outer[0].par[1].br.inner[1].s") == {"r": "r0", "c": "b", "i": "b"}


@pytest.mark.parametrize("youngest_first", [False, True])
def test_the_whole_closes_in_any_order_of_answers(youngest_first: bool) -> None:
    case = three()
    case.start()
    while case.open != ["after"]:
        path = case.open[-1 if youngest_first else 0]
        case.succeed(path, path)
    got = case.args("after")["all"]["iterations"]
    assert [set(iteration) for iteration in got] == [{"par"}] * 3
    first = got[0]["par"]["branches"]
    assert first[0]["steps"] == {"quick": "outer[0].par[0].quick"}
    assert first[1]["steps"] == {"br": {"condition": True, "taken": "then"}}


def test_a_failure_deep_inside_stops_everything_and_names_each_level() -> None:
    case = three()
    case.start()
    told = stops(case.fail("outer[2].par[1].br.inner[1].s", "transient", "deep down"))
    assert told == ["outer[2].par[1].br.inner[0].s"]
    told = stops(case.fail("outer[2].par[1].br.inner[0].s", "cancelled"))
    assert told == ["outer[2].par[0].quick"]
    told = stops(case.fail("outer[2].par[0].quick", "cancelled"))
    assert sorted(told) == [
        "outer[0].par[0].quick",
        "outer[0].par[1].br.inner[0].s",
        "outer[0].par[1].br.inner[1].s",
        "outer[1].par[0].quick",
    ]
    for path in told:
        last = case.fail(path, "cancelled")
    error = finish(last).error
    assert error is not None and (error.kind, error.path) == ("transient", "outer")
    message = "foreach iteration 2 failed: parallel branch 1 failed: foreach iteration 1 failed: deep down"
    assert error.message == message


def test_an_inner_stop_whose_grace_is_over_stops_the_next_level() -> None:
    case = three()
    case.start()
    case.fail("outer[2].par[1].br.inner[1].s")
    assert stops(case.fire("grace", "outer[2].par[1].br.inner")) == ["outer[2].par[0].quick"]
    assert case.run.status == "running"


def test_inner_stops_end_with_a_takeover() -> None:
    case = three()
    case.start()
    case.fail("outer[2].par[1].br.inner[1].s", message="the first error")
    case.crash()
    assert case.run.status == "failed"
    assert case.run.error is not None and case.run.error.message.endswith("the first error")


def test_continue_outside_holds_a_failure_inside_back() -> None:
    case = Case(THREE.replace("as: row", "as: row\n    on_any_fail: continue"), {"rows": ROWS})
    case.start()
    case.fail("outer[1].par[0].quick", message="only here")
    for path in case.open:
        case.succeed(path)
    assert case.open == ["after"]
    got = case.args("after")["all"]["iterations"]
    assert got[1]["error"]["message"] == "parallel branch 0 failed: only here"
    assert "error" not in got[0] and "error" not in got[2]


def test_loops_of_the_same_body_do_not_see_each_others_outputs() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: outer
            kind: foreach
            items: $.inputs.xs
            concurrency: 2
            steps:
              - {id: a, tool: t}
              - {id: inner, kind: foreach, items: $.a, as: y, steps: [{id: b, tool: t, args: {a: "{{ a }}", y: "{{ y }}"}}]}
        """,
        {"xs": [1, 2]},
    )
    case.start()
    case.succeed("outer[1].a", ["second"])
    case.succeed("outer[0].a", ["first"])
    assert case.args("outer[0].inner[0].b") == {"a": ["first"], "y": "first"}
    assert case.args("outer[1].inner[0].b") == {"a": ["second"], "y": "second"}


def test_sixteen_levels_of_nesting_run_to_the_end() -> None:
    body = "[{id: leaf, tool: t}]"
    for level in range(15, 0, -1):
        body = f"[{{id: l{level}, kind: foreach, items: $.inputs.xs, steps: {body}}}]"
    case = Case(f"name: n\nsteps: {body}", {"xs": [1]})
    (path,) = starts(case.start())
    assert path.count(".") == 15
    assert finish(case.succeed(path)).status == "completed"
