"""The engine in one's own process, through the front door: start, result, attach, cancel, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import (
    DatabaseInUse,
    EngineClosed,
    Holdfast,
    InvalidInputs,
    InvalidSpec,
    NotFound,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    ToolError,
    WorkflowSpec,
    run_sync,
    tool,
)

SUM = """
name: sum
inputs: {a: {type: integer}, b: {type: integer, default: 2}}
labels: {team: blue}
steps:
  - {id: total, tool: add, args: {a: "{{ a }}", b: "{{ b }}"}}
"""


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def fail(message: str = "no luck", kind: str = "error") -> None:
    raise ToolError(message, kind=kind)


class Gate:
    """A tool that waits until the test opens it."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.began = asyncio.Event()

        @tool(name="gate")
        async def gate() -> str:
            self.began.set()
            await self.opened.wait()
            return "through"

        self.tool = gate


GATE = "name: g\nsteps: [{id: g, tool: gate}]"


def address(path: Path) -> str:
    return f"sqlite:///{path / 'h.db'}"


# ------------------------------------------------------------------------------------------------ start and result


@pytest.mark.anyio
async def test_a_run_gives_the_outputs_of_its_steps(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        run = await hf.start(SUM, {"a": 40})
        assert await run.result() == {"total": 42}
        assert await run.status() == "completed"


@pytest.mark.anyio
async def test_a_result_can_be_asked_for_again(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        run = await hf.start(SUM, {"a": 1})
        assert [await run.result() for _ in range(3)] == [{"total": 3}] * 3


@pytest.mark.anyio
async def test_a_definition_may_be_text_a_record_a_mapping_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sum.yaml"
    file.write_text(SUM, "utf-8")
    spec = WorkflowSpec.from_yaml_str(SUM)
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        forms: list[Any] = [SUM, spec, spec.to_data(), file, str(file)]
        for definition in forms:
            run = await hf.start(definition, {"a": 3})
            assert await run.result() == {"total": 5}
        versions = list(apsw.Connection(str(tmp_path / "h.db")).execute("SELECT count(*) FROM version"))
        assert versions == [(1,)]  # the same definition is the same version, however it came


@pytest.mark.anyio
async def test_an_explicit_output_is_what_its_template_says(tmp_path: Path) -> None:
    definition = SUM + "output: {sum: '{{ total }}', text: 'it is {{ total }}', none: '{{ inputs.c }}'}\n"
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        run = await hf.start(definition.replace("default: 2}}", "default: 2}, c: {default: null}}"), {"a": 1})
        assert await run.result() == {"sum": 3, "text": "it is 3", "none": None}


@pytest.mark.parametrize("size", [10, 2_000, 60_000])
@pytest.mark.anyio
async def test_an_explicit_output_holds_values_of_any_size_and_any_key(tmp_path: Path, size: int) -> None:
    value = {"text": "x" * size, "$of": "mine", "$$": {"$blob": 1}}

    @tool
    async def give() -> dict[str, Any]:
        return value

    definition = (
        "name: n\nsteps: [{id: a, tool: give}]\noutput: {all: '{{ a }}', part: ['{{ a.text }}'], '$own': 1}\n"
    )
    expected = {"all": value, "part": ["x" * size], "$own": 1}
    async with Holdfast(address(tmp_path), tools=[give]) as hf:
        run = await hf.start(definition)
        assert await run.result() == expected
    async with Holdfast(address(tmp_path), tools=[give]) as hf:
        assert await (await hf.run(run.id)).result() == expected


@pytest.mark.anyio
async def test_an_empty_output_of_a_step_is_null(tmp_path: Path) -> None:
    @tool
    async def nothing() -> None:
        return None

    async with Holdfast(address(tmp_path), tools=[nothing]) as hf:
        run = await hf.start("name: n\nsteps: [{id: a, tool: nothing}]")
        assert await run.result() == {"a": None}


@pytest.mark.anyio
async def test_waiting_for_a_result_can_be_limited_and_taken_up_again(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.01)
        gate.opened.set()
        assert await run.result(timeout=120) == {"g": "through"}


@pytest.mark.anyio
async def test_many_may_wait_for_one_run(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        again = await hf.run(run.id)
        waiting = asyncio.gather(*(handle.result() for handle in [run, again, run, again]))
        await gate.began.wait()
        gate.opened.set()
        assert await waiting == [{"g": "through"}] * 4


@pytest.mark.anyio
async def test_ids_are_uuids_that_sort_by_creation(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        ids = [(await hf.start(SUM, {"a": 1})).id for _ in range(3)]
    assert all(len(one) == 36 and one[14] == "7" for one in ids)
    assert len(set(ids)) == 3


# ---------------------------------------------------------------------------------------------------------- endings


@pytest.mark.anyio
async def test_a_failed_run_raises_with_its_error(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[fail]) as hf:
        run = await hf.start("name: n\nsteps: [{id: a, tool: fail, args: {message: full, kind: quota}}]")
        with pytest.raises(RunFailed, match="full") as caught:
            await run.result()
        error = caught.value.error
        assert (error.kind, error.message, error.path, error.attempt) == ("quota", "full", "a", 1)
        assert (caught.value.run_id, caught.value.code, await run.status()) == (
            run.id,
            "run_failed",
            "failed",
        )


@pytest.mark.anyio
async def test_a_cancelled_run_raises_with_its_reason(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        await gate.began.wait()
        await hf.cancel(run.id, "not needed")
        with pytest.raises(RunCancelled, match="not needed") as caught:
            await run.result()
        assert (caught.value.error.kind, await run.status()) == ("cancelled", "cancelled")


@pytest.mark.anyio
async def test_cancelling_twice_is_fine_while_the_run_is_open(tmp_path: Path) -> None:
    stay = asyncio.Event()

    @tool
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stay.wait()
            raise

    async with Holdfast(address(tmp_path), tools=[slow]) as hf:
        run = await hf.start("name: n\nsteps: [{id: a, tool: slow}]")
        await hf.cancel(run.id)
        await hf.cancel(run.id)
        assert await run.status() == "cancelling"
        stay.set()
        with pytest.raises(RunCancelled):
            await run.result()


@pytest.mark.anyio
async def test_a_run_that_is_over_cannot_be_cancelled_and_says_what_it_is(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        run = await hf.start(SUM, {"a": 1})
        await run.result()
        assert await hf.cancel(run.id) == {"cancelled": False, "status": "completed"}
        assert await run.status() == "completed"


@pytest.mark.anyio
async def test_a_run_may_ask_not_to_survive_a_restart(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        run = await hf.start("name: n\non_restart: interrupt\nsteps: [{id: g, tool: gate}]")
        await gate.began.wait()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        with pytest.raises(RunInterrupted):
            await (await hf.run(run.id)).result()


@pytest.mark.parametrize("run_id", ["", "nothing", "018bcfe5-6800-7000-8000-000000000001"])
@pytest.mark.anyio
async def test_an_unknown_run_is_not_found(tmp_path: Path, run_id: str) -> None:
    async with Holdfast(address(tmp_path)) as hf:
        with pytest.raises(NotFound):
            await hf.run(run_id)
        with pytest.raises(NotFound):
            await hf.cancel(run_id)


# --------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.anyio
async def test_an_open_run_goes_on_as_soon_as_the_file_is_opened_again(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        await gate.began.wait()
    second = Gate()
    second.opened.set()
    async with Holdfast(address(tmp_path), tools=[second.tool]) as hf:
        assert await (await hf.run(run.id)).result(timeout=60) == {"g": "through"}


@pytest.mark.anyio
async def test_every_open_run_goes_on_whether_or_not_somebody_attaches(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        runs = [await hf.start(GATE) for _ in range(10)]
        await gate.began.wait()
    second = Gate()
    second.opened.set()
    async with Holdfast(address(tmp_path), tools=[second.tool]) as hf:
        await second.began.wait()
        for run in runs:
            assert await (await hf.run(run.id)).result(timeout=60) == {"g": "through"}


@pytest.mark.anyio
async def test_a_finished_run_is_read_back_from_the_file(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        run = await hf.start(SUM, {"a": 5})
        await run.result()
    async with Holdfast(address(tmp_path)) as hf:
        again = await hf.run(run.id)
        assert (await again.status(), await again.result()) == ("completed", {"total": 7})


@pytest.mark.anyio
async def test_whoever_waits_when_the_engine_is_closed_does_not_wait_for_ever(tmp_path: Path) -> None:
    gate = Gate()
    async with Holdfast(address(tmp_path), tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        waiting = asyncio.ensure_future(run.result())
        await gate.began.wait()
    with pytest.raises(EngineClosed):
        await asyncio.wait_for(waiting, 60)


@pytest.mark.anyio
async def test_a_file_has_one_engine_at_a_time(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path)):
        with pytest.raises(DatabaseInUse, match="in use by process"):
            async with Holdfast(address(tmp_path)):
                pass
    async with Holdfast(address(tmp_path)):
        pass


# ----------------------------------------------------------------------------------------------------------- refused


@pytest.mark.anyio
async def test_inputs_that_do_not_fit_are_refused_together_and_leave_no_run(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        with pytest.raises(InvalidInputs) as caught:
            await hf.start(SUM, {"b": "two", "c": 3})
        assert all(word in str(caught.value) for word in ['"a"', '"b"', '"c"'])
        assert isinstance(caught.value, ValueError)
    assert list(apsw.Connection(str(tmp_path / "h.db")).execute("SELECT count(*) FROM run")) == [(0,)]


@pytest.mark.parametrize("value", [float("nan"), object(), {"deep": float("inf")}])
@pytest.mark.anyio
async def test_inputs_without_a_json_form_are_refused(tmp_path: Path, value: Any) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        with pytest.raises(ValueError, match="JSON"):
            await hf.start("name: n\nsteps: [{id: a, tool: add}]", {"x": value})


@pytest.mark.anyio
async def test_a_definition_with_mistakes_is_refused_with_all_of_them_and_leaves_no_run(
    tmp_path: Path,
) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        with pytest.raises(InvalidSpec) as caught:
            await hf.start(
                "name: n\nsteps: [{id: a, tool: 'bad/tool'}, {id: a, tool: t, args: {x: '{{ nope }}'}}]"
            )
        assert len(caught.value.problems) >= 3
    assert list(apsw.Connection(str(tmp_path / "h.db")).execute("SELECT count(*) FROM run")) == [(0,)]


@pytest.mark.anyio
async def test_an_address_that_is_no_sqlite_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sqlite:///"):
        Holdfast("mysql://somewhere/db")


@pytest.mark.anyio
async def test_something_that_is_no_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not a tool"):
        Holdfast(address(tmp_path), tools=[7])


# ------------------------------------------------------------------------------------------------------------ labels


@pytest.mark.anyio
async def test_labels_of_the_definition_and_of_the_start_are_stored_together(tmp_path: Path) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        await hf.start(SUM, {"a": 1}, labels={"ticket": "7", "team": "red"})
        await hf.start("name: n\nsteps: [{id: a, tool: add}]")
    found = list(apsw.Connection(str(tmp_path / "h.db")).execute("SELECT labels FROM run ORDER BY no"))
    assert found == [('{"team":"red","ticket":"7"}',), (None,)]


# ---------------------------------------------------------------------------------------------------------- run_sync


def test_run_sync_runs_to_the_end_and_gives_the_output(tmp_path: Path) -> None:
    assert run_sync(SUM, {"a": 1}, tools=[add], database=address(tmp_path)) == {"total": 3}


def test_run_sync_raises_what_the_run_ended_with(tmp_path: Path) -> None:
    with pytest.raises(RunFailed):
        run_sync("name: n\nsteps: [{id: a, tool: fail}]", tools=[fail], database=address(tmp_path))


def test_every_public_name_can_be_imported() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


@tool
async def ask() -> dict[str, Any]:
    return {"pending": True, "task_id": "T1"}


@pytest.mark.anyio
@pytest.mark.parametrize(("engine", "step"), [(0.01, ""), (1e9, ", pending_ttl_secs: 0.01")])
async def test_a_later_answer_is_waited_for_as_long_as_the_engine_says_unless_its_step_does(
    tmp_path: Path, engine: float, step: str
) -> None:
    async with Holdfast(address(tmp_path), tools=[ask], pending_ttl_secs=engine) as hf:
        run = await hf.start(f"name: n\nsteps: [{{id: a, tool: ask{step}}}]")
        with pytest.raises(RunFailed) as raised:
            await run.result()
    assert raised.value.error.kind == "resume_timeout"


@pytest.mark.parametrize("word", ["x", "", "FULL", "none"])
def test_a_durability_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path, word: str) -> None:
    with pytest.raises(InvalidInputs, match="durability must be full or relaxed"):
        Holdfast(address(tmp_path), durability=word)
    assert list(tmp_path.iterdir()) == []


BAD_LABELS: list[dict[str, str]] = [
    {"": "x"},
    {"  ": "x"},
    {"a\x1b[31m": "x"},
    {"a": "x\ny"},
    {"a": "\u202eevil"},
    {"a": "\ud800"},
]


@pytest.mark.anyio
@pytest.mark.parametrize("labels", BAD_LABELS, ids=ascii)
async def test_labels_that_cannot_be_shown_are_refused_and_start_nothing(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        with pytest.raises(InvalidInputs, match="label"):
            await hf.start(SUM, {"a": 1}, labels=labels)
        assert await hf.runs() == []


@pytest.mark.anyio
@pytest.mark.parametrize("labels", [{"k" * 1001: "v"}, {"k": "v" * 1001}, {f"k{i}": "v" for i in range(100)}])
async def test_too_many_and_too_long_labels_are_limits(tmp_path: Path, labels: dict[str, str]) -> None:
    async with Holdfast(address(tmp_path), tools=[add]) as hf:
        with pytest.raises(holdfast.LimitExceeded, match="label"):
            await hf.start(SUM, {"a": 1}, labels=labels)  # the workflow has one of its own
        assert await hf.runs() == []
