"""Words of other workflow systems, and the equivalent words of ours: `uses` is `tool`, `depends_on` has no equivalent.

Knows words. Must not know which of our keys are allowed where: the caller says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

# For each of our words, its names in other systems. A name may stand for several words: the first that is allowed counts.
_KEYS: Final[dict[str, str]] = {
    "name": "title workflow_name workflow flow flow_name",
    "description": "desc summary doc docs about comment comments note notes",
    "inputs": "input parameters params arguments args with variables vars input_schema",
    "steps": "step tasks task jobs actions stages do body children pipeline each run blocks sequence",
    "output": "outputs result results return returns",
    "id": "name key step step_id task_id uid ref label title step_name",
    "kind": "type step_type action_type node_type",
    "tool": "uses action function func fn call op operation tool_name run command task handler method name",
    "args": "with params parameters arguments inputs input kwargs arg config data payload body tool_args",
    "service": "worker service_name tool handler uses action function name",
    "input": "payload data body inputs",
    "params": "args parameters arguments with config",
    "items": "for_each in over list collection each loop foreach iterate items_path for values",
    "as": "var item alias loop_var item_name variable iterator item_var bind",
    "concurrency": "max_concurrency max_parallel parallelism workers limit max_workers batch_size",
    "branches": "paths lanes",
    "on": "condition if expr when expression test check cond predicate switch",
    "when": "if condition cond only_if run_if skip_unless unless skip_if run_unless",
    "on_error": "catch on_failure on_fail except rescue error_handler",
    "finally": "always ensure cleanup on_exit",
    "compensate": "undo rollback compensation revert",
    "then": "true yes if_true on_true do steps when_true",
    "else": "false no if_false on_false otherwise default when_false",
    "prompt": "message question text title ask instructions reason",
    "delay_ms": "duration delay sleep wait ms seconds delay_secs duration_ms duration_secs sleep_ms sleep_secs wait_ms wait_secs minutes hours for",
    "until": "at wait_until done_when stop_when condition",
    "signal_key": "signal event event_name signal_name event_key name key",
    "workflow": "sub_workflow subworkflow child workflow_name flow workflow_id name uses",
    "timeout_secs": "timeout timeout_seconds timeout_s timeout_sec timeout_ms timeout_minutes timeout_mins deadline max_duration time_limit "
    "timeout_in_seconds start_to_close_timeout execution_timeout",
    "timeout_ms": "timeout timeout_secs timeout_seconds timeout_s deadline",
    "max_retries": "retries retry_count retry",
    "retry": "retries max_retries retry_policy retry_count max_attempts attempts retry_options",
    "max_attempts": "attempts times count max limit tries maximum_attempts max_tries retries max_retries",
    "initial_delay_ms": "delay_ms delay backoff_ms initial_delay interval_ms initial_interval delay_secs initial_delay_secs wait_ms delay_seconds interval",
    "max_delay_ms": "max_delay max_interval maximum_interval max_backoff max_delay_secs max_delay_seconds cap_ms",
    "backoff": "strategy backoff_strategy backoff_type mode type",
    "retry_on": "on errors error_types retryable kinds",
    "on_any_fail": "on_failure on_error on_fail fail_mode failure_policy continue_on_error fail_fast",
    "idempotency_key": "idempotency idempotency_token dedup_key dedupe_key",
    "dcc": "server mcp mcp_server host server_name remote",
    "interval_ms": "interval every every_ms interval_secs interval_seconds period poll_interval",
    "max_ms": "max_interval max_interval_ms max_secs",
    "need": "required min minimum count approvals needed",
    "of": "approvers users people names from members",
    "after_secs": "after after_seconds after_ms timeout timeout_secs delay",
    "to": "target dest destination next approver approvers then goto",
    "from": "source src start origin",
    "url": "uri href address endpoint webhook callback_url",
    "secret_env": "secret secret_name signing_secret",
    "start": "entry entrypoint start_node first begin initial start_at entry_node",
    "nodes": "states vertices node",
    "edges": "links transitions connections edge",
    "action": "on condition event label when outcome then goto",
    "choice_cases": "cases choices branches rules",
    "expr": "condition when if expression test",
    "parallel_services": "services branches calls",
    "post": "after",
    "prep": "before",
    "input_key": "input source from",
    "output_key": "output target to result_key",
    "schedules": "schedule jobs crons",
    "trigger": "when on schedule triggers cron every schedule_interval",
    "expression": "cron schedule expr cron_expression crontab schedule_interval pattern",
    "timezone": "tz time_zone zone",
    "every": "interval period interval_secs seconds minutes hours every_secs every_seconds",
    "path": "url route endpoint webhook",
    "missed_run_policy": "catchup misfire misfire_policy missed catch_up missed_runs coalesce recover_missed_schedules",
    "grace_secs": "grace grace_seconds misfire_grace_time starting_deadline_seconds late_maximum_delay",
    "pause_after_failures": "pause_on_failure max_failures max_consecutive_failures max_consecutive_failed_dag_runs",
    "enabled": "active is_active",
    "max_concurrent": "max_instances concurrency max_active_runs max_running",
    "overlap": "overlap_policy concurrency_policy overlapping",
    "exclude": "skip except holidays",
    "start_at": "start_date start starts_at begin not_before",
    "end_at": "end_date end ends_at stop not_after until",
    "at": "time run_at date datetime when",
    "default": "default_value value",
    "enum": "options choices values allowed",
    "jitter_secs": "jitter",
    "select": "path jsonpath pick",
}  # fmt: skip

_KINDS: Final[dict[str, str]] = {
    "tool": "task action function call script command python step operation activity http http_request shell run job lambda",
    "tool_remote": "mcp remote mcp_tool remote_tool tool-remote",
    "service": "worker executor http_service",
    "foreach": "loop for for_each each map iterate forall iteration while",
    "parallel": "fork concurrent all fanout fan_out parallel_group join group",
    "branch": "if choice condition conditional switch decision case if_else gateway",
    "workflow": "subworkflow sub_workflow call_workflow child child_workflow subflow flow",
    "approve": "approval human confirm gate manual human_approval manual_approval review confirmation user_input",
    "timer": "sleep delay wait pause timeout",
    "wait_event": "event signal wait_for_event wait_signal wait_for_signal webhook callback await listen receive",
    "poll": "polling retry_until until check_until wait_until",
    "executor": "task action service worker call http step activity job",
    "local": "tool function python script inline code",
    "choice": "branch if condition conditional switch decision router",
    "subflow": "sub_flow subgraph nested group",
    "flow_ref": "ref flow workflow call_flow sub_workflow child",
    "approval": "approve human gate manual review",
    "cron": "schedule crontab time timer calendar recurring daily weekly hourly",
    "interval": "every periodic repeat rate",
    "at": "once date datetime one_time oneoff one_off instant",
    "webhook": "http hook event post push",
    "run": "workflow run_end after completion workflow_run",
    "file": "watch folder directory fs file_watch filesystem",
    "source": "generator stream queue plugin",
}  # fmt: skip

_TYPES: Final[dict[str, str]] = {
    "string": "str text varchar date datetime url uri path file uuid email",
    "integer": "int long whole int32 int64",
    "number": "float double decimal numeric",
    "boolean": "bool flag",
    "array": "list sequence tuple set string[] array[string] list[str]",
    "object": "dict map mapping json struct record hash",
    "null": "none nil",
}

_OPERATORS: Final[dict[str, str]] = {
    "eq": "== = equals equal is same",
    "ne": "!= <> not_equals neq not_equal isnt is_not",
    "gt": "> greater greater_than more",
    "ge": ">= gte greater_or_equal at_least",
    "lt": "< less less_than",
    "le": "<= lte less_or_equal at_most",
    "and": "&& all every",
    "or": "|| any some",
    "not": "! none",
    "exists": "defined has present is_set",
    "in": "one_of member",
    "contains": "includes include has_item",
}

_CHOICES: Final[dict[str, str]] = {
    "abort": "stop fail fail_fast true false halt",
    "continue": "ignore skip proceed keep_going",
    "fixed": "constant linear none",
    "exponential": "exp double expo",
    "wait": "queue block",
    "fail": "error reject abort once",
    "retry": "restart again",
    "resume": "continue",
    "interrupt": "stop cancel abort",
    "global": "all shared",
    "run_once": "once one latest coalesce true",
    "run_all": "all catchup every",
    "skip": "ignore none false drop forbid",
    "allow": "parallel concurrent yes",
    "cancel_previous": "replace restart terminate cancel",
    "buffer_one": "queue_one queue",
    "buffer_all": "queue_all",
}

# Keys of a node that name the node after it.
NEXT_WORDS: Final = ("next", "next_node", "transition", "transitions", "goto")

# What an edge of a graph leads to at the end of a run, in other systems.
END_WORDS: Final = frozenset(
    {"end", "__end__", "stop", "done", "finish", "finished", "exit", "terminal", "null", "none"}
)


_ROOTS: Final[dict[str, str]] = {
    "inputs": "input params parameters vars variables args arguments trigger payload context ctx workflow event",
    "steps": "step outputs nodes tasks jobs results needs",
    "secrets": "secret credentials",
    "env": "environment",
}


def root_for(word: str, allowed: Collection[str]) -> str | None:
    """Our name for the root of a placeholder in another system."""
    return next((root for root, words in _ROOTS.items() if word in words.split() and root in allowed), None)


def _turned(table: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for ours, theirs in table.items():
        for word in theirs.split():
            found[word] = (*found.get(word, ()), ours)
    return found


_TABLES: Final = {
    "key": _turned(_KEYS),
    "kind": _turned(_KINDS),
    "type": _turned(_TYPES),
    "operator": _turned(_OPERATORS),
    "choice": _turned(_CHOICES),
}


_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LISTS: Final = frozenset({"steps", "then", "else", "branches", "nodes", "edges", "on_error", "finally"})
_NAMES: Final = frozenset({
    "id", "name", "kind", "tool", "service", "workflow", "signal_key", "items", "on_any_fail", "action",
})  # fmt: skip


def _plain(word: str) -> str:
    return _CAMEL.sub("_", word.strip()).casefold().replace("-", "_")


def vocabulary(what: str) -> Collection[str]:
    """All words of other systems that are known."""
    return _TABLES[what].keys()


def ours(
    what: str, word: Any, allowed: Collection[str], taken: Collection[str] = (), value: Any = None
) -> str | None:
    """Our word for another system's, as far as it is allowed here, not taken, and fits the value. `what` names the table."""
    if not isinstance(word, str):
        return None
    for name in _TABLES[what].get(_plain(word), ()):
        if name in allowed and name not in taken and may_hold(name, value):
            return name
    return None


