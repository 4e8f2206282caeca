"""The OpenAPI 3.1 document, generated from the table of routes and their types. Knows no route.

It cannot differ from the behaviour: the same types decode requests and encode responses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Final, get_args

import msgspec

from holdfast.api.types import ID_CHARS_MAX, KEY_PATTERN, STATUS, Fault
from holdfast.api.types.common import Either
from holdfast.http.table import ANY, JSON, Route
from holdfast.version import VERSION

REF: Final = "#/components/schemas/{name}"
DESCRIPTION: Final = """\
The HTTP API of Holdfast. Errors under `/api/v1` are `{"error": code, "message", "details"}`; the meaning of a code never
changes. 400: the request is malformed or has an unknown field. 422: the request is well-formed but cannot be carried out.
409: it conflicts with the current state. 503 and 429 carry `Retry-After`.
"""

# Codes that any route may give; those with a body, and those with something in braces, have more.
ALWAYS: Final = (
    "invalid_request",
    "misdirected_request",
    "forbidden",
    "too_many_requests",
    "headers_too_large",
    "internal_error",
    "unavailable",
)
WITH_SCOPE: Final = ("unauthorised",)
WITH_BODY: Final = ("body_too_large", "unsupported_media_type")
WITH_KEY: Final = ("request_conflict",)

MEANING: Final[dict[int, str]] = {
    400: "The request is malformed.",
    401: "A valid API key is required.",
    403: "The key lacks the scope, or the request comes from a page of another origin.",
    404: "Not found.",
    409: "The request conflicts with the current state.",
    413: "The body is too large.",
    415: "The content type is not supported here.",
    421: "The Host header is not a name of this server.",
    422: "The request is well-formed but cannot be carried out.",
    429: "Too many requests; `Retry-After` says when to try again.",
    431: "The address and the headers are too large.",
    500: "A defect in Holdfast; the message contains the request id to find in the log.",
    503: "Nothing was changed; the same request may succeed later.",
}

Json = dict[str, Any]


def document(routes: Iterable[Route]) -> Json:
    listed = [route for route in routes if route.is_listed]
    types = {each for route in listed for each in _types(route) if each is not None}
    ordered = sorted(types, key=repr)
    schemas, components = msgspec.json.schema_components([*ordered, Fault], ref_template=REF)
    schema_of = dict(zip(map(repr, [*ordered, Fault]), schemas, strict=True))
    words = _Words(schema_of, components)
    paths: dict[str, Json] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = words.operation(route)
    named = str([paths, components])
    inlined = {words.name_of(route.query) for route in listed if route.query is not None}  # as parameters
    inlined |= {words.name_of(route.body) for route in listed if hasattr(route.body, "EITHER")}
    for name in inlined:
        if repr(REF.format(name=name)) not in named:
            del components[name]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _types(route: Route) -> list[Any]:
    """Return the types that need a schema, including each member of a union."""
    given = [route.body, route.query, route.answer, *route.also.values()]
    return [one for kind in given for one in _choices(kind)]


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


class _Words:
    """Translates a route to OpenAPI."""

    def __init__(self, schema_of: Mapping[str, Json], components: dict[str, Json]) -> None:
        self._schema_of, self._components = schema_of, components

    def operation(self, route: Route) -> Json:
        said: Json = {
            "operationId": _operation_id(route),
            "summary": route.summary,
            "tags": [route.tag],
            "parameters": self._parameters(route),
            "responses": self._responses(route),
        }
        if route.body is not None:
            if route.fault is not None and (name := self.name_of(route.body)):
                self._components[name] = _with_nulls(self._components[name])
            media = next((one for one in route.media if one != ANY), JSON)
            said["requestBody"] = {
                "required": not route.body_optional,
                "content": {media: {"schema": self._body(route.body)}},
            }
            if route.example is not None:
                said["requestBody"]["content"][media]["example"] = route.example
        about = [] if route.scope is None else [f"Scope: `{route.scope}`."]
        # Generators of clients know no body of text, so the document says this in words.
        about += [f"The body may also be text of the type `{one}`." for one in route.media[1:] if one != ANY]
        if about:
            said["description"] = " ".join(about)
        if route.scope is not None or "unauthorised" in route.errors:
            said["security"] = [{"key": []}, {}]
        return said

    def _body(self, kind: Any) -> Json:
        """The schema of a body: one for each way to give it, if there are several."""
        either: Either | None = getattr(kind, "EITHER", None)
        if either is None:
            return self._schema(kind)
        whole = self.name_of(kind)
        choices = []
        for field, left_out in either.items():
            name = f"{whole}By{field.title().replace('_', '')}"
            self._components[name] = _given(self._components[whole], name, field, left_out)
            choices.append({"$ref": REF.format(name=name)})
        return {"anyOf": choices}

    def name_of(self, kind: Any) -> str:
        return str(self._schema(kind).get("$ref", "")).rpartition("/")[2]

    def _schema(self, kind: Any) -> Json:
        choices = [self._schema_of[repr(one)] for one in _choices(kind)]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}

    def _parameters(self, route: Route) -> list[Json]:
        found = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1},
            }
            for name in re.findall(r"{(\w+)}", route.path)
        ]
        if route.query is not None:
            struct = self._components[self.name_of(route.query)]
            needed = struct.get("required", [])
            found += [
                {"name": name, "in": "query", "required": name in needed, "schema": _plain(schema)}
                for name, schema in struct["properties"].items()
            ]
        if route.takes_key:
            found.append(
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "required": False,
                    "schema": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": ID_CHARS_MAX,
                        "pattern": KEY_PATTERN,
                    },
                    "description": "The same key again gets the same answer; with another body it is refused.",
                }
            )
        return found

    def _responses(self, route: Route) -> Json:
        answers = {route.status: route.answer, **route.also}
        said: Json = {str(status): self._answer(route, status, kind) for status, kind in answers.items()}
        by_status: dict[int, list[str]] = {}
        for code in _codes(route):
            by_status.setdefault(STATUS[code], []).append(code)
        for status, codes in sorted(by_status.items()):
            text = f"{MEANING[status]} Codes: {', '.join(f'`{code}`' for code in dict.fromkeys(codes))}."
            shape = {"schema": {}} if route.fault is not None else {"schema": self._schema(Fault)}
            said.setdefault(str(status), {"description": text, "content": {"application/json": shape}})
        return said

    def _answer(self, route: Route, status: int, kind: Any) -> Json:
        said: Json = {"description": "Done." if status < 300 else MEANING.get(status, "Otherwise.")}
        if status != 204:
            said["content"] = {route.answer_media: {"schema": {} if kind is None else self._schema(kind)}}
        return said


def _codes(route: Route) -> list[str]:
    codes = [*ALWAYS]
    if route.scope is not None:
        codes += WITH_SCOPE
    if "{" in route.path:
        codes.append("not_found")
    if route.body is not None:
        codes += WITH_BODY
    if route.takes_key:
        codes += WITH_KEY
    return [*codes, *route.errors]


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path.removeprefix("/api/v1"))
    return "_".join([route.method.lower(), *words])


def _with_nulls(whole: Json) -> Json:
    """The schema of a body in which null says nothing, as in the task API."""
    needed, null = whole.get("required", []), {"type": "null"}
    fields = {
        name: schema if name in needed or null in schema.get("anyOf", ()) else {"anyOf": [schema, null]}
        for name, schema in whole["properties"].items()
    }
    return {**whole, "properties": fields}


def _given(whole: Json, name: str, field: str, left_out: Iterable[str]) -> Json:
    """The schema of an object with one of the fields of which one is needed; null says nothing, nor does an empty text."""
    fields = dict(whole["properties"])
    value = fields[field]
    if found := [one for one in value.get("anyOf", ()) if one != {"type": "null"}]:
        choices = [{**one, "minLength": 1} if one == {"type": "string"} else one for one in found]
        value = choices[0] if len(choices) == 1 else {"anyOf": choices}
    for other in left_out:
        old = fields.pop(other)
        if "anyOf" in old:
            fields[other] = {"type": "null"}
    return {
        **whole,
        "title": name,
        "properties": {**fields, field: value},
        "required": [*whole.get("required", []), field],
    }


def _plain(schema: Json) -> Json:
    """Remove null from the schema of a parameter: it is left out instead."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    kept = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    return {**kept, **choices[0]} if len(choices) == 1 else schema
