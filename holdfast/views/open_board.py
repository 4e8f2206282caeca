"""The board of a long run that is still open, stored as it was at one of its rows. A reader goes on from there.

    open head        the row, what taking further rows needs, the steps of the definition that have completed
    open steps N     the entries, PIECE_STEPS to a part
    open output N P  the gathered output of the step P, which was reached as the Nth

All parts are replaced together, and each says of which row it is. When the run has finished they are emptied: its stored board has
everything.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from holdfast.runtime.load import GiveWay
from holdfast.store.base import Store
from holdfast.values import Millis, RunNo
from holdfast.views.board import Entry, FoldedBoard
from holdfast.views.steps import StepsState, StepView
from holdfast.views.stored_board import FORMAT, PIECE_STEPS, completed_in, packed

HEAD: Final = "open head"


class OpenHead(msgspec.Struct, frozen=True):
    seq: int
    at: Millis
    steps: StepsState
    completed: list[str]  # paths of the definition
    pieces: int
    outputs: list[str]  # names of parts
    format: int = FORMAT


class Piece(msgspec.Struct, frozen=True):
    seq: int
    entries: list[Entry]


_HEAD: Final = msgspec.json.Decoder(OpenHead)
_PIECE: Final = msgspec.json.Decoder(Piece)


def open_parts_of(board: FoldedBoard, outputs: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    """The parts of a board that goes on, except `outputs`; the head is the last one."""
    starts = range(0, len(board.entries), PIECE_STEPS)
    for n, start in enumerate(starts):
        yield _piece_name(n), packed(Piece(board.seq, board.entries[start : start + PIECE_STEPS]))
    completed = sorted(completed_in(board.entries))
    head = OpenHead(board.seq, board.at, board.steps_state, completed, len(starts), list(outputs))
    yield HEAD, packed(head)


async def open_head(store: Store, no: RunNo) -> OpenHead | None:
    body = (await store.board_parts(no, [HEAD])).get(HEAD)
    if not body:
        return None
    try:
        head = _HEAD.decode(zlib.decompress(body))
    except (msgspec.MsgspecError, zlib.error):
        return None
    return head if head.format == FORMAT else None


async def open_board(store: Store, no: RunNo, give_way: GiveWay) -> FoldedBoard | None:
    """Read the board of an open run as it was stored, if it was, to take the rows after it. Gives way between two pieces."""
    head = await open_head(store, no)
    if head is None:
        return None
    names = [_piece_name(n) for n in range(head.pieces)]
    found = await store.board_parts(no, names)
    entries: list[Entry] = []
    for name in names:
        try:
            piece = _PIECE.decode(zlib.decompress(found.get(name, b"")))
        except (msgspec.MsgspecError, zlib.error):
            return None
        if piece.seq != head.seq:
            return None  # it was stored again in the meantime
        entries += piece.entries
        await give_way()
    return FoldedBoard.going_on(head.seq, head.at, entries, head.steps)


async def emptied_parts(store: Store, no: RunNo) -> list[tuple[str, bytes]]:
    """What takes the place of the parts when the run has finished."""
    head = await open_head(store, no)
    if head is None:
        return []
    return [(name, b"") for name in (HEAD, *map(_piece_name, range(head.pieces)), *head.outputs)]


def open_output_name(step: StepView) -> str:
    """The part with the gathered output of a step. A graph can reach a step again, as another one in the order of reaching."""
    return f"open output {step.order} {step.path}"


def _piece_name(n: int) -> str:
    return f"open steps {n}"
