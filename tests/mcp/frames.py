"""Messages that are broken in every way, sent to a server over HTTP and over stdio for some time.

    python -m tests.mcp.frames --seconds 20 --seed 1

The server must live, answer a good message afterwards, and never be busy for long: the turns of its loop are measured in CPU time, so
other work on the machine does not count. Prints what was sent and the longest turns; exits with 1 if a limit was exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import itertools
import json
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.crash import turns
from tests.mcp.suite import ROOT

VERSION: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "elicitation": {},
    },
}
RUN_ID: Final = "01999999-9999-7999-8999-999999999999"
SPEC: Final = {
    "name": "x",
    "steps": [{"id": "a", "tool": "echo", "args": {"value": [1, {"b": "{{inputs}}"}]}}],
}
TURN_MS_MAX: Final = 50.0
AT_ONCE: Final = 8
SECONDS_MAX: Final = 5.0  # for one answer: some messages open a stream
FLOW: Final = "name: hello\ninputs: {name: {type: string, default: x}}\nsteps:\n  - {id: s, tool: echo, args: {value: 1}}\n"


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


GOOD: Final[tuple[dict[str, Any], ...]] = (
    {"method": "server/discover", "params": {}},
    {"method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}},
    {"method": "tools/list", "params": {"cursor": "after:a"}},
    {"method": "prompts/list", "params": {}},
    {"method": "prompts/get", "params": {"name": "write_workflow", "arguments": {"task": "t"}}},
    {"method": "resources/list", "params": {}},
    {"method": "resources/read", "params": {"uri": "schema://steps?cursor=at-10"}},
    {"method": "resources/read", "params": {"uri": f"run://{RUN_ID}"}},
    {"method": "completion/complete", "params": {"ref": {"type": "ref/resource", "uri": "workflow://{name}"}, "argument": {"name": "name", "value": "h"}}},
    {"method": "tasks/get", "params": {"taskId": RUN_ID}},
    {"method": "tasks/update", "params": {"taskId": RUN_ID, "inputResponses": {"ok": {"action": "accept", "content": {}}}}},
    {"method": "tasks/cancel", "params": {"taskId": RUN_ID}},
    {"method": "subscriptions/listen", "params": {"notifications": {"toolsListChanged": True}}},
    {"method": "notifications/cancelled", "params": {"requestId": 1}},
    {"method": "notifications/$/dcc.approveResponse", "params": {"workflow_id": RUN_ID, "step_id": "a", "approved": True}},
    _call("hello", name="Ada"),
    _call("workflows_run", spec=SPEC, wait_secs=0),
    _call("workflows_run", spec=json.dumps(SPEC), inputs={}, wait_secs=0),
    _call("workflows_validate", spec=SPEC),
    _call("workflows_plan", spec=SPEC),
    _call("workflows.get_status", run_id=RUN_ID),
    _call("workflows_explain", run_id=RUN_ID, max_tokens=100, cursor="at-5"),
    _call("workflows_lookup", query="h", cursor="after:h"),
    _call("workflows_signal", run_id=RUN_ID, key="k", value={"a": [1]}),
    _call("workflows_approve", run_id=RUN_ID, path="a", approved=True),
    _call("runs_list", status="failed", limit=5),
)  # fmt: skip
WILD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1e308, 10**30, "", "x", "\x00", "\u202e{{secrets.A}}", "../../etc/passwd", "x" * 5_000, [], {}, [[]], {"": {}},
    "after:\U0010ffff", "at-999999999999", "a" * 300, {"$ref": "#"}, list(range(500)), "\ud800", float("nan"),
)  # fmt: skip


def frames(dice: random.Random) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Messages without end, most of them broken, with the headers that their good form would have."""
    for number in itertools.count(1):
        message = copy.deepcopy(dice.choice(GOOD))
        message = {"jsonrpc": "2.0", "id": number, **message}
        params = message["params"]
        params["_meta"] = copy.deepcopy(META)
        named = params.get("name") or params.get("uri") or params.get("taskId") or ""
        headers = {"mcp-protocol-version": VERSION, "mcp-method": message["method"], "mcp-name": named}
        for _ in range(dice.choice((0, 1, 1, 2, 5))):
            _spoil(dice, message)
        raw = json.dumps(message).encode()
        for _ in range(dice.choice((0, 0, 0, 1, 3))):
            raw = _torn(dice, raw)
        if dice.random() < 0.1:
            headers.pop(dice.choice(list(headers)))
        yield raw.replace(b"\n", b" "), headers


def _spoil(dice: random.Random, message: dict[str, Any]) -> None:
    """Change one place of a message."""
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [message]
    while stack:
        one = stack.pop()
        inner = list(one.items() if isinstance(one, dict) else enumerate(one))[:50]
        places += [(one, key) for key, _ in inner]
        stack += [value for _, value in inner if isinstance(value, dict | list)]
    if not places:
        return
    holder, key = dice.choice(places)
    match dice.randrange(4):
        case 0:
            holder[key] = copy.deepcopy(dice.choice(WILD))
        case 1 if isinstance(holder, dict):
            del holder[key]
        case 2:
            for _ in range(dice.choice((3, 60, 70, 200))):
                holder[key] = [holder[key]]
        case _ if isinstance(holder, dict):
            holder[str(dice.choice(WILD))[:50]] = copy.deepcopy(holder[key])
        case _:
            pass  # lists lose and gain no names


