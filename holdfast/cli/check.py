"""`holdfast validate`: every problem of every file, in the order of the command line. Runs no step, opens no database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.cli.fix import fix
from holdfast.cli.options import load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import now_ms, problem_data, problem_lines
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say, show
from holdfast.config import Settings
from holdfast.errors import InvalidSpec, LimitExceeded, Problem
from holdfast.nearest import did_you_mean, nearest
from holdfast.ops.skills import SKILL
from holdfast.schedule.of_spec import notes_on
from holdfast.spec import flow_nodes, steps
from holdfast.spec.catalog import WorkflowCatalog
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.document import Document
from holdfast.spec.flow import FlowSpec
from holdfast.spec.notation import Definition, checked
from holdfast.spec.problems import Report, Where, quoted
from holdfast.spec.read import parsed, text_of
from holdfast.spec.schedule import holds_schedules, is_schedule_file, schedules_from_document
from holdfast.spec.schedule_check import check_together
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.skill import skill_from_file
from holdfast.spec.step_kinds import KINDS
from holdfast.tools.registry import Registry
from holdfast.views.misfits import report_misfits

TOOLS_NAMED_MAX: Final = 10  # in a hint


class Checked(NamedTuple):
    """The result of checking a file: its problems, and warnings about what is probably not intended."""

    file: Path
    problems: Sequence[Problem] = ()
    notes: Sequence[Problem] = ()
    schedules: Sequence[ScheduleSpec] = ()


def command(given: Given) -> int:
    """Check all files, with --tools also the tools that they call; returns the exit code."""
    reserve_stdout()
    settings = settings_of(given)
    tools = load_tools(settings) if settings.tools else None
    files = [Path(file) for file in given.arguments]
    if given.has("--fix"):
        for file in files:
            fix(file, partial(_read, file, tools, settings), is_sure=given.has("--yes"))
    found = _together([_checked(file, tools, settings) for file in files])
    is_valid = not any(one.problems for one in found)
    if given.has("--json"):
        is_written = give({"valid": is_valid, "files": [_data(one) for one in found]})
    else:
        is_written = all(map(_print, found))
    if not is_written:
        return UNWRITTEN
    return 0 if is_valid else 2


def _checked(file: Path, tools: Registry | None, settings: Settings) -> Checked:
    try:
        return _of_skill(file) if file.name == SKILL else _read(file, tools, settings, text_of(file))
    except InvalidSpec as error:
        return Checked(file, [one if one.source else _placed(one, file) for one in error.problems])
    except LimitExceeded as error:
        return Checked(file, [Problem(error.code, str(error), source=str(file))])
    except OSError as error:
        return Checked(file, [Problem("unreadable", f"cannot be read: {error.strerror}", source=str(file))])


def _read(file: Path, tools: Registry | None, settings: Settings, text: str | bytes) -> Checked:
    """What is found in the text of a file; raises InvalidSpec with every problem of one that cannot be used."""
    document = parsed(text, str(file))
    if is_schedule_file(file.name) or holds_schedules(document.data):
        return _of_schedules(file, document)
    return _of_workflow(file, document, tools, settings)


def _placed(problem: Problem, file: Path) -> Problem:
    return msgspec.structs.replace(problem, source=str(file))


def _of_skill(file: Path) -> Checked:
    """Check the front matter and its patterns. The files that they match are checked when they are named."""
    catalog = WorkflowCatalog.from_skill(skill_from_file(file), file.parent)
    return Checked(file, (), [_placed(one, file) for one in catalog.warnings])


def _of_schedules(file: Path, document: Document) -> Checked:
    read = schedules_from_document(document)
    notes = [note for spec in read.schedules for note in notes_on(spec, now_ms())]
    return Checked(file, (), [*read.notes, *notes], read.schedules)


def _of_workflow(file: Path, document: Document, tools: Registry | None, settings: Settings) -> Checked:
    def judge(spec: Definition, report: Report) -> None:
        if tools is not None:
            report_unknown_tools(spec, tools.names(), report)

    spec, problems = checked(document, settings.template_env, judge)
    if problems:
        return Checked(file, problems)
    report = Report(document, document.source)
    if tools is not None:
        report_misfits(spec, tools.get, report.note)
    return Checked(file, (), (*spec.notes, *report.notes))


def _together(found: list[Checked]) -> list[Checked]:
    """Problems of several schedule files together: an id or a webhook path that occurs twice."""
    by_file: dict[str, list[Problem]] = {}
    for problem in check_together(spec for one in found for spec in one.schedules):
        by_file.setdefault(problem.source, []).append(problem)
    return [one._replace(problems=[*one.problems, *by_file.get(str(one.file), ())]) for one in found]


def report_unknown_tools(spec: Definition, known: Collection[str], report: Report) -> None:
    names = sorted(known)
    others = (
        f"the tools are {', '.join(names[:TOOLS_NAMED_MAX])}{', …' if len(names) > TOOLS_NAMED_MAX else ''}"
    )
    for at, who, tool in _tools_called(spec):
        if (
            tool not in known and "/" not in tool
        ):  # a server has that tool; that the server is configured was checked before
            message = f"{who}: unknown tool {quoted(tool)}"
            near = nearest(tool, known) or UNKNOWN
            report.add("unknown_tool", at, message, did_you_mean(tool, known) or others, near=near)


def _tools_called(spec: Definition) -> Iterator[tuple[Where, str, str]]:
    """Each call of a local tool: its position, its step and the tool."""
    if isinstance(spec, FlowSpec):
        for at, node in flow_nodes.placed(spec.graph):
            if node.kind == "local" and node.service is not None:
                yield (*at, "service"), f"node {quoted(node.key)}", node.service
        return
    for at, step in steps.every_step(spec):
        who = f"step {quoted(step.id)}"
        for kind, name in KINDS[step.kind].calls(step.body):
            if kind == "tool":
                yield (*at, "tool"), who, name
        if step.compensate is not None and step.compensate.tool is not None:
            yield (*at, "compensate", "tool"), f"{who}: compensate", step.compensate.tool


def _print(found: Checked) -> bool:
    lines = [*problem_lines(found.problems), *problem_lines(found.notes, "note")]
    if not found.problems:
        say(f"{found.file}: valid")
    return show("".join(f"{line}\n" for line in lines))


def _data(found: Checked) -> dict[str, Any]:
    return {
        "file": str(found.file),
        "valid": not found.problems,
        "problems": [problem_data(problem) for problem in found.problems],
        "notes": [problem_data(note) for note in found.notes],
        "patches": [
            {"pointer": one.pointer, "patch": list(one.patch)} for one in found.problems if one.patch
        ],
    }
