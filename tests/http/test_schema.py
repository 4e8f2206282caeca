"""Whatever is sent, in the shapes of the document or against them: no 5xx, and no answer that the document does not know."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.config import Settings
from holdfast.http.openapi import document
from holdfast.http.serve import ROUTES, serving
from holdfast.http.table import Route

EXAMPLES = 10
TIMEOUT_SECS = 120
KEY = "k" * 32  # from the beginning: one of the things that are asked for is a key, and then all need one
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
STRICT = "/api/v1/"  # elsewhere, what is unknown is passed over
STREAMS = "text/event-stream"  # these have no end that a client could wait for; their own tests read them

API = schemathesis.openapi.from_dict(document(ROUTES))
LISTED = [route for route in ROUTES if route.is_listed and route.answer_media != STREAMS]


class Running:
    """A server on a thread of its own, with something to find in it."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._up, self._stop = threading.Event(), asyncio.Event()
        self.address, self.run_id = "", ""
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with serving(Settings(db=f"sqlite:///{self._database}", port=0, key=KEY)) as server:
            commands = server.services.commands
            spec = {"name": "known", "steps": [{"id": "s", "tool": "echo", "args": {"value": 1}}]}
            await commands.publish("default", spec)
            row, _ = await commands.start("default", "known", {})
            self.address, self.run_id = server.address, row.id
            self._up.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self.thread.start()
        assert self._up.wait(TIMEOUT_SECS)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self.thread.join(TIMEOUT_SECS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("schema") / "test.db") as running:
        yield running


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as one:
        one.headers["Authorization"] = f"Bearer {KEY}"
        yield one


@pytest.mark.parametrize("mode", list(GenerationMode), ids=["fitting", "unfitting"])
@pytest.mark.parametrize("route", LISTED, ids=lambda route: f"{route.method} {route.path}")
def test_every_answer_is_one_that_the_document_knows(
    route: Route, mode: GenerationMode, server: Running, session: requests.Session
) -> None:
    operation = API[route.path][route.method]
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
        mode = GenerationMode.POSITIVE
    checks = [*CHECKS, negative_data_rejection] if route.path.startswith(STRICT) else [*CHECKS]
    if 503 in route.also:
        checks.remove(not_a_server_error)  # that there is no worker, or that one is not ready, is said so

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def every_case(case: Any) -> None:
        _use_what_is_there(case, server)
        answer = case.call(base_url=server.address, session=session, timeout=TIMEOUT_SECS)
        # too long a text may make too long a body, and that is a refusal too
        is_refused = answer.status_code == 413 and negative_data_rejection in checks
        case.validate_response(answer, checks=[*CHECKS] if is_refused else checks)
        if mode is GenerationMode.POSITIVE and route.path.startswith(STRICT):
            # 400 says that a request does not fit the document; what fits and cannot be used is 422
            assert answer.status_code != 400, (case.as_curl_command(), answer.text)

    every_case()


def _use_what_is_there(case: Any, server: Running) -> None:
    """A run or a workflow that exists, half of the time; and nobody waits for what will not come."""
    parameters: dict[str, Any] = case.path_parameters or {}
    known = {"id": server.run_id, "name": "known", "number": "1"}
    if parameters and sum(map(ord, str(parameters))) % 2:
        case.path_parameters = {name: known.get(name, value) for name, value in parameters.items()}
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_secs"), float | int):
        case.body["wait_secs"] = min(case.body["wait_secs"], 0)
