"""The kinds of steps: one entry for each, with its keys, and which keys tell a kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.spec.field_types import (
    Anything,
    Choice,
    Flag,
    Key,
    Mapped,
    Nested,
    Seconds,
    Table,
    Text,
    TextOrTexts,
    Texts,
    Time,
    Whole,
    required_in,
)
from holdfast.spec.patch import drop
from holdfast.spec.policy import ATTEMPTS_MAX, CONCURRENCY_MAX, DELAY_MS_MAX
from holdfast.spec.problems import Fields
from holdfast.spec.step_keys import (
    ANSWER_KEYS,
    ARGS,
    CALL_KEYS,
    INPUT,
    NAME,
    PARAMS,
    POLICY_KEYS,
    POLL_KEYS,
    TOOL,
    first_poll_is_soonest,
)
from holdfast.spec.step_types import PATH, Branches, Condition, Steps
from holdfast.spec.steps import (
    ApproveBody,
    BranchBody,
    Escalation,
    ForeachBody,
    NestedBody,
    ParallelBody,
    PollBody,
    Quorum,
    RemoteBody,
    ServiceBody,
    TimerBody,
    ToolBody,
    WaitEventBody,
)


def _quorum_can_be_met(fields: Fields, quorum: Quorum) -> None:
    names = len(set(quorum.of or ()))  # each counts once
    if "of" in fields.data and fields.data["of"] is not None and not names:
        fields.wrong(
            "invalid_policy",
            "of",
            "of is empty, so the step could never be approved",
            "list the approvers, or leave it out",
            patch=drop((*fields.at, "of")),
        )
    if names and quorum.need > names:
        message = f"need ({quorum.need}) exceeds the number of names in of ({names})"
        fields.wrong("invalid_policy", "need", message, "list more names, or lower need", names)


_STEPS_OF_BODY: Final = Key(Steps(), "The steps inside.")
_ON_ANY_FAIL: Final = Key(
    Choice(("abort", "continue")),
    "Whether the first failure stops the other items, or all items run to their end.",
)
_WAIT: Final = Key(Seconds(), "How long to wait.")


class Kind(NamedTuple):
    """The keys that a kind of step accepts: its own, and the common ones that apply to it.

    Of the keys in `one_of` at most one may be present, and exactly one if `one_of_is_required`.
    """

    says: str
    record: type[msgspec.Struct]
    keys: Table
    common: frozenset[str] = frozenset()
    one_of: tuple[str, ...] = ()
    one_of_is_required: bool = True
    arrange: Callable[[dict[str, Any]], Mapping[str, Any]] = dict  # keys as written → fields of the record
    rule: Callable[[Fields, Any], None] | None = None

    def is_identified_by(self, keys: Collection[str]) -> bool:
        """Whether these keys clearly identify this kind."""
        required = required_in(self.keys)
        return bool(required) and set(required) <= set(keys)


def _with_dcc(found: dict[str, Any]) -> dict[str, Any]:
    server = found.pop("server", "")
    return {"dcc": server} | found


def _with_branches(found: dict[str, Any]) -> dict[str, Any]:
    steps = found.pop("steps", None)
    if "branches" in found:
        return found | {"form": "branches"}
    return found | {"branches": tuple((step,) for step in steps or ())}


_CALL: Final = frozenset({*POLICY_KEYS, *ANSWER_KEYS, *CALL_KEYS})
_CONTAINER: Final = frozenset({"timeout_secs", "retry"})  # the defaults of the call steps inside

KINDS: Final[dict[str, Kind]] = {
    "tool": Kind(
        "Calls a tool.",
        ToolBody,
        {"tool": Key(TOOL, "The name of the tool.", required=True), "args": ARGS},
        _CALL,
    ),
    "tool_remote": Kind(
        "Calls a tool on another server.",
        RemoteBody,
        {
            "dcc": Key(NAME, "The name of the server, from the settings."),
            "server": Key(NAME, "An alias of `dcc`."),
            "tool": Key(TOOL, "The name of the tool on that server.", required=True),
            "args": ARGS,
        },
        _CALL,
        one_of=("dcc", "server"),
        arrange=_with_dcc,
    ),
    "service": Kind(
        "Calls a service that workers provide.",
        ServiceBody,
        {
            "service": Key(NAME, "The name of the service.", required=True),
            "input": INPUT,
            "params": PARAMS,
            "max_attempts": Key(
                Whole(0, ATTEMPTS_MAX, "step_attempts_max"),
                "How many workers are tried; 0 means all.",
            ),
            "attempt_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The delay before the next worker is tried."),
            "weighted_by_load": Key(Flag(), "Whether the least busy worker is tried first."),
        },
        _CALL,
    ),
    "foreach": Kind(
        "Runs steps for each item of a list.",
        ForeachBody,
        {
            "items": Key(PATH, "The list, as a JSONPath: $.list.files", required=True),
            "as": Key(Text(), "The name of the item inside the loop; `item` always works too."),
            "steps": _STEPS_OF_BODY,
            "concurrency": Key(
                Whole(1, CONCURRENCY_MAX, "concurrency_max"), "How many items are processed at the same time."
            ),
            "on_any_fail": _ON_ANY_FAIL,
            "collect": Key(Choice(("outputs", "none")), "Whether outputs are kept, or only counted."),
        },
        _CONTAINER,
    ),
    "parallel": Kind(
        "Runs several branches at the same time.",
        ParallelBody,
        {
            "steps": Key(Steps(), "The branches, one step each."),
            "branches": Key(Branches(), "The branches, each a list of steps."),
            "on_any_fail": _ON_ANY_FAIL,
        },
        _CONTAINER,
        one_of=("steps", "branches"),
        one_of_is_required=False,
        arrange=_with_branches,
    ),
    "branch": Kind(
        "Runs one of two lists of steps.",
        BranchBody,
        {
            "on": Key(
                Condition(),
                "The condition: a JSONPath such as $.check.passed, or a comparison such as {gt: [$.inputs.total, 100]}.",
                required=True,
            ),
            "then": Key(Steps(), "The steps to run if the condition is true: not null, false, 0 or empty."),
            "else": Key(Steps(), "The steps to run otherwise."),
        },
    ),
    "workflow": Kind(
        "Runs another workflow inside this one.",
        NestedBody,
        {
            "workflow": Key(NAME, "The name of the workflow.", required=True),
            "inputs": Key(Mapped(), "Its inputs, with placeholders."),
        },
    ),
    "approve": Kind(
        "Waits until a person approves or denies.",
        ApproveBody,
        {
            "prompt": Key(Text(), "The question, with placeholders."),
            "timeout_secs": _WAIT,
            "form": Key(Mapped(), "The JSON Schema of the form that the approver fills in."),
            "quorum": Key(
                Nested(
                    Quorum,
                    {
                        "need": Key(Whole(1, 1_000), "How many must approve.", required=True),
                        "of": Key(Texts("name"), "The people who may answer."),
                    },
                    _quorum_can_be_met,
                ),
                "How many approvals are needed.",
            ),
            "escalate": Key(
                Nested(
                    Escalation,
                    {
                        "after_secs": Key(Seconds(), "The time after which it escalates.", required=True),
                        "to": Key(
                            TextOrTexts("name"),
                            "The people who may then answer too: a name, or a list of names.",
                            required=True,
                        ),
                    },
                ),
                "Who may also answer if no decision is made in time.",
            ),
        },
    ),
    "timer": Kind(
        "Waits for a duration, or until a point in time.",
        TimerBody,
        {
            "delay_ms": Key(Time(DELAY_MS_MAX), "How long to wait: milliseconds, or a template."),
            "until": Key(
                Time(2**53),
                "The time to wait for: 2026-01-31T09:00:00Z, a number since 1970, or a template.",
            ),
        },
        one_of=("delay_ms", "until"),
    ),
    "wait_event": Kind(
        "Waits for signals.",
        WaitEventBody,
        {
            "signal_key": Key(Text(), "The name of the signal; the output is its value."),
            "any": Key(Texts("signal"), "Signals of which one is sufficient."),
            "all": Key(Texts("signal"), "Signals that must all arrive."),
            "correlation": Key(
                Anything(), "The correlation value that the signal must have, with placeholders."
            ),
            "timeout_secs": _WAIT,
        },
        one_of=("signal_key", "any", "all"),
    ),
    "poll": Kind(
        "Repeats a call until a condition on its response is true.",
        PollBody,
        {
            "tool": Key(TOOL, "The name of the tool to call."),
            "dcc": Key(NAME, "The name of the server that has the tool."),
            "args": ARGS,
            "service": Key(NAME, "The name of the service to call."),
            "input": INPUT,
            "params": PARAMS,
            "until": Key(
                PATH, "The condition that ends the polling, as a JSONPath over the response.", required=True
            ),
            **POLL_KEYS,
            "timeout_secs": _WAIT,
        },
        frozenset({"retry", "on_crash", "on_no_worker", "result"}),
        one_of=("tool", "service"),
        rule=first_poll_is_soonest,
    ),
}


# The keys that identify a kind: the first key, with any of the rest. The first kind that matches is used.
IMPLIED_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "workflow": ("workflow",),
    "service": ("service",),
    "tool_remote": ("tool", "dcc", "server"),
    "tool": ("tool",),
}


def implied_kind(keys: Collection[str]) -> str | None:
    """The kind of a step that has no `kind` key."""
    for kind, (first, *others) in IMPLIED_KINDS.items():
        if first in keys and (not others or any(other in keys for other in others)):
            return kind
    return None
