"""How long a server takes to answer `/healthz`, measured from a process of its own.

A probe sets out every 50 ms whether or not the last one has returned, so a stall of a second counts as twenty slow answers and not as one.
Nothing else happens in this process: what is measured is the server.
"""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection
from typing import Final

import msgspec

PERIOD_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 30.0


class Probe(msgspec.Struct):
    """One request on a connection of its own, by the clock that all processes share; `ended` is 0 if it was not answered."""

    began: float
    ended: float

    @property
    def ms(self) -> float:
        return 1000 * (self.ended - self.began)


def probe(port: int, end: float, probes: Connection) -> None:
    """Probe until the end, and send what was measured through the pipe."""
    probes.send(asyncio.run(_probe(port, end)))


async def _probe(port: int, end: float) -> list[Probe]:
    under_way: list[asyncio.Task[Probe]] = []
    due = time.monotonic()
    while due < end:
        under_way.append(asyncio.create_task(_once(port)))
        due += PERIOD_SECONDS
        await asyncio.sleep(due - time.monotonic())
    return await asyncio.gather(*under_way)


async def _once(port: int) -> Probe:
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % port
    began = time.monotonic()
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
    return Probe(began, ended)
