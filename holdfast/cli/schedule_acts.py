"""`holdfast schedules put`, `delete`, `fire`, `pause`, `resume` and `backfill`: at a server, or in a file without an owner."""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast.api.types import Backfill, Schedule
from holdfast.cli.file import finished
from holdfast.cli.options import Usage, settings_of, value_of
from holdfast.cli.parser import Given
from holdfast.cli.schedule_source import schedules_of
from holdfast.cli.streams import UNWRITTEN, give, say, show_lines
from holdfast.config import Settings
from holdfast.spec.schedule import schedules_from_files

RATE_MAX: Final = 1_000  # occurrences a second
INSTANTS_SHOWN: Final = 10


def put_command(given: Given) -> int:
    return finished(_put(settings_of(given), given))


async def _put(settings: Settings, given: Given) -> int:
    """Parse all files before any schedule is stored."""
    files = schedules_from_files(given.arguments)
    async with schedules_of(settings) as source:
        found = [await source.put(spec) for file in files for spec in file.schedules]
    if given.has("--json"):
        return _written(give({"items": found}))
    for one in found:
        say(f"{one.id}: stored at {source.place}{_next(one)}")
    return 0


def delete_command(given: Given) -> int:
    return finished(_delete(settings_of(given), given))


async def _delete(settings: Settings, given: Given) -> int:
    async with schedules_of(settings) as source:
        found = await source.delete(given.argument or "")
    return _said_or_given(given, found, f"{found.id} is deleted; its ledger stays")


def pause_command(given: Given) -> int:
    return finished(_pause(settings_of(given), given))


async def _pause(settings: Settings, given: Given) -> int:
    async with schedules_of(settings) as source:
        found = await source.pause(given.argument or "")
    return _said_or_given(
        given, found, f"{found.id} is paused; holdfast schedules resume {found.id} starts it again"
    )


def resume_command(given: Given) -> int:
    return finished(_resume(settings_of(given), given))


async def _resume(settings: Settings, given: Given) -> int:
    async with schedules_of(settings) as source:
        found = await source.resume(given.argument or "", missed=given.has("--missed"))
    return _said_or_given(given, found, f"{found.id} is {found.status}{_next(found)}")


def fire_command(given: Given) -> int:
    return finished(_fire(settings_of(given), given))


async def _fire(settings: Settings, given: Given) -> int:
    payload: Any = value_of(given.text("--payload") or "{}")
    async with schedules_of(settings) as source:
        found = await source.fire(given.argument or "", payload)
    if given.has("--json"):
        return _written(give(found))
    say(f"{given.argument} fired; run {found.run_id}")
    return 0


def redeliver_command(given: Given) -> int:
    return finished(_redeliver(settings_of(given), given))


async def _redeliver(settings: Settings, given: Given) -> int:
    schedule_id, delivery = given.arguments
    async with schedules_of(settings) as source:
        found = await source.redeliver(schedule_id, delivery)
    if given.has("--json"):
        return _written(give(found))
    say(f"{schedule_id}: {delivery} is delivered again; run {found.run_id}")
    return 0


def backfill_command(given: Given) -> int:
    return finished(_backfill(settings_of(given), given))


async def _backfill(settings: Settings, given: Given) -> int:
    schedule_id, start, end = given.arguments
    rate, preview = _rate(given), given.has("--preview")
    async with schedules_of(settings) as source:
        found = await source.backfill(schedule_id, start, end, rate, preview=preview)
    if given.has("--json"):
        return _written(give(found))
    say(_said(schedule_id, found))
    shown = found.items[:INSTANTS_SHOWN]
    rest = [f"… and {found.count - len(shown):,} more"] if found.count > len(shown) else []
    return _written(show_lines((*shown, *rest))) if preview else 0


def _said(schedule_id: str, found: Backfill) -> str:
    would = "would start" if found.preview else "starts"
    settled = f"; {found.settled:,} already have a run" if found.settled else ""
    return f"{schedule_id}: the backfill {would} {found.count:,} occurrences{settled}"


def _rate(given: Given) -> float | None:
    text = given.text("--max-per-sec")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or not 0 < float(text) <= RATE_MAX:
        raise Usage(f"--max-per-sec must be a number above 0, up to {RATE_MAX:,}, not {text!r}")
    return float(text)


def _next(found: Schedule) -> str:
    return f"; next fire {found.next_at}" if found.next_at else ""


def _said_or_given(given: Given, found: Schedule, sentence: str) -> int:
    if given.has("--json"):
        return _written(give(found))
    say(sentence)
    return 0


def _written(is_written: bool) -> int:
    return 0 if is_written else UNWRITTEN
