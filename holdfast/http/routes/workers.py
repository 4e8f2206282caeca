"""`/api/v1/workers` and `/api/v1/assignments`: workers register, and pull workers fetch and complete jobs.

Knows which key may serve which service, and the shapes of the requests; workers/ knows leases and tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.api.types import (
    ANSWER_BYTES_MAX,
    Accepted,
    AssignmentBeat,
    Assignments,
    CompleteAssignment,
    JobLine,
    Lease,
    NoQuery,
    OfferService,
    PageQuery,
    Poll,
    RegisterWorker,
    ServiceLine,
    ServicePage,
    Worker,
    WorkerBeat,
    WorkerPage,
    WorkersQuery,
    time_text,
)
from holdfast.errors import Forbidden
from holdfast.http.auth import check_again
from holdfast.http.json_body import Members
from holdfast.http.table import Ask, Route
from holdfast.values import written
from holdfast.views.cursors import at_cursor, cursor_at
from holdfast.views.services import ServiceView
from holdfast.workers.pull import Fetched, Progress
from holdfast.workers.worker import Service, WorkerView

TAG: Final = "workers"


async def register(ask: Ask) -> Worker:
    body: RegisterWorker = ask.body
    services = offered(body.services)
    check_services(ask, [service.name for service in services])
    key_id = ask.principal.key_id
    made = await ask.services.workers.register(
        ask.tenant, body.id, body.url, services, body.kind, key_id=key_id
    )
    return shown(made)


async def heartbeat(ask: Ask) -> Worker:
    load, key_id = ask.body.load, ask.principal.key_id
    await ask.services.workers.find(ask.tenant, ask.path["id"])
    return shown(ask.services.workers.heartbeat(ask.tenant, ask.path["id"], None, load, key_id=key_id))


async def listed(ask: Ask) -> WorkerPage:
    query: WorkersQuery = ask.query
    key, which = ask.services.engine.store.server_key, f"workers {ask.tenant}"
    after = 0 if query.cursor is None else at_cursor(key, which, query.cursor)
    found = [each for each in ask.services.workers.list(ask.tenant, query.service) if each.place > after]
    size = limits.page(query.limit)
    page, has_more = found[:size], len(found) > size
    return WorkerPage(
        [shown(worker) for worker in page], cursor_at(key, which, page[-1].place) if has_more else None
    )


async def services(ask: Ask) -> ServicePage:
    query: PageQuery = ask.query
    key, which = ask.services.engine.store.server_key, f"services {ask.tenant}"
    after = 0 if query.cursor is None else at_cursor(key, which, query.cursor)
    found = await ask.services.queries.services(ask.tenant)
    until = after + limits.page(query.limit)
    cursor = cursor_at(key, which, until) if until < len(found) else None
    return ServicePage([_line_of(one) for one in found[after:until]], cursor)


def _line_of(one: ServiceView) -> ServiceLine:
    oldest, since = (None if at is None else time_text(at) for at in (one.oldest, one.unserved_since))
    return ServiceLine(one.name, one.workers, one.waiting, oldest, since, one.start_one)


async def forget(ask: Ask) -> Worker:
    """An admin may remove a worker that another key registered."""
    key_id = None if ask.principal.may("admin") else ask.principal.key_id
    return shown(await ask.services.workers.forget(ask.tenant, ask.path["id"], key_id=key_id))


async def poll(ask: Ask) -> Fetched:
    body: Poll = ask.body
    check_services(ask, body.services or ())
    return await ask.services.workers.poll(
        ask.tenant,
        body.worker_id,
        body.services or ask.principal.services or None,
        body.limit,
        body.wait_secs,
        key_id=ask.principal.key_id,
        leaving=ask.leaving,
        check=partial(check_again, ask.principal, ask.services.api_keys),
    )


async def job_heartbeat(ask: Ask) -> Lease:
    body: AssignmentBeat = ask.body
    reported = body.progress
    progress = None if reported is None else Progress(reported.done, reported.total, reported.message)
    renewed = await ask.services.workers.job_heartbeat(
        ask.tenant, ask.path["id"], body.token, progress, body.load, _said(body.logs)
    )
    return Lease(renewed.lease_secs, renewed.cancel)


_decode_completion = msgspec.json.Decoder(CompleteAssignment).decode


def _completion(members: Members) -> CompleteAssignment:
    """The result stays text: it may have 25 MiB, and it is not parsed here."""
    result = members.get("result")
    texts = {name: msgspec.Raw(member.text) for name, member in members.items()}
    text = written(texts if result is None else {**texts, "result": None})
    body = _decode_completion(text)
    return body if result is None else msgspec.structs.replace(body, result=result)


async def complete(ask: Ask) -> Accepted:
    body: CompleteAssignment = ask.body
    result: Any = None if body.result is msgspec.UNSET else body.result
    await ask.services.workers.complete(
        ask.tenant,
        ask.path["id"],
        body.token,
        result,
        body.error or "",
        body.error_kind,
        traceback=body.traceback,
        logs=_said(body.logs),
    )
    return Accepted()


def _said(lines: Sequence[JobLine]) -> list[tuple[str, str]]:
    return [(line.level, line.message) for line in lines]


def offered(services: Sequence[str | OfferService | Service]) -> list[Service]:
    return [
        Service(said) if isinstance(said, str) else Service(said.name, said.supports_async_callback)
        for said in services
    ]


def check_services(ask: Ask, services: list[str] | tuple[str, ...]) -> None:
    """A key that is limited to some services cannot serve any other."""
    allowed = ask.principal.services
    if allowed and (others := sorted(set(services) - allowed)):
        raise Forbidden(
            f"this key is not for the service {others[0][:100]!a}; it is for {', '.join(sorted(allowed))}"
        )


def shown(worker: WorkerView) -> Worker:
    return Worker(
        worker.id,
        worker.url,
        list(worker.services),
        worker.load,
        time_text(worker.last_heartbeat),
        worker.status,
        worker.type,
        list(worker.called_back),
    )


ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/workers",
        "worker",
        register,
        "Register a worker, or replace the registration with the same id. Its load starts at 0.",
        TAG,
        body=RegisterWorker,
        answer=Worker,
        errors=("limit_exceeded",),
    ),
    Route(
        "GET",
        "/api/v1/workers",
        "read",
        listed,
        "List live workers, in the order of their registration.",
        TAG,
        query=WorkersQuery,
        answer=WorkerPage,
        errors=("invalid_inputs",),
    ),
    Route(
        "GET",
        "/api/v1/services",
        "read",
        services,
        "List the services that workers offer or that steps wait for: their workers, the calls that wait, and since when.",
        TAG,
        query=PageQuery,
        answer=ServicePage,
        errors=("invalid_inputs",),
    ),
    Route(
        "POST",
        "/api/v1/workers/{id}/heartbeat",
        "worker",
        heartbeat,
        "Send a worker's heartbeat and load. On 404, register it again.",
        TAG,
        body=WorkerBeat,
        body_optional=True,
        answer=Worker,
        errors=("not_found",),
        replies="recent",
    ),
    Route(
        "DELETE",
        "/api/v1/workers/{id}",
        "worker",
        forget,
        "Unregister a worker. It keeps the jobs it has fetched until their leases expire.",
        TAG,
        query=NoQuery,
        answer=Worker,
        errors=("not_found",),
    ),
    Route(
        "POST",
        "/api/v1/assignments/poll",
        "worker",
        poll,
        "Fetch jobs for a pull worker, waiting for the first one. Also counts as the worker's heartbeat.",
        TAG,
        body=Poll,
        answer=Assignments,
        errors=("not_found",),
        replies="recent",
    ),
    Route(
        "POST",
        "/api/v1/assignments/{id}/heartbeat",
        "worker",
        job_heartbeat,
        "Renew the lease of a job. The response says whether to stop.",
        TAG,
        body=AssignmentBeat,
        answer=Lease,
        errors=("not_found", "superseded"),
        replies="recent",
    ),
    Route(
        "POST",
        "/api/v1/assignments/{id}/complete",
        "worker",
        complete,
        "Complete a job. A repeated result counts once; 409 if the job no longer belongs to this worker.",
        TAG,
        body=CompleteAssignment,
        reads_members=_completion,
        answer=Accepted,
        errors=("not_found", "superseded"),
        body_max=ANSWER_BYTES_MAX,
        replies="recent",
    ),
)
