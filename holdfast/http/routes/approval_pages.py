"""The pages of approval links, as text: the question with its form, and its outcome.

Foreign text (a prompt, names, form values) is always escaped. Knows the simple part of JSON Schema that can be shown
as fields; the runtime checks the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

import msgspec

from holdfast.api.types import time_text
from holdfast.values import decode
from holdfast.waits.approval_links import Question

ABSENT: Final = object()
PREFIX: Final = "form."  # before the names of fields that are the form's
WHOLE: Final = "form"  # a form that is not an object is edited as JSON

_OUTCOMES: Final = {
    "approved": "This was approved.",
    "denied": "This was denied.",
    "answered": "This was answered.",
    "cancelled": "This approval is closed: the run continued without it, or was cancelled.",
}


# -------------------------------------------------------------------------------------------------------- pages


def nothing() -> str:
    return _page("Nothing here", "<p>This link does not hold, or holds no more.</p>")


def question(asked: Question, filled: Mapping[str, str] = {}, problem: str = "") -> str:
    """The question, with the values entered before if they were not valid."""
    alert = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
    reason = escape(filled.get("reason", ""))
    return _page(
        f"Approval: {asked.workflow}",
        f"{_facts(asked)}{alert}"
        f'<form method="post" accept-charset="utf-8">{_fields(asked.form, filled)}'
        f'<label>Reason <textarea name="reason" rows="2" maxlength="10000">{reason}</textarea></label>'
        '<p><button name="answer" value="approve">Approve</button> '
        '<button name="answer" value="deny" formnovalidate>Deny</button></p></form>',
    )


def over(asked: Question) -> str:
    """The approval was answered, perhaps by this very link, or is no longer open."""
    at = "" if asked.resolved_at is None else f" ({time_text(asked.resolved_at)})"
    return said(asked, _OUTCOMES.get(asked.outcome or "", "This approval is closed.") + at)


def counted(asked: Question, *, approved: bool, decided: bool) -> str:
    word = "approved" if approved else "denied"
    more = "That decides it." if decided else "More answers are needed to decide it."
    return said(asked, f"You {word} this. {more}")


def said(asked: Question, sentence: str) -> str:
    return _page(f"Approval: {asked.workflow}", f'{_facts(asked)}<p class="said">{escape(sentence)}</p>')


def _facts(asked: Question) -> str:
    facts = {
        "Workflow": asked.workflow,
        "Run": asked.run_id,
        "Step": asked.path,
        "You answer as": asked.by,
        "May answer": ", ".join(asked.of),
        "Approvals needed": str(asked.need) if asked.need > 1 else "",
        "Until": "" if asked.until is None else time_text(asked.until),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    prompt = f'<p class="prompt">{escape(asked.prompt)}</p>' if asked.prompt else ""
    return f"{prompt}<dl>{rows}</dl>"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="../approve.css"></head><body><h1>{escape(title)}</h1>{body}</body></html>'
    )


# ------------------------------------------------------------------------------------------------------- fields


def form_of(schema: Any, filled: Mapping[str, str]) -> Any:
    """The entered values, in the form that the schema describes. Text that is not a valid value of its field is kept
    as it is."""
    if schema is None:
        return None
    properties = _properties(schema)
    if properties is None:
        return _json(filled.get(WHOLE, "")) if filled.get(WHOLE, "").strip() else None
    values = {name: _value(part, filled.get(PREFIX + name)) for name, part in properties.items()}
    return {name: value for name, value in values.items() if value is not ABSENT}


def _value(part: Any, text: str | None) -> Any:
    kind = _kind(part)
    if kind == "boolean":
        return text is not None
    if not text:
        return ABSENT
    return text if kind == "string" else _json(text)


def _json(text: str) -> Any:
    try:
        return decode(text)
    except msgspec.DecodeError:
        return text


def _properties(schema: Any) -> Mapping[str, Any] | None:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else None


def _kind(part: Any) -> str:
    """What makes a field: `choice`, a simple type, or else `json`."""
    if not isinstance(part, dict):
        return "json"
    if isinstance(part.get("enum"), list):
        return "choice"
    kind = part.get("type")
    return kind if kind in ("string", "integer", "number", "boolean") else "json"


def _fields(schema: Any, filled: Mapping[str, str]) -> str:
    if schema is None:
        return ""
    properties = _properties(schema)
    if properties is None:
        return _labelled("Form, as JSON", _textarea(WHOLE, filled.get(WHOLE, "")), "")
    needed = schema.get("required", ())
    return "".join(
        _field(name, part, filled.get(PREFIX + name), is_needed=name in needed)
        for name, part in properties.items()
    )


def _field(name: str, part: Any, text: str | None, *, is_needed: bool) -> str:
    kind, of = _kind(part), part if isinstance(part, dict) else {}
    at, needed = escape(PREFIX + name), " required" if is_needed else ""
    if text is None and kind != "boolean" and "default" in of:
        text = of["default"] if isinstance(of["default"], str) and kind == "string" else _text(of["default"])
    value = escape(text or "")
    if kind == "boolean":
        checked = " checked" if text is not None or of.get("default") is True else ""
        control = f'<input type="checkbox" name="{at}"{checked}>'
    elif kind == "choice":
        control = f'<select name="{at}"{needed}>{_options(of["enum"], text)}</select>'
    elif kind == "string":
        control = f'<input type="text" name="{at}" value="{value}"{needed}>'
    elif kind in ("integer", "number"):
        step = "1" if kind == "integer" else "any"
        control = f'<input type="number" step="{step}" name="{at}" value="{value}"{needed}>'
    else:
        control = _textarea(PREFIX + name, text or "", needed)
    label = of.get("title") or (name if kind != "json" else f"{name}, as JSON")
    return _labelled(str(label), control, str(of.get("description") or ""))


def _options(choices: list[Any], chosen: str | None) -> str:
    options = ['<option value=""></option>']
    for choice in choices:
        text = _text(choice)
        selected = " selected" if text == chosen else ""
        shown = choice if isinstance(choice, str) else text
        options.append(f'<option value="{escape(text)}"{selected}>{escape(shown)}</option>')
    return "".join(options)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _textarea(name: str, text: str, needed: str = "") -> str:
    return f'<textarea name="{escape(name)}" rows="4"{needed}>{escape(text)}</textarea>'


def _labelled(label: str, control: str, help_text: str) -> str:
    said = f"<small>{escape(help_text)}</small>" if help_text else ""
    return f"<label>{escape(label)} {control}{said}</label>"
