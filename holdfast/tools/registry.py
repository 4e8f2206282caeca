"""What a step can call: Python functions by name. Knows their arguments and results, not runs or retries."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, get_type_hints, overload

from holdfast.errors import NotFound
from holdfast.values import RunId

_MARK: Final = "__holdfast_tool__"


class ToolError(Exception):
    """Raise this in a tool to say what kind of failure it is, so that `retry_on` can choose."""

    def __init__(self, message: str, *, kind: str = "error") -> None:
        super().__init__(message)
        self.kind = kind


class Context:
    """What a tool may know of the attempt it is: take it as a parameter annotated `Context`."""

    __slots__ = ("_cancelled", "attempt", "idempotency_key", "path", "run_id")

    def __init__(self, run_id: RunId, path: str, attempt: int, idempotency_key: str) -> None:
        self.run_id, self.path, self.attempt, self.idempotency_key = run_id, path, attempt, idempotency_key
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """True once the run is being cancelled or the time of this attempt is over. Look at it, and return."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        self._cancelled.set()


class Tool:
    __slots__ = ("context", "fn", "is_async", "name", "suspends")

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn, self.name = fn, name
        self.is_async = inspect.iscoroutinefunction(fn)
        self.context = _context_parameter(fn)
        self.suspends = not self.is_async  # learnt: a tool that never waits needs no task of its own

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


@overload
def tool(fn: Callable[..., Any], /) -> Callable[..., Any]: ...
@overload
def tool(*, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def tool(fn: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Mark a function, sync or async, as a tool. It stays the function that it is."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _MARK, name or function.__name__)
        return function

    return mark if fn is None else mark(fn)


class Registry:
    """Tools by name."""

    def __init__(self, tools: Iterable[Any] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            self.add(given)

    def add(self, given: Any) -> None:
        fn = given.fn if isinstance(given, Tool) else given
        if not callable(fn):
            raise TypeError(f"{given!r} is no tool: give functions, or decorate them with @tool")
        name = given.name if isinstance(given, Tool) else getattr(fn, _MARK, fn.__name__)
        known = self._tools.get(name)
        if known is not None and known.fn is not fn:
            raise ValueError(
                f"two tools are called {name!r}: {_place(known.fn)} and {_place(fn)}; rename one"
            )
        self._tools[name] = Tool(fn, name)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def names(self) -> frozenset[str]:
        return frozenset(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())


def load(reference: str) -> list[Callable[..., Any]]:
    """The tools of `module` or `module:object`: everything marked with @tool, or that one object."""
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise NotFound(f"no module {module_name!r} to load tools from; is it in this folder?") from None
    if name:
        if not hasattr(module, name):
            raise NotFound(f"module {module_name!r} has no {name!r}")
        found = getattr(module, name)
        return list(found) if isinstance(found, list | tuple) else [found]
    return [value for value in vars(module).values() if callable(value) and hasattr(value, _MARK)]


def _place(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"


def _context_parameter(fn: Callable[..., Any]) -> str | None:
    if not getattr(fn, "__annotations__", None):
        return None
    try:
        hints = get_type_hints(fn)
    except Exception:  # an annotation that cannot be read is not ours to judge
        return None
    return next((name for name, hint in hints.items() if hint is Context and name != "return"), None)
