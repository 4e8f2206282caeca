"""The types of keys: how a value is read, and its JSON Schema for editors.

Each type defines both in one place, so that parsing and documentation cannot differ. Knows types and
ranges. Must not know which keys there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast import limits
from holdfast.spec.conversions import UNKNOWN, converted
from holdfast.spec.expr import ExprError, Ref, parse_template
from holdfast.spec.labels import LABEL_PATTERN, label_problem
from holdfast.spec.patch import drop, replace
from holdfast.spec.policy import TIMEOUT_SECS_MAX
from holdfast.spec.problems import Fields, Where, hint_for_type, meant, quoted, type_name

Schema = dict[str, Any]
Record = TypeVar("Record", bound=msgspec.Struct)


class Shape(Protocol):
    def read(self, fields: Fields, key: str) -> Any:
        """The value of a key that is present, or None once it has been reported as wrong."""

    def schema(self) -> Schema:
        """The same as JSON Schema."""


# What the value of a key refers to: nothing; the values of the run, in templates; the same and secrets, in the arguments
# of a call; or the values of the run, in JSONPaths and comparisons of them.
Holds = Literal["data", "templates", "arguments", "paths"]


class Key(NamedTuple):
    """A key of the notation. `says` is the sentence that an editor shows beside it."""

    shape: Shape
    says: str
    required: bool = False
    holds: Holds = "data"


Table = Mapping[str, Key]


def read_table(table: Table, fields: Fields) -> dict[str, Any]:
    """The values of the keys that were given and make sense, by their names in the notation."""
    given = {name: fields.data[name] for name in table if fields.data.get(name) is not None}
    found = {name: table[name].shape.read(fields, name) for name in given}
    return {name: value for name, value in found.items() if value is not None}


def make(record: type[Record], values: Mapping[str, Any]) -> Record:
    """A record of values by their names in the notation. A text that is missing was reported, and is empty."""
    names = _names(record)
    return record(**_blanks(record) | {names[key]: value for key, value in values.items()})


def required_in(table: Table) -> list[str]:
    return [name for name, key in table.items() if key.required]


# A placeholder for a required value that is missing, so that reading can go on.
_BLANKS: Final[dict[str, Any]] = {"max_attempts": 3, "need": 1, "after_secs": 3_600}


def read_record(record: type[Record], table: Table, fields: Fields) -> Record:
    fields.expect(table, required=required_in(table), blanks=lambda key: _BLANKS.get(key, UNKNOWN))
    return make(record, read_table(table, fields))


@cache  # msgspec would compute this from the annotations each time
def fields_of(record: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """The name, the key and the default of each field of a record."""
    return tuple(
        (field.name, field.encode_name, field.default)
        if field.default_factory is msgspec.NODEFAULT
        else (field.name, field.encode_name, field.default_factory())
        for field in msgspec.structs.fields(record)
    )


@cache
def _names(record: type[msgspec.Struct]) -> dict[str, str]:
    return {key: name for name, key, _ in fields_of(record)}


@cache
def _blanks(record: type[msgspec.Struct]) -> dict[str, Any]:
    """The placeholders for required values that are missing."""
    required = {name for name, _, default in fields_of(record) if default is msgspec.NODEFAULT}
    fields = [field for field in msgspec.structs.fields(record) if field.name in required]
    return {field.name: 1 if field.type is int else "" for field in fields}


# ------------------------------------------------------------------------------------------------------ scalars


class Text(NamedTuple):
    """A text. Its pattern is published to editors here and checked by the code that uses the value."""

    pattern: str = ""
    chars_max: int = 0

    def read(self, fields: Fields, key: str) -> str | None:
        value: str | None = fields.get(key, str, "text")
        return value

    def schema(self) -> Schema:
        schema: Schema = {"type": "string"}
        if self.pattern:
            schema["pattern"] = self.pattern
        if self.chars_max:
            schema["maxLength"] = self.chars_max
        return schema


class Choice(NamedTuple):
    options: tuple[str, ...]

    def read(self, fields: Fields, key: str) -> str | None:
        value: str | None = fields.get(key, str, "text")
        if value is None or value in self.options:
            return value
        near = meant("choice", value, self.options)
        hint = f"write {self.options[0]}" if near is UNKNOWN else f"did you mean {near}?"
        message = f"{key} must be {' or '.join(self.options)}, not {quoted(value)}"
        fields.wrong("invalid_choice", key, message, hint, self.options[0] if near is UNKNOWN else near)
        return None

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.options)}


class Whole(NamedTuple):
    """A number from `low` to `high`, or to the setting of `limit`. A stored definition keeps the limits that it was
    checked with."""

    low: int
    high: int
    limit: str | None = None

    def read(self, fields: Fields, key: str) -> int | None:
        value: int | None = fields.get(key, int, "a whole number")
        is_set = self.limit is not None and not fields.report.is_stored
        high = min(self.high, getattr(limits.now, str(self.limit))) if is_set else self.high
        if value is None or self.low <= value <= high:
            return value
        which = f" ({limits.met(str(self.limit))})" if is_set and value > high else ""
        message = f"{key} must be from {self.low:,} to {high:,}, not {quoted_number(value)}{which}"
        near = min(max(value, self.low), high)
        fields.wrong(fields.wrong_code, key, message, f"write a number from {self.low:,} to {high:,}", near)
        return None

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class Seconds(NamedTuple):
    def read(self, fields: Fields, key: str) -> float | None:
        value = fields.get(key, (int, float), "a number of seconds")
        if value is None:
            return None
        high = TIMEOUT_SECS_MAX if fields.report.is_stored else limits.now.timeout_secs_max
        if not 0 < value <= high:
            which = f" ({limits.met('timeout_secs_max')})" if value > high else ""
            message = f"{key} must be more than 0 and at most {high:,}, not {quoted_number(value)}{which}"
            patch = replace((*fields.at, key), high) if value > high else drop((*fields.at, key))
            fields.wrong(fields.wrong_code, key, message, "write seconds, or leave it out", patch=patch)
            return None
        return float(value)

    def schema(self) -> Schema:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": TIMEOUT_SECS_MAX}


class Share(NamedTuple):
    """A number from 0 to 1. One outside is taken for the nearer end, and noted."""

    def read(self, fields: Fields, key: str) -> float | None:
        value = fields.get(key, (int, float), "a number from 0 to 1")
        if value is None:
            return None
        clamped = float(min(max(value, 0), 1))
        if clamped != value:
            message = f"{fields.who}{key} {quoted_number(value)} is taken as {clamped}"
            hint = "it is a share of the delay, from 0 to 1"
            fields.report.note("clamped", (*fields.at, key), message, hint)
        return clamped

    def schema(self) -> Schema:
        return {"type": "number"}


class Flag(NamedTuple):
    def read(self, fields: Fields, key: str) -> bool | None:
        value: bool | None = fields.get(key, bool, "true or false")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Time(NamedTuple):
    """Milliseconds as a number, or a text that is checked by the code that uses it."""

    high: int

    def read(self, fields: Fields, key: str) -> int | float | str | None:
        value: Any = fields.get(key, (int, float, str), "a number of milliseconds or a template")
        if value is None or isinstance(value, str) or 0 <= value <= self.high:
            return value  # type: ignore[no-any-return]
        message = f"{key} must be from 0 to {self.high:,}, not {quoted_number(value)}"
        fields.wrong("out_of_range", key, message, "write milliseconds", min(max(value, 0), self.high))
        return None

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "number", "minimum": 0, "maximum": self.high}, {"type": "string"}]}


_DOTTED = re.compile(r"\{\{\s*[^\W\d][\w-]*(?:\.[^\W\d][\w-]*)*\s*\}\}")


class KeyTemplate(NamedTuple):
    """A text that becomes a key. Its placeholders are dotted names only, so that a key is easy to foresee."""

    def read(self, fields: Fields, key: str) -> str | None:
        text = fields.get(key, str, "text")
        if text is None:
            return None
        try:
            parse_template(text)
        except ExprError as error:
            fields.wrong("invalid_template", key, f"{key}: {error}", error.hint)
            return None
        if "{{" in _DOTTED.sub("", text):
            message = f"{key}: the placeholders of a key are dotted names"
            fields.wrong("invalid_template", key, message, "write {{ inputs.name }}, without brackets")
        elif not text.strip():
            empty = f"{key} must not be empty"
            fields.wrong("invalid_policy", key, empty, "leave it out", patch=drop((*fields.at, key)))
        return str(text)

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


def quoted_number(value: Any) -> str:
    """A number as it was written; if it is very long, its length."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"a number of {len(str(abs(value)))} digits"
    return str(value)


