"""Workflows: their versions, and the folder that the server publishes from."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.api.types.common import Number
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
    """A version with its definition, in its original notation."""

    name: str
    number: int
    version: str
    status: Literal["draft", "published"]
    id: str
    flow_id: str
    created_at: str
    definition: dict[str, Any]


class PublishQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`draft` stores the definition without publishing it under its name."""

    number: Number | None = None
    draft: bool = False


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
