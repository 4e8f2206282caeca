"""Everything that Holdfast raises.

HoldfastError
├── InvalidSpec            a definition cannot be used; carries every Problem (also a ValueError)
├── InvalidInputs          the inputs of a run do not fit (also a ValueError)
├── LimitExceeded          a named limit was met before anything was changed
├── NotFound               no run, tool or workflow of that name
├── Refused                the request is well formed, the state says no
│   └── RunIsOver
├── Unavailable            nothing was changed; the same call may work later
│   ├── StoreUnavailable   the disk is full, the database is away
│   ├── DatabaseInUse      another process owns the file
│   ├── NodeIsOver         another process took the file over; this one may write nothing more
│   └── EngineClosed       it was closed while somebody waited
├── SchemaTooNew           the file was written by a newer release
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
    code: ClassVar[str] = "error"


class InvalidSpec(HoldfastError, ValueError):
    code = "invalid_spec"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class InvalidInputs(HoldfastError, ValueError):
    code = "invalid_inputs"


class LimitExceeded(HoldfastError):
    code = "limit_exceeded"

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(f"{message} (limit {limit})")
        self.limit = limit


class NotFound(HoldfastError):
    code = "not_found"


class Refused(HoldfastError):
    code = "refused"


class RunIsOver(Refused):
    code = "run_is_over"

    def __init__(self, run_id: RunId, status: str) -> None:
        super().__init__(f"run {run_id} is already {status}; start it again instead")
        self.run_id, self.status = run_id, status


class Unavailable(HoldfastError):
    code = "unavailable"


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class DatabaseInUse(Unavailable):
    code = "database_in_use"


class NodeIsOver(Unavailable):
    code = "node_is_over"


class EngineClosed(Unavailable):
    code = "engine_closed"


class SchemaTooNew(HoldfastError):
    code = "schema_too_new"


class RunEnded(HoldfastError):
    code = "run_ended"

    def __init__(self, run_id: RunId, error: Error) -> None:
        where = f" at {error.path}" if error.path else ""
        super().__init__(
            f"run {run_id} {self.code.removeprefix('run_')}{where}: {error.message} [{error.kind}]"
        )
        self.run_id, self.error = run_id, error


class RunFailed(RunEnded):
    code = "run_failed"


class RunCancelled(RunEnded):
    code = "run_cancelled"


class RunInterrupted(RunEnded):
    code = "run_interrupted"
