"""Tools that keep something for later: publish a workflow, and create, pause, resume and delete a schedule.

Knows how to call commands and what an agent is shown of their answers.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.api import present, present_schedules
from holdfast.api.visible import check_schedule
from holdfast.mcp.answers import Result
from holdfast.mcp.table import Arguments, Asked
from holdfast.values import encode

NEXT_FIRES = 3
ScheduleId = Annotated[str, msgspec.Meta(min_length=1, description="The id of the schedule.")]


class Publish(Arguments, frozen=True, kw_only=True):
    spec: Annotated[
        Any, msgspec.Meta(description="A workflow as YAML text or as an object, in either notation.")
    ]


async def publish(asked: Asked) -> Result:
    spec, commands = asked.arguments.spec, asked.services.commands
    release = await commands.publish(asked.tenant, spec, rights=asked.rights)
    shown = present.release(release, await commands.lacks(asked.tenant, spec))
    tool = asked.desk.catalogue.tool_name(release.name)
    return Result({**msgspec.to_builtins(shown), "tool": tool})


class Put(Arguments, frozen=True, kw_only=True):
    schedule_id: ScheduleId
    schedule: Annotated[
        Any,
        msgspec.Meta(
            description="YAML text or an object: workflow, trigger, inputs and policies (workflows_help, topic schedule)."
        ),
    ]


async def schedules_put(asked: Asked) -> Result:
    wanted: Put = asked.arguments
    given = wanted.schedule
    text = given if isinstance(given, str) else encode(given).decode()
    view, is_new = await asked.services.schedule_commands.put_text(asked.tenant, wanted.schedule_id, text)
    _, fires = await asked.services.schedules.next_fires(asked.tenant, wanted.schedule_id, NEXT_FIRES)
    return Result(
        {
            **msgspec.to_builtins(present_schedules.schedule(view)),
            "is_new": is_new,
            "next": [msgspec.to_builtins(present_schedules.next_fire(one)) for one in fires],
        }
    )


class OneSchedule(Arguments, frozen=True, kw_only=True):
    schedule_id: ScheduleId


async def schedules_delete(asked: Asked) -> Result:
    gone = await asked.services.schedule_commands.delete(asked.tenant, asked.arguments.schedule_id)
    return Result({"schedule_id": gone.row.id, "deleted": True})


async def schedules_pause(asked: Asked) -> Result:
    wanted: OneSchedule = asked.arguments
    await check_schedule(asked.services, asked.talk.caller.principal, wanted.schedule_id)
    view = await asked.services.schedule_commands.pause(asked.tenant, wanted.schedule_id)
    return Result(msgspec.to_builtins(present_schedules.schedule_line(view)))


class ResumeSchedule(OneSchedule, frozen=True, kw_only=True):
    missed: Annotated[
        bool, msgspec.Meta(description="Also start the runs of the occurrences that the pause left out.")
    ] = False


async def schedules_resume(asked: Asked) -> Result:
    wanted: ResumeSchedule = asked.arguments
    await check_schedule(asked.services, asked.talk.caller.principal, wanted.schedule_id)
    commands = asked.services.schedule_commands
    view = await commands.resume(asked.tenant, wanted.schedule_id, missed=wanted.missed)
    return Result(msgspec.to_builtins(present_schedules.schedule_line(view)))