# --------------------------------------------------------------------------------------------------------- data


class Anything(NamedTuple):
    """Data whose texts may have placeholders."""

    def read(self, fields: Fields, key: str) -> Any:
        return fields.data[key]

    def schema(self) -> Schema:
        return {}


class Mapped(NamedTuple):
    """A mapping, and nothing else, whose texts may have placeholders."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        value: dict[str, Any] | None = fields.get(key, dict, "a mapping")
        return value

    def schema(self) -> Schema:
        return {"type": "object"}


class Arguments(NamedTuple):
    """A mapping whose texts may have placeholders, or one placeholder that stands for a whole mapping."""

    def read(self, fields: Fields, key: str) -> Any:
        value = fields.data[key]
        if isinstance(value, dict) or fields.report.is_stored or _may_be_mapping(value):
            return value
        message = f"{key} must be a mapping of names to values, not {type_name(value)}"
        fields.wrong(
            "wrong_type", key, message, f"write `{key}: {{name: value}}`", converted(value, (dict,), key)
        )
        return value  # so that its placeholders are checked too

    def schema(self) -> Schema:
        placeholder = {"type": "string", "pattern": r"^\s*\{\{.*\}\}\s*$"}
        return {"anyOf": [{"type": "object"}, placeholder]}


def _may_be_mapping(value: Any) -> bool:
    """Whether it is a single placeholder, whose value is known at run time. An invalid one is reported elsewhere."""
    if not isinstance(value, str):
        return False
    try:
        return isinstance(parse_template(value), Ref)
    except ExprError:
        return True


class Texts(NamedTuple):
    """A list of texts. `noun` is what one of them is."""

    noun: str

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        items = fields.get(key, list, f"a list of {self.noun}s")
        if items is None:
            return None
        for i, item in enumerate(items):
            if not isinstance(item, str):
                message = f"{fields.who}each {self.noun} must be text, not {type_name(item)}"
                near = converted(item, (str,), key)
                fields.report.add(
                    "wrong_type", (*fields.at, key, i), message, hint_for_type(str, item), near=near
                )
                fields.report.settle((*fields.at, key))
        return tuple(item for item in items if isinstance(item, str))

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string"}}


class TextOrTexts(NamedTuple):
    """One text, or a list of them that is not empty. `noun` is what one of them is."""

    noun: str

    def read(self, fields: Fields, key: str) -> str | tuple[str, ...] | None:
        given = fields.data.get(key)
        if not isinstance(given, list):
            one: str | None = fields.get(key, str, f"a {self.noun}, or a list of {self.noun}s")
            return one
        if not given:
            message, hint = f"{key} is an empty list", f"give at least one {self.noun}"
            fields.wrong("invalid_policy", key, message, hint, patch=drop((*fields.at, key)))
        return Texts(self.noun).read(fields, key)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "string"}, {**Texts(self.noun).schema(), "minItems": 1}]}


class Labels(NamedTuple):
    def read(self, fields: Fields, key: str) -> dict[str, str] | None:
        labels = fields.get(key, dict, "a mapping")
        if labels is None:
            return None
        inner = Fields(fields.report, labels, (*fields.at, key), "label ")
        found = {name: inner.get(name, str, "text") or "" for name in labels}
        if not fields.report.is_stored:
            self._check(fields, key, found)
        return found

    def _check(self, fields: Fields, key: str, labels: dict[str, str]) -> None:
        if len(labels) > limits.now.labels_max:
            most = f"{limits.now.labels_max} labels ({limits.met('labels_max')})"
            message = f"a run has at most {most}, not {len(labels):,}"
            fewer = dict(list(labels.items())[: limits.now.labels_max])
            fields.wrong("too_many_labels", key, message, "leave some out", fewer)
        for name, value in labels.items():
            problem = label_problem(name, value)
            if problem is not None:
                hint = "use one line of text that is not empty"
                at = (*fields.at, key, name)
                fields.report.add(problem.code, at, problem.message, hint, of_key=True, patch=drop(at))

    def schema(self) -> Schema:
        line = {"pattern": LABEL_PATTERN, "maxLength": limits.now.label_chars_max}
        return {
            "type": "object",
            "additionalProperties": {"type": ["string", "null"], **line},
            "propertyNames": {"allOf": [line, {"pattern": r"\S"}]},
            "maxProperties": limits.now.labels_max,
        }


class Nested(NamedTuple):
    """A mapping with its own keys, which becomes a record."""

    record: type[msgspec.Struct]
    table: Table
    rule: Callable[[Fields, Any], None] | None = None  # the rule that its keys must satisfy together

    def read(self, fields: Fields, key: str) -> Any:
        data = fields.get(key, dict, "a mapping", self._around(fields.data.get(key)))
        if data is None:
            return None
        inner = Fields(fields.report, data, (*fields.at, key), f"{fields.who}{key}: ", fields.wrong_code)
        record = read_record(self.record, self.table, inner)
        if self.rule:
            self.rule(inner, record)
        return record

    def _around(self, value: Any) -> Any:
        """Wrap a single value in a mapping, under the required key or else the first one."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return UNKNOWN
        name = next(iter([*required_in(self.table), *self.table]))
        if isinstance(value, str) and value.startswith("$") and "select" in self.table:
            name = "select"
        number = converted(value, (int, float), name) if isinstance(value, str) else value
        return {name: value if number is UNKNOWN else number}

    def schema(self) -> Schema:
        return object_schema(self.table, {key: default for _, key, default in fields_of(self.record)})


