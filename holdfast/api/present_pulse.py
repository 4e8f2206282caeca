"""Counts of runs over time, as the API shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.api.types import Pulse, PulseBucket, PulseTotal, time_text
from holdfast.views import pulse as views
from holdfast.views.pulse import Stretch, share

STATUSES: Final = ("completed", "failed", "cancelled", "interrupted")


def pulse(found: views.Pulse) -> Pulse:
    return Pulse(
        time_text(found.start),
        time_text(found.end),
        found.width_ms,
        [PulseBucket(**_figures([one]), at=time_text(one.at)) for one in found.stretches],
        PulseTotal(**_figures(found.stretches)),
    )


def _figures(stretches: Sequence[Stretch]) -> dict[str, Any]:
    ended = {status: sum(one.ended.get(status, 0) for one in stretches) for status in STATUSES}
    took = sum((one.took_ms for one in stretches), Counter[int]())
    started = sum(one.started for one in stretches)
    return {"started": started, **ended, "p50_ms": share(took, 0.5), "p95_ms": share(took, 0.95)}
