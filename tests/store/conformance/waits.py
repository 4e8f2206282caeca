"""What every store promises about waits and early callbacks."""

from __future__ import annotations

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    EarlyResult,
    OpenWait,
    ReplyRow,
    TakenEarly,
    WaitClosed,
    WaitOpened,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunId, RunNo
from tests.store.conformance.batches import T0, Open, answered, commit, early, run_id, started, waiting


class WaitsConformance:
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

    async def test_open_approvals_are_found_by_the_id_of_their_step_however_many_others_wait(
        self, store: Store
    ) -> None:
        batch = started(1)
        for path in ("each[0].no", "each[1].ok", "ok", "each[2].not_ok", "each[3].ok", "each[4].ok"):
            wait = WaitOpened(DEFAULT_TENANT, "approval", "", RunNo(1), path, 0, Millis(T0), None, "null")
            batch.opened_waits.append(wait)
        call = WaitOpened(
            DEFAULT_TENANT, "callback", "T1", RunNo(1), "each[5].ok", 1, Millis(T0), None, "null"
        )
        batch.opened_waits.append(call)
        await commit(store, batch)
        over = Batch()
        over.closed_waits.append(WaitClosed(Millis(T0), "answered", RunNo(1), "each[3].ok", 0, "approval"))
        await commit(store, over)
        found = [gate.path for gate in await store.gates_named(RunNo(1), "ok", 2)]
        assert found == ["each[1].ok", "each[4].ok"]
        assert [gate.path for gate in await store.gates_named(RunNo(1), "ok", 1)] == ["each[1].ok"]
        assert await store.gates_named(RunNo(2), "ok", 2) == []

    async def test_an_early_result_is_kept_until_it_is_taken_or_its_time_is_over(self, store: Store) -> None:
        await commit(store, early("T1", "first"))
        await commit(store, early("T1", "second"))
        assert await store.early_result(DEFAULT_TENANT, "T1", RunId("r1"), Millis(T0)) == ("", b"first")
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
        batch.early_results.append(EarlyResult(DEFAULT_TENANT, "T1", "", b"new", Millis(T0 + 2000)))
        await commit(store, batch)
        assert await store.early_result(DEFAULT_TENANT, "T1", RunId("r1"), Millis(T0)) == ("", b"new")

    async def test_an_early_result_of_one_run_is_not_that_of_another(self, store: Store) -> None:
        for body, meant in (("for r1", "r1"), ("for any", ""), ("for r2", "r2")):
            await commit(store, early("T1", body, meant))
        runs = ("r1", "r2", "r3")
        found = [await store.early_result(DEFAULT_TENANT, "T1", RunId(run), Millis(T0)) for run in runs]
        assert found == [("r1", b"for r1"), ("r2", b"for r2"), ("", b"for any")]

    async def test_part_of_a_batch_takes_only_the_early_results_of_its_runs(self, store: Store) -> None:
        for task_id in ("T1", "T2"):
            await commit(store, early(task_id, "result"))
        batch = Batch()
        batch.taken_early += [TakenEarly(DEFAULT_TENANT, f"T{no}", "", RunNo(no)) for no in (1, 2)]
        await commit(store, batch.only({RunNo(2)}))
        left = [
            await store.early_result(DEFAULT_TENANT, name, RunId("r"), Millis(T0)) for name in ("T1", "T2")
        ]
        assert left == [("", b"result"), None]

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
        first, second = await store_factory(), await store_factory()
        assert first.server_key == second.server_key
        assert len(first.server_key) == 32
