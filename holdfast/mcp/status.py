"""A run in the words of others: as a task of MCP, and with the statuses of the steps dialect. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.api.types import time_or_none, time_text
from holdfast.values import TERMINAL
from holdfast.views.asking import asks
from holdfast.views.open_waits import Wait
from holdfast.views.run_view import RunView

POLL_MS: Final = 500
DAY_MS: Final = 86_400_000
# Errors that are not those of a tool: the engine could not carry out the call.
PROTOCOL_KINDS: Final = frozenset({"lost", "limit", "template", "secret", "inputs"})
_S1: Final = {"waiting": "running", "cancelling": "running"}


def s1_status(status: str) -> str:
    """The status in the words of the steps dialect, which knows no waiting and no cancelling."""
    return _S1.get(status, status)


def task_status(view: RunView, *, asks_caller: bool) -> str:
    """The status of a run as a task. A run that failed is a completed task with an error as its result."""
    if view.status == "completed":
        return "completed"
    if view.status == "cancelled":
        return "cancelled"
    if view.status == "interrupted" or is_protocol_error(view):
        return "failed"
    if view.status == "failed":
        return "completed"
    return "input_required" if asks_caller else "working"


def is_protocol_error(view: RunView) -> bool:
    return view.status == "failed" and view.error is not None and view.error.kind in PROTOCOL_KINDS


def task_of(view: RunView, retention_days: int | None, *, asks_caller: bool | None = None) -> dict[str, Any]:
    """A run as a task. It can be asked for as long as the run is kept."""
    asked = bool(asks(view)) if asks_caller is None else asks_caller
    updated = view.finished_at or view.started_at or view.created_at
    found: dict[str, Any] = {
        "taskId": view.run_id,
        "status": task_status(view, asks_caller=asked),
        "createdAt": time_text(view.created_at),
        "lastUpdatedAt": time_text(updated),
        "ttlMs": None if retention_days is None else retention_days * DAY_MS,
        "pollIntervalMs": POLL_MS,
    }
    if message := status_message(view):
        found["statusMessage"] = message
    return found


def status_message(view: RunView) -> str:
    if view.status in TERMINAL:
        return ""
    steps = view.progress
    waits = ", ".join(f"{wait.kind} at {wait.path}" for wait in view.waits[:5])
    return (
        f"{steps['completed_steps']} of {steps['total_steps']} steps{f'; waits for {waits}' if waits else ''}"
    )


def waits_data(view: RunView, link: Callable[[Wait], str] | None = None) -> list[dict[str, Any]]:
    """What a run waits for. Prompts and forms are data of the workflow."""
    return [
        {
            "path": wait.path,
            "kind": wait.kind,
            "since": time_or_none(wait.since),
            "until": time_or_none(wait.until),
            **({"task_id": wait.name} if wait.name else {}),
            **({"detail": wait.detail} if wait.detail else {}),
            **({"link": link(wait)} if link is not None and wait.kind == "approval" else {}),
        }
        for wait in view.waits
    ]
