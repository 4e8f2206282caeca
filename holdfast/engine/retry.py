"""After an attempt failed, timed out or was lost: whether and when to try again.

Knows how attempts are counted. Uses no random numbers: jitter is a hash of the step, attempt and run, so the same decision
made elsewhere gives the same delay.
"""

from __future__ import annotations

import hashlib
from typing import Final

from holdfast import limits
from holdfast.engine.decisions import ArmTimer, ReserveKey, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.state import Step
from holdfast.plan.graph import Call
from holdfast.spec.policy import NEVER_RETRIED, RetryPolicy
from holdfast.values import NULL, Error, Millis

SUSPECT_DELAY_MS: Final = 1_000
SUSPECT_DELAY_MS_MAX: Final = 60_000


def may_retry(policy: RetryPolicy | None, tries: int, kind: str) -> bool:
    if policy is None or tries >= policy.max_attempts or kind in NEVER_RETRIED:
        return False
    return policy.retry_on is None or kind in policy.retry_on


def delay_before(policy: RetryPolicy, tries: int, seed: str) -> int:
    """Return the delay in milliseconds after `tries` failed tries: by the policy, with jitter, at most its maximum."""
    delay = policy.next_delay_ms(tries + 1)
    if not policy.jitter:
        return delay
    spread = 1 + policy.jitter * (2 * fraction_of(seed) - 1)
    return max(0, min(policy.max_delay_ms, round(delay * spread)))


def fraction_of(seed: str) -> float:
    """Return a number in [0, 1) that depends only on the seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64


def again_or_fail(
    draft: Draft, path: str, tries: int, error: Error, *, overlapping: bool = False
) -> Error | None:
    """Decide the next attempt of a step after a failure that counts. Return the error if there is no next attempt."""
    node = draft.plan.node(path)
    assert isinstance(node, Call)
    if not may_retry(node.retry, tries, error.kind):
        return error
    assert node.retry is not None
    delay = delay_before(node.retry, tries, f"{draft.run.id}/{path}/{tries}")
    if delay:
        draft.decisions.append(ArmTimer(path, "retry", Millis(draft.at + delay)))
    else:
        start_again(draft, path, draft.run.steps[path], overlapping=overlapping)
    return None


def begin_again(draft: Draft, path: str, step: Step) -> None:
    """Continue a step: start it, or request again the key that it waits for."""
    if step.reason == "key":
        assert step.key is not None
        draft.decisions.append(ReserveKey(path, step.key.text, step.key.is_global))
    else:
        start_again(draft, path, step)


def start_again(draft: Draft, path: str, step: Step, *, overlapping: bool = False) -> None:
    beside = overlapping or step.overlapping
    draft.decisions.append(StartAttempt(path, step.attempt + 1, NULL, step.keep, beside))


def why_lost_for_good(draft: Draft, path: str, lost_alone: int) -> str:
    """A lost attempt is not a failure. It counts only if the step ran under crash isolation when its process died.

    Suspects start one at a time, so that the next crash identifies its cause, and two power cuts do not fail a healthy step.
    """
    node = draft.plan.node(path)
    assert isinstance(node, Call)
    if node.fails_on_crash:
        return "its process ended while it ran, and it must not be done twice"
    if lost_alone >= limits.now.losses_max:
        return f"its process ended {lost_alone} times while it ran alone ({limits.met('losses_max')})"
    return ""


def delay_suspect(draft: Draft, path: str, lost_alone: int) -> None:
    """Wait between two crashes that the same step may have caused."""
    delay = min(SUSPECT_DELAY_MS * 2 ** (lost_alone - 1), SUSPECT_DELAY_MS_MAX)
    draft.decisions.append(ArmTimer(path, "suspect", Millis(draft.at + delay)))
