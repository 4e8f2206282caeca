"""What the server says of itself: the document matches the routes, and the page loads nothing from elsewhere."""

from __future__ import annotations

import re

import pytest

from holdfast import limits
from holdfast.api.types import STATUS
from holdfast.http.openapi import document
from holdfast.http.serve import ROUTES
from holdfast.http.table import Route
from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

OPERATIONS = [
    pytest.param(path, method, said, id=f"{method} {path}")
    for path, methods in document(ROUTES)["paths"].items()
    for method, said in methods.items()
]


async def test_the_document_is_served_and_lists_every_route(ask: Asker) -> None:
    answer = await ask("GET", "/openapi.json")
    assert answer.status == 200 and answer.body["openapi"] == "3.1.0"
    told = {(method.upper(), path) for path, methods in answer.body["paths"].items() for method in methods}
    assert told == {(route.method, route.path) for route in ROUTES if route.is_listed}


def test_operations_have_names_of_their_own() -> None:
    names = [
        said["operationId"] for methods in document(ROUTES)["paths"].values() for said in methods.values()
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_an_operation_says_what_it_answers_and_how_it_fails(path: str, method: str, said: dict) -> None:  # type: ignore[type-arg]
    assert said["summary"] and said["tags"][0]
    assert any(status.startswith("2") for status in said["responses"])
    assert {"400", "421", "431", "500", "503"} <= set(said["responses"])
    assert ("401" in said["responses"]) == ("security" in said)
    assert set(re.findall(r"{(\w+)}", path)) == {
        each["name"] for each in said["parameters"] if each["in"] == "path"
    }


def test_every_code_that_a_route_gives_has_a_status() -> None:
    assert {code for route in ROUTES for code in route.errors} <= set(STATUS)


def test_every_reference_leads_somewhere() -> None:
    made = document(ROUTES)
    named = set(re.findall(r"#/components/schemas/(\w+)", str(made)))
    assert named <= set(made["components"]["schemas"])


@pytest.mark.parametrize("path", ["/docs", "/docs.css", "/docs.js"])
async def test_the_page_is_ours_alone(ask: Asker, path: str) -> None:
    answer = await ask("GET", path)
    assert answer.status == 200 and "default-src 'none'" in answer.headers["Content-Security-Policy"]
    text = answer.body.decode()
    assert "http://" not in text and "https://" not in text and "//cdn" not in text


async def test_the_page_runs_no_script_that_stands_in_it(ask: Asker) -> None:
    answer = await ask("GET", "/docs")
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    assert re.findall(r"<script[^>]*>(.*?)</script>", answer.body.decode(), re.DOTALL) == [""]


def test_a_body_has_one_type_of_content_that_generators_of_clients_know() -> None:
    bodies = [
        said["requestBody"]["content"]
        for methods in document(ROUTES)["paths"].values()
        for said in methods.values()
        if "requestBody" in said
    ]
    assert {media for content in bodies for media in content} == {"application/json"}


def test_no_schema_is_an_enumeration_of_truth_values() -> None:
    """Generators of clients make a class of an enumeration, and leave out types whose values have no names."""
    found = re.findall(r"'enum': \[(?:True|False)", str(document(ROUTES)["components"]["schemas"]))
    assert found == []


async def test_the_document_says_which_fields_of_a_body_exclude_each_other(ask: Asker) -> None:
    made = document(ROUTES)
    body = made["paths"]["/api/v1/runs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    names = [one["$ref"].rpartition("/")[2] for one in body["anyOf"]]
    schemas = [made["components"]["schemas"][name] for name in names]
    assert [
        (one["required"], one["properties"][other])
        for one, other in zip(schemas, ("spec", "workflow"), strict=True)
    ] == [
        (["workflow"], {"type": "null"}),
        (["spec"], {"type": "null"}),
    ]
    both = {"workflow": "a", "spec": {"name": "a", "steps": [{"id": "s", "tool": "echo"}]}}
    assert (await ask("POST", "/api/v1/runs", both)).status == 400
    one = {"workflow": None, "spec": both["spec"]}
    assert (await ask("POST", "/api/v1/runs", one)).status == 202


@pytest.mark.parametrize(("number", "status"), [(1, 404), (1.0, 404), (1.5, 400), (1e300, 400), ("1", 400)])
async def test_a_whole_number_is_an_integer_however_it_is_written(
    ask: Asker, number: object, status: int
) -> None:
    body = {"workflow": "nosuch", "number": number, "inputs": {"x": 1.0}}
    assert (await ask("POST", "/api/v1/runs", body)).status == status


WITH_EXAMPLE = [
    pytest.param(route, id=f"{route.method} {route.path}") for route in ROUTES if route.example is not None
]


@pytest.mark.parametrize("route", WITH_EXAMPLE)
async def test_the_example_of_the_document_works_on_an_empty_server(ask: Asker, route: Route) -> None:
    made = document(ROUTES)["paths"][route.path][route.method.lower()]
    example = made["requestBody"]["content"]["application/json"]["example"]
    answer = await ask(route.method, route.path, example)
    # 202: a run that was started without waiting may still be under way.
    assert answer.status in {200, 202}, answer.body


def test_the_document_lists_all_methods_of_its_paths() -> None:
    paths = document(ROUTES)["paths"]
    assert {path: {route.method.lower() for route in ROUTES if route.path == path} for path in paths} == {
        path: set(methods) for path, methods in paths.items()
    }


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/heartbeat", {"id", "url"}),
        ("/flows/version", {"definition", "definition_json", "definition_yaml"}),
        ("/api/v1/plan", {"workflow", "spec"}),
        ("/api/v1/runs", {"workflow", "spec"}),
    ],
)
def test_a_body_that_needs_one_of_some_fields_has_a_schema_for_each(path: str, fields: set[str]) -> None:
    said = document(ROUTES)
    body = said["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schemas = [said["components"]["schemas"][one["$ref"].rpartition("/")[2]] for one in body["anyOf"]]
    assert {field for schema in schemas for field in fields.intersection(schema["required"])} == fields
    for schema in schemas:
        [needed] = fields.intersection(schema["required"])
        assert {"type": "null"} not in schema["properties"][needed].get("anyOf", ())


def test_a_text_in_an_address_that_fits_its_schema_fits_the_head_of_a_request() -> None:
    """A character of text takes up to twelve bytes in an address."""
    for path, operations in document(ROUTES)["paths"].items():
        for method, operation in operations.items():
            for schema in (one["schema"] for one in operation["parameters"] if one["in"] == "query"):
                longest = max(kind.get("maxLength", 0) for kind in (schema, *schema.get("anyOf", ())))
                assert longest * 12 < limits.DEFAULTS.head_bytes_max, (method, path)
