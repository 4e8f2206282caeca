"""Tools that act: start, run again, cancel, approve, signal, resume, fire.

Knows how to call commands and what an agent is shown of their answers. No rule: what an act means is the runtime's.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.api import present_schedules
from holdfast.api.visible import check_schedule
from holdfast.errors import InvalidInputs, InvalidSpec, NotFound, PlanRefused
from holdfast.mcp.answers import Result, refused
from holdfast.mcp.calls import Start, request_id_of
from holdfast.mcp.offers import Manner
from holdfast.mcp.reading_tools import OneRun
from holdfast.mcp.table import Arguments, Asked, RunId
from holdfast.runtime.rerun import Again
from holdfast.values import TERMINAL

WaitSecs = Annotated[float, msgspec.Meta(ge=0, le=60, description="How long to wait for the run to finish.")]
Inputs = Annotated[dict[str, Any], msgspec.Meta(description="The inputs of the run, by name.")]


# ------------------------------------------------------------------------------------------------- starting


class Run(Arguments, frozen=True, kw_only=True):
    spec: Annotated[
        Any, msgspec.Meta(description="A workflow as YAML text or as an object, in either notation.")
    ] = msgspec.UNSET
    workflow: (
        Annotated[str, msgspec.Meta(description="Instead of spec: the name of a published workflow.")] | None
    ) = None
    skill: (
        Annotated[str, msgspec.Meta(description="With name: the skill that the workflow belongs to.")] | None
    ) = None
    name: (
        Annotated[str, msgspec.Meta(description="The workflow of the skill, or a published workflow.")] | None
    ) = None
    inputs: Inputs = msgspec.field(default_factory=dict)
    parent_job_id: str | None = None
    plan_hash: (
        Annotated[str, msgspec.Meta(description="Start only if the plan still has this hash.")] | None
    ) = None
    wait_secs: WaitSecs | None = None


async def run(asked: Asked) -> Result | dict[str, Any]:
    wanted: Run = asked.arguments
    try:
        what: Any = await _meant(asked, wanted)
        start = Start(what, wanted.inputs, wanted.parent_job_id, plan_hash=wanted.plan_hash)
        return await asked.desk.calls.call(
            asked.talk,
            start,
            Manner(),
            responses=asked.responses,
            state=asked.state,
            wait_secs=wanted.wait_secs,
            renders=asked.finished,
        )
    except InvalidSpec as error:
        return refused(error, f"workflow start failed: validation failed: {error}")
    except (InvalidInputs, NotFound, PlanRefused) as error:
        return refused(error, f"workflow start failed: {error}")


async def _meant(asked: Asked, wanted: Run) -> Any:
    name = wanted.workflow
    if wanted.name is not None:
        name = f"{wanted.skill}::{wanted.name}" if wanted.skill else wanted.name
    if name is None:
        return await asked.services.commands.read(wanted.spec)
    return await asked.published(name)


class Rerun(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    from_step: (
        Annotated[str, msgspec.Meta(description="The step to start from; earlier outputs are copied.")] | None
    ) = None
    failed: Annotated[bool, msgspec.Meta(description="Only what failed, and what follows from it.")] = False
    inputs: Inputs | None = None
    wait_secs: WaitSecs | None = None


async def rerun(asked: Asked) -> Result | dict[str, Any]:
    wanted: Rerun = asked.arguments
    again = Again(() if wanted.from_step is None else (wanted.from_step,), wanted.failed)
    row = await asked.services.commands.rerun(
        asked.tenant, wanted.run_id, again, wanted.inputs, request_id_of(asked.talk), asked.rights
    )
    return await asked.desk.calls.answer(
        asked.talk, row.id, Manner(), {}, wait_secs=wanted.wait_secs, renders=asked.finished
    )


# --------------------------------------------------------------------------------------------------- acting


class Cancel(OneRun, frozen=True, kw_only=True):
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


async def cancel(asked: Asked) -> Result:
    """Cancel a run. For an unknown or finished run this is not an error: the result has `cancelled: false`."""
    run_id = asked.arguments.id
    queries = asked.services.queries
    try:
        was = (await queries.run(asked.tenant, run_id)).status
        row = await asked.services.commands.cancel(asked.tenant, run_id, asked.arguments.reason)
    except NotFound:
        return Result({"workflow_id": run_id, "run_id": run_id, "cancelled": False})
    return Result({
        "workflow_id": run_id, "run_id": run_id, "cancelled": was not in TERMINAL, "status": row.status,
    })  # fmt: skip


class Approve(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    path: Annotated[str, msgspec.Meta(description="The approval: its path, or the id of its step.")]
    approved: bool
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    form: Annotated[Any, msgspec.Meta(description="The fields of the form, if the approval has one.")] = None


async def approve(asked: Asked) -> Result:
    wanted: Approve = asked.arguments

    def answer(decided: bool) -> Result:
        return Result({"run_id": wanted.run_id, "path": wanted.path, "decided": decided})

    decided = await asked.services.commands.approve(
        asked.tenant,
        wanted.run_id,
        wanted.path,
        approved=wanted.approved,
        reason=wanted.reason,
        by=asked.talk.caller.name,
        form=wanted.form,
        keep=asked.keeps(answer),
    )
    return answer(decided)


class Signal(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    key: Annotated[str, msgspec.Meta(description="The name of the signal.")]
    value: Annotated[Any, msgspec.Meta(description="What the waiting step receives.")] = None
    correlation: str | None = None


async def signal(asked: Asked) -> Result:
    wanted: Signal = asked.arguments

    def answer(status: str) -> Result:
        return Result({"run_id": wanted.run_id, "status": status})

    status = await asked.services.commands.signal(
        asked.tenant,
        wanted.run_id,
        wanted.key,
        wanted.value,
        wanted.correlation,
        keep=asked.keeps(answer),
    )
    return answer(status)


class Resume(Arguments, frozen=True, kw_only=True):
    task_id: Annotated[
        str, msgspec.Meta(min_length=1, description="The task id of the call that is pending.")
    ]
    result: Annotated[Any, msgspec.Meta(description="The result: {success, data, error}, or any value.")] = (
        None
    )
    run_id: RunId | None = None


async def resume(asked: Asked) -> Result:
    wanted: Resume = asked.arguments
    told = await asked.services.commands.resume(asked.tenant, wanted.task_id, wanted.result, wanted.run_id)
    return Result({"resumed": told.resumed, "reason": told.reason})


class Fire(Arguments, frozen=True, kw_only=True):
    schedule_id: str
    payload: Annotated[
        Any, msgspec.Meta(description="What the occurrence carries, if its kind has a payload.")
    ] = None


async def schedules_fire(asked: Asked) -> Result:
    wanted: Fire = asked.arguments
    await check_schedule(asked.services, asked.talk.caller.principal, wanted.schedule_id)
    fired = await asked.services.schedule_commands.fire(asked.tenant, wanted.schedule_id, wanted.payload)
    return Result(msgspec.to_builtins(present_schedules.fired(fired)))
