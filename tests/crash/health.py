"""How long a server takes to answer `/healthz`, measured from a process of its own.

A probe sets out every 50 ms whether or not the last one has returned, so a stall of a second counts as twenty slow answers and not as one.
Nothing else happens in this process: what is measured is the server. Beside the time is noted how much of it the server's loop, or this
process, was ready to run and had no processor: on a machine with other work, that part says nothing about the server.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

PERIOD_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 30.0


class Probe(msgspec.Struct):
    """One request on a connection of its own, by the clock that all processes share; `ended` is 0 if it was not answered."""

    began: float
    ended: float
    queued: float = 0.0  # seconds of it in which the kernel gave the processors to others

    @property
    def ms(self) -> float:
        return 1000 * (self.ended - self.began)

    @property
    def own_ms(self) -> float:
        return max(0.0, self.ms - 1000 * self.queued)


def probe(port: int, server: Any, end: float, probes: Connection) -> None:
    """Probe until the end, and send what was measured through the pipe. `server.value` is the process that is asked now."""
    probes.send(asyncio.run(_probe(port, server, end)))


def _queued(server: Any) -> float:
    """Seconds that the first thread of the server, which has its loop, and this process have waited for a processor."""
    total = 0.0
    for process in (server.value, "self"):
        with suppress(OSError, IndexError):  # it has just been killed, or the kernel does not say
            total += int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    return total


async def _probe(port: int, server: Any, end: float) -> list[Probe]:
    under_way: list[asyncio.Task[Probe]] = []
    due = time.monotonic()
    while due < end:
        under_way.append(asyncio.create_task(_once(port, server)))
        due += PERIOD_SECONDS
        await asyncio.sleep(due - time.monotonic())
    return await asyncio.gather(*under_way)


async def _once(port: int, server: Any) -> Probe:
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % port
    began, queued = time.monotonic(), _queued(server)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            line = await reader.readuntil(b"\r\n")
        ended = time.monotonic()
        writer.close()
    except TimeoutError:
        return Probe(began, time.monotonic())
    except (OSError, asyncio.IncompleteReadError):
        return Probe(began, 0)
    assert b" 200 " in line, line
    return Probe(began, ended, _queued(server) - queued)
