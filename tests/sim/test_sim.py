"""The seeded simulation as tests: campaigns of both layers, seeds that failed once, determinism, planted bugs.

A failing seed names the command that replays it with its trace. See tests/sim/__main__.py.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim import planted
from tests.sim.campaign import (
    LAYERS,
    MUST_HAPPEN,
    Outcome,
    never_happened,
    regressions,
    replay_command,
    run_campaign,
    try_seed,
)

SEEDS = {"pure": 40_000, "races": 40_000, "world": 6_000}  # more than there is time for
SECONDS = {"pure": 10.0, "races": 10.0, "world": 15.0}
# As many as it takes for the rarest class of fault, with a margin, however slow the machine is.
AT_LEAST = {
    "pure": 3_000, "pure-woven": 3_000, "pure-graph": 4_000, "races": 3_000, "world": 500, "world-woven": 400,
    "world-graph": 600,
}  # fmt: skip
DETERMINISM = """
import hashlib
from tests.sim.campaign import LAYERS
for layer in sorted(LAYERS):
    for seed in range(40):
        try:
            trace = LAYERS[layer](seed, trace=True).trace
        except Exception as error:
            trace = error.__dict__["world"].trace
        print(layer, seed, hashlib.sha256("\\n".join(trace).encode()).hexdigest())
"""


def said(layer: str, outcome: Outcome) -> str:
    return "\n".join(
        f"{replay_command(layer, seed)}\n    {why}" for seed, why in sorted(outcome.failures.items())
    )


@pytest.fixture(scope="module", params=sorted(LAYERS))
def campaign(request: pytest.FixtureRequest) -> tuple[str, Outcome]:
    layer: str = request.param
    kind = layer.partition("-")[0]
    seeds, seconds = range(SEEDS[kind]), SECONDS[kind]
    return layer, run_campaign(layer, seeds, jobs=2, seconds=seconds, at_least=AT_LEAST[layer])


def test_no_seed_of_a_campaign_breaks_a_promise(campaign: tuple[str, Outcome]) -> None:
    layer, outcome = campaign
    assert not outcome.failures, said(layer, outcome)


def test_every_class_of_fault_happened_in_a_campaign(campaign: tuple[str, Outcome]) -> None:
    layer, outcome = campaign
    assert not never_happened(layer, outcome.counts), f"{outcome.seeds} seeds"


def test_every_fault_that_a_seed_can_switch_off_has_a_counter() -> None:
    assert all(len(names) > 20 and len(set(names)) == len(names) for names in MUST_HAPPEN.values())


@pytest.mark.parametrize(("layer", "seed"), regressions())
def test_a_seed_that_failed_once_passes(layer: str, seed: int) -> None:
    outcome = try_seed(layer, seed)
    assert not outcome.failures, said(layer, outcome)


def traces(hash_seed: str) -> list[str]:
    command = [sys.executable, "-c", DETERMINISM]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, cwd=planted.ROOT, env=env, check=True)
    return done.stdout.splitlines()


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    once = traces("1")
    assert len(once) == 40 * len(LAYERS)
    assert once == traces("2")


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_the_text_that_a_planted_bug_changes_is_in_the_product_once(bug: planted.Bug) -> None:
    assert planted.occurrences(bug) == 1, f"{bug.file} no longer has it once: {bug.old}"


@pytest.mark.timeout(900)  # ninety bugs, each in a process of its own
def test_every_planted_bug_is_found_within_a_thousand_seeds() -> None:
    found = planted.find_all()
    assert [name for name, seed in found.items() if seed is None] == []
