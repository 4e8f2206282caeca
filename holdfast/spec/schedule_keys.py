"""Every key of a schedule file: what it may hold, which kinds of trigger have it, and a sentence about each.

These tables define how schedules are read and the JSON Schema for editors. Must not know how a file is read, or whether two schedules
conflict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

import msgspec

from holdfast.nearest import did_you_mean
from holdfast.spec.conversions import UNKNOWN, duration_ms, interval_text
from holdfast.spec.cron import (
    INTERVAL_MS_MAX,
    INTERVAL_MS_MIN,
    Cron,
    CronError,
    Dst,
    expression_like,
    numbered_weekday,
    parse_expression,
    parse_interval,
)
from holdfast.spec.field_types import (
    Anything,
    Choice,
    Flag,
    Key,
    ListOf,
    Nested,
    Schema,
    Table,
    Text,
    TextOrTexts,
    Texts,
    Whole,
    object_schema,
)
from holdfast.spec.moments import Moment, instant_of, parse_moment
from holdfast.spec.patch import NO_PATCH, Patch, replace
from holdfast.spec.policy import NAME_CHARS_MAX
from holdfast.spec.problems import Fields, Where, meant, quoted
from holdfast.spec.triggers import (
    CLOCK_KINDS,
    AtTrigger,
    Between,
    CronTrigger,
    Dedup,
    EndStatus,
    Exclude,
    FileTrigger,
    IntervalTrigger,
    Locking,
    MissedRunPolicy,
    Overlap,
    PluginTrigger,
    RunTrigger,
    SourceTrigger,
    TriggerKind,
    WebhookTrigger,
)
from holdfast.spec.zones import unknown_zone, zone_names

FILE_FIELD_COUNTS: Final = frozenset({6, 7})  # an expression of 5 fields means something else to its author
EXPRESSIONS_MAX: Final = 100
SECS_MAX: Final = 366 * 86_400
COUNT_MAX: Final = 1_000_000
DESCRIPTION_CHARS_MAX: Final = 1_000
CONFIG_CHARS_MAX: Final = 64 * 1024
PRIORITY_MAX: Final = 2**32 - 1


# ---------------------------------------------------------------------------------- shapes of this notation alone


class Expressions(NamedTuple):
    """A cron expression, or a list of them."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        given = TextOrTexts("cron expression").read(fields, key)
        if given is None:
            return None
        texts = (given,) if isinstance(given, str) else given
        if len(texts) > EXPRESSIONS_MAX:
            message = f"{key} has {len(texts):,} expressions; there may be {EXPRESSIONS_MAX}"
            fields.wrong(fields.wrong_code, key, message, "join values with commas, as in 0 0 8,12,18 * * *")
            return None
        for index, text in enumerate(texts):
            at = (*fields.at, key) if isinstance(given, str) else (*fields.at, key, index)
            self._check(fields, at, text)
        return texts

    def _check(self, fields: Fields, at: Where, text: str) -> None:
        if fields.report.is_full:
            return
        try:
            found = parse_expression(text, FILE_FIELD_COUNTS)
        except CronError as refused:
            patch = self._repaired(fields, at, text)
            for problem in refused.problems:
                message = f"{fields.who}{problem.message}"
                fields.report.add(problem.code, at, message, problem.hint, patch=patch)
            return
        if isinstance(found, Cron) and (weekday := numbered_weekday(found)):
            message = f"{fields.who}weekday {weekday} counts from 1 = Sunday"
            fields.report.note("numbered_weekday", at, message, "names such as MON-FRI cannot be misread")

    def _repaired(self, fields: Fields, at: Where, text: str) -> Patch:
        better = expression_like(text.strip(), FILE_FIELD_COUNTS)
        if better is None:
            return NO_PATCH
        if not isinstance(at[-1], int):
            return replace(at, better if isinstance(better, str) else [*better])
        others = list(fields.data[str(at[-2])])
        others[at[-1] : at[-1] + 1] = [better] if isinstance(better, str) else better
        return replace(at, better) if isinstance(better, str) else replace(at[:-1], others)

    def schema(self) -> Schema:
        return TextOrTexts("cron expression").schema()


class CronText(NamedTuple):
    """A cron expression of any number of fields, an `@name` or an interval."""

    def read(self, fields: Fields, key: str) -> str | None:
        text: str | None = fields.get(key, str, "text")
        if text is None:
            return None
        try:
            parse_expression(text)
        except CronError as refused:
            problems = refused.problems
            hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
            message = "; ".join(problem.message for problem in problems)
            near = expression_like(text.strip())
            near = near if isinstance(near, str) else UNKNOWN
            fields.wrong(problems[0].code, key, message, "; ".join(hints), near)
            return None
        return text

    def schema(self) -> Schema:
        return {"type": "string"}


