"""How often a step is tried, how long it may take, and the limits of a definition.

Knows how delays grow. Must not know which attempts were made or their results. A delay here has
no jitter; the caller adds it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import msgspec

from holdfast import limits

NAME_CHARS_MAX: Final = 200  # names and ids become parts of paths, which stand in every row of a run
# as many iterations of one foreach may be open at once
CONCURRENCY_MAX: Final = limits.DEFAULTS.concurrency_max
ATTEMPTS_MAX: Final = limits.DEFAULTS.step_attempts_max
TIMEOUT_SECS_MAX: Final = limits.DEFAULTS.timeout_secs_max
DELAY_MS_MAX: Final = 10 * 366 * 86_400_000  # ten years; any instant computed from it is still a timestamp

# Retrying these is pointless (the template, inputs, secret or limit stays the same) or not
# ours to decide (a lost attempt has rules of its own, a run that timed out has finished).
NEVER_RETRIED: Final = frozenset({"lost", "template", "inputs", "secret", "limit", "run_timeout"})


OnCrash = Literal["retry", "fail"]
KeyScope = Literal["workflow", "global"]
OnConflict = Literal["wait", "fail"]
OnNoWorker = Literal["wait", "fail"]


class BackoffKind(StrEnum):
    """How the delay between two attempts grows: not at all, by the same amount each time, or by doubling."""

    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """`max_attempts` counts the first one too. Without `retry_on` every kind of error is retried."""

    max_attempts: int
    backoff: BackoffKind = BackoffKind.EXPONENTIAL
    initial_delay_ms: int = 500
    max_delay_ms: int = 10_000
    jitter: float = 0.0
    retry_on: tuple[str, ...] | None = None

    def next_delay_ms(self, attempt: int) -> int:
        """The wait before an attempt, without jitter. Attempts count from 1, and the first never waits."""
        if attempt <= 1:
            return 0
        return min(self._base_ms(attempt), self.max_delay_ms)

    def _base_ms(self, attempt: int) -> int:
        match self.backoff:
            case BackoffKind.FIXED:
                return self.initial_delay_ms
            case BackoffKind.LINEAR:
                return self.initial_delay_ms * (attempt - 1)
            case BackoffKind.EXPONENTIAL:
                # Past this many doublings one millisecond exceeds the cap. Without the bound, attempt 10⁹
                # would compute a number of a hundred megabytes to throw it away.
                return self.initial_delay_ms << min(attempt - 2, self.max_delay_ms.bit_length())


class StepPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The retry policy of a step; without one, a single attempt without a timeout."""

    timeout_secs: float | None = None
    retry: RetryPolicy | None = None
    on_crash: OnCrash = "retry"
    idempotency_key: str | None = None
    idempotency_scope: KeyScope = "workflow"
    idempotency_ttl_secs: int | None = None
    on_conflict: OnConflict = "wait"
    on_no_worker: OnNoWorker = "wait"

    @property
    def is_empty(self) -> bool:
        return self == NO_POLICY

    def within(self, container: StepPolicy) -> StepPolicy:
        """This policy, completed with the timeout and the retries of the enclosing container."""
        return msgspec.structs.replace(
            self,
            timeout_secs=container.timeout_secs if self.timeout_secs is None else self.timeout_secs,
            retry=container.retry if self.retry is None else self.retry,
        )


NO_POLICY: Final = StepPolicy()
