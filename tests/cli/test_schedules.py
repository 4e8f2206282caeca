"""`holdfast schedules list`, `show` and `why`: in a file, and at a server that owns it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest

from holdfast.schedule.records import Cursor, Pause
from tests.cli.conftest import Cli
from tests.store.conformance.schedules import commit, ends
from tests.views.test_schedules import MADE, NOW, Desk, at

# Nothing of it is due while a test runs, so that a server leaves it as it is.
CRON = {"kind": "cron", "expression": "0 30 2 29 2 * 2096", "timezone": "Europe/Berlin"}
NEXT = "2096-02-29T01:30:00.000Z"


def stored(cli: Cli, write: Callable[[Desk], Coroutine[Any, Any, object]]) -> None:
    """Write to the database of the folder, as an engine would have."""

    async def written() -> None:
        desk = Desk(cli.folder / "holdfast.db")
        try:
            await write(desk)
        finally:
            await desk.store.close()

    asyncio.run(written())


async def history(desk: Desk) -> None:
    await desk.put(trigger=CRON, next_at=at(2096, 2, 29, 1, 30))
    await desk.put(id="hook", trigger={"kind": "webhook", "path": "/hooks/a"}, next_at=None)
    await desk.skipped("missed", at(2026, 3, 21, 1, 30), at(2026, 3, 26, 1, 30), 6)
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    await desk.skipped("overlap", at(2026, 3, 28, 1, 30), at(2026, 3, 28, 1, 30), 1)


@pytest.fixture(params=["file", "server"])
def place(cli: Cli, request: pytest.FixtureRequest) -> Cli:
    stored(cli, history)
    if request.param == "server":
        cli.up()
    return cli


def test_schedules_are_listed_with_their_state(place: Cli) -> None:
    done = place.run("schedules", "list")
    assert done.returncode == 0, done.stderr
    head, hook, nightly = done.stdout.splitlines()
    assert head.split() == ["SCHEDULE", "WORKFLOW", "STATUS", "NEXT", "IN", "OPEN", "WHEN"]
    assert hook.split(maxsplit=3) == ["hook", "cleanup", "active", "at a POST to /hooks/a"]
    assert nightly.startswith("nightly   cleanup   active") and "at 02:30 on day 29" in nightly


def test_the_list_speaks_json(place: Cli) -> None:
    hook, nightly = place.json("schedules", "list")["items"]
    assert (hook["id"], hook["kind"], hook["next_at"]) == ("hook", "webhook", None)
    assert (nightly["id"], nightly["origin"], nightly["next_at"], nightly["open_runs"]) == (
        "nightly",
        "api",
        NEXT,
        1,
    )


def test_a_schedule_is_shown_with_its_next_fires_and_its_ledger(place: Cli) -> None:
    done = place.run("schedules", "show", "nightly")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nightly  active  starts cleanup  (api)\n  at 02:30 on day 29 of the month")
    assert "Wed 2096-02-29 02:30:00 +01:00  2096-02-29T01:30:00Z" in done.stdout
    assert "last: ·x6✓·\n" in done.stdout
    assert "· skipped: overlap 1, ✓ fired 1, · skipped: missed 6" in done.stdout


def test_what_is_shown_is_in_the_json_too(place: Cli) -> None:
    data = place.json("schedules", "show", "nightly")
    assert (data["definition"]["trigger"]["expression"], data["timezone"]) == (
        [CRON["expression"]],
        "Europe/Berlin",
    )
    assert [one["at"] for one in data["next"]] == [NEXT]
    assert [row["outcome"] for row in data["ledger"]] == ["skipped", "fired", "skipped"]


def test_the_last_occurrences_are_explained(place: Cli) -> None:
    done = place.run("schedules", "why", "nightly")
    assert done.returncode == 0, done.stderr
    overlap, hint, fired, missed, _ = done.stdout.splitlines()
    assert overlap.startswith("· Sat 2026-03-28 02:30:00 +01:00  skipped: as many runs")
    assert hint.startswith("    hint: raise max_concurrent")
    assert fired.startswith("✓ Fri 2026-03-27 02:30:00 +01:00  fired 20 ms after its time; run 0000")
    assert "and 5 more until 2026-03-26T01:30:00.000Z  skipped: no engine was awake" in missed


@pytest.mark.parametrize(
    ("when", "outcome"),
    [
        ("2026-03-24T02:30", "skipped"),
        ("2026-03-27", "fired"),
        ("2096-02-29", "will_fire"),
        ("2095-01-01", "not_due"),
    ],
)
def test_a_time_is_explained_past_and_future(place: Cli, when: str, outcome: str) -> None:
    (found,) = place.json("schedules", "why", "nightly", when)["items"]
    assert found["outcome"] == outcome


def test_what_was_not_filled_in_is_a_warning(cli: Cli) -> None:
    warning = '{"warnings": ["{{trigger.payload.x}} was left as it is: nothing has that name"]}'

    async def write(desk: Desk) -> None:
        await desk.put(trigger=CRON, next_at=at(2096, 2, 29, 1, 30))
        await desk.fired(1, at(2026, 3, 27, 1, 30), detail=warning)

    stored(cli, write)
    done = cli.run("schedules", "why", "nightly", "-n", "1")
    assert done.stdout.splitlines()[1:] == [
        "    warning: {{trigger.payload.x}} was left as it is: nothing has that name"
    ]


def test_a_schedule_that_paused_itself_shows_what_made_it(cli: Cli) -> None:
    async def write(desk: Desk) -> None:
        paused = Cursor(MADE, NOW, pauses=(Pause(NOW),))
        await desk.put(paused, trigger=CRON, next_at=None, pause_after_failures=1)
        await desk.fired(1, at(2026, 3, 27, 1, 30))
        await commit(desk.store, ends(1, "no luck", name="nightly"))

    stored(cli, write)
    assert ": its last run has failed\n" in cli.run("schedules", "show", "nightly").stdout
    stopped, hint, *_ = cli.run("schedules", "why", "nightly").stdout.splitlines()
    assert stopped == "· from now on  will not fire: the schedule is paused: its last run has failed"
    assert hint == "    hint: holdfast schedules resume nightly starts it again"


@pytest.mark.parametrize("words", [("show", "nothing"), ("why", "nothing")])
def test_a_schedule_that_does_not_exist_is_not_found(place: Cli, words: tuple[str, str]) -> None:
    done = place.run("schedules", *words, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (2, "not_found")


def test_a_text_that_is_no_time_is_refused(place: Cli) -> None:
    done = place.run("schedules", "why", "nightly", "yesterday")
    assert (done.returncode, "neither a time nor an occurrence" in done.stderr) == (2, True)


def test_without_schedules_the_list_says_how_to_add_some(cli: Cli) -> None:
    stored(cli, lambda desk: desk.store.schedule("default", "x"))
    done = cli.run("schedules", "list")
    assert (done.returncode, "no schedules in" in done.stderr) == (0, True)


def test_a_damaged_schedule_is_listed_and_shown_with_what_to_do(cli: Cli) -> None:
    stored(cli, history)
    with closing(sqlite3.connect(cli.folder / "holdfast.db")) as damaged, damaged:
        damaged.execute("UPDATE schedule SET body = '{' WHERE id = 'nightly'")
    assert "unreadable" in cli.run("schedules", "list").stdout
    assert "replace or delete it" in cli.run("schedules", "show", "nightly").stdout


async def failure(desk: Desk) -> None:
    await desk.put(trigger=CRON)
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    await commit(desk.store, ends(1, "no \u202e luck\nnext: never", name="nightly"))


def test_an_error_message_does_not_speak_to_the_terminal_and_begins_no_line(cli: Cli) -> None:
    stored(cli, failure)
    said = cli.run("schedules", "show", "nightly").stdout
    assert "failed runs: 1, 1 in a row: no \\u202e luck\\u000anext: never" in said


# ---------------------------------------------------------------------------------------------------- changing

FILE = """\
schedules:
  - id: nightly
    workflow: report
    trigger: {kind: cron, expression: "%s"}
    max_concurrent: 0
