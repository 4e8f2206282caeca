"""Holdfast: workflows that survive crashes. The public names, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.embed import Holdfast, RunHandle, run_sync
    from holdfast.errors import (
        DatabaseInUse,
        EngineClosed,
        HoldfastError,
        InvalidInputs,
        InvalidSpec,
        NotFound,
        Problem,
        RunCancelled,
        RunEnded,
        RunFailed,
        RunInterrupted,
        RunIsOver,
        StoreUnavailable,
    )
    from holdfast.spec.policy import BackoffKind, RetryPolicy, StepPolicy
    from holdfast.spec.steps import WorkflowStep
    from holdfast.spec.workflow import WorkflowSpec
    from holdfast.tools.registry import Context, ToolError, tool

__version__ = "0.1.0"

_HOMES = {
    "holdfast.embed": ("Holdfast", "RunHandle", "run_sync"),
    "holdfast.errors": (
        "DatabaseInUse",
        "EngineClosed",
        "HoldfastError",
        "InvalidInputs",
        "InvalidSpec",
        "NotFound",
        "Problem",
        "RunCancelled",
        "RunEnded",
        "RunFailed",
        "RunInterrupted",
        "RunIsOver",
        "StoreUnavailable",
    ),
    "holdfast.spec.policy": ("BackoffKind", "RetryPolicy", "StepPolicy"),
    "holdfast.spec.steps": ("WorkflowStep",),
    "holdfast.spec.workflow": ("WorkflowSpec",),
    "holdfast.tools.registry": ("Context", "ToolError", "tool"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BackoffKind",
    "Context",
    "DatabaseInUse",
    "EngineClosed",
    "Holdfast",
    "HoldfastError",
    "InvalidInputs",
    "InvalidSpec",
    "NotFound",
    "Problem",
    "RetryPolicy",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunHandle",
    "RunInterrupted",
    "RunIsOver",
    "StepPolicy",
    "StoreUnavailable",
    "ToolError",
    "WorkflowSpec",
    "WorkflowStep",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
