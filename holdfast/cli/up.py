"""`holdfast up`: runs the server until it is stopped. Starts server, folder and demo worker, and prints the address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from holdfast import __version__, limits
from holdfast.cli import logs, reload
from holdfast.cli.file import finished, path_of
from holdfast.cli.options import Usage, load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import painted, problem_data
from holdfast.cli.safe import one_line
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say
from holdfast.config import Settings
from holdfast.http.routes.page import NOT_BUILT, built
from holdfast.http.serve import Serving, prepare_process, serving
from holdfast.ops.folders import Folder
from holdfast.ops.run_log import RunLog
from holdfast.ops.schedule_folder import ScheduleFolder
from holdfast.plugins.load import Loaded
from holdfast.spec.triggers import PLUGIN
from holdfast.stopping import end_within, stop_signals
from holdfast.store.open import is_server, shown
from holdfast.tools import prints
from holdfast.tools.registry import Registry

FORCED: Final = 130
MODES: Final = {
    "local": "local mode: every user of this machine has full access",
    "guarded": "guarded mode: every request needs an API key",
}


class AddressInUse(Usage):
    """The address is already in use."""

    code = "address_in_use"


def command(given: Given) -> int:
    reserve_stdout()
    settings = settings_of(given)
    logs.set_levels(given.text("--log-level"), quiet=given.has("--quiet"))
    if given.has("--demo"):
        logs.shorten_tracebacks()
    path_of(settings)
    # Python takes cached bytecode for current if size and second of the source agree: two changes in one second would be one.
    sys.dont_write_bytecode |= given.has("--reload")
    tools = load_tools(settings)
    if reload.is_probe():
        return 0
    kept = reload.inherited()
    try:
        code = finished(_up(settings, tools, given, kept))
    except socket.gaierror as error:
        raise Usage(f"there is no address {settings.host!r}: {error.strerror}") from None
    except OSError as error:
        raise _not_bound(error, settings) from None
    if _handed_on is not None:
        reload.become_new(_handed_on)
    return code


def _not_bound(error: OSError, settings: Settings) -> Usage:
    place = f"{settings.host}:{settings.port}"
    match error.errno:
        case errno.EADDRINUSE:
            return AddressInUse(
                f"{place} is in use; stop the process that listens there, or use another port (--port 0 picks a free one)"
            )
        case errno.EACCES:
            return Usage(f"{place} needs privileges that this process lacks; use a port from 1024 on")
        case errno.EADDRNOTAVAIL:
            return Usage(f"{settings.host} is not an address of this machine")
        case _:
            pass
    return Usage(f"cannot serve {path_of(settings)} at {place}: {error.strerror or error}")


_handed_on: socket.socket | None = None  # the open port, if the server is to be started again with new code


async def _up(settings: Settings, registry: Registry, given: Given, kept: socket.socket | None) -> int:
    stop, reloads = _stop_requested(), given.has("--reload")
    prepare_process()
    async with (
        serving(settings, registry=registry, listener=kept, reloads=reloads) as server,
        _beside(server, settings, given),
    ):
        engine = server.services.engine
        engine.when_over(stop.set)
        logs.redact_with(engine.secrets)
        prints.install(engine.secrets)
        run_log = RunLog(engine.door)
        await server.count()
        if not _introduced(server, settings, given, is_again=kept is not None):
            return UNWRITTEN
        if given.has("--demo"):  # their first lines belong below the introduction
            await _start_first_runs(server, settings)
        if reloads and await _is_to_reload(server, stop):
            global _handed_on  # noqa: PLW0603  # a process has one port
            _handed_on = server.listener.dup()
            run_log.close()
            return 0
        await stop.wait()
        # until the process has ended: the last thing that it waits for may be the disk
        end_within(limits.now.drain_secs_max)
        if not given.has("--json") and engine.taken_over is None:
            say("stopping; running steps are released and continue at the next start")
        run_log.close()
    if engine.taken_over is not None:
        raise engine.taken_over
    return 0


def _introduced(server: Serving, settings: Settings, given: Given, *, is_again: bool) -> bool:
    """Say where the server is, and what it serves; False if that could not be written."""
    folders = server.services.folders
    if is_again:
        say(f"reloaded; {_continuing(server)}")
    elif given.has("--json"):
        return give(_data(server, settings, folders))
    else:
        say("\n".join(_banner(server, settings, folders, is_demo=given.has("--demo"))))
    return True


async def _is_to_reload(server: Serving, stop: asyncio.Event) -> bool:
    """Wait until the tools have changed and can be loaded; False if the server is to stop instead."""
    code, reloading = server.services.code, reload.Reload()
    if code is None:
        return False
    code.when_changed = reloading.changed
    waiting = [asyncio.ensure_future(one.wait()) for one in (stop, reloading.wanted)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return not stop.is_set()
    finally:
        for one in waiting:
            one.cancel()
        await reloading.close()


def _stop_requested() -> asyncio.Event:
    """Set by Ctrl-C, TERM or HUP. A second signal exits at once, because the journal is complete. A second HUP is
    ignored: the shell and its terminal each send one."""
    stop = asyncio.Event()

    def requested(number: signal.Signals) -> None:
        if stop.is_set() and number != signal.SIGHUP:
            os._exit(FORCED)
        stop.set()

    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, requested, number)
    return stop


@contextlib.asynccontextmanager
async def _beside(server: Serving, settings: Settings, given: Given) -> AsyncIterator[None]:
    """Tasks that run while the server is up."""
    if not given.has("--demo"):
        yield
        return
    from holdfast.cli.demo import demo_worker

    async with demo_worker(server.address, settings.key, server.socket):
        yield


async def _start_first_runs(server: Serving, settings: Settings) -> None:
    from holdfast.cli.demo import start_first_runs

    published = {
        file.name for folder in server.services.folders.values() for file in folder.files if file.name
    }
    await start_first_runs(server.address, settings.key, published, server.socket)


# ---------------------------------------------------------------------------------------------------- what is said


def _data(server: Serving, settings: Settings, folders: Mapping[str, Folder]) -> dict[str, Any]:
    files = [file for folder in folders.values() for file in folder.files]
    plugins = _plugins(server)
    return {
        "address": server.address,
        "mode": server.mode,
        "database": _database(settings),
        "pid": os.getpid(),
        "taken_up": server.taken_up,
        "flows": [one.name for one in files if one.status == "published"],
        "broken": [one.file for one in files if one.status == "broken"],
        "plugins": [one.name for one in plugins.plugins],
        "refused_plugins": [str(one) for one in plugins.refused],
        "schedules": _schedules_data(server.services.schedule_folder),
    }


def _schedules_data(folder: ScheduleFolder | None) -> dict[str, Any] | None:
    if folder is None:
        return None
    plan = folder.plan
    return {
        "plan": str(plan),
        "added": plan.added,
        "changed": plan.changed,
        "removed": plan.removed,
        "problems": [problem_data(problem) for problem in folder.problems],
    }


def _of_schedules(folder: ScheduleFolder) -> list[str]:
    """What the schedule files changed and what fires next; or that they have mistakes, which have been logged."""
    where = folder.root.resolve() if folder.root else "of skills"
    if not folder.problems:
        return [f"  schedules {where}: {folder.said()}"]
    broken = _counted(sum(one.status == "broken" for one in folder.files), "file")
    stay = painted(f"{broken} cannot be used; the schedules in use stay", "failed", fd=2)
    return [f"  schedules {where}: {stay}"]


def _banner(
    server: Serving, settings: Settings, folders: Mapping[str, Folder], *, is_demo: bool
) -> list[str]:
    registry, plugins = server.services.engine.registry, _plugins(server)
    names = sorted(name for name in registry.names() if not name.startswith(PLUGIN))
    return [
        painted(f"holdfast {__version__} is up at {server.address}", "completed", fd=2),
        f"  page      {_of_page(server)}",
        f"  mode      {MODES[server.mode]}",
        f"  database  {_database(settings)}; {_continuing(server)}",
        f"  tools     {', '.join(names)}",
        *(f"  {name:<10}{_of_folder(folder)}" for name, folder in folders.items()),
        *([f"  plugins   {_of_plugins(plugins)}"] if plugins.plugins or plugins.refused else []),
        *(_of_schedules(schedules) if (schedules := server.services.schedule_folder) else []),
        *(_of_demo(server, settings) if is_demo else []),
        "try next:",
        *(f"  {line}" for line in _to_try(server, settings, folders.values())),
        f"API documentation: {server.address}/docs; Ctrl-C stops the server without losing anything",
    ]


def _of_demo(server: Serving, settings: Settings) -> list[str]:
    trace = f"{_called()} runs show RUN --trace {_at(server, settings)}"
    return [
        "  worker    transform, sum and route, for the examples",
        f"  failures  some runs of the examples fail on purpose; for a traceback: {trace}",
    ]


def _of_page(server: Serving) -> str:
    return f"{server.address}/ in a browser" if built() else NOT_BUILT.partition(";")[0]


def _of_folder(folder: Folder) -> str:
    published = [one.name for one in folder.files if one.name is not None and one.status == "published"]
    broken = f"; {', '.join(one.file for one in folder.broken)} cannot be used" if folder.broken else ""
    return one_line(f"{folder.root.resolve()}: {', '.join(published) or 'none'} published{broken}")


def _plugins(server: Serving) -> Loaded:
    return server.services.engine.plugins.loaded or Loaded()


def _of_plugins(plugins: Loaded) -> str:
    started = [f"{one.name} ({_counted(len(one.schedules), 'schedule')})" for one in plugins.plugins]
    refused = [one.name or one.source for one in plugins.refused]
    broken = f"; {', '.join(refused)} cannot be used, see the log" if refused else ""
    return one_line(f"{', '.join(started) or 'none'}{broken}")


def _at(server: Serving, settings: Settings) -> str:
    """How commands reach this server. A guarded one is reached through its file, which needs no key."""
    if server.mode == "guarded" and server.socket is not None:
        return f"--db {shlex.quote(os.path.abspath(path_of(settings)))}"
    return f"--server {server.address}"


def _to_try(server: Serving, settings: Settings, folders: Iterable[Folder]) -> list[str]:
    """Commands that work when they are pasted; on a guarded server, curl needs a key."""
    at = _at(server, settings)
    files = [file for folder in folders for file in folder.files]
    names = [file.name for file in files if file.status == "published" and file.name]
    bearer = ' -H "authorization: Bearer $HOLDFAST_API_KEY"' if server.mode == "guarded" else ""
    me = _called()
    if not names:
        # The tools of a new folder are not this server's, so its workflow is executed by a process of its own.
        return [
            f"{me} demo {at}",
            f"{me} runs list {at}",
            f"{me} init first && cd first && {me} run hello.yaml",
        ]
    name = "hello" if "hello" in names else names[0]
    data = f"""-H "content-type: application/json" -d '{{"workflow": "{name}"}}'"""
    start = f"curl {server.address}/api/v1/runs{bearer} {data}"
    schedules = [f"{me} schedules list {at}"] if server.services.schedule_folder else []
    key = ["export HOLDFAST_API_KEY=hf_…   # put your key here"] if bearer else []
    return [f"{me} start {name} {at}", f"{me} runs show last {at}", *schedules, *key, start]


def _continuing(server: Serving) -> str:
    said = f"{_counted(server.taken_up, 'open run')} continue{'s' if server.taken_up == 1 else ''}"
    waiting = server.left_waiting
    return f"{said}, {waiting} wait{'s' if waiting == 1 else ''} for something else" if waiting else said


def _called() -> str:
    """How to call this command from anywhere: by its name if the shell finds it, otherwise as it was called."""
    if shutil.which("holdfast"):
        return "holdfast"
    path = os.path.abspath(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m holdfast" if path.endswith("__main__.py") else shlex.quote(path)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _database(settings: Settings) -> str:
    """The database as it may be shown."""
    return shown(settings.db) if is_server(settings.db) else path_of(settings)
