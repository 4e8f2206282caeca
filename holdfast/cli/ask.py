"""Asks for an approval on the terminal: shows the question, reads a line, and asks for each field of a form. Does not know what an
answer does."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.cli.safe import harmless
from holdfast.cli.streams import say
from holdfast.spec.jsonschema import Judge, count_rules

LEFT_OUT: Final = object()
ENDED: Final = object()  # the input has ended
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
    """Ask field by field, and again after a mistake; null if the form is left empty, which the engine then judges."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict) or not fields:
        return await _as_json(schema)
    form: dict[str, Any] = {}
    say("fill in the form; press Enter to leave a field out")
    while True:
        for name, rule in fields.items():
            value = await _field(schema, name, rule)
            if value is ENDED:
                return None
            if value is not LEFT_OUT:
                form[name] = value
        if not (wrong := _mistakes(schema, form)):
            return form
        say(harmless(f"the form does not fit: {'; '.join(wrong)}; please fill it in again"))
        form = {}


async def _field(schema: dict[str, Any], name: str, rule: Any) -> Any:
    """The value of a field, asked for until it fits; LEFT_OUT, or ENDED at the end of the input."""
    is_needed, rule = name in schema.get("required", ()), rule if isinstance(rule, dict) else {}
    whole = {**rule, **{key: schema[key] for key in ("$defs", "definitions") if key in schema}}
    say(
        harmless(
            f"{name} ({_described(rule, is_needed=is_needed)}): {rule.get('description', '')}".rstrip(": ")
        )
    )
    while (text := await _read()) is not None:
        if not text and "default" in rule:
            return rule["default"]
        if not text and not is_needed:
            return LEFT_OUT
        value = _value(rule, text)
        if text and not (wrong := _mistakes(whole, value)):
            return value
        say(harmless(f"{name} {'; '.join(wrong) if text else 'is needed'}; please try again"))
    return ENDED


def _described(rule: dict[str, Any], *, is_needed: bool) -> str:
    if isinstance(rule.get("enum"), list):
        kind = "one of " + ", ".join(one if isinstance(one, str) else _json(one) for one in rule["enum"])
    else:
        kind = "yes or no" if rule.get("type") == "boolean" else str(rule.get("type", "JSON"))
    default = f", default {_json(rule['default'])}" if "default" in rule else ""
    return kind + (default or (", needed" if is_needed else ""))


def _value(rule: dict[str, Any], text: str) -> Any:
    """What a person means by a text: a choice or a text as it is written, yes or no, or else JSON."""
    choices = rule.get("enum")
    if rule.get("type") == "string" or (isinstance(choices, list) and text in choices):
        return text
    if rule.get("type") == "boolean" and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _mistakes(schema: Any, value: Any) -> list[str]:
    found = Judge(schema, count_rules(schema)).mismatches(value)
    return [f"{'.'.join(map(str, one.path))} {one.message}".strip() for one in found]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def _as_json(schema: Any) -> Any:
    """Ask until the input is JSON; an empty line gives null, which the schema then checks."""
    say(f"fill in this form, as JSON: {harmless(_json(schema))}")
    while text := await _line():
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            say(f"not valid JSON: {error}; try again, or press Enter to leave it open")
    return None


async def _line() -> str:
    """A line; empty at the end of the input."""
    return await _read() or ""


async def _read() -> str | None:
    """Read a line from the terminal, without a thread: a thread that waits for input would delay the exit. None at the end."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def read() -> None:
        if not done.done():
            done.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        text = str(await done)
        return text.strip() if text else None
    finally:
        loop.remove_reader(sys.stdin.fileno())
