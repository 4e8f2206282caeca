"""The command `holdfast`: takes arguments, returns an exit code. Each command imports its modules when it is called.

Exit codes: 0 completed, 1 failed or interrupted, 2 invalid, usage or a result that cannot be written, 3 cancelled,
4 waits for something external, 129, 130 and 143 stopped by a signal.
"""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING, Any, Final

from holdfast import __version__
from holdfast.cli.commands import COMMANDS, GROUPS
from holdfast.cli.parser import Command, Given, Misread, read
from holdfast.nearest import did_you_mean

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError

INVALID: Final = 2
INTERRUPTED: Final = 130


def main() -> None:
    ended: list[int] = []
    atexit.register(_leave_threads, ended)  # what is registered first runs last
    try:
        code = called(sys.argv[1:])
    except KeyboardInterrupt:  # before there was a run to save
        code = INTERRUPTED
    ended.append(code)
    sys.exit(code)


def _leave_threads(ended: list[int]) -> None:
    """End the process while threads of sync tools still run. Python would abort if one holds a standard stream, as in `input()`."""
    import os
    import threading

    if ended and any(thread.daemon for thread in threading.enumerate()):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except (OSError, ValueError):  # the terminal is closed
                continue
        os._exit(ended[0])


def called(words: list[str]) -> int:
    """Run the command. With --json, errors of the command line are JSON too."""
    try:
        if (code := _answered(words)) is not None:
            return code
        command, rest = _named(words)
        given = read(command, rest)
    except Misread as error:
        from holdfast.cli.options import Usage

        return _refused(Usage(str(error)), as_json="--json" in words)
    return _carried_out(command, given)


def _answered(words: list[str]) -> int | None:
    """Options of holdfast itself, and --help anywhere on the line."""
    from holdfast.cli import help as texts

    match words:
        case [] | ["--help" | "-h" | "help"]:
            return _print(texts.of_everything())
        case ["--version"]:
            return _print(f"{__version__}\n")
        case ["--install-completion", *shell]:
            from holdfast.cli.completion import install

            return install(shell[0] if shell else None)
        case [group] | [group, "--help" | "-h"] if group in GROUPS:
            return _print(texts.of_group(group))
    asks = words[: words.index("--")] if "--" in words else words
    if ("--help" in asks or "-h" in asks) and not words[0].startswith("-"):
        return _print(texts.of(_named([word for word in asks if not word.startswith("-")])[0]))
    return None


def _named(words: list[str]) -> tuple[Command, list[str]]:
    """The command that the first words name, and the words after it."""
    size = 2 if words[0] in GROUPS else 1
    name = " ".join(words[:size])
    if name in COMMANDS:
        return COMMANDS[name], words[size:]
    if name.startswith("-"):
        hint = did_you_mean(name, ["--help", "--version", "--install-completion"])
        raise Misread(f"holdfast has no option {name}", hint or "name a command first; see holdfast --help")
    whole = [one for one in COMMANDS if one.endswith(f" {words[0]}")]
    if size == 1 and whole:  # the second word of commands such as `runs logs`
        raise Misread(f"there is no command {name!r}", f"did you mean {' or '.join(sorted(whole))}?")
    siblings = {one.split(" ")[size - 1] for one in COMMANDS if size == 1 or one.startswith(f"{words[0]} ")}
    hint = did_you_mean(words[size - 1], sorted(siblings))
    raise Misread(f"there is no command {name!r}", hint or "see holdfast --help")


def _carried_out(command: Command, given: Given) -> int:
    """Call the command. Its errors become messages, JSON if requested, and exit code 2."""
    from importlib import import_module

    from holdfast.errors import HoldfastError

    module, _, function = command.calls.partition(":")
    try:
        carry_out = getattr(import_module(module), function)
        _raise_interrupts()
        code: int = carry_out(given)
    except HoldfastError as error:
        return _refused(error, as_json=given.has("--json"))
    return code


def _raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on; until here it ended the process (see entry.py)."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _refused(error: HoldfastError, *, as_json: bool) -> int:
    from holdfast.cli.render import problem_data, problem_lines
    from holdfast.cli.streams import give, say
    from holdfast.errors import InvalidRequest

    problems: Any = getattr(error, "problems", ())
    if as_json:
        details = [problem_data(problem) for problem in problems]
        give({"error": error.code, "message": str(error), "details": details})
    elif problems and not isinstance(error, InvalidRequest):  # those are of a body that a command wrote
        say("\n".join(problem_lines(problems)))
    else:
        say(f"holdfast: {error}")
    return INVALID


def _print(text: str) -> int:
    import os

    try:
        sys.stdout.flush()
        os.write(1, text.encode())
    except BrokenPipeError:
        return 0
    except OSError as error:
        sys.stderr.write(f"holdfast: cannot write to standard output: {error.strerror}\n")
        return INVALID
    return 0


def version_command(given: Given) -> int:
    from holdfast.cli.streams import UNWRITTEN, give

    if not given.has("--json"):
        return _print(f"{__version__}\n")
    return 0 if give({"version": __version__}) else UNWRITTEN


if __name__ == "__main__":
    main()
