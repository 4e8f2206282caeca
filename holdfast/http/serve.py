"""The server process: opens the database, listens, and stops in order.

    bind ──► lock (with the address) ──► engine ──► flows ──► listen … signal ──► leaving ──► answers end ──► engine closed ──► unlocked

Puts the parts together and knows none of their rules.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

from holdfast import limits
from holdfast.api.services import Services
from holdfast.config import Settings
from holdfast.execution.threads import prepare_connections, thread_or_here
from holdfast.http import local
from holdfast.http.auth import Keys
from holdfast.http.connections import Connection, config_of, connections_max, watch
from holdfast.http.guard import Guard, OwnerGuard
from holdfast.http.mcp import Mount
from holdfast.http.routes import (
    approvals,
    bulk,
    definitions,
    deliveries,
    events,
    folders,
    keys,
    ops,
    overview,
    page,
    plans,
    runs,
    schedules,
    steps,
    task_api,
    waits,
    workers,
    workflows,
)
from holdfast.http.routes.docs import with_docs
from holdfast.http.server import Server
from holdfast.listening import Listener
from holdfast.ops import traces
from holdfast.ops.api_keys import ApiKeys
from holdfast.ops.code_files import CodeFiles
from holdfast.ops.folders import Folder
from holdfast.ops.memory import return_freed_memory
from holdfast.ops.plugin_files import PluginFiles
from holdfast.ops.schedule_folder import ScheduleFolder, StoredSchedules
from holdfast.ops.skills import SkillFolder
from holdfast.runtime.clock import Clock
from holdfast.runtime.compose import Lock, Registry, engine_of, load_plugins, lock_of
from holdfast.runtime.engine import Engine
from holdfast.stopping import Cancellable, end_within, stop_signals
from holdfast.values import DEFAULT_TENANT, OPEN

KEEP_ALIVE_SECS: Final = 30
# How long the event loop waits for a thread that reads something large, each time that it comes back from the system;
# with Python's own 5 ms, a run of a hundred rows takes half a second to load.
SWITCH_SECONDS: Final = 0.0001
BACKLOG: Final = 2_048
# How long it is waited until the runs of a former process are counted.
TAKING_SECS: Final = 2.0

ROUTES: Final = (
    *workflows.ROUTES,
    *runs.ROUTES,
    *steps.ROUTES,
    *plans.ROUTES,
    *definitions.ROUTES,
    *overview.ROUTES,
    *bulk.ROUTES,
    *waits.ROUTES,
    *approvals.ROUTES,
    *events.ROUTES,
    *workers.ROUTES,
    *keys.ROUTES,
    *folders.ROUTES,
    *schedules.ROUTES,
    *deliveries.ROUTES,
    *ops.ROUTES,
    *task_api.ROUTES,
    *page.ROUTES,
)


class Serving:
    """A listening server. `taken_up` is how many open runs it found and continues, `left_waiting` how many wait for something from
    outside, as last counted; `socket` the path of its local socket, if there can be one."""

    taken_up, left_waiting = 0, 0

    def __init__(
        self,
        address: str,
        services: Services,
        keys: Keys,
        local: str | None,
        listener: socket.socket,
    ) -> None:
        self.address, self.services = address, services
        self.socket, self.listener = local, listener
        self._keys = keys

    @property
    def mode(self) -> Literal["local", "guarded"]:
        return "guarded" if self._keys.is_guarded else "local"

    async def count(self) -> None:
        """Count open runs, once the first look for those of a former process is over."""
        engine = self.services.engine
        self.taken_up = await engine.wakes.first_taken(TAKING_SECS)
        counts = await engine.store.runs_by_status()
        still_open = sum(counts.get(status, 0) for status in OPEN)
        self.left_waiting = max(0, still_open - len(engine.door.residents))


Ready = Callable[[Serving], Awaitable[None] | None]


async def serve(settings: Settings, *, registry: Registry | None = None, ready: Ready | None = None) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; then the process ends within `drain_secs_max`, also if the disk does not answer.
    Raises NodeIsOver once another process has taken over the database.
    `ready` is called once the server accepts requests."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    prepare_process()
    # Only the main thread gets signals: a server in another one ends with its process.
    numbers = stop_signals() if threading.current_thread() is threading.main_thread() else []
    limit: Cancellable | None = None
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    starting = loop.create_task(prepare_connections())
    try:
        async with serving(settings, registry=registry) as server:
            engine = server.services.engine
            engine.when_over(stop.set)
            if ready is not None and inspect.isawaitable(waiting := ready(server)):
                await waiting
            await stop.wait()
            limit = end_within(limits.now.drain_secs_max)
        if engine.taken_over is not None:
            raise engine.taken_over
    finally:
        starting.cancel()
        if limit is not None:
            limit.cancel()
        for number in numbers:
            loop.remove_signal_handler(number)


def prepare_process() -> None:
    """Tune a process that only serves: threads hand the interpreter to the event loop sooner, and freed memory is returned to
    the system."""
    sys.setswitchinterval(SWITCH_SECONDS)
    return_freed_memory()


@asynccontextmanager
async def serving(
    settings: Settings,
    *,
    registry: Registry | None = None,
    clock: Clock | None = None,
    listener: socket.socket | None = None,
    reloads: bool = False,
) -> AsyncIterator[Serving]:
    """Run a server while this context is open. `listener` is the socket that a former process listened on."""
    with _bound(settings.host, settings.port) if listener is None else listener as bound:
        address = _address(settings.host, bound)
        async with (
            _locked(lock_of(settings.db, address, answers="all")) as lock,
            _opened(settings, registry or Registry(), clock, address) as (services, keys),
            _published(services, settings),
        ):
            guard = Guard(keys, settings, settings.host, time.monotonic)
            leaving = asyncio.Event()
            async with Mount(services, leaving) as mount:
                app = Server(services, guard, (*with_docs(ROUTES), *mount.routes), leaving)
                owners = app.behind(OwnerGuard(keys, settings, settings.host, time.monotonic))
                assert lock.socket is not None
                async with (
                    _listening(app, bound),
                    local.listening(owners, lock.socket.listener),
                    _watched(services, settings, reloads=reloads),
                ):
                    try:
                        yield Serving(address, services, keys, lock.socket.reached, bound)
                    finally:
                        lock.withdraw()  # a command that comes now waits for the file instead


@asynccontextmanager
async def answering(engine: Engine, settings: Settings, listener: socket.socket) -> AsyncIterator[None]:
    """Answer on the local socket of an engine that serves no address, while this context is open."""
    api_keys = ApiKeys(engine.store, engine.clock, engine.gate)
    await api_keys.load()
    services = Services(engine, settings=settings, api_keys=api_keys)
    guard = OwnerGuard(Keys(api_keys, settings.host), settings, settings.host, time.monotonic)
    leaving = asyncio.Event()
    async with Mount(services, leaving) as mount:
        app = Server(services, guard, (*with_docs(ROUTES), *mount.routes), leaving)
        async with local.listening(app, listener):
            yield
    await services.health.end()
    await api_keys.close()


@asynccontextmanager
async def _opened(
    settings: Settings, registry: Registry, clock: Clock | None, address: str
) -> AsyncIterator[tuple[Services, Keys]]:
    engine = engine_of(settings, registry, clock, await load_plugins(settings, registry))
    api_keys = ApiKeys(engine.store, engine.clock, engine.gate, when_first=partial(_guard, engine))
    services = Services(engine, settings=settings, api_keys=api_keys, address=address)
    engine.fires.hold()  # until the folders are read
    engine.kinds.is_off = not settings.fires
    await engine.open()
    await engine.store.serve_at(address)
    tracing = traces.begin(engine.door, engine.dispatch.jobs, settings.otel)
    try:
        # No await here, so no run continues before callers and outgoing calls are guarded.
        await api_keys.load()
        keys = Keys(api_keys, settings.host, settings.key)
        keys.check_start()
        if keys.is_guarded:
            _guard(engine)
        services.health.begin()
        yield services, keys
    finally:
        await services.health.end()
        await api_keys.close()
        await engine.close()
        if tracing is not None:
            await thread_or_here(tracing.close)


@asynccontextmanager
async def _locked(lock: Lock) -> AsyncIterator[Lock]:
    await lock.take_soon()
    try:
        yield lock
    finally:
        lock.free()


@asynccontextmanager
async def _watched(services: Services, settings: Settings, *, reloads: bool) -> AsyncIterator[None]:
    """Watch the files of the loaded tools and plugins."""
    if not (settings.tools or settings.plugins):
        yield
        return
    services.code = CodeFiles(
        (settings.folder, Path.cwd()), settings.file, services.since, is_reloading=reloads
    )
    watching = asyncio.create_task(services.code.watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def _guard(engine: Engine) -> None:
    """From here on callers are not trusted: names and URLs that they give pass the outgoing-request guard."""
    engine.registry.guard.guarded = engine.secrets.is_guarded = True


@asynccontextmanager
async def _published(services: Services, settings: Settings) -> AsyncIterator[None]:
    """Read the folders before accepting requests, so that the first caller finds their workflows."""
    publish, env = services.commands.publish, settings.template_env
    skills: SkillFolder | None = None
    if settings.flows is not None:
        services.folders["flows"] = Folder(settings.flows, publish, template_env=env)
    if settings.skills is not None:
        skills = SkillFolder(settings.skills, publish, template_env=env)
        services.folders["skills"] = skills
    if settings.schedules is not None or skills is not None:
        services.schedule_folder = _schedule_folder(services, settings, skills)
        services.schedule_commands.has_files = True
    else:
        await _log_left_over(services.engine)
    folders: list[Folder | ScheduleFolder] = [*services.folders.values()]
    folders += [services.schedule_folder] if services.schedule_folder else []
    for folder in folders:
        await folder.load()
    if settings.fires:
        services.engine.fires.release()
    for name in ("flows", "skills", "schedules"):
        # Shows changes to the user who started the server, but not the first scan, which the banner shows.
        logging.getLogger(f"holdfast.{name}").setLevel(logging.INFO)
    # The folder of schedules watches the skills too: a schedule may name a workflow that is new.
    watching = [asyncio.create_task(folder.watch()) for folder in folders if folder is not skills]
    if files := PluginFiles(settings.plugins, services.engine.plugins.replace):
        watching.append(asyncio.create_task(files.watch()))
    try:
        yield
    finally:
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching)


async def _log_left_over(engine: Engine) -> None:
    """Schedules of files go on firing when a server starts without their folder: say so, and how to end that."""
    if rows := await engine.store.schedules(DEFAULT_TENANT, "", 1, "file"):
        logging.getLogger("holdfast.schedules").warning(
            "schedules of files, such as %s of %s, go on firing; start with --schedules to read the files again, or delete "
            "them with holdfast schedules delete",
            rows[0].id,
            rows[0].source,
        )


def _schedule_folder(services: Services, settings: Settings, skills: SkillFolder | None) -> ScheduleFolder:
    guard = services.engine.registry.guard
    return ScheduleFolder(
        settings.schedules,
        skills,
        StoredSchedules(services.engine),
        now=services.clock.now,
        is_guarded=lambda: guard.guarded,
    )


@asynccontextmanager
async def _listening(app: Server, listener: socket.socket) -> AsyncIterator[None]:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of every client that speaks no HTTP
    Connection.max = connections_max()
    config = config_of(
        app,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECS,
        timeout_graceful_shutdown=requests_secs(limits.now.drain_secs_max),
    )
    server = Listener(config)
    work = asyncio.create_task(server.serve([listener]))
    watching = asyncio.create_task(watch(server.server_state.connections))
    try:
        await server.is_up.wait()
        yield
    finally:
        app.leaving.set()
        server.stop()
        await work
        watching.cancel()


def requests_secs(drain_secs: int) -> int:
    """Return how long open requests may take when the server stops; the engine needs the rest of the time to release running attempts."""
    return max(1, drain_secs * 3 // 4)


@contextmanager
def _bound(host: str, port: int) -> Generator[socket.socket, None, None]:
    """Bind the address, without accepting connections yet."""
    family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.setblocking(False)
        yield listener


def _address(host: str, listener: socket.socket) -> str:
    """The URL for clients on this machine: a server on all addresses is reached over loopback."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
