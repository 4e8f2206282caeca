"""Placeholders in the inputs of a schedule, `{{trigger.…}}`: finds them in a text, and those that can never be filled in.

Knows names. schedule/template.py fills them in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.nearest import did_you_mean

# What follows `trigger.`; only the payload has further members.
NAMES: Final = ("payload", "schedule_id", "workflow", "kind", "scheduled_at", "fired_at", "is_catchup")


class Placeholder(NamedTuple):
    start: int
    end: int
    path: str


def placeholders(text: str) -> Iterator[Placeholder]:
    """The placeholders in a text, in order. Unclosed braces are plain text."""
    at = 0
    while (start := text.find("{{", at)) >= 0 and (end := text.find("}}", start + 2)) >= 0:
        at = end + 2
        yield Placeholder(start, at, text[start + 2 : end].strip())


def leads_nowhere(path: str, *, has_payload: bool) -> tuple[str, str] | None:
    """Why a placeholder is never filled in, and what to write instead; None if it may be."""
    root, *segments = path.split(".")
    if root != "trigger" or not segments:
        return "only trigger has values here", "write {{trigger.payload}} or {{trigger.scheduled_at}}"
    name, *members = segments
    if name not in NAMES:
        hint = did_you_mean(name, NAMES) or f"trigger has {', '.join(NAMES)}"
        return f"trigger has no {name or 'such name'}", hint
    if members and name != "payload":
        return f"{name} has no members", f"write {{{{trigger.{name}}}}}"
    if members and not has_payload:
        return "the payload of a clock is empty", "write {{trigger.scheduled_at}} for the time that was due"
    return None
