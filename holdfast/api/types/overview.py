"""The whole server at a glance: who asks, how many runs there are, how they went over time, and what waits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast.api.types.common import PAGE, Cursor, Limit, Name, Scope, Time
from holdfast.api.types.waits import ApprovalLink


class Me(msgspec.Struct, frozen=True):
    """The caller: the tenant and scopes of its key. A server without keys is in mode `local`, and its callers may do everything.

    `is_operator`: the caller may manage all tenants. `release` is that of Holdfast, `time` the server's clock.
    """

    mode: Literal["local", "guarded"]
    tenant: str
    key_id: str | None
    key_name: str
    scopes: list[Scope]
    is_operator: bool
    release: str
    time: str
    public_url: str | None


class CountsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`by=workflow` also counts the runs of each workflow."""

    by: Literal["status", "workflow"] = "status"
    cursor: Cursor | None = None
    limit: Limit = PAGE


class WorkflowCount(msgspec.Struct, frozen=True):
    workflow: str
    total: int
    statuses: dict[str, int]


class Counts(msgspec.Struct, frozen=True):
    """How many runs are stored, in total and by status. `items` are workflows by name, with `by=workflow`."""

    total: int
    statuses: dict[str, int]
    items: list[WorkflowCount]
    cursor: str | None


class PulseQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last 24 hours without `from` and `to`; at most so many `buckets`."""

    from_: Time | None = msgspec.field(default=None, name="from")
    to: Time | None = None
    buckets: Annotated[int, msgspec.Meta(ge=1, le=500)] = 96
    workflow: Name | None = None


class PulseTotal(msgspec.Struct, frozen=True):
    """Runs that were created, and runs that ended, by status. `p50_ms` and `p95_ms` are of those that ended, from their creation, right
    to 6 %; null if none did."""

    started: int
    completed: int
    failed: int
    cancelled: int
    interrupted: int
    p50_ms: int | None
    p95_ms: int | None


class PulseBucket(PulseTotal, frozen=True):
    at: str


class Pulse(msgspec.Struct, frozen=True):
    """All runs of a time, those that were deleted since included. Buckets are whole minutes, or whole hours if the first one is more
    than two days old, so `from` and `to` may differ from what was asked."""

    from_: str = msgspec.field(name="from")
    to: str
    bucket_ms: int
    items: list[PulseBucket]
    total: PulseTotal


WaitKind = Literal["approval", "signal", "callback", "condition", "key"]


class WaitsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` takes several words."""

    kind: Annotated[list[WaitKind], msgspec.Meta(max_length=10)] = []
    workflow: Name | None = None
    cursor: Cursor | None = None
    limit: Limit = PAGE


class Answers(msgspec.Struct, frozen=True):
    """How many approvers are needed, how many have answered, and who."""

    need: int
    have: int
    by: list[str]


class Waiting(msgspec.Struct, frozen=True):
    """A step that waits for something outside. `name` is the task id of a callback. `may_answer`: the caller's key allows it to
    answer, to send the signal or to deliver the result."""

    run_id: str
    workflow: str
    number: int | None
    path: str
    kind: str
    name: str
    prompt: str
    form: Any
    detail: dict[str, Any]
    since: str
    until: str | None
    answers: Answers
    may_answer: bool
    links: list[ApprovalLink]


class WaitingPage(msgspec.Struct, frozen=True):
    """Least time left first; those without a limit last. `counts` are of all open waits, by kind, up to `counts_max` each."""

    items: list[Waiting]
    counts: dict[str, int]
    counts_max: int
    cursor: str | None
