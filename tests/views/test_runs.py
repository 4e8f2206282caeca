"""What can be looked at, whoever looks: runs as of one moment, pages, workflows and what changed between releases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidInputs, LimitExceeded, NotFound, tool
from holdfast.api.services import Services
from holdfast.runtime.plans import Plans
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import BEGAN
from holdfast.views import progress, run_steps
from holdfast.views.pages import Page
from holdfast.views.runs import Queries
from tests.runtime.bench import opened
from tests.runtime.manual import by_hand, clock, settled

T = "default"


@tool
async def echo(x: Any = None) -> Any:
    return x


@tool
async def fail() -> None:
    raise ValueError("no")


@tool
async def endless() -> None:
    await asyncio.Event().wait()


def steps(*tools: str, **more: Any) -> dict[str, Any]:
    return {"name": "n", "steps": [{"id": f"s{i}", "tool": name} for i, name in enumerate(tools)], **more}


LOOP = {
    "name": "loop",
    "steps": [
        {"id": "l", "kind": "foreach", "items": "$.inputs.xs", "on_any_fail": "continue",
         "steps": [{"id": "s", "tool": "echo", "args": {"x": "{{ item }}"}}]},
        {"id": "end", "tool": "echo", "args": {"x": "over"}},
    ],
}  # fmt: skip


async def ran(services: Services, definition: Any, **inputs: Any) -> str:
    run, _ = await services.commands.start(T, definition, inputs)
    await services.queries.wait_for(T, run.id, 60)
    return run.id


async def every(ask: Any) -> list[Any]:
    """All items of a list, page by page."""
    items, cursor = [], None
    while True:
        page: Page[Any] = await ask(cursor)
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items


# ------------------------------------------------------------------------------------------------- one run


@by_hand
async def test_a_completed_run_is_shown_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        release = await services.commands.publish(T, {**TWICE})
        run, _ = await services.commands.start(
            T, "twice", {"x": 3}, labels={"team": "x"}, parent_job_id="job", request_id="r"
        )
        view = await services.queries.wait_for(T, run.id, 60)
        assert (view.status, view.inputs, view.output, view.error) == (
            "completed",
            {"x": 3},
            {"got": 3},
            None,
        )
        assert (view.workflow, view.version, view.number) == ("twice", release.version, 1)
        assert (view.labels, view.parent_job_id, view.rerun_of) == ({"team": "x"}, "job", None)
        assert (view.created_at, view.started_at, view.finished_at) == (BEGAN, BEGAN, BEGAN)
        assert (view.waits, view.progress) == ([], {"completed_steps": 2, "total_steps": 2})


TWICE = {
    "name": "twice",
    "inputs": {"x": {"type": "integer"}},
    "steps": [
        {"id": "a", "tool": "echo", "args": {"x": "{{ inputs.x }}"}},
        {"id": "b", "tool": "echo", "args": {"x": "{{ a }}"}},
    ],
    "output": {"got": "{{ b }}"},
}


@by_hand
async def test_a_failed_run_is_shown_with_its_error(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo, fail], clock()) as engine:
        services = Services(engine)
        view = await services.queries.run(T, await ran(services, steps("echo", "fail", "echo")))
        assert (view.status, view.output) == ("failed", None)
        assert view.error is not None
        assert (view.error.path, view.error.message) == ("s1", "no")
        assert view.progress == {"completed_steps": 1, "total_steps": 3}


@by_hand
async def test_every_step_of_a_long_definition_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "ROWS_READ_MAX", 10)
    monkeypatch.setattr(progress, "ROWS_AT_A_TIME", 10)
    monkeypatch.setattr(progress, "ROWS_AT_THE_END", 5)
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        view = await services.queries.run(T, await ran(services, steps(*["echo"] * 40)))
        assert view.progress == {"completed_steps": 40, "total_steps": 40}


@by_hand
async def test_an_open_run_is_shown_with_what_it_waits_for(tmp_path: Path) -> None:
    definition = {"name": "n", "steps": [{"id": "t", "kind": "timer", "delay_ms": 90_000}]}
    async with opened(tmp_path, [], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, definition)
        await settled()
        view = await services.queries.run(T, run.id)
        assert (view.status, view.output, view.finished_at) == ("waiting", None, None)
        assert [(wait.path, wait.kind, wait.until) for wait in view.waits] == [("t", "timer", BEGAN + 90_000)]


@by_hand
async def test_waiting_for_a_run_ends_when_the_time_is_up(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, steps("endless"))
        looking = asyncio.ensure_future(services.queries.wait_for(T, run.id, 5))
        await clock().advance(6)
        assert (await looking).status == "running"


@by_hand
async def test_large_inputs_and_outputs_are_shown_whole(tmp_path: Path) -> None:
    text = "x" * 100_000
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        definition = {"name": "n", "steps": [{"id": "a", "tool": "echo", "args": {"x": "{{ inputs.t }}"}}]}
        for more in ({}, {"output": {"all": "{{ a }}"}}):
            view = await services.queries.run(T, await ran(services, {**definition, **more}, t=text))
            assert view.inputs == {"t": text}
            assert view.output == ({"all": text} if more else {"a": text})


@by_hand
async def test_a_reader_that_sees_a_completed_run_sees_its_output(tmp_path: Path) -> None:
    """Looked at again and again while many runs end, also from another connection."""
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        seen: list[Any] = []

        async def look(run_id: str, queries: Queries) -> None:
            while True:
                view = await queries.run(T, run_id)
                seen.append((view.status, view.output, view.finished_at is not None))
                if view.status == "completed":
                    return
                await asyncio.sleep(0)

        store = SqliteStore(str(tmp_path / "h.db"))
        await store.open_to_read()
        outside = Queries(store, Plans(store))
        started = [await services.commands.start(T, TWICE, {"x": i}) for i in range(20)]
        looks = [look(run.id, queries) for run, _ in started for queries in (services.queries, outside)]
        await asyncio.gather(*looks)
        await store.close()
        assert all(output is not None and over for status, output, over in seen if status == "completed")
        assert all(output is None and not over for status, output, over in seen if status != "completed")


@by_hand
async def test_a_file_is_looked_at_without_an_engine(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        run_id = await ran(Services(engine), TWICE, x=1)
    store = SqliteStore(str(tmp_path / "h.db"))
    await store.open_to_read()
    queries = Queries(store, Plans(store))
    assert (await queries.run(T, run_id)).output == {"got": 1}
    assert (await queries.explain(T, run_id)).status == "completed"
    assert [step.path for step in (await queries.steps(T, run_id)).items] == ["a", "b"]
    await store.close()


@by_hand
@pytest.mark.parametrize("run_id", ["", "nobody", "\ud800", "0" * 10_000])
async def test_a_run_that_is_not_there_is_not_found(tmp_path: Path, run_id: str) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        queries = Services(engine).queries
        for asked in (queries.run(T, run_id), queries.journal(T, run_id), queries.tasks.node_runs(T, run_id)):
            with pytest.raises(NotFound):
                await asked


# ------------------------------------------------------------------------------------------------- lists


@by_hand
async def test_lists_are_paged_by_an_opaque_cursor(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo, fail], clock()) as engine:
        services = Services(engine)
        ids = [await ran(services, steps("echo" if i % 3 else "fail")) for i in range(10)]
        pages = await every(lambda cursor: services.queries.runs(T, cursor=cursor, limit=3))
        failed = await every(lambda cursor: services.queries.runs(T, status="failed", cursor=cursor, limit=2))
        assert [row.id for row in pages] == ids[::-1]
        assert [row.id for row in failed] == ids[::-1][::3]
        assert [await services.queries.count(T, status) for status in (None, "failed", "completed")] == [
            10,
            4,
            6,
        ]


@by_hand
async def test_a_list_is_filtered_by_the_release(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo, fail], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, steps("echo"))
        first = await ran(services, "n")
        await services.commands.publish(T, steps("fail"))
        second = await ran(services, "n")
        given = await ran(services, steps("echo", "echo"))
        found = [await services.queries.runs(T, workflow="n", number=number) for number in (1, 2, None)]
        assert [[row.id for row in page.items] for page in found] == [
            [first],
            [second],
            [given, second, first],
        ]
        assert await services.queries.count(T, workflow="n", number=2) == 1


@by_hand
@pytest.mark.parametrize("cursor", ["", "-1", "zz", "0x1", " 1", "\u0661", "f" * 40, "00"])
async def test_a_cursor_that_no_page_gave_is_refused(tmp_path: Path, cursor: str) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        with pytest.raises(InvalidInputs, match="cursor"):
            await Services(engine).queries.runs(T, cursor=cursor)


@by_hand
@pytest.mark.parametrize("limit", [0, 501, -1])
async def test_a_page_has_a_bounded_size(tmp_path: Path, limit: int) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        queries = Services(engine).queries
        for asked in (queries.runs(T, limit=limit), queries.catalog.workflows(T, limit=limit)):
            with pytest.raises(LimitExceeded):
                await asked


@by_hand
async def test_a_run_is_found_by_a_part_of_its_id(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run_id = await ran(services, steps("echo"))
        assert [row.id for row in (await services.queries.runs(T, id_part=run_id[-8:])).items] == [run_id]
        with pytest.raises(InvalidInputs):
            await services.queries.runs(T, id_part="ab")


# ------------------------------------------------------------------------------------------ journal and steps


@by_hand
async def test_a_journal_is_paged_from_any_row(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run_id = await ran(services, LOOP, xs=list(range(20)))
        entries = await every(lambda cursor: services.queries.journal(T, run_id, int(cursor or 0), 7))
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert (entries[0].kind, entries[-1].kind) == ("run_started", "step_succeeded")
        assert bytes(entries[0].body).startswith(b'[1,["run_started"')


@by_hand
@pytest.mark.parametrize("limit", [1, 4, 500])
async def test_steps_are_paged_in_the_order_in_which_they_were_reached(tmp_path: Path, limit: int) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run_id = await ran(services, LOOP, xs=[0, 1, 2])
        inner = ["l", "l[0].s", "l[1].s", "l[2].s", "end"]
        found = await every(lambda at: services.queries.steps(T, run_id, every=True, cursor=at, limit=limit))
        assert [step.path for step in found] == inner
        top = await every(lambda at: services.queries.steps(T, run_id, cursor=at, limit=limit))
        assert [(step.path, step.status) for step in top] == [("l", "completed"), ("end", "completed")]
        assert bytes(top[0].output) == b'{"iterations":[{"s":0},{"s":1},{"s":2}]}'


@by_hand
async def test_steps_of_an_open_run_are_shown_as_they_are(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo, endless], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, steps("echo", "endless", "echo"))
        await settled()
        page = await services.queries.steps(T, run.id)
        assert [(step.path, step.status) for step in page.items] == [("s0", "completed"), ("s1", "running")]
        assert await services.queries.step_names(T, run.id) == ["s0", "s1", "s2"]


@by_hand
async def test_a_page_of_steps_that_is_asked_for_again_shows_what_is_new(tmp_path: Path) -> None:
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    async with opened(tmp_path, [echo, wait], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, steps("echo", "wait", "echo"))
        await settled()
        await services.queries.steps(T, run.id)
        gate.set()
        await services.queries.wait_for(T, run.id, 60)
        page = await services.queries.steps(T, run.id)
        assert [(step.path, step.status) for step in page.items] == [
            ("s0", "completed"), ("s1", "completed"), ("s2", "completed")]  # fmt: skip
        assert bytes(page.items[1].output) == b'"done"'


@by_hand
async def test_a_page_of_steps_whose_outputs_are_large_is_shorter_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_steps, "PAGE_BYTES_MAX", 1)
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, steps("echo", "echo", "echo"))
        await services.queries.wait_for(T, run.id, 60)
        assert [step.path for step in (await services.queries.steps(T, run.id)).items] == ["s0"]
        found = await every(lambda at: services.queries.steps(T, run.id, cursor=at))
        assert [step.path for step in found] == ["s0", "s1", "s2"]


# ------------------------------------------------------------------------------------------------- workflows


@by_hand
async def test_workflows_are_shown_with_the_release_that_their_name_means(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        flow_id = await services.commands.create_flow(T, "empty", "nothing yet")
        release = await services.commands.publish(T, steps("echo", description="does it"))
        views = await every(lambda cursor: services.queries.catalog.workflows(T, cursor, 1))
        assert [(view.workflow.name, view.release) for view in views] == [("empty", None), ("n", release)]
        assert views[1].workflow.description == "does it"
        assert (await services.queries.catalog.workflow(T, flow_id)).workflow.name == "empty"
        with pytest.raises(NotFound, match="no published release"):
            await services.queries.catalog.definition(T, "empty")


@by_hand
async def test_releases_are_listed_and_read_back(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        made = [await services.commands.publish(T, steps(*["echo"] * count)) for count in (1, 2, 3)]
        found = await every(lambda cursor: services.queries.catalog.releases(T, "n", cursor, 2))
        assert found == made[::-1]
        release, definition = await services.queries.catalog.definition(T, "n", 2)
        assert (release, definition.to_data()) == (made[1], steps("echo", "echo"))
        assert await services.queries.catalog.release(T, made[0].id) == made[0]
        for missing in (
            services.queries.catalog.definition(T, "n", 9),
            services.queries.catalog.releases(T, "m"),
        ):
            with pytest.raises(NotFound):
                await missing


@by_hand
async def test_a_diff_shows_lines_and_places(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, steps("echo", "echo"))
        await services.commands.publish(T, steps("echo", "fail", "echo", timeout_secs=5))
        found = await services.queries.catalog.diff(T, "n", 1, 2)
        assert found.pointers == ["/steps/1/tool", "/steps/2", "/timeout_secs"]
        assert "--- n 1" in found.text
        assert {"+  tool: fail", "+timeout_secs: 5.0"} <= set(found.text.splitlines())
        assert (await services.queries.catalog.diff(T, "n", 2, 2)).text == ""
