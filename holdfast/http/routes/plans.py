"""`/api/v1/validate` and `/api/v1/plan`: a definition before it runs. Nothing is stored or executed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.api import present_plans
from holdfast.api.types import NoQuery, Plan, PlanWanted, ValidateSpec, Validation
from holdfast.errors import InvalidRequest, Problem
from holdfast.http.routes.workflows import HELLO, YAML
from holdfast.http.table import JSON, Ask, Route

PLANS: Final = "Workflows"


def _spec(data: bytes, media: str) -> ValidateSpec:
    """The definition in a body: under `spec`, or the body itself, as it is published."""
    if media != JSON:
        return ValidateSpec(data.decode())
    given: Any = msgspec.json.decode(data)
    if not isinstance(given, dict):
        raise InvalidRequest("a definition is an object")
    if given.keys() == {"spec"}:
        if not isinstance(given["spec"], str | dict):
            problem = Problem("wrong_type", "spec must be an object or text", "/spec")
            raise InvalidRequest("spec must be a definition, as an object or as YAML text", [problem])
        return ValidateSpec(given["spec"])
    return ValidateSpec(data.decode())  # as text, so that its mistakes have places


async def validate(ask: Ask) -> Validation:
    wanted: ValidateSpec = ask.body
    return present_plans.validation(
        await ask.services.commands.validate(ask.tenant, wanted.spec, ask.principal.rights)
    )


async def plan(ask: Ask) -> Plan:
    wanted: PlanWanted = ask.body
    commands = ask.services.commands
    what = wanted.workflow if wanted.spec is None else await commands.read(wanted.spec)
    assert what is not None
    return present_plans.plan(await commands.plan_of(ask.tenant, what, wanted.number, ask.principal.rights))


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        "/api/v1/validate",
        "read",
        validate,
        "Check a definition: every problem with the JSON Patch that repairs it, and the plan of a valid one.",
        PLANS,
        body=ValidateSpec | dict[str, Any],
        reads=_spec,
        takes_any_text=True,
        media=(JSON, YAML),
        example={"spec": HELLO},
        query=NoQuery,
        answer=Validation,
        replies="recent",
    ),
    Route(
        "POST",
        "/api/v1/plan",
        "read",
        plan,
        "Show what a run would do: its steps, the tools that it calls, and the hash that a start can require.",
        PLANS,
        body=PlanWanted,
        example={"spec": HELLO},
        query=NoQuery,
        answer=Plan,
        errors=("not_found", "invalid_spec", "invalid_inputs", "limit_exceeded"),
        replies="recent",
    ),
)
