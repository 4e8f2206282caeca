"""Every key of the steps notation: what it may hold, which keys exclude each other, and a sentence about each.

These tables define how definitions are read and the JSON Schema for editors. Knows the keys and their types. Must not know how a
tree of steps is read, or whether a name leads somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.spec.condition import COMPARE_WORDS, OF_STEPS, Expr, condition_from
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.field_types import (
    Anything,
    Arguments,
    Choice,
    Flag,
    Key,
    KeyTemplate,
    Labels,
    ListOf,
    Mapped,
    Nested,
    Schema,
    Seconds,
    Share,
    Table,
    Text,
    TextOrTexts,
    Texts,
    Time,
    Whole,
    object_schema,
    required_in,
)
from holdfast.spec.inputs import WHOLE_WORDS
from holdfast.spec.jsonschema import keywords_schema
from holdfast.spec.patch import drop, replace
from holdfast.spec.policy import (
    ATTEMPTS_MAX,
    CONCURRENCY_MAX,
    DELAY_MS_MAX,
    NAME_CHARS_MAX,
    NEVER_RETRIED,
    TIMEOUT_SECS_MAX,
    BackoffKind,
    RetryPolicy,
)
from holdfast.spec.problems import Fields, quoted
from holdfast.spec.steps import (
    ApproveBody,
    BranchBody,
    Compensation,
    Escalation,
    FinalCallback,
    ForeachBody,
    NestedBody,
    ParallelBody,
    PollBody,
    PollRule,
    Quorum,
    RemoteBody,
    ResultRule,
    ServiceBody,
    TimerBody,
    ToolBody,
    WaitEventBody,
)

# Regular expressions for a text as a whole, in the dialect that Python and JSON Schema share.
TOOL_NAME: Final = "[A-Za-z0-9_-]{1,64}"
# no user and password: it stands in lists and errors
CALLBACK_URL: Final = r"https?://[^\s/?#{}@]+([/?#][^\s{}]*)?"

LIFETIME_SECS_MAX: Final = 10 * TIMEOUT_SECS_MAX  # of a stored output

# ---------------------------------------------------------------------------------- shapes of this notation alone


def steps_of(value: Any) -> Any:
    """The list of steps that a mapping was meant to be: one step, or steps by their ids; or UNKNOWN."""
    if not isinstance(value, dict):
        return UNKNOWN
    if {"id", "tool", "kind", "uses"} & value.keys():
        return [value]
    if not value or not all(isinstance(step, dict | str) for step in value.values()):
        return UNKNOWN
    return [
        {"id": name, **(step if isinstance(step, dict) else {"tool": step})} for name, step in value.items()
    ]


class Steps(NamedTuple):
    """A list of steps, which is left as it is: the tree is read elsewhere."""

    low: int = 0

    def read(self, fields: Fields, key: str) -> list[Any] | None:
        items: list[Any] | None = fields.get(key, list, "a list of steps", steps_of(fields.data.get(key)))
        return items

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": {"$ref": "#/$defs/step"}}
        return schema | ({"minItems": self.low} if self.low else {})


class Branches(NamedTuple):
    """A list of lists of steps."""

    def read(self, fields: Fields, key: str) -> list[Any] | None:
        items: list[Any] | None = fields.get(key, list, "a list of lists of steps")
        return items

    def schema(self) -> Schema:
        return {"type": "array", "items": Steps().schema()}


class Declaration(NamedTuple):
    """The inputs of a run in one of two forms; only a JSON Schema describes the whole object."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        return Mapped().read(fields, key)

    def schema(self) -> Schema:
        whole = [{"required": [key], "properties": {key: {"not": {"type": "object"}}}} for key in WHOLE_WORDS]
        rule = keywords_schema()
        return {
            "type": "object",
            "if": {"type": "object", "anyOf": [{"required": ["properties"]}, *whole]},
            "then": rule,
            "else": {"additionalProperties": {"anyOf": [rule, {"type": "null"}]}},
        }


