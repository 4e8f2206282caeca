"""What every store promises about final callbacks."""

from __future__ import annotations

import pytest

from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    CallbackDeliveryTried,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import (
    T0,
    Open,
    commit,
    delivery,
    due,
    ended,
    run_id,
    started,
    tried,
)


class CallbackDeliveriesConformance:
    async def test_a_delivery_is_due_from_the_moment_that_it_is_written(self, store_factory: Open) -> None:
        await commit(await store_factory(), ended(1, delivery(1)))
        store = await store_factory()
        assert await due(store, T0 - 1) == []
        (found,) = await store.callback_deliveries_due(Millis(T0), (), None, 10)
        assert (found.id, found.run_id, found.url, found.secret_env) == (
            "msg_1_0",
            run_id(1),
            "http://a/1",
            None,
        )
        assert (found.tries, found.outcome, found.last_error) == (0, None, "")
        assert await store.callback_delivery(DEFAULT_TENANT, "msg_1_0") == found
        assert await store.callback_deliveries_of_run(RunNo(1)) == [found]

    async def test_a_delivery_of_a_refused_batch_is_not_there(self, store: Store) -> None:
        await commit(store, started(1))
        batch = ended(1, delivery(1))  # a run of that number is there
        with pytest.raises(Fenced):
            await commit(store, batch)
        assert await store.callback_deliveries_of_run(RunNo(1)) == []

    async def test_deliveries_belong_to_their_run_in_a_part_of_a_batch(self, store: Store) -> None:
        batch = ended(1, delivery(1))
        batch.new_runs |= ended(2).new_runs
        batch.changes |= ended(2).changes
        batch.callback_deliveries.append(delivery(2))
        await commit(store, batch.only({RunNo(2)}))
        assert await due(store) == ["msg_2_0"]

    async def test_a_delivery_that_was_tried_in_vain_is_due_later(self, store: Store) -> None:
        await commit(store, ended(1, delivery(1)))
        await tried(store, "msg_1_0", CallbackDeliveryTried(1, Millis(T0 + 1000), None, None, "away", 0))
        assert await due(store) == []
        assert await store.next_callback_delivery(Millis(T0)) == T0 + 1000
        assert await due(store, T0 + 1000) == ["msg_1_0"]
        found = await store.callback_delivery(DEFAULT_TENANT, "msg_1_0")
        assert found is not None
        assert (found.tries, found.last_error) == (1, "away")

    async def test_deliveries_are_counted_by_state_up_to_a_limit(self, store: Store) -> None:
        for no in range(1, 6):
            await commit(store, ended(no, delivery(no)))
        await tried(store, "msg_1_0", CallbackDeliveryTried(1, Millis(T0), Millis(T0), "dead", "", 0))
        await tried(store, "msg_2_0", CallbackDeliveryTried(1, Millis(T0), Millis(T0), "delivered", "", 0))
        assert await store.callback_deliveries_by_state(10) == {"waiting": 3, "dead": 1}
        assert await store.callback_deliveries_by_state(2) == {"waiting": 2, "dead": 1}

    @pytest.mark.parametrize("outcome", ["delivered", "dead", "discarded"])
    async def test_a_delivery_that_is_over_is_never_due(self, store: Store, outcome: str) -> None:
        await commit(store, ended(1, delivery(1)))
        await tried(store, "msg_1_0", CallbackDeliveryTried(1, Millis(T0), Millis(T0), outcome, "", 0))
        assert await due(store, T0 + 10**9) == []
        assert await store.next_callback_delivery(Millis(0)) is None

    async def test_a_delivery_is_changed_only_if_it_is_as_its_writer_saw_it(self, store: Store) -> None:
        await commit(store, ended(1, delivery(1)))
        await tried(store, "msg_1_0", CallbackDeliveryTried(1, Millis(T0), Millis(T0), "delivered", "", 0))
        await tried(store, "msg_1_0", CallbackDeliveryTried(0, Millis(T0), None, None, "", 0, "dead"))
        assert await due(store) == []

    async def test_the_delivery_that_is_due_for_longest_comes_first(self, store: Store) -> None:
        for no, at in ((1, T0 + 5), (2, T0), (3, T0 + 5)):
            await commit(store, ended(no, delivery(no, at=at)))
        assert await due(store, T0 + 5) == ["msg_2_0", "msg_1_0", "msg_3_0"]
        assert await store.next_callback_delivery(Millis(T0)) == T0 + 5

    async def test_a_later_delivery_to_one_address_of_a_run_waits_for_the_earlier_one(
        self, store: Store
    ) -> None:
        await commit(
            store, ended(1, delivery(1), delivery(1, 1), delivery(1, 2, url="http://b/1"), delivery(1, 3))
        )
        await commit(store, ended(2, delivery(2)))
        assert await due(store) == ["msg_1_0", "msg_1_2", "msg_2_0"]
        await tried(store, "msg_1_0", CallbackDeliveryTried(1, Millis(T0 + 9), None, None, "", 0))
        assert await due(store) == ["msg_1_2", "msg_2_0"]
        await tried(store, "msg_1_0", CallbackDeliveryTried(2, Millis(T0 + 9), Millis(T0), "dead", "", 0))
        assert await due(store) == ["msg_1_1", "msg_1_2", "msg_2_0"]

    async def test_deliveries_to_a_server_that_has_no_room_are_passed_over(self, store: Store) -> None:
        await commit(store, ended(1, delivery(1)))
        await commit(store, ended(2, delivery(2, url="http://b/2")))
        found = await store.callback_deliveries_due(Millis(T0), ["a"], None, 10)
        assert [one.id for one in found] == ["msg_2_0"]

    async def test_deliveries_of_some_runs_alone_can_be_asked_for(self, store: Store) -> None:
        await commit(store, ended(1, delivery(1)))
        await commit(store, ended(2, delivery(2)))
        found = await store.callback_deliveries_due(Millis(T0), (), [RunNo(2)], 10)
        assert [one.id for one in found] == ["msg_2_0"]
        assert await store.callback_deliveries_due(Millis(T0), (), [], 10) == []

    async def test_dead_letters_are_paged_and_their_tenants_own(self, store: Store) -> None:
        for no in (1, 2, 3):
            await commit(store, ended(no, delivery(no)))
            await tried(
                store, f"msg_{no}_0", CallbackDeliveryTried(1, Millis(T0), Millis(T0), "dead", "gone", 0)
            )
        first = await store.dead_letters(DEFAULT_TENANT, 0, 2)
        rest = await store.dead_letters(DEFAULT_TENANT, first[-1].pos, 2)
        assert [one.id for one in (*first, *rest)] == ["msg_1_0", "msg_2_0", "msg_3_0"]
        assert await store.dead_letters("other", 0, 10) == []
        assert await store.callback_delivery("other", "msg_1_0") is None

    async def test_a_run_whose_end_is_still_to_be_told_is_not_old(self, store: Store) -> None:
        await commit(store, ended(1, delivery(1)))
        await commit(store, ended(2))
        assert [no for no, _ in await store.finished_before(Millis(T0 + 1), 10)] == [2]
        await tried(store, "msg_1_0", CallbackDeliveryTried(1, Millis(T0), Millis(T0), "dead", "gone", 0))
        assert [no for no, _ in await store.finished_before(Millis(T0 + 1), 10)] == [1, 2]

    async def test_a_forgotten_run_takes_its_deliveries_along(self, store: Store) -> None:
        await commit(store, ended(1, delivery(1)))
        await commit(store, ended(2, delivery(2)))
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await due(store) == ["msg_2_0"]
