"""Asks a plugin what it is: its name, priority and schedules. One that cannot be used is refused with all its problems.

Knows the methods of a plugin and how long each may take. Must not know when a schedule is due, or what a run is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidSpec, Problem
from holdfast.plugins.find import Found
from holdfast.plugins.plugin import Schedule
from holdfast.spec.plugin import name_problems, priority_problems, schedules_of
from holdfast.spec.policy import TIMEOUT_SECS_MAX
from holdfast.spec.problems import quoted
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import PRIORITY
from holdfast.threads import in_own_thread
from holdfast.tools.failures import ToolError
from holdfast.tools.references import why

log = logging.getLogger("holdfast.plugins")

SCHEDULES_SECS_MAX: Final = 10  # for name(), priority() and schedules() together
CLEANUP_SECS_MAX: Final = 10


class Plugin(msgspec.Struct, frozen=True):
    """A plugin that can be used. `source` is how it was named, and `plugin` is the author's object."""

    source: str
    name: str
    priority: int
    schedules: tuple[ScheduleSpec, ...]
    timeout_secs: float | None
    plugin: Any


class Refused(msgspec.Struct, frozen=True):
    """A plugin that cannot be used, and why. The name is empty if it is not known."""

    source: str
    name: str
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        who = f"plugin {self.name} ({self.source})" if self.name else f"plugin {self.source}"
        return f"{who} is not started: " + "; ".join(map(str, self.problems))


class Loaded(msgspec.Struct, frozen=True):
    plugins: tuple[Plugin, ...] = ()
    refused: tuple[Refused, ...] = ()


async def load(found: Iterable[Found], besides: Iterable[Plugin] = ()) -> Loaded:
    """Load plugins. Those that cannot be used are refused, and the rest is loaded. `besides` are there already, and keep their names."""
    answers = await asyncio.gather(*map(_load, found))
    holders = {one.name: one for one in besides}
    plugins, refused = [], []
    for one in answers:
        if isinstance(one, Refused):
            refused.append(one)
        elif (first := holders.setdefault(one.name, one)) is one:
            plugins.append(one)
        else:
            message = f"another plugin has the name {quoted(one.name)}: {first.source}"
            problem = Problem("duplicate_plugin", message, hint="rename one of them")
            refused.append(Refused(one.source, one.name, (problem,)))
    return Loaded(tuple(plugins), tuple(refused))


async def _load(found: Found) -> Plugin | Refused:
    if found.problem is not None:
        return Refused(found.source, "", (found.problem,))
    asked = _Asked(found.plugin)
    try:
        async with asyncio.timeout(SCHEDULES_SECS_MAX):
            await asked.ask()
    except TimeoutError:
        message = f"{asked.method}() takes longer than {SCHEDULES_SECS_MAX} seconds"
        asked.problems.append(Problem("plugin_too_slow", message, hint="do the work in run()"))
    if asked.problems:
        return Refused(found.source, asked.name if isinstance(asked.name, str) else "", tuple(asked.problems))
    return Plugin(found.source, asked.name, asked.priority, asked.schedules, asked.timeout_secs, found.plugin)


class _Asked:
    """What a plugin answered, and every problem with it."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self.problems: list[Problem] = []
        self.name: Any = ""
        self.priority: Any = PRIORITY
        self.schedules: tuple[ScheduleSpec, ...] = ()
        self.timeout_secs: float | None = None
        self.method = ""  # that is being called

    async def ask(self) -> None:
        self.name = await self._answer("name")
        if not self.problems:
            self.problems += name_problems(self.name)
        if hasattr(self._plugin, "priority"):
            self.priority = await self._answer("priority")
            self.problems += [] if self.priority is None else priority_problems(self.priority)
        self._read_timeout()
        declared = await self._answer("schedules")
        if declared is not None:
            self._read_schedules(declared)

    async def _answer(self, method: str) -> Any:
        """What a method returns; None if it fails, which is a problem."""
        self.method = method
        try:
            asked = getattr(self._plugin, method)
            if not callable(asked):
                return self._not_a_method(method, asked)
            answer = await _called(asked, method)
        except (Exception, SystemExit) as error:
            self._failed(f"{method}() failed: {_said(error)}")
            return None
        if answer is None:
            self._failed(f"{method}() returned None")
        return answer

    def _not_a_method(self, name: str, value: Any) -> None:
        message = f"{name} must be a method, not {quoted(value)}"
        hint = f"write def {name}(self): return {value!r:.100}"
        self.problems.append(Problem("plugin_failed", message, hint=hint))

    def _failed(self, message: str) -> None:
        self.problems.append(Problem("plugin_failed", message))

    def _read_timeout(self) -> None:
        given = getattr(self._plugin, "timeout_secs", None)
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is None or (is_number and 0 < given <= TIMEOUT_SECS_MAX):
            self.timeout_secs = given
            return
        message = f"timeout_secs must be more than 0 and at most {TIMEOUT_SECS_MAX:,}, not {quoted(given)}"
        self.problems.append(Problem("out_of_range", message, hint="use None for no limit"))

    def _read_schedules(self, declared: Any) -> None:
        if isinstance(declared, str):
            return self._failed(f"schedules() failed: {declared}")
        if not isinstance(declared, Sequence):
            return self._failed(f"schedules() must return a list, not {type(declared).__name__}")
        name = self.name if isinstance(self.name, str) else ""
        priority = self.priority if isinstance(self.priority, int) else PRIORITY
        try:
            self.schedules = schedules_of(name, priority, [_data_of(one) for one in declared])
        except InvalidSpec as refused:
            self.problems += refused.problems


def _said(error: BaseException) -> str:
    """A plugin that raises ToolError has said what is wrong; of any other error the place helps."""
    return str(error) if isinstance(error, ToolError) else why(error)


def _data_of(declared: Any) -> Mapping[str, Any] | Any:
    return msgspec.structs.asdict(declared) if isinstance(declared, Schedule) else declared


async def _called(method: Callable[[], Any], name: str) -> Any:
    """Call a method of a plugin: in a thread, because it may block, or as a coroutine if it is one."""
    answer = await in_own_thread(method, f"holdfast-plugin-{name}")
    return await answer if inspect.isawaitable(answer) else answer


async def clean_up(plugins: Iterable[Plugin]) -> None:
    """Let plugins release what they hold, all at the same time. Errors are logged."""
    await asyncio.gather(*(_clean_up(one) for one in plugins if hasattr(one.plugin, "cleanup")))


async def _clean_up(plugin: Plugin) -> None:
    failure = None
    try:
        async with asyncio.timeout(CLEANUP_SECS_MAX) as limit:
            failure = await _called(plugin.plugin.cleanup, "cleanup")
    except (Exception, SystemExit) as error:
        failure = f"it takes longer than {CLEANUP_SECS_MAX} seconds" if limit.expired() else _said(error)
    if isinstance(failure, str):
        log.error("plugin %s: cleanup() failed: %s", plugin.name, failure)
