"""Types of keys that only the steps notation has: lists of steps, conditions, handlers, back-off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.spec.condition import COMPARE_WORDS, OF_STEPS, Expr, condition_from
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.field_types import Choice, Key, Mapped, Schema, Table, Text, Texts, Whole, object_schema
from holdfast.spec.inputs import WHOLE_WORDS, declaration, declared_inputs
from holdfast.spec.jsonschema import keywords_schema
from holdfast.spec.patch import NO_PATCH, Patch, drop, replace
from holdfast.spec.policy import NEVER_RETRIED, TIMEOUT_SECS_MAX, BackoffKind
from holdfast.spec.problems import Fields, quoted
from holdfast.spec.repairs import name_from, unique
from holdfast.values import canonical

LIFETIME_SECS_MAX: Final = 10 * TIMEOUT_SECS_MAX  # how long an output may be stored at most
PATH: Final = Text(r"^\$")


class Items(NamedTuple):
    """The path of a list. A list itself is an input with a default: a run may then have another one."""

    def read(self, fields: Fields, key: str) -> str | None:
        value = fields.data[key]
        if not isinstance(value, list):
            return PATH.read(fields, key)
        hint = "declare an input with the list as its default, and name it: $.inputs.files"
        patch = self._as_input(fields, key, value)
        fields.wrong("wrong_type", key, f"{key} must be a path, not a list", hint, patch=patch)
        return None

    def _as_input(self, fields: Fields, key: str, items: list[Any]) -> Patch:
        """The patch that declares an input of a new name. A default is not rendered, so placeholders in it would be text."""
        source = fields.report.given
        declared = source.at(("inputs",))
        if not isinstance(declared, dict):
            # The next examination finds the inputs that one patch declares, so that another one does not replace them.
            if source.declares_inputs or declared not in (UNKNOWN, None):
                return NO_PATCH
            source.declares_inputs = True
        if b"{{" in canonical(items):
            return NO_PATCH
        name, taken = (
            name_from(f"{fields.data.get('id') or 'all'}_items"),
            source.ids | declared_inputs(declared),
        )
        name = unique(name, taken) if name in taken else name
        source.ids.add(name)
        rule = {"type": "array", "default": items}
        return (*declaration(declared, name, rule), *replace((*fields.at, key), f"$.inputs['{name}']"))

    def schema(self) -> Schema:
        return PATH.schema()


def steps_of(value: Any) -> Any:
    """The list of steps that a mapping was meant to be: one step, or steps by their ids; or UNKNOWN."""
    if not isinstance(value, dict):
        return UNKNOWN
    if _says_more(value):
        return UNKNOWN
    if isinstance(value.get("steps"), list) and "kind" not in value:
        inner: list[Any] = value["steps"]
        return inner
    if {"id", "tool", "kind", "uses"} & value.keys():
        return [value]
    if not value or not all(isinstance(step, dict | str) for step in value.values()):
        return UNKNOWN
    return [
        {"id": name, **(step if isinstance(step, dict) else {"tool": step})} for name, step in value.items()
    ]


def _says_more(value: Any) -> bool:
    """Whether a mapping has a list of steps and says more of it, such as when they run."""
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list) or "kind" in value:
        return False
    return not value.keys() <= {"id", "name", "description", "steps"}


class Steps(NamedTuple):
    """A list of steps. Only the type is checked here; the caller reads the steps."""

    low: int = 0

    def read(self, fields: Fields, key: str) -> list[Any] | None:
        value = fields.data.get(key)
        if _says_more(value):
            message = f"{key} must be a list of steps, and has keys of its own beside it"
            fields.wrong("wrong_type", key, message, "write the list of steps alone")
            fields.report.cannot_read(value)
            return None
        items: list[Any] | None = fields.get(key, list, "a list of steps", steps_of(value))
        return items

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": {"$ref": "#/$defs/step"}}
        return schema | ({"minItems": self.low} if self.low else {})


class Branches(NamedTuple):
    """A list of lists of steps."""

    def read(self, fields: Fields, key: str) -> list[Any] | None:
        given = fields.data.get(key)
        near = list(given.values()) if isinstance(given, dict) else UNKNOWN  # branches that have names
        items: list[Any] | None = fields.get(key, list, "a list of lists of steps", near)
        return items

    def schema(self) -> Schema:
        return {"type": "array", "items": Steps().schema()}


class Declaration(NamedTuple):
    """The inputs of a run in one of two forms; only a JSON Schema describes the whole object."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        return Mapped().read(fields, key)

    def schema(self) -> Schema:
        whole = [{"required": [key], "properties": {key: {"not": {"type": "object"}}}} for key in WHOLE_WORDS]
        rule = keywords_schema()
        return {
            "type": "object",
            "if": {"type": "object", "anyOf": [{"required": ["properties"]}, *whole]},
            "then": rule,
            "else": {"additionalProperties": {"anyOf": [rule, {"type": "null"}]}},
        }


