"""Holds the arguments that a definition writes against the signatures of the tools that it calls.

    step ──► its tool ──► arguments that the tool does not take, that are missing, or whose written value does not fit

What a template gives is known only when it is rendered, so its value is not judged. Must not know runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from holdfast.nearest import did_you_mean, nearest
from holdfast.plan.graph import COMPENSATE
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.flow import FlowSpec
from holdfast.spec.flow_nodes import FlowNode
from holdfast.spec.notation import Definition
from holdfast.spec.problems import one_of, quoted
from holdfast.tools.registry import Tool
from holdfast.tools.signature import Fault
from holdfast.views.outline import Where, step_paths, targets_of, undone_by


class Says(Protocol):
    """Reports one problem or note; `near` is the name that was probably meant."""

    def __call__(
        self, code: str, at: Where, message: str, hint: str = "", *, near: Any = UNKNOWN
    ) -> None: ...


def report_misfits(spec: Definition, tool_of: Callable[[str], Tool | None], says: Says) -> None:
    """Say of each written argument that does not fit its tool where it is and what is wrong with it."""
    for path, at, target, args in _calls(spec):
        tool = tool_of(target)
        for fault in () if tool is None else tool.faults(args, is_judged=_is_plain):
            _say(fault, f"step {quoted(path)}: the tool {quoted(target)}", at, args, says)


def _say(fault: Fault, who: str, at: Where, args: dict[str, Any], says: Says) -> None:
    place = (*at, "args", fault.name)
    if fault.kind == "unknown":
        free = [name for name in fault.names if name not in args]
        hint = did_you_mean(fault.name, free) or (f"it takes {one_of(fault.names)}" if fault.names else "")
        near = nearest(fault.name, free) or UNKNOWN
        says("unknown_argument", place, f"{who} takes no argument {quoted(fault.name)}", hint, near=near)
    elif fault.kind == "missing":
        hint = f"add `{fault.name}: …` to `args`"
        says(
            "missing_argument",
            (*at, "args") if args else at,
            f"{who} needs the argument {quoted(fault.name)}",
            hint,
        )
    else:
        says("wrong_argument", place, f"{who}: {fault.message}")


def _calls(spec: Definition) -> Iterator[tuple[str, Where, str, dict[str, Any]]]:
    """Each call of a local tool whose arguments are written by name. A graph hands its tools one value, which the run makes."""
    if isinstance(spec, FlowSpec):
        return
    for path, step in step_paths(spec):
        if isinstance(step.what, FlowNode):
            continue
        undo = step.what.compensate
        for name, at, body, targets in (
            (path, step.at, step.what.body, targets_of(step.what)),
            (f"{path}.{COMPENSATE}", (*step.at, COMPENSATE), undo, undone_by(step.what)),
        ):
            args = getattr(body, "args", None)
            for kind, target in targets:
                if kind == "tool" and isinstance(args, dict | None):
                    yield name, at, target, args or {}


def _is_plain(value: Any) -> bool:
    """Whether a value is written as it will be: text may have a template, and so may the parts of a list or an object."""
    return isinstance(value, int | float) or (isinstance(value, str) and "{{" not in value)
