"""What follows a failed attempt: the exact delay of every back-off, its cap, jitter, and what is never tried again."""

from __future__ import annotations

import pytest

from holdfast.engine.retry import delay_before
from holdfast.spec.policy import NEVER_RETRIED, BackoffKind, RetryPolicy
from tests.engine.driver import BEGAN, Case, armed, finish, starts


def one(retry: str) -> Case:
    case = Case(f"name: n\nsteps: [{{id: a, tool: t, retry: {{{retry}}}}}]")
    case.start()
    return case


def delays(retry: str, failures: int) -> list[int]:
    """The delays of a step that fails again and again; each next attempt starts when its time has come."""
    case = one(retry)
    found = []
    for _ in range(failures):
        failed_at = case.now
        decisions = case.fail("a")
        found.append(0 if starts(decisions) else armed(decisions)["retry a"] - failed_at)
        if not starts(decisions):
            assert starts(case.fire("retry", "a")) == ["a"]
    return found


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        ("max_attempts: 5", [500, 1000, 2000, 4000]),  # exponential from 500 ms is the default
        ("max_attempts: 8", [500, 1000, 2000, 4000, 8000, 10_000, 10_000]),  # 16 s would be next: capped
        ("max_attempts: 4, backoff: fixed, initial_delay_ms: 70", [70, 70, 70]),
        ("max_attempts: 5, backoff: linear, initial_delay_ms: 70", [70, 140, 210, 280]),
        ("max_attempts: 5, backoff: linear, initial_delay_ms: 70, max_delay_ms: 150", [70, 140, 150, 150]),
        ("max_attempts: 4, initial_delay_ms: 3, max_delay_ms: 7", [3, 6, 7]),
        ("max_attempts: 3, initial_delay_ms: 0", [0, 0]),  # no wait: the next attempt is in the same row
        ("max_attempts: 3, initial_delay_ms: 0, max_delay_ms: 0", [0, 0]),
    ],
)
def test_delays_follow_the_back_off_up_to_its_cap(retry: str, expected: list[int]) -> None:
    assert delays(retry, len(expected)) == expected


def test_a_step_without_retry_fails_at_its_first_failure() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t}]")
    case.start()
    assert finish(case.fail("a")).status == "failed"


@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_max_attempts_counts_the_first_attempt_too(allowed: int) -> None:
    case = one(f"max_attempts: {allowed}")
    for _ in range(allowed - 1):
        case.fail("a")
        case.fire("retry", "a")
    error = finish(case.fail("a", message="the last one")).error
    assert error is not None and (error.attempt, error.message) == (allowed, "the last one")


def test_attempts_are_numbered_without_gap_or_reuse() -> None:
    case = one("max_attempts: 4, initial_delay_ms: 0")
    numbers = [case.step("a").attempt]
    for _ in range(3):
        case.fail("a")
        numbers.append(case.step("a").attempt)
    assert numbers == [1, 2, 3, 4]


def test_a_success_on_the_last_attempt_is_a_success() -> None:
    case = one("max_attempts: 2")
    case.fail("a")
    case.fire("retry", "a")
    assert finish(case.succeed("a", "done")).status == "completed"


@pytest.mark.parametrize(
    ("retry_on", "kind", "again"),
    [
        ("", "error", True),  # nothing said: all kinds
        ("", "my_own", True),
        ("retry_on: [transient, timeout]", "transient", True),
        ("retry_on: [transient, timeout]", "timeout", True),
        ("retry_on: [transient, timeout]", "error", False),
        ("retry_on: []", "transient", False),  # an empty list is none
        ("retry_on: [output_too_large]", "output_too_large", True),
    ],
)
def test_retry_on_chooses_the_kinds(retry_on: str, kind: str, again: bool) -> None:
    case = one(f"max_attempts: 2, {retry_on}".rstrip(", "))
    assert ("retry a" in armed(case.fail("a", kind))) is again


@pytest.mark.parametrize("kind", sorted(NEVER_RETRIED))
def test_kinds_that_say_it_is_pointless_are_never_retried(kind: str) -> None:
    assert finish(one("max_attempts: 5").fail("a", kind)).status == "failed"


def test_the_kinds_that_are_never_retried_are_these() -> None:
    named = {"lost", "template", "inputs", "secret", "limit", "run_timeout"}
    assert named == NEVER_RETRIED


def test_a_step_that_waits_for_its_next_attempt_leaves_the_run_waiting() -> None:
    case = one("max_attempts: 2")
    case.fail("a")
    assert (case.run.status, case.step("a").state, case.run.wake_at) == ("waiting", "retrying", BEGAN + 500)


def test_later_attempts_repeat_no_inputs() -> None:
    case = Case(
        "name: n\nsteps: [{id: a, tool: t, args: {x: '{{ inputs.x }}'}, retry: {max_attempts: 2}}]",
        {"x": "zebra"},
    )
    case.start()
    case.fail("a")
    case.fire("retry", "a")
    assert "zebra" not in case.rows[-1][4]
    assert case.args("a") == {"x": "zebra"}


# ------------------------------------------------------------------------------------------------------- jitter

JITTERED = RetryPolicy(max_attempts=50, initial_delay_ms=400, max_delay_ms=1_000, jitter=0.5)


@pytest.mark.parametrize("tries", range(1, 20))
def test_a_jittered_delay_stays_between_nothing_and_the_cap(tries: int) -> None:
    plain = JITTERED.next_delay_ms(tries + 1)
    for seed in range(200):
        delay = delay_before(JITTERED, tries, f"run/{seed}/{tries}")
        assert 0 <= delay <= 1_000
        assert plain * 0.5 - 1 <= delay <= plain * 1.5 + 1


def test_a_jittered_delay_is_the_same_whenever_it_is_asked_for() -> None:
    first = [delay_before(JITTERED, 1, f"r/{n}") for n in range(50)]
    assert first == [delay_before(JITTERED, 1, f"r/{n}") for n in range(50)]


def test_jitter_spreads_the_delays_of_different_steps() -> None:
    assert len({delay_before(JITTERED, 1, f"r/{n}") for n in range(100)}) > 50


def test_jitter_differs_by_run_and_by_attempt() -> None:
    retry = "max_attempts: 9, backoff: fixed, initial_delay_ms: 5000, jitter: 1.0"
    mine, again = delays(retry, 4), delays(retry, 4)
    assert mine == again
    assert len(set(mine)) > 1


def test_full_jitter_may_reach_down_to_nothing_but_not_below() -> None:
    policy = RetryPolicy(
        max_attempts=3, backoff=BackoffKind.FIXED, initial_delay_ms=10, max_delay_ms=10, jitter=1.0
    )
    found = {delay_before(policy, 1, str(seed)) for seed in range(2_000)}
    assert min(found) == 0 and max(found) == 10


def test_the_policy_itself_never_jitters() -> None:
    assert JITTERED.next_delay_ms(2) == 400


# -------------------------------------------------------------------------------------- policies of containers


def test_a_policy_on_a_container_is_the_default_of_each_call_inside() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: p
            kind: parallel
            retry: {max_attempts: 2, initial_delay_ms: 0}
            steps:
              - {id: a, tool: t}
              - {id: b, tool: t, retry: {max_attempts: 1}}
        """
    )
    case.start()
    assert starts(case.fail("p[0].a")) == ["p[0].a"]
    assert starts(case.fail("p[1].b")) == []
