"""Annotations: checking and converting JSON values, and their JSON Schema. Results become JSON in results.py.

Knows msgspec's types, and pydantic's without importing pydantic. Must not know functions or their parameters.
"""

from __future__ import annotations

import inspect
import pathlib
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.values import written

REF_TEMPLATE: Final = "#/$defs/{name}"
ACCEPTED: Final = "JSON data, dataclasses, TypedDict, Enum, Literal, msgspec and pydantic models, datetime, Decimal, UUID, Path"
_WORDS: Final = {dict: "object", list: "array", type(None): "null"}  # other types keep their Python names


class Mismatch(ValueError):
    """A value that does not match its type; `where` is the place inside it, such as `.lines[0]`."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.message, self.where = message, where


class Form(NamedTuple):
    """A value of the type `exact` is accepted as it is; any other goes through `convert`; without either, every value is accepted."""

    schema: dict[str, Any]
    definitions: dict[str, Any]
    exact: type | None = None
    convert: Callable[[Any], Any] | None = None
    words: str = ""


def form_of(annotation: Any) -> Form:
    """Return the form of an annotation. Raise TypeError if JSON cannot represent its values."""
    if annotation in (Any, object, inspect.Parameter.empty):
        return Form({}, {})
    exact = _exact(annotation)
    if exact is not None:
        schema, words = _SCALARS[exact]
        return Form(schema, {}, exact, to_float if exact is float else _refuse(words), words)
    if _mentions_pydantic(annotation):
        return _pydantic_form(annotation)
    try:
        (schema,), definitions = msgspec.json.schema_components(
            [annotation], schema_hook=_custom_schema, ref_template=REF_TEMPLATE
        )
    except TypeError as error:
        arms = typing.get_args(annotation) if _is_union(annotation) else ()
        if not arms:
            raise TypeError(_why_not(annotation, error)) from None
        return _first_of(arms, _named(annotation))
    return Form(schema, definitions, _exact_arm(annotation), _converter(annotation), _named(annotation))


_SCALARS: Final[dict[type, tuple[dict[str, Any], str]]] = {
    int: ({"type": "integer"}, "int"),
    str: ({"type": "string"}, "str"),
    bool: ({"type": "boolean"}, "bool"),
    float: ({"type": "number"}, "float"),
    list: ({"type": "array"}, "array"),
    dict: ({"type": "object"}, "object"),
}


def _exact(annotation: Any) -> type | None:
    """The types that checking `type(value)` alone can settle: decoded JSON has no subclasses."""
    if annotation == dict[str, Any]:
        return dict
    if annotation == list[Any]:
        return list
    return annotation if isinstance(annotation, type) and annotation in _SCALARS else None


def _exact_arm(annotation: Any) -> type | None:
    """Return the int of `int | None`: the most common case is checked first."""
    arms = typing.get_args(annotation) if _is_union(annotation) else ()
    return next((arm for arm in arms if arm in _SCALARS), None)


def _refuse(words: str) -> Callable[[Any], Any]:
    def refuse(value: Any) -> Any:
        raise Mismatch(f"expected {words}, got {kind_of(value)}")

    return refuse


def to_float(value: Any) -> float:
    if type(value) is not int:
        raise Mismatch(f"expected float, got {kind_of(value)}")
    return float(value)


def kind_of(value: Any) -> str:
    return _WORDS.get(type(value), type(value).__name__)


# -------------------------------------------------------------------------------------------------------- msgspec


def _converter(annotation: Any) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, annotation, str_keys=True, dec_hook=_from_json)
        except Mismatch:
            raise
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at ")
            inside = place.strip("`").removeprefix("$") if place.startswith("`$") else ""
            message = message.replace("`", "").replace("duration", 'duration such as "PT30S"')
            raise Mismatch(message[:1].lower() + message[1:], inside) from None
        except (Exception, SystemExit) as error:  # an error in the constructor of a user's class
            raise Mismatch(f"{type(error).__name__} while it was being made {_named(annotation)}") from error

    return convert


def _from_json(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    if issubclass(kind, pathlib.PurePath):
        if not isinstance(value, str):
            raise Mismatch(f"expected path, got {kind_of(value)}")
        return kind(value)
    return _pydantic_form(kind).convert(value)  # type: ignore[misc]  # a form made for pydantic always converts


def _custom_schema(kind: type) -> dict[str, Any]:
    if kind is object:
        return {}
    if issubclass(kind, pathlib.PurePath):
        return {"type": "string", "format": "path"}
    if is_pydantic(kind):
        schema: dict[str, Any] = sys.modules["pydantic"].TypeAdapter(kind).json_schema()
        return schema
    raise NotImplementedError


def _first_of(arms: tuple[Any, ...], words: str) -> Form:
    """Convert by a union whose members msgspec cannot distinguish (`datetime | str`): the first one that matches, in the order written."""
    forms = [form_of(arm) for arm in arms]

    def convert(value: Any) -> Any:
        for form in forms:
            if form.convert is None or type(value) is form.exact:
                return value
            try:
                return form.convert(value)
            except Mismatch:
                continue
        raise Mismatch(f"expected {words}, got {kind_of(value)}")

    definitions = {name: schema for form in forms for name, schema in form.definitions.items()}
    return Form({"anyOf": [form.schema for form in forms]}, definitions, None, convert, words)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _named(annotation: Any) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type) and not typing.get_args(annotation)
        else str(annotation)
    )


def _why_not(annotation: Any, error: TypeError) -> str:
    reason = str(error).partition("\n")[0].partition(" - type")[0]
    if "custom types" in reason:
        return f"{_named(annotation)} has no JSON form (accepted are {ACCEPTED})"
    return f"{_named(annotation)} cannot be read from JSON: {reason}"


# ------------------------------------------------------------------------------------------------------- pydantic


def is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def _mentions_pydantic(annotation: Any) -> bool:
    """Return whether an annotation contains a pydantic model or pydantic constraints."""
    stack = [annotation]
    while stack:
        top = stack.pop()
        if is_pydantic(top) or type(top).__module__.partition(".")[0] in ("pydantic", "annotated_types"):
            return "pydantic" in sys.modules
        stack.extend(typing.get_args(top))
        if typing.get_origin(top) is typing.Annotated:
            stack.extend(top.__metadata__)
    return False


def _pydantic_form(annotation: Any) -> Form:
    adapter = sys.modules["pydantic"].TypeAdapter(annotation)
    refused = sys.modules["pydantic"].ValidationError

    def convert(value: Any) -> Any:
        try:
            # As JSON: a strict model takes text for a datetime there, and only there.
            return adapter.validate_json(written(value))
        except refused as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            first, more = found[0], len(found) - 1
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
            raise Mismatch(first["msg"] + (f" (and {more} more)" if more else ""), where) from None
        except (Exception, SystemExit) as error:
            raise Mismatch(f"{type(error).__name__} while it was being made {_named(annotation)}") from error

    schema = adapter.json_schema(ref_template="#/$defs/{model}")
    return Form(schema, schema.pop("$defs", {}), None, convert, _named(annotation))
