"""A script for the SDK of the older era (mcp 1.30), run in a process of its own: over HTTP, then over stdio."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

from mcp import ClientSession, StdioServerParameters  # of the folder above
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client  # type: ignore[attr-defined]
from mcp.types import ElicitResult

FLOWS = Path(__file__).parent / "workflows"
progress: list[float] = []


async def answered(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})


async def noted(done: float, total: float | None, message: str | None) -> None:
    progress.append(done)


async def script(read: Any, write: Any) -> None:
    session: Any = ClientSession(read, write, elicitation_callback=answered)
    async with session as client:
        opened = await client.initialize()
        assert opened.protocolVersion == "2025-11-25", opened
        tools = await client.list_tools()
        assert {"greet", "workflows_run", "slow_compute"} <= {tool.name for tool in tools.tools}
        result = await client.call_tool("greet", {"name": "Ada"})
        assert result.content[0].text == "Hello, Ada!", result
        result = await client.call_tool(
            "workflows_run", {"spec": "name: x\nsteps:\n  - {id: a, tool: echo, args: {value: 7}}\n"}
        )
        assert result.structuredContent == {"a": 7}, result
        result = await client.call_tool("test_elicitation", {"message": "who?"})
        assert "ada@example.com" in result.content[0].text, result
        progress.clear()
        await client.call_tool("test_tool_with_progress", {}, progress_callback=noted)
        assert progress == sorted(progress) and progress[-1] == 3, progress
        read_back = await client.read_resource("example://01_call_tools")
        assert "steps:" in read_back.contents[0].text
        prompt = await client.get_prompt("write_workflow", {"task": "count files"})
        assert "count files" in prompt.messages[0].content.text


async def main() -> None:
    _, _, url, holdfast, folder = sys.argv
    async with streamablehttp_client(url) as (read, write, _ended):
        await script(read, write)
    print("http ok")
    words = ["mcp", "--db", f"sqlite:///{folder}/own.db", "--flows", str(FLOWS)]
    async with stdio_client(StdioServerParameters(command=holdfast, args=words, cwd=folder)) as (read, write):
        await script(read, write)
    print("stdio ok")


if __name__ == "__main__":
    logging.disable()  # it warns of notifications that it does not know
    asyncio.run(main())
