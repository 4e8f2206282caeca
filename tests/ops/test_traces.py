"""Spans of runs and attempts: made from what is durable, under ids that outlive the process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import ToolError, tool
from holdfast.ops import traces
from holdfast.ops.traces import Traces, given, span_id, traceparent
from holdfast.runtime.engine import Engine
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.sqlite.store import SqliteStore
from holdfast.tools.registry import Registry
from tests.runtime.bench import engine_on, started

pytestmark = pytest.mark.anyio

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{PARENT}-01"
SPEC = WorkflowSpec.from_yaml_str("name: w\nsteps: [{id: a, tool: ok}, {id: b, tool: ok}]")


@tool
async def ok() -> int:
    return 1


def engine_of(path: Path) -> Engine:
    return engine_on(SqliteStore(str(path / "h.db")), Registry([ok]))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = engine_of(tmp_path)
    await engine.open()
    yield engine
    await engine.close()


async def spans_of(engine: Engine, spec: WorkflowSpec = SPEC, trace: str = "") -> dict[str, ReadableSpan]:
    """The spans of one run by their names."""
    exporter = InMemorySpanExporter()
    tracing = Traces(engine.door, engine.dispatch.jobs, SimpleSpanProcessor(exporter))
    resident = await started(engine, spec, trace=trace)
    await engine.waiters.ended(resident.run.no)
    tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    assert span.context is not None
    parent = f"{span.parent.span_id:016x}" if span.parent is not None else ""
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", parent


async def test_a_run_and_each_attempt_have_a_span(engine: Engine) -> None:
    spans = await spans_of(engine)
    assert set(spans) == {"w", "a", "b"}
    run = ids(spans["w"])
    assert ids(spans["a"])[2] == ids(spans["b"])[2] == run[1]
    assert {ids(span)[0] for span in spans.values()} == {run[0]}
    assert run[2] == ""


async def test_a_run_that_was_given_no_trace_is_one_under_its_own_id(engine: Engine) -> None:
    span = (await spans_of(engine))["w"]
    assert span.attributes is not None
    assert ids(span)[0] == str(span.attributes["holdfast.run_id"]).replace("-", "")


async def test_a_run_stands_below_the_span_of_its_caller(engine: Engine) -> None:
    spans = await spans_of(engine, trace=HEADER)
    assert ids(spans["w"])[0::2] == (TRACE, PARENT)
    assert ids(spans["a"])[0] == TRACE


async def test_spans_say_when_it_was_and_how_it_ended(engine: Engine) -> None:
    @tool
    async def bad() -> None:
        raise ToolError("no luck", kind="quota")

    engine.registry.add(bad)
    spans = await spans_of(engine, WorkflowSpec.from_yaml_str("name: f\nsteps: [{id: x, tool: bad}]"))
    for span in spans.values():
        assert span.start_time is not None and span.end_time is not None
        assert span.start_time <= span.end_time
        assert not span.status.is_ok and span.status.description == "quota: no luck"
    assert spans["x"].attributes is not None and spans["x"].attributes["holdfast.attempt"] == 1


async def test_what_the_caller_does_not_want_to_see_is_not_sent(engine: Engine) -> None:
    assert await spans_of(engine, trace=HEADER[:-1] + "0") == {}


async def test_a_run_stays_in_its_trace_when_another_process_ends_it(tmp_path: Path) -> None:
    first = engine_on(SqliteStore(str(tmp_path / "h.db")), Registry([]))
    await first.open()
    resident = await started(first, SPEC, trace=HEADER)  # its tool is not here
    await first.door.drained()
    await first.close()
    second, exporter = engine_of(tmp_path), InMemorySpanExporter()
    tracing = Traces(second.door, second.dispatch.jobs, SimpleSpanProcessor(exporter))
    await second.open()
    await second.waiters.ended(resident.run.no)
    await second.close()
    tracing.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"w", "a", "b"}
    assert {ids(span)[0] for span in spans.values()} == {TRACE}
    assert ids(spans["w"])[1] == f"{span_id(resident.run.id):016x}"


def test_the_work_of_an_attempt_stands_below_its_span() -> None:
    run_id = "0190a6a0-0000-7000-8000-000000000001"
    version, trace, span, flags = traceparent(run_id, HEADER, "a", 2).split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert int(span, 16) == span_id(run_id, "a", 2) != span_id(run_id, "a", 1)


async def test_without_spans_of_our_own_a_trace_is_passed_on_as_it_came(engine: Engine) -> None:
    resident = await started(engine, SPEC, trace=HEADER)
    assert engine.dispatch.jobs.traceparent(resident, "a", 1) == HEADER
    plain = await started(engine, SPEC)
    assert engine.dispatch.jobs.traceparent(plain, "a", 1) is None
    await engine.waiters.ended(plain.run.no)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "x", HEADER.upper(), f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"{HEADER}\n", f"{HEADER}-more",
    ],
)  # fmt: skip
def test_what_is_no_traceparent_is_as_if_it_had_not_been_sent(header: str | None) -> None:
    assert given(header) == ""


def test_a_traceparent_is_taken_as_it_is() -> None:
    assert given(HEADER) == HEADER


async def test_nothing_is_traced_without_an_exporter(engine: Engine) -> None:
    assert traces.begin(engine.door, engine.dispatch.jobs, None) is None
    assert engine.door.watchers == []


async def test_a_missing_extra_is_reported_and_stops_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import sys

    modules: Any = dict.fromkeys(
        (name for name in sys.modules if name.startswith("opentelemetry.exporter")), None
    )
    modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = None
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    assert traces.begin(engine.door, engine.dispatch.jobs, "http://127.0.0.1:9") is None
    assert "pip install 'holdfast-engine[otel]'" in caplog.text