class IntervalText(NamedTuple):
    def read(self, fields: Fields, key: str) -> str | None:
        given = fields.data[key]
        is_number = isinstance(given, int) and not isinstance(given, bool)
        text = str(given) if is_number else fields.get(key, str, "an interval such as 30s or 1h30m")
        try:
            return None if text is None else parse_interval(text).text
        except CronError as refused:
            fields.wrong(
                "invalid_interval", key, str(refused), refused.problems[0].hint, self._like(str(text))
            )
            return None

    def _like(self, text: str) -> Any:
        ms = duration_ms(f"{text}s" if text.isascii() and text.isdigit() else text[:100])
        return UNKNOWN if ms is None else interval_text(min(max(ms, INTERVAL_MS_MIN), INTERVAL_MS_MAX))

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(\d+(ms|[smhdw]))+$"}


class ZoneName(NamedTuple):
    def read(self, fields: Fields, key: str) -> str | None:
        name: str | None = fields.get(key, str, "the name of a time zone")
        # Looking for the nearest of 600 names takes milliseconds, and no more problems are shown than the report holds.
        problem = None if name is None or fields.report.is_full else unknown_zone(name)
        if problem is None:
            return name if name in zone_names() else None
        message, hint = problem
        near = re.fullmatch(r"did you mean (\S+)\?", hint)
        fields.wrong("unknown_timezone", key, message, hint, near[1] if near else "UTC")
        return None

    def schema(self) -> Schema:
        return {"type": "string", "enum": sorted(zone_names())}


class MomentText(NamedTuple):
    """A date, a local time or an instant, as far as each is allowed."""

    is_instant: bool = False
    is_date: bool = False

    def read(self, fields: Fields, key: str) -> Moment | None:
        text: str | None = fields.get(key, str, self._wanted)
        return None if text is None else self.of(fields, (*fields.at, key), key, text)

    def of(self, fields: Fields, at: Where, key: str, text: str) -> Moment | None:
        moment = parse_moment(text)
        if moment is not None and self._allows(moment):
            return moment
        message = f"{fields.who}{key} must be {self._wanted}, not {quoted(text)}"
        near = instant_of(text)
        near = near[:10] if self.is_date and near is not UNKNOWN else near
        fields.report.add("invalid_time", at, message, self._hint(moment), near=near)
        return None

    def _allows(self, moment: Moment) -> bool:
        return not (self.is_instant and moment.is_local) and not (self.is_date and not moment.is_date)

    @property
    def _wanted(self) -> str:
        return "a date" if self.is_date else "an instant" if self.is_instant else "a date or a time"

    def _hint(self, moment: Moment | None) -> str:
        if self.is_date:
            return "write it as 2026-12-24"
        if self.is_instant and moment is not None and not moment.is_date:
            return f"add its offset, as in {moment.text}Z or {moment.text}+01:00"
        return (
            "write it as 2026-12-24T18:00:00Z"
            if self.is_instant
            else "write it as 2026-12-24T18:00:00 or 2026-12-24"
        )

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}"}


class Moments(NamedTuple):
    """A list of moments; with `or_one`, a single one too."""

    each: MomentText
    noun: str
    or_one: bool = False

    def read(self, fields: Fields, key: str) -> tuple[Moment, ...] | None:
        shape = TextOrTexts(self.noun) if self.or_one else Texts(self.noun)
        given = shape.read(fields, key)
        if given is None:
            return None
        if isinstance(given, str):
            one = self.each.of(fields, (*fields.at, key), key, given)
            return None if one is None else (one,)
        found = [self.each.of(fields, (*fields.at, key, i), key, text) for i, text in enumerate(given)]
        return tuple(moment for moment in found if moment is not None)

    def schema(self) -> Schema:
        return (TextOrTexts(self.noun) if self.or_one else Texts(self.noun)).schema()


class Stretches(NamedTuple):
    """A list of periods. An invalid one has been reported, and is omitted."""

    def read(self, fields: Fields, key: str) -> tuple[Between, ...] | None:
        found = ListOf(Between, BETWEEN_KEYS).read(fields, key)
        return found and tuple(
            one for one in found if isinstance(one.from_, Moment) and isinstance(one.to, Moment)
        )

    def schema(self) -> Schema:
        return ListOf(Between, BETWEEN_KEYS).schema()


class Names(NamedTuple):
    """A name, or a list of them."""

    noun: str

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        given = TextOrTexts(self.noun).read(fields, key)
        return (given,) if isinstance(given, str) else given

    def schema(self) -> Schema:
        return TextOrTexts(self.noun).schema()


