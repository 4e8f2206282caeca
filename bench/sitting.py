"""Repeats a workload, and says of how many repetitions the machine was slow.

These machines change speed within seconds. A fixed loop of plain Python is timed before and after each repetition;
one that stands beside a loop much slower than the fastest of the sitting says more of the neighbours than of us. It counts all the
same: a workload is slices of ours between slices of the limit (bench.turns), so its ratio says little of the neighbours.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.figures import Measure, line
from bench.scale import Scale

SLOW: Final = 1.25  # times the fastest loop of the sitting
PATIENCE_SECONDS: Final = 30.0  # per workload, for slow spells to pass before a repetition is begun
LOOK_SECONDS: Final = 0.5
LOOP: Final = 300_000

Once = Callable[[Path, Scale], list[Measure]]


@dataclass(frozen=True, slots=True)
class Workload:
    """`repeats_max` keeps those that take long from being repeated as often as the short ones."""

    name: str
    once: Once
    repeats_max: int = 100

    def is_named(self, name: str) -> bool:
        """`w1` means w1_saturated and w1_single, and not w10."""
        return self.name == name or self.name.startswith(f"{name}_")


class Sitting:
    def __init__(
        self, data: Path, scale: Scale, *, repeats: int, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self.data, self.scale, self.repeats, self.patience_seconds = data, scale, repeats, patience_seconds
        self._patience_until = 0.0
        self.fastest_ms = calibrated_ms()

    def lines(self, workload: Workload) -> Iterator[dict[str, Any]]:
        """The lines of a workload's figures, over all repetitions."""
        self._patience_until = time.monotonic() + self.patience_seconds
        taken = [self._once(workload) for _ in range(min(self.repeats, workload.repeats_max))]
        loops = [loop_ms for loop_ms, _ in taken]
        slow = sum(loop_ms > SLOW * self.fastest_ms for loop_ms in loops)
        for together in zip(*[measures for _, measures in taken], strict=True):
            yield line(together, slow=slow, calibration_ms=statistics.median(loops))

    def _once(self, workload: Workload) -> tuple[float, list[Measure]]:
        """One repetition in a folder of its own, and the slower of the loops around it."""
        folder = Path(tempfile.mkdtemp(prefix=f"{workload.name}-", dir=self.data))
        try:
            before = self._quiet_ms()
            measures = workload.once(folder, self.scale)
            after = calibrated_ms()
        finally:
            shutil.rmtree(folder)
        self.fastest_ms = min(self.fastest_ms, before, after)
        return max(before, after), measures

    def _quiet_ms(self) -> float:
        """The loop, once it is not slow any more, or patience is over."""
        while (
            loop_ms := calibrated_ms()
        ) > SLOW * self.fastest_ms and time.monotonic() < self._patience_until:
            time.sleep(LOOK_SECONDS)
        return loop_ms


def calibrated_ms() -> float:
    """The fixed loop, the best of three: one interruption by a neighbour is not a slow machine."""
    gc.collect()
    return min(_loop_ms() for _ in range(3))


def _loop_ms() -> float:
    began = time.perf_counter()
    total, known = 0, {}
    for number in range(LOOP):
        total += number & 7
        known[number & 63] = total
    return 1000 * (time.perf_counter() - began)
