"""`holdfast validate`: every problem of every file, in the order of the command line. Runs no step, opens no database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.cli.options import load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import problem_data, problem_lines
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say, show
from holdfast.config import Settings
from holdfast.errors import InvalidSpec, Problem
from holdfast.spec import flow_nodes, steps
from holdfast.spec.flow import FlowSpec
from holdfast.spec.notation import Definition, looked_at
from holdfast.spec.problems import Report, Where, did_you_mean, quoted
from holdfast.spec.steps import Body, PollBody, ToolBody

TOOLS_NAMED_MAX: Final = 10  # in a hint


def command(given: Given) -> int:
    """Check all files, with --tools also the tools that they call; returns the exit code."""
    reserve_stdout()
    settings = settings_of(given)
    known = load_tools(settings).names() if settings.tools else None
    found = [(file, *_looked_at(file, known, settings)) for file in map(Path, given.arguments)]
    is_valid = not any(problems for _, problems, _ in found)
    if given.has("--json"):
        is_written = give({"valid": is_valid, "files": [_data(*one) for one in found]})
    else:
        is_written = all(_tell(file, problems, notes) for file, problems, notes in found)
    if not is_written:
        return UNWRITTEN
    return 0 if is_valid else 2


def _looked_at(
    file: Path, known: Collection[str] | None, settings: Settings
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """The problems of a file, and warnings about what is probably not intended."""

    def judge(spec: Definition, report: Report) -> None:
        if known is not None:
            report_unknown_tools(spec, known, report)

    try:
        spec, problems = looked_at(file, settings.template_env, judge)
    except InvalidSpec as error:
        return error.problems, ()
    except OSError as error:
        return [Problem("unreadable", f"cannot be read: {error.strerror}", source=str(file))], ()
    return problems, spec.notes if not problems else ()


def report_unknown_tools(spec: Definition, known: Collection[str], report: Report) -> None:
    names = sorted(known)
    others = (
        f"the tools are {', '.join(names[:TOOLS_NAMED_MAX])}{', …' if len(names) > TOOLS_NAMED_MAX else ''}"
    )
    for at, who, tool in _tools_called(spec):
        if tool not in known:
            message = f"{who}: unknown tool {quoted(tool)}"
            report.add("unknown_tool", at, message, did_you_mean(tool, known) or others)


def _tools_called(spec: Definition) -> Iterator[tuple[Where, str, str]]:
    """Each call of a local tool: its position, its step and the tool."""
    if isinstance(spec, FlowSpec):
        for at, node in flow_nodes.placed(spec.graph):
            if node.kind == "local" and node.service is not None:
                yield (*at, "service"), f"node {quoted(node.key)}", node.service
        return
    for at, step in steps.placed(spec.steps, ("steps",)):
        tool = step.body.tool if isinstance(step.body, ToolBody) else _polled(step.body)
        if tool is not None:
            yield (*at, "tool"), f"step {quoted(step.id)}", tool


def _polled(body: Body) -> str | None:
    """The tool that a poll calls; one with `dcc` is on a server, and not known here."""
    return body.tool if isinstance(body, PollBody) and body.dcc is None else None


def _tell(file: Path, problems: Sequence[Problem], notes: Sequence[Problem]) -> bool:
    lines = [*problem_lines(problems), *problem_lines(notes, "note")]
    if not problems:
        say(f"{file}: valid")
    return show("".join(f"{line}\n" for line in lines))


def _data(file: Path, problems: Sequence[Problem], notes: Sequence[Problem]) -> dict[str, Any]:
    return {
        "file": str(file),
        "valid": not problems,
        "problems": [problem_data(problem) for problem in problems],
        "notes": [problem_data(note) for note in notes],
    }
