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
from tests.sim.suspended import suspend_reads

# Always the same seeds, however fast the machine is; where a class of fault has not happened by then, more of them until it
# has. `make test-long` and `python -m tests.sim --layer world --seeds 500:5000 --jobs 2` try others.
SEEDS = {
    "pure": 500, "pure-woven": 375, "pure-graph": 500, "pure-recover": 375, "races": 750, "world": 90, "world-woven": 75,
    "world-graph": 125, "world-recover": 65, "world-waits": 50, "world-schedules": 8,
}  # fmt: skip
MORE = 20  # times as many seeds at most, until every class of fault has happened, and in `make test-long`
TRACED = {"world-schedules": 2}  # the others are quick: six seeds
DETERMINISM = f"""
import hashlib
TRACED = {TRACED}
from tests.sim.campaign import LAYERS
for layer in sorted(LAYERS):
    for seed in range(TRACED.get(layer, 6)):
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


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_in_a_campaign_every_class_of_fault_happens_and_no_promise_is_broken(layer: str) -> None:
    first = SEEDS[layer]
    outcome = run_campaign(layer, range(first))
    for seed in range(first, MORE * first):
        if outcome.failures or not never_happened(layer, outcome.counts):
            break
        outcome.add(try_seed(layer, seed))
    assert not outcome.failures, said(layer, outcome)
    assert not never_happened(layer, outcome.counts), f"{outcome.seeds} seeds"


@pytest.mark.long
@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_in_a_campaign_of_other_seeds_no_promise_is_broken(layer: str) -> None:
    outcome = run_campaign(layer, range(SEEDS[layer], MORE * SEEDS[layer]))
    assert not outcome.failures, said(layer, outcome)


def test_every_fault_that_a_seed_can_switch_off_has_a_counter() -> None:
    assert all(len(names) > 20 and len(set(names)) == len(names) for names in MUST_HAPPEN.values())


@pytest.mark.parametrize(("layer", "seed", "reads"), regressions())
def test_a_seed_that_failed_once_passes(
    layer: str, seed: int, reads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reads is not None:
        suspend_reads(monkeypatch, reads)
    outcome = try_seed(layer, seed)
    assert not outcome.failures, said(layer, outcome)


def traces(hash_seed: str) -> list[str]:
    command = [sys.executable, "-c", DETERMINISM]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, cwd=planted.ROOT, env=env, check=True)
    return done.stdout.splitlines()


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    once = traces("1")
    assert len(once) == sum(TRACED.get(layer, 6) for layer in LAYERS)
    assert once == traces("2")


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_the_text_that_a_planted_bug_changes_is_in_the_product_once(bug: planted.Bug) -> None:
    assert planted.occurrences(bug) == 1, f"{bug.file} no longer has it once: {bug.old}"


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_within_a_thousand_seeds(bug: planted.Bug) -> None:
    assert next(planted.find(bug), None) is not None
