"""`/api/v1/validate` and `/api/v1/plan`: definitions before they run."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.spec.patch import applied
from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

BROKEN = "naem: new\nsteps:\n- {id: a, tol: add, timeout: 30s}\n"
FIXED = {"name": "new", "steps": [{"id": "a", "tool": "add", "timeout_secs": 30}]}


async def test_a_broken_definition_comes_back_with_all_problems_and_its_repair(ask: Asker) -> None:
    found = (await ask("POST", "/api/v1/validate", {"spec": BROKEN})).body
    assert (found["valid"], found["left"], found["plan"]) == (False, [], None)
    assert [problem["code"] for problem in found["problems"]] == ["unknown_key"] * 3
    assert [problem["line"] for problem in found["problems"]] == [1, 3, 3]
    broken = {"naem": "new", "steps": [{"id": "a", "tol": "add", "timeout": "30s"}]}
    assert applied(broken, found["patch"]) == found["repaired"] == FIXED


async def test_a_valid_definition_comes_back_with_its_plan_and_inputs(ask: Asker) -> None:
    found = (await ask("POST", "/api/v1/validate", {"spec": ADD})).body
    assert (found["valid"], found["patch"]) == (True, [])
    assert found["inputs"] == ADD["inputs"]
    assert [node["name"] for node in found["plan"]["block"]["nodes"]] == ["s"]


@pytest.mark.parametrize(
    "inputs",
    [
        {"a": {"type": "integer"}, "b": {"type": "string", "default": "x"}},
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "string", "default": "x"}},
            "required": ["a"],
        },
    ],
)
async def test_inputs_come_back_as_a_schema_in_either_form(ask: Asker, inputs: dict[str, Any]) -> None:
    found = (await ask("POST", "/api/v1/validate", {"spec": {**ADD, "inputs": inputs}})).body
    schema = found["inputs_schema"]
    assert schema["type"] == "object" and schema["required"] == ["a"]
    assert schema["properties"] == {"a": {"type": "integer"}, "b": {"type": "string", "default": "x"}}


@pytest.mark.parametrize(
    ("body", "media"), [(BROKEN, "application/yaml"), ('{"name": "w", "steps": []}', "application/json")]
)
async def test_the_body_may_be_the_definition_itself(ask: Asker, body: str, media: str) -> None:
    answer = await ask("POST", "/api/v1/validate", data=body, headers={"Content-Type": media})
    assert answer.status == 200 and answer.body["valid"] is False


async def test_a_text_that_cannot_be_read_is_a_problem_and_not_an_error(ask: Asker) -> None:
    found = (await ask("POST", "/api/v1/validate", {"spec": "name: [\n"})).body
    assert [problem["code"] for problem in found["problems"]] == ["syntax"]


@pytest.mark.parametrize("spec", [None, 1, [], True])
async def test_a_spec_that_is_no_definition_is_refused(ask: Asker, spec: Any) -> None:
    answer = await ask("POST", "/api/v1/validate", {"spec": spec})
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize("body", ["[]", "1", "null", '"name: w"'])
async def test_a_json_body_that_is_no_object_is_refused(ask: Asker, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await ask("POST", "/api/v1/validate", data=body, headers=headers)
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_an_unknown_tool_is_a_note_with_the_nearest_name(ask: Asker) -> None:
    spec = {"name": "w", "steps": [{"id": "a", "tool": "ad"}]}
    found = (await ask("POST", "/api/v1/validate", {"spec": spec})).body
    (note,) = found["notes"]
    assert found["valid"] and note["code"] == "unknown_tool"
    assert applied(spec, note["patch"])["steps"][0]["tool"] == "add"


async def test_arguments_that_do_not_fit_their_tool_are_notes_and_a_misspelt_one_has_its_repair(
    ask: Asker,
) -> None:
    steps = [
        {"id": "a", "tool": "add", "args": {"aa": 1, "b": 2}},
        {"id": "b", "tool": "add", "args": {"a": "one", "b": "{{a}}"}},
        {"id": "c", "tool": "add", "args": {"a": 1}},
    ]
    spec = {"name": "w", "steps": steps}
    found = (await ask("POST", "/api/v1/validate", {"spec": spec})).body
    notes = {note["pointer"]: note for note in found["notes"]}
    assert found["valid"]
    assert {at: note["code"] for at, note in notes.items()} == {
        "/steps/0/args": "missing_argument", "/steps/0/args/aa": "unknown_argument",
        "/steps/1/args/a": "wrong_argument", "/steps/2/args": "missing_argument",
    }  # fmt: skip
    assert applied(spec, notes["/steps/0/args/aa"]["patch"])["steps"][0]["args"] == {"a": 1, "b": 2}


async def test_values_that_a_run_makes_are_not_judged_before_it(ask: Asker) -> None:
    steps = [
        {"id": "a", "tool": "add", "args": {"a": "{{inputs.n}}", "b": 2}},
        {
            "id": "b",
            "kind": "foreach",
            "items": "$.inputs.list",
            "steps": [{"id": "c", "tool": "add", "args": {"a": "{{item}}", "b": "{{a}}"}}],
        },
    ]
    spec = {"name": "w", "inputs": {"n": {"type": "integer"}, "list": {"type": "array"}}, "steps": steps}
    assert (await ask("POST", "/api/v1/validate", {"spec": spec})).body["notes"] == []


async def test_the_details_of_a_refused_definition_carry_the_patches(ask: Asker) -> None:
    answer = await ask("POST", "/api/v1/runs", {"spec": BROKEN})
    assert (answer.status, answer.code) == (422, "invalid_spec")
    assert answer.body["details"][0]["patch"] == [{"op": "move", "from": "/naem", "path": "/name"}]


async def test_a_plan_shows_steps_and_tools_and_starts_nothing(ask: Asker) -> None:
    plan = (await ask("POST", "/api/v1/plan", {"workflow": "sum"})).body
    assert plan["block"]["nodes"][0] == {"name": "s", "kind": "tool", "does": "add", "line": 0, "blocks": []}
    assert [(tool["name"], tool["steps"], tool["is_known"]) for tool in plan["tools"]] == [
        ("add", ["s"], True)
    ]
    assert (await ask("GET", "/api/v1/runs")).body["items"] == []


async def test_a_start_with_the_hash_of_the_plan_runs(ask: Asker) -> None:
    plan = (await ask("POST", "/api/v1/plan", {"spec": ADD})).body
    done = await ask.done(spec=ADD, inputs={"a": 1}, plan_hash=plan["plan_hash"])
    assert done["output"] == 3


async def test_a_start_whose_plan_has_changed_is_refused(ask: Asker) -> None:
    plan = (await ask("POST", "/api/v1/plan", {"workflow": "sum"})).body
    await ask("POST", "/api/v1/workflows", {**ADD, "description": "another"})
    changed = {**ADD, "steps": [{"id": "s", "tool": "echo"}]}
    await ask("POST", "/api/v1/workflows", changed)
    body = {"workflow": "sum", "inputs": {"a": 1}, "plan_hash": plan["plan_hash"]}
    answer = await ask("POST", "/api/v1/runs", body)
    assert (answer.status, answer.code) == (409, "plan_changed")
    assert (await ask("GET", "/api/v1/runs")).body["items"] == []


async def test_the_plan_of_an_unknown_workflow_is_not_found(ask: Asker) -> None:
    answer = await ask("POST", "/api/v1/plan", {"workflow": "smu"})
    assert (answer.status, answer.code) == (404, "not_found")


async def test_a_number_beside_a_definition_is_refused_as_at_a_start(ask: Asker) -> None:
    for path in ("/api/v1/plan", "/api/v1/runs"):
        answer = await ask("POST", path, {"spec": ADD, "number": 1})
        assert answer.status == 400 and "`number`" in answer.body["message"]
