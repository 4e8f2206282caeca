"""How much of each workload: the figures' own sizes, and smaller and larger ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Scale:
    runs: int = 1_000  # in flight, for the saturated workloads
    steps: int = 10  # of each run
    singles: int = 200  # runs, one at a time
    commits: int = 500  # of the limit beside them
    warm_commits: int = 500  # before them, until the log was checkpointed once and grows no more
    parallel: int = 1_000  # steps of one run at the same time
    submits: int = 500  # runs, from being submitted to their first step
    waiting: tuple[int, ...] = (10_000,)  # runs that wait for an hour
    byte_runs: int = 10_000  # of which `runs` are in flight
    in_flight: tuple[int, ...] = (10, 1_000, 10_000)
    items: int = 200_000  # of one loop
    window: int = 10_000  # of its steps, at each end
    finished: tuple[int, int] = (1_000, 100_000)  # runs in the file
    looks: int = 300  # starts and gets in a file of that size
    left_open: tuple[int, ...] = (1_000, 10_000)  # runs at the crash
    timers: int = 1_000  # that are due at the same time
    delay_ms: int = 1_000  # of each
    wakes: int = 10_000  # runs that wait as rows in the file
    wakes_in_ms: int = 10_000  # from the first start: when the last one rests, and all are due
    starts: int = 10_000  # runs that are asked for over HTTP
    worker_runs: int = 1_000  # runs whose steps a worker does
    schedules: int = 1_000  # that are due every second
    fire_seconds: int = 10
    missed: int = 1_000_000  # occurrences of one schedule
    caught_up: int = 20_000  # of them
    idle_schedules: int = 100_000  # of which none is due
    idle_seconds: int = 10

    def part(self, parts: int) -> Scale:
        """One of so many slices of what is repeated one after another."""
        return replace(
            self,
            singles=max(1, self.singles // parts),
            submits=max(2, self.submits // parts),
            starts=max(1, self.starts // parts),
            worker_runs=max(1, self.worker_runs // parts),
            commits=max(1, self.commits // parts),
        )


USUAL: Final = Scale()
FULL: Final = replace(
    USUAL,
    waiting=(10_000, 1_000_000),
    items=1_000_000,
    finished=(1_000, 1_000_000),
    left_open=(1_000, 10_000, 100_000),
    caught_up=1_000_000,
)
QUICK: Final = replace(
    USUAL,
    singles=50,
    commits=200,
    submits=100,
    byte_runs=1_000,
    in_flight=(10, 1_000, 2_000),
    items=20_000,
    window=2_000,
    finished=(100, 5_000),
    looks=50,
    left_open=(100, 1_000),
    starts=2_000,
    worker_runs=100,
    fire_seconds=4,
    caught_up=2_000,
    idle_schedules=10_000,
    idle_seconds=4,
)
TINY: Final = Scale(
    runs=20,
    steps=3,
    singles=3,
    commits=20,
    warm_commits=5,
    parallel=20,
    submits=5,
    waiting=(20,),
    byte_runs=40,
    in_flight=(2, 20),
    items=60,
    window=10,
    finished=(5, 20),
    looks=3,
    left_open=(5, 10),
    timers=20,
    delay_ms=10,
    wakes=20,
    wakes_in_ms=100,
    starts=40,
    worker_runs=4,
    schedules=5,
    fire_seconds=2,
    missed=1_000,
    caught_up=20,
    idle_schedules=20,
    idle_seconds=1,
)
