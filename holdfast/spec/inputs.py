"""The input declaration of a definition, and whether given inputs match it.

    inputs: {limit: {type: integer, default: 3}}                               the short form: a schema for each name
    inputs: {properties: {limit: {type: integer, default: 3}}, required: []}   a JSON Schema of the whole object

Knows the two forms of a declaration. Must not know the rest of a definition.

Most declarations contain only types and defaults. Inputs are checked against these directly; the JSON Schema library
checks all other declarations, and words the message when something does not match.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInputs, Problem
from holdfast.nearest import did_you_mean, nearest
from holdfast.spec.conversions import UNKNOWN, converted
from holdfast.spec.document import pointer_to
from holdfast.spec.jsonschema import NAMES, Judge, Mismatch, Parts, check_whole, count_rules, without_names
from holdfast.spec.patch import Patch, drop, put, replace
from holdfast.spec.problems import Fields, Report, Where, one_of, quoted, type_name
from holdfast.spec.work import read

# Keywords that do not restrict a value, or that are checked directly.
_PLAIN_KEYS: Final = frozenset(
    {"type", "default", "title", "description", "examples", "deprecated", "$comment"}
)
_PLAIN_TOP_KEYS: Final = _PLAIN_KEYS | {"properties", "required", "additionalProperties"}


def declaration(declared: Any, name: str, rule: Mapping[str, Any]) -> Patch:
    """The patch that declares one more input, in the form in which the others are declared."""
    if not isinstance(declared, dict):
        return put(("inputs",), {name: rule})
    is_schema = declared_inputs({name: {}} | declared) != {name, *declared}
    return put(("inputs", "properties", name) if is_schema else ("inputs", name), rule)


def declared_inputs(declared: Any) -> frozenset[str]:
    """The inputs that a declaration names."""
    return frozenset(_declarations(declared))


def input_names(declared: Any) -> frozenset[str] | None:
    """All inputs that a run may be given, or None where any name is taken."""
    if not declared:
        return None
    if _is_schema(declared) and declared.get("additionalProperties", True) is not False:
        return None
    return declared_inputs(declared)


def input_schema(declared: Any) -> dict[str, Any]:
    """A declaration as a JSON Schema of the inputs object, for callers that build the inputs of a run."""
    if not isinstance(declared, dict) or not declared:
        return {"type": "object"}
    return {"type": "object", **(declared if _is_schema(declared) else _schema_of(declared))}


def with_defaults(declared: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run with defaults filled in; raises InvalidInputs with everything that does not fit."""
    return Inputs(declared).filled(inputs)


# If one of these keywords holds something other than a mapping, the declaration is a schema of all inputs together.
WHOLE_WORDS: Final = ("type", "required", "$schema", "$ref")

