"""What a step can call: Python functions by name. Knows their arguments and results, not runs or retries."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, overload

from holdfast.errors import NotFound
from holdfast.tools.builtin import builtins
from holdfast.tools.context import Context
from holdfast.tools.failures import ToolError
from holdfast.tools.forms import result_text
from holdfast.tools.guard import Guard
from holdfast.tools.remote import RemoteCaller
from holdfast.tools.signature import Signature

__all__ = [
    "Context",
    "Registry",
    "Tool",
    "ToolError",
    "load",
    "tool",
]  # those of a tool's author, in one place

Isolation = Literal["process"]

_NAME: Final = "__holdfast_tool__"
_ISOLATION: Final = "__holdfast_isolate__"
_CALLBACK: Final = "__holdfast_callback__"


class Tool:
    """A function that steps can call, with what must be known to call it."""

    __slots__ = (
        "_signature", "bind", "context", "fn", "is_async", "is_plain", "is_remote", "isolated", "name", "runs_in", "spread",
        "suspends", "takes_callback",
    )  # fmt: skip

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        *,
        isolate: Isolation | None = None,
        signature: Signature | None = None,
    ) -> None:
        self.fn, self.name = fn, name
        _refuse_generator(fn, name)
        self.is_async = _is_async(fn)
        self.isolated = isolate == "process"
        self.runs_in = "process" if self.isolated else "loop" if self.is_async else "thread"
        if self.isolated:
            _refuse_unfindable(fn, name)
        self._signature = signature or Signature(fn, name)
        self.bind: Callable[[dict[str, Any]], dict[str, Any]] = self._signature.bind
        self.spread: Callable[[Any, dict[str, Any]], dict[str, Any]] = self._signature.spread
        self.context = self._signature.context
        self.takes_callback = bool(
            getattr(fn, _CALLBACK, False)
        )  # it receives the callback URL for a later result
        self.is_remote = False  # done on another machine, whose files are not here
        # Learnt: one that never waits needs no task of its own. A plain one is just called.
        self.suspends = self.runs_in != "loop"
        self.is_plain = not self.suspends and self.context is None

    def waits(self) -> None:
        """It was found waiting: from now on each call gets a task of its own."""
        self.suspends, self.is_plain = True, False

    result = staticmethod(result_text)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self._signature.schema()

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


@overload
def tool(fn: Callable[..., Any], /) -> Callable[..., Any]: ...
@overload
def tool(
    *, name: str | None = None, isolate: Isolation | None = None, supports_async_callback: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    isolate: Isolation | None = None,
    supports_async_callback: bool = False,
) -> Any:
    """Mark a function, sync or async, as a tool. It stays the function that it is.

    With `isolate="process"` it is called in a process of its own kind, which can be killed: for work that keeps a
    core busy, and for code that cannot be trusted to return. With `supports_async_callback` it is given a
    `callback_url` if the server has a public address: it may then return `{"pending": True, "task_id": …}`, and the
    result is sent to that URL later.
    """
    if isolate not in (None, "process"):
        raise ValueError(f'isolate is "process" or left out, not {isolate!r}')

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError(
                f"{function!r} cannot be called, so it is no tool; did you mean @tool(name={function!r})?"
            )
        if inspect.ismethod(function):  # a method has no place for marks of its own
            function = functools.partial(function)
        setattr(function, _NAME, name or _name_of(function))
        setattr(function, _ISOLATION, isolate)
        setattr(function, _CALLBACK, supports_async_callback)
        return function

    return mark if fn is None else mark(fn)


class Registry:
    """Tools by name: those given, and the built-in ones whose names they leave free."""

    def __init__(
        self, tools: Iterable[Any] = (), *, guard: Guard | None = None, remote: RemoteCaller | None = None
    ) -> None:
        self._remote = remote
        self._tools: dict[str, Tool] = {}
        self.guard = guard or Guard()
        known = _builtin_signatures()
        self._all = {
            fn.__name__: Tool(fn, fn.__name__, signature=known[fn.__name__]) for fn in builtins(self.guard)
        }
        self._all["http_request"].is_remote = True  # a server's answer must not name files of this machine
        self.get = self._all.get
        for given in tools:
            self.add(given)

    def add(self, given: Any, *, replace: bool = False) -> None:
        made = given if isinstance(given, Tool) else _tool_of(given)
        known = None if replace else self._tools.get(made.name)
        if known is not None and known.fn != made.fn:
            raise ValueError(
                f"two tools are called {made.name!r}: {_place(known.fn)} and {_place(made.fn)}; rename one"
            )
        self._tools[made.name] = self._all[made.name] = made

    def remote(self, target: str) -> Tool | None:
        """A tool on a server (`server/tool`), if there is a caller who knows that server."""
        server, slash, name = target.partition("/")
        if self._remote is None or not slash or server not in getattr(self._remote, "servers", (server,)):
            return None
        made = self._all[target] = _remote_tool(self._remote, server, name)
        return made

    def has(self, target: str) -> bool:
        return target in self._all or self.remote(target) is not None

    def names(self) -> frozenset[str]:
        return frozenset(self._all)

    def sources(self) -> set[Path]:
        """Where the code of the tools lies: a file, or the folder of the package that it is in."""
        modules = {module for made in self._all.values() if (module := getattr(made.fn, "__module__", None))}
        return {path for module in modules for path in _sources_of(module)}

    def __iter__(self) -> Iterator[Tool]:
        """Those given."""
        return iter(self._tools.values())


@functools.cache
def _builtin_signatures() -> dict[str, Signature]:
    """Read once: they are the same in every registry, and reading them takes longer than the rest of opening an engine."""
    return {fn.__name__: Signature(fn, fn.__name__) for fn in builtins(Guard())}


def _sources_of(module: str) -> list[Path]:
    outermost = sys.modules.get(module.partition(".")[0])
    if (folders := getattr(outermost, "__path__", None)) is not None:
        return [Path(folder) for folder in folders]
    file = getattr(outermost, "__file__", None)
    return [] if file is None else [Path(file)]


def _remote_tool(caller: RemoteCaller, server: str, name: str) -> Tool:
    async def call(_context: Context, **args: Any) -> Any:
        return await caller.call(server, name, args, _context)

    made = Tool(call, f"{server}/{name}")
    made.is_remote = True
    return made


def _tool_of(fn: Any) -> Tool:
    if not callable(fn):
        raise TypeError(f"{fn!r} is no tool: give functions, or decorate them with @tool")
    return Tool(fn, getattr(fn, _NAME, None) or _name_of(fn), isolate=getattr(fn, _ISOLATION, None))


def _name_of(fn: Callable[..., Any]) -> str:
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{fn!r} has no name to be called by; give it one: tool(name='…')(…)")
    return name


def _is_async(fn: Callable[..., Any]) -> bool:
    call = getattr(type(fn), "__call__", None)  # noqa: B004  # not whether there is one: whether it is async
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def _refuse_generator(fn: Callable[..., Any], name: str) -> None:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"tool {name!r} is a generator, and a step has one output: return a list instead of yielding"
        )


def _refuse_unfindable(fn: Callable[..., Any], name: str) -> None:
    """Another process finds the function by module and qualified name, so these must lead to it."""
    module, path = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if module is None or path is None or "<" in path:
        raise TypeError(
            f"tool {name!r} runs in a process, which finds it by name: make it a function at the top of a module, "
            "not a lambda, a method of an object or a function inside another"
        )
    found: Any = sys.modules.get(module)
    if module == "__main__" and not hasattr(found, "__file__"):
        raise TypeError(
            f"tool {name!r} runs in a separate process, which cannot import from this session: put it into a module"
        )
    for part in path.split("."):
        found = getattr(found, part, None)
    if found != fn:
        raise TypeError(
            f"tool {name!r} runs in a separate process, which would find something else at {module}.{path}"
        )


def load(reference: str) -> list[Callable[..., Any]]:
    """The tools of `module` or `module:object`: everything marked with @tool, or that one object."""
    module_name, _, name = reference.partition(":")
    _refuse_path(reference, module_name)
    module = _imported(module_name)
    if not name:
        found = [value for value in vars(module).values() if callable(value) and hasattr(value, _NAME)]
        if not found:
            raise NotFound(
                f"module {module_name!r} has no tools: mark its functions with @tool, or name one as {module_name}:function"
            )
        return found
    if not hasattr(module, name):
        from holdfast.spec.problems import did_you_mean

        hint = did_you_mean(name, [known for known in vars(module) if not known.startswith("_")])
        raise NotFound(f"module {module_name!r} has no {name!r}" + (f"; {hint}" if hint else ""))
    one = getattr(module, name)
    return list(one) if isinstance(one, list | tuple) else [one]


def _refuse_path(reference: str, module_name: str) -> None:
    if "/" in module_name or "\\" in module_name or module_name.endswith(".py"):
        path = Path(module_name.removesuffix(".py"))
        inside = not path.is_absolute() and ".." not in path.parts
        meant = (".".join(path.parts) if inside else path.name) + reference.removeprefix(module_name)
        where = "" if inside else f" in the folder {path.parent}, or with that folder in PYTHONPATH"
        raise NotFound(f"{reference!r} is a path, and tools are loaded from a module: write {meant}{where}")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise NotFound(f"{reference!r} names no module: tools are given as module or module:object")


def _imported(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise NotFound(
                f"no module {module_name!r} to load tools from; is it in this folder, or in PYTHONPATH?"
            ) from None
        raise NotFound(f"cannot load tools from {module_name!r}: {_why(error)}") from error
    except (Exception, SystemExit) as error:  # importing runs the user's code, which may raise anything
        raise NotFound(f"cannot load tools from {module_name!r}: {_why(error)}") from error


def _why(error: BaseException) -> str:
    """What went wrong, and at which line of the user's own."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    frames = [at for at in traceback.extract_tb(error.__traceback__) if not at.filename.startswith("<frozen")]
    return f"{type(error).__name__}: {error} ({frames[-1].filename}:{frames[-1].lineno})"


def _place(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
