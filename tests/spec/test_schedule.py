"""Schedule files: what an author may write, what it means, and how every mistake is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest

from holdfast.errors import InvalidSpec, Problem
from holdfast.http import serve
from holdfast.schedule.of_spec import never_fires, notes_on, schedule_of
from holdfast.spec.cron import Dst
from holdfast.spec.placeholders import NAMES
from holdfast.spec.read import PROBLEMS_MAX, parsed, read
from holdfast.spec.schedule import (
    file_schema,
    holds_schedules,
    schedule_files,
    schedule_from_data,
    schedule_from_stored,
    schedules_from_files,
    schedules_from_text,
)
from holdfast.spec.schedule_check import check_together
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.schedule_trigger import SERVER_PATHS
from holdfast.spec.triggers import (
    AtTrigger,
    CronTrigger,
    FileTrigger,
    IntervalTrigger,
    RunTrigger,
    SourceTrigger,
    WebhookTrigger,
)
from tests.spec.schedule_files import NIGHTLY_AND_UPLOAD

FULL = """\
calendars:
  holidays: {dates: [2026-12-25, 2027-01-01], expressions: "* * * 24 12 *"}
schedules:
  - id: report
    workflow: report
    trigger: {kind: cron, expression: ["0 0 8 ? * MON-FRI", "0 0 10 ? * SAT"], timezone: Europe/Berlin}
    dst: {gap: skip, fold: both}
    exclude: {between: [{from: 2026-08-01, to: 2026-08-14}], calendar: holidays}
    overlap: buffer_one
    max_concurrent: 2
    missed_run_policy: run_all
    max_catchup: 10
    grace_secs: 5
    start_at: 2026-01-01
    end_at: 2027-12-31T12:00:00+01:00
    locking: node_local
    pause_after_failures: 3
    strict_templates: true
  - {id: poll, workflow: poll, trigger: {kind: interval, every: 1h30m, jitter_secs: 5}}
  - {id: once, workflow: once, trigger: {kind: at, at: ["2026-12-24T18:00:00Z"]}}
  - {id: hook, workflow: hook, trigger: {kind: webhook, path: /hooks/a, secret_env: [NEW, OLD]}, dedup: body, echo_inputs: false}
  - {id: after, workflow: after, trigger: {kind: run, workflow: report, statuses: [completed, failed], delay_secs: 3}}
  - {id: drop, workflow: drop, trigger: {kind: file, path: /data/in, pattern: "*.csv", stable_secs: 2, identity: content}}
  - {id: events, workflow: events, trigger: {kind: source, source: "feeds.nats:events"}}
