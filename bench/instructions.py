"""`python -m bench.instructions [--short] [--write]`: how many instructions the common operations take.

Wall-clock figures move by a third with the machine; callgrind's counts of the same script on the same interpreter repeat to about
0.1 %, whatever else the machine does. So these guard the hot path: `bench/instructions.toml` holds the counts that stand, and
more than 2 % above one of them is a failure. Counts of another interpreter or processor family cannot be compared; they are printed and not judged.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.counted import CHILDREN, SCRIPTS, STEPS

TABLE: Final = Path(__file__).with_name("instructions.toml")
RISE_MAX: Final = 0.02
SHORT: Final = ("run", "steps", "fan_out")

_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)

Counts = dict[str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    has_valgrind = shutil.which("valgrind") is not None
    if options.short and not (has_valgrind and standing()):
        why = "the table is of another interpreter" if has_valgrind else "valgrind is not installed"
        print(f"instructions: not compared, {why}")
        return 0
    if not has_valgrind:
        print("instructions: valgrind is not installed (Debian: apt-get install valgrind)", file=sys.stderr)
        return 2
    found = counted(SHORT if options.short else tuple(SCRIPTS))
    if options.write:
        TABLE.write_text(_as_toml(found), "utf-8")
    known = standing()
    print(_shown(found, known))
    worse = too_many(found, known)
    for name in worse:
        print(
            f"instructions: {name} takes more than {RISE_MAX:.0%} above its count in {TABLE.name}",
            file=sys.stderr,
        )
    return 1 if worse else 0


def counted(names: Sequence[str]) -> Counts:
    """Instructions per operation, by the operation's name."""
    with tempfile.TemporaryDirectory(prefix="instructions-") as folder:
        totals = _totals(Path(folder), names)
    # Two dumps a script: what came before its first mark, and what stands between its two.
    per_script = dict(zip(names, totals[1::2], strict=True))
    return per_operation({name: total // SCRIPTS[name][1] for name, total in per_script.items()})


def _totals(folder: Path, names: Sequence[str]) -> list[int]:
    command = [
        "valgrind", "--tool=callgrind", "--quiet", "--dump-before=getloadavg", f"--callgrind-out-file={folder}/out",
        sys.executable, "-m", "bench.counted", str(folder), *names,
    ]  # fmt: skip
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the counted program failed:\n{done.stderr[-2000:]}")
    return [_total(folder / f"out.{number}") for number in range(1, 2 * len(names) + 1)]


def _total(dump: Path) -> int:
    found = _TOTALS.search(dump.read_text("utf-8"))
    assert found is not None, f"callgrind wrote no total into {dump.name}"
    return int(found[1])


def per_operation(per_script: Mapping[str, int]) -> Counts:
    """A further step is what a longer run costs more, a child its share of a fan-out."""
    found = dict(per_script)
    if "steps" in found and "run" in found:
        found["step"] = (found.pop("steps") - found["run"]) // STEPS
    if "fan_out" in found:
        found["child"] = found.pop("fan_out") // CHILDREN
    return found


def standing() -> Counts | None:
    """The counts to be held, or None where they are of another interpreter."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    return dict(table["counts"]) if table["made_with"] == made_with() else None


def made_with() -> dict[str, str]:
    return {"python": platform.python_version(), "machine": platform.machine()}


def too_many(found: Counts, known: Counts | None) -> list[str]:
    return [name for name, count in found.items() if known and count > known[name] * (1 + RISE_MAX)]


def _shown(found: Counts, known: Counts | None) -> str:
    lines = [f"{'operation':<12} {'instructions':>12} {'standing':>12} {'change':>8}"]
    for name, count in found.items():
        stands = (known or {}).get(name)
        rest = f"{stands:>12,} {count / stands - 1:>+8.1%}" if stands else f"{'-':>12} {'-':>8}"
        lines.append(f"{name:<12} {count:>12,} {rest}")
    if known is None:
        lines.append(f"not compared: {TABLE.name} was made with another interpreter than {made_with()}")
    return "\n".join(lines)


def _as_toml(found: Counts) -> str:
    made = "\n".join(f'{key} = "{value}"' for key, value in made_with().items())
    counts = "\n".join(f"{name} = {count}" for name, count in found.items())
    return f"# Instructions per operation, written by `make bench-instructions WRITE=1`.\n[made_with]\n{made}\n\n[counts]\n{counts}\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "bench.instructions", description="Instructions of the common operations."
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="for `make test`: runs, steps and fan-out only, and nothing where they cannot be compared",
    )
    parser.add_argument("--write", action="store_true", help="let the counts found here stand from now on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
