"""What every store promises, as one suite: each store's own test module subclasses `StoreConformance` and says how to open one.

Knows `holdfast.store.base` and nothing else: no dialect, no file, no thread. `store_factory` opens the same database again each
time it is called; the fixture closes what it opened.
"""

from __future__ import annotations

import pytest

from holdfast.store.base import Store
from tests.store.conformance.batches import Open
from tests.store.conformance.boards import BoardsConformance
from tests.store.conformance.callback_deliveries import CallbackDeliveriesConformance
from tests.store.conformance.commits import CommitsConformance
from tests.store.conformance.definitions import DefinitionsConformance
from tests.store.conformance.fences import FencesConformance
from tests.store.conformance.journals import JournalsConformance
from tests.store.conformance.keys import KeysConformance
from tests.store.conformance.lists import ListsConformance
from tests.store.conformance.logs import LogsConformance
from tests.store.conformance.ownership import OwnershipConformance
from tests.store.conformance.pulse import PulseConformance
from tests.store.conformance.runs import RunsConformance
from tests.store.conformance.schedules import ScheduleConformance
from tests.store.conformance.waits import WaitsConformance
from tests.store.conformance.workers import WorkersConformance


@pytest.mark.anyio
class StoreConformance(
    DefinitionsConformance,
    ListsConformance,
    PulseConformance,
    BoardsConformance,
    JournalsConformance,
    FencesConformance,
    RunsConformance,
    OwnershipConformance,
    CommitsConformance,
    KeysConformance,
    WorkersConformance,
    WaitsConformance,
    CallbackDeliveriesConformance,
    LogsConformance,
    ScheduleConformance,
):
    @pytest.fixture
    async def store(self, store_factory: Open) -> Store:
        return await store_factory()
