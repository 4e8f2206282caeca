"""Which schedule has which webhook path. Knows the loaded schedules, not requests.

A path belongs to the server, not to a tenant: two schedules never have the same one.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import WebhookTrigger
from holdfast.store.records import Origin


class Hook(NamedTuple):
    """A webhook. `is_operators`: its schedule was not made by a caller of the API, so it may name any variable as its secret."""

    tenant: str
    path: str
    spec: ScheduleSpec
    secret_env: tuple[str, ...]
    is_operators: bool


class Hooks:
    def __init__(self) -> None:
        self._by_path: dict[str, Hook] = {}
        self._paths: dict[tuple[str, str], str] = {}  # by tenant and id

    def at(self, path: str) -> Hook | None:
        """The webhook at a path, if its schedule is enabled."""
        hook = self._by_path.get(path)
        return hook if hook is not None and hook.spec.enabled else None

    def holder(self, path: str) -> Hook | None:
        """The webhook that a path belongs to, enabled or not."""
        return self._by_path.get(path)

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None:
        """A schedule was stored: it has this path from now on, or none if it is not a webhook."""
        self.remove(tenant, spec.id)
        if isinstance(spec.trigger, WebhookTrigger):
            path, secret_env = spec.trigger.path, spec.trigger.secret_env
            self._paths[tenant, spec.id] = path
            self._by_path[path] = Hook(tenant, path, spec, secret_env, is_operators=origin != "api")

    def remove(self, tenant: str, schedule_id: str) -> None:
        path = self._paths.pop((tenant, schedule_id), None)
        hook = self._by_path.get(path) if path is not None else None
        if hook is not None and (hook.tenant, hook.spec.id) == (tenant, schedule_id):
            del self._by_path[hook.path]
