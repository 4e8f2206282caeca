"""The kinds of steps: one description for each, with its keys, and which keys tell a kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from holdfast.spec.condition import condition_data
from holdfast.spec.field_types import (
    Anything,
    Choice,
    Flag,
    Holds,
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
    fields_of,
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
from holdfast.spec.step_types import PATH, Branches, Condition, Items, Steps
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
from holdfast.values import canonical


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


CallKind = Literal["tool", "remote", "service"]
Target = tuple[CallKind, str]  # `server/tool` is the name of a remote one


def _no_calls(body: Any) -> tuple[Target, ...]:
    return ()


def _no_subject(body: Any) -> str:
    return ""


class Kind(NamedTuple):
    """The description of a kind of step, which checks, plans, views and the reference page read.

    `keys` are its own keys, and `common` names those of all steps that apply to it. Of the keys in `one_of` at most one may be
    present, and exactly one if `one_of_is_required`. `calls` returns what a step calls, and `subject` what it waits for or
    works on, for outlines.
    """

    says: str
    output: str
    record: type[msgspec.Struct]
    keys: Table
    common: frozenset[str] = frozenset()
    one_of: tuple[str, ...] = ()
    one_of_is_required: bool = True
    arrange: Callable[[dict[str, Any]], Mapping[str, Any]] = dict  # keys as written → fields of the record
    rule: Callable[[Fields, Any], None] | None = None
    calls: Callable[[Any], tuple[Target, ...]] = _no_calls
    subject: Callable[[Any], str] = _no_subject
    asks_person: bool = False

    def values(self, body: msgspec.Struct, *holds: Holds) -> dict[str, Any]:
        """The values of the keys that hold one of these things, by key."""
        names = {key: name for name, key, _ in fields_of(type(body))}
        return {key: getattr(body, names[key]) for key, rule in self.keys.items() if rule.holds in holds}

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


def _tool_called(body: ToolBody) -> tuple[Target, ...]:
    return (("remote" if "/" in body.tool else "tool", body.tool),)


def _remote_called(body: RemoteBody) -> tuple[Target, ...]:
    return (("remote", f"{body.dcc}/{body.tool}"),)


def _service_called(body: ServiceBody) -> tuple[Target, ...]:
    return (("service", body.service),)


def _polled(body: PollBody) -> tuple[Target, ...]:
    if body.service is not None:
        return (("service", body.service),)
    if body.tool is None:
        return ()
    return (("remote", f"{body.dcc}/{body.tool}"),) if body.dcc else (("tool", body.tool),)


def _question(body: BranchBody) -> str:
    return body.on if isinstance(body.on, str) else canonical(condition_data(body.on)).decode()


def _moment(body: TimerBody) -> str:
    return str(body.until if body.delay_ms is None else f"{body.delay_ms} ms")


def _signals(body: WaitEventBody) -> str:
    return ", ".join([body.signal_key] if body.signal_key else body.any_ or body.all_ or ())


_CALL: Final = frozenset({*POLICY_KEYS, *ANSWER_KEYS, *CALL_KEYS})
_CONTAINER: Final = frozenset({"timeout_secs", "retry"})  # the defaults of the call steps inside

KINDS: Final[dict[str, Kind]] = {
    "tool": Kind(
        "Calls a tool.",
        "The return value of the tool.",
        ToolBody,
        {"tool": Key(TOOL, "The name of the tool.", required=True), "args": ARGS},
        _CALL,
        calls=_tool_called,
    ),
    "tool_remote": Kind(
        "Calls a tool on another server.",
        "The return value of the tool.",
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
        calls=_remote_called,
    ),
    "service": Kind(
        "Calls a service that workers provide.",
        "The result that the worker returned.",
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
        calls=_service_called,
    ),
    "foreach": Kind(
        "Runs steps for each item of a list.",
        '`{"iterations": [{step id: output}, …]}` in the order of the items; with `on_any_fail: continue` a failed iteration is `{"error": …}`. With `collect: none`: `{"count", "failed"}`.',
        ForeachBody,
        {
            "items": Key(Items(), "The list, as a JSONPath: $.list.files", required=True, holds="paths"),
            "as": Key(Text(), "The name of the item inside the loop; `item` always works too."),
            "steps": _STEPS_OF_BODY,
            "concurrency": Key(
                Whole(1, CONCURRENCY_MAX, "concurrency_max"), "How many items are processed at the same time."
            ),
            "on_any_fail": _ON_ANY_FAIL,
            "collect": Key(Choice(("outputs", "none")), "Whether outputs are kept, or only counted."),
        },
        _CONTAINER,
        subject=lambda body: body.items,
    ),
    "parallel": Kind(
        "Runs several branches at the same time.",
        '`{"branch_results": ["completed" or "failed", …], "branches": [{"status", "error", "steps": {id: output}}, …]}`',
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
        '`{"condition", "taken"}`: the value of the condition, and `then` or `else`.',
        BranchBody,
        {
            "on": Key(
                Condition(),
                "The condition: a JSONPath such as $.check.passed, or a comparison such as {gt: [$.inputs.total, 100]}.",
                required=True,
                holds="paths",
            ),
            "then": Key(Steps(), "The steps to run if the condition is true: not null, false, 0 or empty."),
            "else": Key(Steps(), "The steps to run otherwise."),
        },
        subject=_question,
    ),
    "workflow": Kind(
        "Runs another workflow inside this one.",
        "The output of the inner workflow: its `output`, or the output of each of its steps by id.",
        NestedBody,
        {
            "workflow": Key(NAME, "The name of the workflow.", required=True),
            "inputs": Key(Mapped(), "Its inputs, with placeholders.", holds="templates"),
        },
        subject=lambda body: body.workflow,
    ),
    "approve": Kind(
        "Waits until a person approves or denies.",
        '`{"approved", "reason", "by", "form"}`',
        ApproveBody,
        {
            "prompt": Key(Text(), "The question, with placeholders.", holds="templates"),
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
        subject=lambda body: body.prompt,
        asks_person=True,
    ),
    "timer": Kind(
        "Waits for a duration, or until a point in time.",
        '`{"fired_at"}`',
        TimerBody,
        {
            "delay_ms": Key(
                Time(DELAY_MS_MAX), "How long to wait: milliseconds, or a template.", holds="templates"
            ),
            "until": Key(
                Time(2**53),
                "The time to wait for: 2026-01-31T09:00:00Z, a number since 1970, or a template.",
                holds="templates",
            ),
        },
        one_of=("delay_ms", "until"),
        subject=_moment,
    ),
    "wait_event": Kind(
        "Waits for signals.",
        "The value of the signal, or `{key: value}` for `any` and `all`.",
        WaitEventBody,
        {
            "signal_key": Key(Text(), "The name of the signal; the output is its value.", holds="templates"),
            "any": Key(Texts("signal"), "Signals of which one is sufficient.", holds="templates"),
            "all": Key(Texts("signal"), "Signals that must all arrive.", holds="templates"),
            "correlation": Key(
                Anything(),
                "The correlation value that the signal must have, with placeholders.",
                holds="templates",
            ),
            "timeout_secs": _WAIT,
        },
        one_of=("signal_key", "any", "all"),
        subject=_signals,
    ),
    "poll": Kind(
        "Repeats a call until a condition on its response is true.",
        "The last response.",
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
        calls=_polled,
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
