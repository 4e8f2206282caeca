"""Failures of tools: the errors that tools and their callers raise, and any exception as kind and message.

Knows exceptions as data. Must not know runs or retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast import limits
from holdfast.values import NotJson

KIND_CHARS_MAX: Final = 100


class ToolError(Exception):
    """Raise this in a tool to say what kind of failure it is, so that `retry_on` can choose."""

    traceback_text: str | None = None  # of an error that was raised in another process

    def __init__(self, message: str, *, kind: str = "error") -> None:
        super().__init__(message)
        self.kind = kind


class ArgumentMismatch(ValueError):
    """The arguments do not fit the tool's signature. The message names every parameter that is wrong."""

    kind = "inputs"


class OutputTooLarge(ValueError):
    kind = "output_too_large"

    def __str__(self) -> str:
        return f"the output is larger than {limits.size(limits.now.value_bytes_max)} ({limits.met('value_bytes_max')}); write it to a file and return file_refs instead"


def described(
    error: BaseException, redact: Callable[[str], str] = str, *, chars_max: int | None = None
) -> tuple[str, str]:
    """Return kind and message of an exception that a tool raised, even if formatting the exception fails.

    The message is redacted before it is truncated, because half a secret would not be recognised.
    """
    kind, message = _described(error)
    return redact(kind)[:KIND_CHARS_MAX], redact(message)[: chars_max or limits.now.error_chars_max]


def _described(error: BaseException) -> tuple[str, str]:
    name = type(error).__name__
    try:
        message = str(error) or name
    except Exception:
        message = f"{name} (its message cannot be printed)"
    message = message.encode("utf-8", "replace").decode()
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", "the attempt was cancelled"
    if isinstance(error, NotJson):
        return "error", f"the tool returned something that is not JSON: {message}"
    kind = _kind_of(error)
    if kind:
        return kind, message
    if isinstance(error, LookupError | SystemExit | KeyboardInterrupt | AssertionError) and message != name:
        message = f"{name}: {message}"  # its text alone says almost nothing
    if isinstance(error, TimeoutError) or "timeout" in message.lower():
        return "timeout", message
    return ("transient" if "transient" in message.lower() else "error"), message


def _kind_of(error: BaseException) -> str:
    try:
        kind = getattr(error, "kind", "")
    except Exception:
        return ""
    return kind.encode("utf-8", "replace").decode() if isinstance(kind, str) else ""
