"""`holdfast schedules`: list, show and why, through a server or from a file. Formats the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.api.types import FolderReport, LedgerLine, Schedule, ScheduleLine, Verdict
from holdfast.cli import plugins
from holdfast.cli.file import finished
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import ms_of, now_ms, painted, problem_lines, span, table
from holdfast.cli.safe import one_line
from holdfast.cli.schedule_source import schedules_of
from holdfast.cli.streams import UNWRITTEN, give, say, show, show_lines
from holdfast.cli.upcoming import fires_table, readable
from holdfast.config import Settings
from holdfast.errors import Problem
from holdfast.triggers.sinks import SLOT as SINK

LIMIT_MAX: Final = 500
NEXT_SHOWN: Final = 5
STRIP: Final = 60  # occurrences in the picture of the ledger
WORDS_SHOWN: Final = 60
# One sign per occurrence in a strip, and the colour of a run in that state.
SIGNS: Final = {
    "fired": ("✓", "completed"),
    "skipped": ("·", "waiting"),
    "failed": ("✗", "failed"),
    "buffered": ("◷", "retrying"),
    "waiting": ("◷", "retrying"),
    "undecided": ("…", "waiting"),
    "will_fire": ("▸", "completed"),
    "will_not_fire": ("·", "waiting"),
    "not_due": (" ", ""),
    "unknown": ("?", ""),
}
STATUS_COLOURS: Final = {
    "active": "completed",
    "paused": "retrying",
    "disabled": "cancelled",
    "ended": "cancelled",
    "unreadable": "failed",
}


# --------------------------------------------------------------------------------------------------------- list


def list_command(given: Given) -> int:
    if given.has("--plugins"):
        return plugins.list_command(given)
    return finished(_list(settings_of(given), as_json=given.has("--json")))


async def _list(settings: Settings, *, as_json: bool) -> int:
    async with schedules_of(settings) as source:
        found, folder = await source.schedules(), await source.folder()
    if as_json:
        return _written(give({"items": found, "folder": folder}))
    code = 0
    if found:
        now = now_ms()
        code = _written(show(table(_HEADS, [_cells(one, now) for one in found])))
    else:
        say(f"no schedules in {source.place}; holdfast up --schedules DIR reads those of a folder")
    for line in folder_lines(folder):
        say(line)
    return code


_HEADS: Final = ("SCHEDULE", "WORKFLOW", "STATUS", "NEXT IN", "OPEN", "FAILURES", "WHEN")


def _cells(one: ScheduleLine, now: int) -> tuple[str, ...]:
    when = "; ".join(one.words) or one.kind
    return (
        one.id,
        one.workflow,
        painted(one.status, STATUS_COLOURS[one.status]),
        "" if one.next_at is None else span(ms_of(one.next_at) - now),
        str(one.open_runs or ""),
        str(one.failures or ""),
        when if len(when) <= WORDS_SHOWN else f"{when[: WORDS_SHOWN - 1]}…",
    )


def folder_lines(folder: FolderReport) -> list[str]:
    """Why the schedules in use differ from the server's folder, in the format that editors can jump to."""
    lines = [painted(f"{folder.folder}: {folder.problem}", "failed", fd=2)] if folder.problem else []
    problems = [problem for file in folder.items for problem in file.problems]
    if problems:
        lines.append("the schedules in use stay until the files are corrected:")
    return lines + problem_lines(problems)


# --------------------------------------------------------------------------------------------------------- show


def show_command(given: Given) -> int:
    return finished(_show(settings_of(given), given.argument or "", as_json=given.has("--json")))


async def _show(settings: Settings, schedule_id: str, *, as_json: bool) -> int:
    async with schedules_of(settings) as source:
        found = await source.schedule(schedule_id)
        fires = await source.next_fires(schedule_id, NEXT_SHOWN)
        rows = await source.ledger(schedule_id, STRIP)
    if as_json:
        data = msgspec.to_builtins(found)
        return _written(give(data | {"next": fires.items, "ledger": rows}))
    lines = [*_headed(found), *(line for note in found.notes for line in _noted(note))]
    if fires.items:
        lines += ["", "next:", *_indented(fires_table(fires.items, fires.timezone, now_ms()))]
    if rows:
        lines += ["", *strip_of(rows), *_last_of(rows)]
    return _written(show_lines(lines))


