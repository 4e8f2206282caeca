"""What a run keeps in memory: only what a later expression can name, and of a loop that collects nothing, nothing."""

from __future__ import annotations

import gc
import sys

import msgspec
import pytest

from holdfast.engine import frames
from holdfast.engine.events import StepSucceeded
from holdfast.engine.frames import RESULT_BYTES_MAX, RESULT_VALUE_BYTES_MAX
from holdfast.plan.unread import TEXT_BYTES_MIN
from holdfast.values import encode
from tests.engine.driver import Case, state_of
from tests.small_limits import with_limits


def loop(keys: str, after: str = "", count: int = 50) -> Case:
    case = Case(
        f"""
        name: n
        steps:
          - id: loop
            kind: foreach
            items: $.inputs.xs
            {keys.replace(", ", chr(10) + " " * 12)}
            steps: [{{id: s, tool: t}}, {{id: s2, tool: t, args: {{s: "{{{{ s }}}}"}}}}]
          - {{id: after, tool: t{after}}}
        """,
        {"xs": list(range(count))},
        checks=False,
    )
    case.start()
    return case


def iterate(case: Case, index: int) -> None:
    case.succeed(f"loop[{index}].s", "x" * 100)
    case.succeed(f"loop[{index}].s2", "y" * 100)


def test_a_loop_that_collects_nothing_keeps_no_iteration() -> None:
    case = loop("collect: none")
    for index in range(40):
        iterate(case, index)
    assert sorted(case.run.frames) == ["", "loop[40]"]
    assert case.run.kept_bytes == 0


def test_a_loop_that_only_the_result_names_is_kept_while_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "RESULT_BYTES_MAX", 2_000)
    case = loop("collect: outputs")
    iterate(case, 0)
    assert (case.run.result_whole, "loop[0]" in case.run.frames) == (True, True)
    for index in range(1, 40):
        iterate(case, index)
    assert not case.run.result_whole
    assert len(case.run.frames) < 15
    assert case.run.kept_bytes <= 2_000


def test_a_loop_that_collects_nothing_keeps_nothing_although_it_is_named() -> None:
    case = loop("collect: none", ", args: {n: '{{ loop.count }}'}")
    for index in range(40):
        iterate(case, index)
    assert sorted(case.run.frames) == ["", "loop[40]"]
    for index in range(40, 50):
        iterate(case, index)
    assert case.args("after") == {"n": 50}


def test_a_loop_whose_result_is_named_keeps_its_iterations() -> None:
    case = loop("collect: outputs", ", args: {all: '{{ loop }}'}")
    for index in range(40):
        iterate(case, index)
    assert len(case.run.frames) == 42
    assert case.run.kept_bytes == 40 * 204


def test_the_state_of_a_loop_does_not_grow_with_its_iterations() -> None:
    case = loop("collect: none, on_any_fail: continue", count=500)
    sizes = []
    for index in range(400):
        if index % 3:
            iterate(case, index)
        else:
            case.fail(f"loop[{index}].s")
        sizes.append(len(str(state_of(case.run))))
    assert max(sizes[100:]) <= max(sizes[:100]) + 20  # a few more digits


def test_errors_that_only_the_result_names_are_kept_while_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "RESULT_BYTES_MAX", 200)
    case = loop("on_any_fail: continue")
    for index in range(20):
        case.fail(f"loop[{index}].s")
    assert not case.run.result_whole
    assert len(case.run.scopes["loop"].errors) < 10


def test_what_is_remembered_beside_the_state_goes_with_its_iteration() -> None:
    """Decoded values are remembered while they can be named, and no longer."""
    case = loop("collect: none")
    for index in range(30):
        case.succeed(f"loop[{index}].s", "x" * 5_000)
        case.succeed(f"loop[{index}].s2")
    assert len(case.run.__dict__.get("decoded", {})) <= 2


def test_where_items_begin_is_forgotten_with_their_loop() -> None:
    case = loop("collect: none", count=3)
    for index in range(3):
        iterate(case, index)
    assert case.run.__dict__.get("items", {}) == {}


