"""W7 and W10: memory, and bytes to disk. Each process is weighed from outside and does nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.figures import Goal, Kind, Measure
from bench.processes import Child
from bench.scale import Scale

BARE: Final = "bare interpreter with uvloop"
IDLE: Final = Kind("w7_idle", "MB", BARE, Goal(value=70), Goal(value=45))
IDLE_SERVER: Final = Kind("w7_server_idle", "MB", BARE, Goal(value=70), Goal(value=45))
BYTES: Final = Kind("w10", "bytes/step", "L-step's rows", Goal(value=550), Goal(value=300))
WAITING_MORE_MB: Final = 30
WAITS: Final = {
    "waiting": "a timer of an hour",
    "signalled": "a signal",
    "called_back": "a callback, each with a task id of its own",
}

BARE_PROGRAM: Final = "import uvloop, sys; print('{}', flush=True); sys.stdin.read()"


def memory(folder: Path, scale: Scale) -> list[Measure]:
    """W7: resident memory of an idle engine and of an idle server, and how much more with waiting runs, in the process that started them
    and in one that opened their file."""
    bare = _rss_bare()
    idle = _rss(folder / "idle.db", 0)
    measures = [Measure(IDLE, idle, bare, {}), Measure(IDLE_SERVER, _rss_server(folder), bare, {})]
    for runs in scale.waiting:
        for name, waits_for in WAITS.items():
            db = folder / f"{name}-{runs}.db"
            started, reopened = _rss(db, runs, name), _rss(db, 0)
            settings = {"runs": runs, "waiting_for": waits_for, "is": f"more than idle's {idle:.1f} MB"}
            measures += [
                Measure(_more(f"w7_{name}_{runs}"), started - idle, None, settings),
                Measure(_more(f"w7_{name}_{runs}_reopened"), reopened - idle, None, settings),
            ]
    return measures


def _more(name: str) -> Kind:
    return Kind(name, "MB", None, Goal(value=WAITING_MORE_MB))


def _rss(db: Path, runs: int, waits_for: str = "waiting") -> float:
    with Child.doing("wait", db=db, runs=runs, waits_for=waits_for) as child:
        child.hear()
        return child.rss_mb()


def _rss_server(folder: Path) -> float:
    with Child.serving("holdfast", db=folder / "server.db", effects=folder / "effects") as child:
        child.hear()
        return child.rss_mb()


def _rss_bare() -> float:
    with Child("-c", BARE_PROGRAM) as child:
        child.hear()
        return child.rss_mb()


def disk(folder: Path, scale: Scale) -> list[Measure]:
    """W10: bytes to disk per step with so many runs in flight, checkpoints and the closing of the file included."""
    order = {"runs": scale.byte_runs, "in_flight": scale.runs, "steps": scale.steps}
    with Child.doing("write", db=folder / "w10.db", effects=folder / "effects", **order) as child:
        told = child.hear()
    rounds = scale.byte_runs // scale.runs
    with Child.doing(
        "write_limit", db=folder / "limit.db", in_flight=scale.runs, steps=scale.steps, rounds=rounds
    ) as child:
        limit = child.hear()["bytes"] / (rounds * scale.runs * scale.steps)
    counted = {"counted_by": told["counted_by"], "bytes_before_the_first_run": told["at_open"]}
    return [Measure(BYTES, told["bytes"] / (scale.byte_runs * scale.steps), limit, order | counted)]
