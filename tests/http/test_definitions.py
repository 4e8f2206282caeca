"""Definitions as readers need them: plans with lines, the text as written, versions by hash, and the JSON Schemas."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

TEXT = """\
# Adds two numbers.
name: written
steps:
- id: first  # the first of two
  tool: add
  args: {a: 1, b: 2}
- id: both
  kind: parallel
  steps:
  - {id: x, tool: add, args: {a: 1, b: 2}}
  - {id: y, tool: add, args: {a: 1, b: 2}}
"""
YAML = {"Content-Type": "application/yaml"}


async def test_a_published_text_is_shown_as_it_was_written(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", data=TEXT, headers=YAML)
    found = (await ask("GET", "/api/v1/workflows/written")).body
    assert (found["source"], found["is_as_written"]) == (TEXT, True)


async def test_publishing_the_same_content_with_other_comments_shows_the_latest_text(ask: Asker) -> None:
    first = (await ask("POST", "/api/v1/workflows", data=TEXT, headers=YAML)).body
    assert await lines(ask) == [4, 7]
    other = "# A comment above.\n" + TEXT.replace("the first of two", "a better comment")
    second = (await ask("POST", "/api/v1/workflows", data=other, headers=YAML)).body
    assert (first["number"], first["version"]) == (second["number"], second["version"])
    assert (await ask("GET", "/api/v1/workflows/written/versions/1")).body["source"] == other
    assert await lines(ask) == [5, 8]


async def lines(ask: Asker) -> list[int]:
    plan = (await ask("GET", "/api/v1/workflows/written/plan")).body
    return [node["line"] for node in plan["block"]["nodes"]]


async def test_a_run_of_a_definition_given_as_data_shows_yaml_made_from_it(ask: Asker) -> None:
    run = (
        await ask(
            "POST", "/api/v1/runs", {"spec": {**ADD, "name": "data"}, "inputs": {"a": 1}, "wait_secs": 20}
        )
    ).body
    found = (await ask("GET", f"/api/v1/versions/{run['version']}")).body
    assert (found["name"], found["is_as_written"], found["uses"]) == ("data", False, {})
    again = (await ask("POST", "/api/v1/validate", {"spec": found["source"]})).body
    assert again["plan"]["version"] == run["version"]


async def test_a_run_of_a_text_shows_the_text(ask: Asker) -> None:
    run = (await ask("POST", "/api/v1/runs", {"spec": TEXT, "wait_secs": 20})).body
    assert (await ask("GET", f"/api/v1/versions/{run['version']}")).body["source"] == TEXT


@pytest.mark.parametrize("version", ["0" * 64, "x", "%00"])
async def test_an_unknown_hash_is_not_found(ask: Asker, version: str) -> None:
    answer = await ask("GET", f"/api/v1/versions/{version}")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_the_plan_of_a_run_has_the_lines_of_its_text(ask: Asker) -> None:
    run = (await ask("POST", "/api/v1/runs", {"spec": TEXT, "wait_secs": 20})).body
    plan = (await ask("GET", f"/api/v1/runs/{run['run_id']}/plan")).body
    assert plan["version"] == run["version"]
    first, both = plan["block"]["nodes"]
    assert (first["name"], first["kind"], first["line"]) == ("first", "tool", 4)
    assert (both["name"], both["kind"], both["line"]) == ("both", "parallel", 7)
    assert [node["line"] for block in both["blocks"] for node in block["nodes"]] == [10, 11]
    assert [(edge["from"], edge["to"]) for edge in plan["block"]["edges"]] == [("first", "both")]


async def test_the_plan_of_a_workflow_is_that_of_the_version_that_is_asked_for(ask: Asker) -> None:
    for text in (TEXT, TEXT.replace("id: first", "id: renamed")):
        await ask("POST", "/api/v1/workflows", data=text, headers=YAML)

    async def names(query: str = "") -> list[Any]:
        plan = (await ask("GET", f"/api/v1/workflows/written/plan{query}")).body
        return [node["name"] for node in plan["block"]["nodes"]]

    assert await names() == ["renamed", "both"]
    assert await names("?number=1") == ["first", "both"]
    assert (await ask("GET", "/api/v1/workflows/written/plan?number=3")).status == 404


@pytest.mark.parametrize(
    ("notation", "data"),
    [
        ("steps", ADD),
        ("graph", {"name": "g", "start": "a", "nodes": {"a": {"kind": "local", "service": "add"}}}),
    ],
)
async def test_the_schema_of_a_notation_accepts_a_definition_in_it(
    ask: Asker, notation: str, data: Any
) -> None:
    schema = (await ask("GET", f"/api/v1/schema/{notation}")).body
    assert jsonschema_rs.validator_for(schema).is_valid(data)
    assert not jsonschema_rs.validator_for(schema).is_valid({"name": 1})
