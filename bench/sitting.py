"""Repeats a workload, and leaves out what was measured while the machine was slow.

These machines change speed within seconds. A fixed loop of plain Python is timed before and after each repetition;
one that stands beside a loop much slower than the fastest of the sitting says more of the neighbours than of us.
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
# a machine that is slow all day still gives figures, and says how many were dropped
TRIES_PER_REPEAT: Final = 2
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
        """The lines of a workload's figures, over all repetitions that count."""
        wanted = min(self.repeats, workload.repeats_max)
        taken: list[tuple[float, list[Measure]]] = []
        self._patience_until = time.monotonic() + self.patience_seconds
        while len(self._kept(taken)) < wanted and len(taken) < TRIES_PER_REPEAT * wanted:
            taken.append(self._once(workload))
        quiet = self._kept(taken)
        kept = quiet or [min(taken, key=lambda one: one[0])]
        calibration = statistics.median(loop_ms for loop_ms, _ in kept)
        for together in zip(*[measures for _, measures in kept], strict=True):
            yield line(
                together, dropped=len(taken) - len(kept), calibration_ms=calibration, quiet=bool(quiet)
            )

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
        """The loop, once it is fast enough for a repetition to count, or patience is over."""
        while (
            loop_ms := calibrated_ms()
        ) > SLOW * self.fastest_ms and time.monotonic() < self._patience_until:
            time.sleep(LOOK_SECONDS)
        return loop_ms

    def _kept(self, taken: list[tuple[float, list[Measure]]]) -> list[tuple[float, list[Measure]]]:
        return [one for one in taken if one[0] <= SLOW * self.fastest_ms]


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
