"""Help texts: of all commands, of a group, and of one command. Formats columns; does not know what the commands do."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.cli.commands import COMMANDS, SHELVES
from holdfast.cli.parser import Argument, Command, Flag

WIDTH: Final = 100  # where there is no terminal
WIDTH_MIN: Final = 40
TEXT_MIN: Final = 20  # of a column beside names
HEAD: Final = """\
Holdfast is a durable workflow engine: runs survive crashes.

Usage: holdfast COMMAND [OPTIONS]
"""
OPTIONS: Final = (
    ("--help, -h", "Show this help; holdfast COMMAND --help describes one command."),
    ("--version", "Print the version."),
    ("--install-completion", "Install completion for your shell."),
)
TAIL: Final = """\
Examples:
  holdfast init
  holdfast run hello.yaml -i name=Ada
  holdfast runs list --status failed
"""


def of_everything() -> str:
    names = max(map(len, COMMANDS))
    parts = [HEAD]
    for title, shelf in SHELVES.items():
        parts.append(f"{title}:\n" + "".join(_row(one.name, one.summary, names) for one in shelf))
    parts.append("Options:\n" + "".join(_row(name, text, names) for name, text in OPTIONS))
    return "\n".join([*parts, TAIL])


def of_group(group: str) -> str:
    members = [command for name, command in COMMANDS.items() if name.startswith(f"{group} ")]
    names = max(len(command.name) for command in members)
    rows = "".join(_row(one.name, one.summary, names) for one in members)
    examples = "".join(f"  {command.examples[0]}\n" for command in members)
    return f"Usage: holdfast {group} COMMAND [OPTIONS]\n\nCommands:\n{rows}\nExamples:\n{examples}"


def of(command: Command) -> str:
    usage = " ".join(["Usage: holdfast", command.name, *map(_shown, command.arguments), "[OPTIONS]"])
    parts = [_wrapped(usage), _wrapped(command.summary)]
    if command.about:
        parts.append(_wrapped(command.about))
    if command.arguments:
        rows = [(argument.metavar, argument.help) for argument in command.arguments]
        parts.append(f"Arguments:\n{_rows(rows)}")
    parts.append(f"Options:\n{_rows([(_words(flag), flag.help) for flag in command.flags])}")
    title = "Example" if len(command.examples) == 1 else "Examples"
    parts.append(f"{title}:\n" + "".join(f"  {example}\n" for example in command.examples))
    return "\n".join(parts)


def _shown(argument: Argument) -> str:
    name = f"{argument.metavar}…" if argument.many else argument.metavar
    return name if argument.required else f"[{name}]"


def _words(flag: Flag) -> str:
    return " ".join([", ".join(reversed(flag.words)), *([flag.metavar] if flag.metavar else [])])


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(_row(name, text, width) for name, text in rows)


def _row(name: str, text: str, width: int) -> str:
    lines: Iterable[str] = textwrap.wrap(text, max(_width() - width - 5, TEXT_MIN))
    first, *more = lines
    return f"  {name:<{width}}   {first}\n" + "".join(f"{'':<{width + 5}}{line}\n" for line in more)


def _wrapped(text: str) -> str:
    """Paragraphs as wide as the terminal; lines that are indented stay as they are."""
    return "\n\n".join(map(_paragraph, text.split("\n\n"))) + "\n"


def _paragraph(text: str) -> str:
    if any(line.startswith(" ") for line in text.splitlines()):
        return text
    return textwrap.fill(" ".join(text.split()), _width(), break_on_hyphens=False, break_long_words=False)


def _width() -> int:
    """The width of the terminal, or what COLUMNS says."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return max(int(said), WIDTH_MIN)
    try:
        return max(os.get_terminal_size(1).columns, WIDTH_MIN)
    except OSError:  # a file or a pipe
        return WIDTH
