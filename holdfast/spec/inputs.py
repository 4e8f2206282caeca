"""What a definition says about the inputs of its runs, and whether given ones fit.

    inputs: {limit: {type: integer, default: 3}}                               the short form
    inputs: {properties: {limit: {type: integer, default: 3}}, required: []}   a JSON Schema, read in part

Knows the two forms of a declaration. Must not know the rest of a definition.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from holdfast.errors import InvalidInputs
from holdfast.spec.problems import Fields, Report, Where, did_you_mean, quoted, type_name

_SHORT_FORM_KEYS: Final = ("type", "default", "description")


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


def with_defaults(declared: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run with defaults filled in; raises InvalidInputs with everything that does not fit."""
    return Inputs(declared).filled(inputs)


# The Python types that certainly fit: a look at the type alone settles nearly every case.
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
        self._rules = _declarations(declared) if declared else {}
        self._known = input_names(declared)
        self._required = _required_inputs(declared) if declared else []
        self._defaults = {name: rule["default"] for name, rule in self._rules.items() if "default" in rule}
        self._types = [
            (name, _type_names(rule.get("type"))) for name, rule in self._rules.items() if rule.get("type")
        ]

    def filled(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a run with defaults filled in; raises InvalidInputs with everything that does not fit."""
        if not isinstance(inputs, Mapping):
            raise InvalidInputs(f"inputs must be an object, not {type_name(inputs)}")
        filled = copy.deepcopy(self._defaults) if self._defaults else {}
        filled.update(inputs)
        if self._all_fit(inputs, filled):
            return filled
        raise InvalidInputs("; ".join(self._wrong(inputs, filled)))

    def _all_fit(self, inputs: Mapping[str, Any], filled: dict[str, Any]) -> bool:
        if self._known is not None and not self._known.issuperset(inputs):
            return False
        if any(name not in filled for name in self._required):
            return False
        for name, types in self._types:
            if (
                name in filled
                and type(filled[name]) not in _PLAIN.get(types[0], ())
                and not _fits(filled[name], types)
            ):
                return False
        return True

    def _wrong(self, inputs: Mapping[str, Any], filled: dict[str, Any]) -> list[str]:
        known = self._known
        wrong = [_unknown_input(name, known) for name in inputs if known is not None and name not in known]
        wrong += [f'missing input "{name}"' for name in self._required if name not in filled]
        for name, types in self._types:
            if name in filled and not _fits(filled[name], types):
                wrong.append(f'input "{name}" must be {_types_text(types)}, not {type_name(filled[name])}')
        return wrong


def means_text(declared: Any, name: str, value: Any) -> bool:
    """Whether an input that was typed as text, and is this value if read as JSON, means the text itself."""
    types = _type_names(_declarations(declared).get(name, {}).get("type"))
    return types == ["string"] or ("string" in types and not _fits(value, types))


def check_inputs(inputs: Any, report: Report) -> None:
    """Report what is wrong with a declaration."""
    if not isinstance(inputs, dict):
        return
    is_schema = _is_schema(inputs)
    if is_schema:
        _check_schema(Fields(report, inputs, ("inputs",), "inputs: "))
    at: Where = ("inputs", "properties") if is_schema else ("inputs",)
    for name, rule in _declarations(inputs).items():
        fields = Fields(report, rule, (*at, name), f"input {quoted(name)}: ")
        if not is_schema:
            _check_short_form(fields, inputs[name])
        _check_type(fields)


def _check_schema(fields: Fields) -> None:
    if fields.data.get("type", "object") != "object":
        message = f"the type of all inputs together is object, not {quoted(fields.data['type'])}"
        fields.wrong("wrong_type", "type", message, "an input x is declared as `x: {type: string}`")
    fields.get("properties", dict, "a mapping")
    fields.get("required", list, "a list of names")


def _check_short_form(fields: Fields, rule: Any) -> None:
    if rule is not None and not isinstance(rule, dict):
        hint = "write {type: string}"
        message = f"{fields.who}an input is declared by a mapping, not {type_name(rule)}"
        fields.report.add("wrong_type", fields.at, message, hint)
    fields.expect(_SHORT_FORM_KEYS)


def _check_type(fields: Fields) -> None:
    types = fields.data.get("type")
    unknown = [name for name in _type_names(types) if name not in _JSON_TYPES]
    if unknown:
        hint = did_you_mean(unknown[0], _JSON_TYPES) or f"the types are {', '.join(_JSON_TYPES)}"
        fields.wrong("unknown_type", "type", f"unknown type {quoted(unknown[0])}", hint)
    elif "default" in fields.data and not _fits(fields.data["default"], types):
        fields.wrong("invalid_default", "default", f"the default must be {_types_text(types)}")


# ---------------------------------------------------------------------------------------------- the two forms


def _is_schema(inputs: Any) -> bool:
    """Tell a JSON Schema from the short form, which may have an input named `type`: it is a mapping."""
    if not isinstance(inputs, dict):
        return False
    properties = inputs.get("properties")
    if isinstance(properties, dict) and all(isinstance(rule, dict | bool) for rule in properties.values()):
        return True
    return any(
        key in inputs and not isinstance(inputs[key], dict) for key in ("type", "required", "$schema", "$ref")
    )


def _declarations(inputs: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(inputs, dict):
        return {}
    rules = inputs.get("properties", {}) if _is_schema(inputs) else inputs
    if not isinstance(rules, dict):
        return {}
    return {name: rule if isinstance(rule, dict) else {} for name, rule in rules.items()}


def _required_inputs(inputs: Any) -> list[str]:
    if _is_schema(inputs):
        required = inputs.get("required", [])
        return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return [name for name, rule in _declarations(inputs).items() if "default" not in rule]


def _unknown_input(name: str, known: Collection[str]) -> str:
    hint = did_you_mean(name, known)
    return f'unknown input "{name}"' + (f" ({hint})" if hint else "")


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


def _fits(value: Any, types: Any) -> bool:
    """Whether a value has one of the types. A type that does not exist is reported elsewhere and fits all."""
    tests = [_JSON_TYPES.get(name) for name in _type_names(types)]
    return not tests or any(test is None or test(value) for test in tests)


def _type_names(types: Any) -> list[str]:
    return [str(name) for name in (types if isinstance(types, list) else [types]) if name is not None]


def _types_text(types: Any) -> str:
    return " or ".join(_type_names(types))
