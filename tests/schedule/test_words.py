"""Expressions in words."""

from __future__ import annotations

import pytest

from holdfast.schedule.words import event_words, in_words
from holdfast.spec.cron import Dst, parse_expression
from holdfast.spec.triggers import FileTrigger, RunTrigger, SourceTrigger, Trigger, WebhookTrigger


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 3 * * *", "at 03:00 every day"),
        ("15 0 3 * * *", "at 03:00:15 every day"),
        ("0 0 8,12,18 * * *", "at 08:00, 12:00 and 18:00 every day"),
        ("*/5 * * * *", "every 5 minutes"),
        ("@hourly", "every hour, on the hour"),
        ("@weekly", "at 00:00 on Sunday"),
        ("* * * * * *", "every second"),
        ("0 * * * * *", "every minute"),
        ("1-5 * * * * *", "at seconds 1 to 5 of every minute"),
        ("* 30 2 * * *", "every second of minute 30 in hour 2"),
        ("0 0 9-17 ? * MON-FRI", "at minute 0 in hours 9 to 17 on Monday to Friday"),
        ("0 5,20 * * * *", "at minutes 5 and 20 of every hour"),
        ("0 0 */2 * * *", "at minute 0 every 2 hours"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 0 13 * FRI", "at 00:00 on day 13 of the month, but only Friday"),
        ("0 0 0 1,15 1-3 ? 2030", "at 00:00 on days 1 and 15 of the month in January to March in 2030"),
    ],
)
def test_an_expression_is_said_in_words(text: str, words: str) -> None:
    assert in_words(parse_expression(text)) == f"{words}, UTC"


@pytest.mark.parametrize(
    ("text", "dst", "words"),
    [
        (
            "0 30 2 * * *",
            Dst(),
            "when clocks go forward over it, right after; when it comes twice, the first time",
        ),
        (
            "0 30 2 * * *",
            Dst("skip", "both"),
            "when clocks go forward over it, not at all; when it comes twice, both times",
        ),
        ("0 */30 * * * *", Dst("skip", "both"), "when clocks change it follows real time"),
    ],
)
def test_what_clock_changes_do_is_said_too(text: str, dst: Dst, words: str) -> None:
    assert in_words(parse_expression(text), "Europe/Berlin", dst).endswith(f"Europe/Berlin time; {words}")


def test_an_interval_says_where_it_begins() -> None:
    assert (
        in_words(parse_expression("@every 1h30m"))
        == "every 1h30m, counted from when the schedule was registered"
    )


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (WebhookTrigger("/hooks/a"), "at a POST to /hooks/a"),
        (RunTrigger("load"), "when a run of load has completed"),
        (
            RunTrigger("load", ("failed", "cancelled", "interrupted"), 60),
            "60 seconds after a run of load has failed, been cancelled or been interrupted",
        ),
        (FileTrigger("in"), "when a file has arrived in in"),
        (FileTrigger("in", "*.csv"), "when a file matching *.csv has arrived in in"),
        (SourceTrigger("queue:orders"), "at each event of queue:orders"),
    ],
)
def test_an_event_is_said_in_words(trigger: Trigger, words: str) -> None:
    assert event_words(trigger) == words
