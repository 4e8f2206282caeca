"""Cron expressions and intervals: what is read, and what is said about each mistake."""

from __future__ import annotations

import pytest

from holdfast.spec.cron import (
    Cron,
    CronError,
    CronProblem,
    Interval,
    numbered_weekday,
    parse_expression,
    parse_interval,
    six_fields,
)
from holdfast.spec.zones import unknown_zone


def cron(text: str) -> Cron:
    found = parse_expression(text)
    assert isinstance(found, Cron)
    return found


def problems_of(text: str, field_counts: tuple[int, ...] = (5, 6, 7)) -> tuple[CronProblem, ...]:
    with pytest.raises(CronError) as refused:
        parse_expression(text, field_counts)
    return refused.value.problems


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*", tuple(range(60))),
        ("5", (5,)),
        ("5,10,15", (5, 10, 15)),
        ("15,5,5", (5, 15)),
        ("1-5", (1, 2, 3, 4, 5)),
        ("*/20", (0, 20, 40)),
        ("5/20", (5, 25, 45)),
        ("0-59/20", (0, 20, 40)),
        ("10-14/2,50", (10, 12, 14, 50)),
        ("*/100", (0,)),
        ("07", (7,)),
    ],
)
def test_a_field_is_a_list_of_values_ranges_and_steps(field: str, minutes: tuple[int, ...]) -> None:
    assert cron(f"0 {field} 3 * * *").minutes == minutes


@pytest.mark.parametrize(
    ("text", "months", "weekdays"),
    [
        ("0 0 0 * JAN sunday", (1,), (0,)),
        ("0 0 0 * jan-mar MON-FRI", (1, 2, 3), (1, 2, 3, 4, 5)),
        ("0 0 0 * january 1", (1,), (0,)),  # 6 fields: 1 is Sunday
        ("0 0 0 * 12 7", (12,), (6,)),
        ("0 0 * 12 7", (12,), (0,)),  # 5 fields: 0 and 7 are Sunday
        ("0 0 * 12 0", (12,), (0,)),
        ("0 0 * 12 5-7", (12,), (0, 5, 6)),
        ("0 0 * 12 Mon,Wed", (12,), (1, 3)),
    ],
)
def test_names_and_numbers_mean_what_the_number_of_fields_says(
    text: str, months: tuple[int, ...], weekdays: tuple[int, ...]
) -> None:
    assert (cron(text).months, cron(text).weekdays) == (months, weekdays)


@pytest.mark.parametrize("text", ["0 0 0 1 1 ? 2030-2032", " 0  0 0 1\t1 * 2030,2031,2032 "])
def test_the_seventh_field_is_the_year(text: str) -> None:
    assert cron(text).years == (2030, 2031, 2032)
    assert cron("0 0 0 1 1 ? *").years == ()


@pytest.mark.parametrize(
    ("text", "is_elapsed"),
    [
        ("0 30 2 * * *", False),
        ("* 30 2 * * *", True),
        ("0 */15 2 * * *", True),
        ("0 0 */2 * * *", True),
        ("0 0/15 0-23 * * *", False),
        ("30 2 * * *", False),
        ("*/5 * * * *", True),
        ("@hourly", True),
        ("@daily", False),
    ],
)
def test_an_expression_with_a_star_for_its_time_is_elapsed(text: str, is_elapsed: bool) -> None:
    assert cron(text).is_elapsed is is_elapsed


@pytest.mark.parametrize(
    ("text", "is_either"),
    [
        ("0 0 13 * 5", True),
        ("0 0 */2 * 5", False),
        ("0 0 13 * *", False),
        ("0 0 ? * 5", False),
        ("0 0 0 13 * 5", False),
    ],
)
def test_only_five_fields_take_either_day_or_weekday(text: str, is_either: bool) -> None:
    assert cron(text).is_either_day is is_either


def test_midnight_and_annually_are_second_names() -> None:
    for name, other in (("@midnight", "@daily"), ("@annually", "@yearly")):
        assert cron(name).hours == cron(other).hours and cron(name).days == cron(other).days


