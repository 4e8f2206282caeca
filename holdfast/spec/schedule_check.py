"""Rules that concern several keys of a schedule, or several schedules together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.errors import Problem
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.names import check_name
from holdfast.spec.patch import replace
from holdfast.spec.placeholders import leads_nowhere, placeholders
from holdfast.spec.problems import Fields, Where, quoted
from holdfast.spec.schedule_keys import KINDS_OF_KEY
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.schedule_trigger import NO_TRIGGER, blank_of
from holdfast.spec.triggers import (
    PLUGIN,
    ClockTrigger,
    FileTrigger,
    RunTrigger,
    SourceTrigger,
    WebhookTrigger,
)


def check_together(schedules: Iterable[ScheduleSpec]) -> list[Problem]:
    """Problems of several schedules together, over all files: an id or a webhook path that occurs twice."""
    problems: list[Problem] = []
    ids: dict[str, ScheduleSpec] = {}
    paths: dict[str, ScheduleSpec] = {}
    for spec in schedules:
        if spec.id.strip() and (first := ids.setdefault(spec.id, spec)) is not spec:
            message = f"duplicate schedule id {quoted(spec.id)}"
            problems.append(_twice(spec, "duplicate_id", ("id",), message, first))
        if isinstance(spec.trigger, WebhookTrigger) and spec.trigger.path:
            first = paths.setdefault(spec.trigger.path, spec)
            if first is not spec:
                message = f"schedules {quoted(first.id)} and {quoted(spec.id)} have the same path {quoted(spec.trigger.path)}"
                problems.append(_twice(spec, "duplicate_path", ("trigger", "path"), message, first))
    return problems


def check_signed(schedules: Iterable[ScheduleSpec]) -> list[Problem]:
    """Problems on a server that requires API keys: webhooks that anyone could post to, unless the author allows it."""
    hint = "add `secret_env: NAME` to its trigger, or `allow_unsigned: true` to the schedule"
    return [
        spec.problem(
            "unsigned_webhook",
            ("trigger",),
            f"schedule {quoted(spec.id)}: the webhook has no secret, and this server requires credentials",
            hint,
        )
        for spec in schedules
        if isinstance(spec.trigger, WebhookTrigger)
        and not spec.trigger.secret_env
        and not spec.allow_unsigned
    ]


def check_reach(schedules: Iterable[ScheduleSpec]) -> list[Problem]:
    """Problems on a server that requires API keys, for schedules from callers: triggers that read its files or run
    its code."""
    return [
        spec.problem(
            "operators_only",
            ("trigger", "kind"),
            f"schedule {quoted(spec.id)}: a trigger of kind {spec.trigger.kind} reaches the server's own files or code",
            "the operator of the server can put it into a schedule file (--schedules)",
        )
        for spec in schedules
        if isinstance(spec.trigger, FileTrigger | SourceTrigger)
    ]


def check_schedule(spec: ScheduleSpec, fields: Fields) -> None:
    """Check the rules between the keys of one schedule."""
    for key, noun in (("id", "schedule id"), ("workflow", "workflow name")):
        text = getattr(spec, key)
        if isinstance(fields.data.get(key), str):
            if not text.strip():
                near = blank_of(fields, key)
                fields.wrong("empty_name", key, f"{noun} is empty", f"write `{key}: …`", near)
            else:
                check_name(fields.report, (*fields.at, key), text)
    if spec.id.startswith(PLUGIN) and not fields.report.is_stored:
        message = f"ids that begin with {PLUGIN} belong to the schedules of plugins"
        fields.wrong(
            "invalid_name", "id", message, "choose another id", spec.id.removeprefix(PLUGIN) or UNKNOWN
        )
    limit = fields.data.get("max_concurrent")
    if spec.overlap == "allow" and isinstance(limit, int) and limit >= 1:
        message = f"overlap: allow lifts the limit of max_concurrent: {limit}"
        fields.wrong("exclusive_keys", "overlap", message, "leave one of them out")
    if spec.trigger is not NO_TRIGGER and not fields.report.is_stored:
        _check_kinds(spec.trigger.kind, fields)
        _check_events(spec, fields)
        _check_placeholders(spec, fields)
    _check_bounds(spec, fields)


def _check_kinds(kind: str, fields: Fields) -> None:
    for key, kinds in KINDS_OF_KEY.items():
        if fields.data.get(key) is not None and kind not in kinds:
            message = f"{fields.who}{key} has no meaning with a trigger of kind {kind}"
            hint = (
                f"it belongs to the kinds {', '.join(kinds)}"
                if len(kinds) > 1
                else f"it belongs to the kind {kinds[0]}"
            )
            fields.report.add("misplaced_key", (*fields.at, key), message, hint, of_key=True)


def _check_events(spec: ScheduleSpec, fields: Fields) -> None:
    """Check triggers whose events come from elsewhere, without a sender that could send them again."""
    if isinstance(spec.trigger, RunTrigger) and spec.trigger.workflow == spec.workflow:
        message = f"each run of {quoted(spec.workflow)} would start the next one, without end"
        fields.wrong("endless_loop", "workflow", message, "start another workflow")
    if spec.trigger.kind in ("run", "file", "source") and spec.overlap == "skip" and spec.max_concurrent:
        message = f"{fields.who}events that come while a run is open are skipped"
        hint = "write overlap: buffer_all to keep them, or max_concurrent: 0 for any number of runs"
        fields.report.note("events_are_skipped", (*fields.at, "trigger"), message, hint)


def _check_placeholders(spec: ScheduleSpec, fields: Fields) -> None:
    """Report placeholders that are never filled in. A run would receive them verbatim, so a misspelt one would be noticed late."""
    has_payload = not isinstance(spec.trigger, ClockTrigger)
    for at, text in _texts(spec.inputs, (*fields.at, "inputs")):
        for placeholder in placeholders(text):
            if fields.report.has_notes_enough:
                return
            if (wrong := leads_nowhere(placeholder.path, has_payload=has_payload)) is not None:
                why, hint = wrong
                found = quoted(f"{{{{{placeholder.path}}}}}")
                message = f"{fields.who}{found} is not filled in: {why}"
                fields.report.note("unfilled_placeholder", at, message, hint)


def _texts(value: Any, at: Where) -> Iterator[tuple[Where, str]]:
    """Every text of the inputs, with its place; keys are not filled in."""
    match value:
        case str():
            yield at, value
        case dict():
            for key, member in value.items():
                yield from _texts(member, (*at, key))
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, (*at, index))
        case _:
            pass


def _check_bounds(spec: ScheduleSpec, fields: Fields) -> None:
    start, end = spec.start_at, spec.end_at
    if start and end and start.is_local == end.is_local and start.ms > end.ms:
        patch = (*replace((*fields.at, "start_at"), end.text), *replace((*fields.at, "end_at"), start.text))
        message = f"end_at is before start_at, {start.text}"
        fields.wrong("out_of_range", "end_at", message, "exchange them", patch=patch)
    for index, between in enumerate(spec.exclude.between):
        first, last = between.from_, between.to
        if first.is_local == last.is_local and first.ms > last.ms:
            at = (*fields.at, "exclude", "between", index, "to")
            patch = (*replace((*at[:-1], "from"), last.text), *replace(at, first.text))
            message = f"{fields.who}to is before from, {first.text}"
            fields.report.add("out_of_range", at, message, "exchange them", patch=patch)


def _twice(spec: ScheduleSpec, code: str, keys: Where, message: str, first: ScheduleSpec) -> Problem:
    earlier = first.problem(code, keys, message)
    is_same_file = earlier.source == spec.place.source
    where = f"line {earlier.line}" if is_same_file else f"{earlier.source}, line {earlier.line}"
    return spec.problem(code, keys, message, f"the first is in {where}")