class ListOf(NamedTuple):
    """A list of mappings, each of which becomes a record."""

    record: type[msgspec.Struct]
    table: Table

    def read(self, fields: Fields, key: str) -> tuple[Any, ...] | None:
        items = fields.get(key, list, "a list of mappings")
        if items is None:
            return None
        return tuple(self._read_one(fields, (*fields.at, key, i), item) for i, item in enumerate(items))

    def _read_one(self, fields: Fields, at: Where, item: Any) -> Any:
        if not isinstance(item, dict):
            message = f"{fields.who}each entry must be a mapping, not {type_name(item)}"
            near = {required_in(self.table)[0]: item} if isinstance(item, str) else UNKNOWN
            fields.report.add("wrong_type", at, message, hint_for_type(dict, item), near=near)
            for name in self.table:
                fields.report.settle((*at, name))
            return make(self.record, {})
        return read_record(
            self.record, self.table, Fields(fields.report, item, at, fields.who, fields.wrong_code)
        )

    def schema(self) -> Schema:
        return {"type": "array", "items": Nested(self.record, self.table).schema()}


# ------------------------------------------------------------------------------------------------- JSON Schema


def object_schema(table: Table, defaults: Mapping[str, Any]) -> Schema:
    """A mapping with exactly these keys."""
    properties = {name: key_schema(key, defaults.get(name)) for name, key in table.items()}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    required = required_in(table)
    return schema | ({"required": required} if required else {})


def key_schema(key: Key, default: Any = None) -> Schema:
    """The type of a key. An optional key may also be null."""
    schema = key.shape.schema()
    if not key.required:
        schema = _or_null(schema)
    if isinstance(default, str | int | float) and default != "":
        schema = schema | {"default": default}
    return {"description": key.says, **schema}


def _or_null(schema: Schema) -> Schema:
    if not schema:
        return schema
    if "type" not in schema:
        return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    nullable = schema | {"type": [schema["type"], "null"]}
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    return nullable
