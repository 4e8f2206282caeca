"""Schedule files, from text to records and back.

    text ──read──► data ──tables──► ScheduleSpec ──check_together──► ids and paths are unique over all files

Puts together what the files beside it know. Must not know instants, cursors, runs, or workflows that exist. All problems are
reported at once, each with its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast import values
from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.cron import expression_like
from holdfast.spec.field_types import (
    Schema,
    Table,
    fields_of,
    make,
    object_schema,
    read_record,
    read_table,
    required_in,
)
from holdfast.spec.moments import Moment
from holdfast.spec.names import check_name
from holdfast.spec.patch import NO_PATCH, Patch, drop, move, put, replace
from holdfast.spec.problems import Fields, Report, Where, did_you_mean, nearest, quoted, type_name
from holdfast.spec.problems import meant as meant_word
from holdfast.spec.read import PROBLEMS_MAX, Document, parsed, plain_from, pointer_to, text_of
from holdfast.spec.repairs import Source, name_from, patch_for
from holdfast.spec.schedule_keys import (
    CALENDAR_KEYS,
    EXPRESSIONS_MAX,
    FILE_FIELD_COUNTS,
    FILE_KEYS,
    KINDS_OF_KEY,
    SCHEDULE_KEYS,
    STORED_TRIGGER_KEYS,
    TRIGGER_KEYS,
    Kinds,
    trigger_schema,
)
from holdfast.spec.triggers import (
    PLUGIN,
    CronTrigger,
    Definition,
    Exclude,
    FileTrigger,
    Place,
    RunTrigger,
    SourceTrigger,
    Trigger,
    TriggerKind,
    WebhookTrigger,
)

_FILE_NAMES: Final = ("schedules.yaml", "schedules.yml")

# The first segments of paths that the server itself answers.
SERVER_PATHS: Final = frozenset({
    "api", "mcp", "workers", "tasks", "flows", "workflows", "register", "heartbeat", "list", "allocate", "approve", "approve.css", "docs",
    "openapi.json", "healthz", "readyz", "metrics", "favicon.ico", "assets", "ui",
})  # fmt: skip


class ScheduleSpec(Definition, frozen=True):
    place: Place = Place()

    def to_data(self) -> dict[str, Any]:
        """The schedule as plain data, without defaults."""
        return {key: value for key, value in _data(self).items() if key != "place"}

    def canonical(self) -> bytes:
        """One text per schedule, whatever order or explicit defaults it was written with."""
        return values.canonical(self.to_data())

    def problem(self, code: str, keys: Where, message: str, hint: str = "") -> Problem:
        """A problem of this schedule, placed at one of its keys if it was read from a text."""
        pointer = pointer_to((*self.place.at, *keys))
        line, column = self.place.document.mark(pointer) if self.place.document else (0, 0)
        at = (*self.place.at, *keys)
        given = Source(self.place.document.data) if self.place.document else Source()
        patch = patch_for(code, at, UNKNOWN, given)
        return Problem(code, message, pointer, line, column, hint, self.place.source, patch)


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
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    return [os.path.join(folder, name) for name in names if is_schedule_file(name)]


def is_schedule_file(name: str) -> bool:
    """Whether a file holds schedules, by its name alone. Hidden files are what editors leave."""
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
            problems.append(
                Problem("unreadable", f"cannot be read: {error.strerror}", source=os.fspath(path))
            )
    problems += check_together(spec for file in files for spec in file.schedules)
    if problems:
        raise InvalidSpec(problems)
    return tuple(files)


def schedule_from_data(data: Any, source: str = "") -> ScheduleSpec:
    """Make one schedule from plain data, as JSON has it. It has no calendars of a file."""
    plain = plain_from(data, source)
    report = Report(None, source, data=plain)
    spec = _schedule(plain, report, (), {})
    if report.problems:
        raise report.refusal()
    return spec


def trigger_from_data(data: Any, source: str = "") -> Trigger:
    """Make one trigger from plain data, as JSON has it."""
    report = Report(None, source)
    trigger = _trigger(plain_from(data, source), Fields(report, {}, ()))
    if trigger is _NO_TRIGGER and not report.problems:
        report.add("missing_key", ("trigger",), "the trigger is missing", "give a mapping with a `kind`")
    if report.problems:
        raise report.refusal()
    return trigger


def data_of_trigger(trigger: Trigger) -> dict[str, Any]:
    """A trigger as plain data, without defaults."""
    return {"kind": trigger.kind} | _data(trigger)


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


def of_skill(spec: ScheduleSpec, skill: str, workflows: Collection[str]) -> ScheduleSpec:
    """A schedule of a skill: a workflow that the skill has itself is meant before a published one of the same name."""

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
    """The list that a mapping was meant to be: one schedule, or schedules by their ids; or UNKNOWN."""
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
        return ScheduleSpec("", "", _NO_TRIGGER, place=place)
    name = data.get("id")
    fields = Fields(
        report, data, at, f"schedule {quoted(name)}: " if isinstance(name, str) and name.strip() else ""
    )
    fields.expect(
        SCHEDULE_KEYS,
        required_in(SCHEDULE_KEYS),
        hint_of=_trigger_has,
        elsewhere=lambda key: _into_trigger(fields, key),
        blanks=lambda key: _blank_of(fields, key),
    )
    found = read_table(SCHEDULE_KEYS, fields)
    found["trigger"] = _trigger(found.get("trigger"), fields)
    found["exclude"] = _with_calendars(found.get("exclude", Exclude()), fields, calendars)
    spec = make(ScheduleSpec, found | {"place": place})
    _check(spec, fields)
    return spec


_NO_TRIGGER: Final = CronTrigger(())


def _trigger_has(key: str) -> str:
    kinds = [kind for kind, (_, table) in TRIGGER_KEYS.items() if key in table]
    return f"put it under `trigger:`, which has it for kind {', '.join(kinds)}" if kinds else ""


def _into_trigger(fields: Fields, key: str) -> Patch:
    """A key of a trigger that stands beside it goes into it."""
    kinds = [kind for kind, (_, table) in TRIGGER_KEYS.items() if key in table]
    if not kinds:
        return NO_PATCH
    at, trigger = (*fields.at, "trigger"), fields.data.get("trigger")
    if isinstance(trigger, dict):
        return move((*fields.at, key), (*at, key))
    made = {"kind": kinds[0]} | {
        name: value for name, value in fields.data.items() if name in TRIGGER_KEYS[kinds[0]][1]
    }
    others = {name: value for name, value in fields.data.items() if name not in made}
    return (
        replace(fields.at, others | {"trigger": made}) if fields.at else put((), others | {"trigger": made})
    )


def _blank_of(fields: Fields, key: str) -> Any:
    """A schedule and its workflow are called alike where one of them has no name."""
    other = fields.data.get({"id": "workflow", "workflow": "id"}.get(key, ""))
    if isinstance(other, str) and other.strip():
        return other
    return f"schedule_{fields.at[-1]}" if key == "id" and fields.at else UNKNOWN


def _trigger_like(value: Any) -> Any:
    """The trigger that a single text means: a cron expression, an interval or a path; or UNKNOWN."""
    if not isinstance(value, str):
        return UNKNOWN
    if value.startswith("/"):
        return {"kind": "webhook", "path": value}
    found = expression_like(value.strip()[:200], FILE_FIELD_COUNTS)
    if found is None:
        return UNKNOWN
    return {"kind": "cron", "expression": found if isinstance(found, str) else [*found]}


def _trigger(data: Any, fields: Fields) -> Trigger:
    at = (*fields.at, "trigger")
    if data is None:
        return _NO_TRIGGER
    if not isinstance(data, dict):
        hint = 'write `trigger: {kind: cron, expression: "0 0 3 * * *"}`'
        message, near = f"trigger must be a mapping, not {type_name(data)}", _trigger_like(data)
        fields.wrong("wrong_type", "trigger", message, hint, near)
        return _NO_TRIGGER
    inner = Fields(fields.report, data, at, f"{fields.who}trigger: ")
    kind = _kind(inner)
    if kind is None:
        return _NO_TRIGGER
    record, table = _kinds(fields.report)[kind]
    inner.expect(
        {"kind", *table},
        required_in(table),
        hint_of=_schedule_has,
        elsewhere=lambda key: move((*at, key), (*fields.at, key)) if key in SCHEDULE_KEYS else NO_PATCH,
    )
    trigger: Any = make(record, _blank(table) | read_table(table, inner))
    if isinstance(trigger, WebhookTrigger):
        _check_path(trigger.path, inner)
    return trigger  # type: ignore[no-any-return]


def _blank(table: Table) -> dict[str, Any]:
    """Lists that are required and could not be read, which has been reported."""
    return {key: () for key in ("expression", "at") if key in table}


def _schedule_has(key: str) -> str:
    return "put it on the schedule, beside `trigger:`" if key in SCHEDULE_KEYS else ""


def _kinds(report: Report) -> Kinds:
    return STORED_TRIGGER_KEYS if report.is_stored else TRIGGER_KEYS


def _kind(fields: Fields) -> TriggerKind | None:
    kinds = [*TRIGGER_KEYS]
    if fields.data.get("kind") is None:
        meant = [
            kind for kind, (_, table) in TRIGGER_KEYS.items() if not table.keys().isdisjoint(fields.data)
        ]
        hint = f"did you mean kind: {meant[0]}?" if meant else f"the kinds are {', '.join(kinds)}"
        fields.wrong(
            "missing_key",
            "kind",
            'the key "kind" is missing',
            hint,
            meant[0] if meant else _kind_like(fields),
        )
        return None
    word = fields.get("kind", str, "text")
    for kind in _kinds(fields.report):
        if word == kind:
            return kind
    if word is not None:
        message = f"unknown kind {quoted(word)}; the kinds are {', '.join(kinds)}"
        near = UNKNOWN if fields.report.is_full else meant_word("kind", word, kinds)
        hint = did_you_mean(word, kinds) or "choose one of them"
        fields.wrong("unknown_kind", "kind", message, hint, _kind_like(fields) if near is UNKNOWN else near)
    return None


def _kind_like(fields: Fields) -> Any:
    """The kind of trigger whose keys, under whatever name, are given."""
    for kind, (_, table) in TRIGGER_KEYS.items():
        if any(key in table or fields.meant_key(key, table) for key in fields.data if key != "kind"):
            return kind
    return UNKNOWN


def _check_path(path: str, fields: Fields) -> None:
    """Literal paths that the server does not answer itself."""
    if not path:
        return
    message, hint = "", "write its own path, such as /hooks/upload"
    if not path.startswith("/"):
        message, hint = "webhook path must start with '/'", f"write /{path}"
    elif path.split("/")[1] in SERVER_PATHS or path == "/":
        message = f"the path {quoted(path)} belongs to the server"
    elif (
        any(character in path for character in "{}?#%*\\ ")
        or "//" in path
        or not path.isprintable()
        or path.endswith("/")
    ):
        message, hint = (
            f"the path {quoted(path)} is not a literal path",
            "write /hooks/upload: no braces, blanks or query",
        )
    if message:
        fields.wrong("invalid_path", "path", message, hint, _path_like(path))


def _path_like(path: str) -> str:
    """A literal path that the server does not answer itself."""
    parts = [name_from(part) for part in re.sub(r"^\w+://[^/]*", "", path[:500]).split("/")]
    parts = [part for part in parts if part]
    if not parts or parts[0] in SERVER_PATHS:
        parts = ["hooks", *(parts or ["event"])]
    return "/" + "/".join(parts)


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
    if count > EXPRESSIONS_MAX:  # each of them is looked at for each occurrence
        message = f"{fields.who}exclude and its calendars have {count:,} expressions; there may be {EXPRESSIONS_MAX}"
        hint = "join values with commas, or write dates and periods"
        fields.report.add("out_of_range", (*fields.at, "exclude"), message, hint)
    return exclude


def _check(spec: ScheduleSpec, fields: Fields) -> None:
    """Check the rules between the keys of one schedule."""
    for key, noun in (("id", "schedule id"), ("workflow", "workflow name")):
        text = getattr(spec, key)
        if isinstance(fields.data.get(key), str):
            if not text.strip():
                near = _blank_of(fields, key)
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
    if spec.trigger is not _NO_TRIGGER and not fields.report.is_stored:
        _check_kinds(spec.trigger.kind, fields)
        _check_events(spec, fields)
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
    """Triggers whose events come from elsewhere, without a sender that could send them again."""
    if isinstance(spec.trigger, RunTrigger) and spec.trigger.workflow == spec.workflow:
        message = f"each run of {quoted(spec.workflow)} would start the next one, for ever"
        fields.wrong("endless_loop", "workflow", message, "start another workflow")
    if spec.trigger.kind in ("run", "file", "source") and spec.overlap == "skip" and spec.max_concurrent:
        message = f"{fields.who}events that come while a run is open are skipped"
        hint = "write overlap: buffer_all to keep them, or max_concurrent: 0 for any number of runs"
        fields.report.note("events_are_skipped", (*fields.at, "trigger"), message, hint)


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


# ------------------------------------------------------------------------------------------------------ writing


def _data(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, by their names in the notation. Calendars have been written out."""
    fields = ((key, getattr(struct, name), default) for name, key, default in fields_of(type(struct)))
    return {key: _plain(value) for key, value, default in fields if value != default and key != "calendar"}


def _plain(value: Any) -> Any:
    match value:
        case Moment():
            return value.text
        case Document() | Place():
            return None
        case msgspec.Struct():
            kind = getattr(type(value), "kind", None)
            return ({"kind": kind} if kind else {}) | _data(value)
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value
