"""Everything that Holdfast raises.

HoldfastError
├── InvalidSpec            a definition cannot be used; carries every Problem (also a ValueError)
├── InvalidInputs          the inputs of a run do not fit (also a ValueError)
├── LimitExceeded          a named limit was met before anything was changed
├── NotFound               no run, tool or workflow of that name
├── Refused                the request is well formed, the state says no
│   ├── RunIsOver
│   └── RequestConflict    the request id belongs to a start that asked for something else
├── Unavailable            nothing was changed; the same call may work later
│   ├── StoreUnavailable   the disk is full, the database is away
│   ├── DatabaseInUse      another process owns the file
│   ├── NodeIsOver         another process took the file over; this one may write nothing more
│   └── EngineClosed       it was closed while somebody waited
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


class LimitExceeded(HoldfastError):
    """A limit, named by `limit`, was met before anything was changed."""

    code = "limit_exceeded"

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(f"{message} (limit {limit})")
        self.limit = limit


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


class RequestConflict(Refused):
    """The request id was used for a start that asked for something else: the run `run_id`."""

    code = "request_conflict"

    def __init__(self, request_id: str, run_id: RunId) -> None:
        super().__init__(
            f"request id {request_id!r} belongs to run {run_id}, which was asked for with another workflow or other"
            " inputs; use a new id"
        )
        self.request_id, self.run_id = request_id, run_id


class Unavailable(HoldfastError):
    """Nothing was changed; the same call may work later."""

    code = "unavailable"


class StoreUnavailable(Unavailable):
    """The database cannot be read or written now: the disk is full, the file is away."""

    code = "store_unavailable"


class DatabaseInUse(Unavailable):
    """Another process owns the file."""

    code = "database_in_use"


class NodeIsOver(Unavailable):
    """Another process has taken the file over; this one may write nothing more."""

    code = "node_is_over"


class EngineClosed(Unavailable):
    """The engine is not open, or was closed while somebody waited."""

    code = "engine_closed"


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
