"""Times in a definition: delays, and instants given as a number or text."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

from holdfast.plan import templates
from holdfast.plan.references import template_of
from holdfast.plan.unread import value_in
from holdfast.plan.view import View
from holdfast.spec.scope import Scope
from holdfast.spec.steps import (
    TimerBody,
)
from holdfast.values import Millis, NotJson, rfc3339

INSTANT_MAX: Final = 253_402_300_800_000  # the end of the year 9999, in milliseconds
# A number below this is in seconds: in milliseconds it would be before 1974.
_SECONDS_BELOW: Final = 10**11


def millis(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def fired(view: View, at: Millis) -> bytes:
    return b'{"fired_at":"%b"}' % rfc3339(at).encode()


def due_of(body: TimerBody, scope: Scope) -> Any:
    until = body.until is not None
    render = templates.render(template_of(body.until if until else body.delay_ms, scope), refers=False)

    def due(view: View, now: Millis) -> Millis:
        value = value_in(render(view))
        at = _instant(value) if until else Millis(now + round(_number(value)))
        if not -INSTANT_MAX < at < INSTANT_MAX:
            raise NotJson(f"a timer cannot wait for {value!r:.50}: that is after the year 9999")
        return at

    return due


def _number(value: Any) -> float:
    try:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
        return number
    except (TypeError, ValueError):
        raise NotJson(f"a timer needs a number of milliseconds, not {value!r:.50}") from None


def _instant(value: Any) -> Millis:
    """Convert a number (seconds or milliseconds) or a text with date, time and zone to milliseconds since 1970."""
    if isinstance(value, str):
        if value.replace(".", "", 1).isdecimal():
            return _instant(_number(value))
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise NotJson(f"{value!r:.50} is not a time: write 2026-01-31T12:00:00Z, or a number") from None
        if at.tzinfo is None:
            raise NotJson(f"the instant {value!r:.50} has no zone: write it with Z or an offset")
        return Millis(round(at.timestamp() * 1000))
    number = _number(value)
    return Millis(round(number * 1000 if abs(number) < _SECONDS_BELOW else number))
