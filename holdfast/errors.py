"""Everything that Holdfast raises.

HoldfastError
├── InvalidSpec            a definition cannot be used; carries every Problem (also a ValueError)
├── InvalidInputs          the inputs of a run are not valid (also a ValueError)
├── InvalidRequest         a request cannot be read; carries every Problem
│   ├── MethodNotAllowed
│   ├── BodyTooLarge
│   └── UnsupportedMediaType
├── Unauthorised           no API key, or an unknown one
├── Forbidden              the API key is valid but lacks the scope
│   └── PlanRefused        the API key may not run this definition; carries every Problem
├── MisdirectedRequest     the Host header names another server
├── TooManyRequests        rate limit reached; says when to retry
├── KeyNeeded              a server that is not on loopback has no API key
├── LimitExceeded          a named limit was reached; nothing was changed
├── NotFound               no run, tool or workflow has that name
├── Refused                the request is valid, but the current state does not allow it
│   ├── RunIsOver
│   ├── NotWaiting         no step is waiting for this answer (yet, or any longer)
│   ├── AmbiguousTask      several calls are waiting under the same task id
│   ├── Superseded         a worker reports a job that it no longer holds
│   ├── RequestConflict    the request id was used for a different request
│   ├── PlanChanged        the definition would do something else than the caller has seen
│   ├── VersionConflict    the release number is taken by different content
│   ├── ManagedByFile      the schedule is defined by a file, a plugin or a program, not by the API
│   └── AtLimit            as many runs of the schedule are open as may be
├── Unavailable            nothing was changed; the same call may work later
│   ├── StoreUnavailable   the disk is full, or the database cannot be reached
│   │   └── StoreGone      its files were moved, replaced or removed while a process had them open
│   │       └── StoreDamaged
│   ├── ArtefactsUnavailable   the bucket of the artefacts cannot be reached, or refuses
│   ├── DatabaseInUse      another process owns the file
│   ├── NodeIsOver         another process took over the file; this one must not write
│   ├── EngineClosed       the engine was closed while a caller was waiting
│   └── ServerUnreachable  no server answers at the address
├── DatabaseMoved          the contents of the file are on a server now, or are being moved there
├── SchemaTooNew           the file was written by a newer release
├── SchemaTooOld           the file must be migrated, which read-only commands do not do
└── RunEnded               a run did not complete; carries its Error value
    ├── RunFailed
    ├── RunCancelled
    └── RunInterrupted

Each class has a stable `code`; each surface maps codes to its own statuses in one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from holdfast import limits
from holdfast.values import Error, RunId


def path_shown(path: str) -> str:
    """A path as text that can be encoded: bytes of it that are not UTF-8 are shown as escapes (`\\udcff`)."""
    return path if path.isascii() else path.encode(errors="backslashreplace").decode()


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One mistake in a definition: what and where it is, and how to fix it. `patch` repairs it, where a repair is known:
    a JSON Patch (RFC 6902) of the definition as data."""

    code: str
    message: str
    pointer: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""
    source: str = ""
    patch: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.source.isascii():
            msgspec.structs.force_setattr(self, "source", path_shown(self.source))

    def __str__(self) -> str:
        place = f"{self.source or 'spec'}:{self.line}:{self.column}: " if self.line else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"


class HoldfastError(Exception):
    """Base class of every error that Holdfast raises."""

    code: ClassVar[str] = "error"


class InvalidSpec(HoldfastError, ValueError):
    """A definition cannot be used; `problems` lists every mistake with its position."""

    code = "invalid_spec"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class ToolMissing(HoldfastError, LookupError):
    """A workflow calls a tool that this process does not have, and no other process can be expected to run it."""

    code = "no_tool"


class InvalidInputs(HoldfastError, ValueError):
    """The inputs of a run, a label or a request are not valid; the message lists every problem."""

    code = "invalid_inputs"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class InvalidRequest(HoldfastError):
    """The request cannot be parsed or has parameters that its route does not accept; nothing was changed."""

    code = "invalid_request"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class MethodNotAllowed(InvalidRequest):
    """The route exists, but accepts only the methods in `allowed`."""

    code = "method_not_allowed"

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"this route accepts {', '.join(allowed)}, not {method}")
        self.allowed = tuple(allowed)


