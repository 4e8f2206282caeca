"""Foreach: which items there are, how many run at once, what failure does, what it gives, and loops of thousands."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast.engine.step as step_module
from holdfast.engine.decide import decide
from holdfast.engine.decisions import Decision, OpenScope
from holdfast.engine.draft import DECISIONS_MAX
from holdfast.engine.state import Run
from holdfast.plan.graph import Plan
from holdfast.plan.unread import TEXT_BYTES_MIN
from holdfast.values import Millis
from tests.engine.driver import Case, finish, starts, stops, was_cut


def loop(
    xs: Any, keys: str = "", body: str = "[{id: s, tool: t, args: {x: '{{ item }}'}}]", **options: Any
) -> Case:
    return Case(
        f"""
        name: n
        steps:
          - {{id: loop, kind: foreach, items: $.inputs.xs, steps: {body}{", " + keys if keys else ""}}}
          - {{id: after, tool: t, args: {{got: "{{{{ loop }}}}"}}}}
        """,
        {"xs": xs},
        **options,
    )


# -------------------------------------------------------------------------------------------------------- items


@pytest.mark.parametrize(
    ("xs", "items"),
    [
        ([1, "two", None, {"n": 4}, [5]], [1, "two", None, {"n": 4}, [5]]),
        ("scalar", ["scalar"]),
        (7, [7]),
        (False, [False]),
        (0, [0]),
        ("", [""]),
        ({"an": "object"}, [{"an": "object"}]),  # an object is one item, not its members
        ([["a", "b"]], [["a", "b"]]),
        (["a,b", 'c"]', "[", "{,}"], ["a,b", 'c"]', "[", "{,}"]),
    ],
)
def test_an_array_gives_its_members_and_anything_else_one_item(xs: Any, items: list[Any]) -> None:
    case = loop(xs)
    case.start()
    seen = []
    for index in range(len(items)):
        seen.append(case.args(f"loop[{index}].s")["x"])
        case.succeed(f"loop[{index}].s")
    assert seen == items
    assert case.open == ["after"]


def test_a_large_item_is_passed_on_as_it_is() -> None:
    item = {"text": "x" * (TEXT_BYTES_MIN + 1)}
    case = loop([item])
    case.start()
    assert case.args("loop[0].s")["x"] == item


def test_the_end_of_an_iteration_beside_others_needs_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    case = loop([1, 2, 3], "concurrency: 3", checks=False)
    case.start()
    decided: list[Any] = []

    def noted(plan: Plan, run: Run, event: Any, at: Millis) -> list[Decision]:
        decided.append(event)
        return decide(plan, run, event, at)

    monkeypatch.setattr(step_module, "decide", noted)
    for index in (1, 0, 2):
        case.succeed(f"loop[{index}].s")
    assert [event.path for event in decided] == ["loop[2].s"]
    assert case.open == ["after"]


@pytest.mark.parametrize("xs", [None, []])
def test_null_and_the_empty_array_give_no_iteration(xs: Any) -> None:
    case = loop(xs)
    assert starts(case.start()) == ["after"]
    assert case.args("after") == {"got": {"iterations": []}}


def test_a_path_that_hits_nothing_gives_no_iteration() -> None:
    case = Case(
        "name: n\nsteps: [{id: loop, kind: foreach, items: $.inputs.nothing, steps: [{id: s, tool: t}]}]"
    )
    assert finish(case.start()).status == "completed"


def test_a_large_list_that_exists_is_referred_to_and_not_copied() -> None:
    case = loop([f"item {n:04}" for n in range(500)])
    opened = next(order for order in case.start() if isinstance(order, OpenScope))
    assert bytes(opened.items) == b'{"$of":"","at":"/xs"}'
    assert (opened.count, case.args("loop[0].s")) == (500, {"x": "item 0000"})


def test_a_loop_over_the_output_of_a_step_sees_its_items() -> None:
    case = Case(
        """
        name: n
        steps:
          - {id: list, tool: t}
          - {id: loop, kind: foreach, items: "$.list.files[1:]", as: file, steps: [{id: s, tool: t, args: {f: "{{ file.name }}"}}]}
        """
    )
    case.start()
    assert starts(case.succeed("list", {"files": [{"name": "a"}, {"name": "b"}, {"name": "c"}]})) == [
        "loop[0].s"
    ]
    assert case.args("loop[0].s") == {"f": "b"}


# -------------------------------------------------------------------------------------------------- concurrency


def test_iterations_follow_one_another_by_default() -> None:
    case = loop([1, 2, 3])
    assert starts(case.start()) == ["loop[0].s"]
    assert starts(case.succeed("loop[0].s")) == ["loop[1].s"]
    assert starts(case.succeed("loop[1].s")) == ["loop[2].s"]
    assert starts(case.succeed("loop[2].s")) == ["after"]


@pytest.mark.parametrize("concurrency", [1, 2, 3, 7, 50])
def test_never_more_than_concurrency_iterations_are_open(concurrency: int) -> None:
    case = loop(list(range(10)), f"concurrency: {concurrency}")
    case.start()
    most = 0
    while "after" not in case.open:
        most = max(most, len(case.open))
        case.succeed(case.open[-1])  # the youngest first: order of answers is not order of items
    assert most == min(concurrency, 10)


def test_results_stand_in_the_order_of_items_whatever_the_order_of_answers() -> None:
    case = loop([10, 20, 30], "concurrency: 3")
    case.start()
    for index in (2, 0, 1):
        case.succeed(f"loop[{index}].s", index * 100)
    assert case.args("after") == {"got": {"iterations": [{"s": 0}, {"s": 100}, {"s": 200}]}}


def test_body_steps_see_those_before_them_in_their_own_iteration() -> None:
    case = loop(
        [1, 2],
        "concurrency: 2",
        "[{id: a, tool: t}, {id: b, tool: t, args: {a: '{{ a }}', i: '{{ item }}'}}]",
    )
    case.start()
    case.succeed("loop[1].a", "second")
    case.succeed("loop[0].a", "first")
    assert case.args("loop[0].b") == {"a": "first", "i": 1}
    assert case.args("loop[1].b") == {"a": "second", "i": 2}


# ------------------------------------------------------------------------------------------------------ failure


def test_the_first_failing_iteration_stops_the_others_and_fails_the_loop() -> None:
    case = loop([1, 2, 3, 4], "concurrency: 2")
    case.start()
    assert stops(case.fail("loop[0].s", "transient", "bad")) == ["loop[1].s"]
    error = finish(case.succeed("loop[1].s")).error
    assert error is not None and (error.kind, error.path) == ("transient", "loop")
    assert error.message == "foreach iteration 0 failed: bad"
    assert error.cause is not None and error.cause.path == "loop[0].s"


def test_with_continue_a_failed_iteration_is_a_result() -> None:
    case = loop([1, 2, 3], "on_any_fail: continue")
    case.start()
    case.succeed("loop[0].s", "a")
    assert starts(case.fail("loop[1].s", message="bad")) == ["loop[2].s"]
    assert starts(case.succeed("loop[2].s", "c")) == ["after"]
    first, second, third = case.args("after")["got"]["iterations"]
    assert (first, third) == ({"s": "a"}, {"s": "c"})
    assert (second["error"]["kind"], second["error"]["message"], second["error"]["path"]) == (
        "error",
        "bad",
        "loop[1].s",
    )


def test_with_continue_every_iteration_may_fail() -> None:
    case = loop([1, 2], "on_any_fail: continue, concurrency: 2")
    case.start()
    case.fail("loop[0].s")
    assert starts(case.fail("loop[1].s")) == ["after"]


def test_a_failed_iteration_is_retried_first() -> None:
    case = loop([1, 2], "retry: {max_attempts: 2, initial_delay_ms: 0}")
    case.start()
    assert starts(case.fail("loop[0].s")) == ["loop[0].s"]
    assert finish(case.fail("loop[0].s")).status == "failed"


# ------------------------------------------------------------------------------------------------- collect: none


def test_collect_none_gives_counts() -> None:
    case = loop([1, 2, 3], "collect: none, on_any_fail: continue")
    case.start()
    case.succeed("loop[0].s", "not kept")
    case.fail("loop[1].s")
    case.succeed("loop[2].s")
    assert case.args("after") == {"got": {"count": 3, "failed": 1}}


def test_collect_none_of_nothing_gives_zero() -> None:
    case = loop([], "collect: none")
    case.start()
    assert case.args("after") == {"got": {"count": 0, "failed": 0}}


# ------------------------------------------------------------------------------------------------- empty bodies


@pytest.mark.parametrize(
    ("keys", "got"), [("", {"iterations": [{}, {}, {}]}), ("collect: none", {"count": 3, "failed": 0})]
)
def test_a_loop_without_a_body_is_done_at_once(keys: str, got: Any) -> None:
    case = loop([1, 2, 3], keys, "[]")
    assert starts(case.start()) == ["after"]
    assert case.args("after") == {"got": got}


# ------------------------------------------------------------------------------------------ thousands of items


def test_a_wide_loop_is_opened_in_rows_of_bounded_size() -> None:
    case = loop(list(range(2_500)), "concurrency: 2500", checks=False)
    rows = [case.start(), *case.go_on()]
    assert all(len(row) <= DECISIONS_MAX + 1 for row in rows)
    assert [was_cut(row) for row in rows] == [True] * (2_500 // DECISIONS_MAX) + [False]
    assert [path for row in rows for path in starts(row)] == [f"loop[{n}].s" for n in range(2_500)]


def test_a_long_loop_without_a_body_is_done_in_rows_of_bounded_size() -> None:
    case = loop(list(range(2_500)), "", "[]", checks=False)
    rows = [case.start(), *case.go_on()]
    assert all(len(row) <= DECISIONS_MAX + 2 for row in rows)
    assert case.open == ["after"]


def test_a_wide_loop_that_is_cut_ends_with_every_item_once() -> None:
    case = loop(list(range(2_500)), "concurrency: 2500, collect: none", checks=False)
    case.start()
    case.go_on()
    for index in range(2_500):
        case.succeed(f"loop[{index}].s")
    assert case.args("after") == {"got": {"count": 2_500, "failed": 0}}


def test_two_loops_that_are_cut_at_the_same_time_both_go_on() -> None:
    """Both branches open a loop before the rest of the first one is taken up."""
    case = Case(
        """
        name: n
        steps:
          - id: p
            kind: parallel
            branches:
              - [{id: a, tool: t}, {id: la, kind: foreach, items: $.inputs.xs, steps: []}]
              - [{id: b, tool: t}, {id: lb, kind: foreach, items: $.inputs.xs, steps: []}]
        """,
        {"xs": list(range(2_500))},
        checks=False,
    )
    case.start()
    assert was_cut(case.succeed("p[0].a"))
    assert was_cut(case.succeed("p[1].b"))
    case.go_on()
    assert case.run.status == "completed"


def test_large_items_cut_a_row_by_their_bytes() -> None:
    case = loop(
        ["x" * 1000 for _ in range(3_000)],
        "concurrency: 3000",
        "[{id: s, tool: t, args: {x: 'v{{ item }}'}}]",
        checks=False,
    )
    rows = [case.start(), *case.go_on()]
    assert max(len(body) for *_, body in case.rows) < 2 * 1024 * 1024
    assert len(rows) > 3


def test_a_cancel_between_a_cut_and_its_rest_leaves_nothing_to_do() -> None:
    case = loop(list(range(2_500)), "concurrency: 2500", checks=False)
    case.start()
    before = case.open
    case.cancel()
    case.go_on()
    assert case.open == before
    for path in case.open:
        case.fail(path, "cancelled")
    assert case.run.status == "cancelled"


def test_a_takeover_between_a_cut_and_its_rest_takes_the_rest_up() -> None:
    case = loop(list(range(1_500)), "concurrency: 1500", checks=False)
    assert was_cut(case.start())
    case.crash()
    case.go_on()
    assert len(case.open) == 1_500


@pytest.mark.parametrize("kind", ["timer, delay_ms: 0", "branch, on: $.inputs.none"])
def test_a_long_sequence_of_steps_that_end_at_once_is_cut_too(kind: str) -> None:
    steps = ", ".join(f"{{id: s{n}, kind: {kind}}}" for n in range(2_500))
    case = Case(f"name: n\nsteps: [{steps}]", checks=False)
    rows = [case.start(), *case.go_on()]
    assert all(len(row) <= DECISIONS_MAX + 2 for row in rows)
    assert case.run.status == "completed"
