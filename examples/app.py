"""The first example from Python: `python app.py` in this folder."""

# ruff: noqa: I001  # from this folder, holdfast is third-party and tools is first-party

import asyncio

from holdfast import Holdfast
from tools import greet, look_up, post


async def main() -> None:
    async with Holdfast("sqlite:///app.db", tools=[greet, look_up, post]) as hf:
        run = await hf.start("hello.yaml", {"name": "Ada"})  # durable from here on
        print(await run.result(timeout=30))


asyncio.run(main())
