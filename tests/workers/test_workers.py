"""Workers that are called: which one, in what order, what their answers mean, and what they can do to us. Real sockets."""

from __future__ import annotations

import asyncio
import gzip
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import RunFailed, tool
from holdfast.api.services import Services
from holdfast.engine.codec import decode_row
from holdfast.engine.events import StepFailed, StepSucceeded
from holdfast.errors import Forbidden, InvalidInputs, NotFound
from holdfast.runtime.clock import SystemClock
from holdfast.tools.guard import Guard, Target
from holdfast.values import RunNo
from tests.runtime.bench import Bench, opened, rows
from tests.runtime.manual import by_hand, clock, settled
from tests.runtime.served import Asked, Served, failing, raw, said, served, silent

pytestmark = pytest.mark.anyio

T = "default"
DONE = said({"result": {"n": 1}, "error": ""})


def step(**more: Any) -> str:
    """A workflow of one call of the service `work`."""
    body: dict[str, Any] = {"id": "a", "service": "work", "input": [1, "é"], "params": {"k": 2}, **more}
    return msgspec.json.encode({"name": "n", "steps": [body]}).decode()


async def register(engine: Bench, *workers: Served, services: tuple[str, ...] = ("work",)) -> None:
    for number, worker in enumerate(workers, 1):
        await engine.workers.register(T, f"w{number}", worker.url, services)


async def failure(engine: Bench, definition: str) -> Any:
    run = await engine.begin(definition)
    with pytest.raises(RunFailed) as failed:
        await run.result(timeout=120)
    return failed.value.error


async def done_by(engine: Bench, definition: str) -> tuple[Any, list[str]]:
    """What a run gave, and which worker each event of it names."""
    run = await engine.begin(definition)
    output = await run.result(timeout=120)
    journal = await engine.store.journal((await engine.runs.row_of(run.id)).no, 0, 1_000)
    events = [decode_row(body)[0] for *_, body in journal]
    told = [event for event in events if isinstance(event, StepSucceeded | StepFailed)]
    return output, [event.worker[0] for event in told if event.worker]


# ---------------------------------------------------------------------------------------------------- the protocol


async def test_a_worker_is_sent_the_input_and_the_params_and_nothing_else(tmp_path: Path) -> None:
    async with served(DONE) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        assert (await done_by(engine, step()))[0] == {"a": {"n": 1}}
    (asked,) = worker.asked
    assert asked.line == "POST /exec/work HTTP/1.1"
    assert asked.body == '{"input":[1,"é"],"params":{"k":2}}'.encode()
    assert asked.headers["content-type"] == "application/json"
    assert len(asked.headers["idempotency-key"]) == 64


async def test_every_attempt_of_a_step_has_the_same_key_and_other_steps_have_others(tmp_path: Path) -> None:
    async with served(failing()) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        for _ in range(2):
            await failure(engine, step(retry={"max_attempts": 3, "initial_delay_ms": 0}))
    keys = [asked.headers["idempotency-key"] for asked in worker.asked]
    assert len(keys) == 6
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3]


async def test_the_outcome_says_who_did_it(tmp_path: Path) -> None:
    async with served(DONE) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        assert (await done_by(engine, step()))[1] == ["w1"]
        (body,) = rows(tmp_path, "SELECT body FROM journal WHERE kind = 'step_succeeded'")[0]
        assert f'["w1","{worker.url}"]' in body


async def test_connections_are_kept(tmp_path: Path) -> None:
    async with served(DONE) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        for _ in range(5):
            await done_by(engine, step())
    assert (len(worker.asked), worker.connections) == (5, 1)


async def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [], SystemClock()) as engine:

        async def once(asked: Asked) -> bytes | None:
            """Answers, and closes on whoever comes a second time over the same connection."""
            return await DONE(asked) if len(worker.asked) != 2 else None

        async with served(once) as worker:
            await register(engine, worker)
            assert (await done_by(engine, step()))[0] == (await done_by(engine, step()))[0]
        assert len(worker.asked) == 3


