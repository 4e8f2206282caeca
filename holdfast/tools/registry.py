"""The registry of tools: Python functions by name. Knows their arguments and results, not runs or retries."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, overload

import msgspec

from holdfast.errors import NotFound
from holdfast.tools.annotations import UNSAID, Annotations
from holdfast.tools.builtin import builtins
from holdfast.tools.context import Context
from holdfast.tools.failures import ToolError
from holdfast.tools.guard import Guard
from holdfast.tools.references import resolved
from holdfast.tools.remote import RemoteCaller
from holdfast.tools.results import result_text
from holdfast.tools.signature import Fault, Signature

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
_ANNOTATIONS: Final = "__holdfast_annotations__"

Function = TypeVar("Function", bound=Callable[..., Any])


class Tool:
    """A function that steps can call, with its settings."""

    __slots__ = (
        "_signature", "annotations", "bind", "context", "decode", "fn", "is_async", "is_plain", "is_remote", "isolated", "name", "runs_in", "spread",
        "suspends", "takes_callback", "unread",
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
        # Decodes the text of arguments that fit as they are; None if `bind` is needed for any. Made when it is first used.
        self.decode: Callable[[bytes | msgspec.Raw], msgspec.Struct] | None = self._first_decode
        self.spread: Callable[[Any, dict[str, Any]], dict[str, Any]] = self._signature.spread
        self.context = self._signature.context
        # it receives a callback URL for a pending result
        self.takes_callback = bool(getattr(fn, _CALLBACK, False))
        self.annotations: Annotations = getattr(fn, _ANNOTATIONS, UNSAID)
        self.unread: frozenset[str] = frozenset()  # parameters that it takes as `msgspec.Raw` too
        self.is_remote = False  # it runs on another machine, so its files are not here
        # Learnt at run time: a tool that never waits needs no task of its own.
        self.suspends = self.runs_in != "loop"
        self.is_plain = not self.suspends and self.context is None

    def _first_decode(self, text: bytes | msgspec.Raw) -> msgspec.Struct:
        self.decode = self._signature.decoder()
        if self.decode is None:
            raise msgspec.ValidationError("the types of the arguments do not decide")
        return self.decode(text)

    def waits(self) -> None:
        """Note that the tool has waited: from now on each call gets its own task."""
        self.suspends, self.is_plain = True, False

    result = staticmethod(result_text)

    def faults(self, args: dict[str, Any], is_judged: Callable[[Any], bool]) -> list[Fault]:
        """What is wrong with arguments; values for which `is_judged` is false are accepted."""
        return self._signature.faults(args, is_judged)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self._signature.schema()

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


@overload
def tool(fn: Function, /) -> Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    isolate: Isolation | None = None,
    supports_async_callback: bool = False,
    destructive: bool | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
) -> Callable[[Function], Function]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    isolate: Isolation | None = None,
    supports_async_callback: bool = False,
    destructive: bool | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
) -> Any:
    """Mark a function, sync or async, as a tool. The function itself is unchanged.

    With `isolate="process"` it is called in a separate process, which can be killed: for CPU-heavy work, and for code that may
    not return. With `supports_async_callback` it is given a
    `callback_url` if the server has a public address: it may then return `{"pending": True, "task_id": …}`, and the
    result is sent to that URL later.

    `destructive` (its effects cannot be undone), `read_only` (it has none) and `idempotent` (a second call changes nothing
    more) are shown in plans and to MCP clients; an untrusted plan waits for approval before a destructive tool.
    """
    if isolate not in (None, "process"):
        raise ValueError(f'isolate is "process" or left out, not {isolate!r}')
    annotations = Annotations(destructive, read_only, idempotent)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError(
                f"{function!r} is not callable, so it cannot be a tool; did you mean @tool(name={function!r})?"
            )
        if inspect.ismethod(function):  # a method cannot carry the mark
            function = functools.partial(function)
        setattr(function, _NAME, name or _name_of(function))
        setattr(function, _ISOLATION, isolate)
        setattr(function, _CALLBACK, supports_async_callback)
        setattr(function, _ANNOTATIONS, annotations)
        return function

    return mark if fn is None else mark(fn)


class Registry:
    """Tools by name: the given ones, and the built-in ones whose names are not taken."""

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
        # A server's result must not refer to files of this machine.
        self._all["http_request"].is_remote = True
        self._all["http_request"].unread = frozenset({"json"})
        self._all["http_request"].annotations = Annotations(destructive=True)  # it may send anything anywhere
        for name in ("log", "echo", "transform", "fail", "sleep"):
            self._all[name].annotations = Annotations(read_only=True, idempotent=True)
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
        """Return a tool on a server (`server/tool`), if a remote caller is configured for that server."""
        server, slash, name = target.partition("/")
        if self._remote is None or not slash or server not in getattr(self._remote, "servers", (server,)):
            return None
        made = self._all[target] = _remote_tool(self._remote, server, name)
        return made

    def annotations_of(self, target: str) -> Annotations | None:
        """The declared effects of a tool; None if no such tool is known."""
        found = self._all.get(target) or self.remote(target)
        if found is None or not found.is_remote or self._remote is None or "/" not in target:
            return None if found is None else found.annotations
        marks_of = getattr(self._remote, "marks_of", None)
        return found.annotations if marks_of is None else Annotations(*marks_of(*target.split("/", 1)))

    async def learn(self, server: str) -> None:
        """Ask a server for the declared effects of its tools, if they are not known yet and the server can be reached."""
        learn = getattr(self._remote, "learn", None)
        if learn is not None:
            await learn(server)

    @property
    def servers(self) -> frozenset[str]:
        """The names of the configured servers of remote tools."""
        return frozenset(getattr(self._remote, "servers", ()))

    def learnt(self, server: str) -> list[tuple[str, str, Any]]:
        """The tools of a server (`server/tool`) with their descriptions and schemas, as the server has told them so far."""
        told = getattr(self._remote, "tools_of", None)
        return (
            []
            if told is None
            else [(f"{server}/{name}", said, schema) for name, said, schema in told(server)]
        )

    @property
    def has_tasks(self) -> bool:
        """Whether a call of a remote tool may become a task of its server."""
        return hasattr(self._remote, "poll")

    async def poll_task(self, url: str) -> tuple[bool, Any]:
        """Whether the task that an `mcp:` URL names has ended, and its answer; raises ToolError if that is not known."""
        poll = getattr(self._remote, "poll", None)
        return (False, None) if poll is None else await _tool_errors(poll(url))

    async def cancel_task(self, url: str) -> None:
        cancel = getattr(self._remote, "cancel", None)
        if cancel is not None:
            await _tool_errors(cancel(url))

    async def stop_servers(self) -> None:
        """End the connections to the servers of remote tools, if the caller of remote tools keeps any."""
        stop = getattr(self._remote, "stop", None)
        if stop is not None:
            await stop()

    def has(self, target: str) -> bool:
        return target in self._all or self.remote(target) is not None

    def names(self) -> frozenset[str]:
        return frozenset(self._all)

    def here(self) -> Iterator[Tool]:
        """The tools that run in this process, the built-in ones too."""
        return (tool for name, tool in self._all.items() if "/" not in name)

    def sources(self) -> set[Path]:
        """Return where the code of the tools is: files, or the folders of their packages."""
        modules = {module for made in self._all.values() if (module := getattr(made.fn, "__module__", None))}
        return {path for module in modules for path in _sources_of(module)}

    def __iter__(self) -> Iterator[Tool]:
        """Those given."""
        return iter(self._tools.values())


async def _tool_errors(asking: Awaitable[Any]) -> Any:
    """Convert the errors of a caller of remote tools to errors with a kind, like those of tools."""
    try:
        return await asking
    except Exception as error:
        if not isinstance(kind := getattr(error, "kind", None), str):
            raise
        raise ToolError(str(error), kind=kind) from None


@functools.cache
def _builtin_signatures() -> dict[str, Signature]:
    """Read the signatures of the built-in tools once: they never change, and reading them takes longer than the rest of opening an engine."""
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
        raise TypeError(f"{fn!r} is not a tool: pass functions, or decorate them with @tool")
    name = getattr(fn, _NAME, None) or _name_of(fn)
    try:
        return Tool(fn, name, isolate=getattr(fn, _ISOLATION, None))
    except TypeError as error:
        code = getattr(inspect.unwrap(fn), "__code__", None)
        where = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        raise TypeError(f"{error}{where}") from None


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
    """Refuse a function that another process could not find by its module and qualified name."""
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
    """Return the tools of `module` or `module:object`: every function marked with @tool, or that one object."""
    module, named = resolved(reference, "tools")
    if named is not None:
        return named
    found = [value for value in vars(module).values() if callable(value) and hasattr(value, _NAME)]
    if not found:
        name = module.__name__
        raise NotFound(
            f"module {name!r} has no tools: mark its functions with @tool, or name one as {name}:function"
        )
    return found


def _place(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
