"""Schedule files, from text to records and back.

    text ──read──► data ──tables──► ScheduleSpec ──check_together──► ids and paths are unique over all files

Combines the modules beside it. Must not know instants, cursors, runs, or which workflows exist. All problems are
reported at once, each with its place.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast import values
from holdfast.errors import InvalidSpec, Problem
from holdfast.nearest import did_you_mean, nearest
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.document import Document
from holdfast.spec.field_types import (
    Schema,
    fields_of,
    make,
    object_schema,
    read_record,
    read_table,
    required_in,
)
from holdfast.spec.patch import NO_PATCH, Patch, drop, put, replace
from holdfast.spec.problems import Fields, Report, Where, quoted, type_name
from holdfast.spec.read import PROBLEMS_MAX, parsed, plain_from, text_of
from holdfast.spec.schedule_check import check_schedule, check_together
from holdfast.spec.schedule_keys import (
    CALENDAR_KEYS,
    EXPRESSIONS_MAX,
    FILE_KEYS,
    SCHEDULE_KEYS,
    trigger_schema,
)
from holdfast.spec.schedule_record import ScheduleSpec, data_of
from holdfast.spec.schedule_trigger import NO_TRIGGER, blank_of, into_trigger, read_trigger, trigger_has
from holdfast.spec.triggers import Definition, Exclude, Place, RunTrigger, Trigger

_FILE_NAMES: Final = ("schedules.yaml", "schedules.yml")


class ScheduleFile(msgspec.Struct, frozen=True):
    source: str
    schedules: tuple[ScheduleSpec, ...] = ()
    notes: tuple[Problem, ...] = ()


def schedules_from_text(text: str | bytes, source: str = "") -> ScheduleFile:
    """Read one file; raise InvalidSpec with every problem, including ids and paths that occur twice."""
    return schedules_from_document(parsed(text, source))


def schedules_from_document(document: Document) -> ScheduleFile:
    source = document.source
    report = Report(document, source)
    schedules = _schedules(document.data, report)
    report.problems += check_together(schedules)[: max(PROBLEMS_MAX - len(report.problems), 0)]
    if report.problems:
        raise report.refusal()
    return ScheduleFile(source, schedules, tuple(report.notes))


def schedules_from_file(path: str | os.PathLike[str]) -> ScheduleFile:
    return schedules_from_text(text_of(path), os.fspath(path))


def schedule_files(folder: str | os.PathLike[str]) -> list[str]:
    """The schedule files of a folder, not of those beneath it: `schedules.yaml` and `*.schedules.yaml`, or `.yml`."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if is_schedule_file(entry.name) and _is_file(entry))
    return [os.path.join(folder, name) for name in names]