@pytest.mark.parametrize("status", [201, 404, 500])
async def test_the_status_of_an_answer_says_nothing(tmp_path: Path, status: int) -> None:
    answer = said({"result": 7, "error": ""}, status=status)
    async with served(answer) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        assert (await done_by(engine, step()))[0] == {"a": 7}


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async with served(DONE) as other, opened(tmp_path, [], SystemClock()) as engine:
        away = raw(f"HTTP/1.1 307 X\r\nLocation: {other.url}/exec/work\r\nContent-Length: 0\r\n\r\n".encode())
        async with served(away) as worker:
            await register(engine, worker)
            assert (await failure(engine, step())).kind == "unknown"
    assert other.asked == []


async def test_an_answer_in_chunks_and_one_that_ends_with_its_connection_are_read(tmp_path: Path) -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"result"\r\n4\r\n: 1}\r\n0\r\n\r\n'
    async with opened(tmp_path, [], SystemClock()) as engine:
        async with served(raw(chunked)) as worker:
            await register(engine, worker)
            assert (await done_by(engine, step()))[0] == {"a": 1}

        class Closing(Served):
            async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
                await super()._answered(reader, writer)
                writer.write_eof()
                return False

        closing = Closing(raw(b'HTTP/1.0 200 OK\r\n\r\n{"result": 2}'))
        await closing.start()
        await register(engine, closing)
        assert (await done_by(engine, step()))[0] == {"a": 2}
        await closing.stop()


async def test_a_result_that_looks_like_one_of_our_own_marks_stays_data(tmp_path: Path) -> None:
    text = '{"result": {"\\u0024blob" : "x", "$secret": "y", "t": "{{secrets.z}}"}}'
    async with served(said(text)) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        output, _ = await done_by(engine, step())
    assert output == {"a": {"$blob": "x", "$secret": "y", "t": "{{secrets.z}}"}}


# ------------------------------------------------------------------------------------------------------- fail-over


async def test_a_worker_that_says_it_failed_hands_on_to_the_next(tmp_path: Path) -> None:
    async with (
        served(failing()) as bad,
        served(DONE) as good,
        opened(tmp_path, [], SystemClock()) as engine,
    ):
        await register(engine, bad, good)
        assert await done_by(engine, step()) == ({"a": {"n": 1}}, ["w2"])


async def test_after_all_have_failed_the_last_error_is_named_with_its_kind(tmp_path: Path) -> None:
    async with (
        served(failing("first")) as one,
        served(failing("second", "quota")) as two,
        opened(tmp_path, [], SystemClock()) as engine,
    ):
        await register(engine, one, two)
        error = await failure(engine, step())
    assert (error.kind, error.message) == ("quota", "all workers failed: second")


async def test_an_error_without_a_kind_is_a_worker_error(tmp_path: Path) -> None:
    async with served(failing("x")) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        assert (await failure(engine, step())).kind == "worker_error"


async def test_max_attempts_bounds_how_many_may_fail(tmp_path: Path) -> None:
    async with (
        served(failing()) as one,
        served(failing()) as two,
        served(DONE) as three,
        opened(tmp_path, [], SystemClock()) as engine,
    ):
        await register(engine, one, two, three)
        assert (await failure(engine, step(max_attempts=2))).kind == "worker_error"
    assert [len(worker.asked) for worker in (one, two, three)] == [1, 1, 0]


async def test_without_any_worker_a_step_fails_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, [], SystemClock()) as engine:
        error = await failure(engine, step(on_no_worker="fail"))
    assert error.kind == "no_worker"
    assert error.message.startswith("no worker")


ROUND: dict[str, Any] = {
    "name": "g",
    "start": "a",
    "nodes": {"a": {"kind": "executor", "service": "work"}},
    "edges": [{"from": "a", "action": "default", "to": "a"}],
}


@tool
async def echo(value: Any) -> Any:
    return value


async def rounds(engine: Bench, no: int) -> int:
    return sum(kind == "step_failed" for *_, kind, _ in await engine.store.journal(RunNo(no), 0, 1_000))


@by_hand
async def test_a_cycle_that_finds_nobody_again_and_again_waits_longer_each_time(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock(), no_worker_wait_ms=0) as engine:
        await Services(engine).commands.start(T, ROUND)
        found = []
        for seconds in (0, 0.1, 0.2, 0.4, 60):
            await clock().advance(seconds)
            found.append(await rounds(engine, 1))
        assert found[:4] == [1, 2, 3, 4]
        assert found[4] < 20


