"""An engine inside a program or a command answers on the local socket of its file, from the first caller on.

The socket is bound when the file is locked. The HTTP server is imported, in a thread, when a process connects to it: a program
that no other process talks to pays for neither.
"""

from __future__ import annotations

import asyncio
import importlib
import logging

from holdfast.config import Settings
from holdfast.local_socket import LocalSocket
from holdfast.runtime.engine import Engine
from holdfast.threads import in_thread

log = logging.getLogger("holdfast")


class Answering:
    def __init__(self, socket: LocalSocket | None, engine: Engine, settings: Settings) -> None:
        self._socket, self._engine, self._settings = socket, engine, settings
        self._stop = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._is_waiting = False

    def begin(self) -> None:
        """Wait for the first caller. Called when the engine is open."""
        if self._socket is None or self._socket.listener is None:
            return
        asyncio.get_running_loop().add_reader(self._socket.listener.fileno(), self._first)
        self._is_waiting = True

    async def end(self) -> None:
        """Called before the engine is closed. Requests that are being answered get a few seconds."""
        self._stop_waiting()
        self._stop.set()
        if self._work is not None:
            await asyncio.wait([self._work])

    def _first(self) -> None:
        self._stop_waiting()
        self._work = asyncio.get_running_loop().create_task(self._answer())

    def _stop_waiting(self) -> None:
        if self._is_waiting and self._socket is not None and self._socket.listener is not None:
            asyncio.get_running_loop().remove_reader(self._socket.listener.fileno())
        self._is_waiting = False

    async def _answer(self) -> None:
        assert self._socket is not None and self._socket.listener is not None
        try:
            await in_thread(importlib.import_module, "holdfast.http.serve")
            from holdfast.http.serve import answering

            async with answering(self._engine, self._settings, self._socket.listener):
                await self._stop.wait()
        except Exception:  # a defect of ours must not stop the program
            log.exception("cannot answer on the socket %s", self._socket.path)
