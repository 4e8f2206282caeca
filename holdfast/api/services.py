"""The services that every surface uses, built around one engine: commands, queries and views."""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.ops.api_keys import ApiKeys
from holdfast.ops.folders import Folder
from holdfast.ops.health import Health
from holdfast.ops.metrics import Metrics
from holdfast.runtime.clock import Clock
from holdfast.runtime.commands import Commands
from holdfast.runtime.engine import Engine
from holdfast.views.all_events import History
from holdfast.views.runs import Queries
from holdfast.waits.approval_links import Links


class Services:
    def __init__(
        self,
        engine: Engine,
        *,
        settings: Settings | None = None,
        api_keys: ApiKeys | None = None,
    ) -> None:
        self.engine, self.workers = engine, engine.workers
        self.clock: Clock = engine.clock
        self.since = engine.clock.now()
        self.settings = settings or Settings()
        self.commands = Commands(engine)
        self.queries = Queries(engine.store, engine.plans, engine)
        self.api_keys = api_keys or ApiKeys(engine)
        self.history = History(engine.store, engine.feed, engine.plans)
        self.links = Links(engine.store, engine.approvals)
        self.metrics = Metrics(engine)
        self.health = Health(engine)
        self.address: str | None = None  # where it is served, if it is
        self.folder: Folder | None = None  # of definitions that are published as they stand in it