@by_hand
async def test_an_attempt_that_waits_for_a_worker_goes_to_the_first_that_comes(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock(), no_worker_wait_ms=0) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, ROUND)
        await clock().advance(60)
        before = await rounds(engine, 1)
        (reason,) = (await services.queries.explain(T, run.id)).reasons
        assert reason.reason == "no_worker"
        await engine.workers.register(T, "w", None, ["work"], "pull")
        (offer,) = (await engine.workers.poll(T, "w", wait_secs=1)).assignments
        assert (offer.run_id, await rounds(engine, 1)) == (run.id, before)


@by_hand
async def test_an_attempt_that_waits_for_a_worker_takes_no_place(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock(), attempts_max=1) as engine:
        await Services(engine).commands.start(T, ROUND)
        await clock().advance(60)
        other = await engine.begin("name: e\nsteps: [{id: e, tool: echo, args: {value: 1}}]")
        assert await other.result() == {"e": 1}


@pytest.mark.parametrize(
    "lie",
    [
        raw(None),  # closed without a word
        said("{"),
        said("[]"),
        said("{}"),
        said('{"other": 1}'),
        said('{"result": NaN}'),
        said('{"result": 1e999}'),
        said(b'{"result": "\xff"}'),
        said('{"result": ' + "[" * 100 + "]" * 100 + "}"),
        said('{"error": {"not": "text"}}'),
        said('{"data": {"error": ""}}'),
        raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"[" * 27_000_000),
        said('{"result": 1} and more'),
        said(b'\xef\xbb\xbf{"result": 1}'),
        said('{"result": "\\ud800"}'),
        said('{"result": ' + "[" * 200_000),
        said(gzip.compress(b'{"result": 1}')),
        raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
        raw(b"HTTP/1.1 99999 Odd\r\n\r\n"),
        raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Length: 5\r\n\r\n{}"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"),
        raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"186a0\r\n%b\r\n" % (b"[" * 100_000) * 300
        ),
    ],
)
async def test_whoever_lies_is_passed_over(tmp_path: Path, lie: Any) -> None:
    async with served(lie) as liar, served(DONE) as good, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, liar, good)
        assert await done_by(engine, step(attempt_delay_ms=3_600_000)) == ({"a": {"n": 1}}, ["w2"])
    assert len(liar.asked) == 1


async def test_a_large_answer_within_the_limit_is_taken(tmp_path: Path) -> None:
    text = "x" * 10_000_000
    async with served(said({"result": text})) as worker, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, worker)
        assert (await done_by(engine, step()))[0] == {"a": text}


async def test_a_worker_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    async with served(DONE) as good, opened(tmp_path, [], SystemClock()) as engine:
        gone = Served(DONE)
        await gone.start()
        await gone.stop()
        await register(engine, gone, good)
        assert (await done_by(engine, step()))[1] == ["w2"]


async def test_a_worker_that_hangs_is_left_after_its_time_and_sees_it(tmp_path: Path) -> None:
    async with (
        served(silent) as hung,
        served(DONE) as good,
        opened(tmp_path, [], SystemClock()) as engine,
    ):
        await register(engine, hung, good)
        assert (await done_by(engine, step(timeout_secs=1)))[1] == ["w2"]
        await asyncio.wait_for(hung.is_left.wait(), 60)


async def test_a_time_out_that_is_the_last_word_is_the_kind_of_the_failure(tmp_path: Path) -> None:
    async with served(silent) as hung, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, hung)
        error = await failure(engine, step(timeout_secs=0.1))
    assert (error.kind, error.message) == (
        "timeout",
        "all workers failed: worker w1 did not respond within 0.1 s",
    )


async def test_a_call_without_a_limit_ends_when_its_worker_falls_silent(tmp_path: Path) -> None:
    async with (
        served(silent) as hung,
        opened(tmp_path, [], SystemClock(), worker_ttl_secs=1) as engine,
    ):
        await register(engine, hung)
        error = await failure(engine, step(on_no_worker="fail"))
    assert (error.kind, error.message) == ("timeout", "all workers failed: worker w1 stopped responding")


async def test_what_may_have_been_done_is_not_done_again_where_that_is_forbidden(tmp_path: Path) -> None:
    async with (
        served(raw(None)) as broken,
        served(DONE) as good,
        opened(tmp_path, [], SystemClock()) as engine,
    ):
        await register(engine, broken, good)
        assert (await failure(engine, step(on_crash="fail"))).kind == "unknown"
    assert good.asked == []


