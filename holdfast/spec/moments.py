"""Points in time as authors write them: `2026-12-24`, `2026-12-24T18:00`, `2026-12-24T18:00:00+01:00`.

With an offset or `Z` it is an instant. Without one it is a local time, in the zone of the schedule that it stands in.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast.spec.conversions import UNKNOWN

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
YEARS: Final = range(1970, 2101)
_FORM: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?P<time>[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


_LOOSE: Final = re.compile(
    r"([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})(?:[T ]+([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?)?\s*(Z|UTC|[+-][0-9]{2}:?[0-9]{2})?"
)


def instant_of(text: str) -> Any:
    """The instant that a text means, in our notation, in UTC unless it has an offset; or UNKNOWN."""
    found = _LOOSE.fullmatch(text.strip()[:100])
    if not found:
        return UNKNOWN
    year, month, day, hour, minute, second, zone = found.groups()
    offset = "Z" if zone in (None, "Z", "UTC") else f"{zone[:3]}:{zone[-2:]}"
    written = (
        f"{year}-{int(month):02}-{int(day):02}T{int(hour or 0):02}:{minute or '00'}:{second or '00'}{offset}"
    )
    return UNKNOWN if parse_moment(written) is None else written


class Moment(msgspec.Struct, frozen=True):
    """`ms` counts from 1970: of an instant in UTC, of a local time on the local calendar."""

    text: str
    ms: int
    is_local: bool = True
    is_date: bool = False


def parse_moment(text: str) -> Moment | None:
    """Read a date, a local time or an instant; None if the text is none of them."""
    found = _FORM.fullmatch(text)
    if not found:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.year not in YEARS:
        return None
    is_local = at.tzinfo is None
    ms = (at.replace(tzinfo=UTC) if is_local else at) - _EPOCH
    return Moment(text, ms // timedelta(milliseconds=1), is_local=is_local, is_date=found["time"] is None)
