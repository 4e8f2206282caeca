"""For operators: liveness, readiness, metrics, and a log line per request.

Knows how it is shown, not how it is counted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from random import getrandbits
from typing import Final, Literal

import msgspec
from starlette.responses import Response

from holdfast.api.services import Services
from holdfast.errors import Forbidden
from holdfast.http.table import Ask, Reply, Route
from holdfast.ops.metrics import MEDIA
from holdfast.values import DEFAULT_TENANT

log = logging.getLogger("holdfast.http")

DRAINING: Final = "draining"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Asked all day long: a line for each would hide the others.
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_QUIET_ENDS: Final = ("/heartbeat", "/assignments/poll")


class Alive(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """`reasons` are words: draining, engine_closed, node_is_over, store_gone, store_damaged, store_stalled, store_slow,
    store_unavailable, disk_full."""

    ready: bool
    reasons: list[str] = []


async def healthz(ask: Ask) -> Alive:
    return Alive()


async def readyz(ask: Ask) -> Reply:
    reasons = [DRAINING] if ask.leaving.is_set() else await ask.services.health.reasons()
    return Reply(Readiness(not reasons, reasons), 503 if reasons else 200)


async def metrics(ask: Ask) -> Response:
    if ask.tenant != DEFAULT_TENANT:
        raise Forbidden("metrics of the whole server need a key of the tenant default")
    if ask.principal.workflows is not None:
        raise Forbidden("metrics of the whole server need a key that is not limited to some workflows")
    services = ask.services
    return Response(await services.metrics.text(services.history, _of_workers(services)), media_type=MEDIA)


ROUTES: Final = (
    Route("GET", "/healthz", None, healthz, "Check that the process is alive.", "operations", answer=Alive),
    Route("GET", "/readyz", None, readyz, "Check that the server can take work.", "operations", answer=Readiness, also={503: Readiness}),
    Route("GET", "/metrics", "read", metrics, "Get metrics in the Prometheus format.", "operations",
          answer=str, answer_media="text/plain"),
)  # fmt: skip


def _of_workers(services: Services) -> Mapping[str, float]:
    workers = services.workers
    if workers is None:
        return {}
    return {
        "holdfast_workers_online": float(workers.online()),
        "holdfast_assignments_open": float(workers.open_assignments()),
        "holdfast_lease_age_seconds": float(workers.oldest_lease_secs()),
    }


# ------------------------------------------------------------------------------------------------ every request


def request_id_of(headers: Mapping[str, str]) -> str:
    """The caller's own request id, if it may appear in a log (a name without a secret); otherwise a new one."""
    given = headers.get("x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else f"{getrandbits(64):016x}"


def answered(
    services: Services,
    *,
    request_id: str,
    method: str,
    route: str,
    status: int,
    seconds: float,
    client: str,
    key_id: str = "",
) -> None:
    """Count a request, and write its log line. Routes are templates, so text from callers appears in no label and no
    line."""
    services.metrics.request(method, route, status, seconds)
    is_quiet = status < 400 and (route in _QUIET or route.endswith(_QUIET_ENDS))
    level = logging.DEBUG if is_quiet else logging.INFO
    if log.isEnabledFor(level):
        ms = round(seconds * 1000, 3)
        about = {"request_id": request_id, "method": method, "route": route, "status": status, "ms": ms}
        log.log(
            level,
            "%s %s %d in %s ms",
            method,
            route or "(nothing there)",
            status,
            ms,
            extra={"request": {**about, "client": client, "key": key_id}},
        )
