"""Tools that read: the status of a run, why it failed, lists of runs, workflows and schedules, and the check of a definition.

Knows how to ask queries and what an agent is shown of their answers. Changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

from holdfast.api import present, present_plans, present_schedules, present_steps
from holdfast.api.visible import check_schedule
from holdfast.errors import NotFound
from holdfast.mcp.answers import Result, refused
from holdfast.mcp.calls import following
from holdfast.mcp.lookup import fitting_page
from holdfast.mcp.status import s1_status
from holdfast.mcp.table import Arguments, Asked, RunId
from holdfast.values import TERMINAL, Status
from holdfast.views.cursors import cursor_of, number_of
from holdfast.views.run_view import RunView

WaitSecs = Annotated[float, msgspec.Meta(ge=0, le=60, description="How long to wait for the run to finish.")]
Inputs = Annotated[dict[str, Any], msgspec.Meta(description="The inputs of the run, by name.")]
_JSON_TYPES: Final = {
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "NoneType": "null",
}


# -------------------------------------------------------------------------------------------------- reading


class OneRun(Arguments, frozen=True, kw_only=True):
    """One of the two names a run."""

    run_id: RunId | None = None
    workflow_id: Annotated[str, msgspec.Meta(description="Another name of run_id.")] | None = None

    @property
    def id(self) -> str:
        return self.run_id or self.workflow_id or ""


def id_refusal(given: dict[str, Any]) -> str | None:
    found = given.get("run_id") or given.get("workflow_id")
    if found is None:
        return "missing required field: workflow_id"
    try:
        UUID(str(found))
    except ValueError:
        return f"invalid workflow_id: {str(found)[:100]!a} is not the id of a run"
    return None


class GetStatus(OneRun, frozen=True, kw_only=True):
    wait_secs: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=60, description="How long to wait until the run has finished or asks something."
        ),
    ] = 0


async def get_status(asked: Asked) -> Result:
    wanted: GetStatus = asked.arguments
    run_id = wanted.id
    try:
        view = await asked.services.asking.wait_for(asked.tenant, run_id, wanted.wait_secs)
    except NotFound as error:
        return refused(error, f"no workflow run tracked for id={run_id}")
    return Result(_status(asked, view))


def _status(asked: Asked, view: RunView) -> dict[str, Any]:
    return {
        "workflow_id": view.run_id,
        "run_id": view.run_id,
        "root_job_id": view.run_id,
        "workflow": view.workflow,
        "status": s1_status(view.status),
        "state": view.status,
        "terminal": view.status in TERMINAL,
        "progress": dict(view.progress),
        "output": view.output_text if view.status == "completed" else None,
        "error": None if view.error is None else msgspec.to_builtins(view.error),
        "waits": asked.desk.calls.waits(asked.talk, view),
        "next": following(view),
    }


async def explain(asked: Asked) -> Result:
    """Why a run does not go on, or why it failed, with the steps that failed."""
    queries, run_id = asked.services.queries, asked.arguments.id
    try:
        why = await queries.explain(asked.tenant, run_id)
    except NotFound as error:
        return refused(error, f"no workflow run tracked for id={run_id}")
    view = await queries.run(asked.tenant, run_id)
    page = await queries.steps(asked.tenant, run_id, limit=500)
    failed = [
        {
            "path": step.path,
            "status": step.status,
            "attempts": step.attempts,
            "error": None if step.error is None else msgspec.to_builtins(step.error),
        }
        for step in page.items
        if step.status in ("failed", "retrying", "cancelled")
    ]
    said: dict[str, Any] = msgspec.to_builtins(present.explanation(why))
    return Result(
        {
            **said,
            "workflow": view.workflow,
            "inputs": view.inputs_text,
            "error": None if view.error is None else msgspec.to_builtins(view.error),
            "progress": dict(view.progress),
            "failed_steps": failed[:50],
            "waits": asked.desk.calls.waits(asked.talk, view),
            "next": following(view, is_explained=True),
        }
    )


class Steps(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    under: (
        Annotated[str, msgspec.Meta(description="Only the steps inside this one: loop, or loop[3].")] | None
    ) = None
    failed: Annotated[bool, msgspec.Meta(description="Only steps that failed.")] = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50


async def runs_steps(asked: Asked) -> Result:
    wanted: Steps = asked.arguments
    queries = asked.services.queries
    row = await queries.row(asked.tenant, wanted.run_id)
    after = 0 if asked.page_cursor is None else number_of(asked.page_cursor)
    names = await queries.step_names(asked.tenant, wanted.run_id)

    async def page(limit: int) -> dict[str, Any]:
        part = await queries.run_steps.page(
            row,
            every=True,
            under=wanted.under,
            statuses=["failed"] if wanted.failed else [],
            kinds=[],
            values="head",
            after=after,
            limit=limit,
        )
        cursor = None if part.after is None else cursor_of(part.after)
        return {"steps": present_steps.steps(part, names, cursor).items, "cursor": cursor}

    return await fitting_page(asked, wanted.limit, page)


class Logs(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    step: Annotated[str, msgspec.Meta(description="Only the lines of the step at this path.")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50


async def runs_logs(asked: Asked) -> Result:
    wanted: Logs = asked.arguments
    after = 0 if asked.page_cursor is None else number_of(asked.page_cursor)

    async def page(limit: int) -> dict[str, Any]:
        found = await asked.services.queries.logs(
            asked.tenant, wanted.run_id, step=wanted.step, after=after, limit=limit
        )
        lines = [msgspec.to_builtins(present.log_line(one)) for one in found.items]
        return {"lines": lines, "cursor": found.cursor and cursor_of(int(found.cursor))}

    return await fitting_page(asked, wanted.limit, page)


class RunsList(Arguments, frozen=True, kw_only=True):
    status: Status | None = None
    workflow: str | None = None
    label: Annotated[str, msgspec.Meta(description="`team=x`, or `team` for any value.")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20


async def runs_list(asked: Asked) -> Result:
    wanted: RunsList = asked.arguments

    async def page(limit: int) -> dict[str, Any]:
        found = await asked.services.queries.runs(
            asked.tenant,
            status=wanted.status,
            workflow=wanted.workflow,
            label=wanted.label,
            cursor=asked.page_cursor,
            limit=limit,
        )
        lines = await asked.services.queries.summaries(found.items)
        return {
            "runs": [msgspec.to_builtins(present.run_line(line)) for line in lines],
            "cursor": found.cursor,
        }

    return await fitting_page(asked, wanted.limit, page)


class SchedulesWhy(Arguments, frozen=True, kw_only=True):
    schedule_id: Annotated[str, msgspec.Meta(min_length=1, description="The id of the schedule.")]
    when: (
        Annotated[
            str, msgspec.Meta(description="A date or time, past or future; without it, the last occurrences.")
        ]
        | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10


async def schedules_why(asked: Asked) -> Result:
    wanted: SchedulesWhy = asked.arguments
    await check_schedule(asked.services, asked.talk.caller.principal, wanted.schedule_id)
    found = await asked.services.why.why(asked.tenant, wanted.schedule_id, wanted.when, wanted.limit)
    return Result(msgspec.to_builtins(present_schedules.why(found)))


class SchedulesList(Arguments, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20


async def schedules_list(asked: Asked) -> Result:
    wanted: SchedulesList = asked.arguments

    async def page(limit: int) -> dict[str, Any]:
        found = await asked.services.schedules.schedules(asked.tenant, cursor=asked.page_cursor, limit=limit)
        seen = [one for one in found.items if asked.rights.sees(one.spec.workflow)]
        lines = [msgspec.to_builtins(present_schedules.schedule_line(one)) for one in seen]
        return {"schedules": lines, "cursor": found.cursor}

    return await fitting_page(asked, wanted.limit, page)


# ----------------------------------------------------------------------------------------------- definitions


def spec_refusal(given: dict[str, Any]) -> str | None:
    if any(given.get(key) is not None for key in ("workflow", "name")):
        return None
    if "spec" not in given or given["spec"] is None:
        return "missing required field: spec"
    if not isinstance(given["spec"], str | dict):
        kind = type(given["spec"]).__name__
        return f"spec must be a YAML string or JSON object, got {_JSON_TYPES.get(kind, kind)}"
    return None


class Validate(Arguments, frozen=True, kw_only=True):
    spec: Annotated[Any, msgspec.Meta(description="A workflow as YAML text or as an object.")]


async def validate(asked: Asked) -> Result:
    """Every problem at once, each with its place, a hint and, where a repair is known, the JSON Patch that makes it."""
    found = await asked.services.commands.validate(asked.tenant, asked.arguments.spec, asked.rights)
    said: dict[str, Any] = msgspec.to_builtins(present_plans.validation(found))
    plan = said.pop("plan", None)
    return Result({**said, "plan_hash": None if plan is None else plan["plan_hash"]})


class Plan(Arguments, frozen=True, kw_only=True):
    spec: Annotated[Any, msgspec.Meta(description="A workflow as YAML text or as an object.")] = msgspec.UNSET
    workflow: (
        Annotated[str, msgspec.Meta(description="Instead of spec: the name of a published workflow.")] | None
    ) = None


async def plan(asked: Asked) -> Result:
    """What a run would do: steps, the tools that they call, which of them destroy something. Nothing is stored or executed."""
    wanted: Plan = asked.arguments
    what: Any = (
        await asked.services.commands.read(wanted.spec)
        if wanted.workflow is None
        else await asked.published(wanted.workflow)
    )
    commands = asked.services.commands
    found = msgspec.to_builtins(
        present_plans.plan(await commands.plan_of(asked.tenant, what, rights=asked.rights))
    )
    refused = (
        () if isinstance(what, str) else await commands.planning.refusals(asked.tenant, what, asked.rights)
    )
    return Result({**found, **({"problems": msgspec.to_builtins(refused)} if refused else {})})
