"""A definition in either notation: which one it is, and how it is read.

Knows how to distinguish the two: a mapping with `nodes` or `start` is a graph, any other is a list of steps. Must not
know more of either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from holdfast import values
from holdfast.errors import Problem
from holdfast.spec import flow, workflow
from holdfast.spec.flow import FlowSpec
from holdfast.spec.problems import Report
from holdfast.spec.read import SPEC_SUFFIXES, Document, look_at, text_of
from holdfast.spec.workflow import WorkflowSpec

Definition: TypeAlias = WorkflowSpec | FlowSpec


def is_graph(data: Any) -> bool:
    return isinstance(data, Mapping) and ("nodes" in data or "start" in data)


def definition_from(data: Any, source: str = "", name: str | None = None) -> Definition:
    """Make a definition from plain data. `name`, if it is given, counts instead of the one in the data."""
    return (FlowSpec if is_graph(data) else WorkflowSpec).from_data(data, source, name)


def definition_from_text(text: str | bytes, source: str = "", name: str | None = None) -> Definition:
    """Read YAML or JSON; raise InvalidSpec with every problem of its shape. `name` counts as in definition_from."""
    document = look_at(text, source)
    return (FlowSpec if is_graph(document.data) else WorkflowSpec).from_document(document, name)


def definition_from_file(path: str | os.PathLike[str]) -> Definition:
    return definition_from_text(text_of(path), os.fspath(path))


def definition_from_stored(text: str | bytes) -> Definition:
    """Read a definition that was stored."""
    return (FlowSpec if is_graph(values.decode(text)) else WorkflowSpec).from_stored(text)


def path_beside(spec: Definition, name: str) -> str | None:
    """The file `<name>.yaml` in the folder of the definition that names it, if there is such a file."""
    folder, source = os.path.split(spec.origin.source)
    if not source or not os.path.isfile(spec.origin.source) or os.path.basename(name) != name:
        return None
    for suffix in SPEC_SUFFIXES:
        path = os.path.join(folder, name + suffix)
        if os.path.isfile(path):
            return path
    return None


def looked_at(
    document: Document,
    template_env: Collection[str],
    judge: Callable[[Definition, Report], None],
) -> tuple[Definition, Sequence[Problem]]:
    """A definition as far as it can be read, with every problem of it. `judge` reports what only the caller can know."""
    report = Report(document, document.source)
    is_flow = is_graph(document.data)
    spec: Definition = (
        flow.examined(document, report) if is_flow else workflow.examined(document, report, template_env)
    )
    judge(spec, report)
    return spec, report.refusal().problems
