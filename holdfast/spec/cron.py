"""The text of a cron expression or an interval → a frozen record, or every problem in it.

    second minute hour day month weekday [year]   6 or 7 fields: 1 = Sunday; a date must match day and weekday
    minute hour day month weekday                 5 fields, as in Unix: 0 and 7 = Sunday; if both day and weekday
                                                  are restricted, a date that matches either of them is enough
    @hourly @daily @midnight @weekly @monthly @yearly @annually
    @every 1h30m, 1h30m                           an interval

Knows the grammar. Must not know time zones or which instants an expression has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.nearest import did_you_mean, nearest
from holdfast.spec.conversions import duration_ms, interval_text
from holdfast.spec.problems import quoted

YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2100
EXPRESSION_CHARS_MAX: Final = 1_000  # far more than every value of every field, written out
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 366 * 86_400_000
PROBLEMS_MAX: Final = 10  # problems reported per expression; a hostile one could have thousands
FIELD_COUNTS: Final = frozenset({5, 6, 7})


class Cron(msgspec.Struct, frozen=True):
    """The values that each field allows, in ascending order. Weekdays count from 0 = Sunday; no years means every year.

    `is_either_day`: a date that matches `days` or `weekdays` is enough; otherwise it must match both.
    `is_elapsed`: the second, minute or hour begins with `*`, so the expression means "every so often" and follows real
    time when clocks change; any other names fixed times of day.
    """

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    years: tuple[int, ...] = ()
    is_either_day: bool = False
    is_elapsed: bool = False


class Interval(msgspec.Struct, frozen=True):
    """A fixed time between occurrences, on a grid that begins when the schedule is registered."""

    text: str
    every_ms: int


class Dst(msgspec.Struct, frozen=True):
    """What happens to fixed times when clocks change: in the gap, where a local time is missing, and in the fold, where it comes twice."""

    gap: Literal["run_after", "skip"] = "run_after"
    fold: Literal["first", "second", "both"] = "first"


class CronProblem(NamedTuple):
    """One mistake in an expression, and the part of the text that holds it."""

    code: str
    message: str
    hint: str
    start: int = 0
    end: int = 0
    better: str | None = None  # suggested replacements


class CronError(ValueError):
    def __init__(self, problems: Sequence[CronProblem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


def parse_expression(text: str, field_counts: Collection[int] = FIELD_COUNTS) -> Cron | Interval:
    """Read a cron expression, an `@name` or an interval; raise CronError with every problem.

    Schedule files take 6 and 7 fields only, and no bare intervals: an expression of 5 fields means something else there
    than its author expects.
    """
    if len(text) > EXPRESSION_CHARS_MAX:
        message = f"the expression has more than {EXPRESSION_CHARS_MAX:,} characters"
        raise _refused("too_long", message, "write several expressions as a list", text)
    words = list(re.finditer(r"\S+", text))
    if words and words[0][0].startswith("@"):
        return _shortcut(text.strip())
    if len(words) in (1, 2) and words[0][0][0] in "+-0123456789":
        return _bare_interval(text.strip(), field_counts)
    if len(words) not in FIELD_COUNTS or len(words) not in field_counts:
        raise _wrong_count(text, len(words), field_counts)
    return _fields(text.strip(), words)


def parse_interval(text: str) -> Interval:
    """Read an interval such as `90s` or `1h30m`; raise CronError if it is not one."""
    found = _INTERVAL.fullmatch(text)
    if not found or not text:
        raise _refused("invalid_interval", f"{quoted(text)} is not an interval", _interval_hint(text), text)
    every_ms = sum(int(found[unit] or 0) * ms for unit, ms in _UNITS.items())
    if not INTERVAL_MS_MIN <= every_ms <= INTERVAL_MS_MAX:
        message = f"an interval must be from 100ms to 366d, not {quoted(text)}"
        raise _refused("invalid_interval", message, "write an interval such as 30s, 5m or 1h30m", text)
    return Interval(text, every_ms)


def six_fields(text: str) -> tuple[str, ...]:
    """The equivalent of a 5-field expression with 6 fields; two expressions if it matches either day or weekday."""
    cron = _fields(text.strip(), list(re.finditer(r"\S+", text)))
    minute, hour, day, month, weekday = text.split()
    named = weekday if len(cron.weekdays) == 7 else _weekdays_named(cron.weekdays)
    start = f"0 {minute} {hour}"
    if cron.is_either_day:
        return f"{start} {day} {month} *", f"{start} * {month} {named}"
    return (f"{start} {day} {month} {'*' if len(cron.weekdays) == 7 else named}",)


def numbered_weekday(cron: Cron) -> str:
    """The weekday field of an expression of 6 or 7 fields with a number in it, else an empty text.

    There 1 is Sunday, which surprises readers who know cron from Unix."""
    words = cron.text.split()
    numbers = re.sub(r"/\d+", "", words[5]) if len(words) > 5 else ""
    return words[5] if re.search(r"\d", numbers) else ""


# -------------------------------------------------------------------------------------------------------- fields


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: Mapping[str, int] = {}


_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def _named(words: Sequence[str], first: int) -> dict[str, int]:
    """Each word and its first three letters, and the number that it stands for."""
    return {name: number for number, word in enumerate(words, first) for name in (word, word[:3])}


_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day", 1, 31)
_MONTH: Final = _Field("month", 1, 12, _named(_MONTHS, 1))
_WEEKDAY: Final = _Field("weekday", 1, 7, _named(_WEEKDAYS, 1))
_UNIX_WEEKDAY: Final = _Field("weekday", 0, 7, _named(_WEEKDAYS, 0))
_YEAR: Final = _Field("year", YEAR_MIN, YEAR_MAX)
_UNIX: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _UNIX_WEEKDAY)
_SECONDS_FIRST: Final = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY, _YEAR)

_ITEM: Final = re.compile(
    r"(?P<first>\*|\?|[A-Za-z]+|[0-9]+)(?:-(?P<last>[A-Za-z]+|[0-9]+))?(?:/(?P<step>[0-9]{1,9}))?"
)
_UNSUPPORTED: Final = re.compile(
    r"(?:L|W|LW|[0-9]+W|[0-9]+L|(?:SUN|MON|TUE|WED|THU|FRI|SAT)L|\w+#[0-9]+)", re.IGNORECASE
)


def _fields(text: str, words: Sequence[re.Match[str]]) -> Cron:
    is_unix = len(words) == 5
    problems: list[CronProblem] = []
    read = [
        _values(field, word[0], word.start(), problems)
        for field, word in zip(_UNIX if is_unix else _SECONDS_FIRST, words, strict=False)
    ]
    if problems:
        raise CronError(problems)
    texts = [word[0] for word in words]
    if is_unix:
        read, texts = [(0,), *read], ["0", *texts]
    seconds, minutes, hours, days, months, weekdays, *years = read
    first = 0 if is_unix else 1
    return Cron(
        text,
        seconds,
        minutes,
        hours,
        days,
        months,
        tuple(sorted({(weekday - first) % 7 for weekday in weekdays})),
        () if not years or texts[6] == "*" else years[0],
        is_either_day=is_unix and not texts[3].startswith(("*", "?")) and not texts[5].startswith(("*", "?")),
        is_elapsed=any(part.startswith("*") for part in texts[:3]),
    )


def _values(field: _Field, text: str, start: int, problems: list[CronProblem]) -> tuple[int, ...]:
    found: set[int] = set()
    for item in text.split(","):
        wrong = _add_item(field, item, text, found) if len(problems) < PROBLEMS_MAX else None
        if wrong:
            problems.append(
                CronProblem(
                    "invalid_cron",
                    f"{field.name}: {wrong[0]}",
                    wrong[1],
                    start,
                    start + len(item),
                    _better(field, item, wrong[1]),
                )
            )
        start += len(item) + 1
    return tuple(sorted(found))


def _add_item(field: _Field, item: str, whole: str, found: set[int]) -> tuple[str, str] | None:
    """Add the values of one list item, or report what is wrong with it and what to write."""
    matched = _ITEM.fullmatch(item)
    if not matched or _UNSUPPORTED.fullmatch(item) or (matched["first"] in "*?" and matched["last"]):
        return _not_an_item(field, item)
    if matched["first"] == "?":
        return _add_any(field, item, whole, found)
    step = int(matched["step"] or 1)
    if step == 0:
        return f"the step of {quoted(item)} is 0", "write a step of at least 1"
    if matched["first"] == "*":
        found.update(range(field.low, field.high + 1, step))
        return None
    first, last = _value(field, matched["first"]), _value(field, matched["last"] or matched["first"])
    if isinstance(first, tuple) or isinstance(last, tuple):
        return first if isinstance(first, tuple) else last if isinstance(last, tuple) else None
    if matched["last"] is None and matched["step"]:
        last = field.high  # `5/15` starts at 5 and continues to the end
    if first > last:
        return _reversed(field, item, first, last)
    found.update(range(first, last + 1, step))
    return None


def _better(field: _Field, item: str, hint: str) -> str:
    """A valid item to suggest for an invalid one: the one in the hint, a value within the range, or any value."""
    said = re.fullmatch(r"write ([\w,*/-]+)|did you mean (\w+)\?", hint)
    if said and (said[1] or said[2]) != item:
        return said[1] or said[2].upper()
    number = re.fullmatch(r"[-+]?([0-9]{1,9})(?:\.[0-9]*)?", item)
    if number:
        return str(min(max(int(number[1]), field.low), field.high))
    step = re.fullmatch(r"\*?/([1-9][0-9]{0,8})", item)
    return f"*/{step[1]}" if step else "*"


def _add_any(field: _Field, item: str, whole: str, found: set[int]) -> tuple[str, str] | None:
    if field.name not in ("day", "weekday"):
        return "? has a meaning for day and weekday only", "write *"
    if whole != "?":
        return f"? stands alone, not in {quoted(whole)}", "write ? or *"
    found.update(range(field.low, field.high + 1))
    return None


def _value(field: _Field, word: str) -> int | tuple[str, str]:
    if word[0].isdigit():
        if len(word) <= 4 and field.low <= int(word) <= field.high:
            return int(word)
        return f"{quoted(word)} is out of range", f"write a number from {field.low} to {field.high}"
    if word.lower() in field.names:
        return field.names[word.lower()]
    hint = did_you_mean(word, field.names) or f"write a number from {field.low} to {field.high}"
    return f"unknown name {quoted(word)}", hint


def _not_an_item(field: _Field, item: str) -> tuple[str, str]:
    if not item:
        return "an entry of the list is empty", "take out the extra comma"
    if _UNSUPPORTED.fullmatch(item):
        return f"L, W and # are not supported: {quoted(item)}", "write the days as numbers or names"
    if item.startswith(("-", "+")) or "." in item:
        return f"{quoted(item)} is not a whole number", f"write a number from {field.low} to {field.high}"
    return f"cannot read {quoted(item)}", "write *, a value, a range a-b, a step */n, or a list a,b"


def _reversed(field: _Field, item: str, first: int, last: int) -> tuple[str, str]:
    names = {number: name.upper() for name, number in field.names.items() if len(name) == 3}
    shown = names if item[0].isalpha() else {}
    high = 6 if field is _UNIX_WEEKDAY else field.high  # there 7 means 0 (Sunday) as well
    tail, head = _span(first, high, shown), _span(field.low, last, shown)
    return f"the range {quoted(item)} is reversed", f"write {tail},{head}"


def _span(first: int, last: int, names: Mapping[int, str]) -> str:
    start, end = names.get(first, str(first)), names.get(last, str(last))
    return start if first == last else f"{start}-{end}"


# ----------------------------------------------------------------------------------------- shortcuts, intervals

_SHORTCUTS: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * SUN",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_INTERVAL: Final = re.compile("".join(rf"(?:(?P<{unit}>\d{{1,12}}){unit})?" for unit in _UNITS), re.ASCII)


def _shortcut(text: str) -> Cron | Interval:
    if text in _SHORTCUTS:
        written = _SHORTCUTS[text]
        return msgspec.structs.replace(_fields(written, list(re.finditer(r"\S+", written))), text=text)
    name, _, rest = text.partition(" ")
    if name == "@every":
        return msgspec.structs.replace(_every(text, rest.strip()), text=text)
    known = (*_SHORTCUTS, "@every")
    hint = did_you_mean(name, known) or f"the names are {', '.join(known)}"
    near = nearest(name, known)
    if rest and near != "@every":
        hint = f"write {near or '@daily'} alone"
    raise _refused("invalid_cron", f"unknown name {quoted(text)}", hint, text, near or "@daily")


def _every(text: str, interval: str) -> Interval:
    """The interval after `@every`; raises CronError with its place in the whole text."""
    try:
        return parse_interval(interval)
    except CronError as refused:
        start = text.rindex(interval)
        raise CronError(
            [one._replace(start=start, end=start + len(interval)) for one in refused.problems]
        ) from None


def _bare_interval(text: str, field_counts: Collection[int]) -> Interval:
    interval = parse_interval(text)
    if 5 not in field_counts:
        message = f"{quoted(text)} is an interval, not a cron expression"
        hint = f'write "@every {text}", or a trigger of kind interval'
        raise _refused("invalid_cron", message, hint, text, f"@every {text}")
    return interval


def _interval_hint(text: str) -> str:
    joined = re.sub(r"\s+", "", text)
    if joined != text and joined and _INTERVAL.fullmatch(joined):
        return f"write {joined}, without blanks"
    if text.isascii() and text.isdigit():
        return f"add a unit, for instance {text}s"
    return "write numbers with the units w d h m s ms, the largest first, as in 1h30m"


def _wrong_count(text: str, count: int, field_counts: Collection[int]) -> CronError:
    wanted = "5, 6 or 7" if 5 in field_counts else "6 or 7"
    message = f"a cron expression has {wanted} fields, not {count}"
    hint = "write second minute hour day month weekday, as in 0 0 3 * * *"
    if count == 5:
        message += ": the seconds come first"
        hint = _six_field_hint(text) or hint
    return _refused("wrong_field_count", message, hint, text, _with_fields(text, count))


def _with_fields(text: str, count: int) -> str | None:
    """An expression with the fields that are missing, from the left: `3 * * *` has neither seconds nor minutes."""
    words = text.split()
    if 2 <= count <= 4:
        return " ".join(["0"] * (5 - count) + ["0", *words][-6:])
    return " ".join(words[:7]) if count > 7 else None


def _six_field_hint(text: str) -> str:
    try:
        expressions = six_fields(text)
    except CronError:
        return ""
    quoted_ones = [f'"{expression}"' for expression in expressions]
    return (
        f"write {quoted_ones[0]}" if len(quoted_ones) == 1 else f"write the list [{', '.join(quoted_ones)}]"
    )


def _weekdays_named(weekdays: Sequence[int]) -> str:
    names = [_WEEKDAYS[weekday][:3].upper() for weekday in weekdays]
    if len(weekdays) > 2 and weekdays[-1] - weekdays[0] == len(weekdays) - 1:
        return f"{names[0]}-{names[-1]}"
    return ",".join(names)


def _refused(code: str, message: str, hint: str, text: str, better: str | None = None) -> CronError:
    return CronError([CronProblem(code, message, hint, 0, len(text), better)])


def expression_like(text: str, field_counts: Collection[int] = FIELD_COUNTS) -> str | tuple[str, ...] | None:
    """What an expression that cannot be read was probably meant to be: one or two expressions, or None."""
    for _ in range(_REPAIRS_MAX):
        try:
            parse_expression(text, field_counts)
        except CronError as refused:
            if len(text.split()) == 5 and 5 not in field_counts and (found := _six_or_none(text)):
                return found if len(found) > 1 else found[0]
            better = _bettered(text, refused.problems)
            if better is None or better == text:
                return _interval_like(text)
            text = better
        else:
            return text
    return None


_REPAIRS_MAX: Final = 4


def _six_or_none(text: str) -> tuple[str, ...]:
    try:
        return six_fields(text)
    except CronError as refused:
        better = _bettered(text.strip(), refused.problems)
        return six_fields(better) if better and better != text and _is_read(better) else ()


def _is_read(text: str) -> bool:
    try:
        parse_expression(text)
    except CronError:
        return False
    return True


def _bettered(text: str, problems: Sequence[CronProblem]) -> str | None:
    for problem in sorted(problems, key=lambda one: one.start, reverse=True):
        if problem.better is None:
            return None
        text = text[: problem.start] + problem.better + text[problem.end :]
    return text


_WORDS: Final = {"yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"}


def _interval_like(text: str) -> str | None:
    word = text.strip().lower().removeprefix("every ").strip()
    if word in _WORDS:
        return f"@{word}"
    ms = duration_ms(word.removeprefix("@every").strip()[:100])
    return f"@every {interval_text(ms)}" if ms and INTERVAL_MS_MIN <= ms <= INTERVAL_MS_MAX else None
