"""Every limit: places at work, runs in memory, sizes of values, and large values stored once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import RunFailed, tool
from holdfast.errors import LimitExceeded
from tests.runtime.bench import opened, rows
from tests.runtime.manual import by_hand, clock, settled


class Crowd:
    """A tool that counts how many of its calls are at work at once."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0

        @tool(name="work")
        async def work(**more: Any) -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.now -= 1
            self.done += 1
            return self.done

        self.tool = work


LOOP = "name: n\nsteps: [{id: l, kind: foreach, items: $.inputs.xs, concurrency: 100, collect: none, steps: [{id: s, tool: work}]}]"


@pytest.mark.parametrize("places", [1, 3, 10])
@by_hand
async def test_never_more_attempts_are_at_work_than_there_are_places(tmp_path: Path, places: int) -> None:
    crowd = Crowd()
    async with opened(tmp_path, [crowd.tool], clock(), attempts_max=places) as engine:
        runs = [await engine.begin(LOOP, {"xs": list(range(40))}) for _ in range(3)]
        for run in runs:
            assert (await run.result())["l"] == {"count": 40, "failed": 0}
    assert crowd.most <= places
    assert crowd.done == 120


@by_hand
async def test_all_places_are_used_while_there_is_work(tmp_path: Path) -> None:
    gate = asyncio.Event()
    began: list[int] = []

    @tool(name="work")
    async def hangs() -> None:
        began.append(1)
        await gate.wait()

    async with opened(tmp_path, [hangs], clock(), attempts_max=7) as engine:
        run = await engine.begin(LOOP, {"xs": list(range(20))})
        await settled()
        assert len(began) == 7
        gate.set()
        await run.result()
    assert len(began) == 20


@by_hand
async def test_places_are_respected_when_a_former_process_left_more_behind(tmp_path: Path) -> None:
    gate = asyncio.Event()
    crowd = Crowd()

    @tool(name="work")
    async def hangs() -> None:
        await gate.wait()

    definition = "name: n\nsteps: [{id: s, tool: work}]"
    async with opened(tmp_path, [hangs], clock()) as engine:
        runs = [await engine.begin(definition) for _ in range(30)]
        await settled()
        engine.crash()
    async with opened(tmp_path, [crowd.tool], clock(), attempts_max=4) as engine:
        await clock().advance(1)
        assert [row for (row,) in rows(tmp_path, "SELECT status FROM run")] == ["completed"] * 30
    assert len(runs) == 30 and crowd.most <= 4


@pytest.mark.parametrize("resident_max", [1, 2, 5])
@by_hand
async def test_runs_beyond_those_in_memory_wait_in_the_store_and_all_end(
    tmp_path: Path, resident_max: int
) -> None:
    crowd = Crowd()
    most = 0
    async with opened(tmp_path, [crowd.tool], clock(), resident_max=resident_max) as engine:
        runs = []
        for _ in range(20):
            runs.append(await engine.begin("name: n\nsteps: [{id: a, tool: work}, {id: b, tool: work}]"))
            most = max(most, len(engine.door.residents))
        await clock().advance(5)
        assert [await run.status() for run in runs] == ["completed"] * 20
        assert [len(await run.result()) for run in runs] == [2] * 20
    assert most <= resident_max + 1  # the one that is just being accepted


@by_hand
async def test_runs_beyond_those_in_memory_end_although_none_calls_a_tool(tmp_path: Path) -> None:
    definition = "name: n\nsteps: [{id: w, kind: timer, delay_ms: 2000}]"
    async with opened(tmp_path, [], clock(), resident_max=2) as engine:
        runs = [await engine.begin(definition) for _ in range(8)]
        await clock().advance(60)
        assert [await run.status() for run in runs] == ["completed"] * 8


@by_hand
async def test_a_run_that_was_only_accepted_goes_on_in_the_next_process(tmp_path: Path) -> None:
    crowd = Crowd()
    gate = asyncio.Event()

    @tool(name="work")
    async def hangs() -> None:
        await gate.wait()

    async with opened(tmp_path, [hangs], clock(), resident_max=1) as engine:
        runs = [await engine.begin("name: n\nsteps: [{id: a, tool: work}]") for _ in range(3)]
        await settled()
        assert await runs[2].status() == "pending"
        engine.crash()
    async with opened(tmp_path, [crowd.tool], clock()) as engine:
        await clock().advance(5)
        assert [row for (row,) in rows(tmp_path, "SELECT status FROM run")] == ["completed"] * 3


@by_hand
async def test_a_run_that_was_only_accepted_can_be_cancelled(tmp_path: Path) -> None:
    gate = asyncio.Event()

    @tool(name="work")
    async def hangs() -> None:
        await gate.wait()

    async with opened(tmp_path, [hangs], clock(), resident_max=1) as engine:
        runs = [await engine.begin("name: n\nsteps: [{id: a, tool: work}]") for _ in range(2)]
        await engine.runs.cancel(runs[1].id)
        await settled()
        assert await runs[1].status() == "cancelled"
        gate.set()
        await runs[0].result()