class Statuses(NamedTuple):
    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        texts = Texts("status").read(fields, key)
        options = get_args(EndStatus)
        for index, text in enumerate(texts or ()):
            if text not in options:
                message = f"{fields.who}a status must be {' or '.join(options)}, not {quoted(text)}"
                hint = did_you_mean(text, options) or "write completed or failed"
                near = meant("choice", text, options)
                near = "completed" if near is UNKNOWN else near
                fields.report.add("invalid_choice", (*fields.at, key, index), message, hint, near=near)
        return texts or None

    def schema(self) -> Schema:
        return {
            "type": "array",
            "items": {"type": "string", "enum": list(get_args(EndStatus))},
            "minItems": 1,
        }


class SourceName(NamedTuple):
    def read(self, fields: Fields, key: str) -> str | None:
        text: str | None = fields.get(key, str, "text")
        if text is None or all(part.strip() for part in text.split(":")) and text.count(":") == 1:
            return text
        fields.wrong(
            "invalid_source",
            key,
            f"{key} must be module:function, not {quoted(text)}",
            "write package.module:function",
        )
        return None

    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^[^:]+:[^:]+$"}


# ------------------------------------------------------------------------------------------------------- tables

_JITTER: Final = Key(
    Whole(0, SECS_MAX), "Delay each fire by up to this many seconds, differently for each occurrence."
)

Kinds = Mapping[TriggerKind, tuple[type[msgspec.Struct], Table]]

TRIGGER_KEYS: Final[Kinds] = {
    "cron": (CronTrigger, {
        "expression": Key(Expressions(), "A cron expression of 6 or 7 fields (second minute hour day month weekday [year]), a name such as @daily, or a list of them.", required=True),
        "timezone": Key(ZoneName(), "The IANA name of the time zone."),
        "jitter_secs": _JITTER,
    }),
    "interval": (IntervalTrigger, {
        "every": Key(IntervalText(), "The time between two fires, such as 30s or 1h30m, from 100ms to 366d.", required=True),
        "jitter_secs": _JITTER,
    }),
    "at": (AtTrigger, {
        "at": Key(Moments(MomentText(is_instant=True), "instant", or_one=True), "One instant such as 2026-12-24T18:00:00Z, or a list of them.", required=True),
        "jitter_secs": _JITTER,
    }),
    "webhook": (WebhookTrigger, {
        "path": Key(Text(), "The path on the server to which events are posted. No placeholders.", required=True),
        "secret_env": Key(Names("variable"), "The environment variable with the secret that signs the bodies; a list while you replace a secret."),
    }),
    "run": (RunTrigger, {
        "workflow": Key(Text(chars_max=NAME_CHARS_MAX), "The workflow whose runs start this one when they end.", required=True),
        "statuses": Key(Statuses(), "The statuses with which they must end."),
        "delay_secs": Key(Whole(0, SECS_MAX), "How long to wait after their end, in seconds."),
    }),
    "file": (FileTrigger, {
        "path": Key(Text(), "The folder to watch.", required=True),
        "pattern": Key(Text(), "Which file names count, such as *.csv."),
        "stable_secs": Key(Whole(0, SECS_MAX), "For how many seconds size and modification time must not change."),
        "identity": Key(Choice(("path_size_time", "content")), "When two files count as the same: same path, size and time, or same content."),
    }),
    "source": (SourceTrigger, {
        "source": Key(SourceName(), "An async generator that yields events, as module:function.", required=True),
    }),
}  # fmt: skip

# What plugins declare, one mapping for each schedule.
PLUGIN_KEYS: Final[Table] = {
    "id": Key(Text(chars_max=NAME_CHARS_MAX), "The name of the schedule, unique in the plugin.", required=True),
    "description": Key(Text(chars_max=DESCRIPTION_CHARS_MAX), "The purpose of the schedule."),
    "cron": Key(CronText(), "A cron expression of 5, 6 or 7 fields, a name such as @daily, or an interval such as 30s.", required=True),
    "jitter_ms": Key(Whole(0, 1_000 * SECS_MAX), "Delays each fire by a random number of milliseconds, up to this value."),
    "missed_run_policy": Key(Choice(get_args(MissedRunPolicy)), "What to do with occurrences that were due while no engine was running."),
    "locking": Key(Choice(get_args(Locking)), "Which nodes fire: one of them, or with node_local each for itself."),
    "config_json": Key(Text(chars_max=CONFIG_CHARS_MAX), "For the plugin itself; never parsed."),
}  # fmt: skip

# Kinds that are stored, and cannot be written in a file.
STORED_TRIGGER_KEYS: Final[Kinds] = {
    **TRIGGER_KEYS,
    "plugin": (PluginTrigger, {
        "plugin": Key(Text(chars_max=NAME_CHARS_MAX), "The name of the plugin.", required=True),
        "priority": Key(Whole(0, PRIORITY_MAX), "Of plugins that are due together, the lower number starts first."),
        **{key: PLUGIN_KEYS[key] for key in ("cron", "jitter_ms", "description", "config_json")},
    }),
}  # fmt: skip

