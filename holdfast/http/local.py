"""HTTP on the local socket of a database. Its callers are processes of the same user, so there are no limits for slow clients.

Knows sockets and connections; the app that answers is the same as on the network, behind `OwnerGuard`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from uvicorn.server import ServerState

from holdfast.http.connections import Connection, config_of
from holdfast.http.server import Server

LEAVING_SECS_MAX: Final = 5.0  # for requests that are being answered when the engine stops
KEEP_ALIVE_SECS: Final = 30


@asynccontextmanager
async def listening(app: Server, listener: socket.socket | None) -> AsyncIterator[None]:
    """Answer callers while this context is open. They may have connected before."""
    if listener is None:
        yield
        return
    config = config_of(app, timeout_keep_alive=KEEP_ALIVE_SECS)
    config.load()
    state = ServerState()
    protocol = partial(Connection, config=config, server_state=state, app_state={})
    # The caller's socket stays open, as more may be said on it: a server closes the one that it is given.
    server = await asyncio.get_running_loop().create_unix_server(protocol, sock=listener.dup())
    try:
        yield
    finally:
        app.leaving.set()
        server.close()
        await _left(state)


async def _left(state: ServerState) -> None:
    """Let open requests end: idle connections are closed at once, and answers that take too long are not waited for."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=LEAVING_SECS_MAX)
    for task in state.tasks:
        task.cancel()
    for connection in list(state.connections):
        if connection.transport is not None:
            connection.transport.abort()