class BodyTooLarge(InvalidRequest):
    """The body is larger than its route accepts."""

    code = "body_too_large"


class UnsupportedMediaType(InvalidRequest):
    """The route does not accept bodies of this content type."""

    code = "unsupported_media_type"


class Unauthorised(HoldfastError):
    """The request has no API key, or an unknown one. `challenge` says how to get one, as HTTP has it."""

    code = "unauthorised"
    challenge = "Bearer"


class Forbidden(HoldfastError):
    """The API key lacks the scope for this request, or the request comes from a page of another origin."""

    code = "forbidden"


class PlanRefused(Forbidden):
    """The caller may not use what the definition calls, or a destructive tool has no approval before it. `problems` has every
    reason, with the patch that adds the approval."""

    code = "plan_refused"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class MisdirectedRequest(HoldfastError):
    """The Host header names another server."""

    code = "misdirected_request"


class TooManyRequests(HoldfastError):
    """The rate limit `limit` was reached; the same request is accepted after `retry_after_secs`."""

    code = "too_many_requests"

    def __init__(self, limit: str, message: str, retry_after_secs: int) -> None:
        super().__init__(f"{message}; retry in {retry_after_secs} s ({limits.met(limit)})")
        self.limit, self.retry_after_secs = limit, retry_after_secs


class KeyNeeded(HoldfastError):
    """A server that is reachable from other machines does not start without an API key."""

    code = "key_needed"


class LimitExceeded(HoldfastError):
    """The limit named by `limit` was reached; nothing was changed."""

    code = "limit_exceeded"

    def __init__(self, limit: str, message: str, setting: str | None = None) -> None:
        """`setting` is the name in `[limits]` that changes the limit, if it differs from `limit`."""
        super().__init__(f"{message} ({limits.met(limit, setting)})")
        self.limit, self.setting = limit, setting or (limit if limit in limits.NAMES else None)


class ExpressionTooCostly(LimitExceeded):
    """Evaluating a JSONPath or a condition takes more work than one evaluation may. Its result is not used."""

    code = "expression_too_costly"

    def __init__(self, message: str, limit: str = "expression_work_max") -> None:
        super().__init__(limit, message)


class NotFound(HoldfastError):
    """No run, tool or published workflow has that name."""

    code = "not_found"


class Refused(HoldfastError):
    """The request is valid, but the current state does not allow it."""

    code = "refused"


class RunIsOver(Refused):
    """The run has finished with `status` and can no longer be changed."""

    code = "run_is_over"

    def __init__(self, run_id: RunId, status: str) -> None:
        super().__init__(f"run {run_id} is already {status}; re-run it instead")
        self.run_id, self.status = run_id, status


class RunIsOpen(Refused):
    """The run has not finished; cancel it first, or wait until it has."""

    code = "run_is_open"

    def __init__(self, run_id: RunId, status: str) -> None:
        super().__init__(f"run {run_id} is still {status}; cancel it first, or wait until it has finished")
        self.run_id, self.status = run_id, status


class RunSetAside(Refused):
    """The run is open but set aside: it crashed the process three times, or hit a bug in Holdfast. The message says how to retry it."""

    code = "run_set_aside"


class Superseded(Refused):
    """The worker no longer holds the job: its lease expired, the job was stopped, or a result was already reported."""

    code = "superseded"


class NotWaiting(Refused):
    """No step is waiting for this answer: not yet, no longer, or not from this caller."""

    code = "not_waiting"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")


class AmbiguousTask(Refused):
    """Several calls are waiting for an answer under the same task id."""

    code = "ambiguous_task"

    def __init__(self, task_id: str, count: int) -> None:
        super().__init__(
            f"{count} calls are waiting under the task id {task_id!a}; give run_id to name the run, or use the callback_url of the call"
        )


