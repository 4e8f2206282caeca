"""Every key of the steps notation: what it may hold, which keys exclude each other, and a sentence about each.

These tables are what definitions are read by, and what an editor is told. Knows what can be said. Must not know how a
tree of steps is read, or whether a name leads somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

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
    required_in,
)
from holdfast.spec.inputs import WHOLE_WORDS
from holdfast.spec.jsonschema import keywords_schema
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
CALLBACK_URL: Final = (
    r"https?://[^\s/?#{}@]+([/?#][^\s{}]*)?"  # no user and password: it stands in lists and errors
)

LIFETIME_SECS_MAX: Final = 10 * TIMEOUT_SECS_MAX  # of a stored output

# ---------------------------------------------------------------------------------- shapes of this notation alone


class Steps(NamedTuple):
    """A list of steps, which is left as it is: the tree is read elsewhere."""

    low: int = 0

    def read(self, fields: Fields, key: str) -> list[Any] | None:
        items: list[Any] | None = fields.get(key, list, "a list of steps")
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
    """What a run is given: one of two forms, of which a JSON Schema is the one that says something of the whole."""

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


class ErrorKinds(NamedTuple):
    """The kinds of errors that are retried."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        kinds = Texts("error kind").read(fields, key)
        for i, kind in enumerate(() if kinds is None else fields.data[key]):
            if isinstance(kind, str) and kind in NEVER_RETRIED:
                message = f"{fields.who}errors of kind {quoted(kind)} are never retried"
                fields.report.add("invalid_policy", (*fields.at, key, i), message, "remove it")
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
    """Whole seconds; 0 means for ever, as if nothing had been said."""

    def read(self, fields: Fields, key: str) -> int | None:
        return Whole(0, LIFETIME_SECS_MAX).read(fields, key) or None

    def schema(self) -> Schema:
        return Whole(0, LIFETIME_SECS_MAX).schema()


# --------------------------------------------------------------------------------------- what keys say together


def _ordered(first: str, last: str) -> Callable[[Fields, Any], None]:
    """The rule that one number is no larger than another, by the names of their keys."""

    def rule(fields: Fields, record: Any) -> None:
        small, large = getattr(record, first), getattr(record, last)
        if small > large:
            key = last if last in fields.data else first
            message = f"{first} ({small}) exceeds {last} ({large})"
            fields.wrong("invalid_policy", key, message, "give both, the first no larger than the second")

    return rule


_first_delay_is_shortest: Final = _ordered("initial_delay_ms", "max_delay_ms")
_first_look_is_soonest: Final = _ordered("interval_ms", "max_ms")


def _quorum_can_be_met(fields: Fields, quorum: Quorum) -> None:
    names = len(set(quorum.of or ()))  # each counts once
    if "of" in fields.data and fields.data["of"] is not None and not names:
        fields.wrong(
            "invalid_policy", "of", "of is empty, so that no one may approve", "name who may, or leave it out"
        )
    if names and quorum.need > names:
        message = f"need ({quorum.need}) exceeds the number of names in of ({names})"
        fields.wrong("invalid_policy", "need", message, "name more, or need fewer")


# -------------------------------------------------------------------------------------------------- the tables

_NAME: Final = Text(r"\S", NAME_CHARS_MAX)
_PATH: Final = Text(r"^\$")
_TOOL: Final = Text(f"^{TOOL_NAME}$")

SPEC_KEYS: Final[Table] = {
    "name": Key(_NAME, "The name of the workflow.", required=True),
    "description": Key(Text(), "What the workflow is for."),
    "inputs": Key(
        Declaration(),
        "What a run is given: name → {type, default, description, …}, or a JSON Schema of the whole object. "
        "An input without a default is required.",
    ),
    "steps": Key(Steps(low=1), "What is done, one after another.", required=True),
    "output": Key(
        Anything(), "The output of a run, with placeholders. Left out: the output of each step by its id."
    ),
    "on_restart": Key(
        Choice(("resume", "interrupt")), "Whether open runs go on after a restart, or end as interrupted."
    ),
    "timeout_secs": Key(Seconds(), "How long a whole run may take, waiting included."),
    "labels": Key(Labels(), "Words by which runs are found: name → text."),
    "on_complete": Key(
        ListOf(
            FinalCallback,
            {
                "url": Key(Text(f"^{CALLBACK_URL}$"), "The address that is called.", required=True),
                "secret_env": Key(Text(), "The environment variable that holds the key of the signature."),
            },
        ),
        "Whom to tell how a run ended.",
    ),
}

STEP_KEYS: Final[Table] = {
    "id": Key(_NAME, "The name of the step, unique in the whole workflow.", required=True),
    "kind": Key(Text(), "What the step does. Left out where `tool`, `service` or `workflow` says it."),
    "description": Key(Text(), "What the step is for."),
}

