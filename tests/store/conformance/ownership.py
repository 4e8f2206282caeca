"""What every store promises about who drives a run."""

from __future__ import annotations

import pytest

from holdfast.errors import NodeIsOver
from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import (
    T0,
    Open,
    appended,
    change,
    changed,
    commit,
    due_runs,
    isolated_on_claim,
    journal_of,
    left_runs,
    mail,
    outcome_of,
    posted,
    row,
    row_of,
    rows_of,
    started,
)


class OwnershipConformance:
    async def test_runs_left_behind_are_the_open_ones_that_a_former_process_owned(
        self, store_factory: Open
    ) -> None:
        former = await store_factory()
        await commit(former, started(1, 2, 3, 4, 5))
        await commit(former, changed(2, change("completed", owned=False, finished_at=T0)))
        await commit(former, changed(3, change("waiting", owned=False, wake_at=T0)))
        now = await store_factory()
        await commit(now, started(6))
        assert await left_runs(now) == [1, 4, 5]
        await commit(now, changed(4, change(epoch=1)))  # taken up: it is ours now
        assert await left_runs(now) == [1, 5]

    async def test_left_runs_are_claimed_some_at_a_time_and_those_that_stay_are_passed_over(
        self, store_factory: Open
    ) -> None:
        await commit(await store_factory(), started(*range(1, 8)))
        store = await store_factory()
        assert await left_runs(store, 3) == [1, 2, 3]
        claims = await store.claim("left", Millis(T0), 3, {RunNo(1), RunNo(3)})
        assert [claim.no for claim in claims] == [2, 4, 5]
        assert await store.claim("left", Millis(T0), 0) == []

    async def test_a_claim_has_the_epoch_of_the_next_row_and_says_whether_the_run_was_released(
        self, store_factory: Open
    ) -> None:
        former = await store_factory()
        await commit(former, started(1, epoch=4))
        await commit(former, started(2, status="waiting", owned=False, wake_at=T0, epoch=7))
        store = await store_factory()
        assert [claim[:3] for claim in await store.claim("left", Millis(T0), 9)] == [(1, 5, False)]
        assert [claim[:3] for claim in await store.claim("due", Millis(T0), 9)] == [(2, 8, True)]
        for no, expected in ((1, (1, 5, False)), (2, (2, 8, True))):
            for seen in (None, await row_of(store, no)):
                claim = await store.claim_run(RunNo(no), seen)
                assert claim is not None and claim[:3] == expected

    async def test_a_claim_that_is_released_leaves_the_run_as_it_was(self, store_factory: Open) -> None:
        former = await store_factory()
        await commit(former, started(1))
        await commit(former, started(2, status="waiting", owned=False, wake_at=T0))
        store = await store_factory()
        claims = [*await store.claim("left", Millis(T0), 9), *await store.claim("due", Millis(T0), 9)]
        await store.release(claims)
        assert (await left_runs(store), await due_runs(store, T0)) == ([1], [2])

    async def test_a_run_is_not_claimed_once_a_row_of_this_node_is_committed(
        self, store_factory: Open
    ) -> None:
        await commit(await store_factory(), started(1, 2))
        store = await store_factory()
        batch = appended(row(1, 2, epoch=1))
        batch.changes[RunNo(1)] = change(epoch=1)
        await commit(store, batch)
        await store.declare()
        assert await left_runs(store) == [2]

    async def test_renewing_tells_a_node_that_it_is_over(self, store_factory: Open) -> None:
        former = await store_factory()
        await former.renew()
        await store_factory()
        with pytest.raises(NodeIsOver):
            await former.renew()

    # -------------------------------------------------------------------------------------------------- mail

    async def test_mail_is_read_in_its_order_by_the_owner_of_its_run(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await commit(store, posted(mail(1, "a"), mail(2, "b")))
        await commit(store, posted(mail(1, "c", body="[3]")))
        found = await store.take_mail(10)
        assert [(one.no, one.dedup, one.body) for one in found] == [
            (1, "a", "[1]"),
            (2, "b", "[1]"),
            (1, "c", "[3]"),
        ]
        assert await store.take_mail(1) == found[:1]

    async def test_mail_that_is_posted_twice_is_there_once(self, store: Store) -> None:
        await commit(store, started(1, 2))
        await commit(store, posted(mail(1, "a", body="[1]"), mail(2, "a")))
        await commit(store, posted(mail(1, "a", body="[2]")))
        assert [(one.no, one.body) for one in await store.take_mail(10)] == [(1, "[1]"), (2, "[1]")]

    async def test_mail_is_removed_by_the_commit_that_appends_its_event_and_not_before(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2))
        await commit(store, posted(mail(1, "a"), mail(1, "b")))
        refused = appended(row(1, 2), row(2, 1))
        refused.read_mail.append((RunNo(1), "a"))
        assert isinstance(await outcome_of(store, refused), Fenced)
        assert len(await store.take_mail(10)) == 2
        await commit(store, refused.without({RunNo(2)}))
        assert [one.dedup for one in await store.take_mail(10)] == ["b"]

    async def test_mail_makes_a_released_run_due_and_leaves_the_time_of_a_finished_one(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2, status="waiting", owned=False))
        await commit(store, started(3, status="waiting", owned=False, wake_at=T0 + 99))
        await commit(store, started(4, status="completed", owned=False, finished_at=T0))
        await commit(store, started(5))
        await commit(store, posted(*[mail(no, "a", at=T0 + 5) for no in (1, 3, 4, 5)]))
        assert await due_runs(store, T0 + 4) == []
        assert sorted(await due_runs(store, T0 + 5)) == [1, 3]

    async def test_mail_of_a_released_run_is_read_by_the_node_that_will_claim_it(self, store: Store) -> None:
        await commit(store, started(1, status="waiting", owned=False))
        await commit(store, posted(mail(1, "a")))
        assert [one.no for one in await store.take_mail(10)] == [1]

    async def test_mail_of_a_finished_run_can_be_taken_to_be_dropped(self, store: Store) -> None:
        await commit(store, started(1))
        await commit(store, posted(mail(1, "a")))
        await commit(store, changed(1, change("completed", owned=False, finished_at=T0)))
        assert [one.dedup for one in await store.take_mail(10)] == ["a"]
        batch = Batch()
        batch.read_mail.append((RunNo(1), "a"))
        await commit(store, batch)
        assert await store.take_mail(10) == []

    async def test_mail_goes_with_a_run_that_is_deleted(self, store: Store) -> None:
        await commit(store, started(1, status="completed", owned=False, finished_at=T0))
        await commit(store, posted(mail(1, "a")))
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        await commit(store, started(1))
        assert await store.take_mail(10) == []

    # ------------------------------------------------------------------------------------------ what is claimed

    async def test_left_behind_sees_through_any_number_of_restarts(self, store_factory: Open) -> None:
        await commit(await store_factory(), started(1))
        await store_factory()
        assert await left_runs(await store_factory()) == [1]

    async def test_due_are_released_open_runs_whose_time_has_come_the_longest_overdue_first(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2, status="waiting", owned=False, wake_at=T0 + 10))
        await commit(store, started(3, status="waiting", owned=False, wake_at=T0 + 5))
        await commit(store, started(4, status="waiting", owned=False, wake_at=T0 + 11))
        await commit(store, started(5, status="waiting", owned=False))
        await commit(store, started(6, status="running", wake_at=T0))
        await commit(store, started(7, status="completed", owned=False, wake_at=T0, finished_at=T0))
        due = await due_runs(store, T0 + 10)
        assert due[0] == 3 and sorted(due) == [1, 2, 3]
        assert await due_runs(store, T0 + 10, 1) == [3]
        assert await due_runs(store, T0 + 4) == []
        claims = await store.claim("due", Millis(T0 + 10), 1, {RunNo(3)})
        assert [claim.no for claim in claims] in ([1], [2])
        assert await store.sleeping(9) in ([3, 1, 2, 4], [3, 2, 1, 4])

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
        assert await store.in_need(RunNo(0), 10) == [
            (1, DEFAULT_TENANT, '["a"]'),
            (5, DEFAULT_TENANT, '["b"]'),
        ]
        assert await store.in_need(RunNo(1), 10) == [(5, DEFAULT_TENANT, '["b"]')]
        assert await store.in_need(RunNo(0), 1) == [(1, DEFAULT_TENANT, '["a"]')]

    async def test_a_run_that_is_in_need_from_its_first_batch_is_found(self, store: Store) -> None:
        await commit(store, started(1, owned=False, needs='["a"]'))
        assert await store.in_need(RunNo(0), 10) == [(1, DEFAULT_TENANT, '["a"]')]

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

    async def test_every_opening_raises_the_epoch(self, store_factory: Open) -> None:
        epochs = [(await store_factory()).epoch for _ in range(4)]
        assert epochs == sorted(set(epochs))

    async def test_a_former_incarnation_can_write_nothing_more(self, store_factory: Open) -> None:
        former = await store_factory()
        await commit(former, started(1))
        now = await store_factory()
        for batch in (appended(row(1, 2)), started(2), changed(1, change("waiting", owned=False))):
            assert isinstance(await outcome_of(former, batch), NodeIsOver)
        assert await rows_of(now, 1, 2) == {1: [1], 2: []}
        assert (await row_of(now, 1)).status == "running"
        assert await now.run_by_no(RunNo(2)) is None

    async def test_a_former_incarnation_is_told_so_when_it_probes(self, store_factory: Open) -> None:
        former = await store_factory()
        await store_factory()
        probe = Batch()
        probe.is_probe = True
        assert isinstance(await outcome_of(former, probe), NodeIsOver)

    async def test_the_new_incarnation_goes_on_where_the_former_one_was(self, store_factory: Open) -> None:
        former = await store_factory()
        await commit(former, started(1))
        now = await store_factory()
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

    async def test_the_claim_of_a_left_run_names_the_attempt_that_was_isolated(
        self, store_factory: Open
    ) -> None:
        batch = started(1, 2)
        batch.isolated = "run-1 a.b"
        await commit(await store_factory(), batch)
        store = await store_factory()
        assert await isolated_on_claim(store) == {"run-1 a.b"}
        claim = await store.claim_run(RunNo(1))
        assert claim is not None and claim.isolated == "run-1 a.b"

    async def test_the_claim_of_a_released_run_names_none(self, store_factory: Open) -> None:
        batch = started(1, status="waiting", owned=False, wake_at=T0)
        batch.isolated = "run-1 a.b"
        await commit(await store_factory(), batch)
        store = await store_factory()
        assert [claim.isolated for claim in await store.claim("due", Millis(T0), 9)] == [""]

    async def test_isolation_that_has_ended_is_not_named(self, store_factory: Open) -> None:
        former = await store_factory()
        for isolated in ("run-1 a.b", ""):
            batch = started(1) if isolated else Batch()
            batch.isolated = isolated
            await commit(former, batch)
        assert await isolated_on_claim(await store_factory()) == {""}

    async def test_a_batch_that_says_nothing_of_isolation_leaves_it_as_it_is(
        self, store_factory: Open
    ) -> None:
        former = await store_factory()
        batch = started(1)
        batch.isolated = "run-1 a.b"
        await commit(former, batch)
        await commit(former, appended(row(1, 2)))
        assert await isolated_on_claim(await store_factory()) == {"run-1 a.b"}

    async def test_an_opening_ends_isolation(self, store_factory: Open) -> None:
        batch = started(1)
        batch.isolated = "run-1 a.b"
        await commit(await store_factory(), batch)
        await store_factory()
        assert await isolated_on_claim(await store_factory()) == {""}
