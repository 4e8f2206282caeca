"""`holdfast flows stats` and `holdfast runs pulse`: how runs went, as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from holdfast.api.types import Pulse, PulseTotal, StepStats, WorkflowStats
from holdfast.cli.file import finished
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import span, table
from holdfast.cli.source import opened
from holdfast.cli.streams import UNWRITTEN, give, say, show, show_lines
from holdfast.config import Settings

LAST_DEFAULT: Final = 200
LAST_MAX: Final = 500
BUCKETS_DEFAULT: Final = 24
BUCKETS_MAX: Final = 500
NOTHING: Final = "-"


def stats_command(given: Given) -> int:
    last = _number(given, "--last", LAST_DEFAULT, LAST_MAX)
    number = given.text("--number")
    if number is not None and not number.isdecimal():
        raise Usage(f"--number must be the number of a version, not {number!r}")
    return finished(_stats(settings_of(given), given, last, None if number is None else int(number)))


async def _stats(settings: Settings, given: Given, last: int, number: int | None) -> int:
    async with opened(settings) as source:
        found = await source.stats(given.argument or "", number, last, _time(given, "--from"))
    if given.has("--json"):
        return 0 if give(found) else UNWRITTEN
    if not found.runs:
        say(f"{found.workflow} has no finished runs here")
        return 0
    is_written = show_lines([_sentence(found), ""]) and show(
        table(_STEPS, [_step(one) for one in found.steps])
    )
    return 0 if is_written else UNWRITTEN


def _sentence(found: WorkflowStats) -> str:
    share = "" if found.success is None else f", {found.success:.0%} of those that ended by themselves"
    took = f"p50 {_took(found.p50_ms)}, p95 {_took(found.p95_ms)}"
    return (
        f"{found.workflow}: {found.completed:,} of the last {found.runs:,} runs completed{share};"
        f" {found.failed:,} failed; {took}"
    )


_STEPS: Final = ("STEP", "RUNS", "FAILED", "RETRIES", "P50", "P95")


def _step(one: StepStats) -> tuple[str, ...]:
    counts = (str(one.runs), str(one.failed), str(one.retries))
    return one.path, *counts, _took(one.p50_ms), _took(one.p95_ms)


def pulse_command(given: Given) -> int:
    buckets = _number(given, "--buckets", BUCKETS_DEFAULT, BUCKETS_MAX)
    return finished(_pulse(settings_of(given), given, buckets))


async def _pulse(settings: Settings, given: Given, buckets: int) -> int:
    async with opened(settings) as source:
        found = await source.pulse(
            given.text("--workflow"), _time(given, "--from"), _time(given, "--to"), buckets
        )
    if given.has("--json"):
        return 0 if give(found) else UNWRITTEN
    return 0 if show(_table(found)) else UNWRITTEN


def _table(found: Pulse) -> str:
    rows = [(one.at.replace(".000Z", "Z"), *_figures(one)) for one in found.items]
    heads = ("FROM", "STARTED", "COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED", "P50", "P95")
    return table(heads, [*rows, ("total", *_figures(found.total))])


def _figures(one: PulseTotal) -> tuple[str, ...]:
    counts = (one.started, one.completed, one.failed, one.cancelled, one.interrupted)
    return *map(str, counts), _took(one.p50_ms), _took(one.p95_ms)


def _took(ms: int | None) -> str:
    return NOTHING if ms is None else span(ms)


def _time(given: Given, flag: str) -> datetime | None:
    """A time; a day alone is its beginning in UTC, as is every time without a zone."""
    text = given.text(flag)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{flag} must be a time such as 2026-11-01T00:00:00Z, not {text!r}") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _number(given: Given, flag: str, default: int, most: int) -> int:
    text = given.text(flag) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise Usage(f"{flag} must be a number from 1 to {most}, not {text!r}")
    return int(text)
