"""What the open steps of a run wait for, and what would end each wait."""

from __future__ import annotations

import shlex
from typing import Any, Final, assert_never

import msgspec

from holdfast import limits
from holdfast.engine import state
from holdfast.engine.state import Run, Step, timer_key
from holdfast.plan.graph import Nested, Plan
from holdfast.values import Millis, decode, scope_of, split
from holdfast.waits.approvals import answerers


class Wait(msgspec.Struct, frozen=True):
    """What a step waits for: a timer, its next attempt, a key, a tool … `until` is when it continues by itself."""

    path: str
    kind: str
    until: Millis | None = None
    name: str = ""  # the task id of a callback
    since: Millis | None = None
    detail: dict[str, Any] = {}  # details for the callers that can resolve it
    answered: list[str] = []  # approvers who have answered, while more are needed


def waits(run: Run, plan: Plan) -> list[Wait]:
    """Return what the open steps of a run wait for; running steps wait for nothing."""
    found: list[Wait] = []
    for path, step in run.steps.items():
        if step.state != "running" and len(found) < limits.now.explain_reasons_max:
            wait = _wait_of(run, path, step)
            if wait.kind == "timer" and (poll := poll_around(plan, path)) is not None:
                wait = msgspec.structs.replace(wait, path=poll, kind="poll")
            found.append(msgspec.structs.replace(wait, until=earliest(run, path, wait.until)))
    return found


def poll_around(plan: Plan, path: str) -> str | None:
    """Return the poll step whose pause between two calls this timer is."""
    around = split(path)[0]
    node = plan.node(around) if around else None
    return around if isinstance(node, Nested) and node.what == "poll" else None


def earliest(run: Run, path: str, until: Millis | None) -> Millis | None:
    """Return when a wait ends by itself: at its own expiry, or at the deadline of a surrounding scope or the run."""
    ends = [] if until is None else [until]
    around = path
    while True:
        around = scope_of(split(around)[0])[0] if around else ""
        if (at := run.timers.get(timer_key("deadline", around))) is not None:
            ends.append(at)
        if not around:
            return min(ends, default=None)


def _wait_of(run: Run, path: str, step: Step) -> Wait:
    if step.wait is not None:
        wait = step.wait
        detail, answered = decode(wait.detail) or {}, list(wait.got) if wait.kind == "approval" else []
        return Wait(path, wait.kind, wait.until, wait.name, wait.since, detail, answered)
    if step.reason == "key":
        return Wait(path, "key")
    if step.reason in state.LACKS:
        due = run.timers.get(timer_key("worker", path))
        return Wait(path, step.reason, due, since=step.lacks_since or None)
    for timer, kind in _TIMERS.items():
        if (due := run.timers.get(timer_key(timer, path))) is not None:
            return Wait(path, kind, due)
    return Wait(path, step.reason or ("slot" if step.state == "ready" else step.state))


def ends_of_waits(run: Run) -> list[tuple[str, str]]:
    """Return what would end each external wait of a run, by step path."""
    return [
        (path, unblocked_by(run, path, step.wait))
        for path, step in run.steps.items()
        if step.wait is not None
    ]


def approval_detail(run: Run, path: str) -> dict[str, Any]:
    """Return the details for approvers: the prompt, and the form if there is one."""
    wait = run.steps[path].wait
    return {} if wait is None else decode(wait.detail) or {}


def unblocked_by(run: Run, path: str, wait: state.Wait) -> str:
    """Return what would end a wait, with a command that does it."""
    detail = decode(wait.detail) or {}
    match wait.kind:
        case "callback":
            polled = f", or a result at {detail['poll_url']}" if "poll_url" in detail else ""
            when = f", expected after {detail['estimated_secs']:g} s" if "estimated_secs" in detail else ""
            command = f"holdfast resume {shlex.quote(wait.name)} --result JSON"
            return f"the result of task {wait.name!r}{polled}{when}: {command}"
        case "approval":
            is_escalated = timer_key("escalate", path) not in run.timers
            by_whom = _by_whom(detail, wait, is_escalated=is_escalated)
            return f"an answer{by_whom}: holdfast approve {run.id} {shlex.quote(path)}"
        case "condition":
            key = detail.get("signal_key")
            what, word = ("the signal it waits for", "KEY") if key is None else (repr(key), shlex.quote(key))
            return f"a signal that writes {what}: holdfast signal {run.id} {word} JSON"
        case "signal":
            return _missing_signals(run, wait, detail)
        case _:
            assert_never(wait.kind)


def _missing_signals(run: Run, wait: state.Wait, detail: dict[str, Any]) -> str:
    missing = [name for name in detail["names"] if name not in wait.got]
    named = (" and " if detail["mode"] == "all" else " or ").join(map(repr, missing))
    belongs = f" --correlation {shlex.quote(detail['correlation'])}" if detail["correlation"] else ""
    return f"the signal {named}: holdfast signal {run.id} {shlex.quote(missing[0])} JSON{belongs}"


def _by_whom(detail: dict[str, Any], wait: state.Wait, *, is_escalated: bool) -> str:
    allowed = answerers(detail) if is_escalated else detail.get("of", ())
    left = [name for name in allowed if name not in wait.got]
    who = f" by {' or '.join(left)}" if left else ""
    need = detail.get("need", 1) - len(wait.got)
    return f"{who} ({need} more)" if need > 1 else who


_TIMERS: Final = {"retry": "retry", "delay": "timer", "suspect": "suspect"}
