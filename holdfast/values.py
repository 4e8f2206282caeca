"""The words that every room speaks: ids, states, paths, times, errors as data, and JSON.

Knows no clock, no I/O and no rule of the domain. A path is one text (`loop[3].s~2`); the functions here are the only
ones that build or take apart such a text.
"""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, NewType

import msgspec

from holdfast import limits
from holdfast.jsontext import is_deeper

RunId = NewType("RunId", str)  # UUIDv7, the name of a run at every door
RunNo = NewType("RunNo", int)  # small integer, the name of a run inside: a third of the bytes
Path = NewType("Path", str)  # a step instance within its run
Millis = NewType("Millis", int)  # milliseconds since 1970, UTC

Status = Literal[
    "pending", "running", "waiting", "cancelling", "completed", "failed", "cancelled", "interrupted"
]
OPEN: Final = frozenset({"pending", "running", "waiting", "cancelling"})
TASK_URL: Final = "mcp:"  # of the poll_url of a call that is a task of an MCP server: mcp:server/task
TERMINAL: Final = frozenset({"completed", "failed", "cancelled", "interrupted"})


class WorkflowStatus(StrEnum):
    """The six states of a run that the steps notation knows: one that waits, or is about to be cancelled, is running."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @classmethod
    def _missing_(cls, value: object) -> WorkflowStatus | None:
        return cls.RUNNING if value in OPEN else None

    @property
    def is_terminal(self) -> bool:
        return self.value in TERMINAL


StepState = Literal["ready", "running", "retrying", "waiting", "completed", "skipped", "failed", "cancelled"]
WaitKind = Literal[
    "callback", "signal", "approval", "condition"
]  # what a step can wait for outside the engine

DEFAULT_TENANT: Final = "default"
NULL: Final = msgspec.Raw(b"null")
JSON_DEPTH_MAX: Final = 64  # of everything that callers send: inputs, results, answers, definitions
# of what is made of the outputs of scopes, which put levels of their own around
GATHERED_DEPTH_MAX: Final = 100
VALUE_BYTES_MAX: Final = limits.DEFAULTS.value_bytes_max  # the most that its setting can be


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a step or a run failed, as data. A wrapper keeps the kind of its cause."""

    kind: str
    message: str
    path: str = ""
    attempt: int = 0
    cause: Error | None = None
    # Later failures that did not replace this one: of `finally` steps and of compensations.
    also: tuple[Error, ...] = ()


# ---------------------------------------------------------------------------------------------------- paths

_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_TAIL = re.compile(r"(?:~\d+)?(?:\[\d+\])?\Z")
_SEGMENT = re.compile(r'(?:\["(?:[^"\\]|\\.)*"\]|[^.\[\]~"]+)(?:~\d+)?(?:\[\d+\])?')
_INSTANCE = re.compile(r"~\d+|\[\d+\]")  # the parts of a path that are not in the definition


def segment(step_id: str) -> str:
    """An id as it stands in a path; one with other characters is quoted."""
    if _PLAIN_ID.match(step_id):
        return step_id
    return "[" + msgspec.json.encode(step_id).decode() + "]"


def join(prefix: str, tail: str) -> Path:
    return Path(f"{prefix}.{tail}" if prefix else tail)


@lru_cache(maxsize=4096)  # as for scope_of
def split(path: str) -> tuple[str, str]:
    """The frame a path stands in, and its last segment: `a[1].b.c` → (`a[1].b`, `c`)."""
    if "." not in path:
        return "", path
    if '"' not in path:
        prefix, _, tail = path.rpartition(".")
        return prefix, tail
    last = 0
    for found in _SEGMENT.finditer(path):
        last = found.start()
    return path[: max(last - 1, 0)], path[last:]


@lru_cache(maxsize=4096)  # one event asks several times about the same frame
def scope_of(frame: str) -> tuple[str, int | None]:
    """The step that opened a frame, and which child the frame is: `a.loop[3]` → (`a.loop`, 3), `a.br` → (`a.br`, None)."""
    if frame.endswith("]") and not frame.endswith('"]'):
        scope, _, index = frame[:-1].rpartition("[")
        return scope, int(index)
    return frame, None


def definition_path(path: str) -> str:
    """The step of the definition that a path is an instance of."""
    return _INSTANCE.sub("", path)


