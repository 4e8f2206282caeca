"""The board of a long run that has finished, stored beside its journal so that reading it folds nothing.

    head        the last row, the steps of the definition that have completed
    columns     path and status of every step, which is all that choosing a page takes
    steps N     the entries, PIECE_STEPS to a part; a part is decoded when one of its steps is shown
    output P    the gathered output of the step P, or of the run

A finished run never changes, so nothing here is ever out of date. A part that this release cannot read counts as absent: the
journal has everything.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec

from holdfast.store.base import Store
from holdfast.values import RunNo, definition_path, scope_of, split
from holdfast.views.board import Entry, FoldedBoard

LONG_ROWS: Final = 1_000  # rows of a journal from which on its board is stored: folding them takes some 40 ms
PIECE_STEPS: Final = 500  # decoded in about 2 ms
OUTPUT_BYTES_MAX: Final = 8 * 1024 * 1024  # larger outputs are gathered again for each reader
FORMAT: Final = 1  # of what is stored; parts of another format are not read
LEVEL: Final = 3  # of compression: a tenth of the size, at 100 MB/s

HEAD: Final = "head"
COLUMNS: Final = "columns"


class BoardHead(msgspec.Struct, frozen=True):
    seq: int
    completed: list[str]  # paths of the definition
    pieces: int
    format: int = FORMAT


class Columns(msgspec.Struct, frozen=True):
    """Of each step in the order of reaching: its number, its path, and a letter for its status, whose word is in `words`."""

    orders: list[int]
    paths: list[str]
    statuses: str
    words: dict[str, str]


_HEAD: Final = msgspec.json.Decoder(BoardHead)
_COLUMNS: Final = msgspec.json.Decoder(Columns)
_ENTRIES: Final = msgspec.json.Decoder(list[Entry])


class StoredBoard:
    """A board as it was stored. Reads like a folded one."""

    def __init__(self, seq: int, columns: Columns, pieces: Sequence[bytes]) -> None:
        self.seq, self._columns, self._pieces = seq, columns, pieces
        self._decoded: dict[int, list[Entry]] = {}

    def __len__(self) -> int:
        return len(self._columns.paths)

    def entry(self, path: str) -> Entry | None:
        n = self._numbers.get(path)
        return None if n is None else self._entry(n)

    def chosen(self, after: int, limit: int, wanted: Callable[[str, str], bool]) -> list[Entry]:
        paths, statuses, words = self._columns.paths, self._columns.statuses, self._columns.words
        found: list[Entry] = []
        for n in range(bisect_right(self._columns.orders, after), len(paths)):
            if wanted(paths[n], words[statuses[n]]):
                found.append(self._entry(n))
                if len(found) == limit:
                    break
        return found

    def inside(self, frame: str) -> Sequence[Entry]:
        return [self._entry(n) for n in self._inside.get(frame, ())]

    def frames(self, scope: str) -> Sequence[str]:
        return self._frames.get(scope, ())

    def _entry(self, n: int) -> Entry:
        piece, place = divmod(n, PIECE_STEPS)
        known = self._decoded.get(piece)
        if known is None:
            known = self._decoded[piece] = _ENTRIES.decode(zlib.decompress(self._pieces[piece]))
        return known[place]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {path: n for n, path in enumerate(self._columns.paths)}

    @cached_property
    def _inside(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for n, path in enumerate(self._columns.paths):
            frame = split(path)[0] if '"' in path else path.rpartition(".")[0]  # ten thousand of them
            found.setdefault(frame, []).append(n)
        return found

    @cached_property
    def _frames(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for frame in self._inside:
            found.setdefault(scope_of(frame)[0], []).append(frame)
        return found


# ------------------------------------------------------------------------------------------------------- storing


def parts_of(board: FoldedBoard) -> Iterator[tuple[str, bytes]]:
    """The parts of a board, except outputs; the last one is the head, without which the others are not read."""
    entries = board.entries
    starts = range(0, len(entries), PIECE_STEPS)
    for n, start in enumerate(starts):
        yield piece_name(n), packed(entries[start : start + PIECE_STEPS])
    words = {word: chr(ord("a") + n) for n, word in enumerate(sorted({one.step.status for one in entries}))}
    yield (
        COLUMNS,
        packed(
            Columns(
                [one.step.order for one in entries],
                [one.step.path for one in entries],
                "".join(words[one.step.status] for one in entries),
                {letter: word for word, letter in words.items()},
            )
        ),
    )
    yield HEAD, packed(BoardHead(board.seq, sorted(completed_in(entries)), len(starts)))


def completed_in(entries: Iterable[Entry]) -> set[str]:
    """The steps of the definition that have a completed instance."""
    return {
        definition_path(one.step.path)
        for one in entries
        if one.step.status in ("completed", "skipped") and not one.step.undoes
    }


def piece_name(n: int) -> str:
    return f"steps {n}"


def output_name(path: str) -> str:
    """The part that has the output of a step, or of the run if the path is empty."""
    return f"output {path}"


def output_part(output: tuple[str, bytes]) -> tuple[str, bytes]:
    """The part for an output: its name, and the text."""
    name, text = output
    return name, zlib.compress(text, LEVEL)


def packed(value: object) -> bytes:
    return zlib.compress(msgspec.json.encode(value), LEVEL)


# ------------------------------------------------------------------------------------------------------- reading


async def stored_head(store: Store, no: RunNo) -> BoardHead | None:
    body = (await store.board_parts(no, [HEAD])).get(HEAD)
    if body is None:
        return None
    try:
        head = _HEAD.decode(zlib.decompress(body))
    except (msgspec.MsgspecError, zlib.error):
        return None
    return head if head.format == FORMAT else None


async def stored_board(store: Store, no: RunNo) -> StoredBoard | None:
    """Read the board of a run, if there is one."""
    head = await stored_head(store, no)
    if head is None:
        return None
    names = [piece_name(n) for n in range(head.pieces)]
    found = await store.board_parts(no, [COLUMNS, *names])
    if len(found) <= head.pieces:
        return None  # the run is being deleted
    columns = _COLUMNS.decode(zlib.decompress(found[COLUMNS]))
    return StoredBoard(head.seq, columns, [found[name] for name in names])


async def stored_output(store: Store, no: RunNo, path: str) -> bytes | None:
    return await output_named(store, no, output_name(path))


async def output_named(store: Store, no: RunNo, *names: str) -> bytes | None:
    """The first of these outputs that is stored."""
    found = await store.board_parts(no, names)
    return next((zlib.decompress(found[name]) for name in names if found.get(name)), None)
