"""`python -m bench.interpreters PYTHON…`: the CPU time of a run and of a further step under several interpreters.

Each is the `python` of an environment in which Holdfast's requirements are installed. They take turns, and what is counted is CPU time:
neighbours and disks matter little to it, so the medians can be compared.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from bench.work import chain, many_runs, noting, opened

RUNS: Final = 1_000
WARM: Final = 100
STEPS: Final = 10
TURNS: Final = 5
ROOT: Final = Path(__file__).resolve().parent.parent


async def _cpu_seconds(folder: Path, steps: int) -> float:
    """Of so many runs in flight, each of so many trivial steps."""
    spec = chain(steps)
    with noting(folder / "effects") as note:
        async with opened(folder / "h.db", note) as hf:
            await many_runs(hf, spec, runs=WARM, in_flight=WARM)
            gc.collect()
            began = time.process_time()
            await many_runs(hf, spec, runs=RUNS, in_flight=RUNS)
            return time.process_time() - began


def _asked(python: str, steps: int) -> float:
    command = [python, "-m", "bench.interpreters", "--steps", str(steps)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _compared(pythons: Sequence[str]) -> None:
    runs: dict[str, list[float]] = {python: [] for python in pythons}
    further: dict[str, list[float]] = {python: [] for python in pythons}
    for _ in range(TURNS):
        for python in pythons:
            one, many = _asked(python, 1), _asked(python, 1 + STEPS)
            runs[python].append(1e6 * one / RUNS)
            further[python].append(1e6 * (many - one) / (RUNS * STEPS))
    print(f"{'CPU time in microseconds':<40} {'run':>7} {'step':>7}")
    for python in pythons:
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
        run, step = statistics.median(runs[python]), statistics.median(further[python])
        print(f"{version:<40} {run:>7.1f} {step:>7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.interpreters", description=__doc__)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    parser.add_argument("--steps", type=int, help="only measure runs of so many steps, in this interpreter")
    given = parser.parse_args()
    if given.steps:
        with tempfile.TemporaryDirectory() as folder:
            print(uvloop.run(_cpu_seconds(Path(folder), given.steps)))
    else:
        _compared(given.pythons)


if __name__ == "__main__":
    main()
