"""The payload of a trigger, from JSON text to the inputs of a run.

A large payload is parsed and rendered in a separate process, so that the event loop is not blocked; the resulting inputs
are usually small. Knows sizes and templates, not which kind of trigger a payload came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, LimitExceeded
from holdfast.plan.unread import members_in
from holdfast.runtime.apart import LARGE_BYTES, apart, in_turns
from holdfast.schedule.template import Rendered, render, too_large
from holdfast.values import JSON_DEPTH_MAX, decode, is_too_deep, written

SMALL_BYTES: Final = 64 * 1024  # of a payload that is read in a few milliseconds


class InvalidPayload(HoldfastError):
    """The payload is not JSON that can be used; the message says why."""

    code = "invalid_json"


async def rendered(text: bytes, inputs: Any, trigger: Mapping[str, Any]) -> Rendered:
    """Render the inputs of a schedule with the payload and the other members of `trigger`.

    Raises InvalidPayload, or LimitExceeded if the inputs would be too large. An empty payload is an empty object.
    """
    if len(text) <= SMALL_BYTES:
        return _rendered(text, inputs, trigger)
    if len(text) <= LARGE_BYTES:
        return await in_turns(lambda: _rendered(text, inputs, trigger))
    heading = _Heading(inputs, dict(trigger), limits.differing())
    made = _outcome.decode(await apart(_render_apart, written(heading) + b"\n" + text))
    if made.is_too_large:
        raise too_large()
    if made.invalid:
        raise InvalidPayload(made.invalid)
    return Rendered(await in_turns(lambda: _opened(made.value)), made.unresolved)


def _opened(inputs: msgspec.Raw) -> Any:
    """The inputs, of which large ones stay text."""
    if len(inputs) <= LARGE_BYTES or bytes(memoryview(inputs)[:1]) != b"{":
        return decode(inputs)
    return dict(members_in(inputs))


def check(text: bytes) -> Any:
    """The value of a payload; raises InvalidPayload."""
    if is_too_deep(text):
        raise InvalidPayload(f"the body is nested deeper than {JSON_DEPTH_MAX} levels")
    try:
        return decode(text) if text.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"the body is not JSON: {error}") from None


def _rendered(text: bytes, inputs: Any, trigger: Mapping[str, Any]) -> Rendered:
    return render(inputs, {**trigger, "payload": check(text)})


class _Heading(msgspec.Struct, array_like=True):
    """The header before the payload, for the other process."""

    inputs: Any
    trigger: dict[str, Any]
    limits: dict[str, int]


class _Outcome(msgspec.Struct, array_like=True):
    value: msgspec.Raw = msgspec.Raw(b"null")
    unresolved: tuple[str, ...] = ()
    invalid: str = ""
    is_too_large: bool = False


_heading = msgspec.json.Decoder(_Heading)
_outcome = msgspec.json.Decoder(_Outcome)


def _render_apart(given: bytes) -> bytes:
    end = given.index(b"\n")
    heading = _heading.decode(given[:end])
    limits.put_in_force(limits.chosen(heading.limits))
    try:
        made = _rendered(given[end + 1 :], heading.inputs, heading.trigger)
    except InvalidPayload as error:
        return written(_Outcome(invalid=str(error)))
    except LimitExceeded:
        return written(_Outcome(is_too_large=True))
    return written(_Outcome(msgspec.Raw(written(made.value)), made.unresolved))