# The Python types that certainly match: checking the type alone settles nearly every case.
_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class Inputs:
    """A declaration, read once for many runs."""

    def __init__(self, declared: Any) -> None:
        self._schema = _schema_of(declared) if declared else {}
        self._rules = _declarations(declared) if declared else {}
        self._known = input_names(declared)
        self._required = frozenset(self._schema.get("required", ()))
        self._defaults = {name: rule["default"] for name, rule in self._rules.items() if "default" in rule}
        self._nested = [name for name, rule in self._rules.items() if "properties" in rule]
        self.is_plain = _is_plain(self._schema)  # the types of the inputs decide, not what is in them
        types = [
            (name, _type_names(rule.get("type"))) for name, rule in self._rules.items() if rule.get("type")
        ]
        self._types = [(name, frozenset(_PLAIN.get(words[0], ())), words) for name, words in types]

    def filled(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a run with defaults filled in; raises InvalidInputs with everything that does not fit."""
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise InvalidInputs(f"inputs must be an object, not {type_name(inputs)}")
        filled = copy.deepcopy(self._defaults) if self._defaults else {}
        filled.update(inputs)
        for name in self._nested:
            if name in filled:
                filled[name] = _with_nested_defaults(self._rules[name], read(filled[name]))
        if self.is_plain and self._all_fit(inputs, filled):
            return filled
        mismatches = self._judge.mismatches({name: read(value) for name, value in filled.items()})
        if mismatches:
            raise _refusal([self._problem(mismatch) for mismatch in mismatches])
        return filled

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self._schema, count_rules(self._schema))

    def _all_fit(self, inputs: Mapping[str, Any], filled: dict[str, Any]) -> bool:
        if self._known is not None and not self._known.issuperset(inputs):
            return False
        if not self._required <= filled.keys():
            return False
        for name, plain, words in self._types:
            if name in filled and type(value := filled[name]) not in plain and not _fits(value, words):
                return False
        return True

    def _problem(self, mismatch: Mismatch) -> Problem:
        code, path, message, hint = mismatch
        noun = "input" if len(path) < 2 else "key"
        match code:
            case "missing_input":
                message = f'missing {noun} "{_spelt(path)}"'
            case "unknown_input":
                message = f'unknown {noun} "{_spelt(path)}"'
                known = _declarations(self._rule_at(path[:-1]), is_schema=True)
                hint = did_you_mean(str(path[-1]), known) or f"known are {one_of(known) or 'none'}"
            case _:
                message = f'input "{_spelt(path)}" {message}' if path else f"the inputs: {message}"
        return Problem(code, message, pointer_to(path), hint=hint or self._about(path))

    def _rule_at(self, path: Where) -> dict[str, Any]:
        """The declaration of a value inside the inputs, where it is given key by key."""
        rule: Any = self._schema
        for part in path:
            rule = rule.get("items") if isinstance(part, int) else rule.get("properties", {}).get(part)
            if not isinstance(rule, dict):
                return {}
        return rule  # type: ignore[no-any-return]

    def _about(self, path: Where) -> str:
        rule = self._rule_at(path) if path else {}
        types, description = rule.get("type"), rule.get("description")
        said = [f"it is declared as {_types_text(types)}" if types else "", str(description or "")]
        return ": ".join(part for part in said if part) or "see the inputs that the workflow declares"


def _refusal(problems: list[Problem]) -> InvalidInputs:
    problems.sort(key=lambda problem: problem.code not in ("unknown_input", "missing_input"))
    return InvalidInputs("; ".join(_line(problem) for problem in problems), problems)


def _line(problem: Problem) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint.startswith("did you") else problem.message


def _spelt(path: Where) -> str:
    """A path into the inputs as people write it: `a.b[0]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")[:200]


def _with_nested_defaults(rule: Mapping[str, Any], value: Any) -> Any:
    """A value with the defaults of its keys, as far as a rule declares them key by key."""
    rules = rule.get("properties")
    if not isinstance(value, Mapping) or not isinstance(rules, dict):
        return value
    parts = {name: part for name, part in rules.items() if isinstance(part, dict)}
    filled = {name: copy.deepcopy(part["default"]) for name, part in parts.items() if "default" in part}
    filled.update(value)
    return {
        name: _with_nested_defaults(parts[name], part) if name in parts else part
        for name, part in filled.items()
    }


def means_text(declared: Any, name: str, value: Any) -> bool:
    """Return whether an input typed on a command line is meant as the text itself, although it can be read as this JSON value."""
    types = _type_names(_declarations(declared).get(name, {}).get("type"))
    return types == ["string"] or ("string" in types and not _fits(value, types))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says no more than types, defaults and which names there are."""
    rules = schema.get("properties", {}).values()
    return (
        set(schema) <= _PLAIN_TOP_KEYS
        and isinstance(schema.get("additionalProperties", True), bool)
        and all(isinstance(rule, dict) and set(rule) <= _PLAIN_KEYS for rule in rules)
    )


def check_inputs(inputs: Any, report: Report) -> None:
    """Report the problems of a declaration."""
    if not isinstance(inputs, dict):
        return
    before, schema = len(report.problems), _schema_of(inputs)
    parts = Parts(report, schema)
    if _is_schema(inputs):
        _check_top(Fields(report, inputs, ("inputs",), "inputs: "))
        parts.check(schema, ("inputs",), "inputs: ")
    else:
        inputs = {name: rule for name, rule in inputs.items() if _is_sound(parts, report, name, rule)}
        # A broken declaration must not hide problems in the rest.
        before, schema = len(report.problems), _schema_of(inputs)
    if len(report.problems) == before and not _is_plain(schema):
        check_whole(schema, report, ("inputs",), "inputs: ", unwritten=0 if _is_schema(inputs) else 1)
    if len(report.problems) == before:
        _check_defaults(inputs, schema, report)


def _is_sound(parts: Parts, report: Report, name: str, rule: Any) -> bool:
    """Check the short form of one input's declaration."""
    before, at, who = len(report.problems), ("inputs", name), f"input {quoted(name)}: "
    _check_short_form(report, rule, at, who)
    parts.check({} if rule is None else rule, at, who)
    return len(report.problems) == before


def _check_top(fields: Fields) -> None:
    for name in NAMES:
        fields.get(name, str, "text")
    if fields.data.get("type", "object") != "object":
        message = f"the type of all inputs together is object, not {quoted(fields.data['type'])}"
        hint = "an input x is declared as `x: {type: string}`"
        fields.wrong("wrong_type", "type", message, hint, "object")
        fields.report.settle((*fields.at, "type"))


def _check_short_form(report: Report, rule: Any, at: Where, who: str) -> None:
    if isinstance(rule, bool):
        message = f"{who}an input is declared by a mapping, not true or false"
        near = {"type": "boolean", "default": rule}
        report.add("wrong_type", at, message, "write {type: boolean, default: true}", near=near)
    elif isinstance(rule, dict) and isinstance(rule.get("required"), bool):
        message = f"{who}required must be a list of names, not true or false"
        hint = "an input without a default is required; give it a default to make it optional"
        patch = _without(rule, "required", at, is_required=rule["required"])
        report.add("wrong_type", (*at, "required"), message, hint, patch=patch)
        report.settle((*at, "required"))
    elif isinstance(rule, dict) and isinstance(rule.get("optional"), bool):
        hint = "give the input a default to make it optional"
        patch = _without(rule, "optional", at, is_required=not rule["optional"])
        report.add(
            "unknown_key", (*at, "optional"), f'{who}unknown key "optional"', hint, of_key=True, patch=patch
        )
        report.settle((*at, "optional"))


def _without(rule: dict[str, Any], word: str, at: Where, *, is_required: bool) -> Patch:
    """An input that is not required gets a default: null, which its type must allow then."""
    other = {key: value for key, value in rule.items() if key != word}
    if is_required or "default" in rule:
        return replace(at, other)
    types = _type_names(rule.get("type"))
    return replace(at, other | ({"type": [*types, "null"]} if types else {}) | {"default": None})


def _check_defaults(inputs: dict[str, Any], schema: dict[str, Any], report: Report) -> None:
    """A default is used when the caller gives no value, so it must be a valid value itself."""
    at: Where = ("inputs", "properties") if _is_schema(inputs) else ("inputs",)
    rules = {name: rule for name, rule in _declarations(inputs).items() if "default" in rule}
    if all(set(rule) <= _PLAIN_KEYS and _fits(rule["default"], rule.get("type")) for rule in rules.values()):
        return
    parts = {key: schema[key] for key in ("properties", "$defs", "definitions") if key in schema}
    defaults = {name: rule["default"] for name, rule in rules.items()}
    for mismatch in Judge(parts, count_rules(parts)).mismatches(defaults):
        name = str(mismatch.path[0])
        message = f"input {quoted(name)}: the default {mismatch.message}"
        is_null = rules[name]["default"] is None
        hint = (
            "add 'null' to its types: type: [string, 'null']"
            if is_null
            else "use a default that matches, or remove it"
        )
        patch = _fitting_default(rules[name], (*at, name))
        report.add("invalid_default", (*at, name, "default"), message, hint, patch=patch)


_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {**_PLAIN, "integer": (int,), "number": (int, float)}


def _fitting_default(rule: dict[str, Any], at: Where) -> Patch:
    """The default as a value that fits, or no default; null is allowed by its type instead."""
    types, default = _type_names(rule.get("type")), rule["default"]
    if default is None and types:
        return replace((*at, "type"), [*types, "null"])
    for name in types:
        near = converted(default, _PYTHON_TYPES.get(name, ()), "default")
        if near is not UNKNOWN and near != default and _fits(near, name) and set(rule) <= _PLAIN_KEYS:
            return replace((*at, "default"), near)
    if isinstance(default, str) and (near := nearest(default, _words(rule.get("enum")))) is not None:
        return replace((*at, "default"), near)
    return drop((*at, "default"))


def _words(options: Any) -> list[str]:
    return [one for one in options if isinstance(one, str)] if isinstance(options, list) else []


# ---------------------------------------------------------------------------------------------- the two forms


def _is_schema(inputs: Any) -> bool:
    """Tell a JSON Schema from the short form, which may have an input named `type`: it is a mapping."""
    if not isinstance(inputs, dict):
        return False
    properties = inputs.get("properties")
    if isinstance(properties, dict) and all(isinstance(rule, dict | bool) for rule in properties.values()):
        return True
    return any(key in inputs and not isinstance(inputs[key], dict) for key in WHOLE_WORDS)


def _declarations(inputs: Any, *, is_schema: bool | None = None) -> dict[str, dict[str, Any]]:
    """The declaration of each input, by its name."""
    if not isinstance(inputs, dict):
        return {}
    whole = _is_schema(inputs) if is_schema is None else is_schema
    rules = inputs.get("properties", {}) if whole else inputs
    if not isinstance(rules, dict):
        return {}
    return {name: rule if isinstance(rule, dict) else {} for name, rule in rules.items()}


def _schema_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """A declaration as a JSON Schema of all inputs together."""
    if _is_schema(inputs):
        return without_names(inputs)
    return {
        "type": "object",
        "properties": {name: {} if rule is None else rule for name, rule in inputs.items()},
        "required": [name for name, rule in _declarations(inputs).items() if "default" not in rule],
        "additionalProperties": False,
    }


# ------------------------------------------------------------------------------------------------------ types


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


_JSON_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


_OF_TYPE: Final[dict[bytes, Any]] = {b'"': "", b"[": [], b"{": {}}


def _fits(value: Any, types: Any) -> bool:
    """Whether a value has one of the types. A type that does not exist is reported elsewhere and fits all."""
    if type(value) is msgspec.Raw:
        value = _OF_TYPE.get(bytes(memoryview(value)[:1]), 0)
    tests = [_JSON_TYPES.get(name) for name in _type_names(types)]
    return not tests or any(test is None or test(value) for test in tests)


def _type_names(types: Any) -> list[str]:
    return [str(name) for name in (types if isinstance(types, list) else [types]) if name is not None]


def _types_text(types: Any) -> str:
    return " or ".join(_type_names(types))
