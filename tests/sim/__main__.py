"""`python -m tests.sim`: replay one seed with its trace, or run a campaign of many.

python -m tests.sim --layer pure --seed 42
python -m tests.sim --layer world --seeds 0:5000 --jobs 2
python -m tests.sim --layer world-schedules --seeds 0:5000 --occurrences 100000
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

import pytest

from tests.sim.campaign import LAYERS, never_happened, replay_command, run_campaign
from tests.sim.suspended import suspend_reads


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--layer", choices=sorted(LAYERS), required=True)
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("--seeds", metavar="A:B", help="run the seeds from A up to B")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="end a campaign after this long")
    parser.add_argument("--occurrences", type=int, help="end a campaign of schedules after this many")
    parser.add_argument("--width", type=int, default=400, help="characters of a line of the trace")
    parser.add_argument(
        "--yield-reads", type=int, metavar="SEED", help="let the reads of the store suspend by this seed"
    )
    given = parser.parse_args()
    if given.yield_reads is not None:
        if given.jobs > 1:
            parser.error("--yield-reads takes one job")
        suspend_reads(pytest.MonkeyPatch(), given.yield_reads)
    if given.seed is not None:
        return replay(given.layer, given.seed, given.width)
    if given.seeds is None:
        parser.error("give --seed N or --seeds A:B")
    first, _, last = given.seeds.partition(":")
    return campaign(given, range(int(first), int(last)))


def replay(layer: str, seed: int, width: int) -> int:
    try:
        done = LAYERS[layer](seed, trace=True)
    except Exception as error:  # noqa: BLE001  # whatever breaks is what was looked for
        trace = error.__dict__["world"].trace
        print(*(line[:width] for line in trace), sep="\n")
        traceback.print_exception(error)
        return 1
    print(*(line[:width] for line in done.trace), sep="\n")
    print(dict(sorted(done.counts.items())))
    return 0


def campaign(given: argparse.Namespace, seeds: range) -> int:
    layer, began = given.layer, time.monotonic()
    done = run_campaign(layer, seeds, jobs=given.jobs, seconds=given.seconds, occurrences=given.occurrences)
    rate = done.seeds / max(time.monotonic() - began, 0.001)
    print(
        f"{layer}: {done.seeds} seeds, {rate:.0f}/s,",
        ", ".join(f"{name}: {n}" for name, n in sorted(done.counts.items())),
    )
    for seed, why in sorted(done.failures.items()):
        print(f"seed {seed}: {why}\n    {replay_command(layer, seed, given.yield_reads)}")
    missing = never_happened(layer, done.counts)
    if missing:
        print("never happened:", ", ".join(missing))
    return 1 if done.failures or missing else 0


if __name__ == "__main__":
    sys.exit(main())
