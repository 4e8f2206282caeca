"""Workers: registering, polling for jobs, keeping a lease, completing."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from holdfast.api.types.common import WAIT_SECS_MAX, Either, PageQuery, most

WorkerId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Service = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Services = Annotated[list[Service], msgspec.Meta(min_length=1, max_length=most("worker_services_max"))]
Load = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
ANSWER_BYTES_MAX: Final = 25 * 1024 * 1024 + 64 * 1024  # a value and its envelope


class OfferService(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service of a worker. `supports_async_callback`: its calls receive a `callback_url` in their `params`."""

    name: Service
    supports_async_callback: bool = False


class RegisterWorker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker of kind `http` is called at its `url`; one of kind `pull` has no URL and fetches its jobs. A service is its
    name, or an object with options."""

    id: WorkerId
    services: Annotated[
        list[Service | OfferService], msgspec.Meta(min_length=1, max_length=most("worker_services_max"))
    ]
    kind: Literal["http", "pull"] = "http"
    url: Annotated[str, msgspec.Meta(max_length=most("url_chars_max"))] | None = None


class WorkerBeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A heartbeat: `load` is the number of calls that the worker is running."""

    load: Load = 0


class WorkersQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """`service`: only workers that offer this service."""

    service: Service | None = None


class Worker(msgspec.Struct, frozen=True):
    """A worker whose registration has not expired."""

    id: str
    url: str  # empty for a pull worker
    services: list[str]
    load: int
    last_heartbeat: str
    status: Literal["online", "offline"]
    type: Literal["http", "pull"]
    supports_async_callback: list[str]  # its services that support callbacks


class WorkerPage(msgspec.Struct, frozen=True):
    items: list[Worker]
    cursor: str | None


class ServiceLine(msgspec.Struct, frozen=True):
    """A service that workers offer or that steps wait for. `waiting` counts the calls that no worker has begun. `no_worker_since`
    and `start_one` are null while a worker serves it."""

    name: str
    workers: int
    waiting: int
    oldest_waiting_at: str | None
    no_worker_since: str | None
    start_one: str | None


class ServicePage(msgspec.Struct, frozen=True):
    items: list[ServiceLine]
    cursor: str | None


class Poll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fetch jobs, waiting up to `wait_secs` for the first one. `services` defaults to all that the worker registered."""

    worker_id: WorkerId
    services: Services | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    wait_secs: Annotated[float, msgspec.Meta(ge=0, le=WAIT_SECS_MAX)] = 0


class Assignment(msgspec.Struct, frozen=True):
    """A job. Every report on it must carry the token; it is valid as long as the lease is renewed."""

    id: str
    token: str
    run_id: str
    path: str
    attempt: int
    service: str
    input: Any
    params: Any
    idempotency_key: str  # the same for every attempt of this step
    lease_secs: float
    traceparent: str | msgspec.UnsetType = msgspec.UNSET


class Assignments(msgspec.Struct, frozen=True):
    """New jobs, and the ids of jobs that the worker must stop."""

    assignments: list[Assignment]
    cancel: list[str]


class JobProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a job: a fraction from 0 to 1, or `done` of `total`."""

    done: float
    total: float | None = None
    message: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class JobLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that a job logged (`level` is that of `logging`) or printed (`stdout` or `stderr`)."""

    message: Annotated[str, msgspec.Meta(max_length=65_536)]
    level: Literal["debug", "info", "warning", "error", "critical", "stdout", "stderr"] = "info"


Lines = Annotated[list[JobLine], msgspec.Meta(max_length=1_002)]


class AssignmentBeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker is still running the job: renew its lease."""

    token: Token
    progress: JobProgress | None = None
    load: Load | None = None
    logs: Lines = []


class Lease(msgspec.Struct, frozen=True):
    """`cancel`: stop, and complete the job with whatever result there is."""

    lease_secs: float
    cancel: bool


class CompleteAssignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`result`, or `error` if the job failed; `error_kind` is what `retry_on` matches. `traceback` is where it was raised, and `logs`
    are lines since the last heartbeat: they are kept with the attempt."""

    token: Token
    result: Any = msgspec.UNSET
    error: str | None = None
    error_kind: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    traceback: Annotated[str, msgspec.Meta(max_length=65_536)] | None = None
    logs: Lines = []

    EITHER: ClassVar[Either] = {"result": ("error",), "error": ("result",)}

    def __post_init__(self) -> None:
        if bool(self.error) == (self.result is not msgspec.UNSET):
            raise ValueError("give `result`, or `error` if the job failed, but not both")


class Accepted(msgspec.Struct, frozen=True):
    """The result was accepted and is durable."""

    accepted: bool = True
