"""Asks for an approval on the terminal: shows the question and reads one line. Does not know what an answer does."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.cli.safe import harmless
from holdfast.cli.streams import say

_WORDS: Final = {"y": True, "yes": True, "n": False, "no": False}


class Decision(NamedTuple):
    approved: bool
    reason: str
    by: str
    form: Any


def may_ask() -> bool:
    """Whether a person is at the terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


async def decision(path: str, detail: dict[str, Any]) -> Decision | None:
    """The person's answer to an approval; None if they leave it open."""
    say(harmless(f"{path}: {detail.get('prompt') or 'approve?'}"))
    say("answer yes, no, or no with a reason; press Enter to leave it open")
    while line := await _line():
        word, _, reason = line.partition(" ")
        if (approved := _WORDS.get(word.lower())) is not None:
            schema = detail.get("form")
            form = await _filled_in(schema) if approved and schema is not None else None
            return Decision(approved, reason.strip(), getpass.getuser(), form)
        say("please answer yes or no, or press Enter to leave it open")
    return None


async def _filled_in(schema: Any) -> Any:
    """Ask until the input is JSON; an empty line gives null, which the schema then checks."""
    say(f"fill in this form, as JSON: {harmless(msgspec.json.encode(schema).decode())}")
    while text := await _line():
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            say(f"not valid JSON: {error}; try again, or press Enter to leave it open")
    return None


async def _line() -> str:
    """Read a line from the terminal, without a thread: a thread that waits for input would delay the exit."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def read() -> None:
        if not done.done():
            done.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        return str(await done).strip()
    finally:
        loop.remove_reader(sys.stdin.fileno())