def _torn(dice: random.Random, raw: bytes) -> bytes:
    if not raw:
        return raw
    at = dice.randrange(len(raw))
    match dice.randrange(4):
        case 0:
            return raw[:at]
        case 1:
            return raw[:at] + bytes([dice.randrange(256)]) + raw[at + 1 :]
        case 2:
            return raw[:at] + raw[at // 2 : at] * dice.choice((1, 3, 50)) + raw[at:]
        case _:
            pass
    return raw[:at] + dice.choice((b'"', b"{", b"]", b"\xff", b"\\", b"\\u0000", b"NaN")) + raw[at:]


# ---------------------------------------------------------------------------------------------------- the servers


async def started(folder: Path, command: str, *words: str) -> Process:
    """A server whose turns are measured, in a process of its own."""
    (folder / "hello.yaml").write_text(FLOW)
    env = {**os.environ, turns.FILE: str(folder / "turns")}
    db = f"sqlite:///{folder}/frames.db"
    with (folder / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash.turns", command, "--db", db, "--flows", str(folder), *words,
            cwd=ROOT, env=env, stdin=PIPE if command == "mcp" else DEVNULL, stdout=PIPE if command == "mcp" else DEVNULL,
            stderr=log, limit=8 * 1024 * 1024,
        )  # fmt: skip


async def over_http(folder: Path, dice: random.Random, seconds: float) -> tuple[int, float]:
    """How many messages were sent, and when the first one was."""
    process = await started(folder, "up", "--port", "0")
    try:
        url = await _address(folder)
        timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await _is_well(session, url, seconds_max=60)
            began, count = time.monotonic(), 0
            given = frames(dice)

            async def sender() -> int:
                sent = 0
                while time.monotonic() < began + seconds:
                    raw, headers = next(given)
                    await _sent(session, url, raw, headers)
                    sent += 1
                return sent

            count = sum(await asyncio.gather(*(sender() for _ in range(AT_ONCE))))
            await _is_well(session, url, seconds_max=60)
        assert process.returncode is None, (folder / "log").read_text()
        return count, began
    finally:
        process.terminate()
        await process.wait()


async def _address(folder: Path) -> str:
    while True:
        for word in (folder / "log").read_text().split():
            if word.startswith("http://127.0.0.1:"):
                return f"{word.rstrip('/.,')}/mcp"
        await asyncio.sleep(0.05)


async def _sent(session: aiohttp.ClientSession, url: str, raw: bytes, headers: dict[str, str]) -> None:
    own = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    try:
        async with session.post(url, data=raw, headers=own) as answer:
            await answer.read()
            assert answer.status < 500, (answer.status, raw[:2_000], await answer.text())
    except (TimeoutError, ValueError):
        pass  # a stream that stays open, or a header that the client itself refuses


async def _is_well(session: aiohttp.ClientSession, url: str, seconds_max: float) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "hello", "arguments": {}, "_meta": META},
    }
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "hello"}  # fmt: skip
    timeout = aiohttp.ClientTimeout(total=seconds_max)
    async with session.post(url, json=message, headers=headers, timeout=timeout) as answer:
        assert answer.status == 200 and "result" in await answer.json(), await answer.text()


async def over_stdio(folder: Path, dice: random.Random, seconds: float) -> tuple[int, float]:
    process = await started(folder, "mcp")
    assert process.stdin is not None and process.stdout is not None
    good = {"jsonrpc": "2.0", "id": "good", "method": "server/discover", "params": {"_meta": META}}
    process.stdin.write(json.dumps(good).encode() + b"\n")
    while b'"good"' not in await process.stdout.readline():
        pass
    began, count, ended = time.monotonic(), 0, asyncio.Event()

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if b'"last"' in line:
                ended.set()

    reading = asyncio.create_task(read())
    for raw, _ in frames(dice):
        process.stdin.write(raw + b"\n")
        await process.stdin.drain()
        count += 1
        if time.monotonic() > began + seconds:
            break
    process.stdin.write(json.dumps({**good, "id": "last"}).encode() + b"\n")
    async with asyncio.timeout(120):
        await ended.wait()
    assert process.returncode is None
    process.stdin.close()
    await process.wait()
    await reading
    return count, began


def campaign(seconds: float, seed: int) -> float:
    """Send messages over both transports; the longest turn of a server, in milliseconds of CPU."""
    longest = 0.0
    for over in (over_http, over_stdio):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            count, began = asyncio.run(over(folder, random.Random(seed), seconds))
            found = [one for one in turns.read(folder / "turns") if one.at > began]
            print(
                f"{over.__name__}: {count} messages in {seconds:g} s, seed {seed}; {len(found)} turns over {turns.COUNTED_MS_MIN:g} ms"
            )
            for one in found[:5]:
                print(f"  {one.ms:.0f} ms ({one.kind}): {one.cause}")
            longest = max([longest, *(one.ms for one in found)])
    return longest


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--seconds", type=float, default=20.0)
    reader.add_argument("--seed", type=int, default=1)
    given = reader.parse_args()
    sys.exit(campaign(given.seconds, given.seed) > TURN_MS_MAX)
