"""The views for readers that ask in SQL say the same on both databases: a file is moved to a server, and each row compared."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import RunCancelled, RunFailed, RunInterrupted
from holdfast.api.services import Services
from holdfast.ops.promote import promote
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.open import open_move
from holdfast.testing import TestEngine
from tests.embed import test_views as steps
from tests.postgres import Server
from tests.runtime.bench import opened
from tests.runtime.manual import by_hand, clock, settled
from tests.views import test_node_runs as graphs

VIEWS = {
    "workflow_steps": "workflow_id, step_id",
    "workflows": "workflow_id",
    "tasks": "id",
    "node_runs": "id",
}
UNDER_ONE_KEY = """
name: n
steps:
  - {id: a, tool: echo, idempotency_key: k}
  - {id: par, kind: parallel, steps: [{id: c, tool: slow, idempotency_key: m}, {id: d, tool: slow, idempotency_key: m}]}
"""
NUL = r'name: n\nsteps: [{id: a, tool: echo, args: {x: "a\0b\\u0000c"}}]'.replace(r"\n", "\n")
LARGE = "name: n\nsteps: [{id: a, tool: big}]"

tools = steps.tools


def of_file(file: Path, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in steps.rows(file, query)]


def differences(server: Server, file: Path) -> dict[str, Any]:
    """What the views say of a file, and after its move: by view, the rows that only one side has."""

    async def compare() -> dict[str, Any]:
        url = await server.new_database()
        source, target = open_move(str(file), url)
        source.open_file()
        try:
            places = ArtefactFiles(file.with_suffix(".from")), ArtefactFiles(file.with_suffix(".to"))
            await promote(source, target, places, 1_000, lambda line: None)
        finally:
            await target.close()
            source.close_file()
        connection = await server.connect(url)
        try:
            return {name: await compared(connection, name) for name in VIEWS}
        finally:
            await connection.close()

    async def compared(connection: Any, name: str) -> Any:
        ours = of_file(file, f"SELECT * FROM {name}")
        theirs = [tuple(row) for row in await connection.fetch(f"SELECT * FROM {name}")]
        assert ours or name not in ("workflows", "workflow_steps")
        both = [{tuple(map(plain, row)) for row in found} for found in (ours, theirs)]
        return sorted(both[0] ^ both[1], key=str), len(ours) - len(theirs)

    return asyncio.run(compare())


def plain(value: Any) -> Any:
    """Without NUL, and without what only looks like it: a backslash, and u0000."""
    return re.sub(r"\\+u0000|\\*\ufffd", "?", value) if isinstance(value, str) else value


SAME: dict[str, Any] = dict.fromkeys(VIEWS, ([], 0))


async def test_runs_of_steps_are_the_same(tools: TestEngine, postgres_server: Server) -> None:
    tools.fake_tool("slow", lambda: asyncio.sleep(60, "done"))
    tools.fake_tool("big", returns={"text": "y" * 100_000})
    hf = await tools.open()
    await hf.publish("name: child\nsteps: [{id: s, tool: echo, args: {x: 4}}]\noutput: {got: '{{ s }}'}")
    nested = "name: n\nsteps: [{id: c, kind: workflow, workflow: child}]"
    for spec in (steps.LOOP, steps.RETRIED, steps.TIMED_OUT, steps.ABORTED, steps.UNRENDERED, steps.ODD_IDS, UNDER_ONE_KEY, NUL, LARGE, nested):  # fmt: skip
        await steps.ended(tools, spec)
    failed = await steps.ended(tools, "name: n\nsteps: [{id: x, tool: echo, args: {x: 5}}, {id: f, tool: fail}]")  # fmt: skip
    again = await tools.attach((await hf.rerun(failed.id, from_step="f")).id)
    with suppress(RunFailed):
        await tools.finish(again)
    for spec in (steps.HANGS, steps.ABORTED.replace("fail", "hang")):
        run = await tools.start(spec)
        await hf.cancel(run.id)
        with suppress(RunCancelled):
            await tools.finish(run)
    await tools.start(steps.HANGS)
    interrupted = await tools.start(steps.HANGS + "\non_restart: interrupt")
    await tools.restart()
    with suppress(RunInterrupted):
        await tools.finish(interrupted)
    tools.close()
    assert await asyncio.to_thread(differences, postgres_server, tools.file) == SAME


@by_hand
async def test_runs_of_graphs_are_the_same(tmp_path: Path, postgres_server: Server) -> None:
    async with opened(tmp_path, graphs.TOOLS, clock(), no_worker_wait_ms=0) as engine:
        services = Services(engine)
        for definition in graphs.VIEWED.values():
            await services.commands.publish(graphs.T, definition)
            await services.commands.start(graphs.T, "g", {"x": "hi", "xs": ["a", "b"]})
            await clock().advance(5)
        endless = graphs.graph("a", a=graphs.local("endless"))
        run, _ = await services.commands.start(graphs.T, endless, {"x": 5})
        await services.commands.start(graphs.T, endless, {"x": 5})
        await settled()
        await services.commands.cancel(graphs.T, run.id)
        await services.queries.wait_for(graphs.T, run.id, 60)
    (file,) = tmp_path.glob("*.db")
    assert await asyncio.to_thread(differences, postgres_server, file) == SAME
