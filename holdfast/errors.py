"""Everything that Holdfast raises.

HoldfastError
├── InvalidSpec            a definition cannot be used; carries every Problem (also a ValueError)
├── InvalidInputs          the inputs of a run do not fit (also a ValueError)
├── InvalidRequest         a request cannot be read; carries every Problem
│   ├── MethodNotAllowed
│   ├── BodyTooLarge
│   └── UnsupportedMediaType
├── Unauthorised           no key, or none that is known here
├── Forbidden              the key is good, and not for this
├── MisdirectedRequest     the Host header names somebody else
├── TooManyRequests        a rate was met; it says when to come back
├── KeyNeeded              a server that others can reach has no key
├── LimitExceeded          a named limit was met before anything was changed
├── NotFound               no run, tool or workflow of that name
├── Refused                the request is well formed, the state says no
│   ├── RunIsOver
│   ├── NotWaiting         nothing waits for this answer: not yet, or not any more
│   ├── AmbiguousTask      several calls wait for an answer under one task id
│   ├── Superseded         a worker answers for a job that is not its own any more
│   ├── RequestConflict    the request id belongs to a start that asked for something else
│   └── VersionConflict    the number of a release belongs to another content
├── Unavailable            nothing was changed; the same call may work later
│   ├── StoreUnavailable   the disk is full, the database is away
│   │   └── StoreGone      its files were moved, replaced or removed while a process had them open
│   │       └── StoreDamaged
│   ├── DatabaseInUse      another process owns the file
│   ├── NodeIsOver         another process took the file over; this one may write nothing more
│   ├── EngineClosed       it was closed while somebody waited
│   └── ServerUnreachable  no server answers at an address
├── SchemaTooNew           the file was written by a newer release
├── SchemaTooOld           the file must be migrated, and a reader does not do that
└── RunEnded               a run did not complete; carries its Error value
    ├── RunFailed
    ├── RunCancelled
    └── RunInterrupted

Each class has a stable `code`; surfaces turn codes into their own words in one table each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from holdfast import limits
from holdfast.values import Error, RunId


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One mistake in a definition: where it stands, why it is one, and what to do."""

    code: str
    message: str
    pointer: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.source or 'spec'}:{self.line}:{self.column}: " if self.line else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"


class HoldfastError(Exception):
    """The root of them all: catch this to catch every one."""

    code: ClassVar[str] = "error"


class InvalidSpec(HoldfastError, ValueError):
    """A definition cannot be used; `problems` has every mistake in it with its place."""

    code = "invalid_spec"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class InvalidInputs(HoldfastError, ValueError):
    """What a run, a label or a request was given does not fit; the message says everything that does not."""

    code = "invalid_inputs"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class InvalidRequest(HoldfastError):
    """A request that cannot be read, or that says what its address does not know; nothing was changed."""

    code = "invalid_request"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class MethodNotAllowed(InvalidRequest):
    """The address exists, and takes only the methods in `allowed`."""

    code = "method_not_allowed"

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"this address takes {', '.join(allowed)}, not {method}")
        self.allowed = tuple(allowed)


class BodyTooLarge(InvalidRequest):
    """The body is over what its address takes."""

    code = "body_too_large"


class UnsupportedMediaType(InvalidRequest):
    """The body is of a type that its address does not read."""

    code = "unsupported_media_type"


class Unauthorised(HoldfastError):
    """No key was given, or none that is known here."""

    code = "unauthorised"


class Forbidden(HoldfastError):
    """The key is known, and is not for what was asked; or a page of another origin asks."""

    code = "forbidden"


class MisdirectedRequest(HoldfastError):
    """The Host header names somebody whom this server is not."""

    code = "misdirected_request"


class TooManyRequests(HoldfastError):
    """The rate named by `limit` was met; the same request will do after `retry_after_secs`."""

    code = "too_many_requests"

    def __init__(self, limit: str, message: str, retry_after_secs: int) -> None:
        super().__init__(f"{message}; come back in {retry_after_secs} s ({limits.met(limit)})")
        self.limit, self.retry_after_secs = limit, retry_after_secs


class KeyNeeded(HoldfastError):
    """A server that others can reach is not started without a key."""

    code = "key_needed"


class LimitExceeded(HoldfastError):
    """A limit, named by `limit`, was met before anything was changed."""

    code = "limit_exceeded"

    def __init__(self, limit: str, message: str, setting: str | None = None) -> None:
        """`setting` is the name in `[limits]` that changes it, where that is not the name of the limit."""
        super().__init__(f"{message} ({limits.met(limit, setting)})")
        self.limit, self.setting = limit, setting or (limit if limit in limits.NAMES else None)


