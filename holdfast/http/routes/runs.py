"""`/api/v1`: runs, nodes and artefacts. One short function per endpoint.

Knows how to call commands and queries and how to present their results; no SQL, no rule, no type of the engine.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec
from starlette.responses import FileResponse, Response

from holdfast.api import present
from holdfast.api.types import (
    CancelRun,
    Explanation,
    JournalPage,
    JournalQuery,
    LogPage,
    LogsQuery,
    Node,
    NodePage,
    NoQuery,
    PageQuery,
    Paused,
    RerunPreview,
    RerunRun,
    Run,
    RunPage,
    RunsQuery,
    Started,
    StartRun,
    ValuesQuery,
    millis_of,
)
from holdfast.errors import Forbidden, InvalidInputs
from holdfast.http.remote_file import RemoteFile
from holdfast.http.routes.approvals import links_for
from holdfast.http.routes.workflows import HELLO
from holdfast.http.table import Ask, Reply, Route
from holdfast.ops import traces
from holdfast.runtime.rerun import Again
from holdfast.values import DEFAULT_TENANT, TERMINAL, RunId, rfc3339
from holdfast.version import VERSION
from holdfast.views.nodes import NodeView, nodes_of
from holdfast.views.run_view import only_callbacks

# -------------------------------------------------------------------------------------------------------- runs


async def start(ask: Ask) -> Reply:
    wanted: StartRun = ask.body
    what = wanted.workflow if wanted.spec is None else await ask.services.commands.read(wanted.spec)
    assert what is not None
    row, _ = await ask.services.commands.start(
        ask.tenant,
        what,
        wanted.inputs,
        number=wanted.number,
        request_id=_request_id(ask, wanted.request_id),
        labels=wanted.labels,
        parent_job_id=wanted.parent_job_id,
        trace=traces.given(ask.headers.get("traceparent")),
        final_callbacks=_final_callbacks(wanted),
        plan_hash=wanted.plan_hash,
        rights=ask.principal.rights,
    )
    if wanted.wait_secs:
        view = await ask.unless_leaving(
            ask.services.queries.wait_for(ask.tenant, row.id, wanted.wait_secs, or_pause=True)
        )
        if view is not None and view.status in TERMINAL:
            return Reply(present.run(view), 200)
        if view is not None and (task_ids := only_callbacks(view)):
            return Reply(Paused(True, task_ids[0], row.id, task_ids), 200)
        status = row.status if view is None else view.status
        return Reply(Started(row.id, status), 202)
    return Reply(Started(row.id, row.status), 202)


def _final_callbacks(wanted: StartRun) -> list[str | dict[str, Any]]:
    """Both words may be said; the same address twice is one."""
    callbacks: list[str | dict[str, Any]] = []
    if wanted.final_callback is not None:
        callbacks.append(msgspec.structs.asdict(wanted.final_callback))
    if wanted.final_callback_url is not None:
        callbacks.append(wanted.final_callback_url)
    return callbacks


def _request_id(ask: Ask, said: str | None) -> str | None:
    """The caller's own id for a start. It is stored with the run, so it always refers to the same run."""
    header = ask.headers.get("idempotency-key")
    if header is not None and said is not None and header != said:
        raise InvalidInputs("Idempotency-Key and request_id mean the same, but differ; send one of them")
    return said or header


async def runs(ask: Ask) -> RunPage:
    query: RunsQuery = ask.query
    page = await ask.services.queries.runs(
        ask.tenant,
        status=query.status,
        workflow=query.workflow,
        number=query.number,
        label=query.label,
        created_from=millis_of(query.from_),
        created_to=millis_of(query.to),
        id_part=query.id,
        cursor=query.cursor,
        limit=query.limit,
    )
    lines = await ask.services.queries.summaries(page.items)
    return RunPage([present.run_line(line) for line in lines], page.cursor)


