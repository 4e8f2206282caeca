"""Holdfast: workflows that survive crashes. The public names, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.compat import WorkflowJob
    from holdfast.embed import (
        Cancellation,
        Holdfast,
        Resumption,
        RunEvent,
        RunHandle,
        RunInfo,
        StepInfo,
        run_sync,
    )
    from holdfast.errors import (
        AmbiguousTask,
        BodyTooLarge,
        DatabaseInUse,
        EngineClosed,
        ExpressionTooCostly,
        Forbidden,
        HoldfastError,
        InvalidInputs,
        InvalidRequest,
        InvalidSpec,
        KeyNeeded,
        LimitExceeded,
        MethodNotAllowed,
        MisdirectedRequest,
        NodeIsOver,
        NotFound,
        NotWaiting,
        Problem,
        Refused,
        RequestConflict,
        RunCancelled,
        RunEnded,
        RunFailed,
        RunInterrupted,
        RunIsOpen,
        RunIsOver,
        RunSetAside,
        SchemaTooNew,
        SchemaTooOld,
        ServerUnreachable,
        StoreDamaged,
        StoreGone,
        StoreUnavailable,
        Superseded,
        TooManyRequests,
        Unauthorised,
        Unavailable,
        UnsupportedMediaType,
        VersionConflict,
    )
    from holdfast.sdk.client import Client
    from holdfast.sdk.sync import SyncClient
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
        "Resumption",
        "RunEvent",
        "RunHandle",
        "RunInfo",
        "StepInfo",
        "run_sync",
    ),
    "holdfast.errors": (
        "AmbiguousTask",
        "BodyTooLarge",
        "DatabaseInUse",
        "EngineClosed",
        "ExpressionTooCostly",
        "Forbidden",
        "HoldfastError",
        "InvalidInputs",
        "InvalidRequest",
        "InvalidSpec",
        "KeyNeeded",
        "LimitExceeded",
        "MethodNotAllowed",
        "MisdirectedRequest",
        "NodeIsOver",
        "NotFound",
        "NotWaiting",
        "Problem",
        "Refused",
        "RequestConflict",
        "RunCancelled",
        "RunEnded",
        "RunFailed",
        "RunInterrupted",
        "RunIsOpen",
        "RunIsOver",
        "RunSetAside",
        "SchemaTooNew",
        "SchemaTooOld",
        "ServerUnreachable",
        "StoreDamaged",
        "StoreGone",
        "StoreUnavailable",
        "Superseded",
        "TooManyRequests",
        "Unauthorised",
        "Unavailable",
        "UnsupportedMediaType",
        "VersionConflict",
    ),
    "holdfast.sdk.client": ("Client",),
    "holdfast.sdk.sync": ("SyncClient",),
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
    "AmbiguousTask",
    "BackoffKind",
    "BodyTooLarge",
    "Cancellation",
    "Client",
    "Context",
    "DatabaseInUse",
    "EngineClosed",
    "ExpressionTooCostly",
    "FlowSpec",
    "Forbidden",
    "Holdfast",
    "HoldfastError",
    "InvalidInputs",
    "InvalidRequest",
    "InvalidSpec",
    "KeyNeeded",
    "LimitExceeded",
    "MethodNotAllowed",
    "MisdirectedRequest",
    "NodeIsOver",
    "NotFound",
    "NotWaiting",
    "Problem",
    "Refused",
    "RemoteCaller",
    "RequestConflict",
    "Resumption",
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
    "RunSetAside",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerUnreachable",
    "StepInfo",
    "StepPolicy",
    "StoreDamaged",
    "StoreGone",
    "StoreUnavailable",
    "Superseded",
    "SyncClient",
    "TooManyRequests",
    "ToolError",
    "Unauthorised",
    "Unavailable",
    "UnsupportedMediaType",
    "VersionConflict",
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
