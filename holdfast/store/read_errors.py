"""The errors of reads: what the driver of a database raises becomes an error of this package, in one place for each store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Reads = TypeVar("Reads")
Errors = type[BaseException] | tuple[type[BaseException], ...]


def translating(
    errors: Errors, translated: Callable[[Any, BaseException], BaseException]
) -> Callable[[type[Reads]], type[Reads]]:
    """A decorator: every query of the class, inherited ones too, raises `translated(self, error)` in place of `errors`."""

    def query(method: Any) -> Any:
        @wraps(method)
        async def ask(self: Any, *args: Any, **named: Any) -> Any:
            try:
                return await method(self, *args, **named)
            except errors as error:
                raise translated(self, error) from error

        return ask

    def decorate(cls: type[Reads]) -> type[Reads]:
        inherited = [vars(base) for base in reversed(cls.__mro__)]
        for name, method in [item for found in inherited for item in found.items()]:
            if inspect.iscoroutinefunction(method):
                setattr(cls, name, query(method))
        return cls

    return decorate
