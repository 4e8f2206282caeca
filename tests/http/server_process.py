"""A server in a process of its own, to be killed: `python -m tests.http.server_process DATABASE PORT [EVENT]`.

With the name of an event it dies by itself the moment the first such one is durable, before whoever sent it is answered.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import Serving, serve
from holdfast.tools.registry import Registry


@tool
async def pause(secs: float) -> float:
    await asyncio.sleep(secs)
    return secs


@tool
async def later() -> dict[str, Any]:
    return {"pending": True, "task_id": "T1"}


def say(server: Serving) -> None:
    def die(batch: Any, entries: Any, seconds: float) -> None:
        if any(kind in sys.argv[3:] for *_, kind, _ in batch.rows):
            os.kill(os.getpid(), signal.SIGKILL)

    server.services.engine.door.watchers.append(die)
    print(server.address, flush=True)


def main() -> None:
    address = f"http://127.0.0.1:{sys.argv[2]}"
    db, port = f"sqlite:///{sys.argv[1]}", int(sys.argv[2])
    settings = Settings(db=db, port=port, public_url=address, worker_ttl_secs=600, worker_lease_secs=600)
    asyncio.run(serve(settings, registry=Registry([pause, later]), ready=say))


if __name__ == "__main__":
    main()
