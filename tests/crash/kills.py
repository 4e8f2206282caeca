"""The campaign of random kills: runs are started and restarted in processes that die at seeded moments,
or are asked to stop, until all ended."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.checker import Found, check, open_runs, query_file, unfinished
from tests.crash.processes import Driver, Place, Told
from tests.crash.workloads import every_kind, parked

CLOCK_RATE = 20  # of the wall clock: a wait of ten seconds is half a second
LIVES_MAX = 10_000


class Campaign(msgspec.Struct):
    seed: int
    kills: int = 0
    stops: int = 0
    lives: int = 0
    seconds: float = 0.0
    found: Found = msgspec.field(default_factory=Found)

    def __str__(self) -> str:
        f = self.found
        return (
            f"seed {self.seed}: {self.kills} kills, {self.stops} stops, {f.runs} runs, {f.rows} rows, {f.effects} effects, "
            f"{f.lost} attempts lost, {f.executed_again} of them had begun, {f.released} released, {len(f.problems)} problems, "
            f"{self.seconds:.1f} s"
        )


def campaign(folder: Path, *, seed: int, kills: int, runs: int) -> Campaign:
    """Kill at random moments `kills` times, then let the last process finish, and look at what is there."""
    place, told, rng, done = Place(folder), Told(), random.Random(seed), Campaign(seed)
    began = time.monotonic()
    waiting = [parked(n) if n % 10 == 9 else every_kind(n, items=n % 4, ms=n % 5 * 4) for n in range(runs)]
    per_life = max(1, runs // max(1, kills))
    while waiting or unfinished(place, told) or not done.lives:
        more = len(waiting) if done.kills >= kills else per_life + rng.randrange(per_life + 1)
        started, waiting = waiting[:more], waiting[more:]
        may_kill = done.kills < kills and not _is_at_its_last_chance(place)
        _one_life(place, told, rng, started, kills=may_kill, done=done)
        acknowledged = set(told.started.values())
        waiting = [each for each in started if each[0] not in acknowledged] + waiting
        assert done.lives < LIVES_MAX, "the campaign does not end"
        if not waiting and done.kills < kills and not unfinished(place, told):
            # All ended early: the rest of the kills falls on runs of their own.
            waiting = [every_kind(runs + done.kills * 10 + extra, ms=4) for extra in range(per_life)]
    done.seconds = time.monotonic() - began
    done.found = check(place, told)
    return done


def _is_at_its_last_chance(place: Place) -> bool:
    """Was a step of an open run lost twice while it ran alone? The third time it would be given up, as it should."""
    if not open_runs(place):
        return False
    query = "SELECT j.run, j.body FROM journal j JOIN run r ON r.no = j.run WHERE j.kind = 'adopted' AND r.finished_at IS NULL"
    adopted = [(run, json.loads(body)[1]) for run, body in query_file(place, query)]
    alone = Counter((run, event[2]) for run, event in adopted if len(event) > 2 and event[2])
    return max(alone.values(), default=0) > 1


def _one_life(
    place: Place, told: Told, rng: random.Random, start: list[Any], *, kills: bool, done: Campaign
) -> None:
    driver = Driver(place.order(start=start, attach=unfinished(place, told), clock_rate=CLOCK_RATE))
    done.lives += 1
    if kills:
        # One kill in four counts from the fork, so that some fall into the opening; the others fall into the work.
        if rng.randrange(4):
            driver.wait_for("open")
        _listen(driver, rng.choice((0.02, 0.1, 0.3)) * rng.random() + 0.001)
        if rng.randrange(6):
            driver.process.kill()
        else:
            driver.process.terminate()  # in good order now and then: what is released meets what is lost
            done.stops += 1
    code = driver.end()
    told.take(driver)
    # A request to stop that comes before anybody listens for it is a kill like another.
    assert code in (0, -9, -15), f"a driver ended with {code}; see {place.log}"
    done.kills += code == -9


def _listen(driver: Driver, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and driver.hears(left):
        pass
