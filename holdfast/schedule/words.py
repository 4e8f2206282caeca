"""Describes a rule in words, so that people can check that an expression means what they intended.

0 30 2 * * MON-FRI, Europe/Berlin
at 02:30 on Monday to Friday, Europe/Berlin time; when clocks go forward over it, right after; when it comes twice, the first time
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.spec.cron import Cron, Dst, Interval
from holdfast.spec.triggers import EndStatus, FileTrigger, RunTrigger, SourceTrigger, Trigger, WebhookTrigger

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_TIMES_MAX: Final = 6  # times of day that are listed one by one
_GAP: Final = {"run_after": "right after", "skip": "not at all"}
_FOLD: Final = {"first": "the first time", "second": "the second time", "both": "both times"}


def in_words(rule: Cron | Interval, timezone: str = "UTC", dst: Dst | None = None) -> str:
    if isinstance(rule, Interval):
        return (
            f"every {rule.text.removeprefix('@every').strip()}, counted from when the schedule was registered"
        )
    return f"{_time(rule)}{_date(rule)}, {timezone}{_clock_changes(rule, timezone, dst or Dst())}"


def event_words(trigger: Trigger) -> str:
    """When a schedule without a clock fires; empty for one with a clock."""
    match trigger:
        case WebhookTrigger(path):
            return f"at a POST to {path}"
        case RunTrigger(workflow, statuses, delay_secs):
            later = f"{_span(delay_secs)} after" if delay_secs else "when"
            return f"{later} a run of {workflow} has {_joined(list(map(_ended, statuses)), 'or')}"
        case FileTrigger(path, pattern):
            named = "" if pattern == "*" else f" matching {pattern}"
            return f"when a file{named} has arrived in {path}"
        case SourceTrigger(source):
            return f"at each event of {source}"
        case _:
            return ""


def _ended(status: EndStatus) -> str:
    return status if status in ("completed", "failed") else f"been {status}"


def _span(secs: int) -> str:
    return f"{secs} second" if secs == 1 else f"{secs} seconds"


def _time(cron: Cron) -> str:
    if len(cron.seconds) * len(cron.minutes) * len(cron.hours) <= _TIMES_MAX:
        form = "{:02}:{:02}" if cron.seconds == (0,) else "{:02}:{:02}:{:02}"
        times = [form.format(h, m, s) for h in cron.hours for m in cron.minutes for s in cron.seconds]
        return f"at {_joined(times)}"
    if (cron.seconds, cron.minutes) == ((0,), (0,)) and len(cron.hours) == 24:
        return "every hour, on the hour"
    parts = [
        "" if cron.seconds == (0,) else _part(cron.seconds, 60, "second"),
        _part(cron.minutes, 60, "minute"),
        "" if len(cron.hours) == 24 else _part(cron.hours, 24, "hour"),
    ]
    if cron.seconds != (0,) and len(cron.minutes) == 60:
        parts[1] = "of every minute" if parts[0].startswith("at ") else ""
    if parts[1].startswith("at ") and not parts[2]:
        parts[2] = "of every hour"
    return " ".join(part for part in parts if part).replace(" at ", " of ")


def _part(values: Sequence[int], whole: int, noun: str) -> str:
    """`every 5 minutes`, `at minutes 5 and 20`, `in hours 9 to 17`."""
    if len(values) == whole:
        return f"every {noun}"
    step = whole // len(values)
    if len(values) > 1 and list(values) == list(range(0, whole, step)):
        return f"every {step} {noun}s"
    preposition = "in" if noun == "hour" else "at"
    return f"{preposition} {_numbered(noun, values)}"


def _numbered(noun: str, values: Sequence[int]) -> str:
    return f"{noun}{'s' if len(values) > 1 else ''} {_spans([str(value) for value in values], values)}"


def _date(cron: Cron) -> str:
    days = "" if len(cron.days) == 31 else _numbered("day", cron.days) + " of the month"
    weekdays = ""
    if len(cron.weekdays) < 7:
        weekdays = _spans([_WEEKDAYS[day] for day in cron.weekdays], cron.weekdays)
    if days and weekdays:
        joined = f" on {days} or on {weekdays}" if cron.is_either_day else f" on {days}, but only {weekdays}"
    else:
        joined = f" on {days or weekdays}" if days or weekdays else " every day" if ":" in _time(cron) else ""
    months = (
        ""
        if len(cron.months) == 12
        else " in " + _spans([_MONTHS[month - 1] for month in cron.months], cron.months)
    )
    return (
        joined
        + months
        + (f" in {_spans([str(year) for year in cron.years], cron.years)}" if cron.years else "")
    )


def _clock_changes(cron: Cron, timezone: str, dst: Dst) -> str:
    if timezone == "UTC":
        return ""
    if cron.is_elapsed:
        return " time; when clocks change it follows real time"
    gap, fold = _GAP[dst.gap], _FOLD[dst.fold]
    return f" time; when clocks go forward over it, {gap}; when it comes twice, {fold}"


def _spans(names: Sequence[str], values: Sequence[int]) -> str:
    """Names of values, with three or more in a row as a span: `1, 5 to 7 and 9`."""
    spans: list[str] = []
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[end - 1] + 1:
            continue
        spans += [f"{names[start]} to {names[end - 1]}"] if end - start > 2 else names[start:end]
        start = end
    return _joined(spans)


def _joined(parts: Sequence[str], word: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"
