"""The services that every surface uses, built around one engine: commands, queries and views."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config import Settings
from holdfast.ops.api_keys import ApiKeys
from holdfast.ops.code_files import CodeFiles
from holdfast.ops.folders import Folder
from holdfast.ops.health import Health
from holdfast.ops.metrics import Metrics
from holdfast.ops.schedule_commands import ScheduleCommands
from holdfast.ops.schedule_folder import ScheduleFolder
from holdfast.runtime.clock import Clock
from holdfast.runtime.engine import Engine
from holdfast.views.all_events import History
from holdfast.views.asking import Asking
from holdfast.views.offers import Offers
from holdfast.views.schedule_why import WhyQueries
from holdfast.views.schedules import ScheduleQueries
from holdfast.waits.approval_links import Links
from holdfast.waits.handles import Handles


class Services:
    def __init__(
        self,
        engine: Engine,
        *,
        settings: Settings | None = None,
        api_keys: ApiKeys | None = None,
        address: str | None = None,
    ) -> None:
        self.engine, self.workers = engine, engine.workers
        self.clock: Clock = engine.clock
        self.since = engine.clock.now()
        self.settings = settings or Settings()
        self.commands, self.queries = engine.commands, engine.queries
        self.schedules = ScheduleQueries(engine.store, engine.clock.now, self._problem_of_schedule)
        self.why = WhyQueries(engine.store, self.schedules)
        self.schedule_commands = ScheduleCommands(engine, self.schedules)
        self.api_keys = api_keys or ApiKeys(engine.store, engine.clock, engine.gate)
        self.history = History(engine.store, engine.feed, engine.plans)
        self.links = Links(engine.store, engine.approvals)
        self.handles = Handles(engine.store)
        self.offers = Offers(engine.store, engine.plans)
        self.asking = Asking(engine.queries, engine.feed, engine.door.residents)
        self.metrics = Metrics(
            engine.store,
            engine.clock,
            engine.door,
            engine.dispatch,
            engine.outbox,
            engine.wakes,
            engine.fires.tally,
        )
        self.health = Health(engine.store, engine.clock, engine.committer, engine.gate)
        self.address = address  # where it is served, if it is
        self.code: CodeFiles | None = None  # the files of its tools, if they are watched
        self.folders: dict[str, Folder] = {}  # the folders whose files are published: flows, skills
        self.schedule_folder: ScheduleFolder | None = None

    def _problem_of_schedule(self, tenant: str, schedule_id: str, slots: Sequence[str]) -> str:
        """What keeps a schedule from firing in this process."""
        engine = self.engine
        return engine.kinds.problem(tenant, schedule_id) or engine.fires.problem(tenant, schedule_id, slots)
