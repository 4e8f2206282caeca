"""The task API: flows, tasks, their runs and signals, and workers, with the names and shapes of its existing clients.

Served with and without the prefix `/api`, by the same commands as `/api/v1`. A task is a run and has the id of the run.
Knows spellings, no rules: keys of bodies are matched without regard to case and underscores, unknown ones are ignored,
times are Unix seconds, and an error is `{"error": text}`, with `message` and `details` where there is more to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from holdfast import limits
from holdfast.errors import (
    HoldfastError,
    InvalidInputs,
    InvalidRequest,
    InvalidSpec,
    LimitExceeded,
    NotFound,
    Problem,
    RequestConflict,
)
from holdfast.http.json_body import read_json
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
from holdfast.http.validation import invalid, with_whole_numbers
from holdfast.ops import traces
from holdfast.views.node_runs import NodeRun
from holdfast.views.tasks import Task
from holdfast.workers.registry import WorkerView

TAG: Final = "tasks"
WORKERS: Final = "workers"
TASK: Final = "task-"

T = TypeVar("T")


# ----------------------------------------------------------------------------------------------------- answers


# The task API's own codes for these; any other error keeps its stable code, with the message beside it.
WORDS: Final = {"not_found": "not found", "method_not_allowed": "method", "no_worker": "no worker"}


def trouble(error: HoldfastError) -> Trouble:
    if error.code in WORDS:
        return Trouble(WORDS[error.code])
    problems = list(getattr(error, "problems", ()))
    has_no_start = isinstance(error, InvalidSpec) and any(problem.pointer == "/start" for problem in problems)
    return Trouble("no start" if has_no_start else error.code, str(error), problems)


def _answering(do: Callable[[Ask], Awaitable[Any]]) -> Callable[[Ask], Awaitable[Any]]:
    """Invalid requests are 400 in this API, and a different request with the same id is a conflict."""

    async def answered(ask: Ask) -> Any:
        try:
            return await do(ask)
        except (InvalidSpec, InvalidInputs, LimitExceeded) as error:
            return Reply(trouble(error), 400)
        except RequestConflict as error:
            return Reply(trouble(error), 409)

    return answered


# ----------------------------------------------------------------------------------------------------- reading


def _reader(kind: type[T]) -> Callable[[bytes, str], T]:
    """Reads a body whose keys may be spelled FlowID, flow_id or flowId."""
    fields = {_folded(name): name for name in kind.__struct_fields__}  # type: ignore[attr-defined]

    def read(raw: bytes, media: str) -> T:
        data = read_json(raw)
        if not isinstance(data, dict):
            raise InvalidRequest("the body must be an object")
        known: dict[str, Any] = {}
        for key, value in data.items():
            name = fields.get(_folded(key))
            if name is None or value is None:
                continue
            if name in known:
                problem = Problem("duplicate_key", f"{name} is given in two spellings", f"/{key}")
                raise InvalidRequest(f"the body has {name} in two spellings; send one", [problem])
            known[name] = value
        try:
            try:
                return msgspec.convert(known, kind)
            except msgspec.ValidationError as error:
                return cast("T", with_whole_numbers(known, kind, error))
        except msgspec.ValidationError as error:
            raise invalid(error, "body", kind) from None

    return read


def _folded(key: str) -> str:
    return key.replace("_", "").lower()


def _run_id(*said: str | None) -> str:
    """The run that is meant by the first id that was given."""
    found = next((one for one in said if one), None)
    if found is None:
        raise InvalidRequest("id is missing", [Problem("missing_key", "id is missing", "/id")])
    return found.removeprefix(TASK)


def _definition(body: NewVersion) -> dict[str, Any] | str:
    """The definition as data where it is data or JSON, else as the YAML text that it is."""
    said = body.definition if body.definition not in (None, "") else body.definition_json
    if said in (None, ""):
        if not body.definition_yaml:
            raise InvalidRequest(
                "definition is missing: an object, or DefinitionJSON or DefinitionYAML with its text"
            )
        return body.definition_yaml
    data = _json(said, "the definition") if isinstance(said, str) else said
    if not isinstance(data, dict):
        raise InvalidRequest("a definition is an object")
    return data if "steps" in data else {"nodes": {}, **data}  # a graph, whatever else of it is missing


def _params(body: NewTask) -> dict[str, Any]:
    said = body.params if body.params is not None else body.params_json
    if isinstance(said, str):
        said = _json(said, "ParamsJSON") if said.strip() else {}
    if not isinstance(said, dict | None):
        raise InvalidRequest("the params of a task must be an object")
    return said or {}


def _json(text: str, what: str) -> Any:
    try:
        return read_json(text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{what} is not JSON: {error}") from None


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
        await ask.services.commands.read(_definition(body), name),
        number=body.version or None,
        draft=body.status == "draft",
        rights=ask.principal.rights,
    )
    return Id(release.id)


# ------------------------------------------------------------------------------------------------------- tasks


async def create_task(ask: Ask) -> Id | Reply:
    body: NewTask = ask.body
    params = _params(body)
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
    return await ask.services.queries.tasks.task(ask.tenant, _run_id(ask.query.id))


async def cancel_task(ask: Ask) -> Ok:
    run_id = _run_id(ask.query.id, ask.query.task_id, ask.body.id, ask.body.task_id)
    await ask.services.commands.cancel(ask.tenant, run_id)
    return Ok()


async def node_runs(ask: Ask) -> Reply:
    """An array as it always was: that there is more can only be said beside it."""
    query: RunsQuery = ask.query
    page = await ask.services.queries.tasks.node_runs(
        ask.tenant, _run_id(query.task_id), cursor=query.cursor or None, limit=query.limit
    )
    if page.cursor is None:
        return Reply(page.items)
    more = urlencode({"task_id": query.task_id, "cursor": page.cursor, "limit": query.limit})
    return Reply(page.items, headers={"link": f'<?{more}>; rel="next"'})


async def signal_task(ask: Ask) -> Ok:
    body: Signal = ask.body
    keep = ask.keeps(lambda status: Ok())
    await ask.services.commands.signal(ask.tenant, _run_id(body.task_id), body.key, body.value, keep=keep)
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
        _answering(do),
        summary,
        tag,
        body=body,
        query=query,
        answer=answer,
        also=dict.fromkeys((400, *refusals), Trouble),
        media=(ANY,),  # curl calls whatever it sends a form
        reads=None if body is None else _reader(body),
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
