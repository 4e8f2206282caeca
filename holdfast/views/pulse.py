"""How runs went over time: how many began and ended in each stretch of it, and how long they took. Writes nothing.

    newest runs of the window, RUNS_MAX at most ──► a bucket for each, by its beginning and by its end

Runs are read and not counted beforehand: a counter for each minute would cost every commit a row, for a picture that few ask for.
So a window with more runs is answered for its newest part, and says so.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from holdfast.store.base import Store
from holdfast.store.records import RunRow, Wanted
from holdfast.values import Millis, RunNo

RUNS_MAX: Final = 10_000  # read for one picture: about 50 ms
PORTION: Final = 500  # read before other work gets its turn


class Bucket(NamedTuple):
    at: Millis
    started: int
    ended: dict[str, int]
    took_ms: list[int]  # of the runs that ended, in order


class Pulse(NamedTuple):
    buckets: list[Bucket]
    is_whole: bool  # else only runs since `counted_from` are counted
    counted_from: Millis


async def pulse(
    store: Store, tenant: str, workflow: str | None, start: Millis, bucket_ms: int, buckets: int
) -> Pulse:
    """Counts the runs that were created in a window: each where it began, and where it ended if that is in the window too."""
    found = [Bucket(Millis(start + n * bucket_ms), 0, {}, []) for n in range(buckets)]
    rows, is_whole = await _rows(store, tenant, workflow, start, Millis(start + buckets * bucket_ms))
    for row in rows:
        began = (row.created_at - start) // bucket_ms
        if 0 <= began < buckets:
            found[began] = found[began]._replace(started=found[began].started + 1)
        if row.finished_at is None or not 0 <= (ended := (row.finished_at - start) // bucket_ms) < buckets:
            continue
        found[ended].ended[row.status] = found[ended].ended.get(row.status, 0) + 1
        found[ended].took_ms.append(row.finished_at - row.created_at)
    for bucket in found:
        bucket.took_ms.sort()
    return Pulse(found, is_whole, start if is_whole or not rows else rows[-1].created_at)


async def _rows(
    store: Store, tenant: str, workflow: str | None, start: Millis, end: Millis
) -> tuple[list[RunRow], bool]:
    """The newest runs of the window, and whether these are all."""
    wanted = Wanted(workflow=workflow, above=RunNo(await store.number_at(start) - 1))
    before: RunNo | None = await store.number_at(end)
    rows: list[RunRow] = []
    while len(rows) < RUNS_MAX:
        part = await store.list_runs(tenant, before, PORTION, wanted)
        rows += part.rows
        if part.below is None:
            return rows, True
        before = part.below
        await asyncio.sleep(0)
    return rows, False


def share(took_ms: list[int], part: float) -> int | None:
    """The time within which this part of the runs ended; None without any."""
    return took_ms[min(len(took_ms) - 1, int(len(took_ms) * part))] if took_ms else None
