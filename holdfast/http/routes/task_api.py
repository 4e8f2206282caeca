"""The task API: flows, tasks, their runs and signals, and workers, with the names and shapes of its existing clients.

Served with and without the prefix `/api`, by the same commands as `/api/v1`. A task is a run and has the id of the run.
Knows spellings, no rules: keys of bodies are matched without regard to case and underscores, unknown ones are ignored,
times are Unix seconds, and an error is `{"error": text}`, with `message` and `details` where there is more to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal
from urllib.parse import urlencode

from holdfast import limits
from holdfast.errors import (
    InvalidRequest,
    NotFound,
)
from holdfast.http.routes.task_bodies import (
    WORDS,
    answering,
    definition_of,
    params_of,
    reader,
    run_id_of,
    trouble,
)
from holdfast.http.routes.task_types import (
    Heartbeat,
    Id,
    NewFlow,
    NewTask,
    NewVersion,
    NewWorker,
    Ok,
    RunsQuery,
    ServiceQuery,
    Signal,
    TaskName,
    TaskPage,
    TaskQuery,
    TasksQuery,
    Trouble,
    WorkerLine,
    WorkersQuery,
)
from holdfast.http.routes.workers import check_services, offered
from holdfast.http.table import ANY, Ask, Reply, Route
from holdfast.ops import traces
from holdfast.views.node_runs import NodeRun
from holdfast.views.tasks import Task
from holdfast.workers.worker import WorkerView

TAG: Final = "tasks"
WORKERS: Final = "workers"


# ----------------------------------------------------------------------------------------------------- answers


# ----------------------------------------------------------------------------------------------------- reading


# ------------------------------------------------------------------------------------------------------- flows


async def create_flow(ask: Ask) -> Id:
    return Id(
        await ask.services.commands.create_flow(
            ask.tenant, ask.body.name, ask.body.description, ask.principal.rights
        )
    )


async def _flow_name(ask: Ask, flow_id: str) -> str:
    name = (await ask.services.queries.catalog.workflow(ask.tenant, flow_id)).workflow.name
    if not ask.principal.rights.sees(name):
        raise NotFound(f"there is no workflow {flow_id[:100]!a} here")
    return name


async def create_version(ask: Ask) -> Id:
    body: NewVersion = ask.body
    name = await _flow_name(ask, body.flow_id)
    release = await ask.services.commands.publish(
        ask.tenant,
        await ask.services.commands.read(definition_of(body), name),
        number=body.version or None,
        draft=body.status == "draft",
        rights=ask.principal.rights,
    )
    return Id(release.id)


# ------------------------------------------------------------------------------------------------------- tasks


async def create_task(ask: Ask) -> Id | Reply:
    body: NewTask = ask.body
    params = params_of(body)
    name = await _flow_name(ask, body.flow_id)
    try:
        row, _ = await ask.services.commands.start(
            ask.tenant,
            name,
            params,
            number=body.version or None,
            # Kept with the task itself: an answer that is kept beside it could be lost in a crash, and a second task made.
            request_id=body.request_id or ask.headers.get("idempotency-key"),
            trace=traces.given(ask.headers.get("traceparent")),
            rights=ask.principal.rights,
        )
    except NotFound as error:  # the flow exists, so it is unclear which part was not found
        return Reply(Trouble(WORDS[error.code], str(error)), 404)
    return Id(row.id)


async def _tasks(ask: Ask) -> tuple[list[Task], int]:
    query: TasksQuery = ask.query
    return await ask.services.queries.tasks.tasks(
        ask.tenant,
        status=query.status or None,
        flow_version_id=query.flow_version_id or None,
        page=query.page,
        page_size=limits.page(query.page_size),
    )


async def tasks(ask: Ask) -> list[Task]:
    return (await _tasks(ask))[0]


async def task_page(ask: Ask) -> TaskPage:
    found, total = await _tasks(ask)
    return TaskPage(found, total, ask.query.page, limits.page(ask.query.page_size))


async def task(ask: Ask) -> Task:
    return await ask.services.queries.tasks.task(ask.tenant, run_id_of(ask.query.id))


async def cancel_task(ask: Ask) -> Ok:
    run_id = run_id_of(ask.query.id, ask.query.task_id, ask.body.id, ask.body.task_id)
    await ask.services.commands.cancel(ask.tenant, run_id)
    return Ok()


async def node_runs(ask: Ask) -> Reply:
    """An array as it always was: that there is more can only be said beside it."""
    query: RunsQuery = ask.query
    page = await ask.services.queries.tasks.node_runs(
        ask.tenant, run_id_of(query.task_id), cursor=query.cursor or None, limit=query.limit
    )
    if page.cursor is None:
        return Reply(page.items)
    more = urlencode({"task_id": query.task_id, "cursor": page.cursor, "limit": query.limit})
    return Reply(page.items, headers={"link": f'<?{more}>; rel="next"'})


async def signal_task(ask: Ask) -> Ok:
    body: Signal = ask.body
    keep = ask.keeps(lambda status: Ok())
    await ask.services.commands.signal(ask.tenant, run_id_of(body.task_id), body.key, body.value, keep=keep)
    return Ok()


# ----------------------------------------------------------------------------------------------------- workers


async def register(ask: Ask) -> Ok:
    body: NewWorker = ask.body
    services = offered(body.services)
    check_services(ask, [service.name for service in services])
    await ask.services.workers.register(
        ask.tenant,
        body.id,
        body.url,
        services,
        body.type,
        key_id=ask.principal.key_id,
    )
    return Ok()


async def heartbeat(ask: Ask) -> Ok:
    body: Heartbeat = ask.body
    if not (body.id or body.url):
        raise InvalidRequest("a heartbeat names its worker by id or url")
    await ask.services.workers.find(ask.tenant, body.id, body.url)
    ask.services.workers.heartbeat(ask.tenant, body.id, body.url, body.load, key_id=ask.principal.key_id)
    return Ok()


async def workers(ask: Ask) -> list[WorkerLine]:
    found = ask.services.workers.list(ask.tenant, ask.query.service or None, ask.query.ttl or None)
    return [_line(worker) for worker in found]


async def allocate(ask: Ask) -> WorkerLine | Reply:
    found = ask.services.workers.allocate(ask.tenant, ask.query.service)
    return Reply(Trouble("no worker"), 503) if found is None else _line(found)


def _line(worker: WorkerView) -> WorkerLine:
    return WorkerLine(
        worker.id,
        worker.url,
        list(worker.services),
        worker.load,
        worker.last_heartbeat // 1000,
        worker.status,
        worker.type,
    )


# ------------------------------------------------------------------------------------------------------ routes


def _route(
    method: Literal["GET", "POST"],
    path: str,
    scope: Any,
    do: Callable[[Ask], Awaitable[Any]],
    summary: str,
    tag: str = TAG,
    *,
    body: Any = None,
    query: Any = None,
    answer: Any = Ok,
    refusals: tuple[int, ...] = (),
    body_optional: bool = False,
) -> Route:
    return Route(
        method,
        path,
        scope,
        answering(do),
        summary,
        tag,
        body=body,
        query=query,
        answer=answer,
        also=dict.fromkeys((400, *refusals), Trouble),
        media=(ANY,),  # curl calls whatever it sends a form
        reads=None if body is None else reader(body),
        body_optional=body_optional,
        fault=trouble,
    )


def _under(prefix: str) -> tuple[Route, ...]:
    workers = (route for place in (f"{prefix}/workers", prefix) for route in _of_workers(place))
    return (*_of_flows(f"{prefix}/flows"), _list_of_tasks(prefix), *_of_tasks(f"{prefix}/tasks"), *workers)


def _list_of_tasks(prefix: str) -> Route:
    """A bare array, or under `/api` a page that says how many there are."""
    task_path = f"{prefix}/tasks"
    return (
        _route(
            "GET",
            task_path,
            "read",
            task_page,
            "List tasks as a page, newest first.",
            query=TasksQuery,
            answer=TaskPage,
        )
        if prefix
        else _route(
            "GET", task_path, "read", tasks, "List tasks, newest first.", query=TasksQuery, answer=list[Task]
        )
    )


def _of_flows(flows: str) -> tuple[Route, ...]:
    return (
        _route(
            "POST",
            flows,
            "run",
            create_flow,
            "Create a flow, or get the id of an existing one by its name.",
            body=NewFlow,
            answer=Id,
        ),
        _route(
            "POST",
            f"{flows}/version",
            "run",
            create_version,
            "Store a definition of a flow, and publish it unless it is a draft.",
            body=NewVersion,
            answer=Id,
            refusals=(404, 409),
        ),
    )


def _of_tasks(task_path: str) -> tuple[Route, ...]:
    return (
        _route(
            "POST",
            task_path,
            "run",
            create_task,
            "Start a task of a flow.",
            body=NewTask,
            answer=Id,
            refusals=(404, 409),
        ),
        _route(
            "GET",
            f"{task_path}/get",
            "read",
            task,
            "Get a task with its shared state.",
            query=TaskQuery,
            answer=Task,
            refusals=(404,),
        ),
        _route(
            "POST",
            f"{task_path}/cancel",
            "run",
            cancel_task,
            "Cancel a task. A finished task is not changed.",
            query=TaskName,
            body=TaskName,
            body_optional=True,
            refusals=(404,),
        ),
        _route(
            "GET",
            f"{task_path}/runs",
            "read",
            node_runs,
            "List the attempts of each node. For a long list, the Link header has the next page.",
            query=RunsQuery,
            answer=list[NodeRun],
            refusals=(404,),
        ),
        _route(
            "POST",
            f"{task_path}/signal",
            "run",
            signal_task,
            "Write one key of a task's shared state.",
            body=Signal,
            refusals=(404, 409),
        ),
    )


def _of_workers(place: str) -> tuple[Route, ...]:
    """The worker routes, with the prefix `/workers` and, for older clients, without it."""
    return (
        _route(
            "POST",
            f"{place}/register",
            "worker",
            register,
            "Register a worker, or replace its registration.",
            WORKERS,
            body=NewWorker,
        ),
        _route(
            "POST",
            f"{place}/heartbeat",
            "worker",
            heartbeat,
            "Send a worker's heartbeat and load.",
            WORKERS,
            body=Heartbeat,
            refusals=(404,),
        ),
        _route(
            "GET",
            f"{place}/list",
            "read",
            workers,
            "List live workers.",
            WORKERS,
            query=WorkersQuery,
            answer=list[WorkerLine],
        ),
        _route(
            "GET",
            f"{place}/allocate",
            "read",
            allocate,
            "Get the least busy worker of a service.",
            WORKERS,
            query=ServiceQuery,
            answer=WorkerLine,
            refusals=(503,),
        ),
    )


ROUTES: Final = (*_under(""), *_under("/api"))
