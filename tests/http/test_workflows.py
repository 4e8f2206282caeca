"""`/api/v1/workflows`: published in either notation, listed, compared and rolled back."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

GRAPH: dict[str, Any] = {
    "name": "graph",
    "start": "n",
    "nodes": {"n": {"kind": "executor", "service": "sum"}},
    "edges": [],
}
OTHER = {**ADD, "description": "another"}


@pytest.mark.parametrize(
    "definition", [{**ADD, "name": "new"}, {**GRAPH, "name": "new"}], ids=["steps", "graph"]
)
async def test_a_definition_of_either_notation_is_published_and_shown_as_it_was_written(
    ask: Asker, definition: dict[str, Any]
) -> None:
    published = await ask("POST", "/api/v1/workflows", definition)
    assert published.status == 200 and published.body["number"] == 1
    shown = await ask("GET", "/api/v1/workflows/new")
    assert shown.body["definition"]["name"] == "new" and shown.body["version"] == published.body["version"]
    assert ("nodes" in shown.body["definition"]) == ("nodes" in definition)


async def test_yaml_text_is_published(ask: Asker) -> None:
    text = "name: new\nsteps:\n- {id: s, tool: add, args: {a: 1, b: 2}}\n"
    headers = {"Content-Type": "application/yaml"}
    answer = await ask("POST", "/api/v1/workflows", data=text, headers=headers)
    assert answer.status == 200 and answer.body["name"] == "new"


async def test_every_problem_of_a_definition_is_reported_with_its_place(ask: Asker) -> None:
    text = "name: new\nsteps:\n- {id: a, tool: add, typo: 1}\n- {id: a, tool: add}\n"
    answer = await ask("POST", "/api/v1/workflows", data=text, headers={"Content-Type": "application/yaml"})
    assert (answer.status, answer.code) == (422, "invalid_spec")
    places = {(problem["code"], problem["line"]) for problem in answer.body["details"]}
    assert {("unknown_key", 3), ("duplicate_id", 4)} <= places


@pytest.mark.parametrize("body", [[], 1, "text", None])
async def test_a_definition_that_is_no_object_is_refused(ask: Asker, body: Any) -> None:
    answer = await ask("POST", "/api/v1/workflows", json=body)
    assert answer.status in (400, 422) and answer.code in ("invalid_request", "invalid_spec")


async def test_the_same_content_keeps_its_number(ask: Asker) -> None:
    assert (await ask("POST", "/api/v1/workflows", ADD)).body["number"] == 1


async def test_a_draft_is_stored_and_its_name_does_not_mean_it(ask: Asker) -> None:
    draft = await ask("POST", "/api/v1/workflows?draft=true", OTHER)
    assert draft.body["status"] == "draft" and draft.body["number"] == 2
    assert (await ask("GET", "/api/v1/workflows/sum")).body["number"] == 1


async def test_a_number_that_has_another_content_is_refused(ask: Asker) -> None:
    answer = await ask("POST", "/api/v1/workflows?number=1", OTHER)
    assert (answer.status, answer.code) == (409, "version_conflict")


async def test_names_are_listed_page_by_page(ask: Asker) -> None:
    first = (await ask("GET", "/api/v1/workflows?limit=1")).body
    second = (await ask("GET", f"/api/v1/workflows?limit=1&cursor={first['cursor']}")).body
    assert [line["name"] for line in first["items"] + second["items"]] == ["held", "sum"]
    assert second["cursor"] is None


async def test_versions_are_listed_the_newest_first(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", OTHER)
    page = (await ask("GET", "/api/v1/workflows/sum/versions")).body
    assert [line["number"] for line in page["items"]] == [2, 1]


async def test_one_version_is_shown_with_its_definition(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", OTHER)
    shown = (await ask("GET", "/api/v1/workflows/sum/versions/1")).body
    assert shown["number"] == 1 and "description" not in shown["definition"]


async def test_a_diff_says_what_changed(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", OTHER)
    diff = (await ask("GET", "/api/v1/workflows/sum/diff?from=1&to=2")).body
    assert (diff["from"], diff["to"], diff["pointers"]) == (1, 2, ["/description"])
    assert "+description: another" in diff["text"]


async def test_after_a_rollback_the_name_means_the_earlier_version(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", OTHER)
    assert (await ask("POST", "/api/v1/workflows/sum/rollback", {"number": 1})).body["number"] == 1
    assert (await ask("GET", "/api/v1/workflows/sum")).body["number"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/workflows/nope", None),
        ("GET", "/api/v1/workflows/nope/versions", None),
        ("GET", "/api/v1/workflows/sum/versions/9", None),
        ("GET", "/api/v1/workflows/sum/versions/x", None),
        ("GET", "/api/v1/workflows/sum/versions/99999999999999999999999", None),
        ("GET", "/api/v1/workflows/sum/versions/00000000000000000001" + 30 * "9", None),
        ("GET", "/api/v1/workflows/sum/diff?from=1&to=9", None),
        ("POST", "/api/v1/workflows/sum/rollback", {"number": 9}),
        ("GET", "/api/v1/artefacts/" + "0" * 64, None),
        ("GET", "/api/v1/artefacts/nope", None),
    ],
)
async def test_what_is_not_there_is_404(ask: Asker, method: str, path: str, body: Any) -> None:
    answer = await ask(method, path, body)
    assert (answer.status, answer.code) == (404, "not_found")


async def test_a_name_with_a_slash_is_one_name(ask: Asker) -> None:
    published = await ask("POST", "/api/v1/workflows", {**ADD, "name": "a b/c"})
    assert published.status == 200
    url = f"{ask.serving.address}/api/v1/workflows/a%20b%2Fc"
    async with ask.session.get(URL(url, encoded=True)) as answer:
        assert answer.status == 200 and (await answer.json())["name"] == "a b/c"


async def test_the_node_is_listed_with_its_address(ask: Asker) -> None:
    (node,) = (await ask("GET", "/api/v1/nodes")).body["items"]
    assert node["address"] == ask.serving.address and node["is_leaving"] is False
