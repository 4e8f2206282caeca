"""Many seeds: run, counted, and summed up. A campaign in which a fault class never happened is a failure."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.sim import pure, races, schedule_world, waits_world, world

# The woven ones have idempotency keys on their steps, workflows nested in their workflows, and runs done again; those of
# graphs have graphs in place of steps.
LAYERS: Final[dict[str, Callable[..., Any]]] = {
    "pure": pure.simulate,
    "pure-woven": partial(pure.simulate, kind="woven"),
    "pure-graph": partial(pure.simulate, kind="graph"),
    "pure-recover": partial(pure.simulate, kind="recover"),
    "world": world.simulate,
    "world-woven": partial(world.simulate, kind="woven"),
    "world-graph": partial(world.simulate, kind="graph"),
    "world-recover": partial(world.simulate, kind="recover"),
    "world-waits": waits_world.simulate,
    "world-schedules": schedule_world.simulate,
    "races": races.simulate,
}
REGRESSIONS: Final = Path(__file__).with_name("regressions.txt")
FAILURES_MAX: Final = 20  # more tell nothing new

# What a campaign must have met, or it passed for nothing.
MUST_HAPPEN: Final[dict[str, tuple[str, ...]]] = {
    "pure": (
        "crash", "crash by a step", "crash during commit", "crash while a commit is acknowledged", "start was never durable",
        "pause with takeover", "takeover from a live node", "former owner appended before the adoption", "fenced",
        "fenced while adopting", "commit failed", "slow commit", "start taken up after a failed commit", "clock jump",
        "duplicated answer", "duplicated timer", "late answer of a dead node", "late row", "cancel", "graceful close",
        "gap", "visit", "snapshot", "snapshot loaded", "continue", "attempt timed out", "grace over", "deadline", "retry", "join",
        "released", "lost attempt", "suspect started", "lost alone", "failed by loss", "new epoch", "completed",
        "failed", "cancelled", "interrupted",
    ),
    "world": (
        "crash at a handle", "crash by a step", "crash before the commit", "crash after the commit, before anyone knew",
        "crash while the database was away", "crash while closing", "pause", "takeover from a live node",
        "stale node goes on", "stale commit refused", "database away", "commit failed",
        "commit failed for an unknown reason", "slow commit", "clock jump", "late answer", "late row",
        "cancel acknowledged", "cancel refused", "start refused", "graceful close", "closed in order",
        "cancellation swallowed", "snapshot loaded", "continue", "grace over", "deadline", "retry", "join", "released",
        "lost attempt", "suspect started", "lost alone", "failed by loss", "new epoch", "timer over", "end told", "completed", "failed", "cancelled",
        "interrupted",
    ),
}  # fmt: skip
MUST_HAPPEN["world-schedules"] = (
    "crash", "crash at a handle", "crash before the commit", "crash after the commit, before anyone knew", "frozen",
    "takeover from a live node", "stale node goes on", "stale commit refused", "database away", "commit failed",
    "slow commit", "clock set back", "clock set forward", "machine suspended", "graceful close", "change refused",
    "paused", "resumed", "edited", "backfilled", "fired", "catch-up", "skipped: overlap", "skipped: missed",
    "skipped: paused", "skipped: excluded", "skipped: dst_gap", "skipped: max_catchup", "delivery fired",
    "delivery buffered", "delivery skipped", "source fired", "file fired", "run fired", "skip", "buffer_one",
    "buffer_all", "cancel_previous", "allow", "run_once", "run_all",
)  # fmt: skip
MUST_HAPPEN["pure-woven"] = (
    *MUST_HAPPEN["pure"],
    "key granted", "key held", "key answered", "key conflict", "a rival lets a key go", "nested over", "nested deadline",
)  # fmt: skip
MUST_HAPPEN["world-woven"] = (
    *MUST_HAPPEN["world"],
    "key granted", "key held", "key answered", "key conflict", "nested over", "nested deadline", "rerun", "visit",
)  # fmt: skip


_IN_GRAPHS: Final = (
    "variable written", "met again", "foreach opened", "parallel opened", "failed fast", "errors kept", "errors passed over",
    "nested over", "nested deadline", "case holds", "action alt", "action other", "action again",
    "action none", "action that leads nowhere", "default edge after a failure", "error edge after a failure", "timeout edge after a failure",
    "edge after failed calls",
)  # fmt: skip
MUST_HAPPEN["pure-recover"] = (
    "crash", "crash by a step", "crash during commit", "pause with takeover", "fenced", "commit failed", "clock jump",
    "duplicated answer", "cancel", "graceful close", "visit", "snapshot", "snapshot loaded", "skipped", "caught",
    "caught by the run", "final steps", "final steps given up", "ends later", "undone", "completed", "failed", "cancelled",
    "interrupted",
)  # fmt: skip
MUST_HAPPEN["world-recover"] = (
    "crash at a handle", "crash before the commit", "crash after the commit, before anyone knew", "pause",
    "takeover from a live node", "stale commit refused", "database away", "commit failed", "slow commit", "clock jump",
    "cancel acknowledged", "graceful close", "snapshot loaded", "skipped", "caught", "caught by the run", "final steps",
    "ends later", "undone", "end told", "completed", "failed", "cancelled", "interrupted",
)  # fmt: skip
MUST_HAPPEN["pure-graph"] = (*MUST_HAPPEN["pure"], *_IN_GRAPHS)
MUST_HAPPEN["world-graph"] = (
    *MUST_HAPPEN["world"],
    *_IN_GRAPHS,
    "rerun", "job fetched", "job outlived its node", "job given out again", "worker fell silent", "lease renewed", "answer acknowledged",
    "answer came too late", "answered twice", "answer refused for now",
)  # fmt: skip


MUST_HAPPEN["races"] = (
    "pause", "early answer", "pause that takes an early answer", "parked answer taken at a takeover", "answered again", "late",
    "poll", "signal", "approval", "crash", "cancel", "timer expiry", "timer poll", "timer retry", "wait resume", "wait poll",
    "wait expired", "wait cancelled", "wait answered", "completed", "failed", "cancelled",
)  # fmt: skip


MUST_HAPPEN["world-waits"] = (
    "crash at a handle", "crash before the commit", "crash after the commit, before anyone knew", "takeover from a live node",
    "stale commit refused", "database away", "database away at the opening", "commit failed", "commit failed for an unknown reason",
    "slow commit", "clock set back", "clock set forward", "machine suspended", "down for hours", "time flies", "graceful close",
    "lost attempt", "new epoch", "run taken up that waits", "open run at rest", "cancel of a run that waits", "start refused",
    "pause", "pause that takes an early answer", "answer before its pause", "ambiguous task id", "callback parked",
    "callback resumed", "callback already_resumed", "callback expired", "callback unknown_task", "callback refused",
    "callback resume", "callback poll", "callback cancelled", "poll", "timer poll", "timer expiry", "timer delay", "timer retry",
    "timer escalate", "timer deadline", "approval answered", "approval denied", "approval expired", "approval cancelled",
    "approval out of time", "approval too late", "approval by one who may not", "approval by whom it was escalated to",
    "signal acknowledged", "signal refused", "signal answered", "signal expired", "signal cancelled", "condition answered",
    "condition cancelled", "condition expired", "delivery delivered", "delivery dead", "delivery put off", "delivery heard again",
    "delivery of a stale node", "signed delivery", "receiver fails", "receiver hangs", "receiver heard and could not say so",
    "receiver wants nothing more", "result of a delivery refused", "completed", "failed", "cancelled", "interrupted",
)  # fmt: skip


@dataclass
class Outcome:
    seeds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        self.seeds += other.seeds
        self.counts.update(other.counts)
        self.failures.update(other.failures)


def try_seed(layer: str, seed: int) -> Outcome:
    try:
        done = LAYERS[layer](seed)
    except Exception as error:  # noqa: BLE001  # whatever breaks is what was looked for
        where = traceback.extract_tb(error.__traceback__)[-1].name
        return Outcome(1, Counter(), {seed: f"{type(error).__name__} in {where}: {str(error)[:400]}"})
    return Outcome(1, done.counts)


def run_seeds(
    layer: str,
    seeds: Iterable[int],
    *,
    seconds: float | None = None,
    occurrences: float | None = None,
    first_failure: bool = False,
) -> Outcome:
    """Seeds one after the other, for as long as they may take, or until so many occurrences of schedules were decided."""
    total, began = Outcome(), time.monotonic()
    for seed in seeds:
        total.add(try_seed(layer, seed))
        if total.failures and (first_failure or len(total.failures) >= FAILURES_MAX):
            break
        if seconds is not None and time.monotonic() - began > seconds:
            break
        if occurrences is not None and total.counts["occurrences"] >= occurrences:
            break
    return total


def _slice(task: tuple[str, range, float | None, float | None]) -> Outcome:
    return run_seeds(task[0], task[1], seconds=task[2], occurrences=task[3])


def run_campaign(
    layer: str,
    seeds: range,
    *,
    jobs: int = 1,
    seconds: float | None = None,
    occurrences: float | None = None,
) -> Outcome:
    """A range of seeds over several processes; each takes every n-th one."""
    if jobs == 1:
        return run_seeds(layer, seeds, seconds=seconds, occurrences=occurrences)
    total = Outcome()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        each = None if occurrences is None else occurrences / jobs
        parts = [(layer, seeds[first::jobs], seconds, each) for first in range(jobs)]
        for part in pool.map(_slice, parts):
            total.add(part)
    return total


def never_happened(layer: str, counts: Counter[str]) -> list[str]:
    return [name for name in MUST_HAPPEN[layer] if not counts[name]]


def replay_command(layer: str, seed: int, reads: int | None = None) -> str:
    more = "" if reads is None else f" --yield-reads {reads}"
    return f"python -m tests.sim --layer {layer} --seed {seed}{more}"


def regressions() -> list[tuple[str, int, int | None]]:
    """Seeds that failed once, each with the seed by which reads suspended, if they did."""
    lines = [
        line.split("#")[0].split(None, 2) for line in REGRESSIONS.read_text(encoding="utf-8").splitlines()
    ]
    return [(words[0], int(words[1]), _reads(words[2])) for words in lines if words]


def _reads(rest: str) -> int | None:
    first, _, seed = rest.split(maxsplit=1)[0].partition("=")
    return int(seed) if first == "reads" else None
