"""Boards of long runs that have finished: stored while the engine is idle, and read as if they had been folded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import tool
from holdfast.api.services import Services
from holdfast.runtime import compose
from holdfast.runtime.compose import Options, Registry
from holdfast.runtime.load import give_way
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.batch import Batch
from holdfast.store.records import RunRow
from holdfast.values import decode, encode
from holdfast.views.board import Board, FoldedBoard
from holdfast.views.boards import Boards, read_on
from holdfast.views.open_board import emptied_parts, open_board, open_head, open_parts_of
from holdfast.views.stored_board import StoredBoard, stored_board, stored_output
from holdfast.views.timeline import timeline_of

pytestmark = pytest.mark.anyio

LOOP = """
name: long
steps:
  - id: each
    kind: foreach
    items: $.inputs.of
    concurrency: 50
    on_any_fail: continue
    steps: [{id: do, tool: halve, args: {n: "{{item}}"}}, {id: big, tool: halve, args: {n: 2}}]
  - {id: last, tool: halve, args: {n: 4}}
"""
ITEMS = 600  # two rows each, or one if it fails
SHORT = "name: short\nsteps: [{id: a, tool: halve, args: {n: 2}}]"


@tool
async def halve(n: int) -> str:
    if n % 2:
        raise ValueError(f"{n} is odd")
    return "x" * 300 if n == 2 else str(n // 2)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Services]:
    """An engine as a program has it, with all that works by itself."""
    options = Options()
    engine = compose.embedded(
        f"sqlite:///{folder}/h.db",
        Registry([halve]),
        None,
        options,
        durability="relaxed",
        artefacts=None,
        artefact_roots=(),
    )
    await engine.open()
    try:
        yield Services(engine)
    finally:
        await engine.close()


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Services]:
    async with opened(tmp_path) as services:
        yield services


async def finished(hf: Services) -> RunRow:
    return await ended(hf, LOOP, {"of": [n if n % 10 == 1 else 2 * n for n in range(ITEMS)]})


async def ended(hf: Services, text: str, inputs: dict[str, Any]) -> RunRow:
    run, _ = await hf.commands.start("default", WorkflowSpec.from_yaml_str(text), inputs)
    await hf.queries.wait_for("default", run.id, 60)
    return await hf.queries.row("default", run.id)


async def when_stored(hf: Services, row: RunRow) -> StoredBoard:
    async with asyncio.timeout(60):
        while (board := await stored_board(hf.queries.store, row.no)) is None:
            await asyncio.sleep(0.01)
    return board


def everything(_path: str, _status: str) -> bool:
    return True


QUESTIONS: Sequence[Callable[[Board], Any]] = (
    lambda board: board.seq,
    len,
    lambda board: board.chosen(0, 10**6, everything),
    lambda board: board.chosen(700, 5, everything),
    lambda board: board.chosen(3, 20, lambda path, status: status == "failed"),
    lambda board: board.entry("each[7].big"),
    lambda board: board.entry("each[7]"),
    lambda board: board.inside("each[9]"),
    lambda board: list(board.frames("each")),
    lambda board: timeline_of(board, None, 50, board.chosen(0, 1, everything)[0].step.started),
    lambda board: timeline_of(board, "each[20]", 50, board.chosen(0, 1, everything)[0].step.started),
)


async def test_a_stored_board_answers_like_one_that_is_folded(hf: Services) -> None:
    row = await finished(hf)
    stored, folded = await when_stored(hf, row), FoldedBoard()
    await read_on(hf.queries.store, row.no, folded)
    assert [question(stored) for question in QUESTIONS] == [question(folded) for question in QUESTIONS]


async def test_a_look_at_a_long_run_after_a_restart_reads_what_was_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as hf:
        row = await finished(hf)
        await when_stored(hf, row)
        before = await hf.queries.run("default", row.id)
    async with opened(tmp_path) as hf:
        queries = hf.queries
        assert await queries.run("default", row.id) == before
        assert isinstance(await queries.run_steps.boards.of(row), StoredBoard)
        page = await queries.run_steps.page(row, limit=5)
        outputs = {one.step.path: decode(one.step.output) for one in page.items}
        assert outputs["each"] == decode(before.output_text)["each"]


async def test_a_run_that_ended_just_before_the_process_did_is_stored_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as hf:
        row = await finished(hf)
    async with opened(tmp_path) as hf:
        assert (await when_stored(hf, row)).seq == await hf.queries.store.last_seq(row.no)


async def test_the_output_of_a_run_is_stored_as_it_is_shown(hf: Services) -> None:
    row = await finished(hf)
    await when_stored(hf, row)
    stored = await stored_output(hf.queries.store, row.no, "")
    assert stored == bytes((await hf.queries.run("default", row.id)).output_text)


async def test_a_short_run_has_no_stored_board(hf: Services) -> None:
    short = await ended(hf, SHORT, {})
    await when_stored(hf, await finished(hf))
    assert await stored_board(hf.queries.store, short.no) is None


async def test_a_board_of_another_format_is_folded_again(hf: Services) -> None:
    row = await finished(hf)
    await when_stored(hf, row)
    batch = Batch()
    batch.boards.append((row.no, "head", b"of another release"))
    await hf.engine.committer.commit(batch)
    assert await stored_board(hf.queries.store, row.no) is None
    assert isinstance(await Boards(hf.queries.store).of(row), FoldedBoard)


# ------------------------------------------------------------------------------------------------------ open runs

OPEN = LOOP.replace(
    "  - {id: last, tool", "  - {id: go, kind: wait_event, signal_key: go}\n  - {id: last, tool"
)


async def waiting(hf: Services) -> RunRow:
    """A long run that waits for a signal after its loop."""
    inputs = {"of": [n if n % 10 == 1 else 2 * n for n in range(ITEMS)]}
    run, _ = await hf.commands.start("default", WorkflowSpec.from_yaml_str(OPEN), inputs)
    while (row := await hf.engine.store.run_by_no(run.no)) is None or row.status != "waiting":
        await asyncio.sleep(0.01)
    while await open_head(hf.engine.store, run.no) is None:
        await asyncio.sleep(0.01)
    return row


async def test_a_board_that_is_stored_at_any_row_goes_on_like_one_that_was_folded_in_one_go(
    hf: Services,
) -> None:
    row = await finished(hf)
    rows = await hf.engine.store.journal(row.no, 0, 10_000)
    folded = FoldedBoard()
    await read_on(hf.engine.store, row.no, folded)
    for cut in (1, 2, 7, 300, len(rows) - 2, len(rows)):
        board, batch = FoldedBoard(), Batch()
        for one in rows[:cut]:
            board.take(one)
        batch.boards += [(row.no, name, body) for name, body in open_parts_of(board)]
        await hf.engine.committer.commit(batch)
        stored = await open_board(hf.engine.store, row.no, give_way)
        assert stored is not None and stored.seq == rows[cut - 1][0]
        await read_on(hf.engine.store, row.no, stored)
        assert same(stored, folded)


async def test_parts_of_two_boards_are_not_put_together(hf: Services) -> None:
    row = await waiting(hf)
    board = FoldedBoard()
    for one in await hf.engine.store.journal(row.no, 0, 10):
        board.take(one)
    batch = Batch()
    batch.boards += [(row.no, name, body) for name, body in open_parts_of(board) if name != "open head"]
    await hf.engine.committer.commit(batch)
    assert await open_board(hf.engine.store, row.no, give_way) is None


async def test_the_board_of_an_open_run_is_as_if_it_had_been_folded(hf: Services) -> None:
    row = await waiting(hf)
    stored = await open_board(hf.engine.store, row.no, give_way)
    folded = FoldedBoard()
    await read_on(hf.engine.store, row.no, folded)
    assert stored is not None and same(stored, folded)


async def test_a_look_at_an_open_run_after_a_restart_folds_only_what_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as before:
        row = await waiting(before)
    async with opened(tmp_path) as hf:
        taken: list[int] = []
        take = FoldedBoard.take

        def noted(board: FoldedBoard, one: Any) -> None:
            taken.append(one[0])
            take(board, one)

        monkeypatch.setattr(FoldedBoard, "take", noted)
        now = await hf.engine.store.run_by_no(row.no)
        assert now is not None
        head = await open_head(hf.engine.store, row.no)
        part = await hf.queries.run_steps.page(now, every=True, after=0, limit=3)
        view = await hf.queries.run("default", row.id)
        assert head is not None and min(taken, default=head.seq + 1) > head.seq
        assert [one.step.path for one in part.items] == ["each", "each[0].do", "each[1].do"]
        assert view.progress["completed_steps"] == 3


async def test_a_run_that_finishes_leaves_nothing_of_the_board_that_it_had_while_it_was_open(
    hf: Services,
) -> None:
    row = await waiting(hf)
    names = [name for name, _ in await emptied_parts(hf.engine.store, row.no)]
    await hf.commands.signal("default", row.id, "go", 1)
    await hf.queries.wait_for("default", row.id, 30)
    await when_stored(hf, row)
    assert set((await hf.engine.store.board_parts(row.no, names)).values()) == {b""}
    assert await open_board(hf.engine.store, row.no, give_way) is None


def same(one: FoldedBoard, other: FoldedBoard) -> bool:
    assert encode(one.entries) == encode(other.entries)
    assert [one.frames("each"), one.inside("each[1]"), one.steps_state] == [
        other.frames("each"), other.inside("each[1]"), other.steps_state,
    ]  # fmt: skip
    return one.seq == other.seq
