"""Workers that fetch their jobs: leases, tokens, late and repeated answers, and restarts in between. Time by hand."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import FlowSpec, RunCancelled, RunFailed, RunHandle
from holdfast.errors import Forbidden, InvalidRequest, NotFound, StoreUnavailable, Superseded, Unavailable
from holdfast.store.batch import Batch
from holdfast.store.records import AssignmentRow
from holdfast.values import RunId, RunNo
from holdfast.workers.assignment import Assignment, id_of
from holdfast.workers.pull import Offer
from tests.runtime.bench import Bench, rows, started
from tests.runtime.bench import opened as opened_with
from tests.runtime.manual import by_hand, clock, settled

T = "default"
opened = partial(opened_with, worker_lease_secs=30)


def step(**more: Any) -> str:
    body: dict[str, Any] = {"id": "a", "service": "work", "input": [1, 2], "params": {"k": 2}, **more}
    return msgspec.json.encode({"name": "n", "steps": [body]}).decode()


async def register(engine: Bench, *names: str) -> None:
    for name in names or ("w",):
        await engine.workers.register(T, name, None, ["work"], "pull")


async def fetched(engine: Bench, worker: str = "w", **how: Any) -> Offer:
    """The one job that there is for a worker."""
    (offer,) = (await clock().until(engine.workers.poll(T, worker, **how))).assignments
    return offer


async def leased(engine: Bench) -> tuple[RunHandle, Offer]:
    """A run whose job the worker `w` has fetched."""
    await register(engine)
    run = await engine.begin(step())
    return run, await fetched(engine)


async def complete(engine: Bench, offer: Offer, result: Any = 42, **answer: Any) -> None:
    await engine.workers.complete(T, offer.id, offer.token, result, **answer)


def left(path: Path) -> int:
    ((count,),) = rows(path, "SELECT count(*) FROM assignment")
    return int(count)


# --------------------------------------------------------------------------------------------------- fetch, answer


@by_hand
async def test_a_job_is_fetched_and_its_answer_is_the_output(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        assert (offer.run_id, offer.path, offer.attempt, offer.service) == (run.id, "a", 1, "work")
        assert (bytes(offer.input), bytes(offer.params)) == (b"[1,2]", b'{"k":2}')
        assert len(offer.idempotency_key) == 64 and offer.lease_secs == 30
        await complete(engine, offer, {"n": 1})
        assert await run.result() == {"a": {"n": 1}}
        await settled()
    assert left(tmp_path) == 0
    assert '["w","",' in rows(tmp_path, "SELECT body FROM journal WHERE kind = 'step_succeeded'")[0][0]


@by_hand
async def test_a_poll_waits_for_the_first_job(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        polling = asyncio.ensure_future(engine.workers.poll(T, "w", wait_secs=60))
        await clock().advance(20)
        assert not polling.done()
        assert len(engine.workers.list(T)) == 1, "whoever waits for jobs is alive"
        await engine.begin(step())
        await settled()
        assert len((await polling).assignments) == 1


@by_hand
async def test_a_poll_gives_up_when_its_time_is_over_or_the_server_leaves(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        assert (await clock().until(engine.workers.poll(T, "w", wait_secs=5))).assignments == []
        leaving = asyncio.Event()
        polling = asyncio.ensure_future(engine.workers.poll(T, "w", wait_secs=60, leaving=leaving))
        await settled()
        leaving.set()
        await settled()
        assert polling.done()


@by_hand
async def test_a_poll_gives_out_a_batch_the_oldest_first(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        runs = [await engine.begin(step()) for _ in range(5)]
        await settled()
        first = (await engine.workers.poll(T, "w", limit=3)).assignments
        rest = (await engine.workers.poll(T, "w", limit=100)).assignments
        assert [offer.run_id for offer in (*first, *rest)] == [run.id for run in runs]
        assert len(first) == 3


@by_hand
async def test_a_job_is_on_disk_with_its_token_before_anybody_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.begin(step())
        await settled()
        engine.store.hold = True
        polling = asyncio.ensure_future(engine.workers.poll(T, "w"))
        await settled()
        assert not polling.done()
        engine.store.let_go()
        (offer,) = (await polling).assignments
        assert rows(tmp_path, "SELECT worker, token FROM assignment") == [("w", offer.token)]


@by_hand
async def test_a_job_whose_lease_cannot_be_written_stays_on_offer(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step())
        await settled()
        engine.store.refuse = lambda batch: StoreUnavailable("full") if batch.assignments else None
        with pytest.raises(StoreUnavailable):
            await engine.workers.poll(T, "w")
        engine.store.refuse = lambda batch: None
        await complete(engine, await fetched(engine))
        assert await run.result() == {"a": 42}


@by_hand
async def test_an_answer_is_acknowledged_when_it_is_durable_and_not_before(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        engine.store.hold = True
        answering = asyncio.ensure_future(complete(engine, offer))
        await settled()
        assert not answering.done()
        engine.store.let_go()
        await answering
        assert await run.result() == {"a": 42}


@by_hand
async def test_an_answer_that_could_not_be_written_can_be_given_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)

        def refuse(batch: Batch) -> StoreUnavailable | None:
            return StoreUnavailable("full") if batch.rows or batch.is_probe else None

        engine.store.refuse = refuse
        with pytest.raises(Unavailable):
            await complete(engine, offer)
        engine.store.refuse = lambda batch: None
        await clock().advance(1)
        await complete(engine, offer)
        assert await run.result() == {"a": 42}
    assert left(tmp_path) == 0


@by_hand
async def test_an_answer_that_is_refused_while_nothing_can_be_written_can_be_given_again(
    tmp_path: Path,
) -> None:
    """Nothing of its own run failed to be written: the store was away already, because of another."""
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        engine.store.refuse = lambda batch: StoreUnavailable("full")
        with pytest.raises(StoreUnavailable):
            await engine.begin(step())
        with pytest.raises(Unavailable):
            await complete(engine, offer)
        engine.store.refuse = lambda batch: None
        await clock().advance(6)
        await complete(engine, offer)
        assert await run.result() == {"a": 42}
    assert left(tmp_path) == 0


@by_hand
async def test_what_is_written_again_after_a_failure_does_not_undo_what_came_after_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.begin(step())
        await settled()
        writes, row = engine.workers.writes, AssignmentRow(RunNo(1), "a", 1, "work")
        failures = [StoreUnavailable("full")]
        engine.store.refuse = lambda batch: failures.pop() if failures else None
        engine.store.hold = True
        for token in ("first", "second"):
            writes.batch.assignments.append(msgspec.structs.replace(row, worker="w", token=token))
            writes.soon()
            await settled()
        engine.store.let_go()
        await clock().advance(6)
        assert rows(tmp_path, "SELECT worker, token FROM assignment") == [("w", "second")]


@by_hand
async def test_a_worker_that_says_it_failed_fails_the_attempt(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(
            step(retry={"max_attempts": 2, "initial_delay_ms": 0, "retry_on": ["quota"]})
        )
        await complete(engine, await fetched(engine), None, error="no more", error_kind="quota")
        again = await fetched(engine)
        assert again.attempt == 2
        await complete(engine, again, None, error="broken")
        with pytest.raises(RunFailed, match="broken") as failed:
            await run.result()
        assert failed.value.error.kind == "worker_error"


# ------------------------------------------------------------------------------------------------- late and again


@by_hand
async def test_the_same_answer_twice_counts_once_and_is_welcome(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        await asyncio.gather(complete(engine, offer), complete(engine, offer))
        await complete(engine, offer)
        with pytest.raises(Superseded):
            await complete(engine, offer, 43)
        assert await run.result() == {"a": 42}


@by_hand
async def test_a_job_whose_lease_is_over_is_another_workers(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine, "w", "v")
        run = await engine.begin(step())
        first = await fetched(engine)
        await clock().advance(10)
        engine.workers.heartbeat(T, "v")
        await clock().advance(10)
        engine.workers.heartbeat(T, "v")
        await clock().advance(11)
        second = await fetched(engine, "v")
        assert (second.id, second.attempt) == (first.id, first.attempt)
        assert second.token != first.token
        for late in (complete(engine, first, "late"), engine.workers.job_heartbeat(T, first.id, first.token)):
            with pytest.raises(Superseded):
                await late
        await complete(engine, second, "right")
        assert await run.result() == {"a": "right"}


@by_hand
async def test_a_heartbeat_keeps_the_lease_and_tells_progress(tmp_path: Path) -> None:
    from holdfast.workers.pull import Progress

    heard: list[dict[str, Any]] = []
    async with opened(tmp_path, [], clock()) as engine:
        engine.dispatch.contexts.hearers.append(
            lambda no, path, attempt, kind, data: heard.append({kind: data})
        )
        run, offer = await leased(engine)
        for done in (1, 2, 3):
            await clock().advance(29)
            renewed = await engine.workers.job_heartbeat(
                T, offer.id, offer.token, Progress(done, 4, "so far")
            )
            assert (renewed.lease_secs, renewed.cancel) == (30, False)
        await complete(engine, offer)
        assert await run.result() == {"a": 42}
    assert [each["progress"]["fraction"] for each in heard] == [0.25, 0.5, 0.75]


@by_hand
async def test_five_workers_in_turn_may_fall_silent_with_a_job_and_no_more(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step())
        for _ in range(5):
            await fetched(engine)
            await clock().advance(20)
            engine.workers.heartbeat(T, "w")
            await clock().advance(11)
            engine.workers.heartbeat(T, "w")
        with pytest.raises(RunFailed) as failed:
            await clock().until(run.result())
        assert failed.value.error.kind == "lost"
        await settled()
    assert left(tmp_path) == 0


@by_hand
async def test_what_must_not_be_done_twice_is_lost_with_its_first_lease(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(on_crash="fail"))
        await fetched(engine)
        await clock().advance(31)
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.kind == "lost"


@by_hand
async def test_a_lease_counts_from_when_the_server_could_listen_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(on_crash="fail", timeout_secs=90))
        offer = await fetched(engine)
        await clock().advance(14)  # a second before the worker counts as gone
        clock().seconds += 100  # the process was stopped: no timer fired meanwhile
        await clock().advance(14)
        assert [worker.id for worker in engine.workers.list(T)] == ["w"]
        await clock().advance(15)
        await complete(engine, offer)
        assert await run.result() == {"a": 42}


@by_hand
async def test_a_lease_ends_after_a_pause_as_it_would_have_without_one(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(on_crash="fail"))
        await fetched(engine)
        for _ in range(10):
            await clock().advance(3)
            clock().seconds += 2
        with pytest.raises(RunFailed) as failed:
            await clock().until(run.result(), at_most=5)
        assert failed.value.error.kind == "lost"


@by_hand
async def test_a_lease_begins_when_it_is_durable_who_has_the_job(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(on_crash="fail"))
        slow, submit = list[Any](), engine.store.submit
        engine.store.submit = lambda batch, done: slow.append((batch, done))  # type: ignore[method-assign]
        polling = asyncio.ensure_future(engine.workers.poll(T, "w"))
        await clock().advance(40)  # the sync takes longer than a lease
        engine.store.submit = submit  # type: ignore[method-assign]
        for batch, done in slow:
            submit(batch, done)
        (offer,) = (await clock().until(polling)).assignments
        await clock().advance(29)
        await complete(engine, offer)
        assert await run.result() == {"a": 42}


@by_hand
async def test_a_job_that_no_worker_is_left_for_fails_after_their_time_if_it_may_not_wait(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(on_no_worker="fail"))
        began = clock().seconds
        with pytest.raises(RunFailed) as failed:
            await clock().until(run.result(), at_most=60)
        assert failed.value.error.kind == "no_worker"
        assert 30 <= clock().seconds - began <= 33  # until the worker is stale, and as long again
        await settled()
    assert left(tmp_path) == 0


@by_hand
async def test_the_time_of_a_call_counts_from_its_being_fetched(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(timeout_secs=5))
        await clock().advance(10)
        offer = await fetched(engine)
        for _ in range(4):
            await clock().advance(1)
            await engine.workers.job_heartbeat(T, offer.id, offer.token)
        await clock().advance(2)
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.kind == "timeout"
        with pytest.raises(Superseded):
            await complete(engine, offer)


@by_hand
async def test_a_late_answer_stands_in_the_journal_of_its_open_run_once(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step(timeout_secs=5, retry={"max_attempts": 2, "initial_delay_ms": 0}))
        first = await fetched(engine)
        for _ in range(4):
            await clock().advance(1)
            await engine.workers.job_heartbeat(T, first.id, first.token)
        second = await fetched(engine, wait_secs=5)
        for _ in range(2):
            with pytest.raises(Superseded):
                await complete(engine, first, "late")
        with pytest.raises(Superseded):
            await engine.workers.complete(T, first.id, "a token that nobody had", "forged")
        await complete(engine, second, "right")
        assert await run.result() == {"a": "right"}
    told = rows(tmp_path, "SELECT body FROM journal WHERE kind = 'step_succeeded'")
    assert [("late" in body, "right" in body) for (body,) in told] == [(True, False), (False, True)]


def by_number(no: int, path: str, attempt: int) -> str:
    """The id of a job as release 0.3 gave it out."""
    return "asg-" + base64.urlsafe_b64encode(msgspec.json.encode((no, path, attempt))).rstrip(b"=").decode()


@by_hand
async def test_the_id_of_a_job_does_not_depend_on_how_many_runs_there_are(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.begin(step())
        offer = await fetched(engine)
        text = offer.id.removeprefix("asg-")
        said = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        assert said == [offer.run_id, "a", 1]


@pytest.mark.parametrize("killed", [False, True])
@by_hand
async def test_a_job_that_was_given_out_under_its_old_id_is_answered_by_it(
    tmp_path: Path, killed: bool
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.begin(step())
        offer = await fetched(engine)
        ((no,),) = rows(tmp_path, "SELECT no FROM run")
        old = msgspec.structs.replace(offer, id=by_number(no, "a", 1))
        if not killed:
            await engine.workers.job_heartbeat(T, old.id, old.token)
            with pytest.raises(NotFound):
                await engine.workers.complete("other", old.id, old.token, 1)
            await complete(engine, old)
        else:
            engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await clock().advance(2)
        await complete(engine, old)
        await complete(engine, offer)
        await settled()
    assert rows(tmp_path, "SELECT status FROM run") == [("completed",)]


@by_hand
async def test_names_of_jobs_that_never_were_are_not_found(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        never = (by_number(10**30, "a", 1), by_number(1, "a", 1), id_of(RunId("run-1"), "a", 1))
        for name in ("", "x", "asg-", "asg-!!", "asg-W10", "ä", *never):
            with pytest.raises(NotFound):
                await engine.workers.complete(T, name, "t", 1)


@by_hand
async def test_the_row_of_a_job_is_gone_with_the_commit_of_its_answer(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.begin(step())
        await complete(engine, await fetched(engine))
        engine.crash()
    assert left(tmp_path) == 0


@by_hand
@pytest.mark.parametrize("after", [[], [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]])
async def test_an_answer_whose_acknowledgement_was_lost_with_the_engine_may_be_said_again(
    tmp_path: Path, after: list[Any]
) -> None:
    """Whether the run is over by then, or lies and waits for something else."""
    definition = {"name": "n", "steps": [{"id": "a", "service": "work"}, *after]}
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.begin(msgspec.json.encode(definition).decode())
        offer = await fetched(engine)
        await complete(engine, offer)
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await complete(engine, offer)
        with pytest.raises(Superseded):
            await complete(engine, offer, 43)
        with pytest.raises(Superseded):
            await engine.workers.complete(T, offer.id, "a token that nobody had", 42)
    assert rows(tmp_path, "SELECT count(*) FROM journal WHERE kind = 'step_succeeded'") == [(1,)]


@by_hand
async def test_an_answer_for_a_run_that_is_over_is_told_so(tmp_path: Path) -> None:
    """Its grace is over, and that of its job, which began with a slow commit, is not."""
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        engine.store.lag = lambda: 0.5
        cancelling = asyncio.ensure_future(engine.runs.cancel(run.id))
        await settled()
        await clock().advance(0.6)
        await cancelling
        engine.store.lag = lambda: 0.0
        await clock().advance(9.6)
        assert await run.status() == "cancelled"
        with pytest.raises(Superseded, match="has finished"):
            await complete(engine, offer)
    assert left(tmp_path) == 0


@by_hand
async def test_an_answer_for_a_run_that_was_set_aside_is_asked_for_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        row = await engine.runs.row_of(run.id)
        engine.door.residents.pop(row.no)
        engine.door.set_aside(row.no, AssertionError("a defect"))
        with pytest.raises(Unavailable, match="set aside"):
            await complete(engine, offer)
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await settled()
        await complete(engine, offer)
        assert await (await engine.attach(run.id)).result() == {"a": 42}


# --------------------------------------------------------------------------------------------------------- stopping


@by_hand
async def test_a_cancel_reaches_the_worker_and_waits_for_its_answer(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        polling = asyncio.ensure_future(engine.workers.poll(T, "w", wait_secs=60))
        await settled()
        await engine.runs.cancel(run.id)
        assert (await engine.workers.job_heartbeat(T, offer.id, offer.token)).cancel
        assert (await polling).cancel == [offer.id]
        assert await run.status() == "cancelling"
        await complete(engine, offer, None, error="stopped")
        with pytest.raises(RunCancelled):
            await run.result()
        await settled()
    assert left(tmp_path) == 0


@by_hand
async def test_a_worker_that_does_not_stop_holds_a_cancel_no_longer_than_the_grace(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        await engine.runs.cancel(run.id)
        await clock().advance(11)
        assert await run.status() == "cancelled"
        with pytest.raises(Superseded):
            await complete(engine, offer)
    assert left(tmp_path) == 0


@by_hand
async def test_a_job_that_nobody_fetched_is_cancelled_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step())
        await settled()
        await engine.runs.cancel(run.id)
        await settled()
        assert await run.status() == "cancelled"
        assert (await engine.workers.poll(T, "w")).assignments == []
    assert left(tmp_path) == 0


# --------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("how", ["crash", "close"])
@by_hand
async def test_a_job_at_a_worker_outlives_the_engine_and_is_not_done_again(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        if how == "crash":
            engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await settled()
        assert (await engine.workers.poll(T, "w")).assignments == []
        assert not (await engine.workers.job_heartbeat(T, offer.id, offer.token)).cancel
        await complete(engine, offer)
        assert await (await engine.attach(run.id)).result() == {"a": 42}
        await settled()
    assert left(tmp_path) == 0
    assert rows(tmp_path, "SELECT count(*) FROM journal WHERE body LIKE '%\"start\"%'") == [(1,)]


@by_hand
async def test_a_job_that_was_only_offered_is_offered_again_after_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(step())
        await settled()
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        offer = await fetched(engine, wait_secs=5)
        assert offer.attempt == 1
        await complete(engine, offer)
        assert await (await engine.attach(run.id)).result() == {"a": 42}


@by_hand
async def test_the_lease_begins_anew_with_the_engine_and_ends_too(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine, "w", "v")
        run = await engine.begin(step())
        await fetched(engine)
        await clock().advance(29)
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await clock().advance(10)
        engine.workers.heartbeat(T, "v")
        assert (await engine.workers.poll(T, "v")).assignments == []
        await clock().advance(21)
        await complete(engine, await fetched(engine, "v"))
        assert await (await engine.attach(run.id)).result() == {"a": 42}


@by_hand
async def test_an_answer_before_the_run_is_taken_up_is_asked_for_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        with pytest.raises(Unavailable, match="again"):
            await complete(engine, offer)
        await settled()
        await complete(engine, offer)
        assert await (await engine.attach(run.id)).result() == {"a": 42}


@by_hand
async def test_a_job_of_a_run_that_was_cancelled_meanwhile_is_nobodys_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run, offer = await leased(engine)
        await engine.runs.cancel(run.id)
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await settled()
        assert await (await engine.attach(run.id)).status() == "cancelled"
        with pytest.raises(Superseded):
            await complete(engine, offer)
    assert left(tmp_path) == 0


@by_hand
async def test_a_time_out_that_was_being_carried_out_goes_on_after_a_restart(tmp_path: Path) -> None:
    two = [{"id": "p", "service": "work", "timeout_secs": 5}, {"id": "q", "service": "work"}]
    definition = {"name": "n", "steps": [{"id": "par", "kind": "parallel", "steps": two}]}
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(msgspec.json.encode(definition).decode())
        await settled()
        offers = {offer.path: offer for offer in (await engine.workers.poll(T, "w", limit=2)).assignments}
        stays, late = offers["par[1].q"], offers["par[0].p"]
        for _ in range(4):
            await clock().advance(1)
            await engine.workers.job_heartbeat(T, late.id, late.token)
        await clock().advance(2)
        assert (await engine.workers.job_heartbeat(T, stays.id, stays.token)).cancel
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await settled()
        assert (await engine.workers.job_heartbeat(T, stays.id, stays.token)).cancel
        await complete(engine, stays, None, error="stopped")
        with pytest.raises(RunFailed) as failed:
            await clock().until((await engine.attach(run.id)).result(), at_most=30)
        assert failed.value.error.kind == "timeout"
        await settled()
    assert left(tmp_path) == 0


# ------------------------------------------------------------------------------------ started, and not yet offered


def killed_after_the_next_commit(engine: Bench) -> None:
    """Keep back all that is to be written after it: a crash loses that."""

    def is_the_last(batch: Batch) -> None:
        engine.store.hold = True

    engine.store.refuse = is_the_last


async def stuck() -> None:
    """Has the one place that there is, so that others wait for it."""
    await asyncio.Event().wait()


SOON = "name: s\nsteps: [{id: t, kind: timer, delay_ms: 1000}, {id: a, service: work}]\noutput: {a: '{{steps.a.output}}'}"
STUCK = "name: s\nsteps: [{id: s, tool: stuck}]"
BRANCHES = [{"id": "p", "service": "work"}, {"id": "q", "service": "work"}]
PARALLEL = {"name": "n", "steps": [{"id": "par", "kind": "parallel", "steps": BRANCHES}]}
GIVEN = {"all": {"kind": "parallel", "params": {"services": "$params.services"}}}


@by_hand
async def test_the_rows_of_jobs_are_in_the_commit_that_starts_their_attempts(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        killed_after_the_next_commit(engine)
        await engine.begin(msgspec.json.encode(PARALLEL).decode())
        engine.crash()
    assert rows(tmp_path, "SELECT path, attempt, service, token FROM assignment ORDER BY path") == [
        ("par[0].p", 1, "work", ""),
        ("par[1].q", 1, "work", ""),
    ]


@by_hand
async def test_what_must_not_be_done_twice_is_not_lost_before_anybody_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        killed_after_the_next_commit(engine)
        run = await engine.begin(step(on_crash="fail"))
        await settled()
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        offer = await fetched(engine, wait_secs=5)
        assert offer.attempt == 1
        await complete(engine, offer)
        assert await (await engine.attach(run.id)).result() == {"a": 42}
        await settled()
    assert left(tmp_path) == 0


@by_hand
async def test_a_job_whose_service_is_named_by_an_input_is_not_lost_before_anybody_has_it(
    tmp_path: Path,
) -> None:
    flow = FlowSpec.from_data({"name": "f", "start": "all", "nodes": GIVEN, "edges": []})
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        killed_after_the_next_commit(engine)
        await started(engine, flow, {"services": ["work"]})
        await settled()
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        offer = await fetched(engine, wait_secs=5)
        assert (offer.path, offer.attempt) == ("all[0].call", 1)


@by_hand
async def test_a_step_that_is_called_has_no_row_of_a_job(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.workers.register(T, "called", "http://127.0.0.1:1", ["work"])
        killed_after_the_next_commit(engine)
        await engine.begin(step())
        engine.crash()
    assert left(tmp_path) == 0


async def waiting_for_a_place(engine: Bench) -> RunHandle:
    """A run whose job is durable, and not offered: the only place is taken."""
    await register(engine)
    await engine.begin(STUCK)
    await settled()
    run = await engine.begin(step())
    await settled()
    return run


@by_hand
async def test_a_job_that_waits_for_a_place_is_offered_after_a_graceful_stop(tmp_path: Path) -> None:
    async with opened(tmp_path, [stuck], clock(), attempts_max=1) as engine:
        run = await waiting_for_a_place(engine)
        assert engine.dispatch.queues.counts["place"] == 1
    async with opened(tmp_path, [stuck], clock()) as engine:
        offer = await fetched(engine, wait_secs=5)
        assert (offer.run_id, offer.attempt) == (run.id, 1)


@by_hand
async def test_a_job_that_waits_for_a_place_goes_with_the_commit_that_cancels_its_run(tmp_path: Path) -> None:
    async with opened(tmp_path, [stuck], clock(), attempts_max=1) as engine:
        run = await waiting_for_a_place(engine)
        assert left(tmp_path) == 1
        await engine.runs.cancel(run.id)
        with pytest.raises(RunCancelled):
            await run.result()
        assert (left(tmp_path), engine.workers.open_assignments()) == (0, 0)


@pytest.mark.parametrize("together", [False, True], ids=["one commit after the other", "one commit"])
@by_hand
async def test_a_job_that_was_cancelled_while_its_start_was_being_written_leaves_no_row(
    tmp_path: Path, together: bool
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(SOON)
        engine.store.hold = True
        if together:  # what comes while another commit is on its way makes one
            other = asyncio.ensure_future(engine.begin(STUCK))
            await settled()
        await clock().advance(1)
        cancelling = asyncio.ensure_future(engine.runs.cancel(run.id))
        await settled()
        engine.store.let_go()
        await cancelling
        with pytest.raises(RunCancelled):
            await run.result()
        if together:
            await other
        assert (left(tmp_path), engine.workers.open_assignments()) == (0, 0)


@by_hand
async def test_a_job_whose_cancel_could_not_be_written_is_offered_all_the_same(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        run = await engine.begin(SOON)
        engine.store.hold = True
        await clock().advance(1)
        cancelling = asyncio.ensure_future(engine.runs.cancel(run.id))
        await settled()
        engine.store.refuse = lambda batch: None if batch.assignments else StoreUnavailable("full")
        engine.store.let_go()
        with pytest.raises(StoreUnavailable):
            await cancelling
        engine.store.refuse = lambda batch: None
        await clock().advance(2)
        await complete(engine, await fetched(engine, wait_secs=5))
        assert await run.result() == {"a": 42}
        await settled()
    assert left(tmp_path) == 0


# -------------------------------------------------------------------------------------------------- who gets what


@by_hand
async def test_a_worker_gets_only_what_it_registered_for_and_asks_for(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.workers.register(T, "x", None, ["else", "more"], "pull")
        await engine.begin(step())
        await settled()
        assert (await engine.workers.poll(T, "x", services=["work"])).assignments == []
        assert (await engine.workers.poll(T, "w", services=["other"])).assignments == []
        assert len((await engine.workers.poll(T, "w", services=["work"])).assignments) == 1


@by_hand
async def test_a_job_of_one_tenant_is_nobodys_in_another(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.workers.register("other", "w", None, ["work"], "pull")
        run = await engine.begin(step())
        offer = await fetched(engine)
        assert (await engine.workers.poll("other", "w")).assignments == []
        for foreign in (
            engine.workers.complete("other", offer.id, offer.token, 1),
            engine.workers.job_heartbeat("other", offer.id, offer.token),
        ):
            with pytest.raises(NotFound):
                await foreign
        await complete(engine, offer)
        assert await run.result() == {"a": 42}


@by_hand
async def test_only_whoever_registered_a_worker_polls_as_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(T, "w", None, ["work"], "pull", key_id="one")
        with pytest.raises(Forbidden):
            await engine.workers.poll(T, "w", key_id="two")
        with pytest.raises(NotFound):
            await engine.workers.poll(T, "nobody")
        await engine.workers.register(T, "called", "http://127.0.0.1:1", ["work"])
        with pytest.raises(InvalidRequest):
            await engine.workers.poll(T, "called")


@by_hand
async def test_those_who_are_called_come_first_and_those_who_fetch_when_nobody_answers(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await register(engine)
        await engine.workers.register(T, "gone", "http://127.0.0.1:1", ["work"])
        run = await engine.begin(step())
        offer = await fetched(engine, wait_secs=30)
        await complete(engine, offer)
        assert await run.result() == {"a": 42}
        await settled()
    assert '["w","",' in rows(tmp_path, "SELECT body FROM journal WHERE kind = 'step_succeeded'")[0][0]


def test_a_job_whose_run_is_not_loaded_yet_has_a_whole_lease() -> None:
    assert Assignment(AssignmentRow(RunNo(1), "s", 1, "price", "w", "token")).lease_secs(10.0) == 10.0