async def run(ask: Ask) -> Run:
    query: ValuesQuery = ask.query
    view = await ask.services.queries.run(ask.tenant, ask.path["id"], query.values)
    return present.run(view, links_for(ask))


async def journal(ask: Ask) -> JournalPage:
    query: JournalQuery = ask.query
    if query.after is not None and query.cursor is not None:
        raise InvalidInputs("`after` and `cursor` mean the same: give only one of them")
    after = query.after or query.cursor or 0
    return present.journal(await ask.services.queries.journal(ask.tenant, ask.path["id"], after, query.limit))


async def logs(ask: Ask) -> LogPage:
    query: LogsQuery = ask.query
    after = query.cursor or 0
    page = await ask.services.queries.logs(
        ask.tenant, ask.path["id"], step=query.step, level=query.level, after=after, limit=query.limit
    )
    return present.logs(page, after)


async def explain(ask: Ask) -> Explanation:
    queries, run_id = ask.services.queries, ask.path["id"]
    why, links = await queries.explain(ask.tenant, run_id), links_for(ask)
    if all(reason.reason != "approval" for reason in why.reasons):
        return present.explanation(why)
    waits = (await queries.run(ask.tenant, run_id)).waits
    return present.explanation(why, {wait.path: links(run_id, wait) for wait in waits})


async def cancel(ask: Ask) -> Started:
    engine, run_id = ask.services.engine, RunId(ask.path["id"])
    await engine.runs.cancel(run_id, ask.body.reason, tenant=ask.tenant)
    row = await engine.runs.row_of(run_id, ask.tenant)
    return Started(row.id, row.status)


async def retry(ask: Ask) -> Started:
    engine, run_id = ask.services.engine, RunId(ask.path["id"])
    await engine.runs.retry(run_id, tenant=ask.tenant)
    row = await engine.runs.row_of(run_id, ask.tenant)
    return Started(row.id, row.status)


async def rerun(ask: Ask) -> Reply:
    wanted: RerunRun = ask.body
    commands, run_id = ask.services.commands, ask.path["id"]
    first = () if wanted.from_step is None else (wanted.from_step,)
    again = Again((*first, *wanted.paths), wanted.failed)
    if wanted.preview:
        preview = await ask.services.queries.preview(ask.tenant, run_id, again)
        return Reply(RerunPreview(preview.copied, preview.runs), 200)
    row = await commands.rerun(
        ask.tenant, run_id, again, wanted.inputs, _request_id(ask, None), ask.principal.rights
    )
    return Reply(Started(row.id, row.status), 202)


# --------------------------------------------------------------------------------------------------- workflows


# --------------------------------------------------------------------------------------- nodes and artefacts


async def nodes(ask: Ask) -> NodePage:
    """This node, and those that share its database."""
    if ask.tenant != DEFAULT_TENANT:
        raise Forbidden("information about the whole server needs a key of the tenant default")
    engine, code = ask.services.engine, ask.services.code
    one = Node(
        name=engine.store.node,
        epoch=engine.store.epoch,
        pid=os.getpid(),
        address=ask.services.address,
        release=VERSION,
        runs=len(engine.door.residents),
        is_leaving=ask.leaving.is_set(),
        version=VERSION,
        since=rfc3339(ask.services.since),
        state="leaving" if ask.leaving.is_set() else "ready",
        code_files=[] if code is None else code.names,
        changed_files=[] if code is None else code.changed,
    )
    shared = await nodes_of(engine.store)
    return NodePage([_shared(node, one) for node in shared] or [one], None)


def _shared(node: NodeView, here: Node) -> Node:
    """A node that shares the database, as its row says; this one, with what only it knows of itself."""
    leased = {"lease_secs": node.lease_secs, "clock_ahead_secs": node.clock_ahead_secs}
    if node.epoch == here.epoch:
        return msgspec.structs.replace(here, **leased)
    return Node(
        name=node.name,
        epoch=node.epoch,
        pid=node.pid,
        address=node.address,
        release=node.release,
        runs=node.runs,
        is_leaving=False,
        version=node.release,
        since=rfc3339(node.began_at),
        state="over" if node.is_over else "ready",
        lease_secs=node.lease_secs,
        clock_ahead_secs=node.clock_ahead_secs,
    )


