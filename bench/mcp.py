"""MCP: calls per second of CPU time of the server, for both eras of the protocol, and what a call adds to a run over HTTP.

Calls are counted against the CPU time of the server's process, so the figure is that of one core however busy the machine is.
A trivial call is a tool that starts no run. The runs of one trivial step are asked for in turns over HTTP and MCP, one at a time, in
one sitting, so that both pay for the same neighbours.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import psutil
import uvloop

from bench.figures import Goal, Kind, Measure
from bench.processes import Child
from bench.scale import Scale
from bench.work import chain

CALLS: Final = Kind("mcp_calls", "calls/cpu s", "300 calls/s", Goal(ratio=1.0), Goal(ratio=1.0), higher=True)
CALLS_OLDER: Final = Kind(
    "mcp_calls_2025", "calls/cpu s", "300 calls/s", Goal(ratio=1.0), Goal(ratio=1.0), higher=True
)
RUNS: Final = Kind("mcp_runs", "runs/cpu s", "runs over HTTP", higher=True)
RUNS_OLDER: Final = Kind("mcp_runs_2025", "runs/cpu s", "runs over HTTP", higher=True)
ADDED: Final = Kind("mcp_added_p50", "ms", "5 ms", Goal(ratio=1.0), Goal(ratio=0.5))
ADDED_OLDER: Final = Kind("mcp_added_p50_2025", "ms", "5 ms", Goal(ratio=1.0), Goal(ratio=0.5))

WANTED_PER_SECOND: Final = 300.0
ADDED_MS_MAX: Final = 5.0
OLDER: Final = "2025-11-25"
NEWER: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"
NO_RUN: Final = {"run_id": "01926000-0000-7000-8000-000000000000"}
WARM: Final = 20

Call = Callable[[], Awaitable[bytes]]


def calls(folder: Path, scale: Scale) -> list[Measure]:
    with Child.serving("holdfast", db=folder / "mcp.db", effects=folder / "effects") as server:
        address = f"http://127.0.0.1:{server.hear()['port']}"
        return uvloop.run(_calls(address, psutil.Process(server.process.pid), scale.submits))


async def _calls(address: str, process: psutil.Process, count: int) -> list[Measure]:
    async with aiohttp.ClientSession() as session:
        client = _Client(session, address)
        await client.publish(chain(1).to_data())
        await client.open_session()
        newer = await _per_cpu_second(process, lambda: client.newer("workflows_cancel", NO_RUN), count)
        older = await _per_cpu_second(process, lambda: client.older("workflows_cancel", NO_RUN), count)
        ways: dict[str, Call] = {
            "http": client.over_http,
            "newer": lambda: client.newer("chain", {"run": 1}),
            "older": lambda: client.older("chain", {"run": 1}),
        }
        each = {name: await _per_cpu_second(process, way, count) for name, way in ways.items()}
        took = await _in_turns(ways, count)
    one = {"calls": count, "connections": 1}
    return [
        Measure(CALLS, newer, WANTED_PER_SECOND, one),
        Measure(CALLS_OLDER, older, WANTED_PER_SECOND, one),
        Measure(RUNS, each["newer"], each["http"], one),
        Measure(RUNS_OLDER, each["older"], each["http"], one),
        Measure(ADDED, took["newer"] - took["http"], ADDED_MS_MAX, {**one, "http_p50_ms": took["http"]}),
        Measure(
            ADDED_OLDER, took["older"] - took["http"], ADDED_MS_MAX, {**one, "http_p50_ms": took["http"]}
        ),
    ]


async def _per_cpu_second(process: psutil.Process, call: Call, count: int) -> float:
    for _ in range(WARM):
        await call()
    before, called = _cpu_seconds(process), 0
    while called < count or _cpu_seconds(process) == before:  # the system counts in steps of 10 ms
        await call()
        called += 1
    return called / (_cpu_seconds(process) - before)


def _cpu_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


async def _in_turns(ways: dict[str, Call], count: int) -> dict[str, float]:
    """The median of each way, in ms. They take turns, so that a slow moment of the machine concerns all alike."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(count):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            took[name].append(time.perf_counter() - began)
    return {name: 1000 * statistics.median(each) for name, each in took.items()}


class _Client:
    """As little of a client of each era as a call needs."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session, self._address = session, address
        self._ids = itertools.count(1)
        self._older = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

    async def publish(self, definition: dict[str, Any]) -> None:
        await self._post("/api/v1/workflows", definition, {"content-type": "application/json"})

    async def over_http(self) -> bytes:
        body = {"workflow": "chain", "inputs": {"run": 1}, "wait_secs": 30}
        return await self._post("/api/v1/runs", body, {"content-type": "application/json"})

    async def newer(self, tool: str, arguments: dict[str, Any]) -> bytes:
        meta = {f"{META}protocolVersion": NEWER, f"{META}clientCapabilities": {}}
        headers = {**self._older, "mcp-protocol-version": NEWER, "mcp-method": "tools/call", "mcp-name": tool}
        headers.pop("mcp-session-id", None)
        return await self._call(tool, arguments, headers, {"_meta": meta})

    async def older(self, tool: str, arguments: dict[str, Any]) -> bytes:
        return await self._call(tool, arguments, self._older, {})

    async def open_session(self) -> None:
        params = {
            "protocolVersion": OLDER,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        async with self._session.post(
            f"{self._address}/mcp", data=msgspec.json.encode(message), headers=self._older
        ) as answer:
            await answer.read()
            self._older["mcp-session-id"] = answer.headers["mcp-session-id"]
        self._older["mcp-protocol-version"] = OLDER
        await self._post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._older)

    async def _call(
        self, tool: str, arguments: dict[str, Any], headers: dict[str, str], more: dict[str, Any]
    ) -> bytes:
        params = {"name": tool, "arguments": arguments, **more}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        answer = await self._post("/mcp", message, headers)
        if b'"isError":false' not in answer:
            raise RuntimeError(f"a call of {tool} failed: {answer[:500]!r}")
        return answer

    async def _post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        url = f"{self._address}{path}"
        async with self._session.post(url, data=msgspec.json.encode(body), headers=headers) as answer:
            return await answer.read()
