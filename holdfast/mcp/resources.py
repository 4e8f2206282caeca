"""Resources: runs, workflows, the notations, worked examples, and workflows that give resources of their own.

    run://{id}          its status, timeline and explanation         run://{id}/output   its output, in parts
    workflow://{name}   the definition that is published             schema://steps, schema://graph
    example://{name}    a worked example                             artefact://sha256/{sha256}

Everything that comes from a run is data of its workflow. An answer is cut to the limit of tokens; `?cursor=` continues it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import msgspec
from mcp import types
from mcp.shared.exceptions import MCPError

from holdfast.api import present
from holdfast.api.types import time_or_none, time_text
from holdfast.api.visible import seen
from holdfast.errors import HoldfastError, NotFound
from holdfast.mcp.answers import fitted
from holdfast.mcp.calls import Start
from holdfast.mcp.content import OCTETS, SCHEME, resource_of
from holdfast.mcp.lessons import about, example, example_names
from holdfast.mcp.offers import Manner, is_template
from holdfast.mcp.sees import sees_of
from holdfast.mcp.table import Desk
from holdfast.mcp.talk import Context, Talk, invalid_params
from holdfast.threads import in_thread
from holdfast.values import TERMINAL
from holdfast.views.notations import SCHEMAS
from holdfast.views.run_view import RunView

JSON: Final = "application/json"
YAML: Final = "application/yaml"
STEPS_SHOWN: Final = 100

TEMPLATES: Final = (
    ("run://{id}", "run", "A run: status, timeline, explanation.", JSON),
    ("run://{id}/output", "run_output", "The output of a run, as JSON.", JSON),
    ("workflow://{name}", "workflow", "The published definition of a workflow.", YAML),
    (SCHEME + "{sha256}", "artefact", "A file that a run has stored.", OCTETS),
)


class Resources:
    def __init__(self, desk: Desk) -> None:
        self._desk, self._services = desk, desk.services

    async def listed(self, context: Context, params: types.PaginatedRequestParams | None) -> dict[str, Any]:
        talk, cursor = Talk(context), None if params is None else params.cursor
        talk.need("read")
        own = _static() if cursor is None else []
        found, more = await self._offered(talk, cursor, len(own), templates=False)
        own += [{"uri": uri, **said} for uri, said in found]
        return {"resources": own, **({"nextCursor": more} if more else {})}

    async def templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> dict[str, Any]:
        talk, cursor = Talk(context), None if params is None else params.cursor
        talk.need("read")
        own = [
            {"uriTemplate": uri, "name": name, "description": said, "mimeType": media}
            for uri, name, said, media in TEMPLATES if cursor is None
        ]  # fmt: skip
        found, more = await self._offered(talk, cursor, len(own), templates=True)
        own += [{"uriTemplate": uri, **said} for uri, said in found]
        return {"resourceTemplates": own, **({"nextCursor": more} if more else {})}

    async def _offered(
        self, talk: Talk, cursor: str | None, own: int, *, templates: bool
    ) -> tuple[list[tuple[str, dict[str, str]]], str | None]:
        offers, more = await self._desk.catalogue.page(
            talk.tenant, cursor, sees_of(talk), "resource", own=own
        )
        found = [(Manner.of(one).uri, {"name": one.name, "description": one.description}) for one in offers]
        return [(uri, said) for uri, said in found if uri and is_template(uri) is templates], more

    async def read(self, context: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        talk, uri = Talk(context), str(params.uri)
        talk.need("read")
        try:
            found = await self._read(talk, uri, params)
        except NotFound as error:
            raise not_found(uri, str(error)) from None
        except HoldfastError as error:
            raise invalid_params(str(error), error=error.code) from None
        return found

    async def _read(self, talk: Talk, uri: str, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        place, _, query = uri.partition("?")
        scheme, _, rest = place.partition("://")
        cursor = parse_qs(query).get("cursor", [None])[0]
        match scheme:
            case "schema" if rest in SCHEMAS:
                return self._shown(uri, await in_thread(_schema, rest), cursor)
            case "example" if rest in example_names():
                return {"contents": [{"uri": uri, "mimeType": YAML, "text": example(rest)}]}
            case "run":
                return await self._run(talk, uri, rest, cursor)
            case "workflow":
                return await self._workflow(talk, uri, unquote(rest), cursor)
            case "artefact":
                return await self._artefact(talk, uri)
            case _:
                pass
        return await self._given_by_workflow(talk, uri, params)

    async def _run(self, talk: Talk, uri: str, rest: str, cursor: str | None) -> dict[str, Any]:
        run_id, _, part = rest.partition("/")
        view = await seen(self._services, talk.caller.principal).queries.run(talk.tenant, run_id)
        if part == "output":
            return self._shown(uri, view.output_text, cursor)
        if part:
            raise NotFound(f"a run has no part {part[:100]!a}")
        return self._shown(uri, await self._timeline(talk, view), cursor)

    async def _timeline(self, talk: Talk, view: RunView) -> dict[str, Any]:
        queries = self._services.queries
        page = await queries.steps(talk.tenant, view.run_id, limit=STEPS_SHOWN)
        why = await queries.explain(talk.tenant, view.run_id)
        return {
            "run_id": view.run_id,
            "workflow": view.workflow,
            "status": view.status,
            "progress": dict(view.progress),
            "error": None if view.error is None else msgspec.to_builtins(view.error),
            "waits": self._desk.calls.waits(talk, view),
            "explanation": msgspec.to_builtins(present.explanation(why)),
            "steps": [
                {
                    "path": one.path,
                    "status": one.status,
                    "attempts": one.attempts,
                    "started_at": time_text(one.started),
                    "finished_at": time_or_none(one.finished),
                    "error": None if one.error is None else msgspec.to_builtins(one.error),
                }
                for one in page.items
            ],
            "output": f"run://{view.run_id}/output" if view.status in TERMINAL else None,
        }

    async def _workflow(self, talk: Talk, uri: str, name: str, cursor: str | None) -> dict[str, Any]:
        offer = await self._desk.catalogue.named(talk.tenant, name, sees_of(talk))
        spec = await self._services.offers.definition(talk.tenant, offer.version)
        text = spec.to_yaml()
        if cursor is None and len(text.encode()) <= self._desk.settings.max_tokens * 4:
            return {"contents": [{"uri": uri, "mimeType": YAML, "text": text}]}
        return self._shown(uri, spec.to_data(), cursor)

    async def _artefact(self, talk: Talk, uri: str) -> dict[str, Any]:
        raw = await self._desk.calls.contents.file_bytes(talk, uri)
        if raw is None:
            raise NotFound(
                "no run names this artefact, or it is larger than 1 MiB; /api/v1/artefacts serves it"
            )
        return {"contents": [resource_of(uri, OCTETS, raw)]}

    def _shown(self, uri: str, data: Any, cursor: str | None) -> dict[str, Any]:
        text, _ = fitted(data, self._desk.settings.max_tokens, cursor)
        return {"contents": [{"uri": uri, "mimeType": JSON, "text": text}]}

    async def _given_by_workflow(
        self, talk: Talk, uri: str, params: types.ReadResourceRequestParams
    ) -> dict[str, Any]:
        found = await self._desk.catalogue.resource(talk.tenant, uri, sees_of(talk))
        if found is None:
            raise NotFound(f"there is no resource {uri[:200]!a}")
        talk.need("run")
        offer, inputs = found

        async def renders(talk: Talk, view: RunView) -> dict[str, Any]:
            return await self._contents(talk, view, uri)

        return await self._desk.calls.call(
            talk,
            Start(offer.name, inputs),
            msgspec.structs.replace(Manner.of(offer), task="forbidden"),
            responses=params.input_responses,
            state=params.request_state,
            renders=renders,
        )

    async def _contents(self, talk: Talk, view: RunView, uri: str) -> dict[str, Any]:
        if view.status != "completed":
            raise invalid_params(f"the workflow that gives {uri} ended as {view.status}", run_id=view.run_id)
        contents = self._desk.calls.contents
        blocks, _ = await contents.of_output(talk, view)
        return {"contents": [_as_contents(uri, block) for block in blocks]}


@cache
def _schema(name: str) -> msgspec.Raw:
    """Made once, and not on the loop: it takes some 40 ms."""
    return msgspec.Raw(msgspec.json.encode(SCHEMAS[name]()))


def _static() -> list[dict[str, Any]]:
    schemas = [
        {"uri": f"schema://{name}", "name": f"schema_{name}", "mimeType": JSON,
         "description": f"JSON Schema of the {name} notation."}
        for name in SCHEMAS
    ]  # fmt: skip
    examples = [
        {"uri": f"example://{name}", "name": f"example_{name}", "mimeType": YAML, "description": about(name)}
        for name in example_names()
    ]
    return [*examples, *schemas]


def _as_contents(uri: str, block: dict[str, Any]) -> dict[str, Any]:
    """A content block as the contents of a resource."""
    match block["type"]:
        case "text":
            return {"uri": uri, "mimeType": "text/plain", "text": block["text"]}
        case "resource":
            return {**block["resource"], "uri": uri}
        case "resource_link":
            return {"uri": block["uri"], "mimeType": block["mimeType"], "text": block["name"]}
        case _:
            pass
    return {"uri": uri, "mimeType": block["mimeType"], "blob": block["data"]}


def not_found(uri: str, message: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message, {"uri": uri})