# ------------------------------------------------------------------------------------------------------ large values


@by_hand
async def test_values_over_32_kib_go_to_blobs_and_come_back(tmp_path: Path) -> None:
    hang = True

    @tool
    async def large(n: int) -> str:
        return "x" * n

    @tool
    async def length(x: str, y: str) -> list[int]:
        if hang:
            await asyncio.Event().wait()
        return [len(x), len(y)]

    definition = """
    name: n
    steps:
      - {id: a, tool: large, args: {n: 40000}}
      - {id: b, tool: length, args: {x: "{{ a }}", y: "a{{ inputs.y }}"}}
    """
    async with opened(tmp_path, [large, length], clock()) as engine:
        run = await engine.begin(definition, {"y": "y" * 50_000})
        await settled()
        engine.crash()
    sizes = sorted(size for (size,) in rows(tmp_path, "SELECT length(body) FROM blob"))
    assert [size // 10_000 for size in sizes] == [4, 5, 5]  # the output, the run's inputs, the rendered text
    assert max(size for (size,) in rows(tmp_path, "SELECT length(body) FROM journal")) < 1_000
    hang = False
    async with opened(tmp_path, [large, length], clock()) as engine:
        result = await (await engine.attach(run.id)).result()
        assert (len(result["a"]), result["b"]) == (40_000, [40_000, 50_001])


@by_hand
async def test_an_output_of_2_mb_that_100_items_use_is_stored_once(tmp_path: Path) -> None:
    seen: list[int] = []

    @tool
    async def large() -> dict[str, str]:
        return {"text": "x" * 2_000_000}

    @tool
    async def use(part: str, whole: dict[str, str]) -> None:
        seen.append(len(part) + len(whole["text"]))

    definition = """
    name: n
    steps:
      - {id: a, tool: large}
      - id: l
        kind: foreach
        items: $.inputs.xs
        concurrency: 10
        collect: none
        steps: [{id: s, tool: use, args: {part: "{{ a.text }}", whole: "{{ a }}"}}]
    """
    async with opened(tmp_path, [large, use], clock()) as engine:
        run = await engine.begin(definition, {"xs": list(range(100))})
        assert (await run.result())["l"]["count"] == 100
    assert seen == [4_000_000] * 100
    total = rows(
        tmp_path, "SELECT (SELECT sum(length(body)) FROM blob) + (SELECT sum(length(body)) FROM journal)"
    )
    assert total[0][0] < 2_100_000


@by_hand
async def test_inputs_over_25_mib_are_refused_by_name_and_leave_no_run(tmp_path: Path) -> None:
    async with opened(tmp_path, [Crowd().tool], clock()) as engine:
        with pytest.raises(LimitExceeded, match="input_too_large"):
            await engine.begin("name: n\nsteps: [{id: a, tool: work}]", {"x": "x" * 26_300_000})
        assert rows(tmp_path, "SELECT count(*) FROM run") == [(0,)]


@by_hand
async def test_arguments_over_25_mib_fail_their_step_with_kind_input_too_large(tmp_path: Path) -> None:
    definition = "name: n\nsteps: [{id: a, tool: work, args: {x: 'a{{ inputs.x }}{{ inputs.x }}'}}]"
    async with opened(tmp_path, [Crowd().tool], clock()) as engine:
        run = await engine.begin(definition, {"x": "x" * 14_000_000})
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.error.kind == "input_too_large"


@by_hand
async def test_an_explicit_output_over_25_mib_fails_the_run_with_kind_output_too_large(
    tmp_path: Path,
) -> None:
    definition = "name: n\nsteps: [{id: a, tool: work}]\noutput: 'a{{ inputs.x }}{{ inputs.x }}'"
    async with opened(tmp_path, [Crowd().tool], clock()) as engine:
        run = await engine.begin(definition, {"x": "x" * 14_000_000})
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.error.kind == "output_too_large"


@by_hand
async def test_the_result_of_a_run_is_whole_however_large_its_parts(tmp_path: Path) -> None:
    """Small outputs are kept for the result, large ones are read back from the journal."""

    @tool
    async def give(n: int) -> str:
        return "x" * n

    sizes = [10, 5_000, 100, 70_000, 4_000, 3_000]
    steps = ", ".join(f"{{id: s{n}, tool: give, args: {{n: {size}}}}}" for n, size in enumerate(sizes))
    async with opened(tmp_path, [give], clock()) as engine:
        run = await engine.begin(f"name: n\nsteps: [{steps}]")
        result = await run.result()
        assert [len(value) for value in result.values()] == sizes
        assert list(result) == [f"s{n}" for n in range(len(sizes))]
