"""`holdfast schedules list --plugins`: what plugins declare, without running them. Opens no database and asks no server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.cli.options import importable, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import now_ms, problem_data, table
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say, show
from holdfast.config import Settings
from holdfast.plugins.find import referenced
from holdfast.plugins.load import Loaded, Refused, clean_up, load
from holdfast.schedule.of_spec import schedule_of
from holdfast.schedule.preview import upcoming
from holdfast.schedule.words import in_words
from holdfast.spec.cron import Dst, parse_expression
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import PluginTrigger
from holdfast.values import Millis, rfc3339


def list_command(given: Given) -> int:
    reserve_stdout()  # the code of a plugin may print
    settings = settings_of(given)
    importable(settings)
    loaded = asyncio.run(_loaded(settings))
    specs = [spec for plugin in loaded.plugins for spec in plugin.schedules]
    if given.has("--json"):
        data = {
            "items": [_data(spec) for spec in specs],
            "refused": [_refused(one) for one in loaded.refused],
        }
        is_written = give(data)
    else:
        is_written = show(
            table(("ID", "CRON", "WHEN", "NEXT", "DESCRIPTION"), [_row(spec) for spec in specs])
        )
        for one in loaded.refused:
            say(f"error: {one}")
    if not is_written:
        return UNWRITTEN
    return 2 if loaded.refused else 0


async def _loaded(settings: Settings) -> Loaded:
    loaded = await load(referenced(settings.plugins))
    await clean_up(loaded.plugins)
    return loaded


def _data(spec: ScheduleSpec) -> dict[str, Any]:
    return {
        "id": spec.id,
        **msgspec.to_builtins(spec.trigger),
        "missed_run_policy": spec.missed_run_policy,
        "locking": spec.locking,
        "words": _words(spec),
        "next_at": _next(spec),
    }


def _row(spec: ScheduleSpec) -> tuple[str, ...]:
    trigger = spec.trigger
    assert isinstance(trigger, PluginTrigger)
    return spec.id, trigger.cron, _words(spec), (_next(spec) or "never"), trigger.description


def _words(spec: ScheduleSpec) -> str:
    assert isinstance(spec.trigger, PluginTrigger)
    return in_words(parse_expression(spec.trigger.cron), "UTC", Dst())


def _next(spec: ScheduleSpec) -> str | None:
    """When the schedule would first be due, if it were registered now."""
    schedule = schedule_of(spec)
    assert schedule is not None
    return next((rfc3339(Millis(one.at)) for one in upcoming(schedule.timing, now_ms(), 1)), None)


def _refused(one: Refused) -> dict[str, Any]:
    return {"source": one.source, "name": one.name, "problems": [problem_data(it) for it in one.problems]}
