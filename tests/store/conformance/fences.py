"""What every store promises about a commit for which another process was first, and about parts of a batch."""

from __future__ import annotations

from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    Version,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import (
    T0,
    Open,
    appended,
    change,
    commit,
    isolated_on_claim,
    journal_of,
    outcome_of,
    row,
    row_of,
    rows_of,
    run_id,
    started,
)


class FencesConformance:
    async def test_fenced_names_exactly_the_runs_that_another_appended_to(self, store: Store) -> None:
        await commit(store, appended(row(1, 1), row(2, 1), row(3, 1)))
        batch = appended(row(1, 2), row(2, 1), row(3, 2), row(4, 1), row(1, 3))
        await commit(store, appended(row(1, 2)))
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced)
        assert sorted(told.runs) == [1, 2]

    async def test_of_a_fenced_batch_nothing_is_left(self, store_factory: Open) -> None:
        store = await store_factory()
        await commit(store, started(1, 2))
        batch = started(3, 4)
        batch.rows += [row(1, 1), row(2, 2)]
        batch.changes[RunNo(2)] = change("waiting", owned=False, wake_at=T0)
        batch.blobs.append((RunNo(3), "ab", b"text"))
        batch.snapshots.append((RunNo(2), 0, 1, b"state"))
        batch.versions.append(Version(DEFAULT_TENANT, "v9", "w", "{}", Millis(T0)))
        batch.isolated = "somebody"
        assert isinstance(await outcome_of(store, batch), Fenced)
        assert await rows_of(store, 1, 2, 3, 4) == {1: [1], 2: [1], 3: [], 4: []}
        assert await store.run_by_no(RunNo(3)) is None
        assert (await row_of(store, 2)).status == "running"
        assert await store.definition(DEFAULT_TENANT, "v9") is None
        loaded = await store.load(RunNo(2))
        assert loaded is not None and loaded.parts == []
        assert await isolated_on_claim(await store_factory()) == {""}

    async def test_the_rest_of_a_fenced_batch_is_taken_as_it_is(self, store: Store) -> None:
        await commit(store, started(1, 2))
        batch = started(3)
        batch.rows += [row(1, 1), row(2, 2)]
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced)
        await commit(store, batch.without(set(told.runs)))
        assert await rows_of(store, 1, 2, 3) == {1: [1], 2: [1, 2], 3: [1]}

    async def test_of_two_who_append_the_same_row_the_first_one_stands(self, store: Store) -> None:
        await commit(store, appended(row(1, 1, body='"first"')))
        assert isinstance(await outcome_of(store, appended(row(1, 1, body='"second"'))), Fenced)
        assert [body for *_, body in await journal_of(store, 1)] == ['"first"']

    async def test_a_large_fenced_batch_leaves_nothing_either(self, store: Store) -> None:
        await commit(store, appended(row(999, 1)))
        told = await outcome_of(store, appended(*[row(no, 1) for no in range(1, 1_001)]))
        assert isinstance(told, Fenced) and told.runs == (999,)
        assert await rows_of(store, 1, 500, 1_000) == {1: [], 500: [], 1_000: []}

    async def test_a_batch_refused_for_another_reason_is_not_called_fenced_and_leaves_nothing(
        self, store: Store
    ) -> None:
        await commit(store, started(1))
        twin = started(2, 3)
        twin.new_runs[RunNo(3)].id = run_id(1)  # an id names one run of its tenant
        told = await outcome_of(store, twin)
        assert told is not None and not isinstance(told, Fenced)
        assert await rows_of(store, 1, 2, 3) == {1: [1], 2: [], 3: []}
        assert await store.run_by_no(RunNo(2)) is None

    async def test_a_refused_batch_does_not_stand_in_the_way_of_the_next(self, store: Store) -> None:
        await commit(store, appended(row(1, 1)))
        assert await outcome_of(store, appended(row(1, 1))) is not None
        await commit(store, appended(row(1, 2)))
        assert await rows_of(store, 1) == {1: [1, 2]}

    def full_batch(self) -> Batch:
        batch = started(1, 2, 3)
        for no in (1, 2, 3):
            batch.blobs.append((RunNo(no), "ab", b"text"))
            batch.snapshots.append((RunNo(no), 0, 1, b"state"))
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "w", "{}", Millis(T0)))
        batch.isolated, batch.is_probe = "somebody", True
        return batch

    def test_only_keeps_what_belongs_to_the_runs_and_what_belongs_to_none(self) -> None:
        whole = self.full_batch()
        part = whole.only({RunNo(2)})
        assert part.rows == [row(2, 1)]
        assert list(part.new_runs) == list(part.changes) == [2]
        assert part.blobs == [(2, "ab", b"text")] and part.snapshots == [(2, 0, 1, b"state")]
        assert (part.versions, part.isolated, part.is_probe) == (whole.versions, "somebody", True)

    def test_without_is_the_other_half_of_only(self) -> None:
        whole = self.full_batch()
        rest = whole.without({RunNo(2)})
        assert rest.rows == [row(1, 1), row(3, 1)]
        assert list(rest.new_runs) == list(rest.changes) == [1, 3]
        assert [blob[0] for blob in rest.blobs] == [snapshot[0] for snapshot in rest.snapshots] == [1, 3]
        assert len(whole.rows) == 3  # the whole is not changed by it

    def test_without_nobody_is_everything(self) -> None:
        assert self.full_batch().without(set()).rows == self.full_batch().rows
