"""What a commit means for idempotency keys, in every store."""

from __future__ import annotations

import pytest

from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    KeyEnd,
    KeyName,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import (
    T0,
    Open,
    appended,
    asks,
    change,
    changed,
    commit,
    due_runs,
    holder_of,
    lets_go,
    outcome_of,
    row,
    row_of,
    run_id,
    settled,
    started,
)


class KeysConformance:
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
        store = await store_factory()
        await commit(store, started(1))
        await settled(store, asks(1))
        assert await settled(await store_factory(), asks(1)) == [(1, "s", "granted", None)]

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
        assert await due_runs(store, T0 + 10**9) == []
        await settled(store, lets_go(1, output=output, at=T0 + 50))
        assert await due_runs(store, T0 + 50) == [2]

    async def test_a_run_parked_in_the_very_commit_in_which_its_turn_comes_is_made_due(
        self, store: Store
    ) -> None:
        await commit(store, started(1, 2))
        await settled(store, asks(1), asks(2))
        batch = changed(2, change("waiting", owned=False))
        batch.keys.append(lets_go(1, at=T0 + 50))
        await commit(store, batch)
        assert await due_runs(store, T0 + 50) == [2]

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

    async def test_an_artefact_is_named_by_runs_of_some_workflows(self, store: Store) -> None:
        batch = started(1)
        batch.artefacts.append((RunNo(1), "a" * 64, 3, Millis(T0)))
        batch.artefacts.append((RunNo(1), "b" * 64, 0, Millis(T0)))  # received, not made
        await commit(store, batch)
        for workflows, is_named in ((None, True), (("n", "m"), True), (("m",), False), ((), False)):
            assert await store.names_artefact(DEFAULT_TENANT, "a" * 64, workflows) is is_named
        for workflows, is_named in ((None, True), (("n",), False)):
            assert await store.names_artefact(DEFAULT_TENANT, "b" * 64, workflows) is is_named

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
