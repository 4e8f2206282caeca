"""Presents steps and timelines: turns what queries return into the records of types/timeline.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast.api import present, types
from holdfast.api.types import time_or_none, time_text
from holdfast.values import definition_path, job_id
from holdfast.views.run_steps import Detail, Shown, StepsPart
from holdfast.views.runs import RunRow
from holdfast.views.timeline import Row, Strip, Timeline, spans_of


def step(one: Shown) -> types.Step:
    return msgspec.structs.replace(present.step(one.step), kind=one.kind, heads=present.heads(one.heads))


def steps(part: StepsPart, names: list[str], cursor: str | None) -> types.StepPage:
    return types.StepPage([step(one) for one in part.items], names, cursor, part.seq)


def detail(run_id: str, found: Detail) -> types.StepDetail:
    path = found.shown.step.path
    tries = [
        types.Try(
            n=one.n,
            from_=time_text(one.start),
            to=time_or_none(one.end),
            outcome=cast(Any, one.outcome),
            error=one.error,
            worker=list(one.worker),
            retry_at=time_or_none(one.retry_at),
            job_id=job_id(run_id, path, one.n),
        )
        for one in found.tries
    ]
    return types.StepDetail(
        **msgspec.structs.asdict(step(found.shown)),
        seq=found.seq,
        input=found.input,
        tries=tries,
        waits=[types.WaitSpan(one.kind, time_text(one.start), time_or_none(one.end)) for one in found.waits],
        artefacts=[types.StepArtefact(one.sha256, one.size, one.name) for one in found.artefacts],
        logs=[present.log_line(one) for one in found.logs],
        logs_more=found.logs_more,
    )


def timeline(row: RunRow, found: Timeline, seq: int, kinds: Mapping[str, str]) -> types.Timeline:
    return types.Timeline(
        run_id=row.id,
        seq=seq,
        status=row.status,
        from_=time_text(found.start),
        to=time_text(found.end),
        rows=[_row(one, kinds) for one in found.rows],
        more=found.more,
    )


def _row(one: Row, kinds: Mapping[str, str]) -> types.TimelineRow:
    step = one.entry.step
    spans = [
        types.TimelineSpan(cast(Any, kind), n, time_text(start), time_or_none(end), outcome)
        for kind, n, start, end, outcome in spans_of(one.entry)
    ]
    return types.TimelineRow(
        path=step.path,
        kind=kinds.get(definition_path(step.path), ""),
        status=step.status,
        from_=time_text(step.started),
        to=time_or_none(step.finished),
        depth=one.depth,
        spans=spans,
        children=step.children,
        done=step.done,
        failed=step.failed,
        strip=None if one.strip is None else _strip(one.strip),
    )


def _strip(one: Strip) -> types.Strip:
    return types.Strip(
        time_text(one.start),
        one.bucket_ms,
        one.started,
        one.completed,
        one.failed,
        one.cancelled,
        one.failed_items,
    )