class Condition(NamedTuple):
    """A condition: a JSONPath, or an operator with its operands."""

    def read(self, fields: Fields, key: str) -> str | Expr | None:
        value, at = fields.data[key], (*fields.at, key)
        if isinstance(value, str):  # whether it is a JSONPath is checked with the other paths
            return value
        return condition_from(value, fields.report, at, fields.who, OF_STEPS)

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/condition"}


def step_condition_schema() -> Schema:
    """A condition as JSON Schema: a JSONPath, true or false, or one operator with its operands."""
    condition: Schema = {"$ref": "#/$defs/condition"}
    many: Schema = {"type": "array", "items": condition}
    two: Schema = {"type": "array", "minItems": 2, "maxItems": 2}
    operands: dict[str, Schema] = {"and": many, "or": many, "not": condition, "exists": PATH.schema()}
    return operators_schema(operands | dict.fromkeys(COMPARE_WORDS, two), PATH.schema())


def operators_schema(operands: Mapping[str, Schema], reference: Schema) -> Schema:
    """One of these operators with its operands, a reference by itself, or true or false."""
    return {
        "description": "A condition: one operator with its operands, or a reference to true or false.",
        "anyOf": [
            {
                "type": "object",
                "properties": dict(operands),
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
            reference,
            {"type": "boolean"},
        ],
    }


class Handler(NamedTuple):
    """The kinds of failures that are caught, and the steps that follow: the tree is read elsewhere."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        given = fields.data.get(key)
        near = {"steps": given} if isinstance(given, list) else UNKNOWN
        found: dict[str, Any] | None = fields.get(key, dict, "a mapping with `steps`", near)
        return found

    def schema(self) -> Schema:
        return object_schema(HANDLER_KEYS, {})


class CaughtKinds(NamedTuple):
    """The error kinds to catch: at least one. `cancelled` is not allowed, because a cancelled run is not an error."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        kinds, at = Texts("error kind").read(fields, key), (*fields.at, key)
        if kinds == ():
            message = f"{fields.who}kinds is empty, so nothing would be caught"
            fields.report.add("out_of_range", at, message, "name a kind, or leave it out", patch=drop(at))
        for i, kind in enumerate(kinds or ()):
            if kind == "cancelled":
                message = f"{fields.who}a cancelled run is not an error, and is never caught"
                hint = "use `finally` for what must follow a cancel too"
                fields.report.add("invalid_policy", (*at, i), message, hint)
        return kinds

    def schema(self) -> Schema:
        return {"type": "array", "minItems": 1, "items": {"type": "string", "not": {"const": "cancelled"}}}


class ErrorKinds(NamedTuple):
    """The kinds of errors that are retried."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        kinds = Texts("error kind").read(fields, key)
        for i, kind in enumerate(() if kinds is None else fields.data[key]):
            if isinstance(kind, str) and kind in NEVER_RETRIED:
                message = f"{fields.who}errors of kind {quoted(kind)} are never retried"
                at, others = (*fields.at, key), [one for one in kinds or () if one not in NEVER_RETRIED]
                fields.report.add(
                    "invalid_policy",
                    (*at, i),
                    message,
                    "remove it",
                    patch=replace(at, others) if others else drop(at),
                )
        return kinds

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "not": {"enum": sorted(NEVER_RETRIED)}}}


class Backoff(NamedTuple):
    def read(self, fields: Fields, key: str) -> BackoffKind | None:
        found = Choice(tuple(BackoffKind)).read(fields, key)
        return None if found is None else BackoffKind(found)

    def schema(self) -> Schema:
        return {"type": "string", "enum": [kind.value for kind in BackoffKind]}


class Lifetime(NamedTuple):
    """Whole seconds; 0 means no limit, the same as leaving the key out."""

    def read(self, fields: Fields, key: str) -> int | None:
        return Whole(0, LIFETIME_SECS_MAX).read(fields, key) or None

    def schema(self) -> Schema:
        return Whole(0, LIFETIME_SECS_MAX).schema()


HANDLER_KEYS: Final[Table] = {
    "kinds": Key(CaughtKinds(), "The kinds of errors that are caught. Default: all of them."),
    "steps": Key(Steps(), "The steps that run then.", required=True),
}
