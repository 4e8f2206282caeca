"""A server that dies while it decides or folds one run: `python -m tests.crash.mortal_server DATABASE PORT WHEN RUN_ID`.

WHEN is the kind of an event, or `load`. Its death is a kill of itself in the middle of `decide` or `fold`, as by a defect in C
or by the kernel when memory runs out. Without WHEN it is a server like any other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from holdfast.config import Settings
from holdfast.engine import plain
from holdfast.engine import step as core
from holdfast.http.serve import Serving, serve
from holdfast.runtime import entries, load
from holdfast.tools.registry import Registry


def deadly(when: str, run_id: str) -> None:
    engine: Any = core
    loader: Any = load
    decide, replay_row = engine.decide, loader.replay_row
    shortcuts: Any = plain
    engine._delay_ended = engine._call_succeeded = lambda *_: None  # so that every event is decided
    shortcuts.begin = shortcuts.pass_on = shortcuts.end = lambda *_: None

    def die(run: Any) -> None:
        if run.id == run_id:
            os.kill(os.getpid(), signal.SIGKILL)

    def deciding(plan: Any, run: Any, event: Any, at: Any) -> Any:
        if entries.KINDS[type(event)] == when:
            die(run)
        return decide(plan, run, event, at)

    def replaying(run: Any, *rest: Any) -> Any:
        die(run)
        return replay_row(run, *rest)

    if when == "load":
        loader.replay_row = replaying
    else:
        engine.decide = deciding


def main() -> None:
    database, port, *fatal = sys.argv[1:]
    if fatal:
        deadly(*fatal)

    def say(server: Serving) -> None:
        print(server.address, flush=True)

    settings = Settings(db=f"sqlite:///{database}", port=int(port))
    asyncio.run(serve(settings, registry=Registry([]), ready=say))


if __name__ == "__main__":
    main()
