"""A server with schedules that dies at a commit which fires one: `python -m tests.crash.mortal_triggers DATABASE SCHEDULES WHEN N`.

SCHEDULES is a file with a JSON list of schedules. WHEN is `before` or `after`: it kills itself right before the commit of its
N-th firing is handed to the store, or right after that commit is durable and before anything is done about it. With N = 0 it
is a server like any other. It prints its address once it listens.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import Serving, serve
from holdfast.runtime.committer import Committer
from holdfast.spec.schedule import schedule_from_data
from holdfast.tools.registry import Registry

WORK = {
    "name": "work",
    "inputs": {"x": {}},
    "steps": [{"id": "a", "tool": "same", "args": {"x": "{{inputs.x}}"}}],
}


@tool
async def same(x: Any = None) -> Any:
    return x


def deadly(when: str, count: int) -> None:
    committer: Any = Committer
    submit, settled, left = committer.submit, committer._settled, [count]

    def die_at(batch: Any) -> None:
        left[0] -= any(one.entries for one in batch.firings)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def submitting(self: Any, batch: Any, done: Any) -> None:
        die_at(batch)
        submit(self, batch, done)

    def settling(self: Any, batch: Any, done: Any, error: Any) -> None:
        die_at(batch)
        settled(self, batch, done, error)

    if when == "before":
        committer.submit = submitting
    else:
        committer._settled = settling


def main() -> None:
    database, schedules, when, count = sys.argv[1:]

    async def begin(server: Serving) -> None:
        await server.services.commands.publish("default", WORK)
        if int(count):
            deadly(when, int(count))
        for data in json.loads(Path(schedules).read_text()):
            await server.services.engine.schedules.put("default", schedule_from_data(data), origin="file")
        print(server.address, flush=True)

    asyncio.run(serve(Settings(db=f"sqlite:///{database}", port=0), registry=Registry([same]), ready=begin))


if __name__ == "__main__":
    main()