def _headed(found: Schedule) -> list[str]:
    where = f", {found.source}" if found.source else ""
    status = painted(found.status, STATUS_COLOURS[found.status])
    lines = [f"{found.id}  {status}  starts {found.workflow}  ({found.origin}{where})"]
    if found.status == "unreadable":
        return lines  # a note says why; what it was is not known
    lines += [f"  {words}" for words in found.words]
    if found.paused_since:
        because = f": {found.paused_because}" if found.paused_because else ""
        lines.append(f"  paused since {found.paused_since}{because}")
    if found.open_runs:
        lines.append(f"  open runs: {found.open_runs}")
    if found.error_count:
        in_a_row = f", {found.failures} in a row" if found.failures else ""
        lines.append(painted(f"  failed runs: {found.error_count}{in_a_row}: {found.last_error}", "failed"))
    return lines


def _noted(note: Problem) -> list[str]:
    lines = [one_line(f"  note: {note.message}")]
    return [*lines, one_line(f"    hint: {note.hint}")] if note.hint else lines


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def strip_of(rows: Sequence[LedgerLine]) -> list[str]:
    """The ledger as one sign per row, oldest first, and a legend."""
    signs = [_sign(row.outcome) + (f"x{row.count}" if row.count > 1 else "") for row in reversed(rows)]
    counts: Counter[str] = Counter()
    for row in rows:
        counts[f"{row.outcome}: {row.reason}" if row.reason else row.outcome] += row.count
    legend = ", ".join(f"{_sign(what.partition(':')[0])} {what} {count:,}" for what, count in counts.items())
    return [f"last: {''.join(signs)}", f"      {legend}"]


def _sign(outcome: str) -> str:
    return painted(*SIGNS[outcome])


def _last_of(rows: Sequence[LedgerLine]) -> list[str]:
    last = rows[0]
    run = f"; run {last.run_id}" if last.run_id else ""
    return [f"      {last.scheduled_at}  {last.message}{run}"]


# --------------------------------------------------------------------------------------------------- deliveries


def deliveries_command(given: Given) -> int:
    limit = _limit(given, 20)
    return finished(_deliveries(settings_of(given), given.argument or "", limit, given.has("--json")))


async def _deliveries(settings: Settings, schedule_id: str, limit: int, as_json: bool) -> int:
    async with schedules_of(settings) as source:
        rows = await source.ledger(schedule_id, limit)
    if as_json:
        return _written(give({"items": rows}))
    if not rows:
        say(f"{schedule_id} has had no delivery yet")
        return 0
    lines = [(row.occurrence, row.decided_at, *_became(row)) for row in rows]
    return _written(show(table(("DELIVERY", "AT", "OUTCOME", "RUN OR REASON"), lines)))


def _became(row: LedgerLine) -> tuple[str, str]:
    outcome = f"{row.outcome} x{row.count:,}" if row.count > 1 else row.outcome
    return outcome, row.run_id or row.message


# ---------------------------------------------------------------------------------------------------------- why


def why_command(given: Given) -> int:
    schedule_id, *when = given.arguments
    limit = _limit(given, 20)
    return finished(_why(settings_of(given), schedule_id, next(iter(when), None), limit, given.has("--json")))


async def _why(settings: Settings, schedule_id: str, when: str | None, limit: int, as_json: bool) -> int:
    async with schedules_of(settings) as source:
        found = await source.why(schedule_id, when, limit)
    if as_json:
        return _written(give(found))
    if not found.items:
        say(f"{schedule_id} is {found.status}, and nothing was due yet; see holdfast schedules show")
        return 0
    return _written(show_lines(line for one in found.items for line in _verdict_lines(one)))


def _verdict_lines(one: Verdict) -> list[str]:
    sign, colour = SIGNS[one.outcome]
    outcome = one.outcome.replace("_", " ")
    when = (readable(one.local) if one.local else one.at) or one.occurrence or "from now on"
    stretch = f" and {one.count - 1:,} more until {one.until}" if one.count > 1 else ""
    run = f"; run {one.run_id}" if one.run_id else ""
    node = f" on {one.slot}" if one.slot not in ("", SINK) else ""
    said = one.message if one.outcome == "fired" else f"{outcome}: {one.message}"
    lines = [f"{painted(sign, colour)} {when}{stretch}{node}  {said}{run}"]
    lines += [f"    warning: {warning}" for warning in one.warnings]
    return [*lines, f"    hint: {one.hint}"] if one.hint else lines


def _limit(given: Given, default: int) -> int:
    text = given.text("--limit") or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT_MAX:
        raise Usage(f"-n, --limit must be a number from 1 to {LIMIT_MAX}, not {text!r}")
    return int(text)


def _written(is_written: bool) -> int:
    return 0 if is_written else UNWRITTEN
