"""A start under a request id: one run, however often and by whomever it is asked for; and published names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import (
    Holdfast,
    InvalidInputs,
    InvalidSpec,
    LimitExceeded,
    NotFound,
    RequestConflict,
    StoreUnavailable,
    run_sync,
    tool,
)
from holdfast.store.batch import Batch
from holdfast.store.sqlite.store import SqliteStore

ECHO = "name: echo\ninputs: {x: {default: 0}, y: {default: 0}}\nsteps: [{id: e, tool: echo, args: {x: '{{ x }}'}}]"
OTHER = ECHO.replace("{{ x }}", "no {{ x }}")


@tool
async def echo(x: Any) -> Any:
    return x


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'h.db'}"


def count(database: str, table: str) -> Any:
    return apsw.Connection(database.removeprefix("sqlite:///")).execute(f"SELECT count(*) FROM {table}").get


# ---------------------------------------------------------------------------------------------------- request ids


@pytest.mark.anyio
async def test_a_hundred_parallel_starts_under_one_id_make_one_run(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        runs = await asyncio.gather(*(hf.start(ECHO, {"x": 1}, request_id="order-7") for _ in range(100)))
        assert len({run.id for run in runs}) == 1
        assert [await run.result() for run in runs] == [{"e": 1}] * 100
    assert (count(database, "run"), count(database, "request")) == (1, 1)


@pytest.mark.anyio
async def test_the_same_id_means_the_same_run_after_a_restart(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        first = await hf.start(ECHO, {"x": 1}, request_id="a")
        await first.result()
    async with Holdfast(database, tools=[echo]) as hf:
        again = await hf.start(ECHO, {"x": 1}, request_id="a")
        assert (again.id, await again.result()) == (first.id, {"e": 1})


def test_the_same_id_means_the_same_run_in_a_script_that_is_run_twice(database: str) -> None:
    for _ in range(2):
        assert run_sync(ECHO, {"x": 1}, tools=[echo], database=database, request_id="nightly") == {"e": 1}
    assert count(database, "run") == 1


@pytest.mark.anyio
async def test_other_ids_and_no_id_make_other_runs(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        ids = {(await hf.start(ECHO, request_id=request_id)).id for request_id in ("a", "b", None, None)}
    assert len(ids) == 4


@pytest.mark.parametrize(("spec", "inputs"), [(ECHO, {"x": 2}), (OTHER, {"x": 1}), (ECHO, {"x": 1, "y": 0})])
@pytest.mark.anyio
async def test_another_body_under_the_same_id_is_refused(
    database: str, spec: str, inputs: dict[str, Any]
) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        run = await hf.start(ECHO, {"x": 1}, request_id="a")
        with pytest.raises(RequestConflict) as caught:
            await hf.start(spec, inputs, request_id="a")
    assert (caught.value.code, caught.value.request_id, caught.value.run_id) == (
        "request_conflict",
        "a",
        run.id,
    )
    assert count(database, "run") == 1


@pytest.mark.anyio
async def test_of_two_bodies_at_the_same_time_one_is_refused(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        starts = [hf.start(ECHO, {"x": x}, request_id="a") for x in (1, 2)]
        _, refused = await asyncio.gather(*starts, return_exceptions=True)
    assert isinstance(refused, RequestConflict)


@pytest.mark.anyio
async def test_the_order_and_form_of_the_same_body_do_not_matter(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        first = await hf.start(ECHO, {"x": 1, "y": 2}, request_id="a")
        again = await hf.start("# the same\n" + ECHO, {"y": 2, "x": 1}, request_id="a")
    assert again.id == first.id


@pytest.mark.anyio
async def test_a_refused_start_leaves_its_id_free(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        with pytest.raises(InvalidInputs):
            await hf.start(ECHO, {"z": 1}, request_id="a")
        run = await hf.start(ECHO, {"x": 1}, request_id="a")
        assert await run.result() == {"e": 1}


class Failing(SqliteStore):
    """Refuses the next commit that begins a run, as a full disk would."""

    fails = False

    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        if batch.new_runs and self.fails:
            self.fails = False
            return done(StoreUnavailable("the disk is full"))
        super().submit(batch, done)


@pytest.mark.anyio
async def test_a_start_whose_commit_fails_leaves_its_id_free(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.open.SqliteStore", Failing)
    async with Holdfast(database, tools=[echo]) as hf:
        hf._engine.store.fails = True  # type: ignore[attr-defined]
        answers = await asyncio.gather(
            *(hf.start(ECHO, {"x": 1}, request_id="a") for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(answer, StoreUnavailable) for answer in answers)
        while hf._engine.door.is_stalled:
            await asyncio.sleep(0)
        run = await hf.start(ECHO, {"x": 1}, request_id="a")
        assert await run.result() == {"e": 1}
    assert (count(database, "run"), count(database, "request")) == (1, 1)


@pytest.mark.anyio
async def test_others_get_their_run_although_the_first_who_asked_gave_up(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        first = asyncio.ensure_future(hf.start(ECHO, {"x": 1}, request_id="a"))
        second = asyncio.ensure_future(hf.start(ECHO, {"x": 1}, request_id="a"))
        await asyncio.sleep(0)
        first.cancel()
        assert await (await second).result() == {"e": 1}


@pytest.mark.parametrize(
    ("request_id", "kind"), [("", InvalidInputs), (7, InvalidInputs), ("x" * 256, LimitExceeded)]
)
@pytest.mark.anyio
async def test_a_request_id_that_is_none_is_refused(
    database: str, request_id: Any, kind: type[Exception]
) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        with pytest.raises(kind):
            await hf.start(ECHO, request_id=request_id)


# ---------------------------------------------------------------------------------------------------- published names


@pytest.mark.anyio
async def test_a_published_workflow_is_started_by_its_name_also_after_a_restart(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        await hf.publish(ECHO)
    async with Holdfast(database, tools=[echo]) as hf:
        assert await (await hf.start("echo", {"x": 3})).result() == {"e": 3}


@pytest.mark.anyio
async def test_a_name_means_what_was_published_last(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        versions = [await hf.publish(spec) for spec in (ECHO, OTHER)]
        run = await hf.start("echo", {"x": 3})
        assert await run.result() == {"e": "no 3"}
        assert (await run.info()).version == versions[1]
        await hf.publish(ECHO)
        assert await (await hf.start("echo", {"x": 3})).result() == {"e": 3}


@pytest.mark.anyio
async def test_publishing_the_same_twice_changes_nothing(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        assert await hf.publish(ECHO) == await hf.publish("# the same\n" + ECHO)
    assert (count(database, "workflow"), count(database, "version")) == (1, 1)


@pytest.mark.anyio
async def test_a_name_that_is_not_published_is_not_found_and_the_nearest_is_named(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        await hf.publish(ECHO)
        with pytest.raises(NotFound, match="did you mean echo"):
            await hf.start("ecoh")
        with pytest.raises(NotFound, match="publish it first"):
            await hf.start("something else")


@pytest.mark.anyio
async def test_a_definition_with_mistakes_is_not_published(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        with pytest.raises(InvalidSpec):
            await hf.publish("name: n\nsteps: [{id: a, tool: t, args: {x: '{{ nope }}'}}]")
    assert count(database, "workflow") == 0


@pytest.mark.anyio
async def test_a_request_by_name_stays_the_same_when_the_name_moves_on(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        await hf.publish(ECHO)
        run = await hf.start("echo", {"x": 3}, request_id="a")
        await hf.publish(OTHER)
        assert (await hf.start("echo", {"x": 3}, request_id="a")).id == run.id


@pytest.mark.anyio
async def test_two_engines_in_one_process_keep_to_their_own_files(tmp_path: Path) -> None:
    async with (
        Holdfast(f"sqlite:///{tmp_path / 'a.db'}", tools=[echo]) as first,
        Holdfast(f"sqlite:///{tmp_path / 'b.db'}", tools=[echo]) as second,
    ):
        await first.publish(ECHO)
        runs = [await hf.start(ECHO, {"x": 1}, request_id="a") for hf in (first, second)]
        assert runs[0].id != runs[1].id
        assert [await run.result() for run in runs] == [{"e": 1}] * 2
        with pytest.raises(NotFound):
            await second.start("echo")
