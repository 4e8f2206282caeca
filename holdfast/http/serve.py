"""The server as a process: opens the file, listens, says where, and leaves in order.

    bind ──► lock (with the address) ──► engine ──► flows ──► listen … signal ──► leaving ──► answers end ──► engine closed ──► unlocked

Puts the parts together and knows none of their rules.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final, Literal

import uvicorn

from holdfast import limits
from holdfast.api.services import Services
from holdfast.config import Settings
from holdfast.execution.threads import thread_or_here
from holdfast.http.auth import Keys
from holdfast.http.connections import Connection, connections_max, watch
from holdfast.http.guard import Guard
from holdfast.http.routes import (
    approvals,
    deliveries,
    events,
    folders,
    keys,
    ops,
    runs,
    task_api,
    waits,
    workers,
)
from holdfast.http.routes.docs import with_docs
from holdfast.http.server import Server
from holdfast.listening import Listener
from holdfast.ops import traces
from holdfast.ops.folders import Folder
from holdfast.runtime.clock import Clock
from holdfast.runtime.compose import Registry, database_path, engine_of
from holdfast.runtime.engine import Engine
from holdfast.runtime.ownership import Lock
from holdfast.stopping import Cancellable, end_within, stop_signals

KEEP_ALIVE_SECS: Final = 30
# How long the event loop waits for a thread that reads something large, each time that it comes back from the system;
# with Python's own 5 ms, a run of a hundred rows takes half a second to load.
SWITCH_SECONDS: Final = 0.0001
BACKLOG: Final = 2_048

ROUTES: Final = (
    *runs.ROUTES,
    *waits.ROUTES,
    *approvals.ROUTES,
    *events.ROUTES,
    *workers.ROUTES,
    *keys.ROUTES,
    *folders.ROUTES,
    *deliveries.ROUTES,
    *ops.ROUTES,
    *task_api.ROUTES,
)


class Serving:
    """A server that listens. `taken_up` is how many open runs were found in the file and go on."""

    def __init__(self, address: str, services: Services, keys: Keys, taken_up: int) -> None:
        self.address, self.services, self.taken_up = address, services, taken_up
        self._keys = keys

    @property
    def mode(self) -> Literal["local", "guarded"]:
        return "guarded" if self._keys.is_guarded else "local"


Ready = Callable[[Serving], Awaitable[None] | None]


async def serve(settings: Settings, *, registry: Registry | None = None, ready: Ready | None = None) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; then the process ends within `drain_secs_max`, also if the disk does not answer.
    `ready` is called once the server accepts requests."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    sys.setswitchinterval(SWITCH_SECONDS)
    numbers = stop_signals()
    limit: Cancellable | None = None
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        async with serving(settings, registry=registry) as server:
            if ready is not None and inspect.isawaitable(told := ready(server)):
                await told
            await stop.wait()
            limit = end_within(limits.now.drain_secs_max)
    finally:
        if limit is not None:
            limit.cancel()
        for number in numbers:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def serving(
    settings: Settings, *, registry: Registry | None = None, clock: Clock | None = None
) -> AsyncIterator[Serving]:
    """A server that listens as long as this is open."""
    with _bound(settings.host, settings.port) as listener:
        address = _address(settings.host, listener)
        lock = Lock(database_path(settings.db), address)
        lock.take()
        try:
            async with (
                _opened(settings, registry or Registry(), clock, address) as (services, keys),
                _published(services, settings),
            ):
                guard = Guard(keys, settings, settings.host, time.monotonic)
                app = Server(services, guard, with_docs(ROUTES))
                async with _listening(app, listener):
                    yield Serving(address, services, keys, len(services.engine.advance.live))
        finally:
            lock.free()


@asynccontextmanager
async def _opened(
    settings: Settings, registry: Registry, clock: Clock | None, address: str
) -> AsyncIterator[tuple[Services, Keys]]:
    engine = engine_of(settings, registry, clock)
    services = Services(engine, settings=settings)
    services.address = address
    await engine.open()
    tracing = traces.begin(engine, settings.otel)
    try:
        # Nothing here waits, so no run moves before it is known who may ask, and what may be called.
        services.api_keys.when_first = partial(_guard, engine)
        await services.api_keys.load()
        keys = Keys(services.api_keys, settings.host, settings.key)
        keys.check_start()
        if keys.is_guarded:
            _guard(engine)
        services.health.begin()
        yield services, keys
    finally:
        await services.health.end()
        await services.api_keys.close()
        await engine.close()
        if tracing is not None:
            await thread_or_here(tracing.close)


def _guard(engine: Engine) -> None:
    """From here on callers are not trusted: names and URLs that they give pass the outgoing-request guard."""
    engine.registry.guard.guarded = engine.dispatch.secrets.is_guarded = True


@asynccontextmanager
async def _published(services: Services, settings: Settings) -> AsyncIterator[None]:
    """Publish the folder of definitions before accepting requests, so that the first caller finds them."""
    if settings.flows is None:
        yield
        return
    folder = Folder(settings.flows, services.commands.publish, template_env=settings.template_env)
    await folder.load()
    services.folder = folder
    logging.getLogger("holdfast.flows").setLevel(
        logging.INFO
    )  # shows the first scan to the user who started the server
    watching = asyncio.create_task(folder.watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


@asynccontextmanager
async def _listening(app: Server, listener: socket.socket) -> AsyncIterator[None]:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of every client that speaks no HTTP
    Connection.max = connections_max()
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is who is connected; a header can say anything
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
        server.should_exit = True
        await work
        watching.cancel()


def requests_secs(drain_secs: int) -> int:
    """How long open requests may take when the server stops: the engine needs the rest to give back what is at work."""
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
