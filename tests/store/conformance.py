"""What every store promises, as one suite: each store's own test module subclasses it and says how to open one.

Knows `holdfast.store.base` and nothing else: no dialect, no file, no thread. `store_factory` opens the same database
again each time it is called; what it opened is closed by whoever wrote the fixture.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pytest

from holdfast.errors import NodeIsOver
from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.feed import BEGINNING, Committed
from holdfast.store.records import (
    AssignmentRow,
    EarlyResult,
    JournalRow,
    KeyEnd,
    KeyName,
    LetterTried,
    NewLetter,
    NewLogLine,
    NewRun,
    OpenWait,
    Publication,
    ReadRow,
    Release,
    ReplyRow,
    Request,
    RunChange,
    RunRow,
    TakenEarly,
    Verdict,
    Version,
    WaitClosed,
    WaitOpened,
    Wanted,
    WorkerRow,
    Workflow,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunId, RunNo, Status
from tests.store.schedule_conformance import ScheduleConformance

Open = Callable[[], Store]

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
    batch.early_results.append(EarlyResult(DEFAULT_TENANT, task_id, meant, body, Millis(T0 + 1000)))
    return batch


def letter(no: int, n: int = 0, *, url: str = "http://a/1", at: int = T0) -> NewLetter:
    origin = url.removeprefix("http://").partition("/")[0]
    return NewLetter(DEFAULT_TENANT, f"msg_{no}_{n}", RunNo(no), n, url, origin, None, Millis(at))


def ended(no: int, *letters: NewLetter) -> Batch:
    """A batch that begins and ends a run, with what is to be told of its end."""
    batch = started(no, status="completed", owned=False, finished_at=T0)
    batch.letters += letters
    return batch


async def due(store: Store, now: int = T0) -> list[str]:
    return [found.id for found in await store.letters_due(Millis(now), (), None, 100)]


async def tried(store: Store, letter_id: str, result: LetterTried) -> None:
    found = await store.letter(DEFAULT_TENANT, letter_id)
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
    name: str, place: int, *, tenant: str = DEFAULT_TENANT, status: Literal["online", "offline"] = "online"
) -> WorkerRow:
    return WorkerRow(tenant, name, "http", "http://h", '["s"]', status, place, "", Millis(T0))


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


async def journal_of(store: Store, no: int) -> list[ReadRow]:
    return await store.journal(RunNo(no), 0, 100_000)


async def rows_of(store: Store, *numbers: int) -> dict[int, list[int]]:
    """The sequence numbers that each run has."""
    return {no: [seq for seq, *_ in await journal_of(store, no)] for no in numbers}


async def row_of(store: Store, no: int) -> RunRow:
    found = await store.run_by_no(RunNo(no))
    assert found is not None
    return found


@pytest.mark.anyio
class StoreConformance(ScheduleConformance):
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def store(self, store_factory: Open) -> Store:
        return store_factory()

    # -------------------------------------------------------------------------------- what users name

    async def test_a_request_is_found_with_the_run_that_it_made(self, store: Store) -> None:
        batch = started(1, 2)
        batch.requests.append(Request(DEFAULT_TENANT, "order-7", "digest", RunNo(2), Millis(T0)))
        await commit(store, batch)
        assert await store.request(DEFAULT_TENANT, "order-7") == ("digest", 2, run_id(2))
        assert await store.request(DEFAULT_TENANT, "order-8") is None
        assert await store.request("another", "order-7") is None

    async def test_a_second_run_under_one_request_id_is_not_written(self, store: Store) -> None:
        for no in (1, 2):
            batch = started(no)
            batch.requests.append(Request(DEFAULT_TENANT, "a", "digest", RunNo(no), Millis(T0)))
            outcome = await outcome_of(store, batch)
        assert outcome is not None
        assert (await store.run_by_no(RunNo(2)), await rows_of(store, 2)) == (None, {2: []})

    async def test_a_request_belongs_to_its_run_in_a_part_of_a_batch(self, store: Store) -> None:
        batch = started(1, 2)
        batch.requests += [
            Request(DEFAULT_TENANT, name, "digest", RunNo(no), Millis(T0))
            for no, name in ((1, "a"), (2, "b"))
        ]
        await commit(store, batch.without({RunNo(1)}))
        assert await store.request(DEFAULT_TENANT, "a") is None
        assert await store.request(DEFAULT_TENANT, "b") == ("digest", 2, run_id(2))

    async def test_a_name_means_the_version_that_was_published_last(self, store: Store) -> None:
        for number, version in ((1, "v1"), (2, "v2"), (2, "v2")):
            await commit(store, publication(version, number))
        assert await store.published(DEFAULT_TENANT, "n") == ("v2", "definition v2", 2)
        assert await store.published(DEFAULT_TENANT, "m") is None
        assert await store.workflow_names(DEFAULT_TENANT, 10) == ["n"]
        assert await store.workflow_names("another", 10) == []

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (Wanted(), [4, 3, 2, 1]),
            (Wanted(status="failed"), [2]),
            (Wanted(status=("failed", "running")), [4, 3, 2, 1]),
            (Wanted(status=("completed", "waiting")), []),
            (Wanted(workflow="n"), [4, 3, 2, 1]),
            (Wanted(workflow="m"), []),
            (Wanted(label=("team", None)), [4, 3]),
            (Wanted(label=("team", "x")), [3]),
            (Wanted(label=("team", "x"), status="failed"), []),
            (Wanted(label=("no", None)), []),
            (Wanted(workflow="n", number=7), []),
            (Wanted(workflow="n", status="running", label=("x", "team")), [4]),
        ],
    )
    async def test_a_list_has_the_runs_that_are_wanted(
        self, store: Store, wanted: Wanted, found: list[int]
    ) -> None:
        batch = started(1, 3, 4)
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "n", "definition", Millis(T0)))
        batch.new_runs[RunNo(3)].labels = '{"team":"x"}'
        batch.new_runs[RunNo(4)].labels = '{"team":"y","x":"team"}'
        await commit(store, batch)
        await commit(store, started(2, status="failed", owned=False, finished_at=T0))
        assert await listed(store, wanted) == found

    async def test_a_run_is_shown_with_its_workflow_and_the_job_above_it(self, store: Store) -> None:
        batch = started(1, 2)
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "n", "definition", Millis(T0)))
        batch.new_runs[RunNo(1)].parent_job_id = "job-1"
        await commit(store, batch)
        first, second = await row_of(store, 1), await row_of(store, 2)
        assert (first.workflow, first.parent_job_id, second.parent_job_id) == ("n", "job-1", None)

    # ------------------------------------------------------------------------------------- workflows and releases

    async def test_a_workflow_may_exist_before_anything_of_it_is_published(self, store: Store) -> None:
        batch = Batch()
        batch.workflows.append((DEFAULT_TENANT, Workflow("flow-1", "n", "what it does", Millis(T0))))
        await commit(store, batch)
        expected = Workflow("flow-1", "n", "what it does", Millis(T0))
        assert await store.workflow(DEFAULT_TENANT, "n") == expected
        assert await store.workflow_by_id(DEFAULT_TENANT, "flow-1") == expected
        assert await store.published(DEFAULT_TENANT, "n") is None

    async def test_a_workflow_that_is_there_stays_as_it_is(self, store: Store) -> None:
        for name_id in ("flow-1", "flow-2"):
            batch = Batch()
            batch.workflows.append((DEFAULT_TENANT, Workflow(name_id, "n", name_id, Millis(T0))))
            await commit(store, batch)
        found = await store.workflow(DEFAULT_TENANT, "n")
        assert found is not None
        assert (found.id, found.description) == ("flow-1", "flow-1")

    async def test_releases_are_listed_from_the_newest_back(self, store: Store) -> None:
        for number in (1, 2, 3):
            await commit(store, publication(f"v{number}", number))
        first = await store.releases(DEFAULT_TENANT, "n", 2**62, 2)
        rest = await store.releases(DEFAULT_TENANT, "n", first[-1].number, 2)
        assert [(each.number, each.version) for each in first + rest] == [(3, "v3"), (2, "v2"), (1, "v1")]
        assert await store.release_by_id(DEFAULT_TENANT, "ver-2") == first[1]

    async def test_a_release_keeps_its_content_for_ever(self, store: Store) -> None:
        await commit(store, publication("v1", 1))
        assert await outcome_of(store, publication("v2", 1)) is not None
        found = await store.release(DEFAULT_TENANT, "n", 1)
        assert found is not None
        assert found.version == "v1"

    async def test_a_draft_is_stored_and_not_what_the_name_means(self, store: Store) -> None:
        await commit(store, publication("v1", 1))
        await commit(store, publication("v2", 2, status="draft", is_current=False))
        assert await store.published(DEFAULT_TENANT, "n") == ("v1", "definition v1", 1)
        newest = await store.newest_published(DEFAULT_TENANT, "n")
        assert newest is not None
        assert newest.number == 1

    async def test_a_draft_becomes_published_and_never_a_draft_again(self, store: Store) -> None:
        for status in ("draft", "published", "draft"):
            await commit(store, publication("v1", 1, status=status, is_current=False))
        found = await store.release(DEFAULT_TENANT, "n", 1)
        assert found is not None
        assert found.status == "published"

    async def test_workflows_and_releases_are_their_tenants_own(self, store: Store) -> None:
        await commit(store, publication("v1", 1, tenant="a"))
        await commit(store, publication("v2", 1, tenant="b"))
        assert await store.published("a", "n") == ("v1", "definition v1", 1)
        assert await store.published("b", "n") == ("v2", "definition v2", 1)
        assert await store.workflows("c", "", 10) == []
        assert await store.release_by_id("c", "ver-1") is None

    async def test_workflows_are_paged_by_name(self, store: Store) -> None:
        batch = Batch()
        for name in ("c", "a", "b"):
            batch.workflows.append((DEFAULT_TENANT, Workflow(f"flow-{name}", name, "", Millis(T0))))
        await commit(store, batch)
        first = await store.workflows(DEFAULT_TENANT, "", 2)
        rest = await store.workflows(DEFAULT_TENANT, first[-1].name, 2)
        assert [each.name for each in first + rest] == ["a", "b", "c"]

    # ------------------------------------------------------------------------------------------- lists and counts

    async def test_a_run_knows_the_release_that_it_is_of(self, store: Store) -> None:
        batch = started(1, 2)
        batch.new_runs[RunNo(1)].number = 3
        await commit(store, batch)
        assert ((await row_of(store, 1)).number, (await row_of(store, 2)).number) == (3, None)
        assert await listed(store, Wanted(workflow="n", number=3)) == [1]

    async def test_a_tenants_list_has_none_of_anothers_runs(self, store: Store) -> None:
        batch = started(1, 2, 3)
        batch.new_runs[RunNo(2)] = new_run(2, tenant="other", labels='{"team":"x"}')
        batch.new_runs[RunNo(3)].labels = '{"team":"x"}'
        await commit(store, batch)
        assert await listed(store, Wanted()) == [3, 1]
        assert await listed(store, Wanted(), "other") == [2]
        assert await listed(store, Wanted(label=("team", "x"))) == [3]

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    async def test_pages_have_each_run_once_whatever_their_size(self, store: Store, limit: int) -> None:
        batch = started(*range(1, 30))
        for no in range(1, 30):
            new = batch.new_runs[RunNo(no)]
            new.workflow, new.number = f"w{no % 3}", no % 2 or None
            new.labels = '{"a":"b"}' if no % 5 == 0 else None
            batch.changes[RunNo(no)] = change("failed" if no % 4 == 0 else "running")
        await commit(store, batch)
        every = list(range(29, 0, -1))
        assert await listed(store, Wanted(), limit=limit) == every
        assert await listed(store, Wanted(status="failed"), limit=limit) == [n for n in every if n % 4 == 0]
        assert await listed(store, Wanted(workflow="w1"), limit=limit) == [n for n in every if n % 3 == 1]
        both = Wanted(label=("a", "b"), status="running")
        assert await listed(store, both, limit=limit) == [n for n in every if n % 5 == 0 and n % 4]

    async def test_counts_follow_every_change_of_status(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await commit(store, changed(2, change("completed", owned=False, finished_at=T0)))
        await commit(store, changed(3, change("waiting")))
        await commit(store, changed(3, change("waiting", epoch=1)))
        counts = [
            await store.count_runs(DEFAULT_TENANT, Wanted(status=status))
            for status in ("running", "completed", "waiting", "failed", ("running", "waiting"))
        ]
        assert counts == [1, 1, 1, 0, 2]
        assert await store.count_runs(DEFAULT_TENANT) == 3
        assert await store.count_runs("other") == 0

    async def test_a_batch_that_was_refused_counts_nothing(self, store: Store) -> None:
        await commit(store, started(1))
        batch = started(2)
        batch.new_runs[RunNo(2)].workflow = "new"
        batch.rows.append(row(1, 1))
        assert isinstance(await outcome_of(store, batch), Fenced)
        assert await store.count_runs(DEFAULT_TENANT) == 1
        await commit(store, batch.without({RunNo(1)}))
        assert await store.count_runs(DEFAULT_TENANT, Wanted(workflow="new")) == 1

    async def test_a_run_that_is_deleted_is_neither_counted_nor_listed(self, store: Store) -> None:
        batch = started(1, 2, status="completed", owned=False, finished_at=T0)
        batch.new_runs[RunNo(1)].labels = '{"team":"x"}'
        await commit(store, batch)
        gone = Batch()
        gone.forgotten.append(RunNo(1))
        await commit(store, gone)
        assert await store.count_runs(DEFAULT_TENANT) == 1
        assert await listed(store, Wanted()) == [2]
        assert await listed(store, Wanted(label=("team", None))) == []

    async def test_a_run_is_found_by_the_beginning_and_by_the_end_of_its_id(self, store: Store) -> None:
        await commit(store, started(1, 21))
        assert await store.ids_like(DEFAULT_TENANT, "000000000021", 10) == [run_id(21)]
        assert await store.ids_like(DEFAULT_TENANT, "00000000-0000-7", 10) == [run_id(21), run_id(1)]
        assert await store.ids_like("other", "000000000021", 10) == []

    async def test_the_ends_of_a_journal_come_with_the_row_of_their_run(self, store: Store) -> None:
        await commit(store, started(1, rows=9, status="completed", owned=False, finished_at=T0))
        ends = await store.ends(DEFAULT_TENANT, run_id(1))
        assert ends is not None
        assert (ends.row.status, ends.first[0][0], ends.last[0]) == ("completed", 1, 9)
        assert await store.ends("other", run_id(1)) is None

    async def test_the_id_of_a_start_is_found_by_its_run(self, store: Store) -> None:
        batch = started(1, 2)
        batch.requests.append(Request(DEFAULT_TENANT, "order-7", "digest", RunNo(1), Millis(T0)))
        await commit(store, batch)
        assert [await store.request_of(RunNo(no)) for no in (1, 2)] == ["order-7", None]

    # ------------------------------------------------------------------------------------------ the journal

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
        assert [stored.trace for stored in await store.load_many([RunNo(1), RunNo(2)])] == ["00-aa-bb-01", ""]
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

    # ------------------------------------------------------------------------------------------ the fence

    async def test_fenced_names_exactly_the_runs_that_another_appended_to(self, store: Store) -> None:
        await commit(store, appended(row(1, 1), row(2, 1), row(3, 1)))
        batch = appended(row(1, 2), row(2, 1), row(3, 2), row(4, 1), row(1, 3))
        await commit(store, appended(row(1, 2)))
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced)
        assert sorted(told.runs) == [1, 2]

    async def test_of_a_fenced_batch_nothing_is_left(self, store_factory: Open) -> None:
        store = store_factory()
        await commit(store, started(1, 2))
        batch = started(3, 4)
        batch.rows += [row(1, 1), row(2, 2)]
        batch.changes[RunNo(2)] = change("waiting", owned=False, wake_at=T0)
        batch.blobs.append((RunNo(3), "ab", b"text"))
        batch.snapshots.append((RunNo(2), 0, 1, b"state"))
        batch.versions.append(Version(DEFAULT_TENANT, "v9", "w", "{}", Millis(T0)))
        batch.isolated = "somebody"
        assert isinstance(await outcome_of(store, batch), Fenced)
        assert await rows_of(store, 1, 2, 3, 4) == {1: [1], 2: [1], 3: [], 4: []}
        assert await store.run_by_no(RunNo(3)) is None
        assert (await row_of(store, 2)).status == "running"
        assert await store.definition(DEFAULT_TENANT, "v9") is None
        loaded = await store.load(RunNo(2))
        assert loaded is not None and loaded.parts == []
        assert store_factory().isolated_of_former() is None

    async def test_the_rest_of_a_fenced_batch_is_taken_as_it_is(self, store: Store) -> None:
        await commit(store, started(1, 2))
        batch = started(3)
        batch.rows += [row(1, 1), row(2, 2)]
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced)
        await commit(store, batch.without(set(told.runs)))
        assert await rows_of(store, 1, 2, 3) == {1: [1], 2: [1, 2], 3: [1]}

    async def test_of_two_who_append_the_same_row_the_first_one_stands(self, store: Store) -> None:
        await commit(store, appended(row(1, 1, body='"first"')))
        assert isinstance(await outcome_of(store, appended(row(1, 1, body='"second"'))), Fenced)
        assert [body for *_, body in await journal_of(store, 1)] == ['"first"']

    async def test_a_large_fenced_batch_leaves_nothing_either(self, store: Store) -> None:
        await commit(store, appended(row(999, 1)))
        told = await outcome_of(store, appended(*[row(no, 1) for no in range(1, 1_001)]))
        assert isinstance(told, Fenced) and told.runs == (999,)
        assert await rows_of(store, 1, 500, 1_000) == {1: [], 500: [], 1_000: []}

    async def test_a_batch_refused_for_another_reason_is_not_called_fenced_and_leaves_nothing(
        self, store: Store
    ) -> None:
        await commit(store, started(1))
        twin = started(2, 3)
        twin.new_runs[RunNo(3)].id = run_id(1)  # an id names one run of its tenant
        told = await outcome_of(store, twin)
        assert told is not None and not isinstance(told, Fenced)
        assert await rows_of(store, 1, 2, 3) == {1: [1], 2: [], 3: []}
        assert await store.run_by_no(RunNo(2)) is None

    async def test_a_refused_batch_does_not_stand_in_the_way_of_the_next(self, store: Store) -> None:
        await commit(store, appended(row(1, 1)))
        assert await outcome_of(store, appended(row(1, 1))) is not None
        await commit(store, appended(row(1, 2)))
        assert await rows_of(store, 1) == {1: [1, 2]}

    # -------------------------------------------------------------------------------------- parts of a batch

    def full_batch(self) -> Batch:
        batch = started(1, 2, 3)
        for no in (1, 2, 3):
            batch.blobs.append((RunNo(no), "ab", b"text"))
            batch.snapshots.append((RunNo(no), 0, 1, b"state"))
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "w", "{}", Millis(T0)))
        batch.isolated, batch.is_probe = "somebody", True
        return batch

    def test_only_keeps_what_belongs_to_the_runs_and_what_belongs_to_none(self) -> None:
        whole = self.full_batch()
        part = whole.only({RunNo(2)})
        assert part.rows == [row(2, 1)]
        assert list(part.new_runs) == list(part.changes) == [2]
        assert part.blobs == [(2, "ab", b"text")] and part.snapshots == [(2, 0, 1, b"state")]
        assert (part.versions, part.isolated, part.is_probe) == (whole.versions, "somebody", True)

    def test_without_is_the_other_half_of_only(self) -> None:
        whole = self.full_batch()
        rest = whole.without({RunNo(2)})
        assert rest.rows == [row(1, 1), row(3, 1)]
        assert list(rest.new_runs) == list(rest.changes) == [1, 3]
        assert [blob[0] for blob in rest.blobs] == [snapshot[0] for snapshot in rest.snapshots] == [1, 3]
        assert len(whole.rows) == 3  # the whole is not changed by it

    def test_without_nobody_is_everything(self) -> None:
        assert self.full_batch().without(set()).rows == self.full_batch().rows

    # -------------------------------------------------------------------------------------------- run rows

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
        first = store_factory()
        given = [first.next_no() for _ in range(3)]
        assert len(set(given)) == 3
        await commit(first, started(*given))
        assert store_factory().next_no() > max(given)

    # ------------------------------------------------------------------------- blobs, snapshots, definitions

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

    # ------------------------------------------------------------------------------------- what to take up

    async def test_runs_left_behind_are_the_open_ones_that_a_former_process_owned(
        self, store_factory: Open
    ) -> None:
        former = store_factory()
        await commit(former, started(1, 2, 3, 4, 5))
        await commit(former, changed(2, change("completed", owned=False, finished_at=T0)))
        await commit(former, changed(3, change("waiting", owned=False, wake_at=T0)))
        now = store_factory()
        await commit(now, started(6))
        assert await now.left_behind(RunNo(0), 10) == [1, 4, 5]
        await commit(now, changed(4, change(epoch=1)))  # taken up: it is ours now
        assert await now.left_behind(RunNo(0), 10) == [1, 5]

    async def test_runs_left_behind_come_in_pages(self, store_factory: Open) -> None:
        await commit(store_factory(), started(*range(1, 8)))
        store, after, pages = store_factory(), RunNo(0), []
        while page := await store.left_behind(after, 3):
            pages.append(page)
            after = page[-1]
        assert pages == [[1, 2, 3], [4, 5, 6], [7]]

    async def test_left_behind_sees_through_any_number_of_restarts(self, store_factory: Open) -> None:
        await commit(store_factory(), started(1))
        store_factory()
        assert await store_factory().left_behind(RunNo(0), 10) == [1]

    async def test_due_are_released_open_runs_whose_time_has_come_the_longest_overdue_first(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2, status="waiting", owned=False, wake_at=T0 + 10))
        await commit(store, started(3, status="waiting", owned=False, wake_at=T0 + 5))
        await commit(store, started(4, status="waiting", owned=False, wake_at=T0 + 11))
        await commit(store, started(5, status="waiting", owned=False))
        await commit(store, started(6, status="running", wake_at=T0))
        await commit(store, started(7, status="completed", owned=False, wake_at=T0, finished_at=T0))
        due = await store.due(Millis(T0 + 10), 10)
        assert due[0] == 3 and sorted(due) == [1, 2, 3]
        assert await store.due(Millis(T0 + 10), 1) == [3]
        assert await store.due(Millis(T0 + 4), 10) == []

    async def test_next_wake_is_the_earliest_wake_time_of_a_released_run(self, store: Store) -> None:
        assert await store.next_wake() is None
        await commit(store, started(1, status="running", wake_at=T0))
        await commit(store, started(2, status="cancelled", owned=False, wake_at=T0, finished_at=T0))
        assert await store.next_wake() is None
        await commit(store, started(3, status="waiting", owned=False, wake_at=T0 + 7))
        await commit(store, started(4, status="waiting", owned=False, wake_at=T0 + 8))
        assert await store.next_wake() == T0 + 7
        assert await store.next_wake(Millis(T0 + 7)) == T0 + 8

    async def test_in_need_are_released_open_runs_that_miss_a_tool(self, store: Store) -> None:
        for no, to in {
            1: change("running", owned=False, needs='["a"]'),
            2: change("running", owned=True, needs='["a"]'),
            3: change("failed", owned=False, needs='["a"]', finished_at=T0),
            4: change("running", owned=False),
            5: change("running", owned=False, needs='["b"]'),
        }.items():
            await commit(store, started(no))
            await commit(store, changed(no, to))
        assert await store.in_need(RunNo(0), 10) == [(1, '["a"]'), (5, '["b"]')]
        assert await store.in_need(RunNo(1), 10) == [(5, '["b"]')]
        assert await store.in_need(RunNo(0), 1) == [(1, '["a"]')]

    async def test_a_run_that_is_in_need_from_its_first_batch_is_found(self, store: Store) -> None:
        await commit(store, started(1, owned=False, needs='["a"]'))
        assert await store.in_need(RunNo(0), 10) == [(1, '["a"]')]

    async def test_interruptible_are_the_open_runs_that_asked_for_it_owned_or_not(self, store: Store) -> None:
        await commit(store, started(1, on_restart="interrupt"))
        await commit(store, started(2))
        await commit(store, started(3, on_restart="interrupt", status="waiting", owned=False, wake_at=T0))
        await commit(
            store, started(4, on_restart="interrupt", status="interrupted", owned=False, finished_at=T0)
        )
        assert await store.interruptible(RunNo(0), 10) == [1, 3]
        assert await store.interruptible(RunNo(1), 10) == [3]
        assert await store.interruptible(RunNo(0), 1) == [1]

    # ------------------------------------------------------------------------------------ whose store it is

    def test_every_opening_raises_the_epoch(self, store_factory: Open) -> None:
        epochs = [store_factory().epoch for _ in range(4)]
        assert epochs == sorted(set(epochs))

    async def test_a_former_incarnation_can_write_nothing_more(self, store_factory: Open) -> None:
        former = store_factory()
        await commit(former, started(1))
        now = store_factory()
        for batch in (appended(row(1, 2)), started(2), changed(1, change("waiting", owned=False))):
            assert isinstance(await outcome_of(former, batch), NodeIsOver)
        assert await rows_of(now, 1, 2) == {1: [1], 2: []}
        assert (await row_of(now, 1)).status == "running"
        assert await now.run_by_no(RunNo(2)) is None

    async def test_a_former_incarnation_is_told_so_when_it_probes(self, store_factory: Open) -> None:
        former = store_factory()
        store_factory()
        probe = Batch()
        probe.is_probe = True
        assert isinstance(await outcome_of(former, probe), NodeIsOver)

    async def test_the_new_incarnation_goes_on_where_the_former_one_was(self, store_factory: Open) -> None:
        former = store_factory()
        await commit(former, started(1))
        now = store_factory()
        await commit(now, appended(row(1, 2, epoch=1)))
        assert isinstance(await outcome_of(former, appended(row(1, 2))), NodeIsOver)
        assert [(seq, epoch) for seq, epoch, *_ in await journal_of(now, 1)] == [(1, 0), (2, 1)]

    async def test_a_probe_changes_nothing(self, store: Store) -> None:
        await commit(store, started(1))
        before = await row_of(store, 1)
        probe = Batch()
        probe.is_probe = True
        await commit(store, probe)
        assert await row_of(store, 1) == before
        await commit(store, appended(row(1, 2)))

    # ---------------------------------------------------------------------------------------------- the lane

    async def test_the_next_process_is_told_who_was_in_the_lane(self, store_factory: Open) -> None:
        former = store_factory()
        batch = appended(row(1, 1))
        batch.isolated = "run-1 a.b"
        await commit(former, batch)
        assert store_factory().isolated_of_former() == "run-1 a.b"

    async def test_a_lane_that_was_left_is_empty(self, store_factory: Open) -> None:
        former = store_factory()
        for lane in ("run-1 a.b", ""):
            batch = Batch()
            batch.isolated = lane
            await commit(former, batch)
        assert store_factory().isolated_of_former() is None

    async def test_a_batch_that_says_nothing_of_the_lane_leaves_it_as_it_is(
        self, store_factory: Open
    ) -> None:
        former = store_factory()
        batch = Batch()
        batch.isolated = "run-1 a.b"
        await commit(former, batch)
        await commit(former, appended(row(1, 1)))
        assert store_factory().isolated_of_former() == "run-1 a.b"

    async def test_an_opening_empties_the_lane(self, store_factory: Open) -> None:
        batch = Batch()
        batch.isolated = "run-1 a.b"
        await commit(store_factory(), batch)
        store_factory()
        assert store_factory().isolated_of_former() is None

    # ------------------------------------------------------------------------------- durable, in order, told

    async def test_what_was_told_done_is_there_for_the_next_process(self, store_factory: Open) -> None:
        first = store_factory()
        batch = started(1, rows=3)
        batch.blobs.append((RunNo(1), "ab", b"text"))
        batch.snapshots.append((RunNo(1), 0, 2, b"state"))
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "w", "{}", Millis(T0)))
        await commit(first, batch)
        await first.close()
        second = store_factory()
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

    # ------------------------------------------------------------------------------------ idempotency keys

    async def test_the_first_to_ask_is_granted_a_key_and_the_next_waits(self, store: Store) -> None:
        await commit(store, started(1, 2))
        assert await settled(store, asks(1)) == [(1, "s", "granted", None)]
        assert await settled(store, asks(2)) == [(2, "s", "held", None)]
        assert await holder_of(store) == (run_id(1), "s")

    async def test_many_who_ask_in_one_commit_are_served_in_their_order(self, store: Store) -> None:
        await commit(store, started(*range(1, 6)))
        verdicts = await settled(store, *(asks(no) for no in (3, 1, 5, 2, 4)))
        assert verdicts == [(3, "s", "granted", None), *((no, "s", "held", None) for no in (1, 5, 2, 4))]

    async def test_two_steps_of_one_run_are_two_owners(self, store: Store) -> None:
        await commit(store, started(1))
        assert await settled(store, asks(1, "a"), asks(1, "b")) == [
            (1, "a", "granted", None),
            (1, "b", "held", None),
        ]

    async def test_the_owner_of_a_key_may_ask_for_it_again(self, store_factory: Open) -> None:
        store = store_factory()
        await commit(store, started(1))
        await settled(store, asks(1))
        assert await settled(store_factory(), asks(1)) == [(1, "s", "granted", None)]

    async def test_one_who_waits_and_asks_again_keeps_its_place(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), asks(2), asks(3))
        assert await settled(store, asks(2)) == [(2, "s", "held", None)]
        assert await settled(store, lets_go(1)) == [(2, "s", "granted", None)]

    async def test_scopes_and_texts_and_tenants_make_different_keys(self, store: Store) -> None:
        await commit(store, started(1, 2, 3, 4))
        others = KeyName("another", "", "k", RunNo(4), "s", Millis(T0))
        verdicts = await settled(store, asks(1), asks(2, scope=run_id(2)), asks(3, key="l"), (others, None))
        assert [verdict[2] for verdict in verdicts] == ["granted"] * 4

    async def test_a_key_let_go_without_an_output_passes_to_the_one_who_waited_longest(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), asks(3), asks(2))
        assert await settled(store, lets_go(1)) == [(3, "s", "granted", None)]
        assert await holder_of(store) == (run_id(3), "s")
        assert await settled(store, lets_go(3)) == [(2, "s", "granted", None)]

    async def test_a_key_let_go_with_nobody_waiting_is_free(self, store: Store) -> None:
        await commit(store, started(1, 2))
        assert await settled(store, asks(1), lets_go(1)) == [(1, "s", "granted", None)]
        assert await holder_of(store) is None
        assert await settled(store, asks(2)) == [(2, "s", "granted", None)]

    async def test_an_output_answers_all_who_wait_and_all_who_come_later(self, store: Store) -> None:
        await commit(store, started(1, 2, 3, 4))
        await settled(store, asks(1), asks(2), asks(3))
        assert await settled(store, lets_go(1, output=b"7")) == [
            (2, "s", "answered", b"7"),
            (3, "s", "answered", b"7"),
        ]
        assert await settled(store, asks(4)) == [(4, "s", "answered", b"7")]

    async def test_an_output_of_null_is_an_answer(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1), lets_go(1, output=b"null"))
        assert await settled(store, asks(2)) == [(2, "s", "answered", b"null")]

    async def test_an_answer_serves_until_it_expires(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), lets_go(1, output=b"7", expires_at=T0 + 100))
        assert await settled(store, asks(2, at=T0 + 99)) == [(2, "s", "answered", b"7")]
        assert await settled(store, asks(3, at=T0 + 100)) == [(3, "s", "granted", None)]
        assert await holder_of(store) == (run_id(3), "s")

    async def test_a_key_taken_after_an_expired_answer_is_held_like_any(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), lets_go(1, output=b"7", expires_at=T0 + 1))
        later = T0 + 10_000
        await settled(store, asks(2, at=later))
        assert await settled(store, asks(3, at=later + 10_000)) == [(3, "s", "held", None)]

    async def test_one_who_only_waited_leaves_the_line_and_nothing_else(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), asks(2), asks(3))
        assert await settled(store, lets_go(2)) == []
        assert await holder_of(store) == (run_id(1), "s")
        assert await settled(store, lets_go(1)) == [(3, "s", "granted", None)]

    async def test_one_who_was_answered_and_lets_go_leaves_the_answer(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), lets_go(1, output=b"7"), asks(2), lets_go(2))
        assert await settled(store, asks(3)) == [(3, "s", "answered", b"7")]

    async def test_letting_go_of_a_key_that_nobody_has_is_nothing(self, store: Store) -> None:
        await commit(store, started(1))
        assert await settled(store, lets_go(1), lets_go(1, output=b"7")) == []
        assert await holder_of(store) is None

    async def test_asking_waiting_and_passing_on_may_happen_in_one_commit(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        assert await settled(store, asks(1), asks(2), lets_go(1), asks(3), lets_go(2, output=b"7")) == [
            (1, "s", "granted", None),
            (2, "s", "held", None),
            (2, "s", "granted", None),
            (3, "s", "held", None),
            (3, "s", "answered", b"7"),
        ]

    @pytest.mark.parametrize("output", [None, b"7"])
    async def test_a_parked_run_is_made_due_when_its_turn_comes(
        self, store: Store, output: bytes | None
    ) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1), asks(2))
        await commit(store, changed(2, change("waiting", owned=False)))
        assert await store.due(Millis(T0 + 10**9), 10) == []
        await settled(store, lets_go(1, output=output, at=T0 + 50))
        assert await store.due(Millis(T0 + 50), 10) == [2]

    async def test_a_run_parked_in_the_very_commit_in_which_its_turn_comes_is_made_due(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1), asks(2))
        batch = changed(2, change("waiting", owned=False))
        batch.keys.append(lets_go(1, at=T0 + 50))
        await commit(store, batch)
        assert await store.due(Millis(T0 + 50), 10) == [2]

    async def test_a_run_that_somebody_drives_is_not_made_due(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1), asks(2), lets_go(1))
        assert (await row_of(store, 2)).wake_at is None

    async def test_keys_of_a_batch_that_is_refused_are_as_they_were(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1))
        batch = appended(row(1, 1))  # it is there already
        batch.keys += [lets_go(1), asks(2)]
        assert isinstance(await outcome_of(store, batch), Fenced)
        assert await holder_of(store) == (run_id(1), "s")

    async def test_a_batch_that_is_sent_again_tells_its_verdicts_once(self, store: Store) -> None:
        await commit(store, started(1))
        batch = Batch()
        batch.keys.append(asks(1))
        await commit(store, batch)
        await commit(store, batch)
        assert batch.verdicts == [(1, "s", "granted", None)]

    def test_keys_and_artefacts_go_with_their_runs_in_a_part_of_a_batch(self) -> None:
        batch = started(1, 2)
        batch.keys += [asks(1), asks(2), lets_go(1)]
        batch.artefacts += [(RunNo(1), "a" * 64, 3, Millis(T0)), (RunNo(2), "b" * 64, 4, Millis(T0))]
        for part in (batch.only({RunNo(1)}), batch.without({RunNo(2)})):
            assert part.keys == [asks(1), lets_go(1)]
            assert [no for no, *_ in part.artefacts] == [1]
            assert part.has_rest

    def test_without_some_runs_the_artefacts_of_others_stay_though_they_have_no_rows(self) -> None:
        batch = started(1)
        batch.artefacts.append((RunNo(2), "b" * 64, 4, Millis(T0)))
        assert batch.without({RunNo(1)}).artefacts == batch.artefacts

    async def test_log_lines_are_numbered_by_run_in_the_order_of_their_commits(self, store: Store) -> None:
        await commit(store, started(1, 2))
        for run, text in ((1, "a"), (2, "b"), (1, "c")):
            batch = Batch()
            batch.logs.append(logged(run, text))
            await commit(store, batch)
        assert [(line.n, line.text) for line in await store.log_lines(RunNo(1), 0, 10)] == [
            (1, "a"),
            (2, "c"),
        ]
        assert [line.text for line in await store.log_lines(RunNo(1), 1, 10)] == ["c"]
        assert [line.text for line in await store.log_lines(RunNo(2), 0, 10)] == ["b"]

    async def test_a_run_keeps_so_many_log_lines_and_a_mark_as_the_last(self, store: Store) -> None:
        batch = started(1)
        batch.logs += [logged(1, text, most=3) for text in "abcde"]
        await commit(store, batch)
        found = await store.log_lines(RunNo(1), 0, 10)
        assert [line.text for line in found] == ["a", "b", "dropped"]

    async def test_log_lines_are_found_by_step_attempt_and_level(self, store: Store) -> None:
        batch = started(1)
        paths = ("loop", "loop[0].s", "loop~2[1].s", "loop2", "loop.s")
        batch.logs += [logged(1, path, path=path, attempt=n) for n, path in enumerate(paths, 1)]
        batch.logs.append(logged(1, "trace", level="traceback"))
        await commit(store, batch)
        found = await store.log_lines(RunNo(1), 0, 10, path="loop")
        assert [line.text for line in found] == ["loop", "loop[0].s", "loop~2[1].s", "loop.s"]
        assert [line.text for line in await store.log_lines(RunNo(1), 0, 10, path="loop", attempt=2)] == [
            "loop[0].s"
        ]
        assert [line.text for line in await store.log_lines(RunNo(1), 0, 10, level="traceback")] == ["trace"]

    async def test_log_lines_are_forgotten_with_their_run(self, store: Store) -> None:
        batch = started(1)
        batch.logs.append(logged(1, "a"))
        await commit(store, batch)
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await store.log_lines(RunNo(1), 0, 10) == []

    async def test_forgetting_an_answer_lets_the_next_one_execute(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1), lets_go(1, output=b"7", expires_at=T0 + 5))
        assert await store.expired_keys(Millis(T0 + 4), 10) == []
        batch = Batch()
        batch.forgotten_keys = await store.expired_keys(Millis(T0 + 5), 10)
        await commit(store, batch)
        assert await settled(store, asks(2)) == [(2, "s", "granted", None)]

    async def test_an_answer_that_was_taken_anew_since_it_was_looked_at_is_not_forgotten(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), lets_go(1, output=b"7", expires_at=T0 + 5))
        batch = Batch()
        batch.forgotten_keys = await store.expired_keys(Millis(T0 + 9), 10)
        await settled(store, asks(2, at=T0 + 9))
        await commit(store, batch)
        assert await settled(store, asks(3, at=T0 + 9)) == [(3, "s", "held", None)]

    async def test_a_forgotten_run_takes_its_own_keys_along_and_leaves_those_for_all(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2, status="completed", owned=False, finished_at=T0))
        mine, ours = {"scope": run_id(1)}, {"key": "all"}
        await settled(store, asks(1, **mine), lets_go(1, output=b"1", **mine))  # type: ignore[arg-type]
        await settled(store, asks(1, **ours), lets_go(1, output=b"2", **ours))  # type: ignore[arg-type]
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await settled(store, asks(2, **mine)) == [(2, "s", "granted", None)]  # type: ignore[arg-type]
        assert await settled(store, asks(2, **ours)) == [(2, "s", "answered", b"2")]  # type: ignore[arg-type]

    async def test_a_forgotten_run_takes_no_keys_of_another_tenants_run_with_the_same_id(
        self, store: Store
    ) -> None:
        batch = started(1, 2, status="completed", owned=False, finished_at=T0)
        batch.new_runs[RunNo(2)].tenant, batch.new_runs[RunNo(2)].id = "another", run_id(1)
        await commit(store, batch)
        others = KeyName("another", run_id(1), "k", RunNo(2), "s", Millis(T0))
        await settled(store, (others, None), (others, KeyEnd(b"7")))
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await settled(store, (others, None)) == [(2, "s", "answered", b"7")]

    async def test_a_forgotten_run_is_not_in_line_any_more(self, store: Store) -> None:
        await commit(store, started(1, 2, 3))
        await settled(store, asks(1), asks(2), asks(3))
        batch = Batch()
        batch.forgotten.append(RunNo(2))
        await commit(store, batch)
        assert await settled(store, lets_go(1)) == [(3, "s", "granted", None)]

    # ------------------------------------------------------------------------- what runs refer to, and come from

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

    # -------------------------------------------------------------------------------------- workers and their jobs

    async def test_workers_come_back_in_the_order_of_their_registration(self, store_factory: Open) -> None:
        store, batch = store_factory(), Batch()
        batch.workers += [worker("b", 1), worker("a", 2), worker("a", 3, tenant="other")]
        await commit(store, batch)
        assert [(row.tenant, row.id) for row in await store_factory().workers()] == [
            (DEFAULT_TENANT, "b"),
            (DEFAULT_TENANT, "a"),
            ("other", "a"),
        ]

    async def test_a_worker_that_is_written_again_is_the_same_one(self, store: Store) -> None:
        batch = Batch()
        batch.workers += [worker("a", 1), worker("a", 1, status="offline")]
        await commit(store, batch)
        assert await store.workers() == [worker("a", 1, status="offline")]

    async def test_a_worker_is_forgotten_in_its_own_tenant_alone(self, store: Store) -> None:
        batch = Batch()
        batch.workers += [worker("a", 1), worker("a", 2, tenant="other")]
        await commit(store, batch)
        batch = Batch()
        batch.forgotten_workers.append((DEFAULT_TENANT, "a"))
        await commit(store, batch)
        assert [row.tenant for row in await store.workers()] == ["other"]

    async def test_an_assignment_is_there_with_its_last_token_until_it_ends(
        self, store_factory: Open
    ) -> None:
        store, batch = store_factory(), started(1)
        first = AssignmentRow(RunNo(1), "s", 1, "resize")
        leased = AssignmentRow(RunNo(1), "s", 1, "resize", "w", "token", 1, Millis(T0))
        batch.assignments += [first, leased, AssignmentRow(RunNo(1), "s", 2, "resize")]
        await commit(store, batch)
        assert (await store_factory().assignments())[0] == leased
        batch = Batch()
        batch.ended_assignments += [(RunNo(1), "s", 1), (RunNo(1), "never", 1)]
        await commit(store_factory(), batch)
        assert [row.attempt for row in await store_factory().assignments()] == [2]

    async def test_the_assignments_of_a_run_are_found_without_those_of_others(self, store: Store) -> None:
        batch = started(1, 2)
        batch.assignments += [AssignmentRow(RunNo(no), path, 1, "resize") for no in (1, 2) for path in "ab"]
        await commit(store, batch)
        found = await store.assignments_of_run(RunNo(2))
        assert [(row.no, row.path) for row in found] == [(2, "a"), (2, "b")]

    async def test_a_forgotten_run_takes_its_assignments_along(self, store: Store) -> None:
        batch = started(1, 2, status="completed", owned=False, finished_at=T0)
        batch.assignments += [AssignmentRow(RunNo(no), "s", 1, "resize") for no in (1, 2)]
        await commit(store, batch)
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert [row.no for row in await store.assignments()] == [2]

    # ------------------------------------------------------------------------------------------------- waits

    async def test_a_wait_is_found_by_its_task_id_in_its_tenant_alone(self, store: Store) -> None:
        await commit(store, waiting(1))
        (found,) = await store.waits_named(DEFAULT_TENANT, "T1", 10)
        assert (found.run_id, found.path, found.attempt, found.resolved_at) == (run_id(1), "a", 1, None)
        assert await store.waits_named("other", "T1", 10) == []

    async def test_a_wait_that_is_over_says_how_and_is_open_no_more(self, store: Store) -> None:
        await commit(store, waiting(1))
        await commit(store, answered(1, "resume", T0 + 5))
        await commit(store, answered(1, "expired", T0 + 9))
        found = await store.wait_at(RunNo(1), "a", "callback", 1)
        assert found is not None and (found.resolved_at, found.outcome) == (T0 + 5, "resume")
        assert await store.waits_of_run(RunNo(1), 10) == []
        assert await store.open_waits(DEFAULT_TENANT, "callback", 10) == []

    async def test_a_wait_that_is_opened_and_ended_by_one_commit_is_over(self, store: Store) -> None:
        batch = waiting(1)
        batch.closed_waits += answered(1, "resume", T0).closed_waits
        await commit(store, batch)
        assert await store.waits_of_run(RunNo(1), 10) == []

    async def test_each_attempt_has_a_wait_of_its_own(self, store: Store) -> None:
        await commit(store, waiting(1, attempt=1))
        await commit(store, answered(1, "resume", T0))
        again = Batch()
        again.opened_waits += waiting(1, attempt=2).opened_waits
        await commit(store, again)
        newest, first = [await store.wait_at(RunNo(1), "a", "callback", n) for n in (None, 1)]
        assert newest is not None and (newest.attempt, newest.resolved_at) == (2, None)
        assert first is not None and first.outcome == "resume"

    async def test_waits_belong_to_their_runs_in_a_part_of_a_batch(self, store: Store) -> None:
        batch = started(1, 2)
        batch.opened_waits += [*waiting(1).opened_waits, *waiting(2).opened_waits]
        await commit(store, batch.without({RunNo(1)}))
        assert [found.no for found in await store.waits_named(DEFAULT_TENANT, "T1", 10)] == [2]

    async def test_an_approval_that_is_over_is_found_by_its_path_or_by_the_id_of_its_step(
        self, store: Store
    ) -> None:
        paths = ("each[0].ok", "each[1].ok", "ok", "not_ok", "each[2].ok")
        batch = started(1)
        for path in paths:
            wait = WaitOpened(DEFAULT_TENANT, "approval", "", RunNo(1), path, 0, Millis(T0), None, "null")
            batch.opened_waits.append(wait)
        await commit(store, batch)
        assert await store.gate_decided(RunNo(1), "ok") is None
        found = []
        for path in paths[:4]:
            over = Batch()
            over.closed_waits.append(WaitClosed(Millis(T0), "answered", RunNo(1), path, 0, "approval"))
            await commit(store, over)
            gate = await store.gate_decided(RunNo(1), "ok")
            found.append(gate and gate.path)
        assert found == ["each[0].ok", "each[1].ok", "ok", "ok"]
        assert await store.gate_decided(RunNo(1), "each[2].ok") is None
        assert await store.gate_decided(RunNo(2), "ok") is None

    async def test_an_early_result_is_kept_until_it_is_taken_or_its_time_is_over(self, store: Store) -> None:
        await commit(store, early("T1", "first"))
        await commit(store, early("T1", "second"))
        assert await store.early_result(DEFAULT_TENANT, "T1", RunId("r1"), Millis(T0)) == ("", "first")
        assert await store.early_result("other", "T1", RunId("r1"), Millis(T0)) is None
        assert await store.early_result(DEFAULT_TENANT, "T1", RunId("r1"), Millis(T0 + 1000)) is None
        assert await store.early_room(DEFAULT_TENANT, Millis(T0)) == (1, len("first"))
        taken = Batch()
        taken.taken_early.append(TakenEarly(DEFAULT_TENANT, "T1", ""))
        await commit(store, taken)
        assert await store.early_result(DEFAULT_TENANT, "T1", RunId("r1"), Millis(T0)) is None

    async def test_early_results_whose_time_is_over_make_room(self, store: Store) -> None:
        await commit(store, early("T1", "old"))
        batch = Batch()
        batch.expired_early.append((Millis(T0 + 1000),))
        batch.early_results.append(EarlyResult(DEFAULT_TENANT, "T1", "", "new", Millis(T0 + 2000)))
        await commit(store, batch)
        assert await store.early_result(DEFAULT_TENANT, "T1", RunId("r1"), Millis(T0)) == ("", "new")

    async def test_an_early_result_of_one_run_is_not_that_of_another(self, store: Store) -> None:
        for body, meant in (("for r1", "r1"), ("for any", ""), ("for r2", "r2")):
            await commit(store, early("T1", body, meant))
        runs = ("r1", "r2", "r3")
        found = [await store.early_result(DEFAULT_TENANT, "T1", RunId(run), Millis(T0)) for run in runs]
        assert found == [("r1", "for r1"), ("r2", "for r2"), ("", "for any")]

    async def test_part_of_a_batch_takes_only_the_early_results_of_its_runs(self, store: Store) -> None:
        for task_id in ("T1", "T2"):
            await commit(store, early(task_id, "result"))
        batch = Batch()
        batch.taken_early += [TakenEarly(DEFAULT_TENANT, f"T{no}", "", RunNo(no)) for no in (1, 2)]
        await commit(store, batch.only({RunNo(2)}))
        left = [
            await store.early_result(DEFAULT_TENANT, name, RunId("r"), Millis(T0)) for name in ("T1", "T2")
        ]
        assert left == [("", "result"), None]

    async def test_those_who_wait_for_what_came_early_are_found(self, store: Store) -> None:
        await commit(store, waiting(1))
        await commit(store, waiting(2))
        await commit(store, answered(1, "resume", T0))
        assert await store.early_waits(10) == []
        await commit(store, early("T1", "result"))
        assert [found.no for found in await store.early_waits(10)] == [2]

    async def test_a_forgotten_run_takes_its_waits_along(self, store: Store) -> None:
        await commit(store, waiting(1))
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await store.waits_named(DEFAULT_TENANT, "T1", 10) == []

    async def test_open_waits_are_gone_through_page_by_page(self, store: Store) -> None:
        for no in range(1, 6):
            await commit(store, waiting(no))
        await commit(store, answered(3, "resume", T0))
        seen, after = list[OpenWait](), OpenWait()
        while page := await store.waits_open(after, 2):
            seen += page
            after = page[-1]
        assert [wait.kind for wait in seen] == ["callback"] * 4
        assert len(set(seen)) == 4

    async def test_an_answer_that_is_kept_with_a_row_is_there_with_it_alone(self, store: Store) -> None:
        batch = started(1, 2)
        for no in (1, 2):
            row = ReplyRow(DEFAULT_TENANT, "/r", f"key-{no}", "d", 200, b"{}", Millis(T0))
            batch.run_replies.append((RunNo(no), row))
        await commit(store, batch.without({RunNo(1)}))
        found = [await store.reply(DEFAULT_TENANT, "/r", f"key-{no}") for no in (1, 2)]
        assert [reply is not None for reply in found] == [False, True]

    async def test_the_key_of_a_store_is_made_once(self, store_factory: Open) -> None:
        first, second = store_factory(), store_factory()
        assert first.server_key == second.server_key
        assert len(first.server_key) == 32

    # ---------------------------------------------------------------------------------------------- letters

    async def test_a_letter_is_due_from_the_moment_that_it_is_written(self, store_factory: Open) -> None:
        await commit(store_factory(), ended(1, letter(1)))
        store = store_factory()
        assert await due(store, T0 - 1) == []
        (found,) = await store.letters_due(Millis(T0), (), None, 10)
        assert (found.id, found.run_id, found.url, found.secret_env) == (
            "msg_1_0",
            run_id(1),
            "http://a/1",
            None,
        )
        assert (found.tries, found.outcome, found.last_error) == (0, None, "")
        assert await store.letter(DEFAULT_TENANT, "msg_1_0") == found
        assert await store.letters_of_run(RunNo(1)) == [found]

    async def test_a_letter_of_a_refused_batch_is_not_there(self, store: Store) -> None:
        await commit(store, started(1))
        batch = ended(1, letter(1))  # a run of that number is there
        with pytest.raises(Fenced):
            await commit(store, batch)
        assert await store.letters_of_run(RunNo(1)) == []

    async def test_letters_belong_to_their_run_in_a_part_of_a_batch(self, store: Store) -> None:
        batch = ended(1, letter(1))
        batch.new_runs |= ended(2).new_runs
        batch.changes |= ended(2).changes
        batch.letters.append(letter(2))
        await commit(store, batch.only({RunNo(2)}))
        assert await due(store) == ["msg_2_0"]

    async def test_a_letter_that_was_tried_in_vain_is_due_later(self, store: Store) -> None:
        await commit(store, ended(1, letter(1)))
        await tried(store, "msg_1_0", LetterTried(1, Millis(T0 + 1000), None, None, "away", 0))
        assert await due(store) == []
        assert await store.next_letter(Millis(T0)) == T0 + 1000
        assert await due(store, T0 + 1000) == ["msg_1_0"]
        found = await store.letter(DEFAULT_TENANT, "msg_1_0")
        assert found is not None
        assert (found.tries, found.last_error) == (1, "away")

    async def test_letters_are_counted_by_state_up_to_a_limit(self, store: Store) -> None:
        for no in range(1, 6):
            await commit(store, ended(no, letter(no)))
        await tried(store, "msg_1_0", LetterTried(1, Millis(T0), Millis(T0), "dead", "", 0))
        await tried(store, "msg_2_0", LetterTried(1, Millis(T0), Millis(T0), "delivered", "", 0))
        assert await store.letters_by_state(10) == {"waiting": 3, "dead": 1}
        assert await store.letters_by_state(2) == {"waiting": 2, "dead": 1}

    @pytest.mark.parametrize("outcome", ["delivered", "dead", "discarded"])
    async def test_a_letter_that_is_over_is_never_due(self, store: Store, outcome: str) -> None:
        await commit(store, ended(1, letter(1)))
        await tried(store, "msg_1_0", LetterTried(1, Millis(T0), Millis(T0), outcome, "", 0))
        assert await due(store, T0 + 10**9) == []
        assert await store.next_letter(Millis(0)) is None

    async def test_a_letter_is_changed_only_if_it_is_as_its_writer_saw_it(self, store: Store) -> None:
        await commit(store, ended(1, letter(1)))
        await tried(store, "msg_1_0", LetterTried(1, Millis(T0), Millis(T0), "delivered", "", 0))
        await tried(store, "msg_1_0", LetterTried(0, Millis(T0), None, None, "", 0, "dead"))
        assert await due(store) == []

    async def test_the_letter_that_is_due_for_longest_comes_first(self, store: Store) -> None:
        for no, at in ((1, T0 + 5), (2, T0), (3, T0 + 5)):
            await commit(store, ended(no, letter(no, at=at)))
        assert await due(store, T0 + 5) == ["msg_2_0", "msg_1_0", "msg_3_0"]
        assert await store.next_letter(Millis(T0)) == T0 + 5

    async def test_a_later_letter_to_one_address_of_a_run_waits_for_the_earlier_one(
        self, store: Store
    ) -> None:
        await commit(store, ended(1, letter(1), letter(1, 1), letter(1, 2, url="http://b/1"), letter(1, 3)))
        await commit(store, ended(2, letter(2)))
        assert await due(store) == ["msg_1_0", "msg_1_2", "msg_2_0"]
        await tried(store, "msg_1_0", LetterTried(1, Millis(T0 + 9), None, None, "", 0))
        assert await due(store) == ["msg_1_2", "msg_2_0"]
        await tried(store, "msg_1_0", LetterTried(2, Millis(T0 + 9), Millis(T0), "dead", "", 0))
        assert await due(store) == ["msg_1_1", "msg_1_2", "msg_2_0"]

    async def test_letters_to_a_server_that_has_no_room_are_passed_over(self, store: Store) -> None:
        await commit(store, ended(1, letter(1)))
        await commit(store, ended(2, letter(2, url="http://b/2")))
        found = await store.letters_due(Millis(T0), ["a"], None, 10)
        assert [one.id for one in found] == ["msg_2_0"]

    async def test_letters_of_some_runs_alone_can_be_asked_for(self, store: Store) -> None:
        await commit(store, ended(1, letter(1)))
        await commit(store, ended(2, letter(2)))
        found = await store.letters_due(Millis(T0), (), [RunNo(2)], 10)
        assert [one.id for one in found] == ["msg_2_0"]
        assert await store.letters_due(Millis(T0), (), [], 10) == []

    async def test_dead_letters_are_paged_and_their_tenants_own(self, store: Store) -> None:
        for no in (1, 2, 3):
            await commit(store, ended(no, letter(no)))
            await tried(store, f"msg_{no}_0", LetterTried(1, Millis(T0), Millis(T0), "dead", "gone", 0))
        first = await store.dead_letters(DEFAULT_TENANT, 0, 2)
        rest = await store.dead_letters(DEFAULT_TENANT, first[-1].pos, 2)
        assert [one.id for one in (*first, *rest)] == ["msg_1_0", "msg_2_0", "msg_3_0"]
        assert await store.dead_letters("other", 0, 10) == []
        assert await store.letter("other", "msg_1_0") is None

    async def test_a_run_whose_end_is_still_to_be_told_is_not_old(self, store: Store) -> None:
        await commit(store, ended(1, letter(1)))
        await commit(store, ended(2))
        assert [no for no, _ in await store.finished_before(Millis(T0 + 1), 10)] == [2]
        await tried(store, "msg_1_0", LetterTried(1, Millis(T0), Millis(T0), "dead", "gone", 0))
        assert [no for no, _ in await store.finished_before(Millis(T0 + 1), 10)] == [1, 2]

    async def test_a_forgotten_run_takes_its_letters_along(self, store: Store) -> None:
        await commit(store, ended(1, letter(1)))
        await commit(store, ended(2, letter(2)))
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await due(store) == ["msg_2_0"]
