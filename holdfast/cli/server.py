"""Which server a command talks to: the named one, or the process that owns the database file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from holdfast.cli.file import path_of
from holdfast.cli.options import Usage
from holdfast.config import Settings
from holdfast.local_socket import SCHEME
from holdfast.store.lock import holder_of

if TYPE_CHECKING:
    from holdfast.sdk.client import Client  # and with it an HTTP client, which takes a while to load
    from holdfast.sdk.connection import Connection

PATIENCE_SECS: Final = 3.0  # a person waits at the terminal


class Server(NamedTuple):
    """`kind`: a server with an address; a program with an engine in it, which executes all runs of the file; or a `holdfast run`, which
    executes only its own. `socket` is the path through which it is reached without a key."""

    address: str
    kind: Literal["server", "program", "run"] = "server"
    socket: str | None = None
    key: str | None = None
    pid: int | None = None
    is_named: bool = False

    def connection(self, patience: float = PATIENCE_SECS) -> Connection:
        from holdfast.sdk.connection import Connection

        try:
            return Connection(self.address, self.key, socket=self.socket, patience=patience)
        except ValueError as error:
            raise Usage(str(error)) from None

    def client(self, patience: float = PATIENCE_SECS) -> Client:
        from holdfast.sdk.client import Client

        try:
            return Client(self.address, self.key, socket=self.socket, patience=patience)
        except ValueError as error:
            raise Usage(str(error)) from None


def server_of(settings: Settings) -> Server | None:
    """The server to use, or None: then no process that answers has the file."""
    if settings.server is not None:
        return Server(settings.server, key=settings.key, is_named=True)
    holder = holder_of(path_of(settings))
    address, pid = holder.get("address"), holder.get("pid")
    found = holder.get("socket")
    socket = found if isinstance(found, str) and os.access(found, os.W_OK) else None
    known = pid if isinstance(pid, int) else None
    if address:
        # A key says who acts, so it is used where there is one; the local socket needs none.
        return Server(str(address), "server", None if settings.key else socket, key=settings.key, pid=known)
    if socket is None:
        return None
    return Server(f"{SCHEME}{socket}", "program" if holder.get("executes") == "all" else "run", pid=known)