def test_where_items_begin_is_forgotten_when_an_outer_scope_is_aborted() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: outer
            kind: foreach
            items: $.inputs.xs
            on_any_fail: continue
            steps:
              - id: p
                kind: parallel
                branches:
                  - [{id: inner, kind: foreach, items: $.inputs.xs, as: y, steps: [{id: s, tool: t, args: {y: "{{ y }}"}}]}]
                  - [{id: b, tool: t}]
        """,
        {"xs": list(range(30))},
        checks=False,
    )
    case.start()
    for index in range(25):
        case.fail(f"outer[{index}].p[1].b")
        case.fail(f"outer[{index}].p[0].inner[0].s", "cancelled")
    assert len(case.run.__dict__.get("items", {})) <= 2


def test_a_step_that_no_expression_names_is_kept_only_for_the_result_and_only_if_small() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t}, {id: b, tool: t}, {id: c, tool: t}]")
    case.start()
    case.succeed("a", "x" * (RESULT_VALUE_BYTES_MAX - 2))
    case.succeed("b", "x" * (RESULT_VALUE_BYTES_MAX - 1))
    assert sorted(case.run.frames[""].outputs) == ["a"]
    assert not case.run.result_whole


def test_what_is_kept_for_the_result_is_bounded_in_all() -> None:
    steps = ", ".join(f"{{id: s{n}, tool: t}}" for n in range(40))
    case = Case(f"name: n\nsteps: [{steps}]")
    case.start()
    for n in range(30):
        case.succeed(f"s{n}", "x" * 4_000)
    assert case.run.kept_bytes <= RESULT_BYTES_MAX


def test_a_step_that_is_named_is_kept_however_large() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t}, {id: b, tool: t, args: {a: '{{ a }}'}}]")
    case.start()
    case.succeed("a", "x" * 1_000_000)
    assert case.run.kept_bytes == 1_000_002
    assert case.args("b") == {"a": "x" * 1_000_000}


def test_a_finished_run_holds_nothing_open() -> None:
    case = loop("collect: none", count=2)
    iterate(case, 0)
    case.cancel()
    case.fail("loop[1].s", "cancelled")
    run = case.run
    assert (run.steps, run.scopes, run.stops, run.timers, run.todo, run.active) == ({}, {}, {}, {}, [], 0)


def test_the_items_of_a_finished_loop_are_not_kept_with_its_result() -> None:
    case = Case(
        """
        name: n
        steps:
          - {id: loop, kind: foreach, items: "$.inputs.xs[?@.n >= 0]", steps: []}
          - {id: after, tool: t, args: {all: "{{ loop }}"}}
        """,
        {"xs": [{"n": n} for n in range(300)]},
    )
    case.start()
    assert len(str(state_of(case.run)["frames"])) < 1_000


def test_a_run_that_must_keep_too_much_fails_with_kind_state_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_limits(monkeypatch, kept_bytes_max=10_000)  # the real one is 256 MiB
    case = loop("collect: outputs", ", args: {all: '{{ loop }}'}", count=200)
    index = 0
    while not case.run.over:
        case.succeed(f"loop[{index}].s", "x" * 1_000)
        if not case.run.over:
            case.succeed(f"loop[{index}].s2", None)
        index += 1
    assert case.run.error is not None and case.run.error.kind == "state_too_large"
    assert "collect: none" in case.run.error.message
    assert 9 <= index <= 12


@pytest.mark.parametrize("on", ["$.steps.a.output.small", "$.steps.a.output.list[?@ == 9]"])
def test_a_large_value_that_an_expression_read_is_freed_with_its_run(on: str) -> None:
    text = encode({"list": [1, 2], "small": 1, "rest": "x" * TEXT_BYTES_MIN})
    case = Case(
        f"""
        name: n
        steps:
          - {{id: a, tool: t}}
          - {{id: b, kind: branch, on: "{on}", then: [{{id: c, tool: t, args: {{v: "{{{{ steps.a.output.small }}}}"}}}}], else: []}}
        """,
        {},
        checks=False,
    )
    case.start()
    before = sys.getrefcount(text)
    case.apply(StepSucceeded("a", 1, msgspec.Raw(text), 0))
    assert sys.getrefcount(text) > before
    del case
    gc.collect()
    assert sys.getrefcount(text) <= before
