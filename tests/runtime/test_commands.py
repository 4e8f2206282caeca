"""What can be asked of the engine, whoever asks: releases of workflows, starts, cancels and reruns, tenant by tenant."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidInputs, InvalidSpec, NotFound, RequestConflict, tool
from holdfast.api.services import Services
from holdfast.errors import RunIsOpen, VersionConflict
from holdfast.runtime.rerun import Again
from tests.runtime.bench import opened, rows
from tests.runtime.manual import by_hand, clock, settled

T = "default"


def steps(text: str, name: str = "n") -> dict[str, Any]:
    return {"name": name, "steps": [{"id": "a", "tool": "echo", "args": {"x": text}}]}


def graph(service: str = "echo") -> dict[str, Any]:
    node = {
        "kind": "local",
        "service": service,
        "prep": {"input_key": "$params.x"},
        "post": {"output_key": "y"},
    }
    return {"name": "g", "start": "a", "nodes": {"a": node}, "edges": []}


@tool
async def echo(x: Any = None, input: Any = None, params: Any = None) -> Any:  # noqa: A002  # as services are called
    return x if params is None else input


@tool
async def endless() -> None:
    await asyncio.Event().wait()


ENDLESS = {"name": "endless", "steps": [{"id": "a", "tool": "endless"}]}


# ---------------------------------------------------------------------------------------------------- releases


@by_hand
async def test_a_workflow_that_was_published_before_its_names_were_refused_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = {"name": "n", "steps": [{"id": "a\n", "tool": "echo", "args": {"x": 1}}]}
    async with opened(tmp_path, [echo], clock()) as engine:
        with monkeypatch.context() as before:
            before.setattr("holdfast.spec.names._CONTROL", re.compile("(?!)"))
            await Services(engine).commands.publish(T, definition)
        with pytest.raises(InvalidSpec, match="control character"):
            await Services(engine).commands.publish(T, definition | {"description": "again"})
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, "n")
        assert (await services.queries.wait_for(T, run.id, 60)).output == {"a\n": 1}


@by_hand
async def test_each_content_that_is_published_gets_the_next_number(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        found = [await commands.publish(T, steps(text)) for text in ("1", "2", "3")]
        assert [release.number for release in found] == [1, 2, 3]
        assert len({release.version for release in found}) == 3
        assert {release.flow_id for release in found} == {found[0].flow_id}


@by_hand
async def test_the_same_content_again_is_the_same_release(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        first = await commands.publish(T, steps("1"))
        assert await commands.publish(T, steps("1")) == first


@by_hand
async def test_a_number_means_one_content_for_ever(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        first = await commands.publish(T, steps("1"), number=5)
        assert await commands.publish(T, steps("1"), number=5) == first
        with pytest.raises(VersionConflict, match="different content"):
            await commands.publish(T, steps("2"), number=5)
        assert (await commands.publish(T, steps("2"))).number == 6


@by_hand
async def test_a_draft_is_not_what_the_name_means_and_runs_by_its_number(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, steps("1"))
        draft = await services.commands.publish(T, steps("2"), draft=True)
        by_name, _ = await services.commands.start(T, "n")
        by_number, _ = await services.commands.start(T, "n", number=draft.number)
        assert [(await ended(services, run.id)).output for run in (by_name, by_number)] == [
            {"a": "1"},
            {"a": "2"},
        ]
        assert (by_name.number, by_number.number) == (1, 2)


@by_hand
async def test_a_draft_is_published_under_the_number_that_it_has(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        draft = await services.commands.publish(T, steps("1"), draft=True)
        with pytest.raises(NotFound):
            await services.commands.start(T, "n")
        published = await services.commands.publish(T, steps("1"))
        assert (published.id, published.number, published.status) == (draft.id, 1, "published")
        await services.commands.start(T, "n")


@by_hand
async def test_rolling_back_lets_the_name_mean_an_earlier_release_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        for text in ("1", "2"):
            await services.commands.publish(T, steps(text))
        assert (await services.commands.roll_back(T, "n", 1)).number == 1
        run, _ = await services.commands.start(T, "n")
        assert (run.number, (await ended(services, run.id)).output) == (1, {"a": "1"})
        assert (await services.commands.publish(T, steps("1"))).number == 1
        assert (await services.commands.publish(T, steps("3"))).number == 3


@by_hand
async def test_publishing_under_a_lower_number_does_not_move_the_name(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, steps("5"), number=5)
        await services.commands.publish(T, steps("3"), number=3)
        assert (await services.queries.catalog.definition(T, "n"))[0].number == 5


@by_hand
async def test_a_run_keeps_its_version_whatever_is_published_later(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo, endless], clock()) as engine:
        services = Services(engine)
        first = await services.commands.publish(T, ENDLESS)
        run, _ = await services.commands.start(T, "endless")
        await services.commands.publish(T, {**ENDLESS, "description": "another"})
        view = await services.queries.run(T, run.id)
        assert (view.version, view.number) == (first.version, 1)


@by_hand
async def test_publishing_at_once_gives_no_number_twice(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        found = await asyncio.gather(*(commands.publish(T, steps(str(i % 10))) for i in range(30)))
        assert len({(release.number, release.version) for release in found}) == len(
            {release.number for release in found}
        )


@by_hand
async def test_a_publisher_who_goes_away_leaves_nothing_half_done(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, steps("1"))
        await services.commands.start(T, "n")
        engine.store.hold = True
        leaving = asyncio.ensure_future(services.commands.publish(T, steps("2")))
        staying = asyncio.ensure_future(services.commands.publish(T, steps("3")))
        await settled()
        leaving.cancel()
        await settled()
        engine.store.let_go()
        assert (await staying).number == 3
        run, _ = await services.commands.start(T, "n")
        assert (run.number, (await ended(services, run.id)).output) == (3, {"a": "3"})


@by_hand
async def test_a_workflow_has_one_id_whichever_way_it_came_to_be(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        flow_id = await commands.create_flow(T, "n", "what for")
        assert await commands.create_flow(T, "n") == flow_id
        assert (await commands.publish(T, steps("1"))).flow_id == flow_id
        assert await commands.create_flow(T, "n") == flow_id


@by_hand
async def test_a_name_given_from_outside_counts(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        release = await commands.publish(T, await commands.read({**graph(), "name": "inside"}, "outside"))
        assert release.name == "outside"


@by_hand
@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "\ud800", None, 5])
async def test_the_name_of_a_workflow_is_one_line_of_text(tmp_path: Path, name: Any) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        with pytest.raises(InvalidInputs):
            await Services(engine).commands.create_flow(T, name)


@by_hand
async def test_a_broken_definition_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, steps("1"))
        with pytest.raises(InvalidSpec):
            await services.commands.publish(T, steps("{{ nowhere }}"))
        assert (await services.queries.catalog.definition(T, "n"))[0].number == 1
        assert rows(tmp_path, "SELECT count(*) FROM release") == [(1,)]


@by_hand
@pytest.mark.parametrize("number", [0, -1, 2**31, True, 1.5, "1"])
async def test_the_number_of_a_release_is_a_small_whole_number(tmp_path: Path, number: Any) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        with pytest.raises(InvalidInputs):
            await Services(engine).commands.publish(T, steps("1"), number=number)


# ------------------------------------------------------------------------------------------------------ starts


async def ended(services: Services, run_id: str, tenant: str = T) -> Any:
    return await services.queries.wait_for(tenant, run_id, 60)


@by_hand
async def test_both_notations_are_published_and_started_alike(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        for definition, expected in ((steps("1"), {"a": "1"}), (graph(), {"y": 7})):
            release = await services.commands.publish(T, definition)
            run, is_new = await services.commands.start(
                T, release.name, {"x": 7} if "start" in definition else {}
            )
            assert is_new
            assert (await ended(services, run.id)).output == expected


@by_hand
async def test_a_request_makes_one_run_and_says_which_call_made_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        asked = [services.commands.start(T, steps("1"), request_id="r") for _ in range(100)]
        found = await asyncio.gather(*asked)
        assert len({run.id for run, _ in found}) == 1
        assert [is_new for _, is_new in found].count(True) == 1
        assert await services.queries.count(T) == 1


@by_hand
async def test_a_request_for_something_else_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        commands = Services(engine).commands
        await commands.publish(T, steps("1"))
        await commands.publish(T, steps("2"))
        await commands.start(T, "n", number=1, request_id="r")
        with pytest.raises(RequestConflict):
            await commands.start(T, "n", number=2, request_id="r")


@by_hand
async def test_an_accepted_run_is_told_of_with_its_labels_and_its_release(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, {**steps("1"), "labels": {"of": "spec"}})
        row, _ = await services.commands.start(T, "n", labels={"team": "x"}, parent_job_id="job-1")
        stored = await engine.runs.row_of(row.id)
        told = (row.labels, row.number, row.workflow, row.parent_job_id, row.created_at, row.version, row.no)
        assert told == (
            stored.labels,
            stored.number,
            stored.workflow,
            stored.parent_job_id,
            stored.created_at,
            stored.version,
            stored.no,
        )


@by_hand
async def test_a_number_without_a_name_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        with pytest.raises(InvalidInputs, match="name"):
            await Services(engine).commands.start(T, steps("1"), number=1)


# ----------------------------------------------------------------------------------------------------- tenants


@by_hand
async def test_what_one_tenant_has_does_not_exist_for_another(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish("a", steps("1"))
        run, _ = await services.commands.start("a", "n")
        await ended(services, run.id, "a")
        for refused in (
            services.commands.start("b", "n"),
            services.commands.cancel("b", run.id),
            services.commands.rerun("b", run.id),
            services.queries.preview("b", run.id),
            services.commands.roll_back("b", "n", 1),
            services.queries.run("b", run.id),
            services.queries.journal("b", run.id),
            services.queries.steps("b", run.id),
            services.queries.explain("b", run.id),
            services.queries.tasks.task("b", run.id),
            services.queries.tasks.node_runs("b", run.id),
            services.queries.wait_for("b", run.id, 1),
            services.queries.catalog.workflow("b", "n"),
            services.queries.catalog.releases("b", "n"),
            services.queries.catalog.definition("b", "n"),
        ):
            with pytest.raises(NotFound):
                await refused
        assert (await services.queries.runs("b")).items == []
        assert await services.queries.count("b") == 0
        assert (await services.queries.catalog.workflows("b")).items == []


@by_hand
async def test_two_tenants_have_the_same_names_requests_and_definitions_apart(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        for tenant in ("a", "b"):
            await services.commands.publish(tenant, steps("1"))
            run, is_new = await services.commands.start(tenant, "n", request_id="r")
            assert is_new
            assert (await ended(services, run.id, tenant)).output == {"a": "1"}
        assert rows(tmp_path, "SELECT tenant, count(*) FROM version GROUP BY 1") == [("a", 1), ("b", 1)]


@by_hand
async def test_a_run_of_another_tenant_goes_on_after_a_crash(tmp_path: Path) -> None:
    definition = {"name": "n", "steps": [{"id": "t", "kind": "timer", "delay_ms": 60_000}]}
    async with opened(tmp_path, [], clock()) as engine:
        run, _ = await Services(engine).commands.start("a", definition)
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        await clock().advance(61)
        assert (await ended(Services(engine), run.id, "a")).status == "completed"


@by_hand
async def test_a_nested_workflow_is_found_among_the_tenants_own(tmp_path: Path) -> None:
    outer = {"name": "outer", "steps": [{"id": "w", "workflow": "n"}]}
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish("a", steps("of a"))
        await services.commands.publish("b", steps("of b"))
        run, _ = await services.commands.start("b", outer)
        assert (await ended(services, run.id, "b")).output == {"w": {"a": "of b"}}


# ---------------------------------------------------------------------------------------------- cancel and rerun


@by_hand
async def test_cancelling_a_run_that_is_over_says_how_it_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, steps("1"))
        await ended(services, run.id)
        assert (await services.commands.cancel(T, run.id)).status == "completed"


@by_hand
async def test_cancelling_an_open_run_stops_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, ENDLESS)
        await settled()
        assert (await services.commands.cancel(T, run.id, "enough")).status in ("cancelling", "cancelled")
        view = await ended(services, run.id)
        assert (view.status, view.error.message) == ("cancelled", "enough")


TWO = {"name": "two", "steps": [
    {"id": "a", "tool": "echo", "args": {"x": 1}}, {"id": "b", "tool": "echo", "args": {"x": "{{ a }}"}}]}  # fmt: skip


@by_hand
async def test_a_preview_says_what_is_taken_over_and_what_runs(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, TWO)
        await ended(services, run.id)
        whole = await services.queries.preview(T, run.id)
        part = await services.queries.preview(T, run.id, Again(("b",)))
        assert (whole.copied, whole.runs) == ([], ["a", "b"])
        assert (part.copied, part.runs) == (["a"], ["b"])
        assert await services.queries.count(T) == 1


@by_hand
async def test_a_rerun_is_a_new_run_of_the_same_release_once_per_request(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(T, TWO)
        run, _ = await services.commands.start(T, "two")
        await ended(services, run.id)
        again = [await services.commands.rerun(T, run.id, Again(("b",)), request_id="r") for _ in range(2)]
        assert again[0].id == again[1].id != run.id
        assert (again[0].rerun_of, again[0].number) == (run.id, 1)
        with pytest.raises(RequestConflict):
            await services.commands.rerun(T, run.id, Again(("a",)), request_id="r")


@by_hand
async def test_an_open_run_is_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, ENDLESS)
        for refused in (services.commands.rerun(T, run.id), services.queries.preview(T, run.id)):
            with pytest.raises(RunIsOpen):
                await refused
