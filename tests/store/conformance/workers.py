"""What every store promises about workers and their jobs."""

from __future__ import annotations

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    AssignmentRow,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import T0, Open, commit, started, worker


class WorkersConformance:
    async def test_workers_come_back_in_the_order_of_their_registration(self, store_factory: Open) -> None:
        store, batch = await store_factory(), Batch()
        batch.workers += [worker("b", 1), worker("a", 2), worker("a", 3, tenant="other")]
        await commit(store, batch)
        assert [(row.tenant, row.id) for row in await (await store_factory()).workers()] == [
            (DEFAULT_TENANT, "b"),
            (DEFAULT_TENANT, "a"),
            ("other", "a"),
        ]

    async def test_a_worker_that_is_written_again_is_the_same_one(self, store: Store) -> None:
        batch = Batch()
        batch.workers += [worker("a", 1), worker("a", 1, status="offline")]
        await commit(store, batch)
        assert await store.workers() == [worker("a", 1, status="offline")]

    async def test_a_worker_that_is_heard_is_online_and_never_heard_earlier_than_before(
        self, store: Store
    ) -> None:
        batch = Batch()
        batch.workers.append(worker("a", 1, status="offline", heard_at=T0 + 5))
        batch.heard_workers += [(DEFAULT_TENANT, "a", Millis(T0 + 9)), ("other", "a", Millis(T0 + 99))]
        await commit(store, batch)
        later = Batch()
        later.heard_workers.append((DEFAULT_TENANT, "a", Millis(T0 + 7)))
        await commit(store, later)
        assert await store.workers() == [worker("a", 1, heard_at=T0 + 9)]

    async def test_a_worker_is_forgotten_in_its_own_tenant_alone(self, store: Store) -> None:
        batch = Batch()
        batch.workers += [worker("a", 1), worker("a", 2, tenant="other")]
        await commit(store, batch)
        batch = Batch()
        batch.forgotten_workers.append((DEFAULT_TENANT, "a"))
        await commit(store, batch)
        assert [row.tenant for row in await store.workers()] == ["other"]

    async def test_an_assignment_is_there_with_its_last_token_until_it_ends(
        self, store_factory: Open
    ) -> None:
        store, batch = await store_factory(), started(1)
        first = AssignmentRow(RunNo(1), "s", 1, "resize")
        leased = AssignmentRow(RunNo(1), "s", 1, "resize", "w", "token", 1, Millis(T0))
        batch.assignments += [first, leased, AssignmentRow(RunNo(1), "s", 2, "resize")]
        await commit(store, batch)
        assert (await (await store_factory()).assignments())[0] == leased
        batch = Batch()
        batch.ended_assignments += [(RunNo(1), "s", 1), (RunNo(1), "never", 1)]
        await commit(await store_factory(), batch)
        assert [row.attempt for row in await (await store_factory()).assignments()] == [2]

    async def test_the_assignments_of_a_run_are_found_without_those_of_others(self, store: Store) -> None:
        batch = started(1, 2)
        batch.assignments += [AssignmentRow(RunNo(no), path, 1, "resize") for no in (1, 2) for path in "ab"]
        await commit(store, batch)
        found = await store.assignments_of_run(RunNo(2))
        assert [(row.no, row.path) for row in found] == [(2, "a"), (2, "b")]

    async def test_a_forgotten_run_takes_its_assignments_along(self, store: Store) -> None:
        batch = started(1, 2, status="completed", owned=False, finished_at=T0)
        batch.assignments += [AssignmentRow(RunNo(no), "s", 1, "resize") for no in (1, 2)]
        await commit(store, batch)
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert [row.no for row in await store.assignments()] == [2]
