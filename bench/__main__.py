"""`python -m bench [names…]`: one JSON line per figure on standard output, and a table on a terminal."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench import growth, http, mcp, postgres, restarts, schedules, size, steps, waits
from bench.figures import table
from bench.scale import FULL, QUICK, USUAL, Scale
from bench.sitting import Sitting, Workload

REPEATS: Final = 3  # of five slices each, where a workload has slices

WORKLOADS: Final = (
    Workload("w1_saturated", steps.saturated),
    Workload("w1_single", steps.single),
    Workload("w2", steps.parallel),
    Workload("w3", steps.first_step),
    Workload("w4", waits.timers),
    Workload("w5", waits.signals),
    Workload("wakes", waits.wakes, repeats_max=3),
    Workload("w6", restarts.kill_and_restart),
    Workload("w7", size.memory, repeats_max=3),
    Workload("w8", restarts.start_up),
    Workload("w9", schedules.due_each_second, repeats_max=3),
    Workload("w9_beside_w1", schedules.due_beside_runs, repeats_max=3),
    Workload("catchup", schedules.catching_up, repeats_max=1),
    Workload("idle_schedules", schedules.idle, repeats_max=1),
    Workload("w10", size.disk, repeats_max=3),
    Workload("w11", http.started),
    Workload("w12", http.by_worker),
    Workload("mcp", mcp.calls),
    Workload("postgres", postgres.all_rows, repeats_max=3),
    Workload("growth_in_flight", growth.in_flight, repeats_max=3),
    Workload("growth_long_run", growth.long_run, repeats_max=3),
    Workload("growth_file", growth.file_size, repeats_max=1),
    Workload("growth_recovery", growth.recovery, repeats_max=3),
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [each for each in WORKLOADS if not options.names or any(map(each.is_named, options.names))]
    unknown = [name for name in options.names if not any(each.is_named(name) for each in WORKLOADS)]
    if unknown:
        names = ", ".join(each.name for each in WORKLOADS)
        print(f"bench: no workload is called {', '.join(unknown)}; there are {names}", file=sys.stderr)
        return 2
    repeats = options.repeat or (1 if options.quick else REPEATS)
    with _data_folder(options.data) as data:
        lines = list(_measure(Sitting(data, _scale(options), repeats=repeats), chosen))
    if sys.stderr.isatty() and not options.json_only:
        print(f"\n{table(lines)}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("bench", description="What Holdfast does on this machine.")
    parser.add_argument("names", nargs="*", help="workloads: w1, w1_single, w8, growth … (all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, once each: to see that it works")
    parser.add_argument("--full", action="store_true", help="the largest sizes too")
    parser.add_argument("--repeat", type=int, metavar="N", help=f"repetitions ({REPEATS})")
    parser.add_argument("--json-only", action="store_true", help="no table")
    parser.add_argument(
        "--data", type=Path, default=Path(".bench-data"), help="where the files are: on the disk to measure"
    )
    return parser


def _scale(options: argparse.Namespace) -> Scale:
    return FULL if options.full else QUICK if options.quick else USUAL


def _measure(sitting: Sitting, chosen: list[Workload]) -> Iterator[dict[str, object]]:
    for workload in chosen:
        for line in sitting.lines(workload):
            print(msgspec.json.encode(line).decode(), flush=True)
            yield line


@contextmanager
def _data_folder(parent: Path) -> Iterator[Path]:
    """A folder that is gone afterwards, and that git does not see while it is there."""
    is_new = not parent.exists()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sitting-", dir=parent)).resolve()
    (folder / ".gitignore").write_text("*\n")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        if is_new:
            parent.rmdir()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the data folder is removed
    sys.exit(main())
