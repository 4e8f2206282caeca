"""Workflows: their versions, and the folder that the server publishes from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast.api.types.common import Number, Time
from holdfast.errors import Problem


class Release(msgspec.Struct, frozen=True):
    """One version of a workflow. `version` is the hash of its definition, `number` counts under its name."""

    name: str
    number: int
    version: str
    status: Literal["draft", "published"]
    id: str
    flow_id: str
    created_at: str
    warnings: list[str] = []  # when it is published: tools that no engine has, services that no worker serves


class ReleasePage(msgspec.Struct, frozen=True):
    items: list[Release]
    cursor: str | None


class WorkflowLine(msgspec.Struct, frozen=True):
    """A name, and the version that it currently refers to; null until one is published under it."""

    name: str
    flow_id: str
    description: str
    number: int | None
    version: str | None
    created_at: str
    published_at: str | None


class WorkflowPage(msgspec.Struct, frozen=True):
    items: list[WorkflowLine]
    cursor: str | None


class Workflow(msgspec.Struct, frozen=True):
    """A version with its definition, in its original notation.

    `source` is the text as it was published, with comments; if the definition was given as data, it is YAML made from it.
    """

    name: str
    number: int
    version: str
    status: Literal["draft", "published"]
    id: str
    flow_id: str
    created_at: str
    definition: dict[str, Any]
    source: str = ""
    is_as_written: bool = False


class WorkflowVersion(msgspec.Struct, frozen=True):
    """A definition by its hash, which every run names. `uses` are the versions of the workflows that it names."""

    version: str
    name: str
    definition: dict[str, Any]
    source: str
    is_as_written: bool
    uses: dict[str, str]
    created_at: str


class NumberQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`number` is the version; default: the current one."""

    number: Number | None = None


class PublishQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`draft` stores the definition without publishing it under its name. `strict` refuses a definition that calls a tool that no
    engine has, or a service that no worker serves."""

    number: Number | None = None
    draft: bool = False
    strict: bool = False


class DiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    from_: Number = msgspec.field(name="from")
    to: Number


class Diff(msgspec.Struct, frozen=True):
    name: str
    from_: int = msgspec.field(name="from")
    to: int
    text: str  # lines of the two definitions as YAML, with + and -
    pointers: list[str]  # to what differs


class RollBack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: Number


class FolderQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which folder: that of `--flows`, `--skills` or `--schedules`."""

    of: Literal["flows", "skills", "schedules"] = "flows"


class FolderFile(msgspec.Struct, frozen=True):
    """One file of a folder that the server publishes. If a file breaks, its last published version stays."""

    file: str
    name: str | None
    status: Literal["published", "broken"]
    problems: list[Problem]


class FolderReport(msgspec.Struct, frozen=True):
    """`folder` is null if the server has no such folder; `problem` concerns the folder as a whole."""

    folder: str | None
    problem: str
    items: list[FolderFile]


class StatsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `last` finished runs, of one version with `number`, and created from then on with `from`."""

    last: Annotated[int, msgspec.Meta(ge=1, le=500)] = 200
    number: Number | None = None
    from_: Time | None = msgspec.field(default=None, name="from")


class StepStats(msgspec.Struct, frozen=True):
    """A step of the definition, all its items and visits together. `runs` counts how often it ended."""

    path: str
    kind: str
    runs: int
    failed: int
    retries: int
    p50_ms: int | None
    p95_ms: int | None


class WorkflowStats(msgspec.Struct, frozen=True):
    """How the last finished runs of a workflow went. `success` is the share of those that completed among those that completed or failed.
    `from` is when the oldest of them was created, `to` when the newest was; null without runs. The steps are those of `steps_of` of
    these runs, the newest ones, and of a run with many rows those in its first 200."""

    workflow: str
    number: int | None
    runs: int
    completed: int
    failed: int
    cancelled: int
    interrupted: int
    success: float | None
    p50_ms: int | None
    p95_ms: int | None
    from_: str | None = msgspec.field(name="from")
    to: str | None
    steps: list[StepStats]
    steps_of: int
