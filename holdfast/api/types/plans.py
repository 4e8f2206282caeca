"""Definitions before they run: whether they are valid, how they are repaired, and what they would do."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from holdfast.api.types.common import Either, Name, Number
from holdfast.errors import Problem


class ValidateSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` is a definition in either notation, as data or as YAML text."""

    spec: dict[str, Any] | str


class PlanWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`workflow` is a published name, `spec` a definition in either notation, as data or as YAML text: give exactly one."""

    workflow: Name | None = None
    spec: dict[str, Any] | str | None = None
    number: Number | None = None  # release of the workflow; default: the published one

    EITHER: ClassVar[Either] = {"workflow": ("spec",), "spec": ("workflow", "number")}

    def __post_init__(self) -> None:
        if (self.workflow is None) == (self.spec is None):
            raise ValueError("give either `workflow`, a published name, or `spec`, a definition")
        if self.number is not None and self.workflow is None:
            raise ValueError("`number` is the release of a published workflow: give `workflow` too")


class PlanEdge(msgspec.Struct, frozen=True):
    """Which node follows which; `to` is empty at the end, and `on` is the action that leads there."""

    from_: str = msgspec.field(name="from")
    to: str
    on: str


class PlanNode(msgspec.Struct, frozen=True):
    """A step. `does` names what it calls or waits for; `blocks` are the steps inside it."""

    name: str
    kind: str
    does: str
    line: int
    blocks: list[PlanBlock]


class PlanBlock(msgspec.Struct, frozen=True):
    """Steps that belong together; `of` is the key that they stand under in their step."""

    nodes: list[PlanNode]
    edges: list[PlanEdge]
    of: str


class PlanTool(msgspec.Struct, frozen=True):
    """A tool or service that is called, and the paths of the steps that call it. A mark is null if it is not known."""

    name: str
    kind: Literal["tool", "remote", "service"]
    steps: list[str]
    destructive: bool | None
    read_only: bool | None
    idempotent: bool | None
    is_known: bool


class Plan(msgspec.Struct, frozen=True):
    """What a run would do. `plan_hash` can be required by a start, which is refused if the plan has changed since."""

    workflow: str
    version: str
    plan_hash: str
    block: PlanBlock
    tools: list[PlanTool]
    workflows: list[str]
    destructive: bool
    approvals: list[str]
    handlers: list[PlanBlock] = []  # `on_error` and `finally` of the whole run


class Validation(msgspec.Struct, frozen=True):
    """`patch` repairs all problems that can be repaired, `repaired` is the definition after it, and `left` are the problems
    that it leaves. `plan` is that of a valid definition whose nested workflows are published. `inputs` is what it declares, and
    `inputs_schema` the same as a JSON Schema of the inputs object."""

    valid: bool
    problems: list[Problem]
    notes: list[Problem]
    patch: list[dict[str, Any]]
    left: list[Problem]
    repaired: Any
    plan: Plan | None
    inputs: Any
    inputs_schema: dict[str, Any]
