"""Everything a door needs, put together around one engine: what can be asked of it, and what can be looked at."""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.runtime.api_keys import ApiKeys
from holdfast.runtime.app import Engine
from holdfast.runtime.clock import Clock
from holdfast.runtime.commands import Commands
from holdfast.runtime.folders import Folder
from holdfast.runtime.health import Health
from holdfast.runtime.history import History
from holdfast.runtime.links import Links
from holdfast.runtime.metrics import Metrics
from holdfast.runtime.queries import Queries


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
        self.links = Links(engine)
        self.metrics = Metrics(engine)
        self.health = Health(engine)
        self.address: str | None = None  # where it is served, if it is
        self.folder: Folder | None = None  # of definitions that are published as they stand in it
