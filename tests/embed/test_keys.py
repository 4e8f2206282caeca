"""Idempotency keys: one execution for all steps that render the same key, whatever happens to the one that has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import Holdfast, RunFailed

ONE = """
name: pay
inputs: {order: {type: string}}
steps:
  - id: charge
    tool: charge
    args: {order: "{{inputs.order}}"}
    idempotency_key: "order-{{inputs.order}}"
    idempotency_scope: global
output: "{{charge}}"
"""


class Till:
    """Counts what it does, and does it when it is let."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.fails = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def charge(self, order: str) -> int:
        await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("declined")
        self.charged.append(order)
        return len(self.charged)


async def _ended(hf: Holdfast, definition: str, count: int, **inputs: Any) -> list[Any]:
    runs = [await hf.start(definition, inputs) for _ in range(count)]
    return await asyncio.gather(*(run.result(timeout=60) for run in runs), return_exceptions=True)


def test_fifty_runs_with_one_global_key_execute_once_and_share_the_output(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            assert await _ended(hf, ONE, 50, order="7") == [1] * 50
            assert till.charged == ["7"]

    asyncio.run(main())


def test_when_the_holder_fails_the_next_in_line_executes(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        till.fails = 2
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            ended = await _ended(hf, ONE, 10, order="7")
        assert [type(one) for one in ended] == [RunFailed] * 2 + [int] * 8
        assert till.charged == ["7"]

    asyncio.run(main())


def test_when_the_holder_is_cancelled_the_next_in_line_executes(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        till.gate.clear()
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            runs = [await hf.start(ONE, {"order": "7"}) for _ in range(3)]
            await hf.cancel(runs[0].id)
            till.gate.set()
            assert [await run.result(timeout=60) for run in runs[1:]] == [1, 1]
        assert till.charged == ["7"]

    asyncio.run(main())


def test_a_waiter_that_is_cancelled_leaves_the_line(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        till.gate.clear()
        till.fails = 1
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            runs = [await hf.start(ONE, {"order": "7"}) for _ in range(3)]
            while await runs[1].status() != "waiting":
                await asyncio.sleep(0)
            await hf.cancel(runs[1].id)
            till.gate.set()
            assert await runs[2].result(timeout=60) == 1
        assert till.charged == ["7"]

    asyncio.run(main())


def test_a_held_key_survives_the_process_and_is_entered_again_by_its_owner(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        till.gate.clear()
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            runs = [await hf.start(ONE, {"order": "7"}) for _ in range(3)]
            while await runs[2].status() != "waiting":
                await asyncio.sleep(0)
        till = Till()
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            again = [await hf.run(run.id) for run in runs]
            assert [await run.result(timeout=60) for run in again] == [1, 1, 1]
        assert till.charged == ["7"]

    asyncio.run(main())


def test_an_answer_serves_runs_of_later_processes(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            till = Till()
            async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
                assert await _ended(hf, ONE, 1, order="7") == [1]
        assert till.charged == []

    asyncio.run(main())


def test_a_key_of_the_workflow_scope_is_each_runs_own(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        own = ONE.replace("idempotency_scope: global", "idempotency_scope: workflow")
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            assert sorted(await _ended(hf, own, 2, order="7")) == [1, 2]

    asyncio.run(main())


def test_within_a_run_the_iterations_of_a_loop_share_a_key(tmp_path: Path) -> None:
    loop = """
    name: loop
    steps:
      - id: each
        kind: foreach
        items: $.inputs.orders
        concurrency: 5
        steps:
          - {id: charge, tool: charge, args: {order: "{{item}}"}, idempotency_key: "{{item}}"}
    inputs: {orders: {type: array}}
    """

    async def main() -> None:
        till = Till()
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            (ended,) = await _ended(hf, loop, 1, orders=["a", "b", "a", "a", "b"])
        assert [one["charge"] for one in ended["each"]["iterations"]] == [1, 2, 1, 1, 2]
        assert till.charged == ["a", "b"]

    asyncio.run(main())


def test_on_conflict_fail_fails_whoever_meets_a_held_key(tmp_path: Path) -> None:
    async def main() -> None:
        till = Till()
        till.gate.clear()
        fails = ONE.replace("idempotency_scope: global", "idempotency_scope: global\n    on_conflict: fail")
        async with Holdfast(str(tmp_path / "a.db"), tools=[till.charge]) as hf:
            first = await hf.start(fails, {"order": "7"})
            second = await hf.start(fails, {"order": "7"})
            with pytest.raises(RunFailed) as failed:
                await second.result(timeout=60)
            assert failed.value.error.kind == "key_conflict"
            till.gate.set()
            assert await first.result(timeout=60) == 1

    asyncio.run(main())


def test_a_run_that_takes_the_answer_of_another_keeps_its_files(tmp_path: Path) -> None:
    definition = ONE.replace("output:", "# output:")

    async def charge(order: str) -> Any:
        return {"file_refs": [{"inline_b64": "eA=="}]}

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[charge]) as hf:
            first = await hf.start(definition, {"order": "7"})
            await first.result(timeout=60)
            second = await hf.start(definition, {"order": "7"})
            await second.result(timeout=60)
            again = await hf.rerun(second.id, from_step="charge")
            await again.result(timeout=60)
            db = apsw.Connection(str(tmp_path / "a.db"), flags=apsw.SQLITE_OPEN_READONLY)
            assert db.execute("SELECT count(DISTINCT run), count(DISTINCT sha256) FROM artefact").get == (
                3,
                1,
            )
            db.close()

    asyncio.run(main())
