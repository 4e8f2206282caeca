"""A run over time: for each step when its attempts ran, when it waited, and of a large fan-out how many children began and ended when.

Reads a board and nothing else. The rows stand in reading order: a scope before what is inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.errors import NotFound
from holdfast.values import Millis, scope_of
from holdfast.views.board import Board, Entry, Fan, Span, Try

CHILDREN_SHOWN_MAX: Final = 50  # a larger fan-out is one row
ROWS_MAX: Final = 2_000
FAILED_ITEMS_MAX: Final = 100


class Strip(msgspec.Struct, frozen=True):
    """The children of a fan-out, counted in buckets of equal length. `failed_items` are the first that failed, by number."""

    start: Millis
    bucket_ms: int
    started: list[int]
    completed: list[int]
    failed: list[int]
    cancelled: list[int]
    failed_items: list[int]


class Row(msgspec.Struct, frozen=True):
    entry: Entry
    depth: int
    strip: Strip | None = None


class Timeline(msgspec.Struct, frozen=True):
    """`more` counts the rows that were left out; `start` and `end` are those of all."""

    start: Millis
    end: Millis
    rows: list[Row]
    more: int


def timeline_of(board: Board, under: str | None, buckets: int, now: Millis) -> Timeline:
    """Return the rows of a run, or of what is inside one of its steps or items. `now` is the end of what is open."""
    reached = list(_reading_order(board, _frames(board, under), 0))
    rows = [
        Row(entry, depth, _strip(entry, buckets, now) if _is_folded(entry) else None)
        for entry, depth in _most_telling(reached)
    ]
    start = min((entry.step.started for entry, _ in reached), default=now)
    end = max((entry.step.finished or now for entry, _ in reached), default=now)
    return Timeline(start, end, rows, len(reached) - len(rows))


def _most_telling(reached: list[tuple[Entry, int]]) -> list[tuple[Entry, int]]:
    """As many steps as are shown, in their order: those that failed or are open go before those that completed."""
    if len(reached) <= ROWS_MAX:
        return reached
    by_need = sorted(range(len(reached)), key=lambda n: reached[n][0].step.status == "completed")
    return [reached[n] for n in sorted(by_need[:ROWS_MAX])]


def _frames(board: Board, under: str | None) -> Sequence[str]:
    if under is None:
        return [""]
    if board.inside(under):
        return [under]  # an item, or the inside of a branch or a nested workflow
    if board.entry(under) is None:
        raise NotFound(f"the run has not reached a step {ascii(under)[1:-1]:.100}")
    return board.frames(under)[:CHILDREN_SHOWN_MAX]


def _reading_order(board: Board, frames: Iterable[str], depth: int) -> Iterator[tuple[Entry, int]]:
    stack = [(entry, depth) for entry in _of(board, frames)]
    while stack:
        entry, depth = stack.pop()
        yield entry, depth
        if not _is_folded(entry):
            stack += [(one, depth + 1) for one in _of(board, board.frames(entry.step.path))]


def _of(board: Board, frames: Iterable[str]) -> list[Entry]:
    """The steps of some frames by the number of the frame, last first."""
    ordered = sorted(frames, key=lambda frame: scope_of(frame)[1] or 0, reverse=True)
    return [entry for frame in ordered for entry in reversed(board.inside(frame))]


def _is_folded(entry: Entry) -> bool:
    return entry.step.children > CHILDREN_SHOWN_MAX


def _strip(entry: Entry, buckets: int, now: Millis) -> Strip:
    fan, start = entry.fan or Fan(), entry.step.started
    end = entry.step.finished or now
    width = max(1, -(-(end - start + 1) // buckets))

    def counted(times: Iterable[int]) -> list[int]:
        found = [0] * buckets
        for at, count in Counter(times).items():  # many of ten thousand children share a millisecond
            found[min(max((at - start) // width, 0), buckets - 1)] += count
        return found

    ended = len(fan.completed) + len(fan.failed)
    left = len(fan.starts) - ended if entry.step.is_over else 0
    return Strip(
        start,
        width,
        counted(fan.starts),
        counted(fan.completed),
        counted(at for at, _ in fan.failed),
        counted([end] * max(left, 0)),
        sorted(index for _, index in fan.failed)[:FAILED_ITEMS_MAX],
    )


def spans_of(entry: Entry) -> list[tuple[str, int, Millis, Millis | None, str]]:
    """The times of a step in their order: kind, number of the attempt, from, to, outcome."""
    found: list[tuple[str, int, Millis, Millis | None, str]] = []
    times: list[Try | Span] = sorted([*entry.tries, *entry.spans], key=lambda one: one.start)
    n = 0
    for one in times:
        if isinstance(one, Try):
            n = one.n
            found.append(("try", n, one.start, one.end, one.outcome))
        else:
            kind = "backoff" if one.kind == "backoff" else "wait"
            found.append((kind, n, one.start, one.end, one.kind))
    return found
