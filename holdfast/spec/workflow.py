"""WorkflowSpec: a definition in the steps notation, from text to text.

    text ──read──► data ──build──► WorkflowSpec ──check──► every name leads somewhere
                     ▲                  │
                     └─────to_data──────┘   (what versions are hashed from)

Combines the modules beside it. Must not know plans, runs, which tools exist, or the graph
notation.

A definition whose *shape* is wrong (keys, types, kinds, policies) cannot be made; one whose *contents* are
wrong (ids, tool names, paths, templates, references) can be made and inspected, and is refused by `validate`.
Either way all problems are reported at once, each with its position.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from holdfast import values
from holdfast.errors import Problem
from holdfast.spec import inputs
from holdfast.spec.check import check, note_oddities
from holdfast.spec.document import Document
from holdfast.spec.dump import data_of
from holdfast.spec.problems import Report
from holdfast.spec.read import named, parsed, plain_from, text_of
from holdfast.spec.step_build import definition_from
from holdfast.spec.steps import Definition
from holdfast.spec.texts import Texts


class WorkflowSpec(Definition, Texts, frozen=True, dict=True):
    """A workflow in the steps notation: read from YAML, JSON or a file, checked, and written back."""

    @classmethod
    def from_yaml_str(cls, text: str | bytes, source: str = "") -> WorkflowSpec:
        """Read YAML or JSON; raise InvalidSpec with every problem if it does not have the shape of a workflow."""
        return cls.from_document(parsed(text, source))

    @classmethod
    def from_document(cls, document: Document, name: str | None = None) -> WorkflowSpec:
        return _built(named(document.data, name), Report(document, document.source))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> WorkflowSpec:
        return cls.from_yaml_str(text_of(path), os.fspath(path))

    @classmethod
    def from_data(cls, data: Any, source: str = "", name: str | None = None) -> WorkflowSpec:
        """Make a definition from plain JSON data. `name`, if given, replaces the name in the data."""
        plain = named(plain_from(data, source), name)
        return _built(plain, Report(None, source, data=plain))

    @classmethod
    def from_stored(cls, text: str | bytes) -> WorkflowSpec:
        """Read a stored definition. Written out in full, it may be larger than the limit on an author's text."""
        return _built(values.decode(text), Report(None, "", is_stored=True))

    def validate(self, template_env: Collection[str] = ()) -> None:
        """Raise InvalidSpec with every problem unless each name, path and template can be used.

        `template_env` are the variables of the environment that templates may name.
        """
        if self.origin.document is None and not self.origin.is_stored:
            # Records built in Python have not been validated; as data they pass the same checks as any definition.
            WorkflowSpec.from_data(self.to_data(), self.origin.source)
        report = self.origin.report()
        report.shape_is_read()
        check(self, report, template_env)
        if report.problems:
            raise report.refusal()

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Problems that are valid but probably not intended."""
        report = Report(self.origin.document, self.origin.source)
        note_oddities(self, report)
        return (*self.origin.notes, *report.notes)

    @property
    def step_count(self) -> int:
        """The top-level steps."""
        return len(self.steps)

    def to_data(self) -> dict[str, Any]:
        """The definition as plain data, without defaults."""
        return data_of(self)


def _built(data: Any, report: Report) -> WorkflowSpec:
    spec = definition_from(data, report, WorkflowSpec)
    if report.problems:
        report.shape_is_read()
        check(spec, report, None)  # report all problems at once, not one per attempt
        raise report.refusal()
    return spec


def examined(data: Any, report: Report, template_env: Collection[str]) -> WorkflowSpec:
    """The parts of a definition that can be read; every problem goes to the report."""
    spec = definition_from(data, report, WorkflowSpec)
    report.shape_is_read()
    check(spec, report, template_env)
    return spec


def with_defaults(spec: WorkflowSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run with defaults filled in; raises InvalidInputs with every problem."""
    return inputs.with_defaults(spec.inputs, given)
