"""Batches for tests of stores, and short ways to read what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.feed import BEGINNING, Committed
from holdfast.store.ownership import NewMail
from holdfast.store.records import (
    CallbackDeliveryTried,
    EarlyResult,
    JournalRow,
    KeyEnd,
    KeyName,
    NewCallbackDelivery,
    NewLogLine,
    NewRun,
    Publication,
    ReadRow,
    Release,
    RunChange,
    RunRow,
    Verdict,
    Version,
    WaitClosed,
    WaitOpened,
    Wanted,
    WorkerRow,
    Workflow,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunId, RunNo, Status

Open = Callable[[], Awaitable[Store]]

T0 = 1_700_000_000_000  # any time will do


def run_id(no: int) -> RunId:
    return RunId(f"00000000-0000-7000-8000-{no:012d}")


def row(no: int, seq: int, *, epoch: int = 0, body: str = "[1]", kind: str = "step_succeeded") -> JournalRow:
    return (no, seq, epoch, T0 + seq, kind, body)


def read_back(rows: Iterable[JournalRow], no: int) -> list[ReadRow]:
    return sorted(each[1:] for each in rows if each[0] == no)


def new_run(
    no: int,
    *,
    on_restart: str | None = None,
    labels: str | None = None,
    tenant: str = DEFAULT_TENANT,
    workflow: str = "n",
    number: int | None = None,
) -> NewRun:
    made = NewRun(RunNo(no), tenant, run_id(no), "v1", on_restart, labels, Millis(T0))
    made.workflow, made.number = workflow, number
    return made


def change(
    status: Status = "running",
    *,
    owned: bool = True,
    epoch: int = 0,
    wake_at: int | None = None,
    needs: str | None = None,
    finished_at: int | None = None,
) -> RunChange:
    at = None if wake_at is None else Millis(wake_at)
    return RunChange(status, owned, epoch, at, needs, None if finished_at is None else Millis(finished_at))


def logged(
    no: int, text: str, *, path: str = "s", attempt: int = 1, level: str = "info", most: int = 100
) -> NewLogLine:
    return NewLogLine(RunNo(no), path, attempt, Millis(T0), level, text, most, "dropped")


def started(*numbers: int, rows: int = 1, on_restart: str | None = None, **changed: Any) -> Batch:
    """A batch that begins some runs, each with its first rows."""
    batch = Batch()
    for no in numbers:
        batch.new_runs[RunNo(no)] = new_run(no, on_restart=on_restart)
        batch.changes[RunNo(no)] = change(**changed)
        batch.rows += [row(no, seq) for seq in range(1, rows + 1)]
    return batch


def appended(*rows: JournalRow) -> Batch:
    batch = Batch()
    batch.rows.extend(rows)
    return batch


def changed(no: int, to: RunChange) -> Batch:
    batch = Batch()
    batch.changes[RunNo(no)] = to
    return batch


def outcome_of(store: Store, batch: Batch) -> asyncio.Future[BaseException | None]:
    """Submit, and give what `done` will be told."""
    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    store.submit(batch, told.set_result)
    return told


async def commit(store: Store, batch: Batch) -> None:
    error = await outcome_of(store, batch)
    if error is not None:
        raise error


def waiting(no: int, attempt: int = 1) -> Batch:
    """A batch that begins a run with a call that is answered later."""
    batch = started(no)
    batch.opened_waits.append(
        WaitOpened(DEFAULT_TENANT, "callback", "T1", RunNo(no), "a", attempt, Millis(T0), None, "null")
    )
    return batch


def answered(no: int, outcome: str, at: int) -> Batch:
    batch = Batch()
    batch.closed_waits.append(WaitClosed(Millis(at), outcome, RunNo(no), "a", 1, "callback"))
    return batch


def early(task_id: str, body: str, meant: str = "") -> Batch:
    batch = Batch()
    batch.early_results.append(EarlyResult(DEFAULT_TENANT, task_id, meant, body.encode(), Millis(T0 + 1000)))
    return batch


def delivery(no: int, n: int = 0, *, url: str = "http://a/1", at: int = T0) -> NewCallbackDelivery:
    origin = url.removeprefix("http://").partition("/")[0]
    return NewCallbackDelivery(DEFAULT_TENANT, f"msg_{no}_{n}", RunNo(no), n, url, origin, None, Millis(at))


def ended(no: int, *deliveries: NewCallbackDelivery) -> Batch:
    """A batch that begins and ends a run, with what is to be told of its end."""
    batch = started(no, status="completed", owned=False, finished_at=T0)
    batch.callback_deliveries += deliveries
    return batch


async def due(store: Store, now: int = T0) -> list[str]:
    return [found.id for found in await store.callback_deliveries_due(Millis(now), (), None, 100)]


async def tried(store: Store, delivery_id: str, result: CallbackDeliveryTried) -> None:
    found = await store.callback_delivery(DEFAULT_TENANT, delivery_id)
    assert found is not None
    batch = Batch()
    batch.tried.append(result._replace(pos=found.pos))
    await commit(store, batch)


def asks(no: int, path: str = "s", *, key: str = "k", scope: str = "", at: int = T0) -> tuple[KeyName, None]:
    return KeyName(DEFAULT_TENANT, scope, key, RunNo(no), path, Millis(at)), None


def lets_go(
    no: int,
    path: str = "s",
    output: bytes | None = None,
    *,
    key: str = "k",
    scope: str = "",
    at: int = T0,
    expires_at: int | None = None,
) -> tuple[KeyName, KeyEnd]:
    until = None if expires_at is None else Millis(expires_at)
    return KeyName(DEFAULT_TENANT, scope, key, RunNo(no), path, Millis(at)), KeyEnd(output, until)


async def settled(store: Store, *keys: tuple[KeyName, KeyEnd | None]) -> list[Verdict]:
    """What becomes of keys in one commit."""
    batch = Batch()
    batch.keys.extend(keys)
    await commit(store, batch)
    return batch.verdicts


async def holder_of(store: Store, key: str = "k", scope: str = "") -> tuple[RunId, str] | None:
    return await store.key_holder(DEFAULT_TENANT, scope, key)


def publication(
    version: str,
    number: int,
    *,
    tenant: str = DEFAULT_TENANT,
    status: Literal["draft", "published"] = "published",
    is_current: bool = True,
) -> Batch:
    """A batch that stores a content as a release of the workflow `n`."""
    batch = Batch()
    flow = Workflow("flow-n", "n", "", Millis(T0))
    release = Release(f"ver-{number}", flow.id, "n", number, version, status, Millis(T0 + number))
    batch.workflows.append((tenant, flow))
    batch.versions.append(Version(tenant, version, "n", f"definition {version}", Millis(T0)))
    batch.published.append(Publication(tenant, release, is_current, Millis(T0 + number)))
    return batch


async def listed(store: Store, wanted: Wanted, tenant: str = DEFAULT_TENANT, limit: int = 10) -> list[int]:
    """The numbers of all runs of a list, read page by page."""
    numbers: list[int] = []
    before: RunNo | None = None
    while True:
        page = await store.list_runs(tenant, before, limit, wanted)
        numbers += [found.no for found in page.rows]
        before = page.below
        if before is None:
            return numbers


def worker(
    name: str,
    place: int,
    *,
    tenant: str = DEFAULT_TENANT,
    status: Literal["online", "offline"] = "online",
    heard_at: int = T0,
) -> WorkerRow:
    return WorkerRow(tenant, name, "http", "http://h", '["s"]', status, place, "", Millis(heard_at))


def mail(no: int, dedup: str, *, body: str = "[1]", at: int = T0) -> NewMail:
    return NewMail(RunNo(no), dedup, Millis(at), body)


def posted(*mails: NewMail) -> Batch:
    batch = Batch()
    batch.posted_mail.extend(mails)
    return batch


async def stretches_of(store: Store, limit: int, tenant: str = DEFAULT_TENANT) -> list[list[Committed]]:
    """The journal of all runs of a tenant, read so many rows at a time."""
    stretches: list[list[Committed]] = []
    at, end = store.cursor(BEGINNING), await store.feed_end()
    while at < end:
        rows, at = await store.feed(tenant, at, limit)
        stretches.append(rows)
    return stretches


async def feed_of(store: Store, tenant: str = DEFAULT_TENANT) -> list[Committed]:
    return [row for stretch in await stretches_of(store, 100, tenant) for row in stretch]


async def left_runs(store: Store, limit: int = 10) -> list[int]:
    """Runs that the store lets this node claim because their owner is gone."""
    return [claim.no for claim in await store.claim("left", Millis(T0), limit)]


async def due_runs(store: Store, now: int, limit: int = 10) -> list[int]:
    return [claim.no for claim in await store.claim("due", Millis(now), limit)]


async def isolated_on_claim(store: Store) -> set[str]:
    """The attempts under crash isolation that claims of left runs name."""
    return {claim.isolated for claim in await store.claim("left", Millis(T0), 10)}


async def journal_of(store: Store, no: int) -> list[ReadRow]:
    return await store.journal(RunNo(no), 0, 100_000)


async def rows_of(store: Store, *numbers: int) -> dict[int, list[int]]:
    """The sequence numbers that each run has."""
    return {no: [seq for seq, *_ in await journal_of(store, no)] for no in numbers}


async def row_of(store: Store, no: int) -> RunRow:
    found = await store.run_by_no(RunNo(no))
    assert found is not None
    return found