def is_key(word: str, allowed: Collection[str]) -> bool:
    """Whether a word is one of these keys, or the word of another system for one."""
    return word in allowed or ours("key", word, allowed) is not None


def may_hold(name: str, value: Any) -> bool:
    if value is None:
        return True
    if name in _LISTS:
        return isinstance(value, list | dict)
    return not (name in _NAMES and isinstance(value, list | dict))


# Words that say what runs, whether, when or after what. A definition without them means something else.
_ORDER: Final = frozenset({
    "depends_on", "dependson", "depends", "dependencies", "needs", "requires", "after", "run_after", "upstream", "wait_for",
})  # fmt: skip
_NEGATIONS: Final = frozenset({"unless", "skip_if", "run_unless"})
_TELLING: Final = frozenset({
    *_ORDER, *NEXT_WORDS, "foreach", "parallel", "branch", "approve", "timer", "wait_event", "poll", "then", "on_success", "continue_on_error", "ignore_errors",
    *(word for key in ("when", "on_error", "finally", "compensate") for word in (key, *_KEYS[key].split())),
})  # fmt: skip


def is_telling(word: str) -> bool:
    """Whether a key of another system must not be left out: what runs would change."""
    return _plain(word) in _TELLING


def is_order(word: str) -> bool:
    """Whether a key of another system names the steps that come before."""
    return _plain(word) in _ORDER


def is_negation(word: str) -> bool:
    """Whether a step does not run if the condition in a key of another system is true."""
    return _plain(word) in _NEGATIONS
