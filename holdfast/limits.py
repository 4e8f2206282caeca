"""How much of everything there may be: each limit's name, its default, and the range that its setting may take.

The limits belong to the process: `now` is the record in force, and code that meets a limit reads it from there. An engine
that is given limits of its own puts them in force when it opens; two open engines cannot have different ones.
Knows numbers and names. Does not know who enforces a limit, or where its setting was written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.nearest import did_you_mean

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
VARIABLE_PREFIX: Final = "HOLDFAST_LIMIT_"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit that has a setting in the table `[limits]`. The defaults are high enough that only mistakes reach them."""

    # A definition
    spec_bytes_max: int = 256 * KIB
    nodes_max: int = 120_000  # keys, values and brackets of a text
    spec_steps_max: int = 10_000
    concurrency_max: int = 10_000
    nesting_max: int = 16
    expression_work_max: int = 250_000
    step_attempts_max: int = 1_000_000  # more would in effect be an endless loop
    timeout_secs_max: int = 366 * 86_400  # a call that may run for a year is a mistake in the unit
    schema_rules_max: int = 10_000  # with every reference written out
    schema_patterns_max: int = 100  # compiling one can take two milliseconds
    schema_work_max: int = 100_000_000  # rules times values: a second or two
    # A run
    value_bytes_max: int = 25 * MIB
    items_max: int = (
        1_000_000  # of one foreach: locating more would take longer than a turn of the event loop
    )
    kept_bytes_max: int = 256 * MIB
    at_work_bytes_max: int = 256 * MIB
    vars_bytes_max: int = 25 * MIB
    visits_max: int = 10_000_000
    labels_max: int = 100
    label_chars_max: int = 1_000
    signals_max: int = 10_000
    signals_of_key_max: int = 1_000
    rerun_paths_max: int = 10_000
    rerun_bytes_max: int = 256 * MIB
    idempotency_key_chars_max: int = 1_000
    text_chars_max: int = 10_000  # a description, or the reason of an approval
    url_chars_max: int = 2_000
    losses_max: int = 3  # losses under crash isolation, after which a step fails
    cancel_grace_secs_max: int = 10
    # An attempt
    log_lines_max: int = 1_000
    log_bytes_max: int = 64 * KIB
    run_log_lines_max: int = 100_000
    traceback_bytes_max: int = 16 * KIB
    progress_max: int = 10_000
    file_refs_max: int = 1_000
    file_refs_bytes_max: int = MIB
    artefact_bytes_max: int = 4 * GIB
    error_chars_max: int = 4_000
    sleep_secs_max: int = 3_600  # a timer step waits longer, at no cost
    transform_members_max: int = 2_000_000  # about 0.1 s
    http_answer_bytes_max: int = 20 * MIB
    http_secs_max: int = 3_600
    connect_secs_max: int = 10
    # A process
    resident_max: int = 20_000
    arguments_bytes_max: int = 50 * MIB  # large arguments that are in progress at the same time
    parked_callbacks_max: int = 10_000
    parked_bytes_max: int = 256 * MIB
    polls_max: int = 100
    final_callbacks_max: int = 64
    # Schedules
    backfill_max: int = 10_000  # occurrences of one request
    schedules_max: int = 100_000  # schedules per tenant
    buffered_max: int = 10_000  # events of one schedule that wait for a run to end
    watched_files_max: int = 100_000  # in one folder
    delivery_bytes_max: int = 64 * KIB  # a larger payload is not kept for redelivery
    # Workers
    workers_max: int = 10_000
    worker_services_max: int = 1_000
    leases_max: int = 5
    poll_jobs_max: int = 100
    # A server
    connections_max: int = 2_000
    head_bytes_max: int = 32 * KIB
    body_bytes_max: int = MIB
    large_bodies_max: int = 4
    webhook_bytes_max: int = 25 * MIB  # GitHub and GitLab send no more
    large_signed_bodies_max: int = 4
    query_names_max: int = 100
    head_secs_max: int = 10
    request_secs_max: int = 60
    stalled_secs_max: int = 30
    drain_secs_max: int = 20
    burst_secs_max: int = 2
    page_max: int = 500
    page_chars_max: int = 64 * MIB  # params and shared state of the tasks of one page, together
    node_runs_max: int = 10_000
    wait_secs_max: int = 60
    streams_per_key_max: int = 500
    streams_per_tenant_max: int = 1_000
    keys_max: int = 10_000
    key_services_max: int = 100
    key_patterns_max: int = 100
    callers_max: int = 10_000
    folder_files_max: int = 1_000
    folder_walk_max: int = 100_000
    diff_lines_max: int = 20_000
    offset_max: int = 100_000
    explain_reasons_max: int = 100
    metrics_workflows_max: int = 100
    metrics_schedules_max: int = 100


DEFAULTS: Final = Limits()
NAMES: Final = Limits.__struct_fields__

