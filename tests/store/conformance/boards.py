"""What every store promises about the stored boards of finished runs."""

from __future__ import annotations

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.values import RunNo
from tests.store.conformance.batches import T0, appended, commit, row, started

ONE = RunNo(1)


def boards(*parts: tuple[int, str, bytes]) -> Batch:
    batch = Batch()
    batch.boards += [(RunNo(no), part, body) for no, part, body in parts]
    return batch


class BoardsConformance:
    async def test_parts_of_a_board_are_read_by_their_names(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await commit(store, boards((1, "head", b"\x00h"), (1, "steps 0", b"s"), (2, "head", b"other")))
        assert await store.board_parts(ONE, ["head", "steps 0", "none"]) == {
            "head": b"\x00h",
            "steps 0": b"s",
        }

    async def test_a_part_that_is_stored_again_replaces_the_first(self, store: Store) -> None:
        await commit(store, started(1))
        await commit(store, boards((1, "head", b"old"), (1, "head", b"new")))
        assert await store.board_parts(ONE, ["head"]) == {"head": b"new"}

    async def test_a_board_is_deleted_with_its_run_and_not_stored_after_it(self, store: Store) -> None:
        await commit(store, started(1, status="completed", owned=False, finished_at=T0))
        await commit(store, boards((1, "head", b"h")))
        forgotten = Batch()
        forgotten.forgotten.append(ONE)
        await commit(store, forgotten)
        await commit(store, boards((1, "steps 0", b"s")))
        assert await store.board_parts(ONE, ["head", "steps 0"]) == {}

    async def test_long_runs_without_a_board_are_found(self, store: Store) -> None:
        await commit(store, started(1, 2, 3, status="completed", owned=False, finished_at=T0))
        await commit(store, started(4))
        await commit(store, appended(*[row(no, seq) for no in (1, 2, 4) for seq in (2, 3)]))
        await commit(store, boards((2, "head", b"h")))
        assert await store.runs_without_board(10, 3) == [4, 1]
        assert await store.runs_without_board(2, 3) == [4]

    async def test_a_run_that_finished_after_its_board_was_stored_while_it_was_open_has_none(
        self, store: Store
    ) -> None:
        await commit(store, started(1, status="completed", owned=False, finished_at=T0))
        await commit(store, started(2))
        await commit(store, appended(*[row(no, seq) for no in (1, 2) for seq in (2, 3)]))
        await commit(store, boards((1, "open head", b"h"), (2, "open head", b"h")))
        assert await store.runs_without_board(10, 3) == [1]