POLICY_KEYS: Final[dict[str, Key]] = {
    "timeout_secs": Key(
        Seconds(), "How long an attempt may take. On a foreach or parallel: the default of the calls inside."
    ),
    "retry": Key(
        Nested(
            RetryPolicy,
            {
                "max_attempts": Key(
                    Whole(1, ATTEMPTS_MAX, "step_attempts_max"),
                    "How often it is tried in all; 1 means once.",
                    required=True,
                ),
                "backoff": Key(Backoff(), "How the delay grows from attempt to attempt."),
                "initial_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The delay before the second attempt."),
                "max_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The longest delay."),
                "jitter": Key(Share(), "The share of a delay, from 0 to 1, by which it may differ."),
                "retry_on": Key(ErrorKinds(), "The kinds of errors that are retried. Left out: all of them."),
            },
            _first_delay_is_shortest,
        ),
        "When a failed attempt is tried again. On a foreach or parallel: the default of the calls inside.",
    ),
    "on_crash": Key(
        Choice(("retry", "fail")),
        "What becomes of a call that was at work when the process ended: made again, or failed (at most once).",
    ),
    "idempotency_key": Key(
        KeyTemplate(),
        "A text with placeholders; a call whose key has an output already takes it and is not made.",
    ),
    "idempotency_scope": Key(
        Choice(("workflow", "global")),
        "Whether a key counts within its run, or in all runs of all workflows.",
    ),
    "idempotency_ttl_secs": Key(Lifetime(), "How long a stored output is good; 0 means for ever."),
    "on_conflict": Key(
        Choice(("wait", "fail")),
        "What to do while another call with the same key is at work: wait for it, or fail.",
    ),
}

_POLL_KEYS: Final[Table] = {
    "interval_ms": Key(
        Whole(1, DELAY_MS_MAX), "The time before the second look; it doubles from look to look."
    ),
    "max_ms": Key(Whole(1, DELAY_MS_MAX), "The longest time between two looks."),
}

ANSWER_KEYS: Final[dict[str, Key]] = {
    "result": Key(
        Nested(
            ResultRule,
            {
                "envelope": Key(Flag(), "Whether an answer {success: false, error: …} is a failure."),
                "select": Key(
                    _PATH, "The part of the answer that is the output, as a JSONPath over the answer."
                ),
                "parse": Key(Choice(("json",)), "Read a text as JSON."),
            },
        ),
        "How the answer of a call becomes the output of the step.",
    ),
    "pending_ttl_secs": Key(Seconds(), "How long an answer that was announced as pending is waited for."),
    "poll": Key(
        Nested(PollRule, _POLL_KEYS, _first_look_is_soonest), "How often a pending answer is asked for."
    ),
    "supports_async_callback": Key(Flag(), "Whether the call is given an address to send its answer to."),
}

_ARGS: Final = Key(Arguments(), "The arguments, with placeholders such as {{ inputs.name }}.")
_INPUT: Final = Key(Anything(), "What the service works on, with placeholders.")
_PARAMS: Final = Key(Arguments(), "The parameters of the service, with placeholders.")
_STEPS_OF_BODY: Final = Key(Steps(), "The steps inside.")
_ON_ANY_FAIL: Final = Key(
    Choice(("abort", "continue")),
    "Whether the first failure stops the others, or all of them run to their end.",
)
_WAIT: Final = Key(Seconds(), "How long to wait.")


class Kind(NamedTuple):
    """What a kind of step may say: its own keys, and those of all calls that concern it.

    Of `one_of`, no two may stand together, and one must be there if `one_of_is_required`.
    """

    says: str
    record: type[msgspec.Struct]
    keys: Table
    common: frozenset[str] = frozenset()
    one_of: tuple[str, ...] = ()
    one_of_is_required: bool = True
    arrange: Callable[[dict[str, Any]], Mapping[str, Any]] = dict  # keys as written → fields of the record
    rule: Callable[[Fields, Any], None] | None = None

    def is_told_by(self, keys: Collection[str]) -> bool:
        """Whether these keys can hardly mean another kind."""
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


_CALL: Final = frozenset({*POLICY_KEYS, *ANSWER_KEYS})
_CONTAINER: Final = frozenset({"timeout_secs", "retry"})  # the defaults of the call steps inside

