"""What runs wait for, and who is told of their ends, asked through both clients of a real server in a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast import Client, Forbidden, NotWaiting, SyncClient
from holdfast.api.types import CallbackDelivery, Run
from holdfast.errors import AmbiguousTask, InvalidInputs, NotFound, Refused, RunIsOver
from tests.cli.conftest import Cli, Up
from tests.runtime.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio

TOOL = """
from holdfast import tool

@tool
async def later(task_id):
    return {"pending": True, "task_id": task_id}
"""
PATIENCE_SECONDS = 120


def spec(**step: Any) -> dict[str, Any]:
    return {"name": "waits", "steps": [{"id": "s", **step}]}


SIGNAL = spec(kind="wait_event", signal_key="go", correlation="o-7")
FORM = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}
GATE = spec(kind="approve", prompt="Sure?", form=FORM)
QUORUM = spec(kind="approve", prompt="Sure?", quorum={"need": 2, "of": ["Ada", "Bob"]})


def later(task_id: str) -> dict[str, Any]:
    return spec(tool="later", args={"task_id": task_id})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = Cli(tmp_path_factory.mktemp("server"))
    folder.write("tools.py", TOOL)
    yield folder.up("--tools", "tools")
    for process in folder.started:
        process.kill()
        process.communicate()


class Both:
    """One way to ask either client, so that what follows holds for both."""

    def __init__(self, do: Callable[..., Awaitable[Any]]) -> None:
        self._do = do

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return lambda *args, **named: self._do(name, *args, **named)

    async def waiting(self, definition: dict[str, Any]) -> str:
        """A run that waits for somebody."""
        run_id = (await self.start(definition)).run_id
        end = time.monotonic() + PATIENCE_SECONDS
        while not (await self.run(run_id)).waits:
            assert time.monotonic() < end
            await asyncio.sleep(0.005)
        return str(run_id)

    async def ended(self, run_id: str) -> Run:
        found: Run = await self.wait(run_id, PATIENCE_SECONDS)
        return found


@pytest.fixture(params=["async", "sync"])
async def client(request: pytest.FixtureRequest, server: Up) -> AsyncIterator[Both]:
    if request.param == "async":
        async with Client(server.address) as asked:
            yield Both(lambda name, *args, **named: getattr(asked, name)(*args, **named))
        return
    script = SyncClient(server.address)  # in a thread: a script has no loop of its own

    async def do(name: str, *args: Any, **named: Any) -> Any:
        return await asyncio.to_thread(getattr(script, name), *args, **named)

    yield Both(do)
    await asyncio.to_thread(script.close)


# ------------------------------------------------------------------------------------------------------- signals


async def test_a_signal_brings_its_value_to_the_step_with_its_correlation(client: Both) -> None:
    run_id = await client.waiting(SIGNAL)
    assert (await client.signal(run_id, "go", 1, correlation="other")).status == "waiting"
    assert (await client.signal(run_id, "go", [2], correlation="o-7")).run_id == run_id
    assert (await client.ended(run_id)).output == {"s": [2]}


async def test_a_run_that_is_over_takes_no_signal(client: Both) -> None:
    run_id = await client.waiting(SIGNAL)
    await client.signal(run_id, "go", correlation="o-7")
    await client.ended(run_id)
    with pytest.raises(RunIsOver):
        await client.signal(run_id, "go")


# ----------------------------------------------------------------------------------------------------- approvals


async def test_an_approval_is_answered_with_reason_name_and_form(client: Both) -> None:
    run_id = await client.waiting(GATE)
    told = await client.approve(run_id, "s", reason="fine", by="Ada", form={"amount": 5})
    assert (told.path, told.decided) == ("s", True)
    answer = {"approved": True, "reason": "fine", "by": "Ada", "form": {"amount": 5}}
    assert (await client.ended(run_id)).output == {"s": answer}


async def test_a_denial_fails_the_run(client: Both) -> None:
    run_id = await client.waiting(GATE)
    assert (await client.approve(run_id, "s", approved=False, reason="not today")).decided
    run = await client.ended(run_id)
    assert run.error is not None
    assert (run.status, run.error.message) == ("failed", "approval denied: not today")


async def test_an_answer_that_does_not_fit_is_raised_as_what_it_is(client: Both) -> None:
    run_id = await client.waiting(GATE)
    with pytest.raises(InvalidInputs, match="amount"):
        await client.approve(run_id, "s", form={})
    with pytest.raises(NotWaiting):
        await client.approve(run_id, "elsewhere")
    await client.approve(run_id, "s", form={"amount": 5})
    with pytest.raises(NotWaiting):
        await client.approve(run_id, "s", form={"amount": 6})


async def test_a_quorum_says_whether_an_answer_has_decided(client: Both) -> None:
    run_id = await client.waiting(QUORUM)
    with pytest.raises(Forbidden):
        await client.approve(run_id, "s", by="Eve")
    assert [(await client.approve(run_id, "s", by=name)).decided for name in ("Ada", "Bob")] == [False, True]


async def test_a_link_to_answer_by_is_made(client: Both, server: Up) -> None:
    run_id = await client.waiting(GATE)
    link = await client.approval_link(run_id, "s", by="Ada")
    assert link.url.startswith(f"{server.address}/approve/")


# ------------------------------------------------------------------------------------------------------- results


async def test_a_result_becomes_the_output_once(client: Both, request: pytest.FixtureRequest) -> None:
    task_id = request.node.name
    run_id = await client.waiting(later(task_id))
    told = [await client.resume(task_id, {"n": n}) for n in range(2)]
    assert [(one.resumed, one.reason) for one in told] == [(True, "resumed"), (False, "already_resumed")]
    assert (await client.ended(run_id)).output == {"s": {"n": 0}}


async def test_a_task_of_two_runs_is_told_apart_by_the_run(
    client: Both, request: pytest.FixtureRequest
) -> None:
    task_id = request.node.name
    runs = [await client.waiting(later(task_id)) for _ in range(2)]
    with pytest.raises(AmbiguousTask):
        await client.resume(task_id, 1)
    for number, run_id in enumerate(runs):
        assert (await client.resume(task_id, number, run_id=run_id)).resumed
        assert (await client.ended(run_id)).output == {"s": number}


# --------------------------------------------------------------------------------------------------- dead letters


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


async def dead(client: Both, receiver: Receiver) -> CallbackDelivery:
    """A delivery that its receiver does not want, and never will."""
    receiver.statuses = [410]
    run = await client.start(later("never answered"), final_callback=receiver.url)
    await client.cancel(run.run_id)
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        page = await client.callback_deliveries(run.run_id)
        if page.items and page.items[0].status == "dead":
            found: CallbackDelivery = page.items[0]
            return found
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


async def test_dead_letters_are_listed_and_sent_again_under_their_ids(
    client: Both, receiver: Receiver
) -> None:
    delivery = await dead(client, receiver)
    assert delivery.id in [one.id for one in (await client.dead_letters(limit=500)).items]
    assert (await client.replay(delivery.id)).status == "waiting"
    end = time.monotonic() + PATIENCE_SECONDS
    while (await client.callback_deliveries(delivery.run_id)).items[0].status != "delivered":
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
    assert receiver.ids == [delivery.id] * 2
    with pytest.raises(Refused):
        await client.replay(delivery.id)


async def test_a_dead_letter_that_is_given_up_is_listed_no_more(client: Both, receiver: Receiver) -> None:
    delivery = await dead(client, receiver)
    assert (await client.discard(delivery.id)).status == "discarded"
    assert delivery.id not in [one.id for one in (await client.dead_letters(limit=500)).items]
    with pytest.raises(NotFound):
        await client.discard("msg_nobody_0")
