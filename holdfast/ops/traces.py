"""Traces for OpenTelemetry: a span per run and one per attempt, made when their end is durable.

    caller's span ──► run ──► attempt ──► (traceparent) ──► the spans of a worker

Ids are hashes of what they identify, so a run that outlives its process stays one trace and nothing has to be
remembered. Spans are made from committed rows only; a span that is made twice is the same span. Where OpenTelemetry is not
installed, or no exporter is configured, a run's traceparent is passed on to workers as it came.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.engine.decisions import FinishRun
from holdfast.engine.events import StepFailed, StepSucceeded
from holdfast.execution.jobs import Jobs
from holdfast.runtime.door import Door
from holdfast.runtime.entries import Entry, read_back
from holdfast.runtime.resident_run import ResidentRun
from holdfast.store.batch import Batch

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor

log = logging.getLogger("holdfast")

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SAMPLED: Final = 1


def given(header: str | None) -> str:
    """A caller's traceparent if it is valid, otherwise nothing: an invalid one is ignored."""
    return header if header is not None and _TRACEPARENT.fullmatch(header) else ""


class Place(NamedTuple):
    """Where a run stands: its trace, the span above it (0: none), and whether it is sampled."""

    trace_id: int
    parent_id: int
    is_sampled: bool


def place_of(run_id: str, trace: str) -> Place:
    """A run without a trace context gets its own trace, derived from its id."""
    if not trace:
        return Place(int(run_id.replace("-", ""), 16), 0, True)
    _, trace_id, parent_id, flags = trace.split("-")
    return Place(int(trace_id, 16), int(parent_id, 16), bool(int(flags, 16) & _SAMPLED))


def span_id(run_id: str, path: str = "", attempt: int = 0) -> int:
    digest = hashlib.sha256(f"{run_id} {path} {attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1  # all zeros mean no span


def traceparent(run_id: str, trace: str, path: str, attempt: int) -> str:
    """The traceparent for the work of an attempt, so that its spans are children of the attempt's span."""
    place = place_of(run_id, trace)
    return f"00-{place.trace_id:032x}-{span_id(run_id, path, attempt):016x}-{int(place.is_sampled):02x}"


def begin(door: Door, jobs: Jobs, endpoint: str | None) -> Traces | None:
    """Send spans to an OTLP endpoint, if there is one and OpenTelemetry is installed."""
    if not endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("otel is set, and OpenTelemetry is not installed: pip install 'holdfast-engine[otel]'")
        return None
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    return Traces(door, jobs, BatchSpanProcessor(exporter))


class Traces:
    def __init__(self, door: Door, jobs: Jobs, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource

        self._door, self._processor = door, processor
        self._resource: Resource = Resource.create({"service.name": "holdfast"})
        door.watchers.append(self._committed)
        jobs.traceparent = _of_attempt

    def close(self) -> None:
        """Export the remaining spans. May take a while, because the exporter retries."""
        self._door.watchers.remove(self._committed)
        self._processor.shutdown()

    def _committed(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        for row, entry in zip(batch.rows, entries, strict=True):
            resident, at, (event, decisions) = entry[0], row[3], read_back(entry, row)
            if isinstance(event, StepSucceeded | StepFailed):
                self._attempt(resident, event, at)
            for decision in decisions:
                if isinstance(decision, FinishRun):
                    self._run(resident, decision, at)

    def _attempt(self, resident: ResidentRun, event: StepSucceeded | StepFailed, at: int) -> None:
        run, path = resident.run, event.path
        about = {"holdfast.step": path, "holdfast.attempt": event.attempt, **_about(resident)}
        if event.worker:
            about["holdfast.worker"] = event.worker[0]
        problem = f"{event.error.kind}: {event.error.message}" if isinstance(event, StepFailed) else ""
        own, above = span_id(run.id, path, event.attempt), span_id(run.id)
        self._end(resident, path, own, above, (at - event.ran_ms, at), about, problem)

    def _run(self, resident: ResidentRun, end: FinishRun, at: int) -> None:
        run = resident.run
        about = {"holdfast.status": end.status, **_about(resident)}
        problem = f"{end.error.kind}: {end.error.message}" if end.error is not None else ""
        above = place_of(run.id, resident.trace).parent_id
        self._end(resident, resident.plan.name, span_id(run.id), above, (run.created_at, at), about, problem)

    def _end(
        self,
        resident: ResidentRun,
        name: str,
        own: int,
        above: int,
        times: tuple[int, int],
        about: dict[str, Any],
        problem: str,
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        place = place_of(resident.run.id, resident.trace)
        flags = TraceFlags(_SAMPLED if place.is_sampled else 0)
        parent = SpanContext(place.trace_id, above, is_remote=above == place.parent_id, trace_flags=flags)
        start, end = times
        self._processor.on_end(
            ReadableSpan(
                name,
                SpanContext(place.trace_id, own, is_remote=False, trace_flags=flags),
                parent if above else None,
                self._resource,
                about,
                status=Status(StatusCode.ERROR, problem) if problem else Status(StatusCode.OK),
                start_time=start * 1_000_000,
                end_time=end * 1_000_000,
            )
        )


def _about(resident: ResidentRun) -> dict[str, Any]:
    return {
        "holdfast.run_id": resident.run.id,
        "holdfast.workflow": resident.plan.name,
        "holdfast.tenant": resident.run.tenant,
    }


def _of_attempt(resident: ResidentRun, path: str, attempt: int) -> str:
    return traceparent(resident.run.id, resident.trace, path, attempt)
