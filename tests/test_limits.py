"""Limits: their settings, what is refused, and that the error names the limit and its setting."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, InvalidSpec, RunFailed, config, limits, tool
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.plan import composed
from holdfast.spec.notation import definition_from_stored, definition_from_text
from holdfast.values import written

pytestmark = pytest.mark.anyio

HELLO = "name: hello\nsteps: [{id: a, tool: echo, args: {value: '{{inputs.x}}'}}]\n"
WAITS = "name: waits\nsteps: [{id: w, kind: wait_event, signal_key: go}]\n"
CYCLE = {
    "name": "cycle",
    "start": "a",
    "nodes": {"a": {"kind": "local", "service": "step"}},
    "edges": [{"from": "a", "to": "a", "action": "default"}],
}


@pytest.fixture(autouse=True)
def _defaults_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Tests of crashes leave engines behind that were never closed, as a killed process does; no other process shares them.
    monkeypatch.setattr(limits, "_holders", weakref.WeakSet())
    yield
    assert limits.now is limits.DEFAULTS, "a test left limits in force"
    assert limits.DEFAULTS.value_bytes_max == composed.LIMIT


@tool(isolate="process")
def apart(count: int, context: Context) -> str:
    for number in range(5):
        context.log(f"line {number}")
    return "x" * count


def settings(folder: Path, text: str = "", **env: str) -> config.Settings:
    (folder / "holdfast.toml").write_text(text)
    return config.load(env=env, folder=folder)


@pytest.mark.parametrize("name", limits.NAMES)
def test_every_limit_is_read_from_the_file_and_the_environment(tmp_path: Path, name: str) -> None:
    low, high = limits.bounds(name)
    assert low <= getattr(limits.DEFAULTS, name) <= high
    assert settings(tmp_path, f"[limits]\n{name} = {low}\n").limits == {name: low}
    variable = {f"HOLDFAST_LIMIT_{name.upper()}": str(high)}
    assert settings(tmp_path, f"[limits]\n{name} = {low}\n", **variable).limits == {name: high}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("signal_max = 5", "did you mean signals_max"),
        ("signals_max = 0", "from 1 to 100,000"),
        ("signals_max = -1", "not -1"),
        ("signals_max = 1_000_000_000", "from 1 to 100,000"),
        ("signals_max = 2.5", "whole number"),
        ("signals_max = true", "whole number"),
        ("signals_max = inf", "whole number"),
        ('signals_max = "5"', "whole number"),
        ("value_bytes_max = 26_214_401", "to 26,214,400"),
    ],
)
def test_a_limit_that_cannot_be_set_so_is_refused_with_its_place(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(config.InvalidSettings) as refused:
        settings(tmp_path, f"[limits]\n{text}\n")
    (problem,) = refused.value.problems
    assert says in str(problem) and problem.line == 2


def test_a_variable_that_names_no_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(config.InvalidSettings, match=r"HOLDFAST_LIMIT_SIGNAL_MAX.*signals_max"):
        settings(tmp_path, HOLDFAST_LIMIT_SIGNAL_MAX="5")
    with pytest.raises(config.InvalidSettings, match=r"HOLDFAST_LIMIT_SIGNALS_MAX.*whole number"):
        settings(tmp_path, HOLDFAST_LIMIT_SIGNALS_MAX="many")


async def test_two_open_engines_cannot_have_different_limits(tmp_path: Path) -> None:
    first = Holdfast(str(tmp_path / "a.db"), limits={"signals_max": 5})
    async with first:
        assert limits.now.signals_max == 5
        async with Holdfast(str(tmp_path / "b.db"), limits={"signals_max": 5}):
            pass
        with pytest.raises(ValueError, match=r"signals_max.*whole process"):
            async with Holdfast(str(tmp_path / "c.db"), limits={"signals_max": 6}):
                pass
        assert limits.now.signals_max == 5
    async with Holdfast(str(tmp_path / "c.db"), limits={"signals_max": 6}):
        assert limits.now.signals_max == 6


def test_an_engine_refuses_a_limit_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputs, match="did you mean signals_max"):
        Holdfast(str(tmp_path / "a.db"), limits={"signal_max": 5})


async def test_the_error_names_the_limit_and_its_setting(tmp_path: Path) -> None:
    @tool
    def step(**_: Any) -> None: ...

    low = {
        name: limits.bounds(name)[0]
        for name in ("value_bytes_max", "signals_max", "labels_max", "visits_max")
    }
    async with Holdfast(str(tmp_path / "a.db"), tools=[step], limits=low) as hf:
        with pytest.raises(LimitExceeded, match=r"over 1 KiB.*limits\.value_bytes_max"):
            await hf.start(HELLO, {"x": "y" * 1024})
        with pytest.raises(LimitExceeded, match=r"limits\.labels_max"):
            await hf.start(HELLO, {"x": 1}, labels={"a": "1", "b": "2"})
        waiting = await hf.start(WAITS)
        await hf.signal(waiting.id, "other", 1)
        with pytest.raises(LimitExceeded, match=r"limits\.signals_max"):
            await hf.signal(waiting.id, "another", 1)
        await hf.signal(waiting.id, "go", 1)
        assert await waiting.result(10) == {"w": 1}
        with pytest.raises(RunFailed, match=r"limits\.visits_max"):
            await (await hf.start(CYCLE)).result(10)


async def test_composed_values_and_results_have_the_limit_that_is_set(tmp_path: Path) -> None:
    @tool
    def many(count: int) -> str:
        return "x" * count

    twice = "name: t\nsteps: [{id: a, tool: echo, args: {value: ['{{inputs.x}}', '{{inputs.x}}']}}]\n"
    async with Holdfast(str(tmp_path / "a.db"), tools=[many], limits={"value_bytes_max": 1024}) as hf:
        with pytest.raises(RunFailed, match=r"limits\.value_bytes_max") as failed:
            await (await hf.start(twice, {"x": "y" * 800})).result(10)
        assert failed.value.error.kind == "input_too_large"
        run = await hf.start("name: m\nsteps: [{id: a, tool: many, args: {count: 2000}}]\n")
        with pytest.raises(RunFailed, match=r"limits\.value_bytes_max") as failed:
            await run.result(10)
        assert failed.value.error.kind == "output_too_large"


async def test_processes_of_isolated_tools_have_the_limits_that_are_set(tmp_path: Path) -> None:
    text = "name: m\nsteps: [{id: a, tool: apart, args: {count: '{{inputs.count}}'}}]\n"
    small = {"value_bytes_max": 1024, "log_lines_max": 2}
    async with Holdfast(str(tmp_path / "a.db"), tools=[apart], limits=small) as hf:
        with pytest.raises(RunFailed, match=r"over 1 KiB.*limits\.value_bytes_max"):
            await (await hf.start(text, {"count": 2000})).result(60)
        run = await hf.start(text, {"count": 2})
        said = [event["detail"] async for event in run.events() if event["detail"].get("kind") == "log"]
        assert [one["message"] for one in said[:2]] == ["line 0", "line 1"]
        assert len(said) == 3 and "limits.log_lines_max" in said[2]["message"]


def test_a_lower_limit_refuses_new_definitions_and_reads_stored_ones() -> None:
    text = "name: l\nsteps: [{id: f, kind: foreach, items: '$.inputs.x', concurrency: 50, steps: [{id: a, tool: echo}]}]\n"
    stored = written(definition_from_text(text).to_data()).decode()
    limits.put_in_force(limits.chosen({"concurrency_max": 10, "spec_bytes_max": 1024, "spec_steps_max": 1}))
    try:
        with pytest.raises(InvalidSpec, match=r"limits\.concurrency_max"):
            definition_from_text(text)
        with pytest.raises(InvalidSpec, match=r"limits\.spec_steps_max"):
            definition_from_text(text.replace("50", "5")).validate()
        with pytest.raises(InvalidSpec, match=r"limits\.spec_bytes_max"):
            definition_from_text(text + "#" * 1024)
        read: Any = definition_from_stored(stored)
        assert read.steps[0].body.concurrency == 50
    finally:
        limits.put_in_force(limits.DEFAULTS)
