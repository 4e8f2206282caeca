"""Which schedule has which webhook path, with a warning if its secret is missing. Knows the loaded schedules, not requests.

A path belongs to the server, not to a tenant: two schedules never have the same one.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import WebhookTrigger
from holdfast.store.schedule_records import Origin
from holdfast.tools.secrets import Secrets

log = logging.getLogger("holdfast.webhooks")


class Hook(NamedTuple):
    """A webhook. `is_operators`: its schedule was not made by a caller of the API, so it may name any variable as its secret."""

    tenant: str
    path: str
    spec: ScheduleSpec
    secret_env: tuple[str, ...]
    is_operators: bool


class Hooks:
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
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
            hook = self._by_path[path] = Hook(tenant, path, spec, secret_env, is_operators=origin != "api")
            if spec.enabled and secret_env and not self.secrets_of(hook):
                names = " or ".join(secret_env)
                log.warning(
                    "schedule %s: %s is not set; its webhook %s answers 500 until it is", spec.id, names, path
                )

    def secrets_of(self, hook: Hook) -> list[str]:
        """The secrets of a webhook that are set; one is enough while a secret is being replaced."""
        found = (
            self._secrets.for_webhook(name, hook.tenant, is_operators=hook.is_operators)
            for name in hook.secret_env
        )
        return [secret for secret in found if secret]

    def remove(self, tenant: str, schedule_id: str) -> None:
        path = self._paths.pop((tenant, schedule_id), None)
        hook = self._by_path.get(path) if path is not None else None
        if hook is not None and (hook.tenant, hook.spec.id) == (tenant, schedule_id):
            del self._by_path[hook.path]
