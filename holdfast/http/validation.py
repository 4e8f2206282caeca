"""Validation errors of a body or query: what is wrong, where, and what to write instead.

Knows msgspec's messages and the fields of types, but no route.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

from holdfast.errors import InvalidRequest, Problem
from holdfast.nearest import did_you_mean


def invalid(error: Exception, what: str, wanted: Any) -> InvalidRequest:
    """Return the error for a `what` (body, query) that does not match the type `wanted`."""
    problem = problem_of(str(error), wanted)
    place = f" at {problem.pointer}" if problem.pointer else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return InvalidRequest(f"the {what} cannot be used{place}: {problem.message}{hint}", [problem])


def with_whole_numbers(data: Any, wanted: Any, error: msgspec.ValidationError) -> Any:
    """Convert data that a strict decoder refused: where the type has an integer, 750.0 is one, as in JSON Schema. Raises as the
    decoder does if that is not all that is wrong."""
    for _ in range(WHOLE_NUMBERS_MAX):
        found = _NOT_WHOLE.fullmatch(str(error))
        if found is None or not _made_whole(data, _pointer(found[1] or "").split("/")[1:]):
            break
        try:
            return msgspec.convert(data, wanted)
        except msgspec.ValidationError as next_error:
            error = next_error
    raise error


WHOLE_NUMBERS_MAX: Final = 100  # in one body; a type has fewer fields
_NOT_WHOLE = re.compile(r"Expected `int[^`]*`, got `float`(?: - at `(.*)`)?")


def _made_whole(data: Any, keys: list[str]) -> bool:
    """Replace the number at a place by the same number as an integer."""
    for key in keys[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    number = data.get(keys[-1]) if isinstance(data, dict) and keys else None
    if not isinstance(number, float) or not number.is_integer():
        return False
    data[keys[-1]] = int(number)
    return True


def problem_of(message: str, wanted: Any = Any) -> Problem:
    """Translate an error of msgspec to a problem with a JSON pointer."""
    what, _, place = message.partition(" - at `")
    pointer = _pointer(place.rstrip("`"))
    if what.startswith("Object contains unknown field `"):
        name = what.split("`")[1]
        hint = _known(name, _keys_at(wanted, pointer))
        return Problem("unknown_key", f'unknown key "{name}"', f"{pointer}/{name}", hint=hint)
    if what.startswith("Object missing required field `"):
        name = what.split("`")[1]
        return Problem("missing_key", f'"{name}" is missing', f"{pointer}/{name}")
    if what == "Input data was truncated":  # it says so too of half a surrogate pair near the end
        return Problem("wrong_type", "the JSON ends too soon, or a text in it has half of a surrogate pair")
    hint = _one_of(_words_at(wanted, pointer)) if what.startswith("Invalid enum value") else ""
    is_word = what[1:2].islower()  # not an abbreviation, such as JSON
    return Problem("wrong_type", what[:1].lower() + what[1:] if is_word else what, pointer, hint=hint)


def _pointer(path: str) -> str:
    """`$.labels[...].a[0]` → `/labels/a/0`"""
    parts = path.removeprefix("$").replace("[...]", "").replace("[", ".").replace("]", "").split(".")
    return "".join(f"/{part}" for part in parts if part)


# ----------------------------------------------------------------------------------------------- what would fit


def _known(name: str, keys: list[str]) -> str:
    return did_you_mean(name, keys) or (f"known keys are {', '.join(keys)}" if keys else "")


def _one_of(words: list[str]) -> str:
    return f"one of {', '.join(words)}" if words else ""


def _keys_at(wanted: Any, pointer: str) -> list[str]:
    structs = [kind for kind in _kinds_at(wanted, pointer) if isinstance(kind, inspect.StructType)]
    return sorted({field.encode_name for kind in structs for field in kind.fields})


def _words_at(wanted: Any, pointer: str) -> list[str]:
    literals = [kind for kind in _kinds_at(wanted, pointer) if isinstance(kind, inspect.LiteralType)]
    return [str(word) for kind in literals for word in kind.values if word != ""]


def _kinds_at(wanted: Any, pointer: str) -> list[inspect.Type]:
    """Return the types allowed at a place in a value of a type."""
    kinds = _each(inspect.type_info(wanted))
    for part in pointer.split("/")[1:]:
        kinds = [inner for kind in kinds for inner in _within(kind, part)]
    return kinds


def _within(kind: inspect.Type, part: str) -> list[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            return [inner for field in fields if field.encode_name == part for inner in _each(field.type)]
        case inspect.ListType(item_type=inner):
            return _each(inner)
        case _:
            pass
    return []


def _each(kind: inspect.Type) -> list[inspect.Type]:
    match kind:
        case inspect.UnionType(types=kinds):
            return [each for inner in kinds for each in _each(inner)]
        case inspect.Metadata(type=inner):
            return _each(inner)
        case _:
            pass
    return [kind]
