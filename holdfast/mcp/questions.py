"""What a run asks of people, in the words of MCP: each open wait that a caller can end becomes one input request.

    approval ──► a form of the step's own fields, or approve and reason; a form that MCP cannot show becomes a link
    signal   ──► a form with one field for each signal

The key of a request is the path of its step. Prompts come from the author of a workflow or from data: they are quoted.
Knows waits and forms, not when they are asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from holdfast.api.services import Services
from holdfast.errors import InvalidInputs, NotWaiting
from holdfast.mcp.talk import Talk, invalid_params
from holdfast.views.asking import asks
from holdfast.views.open_waits import Wait
from holdfast.views.run_view import RunView

PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean"})
PROMPT_CHARS_MAX: Final = 2_000
DECISION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Approve", "description": "false denies", "default": True},
        "reason": {"type": "string", "title": "Reason", "maxLength": 1000},
    },
}


class Questions:
    def __init__(self, services: Services) -> None:
        self._services = services

    def of(self, talk: Talk, view: RunView) -> dict[str, dict[str, Any]]:
        """The input requests that this caller may answer and its client can show, by path."""
        found = {wait.path: self._request(talk, view, wait) for wait in asks(view) if may_answer(talk, wait)}
        return {path: request for path, request in found.items() if request is not None}

    def _request(self, talk: Talk, view: RunView, wait: Wait) -> dict[str, Any] | None:
        form = _form_of(wait)
        message = _message(view, wait)
        if is_flat(form):
            params: dict[str, Any] = {"mode": "form", "message": message, "requestedSchema": form}
        elif talk.can_open_urls:
            params = {"mode": "url", "message": message, "url": self.link(talk, view, wait)}
            if not talk.is_modern:
                params["elicitationId"] = f"{view.run_id}/{wait.path}"
        else:
            return None
        return {"method": "elicitation/create", "params": params}

    def link(self, talk: Talk, view: RunView, wait: Wait) -> str:
        """A page on which a person answers an approval, in the name of the caller."""
        base = self._services.settings.public_url or self._services.address or ""
        return self._services.links.address(talk.tenant, view.run_id, wait.path, base, talk.caller.name)

    async def answer(self, talk: Talk, view: RunView, responses: Mapping[str, Any]) -> bool:
        """Give the answers that belong to open waits; whether there was any. Answers to other keys are ignored."""
        any_given = False
        for wait in asks(view):
            response = responses.get(wait.path)
            if response is not None and may_answer(talk, wait):
                any_given = await self._give(talk, view, wait, response) or any_given
        return any_given

    async def _give(self, talk: Talk, view: RunView, wait: Wait, response: Any) -> bool:
        action, content = _read(wait, response)
        if action == "cancel":
            return False  # dismissed without a choice: it stays open
        try:
            if wait.kind == "approval":
                await self._decide(talk, view, wait, action, content)
            elif action == "accept":
                await self._signal(talk, view, wait, content)
            else:
                return False
        except NotWaiting:
            return True  # answered by another caller meanwhile: the run goes on with that answer
        except InvalidInputs as error:
            problems = [
                {"code": one.code, "pointer": one.pointer, "message": one.message} for one in error.problems
            ]
            raise invalid_params(f"{wait.path}: {error}", problems=problems) from None
        return True

    async def _decide(
        self, talk: Talk, view: RunView, wait: Wait, action: str, content: Mapping[str, Any]
    ) -> None:
        has_form = wait.detail.get("form") is not None
        approved = action == "accept" and (has_form or content.get("approved", True) is not False)
        await self._services.commands.approve(
            talk.tenant,
            view.run_id,
            wait.path,
            approved=approved,
            reason="" if has_form else str(content.get("reason") or ""),
            by=talk.caller.name,
            form=dict(content) if has_form and approved else None,
        )

    async def _signal(self, talk: Talk, view: RunView, wait: Wait, content: Mapping[str, Any]) -> None:
        correlation = wait.detail.get("correlation") or None
        for name in signals_of(wait):
            if name in content:
                await self._services.commands.signal(
                    talk.tenant, view.run_id, name, _value(content[name]), correlation
                )


def may_answer(talk: Talk, wait: Wait) -> bool:
    """Deciding needs the scope `approve`, which a key that runs workflows need not have."""
    return talk.may("approve" if wait.kind == "approval" else "run")


def signals_of(wait: Wait) -> list[str]:
    """The signals that a step waits for; the condition of a graph names its shared key, if it has one."""
    if wait.kind == "condition":
        key = wait.detail.get("signal_key")
        return [key] if isinstance(key, str) else []
    return [name for name in wait.detail.get("names", ()) if name not in wait.answered]


def _form_of(wait: Wait) -> Any:
    if wait.kind == "approval":
        form = wait.detail.get("form")
        return DECISION if form is None else form
    names = signals_of(wait)
    if not names:
        return None
    field = {"type": "string", "description": "JSON, or text"}
    needed = names if wait.detail.get("mode") == "all" else names[:1] if len(names) == 1 else []
    return {"type": "object", "properties": dict.fromkeys(names, field), "required": needed}


def is_flat(form: Any) -> bool:
    """Whether MCP can show a form: an object whose fields are text, numbers, choices, or lists of choices."""
    if not isinstance(form, dict) or form.get("type", "object") != "object":
        return False
    fields = form.get("properties")
    return isinstance(fields, dict) and all(
        isinstance(one, dict) and _is_field(one) for one in fields.values()
    )


def _is_field(field: dict[str, Any]) -> bool:
    if field.get("type") == "array":
        items = field.get("items")
        return isinstance(items, dict) and ("enum" in items or "anyOf" in items or "oneOf" in items)
    return field.get("type") in PRIMITIVES and "anyOf" not in field and "allOf" not in field


def _message(view: RunView, wait: Wait) -> str:
    prompt = str(wait.detail.get("prompt") or "")[:PROMPT_CHARS_MAX]
    what = "needs a decision" if wait.kind == "approval" else "waits for a signal"
    quoted = f" Its text, which is data: {json.dumps(prompt, ensure_ascii=False)}" if prompt else ""
    return f"The workflow {view.workflow!r} {what} at the step {wait.path!r}.{quoted}"


def _read(wait: Wait, response: Any) -> tuple[str, Mapping[str, Any]]:
    given = response if isinstance(response, Mapping) else getattr(response, "__dict__", {})
    action, content = given.get("action"), given.get("content")
    if action not in ("accept", "decline", "cancel") or not isinstance(content, Mapping | None):
        raise invalid_params(f"the answer to {wait.path!r} has an action: accept, decline or cancel")
    return action, content or {}


def _value(text: Any) -> Any:
    """The value of a signal: text that is JSON is read as JSON."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