async def artefact(ask: Ask) -> Response:
    """Always downloaded, never rendered by a browser: the contents are not trusted."""
    sha256 = ask.path["sha256"]
    file = await ask.services.queries.artefact(ask.tenant, sha256)
    headers = {
        "content-disposition": f'attachment; filename="{sha256}"',
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "private, immutable, max-age=31536000",
    }
    if file.path is not None:
        return FileResponse(file.path, media_type="application/octet-stream", headers=headers)
    return RemoteFile(file, ask.headers, f'"{sha256}"', headers)


# ------------------------------------------------------------------------------------------------------- table

RUNS, NODES, ARTEFACTS = "runs", "nodes", "artefacts"

ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/runs",
        "run",
        start,
        "Start a run. It is durable when the response arrives; with wait_secs the response waits for the end of the run.",
        RUNS,
        query=NoQuery,
        body=StartRun,
        example={"spec": HELLO, "inputs": {"name": "Ada"}, "wait_secs": 10},
        answer=Started,
        status=202,
        also={200: Run | Paused},
        errors=("not_found", "invalid_spec", "invalid_inputs", "limit_exceeded", "plan_changed"),
    ),
    Route(
        "GET",
        "/api/v1/runs",
        "read",
        runs,
        "List runs, newest first.",
        RUNS,
        query=RunsQuery,
        answer=RunPage,
        errors=("invalid_inputs",),
    ),
    Route("GET", "/api/v1/runs/{id}", "read", run, "Get a run.", RUNS, query=ValuesQuery, answer=Run),
    Route(
        "GET",
        "/api/v1/runs/{id}/journal",
        "read",
        journal,
        "Get the journal of a run: every event with the decisions it caused.",
        RUNS,
        query=JournalQuery,
        answer=JournalPage,
        errors=("invalid_inputs",),
    ),
    Route(
        "GET",
        "/api/v1/runs/{id}/logs",
        "read",
        logs,
        "List the log lines of a run's attempts, with the tracebacks of those that raised an exception.",
        RUNS,
        query=LogsQuery,
        answer=LogPage,
    ),
    Route(
        "GET",
        "/api/v1/runs/{id}/explain",
        "read",
        explain,
        "Explain why a run makes no progress, and what would unblock it.",
        RUNS,
        query=NoQuery,
        answer=Explanation,
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/cancel",
        "run",
        cancel,
        "Cancel a run: no new step starts, and calls in progress are asked to stop.",
        RUNS,
        query=NoQuery,
        body=CancelRun,
        body_optional=True,
        answer=Started,
        errors=("run_is_over", "invalid_inputs"),
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/retry",
        "admin",
        retry,
        "Retry a run that was quarantined.",
        RUNS,
        query=NoQuery,
        answer=Started,
        errors=("refused",),
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/rerun",
        "run",
        rerun,
        "Rerun a finished run as a new run; with preview, only report what would run.",
        RUNS,
        query=NoQuery,
        body=RerunRun,
        body_optional=True,
        answer=Started,
        status=202,
        also={200: RerunPreview},
        errors=("run_is_open", "invalid_inputs", "limit_exceeded"),
    ),
    Route(
        "GET",
        "/api/v1/nodes",
        "read",
        nodes,
        "List engine processes.",
        NODES,
        query=PageQuery,
        answer=NodePage,
    ),
    Route(
        "GET",
        "/api/v1/artefacts/{sha256}",
        "read",
        artefact,
        "Get the contents of an artefact.",
        ARTEFACTS,
        query=NoQuery,
        answer_media="application/octet-stream",
        also={206: None, 416: None},  # for a Range request
    ),
)
