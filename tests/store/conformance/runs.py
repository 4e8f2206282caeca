"""What every store promises about the rows of runs and their values."""

from __future__ import annotations

from holdfast.store.base import Store
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
    changed,
    commit,
    new_run,
    row,
    row_of,
    rows_of,
    run_id,
    started,
)


class RunsConformance:
    async def test_a_new_run_is_found_by_number_and_by_id(self, store: Store) -> None:
        batch = started(1)
        batch.new_runs[RunNo(1)] = new_run(1, labels='{"team":"ü"}')
        await commit(store, batch)
        found = await row_of(store, 1)
        assert (found.no, found.id, found.tenant, found.version) == (1, run_id(1), DEFAULT_TENANT, "v1")
        assert (found.status, found.created_at, found.labels) == ("running", T0, '{"team":"ü"}')
        assert (found.owner_epoch, found.finished_at, found.wake_at) == (store.epoch, None, None)
        assert found.owner is not None
        assert await store.run_by_id(DEFAULT_TENANT, run_id(1)) == found

    async def test_nobody_is_found_under_another_tenant_or_id(self, store: Store) -> None:
        await commit(store, started(1))
        assert await store.run_by_id("other", run_id(1)) is None
        assert await store.run_by_id(DEFAULT_TENANT, run_id(2)) is None

    async def test_a_list_says_by_which_run_another_one_was_rerun_last(self, store: Store) -> None:
        await commit(store, started(1, status="failed", owned=False, finished_at=T0))
        await commit(store, started(2, 3, 4))
        again = started(5, 6, 7)
        for no, tenant in ((5, DEFAULT_TENANT), (6, DEFAULT_TENANT), (7, "other")):
            again.new_runs[RunNo(no)] = new_run(no, tenant=tenant)
            again.new_runs[RunNo(no)].rerun_of = run_id(1)
        await commit(store, again)
        edges = await store.run_edges([RunNo(1), RunNo(2)])
        assert {no: edge.rerun_as for no, edge in edges.items()} == {1: run_id(6), 2: None}

    async def test_a_change_replaces_status_owner_epoch_and_wake_time(self, store: Store) -> None:
        await commit(store, started(1))
        await commit(
            store, changed(1, change("waiting", owned=False, epoch=4, wake_at=T0 + 9, needs='["t"]'))
        )
        found = await row_of(store, 1)
        assert (found.status, found.owner, found.owner_epoch) == ("waiting", None, None)
        assert (found.epoch, found.wake_at, found.needs) == (4, T0 + 9, '["t"]')
        await commit(store, changed(1, change("completed", owned=False, epoch=5, finished_at=T0 + 20)))
        found = await row_of(store, 1)
        assert (found.status, found.epoch, found.wake_at, found.needs) == ("completed", 5, None, None)
        assert found.finished_at == T0 + 20

    async def test_a_run_that_is_over_in_its_first_batch_is_stored_so(self, store: Store) -> None:
        await commit(store, started(1, status="completed", owned=False, finished_at=T0 + 1))
        found = await row_of(store, 1)
        assert (found.status, found.owner, found.finished_at) == ("completed", None, T0 + 1)

    async def test_lists_go_from_the_newest_run_back(self, store: Store) -> None:
        await commit(store, started(1, 2, 3, 4, 5))
        first = await store.list_runs(DEFAULT_TENANT, None, 2)
        rest = await store.list_runs(DEFAULT_TENANT, first.below, 10)
        assert [found.no for found in first.rows + rest.rows] == [5, 4, 3, 2, 1]
        assert rest.below is None
        assert await store.list_runs("other", None, 10) == ([], None)

    async def test_numbers_of_runs_are_never_given_out_twice(self, store_factory: Open) -> None:
        first = await store_factory()
        given = [first.next_no() for _ in range(3)]
        assert len(set(given)) == 3
        await commit(first, started(*given))
        assert (await store_factory()).next_no() > max(given)

    async def test_a_blob_comes_back_byte_for_byte(self, store: Store) -> None:
        text = bytes(range(256)) * 8_192  # 2 MiB
        batch = started(1, 2)
        batch.blobs += [(RunNo(1), "ab", text), (RunNo(2), "ab", b"another's")]
        await commit(store, batch)
        assert await store.blob(RunNo(1), "ab") == text
        assert await store.blob(RunNo(2), "ab") == b"another's"

    async def test_the_same_blob_may_be_put_again(self, store: Store) -> None:
        for seq in (1, 2):
            batch = appended(row(1, seq))
            batch.blobs += [(RunNo(1), "ab", b"text"), (RunNo(1), "ab", b"text")]
            await commit(store, batch)
        assert await store.blob(RunNo(1), "ab") == b"text"
        assert await rows_of(store, 1) == {1: [1, 2]}

    async def test_load_gives_the_snapshot_in_parts_and_only_the_rows_after_it(self, store: Store) -> None:
        batch = started(1, rows=5)
        batch.snapshots += [(RunNo(1), 0, 3, b"open"), (RunNo(1), 1, 3, b"done")]
        await commit(store, batch)
        loaded = await store.load(RunNo(1))
        assert loaded is not None
        assert (loaded.parts, loaded.snapshot_seq) == ([(0, b"open"), (1, b"done")], 3)
        assert [seq for seq, *_ in loaded.rows] == [4, 5]
        assert loaded.row == await row_of(store, 1)

    async def test_a_later_snapshot_replaces_the_open_part_and_adds_to_the_others(self, store: Store) -> None:
        batch = started(1, rows=5)
        batch.snapshots += [(RunNo(1), 0, 2, b"open"), (RunNo(1), 1, 2, b"done")]
        await commit(store, batch)
        later = Batch()
        later.snapshots += [(RunNo(1), 0, 4, b"open since"), (RunNo(1), 2, 4, b"done since")]
        await commit(store, later)
        loaded = await store.load(RunNo(1))
        assert loaded is not None
        assert loaded.parts == [(0, b"open since"), (1, b"done"), (2, b"done since")]
        assert (loaded.snapshot_seq, [seq for seq, *_ in loaded.rows]) == (4, [5])

    async def test_many_are_loaded_at_once_each_with_its_own_rows_and_snapshot(self, store: Store) -> None:
        batch = started(1, 2, 3, rows=3)
        batch.snapshots.append((RunNo(2), 0, 2, b"open"))
        await commit(store, batch)
        loaded = await store.load_many([RunNo(3), RunNo(2), RunNo(9)])
        assert sorted((each.row.no, each.parts, [seq for seq, *_ in each.rows]) for each in loaded) == [
            (2, [(0, b"open")], [3]),
            (3, [], [1, 2, 3]),
        ]
        assert await store.load_many([]) == []

    async def test_a_run_is_read_alone_as_it_is_among_others(self, store: Store) -> None:
        batch = started(1, 2, rows=3)
        batch.snapshots += [(RunNo(2), 0, 2, b"open"), (RunNo(2), 1, 2, b"done")]
        batch.traces.append((RunNo(1), "00-aa-bb-01"))
        await commit(store, batch)
        alone = [await store.load(RunNo(no)) for no in (1, 2)]
        assert alone == await store.load_many([RunNo(1), RunNo(2)])
        assert await store.load(RunNo(3)) is None

    async def test_without_a_snapshot_load_gives_every_row(self, store: Store) -> None:
        await commit(store, started(1, rows=600))
        loaded = await store.load(RunNo(1))
        assert loaded is not None
        assert (loaded.parts, loaded.snapshot_seq) == ([], 0)
        assert [seq for seq, *_ in loaded.rows] == list(range(1, 601))

    async def test_a_definition_is_kept_by_its_hash_and_never_replaced(self, store: Store) -> None:
        for text in ('{"name":"ü"}', '{"name":"other"}'):
            batch = Batch()
            batch.versions.append(Version(DEFAULT_TENANT, "h1", "w", text, Millis(T0)))
            await commit(store, batch)
        assert await store.definition(DEFAULT_TENANT, "h1") == ('{"name":"ü"}', None)
        assert await store.definition(DEFAULT_TENANT, "h2") is None
        assert await store.definition("other", "h1") is None

    async def test_a_definition_comes_with_the_versions_of_those_that_it_names(self, store: Store) -> None:
        batch = started(1)
        batch.versions += [
            Version(DEFAULT_TENANT, "v1", "w", "{}", Millis(T0), '{"child":"v2"}'),
            Version(DEFAULT_TENANT, "v2", "child", "{}", Millis(T0)),
        ]
        await commit(store, batch)
        assert await store.definition(DEFAULT_TENANT, "v1") == ("{}", '{"child":"v2"}')
        assert await store.definition(DEFAULT_TENANT, "v2") == ("{}", None)

    async def test_a_run_says_which_run_it_does_again(self, store: Store) -> None:
        batch = started(1, 2)
        batch.new_runs[RunNo(2)].rerun_of = run_id(1)
        await commit(store, batch)
        assert [(await row_of(store, no)).rerun_of for no in (1, 2)] == [None, run_id(1)]
