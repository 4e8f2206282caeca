"""What every store promises about when a commit is durable, and in which order its parts take effect."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.store.base import Store
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
    journal_of,
    outcome_of,
    row,
    row_of,
    started,
)


class CommitsConformance:
    async def test_what_was_told_done_is_there_for_the_next_process(self, store_factory: Open) -> None:
        first = await store_factory()
        batch = started(1, rows=3)
        batch.blobs.append((RunNo(1), "ab", b"text"))
        batch.snapshots.append((RunNo(1), 0, 2, b"state"))
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "w", "{}", Millis(T0)))
        await commit(first, batch)
        await first.close()
        second = await store_factory()
        loaded = await second.load(RunNo(1))
        assert loaded is not None
        assert (loaded.parts, [seq for seq, *_ in loaded.rows]) == ([(0, b"state")], [3])
        assert await second.blob(RunNo(1), "ab") == b"text"
        assert await second.definition(DEFAULT_TENANT, "v1") == ("{}", None)

    @pytest.mark.parametrize("rows", [1, 1_000])
    async def test_done_is_called_on_the_loop(self, store: Store, rows: int) -> None:
        told: asyncio.Future[tuple[int, bool]] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            told.set_result((threading.get_ident(), asyncio.get_running_loop() is told.get_loop()))

        store.submit(appended(*[row(1, seq) for seq in range(1, rows + 1)]), done)
        assert await told == (threading.get_ident(), True)

    async def test_a_committed_batch_can_be_read_when_done_is_called(self, store: Store) -> None:
        for no, rows in enumerate((1, 1_000, 2), start=1):
            await commit(store, started(no, rows=rows))
            assert len(await journal_of(store, no)) == rows

    async def test_batches_submitted_together_are_committed_in_their_order(self, store: Store) -> None:
        await commit(store, started(1))
        order: list[int] = []
        all_told = asyncio.Event()

        def done(number: int, error: BaseException | None) -> None:
            assert error is None
            order.append(number)
            if len(order) == 6:
                all_told.set()

        for number, status in enumerate(("waiting", "running") * 3):
            batch = appended(*[row(10 + number, seq) for seq in range(1, 1_000 if number % 3 == 0 else 3)])
            batch.changes[RunNo(1)] = change(status, epoch=number)  # type: ignore[arg-type]  # a literal in a tuple
            store.submit(batch, lambda error, number=number: done(number, error))  # type: ignore[misc]
        await all_told.wait()
        assert order == list(range(6))
        assert (await row_of(store, 1)).epoch == 5

    async def test_a_batch_submitted_when_an_earlier_one_is_done_comes_after_those_on_their_way(
        self, store: Store
    ) -> None:
        await commit(store, started(1))
        order: list[int] = []
        batches = {number: appended(*[row(number, seq) for seq in range(1, 20_000)]) for number in (2, 3)}
        batches[4] = appended(row(4, 1))

        def submit(number: int) -> asyncio.Future[BaseException | None]:
            batches[number].changes[RunNo(1)] = change(epoch=number)
            order.append(number)
            return outcome_of(store, batches[number])

        last: asyncio.Future[asyncio.Future[BaseException | None]] = (
            asyncio.get_running_loop().create_future()
        )
        store.submit(appended(*[row(9, seq) for seq in range(1, 100)]), lambda _: last.set_result(submit(4)))
        told = [submit(number) for number in (2, 3)]
        assert [await one for one in (*told, await last)] == [None, None, None]
        assert (await row_of(store, 1)).epoch == order[-1]
