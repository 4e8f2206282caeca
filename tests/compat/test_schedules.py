"""Schedules declared in Python: the constructors and attributes, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import (
    SchedulerConfig,
    ScheduleSpec,
    TriggerSpec,
    hmac_sha256_hex,
    parse_schedules_yaml,
    verify_hub_signature_256,
)
from holdfast.spec.field_types import fields_of
from holdfast.spec.triggers import Definition
from tests.spec.schedule_files import NIGHTLY_AND_UPLOAD

DAILY = TriggerSpec.cron("0 0 3 * * *", timezone="Asia/Shanghai", jitter_secs=120)
HOOK = TriggerSpec.webhook("/webhooks/upload", "UPLOAD_SECRET")


def declared(**keys: Any) -> ScheduleSpec:
    given: dict[str, Any] = {"id": "nightly", "workflow": "cleanup", "trigger": DAILY, **keys}
    return ScheduleSpec(**given)


def test_a_schedule_has_what_it_was_made_with() -> None:
    spec = declared(inputs='{"scope": "all-scenes"}', max_concurrent=2)
    assert (spec.id, spec.workflow, spec.trigger, spec.max_concurrent) == ("nightly", "cleanup", DAILY, 2)


def test_a_schedule_is_enabled_and_runs_once_at_a_time_unless_it_says_otherwise() -> None:
    spec = declared()
    assert (spec.enabled, spec.max_concurrent, spec.inputs_json) == (True, 1, "null")


@pytest.mark.parametrize("inputs", ['{"scope": "all-scenes"}', {"scope": "all-scenes"}])
def test_inputs_are_json_text_or_data(inputs: Any) -> None:
    assert declared(inputs=inputs).inputs_json == '{"scope":"all-scenes"}'


def test_inputs_do_not_change_with_the_data_they_were_given_as() -> None:
    given = {"scope": "all"}
    spec = declared(inputs=given)
    given["scope"] = "none"
    assert spec.inputs_json == '{"scope":"all"}'


@pytest.mark.parametrize("inputs", ["{scope}", "", "[" * 100_000])
def test_inputs_that_are_not_json_are_refused(inputs: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid JSON for inputs: "):
        declared(inputs=inputs)


def test_inputs_without_a_json_form_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^invalid schedule spec: .*not JSON"):
        declared(inputs={"x": float("nan")})


def test_a_cron_trigger_has_no_path() -> None:
    assert (DAILY.kind, DAILY.expression, DAILY.timezone) == ("cron", "0 0 3 * * *", "Asia/Shanghai")
    assert (DAILY.jitter_secs, DAILY.path, DAILY.secret_env) == (120, None, None)


def test_a_webhook_has_no_expression() -> None:
    assert (HOOK.kind, HOOK.path, HOOK.secret_env) == ("webhook", "/webhooks/upload", "UPLOAD_SECRET")
    assert (HOOK.expression, HOOK.timezone, HOOK.jitter_secs) == (None, None, None)


def test_a_cron_trigger_is_in_utc_without_jitter_by_default() -> None:
    trigger = TriggerSpec.cron("@daily")
    assert (trigger.timezone, trigger.jitter_secs) == ("UTC", 0)


def test_several_expressions_and_several_secrets_are_kept() -> None:
    assert TriggerSpec.cron(["@daily", "@hourly"]).expression == ("@daily", "@hourly")
    assert TriggerSpec.webhook("/a", ("NEW", "OLD")).secret_env == ("NEW", "OLD")


def test_other_kinds_are_made_from_data() -> None:
    trigger = TriggerSpec.from_data({"kind": "interval", "every": "90s"})
    assert trigger.kind == "interval" and trigger.to_data() == {"kind": "interval", "every": "90s"}


@pytest.mark.parametrize(
    "attribute", ["id", "workflow", "trigger", "inputs_json", "enabled", "max_concurrent"]
)
def test_attributes_of_a_schedule_are_read_only(attribute: str) -> None:
    with pytest.raises(AttributeError):
        setattr(declared(), attribute, "other")


@pytest.mark.parametrize("attribute", ["kind", "expression", "timezone", "jitter_secs", "path", "secret_env"])
def test_attributes_of_a_trigger_are_read_only(attribute: str) -> None:
    with pytest.raises(AttributeError):
        setattr(DAILY, attribute, "other")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"id": " "}, "invalid schedule spec: schedule id is empty"),
        ({"id": "x", "workflow": "\t"}, 'invalid schedule spec: schedule "x": workflow name is empty'),
    ],
)
def test_a_blank_name_is_refused_in_known_words(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        declared(**keys)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"id": 5}, "id must be text"),
        ({"trigger": "0 0 3 * * *"}, "trigger must be a mapping"),
        ({"trigger": None}, '"trigger" is missing'),
        ({"max_concurrent": -1}, "max_concurrent must be from 0"),
        ({"max_concurrent": 2, "overlap": "allow"}, "overlap: allow lifts the limit"),
        ({"overlap": "sometimes"}, "overlap must be"),
        ({"dst": {"gap": "never"}}, "gap must be"),
        ({"exclude": {"date": ["2026-12-24"]}}, 'unknown key "date"'),
        ({"start_at": "tomorrow"}, "start_at must be"),
        ({"trigger": HOOK, "missed_run_policy": "run_all"}, "no meaning with a trigger of kind webhook"),
    ],
)
def test_a_schedule_with_a_mistake_cannot_be_made(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid schedule spec: ") as refused:
        declared(**keys)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TriggerSpec.cron("0 3 * * *"), 'write "0 0 3 * * *"'),
        (lambda: TriggerSpec.cron("30s"), "cron expression"),
        (lambda: TriggerSpec.cron("@daily", timezone="Mars/Olympus"), 'unknown timezone "Mars/Olympus"'),
        (lambda: TriggerSpec.cron("@daily", jitter_secs=-1), "jitter_secs must be"),
        (lambda: TriggerSpec.webhook("upload"), "webhook path must start with '/'"),
        (lambda: TriggerSpec.webhook("/api/v1"), "belongs to the server"),
        (lambda: TriggerSpec.from_data({}), '"kind" is missing'),
        (lambda: TriggerSpec.from_data(None), "the trigger is missing"),  # type: ignore[arg-type]
    ],
)
def test_a_trigger_with_a_mistake_cannot_be_made(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid schedule spec: ") as refused:
        make()
    assert words in str(refused.value)


def test_validate_accepts_what_could_be_made() -> None:
    declared(inputs='{"scope": "all-scenes"}').validate()


def test_keys_and_defaults_are_those_of_schedule_files() -> None:
    """A key that schedule files get must be a keyword argument here."""
    of_files = {name: default for name, _, default in fields_of(Definition)}
    here = {name: default for name, _, default in fields_of(ScheduleSpec)}
    mappings = {name for name, default in of_files.items() if isinstance(default, msgspec.Struct)}
    assert mappings == {"dst", "exclude"}
    assert here == of_files | dict.fromkeys(mappings)


def test_every_key_of_a_schedule_file_is_a_keyword_argument() -> None:
    spec = declared(
        overlap="buffer_one", missed_run_policy="run_all", max_catchup=5, grace_secs=10, dst={"fold": "both"},
        start_at="2026-01-01", end_at="2027-01-01", exclude={"dates": ["2026-12-24"]}, locking="node_local",
        pause_after_failures=3, strict_templates=True,
    )  # fmt: skip
    [again] = parse_schedules_yaml(msgspec.json.encode({"schedules": [spec.to_data()]}))
    assert again == spec


def test_a_file_becomes_schedules() -> None:
    nightly, upload = parse_schedules_yaml(NIGHTLY_AND_UPLOAD)
    assert (nightly.id, nightly.workflow, nightly.inputs_json) == (
        "nightly_cleanup",
        "scene_cleanup",
        '{"scope":"all-scenes"}',
    )
    assert (upload.trigger.path, upload.trigger.secret_env) == ("/webhooks/upload", "UPLOAD_WEBHOOK_SECRET")


@pytest.mark.parametrize("text", ["", "{}", "schedules:", "schedules: []"])
def test_an_empty_file_has_no_schedules(text: str) -> None:
    assert parse_schedules_yaml(text) == []


def test_a_mistake_in_a_file_is_placed_by_the_hint() -> None:
    text = NIGHTLY_AND_UPLOAD.replace("jitter_secs", "jitter_sec")
    with pytest.raises(ValueError, match=r"^nightly\.yaml:10:7: .*did you mean jitter_secs"):
        parse_schedules_yaml(text, path_hint="nightly.yaml")


def test_a_file_with_one_id_twice_is_refused() -> None:
    text = NIGHTLY_AND_UPLOAD.replace("on_upload", "nightly_cleanup")
    with pytest.raises(ValueError, match=r'<string>:14:.*duplicate schedule id "nightly_cleanup"'):
        parse_schedules_yaml(text)


def test_a_folder_gives_the_schedules_of_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "schedules.yaml").write_text(NIGHTLY_AND_UPLOAD)
    (tmp_path / "more.schedules.yml").write_text(
        NIGHTLY_AND_UPLOAD.replace("id: ", "id: more_").replace("/upload", "/more")
    )
    (tmp_path / "notes.yaml").write_text("schedules: [1]")
    config = SchedulerConfig.from_dir(tmp_path)
    assert [spec.id for spec in config.schedules] == [
        "more_nightly_cleanup", "more_on_upload", "nightly_cleanup", "on_upload",
    ]  # fmt: skip


def test_a_folder_with_one_id_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.schedules.yaml", "b.schedules.yaml"):
        (tmp_path / name).write_text(NIGHTLY_AND_UPLOAD)
    with pytest.raises(ValueError, match='duplicate schedule id "on_upload"'):
        SchedulerConfig.from_dir(tmp_path)


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SchedulerConfig.from_dir(tmp_path / "nowhere")


def test_the_signature_of_a_body_is_that_of_githubs_documentation() -> None:
    signature = hmac_sha256_hex(b"It's a Secret to Everybody", b"Hello, World!")
    assert signature == "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        (lambda right: right, True),
        (lambda right: right.replace("sha256", "SHA256"), True),
        (lambda right: right.removeprefix("sha256="), False),
        (lambda right: right.replace("sha256", "sha1"), False),
        (lambda right: f" {right}", False),
        (lambda right: "sha256=" + right.removeprefix("sha256=").upper(), False),
        (lambda right: None, False),
    ],
)
def test_a_header_is_the_signature_or_it_is_not(change: Any, is_right: bool) -> None:
    header = change(hmac_sha256_hex(b"shared-secret", b"body"))
    assert verify_hub_signature_256(b"shared-secret", b"body", header) is is_right
