"""Prompts: one that teaches an agent to write a workflow, and published workflows that are prompts.

A workflow with the label `mcp: prompt` is run when its prompt is asked for, and its output is the message.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from mcp import types

from holdfast.api.visible import seen
from holdfast.errors import HoldfastError, NotFound
from holdfast.mcp.calls import Start
from holdfast.mcp.lessons import example_names, lesson
from holdfast.mcp.offers import Manner
from holdfast.mcp.sees import sees_of
from holdfast.mcp.table import Desk
from holdfast.mcp.talk import Context, Talk, invalid_params
from holdfast.views.offers import Offer
from holdfast.views.run_view import RunView

WRITE: Final = "write_workflow"
VALUES_MAX: Final = 100  # of one completion


class Prompts:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, context: Context, params: types.PaginatedRequestParams | None) -> dict[str, Any]:
        talk, cursor = Talk(context), None if params is None else params.cursor
        talk.need("read")
        offers, more = await self._desk.catalogue.page(talk.tenant, cursor, sees_of(talk), "prompt", own=1)
        found = [_lesson()] if cursor is None else []
        found += [_prompt(self._desk.catalogue.tool_name(one.name), one) for one in offers]
        return {"prompts": found, **({"nextCursor": more} if more else {})}

    async def get(self, context: Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
        talk = Talk(context)
        talk.need("read")
        if params.name == WRITE:
            return _taught(params.arguments or {})
        try:
            offer = await self._desk.catalogue.named(talk.tenant, params.name, sees_of(talk))
        except NotFound as error:
            raise invalid_params(f"there is no prompt {params.name[:100]!a}: {error}") from None
        if Manner.of(offer).kind != "prompt":
            raise invalid_params(f"the workflow {offer.name!a} is not offered as a prompt")
        talk.need("run")
        try:
            return await self._desk.calls.call(
                talk,
                Start(offer.name, params.arguments or {}),
                msgspec.structs.replace(Manner.of(offer), task="forbidden"),
                responses=params.input_responses,
                state=params.request_state,
                renders=self._message,
            )
        except HoldfastError as error:
            raise invalid_params(str(error), error=error.code) from None

    async def _message(self, talk: Talk, view: RunView) -> dict[str, Any]:
        if view.status != "completed":
            raise invalid_params(f"the workflow of this prompt ended as {view.status}", run_id=view.run_id)
        blocks, _ = await self._desk.calls.contents.of_output(talk, view)
        return {"messages": [{"role": "user", "content": block} for block in blocks]}

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        """Values for an argument: names of workflows, runs and examples, and the choices of an input."""
        talk = Talk(context)
        talk.need("read")
        found = await self._values(talk, params)
        fitting = [one for one in found if one.startswith(params.argument.value)]
        return {
            "completion": {
                "values": fitting[:VALUES_MAX],
                "total": len(fitting),
                "hasMore": len(fitting) > VALUES_MAX,
            }
        }

    async def _values(self, talk: Talk, params: types.CompleteRequestParams) -> list[str]:
        services, catalogue = seen(self._desk.services, talk.caller.principal), self._desk.catalogue
        if isinstance(params.ref, types.ResourceTemplateReference):
            uri = params.ref.uri
            if uri.startswith("workflow://"):
                return await catalogue.names(talk.tenant, sees_of(talk))
            if uri.startswith("run://"):
                return [row.id for row in (await services.queries.runs(talk.tenant, limit=VALUES_MAX)).items]
            return example_names() if uri.startswith("example://") else []
        try:
            offer = await catalogue.named(talk.tenant, params.ref.name, sees_of(talk))
        except NotFound:
            return []
        rule = offer.schema.get("properties", {}).get(params.argument.name)
        choices = rule.get("enum", ()) if isinstance(rule, dict) else ()
        return [str(one) for one in choices]


def _lesson() -> dict[str, Any]:
    return {
        "name": WRITE,
        "title": "Write a workflow",
        "description": "How to write, check, run and mend a workflow, for the task that you give.",
        "arguments": [{"name": "task", "description": "What the workflow should do.", "required": True}],
    }


def _taught(arguments: dict[str, str]) -> dict[str, Any]:
    text = lesson(arguments.get("task", "(not given)"))
    return {
        "description": "How to write a workflow",
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _prompt(name: str, offer: Offer) -> dict[str, Any]:
    rules = offer.schema.get("properties", {})
    required = offer.schema.get("required", ())
    arguments = [
        {
            "name": one,
            "description": str(rule.get("description", "")) if isinstance(rule, dict) else "",
            "required": one in required,
        }
        for one, rule in rules.items()
    ]
    described = offer.description or f"The output of the workflow {offer.name}."
    return {"name": name, "title": offer.name, "description": described, "arguments": arguments}
