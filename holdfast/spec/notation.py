"""A definition in either notation: which one it is, and how it is read.

Knows how to distinguish the two: a mapping with `nodes` or `start` is a graph, any other is a list of steps. Must not
know more of either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from holdfast import values
from holdfast.errors import InvalidSpec, Problem
from holdfast.spec import flow, workflow
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.document import Document
from holdfast.spec.flow import FlowSpec
from holdfast.spec.problems import Report
from holdfast.spec.read import SPEC_SUFFIXES, parsed, plain_from, text_of
from holdfast.spec.repair import Repaired, repaired
from holdfast.spec.workflow import WorkflowSpec

Definition: TypeAlias = WorkflowSpec | FlowSpec


def is_graph(data: Any) -> bool:
    return isinstance(data, Mapping) and ("nodes" in data or "start" in data)


def definition_from(data: Any, source: str = "", name: str | None = None) -> Definition:
    """Make a definition from plain data. `name`, if given, overrides the name in the data."""
    return (FlowSpec if is_graph(data) else WorkflowSpec).from_data(data, source, name)


def definition_from_text(text: str | bytes, source: str = "", name: str | None = None) -> Definition:
    """Read YAML or JSON; raise InvalidSpec with every problem of its shape. `name` as in definition_from."""
    document = parsed(text, source)
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


Judge: TypeAlias = Callable[[Definition, Report], None]  # reports problems that only the caller can find


class Examined(NamedTuple):
    """A definition that was checked. `data` is UNKNOWN if its text could not be read at all."""

    spec: Definition | None  # only if there are no problems
    problems: Sequence[Problem]
    data: Any
    notes: Sequence[Problem] = ()


def checked(
    document: Document, template_env: Collection[str], judge: Judge
) -> tuple[Definition, Sequence[Problem]]:
    """Read as much of a definition as possible, and return it with every problem."""
    return _judged(document.data, Report(document, document.source), template_env, judge)


def examined(
    given: str | bytes | Mapping[str, Any],
    source: str = "",
    template_env: Collection[str] = (),
    judge: Judge | None = None,
) -> Examined:
    """Check a definition in any form. Unreadable text is reported as a problem; nothing is raised."""
    data: Any = UNKNOWN
    try:
        if isinstance(given, str | bytes):
            document = parsed(given, source)
            report, data = Report(document, source), document.data
        else:
            data = plain_from(given, source)
            report = Report(None, source, data=data)
        spec, problems = _judged(data, report, template_env, judge or _no_judge)
        return Examined(None, problems, data) if problems else Examined(spec, (), data, spec.notes)
    except InvalidSpec as refused:
        return Examined(None, refused.problems, data)


def repair(
    found: Examined, source: str = "", template_env: Collection[str] = (), judge: Judge | None = None
) -> Repaired:
    """Apply the patches of the problems of a definition, repeatedly, until no patch helps."""
    return repaired(
        found.data, found.problems, lambda data: examined(data, source, template_env, judge).problems
    )


def _no_judge(spec: Definition, report: Report) -> None:
    """The check of a caller that knows nothing beyond the definition."""


def _judged(
    data: Any, report: Report, template_env: Collection[str], judge: Judge
) -> tuple[Definition, Sequence[Problem]]:
    spec: Definition = (
        flow.examined(data, report) if is_graph(data) else workflow.examined(data, report, template_env)
    )
    judge(spec, report)
    return spec, report.refusal().problems
