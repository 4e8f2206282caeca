"""What every store promises about journals and the feed of all runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.feed import BEGINNING
from holdfast.store.records import (
    ReadRow,
)
from holdfast.values import DEFAULT_TENANT, RunNo
from tests.store.conformance.batches import (
    T0,
    appended,
    asks,
    change,
    changed,
    commit,
    feed_of,
    journal_of,
    read_back,
    row,
    rows_of,
    run_id,
    settled,
    started,
    stretches_of,
)


class JournalsConformance:
    async def test_what_was_appended_is_read_back_as_it_was(self, store: Store) -> None:
        wanted = row(
            1, 1, epoch=3, body='[1,["step_succeeded","a[0].b",1,"ü☃𝄞\\u0000"],[]]', kind="step_succeeded"
        )
        await commit(store, appended(wanted))
        assert await journal_of(store, 1) == [wanted[1:]]

    async def test_rows_of_a_run_come_in_the_order_of_their_sequence(self, store: Store) -> None:
        rows = [row(no, seq) for seq in (1, 2, 3) for no in (7, 5, 9)]
        await commit(store, appended(*rows))
        await commit(store, appended(row(5, 4), row(9, 4)))
        assert await rows_of(store, 5, 7, 9) == {5: [1, 2, 3, 4], 7: [1, 2, 3], 9: [1, 2, 3, 4]}

    async def test_a_journal_is_read_in_pages_without_gap_or_repetition(self, store: Store) -> None:
        await commit(store, appended(*[row(1, seq) for seq in range(1, 26)]))
        pages: list[Sequence[ReadRow]] = []
        after = 0
        while page := await store.journal(RunNo(1), after, 10):
            pages.append(page)
            after = page[-1][0]
        assert [len(page) for page in pages] == [10, 10, 5]
        assert [seq for page in pages for seq, *_ in page] == list(range(1, 26))

    @pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 255, 256, 257, 511, 1_000])
    async def test_a_batch_of_any_size_lands_whole(self, store: Store, count: int) -> None:
        rows = [row(1 + index % 7, 1 + index // 7, body=f'"{index}"') for index in range(count)]
        await commit(store, appended(*rows))
        for no in range(1, 8):
            assert await journal_of(store, no) == read_back(rows, no)

    async def test_rows_of_all_runs_come_in_the_order_of_their_commits(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await commit(store, appended(row(2, 2), row(1, 2)))
        await commit(store, appended(row(2, 3)))
        found = await feed_of(store)
        assert [(each.no, each.seq) for each in found] == [(1, 1), (2, 1), (2, 2), (1, 2), (2, 3)]
        assert [each.cursor for each in found] == sorted({each.cursor for each in found})
        assert found[-1].cursor == await store.feed_end()
        assert [each.row for each in found if each.no == 2] == await store.journal(RunNo(2), 0, -1)
        assert {each.run_id for each in found} == {run_id(1), run_id(2)}

    async def test_rows_of_all_runs_are_read_in_pages_without_gap_or_repetition(self, store: Store) -> None:
        await commit(store, started(1, 2, 3, rows=4))
        whole = await feed_of(store)
        assert [len(page) for page in await stretches_of(store, 5)] == [5, 5, 2]
        assert [each for page in await stretches_of(store, 5) for each in page] == whole

    async def test_a_cursor_in_the_feed_is_the_place_after_its_row(self, store: Store) -> None:
        await commit(store, started(1, 2, rows=3))
        whole = await feed_of(store)
        for at, each in enumerate(whole):
            assert (await store.feed(DEFAULT_TENANT, each.before, 100)).rows == whole[at:]
            assert (await store.feed(DEFAULT_TENANT, each.cursor, 100)).rows == whole[at + 1 :]
            assert await store.rows_after(each.cursor) == len(whole) - at - 1

    async def test_the_text_of_a_cursor_gives_the_cursor_back(self, store: Store) -> None:
        await commit(store, started(1, rows=3))
        for each in await feed_of(store):
            for cursor in (each.before, each.cursor):
                assert store.cursor(str(cursor)) == cursor
                assert "." not in str(cursor)
        assert store.cursor(BEGINNING) < await store.feed_end()

    @pytest.mark.parametrize(
        "text", ["", "x", "-1", "1.", "1.1", "0x1", "9" * 19, "\u0663", "NaN", " 1", "1\n"]
    )
    async def test_a_text_that_is_not_a_cursor_is_refused(self, store: Store, text: str) -> None:
        with pytest.raises(ValueError, match="position"):
            store.cursor(text)

    async def test_the_feed_ends_where_nothing_more_is_committed(self, store: Store) -> None:
        assert await store.feed(DEFAULT_TENANT, store.cursor(BEGINNING), 10) == ([], store.cursor(BEGINNING))
        await commit(store, started(1))
        end = await store.feed_end()
        assert await store.feed(DEFAULT_TENANT, end, 10) == ([], end)
        await commit(store, appended(row(1, 2)))
        rows, upto = await store.feed(DEFAULT_TENANT, end, 10)
        assert [each.seq for each in rows] == [2]
        assert end < upto == await store.feed_end()

    async def test_the_feed_passes_over_rows_of_other_tenants_a_few_at_a_time(self, store: Store) -> None:
        for no in range(1, 6):
            batch = started(no)
            batch.new_runs[RunNo(no)].tenant = "another" if no < 5 else DEFAULT_TENANT
            await commit(store, batch)
        rows, upto = await store.feed(DEFAULT_TENANT, store.cursor(BEGINNING), 3)
        assert rows == [] and store.cursor(BEGINNING) < upto < await store.feed_end()
        rows, upto = await store.feed(DEFAULT_TENANT, upto, 3)
        assert [each.no for each in rows] == [5]
        assert upto == await store.feed_end()

    async def test_rows_of_all_runs_are_those_of_one_tenant(self, store: Store) -> None:
        await commit(store, started(1))
        assert await feed_of(store, "another") == []

    async def test_positions_are_found_again_behind_what_was_deleted_and_are_never_given_out_twice(
        self, store: Store
    ) -> None:
        for no in (1, 2, 3):
            await commit(store, started(no, rows=2, status="completed", owned=False, finished_at=T0))
        last = await store.feed_end()
        batch = Batch()
        batch.forgotten.extend([RunNo(1), RunNo(2)])
        await commit(store, batch)
        rows, upto = await store.feed(DEFAULT_TENANT, store.cursor(BEGINNING), 1)
        assert [(each.no, each.seq) for each in rows] == [(3, 1)]  # in one step, however many are gone
        assert (await store.feed(DEFAULT_TENANT, upto, 100)).upto == last
        batch = Batch()
        batch.forgotten.append(RunNo(3))
        await commit(store, batch)
        assert await feed_of(store) == []
        await commit(store, started(4, status="completed", owned=False, finished_at=T0))
        (only,) = await feed_of(store)
        assert last < only.cursor
        batch = Batch()
        batch.forgotten.append(RunNo(4))
        await commit(store, batch)
        await commit(store, started(5))
        (newest,) = await feed_of(store)
        assert only.cursor < newest.cursor

    async def test_a_trace_is_kept_with_its_run_and_goes_with_it(self, store: Store) -> None:
        batch = started(1, status="completed", owned=False, finished_at=T0)
        batch.traces.append((RunNo(1), "00-aa-bb-01"))
        await commit(store, batch)
        await commit(store, started(2))
        loaded_both = await store.load_many([RunNo(1), RunNo(2)])
        assert {stored.row.no: stored.trace for stored in loaded_both} == {1: "00-aa-bb-01", 2: ""}
        assert batch.only({RunNo(2)}).traces == []
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        await commit(store, started(1))
        loaded = await store.load(RunNo(1))
        assert loaded is not None and loaded.trace == ""

    async def test_a_run_that_rests_is_told_apart_by_whether_it_waits_for_something(
        self, store: Store
    ) -> None:
        await commit(store, started(1, status="waiting", owned=False))
        await commit(store, started(2, status="waiting", owned=False, needs='["tool"]'))
        await commit(store, started(3, status="waiting", owned=False, wake_at=T0))
        await commit(store, started(4, 5))
        await settled(store, asks(4))
        await settled(store, asks(5))
        await commit(store, changed(5, change("waiting", owned=False)))
        assert await store.resting_runs(RunNo(0), 10) == [(1, False), (2, True), (5, True)]
        assert await store.resting_runs(RunNo(1), 1) == [(2, True)]
        assert await store.owned_runs(RunNo(0), 10) == [(4, store.epoch)]

    async def test_a_journal_of_nobody_is_empty(self, store: Store) -> None:
        assert await journal_of(store, 1) == []
        assert await store.load(RunNo(1)) is None
