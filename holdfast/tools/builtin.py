"""The tools that are always there: http_request, log, echo, transform, fail, sleep. The engine is not known here.

All are async: five of them never wait for anything, and are then called without a task or a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from holdfast.errors import ExpressionTooCostly
from holdfast.tools.context import Context
from holdfast.tools.failures import ToolError
from holdfast.tools.guard import Guard

SLEEP_SECONDS_MAX: Final = 3_600.0  # a timer step waits longer, at no cost
PATH_CHARS_MAX: Final = 1_024


def builtins(guard: Guard) -> list[Callable[..., Any]]:
    """All of them; those that call out do it past this guard."""
    from holdfast.tools.http import requester

    return [requester(guard), log, echo, transform, fail, sleep]


async def echo(value: Any = None) -> Any:
    """Gives back what it is given."""
    return value


async def log(message: str, context: Context, fields: dict[str, Any] | None = None) -> None:
    """Writes a line about the run."""
    context.log(message, **(fields or {}))


async def fail(message: str = "failed on purpose", kind: str = "error") -> None:
    """Fails with this message and kind."""
    raise ToolError(message, kind=kind)


async def sleep(seconds: Annotated[float, msgspec.Meta(ge=0, le=SLEEP_SECONDS_MAX)]) -> None:
    """Waits within the attempt, up to an hour; a crash begins it anew. A `timer` step is durable and has no such bound."""
    await asyncio.sleep(seconds)


async def transform(
    value: Any,
    select: str | None = None,
    first: bool = False,
    pick: list[str] | dict[str, str] | None = None,
    omit: list[str] | None = None,
    merge: dict[str, Any] | None = None,
    default: Any = None,
) -> Any:
    """Reshapes a value, in this order, as far as each is given.

    `select`: a JSONPath; a path that names one place gives its value, any other the list of all it finds (with
    `first` only the first of them); where there is nothing, `default`. `pick`: keep these keys, or make new keys from
    JSONPaths (`{name: "$.person.name"}`), of an object or of each object in a list. `omit`: leave these keys out.
    `merge`: lay this object over it.
    """
    if select is not None:
        value = _selected(value, select, default, first=first)
    if pick is not None:
        value = _each(value, "pick", lambda one: _picked(one, pick, default))
    if omit is not None:
        value = _each(value, "omit", lambda one: {key: part for key, part in one.items() if key not in omit})
    if merge is not None:
        value = _each(value, "merge", lambda one: {**one, **merge})
    return value


def _selected(value: Any, path: str, default: Any, *, first: bool) -> Any:
    query = _query(path)
    try:
        found = query.find(value)
    except ExpressionTooCostly as error:
        raise ToolError(str(error), kind=error.code) from None
    if query.singular is not None and not query.star or first:
        return found[0] if found else default
    return found


def _picked(value: dict[str, Any], pick: list[str] | dict[str, str], default: Any) -> dict[str, Any]:
    if isinstance(pick, dict):
        return {key: _selected(value, path, default, first=False) for key, path in pick.items()}
    return {key: value[key] for key in pick if key in value}


def _each(value: Any, word: str, change: Callable[[dict[str, Any]], Any]) -> Any:
    if isinstance(value, dict):
        return change(value)
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return [change(one) for one in value]
    raise ToolError(
        f"`{word}` wants an object or a list of objects, not {type(value).__name__}", kind="inputs"
    )


@lru_cache(maxsize=256)
def _query(path: str) -> Any:
    from holdfast.spec.jsonpath import NotAPath, Query

    if len(path) > PATH_CHARS_MAX:
        raise ToolError(f"a path has at most {PATH_CHARS_MAX} characters", kind="inputs")
    try:
        return Query(path)
    except NotAPath as error:
        raise ToolError(f"{path!r} is no JSONPath: {error.message}", kind="inputs") from None