# The least and the most that a setting may be. What is not listed goes from 1 to ten times its default.
BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "spec_bytes_max": (KIB, 4 * MIB),
    "value_bytes_max": (KIB, 25 * MIB),  # request bodies, workers and the stored format are made for 25 MiB
    "vars_bytes_max": (KIB, 25 * MIB),  # they are one value, the output of the run
    "kept_bytes_max": (KIB, 4 * GIB),
    "items_max": (1, 10_000_000),
    "arguments_bytes_max": (KIB, 4 * GIB),
    "at_work_bytes_max": (KIB, 4 * GIB),
    "rerun_bytes_max": (KIB, 4 * GIB),
    "parked_bytes_max": (KIB, 4 * GIB),
    "file_refs_bytes_max": (KIB, 25 * MIB),
    "artefact_bytes_max": (KIB, 1024 * GIB),
    "log_bytes_max": (KIB, 4 * MIB),
    "traceback_bytes_max": (KIB, MIB),
    "head_bytes_max": (KIB, 256 * KIB),
    "concurrency_max": (1, 10_000),  # the schema of definitions says so
    "nesting_max": (1, 16),  # each level adds depth to values, which is counted on
    "page_max": (1, 500),  # the OpenAPI document says so
    "wait_secs_max": (1, 60),  # the OpenAPI document says so
    "poll_jobs_max": (1, 100),  # the OpenAPI document says so
    "expression_work_max": (1_000, 25_000_000),
    "visits_max": (1, 1_000_000_000),
    "label_chars_max": (
        1,
        1_000,
    ),  # runs are found by a label in a query, which must fit into the head of a request
    "step_attempts_max": (1, 1_000_000),  # the schema of definitions says so
    "timeout_secs_max": (1, 366 * 86_400),  # the schema of definitions says so
    "schema_work_max": (1_000, 1_000_000_000),
    "error_chars_max": (100, 100_000),
    "sleep_secs_max": (1, 3_600),  # the tool's published schema says so
    "http_secs_max": (1, 3_600),  # the tool's published schema says so
    "http_answer_bytes_max": (
        KIB,
        20 * MIB,
    ),  # a text in it grows when it is written as JSON, to 25 MiB at most
    "transform_members_max": (1_000, 20_000_000),
    "body_bytes_max": (KIB, 25 * MIB),
    "webhook_bytes_max": (KIB, 25 * MIB),  # a payload is a value
    "delivery_bytes_max": (1, 25 * MIB),
    "page_chars_max": (MIB, 640 * MIB),
    "node_runs_max": (1, 10_000),  # the OpenAPI document says so
}


class WrongLimit(ValueError):
    """One limit that cannot be set so: its name, what is wrong, and what to do."""

    def __init__(self, name: str, code: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.name, self.code, self.message, self.hint = name, code, message, hint


def bounds(name: str) -> tuple[int, int]:
    """The least and the most that the setting of a limit may be."""
    return BOUNDS.get(name) or (1, 10 * int(getattr(DEFAULTS, name)))


def check(name: str, value: Any) -> WrongLimit | None:
    """What is wrong with one limit as it was given."""
    if name not in NAMES:
        hint = did_you_mean(str(name), NAMES) or f"limits are {', '.join(NAMES)}"
        return WrongLimit(str(name), "unknown_key", f"there is no limit {name!a:.80}", hint)
    low, high = bounds(name)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return None
    message = f"limits.{name} must be a whole number from {low:,} to {high:,}, not {value!a:.40}"
    return WrongLimit(name, "invalid_choice", message)


def chosen(given: Mapping[str, Any]) -> Limits:
    """The defaults with what was given in place of some; raises WrongLimit with the first that cannot be set so."""
    for name, value in given.items():
        if (wrong := check(name, value)) is not None:
            raise wrong
    return Limits(**given)


# Limits that are settings of their own, because they stood there before the table did.
OWN_SETTINGS: Final = frozenset(
    {"attempts_max", "threads", "processes", "rate_per_key", "rate_per_address", "rate_per_webhook"}
)


def met(name: str, setting: str | None = None) -> str:
    """Names the limit that was reached and the setting that changes it; ends the message of every limit error.

    `setting` is the name in `[limits]` if it differs from the limit's. A limit without a setting is only named.
    """
    setting = setting or (name if name in NAMES or name in OWN_SETTINGS else None)
    if setting is None:
        return f"limit {name}"
    return f"limit {name}, setting {setting if setting in OWN_SETTINGS else f'limits.{setting}'}"


def page(wanted: int) -> int:
    """The size of a page of a list. With a lower limit pages are shorter, so that clients need not know it."""
    return min(wanted, now.page_max)


def size(count: int) -> str:
    """Bytes as people say them: 25 MiB, 1,500 bytes."""
    for unit, many in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= many and count % many == 0:
            return f"{count // many:,} {unit}"
    return f"{count:,} bytes"


# ------------------------------------------------------------------------------------------- the limits of this process

now: Limits = DEFAULTS
_before: list[Limits] = []  # what was in force before an engine with limits of its own was opened
holders: weakref.WeakSet[Any] = weakref.WeakSet()  # the engines that are open with those limits
_followers: list[Callable[[Limits], None]] = []


def follow(adopt: Callable[[Limits], None]) -> None:
    """Call `adopt` with the limits whenever they change: for hot code that keeps its own copy."""
    _followers.append(adopt)


def put_in_force(limits: Limits) -> None:
    global now  # noqa: PLW0603  # the limits belong to the process
    now = limits
    for adopt in _followers:
        adopt(limits)


def differing() -> dict[str, int]:
    """The limits that differ from the defaults: what another process has to be given."""
    return {name: value for name in NAMES if (value := getattr(now, name)) != getattr(DEFAULTS, name)}


def hold(holder: object, limits: Limits | None) -> None:
    """Put limits in force for as long as `holder` is open. Without limits of its own it takes those in force.

    Raises ValueError, and changes nothing, if another engine in this process uses different limits.
    """
    if limits is not None and limits != now:
        if holders:
            other = [name for name in NAMES if getattr(limits, name) != getattr(now, name)]
            raise ValueError(
                f"another engine is open in this process with other limits ({', '.join(other[:5])}): limits hold for "
                "the whole process; give both engines the same ones, or use a process for each"
            )
        _before[:] = [now]
        put_in_force(limits)
    holders.add(holder)


def let_go(holder: object) -> None:
    """The holder is closed. After the last one what was in force before is so again."""
    holders.discard(holder)
    if _before and not holders:
        put_in_force(_before.pop())
