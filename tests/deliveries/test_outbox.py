"""Final callbacks: the end of a run is told to everyone who asked for it, until they have heard it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import apsw
import pytest

from holdfast import InvalidInputs, NotFound, Refused
from holdfast.deliveries.destinations import DELAYS_SECS, TRYING_SECS
from holdfast.store.records import CallbackDelivery
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT, RunId
from tests.runtime.receiver import Received, Receiver, hub_signature, receiving, standard_signature

DOUBLE = {
    "name": "double",
    "inputs": {"a": {"type": "integer"}},
    "steps": [{"id": "s", "tool": "twice", "args": {"a": "{{inputs.a}}"}}],
    "output": "{{steps.s.output}}",
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def engine(engine: TestEngine) -> TestEngine:
    engine.fake_tool("twice", lambda a: 2 * a)
    return engine


def telling(*destinations: Any) -> dict[str, Any]:
    return {**DOUBLE, "on_complete": [one if isinstance(one, dict) else {"url": one} for one in destinations]}


async def deliveries(engine: TestEngine, run_id: str) -> list[CallbackDelivery]:
    store = (await engine.open())._engine.store
    row = await store.run_by_id(DEFAULT_TENANT, RunId(run_id))
    assert row is not None
    return await store.callback_deliveries_of_run(row.no)


async def delivery(engine: TestEngine, run_id: str) -> CallbackDelivery:
    (only,) = await deliveries(engine, run_id)
    return only


# ------------------------------------------------------------------------------------------------- what is told


async def test_a_final_callback_goes_to_the_destination_of_the_start(
    engine: TestEngine, receiver: Receiver
) -> None:
    run = await engine.start(DOUBLE, {"a": 21}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(seconds=0)
    (told,) = receiver.received
    assert (told.body["run_id"], told.body["status"], told.body["output"]) == (run.id, "completed", 42)
    assert (await delivery(engine, run.id)).outcome == "delivered"


async def test_a_final_callback_goes_to_the_destination_of_the_workflow(
    engine: TestEngine, receiver: Receiver
) -> None:
    run = await engine.start(telling(receiver.url), {"a": 1})
    await engine.finish(run)
    await engine.advance(seconds=0)
    assert [one.body["run_id"] for one in receiver.received] == [run.id]


async def test_the_final_callback_of_a_failed_run_has_its_error(
    engine: TestEngine, receiver: Receiver
) -> None:
    engine.fake_tool("twice", raises=ValueError("no such number"))
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.advance(hours=1)
    (told,) = receiver.received
    assert told.body["status"] == await run.status() == "failed"
    assert "no such number" in told.body["error"]["message"]


async def test_a_cancelled_run_has_a_final_callback(engine: TestEngine, receiver: Receiver) -> None:
    spec = {"name": "long", "steps": [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]}
    run = await engine.start(spec, final_callback=receiver.url)
    await (await engine.open()).cancel(run.id)
    await engine.advance(seconds=0)
    assert [one.body["status"] for one in receiver.received] == ["cancelled"]


async def test_no_callback_is_sent_before_the_run_has_ended(engine: TestEngine, receiver: Receiver) -> None:
    spec = {"name": "long", "steps": [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]}
    run = await engine.start(spec, final_callback=receiver.url)
    await engine.advance(minutes=59)
    assert receiver.received == []
    assert await deliveries(engine, run.id) == []
    await engine.advance(minutes=1)
    assert len(receiver.received) == 1


async def test_a_destination_that_is_named_twice_gets_one_callback(
    engine: TestEngine, receiver: Receiver
) -> None:
    await engine.run(telling(receiver.url, receiver.url), {"a": 1}, final_callback=receiver.url)
    await engine.advance(seconds=0)
    assert len(receiver.received) == 1


async def test_a_rerun_is_told_to_those_who_were_told_of_the_run(
    engine: TestEngine, receiver: Receiver
) -> None:
    first = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(first)
    again = await (await engine.open()).rerun(first.id)
    await engine.advance(seconds=1)
    assert [one.body["run_id"] for one in receiver.received] == [first.id, again.id]
    assert receiver.received[1].body["rerun_of"] == first.id


async def test_a_run_without_destinations_has_no_delivery(engine: TestEngine) -> None:
    run = await engine.start(DOUBLE, {"a": 1})
    await engine.finish(run)
    assert await deliveries(engine, run.id) == []


@pytest.mark.parametrize(
    "given",
    [
        "ftp://x.y/z",
        "",
        "https://",
        "https://x.y:port/",
        "https://x y/",
        "https://user:word@x.y/",
        {"url": "https://x.y", "secret": "s"},
        {"secret_env": "KEY"},
        {"url": 3},
        {"url": "https://x.y", "secret_env": "no name"},
        {"url": "https://x.y", "secret_env": "HOLDFAST_RESUME_SECRET"},
        {"url": "https://x.y/" + "a" * 2_000},
    ],
)
async def test_an_invalid_callback_url_starts_no_run(engine: TestEngine, given: Any) -> None:
    with pytest.raises(InvalidInputs):
        await engine.start(DOUBLE, {"a": 1}, final_callback=given)
    assert await (await engine.open()).runs() == []


# -------------------------------------------------------------------------------------------------- signatures


async def signed(engine: TestEngine, receiver: Receiver) -> Received:
    """The one delivery of a run whose callback is signed with CALLBACK_KEY."""
    await engine.run(DOUBLE, {"a": 1}, final_callback={"url": receiver.url, "secret_env": "CALLBACK_KEY"})
    await engine.advance(seconds=0)
    (told,) = receiver.received
    return told


async def test_a_delivery_is_signed_with_the_secret_that_the_environment_holds(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBACK_KEY", "s3cret")
    told = await signed(engine, receiver)
    assert told.headers["webhook-signature"] == standard_signature(b"s3cret", told)
    assert told.headers["x-hub-signature-256"] == hub_signature(b"s3cret", told)
    assert int(told.headers["webhook-timestamp"]) == engine.clock.now() // 1000


async def test_a_secret_of_standard_webhooks_is_used_as_they_mean_it(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = bytes(range(24))
    secret = "whsec_" + base64.b64encode(key).decode()
    monkeypatch.setenv("CALLBACK_KEY", secret)
    told = await signed(engine, receiver)
    assert told.headers["webhook-signature"] == standard_signature(key, told)
    assert told.headers["x-hub-signature-256"] == hub_signature(secret.encode(), told)


async def test_a_delivery_without_a_secret_is_not_signed(engine: TestEngine, receiver: Receiver) -> None:
    await engine.run(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.advance(seconds=0)
    assert not {"webhook-signature", "x-hub-signature-256"} & receiver.received[0].headers.keys()


async def test_a_delivery_whose_secret_is_missing_is_not_sent_and_says_why(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_KEY", "it is there at the start")
    waits = {**DOUBLE, "steps": [{"id": "t", "kind": "timer", "delay_ms": 1000}, *DOUBLE["steps"]]}
    run = await engine.start(waits, {"a": 1}, final_callback={"url": receiver.url, "secret_env": "NO_KEY"})
    monkeypatch.delenv("NO_KEY")
    await engine.finish(run)
    await engine.advance(seconds=0)
    assert receiver.received == []
    assert "NO_KEY" in (await delivery(engine, run.id)).last_error
    monkeypatch.setenv("NO_KEY", "now it is there")
    await engine.advance(seconds=2)
    assert len(receiver.received) == 1


@pytest.mark.parametrize("where", ["start", "workflow"])
async def test_a_start_whose_callback_could_never_be_signed_is_refused(
    engine: TestEngine, receiver: Receiver, where: str
) -> None:
    callback = {"url": receiver.url, "secret_env": "NO_KEY"}
    spec, given = (DOUBLE, callback) if where == "start" else (telling(callback), None)
    says = r"no secret 'NO_KEY'; set HOLDFAST_SECRET_NO_KEY .* set NO_KEY itself"
    with pytest.raises(InvalidInputs, match=says):
        await engine.start(spec, {"a": 1}, final_callback=given)
    assert await (await engine.open()).runs() == []


async def test_secret_env_names_a_secret_before_a_plain_variable(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBACK_KEY", "plain")
    monkeypatch.setenv("HOLDFAST_SECRET_CALLBACK_KEY", "a secret")
    got = await signed(engine, receiver)
    assert got.headers["x-hub-signature-256"] == hub_signature(b"a secret", got)


@pytest.mark.parametrize("secret", ["whsec_no base64", "whsec_AAA"])
async def test_a_secret_that_is_no_key_is_told(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("CALLBACK_KEY", secret)
    run = await engine.start(
        DOUBLE, {"a": 1}, final_callback={"url": receiver.url, "secret_env": "CALLBACK_KEY"}
    )
    await engine.finish(run)
    await engine.advance(seconds=0)
    found = await delivery(engine, run.id)
    assert "base64" in found.last_error
    assert secret not in found.last_error


# ------------------------------------------------------------------------------------------------- tried again


def test_a_delivery_is_tried_for_three_days_at_growing_distances() -> None:
    assert DELAYS_SECS[:5] == (1, 5, 30, 120, 480)
    assert sum(DELAYS_SECS) == TRYING_SECS == 3 * 24 * 3600
    assert max(DELAYS_SECS) == 12 * 3600
    assert all(later >= earlier for earlier, later in pairwise(DELAYS_SECS[:-1]))


async def test_a_receiver_that_is_down_for_an_hour_gets_its_callback_afterwards(
    engine: TestEngine, receiver: Receiver
) -> None:
    receiver.down()
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(hours=1)
    waiting = await delivery(engine, run.id)
    assert (waiting.tries, waiting.outcome) == (7, None)
    assert "was not sent" in waiting.last_error
    receiver.up()
    await engine.advance(hours=2)
    assert receiver.ids == [waiting.id]
    assert (await delivery(engine, run.id)).outcome == "delivered"


async def test_every_try_has_the_same_id_and_says_the_same(engine: TestEngine, receiver: Receiver) -> None:
    receiver.statuses = [500, 429, 302, 404]
    receiver.headers = {"location": receiver.url}
    await engine.run(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.advance(minutes=5)
    assert len(receiver.received) == 5
    assert len(set(receiver.ids)) == 1
    assert len({one.raw for one in receiver.received}) == 1
    times = [int(one.headers["webhook-timestamp"]) for one in receiver.received]
    assert [later - earlier for earlier, later in pairwise(times)] == [1, 5, 30, 120]


async def test_a_receiver_that_is_gone_is_not_asked_again(engine: TestEngine, receiver: Receiver) -> None:
    receiver.statuses = [410]
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(days=4)
    assert len(receiver.received) == 1
    assert (await delivery(engine, run.id)).outcome == "dead"


async def test_a_delivery_that_fails_for_three_days_is_dead(engine: TestEngine, receiver: Receiver) -> None:
    receiver.down()
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(days=2, hours=23, minutes=59)
    assert (await delivery(engine, run.id)).outcome is None
    await engine.advance(minutes=1, seconds=10)
    dead = await delivery(engine, run.id)
    assert (dead.outcome, dead.tries) == ("dead", len(DELAYS_SECS) + 1)
    receiver.up()
    await engine.advance(days=30)
    assert receiver.received == []


async def test_a_large_answer_does_not_matter(engine: TestEngine, receiver: Receiver) -> None:
    receiver.statuses, receiver.answer = [200], b"x" * 1024 * 1024
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(hours=1)
    assert len(receiver.received) == 1
    assert (await delivery(engine, run.id)).outcome == "delivered"


async def test_a_secret_in_the_query_of_an_address_is_not_in_the_error(
    engine: TestEngine, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=f"{receiver.url}?token=abc123")
    await engine.finish(run)
    await engine.advance(seconds=0)
    assert "abc123" not in (await delivery(engine, run.id)).last_error
    assert receiver.received[0].path == "/ended?token=abc123"


# ------------------------------------------------------------------------------------------------------- order


async def test_deliveries_to_one_address_of_one_run_go_in_their_order(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k")
    receiver.statuses = [500, 500]
    run = await engine.start(telling(receiver.url, {"url": receiver.url, "secret_env": "KEY"}), {"a": 1})
    await engine.finish(run)
    await engine.advance(minutes=1)
    first, second = await deliveries(engine, run.id)
    assert receiver.ids == [first.id, first.id, first.id, second.id]


async def test_one_destination_that_is_down_does_not_keep_the_others_waiting(
    engine: TestEngine, receiver: Receiver
) -> None:
    with receiving() as away:
        away.down()
        run = await engine.start(telling(away.url, receiver.url), {"a": 1})
        await engine.finish(run)
        await engine.advance(seconds=0)
        assert receiver.ids == [(await deliveries(engine, run.id))[1].id]


async def test_a_hundred_runs_have_one_final_callback_each(engine: TestEngine, receiver: Receiver) -> None:
    runs = [await engine.start(DOUBLE, {"a": n}, final_callback=receiver.url) for n in range(100)]
    await engine.advance(seconds=0)
    assert sorted(one.body["run_id"] for one in receiver.received) == sorted(run.id for run in runs)


# ----------------------------------------------------------------------------------------------------- crashes


async def test_a_delivery_survives_the_end_of_the_process(engine: TestEngine, receiver: Receiver) -> None:
    receiver.down()
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    receiver.up()
    await engine.restart()
    await engine.advance(seconds=1)
    assert [one.body["run_id"] for one in receiver.received] == [run.id]


async def test_the_destinations_of_a_run_survive_the_end_of_the_process(
    engine: TestEngine, receiver: Receiver
) -> None:
    spec = {"name": "long", "steps": [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]}
    run = await engine.start(spec, final_callback=receiver.url)
    await engine.restart()
    await engine.advance(hours=1)
    assert [one.body["run_id"] for one in receiver.received] == [run.id]


async def test_a_run_that_is_interrupted_by_a_restart_has_a_final_callback(
    engine: TestEngine, receiver: Receiver
) -> None:
    steps = [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]
    await engine.start(
        {"name": "long", "on_restart": "interrupt", "steps": steps}, final_callback=receiver.url
    )
    await engine.restart()
    await engine.advance(seconds=0)
    assert [one.body["status"] for one in receiver.received] == ["interrupted"]


async def test_time_without_an_engine_does_not_make_a_delivery_dead(
    engine: TestEngine, receiver: Receiver
) -> None:
    receiver.down()
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    engine.close()
    engine.clock.seconds += 30 * 86_400
    await engine.advance(seconds=0)
    assert (await delivery(engine, run.id)).outcome is None
    receiver.up()
    await engine.advance(minutes=1)
    assert len(receiver.received) == 1


# ------------------------------------------------------------------------------------------------ dead letters


async def dead_one(engine: TestEngine, receiver: Receiver) -> CallbackDelivery:
    receiver.statuses = [410]
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(seconds=0)
    return await delivery(engine, run.id)


async def test_a_dead_letter_that_is_replayed_is_sent_again_under_its_id(
    engine: TestEngine, receiver: Receiver
) -> None:
    dead = await dead_one(engine, receiver)
    receiver.statuses = [500]
    outbox = (await engine.open())._engine.outbox
    await outbox.replay(DEFAULT_TENANT, dead.id)
    await engine.advance(seconds=2)
    assert receiver.ids == [dead.id] * 3
    assert (await delivery(engine, dead.run_id)).outcome == "delivered"


async def test_a_dead_letter_that_is_discarded_is_not_listed_and_not_sent(
    engine: TestEngine, receiver: Receiver
) -> None:
    dead = await dead_one(engine, receiver)
    hf = await engine.open()
    assert await hf._engine.store.dead_letters(DEFAULT_TENANT, 0, 10) == [dead]
    await hf._engine.outbox.discard(DEFAULT_TENANT, dead.id)
    await engine.advance(days=1)
    assert await hf._engine.store.dead_letters(DEFAULT_TENANT, 0, 10) == []
    assert len(receiver.received) == 1


async def test_only_a_dead_letter_can_be_replayed_or_discarded(
    engine: TestEngine, receiver: Receiver
) -> None:
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(seconds=0)
    outbox, known = (await engine.open())._engine.outbox, await delivery(engine, run.id)
    with pytest.raises(Refused, match="delivered"):
        await outbox.replay(DEFAULT_TENANT, known.id)
    with pytest.raises(Refused, match="delivered"):
        await outbox.discard(DEFAULT_TENANT, known.id)


@pytest.mark.parametrize("tenant", [DEFAULT_TENANT, "other"])
async def test_a_delivery_of_another_tenant_is_not_there(
    engine: TestEngine, receiver: Receiver, tenant: str
) -> None:
    dead = await dead_one(engine, receiver)
    outbox = (await engine.open())._engine.outbox
    named = "msg_nothing" if tenant == DEFAULT_TENANT else dead.id
    with pytest.raises(NotFound):
        await outbox.replay(tenant, named)
    with pytest.raises(NotFound):
        await outbox.discard(tenant, named)
    assert (await delivery(engine, dead.run_id)).outcome == "dead"


# ---------------------------------------------------------------------------------------------------- the guard


async def test_a_private_address_is_not_called_where_calls_are_guarded(
    engine: TestEngine, receiver: Receiver
) -> None:
    engine.options = {"allow_networks": []}
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(days=4)
    assert receiver.received == []
    dead = await delivery(engine, run.id)
    assert dead.outcome == "dead"
    assert "not a public address" in dead.last_error


async def test_a_network_that_is_allowed_is_called(engine: TestEngine, receiver: Receiver) -> None:
    engine.options = {"allow_networks": ["127.0.0.0/8"]}
    await engine.run(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.advance(seconds=0)
    assert len(receiver.received) == 1


# ------------------------------------------------------------------------------------------------------ upkeep


async def test_a_run_is_kept_until_its_final_callback_is_delivered(
    engine: TestEngine, receiver: Receiver
) -> None:
    engine.options = {"retention_days": 1}
    receiver.statuses = [503] * 11
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(days=1, hours=22)
    assert await run.status() == "completed"
    await engine.advance(days=1)
    assert receiver.received[-1].body["run_id"] == run.id
    with pytest.raises(NotFound):
        await run.status()


async def found_by_doctor(engine: TestEngine) -> list[str]:
    store: Any = (await engine.open())._engine.store
    return [problem for name in store.checks() for problem in await store.check(name)]


async def test_the_doctor_finds_nothing_wrong_with_deliveries(engine: TestEngine, receiver: Receiver) -> None:
    spec = {"name": "long", "steps": [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]}
    await engine.start(spec, final_callback=receiver.url)
    await dead_one(engine, receiver)
    await engine.run(DOUBLE, {"a": 1}, final_callback=receiver.url)
    assert await found_by_doctor(engine) == []


async def test_the_doctor_finds_a_finished_run_without_its_delivery(
    engine: TestEngine, receiver: Receiver
) -> None:
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    engine.close()
    with closing(apsw.Connection(str(engine.file))) as db:
        db.execute("DELETE FROM outbox")
    assert await found_by_doctor(engine) == [
        f"run {run.id} is completed, has 1 destinations and 0 deliveries"
    ]


# ------------------------------------------------------------------------------------------------- a store away


async def test_a_result_that_cannot_be_written_is_written_later_and_not_sent_twice(
    engine: TestEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await engine.start(DOUBLE, {"a": 1})
    await engine.finish(run)
    dead = await dead_one(engine, receiver)
    hf = await engine.open()
    await hf._engine.outbox.replay(DEFAULT_TENANT, dead.id)
    with closing(apsw.Connection(str(engine.file))) as other:
        other.execute("BEGIN IMMEDIATE")
        # Whoever waits for the store is not waited for as long as usual: it waits for time to move.
        monkeypatch.setattr(TestEngine, "patience_seconds", lambda engine: 0.5)
        while len(receiver.ids) < 2:
            await asyncio.sleep(0)
        await engine.advance(seconds=3)
        assert receiver.ids == [dead.id] * 2
        other.execute("ROLLBACK")
    await engine.advance(seconds=3)
    assert receiver.ids == [dead.id] * 2
    assert (await delivery(engine, dead.run_id)).outcome == "delivered"


async def test_a_wall_clock_that_is_set_back_does_not_hold_up_deliveries(
    engine: TestEngine, receiver: Receiver
) -> None:
    receiver.statuses = [503]
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(seconds=0)
    assert len(receiver.received) == 1
    engine.clock.wall_offset_ms -= 5 * 3_600_000
    await engine.advance(seconds=2 * DELAYS_SECS[0] + 1)
    assert len(receiver.received) == 2
    assert (await delivery(engine, run.id)).outcome == "delivered"


async def test_a_wall_clock_that_was_set_back_before_a_restart_does_not_hold_up_deliveries(
    engine: TestEngine, receiver: Receiver
) -> None:
    receiver.statuses = [503]
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(seconds=0)
    engine.clock.wall_offset_ms -= 5 * 3_600_000
    await engine.restart()
    await engine.advance(seconds=2 * DELAYS_SECS[0] + 1)
    assert len(receiver.received) == 2
    assert (await delivery(engine, run.id)).outcome == "delivered"


async def test_a_callback_carries_the_time_of_the_wall_clock_after_it_was_set_back(
    engine: TestEngine, receiver: Receiver
) -> None:
    engine.clock.wall_offset_ms -= 5 * 3_600_000
    run = await engine.start(DOUBLE, {"a": 1}, final_callback=receiver.url)
    await engine.finish(run)
    await engine.advance(seconds=0)
    (told,) = receiver.received
    assert int(told.headers["webhook-timestamp"]) == engine.clock.now() // 1000
    assert (await delivery(engine, run.id)).done_at == engine.clock.now()
