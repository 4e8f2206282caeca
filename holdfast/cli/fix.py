"""`holdfast validate --fix`: the repairs of a file, shown as a diff and then written. Does not know any notation."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast.cli.ask import may_ask
from holdfast.cli.safe import harmless
from holdfast.cli.streams import say
from holdfast.errors import InvalidSpec, LimitExceeded, Problem
from holdfast.ops.skills import SKILL
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.edit import Edited, edited
from holdfast.spec.read import parsed, text_of, write
from holdfast.spec.repair import Repaired, repaired


class Found(Protocol):
    @property
    def problems(self) -> Sequence[Problem]: ...


Read = Callable[[str | bytes], Found]  # what is found in a text; raises InvalidSpec


def fix(file: Path, read: Read, *, is_sure: bool) -> None:
    """Show the repairs of a file and write them, unless the person at the terminal says no."""
    if file.name == SKILL:
        return
    try:
        text = text_of(file)
        found = _repaired(text, read)
    except OSError:
        return  # the check of the file reports it
    if not found.patch:
        return
    before = text.decode("utf-8", "replace")
    after = edited(before, found.patch, found.data)
    _show(file, before, after)
    if is_sure or not may_ask() or _agrees():
        _write(file, after.text)
        say(f"{file}: repaired")


def _repaired(text: bytes, read: Read) -> Repaired:
    try:
        data: Any = parsed(text).data
    except InvalidSpec:
        data = UNKNOWN
    return repaired(data, _problems(read, text), lambda changed: _problems(read, write(changed)))


def _problems(read: Read, text: str | bytes) -> Sequence[Problem]:
    try:
        return read(text).problems
    except InvalidSpec as refused:
        return refused.problems
    except LimitExceeded as refused:
        return [Problem(refused.code, str(refused))]


def _show(file: Path, before: str, after: Edited) -> None:
    """On standard error, so that standard output has only what `validate` reports."""
    lines = difflib.unified_diff(
        before.splitlines(), after.text.splitlines(), str(file), f"{file} (repaired)", lineterm=""
    )
    for line in lines:
        say(harmless(line))
    if after.is_rewritten:
        say("the whole file is rewritten: its comments and layout cannot be kept")


def _agrees() -> bool:
    sys.stderr.write("write these changes? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _write(file: Path, text: str) -> None:
    """In one step: a file that is watched is never seen half written."""
    beside = file.with_name(f".{file.name}.repaired")
    beside.write_text(text, encoding="utf-8")
    os.chmod(beside, file.stat().st_mode & 0o777)
    os.replace(beside, file)
