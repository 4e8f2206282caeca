"""A trace from the caller of a server through its runs to the workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.ops.traces import Traces, span_id
from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{PARENT}-01"
CALLS = {"name": "calls", "steps": [{"id": "c", "service": "trace", "input": 1}]}


@pytest.fixture
async def told(ask: Asker) -> AsyncIterator[list[str | None]]:
    """The traceparent of each call that a worker got."""
    found: list[str | None] = []

    async def work(request: web.Request) -> web.Response:
        found.append(request.headers.get("traceparent"))
        return web.json_response({"result": 1, "error": ""})

    app = web.Application()
    app.router.add_post("/exec/trace", work)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    worker = {"id": "w", "url": f"http://127.0.0.1:{port}", "services": ["trace"]}
    assert (await ask("POST", "/api/v1/workers", worker)).status == 200
    yield found
    await runner.cleanup()


async def run(ask: Asker, **headers: str) -> str:
    answer = await ask("POST", "/api/v1/runs", {"spec": CALLS, "wait_secs": 30}, headers=headers)
    assert answer.body["status"] == "completed", answer.body
    return str(answer.body["run_id"])


async def test_a_worker_stands_below_the_attempt_that_calls_it(ask: Asker, told: list[Any]) -> None:
    exporter = InMemorySpanExporter()
    engine = ask.serving.services.engine
    tracing = Traces(engine.door, engine.dispatch.jobs, SimpleSpanProcessor(exporter))
    run_id = await run(ask, traceparent=HEADER)
    tracing.close()
    assert told == [f"00-{TRACE}-{span_id(run_id, 'c', 1):016x}-01"]
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert spans["calls"].parent is not None and f"{spans['calls'].parent.span_id:016x}" == PARENT
    assert spans["c"].attributes is not None and spans["c"].attributes["holdfast.worker"] == "w"


async def test_without_spans_of_our_own_a_worker_gets_the_trace_as_it_came(
    ask: Asker, told: list[Any]
) -> None:
    await run(ask, traceparent=HEADER)
    assert told == [HEADER]


@pytest.mark.parametrize("header", ["", "no trace", f"{HEADER}-more"])
async def test_an_invalid_trace_header_is_passed_to_no_worker(
    ask: Asker, told: list[Any], header: str
) -> None:
    await run(ask, traceparent=header)
    assert told == [None]
