"""The front matter of a SKILL.md: its name and metadata, from which the catalogue finds workflows and schedules.

    ---
    name: scene-maintenance
    metadata:
      dcc-mcp: {workflow: {specs: [workflows.yaml], schedules: [schedules.yaml]}}
    ---
    anything

Keys of other programs are left alone. Schedules stand in files of their own; written into the front matter they are refused.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.names import check_name
from holdfast.spec.problems import Fields, Report, Where, quoted, type_name
from holdfast.spec.read import parsed, text_of

_FENCE: Final = "---"
# Where a skill can say its schedules: a dotted key may be nested at each dot.
_SCHEDULES: Final[tuple[Where, ...]] = (
    ("schedules",),
    ("metadata", "dcc-mcp.workflow.schedules"),
    ("metadata", "dcc-mcp.workflow", "schedules"),
    ("metadata", "dcc-mcp", "workflow.schedules"),
    ("metadata", "dcc-mcp", "workflow", "schedules"),
)


class Skill(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    metadata: dict[str, Any] = {}


def skill_from_text(text: str, source: str = "") -> Skill:
    """Read the front matter; raise InvalidSpec with every problem of it."""
    report = Report(document := parsed(_front_matter(text, source), source), source)
    data = document.data if document.data is not None else {}
    if not isinstance(data, dict):
        report.add(
            "wrong_type",
            (),
            f"front matter must be a mapping, not {type_name(data)}",
            "it starts with `name: …`",
        )
        raise report.refusal()
    fields = Fields(report, data, ())
    if data.get("name") is None:
        fields.wrong("missing_key", "name", 'the key "name" is missing', "add `name: …`")
    name, description = fields.get("name", str, "text"), fields.get("description", str, "text")
    if isinstance(name, str):
        _check_name(name, fields)
    metadata = fields.get("metadata", dict, "a mapping")
    for at in _SCHEDULES:
        _refuse_schedules(data, at, report)
    if report.problems:
        raise report.refusal()
    return Skill(name, description or "", metadata or {})


def skill_from_file(path: str | os.PathLike[str]) -> Skill:
    return skill_from_text(text_of(path).decode("utf-8", "replace"), os.fspath(path))


def _check_name(name: str, fields: Fields) -> None:
    if not name.strip():
        fields.wrong("empty_name", "name", "the name is empty", "write `name: …`")
    elif "::" in name:  # it separates the skill from the workflow
        fields.wrong("invalid_name", "name", f"{quoted(name)} has :: in it", "write a single word or two")
    check_name(fields.report, ("name",), name)


def _front_matter(text: str, source: str) -> str:
    """What stands between the fences, with an empty line for the first of them, so that lines keep their numbers."""
    lines = text.removeprefix("\ufeff").splitlines()
    if lines and lines[0].rstrip() == _FENCE:
        for end, line in enumerate(lines[1:], 1):
            if line.rstrip() == _FENCE:
                return "\n".join(["", *lines[1:end]])
    hint = "begin the file with a line `---`, then `name: …`, then a line `---`"
    raise InvalidSpec([Problem("no_front_matter", "the file has no front matter", "", 1, 1, hint, source)])


def _refuse_schedules(data: Any, at: Where, report: Report) -> None:
    for key in at:
        data = data.get(key) if isinstance(data, dict) else None
    items = data if isinstance(data, list) else [data]
    for index, item in enumerate(items):
        if isinstance(item, dict):
            hint = "move it to schedules.yaml beside SKILL.md, and name that file here"
            place = (*at, index) if isinstance(data, list) else at
            report.add("inline_schedule", place, "a schedule cannot stand in the front matter", hint)