def _is_file(entry: os.DirEntry[str]) -> bool:
    """A broken link counts as a file, so that reading it reports the problem."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True


def is_schedule_file(name: str) -> bool:
    """Return whether a file holds schedules, by its name alone. Hidden files are left over from editors."""
    is_named_so = name in _FILE_NAMES or name.endswith(tuple(f".{name}" for name in _FILE_NAMES))
    return is_named_so and not name.startswith(".")


def holds_schedules(data: Any) -> bool:
    """Whether a document is a schedule file rather than a workflow, by its keys."""
    return isinstance(data, dict) and not FILE_KEYS.keys().isdisjoint(data) and "steps" not in data


def schedules_from_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[ScheduleFile, ...]:
    """Read files that are used together; raise InvalidSpec with every problem of all of them."""
    files: list[ScheduleFile] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            files.append(schedules_from_file(path))
        except InvalidSpec as refused:
            problems += refused.problems
        except OSError as error:
            message = f"{os.path.basename(path)} cannot be read: {error.strerror}"
            hint = "restore it, or delete it"
            problems.append(Problem("unreadable", message, hint=hint, source=os.fspath(path)))
    problems += check_together(spec for file in files for spec in file.schedules)
    if problems:
        raise InvalidSpec(problems)
    return tuple(files)


def schedule_from_data(data: Any, source: str = "") -> ScheduleSpec:
    """Make one schedule from plain JSON data. It has no calendars, which belong to files."""
    plain = plain_from(data, source)
    report = Report(None, source, data=plain)
    spec = _schedule(plain, report, (), {})
    if report.problems:
        raise report.refusal()
    return spec


def trigger_from_data(data: Any, source: str = "") -> Trigger:
    """Make one trigger from plain JSON data."""
    report = Report(None, source)
    trigger = read_trigger(plain_from(data, source), Fields(report, {}, ()))
    if trigger is NO_TRIGGER and not report.problems:
        report.add("missing_key", ("trigger",), "the trigger is missing", "give a mapping with a `kind`")
    if report.problems:
        raise report.refusal()
    return trigger


def data_of_trigger(trigger: Trigger) -> dict[str, Any]:
    """A trigger as plain data, without defaults."""
    return {"kind": trigger.kind} | data_of(trigger)


def schedule_from_text(text: str | bytes, schedule_id: str) -> ScheduleSpec:
    """Read one schedule, as YAML or JSON; its id is given, and may be left out of the text."""
    report = Report(document := parsed(text), "")
    data = document.data
    if isinstance(data, dict) and data.get("id", schedule_id) != schedule_id:
        message = f"the id is {quoted(data['id'])}, but {quoted(schedule_id)} is addressed"
        hint, patch = "leave the id out, or write the same one", replace(("id",), schedule_id)
        report.add("misplaced_key", ("id",), message, hint, patch=patch)
    spec = _schedule({**data, "id": schedule_id} if isinstance(data, dict) else data, report, (), {})
    if report.problems:
        raise report.refusal()
    return spec


def schedule_from_stored(text: str | bytes) -> ScheduleSpec:
    """Read a schedule that was stored."""
    report = Report(None, "", is_stored=True)
    spec = _schedule(values.decode(text), report, (), {})
    if report.problems:
        raise report.refusal()
    return spec


def of_skill(spec: ScheduleSpec, skill: str, workflows: Collection[str]) -> ScheduleSpec:
    """A schedule of a skill: a workflow of the skill takes precedence over a published one of the same name."""

    def exact(name: str) -> str:
        return f"{skill}::{name}" if name in workflows else name

    trigger = spec.trigger
    if isinstance(trigger, RunTrigger):
        trigger = msgspec.structs.replace(trigger, workflow=exact(trigger.workflow))
    return msgspec.structs.replace(spec, workflow=exact(spec.workflow), trigger=trigger)


def file_schema() -> Schema:
    """A schedule file as JSON Schema, for editors."""
    schedule = object_schema(SCHEDULE_KEYS, {key: default for _, key, default in fields_of(Definition)})
    schedule["properties"]["trigger"] = {"description": SCHEDULE_KEYS["trigger"].says, **trigger_schema()}
    calendar = object_schema(CALENDAR_KEYS, {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast schedules",
        "type": ["object", "null"],
        "properties": {
            "schedules": {"type": ["array", "null"], "items": schedule},
            "calendars": {"type": ["object", "null"], "additionalProperties": calendar},
        },
        "additionalProperties": False,
    }


# ------------------------------------------------------------------------------------------------------ reading


def _schedules(data: Any, report: Report) -> tuple[ScheduleSpec, ...]:
    """The schedules of a file. An empty document has none."""
    if data is None:
        return ()
    if not isinstance(data, dict):
        hint = "it starts with `schedules:`"
        near = {"schedules": data} if isinstance(data, list) else UNKNOWN
        report.add(
            "wrong_type", (), f"a schedule file must be a mapping, not {type_name(data)}", hint, near=near
        )
        return ()
    fields = Fields(report, data, ())
    fields.expect(FILE_KEYS, hint_of=_where_known, elsewhere=lambda key: _as_schedule(data, key))
    calendars = _calendars(fields)
    near = _schedules_of(data.get("schedules"))
    items = fields.get("schedules", list, "a list of schedules", near) or []
    return tuple(_schedule(item, report, ("schedules", index), calendars) for index, item in enumerate(items))


def _where_known(key: str) -> str:
    return "put it under `schedules:`, in an entry that starts with `- id: …`" if key in SCHEDULE_KEYS else ""


def _as_schedule(data: dict[str, Any], key: str) -> Patch:
    """A file that is one schedule itself gets the list around it."""
    if key not in SCHEDULE_KEYS or data.get("schedules") is not None:
        return NO_PATCH
    own = {name: value for name, value in data.items() if name not in FILE_KEYS}
    return put((), {name: value for name, value in data.items() if name in FILE_KEYS} | {"schedules": [own]})


def _schedules_of(value: Any) -> Any:
    """The list that a mapping stands for: one schedule, or schedules by their ids; or UNKNOWN."""
    if not isinstance(value, dict):
        return UNKNOWN
    if "trigger" in value or "workflow" in value:
        return [value]
    if not all(isinstance(one, dict) for one in value.values()):
        return UNKNOWN
    return [{"id": name, **one} for name, one in value.items()]


def _calendars(fields: Fields) -> dict[str, Exclude]:
    found = fields.get("calendars", dict, "a mapping of names to exclusions") or {}
    calendars = {}
    for name in found:
        inner = Fields(fields.report, found, ("calendars",))
        data = inner.get(name, dict, "a mapping")
        at, who = ("calendars", name), f"calendar {quoted(name)}: "
        calendars[name] = read_record(Exclude, CALENDAR_KEYS, Fields(fields.report, data or {}, at, who))
    return calendars


def _schedule(data: Any, report: Report, at: Where, calendars: Mapping[str, Exclude]) -> ScheduleSpec:
    place = Place(report.document, report.source, at)
    if not isinstance(data, dict):
        hint = "write `id`, `workflow` and `trigger`, each on its own line"
        report.add("wrong_type", at, f"a schedule must be a mapping, not {type_name(data)}", hint)
        return ScheduleSpec("", "", NO_TRIGGER, place=place)
    name = data.get("id")
    fields = Fields(
        report, data, at, f"schedule {quoted(name)}: " if isinstance(name, str) and name.strip() else ""
    )
    fields.expect(
        SCHEDULE_KEYS,
        required_in(SCHEDULE_KEYS),
        hint_of=trigger_has,
        elsewhere=lambda key: into_trigger(fields, key),
        blanks=lambda key: blank_of(fields, key),
    )
    found = read_table(SCHEDULE_KEYS, fields)
    found["trigger"] = read_trigger(found.get("trigger"), fields)
    found["exclude"] = _with_calendars(found.get("exclude", Exclude()), fields, calendars)
    spec = make(ScheduleSpec, found | {"place": place})
    check_schedule(spec, fields)
    return spec


def _with_calendars(exclude: Exclude, fields: Fields, calendars: Mapping[str, Exclude]) -> Exclude:
    for name in exclude.calendar:
        if name not in calendars:
            hint = did_you_mean(name, calendars) or "name it under `calendars:` at the top of the file"
            message = f"{fields.who}unknown calendar {quoted(name)}"
            at = (*fields.at, "exclude", "calendar")
            near = [
                found
                for one in exclude.calendar
                if (found := one if one in calendars else nearest(one, calendars))
            ]
            fields.report.add(
                "unknown_calendar", at, message, hint, patch=replace(at, near) if near else drop(at)
            )
        exclude += calendars.get(name, Exclude())
    count = len(set(exclude.expressions))
    if count > EXPRESSIONS_MAX:  # each of them is checked for each occurrence
        message = f"{fields.who}exclude and its calendars have {count:,} expressions; there may be {EXPRESSIONS_MAX}"
        hint = "join values with commas, or write dates and periods"
        fields.report.add("out_of_range", (*fields.at, "exclude"), message, hint)
    return exclude
