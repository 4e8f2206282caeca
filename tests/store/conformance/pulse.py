"""What every store promises about counts of runs over time."""

from __future__ import annotations

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.beats import MINUTE_MS, STARTED, end_beat
from holdfast.values import DEFAULT_TENANT, RunNo
from tests.store.conformance.batches import T0, change, changed, commit, new_run, started

MINUTE = T0 // MINUTE_MS
DAY = 24 * 60


async def counted(
    store: Store,
    *,
    tenant: str = DEFAULT_TENANT,
    workflow: str | tuple[str, ...] | None = None,
    width: int = 1,
) -> set[tuple[int, int, int]]:
    """What was counted in the two days from T0 on: stretch, beat, runs."""
    return set(await store.pulse(tenant, workflow, MINUTE, MINUTE + 2 * DAY, width))


class PulseConformance:
    async def test_a_run_is_counted_when_it_starts_and_when_it_ends(self, store: Store) -> None:
        await commit(store, started(1, 2))
        assert await counted(store) == {(0, STARTED, 2)}
        await commit(store, changed(1, change("failed", owned=False, finished_at=T0 + 3 * MINUTE_MS)))
        assert await counted(store) == {(0, STARTED, 2), (3, end_beat("failed", 3 * MINUTE_MS), 1)}

    async def test_a_run_that_starts_and_ends_in_one_commit_is_counted_twice(self, store: Store) -> None:
        await commit(store, started(1, status="completed", owned=False, finished_at=T0 + 5))
        assert await counted(store) == {(0, STARTED, 1), (0, end_beat("completed", 5), 1)}

    async def test_a_run_that_this_store_did_not_start_is_counted_when_it_ends(self, store: Store) -> None:
        await commit(store, started(1, status="waiting", owned=False))
        await commit(store, changed(1, change("cancelled", owned=False, finished_at=T0 + 7)))
        assert await counted(store) == {(0, STARTED, 1), (0, end_beat("cancelled", 7), 1)}

    async def test_short_and_long_runs_are_counted_with_how_long_they_took(self, store: Store) -> None:
        spans = (0, 15, 16, 17, 1_000, 59_999, 86_400_000, 2**31, 2**33 - 1, 2**33, 2**40)
        for no, took in enumerate(spans, start=1):
            await commit(store, started(no, status="completed", owned=False, finished_at=T0 + took))
        found = await store.pulse(DEFAULT_TENANT, None, 0, 2**40, 2**40)
        expected = {end_beat("completed", took) for took in spans}
        assert {beat for _, beat, _ in found} == {STARTED, *expected}

    async def test_a_change_that_is_not_an_end_is_not_counted(self, store: Store) -> None:
        await commit(store, started(1))
        await commit(store, changed(1, change("waiting", owned=False)))
        assert await counted(store) == {(0, STARTED, 1)}

    async def test_counts_are_of_one_tenant_and_of_one_workflow_if_asked(self, store: Store) -> None:
        batch = started(1, 2)
        batch.new_runs[RunNo(1)] = new_run(1, workflow="m")
        batch.new_runs[RunNo(2)] = new_run(2, tenant="other")
        await commit(store, batch)
        assert await counted(store) == {(0, STARTED, 1)}
        assert await counted(store, workflow="n") == set()
        assert await counted(store, workflow=("n", "m")) == await counted(store, workflow="m") != set()
        assert await counted(store, workflow=()) == set()
        assert await counted(store, tenant="other", workflow="n") == {(0, STARTED, 1)}

    async def test_counts_of_minutes_are_added_up_by_hour(self, store: Store) -> None:
        await commit(store, started(1, 2, status="failed", owned=False, finished_at=T0 + 40 * MINUTE_MS))
        before = await counted(store, width=DAY)
        hour, batch = (MINUTE // 60 + 2) * 60, Batch()
        batch.added_up_pulse.append((0, hour))
        await commit(store, batch)
        first = MINUTE - MINUTE % 60
        found = await store.pulse(DEFAULT_TENANT, None, first, first + DAY, DAY)
        assert set(found) == before
        assert not await store.pulse(DEFAULT_TENANT, None, first + 1, first + 60, 1)

    async def test_old_counts_are_found_by_minute_and_in_all(self, store: Store) -> None:
        assert not await store.has_pulse(0, 2**40, False)
        await commit(store, started(1))
        assert await store.has_pulse(MINUTE, MINUTE + 1, False)
        assert not await store.has_pulse(MINUTE + 1, 2**40, False)
        assert await store.has_pulse(0, 2**40, True) is (MINUTE % 60 != 0)

    async def test_counts_outlive_their_runs_but_not_their_workflow(self, store: Store) -> None:
        await commit(store, started(1, 2, status="completed", owned=False, finished_at=T0))
        for no, left in ((1, True), (2, False)):
            batch = Batch()
            batch.forgotten.append(RunNo(no))
            await commit(store, batch)
            assert bool(await counted(store)) is left

    async def test_old_counts_are_forgotten(self, store: Store) -> None:
        await commit(store, started(1, status="completed", owned=False, finished_at=T0 + 2 * MINUTE_MS))
        batch = Batch()
        batch.forgotten_pulse.append((MINUTE + 1,))
        await commit(store, batch)
        assert await counted(store) == {(2, end_beat("completed", 2 * MINUTE_MS), 1)}
