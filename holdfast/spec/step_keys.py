"""Every key of the steps notation: what it may hold, which keys exclude each other, and a sentence about each.

These tables define how definitions are read and the JSON Schema for editors. Knows the keys and their types. Must not know how a
tree of steps is read, or whether a name leads somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.spec.field_types import (
    Anything,
    Arguments,
    Choice,
    Flag,
    Key,
    KeyTemplate,
    Labels,
    ListOf,
    Nested,
    Seconds,
    Share,
    Table,
    Text,
    Whole,
)
from holdfast.spec.patch import drop
from holdfast.spec.policy import ATTEMPTS_MAX, DELAY_MS_MAX, NAME_CHARS_MAX, RetryPolicy
from holdfast.spec.problems import Fields
from holdfast.spec.step_types import (
    PATH,
    Backoff,
    Condition,
    Declaration,
    ErrorKinds,
    Handler,
    Lifetime,
    Steps,
)
from holdfast.spec.steps import Compensation, FinalCallback, PollRule, ResultRule

# Regular expressions for a text as a whole, in the dialect that Python and JSON Schema share.
TOOL_NAME: Final = "[A-Za-z0-9_-]{1,64}"
# no user and password: it stands in lists and errors
CALLBACK_URL: Final = r"https?://[^\s/?#{}@]+([/?#][^\s{}]*)?"


# --------------------------------------------------------------------------------------- what keys say together


def _ordered(first: str, last: str) -> Callable[[Fields, Any], None]:
    """The rule that one number must not be larger than another, by the names of their keys."""

    def rule(fields: Fields, record: Any) -> None:
        small, large = getattr(record, first), getattr(record, last)
        if small > large:
            key = last if last in fields.data else first
            message = f"{first} ({small}) exceeds {last} ({large})"
            near = small if key == last else large
            fields.wrong(
                "invalid_policy", key, message, "set both, the first no larger than the second", near
            )

    return rule


_first_delay_is_shortest: Final = _ordered("initial_delay_ms", "max_delay_ms")
first_poll_is_soonest: Final = _ordered("interval_ms", "max_ms")


# -------------------------------------------------------------------------------------------------- the tables

NAME: Final = Text(r"\S", NAME_CHARS_MAX)
TOOL: Final = Text(f"^{TOOL_NAME}$")

SPEC_KEYS: Final[Table] = {
    "name": Key(NAME, "The name of the workflow.", required=True),
    "description": Key(Text(), "The purpose of the workflow."),
    "inputs": Key(
        Declaration(),
        "The inputs of a run: name → {type, default, description, …}, or a JSON Schema of the whole object. "
        "An input without a default is required.",
    ),
    "steps": Key(Steps(low=1), "The steps, executed one after another.", required=True),
    "on_error": Key(
        Handler(),
        "Steps that follow a failure of the run: {kinds, steps}. The run then completes with the output of the last one.",
    ),
    "finally": Key(Steps(), "Steps that follow the end of the run, however it ends."),
    "output": Key(
        Anything(), "The output of a run, with placeholders. Default: the output of each step by its id."
    ),
    "on_restart": Key(
        Choice(("resume", "interrupt")), "Whether open runs continue after a restart, or end as interrupted."
    ),
    "timeout_secs": Key(Seconds(), "How long the whole run may take, including the time it waits."),
    "labels": Key(Labels(), "Labels for finding runs: name → value."),
    "on_complete": Key(
        ListOf(
            FinalCallback,
            {
                "url": Key(Text(f"^{CALLBACK_URL}$"), "The URL that is called.", required=True),
                "secret_env": Key(Text(), "The name of the secret that signs the request."),
            },
        ),
        "URLs that are called when a run ends.",
    ),
}


STEP_KEYS: Final[Table] = {
    "id": Key(NAME, "The name of the step, unique in the whole workflow.", required=True),
    "kind": Key(Text(), "The kind of the step. Not needed if `tool`, `service` or `workflow` is given."),
    "description": Key(Text(), "The purpose of the step."),
    "when": Key(
        Condition(),
        "The step runs only if this condition is true; otherwise it is skipped, and its output is null.",
    ),
    "on_error": Key(
        Handler(),
        "Steps that follow a failure, after all retries: {kinds, steps}. They see `error`; the output of the last one becomes the output of the step.",
    ),
    "finally": Key(
        Steps(), "Steps to run after the step has ended, also if it failed, was cancelled or timed out."
    ),
}

HANDLING_KEYS: Final[Table] = {key: STEP_KEYS[key] for key in ("when", "on_error", "finally")}

POLICY_KEYS: Final[dict[str, Key]] = {
    "timeout_secs": Key(
        Seconds(), "How long an attempt may take. On a foreach or parallel: the default for the calls inside."
    ),
    "retry": Key(
        Nested(
            RetryPolicy,
            {
                "max_attempts": Key(
                    Whole(1, ATTEMPTS_MAX, "step_attempts_max"),
                    "The total number of attempts; 1 means no retry.",
                    required=True,
                ),
                "backoff": Key(Backoff(), "How the delay grows from one attempt to the next."),
                "initial_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The delay before the second attempt."),
                "max_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The longest delay."),
                "jitter": Key(
                    Share(), "The fraction of the delay, from 0 to 1, by which it varies at random."
                ),
                "retry_on": Key(ErrorKinds(), "The kinds of errors that are retried. Default: all of them."),
            },
            _first_delay_is_shortest,
        ),
        "How failed attempts are retried. On a foreach or parallel: the default for the calls inside.",
    ),
    "on_crash": Key(
        Choice(("retry", "fail")),
        "What happens to a call that was in progress when the process ended: it is made again, or the step fails (at most once).",
    ),
    "idempotency_key": Key(
        KeyTemplate(),
        "A string with placeholders. If an output is already stored under this key, it is used and the call is not made.",
    ),
    "idempotency_scope": Key(
        Choice(("workflow", "global")),
        "Whether the key is valid within its run, or in all runs of all workflows.",
    ),
    "idempotency_ttl_secs": Key(Lifetime(), "How long a stored output is used; 0 means forever."),
    "on_conflict": Key(
        Choice(("wait", "fail")),
        "What to do while another call with the same key is in progress: wait for it, or fail.",
    ),
    "on_no_worker": Key(
        Choice(("wait", "fail")),
        "What to do while no worker serves the service: wait for one until timeout_secs or the end of the run, or fail.",
    ),
}

POLL_KEYS: Final[Table] = {
    "interval_ms": Key(Whole(1, DELAY_MS_MAX), "The time before the second poll; it doubles with each poll."),
    "max_ms": Key(Whole(1, DELAY_MS_MAX), "The longest time between two polls."),
}

ANSWER_KEYS: Final[dict[str, Key]] = {
    "result": Key(
        Nested(
            ResultRule,
            {
                "envelope": Key(Flag(), "Whether a response {success: false, error: …} is a failure."),
                "select": Key(PATH, "The part of the response that becomes the output, as a JSONPath."),
                "parse": Key(Choice(("json",)), "Decode a string as JSON."),
            },
        ),
        "How the response of a call becomes the output of the step.",
    ),
    "pending_ttl_secs": Key(Seconds(), "How long to wait for the callback after the call returned pending."),
    "poll": Key(
        Nested(PollRule, POLL_KEYS, first_poll_is_soonest),
        "How often the result of a pending call is polled.",
    ),
    "supports_async_callback": Key(
        Flag(), "Whether the call gets a callback_url to which it can send its result."
    ),
}


def _only_its_own(fields: Fields, call: Compensation) -> None:
    """The keys of a compensation belong to a tool or to a service."""
    given = [key for key in ("tool", "service") if fields.data.get(key) is not None]
    if len(given) != 1:
        word, code = ("missing", "missing_key") if not given else ("given twice", "exclusive_keys")
        fields.wrong(code, given[1] if given else "tool", f"the call is {word}", "name a tool or a service")
        return
    for key in ("input", "params") if given == ["tool"] else ("args",):
        if fields.data.get(key) is not None:
            at = (*fields.at, key)
            message = f"{fields.who}{key} has no effect with {given[0]}"
            fields.report.add("exclusive_keys", at, message, "remove it", of_key=True, patch=drop(at))


ARGS: Final = Key(
    Arguments(), "The arguments, with placeholders such as {{ inputs.name }}.", holds="arguments"
)
INPUT: Final = Key(Anything(), "The input of the service, with placeholders.", holds="arguments")
PARAMS: Final = Key(Arguments(), "The parameters of the service, with placeholders.", holds="arguments")
CALL_KEYS: Final[dict[str, Key]] = {
    "compensate": Key(
        Nested(
            Compensation,
            {
                "tool": Key(TOOL, "The tool that undoes the call."),
                "args": ARGS,
                "service": Key(NAME, "The service that undoes the call."),
                "input": INPUT,
                "params": PARAMS,
                "retry": POLICY_KEYS["retry"],
                "timeout_secs": POLICY_KEYS["timeout_secs"],
            },
            _only_its_own,
        ),
        "The call that undoes this one if the run fails or is cancelled later. {{ output }} is the output of the step.",
    ),
}
