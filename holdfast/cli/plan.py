"""`holdfast plan`: what a workflow would do, as a tree and a list of tools. Runs no step, opens no database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.api import present_plans
from holdfast.api.types import Plan, PlanBlock, PlanTool
from holdfast.cli.options import load_tools, read_spec, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.safe import one_line
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, show
from holdfast.config import Settings
from holdfast.plan.compile import Resolved, names_used
from holdfast.spec.notation import Definition, path_beside
from holdfast.views.outline import outline_of


def command(given: Given) -> int:
    """Show the plan of one file; returns the exit code."""
    reserve_stdout()
    settings = settings_of(given)
    spec = read_spec(Path(given.arguments[0]), settings)
    plan = present_plans.plan(outline_of(_resolved(spec, settings, ()), load_tools(settings).annotations_of))
    if given.has("--json"):
        is_written = give(msgspec.to_builtins(plan))
    else:
        is_written = show("".join(f"{one_line(line)}\n" for line in _lines(plan)))
    return 0 if is_written else UNWRITTEN


def _resolved(spec: Definition, settings: Settings, around: tuple[str, ...]) -> Resolved:
    """A definition with those that it names and that lie beside it; others are known to a server only."""
    uses = {}
    for name in sorted(names_used(spec)):
        beside = path_beside(spec, name)
        if beside is not None and name not in (spec.name, *around):
            uses[name] = _resolved(read_spec(Path(beside), settings), settings, (*around, spec.name))
    return Resolved(spec, uses)


UNDO: Final = ".compensate"


def _lines(plan: Plan) -> Iterator[str]:
    yield plan.workflow
    yield from _tree(plan.block, "  ")
    for handler in plan.handlers:
        yield f"{handler.of} of the run:"
        yield from _tree(handler, "  ")
    undone = [
        (path.removesuffix(UNDO), tool.name)
        for tool in plan.tools
        for path in tool.steps
        if path.endswith(UNDO)
    ]
    if undone:
        yield "undone if the run fails or is cancelled later:"
    for path, by in undone:
        yield f"  {path}: by {by}"
    if plan.tools:
        yield "tools:"
    for tool in plan.tools:
        yield f"  {tool.name} ({', '.join(_marks(tool))}): {', '.join(tool.steps)}"
    yield f"plan hash: {plan.plan_hash}"


def _tree(block: PlanBlock, indent: str) -> Iterator[str]:
    for node in block.nodes:
        yield f"{indent}{node.name}: {node.kind}{f' {node.does}' if node.does else ''}"
        for inner in node.blocks:
            yield f"{indent}  {inner.of}:"
            yield from _tree(inner, indent + "    ")


def _marks(tool: PlanTool) -> list[str]:
    words = (
        ("destructive", tool.destructive),
        ("read-only", tool.read_only),
        ("idempotent", tool.idempotent),
    )
    said = [word for word, is_so in words if is_so]
    return [tool.kind, *said] if tool.is_known else [tool.kind, "not known here"]
