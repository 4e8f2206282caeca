"""An MCP server for tests: `python one_server.py` on stdio, `python one_server.py http` over HTTP, with its port on standard output. Works with both
eras of the SDK, so it uses only what both have."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:  # the SDK of the earlier era
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[no-redef,attr-defined,unused-ignore]

server = Server("one")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def refuse(why: str) -> str:
    raise ValueError(why)


@server.tool()
def environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def pid() -> int:
    return os.getpid()


@server.tool()
def die() -> str:
    os._exit(9)


@server.tool()
async def hang(beacon: str) -> str:
    try:
        # A FIFO, which the test reads: its cancel can arrive before the thread has said that it is done.
        await asyncio.to_thread(Path(beacon).write_text, str(os.getpid()))
        await asyncio.sleep(3600)
    finally:
        if (heard := Path(f"{beacon}.cancelled")).exists():
            heard.write_text("cancelled")
    return "never"


@server.tool()
def forget(name: str) -> str:
    server.remove_tool(name)
    return name


@server.tool()
def offer(name: str) -> str:
    server.add_tool(add, name=name)
    return name


@server.tool()
def flood(size: int) -> str:
    return "x" * size


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        import socket

        import uvicorn

        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).run(
            sockets=[listener]
        )
    else:
        server.run()
