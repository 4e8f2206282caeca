"""Where a command writes: its result to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from holdfast.cli.safe import BEYOND_JSON, in_unicode, one_line, shown

UNWRITTEN: Final = 2  # not 1: whether the result could be written says nothing about how the run ended
_CLOSED: Final = -1

_result_fd = 1
_speaker: Callable[[str], None] | None = None


def reserve_stdout() -> None:
    """Reserve standard output for the result; everything else that is written there goes to standard error.

    This includes C code and processes that tools start. It cannot be undone: a tool may still be running in a thread
    when the command has ended.
    """
    global _result_fd  # noqa: PLW0603  # a process has one standard output
    if _result_fd != 1:
        return
    try:
        _result_fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:
        _result_fd = _CLOSED
    _fill_gaps()
    sys.stdout = sys.stderr
    os.dup2(2, 1)


def hand_on_stdout() -> None:
    """Give standard output back to the program that replaces this one."""
    if _result_fd > 1:
        os.dup2(_result_fd, 1)


def _fill_gaps() -> None:
    """Make sure that a closed standard stream is not reused by the first file that is opened, such as the database."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # open until the end


def speak_through(speaker: Callable[[str], None]) -> None:
    """From now on messages for the person go this way, for example into JSON log lines."""
    global _speaker  # noqa: PLW0603  # a process has one standard error
    _speaker = speaker


def say(text: str) -> None:
    """Print a message for the person. Results for programs go to standard output instead."""
    if sys.stderr is None:
        return
    if _speaker is not None:
        return _speaker(text.strip())
    with contextlib.suppress(OSError):  # the terminal is closed; the command still has to finish
        print(shown(text), file=sys.stderr, flush=True)


def give(data: Any) -> bool:
    """Write data as JSON in UTF-8, whatever the locale is. If it cannot be written, print an error and return False."""
    try:
        text = data if isinstance(data, bytes) else msgspec.json.encode(data)
    except UnicodeEncodeError:
        text = msgspec.json.encode(in_unicode(data))
    formatted = msgspec.json.format(text, indent=2).decode()
    return put(formatted.translate(BEYOND_JSON).encode() + b"\n")


def show(text: str) -> bool:
    """The same for text that people read, which may contain foreign text."""
    return put(shown(text).encode())


def show_lines(lines: Iterable[str]) -> bool:
    """The same for lines: foreign text in one of them begins no other."""
    return show("".join(f"{one_line(line)}\n" for line in lines))


def put(text: bytes) -> bool:
    """The same for text that needs no escaping."""
    try:
        while text:
            text = text[os.write(_result_fd, text) :]
    except BrokenPipeError:
        return True  # the reader has closed the pipe
    except OSError as error:
        say(f"holdfast: cannot write to standard output: {error.strerror}")
        return False
    return True