# ------------------------------------------------------------------------------------------------------- which one


async def test_workers_are_asked_in_the_order_of_their_registration(tmp_path: Path) -> None:
    async with served(DONE) as one, served(DONE) as two, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, one, two)
        engine.workers.heartbeat(T, "w1", load=50)
        assert (await done_by(engine, step()))[1] == ["w1"]


async def test_weighted_by_load_asks_the_least_loaded_first(tmp_path: Path) -> None:
    async with served(DONE) as one, served(DONE) as two, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, one, two)
        engine.workers.heartbeat(T, "w1", load=50)
        assert (await done_by(engine, step(weighted_by_load=True)))[1] == ["w2"]
        await register(engine, one)  # registering again resets the load
        assert (await done_by(engine, step(weighted_by_load=True)))[1] == ["w1"]


async def test_our_own_calls_count_as_load_before_a_heartbeat_tells_of_them(tmp_path: Path) -> None:
    async with served(silent) as one, served(DONE) as two, opened(tmp_path, [], SystemClock()) as engine:
        await register(engine, one, two)
        first = await engine.begin(step(weighted_by_load=True))
        await one.is_asked.wait()
        assert (await done_by(engine, step(weighted_by_load=True)))[1] == ["w2"]
        await engine.runs.cancel(first.id)


async def test_a_retry_prefers_the_worker_that_had_the_step(tmp_path: Path) -> None:
    async def second_time(asked: Asked) -> bytes | None:
        return await (failing() if len(two.asked) == 1 else DONE)(asked)

    async with (
        served(failing()) as one,
        served(second_time) as two,
        opened(tmp_path, [], SystemClock()) as engine,
    ):
        await register(engine, one, two)
        definition = step(retry={"max_attempts": 2, "initial_delay_ms": 0})
        assert (await done_by(engine, definition))[1] == ["w2", "w2"]
    assert (len(one.asked), len(two.asked)) == (1, 2)


# ------------------------------------------------------------------------------------------------------- the roster