@pytest.mark.parametrize(
    ("text", "every_ms"),
    [("100ms", 100), ("30s", 30_000), ("1h30m", 5_400_000), ("1w2d", 777_600_000), ("366d", 366 * 86_400_000)],
)  # fmt: skip
def test_intervals_are_numbers_with_units(text: str, every_ms: int) -> None:
    assert parse_interval(text).every_ms == every_ms
    assert parse_expression(text) == Interval(text, every_ms)
    assert parse_expression(f"@every {text}") == Interval(f"@every {text}", every_ms)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("50ms", "30s, 5m or 1h30m"),
        ("367d", "30s, 5m or 1h30m"),
        ("0s", "30s, 5m or 1h30m"),
        ("1h 30m", "write 1h30m, without blanks"),
        ("30", "for instance 30s"),
        ("-30s", "the largest first"),
        ("30m1h", "the largest first"),
        ("1h1h", "the largest first"),
        ("@every 5", "for instance 5s"),
        ("@every", "the largest first"),
        ("@dayly", "did you mean @daily?"),
        ("@daily 5", "write @daily alone"),
        ("@reboot", "the names are"),
        ("", "write second minute hour"),
        ("0 0 0 * *  * * *", "write second minute hour"),
        ("60 0 0 * * *", "a number from 0 to 59"),
        ("0 0 24 * * *", "a number from 0 to 23"),
        ("0 0 0 0 * *", "a number from 1 to 31"),
        ("0 0 0 32 * *", "a number from 1 to 31"),
        ("0 0 0 * 13 *", "a number from 1 to 12"),
        ("0 0 0 * * 0", "a number from 1 to 7"),
        ("0 0 0 * * 8", "a number from 1 to 7"),
        ("0 0 0 * * * 1969", "a number from 1970 to 2100"),
        ("0 0 0 * * * 2101", "a number from 1970 to 2100"),
        ("0 10-5 0 * * *", "write 10-59,0-5"),
        ("0 0 0 * * FRI-SUN", "write FRI-SAT,SUN"),
        ("0 0 * * FRI-SUN", "write FRI-SAT,SUN"),
        ("0 */0 0 * * *", "at least 1"),
        ("0 0 0 L * *", "as numbers or names"),
        ("0 0 0 15W * *", "as numbers or names"),
        ("0 0 0 * * 6#3", "as numbers or names"),
        ("0 0 0 * * FRIL", "as numbers or names"),
        ("0 -5 0 * * *", "a number from 0 to 59"),
        ("0 1.5 0 * * *", "a number from 0 to 59"),
        ("0 5, 0 * * *", "take out the extra comma"),
        ("? 0 0 * * *", "write *"),
        ("0 0 0 ?,5 * *", "write ? or *"),
        ("0 0 0 * Jann *", "did you mean jan?"),
        ("0 *-5 0 * * *", "a range a-b"),
        ("0 ٣ 0 * * *", "a range a-b"),
        ("0 " + "5," * 600 + "5 0 * * *", "as a list"),
    ],
)
def test_a_mistake_is_refused_with_a_hint(text: str, hint: str) -> None:
    (problem,) = problems_of(text)
    assert hint in problem.hint


def test_every_field_that_is_wrong_is_reported_at_its_place() -> None:
    assert [(p.message.partition(":")[0], p.start, p.end) for p in problems_of("0 99 25,x * foo *")] == [
        ("minute", 2, 4),
        ("hour", 5, 7),
        ("hour", 8, 9),
        ("month", 12, 15),
    ]


@pytest.mark.parametrize(("text", "start", "end"), [("@every 50ms", 7, 11), ("@every   1h 30m", 9, 15)])
def test_a_wrong_interval_is_reported_at_its_place(text: str, start: int, end: int) -> None:
    assert [(problem.start, problem.end) for problem in problems_of(text)] == [(start, end)]


def test_an_expression_has_only_so_many_problems() -> None:
    assert len(problems_of("0 0 0 * " + "x," * 400 + "x *")) == 10


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("0 3 * * *", 'write "0 0 3 * * *"'),
        ("30 4 * * 1-5", 'write "0 30 4 * * MON-FRI"'),
        ("30 4 * * 0,3", 'write "0 30 4 * * SUN,WED"'),
        ("0 0 13 * 5", 'write the list ["0 0 0 13 * *", "0 0 0 * * FRI"]'),
        ("0 99 * * *", "write second minute hour"),
    ],
)
def test_five_fields_are_refused_where_six_are_wanted_with_the_right_form(text: str, hint: str) -> None:
    (problem,) = problems_of(text, (6, 7))
    assert problem.code == "wrong_field_count" and hint in problem.hint


def test_a_bare_interval_is_refused_where_six_fields_are_wanted() -> None:
    (problem,) = problems_of("30s", (6, 7))
    assert "@every 30s" in problem.hint
    assert parse_expression("@every 30s", (6, 7)) == Interval("@every 30s", 30_000)


def test_six_fields_keep_a_weekday_that_is_not_restricted() -> None:
    assert six_fields("*/5 9-17 * * *") == ("0 */5 9-17 * * *",)
    assert six_fields("0 0 */2 * 1") == ("0 0 0 */2 * MON",)


@pytest.mark.parametrize(
    ("text", "field"),
    [("0 0 0 * * 2", "2"), ("0 0 0 * * MON", ""), ("0 0 0 * * */2", ""), ("0 0 * * 2", ""), ("0 0 0 * * 2-6 *", "2-6")],
)  # fmt: skip
def test_a_numbered_weekday_of_six_fields_is_found(text: str, field: str) -> None:
    assert numbered_weekday(cron(text)) == field


@pytest.mark.parametrize("name", ["UTC", "EST", "CET", "GMT", "Etc/GMT+5", "US/Pacific", "Asia/Shanghai"])
def test_iana_names_are_zones(name: str) -> None:
    assert unknown_zone(name) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("utc", "did you mean UTC?"),
        ("asia/shanghai", "did you mean Asia/Shanghai?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("Mars/Olympus", "IANA name"),
        ("+08:00", "IANA name"),
        ("Local", "IANA name"),
        ("", "IANA name"),
    ],
)
def test_any_other_name_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    problem = unknown_zone(name)
    assert problem is not None and problem[0] == f'unknown timezone "{name}"' and hint in problem[1]
