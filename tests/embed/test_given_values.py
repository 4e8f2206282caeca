"""Values that a program gives and that JSON would make something else of: refused, with the place, before anything changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Holdfast
from holdfast.errors import InvalidInputs, LimitExceeded

pytestmark = pytest.mark.anyio

WAITS = "name: w\nsteps: [{id: w, kind: wait_event, signal_key: go}]\n"
BENT: list[tuple[Any, str]] = [
    ({1, 2}, "a set at .* has no JSON form; pass a list"),
    ({"deep": [frozenset()]}, r"a frozenset at .*deep\[0\] has no JSON form"),
    (b"raw", "a bytes at .* has no JSON form; pass text"),
    ([bytearray(b"raw")], "a bytearray at"),
    ({b"key": 1}, "a bytes as a key of the object at .* has no JSON form; use text"),
    ({b"": 1}, "a bytes as a key"),
]
bent = pytest.mark.parametrize(("value", "says"), BENT)


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with Holdfast(str(tmp_path / "a.db")) as found:
        yield found


@bent
async def test_inputs_that_json_would_bend_start_no_run(hf: Holdfast, value: Any, says: str) -> None:
    with pytest.raises(InvalidInputs, match=f"inputs: {says}"):
        await hf.start(WAITS, {"x": value})
    assert await hf.runs() == []


@bent
async def test_a_signal_that_json_would_bend_is_refused(hf: Holdfast, value: Any, says: str) -> None:
    run = await hf.start(WAITS)
    with pytest.raises(InvalidInputs, match=f"the value of the signal: {says}"):
        await hf.signal(run.id, "go", value)
    await hf.signal(run.id, "go", [1, "a", None, 2.5, {"b": True}])
    assert await run.result(10) == {"w": [1, "a", None, 2.5, {"b": True}]}


@bent
async def test_answers_that_json_would_bend_are_refused(hf: Holdfast, value: Any, says: str) -> None:
    with pytest.raises(InvalidInputs, match=f"the answer: {says}"):
        await hf.resume("T1", value)
    with pytest.raises(InvalidInputs, match=f"form: {says}"):
        await hf.approve("no-run", "gate", form=value)


@bent
async def test_a_client_sends_nothing_that_json_would_bend(value: Any, says: str) -> None:
    async with Client("http://127.0.0.1:9", patience=0) as client:
        with pytest.raises(InvalidInputs, match=f"the request: {says}"):
            await client.start({"name": "w", "steps": []}, {"x": value})


async def test_one_part_many_times_is_counted_before_it_is_written(hf: Holdfast) -> None:
    part: list[Any] = ["x" * 1000]
    for _ in range(6):
        part = [part] * 10
    with pytest.raises(LimitExceeded, match="input_too_large"):
        await hf.start(WAITS, {"x": part})
