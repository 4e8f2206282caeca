"""Looking at runs: lists, steps, the job above a run, and the names that another dialect has for all this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    InvalidInputs,
    LimitExceeded,
    NotFound,
    RunFailed,
    ToolError,
    WorkflowJob,
    WorkflowStatus,
    run_sync,
    tool,
)
from holdfast.values import job_id

ECHO = "name: echo\nsteps: [{id: e, tool: echo, args: {x: 1}}]"
FAILS = "name: fails\nlabels: {team: blue}\nsteps: [{id: e, tool: echo}, {id: f, tool: fail}]"


@tool
async def echo(x: Any = None) -> Any:
    return x


@tool
async def fail() -> None:
    raise ToolError("no luck")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'h.db'}"


# ---------------------------------------------------------------------------------------------------------- lists


@pytest.mark.anyio
async def test_runs_are_listed_the_newest_first_and_in_pages(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        ids = [(await hf.start(ECHO)).id for _ in range(5)][::-1]
        first = await hf.runs(limit=2)
        rest = await hf.runs(before=first[-1].id)
        assert [run.id for run in [*first, *rest]] == ids
        assert await hf.runs(before=ids[-1]) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"status": "failed"}, ["fails"]),
        ({"status": "completed"}, ["echo"]),
        ({"workflow": "echo"}, ["echo"]),
        ({"workflow": "nothing"}, []),
        ({"label": "team"}, ["fails"]),
        ({"label": "team=blue"}, ["fails"]),
        ({"label": "team=red"}, []),
        ({"label": "ticket=a=b"}, ["echo"]),
        ({"label": "team=blue", "status": "completed"}, []),
    ],
)
@pytest.mark.anyio
async def test_a_list_has_the_runs_that_were_asked_for(
    database: str, wanted: dict[str, Any], found: list[str]
) -> None:
    async with Holdfast(database, tools=[echo, fail]) as hf:
        await (await hf.start(ECHO, labels={"ticket": "a=b"})).result()
        with pytest.raises(RunFailed):
            await (await hf.start(FAILS)).result()
        assert [run.workflow for run in await hf.runs(**wanted)] == found


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [({"status": "runing"}, InvalidInputs), ({"label": "=x"}, InvalidInputs), ({"limit": 0}, LimitExceeded), ({"limit": 501}, LimitExceeded),
     ({"before": "nothing"}, NotFound)],
)  # fmt: skip
@pytest.mark.anyio
async def test_a_list_that_cannot_be_is_refused(
    database: str, wanted: dict[str, Any], kind: type[Exception]
) -> None:
    async with Holdfast(database) as hf:
        with pytest.raises(kind):
            await hf.runs(**wanted)


@pytest.mark.anyio
async def test_the_job_above_a_run_is_kept_and_shown(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        run = await hf.start(ECHO, labels={"a": "b"}, parent_job_id="job-1")
        await run.result()
    async with Holdfast(database) as hf:
        info = await (await hf.run(run.id)).info()
        assert [info] == await hf.runs()
    assert (info.parent_job_id, info.labels, info.workflow, info.status) == (
        "job-1",
        {"a": "b"},
        "echo",
        "completed",
    )
    assert info.finished_at is not None
    assert info.finished_at >= info.created_at


# ---------------------------------------------------------------------------------------------------------- steps


@pytest.mark.anyio
async def test_the_steps_of_a_run_are_shown_with_what_they_gave(database: str) -> None:
    async with Holdfast(database, tools=[echo, fail]) as hf:
        run = await hf.start(FAILS)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        steps = await run.steps()
    assert {path: (step.status, step.attempts, step.output) for path, step in steps.items()} == {
        "e": ("completed", 1, None),
        "f": ("failed", 1, None),
    }
    assert steps["f"].error == caught.value.error
    assert steps["f"].job_id == job_id(run.id, "f", 1)


@pytest.mark.anyio
async def test_every_step_inside_a_loop_is_shown_when_asked_for(database: str) -> None:
    spec = """
name: n
inputs: {items: {default: [5, 6]}}
steps: [{id: loop, kind: foreach, items: $.inputs.items, steps: [{id: e, tool: echo, args: {x: '{{ item }}'}}]}]
"""
    async with Holdfast(database, tools=[echo]) as hf:
        run = await hf.start(spec)
        await run.result()
        assert list(await run.steps()) == ["loop"]
        every = await run.steps(every=True)
    assert {path: step.output for path, step in every.items()} == {
        "loop": {"iterations": [{"e": 5}, {"e": 6}]},
        "loop[0].e": 5,
        "loop[1].e": 6,
    }


# -------------------------------------------------------------------------------------------------------- other names


@pytest.mark.anyio
async def test_a_pending_job_really_starts(database: str) -> None:
    job = WorkflowJob.pending(ECHO)
    assert job.status is WorkflowStatus.PENDING
    async with Holdfast(database, tools=[echo]) as hf:
        run = await job.start(hf)
        assert await run.result() == {"e": 1}


@pytest.mark.parametrize(
    ("ours", "theirs", "is_terminal"),
    [
        ("pending", "pending", False),
        ("running", "running", False),
        ("waiting", "running", False),
        ("cancelling", "running", False),
        ("completed", "completed", True),
        ("failed", "failed", True),
        ("cancelled", "cancelled", True),
        ("interrupted", "interrupted", True),
    ],
)
def test_a_state_is_spelled_as_the_dialect_has_it(ours: str, theirs: str, is_terminal: bool) -> None:
    status = WorkflowStatus(ours)
    assert (status.value, status.is_terminal) == (theirs, is_terminal)


@pytest.mark.parametrize("word", ["paused", "canceled", "RUNNING", ""])
def test_a_state_that_the_dialect_has_not_is_a_value_error(word: str) -> None:
    with pytest.raises(ValueError):
        WorkflowStatus(word)


def test_run_sync_takes_the_options_of_a_start_and_of_a_result(database: str) -> None:
    output = run_sync(
        ECHO,
        tools=[echo],
        database=database,
        durability="relaxed",
        labels={"a": "b"},
        parent_job_id="p",
        timeout=30,
    )
    assert output == {"e": 1}
    with pytest.raises(TimeoutError, match="waiting"):
        run_sync("name: n\nsteps: [{id: t, kind: timer, delay_ms: 60000}]", database=database, timeout=0.01)
