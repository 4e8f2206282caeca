"""Holdfast: workflows that survive crashes. The public names, loaded on first use."""

from __future__ import annotations

from holdfast.version import VERSION

# Type checkers know this name. Importing `typing` takes most of the time in which Ctrl-C still shows a traceback of the command.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.compat.jobs import WorkflowJob
    from holdfast.compat.scheduler import (
        JobSink,
        SchedulerConfig,
        SchedulerHandle,
        SchedulerService,
        TriggerFire,
        WebhookRouter,
    )
    from holdfast.compat.schedules import (
        ScheduleSpec,
        TriggerSpec,
        hmac_sha256_hex,
        parse_schedules_yaml,
        verify_hub_signature_256,
    )
    from holdfast.compat.serving import McpHttpConfig, serve
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
        ArtefactsUnavailable,
        AtLimit,
        BodyTooLarge,
        DatabaseInUse,
        DatabaseMoved,
        EngineClosed,
        ExpressionTooCostly,
        Forbidden,
        HoldfastError,
        InvalidInputs,
        InvalidRequest,
        InvalidSpec,
        KeyNeeded,
        LimitExceeded,
        ManagedByFile,
        MethodNotAllowed,
        MisdirectedRequest,
        NodeIsOver,
        NotFound,
        NotWaiting,
        PlanChanged,
        PlanRefused,
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
        ToolMissing,
        TooManyRequests,
        Unauthorised,
        Unavailable,
        UnsupportedMediaType,
        VersionConflict,
    )
    from holdfast.plugins.plugin import (
        LockingHint,
        MissedRunPolicy,
        Schedule,
        ScheduledPlugin,
        ScheduledRunCtx,
    )
    from holdfast.sdk.client import Client
    from holdfast.sdk.sync import SyncClient
    from holdfast.spec.catalog import WorkflowCatalog
    from holdfast.spec.flow import FlowSpec
    from holdfast.spec.policy import BackoffKind, RetryPolicy, StepPolicy
    from holdfast.spec.steps import WorkflowStep
    from holdfast.spec.workflow import WorkflowSpec
    from holdfast.tools.context import RunTrigger
    from holdfast.tools.registry import Context, ToolError, tool
    from holdfast.tools.remote import RemoteCaller
    from holdfast.values import WorkflowStatus

__version__ = VERSION

_HOMES = {
    "holdfast.compat.jobs": ("WorkflowJob",),
    "holdfast.compat.scheduler": (
        "JobSink",
        "SchedulerConfig",
        "SchedulerHandle",
        "SchedulerService",
        "TriggerFire",
        "WebhookRouter",
    ),
    "holdfast.compat.schedules": (
        "ScheduleSpec",
        "TriggerSpec",
        "hmac_sha256_hex",
        "parse_schedules_yaml",
        "verify_hub_signature_256",
    ),
    "holdfast.compat.serving": ("McpHttpConfig", "serve"),
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
        "ArtefactsUnavailable",
        "AtLimit",
        "BodyTooLarge",
        "DatabaseInUse",
        "DatabaseMoved",
        "EngineClosed",
        "ExpressionTooCostly",
        "Forbidden",
        "HoldfastError",
        "InvalidInputs",
        "InvalidRequest",
        "InvalidSpec",
        "KeyNeeded",
        "LimitExceeded",
        "ManagedByFile",
        "MethodNotAllowed",
        "MisdirectedRequest",
        "NodeIsOver",
        "NotFound",
        "NotWaiting",
        "PlanChanged",
        "PlanRefused",
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
        "ToolMissing",
        "Unauthorised",
        "Unavailable",
        "UnsupportedMediaType",
        "VersionConflict",
    ),
    "holdfast.plugins.plugin": (
        "LockingHint",
        "MissedRunPolicy",
        "Schedule",
        "ScheduledPlugin",
        "ScheduledRunCtx",
    ),
    "holdfast.sdk.client": ("Client",),
    "holdfast.sdk.sync": ("SyncClient",),
    "holdfast.spec.catalog": ("WorkflowCatalog",),
    "holdfast.spec.flow": ("FlowSpec",),
    "holdfast.spec.policy": ("BackoffKind", "RetryPolicy", "StepPolicy"),
    "holdfast.spec.steps": ("WorkflowStep",),
    "holdfast.spec.workflow": ("WorkflowSpec",),
    "holdfast.values": ("WorkflowStatus",),
    "holdfast.tools.context": ("RunTrigger",),
    "holdfast.tools.registry": ("Context", "ToolError", "tool"),
    "holdfast.tools.remote": ("RemoteCaller",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AmbiguousTask",
    "ArtefactsUnavailable",
    "AtLimit",
    "BackoffKind",
    "BodyTooLarge",
    "Cancellation",
    "Client",
    "Context",
    "DatabaseInUse",
    "DatabaseMoved",
    "EngineClosed",
    "ExpressionTooCostly",
    "FlowSpec",
    "Forbidden",
    "Holdfast",
    "HoldfastError",
    "InvalidInputs",
    "InvalidRequest",
    "InvalidSpec",
    "JobSink",
    "KeyNeeded",
    "LimitExceeded",
    "LockingHint",
    "ManagedByFile",
    "McpHttpConfig",
    "MethodNotAllowed",
    "MisdirectedRequest",
    "MissedRunPolicy",
    "NodeIsOver",
    "NotFound",
    "NotWaiting",
    "PlanChanged",
    "PlanRefused",
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
    "RunTrigger",
    "Schedule",
    "ScheduleSpec",
    "ScheduledPlugin",
    "ScheduledRunCtx",
    "SchedulerConfig",
    "SchedulerHandle",
    "SchedulerService",
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
    "ToolMissing",
    "TriggerFire",
    "TriggerSpec",
    "Unauthorised",
    "Unavailable",
    "UnsupportedMediaType",
    "VersionConflict",
    "WebhookRouter",
    "WorkflowCatalog",
    "WorkflowJob",
    "WorkflowSpec",
    "WorkflowStatus",
    "WorkflowStep",
    "hmac_sha256_hex",
    "parse_schedules_yaml",
    "run_sync",
    "serve",
    "tool",
    "verify_hub_signature_256",
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
