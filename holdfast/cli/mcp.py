"""`holdfast mcp`: MCP on standard input and output. A client of the server that owns the database, or else that server itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator

import msgspec

from holdfast.cli.file import finished, path_of
from holdfast.cli.options import load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.server import server_of
from holdfast.cli.streams import put, reserve_stdout, say
from holdfast.config import DEFAULT_HOST, Settings
from holdfast.sdk.mcp_stdio import LINE_BYTES_MAX, Bridge, lines_of
from holdfast.tools.registry import Registry


def command(given: Given) -> int:
    stdin = _own_stdin()
    reserve_stdout()
    settings = settings_of(given)
    path_of(settings)
    return finished(_carried(settings, given, stdin))


async def _carried(settings: Settings, given: Given, stdin: int) -> int:
    async with _server(settings, given) as address:

        async def find() -> str:
            server = server_of(settings)
            return address if server is None or server.kind != "server" else server.address

        bridge = Bridge(find, _write, settings.key)
        await bridge.run(lines_of(await _reader(stdin)))
    return 0


@contextlib.asynccontextmanager
async def _server(settings: Settings, given: Given) -> AsyncIterator[str]:
    """The address of the server that has the file; without one, a server in this process, which other commands find too."""
    if (server := server_of(settings)) is not None and server.kind == "server":
        say(f"holdfast mcp: using the server at {server.address}")
        yield server.address
        return
    from holdfast.http.serve import serving

    own = msgspec.structs.replace(settings, host=DEFAULT_HOST, port=0)
    registry: Registry = load_tools(settings)
    async with serving(own, registry=registry) as here:
        say(f"holdfast mcp: serving {path_of(settings)} at {here.address}")
        yield here.address


def _own_stdin() -> int:
    """Keep the input for messages alone: a tool that reads standard input must not take them."""
    own = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return own


async def _reader(stdin: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(stdin, "rb", buffering=0)
    mode = os.fstat(stdin).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(stdin):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    else:  # a file or /dev/null: it is read whole, as nothing more will come; libuv would abort the process
        reader.feed_data(pipe.read() or b"")
        reader.feed_eof()
    return reader


def _write(line: bytes) -> None:
    if not put(line):
        sys.exit(2)
