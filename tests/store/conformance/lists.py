"""What every store promises about lists of runs, and what a commit means for their counts."""

from __future__ import annotations

import pytest

from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    Request,
    Wanted,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import (
    T0,
    change,
    changed,
    commit,
    listed,
    new_run,
    outcome_of,
    row,
    row_of,
    run_id,
    started,
)


class ListsConformance:
    async def test_a_run_knows_the_release_that_it_is_of(self, store: Store) -> None:
        batch = started(1, 2)
        batch.new_runs[RunNo(1)].number = 3
        await commit(store, batch)
        assert ((await row_of(store, 1)).number, (await row_of(store, 2)).number) == (3, None)
        assert await listed(store, Wanted(workflow="n", number=3)) == [1]

    async def test_a_tenants_list_has_none_of_anothers_runs(self, store: Store) -> None:
        batch = started(1, 2, 3)
        batch.new_runs[RunNo(2)] = new_run(2, tenant="other", labels='{"team":"x"}')
        batch.new_runs[RunNo(3)].labels = '{"team":"x"}'
        await commit(store, batch)
        assert await listed(store, Wanted()) == [3, 1]
        assert await listed(store, Wanted(), "other") == [2]
        assert await listed(store, Wanted(label=("team", "x"))) == [3]

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    async def test_pages_have_each_run_once_whatever_their_size(self, store: Store, limit: int) -> None:
        batch = started(*range(1, 30))
        for no in range(1, 30):
            new = batch.new_runs[RunNo(no)]
            new.workflow, new.number = f"w{no % 3}", no % 2 or None
            new.labels = '{"a":"b"}' if no % 5 == 0 else None
            batch.changes[RunNo(no)] = change("failed" if no % 4 == 0 else "running")
        await commit(store, batch)
        every = list(range(29, 0, -1))
        assert await listed(store, Wanted(), limit=limit) == every
        assert await listed(store, Wanted(status="failed"), limit=limit) == [n for n in every if n % 4 == 0]
        assert await listed(store, Wanted(workflow="w1"), limit=limit) == [n for n in every if n % 3 == 1]
        several = Wanted(workflow=("w1", "w2", "unknown"), status="failed")
        assert await listed(store, several, limit=limit) == [n for n in every if n % 3 and n % 4 == 0]
        assert await store.count_runs(DEFAULT_TENANT, several) == len(
            [n for n in every if n % 3 and n % 4 == 0]
        )
        assert await listed(store, Wanted(workflow=()), limit=limit) == []
        labelled = Wanted(workflow=("w1", "w2"), label=("a", "b"))
        assert await listed(store, labelled, limit=limit) == [n for n in every if n % 3 and n % 5 == 0]
        both = Wanted(label=("a", "b"), status="running")
        assert await listed(store, both, limit=limit) == [n for n in every if n % 5 == 0 and n % 4]

    async def test_counts_follow_every_change_of_status(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await commit(store, changed(2, change("completed", owned=False, finished_at=T0)))
        await commit(store, changed(3, change("waiting")))
        await commit(store, changed(3, change("waiting", epoch=1)))
        counts = [
            await store.count_runs(DEFAULT_TENANT, Wanted(status=status))
            for status in ("running", "completed", "waiting", "failed", ("running", "waiting"))
        ]
        assert counts == [1, 1, 1, 0, 2]
        assert await store.count_runs(DEFAULT_TENANT) == 3
        assert await store.count_runs("other") == 0

    async def test_a_batch_that_was_refused_counts_nothing(self, store: Store) -> None:
        await commit(store, started(1))
        batch = started(2)
        batch.new_runs[RunNo(2)].workflow = "new"
        batch.rows.append(row(1, 1))
        assert isinstance(await outcome_of(store, batch), Fenced)
        assert await store.count_runs(DEFAULT_TENANT) == 1
        await commit(store, batch.without({RunNo(1)}))
        assert await store.count_runs(DEFAULT_TENANT, Wanted(workflow="new")) == 1

    async def test_a_run_that_is_deleted_is_neither_counted_nor_listed(self, store: Store) -> None:
        batch = started(1, 2, status="completed", owned=False, finished_at=T0)
        batch.new_runs[RunNo(1)].labels = '{"team":"x"}'
        await commit(store, batch)
        gone = Batch()
        gone.forgotten.append(RunNo(1))
        await commit(store, gone)
        assert await store.count_runs(DEFAULT_TENANT) == 1
        assert await listed(store, Wanted()) == [2]
        assert await listed(store, Wanted(label=("team", None))) == []

    async def test_a_run_is_found_by_the_beginning_and_by_the_end_of_its_id(self, store: Store) -> None:
        await commit(store, started(1, 21))
        assert await store.ids_like(DEFAULT_TENANT, "000000000021", 10) == [run_id(21)]
        assert await store.ids_like(DEFAULT_TENANT, "00000000-0000-7", 10) == [run_id(21), run_id(1)]
        assert await store.ids_like("other", "000000000021", 10) == []

    async def test_the_ends_of_a_journal_come_with_the_row_of_their_run(self, store: Store) -> None:
        await commit(store, started(1, rows=9, status="completed", owned=False, finished_at=T0))
        ends = await store.ends(DEFAULT_TENANT, run_id(1))
        assert ends is not None
        assert (ends.row.status, ends.first[0][0], ends.last[0]) == ("completed", 1, 9)
        assert await store.ends("other", run_id(1)) is None

    async def test_the_id_of_a_start_is_found_by_its_run(self, store: Store) -> None:
        batch = started(1, 2)
        batch.requests.append(Request(DEFAULT_TENANT, "order-7", "digest", RunNo(1), Millis(T0)))
        await commit(store, batch)
        assert [await store.request_of(RunNo(no)) for no in (1, 2)] == ["order-7", None]