KINDS: Final[dict[str, Kind]] = {
    "tool": Kind(
        "Calls a tool.",
        ToolBody,
        {"tool": Key(_TOOL, "The name of the tool.", required=True), "args": _ARGS},
        _CALL,
    ),
    "tool_remote": Kind(
        "Calls a tool of another server.",
        RemoteBody,
        {
            "dcc": Key(_NAME, "The name of the server, from the settings."),
            "server": Key(_NAME, "Another word for `dcc`."),
            "tool": Key(_TOOL, "The name of the tool on that server.", required=True),
            "args": _ARGS,
        },
        _CALL,
        one_of=("dcc", "server"),
        arrange=_with_dcc,
    ),
    "service": Kind(
        "Calls a service that workers offer.",
        ServiceBody,
        {
            "service": Key(_NAME, "The name of the service.", required=True),
            "input": _INPUT,
            "params": _PARAMS,
            "max_attempts": Key(
                Whole(0, ATTEMPTS_MAX, "step_attempts_max"),
                "How many workers are tried; 0 means all of them.",
            ),
            "attempt_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The delay before the next worker is tried."),
            "weighted_by_load": Key(Flag(), "Whether the least busy worker is tried first."),
        },
        _CALL,
    ),
    "foreach": Kind(
        "Does the same for each item of a list.",
        ForeachBody,
        {
            "items": Key(_PATH, "The list, as a JSONPath: $.list.files", required=True),
            "as": Key(Text(), "The name of the item inside; `item` always works too."),
            "steps": _STEPS_OF_BODY,
            "concurrency": Key(
                Whole(1, CONCURRENCY_MAX, "concurrency_max"), "How many items are worked on at once."
            ),
            "on_any_fail": _ON_ANY_FAIL,
            "collect": Key(Choice(("outputs", "none")), "Whether the outputs are kept, or only counted."),
        },
        _CONTAINER,
    ),
    "parallel": Kind(
        "Does several things at once.",
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
        "Takes one of two ways.",
        BranchBody,
        {
            "on": Key(_PATH, "The condition, as a JSONPath: $.check.passed", required=True),
            "then": Key(Steps(), "What is done if it is true: not null, false, 0, empty."),
            "else": Key(Steps(), "What is done if it is not."),
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
        "Waits until somebody approves or declines.",
        ApproveBody,
        {
            "prompt": Key(Text(), "What is asked, with placeholders."),
            "timeout_secs": _WAIT,
            "form": Key(Mapped(), "What the answer must hold, as a JSON Schema."),
            "quorum": Key(
                Nested(
                    Quorum,
                    {
                        "need": Key(Whole(1, 1_000), "How many must approve.", required=True),
                        "of": Key(Texts("name"), "Who may."),
                    },
                    _quorum_can_be_met,
                ),
                "How many must approve.",
            ),
            "escalate": Key(
                Nested(
                    Escalation,
                    {
                        "after_secs": Key(Seconds(), "After how long.", required=True),
                        "to": Key(
                            TextOrTexts("name"),
                            "Who is asked then: a name, or a list of names.",
                            required=True,
                        ),
                    },
                ),
                "Who is asked when nobody answers.",
            ),
        },
    ),
    "timer": Kind(
        "Waits for a time.",
        TimerBody,
        {
            "delay_ms": Key(Time(DELAY_MS_MAX), "How long: milliseconds, or a template."),
            "until": Key(
                Time(2**53),
                "Until when: 2026-01-31T09:00:00Z, a number since 1970, or a template.",
            ),
        },
        one_of=("delay_ms", "until"),
    ),
    "wait_event": Kind(
        "Waits for signals from outside.",
        WaitEventBody,
        {
            "signal_key": Key(Text(), "The signal; the output is its value."),
            "any": Key(Texts("signal"), "Signals of which one is enough."),
            "all": Key(Texts("signal"), "Signals that must all come."),
            "correlation": Key(Anything(), "What the signal must be about, with placeholders."),
            "timeout_secs": _WAIT,
        },
        one_of=("signal_key", "any", "all"),
    ),
    "poll": Kind(
        "Makes a call again and again until its answer says that it is done.",
        PollBody,
        {
            "tool": Key(_TOOL, "The name of the tool that is called."),
            "dcc": Key(_NAME, "The name of the server whose tool it is."),
            "args": _ARGS,
            "service": Key(_NAME, "The name of the service that is called."),
            "input": _INPUT,
            "params": _PARAMS,
            "until": Key(
                _PATH, "What is true of the last answer, as a JSONPath over the answer.", required=True
            ),
            **_POLL_KEYS,
            "timeout_secs": _WAIT,
        },
        frozenset({"retry", "on_crash", "result"}),
        one_of=("tool", "service"),
        rule=_first_look_is_soonest,
    ),
}


# The keys that say a kind by themselves: the first, with any of the others. The first kind that fits counts.
IMPLIED_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "workflow": ("workflow",),
    "service": ("service",),
    "tool_remote": ("tool", "dcc", "server"),
    "tool": ("tool",),
}


def implied_kind(keys: Collection[str]) -> str | None:
    """The kind of a step that does not say it."""
    for kind, (first, *others) in IMPLIED_KINDS.items():
        if first in keys and (not others or any(other in keys for other in others)):
            return kind
    return None