"""


def schedules(text: str) -> tuple[ScheduleSpec, ...]:
    return schedules_from_text(text, "a.schedules.yaml").schedules


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(InvalidSpec) as refused:
        schedules_from_text(text, "a.schedules.yaml")
    return list(refused.value.problems)


def test_the_file_of_the_documentation_is_read_as_it_stands() -> None:
    nightly, upload = schedules(NIGHTLY_AND_UPLOAD)
    assert nightly.trigger == CronTrigger(("0 0 3 * * *",), "UTC", 120)
    assert (nightly.id, nightly.workflow, nightly.inputs) == (
        "nightly_cleanup",
        "scene_cleanup",
        {"scope": "all-scenes"},
    )
    assert upload.trigger == WebhookTrigger("/webhooks/upload", ("UPLOAD_WEBHOOK_SECRET",))
    assert (upload.enabled, upload.max_concurrent, upload.overlap, upload.missed_run_policy) == (
        True,
        1,
        "skip",
        "skip",
    )


def test_every_kind_of_trigger_is_read() -> None:
    report, *others = schedules(FULL)
    assert report.trigger == CronTrigger(("0 0 8 ? * MON-FRI", "0 0 10 ? * SAT"), "Europe/Berlin")
    assert [spec.trigger for spec in others] == [
        IntervalTrigger("1h30m", 5),
        AtTrigger(at_of(others[1])),
        WebhookTrigger("/hooks/a", ("NEW", "OLD")),
        RunTrigger("report", ("completed", "failed"), 3),
        FileTrigger("/data/in", "*.csv", 2, "content"),
        SourceTrigger("feeds.nats:events"),
    ]
    assert (report.dst, report.max_catchup, report.grace_secs) == (Dst("skip", "both"), 10, 5)
    assert report.end_at is not None and report.end_at.ms == 1_830_250_800_000


def at_of(spec: ScheduleSpec) -> Any:
    assert isinstance(spec.trigger, AtTrigger)
    assert [moment.ms for moment in spec.trigger.at] == [1_798_135_200_000]
    return spec.trigger.at


def test_a_calendar_of_the_file_is_written_into_its_schedules() -> None:
    exclude = schedules(FULL)[0].exclude
    assert [day.text for day in exclude.dates] == ["2026-12-25", "2027-01-01"]
    assert exclude.expressions == ("* * * 24 12 *",) and exclude.calendar == ("holidays",)


@pytest.mark.parametrize("text", ["", "{}", "schedules:\n", "schedules: []\n", "# nothing\n"])
def test_an_empty_file_has_no_schedules(text: str) -> None:
    assert schedules(text) == ()


@pytest.mark.parametrize("text", [NIGHTLY_AND_UPLOAD, FULL])
def test_a_schedule_survives_being_stored(text: str) -> None:
    for spec in schedules(text):
        again = schedule_from_stored(spec.canonical())
        assert again.to_data() == spec.to_data()
        assert schedule_of(again) == schedule_of(spec)


def test_what_goes_without_saying_is_left_out() -> None:
    (nightly, _) = schedules(NIGHTLY_AND_UPLOAD)
    trigger = {"kind": "cron", "expression": ["0 0 3 * * *"], "jitter_secs": 120}
    wanted = {
        "id": "nightly_cleanup",
        "workflow": "scene_cleanup",
        "trigger": trigger,
        "inputs": {"scope": "all-scenes"},
    }
    assert nightly.to_data() == wanted


# ----------------------------------------------------------------------------------------------------- mistakes


class Broken(NamedTuple):
    keys: str
    code: str
    line: int
    column: int
    hint: str  # a part of it


CRON = 'trigger: {kind: cron, expression: "0 0 3 * * *"}'

ONE_MISTAKE: dict[str, Broken] = {
    "five fields": Broken('id: a\nworkflow: w\ntrigger: {kind: cron, expression: "0 3 * * *"}', "wrong_field_count", 4, 39, '"0 0 3 * * *"'),
    "a bare interval": Broken("id: a\nworkflow: w\ntrigger: {kind: cron, expression: 30s}", "invalid_cron", 4, 39, "@every 30s"),
    "a misspelt key of the trigger": Broken('id: a\nworkflow: w\ntrigger:\n  kind: cron\n  expression: "0 0 3 * * *"\n  jitter_sec: 5', "unknown_key", 7, 7, "did you mean jitter_secs?"),
    "a misspelt key of the schedule": Broken(f"id: a\nworkflow: w\n{CRON}\noverlaps: skip", "unknown_key", 5, 5, "did you mean overlap?"),
    "a key of the trigger beside it": Broken(f"id: a\nworkflow: w\n{CRON}\ntimezone: UTC", "unknown_key", 5, 5, "put it under `trigger:`"),
    "a key of the schedule in the trigger": Broken('id: a\nworkflow: w\ntrigger: {kind: cron, expression: "0 0 3 * * *", locking: node_local}', "unknown_key", 4, 54, "beside `trigger:`"),
    "a key of the trigger beside it, as others call it": Broken(f"id: a\nworkflow: w\n{CRON}\ntz: UTC", "unknown_key", 5, 5, "put it under `trigger:` as `timezone`, which has it for kind cron"),
    "a key as others call it": Broken(f"id: a\nworkflow: w\n{CRON}\nmax_instances: 1", "unknown_key", 5, 5, "did you mean max_concurrent?"),
    "a key as others call it, in camel case": Broken(f"id: a\nworkflow: w\n{CRON}\nconcurrencyPolicy: Forbid", "unknown_key", 5, 5, "did you mean overlap?"),
    "a required key as others call it": Broken('id: a\nworkflow: w\ntrigger: {kind: cron, cron: "0 0 3 * * *"}', "unknown_key", 4, 27, "did you mean expression?"),
    "a kind as others call it": Broken('id: a\nworkflow: w\ntrigger: {kind: schedule, expression: "0 0 3 * * *"}', "unknown_kind", 4, 21, "did you mean cron?"),
    "a zone in small letters": Broken('id: a\nworkflow: w\ntrigger: {kind: cron, expression: "0 0 3 * * *", timezone: utc}', "unknown_timezone", 4, 64, "did you mean UTC?"),
    "a zone on Mars": Broken('id: a\nworkflow: w\ntrigger: {kind: cron, expression: "0 0 3 * * *", timezone: Mars/Olympus}', "unknown_timezone", 4, 64, "IANA"),
    "a limit that is lifted": Broken(f"id: a\nworkflow: w\n{CRON}\nmax_concurrent: 2\noverlap: allow", "exclusive_keys", 6, 14, "leave one of them out"),
    "a negative limit": Broken(f"id: a\nworkflow: w\n{CRON}\nmax_concurrent: -1", "out_of_range", 5, 21, "from 0"),
    "no id": Broken(f"workflow: w\n{CRON}", "missing_key", 2, 5, "add `id"),
    "an id of plugins": Broken(f"id: plugin:a:b\nworkflow: w\n{CRON}", "invalid_name", 2, 9, "choose another id"),
    "a blank id": Broken(f'id: " "\nworkflow: w\n{CRON}', "empty_name", 2, 9, "write `id: …`"),
    "a blank workflow": Broken(f"id: a\nworkflow: ''\n{CRON}", "empty_name", 3, 15, "write `workflow: …`"),
    "no trigger": Broken("id: a\nworkflow: w", "missing_key", 2, 5, "add `trigger"),
    "a trigger that is a text": Broken('id: a\nworkflow: w\ntrigger: "0 0 3 * * *"', "wrong_type", 4, 14, "kind: cron"),
    "a trigger without a kind": Broken('id: a\nworkflow: w\ntrigger: {expression: "0 0 3 * * *"}', "missing_key", 4, 14, "did you mean kind: cron?"),
    "a kind in capitals": Broken('id: a\nworkflow: w\ntrigger: {kind: Cron, expression: "0 0 3 * * *"}', "unknown_kind", 4, 21, "did you mean cron?"),
    "no expression": Broken("id: a\nworkflow: w\ntrigger: {kind: cron}", "missing_key", 4, 14, "add `expression"),
    "no expressions": Broken("id: a\nworkflow: w\ntrigger: {kind: cron, expression: []}", "invalid_policy", 4, 39, "at least one"),
    "one bad expression of two": Broken('id: a\nworkflow: w\ntrigger:\n  kind: cron\n  expression:\n    - "0 0 3 * * *"\n    - "0 0 25 * * *"', "invalid_cron", 8, 11, "from 0 to 23"),
    "an interval that is too short": Broken("id: a\nworkflow: w\ntrigger: {kind: interval, every: 50ms}", "invalid_interval", 4, 38, "30s"),
    "an interval without a unit": Broken("id: a\nworkflow: w\ntrigger: {kind: interval, every: 5}", "invalid_interval", 4, 38, "for instance 5s"),
    "an interval with a blank": Broken("id: a\nworkflow: w\ntrigger: {kind: interval, every: 1h 30m}", "invalid_interval", 4, 38, "write 1h30m"),
    "a local time for one instant": Broken('id: a\nworkflow: w\ntrigger: {kind: at, at: "2026-12-24T18:00"}', "invalid_time", 4, 29, "2026-12-24T18:00Z"),
    "a date that no month has": Broken(f"id: a\nworkflow: w\n{CRON}\nstart_at: 2026-02-30", "invalid_time", 5, 15, "2026-12-24"),
    "an end before the start": Broken(f"id: a\nworkflow: w\n{CRON}\nstart_at: 2026-02-03\nend_at: 2026-02-01", "out_of_range", 6, 13, "exchange"),
    "an unknown calendar": Broken(f"id: a\nworkflow: w\n{CRON}\nexclude: {{calendar: x}}", "unknown_calendar", 5, 25, "calendars:"),
    "a stretch that ends before it begins": Broken(f"id: a\nworkflow: w\n{CRON}\nexclude: {{between: [{{from: 2026-02-03, to: 2026-02-01}}]}}", "out_of_range", 5, 48, "exchange"),
    "a stretch without an end": Broken(f"id: a\nworkflow: w\n{CRON}\nexclude: {{between: [{{from: 2026-02-03}}]}}", "missing_key", 5, 25, "add `to"),
    "a date that is a time": Broken(f"id: a\nworkflow: w\n{CRON}\nexclude: {{dates: [2026-02-03T10:00]}}", "invalid_time", 5, 23, "2026-12-24"),
    "an unknown overlap": Broken(f"id: a\nworkflow: w\n{CRON}\noverlap: sometimes", "invalid_choice", 5, 14, "write skip"),
    "an overlap as others call it": Broken(f"id: a\nworkflow: w\n{CRON}\noverlap: Forbid", "invalid_choice", 5, 14, "did you mean skip?"),
    "a relative path": Broken("id: a\nworkflow: w\ntrigger: {kind: webhook, path: hooks/a}", "invalid_path", 4, 36, "write /hooks/a"),
    "a path with braces": Broken('id: a\nworkflow: w\ntrigger: {kind: webhook, path: "/a/{b}"}', "invalid_path", 4, 36, "no braces"),
    "the root": Broken("id: a\nworkflow: w\ntrigger: {kind: webhook, path: /}", "invalid_path", 4, 36, "/hooks/upload"),
    "a path of the server": Broken("id: a\nworkflow: w\ntrigger: {kind: webhook, path: /api/v1/runs}", "invalid_path", 4, 36, "/hooks/upload"),
    "a path with a dot segment": Broken("id: a\nworkflow: w\ntrigger: {kind: webhook, path: /a/../b}", "invalid_path", 4, 36, "write /a/b"),
    "a secret without a name": Broken('id: a\nworkflow: w\ntrigger: {kind: webhook, path: /h, secret_env: ""}', "empty_name", 4, 52, "leave the key out"),
    "a blank secret in a list": Broken('id: a\nworkflow: w\ntrigger: {kind: webhook, path: /h, secret_env: [A, " "]}', "empty_name", 4, 52, "leave the key out"),
    "a clock key on a webhook": Broken("id: a\nworkflow: w\ntrigger: {kind: webhook, path: /h}\nmissed_run_policy: skip", "misplaced_key", 5, 5, "cron, interval, at"),
    "a webhook key on a clock": Broken(f"id: a\nworkflow: w\n{CRON}\ndedup: body", "misplaced_key", 5, 5, "webhook"),
    "dst on an interval": Broken("id: a\nworkflow: w\ntrigger: {kind: interval, every: 5m}\ndst: {gap: skip}", "misplaced_key", 5, 5, "kind cron"),
    "its own workflow": Broken("id: a\nworkflow: w\ntrigger: {kind: run, workflow: w}", "endless_loop", 3, 15, "another workflow"),
    "an unknown status": Broken("id: a\nworkflow: w\ntrigger: {kind: run, workflow: b, statuses: [complete]}", "invalid_choice", 4, 50, "did you mean completed?"),
    "a source without a function": Broken("id: a\nworkflow: w\ntrigger: {kind: source, source: feeds.nats}", "invalid_source", 4, 37, "module:function"),
}  # fmt: skip


def in_file(keys: str) -> str:
    """A file with one schedule, whose first key stands in line 2, column 5."""
    first, *rest = keys.split("\n")
    return "\n".join(["schedules:", f"  - {first}", *(f"    {line}" for line in rest)]) + "\n"


@pytest.mark.parametrize("what", ONE_MISTAKE)
def test_a_mistake_is_reported_once_at_its_place_with_a_hint(what: str) -> None:
    broken = ONE_MISTAKE[what]
    (problem,) = problems_of(in_file(broken.keys))
    assert (problem.code, problem.line, problem.column) == (broken.code, broken.line, broken.column), problem
    assert broken.hint in problem.hint
    assert problem.source == "a.schedules.yaml"


def test_messages_keep_the_words_that_users_search_for() -> None:
    assert problems_of(in_file(ONE_MISTAKE["a blank id"].keys))[0].message == "schedule id is empty"
    assert (
        problems_of(in_file(ONE_MISTAKE["a blank workflow"].keys))[0].message
        == 'schedule "a": workflow name is empty'
    )
    assert (
        "webhook path must start with '/'"
        in problems_of(in_file(ONE_MISTAKE["a relative path"].keys))[0].message
    )
    assert (
        'unknown timezone "Mars/Olympus"'
        in problems_of(in_file(ONE_MISTAKE["a zone on Mars"].keys))[0].message
    )


def test_calendars_together_may_not_have_too_many_expressions() -> None:
    many = [f"{n % 60} {n // 60} * * * *" for n in range(60)]
    more = [f"{n % 60} {n // 60} * * * *" for n in range(60, 120)]
    calendars = f"calendars: {{a: {{expressions: {many}}}, b: {{expressions: {more}}}}}\n"
    one = f"schedules: [{{id: s, workflow: w, {CRON}, exclude: {{calendar: %s}}}}]"
    (problem,) = problems_of(calendars + one % "[a, b]")
    assert (problem.code, problem.line) == ("out_of_range", 2) and "120 expressions" in problem.message
    (spec,) = schedules_from_text(calendars + one % "[a]", "a.schedules.yaml").schedules
    assert len(spec.exclude.expressions) == 60


def test_all_problems_of_a_file_are_reported_together() -> None:
    text = """\
