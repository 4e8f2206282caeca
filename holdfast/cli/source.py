"""Where a command reads and acts: on a server, or in the file itself. Both return the same results.

    holdfast runs …  ──► opened(settings) ──┬──► ServerSource     --server, or the server that owns the file
                                            ├──► OwnedFileSource  a program that owns the file: read here, changed by the program
                                            └──► FileSource       no owner

Results are the records of the API, so a command need not know which of the two it uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from holdfast.cli.file_source import FileSource, OwnedFileSource
from holdfast.cli.server import Server, server_of
from holdfast.cli.server_source import ServerSource
from holdfast.cli.source_protocol import FOLLOW_PATIENCE_SECS, Source
from holdfast.config import Settings


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Source]:
    server = server_of(settings)
    if server is None:
        yield FileSource(settings)
        return
    async with serving(server) as source:
        # A program may end at any moment, and what it has committed is in the file: only what changes something is its business.
        yield source if server.kind == "server" else OwnedFileSource(settings, source)


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[ServerSource]:
    async with server.client() as client, server.client(FOLLOW_PATIENCE_SECS) as follower:
        yield ServerSource(client, follower, is_named=server.is_named)
