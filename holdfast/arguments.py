"""What somebody gave to a method of ours, held against what the method says that it takes, before anything is done.

Knows text, numbers, yes or no, mappings and lists of text, by the words of annotations. Does not know what they mean:
that is looked at where they are used.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar, cast

from holdfast.errors import InvalidInputs

F = TypeVar("F", bound=Callable[..., Any])


class Kind(NamedTuple):
    word: str
    usual: type | None  # nothing has to be looked at closely that is of this type
    is_one: Callable[[Any], bool]


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _are_texts(given: Any) -> bool:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and all(isinstance(one, str) for one in given)
    )


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_yes_or_no(given: Any) -> bool:
    return isinstance(given, bool)


def _is_mapping(given: Any) -> bool:
    return isinstance(given, Mapping)


KINDS: Final[dict[str, Kind]] = {
    "str": Kind("text", str, _is_text),
    "bool": Kind("true or false", bool, _is_yes_or_no),
    "int": Kind("a whole number", int, _is_whole),
    "float": Kind("a number", float, _is_number),
    "Mapping[str, Any]": Kind("a mapping of names to values", dict, _is_mapping),
    "Mapping[str, str]": Kind("a mapping of names to text", dict, _is_mapping),
    "Sequence[str]": Kind("a list of text", None, _are_texts),
}


def checked(method: F) -> F:
    """Let a method refuse what is of another kind than its annotation says; others than those above are its own to look at."""
    parameters = inspect.signature(method).parameters
    places = tuple(parameters)
    left_out = {name for name, found in parameters.items() if str(found.annotation).endswith(" | None")}
    kinds = {name: kind_of(found) for name, found in parameters.items()}
    in_order = tuple(kinds.values())

    def look(args: tuple[Any, ...], named: dict[str, Any]) -> None:
        for kind, given in zip(in_order, args, strict=False):  # most calls are right: see that first
            if kind is not None and type(given) is not kind.usual:
                return look_closely((*zip(places, args, strict=False), *named.items()))
        return look_closely(named.items()) if named else None

    def look_closely(given: Iterable[tuple[str, Any]]) -> None:
        for name, value in given:
            kind = kinds.get(name)
            if kind is None or kind.is_one(value) or (value is None and name in left_out):
                continue
            raise InvalidInputs(f"{name} must be {kind.word}, not {type(value).__name__} ({value!r:.50})")

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        look(args, named)
        return method(*args, **named)

    @wraps(method)
    async def call_later(*args: Any, **named: Any) -> Any:
        look(args, named)
        return await method(*args, **named)

    @wraps(method)
    async def call_each(*args: Any, **named: Any) -> AsyncGenerator[Any, None]:
        look(args, named)
        async with aclosing(method(*args, **named)) as found:
            async for one in found:
                yield one

    if inspect.isasyncgenfunction(method):
        return cast("F", call_each)
    return cast("F", call_later if inspect.iscoroutinefunction(method) else call)


def kind_of(parameter: inspect.Parameter) -> Kind | None:
    """What is looked at of a parameter: its annotation is text, as wherever annotations are not evaluated."""
    return KINDS.get(str(parameter.annotation).removesuffix(" | None"))
