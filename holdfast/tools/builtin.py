"""The built-in tools: http_request, log, echo, transform, fail, sleep. Does not know the engine.

All are async. Those that never wait are called without their own task or thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import ExpressionTooCostly
from holdfast.spec.work import Work
from holdfast.tools.context import Context
from holdfast.tools.failures import ToolError
from holdfast.tools.guard import Guard

SLEEP_SECONDS_MAX: Final = float(limits.bounds("sleep_secs_max")[1])
PATH_CHARS_MAX: Final = 1_024
SEARCH: Final = 2  # units of work that starting a search costs


def builtins(guard: Guard) -> list[Callable[..., Any]]:
    """Return all built-in tools. Their outgoing calls pass this guard."""
    from holdfast.tools.http import requester

    return [requester(guard), log, echo, transform, fail, sleep]


async def echo(value: Any = None) -> Any:
    """Returns its argument."""
    return value


async def log(message: str, context: Context, fields: dict[str, Any] | None = None) -> None:
    """Writes a log line for the run."""
    context.log(message, **(fields or {}))


async def fail(message: str = "failed on purpose", kind: str = "error") -> None:
    """Fails with this message and kind."""
    raise ToolError(message, kind=kind)


async def sleep(seconds: Annotated[float, msgspec.Meta(ge=0, le=SLEEP_SECONDS_MAX)]) -> None:
    """Waits inside the attempt, up to an hour; after a crash it starts again. A `timer` step is durable and has no such limit."""
    if seconds > limits.now.sleep_secs_max:
        which = limits.met("sleep_secs_max")
        raise ToolError(
            f"`seconds` is at most {limits.now.sleep_secs_max:,} ({which}); use a timer step", kind="inputs"
        )
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
    """Reshapes a value. The operations that are given are applied in this order.

    `select`: a JSONPath; a path to one location returns its value, any other a list of all matches (with `first` only the
    first of them); if there is no match, `default`. `pick`: keep these keys, or make new keys from JSONPaths
    (`{name: "$.person.name"}`), in an object or in each object of a list. `omit`: remove these keys. `merge`: merge this
    object into it, replacing existing keys.

    All paths together share the work budget of one expression, and at most 2,000,000 members are visited or copied.
    """
    paths, members = Work(), Work("transform_members_max")
    try:
        if select is not None:
            value = _selected(value, select, default, paths, first=first)
        if isinstance(pick, dict):
            value = _each(value, "pick", members, len(pick), lambda one: _made(one, pick, default, paths))
        elif pick is not None:
            value = _each(value, "pick", members, len(pick), lambda one: _picked(one, pick))
        if omit is not None:
            left_out = frozenset(omit)
            value = _each(value, "omit", members, 0, lambda one: _without(one, left_out))
        if merge is not None:
            value = _each(value, "merge", members, len(merge), lambda one: {**one, **merge})
    except ExpressionTooCostly as error:
        raise ToolError(str(error), kind=error.code) from None
    return value


def _selected(value: Any, path: str, default: Any, work: Work, *, first: bool) -> Any:
    query = _query(path)
    work.spend(SEARCH)
    found = query.find(value, work)
    if query.singular is not None and not query.star or first:
        return found[0] if found else default
    return found


def _made(value: dict[str, Any], pick: dict[str, str], default: Any, work: Work) -> dict[str, Any]:
    return {key: _selected(value, path, default, work, first=False) for key, path in pick.items()}


def _picked(value: dict[str, Any], pick: list[str]) -> dict[str, Any]:
    return {key: value[key] for key in pick if key in value}


def _without(value: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if key not in keys}


def _each(
    value: Any, word: str, members: Work, added: int, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Any:
    """Apply a change to an object, or to each object of a list. The cost of each is its members and those `added`."""

    def changed(one: dict[str, Any]) -> dict[str, Any]:
        members.spend(1 + len(one) + added)
        return change(one)

    if isinstance(value, dict):
        return changed(value)
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return [changed(one) for one in value]
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
        raise ToolError(f"{path!r} is not a JSONPath: {error.message}", kind="inputs") from None