class RequestConflict(Refused):
    """The request id or Idempotency-Key was used for a different request; if that request started a run, it is `run_id`."""

    code = "request_conflict"

    def __init__(self, request_id: str, run_id: RunId | None = None) -> None:
        what = "a different request"
        if run_id is not None:
            what = f"run {run_id}, which was started with a different workflow or different inputs"
        super().__init__(f"request id {request_id!r} belongs to {what}; use a new id")
        self.request_id, self.run_id = request_id, run_id


class PlanChanged(Refused):
    """A start required a plan hash, and the plan has another one now; nothing was started."""

    code = "plan_changed"

    def __init__(self, name: str, found: str) -> None:
        super().__init__(
            f"the plan of {name!a} is not the one that was agreed to; its hash is now {found}: read it again"
        )
        self.plan_hash = found


class VersionConflict(Refused):
    """Release `number` of the workflow `name` has different content; the content of a release never changes."""

    code = "version_conflict"

    def __init__(self, name: str, number: int) -> None:
        super().__init__(
            f"release {number} of {name!r} exists with different content; publish with a higher number, or without one"
        )
        self.name, self.number = name, number


class ManagedByFile(Refused):
    """The schedule `schedule_id` is defined elsewhere and can only be changed there."""

    code = "managed_by_file"

    def __init__(self, schedule_id: str, origin: str, source: str) -> None:
        where = {"file": f"the file {source}", "plugin": f"the plugin {source}"}.get(origin, "a program")
        super().__init__(f"schedule {schedule_id!r} is defined by {where}; change it there")
        self.schedule_id, self.source = schedule_id, source


class AtLimit(Refused):
    """`in_flight` runs of the schedule are open, and its `max_concurrent` allows no more."""

    code = "max_concurrent_exceeded"

    def __init__(self, schedule_id: str, in_flight: int, max_concurrent: int) -> None:
        super().__init__(
            f"schedule {schedule_id!r} has {in_flight} open runs and max_concurrent is {max_concurrent}; wait until one ends, "
            "or raise max_concurrent"
        )
        self.schedule_id, self.in_flight, self.max_concurrent = schedule_id, in_flight, max_concurrent


class Unavailable(HoldfastError):
    """Nothing was changed; the same call may work later."""

    code = "unavailable"


class StoreUnavailable(Unavailable):
    """The database cannot be read or written now: the disk is full, or the file cannot be reached."""

    code = "store_unavailable"


class StoreGone(StoreUnavailable):
    """The database's files were moved, replaced or removed while this process had them open; see its message."""

    code = "store_gone"


class StoreDamaged(StoreGone):
    """The database or its log was overwritten, cut or damaged; nothing is written to it until it is repaired."""

    code = "store_damaged"


class ArtefactsUnavailable(Unavailable):
    """The bucket of the artefacts cannot be read or written. `is_final` if only its operator can change that."""

    code = "artefacts_unavailable"
    kind = "artefact"  # of a step whose files cannot be stored

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class DatabaseInUse(Unavailable):
    """Another process owns the file. `pid` is None if waiting for it would not help."""

    code = "database_in_use"
    pid: int | None = None


class NodeIsOver(Unavailable):
    """Another process has taken over the file; this one must not write to it."""

    code = "node_is_over"


class EngineClosed(Unavailable):
    """The engine is not open, or was closed while a caller was waiting."""

    code = "engine_closed"


class ServerUnreachable(Unavailable):
    """No Holdfast server answered at the address; the request may or may not have been carried out."""

    code = "server_unreachable"


class DatabaseMoved(HoldfastError):
    """The contents of the file were moved to a server, or the move has not finished; the message has the new address."""

    code = "database_moved"


class SchemaTooNew(HoldfastError):
    """The file was written by a newer release; this one does not touch it."""

    code = "schema_too_new"


class SchemaTooOld(HoldfastError):
    """The file was written by an older release, and commands that only read do not migrate it."""

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
    """A step of the run failed, or the run timed out."""

    code = "run_failed"


class RunCancelled(RunEnded):
    """The run was cancelled."""

    code = "run_cancelled"


class RunInterrupted(RunEnded):
    """The process ended while the run was open, and its definition says `on_restart: interrupt`."""

    code = "run_interrupted"
