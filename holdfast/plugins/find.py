"""Which plugins there are: objects, `module[:object]`, files of WebAssembly, and those that installed packages declare.

Knows how a plugin is named, and makes the object. Must not call its methods.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import HoldfastError, Problem
from holdfast.plugins.plugin import ScheduledPlugin
from holdfast.spec.problems import quoted
from holdfast.tools.references import resolved, why

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "holdfast.plugins"  # the entry points of installed packages
WASM: Final = ".wasm"
_METHODS: Final = ("name", "schedules", "run")


class Found(msgspec.Struct, frozen=True):
    """A plugin, and how it was named; without one, why there is none."""

    source: str
    plugin: Any = None
    problem: Problem | None = None


def given(plugins: Iterable[Any]) -> list[Found]:
    """Plugins that are objects already."""
    return [found for one in plugins for found in _found(_named(one), [one])]


def referenced(references: Iterable[str]) -> list[Found]:
    """The plugins of `module`, `module:object` or `FILE.wasm`."""
    return [found for reference in references for found in _referenced(reference)]


def installed() -> list[Found]:
    """The plugins of installed packages, by their entry points."""
    return [found for point in _points(tuple(map(_changed_at, sys.path))) for found in _of_package(point)]


@lru_cache(maxsize=1)
def _points(folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """The entry points of plugins. Reading the metadata of every package takes 20 ms, so it is read again only when a
    folder of packages has changed."""
    from importlib.metadata import entry_points  # it takes longer to import than the rest of plugins/

    return tuple(sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)))


def _changed_at(folder: str) -> tuple[str, int]:
    try:
        return folder, os.stat(folder or ".").st_mtime_ns
    except OSError:  # paths on sys.path need not exist
        return folder, 0


def _referenced(reference: str) -> list[Found]:
    if reference.endswith(WASM):
        return _of_wasm(Path(reference))
    try:
        module, named = resolved(reference, "plugins")
    except HoldfastError as error:
        return [_refused(reference, str(error))]
    if named is None:
        named = list(_plugins_in(module))
    if not named:
        hint = f"make a subclass of ScheduledPlugin there, or name an object as {reference}:object"
        return [_refused(reference, f"module {reference!r} has no plugins", hint)]
    return _found(reference, named)


def _of_wasm(path: Path) -> list[Found]:
    if not path.is_file():
        return [_refused(str(path), f"there is no file {path}")]
    if find_spec("wasmtime") is None:
        return [
            _refused(str(path), "plugins of WebAssembly need wasmtime", "pip install 'holdfast-engine[wasm]'")
        ]
    from holdfast.plugins.wasm import WasmPlugin

    return [Found(str(path), WasmPlugin(path))]


def _of_package(point: EntryPoint) -> list[Found]:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    source = f"entry point {point.name}{package}"
    try:
        loaded = point.load()
    except (
        Exception,
        SystemExit,
    ) as error:  # importing runs the code of the package, which may raise anything
        return [_refused(source, f"cannot load {point.value!r}: {why(error)}")]
    return _found(source, list(loaded) if isinstance(loaded, list | tuple) else [loaded])


def _plugins_in(module: ModuleType) -> Iterator[Any]:
    """The plugins of a module: its objects, and the classes that it defines and has no object of."""
    members = list(vars(module).values())
    objects = [member for member in members if isinstance(member, ScheduledPlugin)]
    yield from dict.fromkeys(objects)
    for kind in members:
        is_own = (
            isinstance(kind, type)
            and issubclass(kind, ScheduledPlugin)
            and kind.__module__ == module.__name__
        )
        if (
            is_own
            and not getattr(kind, "__abstractmethods__", ())
            and not any(isinstance(o, kind) for o in objects)
        ):
            yield kind


def _found(source: str, objects: Iterable[Any]) -> list[Found]:
    return [_checked(source, one) for one in objects]


def _checked(source: str, one: Any) -> Found:
    """An object with the methods of a plugin; a class, or a function, is called to make one."""
    is_factory = isinstance(one, type) or (callable(one) and not hasattr(one, "schedules"))
    try:
        plugin = one() if is_factory else one
    except (Exception, SystemExit) as error:
        return _refused(source, f"cannot make {_named(one)}: {why(error)}")
    missing = [method for method in _METHODS if not callable(getattr(plugin, method, None))]
    if missing:
        message = f"{_named(plugin)} is not a plugin: it has no method {', '.join(missing)}"
        given = [method for method in missing if hasattr(plugin, method)]
        if given:
            value = getattr(plugin, given[0])
            message += f"; its {given[0]} is {quoted(value)}, which cannot be called"
            return _refused(source, message, f"write def {given[0]}(self): return {value!r:.100}")
        return _refused(source, message, "make it a subclass of holdfast.ScheduledPlugin")
    return Found(source, plugin)


def _refused(source: str, message: str, hint: str = "") -> Found:
    return Found(source, problem=Problem("plugin_not_found", message, hint=hint, source=source))


def _named(one: Any) -> str:
    kind = one if isinstance(one, type) or hasattr(one, "__qualname__") else type(one)
    return f"{kind.__module__}.{kind.__qualname__}"
