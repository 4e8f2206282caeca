"""`holdfast demo`: runs two tasks of a small graph through a server and a worker with the task API, and shows each
node run.

Uses an existing server, or starts a temporary one; the same for the worker. Also provides the worker and the first runs of
`holdfast up --demo`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.cli.file import finished
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import painted, shortened, table
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say, show
from holdfast.config import DEFAULT_HOST, DEFAULT_PORT, Settings
from holdfast.errors import HoldfastError
from holdfast.http.serve import serving
from holdfast.sdk.client import DEFAULT_SERVER, Client
from holdfast.sdk.connection import PATIENCE_SECS, TIMEOUT_SECS, Connection
from holdfast.sdk.demo import route, total, transform
from holdfast.sdk.worker import Worker
from holdfast.tools.registry import Registry

FLOW: Final = "demo"
DEFINITION: Final[dict[str, Any]] = {
    "description": "A text in capitals, and then one of two ways: B makes it small again, C adds numbers up.",
    "start": "A",
    "nodes": {
        "A": {
            "kind": "executor",
            "service": "transform",
            "prep": {"input_key": "$params.text"},
            "params": {"op": "upper"},
            "post": {"output_key": "text"},
        },
        "way": {
            "kind": "executor",
            "service": "route",
            "params": {"action": "$params.action"},
            "post": {"action_key": "action"},
        },
        "B": {
            "kind": "executor",
            "service": "transform",
            "prep": {"input_key": "text"},
            "params": {"op": "lower"},
            "post": {"output_key": "result"},
        },
        "C": {
            "kind": "executor",
            "service": "sum",
            "prep": {"input_key": "$params.numbers"},
            "post": {"output_key": "result"},
        },
    },
    "edges": [
        {"from": "A", "action": "default", "to": "way"},
        {"from": "way", "action": "goB", "to": "B"},
        {"from": "way", "action": "goC", "to": "C"},
    ],
}
TASKS: Final = (
    {"text": "Hold fast", "action": "goB"},
    {"text": "Hold fast", "action": "goC", "numbers": [1, 2, "39"]},
)
# Runs of the examples, for a first look at the page: a fan-out, a failure after retries beside a run that passed, and a nested
# workflow with an approval that waits.
FIRST_RUNS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("pictures", {}),
    ("invoice", {"customer": "ada", "amount": 80}),
    ("invoice", {"customer": "charles", "amount": 250}),
    ("release", {"version": "2.4.0"}),
    ("hello", {"name": "Ada"}),
)
OVER: Final = ("completed", "failed", "canceled")
POLL_SECS: Final = 0.1
DEMO_SECS_MAX: Final = 60.0
PROBE_SECS: Final = 2.0  # how long to wait for a server on the default port to respond
SHOWN_MAX: Final = 60  # characters of a value in a table


def command(given: Given) -> int:
    reserve_stdout()
    return finished(_demo(settings_of(given), as_json=given.has("--json")))


@contextlib.asynccontextmanager
async def demo_worker(server: str, key: str | None, socket: str | None = None) -> AsyncIterator[Worker]:
    """A worker with the demo services in this process, registered. On the local socket of the server it needs no key."""
    # A guarded server calls no address of this machine, so the worker fetches its jobs where it can.
    worker = Worker([transform, total, route], server, key=key, socket=socket, pull=socket is not None)
    work = asyncio.get_running_loop().create_task(worker.run())
    known = asyncio.get_running_loop().create_task(worker.is_registered.wait())
    try:
        await asyncio.wait([work, known], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        yield worker
    finally:
        known.cancel()
        worker.stop()
        await asyncio.wait([work])


async def start_first_runs(
    server: str, key: str | None, published: Collection[str], socket: str | None = None
) -> None:
    """Start runs of the examples that are published. A database gets each of them once: their request ids stay the same."""
    async with Client(server, key, socket=socket) as client:
        for number, (name, inputs) in enumerate(FIRST_RUNS, 1):
            if name in published:
                with contextlib.suppress(
                    HoldfastError
                ):  # an example that the user has changed since, or a missing key
                    await client.start(name, inputs, request_id=f"demo-{number}", labels={"demo": "yes"})


async def _demo(settings: Settings, *, as_json: bool) -> int:
    async with contextlib.AsyncExitStack() as stack:
        server, is_own = await _server(settings, stack)
        api = TaskApi(server, None if is_own else settings.key)
        stack.push_async_callback(api.close)
        if not await api.get("/workers/list", service="transform"):
            worker = await stack.enter_async_context(demo_worker(server, None if is_own else settings.key))
            say(f"worker {worker.id} serves {', '.join(worker.services)} at {worker.url}")
        flow_id, version_id = await _published(api)
        say(f"flow {FLOW} is {flow_id}, its version {version_id}")
        try:
            async with asyncio.timeout(DEMO_SECS_MAX):
                made = [await api.post("/tasks", {"flow_id": flow_id, "params": task}) for task in TASKS]
                tasks = [await _ended(api, one["id"]) for one in made]
        except TimeoutError:
            raise Usage(
                f"the tasks have not finished after {DEMO_SECS_MAX:g} s; holdfast runs explain last says why"
            ) from None
        runs = {task["id"]: await api.get("/tasks/runs", task_id=task["id"]) for task in tasks}
    is_well = all(task["status"] == "completed" for task in tasks)
    if as_json:
        is_written = give({"server": server, "flow_id": flow_id, "tasks": tasks, "runs": runs})
    else:
        is_written = show("\n".join(_tables(tasks, runs)))
    if not is_written:
        return UNWRITTEN
    return 0 if is_well else 1


async def _server(settings: Settings, stack: contextlib.AsyncExitStack) -> tuple[str, bool]:
    """The named server, the one on the default port, or a temporary one; and whether it is temporary."""
    if settings.server is not None:
        return settings.server, False
    if await _answers(DEFAULT_SERVER):
        say(f"using the server at {DEFAULT_SERVER}")
        return DEFAULT_SERVER, False
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-"))
    own = Settings(db=f"sqlite:///{Path(folder) / 'demo.db'}", host=DEFAULT_HOST, port=0)
    server = await stack.enter_async_context(serving(own, registry=Registry()))
    say(f"no server responds on port {DEFAULT_PORT}: started a temporary one at {server.address}")
    return server.address, True


async def _answers(server: str) -> bool:
    api = TaskApi(server, None, patience=0.0, timeout=PROBE_SECS)
    try:
        await api.get("/healthz")
    except HoldfastError:
        return False
    finally:
        await api.close()
    return True


async def _published(api: TaskApi) -> tuple[str, str]:
    flow_id = (await api.post("/flows", {"name": FLOW}))["id"]
    version = {"flow_id": flow_id, "definition": DEFINITION}
    return flow_id, (await api.post("/flows/version", version))["id"]


async def _ended(api: TaskApi, task_id: str) -> Any:
    while True:
        task = await api.get("/tasks/get", id=task_id)
        if task["status"] in OVER:
            return task
        await asyncio.sleep(POLL_SECS)


class TaskApi:
    """The task API of a server."""

    def __init__(
        self, server: str, key: str | None, *, timeout: float = TIMEOUT_SECS, patience: float = PATIENCE_SECS
    ) -> None:
        self._connection = Connection(server, key, timeout=timeout, patience=patience)
        self.close = self._connection.close

    async def get(self, path: str, **query: str) -> Any:
        return await self._connection.ask("GET", path, Any, query=query)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._connection.ask("POST", path, Any, body=body)


# ---------------------------------------------------------------------------------------------------- what is said


def _tables(tasks: list[Any], runs: dict[str, Any]) -> list[str]:
    heads = ("TASK", "STATUS", "PARAMS", "SHARED")
    rows = [
        (task["id"], _coloured(task["status"]), _short(task["params_json"]), _short(task["shared_json"]))
        for task in tasks
    ]
    parts = [table(heads, rows)]
    for task in tasks:
        parts += [
            f"node runs of {task['id']}",
            table(_RUN_HEADS, [_run_cells(one) for one in runs[task["id"]]]),
        ]
    return parts


_RUN_HEADS: Final = ("NODE", "ATTEMPT", "STATUS", "ACTION", "INPUT", "OUTPUT", "WORKER")


def _run_cells(run: Any) -> tuple[str, ...]:
    return (
        run["node_key"],
        str(run["attempt_no"]),
        _coloured(run["status"]),
        run["action"] or "",
        _short(run["exec_input_json"]),
        _short(run["exec_output_json"]) or run["error_text"] or "",
        run["worker_id"] or "",
    )


def _coloured(status: str) -> str:
    return painted(status, {"ok": "completed", "error": "failed"}.get(status, status))


def _short(text: str | None) -> str:
    return "" if not text else shortened(msgspec.Raw(text.encode()), SHOWN_MAX)
