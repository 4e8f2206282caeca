"""From the result of a call to the output of its step: failure envelopes, `select`, `parse`.

Knows the rules of `result:`. Treats a direct result and a callback alike, and does not know who sent it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import ExpressionTooCostly
from holdfast.plan.composed import TooLarge, refuse_large
from holdfast.plan.view import Answer
from holdfast.spec.expr import compiled, parse_jsonpath
from holdfast.spec.steps import ResultRule
from holdfast.values import decode, encode, is_too_deep

TASK_ID_CHARS_MAX: Final = 1_000
HEAD_BYTES_MAX: Final = 64 * 1024  # bytes read of a member that describes a result


class AnswerFailed(Exception):
    """The call was made, but its result is a failure or cannot be read."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class Later(msgspec.Struct, frozen=True):
    """A pending result: the real one will follow under this task id."""

    task_id: str
    poll_url: str = ""
    estimated_secs: float | None = None


class _Head(msgspec.Struct):
    """The members of a result that the rules need."""

    pending: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    task_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    poll_url: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    estimated_seconds: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    success: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error_kind: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_head = msgspec.json.Decoder(_Head).decode


def head_of(text: bytes) -> dict[str, Any] | None:
    """Read from a result's JSON text whether it is pending or a failure. The result is not decoded as a whole; a large member is
    returned as the beginning of its text."""
    if not text.startswith(b"{"):
        return None
    said = msgspec.structs.asdict(_head(text))
    return {name: _short(bytes(raw)) for name, raw in said.items() if raw is not msgspec.UNSET}


def _short(text: bytes) -> Any:
    return decode(text) if len(text) <= HEAD_BYTES_MAX else text[:HEAD_BYTES_MAX].decode(errors="replace")


def later(answer: Any) -> Later | None:
    """Return the pending marker of a result, or None. Only `pending: true` with a text `task_id` is pending; anything else is the
    result itself."""
    if not isinstance(answer, dict) or answer.get("pending") is not True:
        return None
    task_id, url, seconds = (answer.get(name) for name in ("task_id", "poll_url", "estimated_seconds"))
    if not isinstance(task_id, str):
        return None
    if not task_id:
        raise AnswerFailed(
            "pending is true and the task_id is empty; give the id that the callback will have", "result"
        )
    if len(task_id) > TASK_ID_CHARS_MAX:
        raise AnswerFailed(f"a task id has at most {TASK_ID_CHARS_MAX:,} characters", "result")
    estimated = None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0:
        estimated = float(seconds)
    return Later(task_id, url if isinstance(url, str) else "", estimated)


class _Answer:
    """The output of a call, by the rule of its step."""

    def __init__(self, rule: ResultRule) -> None:
        self.rule = rule
        self._find = None if rule.select is None else compiled(parse_jsonpath(rule.select))

    def __call__(self, value: Any) -> Any:
        if self.rule.envelope:
            refuse_failure(value)
        if self._find is not None:
            hits = _found(self._find, value)
            value = hits[0] if len(hits) == 1 else hits or None
        return _read(value) if self.rule.parse == "json" and isinstance(value, str) else value


def answer_of(rule: ResultRule) -> Answer:
    return _Answer(rule)


def _found(find: Callable[[Any], list[Any]], value: Any) -> list[Any]:
    try:
        hits = find(value)
        if len(hits) > 1:
            refuse_large(hits)
        return hits
    except ExpressionTooCostly as error:
        raise AnswerFailed(f"`select`: {error}", error.code) from None
    except TooLarge:
        message = f"the selected values exceed {limits.size(limits.now.value_bytes_max)} together ({limits.met('value_bytes_max')}); select less of it"
        raise AnswerFailed(message, "output_too_large") from None


def refuse_failure(answer: Any) -> None:
    """Raise AnswerFailed if a result says that it is a failure."""
    if not isinstance(answer, dict) or answer.get("success") is not False:
        return
    error = answer.get("error")
    kind = answer.get("error_kind")
    if isinstance(error, dict):
        kind = kind or error.get("kind")
        error = error.get("message", error)
    message = (
        error if isinstance(error, str) and error else encode(error).decode() if error else "no reason given"
    )
    raise AnswerFailed(f"the answer says that it failed: {message}", kind if isinstance(kind, str) else "")


def _read(text: str) -> Any:
    try:
        if is_too_deep(text.encode()):
            raise ValueError("nested too deeply")
        return decode(text)
    except ValueError as error:
        raise AnswerFailed(f"the answer should be JSON text and is not: {error}", "result") from None
