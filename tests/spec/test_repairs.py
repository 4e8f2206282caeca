"""Broken definitions, repaired by the patches that their problems offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.notation import definition_from, examined, repair
from holdfast.spec.patch import PatchError, applied
from holdfast.spec.read import parsed, write
from holdfast.spec.repair import repaired
from holdfast.spec.schedule import schedules_from_text
from tests.spec.broken_specs import GRAPHS, SCHEDULES, STEPS

BROKEN = {**STEPS, **{f"graph: {name}": text for name, text in GRAPHS.items()}}
ROUNDS_MAX = 5


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_definition_is_valid_after_the_offered_patches(name: str) -> None:
    found = examined(BROKEN[name])
    assert found.problems, "it is not broken"
    mended = repair(found)
    assert not mended.problems, mended.problems
    definition_from(mended.data).validate()


def test_most_definitions_are_valid_when_a_client_applies_each_patch_by_itself() -> None:
    """As a client does that knows only RFC 6902: all patches in order, then it asks again."""
    valid = [name for name, text in BROKEN.items() if _by_a_client(text)]
    assert len(BROKEN) >= 60
    assert len(valid) / len(BROKEN) >= 0.95, sorted(set(BROKEN) - set(valid))


def _by_a_client(given: Any) -> bool:
    for _ in range(ROUNDS_MAX):
        found = examined(given)
        if not found.problems:
            return True
        given = found.data
        for problem in found.problems:
            try:
                given = applied(given, problem.patch)
            except PatchError:
                return False
    return False


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_broken_schedule_file_is_valid_after_the_offered_patches(name: str) -> None:
    text = SCHEDULES[name]
    problems = _schedule_problems(text)
    assert problems, "it is not broken"
    mended = repaired(parsed(text).data, problems, lambda data: _schedule_problems(write(data)))
    assert not mended.problems, mended.problems


def _schedule_problems(text: str) -> Sequence[Problem]:
    try:
        schedules_from_text(text)
    except InvalidSpec as refused:
        return refused.problems
    return ()


def test_the_patch_leads_from_the_given_data_to_the_repaired_data() -> None:
    found = examined(STEPS["many mistakes at once"])
    mended = repair(found)
    assert applied(found.data, mended.patch) == mended.data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: w\nsteps: [{id: a, tool: t, timeout: 90s}]\n", {"timeout_secs": 90}),
        ("name: w\nsteps: [{id: a, tool: t, timeout_ms: 1500}]\n", {"timeout_secs": 1.5}),
        ("name: w\nsteps: [{id: a, tool: t, timeout_secs: PT1M30S}]\n", {"timeout_secs": 90}),
        ("name: w\nsteps: [{id: a, tool: t, retries: 2}]\n", {"retry": {"max_attempts": 3}}),
        ("name: w\nsteps: [{id: a, uses: t}]\n", {"tool": "t"}),
        ("name: w\nsteps: [{id: a, tool: t, timeoutMs: 1500}]\n", {"timeout_secs": 1.5}),
        ("name: w\nsteps: [{id: a, kind: sleep, seconds: 5}]\n", {"kind": "timer", "delay_ms": 5_000}),
        ("name: w\nsteps: [{id: a, tool: t, if: $.inputs.x}]\n", {"when": "$.inputs.x"}),
        (
            "name: w\nsteps: [{id: a, tool: t, when: {gte: [$.inputs.n, 3]}}]\n",
            {"when": {"ge": ["$.inputs.n", 3]}},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: '{{ inputs.n }} > 3'}]\n",
            {"when": {"gt": ["$.inputs.n", 3]}},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: inputs.m == 'x and y' or inputs.n < 9 && !inputs.o}]\n",
            {
                "when": {
                    "or": [
                        {"eq": ["$.inputs.m", "x and y"]},
                        {"and": [{"lt": ["$.inputs.n", 9]}, {"not": "$.inputs.o"}]},
                    ]
                }
            },
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, catch: [{id: b, tool: u}]}]\n",
            {"on_error": {"steps": [{"id": "b", "tool": "u"}]}},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: \"inputs.m in ['x', 'y'] and inputs.n is not None\"}]\n",
            {"when": {"and": [{"in": ["$.inputs.m", ["x", "y"]]}, {"ne": ["$.inputs.n", None]}]}},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: {in: [$.inputs.m, x, y]}}]\n",
            {"when": {"in": ["$.inputs.m", ["x", "y"]]}},
        ),
        ("name: w\nsteps: [{id: a, tool: t, when: 'true'}]\n", {"when": True}),
        ("name: w\nsteps: [{id: a, tool: t, timeout: {minutes: 1, seconds: 30}}]\n", {"timeout_secs": 90}),
        ("name: w\nsteps: [{id: a, workflow: t, with: {x: 1}}]\n", {"inputs": {"x": 1}}),
        ("name: w\nsteps: [{id: a, tool: {name: t, args: {x: 1}}}]\n", {"tool": "t", "args": {"x": 1}}),
        (
            "name: w\nsteps: [{id: a, parallel: [{id: b, tool: u}]}]\n",
            {"kind": "parallel", "steps": [{"id": "b", "tool": "u"}]},
        ),
        (
            "name: w\nsteps: [{id: a, parallel: {l: [{id: b, tool: u}], r: [{id: c, tool: v}]}}]\n",
            {"kind": "parallel", "branches": [[{"id": "b", "tool": "u"}], [{"id": "c", "tool": "v"}]]},
        ),
        (
            "name: w\nsteps: [{id: a, parallel: [[{id: b, tool: u}], [{id: c, tool: v}]]}]\n",
            {"kind": "parallel", "branches": [[{"id": "b", "tool": "u"}], [{"id": "c", "tool": "v"}]]},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: inputs.m < inputs.n}]\n",
            {"when": {"lt": ["$.inputs.m", "$.inputs.n"]}},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: {not_in: [$.inputs.m, [x]]}}]\n",
            {"when": {"not": {"in": ["$.inputs.m", ["x"]]}}},
        ),
        (
            "name: w\nsteps: [{id: a, tool: t, when: {nin: [$.inputs.m, [x]]}}]\n",
            {"when": {"not": {"in": ["$.inputs.m", ["x"]]}}},
        ),
        ("name: w\nsteps: [{id: a, tool: t, unless: inputs.x}]\n", {"when": {"not": "$.inputs.x"}}),
        ("name: w\nsteps: [{id: a, tool: t, depends_on: []}]\n", {"id": "a", "tool": "t"}),
    ],
)
def test_a_repair_keeps_what_was_meant(text: str, expected: dict[str, Any]) -> None:
    step = repair(examined(text)).data["steps"][0]
    assert expected.items() <= step.items()


@pytest.mark.parametrize(
    "text",
    [
        "name: w\nsteps: [{id: a, kind: poll, tool: t, interval_ms: 5, until: $.progress >= 100}]\n",
        "name: w\nsteps: [{id: a, kind: poll, tool: t, interval_ms: 5, until: $.job.progress >= 100}]\n",
        "name: w\nsteps: [{id: a, kind: poll, tool: t, interval_ms: 5, until: \"{{ status }} == 'done'\"}]\n",
        "name: w\nsteps: [{id: a, kind: branch, on: len($.inputs.n) > 3, then: [{id: b, tool: t}]}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: $.inputs.m contains 'x' and $.inputs.n}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: 'inputs.m > inputs.n + 1'}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: 1 < inputs.n < 5}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: 'inputs.n not in [1, 2]'}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: 'inputs.n === 3'}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: success()}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: {between: [$.inputs.n, 1, 5]}}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: {ends_with: [$.inputs.n, x]}}]\n",
        "name: w\nsteps: [{id: a, tool: t, when: {is_empty: $.inputs.n}}]\n",
        "name: w\nsteps: [{id: a, tool: t, depends_on: [b]}, {id: b, tool: t}]\n",
        "name: w\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: t}, {id: b, tool: t, needs: a}]}]\n",
        "name: w\nsteps: [{id: a, tool: t, on_failure: continue}]\n",
        "name: w\nsteps: [{id: a, tool: t, continue_on_error: true}]\n",
        "name: w\nsteps: [{id: a, workflow: {name: v, steps: [{id: b, tool: t}]}}]\n",
        "name: w\nsteps: [{id: a, tool: {name: t, args: {x: 1}}, args: {y: 2}}]\n",
        "name: w\nsteps: [{id: a, kind: branch, on: $.inputs.x, then: {when: $.inputs.y, steps: [{id: b, tool: t}]}}]\n",
        "name: w\nsteps: [{id: a, kind: parallel, branches: [{when: $.inputs.y, steps: [{id: b, tool: t}]}]}]\n",
        "name: w\nsteps: [{id: a, kind: foreach, items: ['{{ inputs.x }}'], steps: [{id: b, tool: t}]}]\n",
        "name: f\nstart: a\nnodes: {a: {service: s, next: [b, c]}, b: {service: t}, c: {service: u}}\n",
        "name: f\nstart: a\nnodes: {a: {service: s, next: b}, b: {service: t}, c: {service: u}}\nedges: [{from: a, to: c}]\n",
        "name: f\nstart: a\nnodes: {a: {service: s, on_success: b}, b: {service: t}}\n",
        "name: f\nstart: a\nnodes: {a: {service: s, on_error: b}, b: {service: t}}\n",
        "name: f\nstart: a\nnodes: {a: {service: s}, b: {service: t, depends_on: [a]}}\n",
        "name: f\nstart: a\nnodes: {a: {kind: choice, choice_cases: [{expr: $shared.x, then: b}]}, b: {service: t}}\n",
        "name: f\nstart: a\nnodes: {a: {kind: choice, choice_cases: [{action: b, expr: len(shared.x) > 3}]}}\n",
        "name: f\nstart: a\nnodes: {a: {kind: choice, choice_cases: [{action: b, expr: ($shared.x or $shared.y) and $shared.z}]}}\n",
    ],
)
def test_a_repair_that_would_change_what_runs_is_not_offered(text: str) -> None:
    found = examined(text)
    mended = repair(found)
    assert mended.problems
    assert mended.data == found.data


def test_a_step_need_not_name_the_steps_before_it() -> None:
    text = "name: w\nsteps: [{id: a, tool: t}, {id: b, tool: t}, {id: c, tool: t, depends_on: [a, b]}]\n"
    assert repair(examined(text)).data["steps"][2] == {"id": "c", "tool": "t"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{type: string, optional: true}", {"type": ["string", "null"], "default": None}),
        ("{type: string, optional: false}", {"type": "string"}),
        ("{type: string, values: [x, y]}", {"type": "string", "enum": ["x", "y"]}),
    ],
)
def test_words_of_other_systems_about_an_input_keep_their_meaning(
    given: str, expected: dict[str, Any]
) -> None:
    text = f"name: w\ninputs: {{a: {given}}}\nsteps: [{{id: s, tool: t}}]\n"
    assert repair(examined(text)).data["inputs"] == {"a": expected}


def test_several_lists_of_items_become_inputs_of_their_own() -> None:
    loops = ", ".join(
        f"{{id: l{n}, kind: foreach, items: [{n}], steps: [{{id: s{n}, tool: t}}]}}" for n in (1, 2)
    )
    mended = repair(examined(f"name: w\nsteps: [{loops}]\n")).data
    assert {name: rule["default"] for name, rule in mended["inputs"].items()} == {
        "l1_items": [1],
        "l2_items": [2],
    }


def test_a_list_of_items_replaces_no_other_input() -> None:
    loop = "{id: l, kind: foreach, items: [1], steps: [{id: s, tool: t}]}"
    mended = repair(examined(f"name: w\ninputs: {{l_items: {{type: string}}}}\nsteps: [{loop}]\n")).data
    assert mended["inputs"]["l_items"] == {"type": "string"}
    assert mended["steps"][0]["items"] == "$.inputs['l_items_2']"


def test_a_list_of_items_becomes_the_default_of_an_input() -> None:
    text = "name: w\nsteps: [{id: a, kind: foreach, items: [1, 2], steps: [{id: b, tool: t}]}]\n"
    mended = repair(examined(text)).data
    assert mended["inputs"] == {"a_items": {"type": "array", "default": [1, 2]}}
    assert mended["steps"][0]["items"] == "$.inputs['a_items']"


def test_nodes_that_name_the_next_become_edges() -> None:
    nodes = "{a: {service: s, next: b}, b: {service: t, next: {ok: c}}, c: {service: u}}"
    mended = repair(examined(f"name: f\nstart: a\nnodes: {nodes}\nedges: [{{from: c, to: END}}]\n")).data
    assert mended["edges"][1:] == [{"from": "a", "to": "b"}, {"from": "b", "action": "ok", "to": "c"}]


def test_lines_are_aligned_without_touching_blocks_of_text() -> None:
    text = "name: w\nsteps:\n  - id: a\n    description: |\n       x: 1\n         y: 2\n   tool: t\n"
    assert repair(examined(text)).data["steps"] == [{"id": "a", "description": "x: 1\n  y: 2\n", "tool": "t"}]


def test_lines_are_aligned_without_touching_braces_over_several_lines() -> None:
    text = "name: w\nsteps:\n  - id: a\n    args: {x: 1,\n  y: 2}\n   tool: t\n"
    assert repair(examined(text)).data["steps"] == [{"id": "a", "args": {"x": 1, "y": 2}, "tool": "t"}]


def test_a_line_that_could_be_aligned_in_two_ways_is_left_alone() -> None:
    text = "name: w\nsteps:\n  - id: a\n    tool: t\n    args:\n      x: 1\n     y: 2\n"
    assert repair(examined(text)).patch == ()


def test_texts_with_commas_and_at_signs_keep_their_words() -> None:
    text = 'name: w\ndescription: to @ada, @bob\nsteps: [{id: a, tool: t, args: {x: "mail: @ada, @bob", y: @cy}}]\n'
    mended = repair(examined(text)).data
    assert mended["description"] == "to @ada, @bob"
    assert mended["steps"][0]["args"] == {"x": "mail: @ada, @bob", "y": "@cy"}


def test_data_gets_the_same_patches_as_text() -> None:
    text = "name: w\nsteps: [{id: a, tol: fetch, args: {x: '{{ inputs.x | upper }}'}}]\n"
    of_text, of_data = examined(text), examined(parsed(text).data)
    assert [problem.patch for problem in of_text.problems] == [problem.patch for problem in of_data.problems]


def test_a_problem_without_a_known_repair_has_no_patch() -> None:
    (problem,) = examined("name: w\nsteps: []\n").problems
    assert (problem.code, problem.patch) == ("no_steps", ())


def test_a_key_is_not_taken_out_while_the_kind_of_its_step_is_uncertain() -> None:
    found = examined("name: w\nsteps: [{id: a, kind: tolo, items: $.inputs.x, steps: [{id: b, tool: t}]}]\n")
    assert all(operation["op"] != "remove" for problem in found.problems for operation in problem.patch)


@pytest.mark.parametrize("text", ["{{" * 20_000, "$" + ".a-b" * 5_000, "1h " * 20_000, "[" * 60])
def test_looking_for_a_repair_takes_no_longer_than_reading(text: str) -> None:
    spec = {"name": "w", "steps": [{"id": "a", "tool": "t", "args": {"x": text}, "timeout_secs": text}]}
    assert examined(spec).problems


def test_the_patches_of_many_problems_stay_small() -> None:
    edges = [{"from": "a", "to": "a"} for _ in range(5_000)]
    found = examined({"name": "f", "start": "a", "nodes": {"a": {"service": "s"}}, "edges": edges})
    assert len(found.problems) == 100
    assert len(write([list(problem.patch) for problem in found.problems])) < 2_000_000
