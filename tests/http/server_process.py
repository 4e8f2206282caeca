"""A server in a process of its own, to be killed: `python -m tests.http.server_process DATABASE PORT`."""

from __future__ import annotations

import asyncio
import sys

from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import Serving, serve
from holdfast.tools.registry import Registry


@tool
async def pause(secs: float) -> float:
    await asyncio.sleep(secs)
    return secs


def say(server: Serving) -> None:
    print(server.address, flush=True)


def main() -> None:
    address = f"http://127.0.0.1:{sys.argv[2]}"
    settings = Settings(db=f"sqlite:///{sys.argv[1]}", port=int(sys.argv[2]), public_url=address)
    asyncio.run(serve(settings, registry=Registry([pause]), ready=say))


if __name__ == "__main__":
    main()