@pytest.mark.parametrize("is_killed", [False, True])
@by_hand
async def test_workers_are_offline_after_a_restart_until_they_are_heard(
    tmp_path: Path, is_killed: bool
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(T, "silent", "http://127.0.0.1:1", ["s"])
        await clock().advance(20)
        await engine.workers.register(T, "heard", "http://127.0.0.1:2", ["s"])
        if is_killed:
            engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        workers = engine.workers
        assert (workers.list(T, "s"), workers.allocate(T, "s"), workers.registry.online()) == ([], None, 0)
        assert {view.id: view.status for view in workers.list(T, ttl=3600)} == {
            "silent": "offline",
            "heard": "offline",
        }
        workers.heartbeat(T, "silent")
        assert [view.id for view in workers.list(T, "s")] == ["silent"]
        workers.heartbeat(T, "heard")
        assert {view.id: view.status for view in workers.list(T, "s")} == {
            "silent": "online",
            "heard": "online",
        }


async def test_a_worker_gets_no_job_after_a_restart_until_it_is_heard(tmp_path: Path) -> None:
    async with served(DONE) as worker:
        async with opened(tmp_path, [], SystemClock()) as engine:
            await register(engine, worker)
            engine.crash()
        async with opened(tmp_path, [], SystemClock()) as engine:
            run = await engine.begin(step())
            await settled()
            assert ((await engine.runs.row_of(run.id)).status, worker.asked) == ("waiting", [])
            engine.workers.heartbeat(T, "w1")
            assert await run.result(timeout=120) == {"a": {"n": 1}}


async def test_a_call_that_would_fail_at_once_is_made_before_its_worker_is_heard(tmp_path: Path) -> None:
    async with served(DONE) as worker:
        async with opened(tmp_path, [], SystemClock()) as engine:
            await register(engine, worker)
            engine.crash()
        async with opened(tmp_path, [], SystemClock()) as engine:
            assert (await done_by(engine, step(on_no_worker="fail")))[0] == {"a": {"n": 1}}


@by_hand
async def test_a_worker_that_is_silent_for_its_time_is_not_there(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        workers = engine.workers
        await workers.register(T, "w", "http://127.0.0.1:1", ["s", "s", "t"])
        (view,) = workers.list(T)
        assert (view.id, view.url, view.services, view.load, view.status, view.type) == (
            "w", "http://127.0.0.1:1", ("s", "t"), 0, "online", "http",
        )  # fmt: skip
        await clock().advance(14)
        workers.heartbeat(T, url="http://127.0.0.1:1/", load=3)
        await clock().advance(14)
        assert [view.load for view in workers.list(T, "t")] == [3]
        assert workers.allocate(T, "s") is not None
        await clock().advance(2)
        assert workers.list(T) == []
        assert workers.allocate(T, "s") is None
        assert [view.status for view in workers.list(T, ttl=60)] == ["offline"]
        workers.heartbeat(T, "w")
        assert len(workers.list(T)) == 1


@by_hand
async def test_the_name_of_a_worker_stays_its_keys_own_over_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(T, "w", "http://127.0.0.1:1", ["s"], key_id="one")
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        with pytest.raises(Forbidden):
            await engine.workers.register(T, "w", "http://127.0.0.1:2", ["s"], key_id="other")
        await clock().advance(16)
        await engine.workers.register(T, "w", "http://127.0.0.1:2", ["s"], key_id="other")


@by_hand
async def test_a_worker_of_one_tenant_is_nobody_to_another(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        workers = engine.workers
        await workers.register(T, "w", "http://127.0.0.1:1", ["s"])
        await workers.register("other", "w", "http://127.0.0.1:2", ["s"])
        assert [view.url for view in workers.list("other")] == ["http://127.0.0.1:2"]
        with pytest.raises(NotFound):
            workers.heartbeat("third", "w")
        assert workers.allocate("third", "s") is None


@by_hand
async def test_the_name_of_a_living_worker_is_its_keys_own(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        workers = engine.workers
        await workers.register(T, "w", "http://127.0.0.1:1", ["s"], key_id="one")
        with pytest.raises(Forbidden):
            await workers.register(T, "w", "http://127.0.0.1:2", ["s"], key_id="two")
        with pytest.raises(Forbidden):
            workers.heartbeat(T, "w", key_id="two")
        await clock().advance(16)
        with pytest.raises(NotFound):
            workers.heartbeat(T, "w", key_id="two")
        await workers.register(T, "w", "http://127.0.0.1:2", ["s"], key_id="two")
        assert [view.url for view in workers.list(T)] == ["http://127.0.0.1:2"]


@by_hand
async def test_whoever_registered_without_a_key_can_come_back_with_one(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(T, "w", "http://127.0.0.1:1", ["s"], key_id="local")
        await engine.workers.register(T, "w", "http://127.0.0.1:1", ["s"], key_id="one")
        with pytest.raises(Forbidden):
            engine.workers.heartbeat(T, "w", key_id="local")


@by_hand
async def test_a_worker_can_be_taken_off_the_list(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(T, "w", "http://127.0.0.1:1", ["s"])
        await engine.workers.forget(T, "w")
        assert engine.workers.list(T) == []
        assert rows(tmp_path, "SELECT count(*) FROM worker") == [(0,)]


@pytest.mark.parametrize(
    ("worker_id", "url", "services", "says"),
    [
        ("", "http://h", ["s"], "id must have 1 to 200"),
        ("w" * 201, "http://h", ["s"], "id must have 1 to 200"),
        ("w\x1b[2J", "http://h", ["s"], r"id contains a control character: .*; remove U\+001B"),
        ("w", None, ["s"], "url is"),
        ("w", "ftp://h", ["s"], "http:// or https://"),
        ("w", "http://h/ /x", ["s"], "spaces"),
        ("w", "http://h:99999", ["s"], "cannot be read"),
        ("w", "http://user:pass@h", ["s"], "http:// or https://"),
        ("w", "http://h\r\nX: y", ["s"], "url"),
        ("w", "http://h", [], "services must have"),
        ("w", "http://h", [""], "name of a service"),
        (
            "w",
            "http://h",
            ["s", "a\nb"],
            r"name of a service contains a control character: .*; remove U\+000A",
        ),
        ("w", "http://h/\x07", ["s"], "no control characters"),
    ],
)
async def test_a_registration_that_cannot_be_used_is_refused(
    tmp_path: Path, worker_id: str, url: str | None, services: list[str], says: str
) -> None:
    async with opened(tmp_path, [], SystemClock()) as engine:
        with pytest.raises(InvalidInputs, match=says):
            await engine.workers.register(T, worker_id, url, services)
        assert engine.workers.list(T) == []


async def test_where_addresses_are_guarded_a_private_one_is_called_only_where_the_operator_allows_it(
    tmp_path: Path,
) -> None:
    guard = Guard(guarded=True)
    async with (
        served(DONE) as worker,
        opened(tmp_path, [], SystemClock(), guard=guard) as engine,
    ):
        for key_id in ("", "k"):
            with pytest.raises(Forbidden, match=r"not a public address .*; allow its network"):
                await engine.workers.register(T, "w1", worker.url, ["work"], key_id=key_id)
        guard._allowed = Guard(allowed=["127.0.0.0/8"])._allowed
        await engine.workers.register(T, "w1", worker.url, ["work"], key_id="k")
        assert (await done_by(engine, step()))[0] == {"a": {"n": 1}}


async def test_a_worker_from_before_the_first_key_is_checked_at_the_next_call(tmp_path: Path) -> None:
    guard = Guard()
    async with (
        served(DONE) as worker,
        opened(tmp_path, [], SystemClock(), guard=guard) as engine,
    ):
        await engine.workers.register(T, "w1", worker.url, ["work"])
        assert (await done_by(engine, step()))[0] == {"a": {"n": 1}}  # and the connection is kept
        guard.guarded = True
        run = await engine.begin(step())
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error.kind == "refused" and "--allow-networks" in failed.value.error.message
        assert len(worker.asked) == 1


async def test_a_worker_is_called_at_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(guarded=True, allowed=["127.0.0.0/8"])
    asked, answers = (
        list[str](),
        ["127.0.0.1", "127.0.0.1", "10.0.0.1"],
    )  # of a name that is rebound meanwhile

    async def resolved(host: str, port: int) -> list[Target]:
        asked.append(host)
        return [Target(socket.AF_INET, answers[len(asked) - 1], port)]

    monkeypatch.setattr("holdfast.tools.guard._resolved", resolved)
    async with (
        served(DONE) as worker,
        opened(tmp_path, [], SystemClock(), guard=guard) as engine,
    ):
        url = worker.url.replace("127.0.0.1", "worker.invalid")
        await engine.workers.register(T, "w1", url, ["work"], key_id="k")
        assert (await done_by(engine, step()))[0] == {"a": {"n": 1}}
        for kept in engine.workers.registry.worker(T, "w1").address.idle:  # type: ignore[union-attr]
            kept.end()
        await asyncio.sleep(0.05)
        run = await engine.begin(step())
        with pytest.raises(RunFailed, match=r"10\.0\.0\.1, which is not a public address"):
            await run.result()
        assert asked == ["worker.invalid"] * 3 and len(worker.asked) == 1


# ------------------------------------------------------------------------------------------------ work waits for a worker


@by_hand
async def test_a_step_waits_for_a_worker_and_its_run_is_waiting(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(step())
        await clock().advance(3_600)
        assert await run.status() == "waiting"
        await engine.workers.register(T, "w", None, ["work"], "pull")
        (offer,) = (await clock().until(engine.workers.poll(T, "w", wait_secs=5))).assignments
        await engine.workers.complete(T, offer.id, offer.token, 7)
        assert await run.result() == {"a": 7}
        (view,) = (await Services(engine).queries.steps(T, run.id)).items
        assert (view.attempts, view.status) == (1, "completed")


@by_hand
async def test_a_step_that_waits_for_a_worker_fails_at_its_own_timeout(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(step(timeout_secs=30))
        await clock().advance(29)
        assert await run.status() == "waiting"
        with pytest.raises(RunFailed) as failed:
            await clock().until(run.result(), at_most=5)
        assert failed.value.error.kind == "no_worker"
        assert failed.value.error.message == "no worker: none served 'work' within 30 s"


@by_hand
async def test_a_graph_waits_for_a_worker_as_long_as_the_setting_says(tmp_path: Path) -> None:
    flow = {"name": "g", "start": "a", "nodes": {"a": {"kind": "executor", "service": "work"}}, "edges": []}
    async with opened(tmp_path, [], clock(), no_worker_wait_ms=20_000) as engine:
        run, _ = await Services(engine).commands.start(T, flow)
        await clock().advance(19)
        assert (await engine.runs.row_of(run.id)).status == "waiting"
        await clock().advance(2)
        row = await engine.runs.row_of(run.id)
        assert row.status == "failed"


@by_hand
async def test_a_run_that_waits_for_a_worker_goes_on_after_a_kill_of_the_engine(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(step())
        await settled()
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await settled()
        assert (await engine.runs.row_of(run.id)).status == "waiting"
        await engine.workers.register(T, "w", None, ["work"], "pull")
        (offer,) = (await clock().until(engine.workers.poll(T, "w", wait_secs=5))).assignments
        await engine.workers.complete(T, offer.id, offer.token, 7)
        assert await (await engine.attach(run.id)).result() == {"a": 7}


@by_hand
async def test_only_the_steps_whose_service_has_a_worker_now_start(tmp_path: Path) -> None:
    two = [{"id": "p", "service": "work"}, {"id": "q", "service": "other"}]
    definition = msgspec.json.encode(
        {"name": "n", "steps": [{"id": "par", "kind": "parallel", "steps": two}]}
    ).decode()
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(definition)
        await clock().advance(10)
        await engine.workers.register(T, "w", None, ["work"], "pull")
        (offer,) = (await clock().until(engine.workers.poll(T, "w", wait_secs=5))).assignments
        assert offer.path == "par[0].p"
        kinds = [kind for *_, kind, _ in await engine.store.journal(RunNo(1), 0, 100)]
        assert kinds.count("attempt_released") == 2
        assert await run.status() == "running"


@by_hand
async def test_cancelling_a_run_that_waits_for_a_worker_ends_it_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(step(timeout_secs=30))
        await clock().advance(10)
        await Services(engine).commands.cancel(T, run.id)
        await settled()
        assert await run.status() == "cancelled"
        await engine.workers.register(T, "w", None, ["work"], "pull")
        assert (await engine.workers.poll(T, "w")).assignments == []


@by_hand
async def test_a_lease_is_a_third_of_the_timeout_and_ten_seconds_at_most(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(T, "w", None, ["work"], "pull")
        found = []
        for timeout in (None, 60, 6):
            await engine.begin(step() if timeout is None else step(timeout_secs=timeout))
            (offer,) = (await clock().until(engine.workers.poll(T, "w", wait_secs=5))).assignments
            found.append(offer.lease_secs)
        assert found == [10, 10, 2]


@by_hand
async def test_a_lost_lease_is_not_counted_against_the_attempts_of_the_step(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(step(retry={"max_attempts": 1}))
        for worker in ("w1", "w2", "w3"):
            await engine.workers.register(T, worker, None, ["work"], "pull")
            (offer,) = (await clock().until(engine.workers.poll(T, worker, wait_secs=5))).assignments
            await clock().advance(40)  # the lease expires, and then the registration
            assert await run.status() == "waiting"
        await engine.workers.register(T, "w4", None, ["work"], "pull")
        (offer,) = (await clock().until(engine.workers.poll(T, "w4", wait_secs=5))).assignments
        await engine.workers.complete(T, offer.id, offer.token, 7)
        assert await run.result() == {"a": 7}


@by_hand
async def test_a_call_that_ends_every_worker_fails_as_lost(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(step())
        for number in range(5):
            await engine.workers.register(T, f"w{number}", None, ["work"], "pull")
            await clock().until(engine.workers.poll(T, f"w{number}", wait_secs=5))
            await clock().advance(40)
        with pytest.raises(RunFailed) as failed:
            await clock().until(run.result(), at_most=5)
        assert failed.value.error.kind == "lost"


async def test_a_worker_that_cannot_be_reached_gets_the_call_after_its_next_heartbeat(tmp_path: Path) -> None:
    async with opened(tmp_path, [], SystemClock()) as engine:
        async with served(DONE) as worker:
            url = worker.url
        await engine.workers.register(T, "w1", url, ["work"])
        run = await engine.begin(step())
        while await run.status() != "waiting":
            await asyncio.sleep(0.01)
        async with served(DONE) as again:
            await engine.workers.register(T, "w1", again.url, ["work"])
            await run.result(timeout=60)
