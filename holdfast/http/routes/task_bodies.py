"""How the task API reads bodies and words its errors: keys in any spelling, definitions as data or text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from holdfast.errors import (
    HoldfastError,
    InvalidInputs,
    InvalidRequest,
    InvalidSpec,
    LimitExceeded,
    Problem,
    RequestConflict,
)
from holdfast.http.json_body import read_json
from holdfast.http.routes.task_types import (
    NewTask,
    NewVersion,
    Trouble,
)
from holdfast.http.table import Ask, Reply
from holdfast.http.validation import invalid, with_whole_numbers

TASK: Final = "task-"
T = TypeVar("T")
# The task API's own codes for these; any other error keeps its stable code, with the message beside it.
WORDS: Final = {"not_found": "not found", "method_not_allowed": "method", "no_worker": "no worker"}


def trouble(error: HoldfastError) -> Trouble:
    if error.code in WORDS:
        return Trouble(WORDS[error.code])
    problems = list(getattr(error, "problems", ()))
    has_no_start = isinstance(error, InvalidSpec) and any(problem.pointer == "/start" for problem in problems)
    return Trouble("no start" if has_no_start else error.code, str(error), problems)


def answering(do: Callable[[Ask], Awaitable[Any]]) -> Callable[[Ask], Awaitable[Any]]:
    """Invalid requests are 400 in this API, and a different request with the same id is a conflict."""

    async def answered(ask: Ask) -> Any:
        try:
            return await do(ask)
        except (InvalidSpec, InvalidInputs, LimitExceeded) as error:
            return Reply(trouble(error), 400)
        except RequestConflict as error:
            return Reply(trouble(error), 409)

    return answered


def reader(kind: type[T]) -> Callable[[bytes, str], T]:
    """Reads a body whose keys may be spelled FlowID, flow_id or flowId."""
    fields = {_folded(name): name for name in kind.__struct_fields__}  # type: ignore[attr-defined]

    def read(raw: bytes, media: str) -> T:
        data = read_json(raw)
        if not isinstance(data, dict):
            raise InvalidRequest("the body must be an object")
        known: dict[str, Any] = {}
        for key, value in data.items():
            name = fields.get(_folded(key))
            if name is None or value is None:
                continue
            if name in known:
                problem = Problem("duplicate_key", f"{name} is given in two spellings", f"/{key}")
                raise InvalidRequest(f"the body has {name} in two spellings; send one", [problem])
            known[name] = value
        try:
            try:
                return msgspec.convert(known, kind)
            except msgspec.ValidationError as error:
                return cast("T", with_whole_numbers(known, kind, error))
        except msgspec.ValidationError as error:
            raise invalid(error, "body", kind) from None

    return read


def _folded(key: str) -> str:
    return key.replace("_", "").lower()


def run_id_of(*said: str | None) -> str:
    """The run that is meant by the first id that was given."""
    found = next((one for one in said if one), None)
    if found is None:
        raise InvalidRequest("id is missing", [Problem("missing_key", "id is missing", "/id")])
    return found.removeprefix(TASK)


def definition_of(body: NewVersion) -> dict[str, Any] | str:
    """The definition as data where it is data or JSON, else as the YAML text that it is."""
    said = body.definition if body.definition not in (None, "") else body.definition_json
    if said in (None, ""):
        if not body.definition_yaml:
            raise InvalidRequest(
                "definition is missing: an object, or DefinitionJSON or DefinitionYAML with its text"
            )
        return body.definition_yaml
    data = _json(said, "the definition") if isinstance(said, str) else said
    if not isinstance(data, dict):
        raise InvalidRequest("a definition is an object")
    return data if "steps" in data else {"nodes": {}, **data}  # a graph, whatever else of it is missing


def params_of(body: NewTask) -> dict[str, Any]:
    said = body.params if body.params is not None else body.params_json
    if isinstance(said, str):
        said = _json(said, "ParamsJSON") if said.strip() else {}
    if not isinstance(said, dict | None):
        raise InvalidRequest("the params of a task must be an object")
    return said or {}


def _json(text: str, what: str) -> Any:
    try:
        return read_json(text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{what} is not JSON: {error}") from None