def base_of(tail: str) -> str:
    """A segment without its visit and its index: `s~2[3]` → `s`."""
    if tail[-1] != "]" and "~" not in tail:
        return tail
    return tail[: _TAIL.search(tail).start()]  # type: ignore[union-attr]  # the pattern matches the empty text


@lru_cache(64)  # what happens at once is written once
def rfc3339(at: Millis) -> str:
    """An instant as people and programs read it: UTC, with milliseconds."""
    seconds, ms = divmod(at, 1000)
    return f"{_second(seconds)}.{ms:03}Z"


@lru_cache(64)
def _second(seconds: int) -> str:
    days, second = divmod(seconds, 86_400)
    minute, second = divmod(second, 60)
    day = date.fromordinal(_DAYS_TO_1970 + days)
    return f"{day.isoformat()}T{minute // 60:02}:{minute % 60:02}:{second:02}"


_DAYS_TO_1970: Final = date(1970, 1, 1).toordinal()


# ----------------------------------------------------------------------------------------------------- JSON


class NotJson(ValueError):
    """A value that has no faithful JSON form."""


class JsonText(msgspec.Struct, frozen=True):
    """A value as compact JSON text that was checked. Passed on as it is: a copy of 25 MiB costs time, and memory for as long as a
    request holds both."""

    text: bytes


_SIMPLE: Final = frozenset({str, int, bool, type(None)})  # nothing about these can be bent
_encoder = msgspec.json.Encoder()
written = _encoder.encode  # of a value that is known to be JSON
decode = msgspec.json.Decoder().decode


def encode(value: Any) -> bytes:
    """Compact JSON. Refuses what JSON would bend: NaN, infinity, circles, depth over 64, objects it cannot name."""
    try:
        text = _encoder.encode(value)
    except RecursionError:
        raise NotJson("the value is circular or nested too deeply") from None
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise NotJson(str(error)) from None
    if type(value) in _SIMPLE:
        return text
    # msgspec writes NaN and infinity as null, and counts no depth: look closer only where it could be so.
    # `in` would ask the bytes for a number first, and make and drop an exception.
    if text.find(b"null") >= 0 and _has_bad_float(value):
        raise NotJson("NaN and infinity have no JSON form")
    if len(text) > 2 * JSON_DEPTH_MAX and is_too_deep(text):
        raise NotJson(f"the value is nested deeper than {JSON_DEPTH_MAX} levels")
    return text


def is_text(text: str) -> bool:
    """Can it be written? Half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_too_deep(text: bytes, limit: int = JSON_DEPTH_MAX) -> bool:
    return is_deeper(text, limit)


# MessagePack keeps NaN and infinity: a mark for a float, then the exponent of all ones that only they have. Other
# bytes may look the same by chance.
_PERHAPS_BAD_FLOAT = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def _has_bad_float(value: Any) -> bool:
    """Asked of large values too: they are searched as bytes, and value by value only where that found something."""
    try:
        return _PERHAPS_BAD_FLOAT.search(msgspec.msgpack.encode(value)) is not None and _find_bad_float(value)
    except (OverflowError, ValueError, TypeError):  # an integer over 64 bits, which JSON can write
        return _find_bad_float(value)


def _find_bad_float(value: Any) -> bool:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, float):
            if not math.isfinite(top):
                return True
        elif isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list | tuple | set | frozenset):
            stack.extend(top)
        elif isinstance(top, msgspec.Struct):
            stack.extend(getattr(top, name) for name in top.__struct_fields__)
        elif hasattr(top, "__dataclass_fields__"):
            stack.extend(getattr(top, name) for name in top.__dataclass_fields__)
    return False


def canonical(value: Any) -> bytes:
    """One text per value: what hashes are made of."""
    return msgspec.json.encode(value, order="deterministic")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@lru_cache(maxsize=4096)  # asked for when an attempt is entered and when it is left, by every reader
def job_id(run_id: RunId, path: str, attempt: int) -> str:
    """The id of one attempt, as a job beneath its run."""
    return str(uuid.uuid5(uuid.UUID(run_id), f"{path}#{attempt}"))


def idempotency_key(tenant: str, run: RunId, path: str) -> str:
    """What a tool is handed: equal for all attempts of a step instance, different for any two instances."""
    return sha256(f"{tenant}/{run}/{path}".encode())
