"""`holdfast schedules next`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli

NIGHTLY = ("schedules", "next", "0 30 2 * * *", "--tz", "Europe/Berlin")


def test_an_expression_is_shown_in_words_and_as_times_in_both_zones(cli: Cli) -> None:
    done = cli.run(*NIGHTLY, "--after", "2026-03-28", "-n", "3")
    assert done.returncode == 0
    assert done.stdout == (
        "at 02:30 every day, Europe/Berlin time; when clocks go forward over it, right after; when it comes twice, the first time\n"
        "\n"
        "Europe/Berlin                   UTC                   NOTE\n"
        "Sat 2026-03-28 02:30:00 +01:00  2026-03-28T01:30:00Z\n"
        "Sun 2026-03-29 03:00:00 +02:00  2026-03-29T01:00:00Z  02:30:00 does not exist on this day: clocks go forward\n"
        "Mon 2026-03-30 02:30:00 +02:00  2026-03-30T00:30:00Z\n"
    )


def test_next_speaks_json(cli: Cli) -> None:
    data = cli.json(*NIGHTLY, "--after", "2026-03-29", "-n", "1", "--gap", "skip")
    assert list(data) == ["expressions", "timezone", "words", "never_fires", "notes", "items"]
    assert (data["expressions"], data["timezone"], data["never_fires"]) == (
        ["0 30 2 * * *"],
        "Europe/Berlin",
        False,
    )
    assert data["items"] == [
        {
            "at": "2026-03-29T00:59:59.999Z",
            "local": "2026-03-29T01:59:59.999+01:00",
            "fires_at": None,
            "note": "skipped: 02:30:00 does not exist on this day",
        }
    ]


def test_of_a_time_that_comes_twice_both_are_shown_if_both_count(cli: Cli) -> None:
    items = cli.json(*NIGHTLY, "--after", "2026-10-25", "-n", "2", "--fold", "both")["items"]
    assert [one["at"] for one in items] == ["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"]


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("30 9 * * 1", "2027-01-04T09:30:00.000Z"),  # 5 fields: 1 = Monday
        ("0 30 9 * * 1", "2027-01-03T09:30:00.000Z"),  # 6 fields: 1 = Sunday
        ("0 30 9 * * MON 2028", "2028-01-03T09:30:00.000Z"),
        ("@weekly", "2027-01-03T00:00:00.000Z"),
        ("90m", "2027-01-01T01:30:00.000Z"),
        ("@every 1h30m", "2027-01-01T01:30:00.000Z"),
    ],
)
def test_every_form_of_an_expression_is_understood(cli: Cli, expression: str, first: str) -> None:
    data = cli.json("schedules", "next", expression, "--after", "2027-01-01T00:00:00Z", "-n", "1")
    assert data["items"][0]["at"] == first


def test_several_expressions_are_due_whenever_one_is(cli: Cli) -> None:
    data = cli.json("schedules", "next", "0 0 9 * * *", "0 0 3 * * *", "--after", "2027-01-01", "-n", "3")
    assert [one["at"][:13] for one in data["items"]] == ["2027-01-01T03", "2027-01-01T09", "2027-01-02T03"]


def test_a_numbered_weekday_is_noted(cli: Cli) -> None:
    said = cli.run("schedules", "next", "0 0 3 * * 2").stdout
    assert "note: weekday 2 counts from 1 = Sunday" in said and "at 03:00 on Monday" in said
    assert cli.json("schedules", "next", "0 3 * * 2")["notes"] == []


def test_an_expression_that_never_fires_says_so(cli: Cli) -> None:
    done = cli.run("schedules", "next", "30 2 30 2 *")
    assert (done.returncode, "never_fires" in done.stdout) == (0, True)
    data = cli.json("schedules", "next", "30 2 30 2 *")
    assert (data["never_fires"], data["items"]) == (True, [])


@pytest.mark.parametrize(
    ("expression", "marks", "place", "hint"),
    [
        ("0 0 25 * * *", "    ^^", "expression:1:5: error: ", "write a number from 0 to 23"),
        ("@every 50ms", "       ^^^^", "expression:1:8: error: ", "30s, 5m or 1h30m"),
        ("1h 30m", "^^^^^^", "expression:1:1: error: ", "write 1h30m, without blanks"),
    ],
)
def test_a_mistake_is_shown_at_its_place_with_a_hint(
    cli: Cli, expression: str, marks: str, place: str, hint: str
) -> None:
    done = cli.run("schedules", "next", expression)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{expression}\n{marks}\n{place}") and hint in done.stderr


def test_every_mistake_of_every_expression_is_in_the_json(cli: Cli) -> None:
    done = cli.run("schedules", "next", "0 0 25 * * *", "@dayly", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["error"]) == (2, "invalid_spec")
    assert [(one["pointer"], one["column"]) for one in data["details"]] == [("/0", 5), ("/1", 1)]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--tz", "utc"), "did you mean UTC?"),
        (("--tz", "Mars/Olympus"), 'unknown timezone "Mars/Olympus"'),
        (("--tz", ""), 'unknown timezone ""'),
        (("-n", "0"), "-n, --limit must be a number from 1 to 500"),
        (("-n", "501"), "--limit must be a number from 1 to 500"),
        (("--after", "soon"), "--after must be a date or a time"),
        (("--gap", "skp"), "did you mean skip?"),
    ],
)
def test_a_flag_that_cannot_be_followed_is_refused(cli: Cli, flags: tuple[str, ...], reason: str) -> None:
    done = cli.run("schedules", "next", "@daily", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_next_opens_no_database(cli: Cli) -> None:
    cli.run("schedules", "next", "@daily")
    assert not list(cli.folder.glob("*.db*"))