BETWEEN_KEYS: Final[Table] = {
    "from": Key(MomentText(), "The start.", required=True),
    "to": Key(MomentText(), "The end, exclusive; a date includes the whole day.", required=True),
}
CALENDAR_KEYS: Final[Table] = {
    "dates": Key(Moments(MomentText(is_date=True), "date"), "Whole days in the time zone of the schedule."),
    "between": Key(Stretches(), "Periods."),
    "expressions": Key(
        Expressions(),
        "Every time that matches one of these cron expressions in the time zone of the schedule.",
    ),
}
EXCLUDE_KEYS: Final[Table] = {
    **CALENDAR_KEYS,
    "calendar": Key(Names("calendar"), "Names of calendars of this file."),
}
DST_KEYS: Final[Table] = {
    "gap": Key(
        Choice(("run_after", "skip")),
        "A fixed time that does not exist because clocks go forward: fire at the first time after the gap, or not at all.",
    ),
    "fold": Key(
        Choice(("first", "second", "both")),
        "A fixed time that comes twice because clocks go back: which of the two fires.",
    ),
}

SCHEDULE_KEYS: Final[Table] = {
    "id": Key(Text(chars_max=NAME_CHARS_MAX), "The name of the schedule, unique in all files.", required=True),
    "workflow": Key(Text(chars_max=NAME_CHARS_MAX), "The name of the workflow to start.", required=True),
    "trigger": Key(Anything(), "What starts a run.", required=True),
    "inputs": Key(Anything(), "The inputs of the run, with placeholders such as {{trigger.payload.x}}."),
    "enabled": Key(Flag(), "false: the schedule is loaded, but never fires."),
    "max_concurrent": Key(Whole(0, COUNT_MAX), "Maximum number of open runs of this schedule; 0: no limit."),
    "overlap": Key(Choice(get_args(Overlap)), "What to do with an occurrence at that limit."),
    "missed_run_policy": Key(Choice(get_args(MissedRunPolicy)), "What to do with occurrences that were due while no engine was running."),
    "max_catchup": Key(Whole(0, COUNT_MAX), "How many missed occurrences to catch up, the newest; 0: all."),
    "grace_secs": Key(Whole(0, SECS_MAX), "An occurrence that an engine reaches within this many seconds was not missed, only late."),
    "dst": Key(Nested(Dst, DST_KEYS), "What to do with fixed times when clocks change."),
    "start_at": Key(MomentText(), "The schedule does not fire before this time."),
    "end_at": Key(MomentText(), "The schedule does not fire after this time."),
    "exclude": Key(Nested(Exclude, EXCLUDE_KEYS), "When the schedule does not fire."),
    "locking": Key(Choice(get_args(Locking)), "Which nodes fire: one of them, or with node_local each for itself."),
    "pause_after_failures": Key(Whole(0, COUNT_MAX), "Pause the schedule after this many failed runs in a row; 0: never."),
    "strict_templates": Key(Flag(), "true: an occurrence with a placeholder that cannot be filled in does not start a run."),
    "echo_inputs": Key(Flag(), "false: the response to a webhook does not contain the inputs."),
    "dedup": Key(Choice(get_args(Dedup)), "How a repeated delivery is recognised: by its delivery id, by its body, or not at all."),
    "allow_unsigned": Key(Flag(), "true: accept a webhook without a secret although the server requires API keys."),
}  # fmt: skip

_CLOCK: Final = tuple(kind for kind in TRIGGER_KEYS if kind in CLOCK_KINDS)
# Keys that mean something for some kinds of trigger only.
KINDS_OF_KEY: Final[dict[str, tuple[str, ...]]] = {
    "dst": ("cron",),
    "missed_run_policy": _CLOCK,
    "max_catchup": _CLOCK,
    "grace_secs": _CLOCK,
    "start_at": _CLOCK,
    "end_at": _CLOCK,
    "exclude": _CLOCK,
    "locking": _CLOCK,
    "echo_inputs": ("webhook",),
    "dedup": ("webhook",),
    "allow_unsigned": ("webhook",),
}

FILE_KEYS: Final[Table] = {
    "schedules": Key(Anything(), "The schedules of the file."),
    "calendars": Key(Anything(), "Named exclusions that the schedules of this file can share."),
}


def trigger_schema() -> Schema:
    kinds: list[Any] = []
    for kind, (_, table) in TRIGGER_KEYS.items():
        schema = object_schema(table, {})
        schema["properties"] = {"kind": {"const": kind}, **schema["properties"]}
        schema["required"] = ["kind", *schema["required"]]
        kinds.append(schema)
    return {"oneOf": kinds}
