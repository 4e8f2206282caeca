"""`/api/v1`: the whole server at a glance. One short function per endpoint; what is counted is known to the views."""

from __future__ import annotations

from typing import Final

from holdfast import limits
from holdfast.api import present_pulse
from holdfast.api.present import Links
from holdfast.api.principal import LOCAL_ID
from holdfast.api.types import (
    Answers,
    Counts,
    CountsQuery,
    Me,
    NoQuery,
    Pulse,
    PulseQuery,
    Waiting,
    WaitingPage,
    WaitsQuery,
    WorkflowCount,
    millis_of,
    time_or_none,
    time_text,
)
from holdfast.errors import InvalidInputs
from holdfast.http.routes.approvals import links_for
from holdfast.http.table import SCOPES, Ask, Route
from holdfast.values import OPEN, TERMINAL, Millis
from holdfast.version import VERSION
from holdfast.views import waiting as views
from holdfast.views.cursors import cursor_of_text, text_of_cursor
from holdfast.views.open_waits import Wait
from holdfast.views.waiting import COUNTS_MAX
from holdfast.waits.approvals import answerers

SERVER, RUNS = "operations", "runs"
# The scope that ends a wait; a key is let go by the run that holds it.
ANSWERED_BY: Final = {"approval": "approve", "signal": "run", "condition": "run", "callback": "resume"}
DAY_MS: Final = 86_400_000
STATUSES: Final = (*sorted(OPEN), *sorted(TERMINAL))


async def me(ask: Ask) -> Me:
    services, caller = ask.services, ask.principal
    is_local = caller.key_id == LOCAL_ID
    return Me(
        mode="local" if is_local else "guarded",
        tenant=caller.tenant,
        key_id=None if is_local else caller.key_id,
        key_name="" if is_local else services.api_keys.name_of(caller.tenant, caller.key_id),
        scopes=[scope for scope in SCOPES if caller.may(scope)],
        is_operator=caller.is_operator,
        release=VERSION,
        time=time_text(services.clock.now()),
        public_url=services.settings.public_url,
    )


async def counts(ask: Ask) -> Counts:
    query: CountsQuery = ask.query
    by_workflow = await ask.services.queries.counts(ask.tenant)
    statuses = {status: sum(found.get(status, 0) for found in by_workflow.values()) for status in STATUSES}
    total = sum(statuses.values())
    if query.by == "status":
        if query.cursor is not None:
            raise InvalidInputs("only a list by workflow has a cursor")
        return Counts(total, statuses, [], None)
    after = "" if query.cursor is None else text_of_cursor(query.cursor)
    names = [name for name in by_workflow if name > after]
    items = [
        WorkflowCount(name, sum(by_workflow[name].values()), by_workflow[name])
        for name in names[: query.limit]
    ]
    more = cursor_of_text(items[-1].workflow) if len(names) > query.limit else None
    return Counts(total, statuses, items, more)


async def pulse(ask: Ask) -> Pulse:
    query: PulseQuery = ask.query
    now = ask.services.clock.now()
    to = millis_of(query.to) or now
    start = millis_of(query.from_) or Millis(to - DAY_MS)
    if start >= to:
        raise InvalidInputs("`from` must be before `to`")
    found = await ask.services.queries.pulse(ask.tenant, query.workflow, start, to, query.buckets, now)
    return present_pulse.pulse(found)


async def waits(ask: Ask) -> WaitingPage:
    query: WaitsQuery = ask.query
    found, cursor = await ask.services.queries.waits.page(
        ask.tenant,
        kinds=query.kind,
        workflow=query.workflow,
        cursor=query.cursor,
        limit=limits.page(query.limit),
    )
    links = links_for(ask)
    counts = await ask.services.queries.waits.counts(ask.tenant)
    return WaitingPage([_waiting(ask, one, links) for one in found], counts, COUNTS_MAX, cursor)


def _waiting(ask: Ask, one: views.Waiting, links: Links) -> Waiting:
    wait, detail = one.wait, one.detail
    shown = Wait(wait.path, wait.kind, wait.expires_at, wait.name, wait.since, detail, one.answered)
    prompt = detail.get("prompt")
    return Waiting(
        run_id=wait.run_id,
        workflow=one.workflow,
        number=one.number,
        path=wait.path,
        kind=wait.kind,
        name=wait.name,
        prompt=prompt if isinstance(prompt, str) else "",
        form=detail.get("form"),
        detail=detail,
        since=time_text(wait.since),
        until=time_or_none(wait.expires_at),
        answers=Answers(detail.get("need", 1), len(one.answered), one.answered),
        may_answer=_may_answer(ask, one),
        links=links(wait.run_id, shown),
    )


def _may_answer(ask: Ask, one: views.Waiting) -> bool:
    """Whether the caller's key allows it to end the wait, and an approval accepts an answer of its owner."""
    scope = ANSWERED_BY.get(one.wait.kind)
    if scope is None or not ask.principal.may(scope):
        return False
    if one.wait.kind != "approval" or ask.principal.may("admin"):
        return True
    own = ask.services.api_keys.name_of(ask.tenant, ask.principal.key_id)
    allowed = answerers(one.detail)
    return own not in one.answered and (not allowed or own in allowed)


ROUTES: Final = (
    Route("GET", "/api/v1/me", "read", me, "Show who the caller is, and what its key allows.", SERVER, query=NoQuery, answer=Me),
    Route("GET", "/api/v1/runs/counts", "read", counts, "Count runs by status, and by workflow.", RUNS,
          query=CountsQuery, answer=Counts, errors=("invalid_inputs",)),
    Route("GET", "/api/v1/runs/pulse", "read", pulse, "Count runs over time: begun, ended, and how long they took.", RUNS,
          query=PulseQuery, answer=Pulse, errors=("invalid_inputs",)),
    Route("GET", "/api/v1/waits", "read", waits, "List what waits for an answer, a signal or a result from outside.", "waits",
          query=WaitsQuery, answer=WaitingPage, errors=("invalid_inputs",)),
)  # fmt: skip
