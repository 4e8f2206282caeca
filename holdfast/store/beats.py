"""How runs are counted over time: by series, minute and beat. A beat is a start, or an end with its status and how long the run took.

The time that a run took is kept as one of 248 ranges, eight to each doubling, so counts can be added up and percentiles are right
to 6 %. Knows no dialect.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MINUTE_MS: Final = 60_000
STARTED: Final = 0
ENDS: Final = ("completed", "failed", "cancelled", "interrupted")
_ENDS_AT: Final = {status: 1 + 256 * n for n, status in enumerate(ENDS)}
_TOOK_MS_MAX: Final = 2**33 - 1  # 99 days; longer is counted as this


class End(NamedTuple):
    status: str
    took_ms: int  # the middle of its range


def end_beat(status: str, took_ms: int) -> int:
    """The beat of a run that ended. Called for every run, so the ranges are computed in place."""
    if took_ms <= 0:
        return _ENDS_AT[status]
    if took_ms < 16:
        return _ENDS_AT[status] + took_ms
    took_ms = min(took_ms, _TOOK_MS_MAX)
    power = took_ms.bit_length() - 1
    return _ENDS_AT[status] + 8 * (power - 2) + (took_ms >> (power - 3) & 7)


def end_of(beat: int) -> End:
    """What a beat other than STARTED means."""
    place, found = divmod(beat - 1, 256)
    return End(ENDS[place], _middle_of(found))


def _middle_of(found: int) -> int:
    if found < 16:
        return found
    power = found // 8 + 2
    width = 1 << (power - 3)
    return (8 + found % 8) * width + width // 2