schedule: []
calendars: {h: {date: []}}
schedules:
  - {id: a, workflow: w, trigger: {kind: cron, expression: '0 0 3 * *', timezone: utc}}
  - 5
  - {id: a, workflow: w, trigger: {kind: webhook, path: /h}}
  - {id: b, workflow: w, trigger: {kind: webhook, path: /h}}
"""
    assert [(problem.line, problem.code) for problem in problems_of(text)] == [
        (1, "unknown_key"),
        (2, "unknown_key"),
        (4, "wrong_field_count"),
        (4, "unknown_timezone"),
        (5, "wrong_type"),
        (6, "duplicate_id"),
        (7, "duplicate_path"),
    ]


def test_a_hostile_file_is_refused_with_as_many_problems_as_are_shown() -> None:
    bad = "{kind: cron, expression: '0 0 0 * x *', timezone: Europe/Berln}"
    text = "schedules:\n" + "".join(f"  - {{id: s{n}, workflow: w, trigger: {bad}}}\n" for n in range(2_000))
    assert len(problems_of(text)) == PROBLEMS_MAX


def test_two_files_may_not_share_an_id_or_a_path() -> None:
    hook = "schedules: [{id: %s, workflow: w, trigger: {kind: webhook, path: %s}}]"
    files = [schedules_from_text(hook % names, source) for names, source in ((("a", "/h"), "a.yaml"), (("b", "/h"), "b.yaml"), (("a", "/i"), "c.yaml"))]  # fmt: skip
    problems = check_together(spec for file in files for spec in file.schedules)
    assert [
        (problem.code, problem.source, problem.line, problem.message, problem.hint) for problem in problems
    ] == [
        (
            "duplicate_path",
            "b.yaml",
            1,
            'schedules "a" and "b" have the same path "/h"',
            "the first is in a.yaml, line 1",
        ),
        ("duplicate_id", "c.yaml", 1, 'duplicate schedule id "a"', "the first is in a.yaml, line 1"),
    ]


def test_a_folder_gives_its_schedule_files_in_order(tmp_path: Path) -> None:
    for name in (
        "b.schedules.yml",
        "schedules.yaml",
        "a.schedules.yaml",
        "flow.yaml",
        "myschedules.yaml",
        "schedules.json",
    ):
        (tmp_path / name).write_text("schedules: []")
    (tmp_path / "under").mkdir()
    (tmp_path / "under" / "schedules.yaml").write_text("schedules: []")
    (tmp_path / "c.schedules.yaml").mkdir()
    found = [Path(file).name for file in schedule_files(tmp_path)]
    assert found == ["a.schedules.yaml", "b.schedules.yml", "schedules.yaml"]


def test_files_are_refused_together_with_the_problems_of_each(tmp_path: Path) -> None:
    good = "schedules: [{id: a, workflow: w, trigger: {kind: interval, every: 5m}}]"
    for name, text in (("a", good), ("b", good), ("c", good.replace("5m", "5"))):
        (tmp_path / f"{name}.schedules.yaml").write_text(text)
    with pytest.raises(InvalidSpec) as refused:
        schedules_from_files([*schedule_files(tmp_path), tmp_path / "gone.yaml"])
    assert [(problem.code, Path(problem.source).name) for problem in refused.value.problems] == [
        ("invalid_interval", "c.schedules.yaml"),
        ("unreadable", "gone.yaml"),
        ("duplicate_id", "b.schedules.yaml"),
    ]
    assert len(schedules_from_files([tmp_path / "a.schedules.yaml"])) == 1


@pytest.mark.parametrize(
    ("trigger", "more", "is_noted"),
    [
        ("{kind: run, workflow: other}", "", True),
        ("{kind: file, path: /in}", "", True),
        ("{kind: source, source: 'a:b'}", "", True),
        ("{kind: file, path: /in}", ", overlap: buffer_all", False),
        ("{kind: file, path: /in}", ", max_concurrent: 0", False),
        ("{kind: webhook, path: /h}", "", False),  # its sender learns that it was refused
    ],
)
def test_events_that_would_be_skipped_are_noted(trigger: str, more: str, is_noted: bool) -> None:
    text = f"schedules:\n  - {{id: a, workflow: w, trigger: {trigger}{more}}}\n"
    notes = schedules_from_text(text).notes
    assert [note.code for note in notes] == ["events_are_skipped"] * is_noted


def test_a_numbered_weekday_is_noted() -> None:
    text = in_file('id: a\nworkflow: w\ntrigger: {kind: cron, expression: "0 0 3 * * 2"}')
    (note,) = schedules_from_text(text).notes
    assert note.code == "numbered_weekday" and "1 = Sunday" in note.message


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("{{trigger.payloda.x}}", "trigger has no payloda", "did you mean payload?"),
        ("a {{ inputs.x }} b", '"{{inputs.x}}" is not filled in', "write {{trigger.payload}}"),
        ("{{trigger.kind.x}}", "kind has no members", "write {{trigger.kind}}"),
        ("{{trigger}}", "only trigger has values here", "write {{trigger.payload}}"),
        ("{{trigger.payload.x}}", "the payload of a clock is empty", "{{trigger.scheduled_at}}"),
    ],
)
def test_a_placeholder_that_is_never_filled_in_is_noted(text: str, says: str, hint: str) -> None:
    file = in_file(f'id: a\nworkflow: w\n{CRON}\ninputs: {{list: [1, {{key: "{text}"}}]}}')
    (note,) = schedules_from_text(file).notes
    assert note.code == "unfilled_placeholder" and says in note.message and hint in note.hint
    assert (note.line, note.column) == (5, 30)


def test_a_placeholder_that_may_be_filled_in_is_not_noted() -> None:
    names = "".join(f"{{{{trigger.{name}}}}}" for name in NAMES)
    hook = "trigger: {kind: webhook, path: /h}"
    file = in_file(f'id: a\nworkflow: w\n{hook}\ninputs: {{a: "{names}{{{{trigger.payload.x.0}}}}{{{{"}}')
    assert schedules_from_text(file).notes == ()


def test_a_schedule_that_never_fires_is_noted_at_its_trigger() -> None:
    text = in_file('id: a\nworkflow: w\ntrigger: {kind: cron, expression: "0 30 2 30 2 *"}')
    (spec,) = schedules_from_text(text).schedules
    (note,) = notes_on(spec, 1_800_000_000_000)
    assert (note.code, note.line, note.column) == ("never_fires", 4, 14)


def test_a_schedule_that_fires_has_no_note() -> None:
    (spec,) = schedules_from_text(in_file(f"id: a\nworkflow: w\n{CRON}")).schedules
    assert notes_on(spec, 1_800_000_000_000) == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("schedules: []", True),
        ("calendars: {}", True),
        ("name: w\nsteps: [{id: a, tool: t}]", False),
        ("name: w\nschedules: 1\nsteps: []", False),
        ("- a", False),
        ("", False),
    ],
)
def test_a_schedule_file_is_recognised_by_its_keys(text: str, is_one: bool) -> None:
    assert holds_schedules(parsed(text).data) is is_one


@pytest.mark.parametrize(
    ("excluded", "never"),
    [
        (["* * * * * *"], True),
        (["* * * ? * *", "0 0 0 1 1 *"], True),
        (["* * * 1-30 * *"], False),
        (["* * 0-22 * * *"], False),
    ],
)
def test_a_schedule_whose_exclusions_leave_nothing_never_fires(excluded: list[str], never: bool) -> None:
    trigger = {"kind": "cron", "expression": "* * * * * *", "timezone": "Europe/Berlin"}
    spec = schedule_from_data(
        {"id": "a", "workflow": "w", "trigger": trigger, "exclude": {"expressions": excluded}}
    )
    schedule = schedule_of(spec)
    assert schedule is not None and never_fires(schedule, 1_800_000_000_000) is never


def test_one_schedule_is_read_from_data() -> None:
    data = {"id": "a", "workflow": "w", "trigger": {"kind": "cron", "expression": "@daily"}}
    assert schedule_from_data(data).trigger == CronTrigger(("@daily",))
    with pytest.raises(InvalidSpec) as refused:
        schedule_from_data({**data, "trigger": {"kind": "cron", "expression": "@dayly"}})
    assert refused.value.problems[0].pointer == "/trigger/expression"


@pytest.mark.parametrize(
    ("expression", "never"),
    [("0 30 2 30 2 *", True), ("0 0 0 * * * 2020", True), ("0 0 0 29 2 MON", False), ("@daily", False)],
)
def test_a_schedule_that_never_fires_is_accepted_and_found(expression: str, never: bool) -> None:
    spec = schedule_from_data(
        {"id": "a", "workflow": "w", "trigger": {"kind": "cron", "expression": expression}}
    )
    schedule = schedule_of(spec)
    assert schedule is not None and never_fires(schedule, 1_800_000_000_000) is never


def test_kinds_without_a_clock_have_no_instants() -> None:
    assert [schedule_of(spec) is None for spec in schedules(FULL)] == [
        False,
        False,
        False,
        True,
        True,
        True,
        True,
    ]


# ----------------------------------------------------------------------------------------------------- the schema


@pytest.mark.parametrize("text", [NIGHTLY_AND_UPLOAD, FULL, "schedules: []"])
def test_the_schema_accepts_what_is_accepted(text: str) -> None:
    jsonschema_rs.validate(file_schema(), read(text).data)


@pytest.mark.parametrize(
    "what",
    ["a misspelt key of the trigger", "a misspelt key of the schedule", "no id", "a kind in capitals", "an unknown overlap", "a zone on Mars"],
)  # fmt: skip
def test_the_schema_refuses_what_an_editor_can_know(what: str) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(file_schema(), read(in_file(ONE_MISTAKE[what].keys)).data)


def test_every_path_of_the_server_is_reserved() -> None:
    assert {route.path.split("/")[1] for route in serve.ROUTES} - {""} <= SERVER_PATHS
