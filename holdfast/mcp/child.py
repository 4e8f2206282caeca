"""A connection to an MCP server that is a command: its process, and messages as lines on its standard input and output.

The command comes from the settings alone. Its environment has nothing of the engine's but what every program needs, and the
variables that the settings give it. It ends with the connection, and with the engine, however that ends. A line that is too long
ends the connection: the server's memory is its own, ours is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from holdfast import limits
from holdfast.execution.kept import kept

LINE_BYTES_OVERHEAD: Final = 1024 * 1024  # of a message, beside the largest value
OTHER_LINES_MAX: Final = 100  # lines of one connection that are not messages
STOP_SECONDS: Final = 2.0  # for a server to end after its input was closed
INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")

log = logging.getLogger("holdfast.mcp")


class Flooded(Exception):
    """The server sent a message that is larger than any value may be."""


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server process: the variables of the engine that it may inherit, and the configured ones."""
    shared = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**shared, **own}


def largest() -> int:
    """The bytes of the largest message that is read."""
    return limits.now.value_bytes_max + LINE_BYTES_OVERHEAD


@contextlib.asynccontextmanager
async def stdio_streams(
    command: Sequence[str], env: Mapping[str, str], ended: asyncio.Event, failures: list[Exception]
) -> AsyncIterator[Any]:
    """The streams of one process, as the SDK wants them. `ended` is set when it sends no more."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    limit = largest()
    process = await asyncio.create_subprocess_exec(
        *kept(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(env),
        limit=limit,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        others = 0
        try:
            while line := await stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError as error:
                    log.warning("an MCP server sent a line that is not a message: %s", str(error)[:200])
                    others += 1
                    if others > OTHER_LINES_MAX:
                        failures.append(Flooded(f"the server sent {others} lines that are not messages"))
                        return
                    continue
                await to_session.send(SessionMessage(message))
        except ValueError:
            failures.append(Flooded(f"the server sent a message of over {limits.size(limit)}"))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            pass
        finally:
            ended.set()
            await to_session.aclose()

    async def write() -> None:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()

    tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(write())]
    try:
        yield from_server, to_server
    finally:
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()
        stdin.close()
        await _stopped(process)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stopped(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # the keeper ends everything below it
        await process.wait()
