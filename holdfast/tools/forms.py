"""Annotations: checking and converting JSON values, their JSON Schema, and results back to JSON.

Knows msgspec's types, and pydantic's without importing pydantic. Must not know functions or their parameters.
"""

from __future__ import annotations

import inspect
import math
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.tools.failures import OutputTooLarge
from holdfast.values import JSON_DEPTH_MAX, NotJson, encode, written

REF_TEMPLATE: Final = "#/$defs/{name}"
_ACCEPTED: Final = "JSON data, dataclasses, TypedDict, Enum, Literal, msgspec and pydantic models, datetime, Decimal, UUID, Path"
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
        return Form(schema, {}, exact, _to_float if exact is float else _refuse(words), words)
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


def _to_float(value: Any) -> float:
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
    if _is_pydantic(kind):
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
        return f"{_named(annotation)} has no JSON form (accepted are {_ACCEPTED})"
    return f"{_named(annotation)} cannot be read from JSON: {reason}"


# ------------------------------------------------------------------------------------------------------- pydantic


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def _mentions_pydantic(annotation: Any) -> bool:
    """Return whether an annotation contains a pydantic model or pydantic constraints."""
    stack = [annotation]
    while stack:
        top = stack.pop()
        if _is_pydantic(top) or type(top).__module__.partition(".")[0] in ("pydantic", "annotated_types"):
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


# -------------------------------------------------------------------------------------------------------- results


def result_text(value: Any) -> bytes:
    """Return the JSON text of a tool's result. Raise NotJson with the type and place of a part that has no JSON form.

    Raise OutputTooLarge before the text is built: a value that contains one part many times needs little memory, but its text
    may need all of it.
    """
    is_bent = type(value) not in _LEAVES and _is_bent(value)
    try:
        text = encode(value)
    except NotJson as error:
        first = error
    else:
        if is_bent:
            raise NotJson(_bent_at(value))
        return text
    _refuse_unfinished(value)
    if mismatch := _bent_at(value):
        raise NotJson(mismatch)
    try:
        text = encode(msgspec.to_builtins(value, str_keys=True, enc_hook=_to_json))
    except RecursionError:
        raise NotJson("the value is circular or nested too deeply") from None
    except Exception:
        raise NotJson(_mismatch_in(value) or str(first)) from None
    if text.find(b"null") >= 0 and (mismatch := _mismatch_in(value)):  # pydantic too writes NaN as null
        raise NotJson(mismatch)
    return text


def refuse_bent(value: Any, what: str) -> None:
    """Raise InvalidInputs if JSON would change the type of a part of a given value, such as a set."""
    kind = type(value)
    if kind in _LEAVES or (kind is dict and _LEAVES.issuperset(map(type, (*value, *value.values())))):
        return  # most inputs are flat, and this runs at every start
    try:
        is_bent = _is_bent(value)
    except NotJson as error:
        raise InvalidInputs(f"{what}: {error}") from None
    except OutputTooLarge:
        most = limits.size(limits.now.value_bytes_max)
        message = f"{what}: over {most}; pass a path or a reference instead"
        raise LimitExceeded("input_too_large", message, "value_bytes_max") from None
    if is_bent:
        raise InvalidInputs(f"{what}: {_bent_at(value, 'pass', 'text')}")


