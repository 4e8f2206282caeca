"""What every store promises about schedules, cursors and the ledger. Part of the suite in conformance.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.records import NewRun, RunChange
from holdfast.store.schedule_records import (
    Firing,
    LedgerEntry,
    LedgerKey,
    LedgerOutcome,
    LedgerRow,
    NewCursor,
    Origin,
    ScheduleEnd,
    ScheduleRow,
    ScheduleState,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunId, RunNo

T0 = 1_700_000_000_000


def schedule(
    name: str = "s",
    *,
    tenant: str = DEFAULT_TENANT,
    kind: str = "cron",
    origin: Origin = "api",
    body: str = "{}",
) -> ScheduleRow:
    return ScheduleRow(tenant, name, kind, origin, "", 1_000, Millis(T0), Millis(T0), body)


def cursor(
    name: str = "s",
    revision: int = 0,
    *,
    next_at: int | None = None,
    slot: str = "",
    owes: bool = False,
    tenant: str = DEFAULT_TENANT,
) -> NewCursor:
    at = None if next_at is None else Millis(next_at)
    return NewCursor(tenant, name, slot, revision, at, owes, f"[{revision}]")


def entry(
    occurrence: str,
    no: int | None = None,
    *,
    name: str = "s",
    outcome: LedgerOutcome | None = None,
    tenant: str = DEFAULT_TENANT,
    **fields: Any,
) -> LedgerEntry:
    found: LedgerOutcome = outcome or ("skipped" if no is None else "fired")
    run = None if no is None else RunNo(no)
    row = LedgerEntry(tenant, name, "", occurrence, found, "", Millis(T0), None, 1, Millis(T0), run)
    return row._replace(**fields)


def registered(*names: str, next_at: int | None = None, **fields: Any) -> Batch:
    batch = Batch()
    for name in names or ("s",):
        batch.schedules.append(schedule(name))
        batch.firings.append(Firing(cursor=cursor(name, next_at=next_at, **fields)))
    return batch


def begins(*numbers: int, name: str | None = None, is_catchup: bool = False) -> Batch:
    """A batch that begins runs, of a schedule if one is named."""
    batch = Batch()
    for no in numbers:
        new = NewRun(RunNo(no), DEFAULT_TENANT, id_of(no), "v1", None, None, Millis(T0), workflow="n")
        if name is not None:
            new.schedule, new.slot, new.is_catchup = name, "", is_catchup
        batch.new_runs[RunNo(no)] = new
        batch.changes[RunNo(no)] = RunChange("running", True, 0, None)
        batch.rows.append((no, 1, 0, T0, "run_started", "[1]"))
    return batch


def ends(no: int, error: str | None = None, name: str = "s") -> Batch:
    batch = Batch()
    batch.rows.append((no, 2, 0, T0 + 1, "step_succeeded", "[1]"))
    batch.changes[RunNo(no)] = RunChange(
        "failed" if error else "completed", False, 0, None, None, Millis(T0 + 1)
    )
    batch.schedule_ends.append(ScheduleEnd(RunNo(no), DEFAULT_TENANT, name, "", error))
    return batch


def id_of(no: int) -> RunId:
    return RunId(f"00000000-0000-7000-8000-{no:012d}")


def fires(no: int, occurrence: str, seen: int, name: str = "s", **fields: Any) -> Batch:
    """A batch in which a schedule fires: its cursor moves, and an occurrence becomes a run."""
    batch = begins(no, name=name)
    moved = cursor(name, seen + 1, **fields)
    batch.firings.append(Firing((entry(occurrence, no, name=name),), moved, seen, RunNo(no)))
    return batch


def both(first: Batch, second: Batch) -> Batch:
    first.rows += second.rows
    first.new_runs |= second.new_runs
    first.changes |= second.changes
    first.firings += second.firings
    return first


async def outcome_of(store: Store, batch: Batch) -> BaseException | None:
    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    store.submit(batch, told.set_result)
    return await told


async def commit(store: Store, batch: Batch) -> None:
    error = await outcome_of(store, batch)
    if error is not None:
        raise error


async def state(store: Store, name: str = "s") -> ScheduleState:
    (found,) = await store.schedule_states([(DEFAULT_TENANT, name)])
    return found


async def ledger(store: Store, name: str = "s", **fields: Any) -> list[LedgerRow]:
    return await store.ledger(DEFAULT_TENANT, name, None, 100, **fields)


class ScheduleConformance:
    # --------------------------------------------------------------------------------------------- schedules

    async def test_a_replaced_schedule_keeps_the_time_of_its_creation(self, store: Store) -> None:
        await commit(store, registered())
        batch = Batch()
        batch.schedules.append(
            schedule(body='{"a":1}')._replace(created_at=Millis(T0 + 5), updated_at=Millis(T0 + 5))
        )
        await commit(store, batch)
        found = await store.schedule(DEFAULT_TENANT, "s")
        assert found == schedule(body='{"a":1}')._replace(updated_at=Millis(T0 + 5))

    async def test_schedules_are_listed_by_id_and_tenant(self, store: Store) -> None:
        await commit(store, registered("b", "a", "c"))
        batch = Batch()
        batch.schedules.append(schedule("a", tenant="other"))
        batch.schedules.append(schedule("d", origin="file"))
        await commit(store, batch)
        listed = [row.id for row in await store.schedules(DEFAULT_TENANT, "a", 2)]
        assert listed == ["b", "c"]
        assert [row.id for row in await store.schedules(DEFAULT_TENANT, "", 9, "file")] == ["d"]
        assert [row.id for row in await store.schedules("other", "", 9)] == ["a"]

    async def test_schedules_of_a_kind_are_found_over_all_tenants(self, store: Store) -> None:
        batch = Batch()
        for tenant in ("t1", "t2"):
            batch.schedules += [schedule("a", tenant=tenant), schedule("hook", tenant=tenant, kind="webhook")]
        await commit(store, batch)
        found = await store.schedules_of_kind("webhook", ("", ""), 9)
        assert [(row.tenant, row.id) for row in found] == [("t1", "hook"), ("t2", "hook")]
        assert await store.schedules_of_kind("webhook", ("t1", "hook"), 9) == found[1:]

    async def test_a_deleted_schedule_keeps_its_ledger(self, store: Store) -> None:
        await commit(store, registered())
        await commit(store, fires(1, "t1", 0))
        batch = Batch()
        batch.firings.append(Firing((entry("t2", outcome="buffered", payload=b"{}"),)))
        await commit(store, batch)
        batch = Batch()
        batch.forgotten_schedules.append((DEFAULT_TENANT, "s"))
        await commit(store, batch)
        assert await store.schedule(DEFAULT_TENANT, "s") is None
        assert await store.schedule_states([(DEFAULT_TENANT, "s")]) == []
        rows = [(row.occurrence, row.outcome, row.reason) for row in await ledger(store)]
        assert rows == [("t2", "skipped", "deleted"), ("t1", "fired", "")]

    # ----------------------------------------------------------------------------------------------- cursors

    async def test_a_cursor_moves_if_its_revision_is_the_one_that_was_read(self, store: Store) -> None:
        await commit(store, registered(next_at=T0))
        await commit(store, fires(1, "t1", 0, next_at=T0 + 9, owes=True))
        found = (await state(store)).cursor
        assert (found.revision, found.next_at, found.owes, found.body) == (1, T0 + 9, True, "[1]")

    async def test_a_firing_that_finds_another_revision_drops_its_run_from_the_batch(
        self, store: Store
    ) -> None:
        await commit(store, registered("s", "u"))
        await commit(store, fires(1, "t1", 0))
        batch = both(fires(2, "t2", 0), fires(3, "t2", 0, "u"))
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced) and told.runs == (2,)
        assert await store.run_by_no(RunNo(3)) is None
        await commit(store, batch.without(set(told.runs)))
        assert await store.run_by_no(RunNo(2)) is None
        assert await store.run_by_no(RunNo(3)) is not None
        assert [row.occurrence for row in await ledger(store)] == ["t1"]
        assert [row.occurrence for row in await ledger(store, "u")] == ["t2"]

    async def test_a_firing_of_a_deleted_schedule_is_lost(self, store: Store) -> None:
        told = await outcome_of(store, fires(1, "t1", 0))
        assert isinstance(told, Fenced) and told.runs == (1,)

    async def test_a_second_first_cursor_is_lost(self, store: Store) -> None:
        await commit(store, registered())
        batch = registered()
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced) and told.runs == () and told.firings == tuple(batch.firings)

    async def test_of_a_lost_firing_no_row_of_the_ledger_is_written(self, store: Store) -> None:
        await commit(store, registered())
        batch = Batch()
        lost = Firing((entry("t1/.."),), cursor(revision=8), 7)
        batch.firings += [lost, Firing((entry("t9/..", name="u"),))]
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced) and told.firings == (lost,)
        assert await ledger(store) == [] and await ledger(store, "u") == []

    async def test_many_cursors_move_in_one_commit(self, store: Store) -> None:
        names = [f"s{number}" for number in range(700)]
        await commit(store, registered(*names))
        batch = Batch()
        batch.firings += [Firing((entry("t1/..", name=name),), cursor(name, 1), 0) for name in names]
        await commit(store, batch)
        assert (await state(store, "s699")).cursor.revision == 1
        assert len(await ledger(store, "s350")) == 1

    async def test_due_schedules_come_in_the_order_of_their_times_with_their_open_runs(
        self, store: Store
    ) -> None:
        await commit(store, both(registered("late", next_at=T0), Batch()))
        await commit(store, registered("soon", next_at=T0 - 5))
        await commit(store, registered("future", next_at=T0 + 5))
        await commit(store, registered("never"))
        await commit(store, fires(1, "t1", 0, "late", next_at=T0))
        batch = begins(2, name="late", is_catchup=True)
        await commit(store, both(batch, begins(3, 4, name="other")))
        found = await store.due_schedules(Millis(T0), 9)
        assert [(one.schedule.id, one.open, one.catchups) for one in found] == [
            ("soon", 0, 0),
            ("late", 2, 1),
        ]
        assert await store.next_due() == T0 - 5
        assert await store.next_due(T0) == T0 + 5

    async def test_an_ended_run_is_not_counted(self, store: Store) -> None:
        await commit(store, registered())
        await commit(store, fires(1, "t1", 0))
        assert await store.open_runs_of(DEFAULT_TENANT, "s", "") == 1
        assert await store.oldest_run_of(DEFAULT_TENANT, "s", "") == id_of(1)
        await commit(store, ends(1))
        assert await store.open_runs_of(DEFAULT_TENANT, "s", "") == 0
        assert await store.oldest_run_of(DEFAULT_TENANT, "s", "") is None

    async def test_a_slot_of_another_node_is_not_due_here(self, store: Store) -> None:
        await commit(store, registered("here", next_at=T0, slot=store.node))
        await commit(store, registered("there", next_at=T0, slot="elsewhere", owes=True))
        assert [one.schedule.id for one in await store.due_schedules(Millis(T0), 9)] == ["here"]
        assert await store.owing_schedules(("", "", ""), 9) == []

    async def test_the_slots_of_all_nodes_can_be_read(self, store: Store) -> None:
        await commit(store, registered("s", next_at=T0, slot="elsewhere"))
        assert await store.schedule_states([(DEFAULT_TENANT, "s")]) == []
        (found,) = await store.schedule_states([(DEFAULT_TENANT, "s")], every_slot=True)
        assert found.cursor.slot == "elsewhere"

    async def test_the_slots_of_a_ledger_are_found(self, store: Store) -> None:
        assert await store.ledger_slots(DEFAULT_TENANT, "s", 9) == []
        batch = Batch()
        batch.firings += [
            Firing((entry(f"t{number}", name="s")._replace(slot=slot),))
            for number, slot in enumerate(["", "b", "a", "b", ""])
        ]
        await commit(store, batch)
        assert await store.ledger_slots(DEFAULT_TENANT, "s", 9) == ["", "a", "b"]
        assert await store.ledger_slots(DEFAULT_TENANT, "s", 2) == ["", "a"]

    async def test_cursors_that_owe_something_are_found(self, store: Store) -> None:
        await commit(store, registered("a", "b", "c", owes=True))
        await commit(store, registered("d"))
        assert await store.owing_schedules((DEFAULT_TENANT, "a", ""), 9) == [
            (DEFAULT_TENANT, "b", ""),
            (DEFAULT_TENANT, "c", ""),
        ]

    async def test_failures_are_counted_by_the_commits_that_end_runs(self, store: Store) -> None:
        await commit(store, registered())
        for no, error in ((1, "first"), (2, "second"), (3, None), (4, "third")):
            await commit(store, begins(no, name="s"))
            await commit(store, ends(no, error))
        found = (await state(store)).cursor
        assert (found.error_count, found.failures, found.last_error) == (3, 1, "third")
        assert found.revision == 0
        batch = Batch()
        batch.cleared_failures.append((DEFAULT_TENANT, "s", ""))
        await commit(store, batch)
        found = (await state(store)).cursor
        assert (found.error_count, found.failures) == (3, 0)

    @pytest.mark.parametrize(
        ("errors", "failures"),
        [(["a", "b"], 3), (["a", None], 0), ([None, "b"], 1), ([None, None], 0), (["a", None, "b", "b"], 2)],
    )
    async def test_ends_of_runs_in_one_commit_count_in_their_order(
        self, store: Store, errors: list[str | None], failures: int
    ) -> None:
        await commit(store, registered())
        await commit(store, begins(*range(1, len(errors) + 1), 9, name="s"))
        await commit(store, ends(9, "earlier"))
        batch = Batch()
        for no, error in enumerate(errors, 1):
            one = ends(no, error)
            batch.rows += one.rows
            batch.changes |= one.changes
            batch.schedule_ends += one.schedule_ends
        await commit(store, batch)
        found = (await state(store)).cursor
        failed = [error for error in ["earlier", *errors] if error is not None]
        assert (found.error_count, found.failures, found.last_error) == (len(failed), failures, failed[-1])

    # ------------------------------------------------------------------------------------------------ ledger

    async def test_an_occurrence_that_has_a_run_drops_the_next_run_from_the_batch(self, store: Store) -> None:
        batch = begins(1, name="s")
        batch.firings.append(Firing((entry("d1", 1, reply=b"first"),), no=RunNo(1)))
        await commit(store, batch)
        batch = begins(2, 3, name="s")
        batch.firings.append(Firing((entry("d1", 2),), no=RunNo(2)))
        batch.firings.append(Firing((entry("d2", 3),), no=RunNo(3)))
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced) and told.runs == (2,)
        await commit(store, batch.without({RunNo(2)}))
        assert [(row.occurrence, row.run_id, row.reply) for row in await ledger(store)] == [
            ("d2", id_of(3), None),
            ("d1", id_of(1), b"first"),
        ]

    async def test_of_two_firings_of_one_occurrence_in_a_batch_the_second_is_lost(self, store: Store) -> None:
        batch = begins(1, 2, name="s")
        batch.firings += [Firing((entry("d1", no),), no=RunNo(no)) for no in (1, 2)]
        told = await outcome_of(store, batch)
        assert isinstance(told, Fenced) and told.runs == (2,)

    async def test_a_stretch_that_grows_is_one_row(self, store: Store) -> None:
        for times in (1, 2, 3):
            batch = Batch()
            until = Millis(T0 + times)
            batch.firings.append(Firing((entry("t1/..", until=until, times=times, reason="overlap"),)))
            await commit(store, batch)
        (row,) = await ledger(store)
        assert (row.times, row.until, row.outcome, row.reason) == (3, T0 + 3, "skipped", "overlap")

    async def test_an_occurrence_that_failed_can_still_be_fired(self, store: Store) -> None:
        batch = Batch()
        batch.firings.append(Firing((entry("t1", outcome="failed", reason="unknown_workflow"),)))
        await commit(store, batch)
        await commit(store, registered())
        await commit(store, fires(1, "t1", 0))
        (row,) = await ledger(store)
        assert (row.outcome, row.reason, row.run_id) == ("fired", "", id_of(1))

    async def test_a_buffered_delivery_is_started_once(self, store: Store) -> None:
        key = LedgerKey(DEFAULT_TENANT, "s", "", "d1")
        batch = Batch()
        waiting = entry("d1", outcome="buffered", payload=b'{"a":1}', reply=b"accepted")
        batch.firings += [Firing((waiting,)), Firing((entry("d0", outcome="buffered"),))]
        await commit(store, batch)
        assert isinstance(await outcome_of(store, _repeated(waiting)), Fenced)
        assert await store.buffering_schedules(("", "", ""), 9) == [(DEFAULT_TENANT, "s", "")]
        first, second = await store.buffered(DEFAULT_TENANT, "s", "", Millis(0), 9)
        assert (first.occurrence, second.occurrence) == ("d1", "d0")
        assert await store.ledger_payload(first.pos) == b'{"a":1}'
        for no, is_lost in ((1, False), (2, True)):
            batch = begins(no, name="s")
            batch.firings.append(Firing((entry("d1", no, reply=b"accepted"),), no=RunNo(no), takes=key))
            assert isinstance(await outcome_of(store, batch), Fenced) is is_lost
        found = await store.ledger_row(key)
        assert found is not None and (found.pos, found.outcome, found.run_id) == (
            first.pos,
            "fired",
            id_of(1),
        )
        assert found == await store.ledger_of_run(RunNo(1))

    async def test_the_ledger_is_read_page_by_page_and_without_what_fired(self, store: Store) -> None:
        await commit(store, registered())
        for no in range(1, 5):
            await commit(store, fires(no, f"t{no}", no - 1))
            batch = Batch()
            batch.firings.append(Firing((entry(f"t{no}x/.."),)))
            await commit(store, batch)
        page = await store.ledger(DEFAULT_TENANT, "s", None, 3)
        assert [row.occurrence for row in page] == ["t4x/..", "t4", "t3x/.."]
        page = await store.ledger(DEFAULT_TENANT, "s", page[-1].pos, 2)
        assert [row.occurrence for row in page] == ["t3", "t2x/.."]
        assert [row.occurrence for row in await ledger(store, unfired=True)] == [
            f"t{no}x/.." for no in (4, 3, 2, 1)
        ]

    async def test_the_rows_up_to_an_occurrence_are_read_backwards(self, store: Store) -> None:
        await commit(store, registered())
        for revision, occurrence in enumerate(["t1", "t4", "t2"]):  # not in their order
            await commit(store, fires(revision + 1, occurrence, revision))
        batch = Batch()
        batch.firings.append(Firing((entry("t3/.."),)))
        await commit(store, batch)

        async def until(last: str, limit: int = 9) -> list[str]:
            rows = await store.ledger_until(LedgerKey(DEFAULT_TENANT, "s", "", last), limit)
            return [row.occurrence for row in rows]

        assert await until("t3/..") == ["t3/..", "t2", "t1"]
        assert await until("t2") == ["t2", "t1"]
        assert await until("t9", 2) == ["t4", "t3/.."]
        assert await store.ledger_until(LedgerKey("other", "s", "", "t9"), 9) == []
        assert await store.ledger_until(LedgerKey(DEFAULT_TENANT, "s", "node", "t9"), 9) == []

    async def test_another_tenant_sees_nothing_of_a_ledger(self, store: Store) -> None:
        await commit(store, registered())
        await commit(store, fires(1, "t1", 0))
        assert await store.ledger("other", "s", None, 9) == []
        assert await store.schedule("other", "s") is None
        assert (await store.count_schedules("other"), await store.count_schedules(DEFAULT_TENANT)) == (0, 1)
        assert await store.ledger_row(LedgerKey("other", "s", "", "t1")) is None

    async def test_what_has_a_run_between_two_instants_is_found(self, store: Store) -> None:
        await commit(store, registered())
        for no in (1, 2, 3, 4):
            await commit(store, fires(no, f"2026-01-0{no}T00:00:00.000Z", no - 1))
        batch = Batch()
        batch.firings.append(Firing((entry("2026-01-02T12:00:00.000Z/.."),)))
        batch.firings.append(Firing((entry("2026-01-02T13:00:00.000Z", outcome="failed"),)))
        await commit(store, batch)
        first = LedgerKey(DEFAULT_TENANT, "s", "", "2026-01-02T00:00:00.000Z")
        found = await store.settled_between(first, "2026-01-03T00:00:00.000Z", 9)
        assert found == ["2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"]

    async def test_old_rows_without_a_run_are_deleted(self, store: Store) -> None:
        await commit(store, registered())
        await commit(store, fires(1, "t1", 0))
        batch = Batch()
        old, fresh = Millis(T0 - 10), Millis(T0)
        batch.firings.append(Firing((entry("t2/..", at=old), entry("t3/..", at=fresh))))
        batch.firings.append(Firing((entry("t4", outcome="buffered", at=old),)))
        await commit(store, batch)
        assert await store.old_ledger(Millis(T0 - 5), 9) == 1
        batch = Batch()
        batch.forgotten_ledger.append((Millis(T0 - 5), 9))
        await commit(store, batch)
        assert [row.occurrence for row in await ledger(store)] == ["t4", "t3/..", "t1"]

    async def test_a_run_that_is_deleted_takes_its_row_of_the_ledger_along(self, store: Store) -> None:
        await commit(store, registered())
        await commit(store, fires(1, "t1", 0))
        await commit(store, ends(1))
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await ledger(store) == []

    async def test_a_run_says_which_schedule_started_it(self, store: Store) -> None:
        await commit(store, both(begins(1, name="s"), begins(2)))
        first, second = await store.run_by_no(RunNo(1)), await store.run_by_id(DEFAULT_TENANT, id_of(2))
        assert first is not None and (first.schedule, first.slot) == ("s", "")
        assert second is not None and (second.schedule, second.slot) == (None, None)

    # ----------------------------------------------------------------------------------------------- outages

    async def test_when_an_engine_was_awake_is_kept(self, store: Store) -> None:
        assert await store.awake() == (None, None)
        batch = Batch()
        batch.awake_at, batch.outages = Millis(T0), "[[1,2]]"
        await commit(store, batch)
        assert await store.awake() == (T0, "[[1,2]]")


def _repeated(waiting: LedgerEntry) -> Batch:
    batch = Batch()
    batch.firings.append(Firing((waiting,)))
    return batch