class ExpressionTooCostly(LimitExceeded):
    """A JSONPath or a condition looks at more than one evaluation may. Nothing of it is used."""

    code = "expression_too_costly"

    def __init__(self, message: str, limit: str = "expression_work_max") -> None:
        super().__init__(limit, message)


class NotFound(HoldfastError):
    """There is no run, tool or published workflow of that name."""

    code = "not_found"


class Refused(HoldfastError):
    """The request is well formed, and the state of things says no."""

    code = "refused"


class RunIsOver(Refused):
    """The run has ended, as `status` says; nothing can be done to it any more."""

    code = "run_is_over"

    def __init__(self, run_id: RunId, status: str) -> None:
        super().__init__(f"run {run_id} is already {status}; start it again instead")
        self.run_id, self.status = run_id, status


class RunIsOpen(Refused):
    """The run has not ended, as `status` says; cancel it first, or wait for its end."""

    code = "run_is_open"

    def __init__(self, run_id: RunId, status: str) -> None:
        super().__init__(f"run {run_id} is still {status}; cancel it first, or wait for its end")
        self.run_id, self.status = run_id, status


class RunSetAside(Refused):
    """The run is open and is not driven: a process died of it three times, or there is a defect. Its message says how to retry it."""

    code = "run_set_aside"


class Superseded(Refused):
    """The job is not this worker's any more: its lease was over, it was stopped, or somebody has answered it."""

    code = "superseded"


class NotWaiting(Refused):
    """Nothing waits for this answer: not yet, not any more, or not from this one."""

    code = "not_waiting"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")


class AmbiguousTask(Refused):
    """Several calls wait for an answer under the same task id."""

    code = "ambiguous_task"

    def __init__(self, task_id: str, count: int) -> None:
        super().__init__(
            f"{count} calls wait under the task id {task_id!a}; a run_id says which run is meant, a callback_url which call"
        )


class RequestConflict(Refused):
    """The request id, or Idempotency-Key, was used for something else; where that was a start, for the run `run_id`."""

    code = "request_conflict"

    def __init__(self, request_id: str, run_id: RunId | None = None) -> None:
        what = "a request that asked for something else"
        if run_id is not None:
            what = f"run {run_id}, which was asked for with another workflow or other inputs"
        super().__init__(f"request id {request_id!r} belongs to {what}; use a new id")
        self.request_id, self.run_id = request_id, run_id


class VersionConflict(Refused):
    """The release `number` of the workflow `name` has another content; a number means one content for ever."""

    code = "version_conflict"

    def __init__(self, name: str, number: int) -> None:
        super().__init__(
            f"release {number} of {name!r} has another content, and keeps it; publish under a higher number, or none"
        )
        self.name, self.number = name, number


class Unavailable(HoldfastError):
    """Nothing was changed; the same call may work later."""

    code = "unavailable"


class StoreUnavailable(Unavailable):
    """The database cannot be read or written now: the disk is full, the file is away."""

    code = "store_unavailable"


class StoreGone(StoreUnavailable):
    """The database's files were moved, replaced or removed while this process had them open; see its message."""

    code = "store_gone"


class StoreDamaged(StoreGone):
    """The database or its log was overwritten, cut or damaged; nothing is written to it until it is mended."""

    code = "store_damaged"


class DatabaseInUse(Unavailable):
    """Another process owns the file."""

    code = "database_in_use"


class NodeIsOver(Unavailable):
    """Another process has taken the file over; this one may write nothing more."""

    code = "node_is_over"


class EngineClosed(Unavailable):
    """The engine is not open, or was closed while somebody waited."""

    code = "engine_closed"


class ServerUnreachable(Unavailable):
    """Nobody answers at the address, or not as this API does; what was asked for may or may not have been done."""

    code = "server_unreachable"


class SchemaTooNew(HoldfastError):
    """The file was written by a newer release; this one does not touch it."""

    code = "schema_too_new"


class SchemaTooOld(HoldfastError):
    """The file was written by an older release; whoever only looks does not migrate it."""

    code = "schema_too_old"


class RunEnded(HoldfastError):
    """A run did not complete. `error` has kind, message, path, attempt and cause."""

    code = "run_ended"

    def __init__(self, run_id: RunId, error: Error) -> None:
        where = f" at {error.path}" if error.path else ""
        super().__init__(
            f"run {run_id} {self.code.removeprefix('run_')}{where}: {error.message} [{error.kind}]"
        )
        self.run_id, self.error = run_id, error


class RunFailed(RunEnded):
    """A step of the run failed, or its time was over."""

    code = "run_failed"


class RunCancelled(RunEnded):
    """Somebody cancelled the run."""

    code = "run_cancelled"


class RunInterrupted(RunEnded):
    """The process ended while the run was open, and its definition says not to go on."""

    code = "run_interrupted"
