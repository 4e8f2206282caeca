"""Parses a command line: from the words that were typed to values, or to what is wrong with them.

Knows words, flags and their values. Does not know what a command does. Imports almost nothing, because help and shell
completion must be fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.nearest import did_you_mean


class Flag(NamedTuple):
    """`--name VALUE`, or `--name` alone if it has no metavar. A flag with `many` may be repeated."""

    name: str
    help: str
    metavar: str = ""
    short: str = ""
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return (self.short, self.name) if self.short else (self.name,)


class Argument(NamedTuple):
    """A positional argument. `files` says what a shell may complete it with: *.yaml, any, or none."""

    metavar: str
    help: str
    required: bool = True
    many: bool = False
    files: str = ""
    choices: tuple[str, ...] = ()


class Command(NamedTuple):
    """One command. `calls` is module:function, imported when the command is called."""

    name: str
    summary: str
    calls: str
    about: str
    examples: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    flags: tuple[Flag, ...] = ()

    def flag(self, word: str) -> Flag | None:
        return next((flag for flag in self.flags if word in flag.words), None)


class Given:
    """The parsed values, by the names of the flags."""

    def __init__(self, values: dict[str, list[str]], arguments: Sequence[str]) -> None:
        self._values, self.arguments = values, tuple(arguments)

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """The value of a flag; if it was repeated, the last one."""
        return self._values[name][-1] if name in self._values else None

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._values.get(name, ()))

    @property
    def argument(self) -> str | None:
        return self.arguments[0] if self.arguments else None


class Misread(Exception):
    """The command line is not valid: why, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)


def read(command: Command, words: Sequence[str]) -> Given:
    """Parse the words after a command; raises Misread."""
    values: dict[str, list[str]] = {}
    arguments: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            arguments += rest
            break
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            continue
        flag, value = _flag(command, word)
        if flag.metavar and value is None:
            if not rest or command.flag(rest[0]) is not None:
                raise Misread(f"{flag.name} needs a value", f"write {flag.name} {flag.metavar}")
            value = rest.pop(0)
        values.setdefault(flag.name, []).append(_fit(flag.name, flag.choices, value or ""))
    _count(command, arguments)
    return Given(values, arguments)


def _flag(command: Command, word: str) -> tuple[Flag, str | None]:
    """The flag of a word, and its value if the same word contains it: `--db=x`, `-ia=1`."""
    name, equals, value = word.partition("=")
    flag = command.flag(name)
    if flag is not None and (flag.name == name or not equals):
        if equals and not flag.metavar:
            raise Misread(f"{name} takes no value")
        return flag, value if equals else None
    flag = command.flag(word[:2])
    if flag is not None and flag.metavar and not word.startswith("--"):
        return flag, word[2:].removeprefix("=")
    known = [one for flag in command.flags for one in flag.words]
    raise Misread(f"{command.name} has no option {name}", did_you_mean(name, known) or _help(command))


def _fit(name: str, choices: tuple[str, ...], value: str) -> str:
    if choices and value not in choices:
        raise Misread(f"{name} must be {' or '.join(choices)}, not {value!r}", did_you_mean(value, choices))
    return value


def _count(command: Command, arguments: list[str]) -> None:
    wanted = command.arguments
    for argument, value in zip(wanted, arguments, strict=False):
        _fit(argument.metavar, argument.choices, value)
    missing = [argument.metavar for argument in wanted if argument.required][len(arguments) :]
    if missing:
        raise Misread(f"{command.name} needs {' and '.join(missing)}", f"for example: {command.examples[0]}")
    if len(arguments) > len(wanted) and not (wanted and wanted[-1].many):
        raise Misread(
            f"{command.name} does not accept the argument {arguments[len(wanted)]!r}", _help(command)
        )


def _help(command: Command) -> str:
    return f"see holdfast {command.name} --help"
