"""What the server says of itself: the document matches the routes, and the page loads nothing from elsewhere."""

from __future__ import annotations

import re

import pytest

from holdfast.api.types import STATUS
from holdfast.http.openapi import document
from holdfast.http.serve import ROUTES
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
    assert {"400", "421", "500", "503"} <= set(said["responses"])
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
