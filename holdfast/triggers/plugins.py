"""Runs scheduled plugins: stores their schedules, and starts a run of the plugin for each occurrence.

A schedule of a plugin is a schedule like any other: overlap, missed runs, crashes and the ledger are not known here. What a plugin
declares is known to plugins/, and when it is due to fires.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.errors import NotFound
from holdfast.plugins.call import add_tools
from holdfast.plugins.find import Found
from holdfast.plugins.load import Loaded, clean_up, load
from holdfast.plugins.plugin import ScheduledRunCtx
from holdfast.runtime.service import Service
from holdfast.spec.plugin import own_id, workflow_of
from holdfast.spec.triggers import PluginTrigger
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.base import Store
from holdfast.store.schedule_records import ScheduleRow
from holdfast.tools.registry import Registry
from holdfast.triggers.definitions import Declared
from holdfast.triggers.fires import Fires
from holdfast.triggers.schedules import Schedules
from holdfast.triggers.starting import Occasion, Target, known
from holdfast.values import DEFAULT_TENANT

log = logging.getLogger("holdfast.plugins")

PAGE: Final = 1_000
KIND: Final = "plugin"
SOURCE: Final = "plugins"  # and how the plugin was named: where its schedules come from


class Plugins(Service):
    """The plugins of an engine, which belong to the tenant `default`.

    `loaded` are all plugins of the database. None: this process does not run plugins, and leaves their schedules to the one that does.
    """

    def __init__(self, store: Store, registry: Registry, fires: Fires, schedules: Schedules) -> None:
        self._store, self._registry, self._fires, self._schedules = store, registry, fires, schedules
        self.loaded: Loaded | None = None
        self._workflows: dict[str, WorkflowSpec] = {}
        fires.targets.resolvers.append(self._target)

    def use(self, loaded: Loaded) -> None:
        """Take these plugins. Their tools are in the registry already."""
        self.loaded, self._workflows = loaded, _workflows_of(loaded)
        for refused in loaded.refused:
            log.error("%s", refused)

    async def open(self, *, drive: bool) -> None:
        if not drive:
            return
        if self.loaded is None:
            await self._leave_alone()
        else:
            await self._register(self.loaded)

    async def close(self) -> None:
        """Runs have been released: let the plugins release their resources."""
        if self.loaded is not None:
            loaded, self.loaded = self.loaded, None
            await clean_up(loaded.plugins)

    async def replace(self, found: Sequence[Found]) -> None:
        """Replace the plugin from the same source. If the new one cannot be used, the old one continues."""
        assert self.loaded is not None
        sources = {one.source for one in found}
        kept = [one for one in self.loaded.plugins if one.source not in sources]
        old = [one for one in self.loaded.plugins if one.source in sources]
        new = await load(found, besides=kept)
        if new.refused:
            for refused in new.refused:
                log.error("%s%s", refused, "; the version that was loaded before continues" if old else "")
            return
        whole = Loaded((*kept, *new.plugins))
        add_tools(self._registry, new.plugins)
        # until the commit, occurrences of the old one may still be due
        self._workflows |= _workflows_of(whole)
        await self._register(whole)
        self.use(whole)
        await clean_up(old)
        log.info("reloaded plugin %s", ", ".join(one.name for one in new.plugins))

    async def _register(self, loaded: Loaded) -> None:
        """Store the schedules that the plugins declare, in one commit. A schedule that is no longer declared is
        deleted, but its ledger is kept."""
        declared = [
            Declared(spec, f"{SOURCE}/{plugin.source}", plugin.priority)
            for plugin in loaded.plugins
            for spec in plugin.schedules
        ]
        await self._schedules.swap(DEFAULT_TENANT, "plugin", SOURCE, declared)

    async def _leave_alone(self) -> None:
        """Their plugins are not here, so nothing is decided about them: another process will catch up."""
        after = ("", "")
        while rows := await self._store.schedules_of_kind(KIND, after, PAGE):
            for row in rows:
                self._fires.broken[self._key(row)] = "its plugin is not loaded in this process"
            after = rows[-1].tenant, rows[-1].id

    def _key(self, row: ScheduleRow) -> tuple[str, str, str]:
        is_local = known(row.body).spec.locking == "node_local"
        return row.tenant, row.id, self._store.node if is_local else ""

    async def _target(self, occasion: Occasion) -> Target | None:
        spec = occasion.spec
        if not isinstance(spec.trigger, PluginTrigger):
            return None
        workflow = self._workflows.get(spec.id)
        if workflow is None:
            raise NotFound(f"plugin {spec.trigger.plugin} is not loaded, or has no such schedule any more")
        context = ScheduledRunCtx(
            own_id(spec),
            occasion.by.scheduled_at,
            occasion.run_count,
            occasion.by.is_catchup,
            None if occasion.tenant == DEFAULT_TENANT else occasion.tenant,
            total_run_count=occasion.total_run_count,
        )
        return Target(workflow, msgspec.structs.asdict(context))


def _workflows_of(loaded: Loaded) -> dict[str, WorkflowSpec]:
    return {
        spec.id: workflow_of(spec, plugin.timeout_secs)
        for plugin in loaded.plugins
        for spec in plugin.schedules
    }