"""
REPORT = "name: report\nsteps: [{id: s, tool: echo, args: {value: 1}}]\n"


@pytest.fixture(params=["file", "server"])
def fresh(cli: Cli, request: pytest.FixtureRequest) -> Cli:
    """A folder with the published workflow `report` and a schedule file, with or without a server."""
    cli.write("report.yaml", REPORT)
    cli.write("a.schedules.yaml", FILE % "0 0 3 * * *")
    cli.run("flows", "publish", "report.yaml")
    if request.param == "server":
        cli.up()
    return cli


def test_a_schedule_is_put_from_a_file_and_deleted(fresh: Cli) -> None:
    done = fresh.run("schedules", "put", "a.schedules.yaml")
    assert (done.returncode, "nightly: stored at" in done.stderr) == (0, True)
    assert fresh.json("schedules", "show", "nightly")["origin"] == "api"
    assert fresh.json("schedules", "delete", "nightly")["id"] == "nightly"
    assert fresh.json("schedules", "list")["items"] == []


def test_a_file_with_a_mistake_changes_nothing(fresh: Cli) -> None:
    fresh.write("b.schedules.yaml", FILE.replace("nightly", "other") % "0 3 * * *")
    done = fresh.run("schedules", "put", "a.schedules.yaml", "b.schedules.yaml")
    assert (done.returncode, "b.schedules.yaml:4:39: error: " in done.stderr) == (2, True)
    assert fresh.json("schedules", "list")["items"] == []


def test_a_schedule_is_fired_by_hand(fresh: Cli) -> None:
    fresh.run("schedules", "put", "a.schedules.yaml")
    done = fresh.run("schedules", "fire", "nightly", "--payload", '{"a": 1}')
    assert (done.returncode, done.stderr.startswith("nightly fired; run ")) == (0, True)
    (row,) = fresh.json("schedules", "why", "nightly")["items"]
    assert (row["message"], row["run_id"] in done.stderr) == ("fired by request", True)


def test_a_schedule_is_paused_and_resumed(fresh: Cli) -> None:
    fresh.run("schedules", "put", "a.schedules.yaml")
    assert "is paused" in fresh.run("schedules", "pause", "nightly").stderr
    assert fresh.json("schedules", "show", "nightly")["status"] == "paused"
    done = fresh.run("schedules", "resume", "nightly", "--missed")
    assert "nightly is active; next fire " in done.stderr


def test_a_backfill_is_previewed_first(fresh: Cli) -> None:
    fresh.run("schedules", "put", "a.schedules.yaml")
    done = fresh.run("schedules", "backfill", "nightly", "2026-03-01", "2026-03-12", "--preview")
    assert (done.returncode, done.stderr) == (0, "nightly: the backfill would start 12 occurrences\n")
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("2026-03-01T03:00:00.000Z", "… and 2 more", 11)
    done = fresh.run("schedules", "backfill", "nightly", "2026-03-01", "2026-03-12", "--max-per-sec", "100")
    assert (done.returncode, done.stderr) == (0, "nightly: the backfill starts 12 occurrences\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("backfill", "nightly", "soon", "2026-03-12"), "from is a date or a time"),
        (
            ("backfill", "nightly", "2026-03-01", "2026-03-12", "--max-per-sec", "0"),
            "--max-per-sec must be a number",
        ),
        (("backfill", "nightly", "2026-03-01"), "needs TO"),
        (("fire", "nothing"), "no schedule 'nothing'"),
        (("why", "nightly", "--limit", "0"), "--limit must be a number from 1 to 500"),
        (("put", "gone.yaml"), "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    fresh: Cli, words: tuple[str, ...], reason: str
) -> None:
    fresh.run("schedules", "put", "a.schedules.yaml")
    done = fresh.run("schedules", *words)
    assert (done.returncode, reason in done.stderr) == (2, True), done.stderr


# ----------------------------------------------------------------------------------------------------- a folder


def test_a_folder_of_schedules_is_fired_and_reloaded_whole(cli: Cli) -> None:
    (cli.folder / "flows").mkdir()
    (cli.folder / "schedules").mkdir()
    cli.write("flows/report.yaml", REPORT)
    cli.write("schedules/a.schedules.yaml", FILE % "@every 200ms")
    server = cli.up("--flows", "flows", "--schedules", "schedules")
    assert server.said["schedules"]["plan"] == "+1 ~0 -0"
    until(cli, lambda: cli.json("schedules", "show", "nightly")["ledger"])
    cli.write("schedules/b.schedules.yaml", "schedules: 5\n")
    cli.write("schedules/a.schedules.yaml", FILE.replace("nightly", "other") % "@every 200ms")
    until(cli, lambda: "b.schedules.yaml:1:12: error: " in cli.run("schedules", "list").stderr)
    assert [one["id"] for one in cli.json("schedules", "list")["items"]] == ["nightly"]
    cli.write("schedules/b.schedules.yaml", "schedules: []\n")
    until(cli, lambda: [one["id"] for one in cli.json("schedules", "list")["items"]] == ["other"])
    _, said = server.stop()
    assert "the schedules in use stay, because of 1 problem" in said and "+1 ~0 -1" in said


def test_without_its_folder_a_schedule_goes_on_until_it_is_deleted(cli: Cli) -> None:
    (cli.folder / "schedules").mkdir()
    cli.write("schedules/schedules.yaml", FILE % "0 0 3 29 2 * 2096")
    cli.up("--schedules", "schedules").stop()
    server = cli.up()
    assert cli.json("schedules", "show", "nightly")["status"] == "active"
    assert cli.json("schedules", "delete", "nightly")["origin"] == "file"
    assert "such as nightly of" in server.stop()[1]


def test_the_banner_says_what_the_schedules_change(cli: Cli) -> None:
    (cli.folder / "schedules").mkdir()
    cli.write("schedules/schedules.yaml", FILE % "0 0 3 * * *")
    server = cli.start("up", "--port", "0", "--schedules", "schedules")
    assert "schedules: +1 ~0 -0; next: nightly at " in cli.until(server, "  schedules ")


def test_the_banner_shows_what_is_wrong_with_schedules(cli: Cli) -> None:
    (cli.folder / "schedules").mkdir()
    cli.write("schedules/schedules.yaml", FILE % "0 3 * * *")
    server = cli.start("up", "--port", "0", "--schedules", "schedules")
    said = cli.until(server, "  schedules ")
    assert "schedules.yaml:4:39: " in said and "1 file cannot be used; the schedules in use stay" in said


def until(cli: Cli, is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
