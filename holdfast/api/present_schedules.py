"""Presents schedules: turns what queries return into the records of types/schedules.py. Knows both sides and no server."""

from __future__ import annotations

from holdfast.api import types
from holdfast.api.types import time_or_none, time_text
from holdfast.triggers.backfills import Backfill
from holdfast.triggers.schedules import Fired
from holdfast.views.schedule_why import Verdict, Why, verdict
from holdfast.views.schedules import LedgerRow, NextFire, ScheduleView


def schedule_line(view: ScheduleView) -> types.ScheduleLine:
    row = view.row
    return types.ScheduleLine(
        id=row.id,
        workflow=view.spec.workflow,
        kind=row.kind,
        status=view.status,
        origin=row.origin,
        source=row.source,
        words=view.words,
        next_at=time_or_none(view.next_at),
        open_runs=view.open_runs,
        failures=view.failures,
        last_error=view.last_error,
    )


def schedule(view: ScheduleView) -> types.Schedule:
    row = view.row
    return types.Schedule(
        id=row.id,
        workflow=view.spec.workflow,
        kind=row.kind,
        status=view.status,
        origin=row.origin,
        source=row.source,
        words=view.words,
        timezone=view.timezone,
        next_at=time_or_none(view.next_at),
        paused_since=time_or_none(view.paused_since),
        paused_because=view.paused_because,
        open_runs=view.open_runs,
        total_run_count=view.total_run_count,
        error_count=view.error_count,
        failures=view.failures,
        last_error=view.last_error,
        created_at=time_text(row.created_at),
        updated_at=time_text(row.updated_at),
        definition=view.spec.to_data(),
        notes=view.notes,
    )


def next_fire(one: NextFire) -> types.NextFire:
    return types.NextFire(time_text(one.at), one.local, time_or_none(one.fires_at), one.note)


def next_fires(view: ScheduleView, fires: list[NextFire]) -> types.NextFires:
    return types.NextFires(view.timezone, view.words, view.never_fires, [next_fire(one) for one in fires])


def ledger_line(row: LedgerRow) -> types.LedgerLine:
    said = verdict(row)
    return types.LedgerLine(
        occurrence=row.occurrence,
        outcome=row.outcome,
        reason=row.reason,
        message=said.message,
        scheduled_at=time_text(row.scheduled_at),
        until=time_or_none(row.until),
        count=row.times,
        decided_at=time_text(row.at),
        fired_at=time_text(row.at) if row.outcome == "fired" else None,
        run_id=row.run_id,
        is_catchup=row.is_catchup,
        slot=row.slot,
        warnings=[*said.warnings],
    )


def why(found: Why) -> types.WhyReport:
    return types.WhyReport(found.schedule, found.status, [_verdict(one) for one in found.items])


def _verdict(one: Verdict) -> types.Verdict:
    return types.Verdict(
        outcome=one.outcome,
        reason=one.reason,
        message=one.message,
        hint=one.hint,
        occurrence=one.occurrence,
        at=time_or_none(one.at),
        local=one.local,
        until=time_or_none(one.until),
        count=one.count,
        run_id=one.run_id,
        decided_at=time_or_none(one.decided_at),
        slot=one.slot,
        warnings=[*one.warnings],
    )


def fired(one: Fired) -> types.FiredSchedule:
    return types.FiredSchedule(one.run_id, one.occurrence)


def backfill(found: Backfill, *, preview: bool) -> types.Backfill:
    return types.Backfill(preview, found.count, found.settled, [time_text(at) for at in found.occurrences])
