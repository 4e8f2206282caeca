"""The long campaign, which ends in one line: `python -m tests.cluster --faults 300 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.campaign import line_of, ran
from tests.postgres import running_server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with running_server() as server, tempfile.TemporaryDirectory(prefix="holdfast-cluster-") as folder:
        report = ran(server, Path(folder), seed=asked.seed, faults=asked.faults)
    for problem in report.problems[:20]:
        print(problem, file=sys.stderr)
    print(f"{line_of(report)}; seed {asked.seed}, {time.monotonic() - began:.0f} s")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
