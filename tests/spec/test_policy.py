"""Delays have the shape that their policy says, for any attempt."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.spec.policy import BackoffKind, RetryPolicy, StepPolicy
from holdfast.values import WorkflowStatus


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (BackoffKind.FIXED, [0, 500, 500, 500, 500]),
        (BackoffKind.LINEAR, [0, 500, 1000, 1500, 2000]),
        (BackoffKind.EXPONENTIAL, [0, 500, 1000, 2000, 4000]),
    ],
)
def test_delays_grow_as_the_backoff_says(backoff: BackoffKind, delays: list[int]) -> None:
    policy = RetryPolicy(max_attempts=9, backoff=backoff)
    assert [policy.next_delay_ms(attempt) for attempt in range(1, 6)] == delays


def test_the_first_retry_waits_half_a_second_by_default() -> None:
    assert RetryPolicy(max_attempts=3).next_delay_ms(2) == 500


@pytest.mark.parametrize("attempt", [1, 0, -5])
def test_the_first_attempt_never_waits(attempt: int) -> None:
    assert RetryPolicy(max_attempts=3).next_delay_ms(attempt) == 0


@given(
    st.sampled_from(BackoffKind),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.integers(2, 10**18),
)
def test_no_delay_exceeds_the_cap(backoff: BackoffKind, initial: int, cap: int, attempt: int) -> None:
    policy = RetryPolicy(max_attempts=2, backoff=backoff, initial_delay_ms=initial, max_delay_ms=cap)
    assert 0 <= policy.next_delay_ms(attempt) <= cap


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.integers(2, 70))
def test_the_bound_on_doublings_changes_no_delay(initial: int, cap: int, attempt: int) -> None:
    policy = RetryPolicy(max_attempts=2, initial_delay_ms=initial, max_delay_ms=cap)
    assert policy.next_delay_ms(attempt) == min(initial * 2 ** (attempt - 2), cap)


def test_a_huge_attempt_costs_no_time() -> None:
    began = time.thread_time()
    assert RetryPolicy(max_attempts=2).next_delay_ms(10**15) == 10_000
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize("record", [RetryPolicy(max_attempts=2), StepPolicy(timeout_secs=1)])
def test_policies_cannot_be_changed(record: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(record, record.__struct_fields__[0], 5)


@pytest.mark.parametrize(
    ("policy", "empty"),
    [
        (StepPolicy(), True),
        (StepPolicy(timeout_secs=1), False),
        (StepPolicy(retry=RetryPolicy(max_attempts=1)), False),
        (StepPolicy(on_crash="fail"), False),
    ],
)
def test_a_policy_is_empty_when_nothing_was_said(policy: StepPolicy, empty: bool) -> None:
    assert policy.is_empty is empty


def test_each_part_of_a_policy_is_inherited_by_itself() -> None:
    outer = StepPolicy(timeout_secs=9, retry=RetryPolicy(max_attempts=9))
    own = StepPolicy(timeout_secs=1, on_crash="fail")
    assert own.within(outer) == StepPolicy(timeout_secs=1, retry=outer.retry, on_crash="fail")


def test_what_happens_after_a_crash_is_not_inherited() -> None:
    assert StepPolicy().within(StepPolicy(on_crash="fail")).on_crash == "retry"


# ------------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("status", "is_terminal"),
    [
        ("pending", False),
        ("running", False),
        ("completed", True),
        ("failed", True),
        ("cancelled", True),
        ("interrupted", True),
    ],
)
def test_a_state_knows_whether_it_is_the_last(status: str, is_terminal: bool) -> None:
    assert WorkflowStatus(status).value == status
    assert WorkflowStatus(status).is_terminal is is_terminal


@pytest.mark.parametrize("status", ["waiting", "cancelling"])
def test_a_run_that_waits_or_is_being_cancelled_is_running(status: str) -> None:
    assert WorkflowStatus(status) is WorkflowStatus.RUNNING


@pytest.mark.parametrize("status", ["nope", "Running", "", None, 3])
def test_an_unknown_state_is_a_value_error(status: Any) -> None:
    with pytest.raises(ValueError):
        WorkflowStatus(status)


@pytest.mark.parametrize("word", ["nope", "Fixed", ""])
def test_an_unknown_backoff_is_a_value_error(word: str) -> None:
    with pytest.raises(ValueError):
        BackoffKind(word)


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (RetryPolicy(1), "max_attempts"),
        (StepPolicy(), "timeout_secs"),
        (StepPolicy(), "idempotency_key"),
        (WorkflowStatus.RUNNING, "value"),
    ],
)
def test_policies_and_states_cannot_be_changed(record: object, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(record, name, 5)


def test_a_policy_with_a_key_is_not_empty() -> None:
    assert not StepPolicy(idempotency_key="k").is_empty


def test_the_records_are_public() -> None:
    names = ("WorkflowSpec", "WorkflowStep", "StepPolicy", "RetryPolicy", "BackoffKind", "WorkflowStatus")
    assert all(getattr(holdfast, name) for name in names)
