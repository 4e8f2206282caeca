"""The full campaigns, each ending in one line: `python -m tests.crash --kills 200 --runs 1000`, `--cuts 20000`,
`--server-kills 50 --runs 500`, `--wait-kills 50 --runs 200`, `--soak-seconds 3600`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.crash import kills, power, servers, soak, waiting

HEALTH_MS_MAX = 250.0  # of /healthz at the 99th percentile during a soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of a real engine, this many times")
    parser.add_argument("--runs", type=int, default=1_000, help="runs that the kills fall on")
    parser.add_argument("--cuts", type=int, default=0, help="simulated power cuts")
    parser.add_argument("--server-kills", type=int, default=0, help="kill -9 of `holdfast up` under load")
    parser.add_argument(
        "--wait-kills", type=int, default=0, help="kill -9 of `holdfast up` under runs that wait"
    )
    parser.add_argument(
        "--soak-seconds", type=float, default=0, help="honest and hostile clients and kills, this long"
    )
    parser.add_argument(
        "--turns",
        action="store_true",
        help="measure the turns of the event loop during the soak, in CPU time",
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    problems: list[str] = []
    if asked.kills:
        problems += _in_folder(
            None, lambda folder: kills.campaign(folder, seed=asked.seed, kills=asked.kills, runs=asked.runs)
        )
    if asked.server_kills:
        problems += _in_folder(
            None,
            lambda folder: servers.campaign(
                folder, seed=asked.seed, kills=asked.server_kills, runs=asked.runs
            ),
        )
    if asked.wait_kills:
        problems += _in_folder(
            None,
            lambda folder: waiting.campaign(folder, seed=asked.seed, kills=asked.wait_kills, runs=asked.runs),
        )
    if asked.soak_seconds:
        problems += _in_folder(
            None,
            lambda folder: soak.campaign(
                folder,
                seed=asked.seed,
                seconds=asked.soak_seconds,
                health_ms_max=HEALTH_MS_MAX,
                measures_turns=asked.turns,
            ),
        )
    if asked.cuts:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        problems += _in_folder(
            memory, lambda folder: power.campaign(folder, seed=asked.seed, cuts=asked.cuts)
        )
    return 1 if problems else 0


def _in_folder(
    where: str | None,
    run: Callable[
        [Path], kills.Campaign | power.Campaign | servers.Campaign | soak.Campaign | waiting.Campaign
    ],
) -> list[str]:
    """Run a campaign, print its line, and keep its files if something is wrong with them."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=where))
    done = run(folder)
    problems = done.found.problems if isinstance(done, kills.Campaign) else done.problems
    print(done)
    for problem in problems[:20]:
        print(f"  {problem}")
    if problems:
        print(f"  the files are in {folder}")
    else:
        shutil.rmtree(folder)
    return problems


if __name__ == "__main__":
    sys.exit(main())
