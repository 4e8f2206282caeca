"""What every surface shares: errors and their statuses, times, and the words that requests are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, Problem
from holdfast.values import Millis

PAGE_MAX: Final = limits.DEFAULTS.page_max
PAGE: Final = 100
WAIT_SECS_MAX: Final = limits.DEFAULTS.wait_secs_max
RETRY_AFTER_SECS: Final = 1
SECONDS_REMEMBERED: Final = 100
NAME_CHARS_MAX: Final = 200
ID_CHARS_MAX: Final = 255
KEY_PATTERN: Final = "^[!-~]+$"  # of an Idempotency-Key

# ----------------------------------------------------------------------------------------------------- errors

# One line per code; statuses are known only here. 400: the request cannot be parsed, or a value has the wrong
# type. 422: it was parsed but cannot be carried out: a definition, inputs, a key used before for a different request.
STATUS: Final[dict[str, int]] = {
    "invalid_request": 400,
    "invalid_json": 400,
    "unauthorised": 401,
    "invalid_signature": 401,
    "forbidden": 403,
    "plan_refused": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "refused": 409,
    "run_is_over": 409,
    "run_is_open": 409,
    "run_set_aside": 409,
    "superseded": 409,
    "not_waiting": 409,
    "ambiguous_task": 409,
    "version_conflict": 409,
    "plan_changed": 409,
    "managed_by_file": 409,
    "schedule_paused": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "misdirected_request": 421,
    "invalid_spec": 422,
    "invalid_inputs": 422,
    "limit_exceeded": 422,
    "expression_too_costly": 422,
    "request_conflict": 422,
    "unresolved_template": 422,
    "too_many_requests": 429,
    "max_concurrent_exceeded": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "sink_failed": 500,
    "webhook_secret_missing": 500,
    "unavailable": 503,
    "store_unavailable": 503,
    "store_gone": 503,
    "artefacts_unavailable": 503,
    "store_damaged": 503,
    "database_in_use": 503,
    "node_is_over": 503,
    "engine_closed": 503,
    "too_many_connections": 503,
}


class Fault(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: str
    message: str
    details: list[Problem] = []


def status_of(code: str) -> int:
    return STATUS.get(code, 500)


def fault_of(error: HoldfastError) -> Fault:
    return Fault(error.code, str(error), list(getattr(error, "problems", ())))


# ------------------------------------------------------------------------------------------------------ times


def time_text(at: Millis) -> str:
    whole, part = divmod(at, 1000)
    return f"{_second_text(whole)}.{part:03d}Z"


@lru_cache(SECONDS_REMEMBERED)  # the times of a run, and of runs in a list, are often of the same second
def _second_text(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


def millis_of(at: datetime | None) -> Millis | None:
    return None if at is None else Millis(round(at.timestamp() * 1000))


def time_or_none(at: Millis | None) -> str | None:
    return None if at is None else time_text(at)


# --------------------------------------------------------------------------------------------- words of requests


def most(limit: str) -> int:
    """The schema's own limit: the highest that any server can be configured to. The actual limit is checked inside."""
    return limits.bounds(limit)[1]


Text = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
StepPath = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
# In an address a character may take twelve bytes, and the whole head of a request has 32 KiB.
PathInAddress = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
Scope = Literal["read", "run", "approve", "resume", "worker", "admin"]
Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]
Cursor = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
# With an offset: Z, or +01:00.
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a route without parameters."""


# Bodies of which one field at least must be given: each such field, with the fields that must be left out beside it. The document says so.
Either = Mapping[str, tuple[str, ...]]


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query parameters of every list."""

    cursor: Cursor | None = None
    limit: Limit = PAGE