class Condition(NamedTuple):
    """A condition: a JSONPath, or an operator with its operands."""

    def read(self, fields: Fields, key: str) -> str | Expr | None:
        value, at = fields.data[key], (*fields.at, key)
        if isinstance(value, str):  # whether it is a JSONPath is checked with the other paths
            return value
        return condition_from(value, fields.report, at, fields.who, OF_STEPS)

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/condition"}


def step_condition_schema() -> Schema:
    """A condition as JSON Schema: a JSONPath, true or false, or one operator with its operands."""
    condition: Schema = {"$ref": "#/$defs/condition"}
    many: Schema = {"type": "array", "items": condition}
    two: Schema = {"type": "array", "minItems": 2, "maxItems": 2}
    operands: dict[str, Schema] = {"and": many, "or": many, "not": condition, "exists": _PATH.schema()}
    return operators_schema(operands | dict.fromkeys(COMPARE_WORDS, two), _PATH.schema())


def operators_schema(operands: Mapping[str, Schema], reference: Schema) -> Schema:
    """One of these operators with its operands, a reference by itself, or true or false."""
    return {
        "description": "A condition: one operator with its operands, or a reference to true or false.",
        "anyOf": [
            {
                "type": "object",
                "properties": dict(operands),
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
            reference,
            {"type": "boolean"},
        ],
    }


class Handler(NamedTuple):
    """The kinds of failures that are caught, and the steps that follow: the tree is read elsewhere."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        given = fields.data.get(key)
        near = {"steps": given} if isinstance(given, list) else UNKNOWN
        found: dict[str, Any] | None = fields.get(key, dict, "a mapping with `steps`", near)
        return found

    def schema(self) -> Schema:
        return object_schema(HANDLER_KEYS, {})


class CaughtKinds(NamedTuple):
    """The kinds of errors that are caught: at least one, and not that of a cancelled run."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        kinds, at = Texts("error kind").read(fields, key), (*fields.at, key)
        if kinds == ():
            message = f"{fields.who}kinds is empty, so nothing would be caught"
            fields.report.add("out_of_range", at, message, "name a kind, or leave it out", patch=drop(at))
        for i, kind in enumerate(kinds or ()):
            if kind == "cancelled":
                message = f"{fields.who}a cancelled run is not an error, and is never caught"
                hint = "use `finally` for what must follow a cancel too"
                fields.report.add("invalid_policy", (*at, i), message, hint)
        return kinds

    def schema(self) -> Schema:
        return {"type": "array", "minItems": 1, "items": {"type": "string", "not": {"const": "cancelled"}}}


class ErrorKinds(NamedTuple):
    """The kinds of errors that are retried."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        kinds = Texts("error kind").read(fields, key)
        for i, kind in enumerate(() if kinds is None else fields.data[key]):
            if isinstance(kind, str) and kind in NEVER_RETRIED:
                message = f"{fields.who}errors of kind {quoted(kind)} are never retried"
                at, others = (*fields.at, key), [one for one in kinds or () if one not in NEVER_RETRIED]
                fields.report.add(
                    "invalid_policy",
                    (*at, i),
                    message,
                    "remove it",
                    patch=replace(at, others) if others else drop(at),
                )
        return kinds

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "not": {"enum": sorted(NEVER_RETRIED)}}}


class Backoff(NamedTuple):
    def read(self, fields: Fields, key: str) -> BackoffKind | None:
        found = Choice(tuple(BackoffKind)).read(fields, key)
        return None if found is None else BackoffKind(found)

    def schema(self) -> Schema:
        return {"type": "string", "enum": [kind.value for kind in BackoffKind]}


class Lifetime(NamedTuple):
    """Whole seconds; 0 means no limit, the same as leaving the key out."""

    def read(self, fields: Fields, key: str) -> int | None:
        return Whole(0, LIFETIME_SECS_MAX).read(fields, key) or None

    def schema(self) -> Schema:
        return Whole(0, LIFETIME_SECS_MAX).schema()


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
_first_poll_is_soonest: Final = _ordered("interval_ms", "max_ms")


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


# -------------------------------------------------------------------------------------------------- the tables

_NAME: Final = Text(r"\S", NAME_CHARS_MAX)
_PATH: Final = Text(r"^\$")
_TOOL: Final = Text(f"^{TOOL_NAME}$")

SPEC_KEYS: Final[Table] = {
    "name": Key(_NAME, "The name of the workflow.", required=True),
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

HANDLER_KEYS: Final[Table] = {
    "kinds": Key(CaughtKinds(), "The kinds of errors that are caught. Default: all of them."),
    "steps": Key(Steps(), "The steps that run then.", required=True),
}

STEP_KEYS: Final[Table] = {
    "id": Key(_NAME, "The name of the step, unique in the whole workflow.", required=True),
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
        Steps(), "Steps that follow the end of the step, also if it failed, was cancelled or timed out."
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

_POLL_KEYS: Final[Table] = {
    "interval_ms": Key(Whole(1, DELAY_MS_MAX), "The time before the second poll; it doubles with each poll."),
    "max_ms": Key(Whole(1, DELAY_MS_MAX), "The longest time between two polls."),
}

ANSWER_KEYS: Final[dict[str, Key]] = {
    "result": Key(
        Nested(
            ResultRule,
            {
                "envelope": Key(Flag(), "Whether a response {success: false, error: …} is a failure."),
                "select": Key(_PATH, "The part of the response that becomes the output, as a JSONPath."),
                "parse": Key(Choice(("json",)), "Decode a string as JSON."),
            },
        ),
        "How the response of a call becomes the output of the step.",
    ),
    "pending_ttl_secs": Key(Seconds(), "How long to wait for the callback after the call returned pending."),
    "poll": Key(
        Nested(PollRule, _POLL_KEYS, _first_poll_is_soonest),
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


_ARGS: Final = Key(Arguments(), "The arguments, with placeholders such as {{ inputs.name }}.")
_INPUT: Final = Key(Anything(), "The input of the service, with placeholders.")
_PARAMS: Final = Key(Arguments(), "The parameters of the service, with placeholders.")
CALL_KEYS: Final[dict[str, Key]] = {
    "compensate": Key(
        Nested(
            Compensation,
            {
                "tool": Key(_TOOL, "The tool that undoes the call."),
                "args": _ARGS,
                "service": Key(_NAME, "The service that undoes the call."),
                "input": _INPUT,
                "params": _PARAMS,
                "retry": POLICY_KEYS["retry"],
                "timeout_secs": POLICY_KEYS["timeout_secs"],
            },
            _only_its_own,
        ),
        "The call that undoes this one if the run fails or is cancelled later. {{ output }} is the output of the step.",
    ),
}

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
        {"tool": Key(_TOOL, "The name of the tool.", required=True), "args": _ARGS},
        _CALL,
    ),
    "tool_remote": Kind(
        "Calls a tool on another server.",
        RemoteBody,
        {
            "dcc": Key(_NAME, "The name of the server, from the settings."),
            "server": Key(_NAME, "An alias of `dcc`."),
            "tool": Key(_TOOL, "The name of the tool on that server.", required=True),
            "args": _ARGS,
        },
        _CALL,
        one_of=("dcc", "server"),
        arrange=_with_dcc,
    ),
    "service": Kind(
        "Calls a service that workers provide.",
        ServiceBody,
        {
            "service": Key(_NAME, "The name of the service.", required=True),
            "input": _INPUT,
            "params": _PARAMS,
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
            "items": Key(_PATH, "The list, as a JSONPath: $.list.files", required=True),
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
            "workflow": Key(_NAME, "The name of the workflow.", required=True),
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
            "tool": Key(_TOOL, "The name of the tool to call."),
            "dcc": Key(_NAME, "The name of the server that has the tool."),
            "args": _ARGS,
            "service": Key(_NAME, "The name of the service to call."),
            "input": _INPUT,
            "params": _PARAMS,
            "until": Key(
                _PATH, "The condition that ends the polling, as a JSONPath over the response.", required=True
            ),
            **_POLL_KEYS,
            "timeout_secs": _WAIT,
        },
        frozenset({"retry", "on_crash", "on_no_worker", "result"}),
        one_of=("tool", "service"),
        rule=_first_poll_is_soonest,
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
