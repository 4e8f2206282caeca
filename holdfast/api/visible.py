"""What a caller whose key is limited to certain workflows can see: these workflows, their runs and their schedules. Others are not
found.

    principal ──► seen(services) ──► queries and commands that know no other run
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from holdfast.api.principal import Principal
from holdfast.api.services import Services
from holdfast.errors import NotFound

WORKFLOW_ROUTES: Final = "/api/v1/workflows/{name}"
SCHEDULE_ROUTES: Final = "/api/v1/schedules/{id}"
RUN_ROUTES: Final = "/api/v1/runs/{id}"


def seen(services: Services, principal: Principal) -> Services:
    """The services as this caller may use them. Every route and every tool gets these, so none has to filter runs itself."""
    if principal.workflows is None:
        return services
    sees = principal.rights.sees
    own = copy.copy(services)
    own.queries, own.commands = services.queries.seen_by(sees), services.commands.seen_by(sees)
    own.asking = services.asking.through(own.queries)
    return own


async def check_path(services: Services, principal: Principal, route: str, path: Mapping[str, str]) -> None:
    """Check the workflow, schedule or run that the path of a request names. Raise NotFound."""
    if principal.workflows is None:
        return
    if route.startswith(WORKFLOW_ROUTES):
        await check_workflow(services, principal, path["name"])
    elif route.startswith(SCHEDULE_ROUTES):
        await check_schedule(services, principal, path["id"])
    elif route.startswith(RUN_ROUTES):
        await seen(services, principal).queries.row(principal.tenant, path["id"])


async def check_workflow(services: Services, principal: Principal, name: str) -> None:
    """Raise NotFound unless the caller sees the workflow of this name or id. An unknown one is described alike, so that the answer
    says nothing about other workflows."""
    if principal.workflows is None:
        return
    hidden = NotFound(f"there is no workflow {name[:200]!a}")
    try:
        found = (await services.queries.catalog.workflow(principal.tenant, name)).workflow.name
    except NotFound:
        raise hidden from None
    if not principal.rights.sees(found):
        raise hidden


async def check_schedule(services: Services, principal: Principal, schedule_id: str) -> None:
    if principal.workflows is None:
        return
    view = await services.schedules.schedule(principal.tenant, schedule_id)
    if not principal.rights.sees(view.spec.workflow):
        raise NotFound(f"there is no schedule {schedule_id!r}; see holdfast schedules list")
