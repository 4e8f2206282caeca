"""Checks the arguments of public methods against their annotations before anything is done.

Knows text, numbers, yes or no, mappings and lists of text, by the words of annotations. Does not know what they mean:
that is checked where they are used.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar, cast

from holdfast.errors import InvalidInputs

RIGHT_MAX: Final = 100  # combinations of types that one method remembers

F = TypeVar("F", bound=Callable[..., Any])


class Kind(NamedTuple):
    word: str
    usual: type | None  # values of this type need no further check
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


class _Declared:
    """What a method says that it takes."""

    def __init__(self, method: Callable[..., Any]) -> None:
        parameters = inspect.signature(method).parameters
        self._places = tuple(parameters)
        self._left_out = {
            name for name, found in parameters.items() if str(found.annotation).endswith(" | None")
        }
        self._kinds = {name: kind_of(found) for name, found in parameters.items()}
        # Most calls repeat the types of an earlier, valid call, so comparing the types is enough unless a list must be checked.
        self.right: set[tuple[type, ...]] = set()
        self._by_type = all(kind is None or kind.usual is not None for kind in self._kinds.values())

    def check(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        for name, value in (*zip(self._places, args, strict=False), *named.items()):
            kind = self._kinds.get(name)
            if kind is None or kind.is_one(value) or (value is None and name in self._left_out):
                continue
            raise InvalidInputs(f"{name} must be {kind.word}, not {type(value).__name__} ({value!r:.50})")
        if self._by_type and not named and len(self.right) < RIGHT_MAX:
            self.right.add(tuple(map(type, args)))


def checked(method: F) -> F:
    """Make a method reject arguments whose type does not match the annotation; it checks other annotations itself."""
    declared = _Declared(method)
    right, check = declared.right, declared.check

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        if named or tuple(map(type, args)) not in right:
            check(args, named)
        return method(*args, **named)

    async def check_first(*args: Any, **named: Any) -> Any:
        check(args, named)
        return await method(*args, **named)

    @wraps(method)
    def call_later(*args: Any, **named: Any) -> Any:
        # No coroutine around that of the method, unless there is something to check when it is awaited.
        return (check_first if named or tuple(map(type, args)) not in right else method)(*args, **named)

    @wraps(method)
    async def call_each(*args: Any, **named: Any) -> AsyncGenerator[Any, None]:
        if named or tuple(map(type, args)) not in right:
            check(args, named)
        async with aclosing(method(*args, **named)) as found:
            async for one in found:
                yield one

    if inspect.isasyncgenfunction(method):
        return cast("F", call_each)
    return cast("F", call_later if inspect.iscoroutinefunction(method) else call)


def kind_of(parameter: inspect.Parameter) -> Kind | None:
    """What is checked of a parameter: its annotation is a string, since annotations are not evaluated."""
    return KINDS.get(str(parameter.annotation).removesuffix(" | None"))
