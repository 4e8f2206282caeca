"""Presents validations and plans: turns what commands return into the records of types/plans.py."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.api import types
from holdfast.api.types import StepStats, WorkflowStats, time_text
from holdfast.runtime.planning import Validation
from holdfast.views import stats as views
from holdfast.views.outline import Outline
from holdfast.views.stats import Stats, share


def plan(outline: Outline) -> types.Plan:
    """The same records under the names that clients see."""
    return msgspec.convert(msgspec.to_builtins(outline), types.Plan)


def validation(found: Validation) -> types.Validation:
    return types.Validation(
        valid=not found.problems,
        problems=list(found.problems),
        notes=list(found.notes),
        patch=list(found.patch),
        left=list(found.left),
        repaired=found.repaired if found.patch else None,
        plan=None if found.outline is None else plan(found.outline),
        inputs=found.inputs,
        inputs_schema=found.inputs_schema,
    )


def stats(name: str, number: int | None, found: Stats, kinds: Mapping[str, str]) -> WorkflowStats:
    by_status, runs = found.by_status, found.runs
    judged = by_status["completed"] + by_status["failed"]
    return WorkflowStats(
        workflow=name,
        number=number,
        runs=len(runs),
        completed=by_status["completed"],
        failed=by_status["failed"],
        cancelled=by_status["cancelled"],
        interrupted=by_status["interrupted"],
        success=by_status["completed"] / judged if judged else None,
        p50_ms=share(found.took_ms, 0.5),
        p95_ms=share(found.took_ms, 0.95),
        from_=time_text(runs[-1].created_at) if runs else None,
        to=time_text(runs[0].created_at) if runs else None,
        steps=[_step_stats(one, kinds.get(one.path, "")) for one in found.steps],
        steps_of=found.steps_of,
    )


def _step_stats(one: views.StepStats, kind: str) -> StepStats:
    p50, p95 = share(one.took_ms, 0.5), share(one.took_ms, 0.95)
    return StepStats(one.path, kind, one.runs, one.failed, one.retries, p50, p95)