def _refuse_unfinished(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # or Python would warn that it was never awaited
        raise NotJson("a coroutine that was never awaited; make the tool `async def` and await it there")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise NotJson(f"{_a(value)}; return a list of its items")


def _to_json(value: Any) -> Any:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if _is_pydantic(type(value)):
        return sys.modules["pydantic"].TypeAdapter(type(value)).dump_python(value, mode="json")
    return _plain(value)


def _plain(value: Any) -> Any:
    """Convert subclasses of text and numbers, as HTML and numeric libraries return them."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise NotImplementedError


def _mismatch_in(value: Any) -> str:
    """Describe the first part of a value that has no JSON form; empty if it cannot be found."""
    stack: list[tuple[Any, str, int]] = [(value, "$", 0)]
    while stack:
        top, where, depth = stack.pop()
        if depth > JSON_DEPTH_MAX:
            return f"the value is circular or nested deeper than {JSON_DEPTH_MAX} levels"
        if isinstance(top, float) and not math.isfinite(top):
            return f"{top} at {where}: NaN and infinity have no JSON form"
        if isinstance(top, str) and not _has_text(top):
            return f"text with half of a surrogate pair at {where}, which cannot be written"
        parts = _parts(top)
        if parts is not None:
            stack.extend((part, where + step, depth + 1) for step, part in parts)
        elif not _has_text(top):
            return f"{_a(top)} at {where}; return {_ACCEPTED}"
    return ""


# msgspec writes a set as a list and bytes as base64, which would be read back as another type.
_BENT: Final = (set, frozenset, bytes, bytearray, memoryview)
# Levels of nesting: few values have this many, and each level of a circular value may be twice as wide.
CIRCLES_SEARCHED_FROM: Final = 12
_LEAVES: Final = frozenset({str, int, bool, float, type(None)})


def _is_bent(value: Any) -> bool:
    """Return whether JSON would change the type of a part of a value. Visits a whole level at once, and stops when it has seen more
    than a value may contain."""
    level, size = [value], 0
    for depth in range(JSON_DEPTH_MAX + 1):
        kinds = set(map(type, level))
        if str in kinds:
            size += sum([len(part) for part in level if type(part) is str])
        if kinds := kinds - _LEAVES:
            if any(issubclass(kind, _BENT) for kind in kinds | _kinds_of_keys(level, kinds)):
                return True
            size += sum([_width(part) for part in level if type(part) in kinds])
        is_large = size > limits.now.value_bytes_max
        if (is_large or depth == CIRCLES_SEARCHED_FROM) and _is_too_deep(value):
            break
        if is_large:
            raise OutputTooLarge
        if not kinds:
            return False
        level = [part for one in level if type(one) in kinds for part in _members(one)]
    raise NotJson(f"the value is circular or nested deeper than {JSON_DEPTH_MAX} levels")


def _kinds_of_keys(level: list[Any], kinds: set[type]) -> set[type]:
    if not any(issubclass(kind, dict) for kind in kinds):
        return set()
    return {type(key) for part in level if isinstance(part, dict) for key in part}


def _is_too_deep(value: Any) -> bool:
    """Return whether a value nests too deeply. It may contain one part many times, so each part of a level is visited once."""
    level = [value]
    for _ in range(JSON_DEPTH_MAX + 1):
        parts = (part for one in level for part in _members(one) if type(part) not in _LEAVES)
        if not (level := list({id(part): part for part in parts}.values())):
            return False
    return True


def _width(value: Any) -> int:
    """Return the least size of the members as text, without their contents: keys, a comma and one more character."""
    if type(value) is dict:
        return 4 * len(value) + sum([len(key) for key in value if type(key) is str])
    return 2 * len(value) if type(value) is list or type(value) is tuple else 0


def _members(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    if type(value) is list:
        return value
    return [part for _, part in _parts(value) or ()]


def _bent_at(value: Any, do: str = "return", files: str = "text, or a file in file_refs") -> str:
    """Describe the first part of a value whose type JSON would change, and what to `do` instead."""
    stack: list[tuple[Any, str, int]] = [(value, "$", 0)]
    while stack:
        top, where, depth = stack.pop()
        if isinstance(top, _BENT):
            other = "a list" if isinstance(top, set | frozenset) else files
            return f"{_a(top)} at {where} has no JSON form; {do} {other}"
        if isinstance(top, dict) and (keys := [key for key in top if isinstance(key, _BENT)]):
            return f"{_a(keys[0])} as a key of the object at {where} has no JSON form; use text"
        if depth > JSON_DEPTH_MAX:
            return ""  # circular or too deep, which is reported elsewhere
        stack.extend((part, where + step, depth + 1) for step, part in _parts(top) or ())
    return ""


def _parts(value: Any) -> Iterator[tuple[str, Any]] | None:
    if isinstance(value, dict):
        return ((f".{key}", part) for key, part in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ((f"[{index}]", part) for index, part in enumerate(value))
    kind = type(value)  # not the value itself, whose attributes may do anything
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if names is None and _is_pydantic(kind):
        names = getattr(kind, "model_fields", None)
    return None if names is None else ((f".{name}", getattr(value, name, None)) for name in names)


def _has_text(value: Any) -> bool:
    try:
        msgspec.json.encode(value, enc_hook=_to_json)
    except Exception:
        return False
    return True


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
