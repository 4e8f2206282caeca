"""A server that tests kill: `python -m tests.mcp.killed_server DATABASE FLOWS` prints its address and serves until it is stopped."""

from __future__ import annotations

import asyncio
import sys

from holdfast.config import Settings
from holdfast.http.serve import serve

if __name__ == "__main__":
    asyncio.run(
        serve(
            Settings(db=sys.argv[1], port=0, flows=sys.argv[2]),
            ready=lambda server: print(server.address, flush=True),
        )
    )
