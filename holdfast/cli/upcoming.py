"""`holdfast schedules next`: what an expression means, in words and as times. Opens no database and contacts no
server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from holdfast.api.present_schedules import next_fire
from holdfast.api.types import NextFire
from holdfast.cli.options import Usage
from holdfast.cli.parser import Given
from holdfast.cli.render import ms_of, now_ms, problem_data, problem_lines, span, table
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.errors import InvalidSpec, Problem
from holdfast.schedule.preview import upcoming
from holdfast.schedule.timing import Timing, grid_of
from holdfast.schedule.words import in_words
from holdfast.schedule.zones import zone
from holdfast.spec.cron import Cron, CronError, CronProblem, Dst, Interval, numbered_weekday, parse_expression
from holdfast.spec.moments import parse_moment
from holdfast.spec.zones import unknown_zone
from holdfast.views.schedules import NextFire as NextFireView

COUNT: Final = 10
COUNT_MAX: Final = 500
NEVER: Final = "never_fires: no date from then to the end of 2100 matches"


def command(given: Given) -> int:
    dst = Dst(given.text("--gap") or "run_after", given.text("--fold") or "first")  # type: ignore[arg-type]  # checked by the parser
    rules, timezone, count = _rules(given), _zone(given), _count(given)
    timing = Timing(tuple(rule.text for rule in rules), timezone=timezone, dst=dst)
    after = _after(given, timezone)
    words = [in_words(rule, timezone, dst) for rule in rules]
    fires = [next_fire(NextFireView.of(one)) for one in upcoming(timing, after, count)]
    never = grid_of(timing, after).after(after) is None
    notes = [note for rule in rules if (note := weekday_note(rule))]
    if given.has("--json"):
        data = {
            "expressions": [rule.text for rule in rules],
            "timezone": timezone,
            "words": words,
            "never_fires": never,
            "notes": [problem_data(note) for note in notes],
            "items": fires,
        }
        return 0 if give(data) else UNWRITTEN
    lines = [*words, *problem_lines(notes, "note"), ""]
    text = "".join(f"{line}\n" for line in lines)
    now = None if given.has("--after") else after
    return 0 if show(text + (f"{NEVER}\n" if never else fires_table(fires, timezone, now))) else UNWRITTEN


def fires_table(fires: Sequence[NextFire], timezone: str, now: int | None) -> str:
    """Occurrences in the zone of their schedule and in UTC; with `now`, how far away each is."""
    rows = [
        (
            readable(one.local),
            "" if timezone == "UTC" else one.at.replace(".000Z", "Z"),
            "" if now is None else span(ms_of(one.at) - now),
            one.note,
        )
        for one in fires
    ]
    return table((timezone, "UTC", "IN", "NOTE"), rows)


def readable(local: str) -> str:
    """A local time with its offset, for people: `Fri 2026-03-27 02:30:00 +01:00`"""
    at = datetime.fromisoformat(local)
    return f"{at:%a} {at.date()} {local[11:-6]} {local[-6:]}"


# --------------------------------------------------------------------------------------------------- what was given


def _rules(given: Given) -> list[Cron | Interval]:
    """Parse every expression; raises InvalidSpec with every problem, after pointing at each in its expression."""
    rules: list[Cron | Interval] = []
    problems: list[Problem] = []
    for index, text in enumerate(map(str.strip, given.arguments)):
        try:
            rules.append(parse_expression(text))
        except CronError as refused:
            if not given.has("--json"):
                say(_underlined(text, refused.problems))
            problems += [_placed(problem, index) for problem in refused.problems]
    if problems:
        raise InvalidSpec(problems)
    return rules


def _placed(problem: CronProblem, index: int) -> Problem:
    column = problem.start + 1
    return Problem(problem.code, problem.message, f"/{index}", 1, column, problem.hint, "expression")


def _underlined(text: str, problems: Sequence[CronProblem]) -> str:
    """An expression, and under it a line that points at what is wrong."""
    marks = [" "] * len(text)
    for problem in problems:
        marks[problem.start : problem.end] = "^" * (problem.end - problem.start)
    return f"{text}\n{''.join(marks).rstrip()}"


def weekday_note(rule: Cron | Interval) -> Problem | None:
    """Warn that weekdays count from 1 = Sunday with 6 or 7 fields, which users of Unix cron do not expect."""
    weekday = numbered_weekday(rule) if isinstance(rule, Cron) else ""
    if not weekday:
        return None
    message = f"weekday {weekday} counts from 1 = Sunday"
    return Problem(
        "numbered_weekday", message, hint="names such as MON-FRI cannot be misread", source="expression"
    )


def _zone(given: Given) -> str:
    name = given.text("--tz")
    if name is None:
        return "UTC"
    if (wrong := unknown_zone(name)) is not None:
        raise InvalidSpec([Problem("unknown_timezone", wrong[0], hint=wrong[1], source="--tz")])
    return name


def _count(given: Given) -> int:
    text = given.text("--limit") or str(COUNT)
    if not text.isdecimal() or not 1 <= int(text) <= COUNT_MAX:
        raise Usage(f"-n, --limit must be a number from 1 to {COUNT_MAX}, not {text!r}")
    return int(text)


def _after(given: Given, timezone: str) -> int:
    text = given.text("--after")
    if text is None:
        return now_ms()
    moment = parse_moment(text)
    if moment is None:
        raise Usage(
            f"--after must be a date or a time such as 2026-03-28 or 2026-03-28T02:00:00Z, not {text!r}"
        )
    if not moment.is_local:
        return moment.ms
    # a fire at exactly that time is shown
    return zone(timezone).first_instant_of(moment.ms // 1_000) * 1_000 - 1
