"""FlowSpec: a definition in the graph notation, from text to text.

    text ──read──► data ──flow_build──► FlowSpec ──flow_check──► every name leads somewhere
                     ▲                      │
                     └───────to_data────────┘   (what versions are hashed from)

Combines the modules beside it. Must not know plans, runs, which services exist, or the steps notation.

As in the steps notation, a graph whose *shape* is wrong cannot be made, and one whose *contents* are wrong is refused
by `validate`; either way with all problems at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

from holdfast import values
from holdfast.errors import Problem
from holdfast.spec.document import Document
from holdfast.spec.dump import flow_data_of
from holdfast.spec.flow_build import flow_from
from holdfast.spec.flow_check import check_flow, note_flow_oddities
from holdfast.spec.flow_nodes import Case, Edge, FlowDefinition, FlowNode, Graph, Post, Prep, placed
from holdfast.spec.problems import Report
from holdfast.spec.read import SPEC_SUFFIXES, named, parsed, plain_from, text_of
from holdfast.spec.reference import Literal, Reference, given, key_parts, reference
from holdfast.spec.texts import Texts

__all__ = [
    "Case",
    "Edge",
    "FlowNode",
    "FlowSpec",
    "Graph",
    "Literal",
    "Post",
    "Prep",
    "Reference",
    "given",
    "key_parts",
    "reference",
]


class FlowSpec(FlowDefinition, Texts, frozen=True, dict=True):
    """A workflow in the graph notation: read from YAML, JSON or a file, checked, and written back."""

    @classmethod
    def from_yaml_str(cls, text: str | bytes, source: str = "", name: str | None = None) -> FlowSpec:
        """Read YAML or JSON; raise InvalidSpec with every problem if it does not have the shape of a graph.

        A graph without a name gets the name of its file; `name`, if given, overrides both.
        """
        return cls.from_document(parsed(text, source), name)

    @classmethod
    def from_document(cls, document: Document, name: str | None = None) -> FlowSpec:
        return _built(_named(document.data, name, document.source), Report(document, document.source))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> FlowSpec:
        return cls.from_yaml_str(text_of(path), os.fspath(path))

    @classmethod
    def from_data(cls, data: Any, source: str = "", name: str | None = None) -> FlowSpec:
        """Make a definition from plain JSON data. `name`, if given, overrides the name in the data."""
        plain = _named(plain_from(data, source), name, source)
        return _built(plain, Report(None, source, data=plain))

    @classmethod
    def from_stored(cls, text: str | bytes) -> FlowSpec:
        """Read a stored definition. Written out in full, it may exceed the size limit for texts of authors."""
        return _built(values.decode(text), Report(None, "", is_stored=True))

    def validate(self, template_env: Collection[str] = ()) -> None:
        """Raise InvalidSpec with every problem unless each name and reference is valid. Graphs have no templates that
        could refer to the environment."""
        if self.origin.document is None and not self.origin.is_stored:
            # Records built in Python have not been validated; as data they pass the same checks as any definition.
            FlowSpec.from_data(self.to_data(), self.origin.source)
        report = self.origin.report()
        report.shape_is_read()
        check_flow(self, report)
        if report.problems:
            raise report.refusal()

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Warnings: valid, but probably not intended."""
        report = Report(self.origin.document, self.origin.source)
        note_flow_oddities(self, report)
        return (*self.origin.notes, *report.notes)

    @property
    def step_count(self) -> int:
        """The nodes of the top level."""
        return len(self.nodes)

    @property
    def names(self) -> frozenset[str]:
        """The workflows that it names, in subflows too."""
        return frozenset(node.flow for _, node in placed(self.graph) if node.flow is not None)

    def to_data(self) -> dict[str, Any]:
        """The definition as plain data, without defaults."""
        return flow_data_of(self)


def _named(data: Any, name: str | None, source: str) -> Any:
    """The data of a graph with its name in it."""
    file = PurePath(source)
    if name is None and isinstance(data, dict) and data.get("name") is None and file.suffix in SPEC_SUFFIXES:
        name = file.stem
    return named(data, name)


def _built(data: Any, report: Report) -> FlowSpec:
    spec = flow_from(data, report, FlowSpec)
    if report.problems:
        report.shape_is_read()
        check_flow(spec, report)  # report all other problems in the same pass
        raise report.refusal()
    return spec


def examined(data: Any, report: Report) -> FlowSpec:
    """Read as much of a graph as possible, and report every problem."""
    spec = flow_from(_named(data, None, report.source), report, FlowSpec)
    report.shape_is_read()
    check_flow(spec, report)
    return spec
