"""Holdfast: workflows that survive crashes. The public names, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.compat import WorkflowJob
    from holdfast.embed import Cancellation, Holdfast, RunEvent, RunHandle, RunInfo, StepInfo, run_sync
    from holdfast.errors import (
        DatabaseInUse,
        EngineClosed,
        HoldfastError,
        InvalidInputs,
        InvalidSpec,
        LimitExceeded,
        NodeIsOver,
        NotFound,
        Problem,
        Refused,
        RequestConflict,
        RunCancelled,
        RunEnded,
        RunFailed,
        RunInterrupted,
        RunIsOpen,
        RunIsOver,
        SchemaTooNew,
        SchemaTooOld,
        StoreUnavailable,
        Unavailable,
    )
    from holdfast.spec.catalog import WorkflowCatalog
    from holdfast.spec.flow import FlowSpec
    from holdfast.spec.policy import BackoffKind, RetryPolicy, StepPolicy
    from holdfast.spec.steps import WorkflowStep
    from holdfast.spec.workflow import WorkflowSpec
    from holdfast.tools.registry import Context, ToolError, tool
    from holdfast.tools.remote import RemoteCaller
    from holdfast.values import WorkflowStatus

__version__ = "0.3.0"

_HOMES = {
    "holdfast.compat": ("WorkflowJob",),
    "holdfast.embed": (
        "Cancellation",
        "Holdfast",
        "RunEvent",
        "RunHandle",
        "RunInfo",
        "StepInfo",
        "run_sync",
    ),
    "holdfast.errors": (
        "DatabaseInUse",
        "EngineClosed",
        "HoldfastError",
        "InvalidInputs",
        "InvalidSpec",
        "LimitExceeded",
        "NodeIsOver",
        "NotFound",
        "Problem",
        "Refused",
        "RequestConflict",
        "RunCancelled",
        "RunEnded",
        "RunFailed",
        "RunInterrupted",
        "RunIsOpen",
        "RunIsOver",
        "SchemaTooNew",
        "SchemaTooOld",
        "StoreUnavailable",
        "Unavailable",
    ),
    "holdfast.spec.catalog": ("WorkflowCatalog",),
    "holdfast.spec.flow": ("FlowSpec",),
    "holdfast.spec.policy": ("BackoffKind", "RetryPolicy", "StepPolicy"),
    "holdfast.spec.steps": ("WorkflowStep",),
    "holdfast.spec.workflow": ("WorkflowSpec",),
    "holdfast.values": ("WorkflowStatus",),
    "holdfast.tools.registry": ("Context", "ToolError", "tool"),
    "holdfast.tools.remote": ("RemoteCaller",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BackoffKind",
    "Cancellation",
    "Context",
    "DatabaseInUse",
    "EngineClosed",
    "FlowSpec",
    "Holdfast",
    "HoldfastError",
    "InvalidInputs",
    "InvalidSpec",
    "LimitExceeded",
    "NodeIsOver",
    "NotFound",
    "Problem",
    "Refused",
    "RemoteCaller",
    "RequestConflict",
    "RetryPolicy",
    "RunCancelled",
    "RunEnded",
    "RunEvent",
    "RunFailed",
    "RunHandle",
    "RunInfo",
    "RunInterrupted",
    "RunIsOpen",
    "RunIsOver",
    "SchemaTooNew",
    "SchemaTooOld",
    "StepInfo",
    "StepPolicy",
    "StoreUnavailable",
    "ToolError",
    "Unavailable",
    "WorkflowCatalog",
    "WorkflowJob",
    "WorkflowSpec",
    "WorkflowStatus",
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
