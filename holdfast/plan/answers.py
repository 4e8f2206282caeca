"""What of an answer is a step's output: failure envelopes, a part of it, JSON text inside of it.

Knows the rules of `result:`. Does not know who answered, or when: an answer that came at once and one that came by a
callback are read alike.
"""

from __future__ import annotations

from typing import Any

from holdfast.plan.graph import Answer
from holdfast.spec.expr import compiled, parse_jsonpath
from holdfast.spec.steps import ResultRule
from holdfast.values import decode, encode, is_too_deep


class AnswerFailed(Exception):
    """The call went through, and its answer is a failure or cannot be read."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def answer_of(rule: ResultRule) -> Answer:
    find = None if rule.select is None else compiled(parse_jsonpath(rule.select))

    def output(value: Any) -> Any:
        if rule.envelope:
            refuse_failure(value)
        if find is not None:
            hits = find(value)
            value = hits[0] if len(hits) == 1 else hits or None
        return _read(value) if rule.parse == "json" and isinstance(value, str) else value

    return output


def refuse_failure(answer: Any) -> None:
    """Raises AnswerFailed if an answer says of itself that it failed."""
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
