"""I16 to I22 under crashes, suspended machines, clock jumps, pauses, edits, long runs and two nodes at once."""

from __future__ import annotations

import pytest

from tests.schedule.planted import BUGS
from tests.schedule.simulation import Violation, World, checked

SEEDS = 160


def played(seed: int) -> int:
    world = World(seed)
    world.run()
    return checked(world)


@pytest.mark.parametrize("part", range(4))
def test_every_invariant_holds_over_a_hundred_thousand_occurrences(part: int) -> None:
    assert sum(played(seed) for seed in range(part, SEEDS, 4)) >= 25_000


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_every_invariant_holds_over_a_million_occurrences(part: int) -> None:
    assert sum(played(seed) for seed in range(SEEDS + part, 12 * SEEDS, 8)) >= 125_000


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    with BUGS[name](), pytest.raises(Violation):
        sum(played(seed) for seed in range(SEEDS))


def test_the_same_seed_is_the_same_world() -> None:
    worlds = [World(11), World(11)]
    for world in worlds:
        world.run()
    assert worlds[0].disk == worlds[1].disk
