"""Runs as the dialect of tasks sees them: tasks, and one node run per attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from holdfast import Context, FlowSpec, InvalidInputs, LimitExceeded, tool
from holdfast.api.services import Services
from holdfast.engine.codec import encode_row
from holdfast.engine.decisions import BeginStop, OpenWait, StartAttempt, StopAttempt
from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    AttemptTimedOut,
    CallbackReceived,
    RunStarted,
    StepPaused,
    TimerFired,
)
from holdfast.engine.state import Run
from holdfast.plan.compile import compile_definition
from holdfast.testing import BEGAN
from holdfast.values import Error, RunId, RunNo
from holdfast.views import courses, node_run_pages, node_runs
from holdfast.views.cursors import cursor_of
from holdfast.views.node_runs import NodeRun, NodeRuns, place_of
from holdfast.views.runs import Queries
from holdfast.views.tasks import Task
from tests.runtime.bench import Bench, opened, rows
from tests.runtime.manual import by_hand, clock, settled
from tests.small_limits import with_limits

T = "default"


@tool
async def upper(input: Any, params: Any) -> Any:  # noqa: A002  # as services are called
    return str(input).upper()


@tool
async def shaky(input: Any, params: Any, context: Context) -> Any:  # noqa: A002
    if context.attempt < 3:
        raise ValueError(f"no {context.attempt}")
    return input


@tool
async def fail(input: Any, params: Any) -> Any:  # noqa: A002
    raise ValueError("broken")


@tool
async def route(input: Any, params: Any) -> Any:  # noqa: A002
    return {"action": params["to"]}


@tool
async def endless(input: Any, params: Any) -> None:  # noqa: A002
    await asyncio.Event().wait()


TOOLS = [upper, shaky, fail, route, endless]


def local(service: str, **more: Any) -> dict[str, Any]:
    return {"kind": "local", "service": service, "prep": {"input_key": "$params.x"}, **more}


def graph(start: str, edges: list[tuple[str, str, str]] = [], **nodes: Any) -> dict[str, Any]:  # noqa: B006
    lines = [{"from": source, "action": action, "to": target} for source, action, target in edges]
    return {"name": "g", "start": start, "nodes": nodes, "edges": lines}


def fresh(engine: Bench) -> Queries:
    """Queries that remember nothing yet."""
    return Queries(engine.store, engine.plans, engine.memory)


async def ran(services: Services, definition: Any, **params: Any) -> tuple[Task, list[NodeRun]]:
    run, _ = await services.commands.start(T, definition, params)
    await services.queries.wait_for(T, run.id, 600)
    return await services.queries.tasks.task(T, run.id), (
        await services.queries.tasks.node_runs(T, run.id)
    ).items


def told(runs: list[NodeRun]) -> list[tuple[str, int, str, str | None]]:
    return [(run.node_key, run.attempt_no, run.status, run.action) for run in runs]


# ------------------------------------------------------------------------------------------------------- tasks


@by_hand
async def test_a_completed_task_has_its_final_shared_state_and_no_current_node(tmp_path: Path) -> None:
    definition = graph(
        "a",
        [("a", "goB", "b")],
        a=local("route", params={"to": "goB"}, post={"action_key": "action"}),
        b=local("upper", post={"output_key": "up"}),
    )
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        release = await services.commands.publish(T, definition)
        run, _ = await services.commands.start(T, "g", {"x": "hi"}, request_id="r-1")
        await services.queries.wait_for(T, run.id, 60)
        task = await services.queries.tasks.task(T, run.id)
        assert task == Task(
            id=run.id,
            flow_version_id=release.id,
            status="completed",
            params_json='{"x":"hi"}',
            shared_json='{"up":"HI"}',
            current_node_key="",
            last_action="",
            step_count=2,
            retry_state_json="{}",
            lease_owner=None,
            lease_expiry=None,
            request_id="r-1",
            created_at=BEGAN // 1000,
            updated_at=BEGAN // 1000,
            flow_id=release.flow_id,
            flow_name="g",
            flow_version=1,
        )


@by_hand
async def test_an_open_task_shows_where_it_is_and_what_it_has_written(tmp_path: Path) -> None:
    definition = graph(
        "a", [("a", "default", "b")], a=local("upper", post={"output_key": "up"}), b=local("endless")
    )
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, definition, {"x": "hi"})
        await settled()
        task = await services.queries.tasks.task(T, run.id)
        shown = (task.status, task.current_node_key, task.shared_json, task.step_count, task.lease_owner)
        assert shown == ("running", "b", '{"up":"HI"}', 1, "local")


@by_hand
async def test_a_failed_task_shows_the_node_that_failed(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        task, runs = await ran(Services(engine), graph("a", a=local("fail")), x=1)
        assert (task.status, task.current_node_key) == ("failed", "a")
        assert [(run.status, run.error_text) for run in runs] == [("error", "broken")]


@by_hand
async def test_states_are_spelled_and_filtered_in_their_own_way(tmp_path: Path) -> None:
    timer = graph("t", t={"kind": "timer", "params": {"delay_ms": 100_000}})
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        waiting, _ = await services.commands.start(T, timer)
        cancelled, _ = await services.commands.start(T, timer)
        await settled()
        await services.commands.cancel(T, cancelled.id)
        found = [
            await services.queries.tasks.tasks(T, status=status) for status in ("running", "canceled", None)
        ]
        assert [([task.id for task in page], total) for page, total in found] == [
            ([waiting.id], 1),
            ([cancelled.id], 1),
            ([cancelled.id, waiting.id], 2),
        ]
        with pytest.raises(InvalidInputs):
            await services.queries.tasks.tasks(T, status="cancelled")


@by_hand
async def test_pages_of_tasks_go_from_the_newest_back(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        release = await services.commands.publish(T, graph("a", a=local("upper")))
        ids = [(await services.commands.start(T, "g", {"x": i}))[0].id for i in range(7)]
        await services.commands.start(T, graph("a", a=local("upper")), {"x": 0})
        wanted: dict[str, Any] = {"flow_version_id": release.id, "page_size": 3}
        pages = [await services.queries.tasks.tasks(T, page=page, **wanted) for page in (1, 2, 3, 4)]
        assert [[task.id for task in page] for page, _ in pages] == [ids[:3:-1], ids[3:0:-1], ids[:1], []]
        assert {total for _, total in pages} == {7}
        assert await services.queries.tasks.tasks(T, flow_version_id="ver-nobody") == ([], 0)
        for page, size in ((0, 1), (1, 0), (1, 501), (2_000, 500)):
            with pytest.raises(LimitExceeded):
                await services.queries.tasks.tasks(T, page=page, page_size=size)


@by_hand
async def test_node_runs_of_a_task_have_a_page_limit_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, page_max=1)
    async with opened(tmp_path, TOOLS, clock()) as engine:
        chain = graph("a", [("a", "default", "b")], a=local("upper"), b=local("upper"))
        _, runs = await ran(Services(engine), chain, x="x")
    assert [run.node_key for run in runs] == ["a", "b"]


@by_hand
async def test_a_page_of_tasks_that_hold_too_much_is_refused_and_a_smaller_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, page_chars_max=100)
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        for _ in range(2):
            await ran(services, graph("a", a=local("upper")), x="x" * 90)
        with pytest.raises(LimitExceeded, match="page_chars_max"):
            await services.queries.tasks.tasks(T, page_size=2)
        assert len((await services.queries.tasks.tasks(T, page_size=1))[0]) == 1


@by_hand
async def test_the_course_of_a_run_that_is_deleted_meanwhile_comes_to_an_end(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        gone = Run(RunNo(4711), RunId("gone"), "v", seq=3)
        plan = compile_definition(FlowSpec.from_data(graph("a", a=local("upper"))))
        assert (await courses.Courses(engine.store).of(gone, AsyncMock(return_value=plan))).steps == 0


# --------------------------------------------------------------------------------------------------- node runs


@by_hand
async def test_each_attempt_is_a_node_run_of_its_own(tmp_path: Path) -> None:
    node = local("shaky", max_retries=2, wait_ms=1000, post={"output_key": "y", "action_static": "done"})
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, graph("a", a=node), {"x": 5})
        await clock().advance(5)
        runs = (await services.queries.tasks.node_runs(T, run.id)).items
        assert told(runs) == [("a", 1, "error", None), ("a", 2, "error", None), ("a", 3, "ok", "done")]
        assert [each.error_text for each in runs] == ["no 1", "no 2", None]
        at = BEGAN // 1000
        assert [(each.started_at, each.finished_at) for each in runs] == [
            (at, at), (at + 1, at + 1), (at + 2, at + 2)]  # fmt: skip
        assert {each.exec_input_json for each in runs} == {'{"input":5,"params":{"x":5}}'}
        assert {each.prep_json for each in runs} == {"5"}
        assert [each.exec_output_json for each in runs] == [None, None, "5"]
        assert len({each.id for each in runs}) == 3
        assert all(each.id.startswith("run-") and each.task_id == run.id for each in runs)


@by_hand
async def test_a_node_that_is_at_work_is_running(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, graph("a", a=local("endless")), {"x": 5})
        await settled()
        (found,) = (await services.queries.tasks.node_runs(T, run.id)).items
        assert (found.status, found.finished_at, found.attempt_no) == ("running", None, 1)


@by_hand
async def test_a_cancelled_task_has_one_canceled_node_run(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, graph("a", a=local("endless")), {"x": 5})
        await settled()
        await services.commands.cancel(T, run.id)
        await services.queries.wait_for(T, run.id, 60)
        runs = (await services.queries.tasks.node_runs(T, run.id)).items
        assert told(runs) == [("a", 1, "error", None), ("a", 0, "canceled", "canceled")]


@by_hand
async def test_a_choice_and_a_timer_are_node_runs_without_a_call(tmp_path: Path) -> None:
    definition = graph(
        "c",
        [("c", "big", "t")],
        c={
            "kind": "choice",
            "prep": {"input_key": "$params.x"},
            "choice_cases": [{"action": "big", "expr": {"gt": ["$params.x", 3]}}],
        },
        t={"kind": "timer", "params": {"delay_ms": 2000}, "post": {"action_static": "due"}},
    )
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, definition, {"x": 5})
        await clock().advance(3)
        runs = (await services.queries.tasks.node_runs(T, run.id)).items
        assert told(runs) == [("c", 1, "ok", "big"), ("t", 1, "ok", "due")]
        assert [each.finished_at - each.started_at for each in runs if each.finished_at] == [0, 2]
        assert (await services.queries.tasks.task(T, run.id)).step_count == 2


@by_hand
async def test_children_of_a_foreach_are_told_under_its_key_by_their_index(tmp_path: Path) -> None:
    node = {"kind": "foreach", "service": "upper", "prep": {"input_key": "$params.xs"},
            "post": {"output_key": "ys"}}  # fmt: skip
    async with opened(tmp_path, TOOLS, clock(), no_worker_wait_ms=0) as engine:
        services = Services(engine)
        assert (await services.queries.count(T)) == 0
        definition = graph("f", f=node)
        run, _ = await services.commands.start(T, definition, {"xs": ["a", "b"]})
        await settled()
        runs = (await services.queries.tasks.node_runs(T, run.id)).items
        shown = [(each.node_key, each.branch_id, each.sub_status) for each in runs]
        assert shown[0] == ("f", None, None)
        assert sorted((key, branch) for key, branch, _ in shown[1:]) == [("f", "0"), ("f", "1")]


@by_hand
async def test_nodes_of_a_subflow_are_told_under_the_key_of_the_subflow(tmp_path: Path) -> None:
    inner = {
        "start": "x",
        "nodes": {"x": local("upper", post={"output_key": "up"}), "y": local("upper")},
        "edges": [{"from": "x", "action": "default", "to": "y"}],
    }
    definition = graph("s", s={"kind": "subflow", "subflow": inner, "post": {"output_key": "all"}})
    async with opened(tmp_path, TOOLS, clock()) as engine:
        task, runs = await ran(Services(engine), definition, x="a")
        shown = [(each.node_key, each.branch_id, each.sub_status, each.status) for each in runs]
        assert shown == [
            ("s", None, None, "ok"),
            ("s", "x", "sub_node_complete", "ok"),
            ("s", "y", "sub_node_complete", "ok"),
        ]
        assert task.shared_json == '{"all":{"up":"A"}}'


@by_hand
async def test_each_visit_on_a_cycle_has_node_runs_of_its_own(tmp_path: Path) -> None:
    definition = graph(
        "a",
        [("a", "default", "c"), ("c", "again", "a")],
        a=local("upper", post={"output_key": "seen"}),
        c={
            "kind": "choice",
            "prep": {"input_key": "$shared.flag"},
            "post": {"output_key": "seen"},
            "choice_cases": [
                {
                    "action": "again",
                    "expr": {"and": [{"ne": ["$shared.flag", "x"]}, {"exists": "$shared.no"}]},
                }
            ],
            "default_action": "stop",
        },
    )
    async with opened(tmp_path, TOOLS, clock()) as engine:
        _, runs = await ran(Services(engine), definition, x="a")
        assert told(runs) == [("a", 1, "ok", ""), ("c", 1, "ok", "stop")]


@tool
async def count(input: Any, params: Any) -> Any:  # noqa: A002
    seen = 1 + (input or 0)
    return {"seen": seen, "action": "again" if seen < params["rounds"] else "out"}


def rounds(number: int) -> dict[str, Any]:
    """Goes round so often, and waits then."""
    return graph(
        "begin",
        [("begin", "default", "a"), ("a", "again", "a"), ("a", "out", "w")],
        begin=local("upper"),
        a={
            "kind": "local",
            "service": "count",
            "params": {"rounds": number},
            "prep": {"input_key": "$shared.seen"},
            "post": {"output_map": {"seen": "seen"}, "action_key": "action"},
        },
        w={"kind": "wait_event", "params": {"signal_key": "$shared.go"}},
    )


async def waiting(services: Services, definition: Any) -> str:
    run, _ = await services.commands.start(T, definition, {"x": "hi"})
    await settled()
    assert (await services.queries.run(T, run.id)).status == "waiting"
    return run.id


@by_hand
async def test_pages_of_node_runs_have_each_of_them_once(tmp_path: Path) -> None:
    async with opened(tmp_path, [*TOOLS, count], clock()) as engine:
        services = Services(engine)
        run_id = await waiting(services, rounds(20))
        whole = await services.queries.tasks.node_runs(T, run_id)
        assert (len(whole.items), whole.cursor) == (22, None)
        for each in (
            services.queries,
            fresh(engine),
        ):  # one that remembers where pages begin, and one that does not
            page = await each.tasks.node_runs(T, run_id, limit=5)
            found = [page.items]
            while page.cursor is not None:
                page = await each.tasks.node_runs(T, run_id, cursor=page.cursor, limit=5)
                found.append(page.items)
            assert [len(items) for items in found] == [5, 5, 5, 5, 2]
            assert [run for items in found for run in items] == whole.items


@by_hand
async def test_a_page_of_node_runs_that_hold_much_ends_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_runs, "NODE_RUN_CHARS_MAX", 1_000)
    async with opened(tmp_path, [*TOOLS, count], clock()) as engine:
        services = Services(engine)
        run_id = await waiting(services, rounds(20))
        page = await services.queries.tasks.node_runs(T, run_id)
        found = [page.items]
        while page.cursor is not None:
            page = await services.queries.tasks.node_runs(T, run_id, cursor=page.cursor)
            found.append(page.items)
        assert len(found) > 1
        assert sum(map(len, found)) == len({run.id for items in found for run in items}) == 22
        last = await fresh(engine).tasks.node_runs(T, run_id, cursor=cursor_of(21))  # read from the beginning
        assert last.items == found[-1][-1:]


@pytest.mark.parametrize(
    "call", [{"tool": "missing"}, {"tool": "fail", "retry": {"max_attempts": 2, "initial_delay_ms": 5_000}}]
)
@by_hand
async def test_small_pages_of_node_runs_tell_of_attempts_that_did_not_last_what_one_large_page_does(
    tmp_path: Path, call: dict[str, Any]
) -> None:
    each = {"id": "each", "kind": "foreach", "items": "$.inputs.x", "concurrency": 3}
    definition = {"name": "m", "steps": [each | {"steps": [{"id": "call"} | call]}]}
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, definition, {"x": [1, 2, 3]})
        await settled()
        found, cursor, pages = list[NodeRun](), None, 0
        while pages == 0 or (cursor is not None and pages < 10):
            page = await services.queries.tasks.node_runs(T, run.id, cursor=cursor, limit=1)
            found, cursor, pages = [*found, *page.items], page.cursor, pages + 1
        assert cursor is None
        assert found == (await services.queries.tasks.node_runs(T, run.id)).items


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("is_remembered", [True, False], ids=["remembered", "read anew"])
@by_hand
async def test_pages_of_node_runs_lose_and_repeat_none_while_attempts_are_given_back(
    tmp_path: Path, limit: int, is_remembered: bool
) -> None:
    each = {"id": "each", "kind": "foreach", "items": "$.inputs.x", "concurrency": 4}
    call = {"id": "call", "tool": "endless", "args": {"input": 1, "params": {}}}
    definition = {"name": "m", "steps": [each | {"steps": [call]}]}
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, definition, {"x": [1, 2, 3, 4]})
        await settled()
        resident = engine.door.residents[run.no]
        walked, cursor, released = list[NodeRun](), None, 0
        while True:
            looking = services.queries if is_remembered else fresh(engine)
            page = await looking.tasks.node_runs(T, run.id, cursor=cursor, limit=limit)
            assert page.items, "there is something on every page"
            walked, cursor = [*walked, *page.items], page.cursor
            if cursor is None:
                break
            path = f"each[{released % 4}].call"
            if released < 6:
                engine.door.apply(
                    resident, AttemptReleased(path, resident.run.steps[path].attempt, "stopping")
                )
                await engine.ownership.adopt(run.no)
                await settled()
                released += 1
        assert released
        whole = [run.id for run in (await fresh(engine).tasks.node_runs(T, run.id)).items]
        seen = [run.id for run in walked]
        assert len(seen) == len(set(seen))
        assert set(whole) <= set(seen)


@by_hand
async def test_a_page_of_node_runs_tells_how_those_of_it_ended_that_others_came_after(tmp_path: Path) -> None:
    inner = graph("x", [("x", "default", "y")], x=local("upper", post={"output_key": "up"}), y=local("upper"))
    del inner["name"]
    outer = graph("s", s={"kind": "subflow", "subflow": inner, "post": {"output_key": "all"}})
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, outer, {"x": "a"})
        await services.queries.wait_for(T, run.id, 60)
        page = await services.queries.tasks.node_runs(T, run.id, limit=1)
        assert [(each.node_key, each.branch_id, each.status) for each in page.items] == [("s", None, "ok")]


@by_hand
async def test_a_page_of_node_runs_that_are_still_open_is_not_looked_for_in_all_that_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = {key: value for key, value in rounds(60).items() if key != "name"}
    outer = graph("s", s={"kind": "subflow", "subflow": inner})
    async with opened(tmp_path, [*TOOLS, count], clock()) as engine:
        services = Services(engine)
        run_id = await waiting(services, outer)
        monkeypatch.setattr(node_run_pages, "ROWS_AT_A_TIME", 5)
        taken, take = list[int](), NodeRuns.take

        def counted(told: NodeRuns, row: Any) -> None:
            taken.append(row[0])
            take(told, row)

        monkeypatch.setattr(NodeRuns, "take", counted)
        page = await services.queries.tasks.node_runs(T, run_id, limit=1)
        assert [(each.node_key, each.status) for each in page.items] == [("s", "running")]
        assert len(taken) <= 5


@by_hand
async def test_a_page_of_node_runs_that_was_looked_at_before_tells_what_came_since(tmp_path: Path) -> None:
    async with opened(tmp_path, [*TOOLS, count], clock()) as engine:
        services = Services(engine)
        run_id = await waiting(services, rounds(2))
        before = (await services.queries.tasks.node_runs(T, run_id)).items
        await services.commands.signal(T, run_id, "go", 1)
        await services.queries.wait_for(T, run_id, 60)
        after = (await services.queries.tasks.node_runs(T, run_id)).items
        assert [(each.status, each.exec_output_json) for each in (before[-1], after[-1])] == [
            ("running", None),
            ("ok", "1"),
        ]


def round_and_round(number: int, seen: str = "seen") -> dict[str, Any]:
    """A node that says so often that it is to be met again."""
    prep, post = {"input_key": f"$shared.{seen}"}, {"output_map": {seen: "seen"}, "action_key": "action"}
    return {"kind": "local", "service": "count", "params": {"rounds": number}, "prep": prep, "post": post}


INNER = {
    "start": "x",
    "nodes": {"x": round_and_round(40)},
    "edges": [{"from": "x", "action": "again", "to": "x"}],
}
LONG = {
    "one cycle": rounds(60),
    "nodes between cycles": graph(
        "b.1",
        [("b.1", "default", "e"), ("e", "again", "e"), ("e", "out", "c"), ("c", "default", "s"), ("s", "default", "d"),
         ("d", "default", "f"), ("f", "again", "g"), ("g", "default", "f"), ("f", "out", "w")],
        **{name: local("upper") for name in ("b.1", "c", "d", "g")},
        e=round_and_round(30), s={"kind": "subflow", "subflow": INNER}, f=round_and_round(30, "other"),
        w={"kind": "wait_event", "params": {"signal_key": "$shared.go"}},
    ),
    "at rest on a cycle": graph(
        "e",
        [("e", "again", "e"), ("e", "out", "w"), ("w", "default", "e")],
        e=round_and_round(60), w={"kind": "wait_event", "params": {"signal_key": "$shared.go"}},
    ),
    "deep in a node on a cycle": graph(
        "e",
        [("e", "again", "e"), ("e", "out", "s"), ("s", "default", "e")],
        e=round_and_round(60),
        s={"kind": "subflow", "subflow": rounds(60) | {"name": None}},
    ),
}  # fmt: skip
del LONG["deep in a node on a cycle"]["nodes"]["s"]["subflow"]["name"]


@pytest.mark.parametrize("cancelled", [False, True], ids=["at rest", "cancelled"])
@pytest.mark.parametrize("definition", LONG.values(), ids=list(LONG))
@by_hand
async def test_a_task_with_a_long_journal_is_counted_without_reading_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, definition: dict[str, Any], cancelled: bool
) -> None:
    async with opened(tmp_path, [*TOOLS, count], clock()) as engine:
        services = Services(engine)
        run_id = await waiting(services, definition)
        if cancelled:
            await services.commands.cancel(T, run_id)
            await services.queries.wait_for(T, run_id, 60)
        exact = await services.queries.tasks.task(T, run_id)
        monkeypatch.setattr(courses, "ROWS_MAX", 6)
        monkeypatch.setattr(courses, "ROWS_AT_A_TIME", 3)
        monkeypatch.setattr(courses, "TURN_ROWS", 2)
        taken, take = list[int](), courses.Course.take

        def counted(course: courses.Course, row: Any) -> None:
            taken.append(row[0])
            take(course, row)

        monkeypatch.setattr(courses.Course, "take", counted)
        assert await fresh(engine).tasks.task(T, run_id) == exact
        assert len(taken) <= 40 < exact.step_count


@by_hand
async def test_an_attempt_that_was_lost_with_its_process_is_an_error_and_the_next_one_counts_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        run, _ = await Services(engine).commands.start(T, graph("a", a=local("endless")), {"x": 1})
        await settled()
        engine.crash()
    async with opened(tmp_path, TOOLS, clock()) as engine:
        await settled()
        runs = (await Services(engine).queries.tasks.node_runs(T, run.id)).items
        assert told(runs) == [("a", 1, "error", None), ("a", 2, "running", None)]


@by_hand
async def test_runs_of_the_steps_notation_are_tasks_too(tmp_path: Path) -> None:
    definition = {
        "name": "n",
        "steps": [
            {"id": "l", "kind": "foreach", "items": "$.inputs.xs",
             "steps": [{"id": "s", "tool": "upper", "args": {"input": "{{ item }}", "params": {}}}]},
        ],
    }  # fmt: skip
    async with opened(tmp_path, TOOLS, clock()) as engine:
        task, runs = await ran(Services(engine), definition, xs=["a"])
        assert (task.status, task.shared_json) == ("completed", '{"l":{"iterations":[{"s":"A"}]}}')
        assert [(each.node_key, each.branch_id) for each in runs] == [("l", None), ("l", "0.s")]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("a", ("a", None)),
        ("a~2", ("a", None)),
        ("p[1].call", ("p", "1")),
        ("p~3[1].call", ("p", "1")),
        ("s.x", ("s", "x")),
        ("s.x.y", ("s", "x.y")),
        ('["a.b"]', ("a.b", None)),
        ('["a.b"].["c d"]', ("a.b", "c d")),
        ("l[0].s", ("l", "0.s")),
    ],
)
def test_a_path_is_a_node_and_a_branch(path: str, place: tuple[str, str | None]) -> None:
    assert place_of(path) == place


def projected(*told_by: tuple[Any, list[Any]]) -> list[NodeRun]:
    """Node runs of rows that are made by hand."""
    projection = NodeRuns("0198c0de-0000-7000-8000-000000000000")
    for seq, (event, decisions) in enumerate(told_by, 1):
        projection.take((seq, 0, BEGAN + 1000 * seq, "", encode_row(event, decisions)[0]))
    return list(projection.found.values())


BEGUN = (RunStarted(msgspec.Raw(b"{}")), [StartAttempt("a", 1, msgspec.Raw(b'{"input":1,"params":{}}'))])
PAUSED = (StepPaused("a", 1, "T9", worker=("w1", "http://w1")), [OpenWait("a", "callback", "T9")])
GOOD, BAD = (CallbackReceived("a", 1, msgspec.Raw(text), error) for text, error in (
    (b"7", None), (b"null", Error("refused", "not today"))))  # fmt: skip


@pytest.mark.parametrize(
    ("told_by", "ended"),
    [
        ([PAUSED], ("running", None, None)),
        ([PAUSED, (GOOD, [])], ("ok", "7", None)),
        ([PAUSED, (BAD, [])], ("error", None, "not today")),
        ([(GOOD, []), (PAUSED[0], [])], ("ok", "7", None)),
    ],
)
def test_an_attempt_that_is_answered_later_runs_until_then(
    told_by: list[Any], ended: tuple[str, str | None, str | None]
) -> None:
    (found,) = projected(BEGUN, *told_by)
    assert (found.status, found.exec_output_json, found.error_text) == ended
    assert (found.attempt_no, found.worker_id, found.worker_url) == (1, "w1", "http://w1")


def test_an_attempt_that_outlived_its_grace_has_ended_when_the_next_one_begins() -> None:
    late = Error("timeout", "too slow")
    timed_out = (AttemptTimedOut("a", 1), [StopAttempt("a", "a"), BeginStop("a", late)])
    grace = (TimerFired("a", "grace"), [StartAttempt("a", 2)])
    runs = projected(BEGUN, timed_out, grace)
    assert [(each.attempt_no, each.status, each.error_text) for each in runs] == [
        (1, "error", "too slow"), (2, "running", None)]  # fmt: skip


def test_an_attempt_that_was_given_back_takes_no_room_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_runs, "NODE_RUN_CHARS_MAX", 30)
    given_back: tuple[Any, list[Any]] = (AttemptReleased("a", 1, "no_tool"), [])
    again = (Adopted(), [StartAttempt("a", 1, BEGUN[1][0].inputs)])
    (found,) = projected(BEGUN, given_back, again, given_back, again)
    assert found.status == "running"


# ------------------------------------------------------------------------------------------- the same, as tables


VIEWED: dict[str, dict[str, Any]] = {
    "chain": graph(
        "a",
        [("a", "default", "b")],
        a=local("upper", post={"output_key": "up"}),
        b=local("route", params={"to": "on"}, post={"action_key": "action"}),
    ),
    "failed": graph("a", [("a", "default", "b")], a=local("upper"), b=local("fail")),
    "retried": graph("a", a=local("shaky", max_retries=2, post={"action_static": "done"})),
    "timed": graph("t", t={"kind": "timer", "params": {"delay_ms": 1000}, "post": {"action_static": "due"}}),
    "each": graph("f", f={"kind": "foreach", "service": "upper", "prep": {"input_key": "$params.xs"}}),
    "inside": graph("s", s={"kind": "subflow", "subflow": {"start": "x", "nodes": {"x": local("upper")}}}),
    "chosen": graph(
        "c", c={"kind": "choice", "choice_cases": [{"action": "yes", "expr": {"eq": ["$params.x", "hi"]}}]}
    ),
}


@by_hand
@pytest.mark.parametrize("name", VIEWED)
async def test_the_tables_say_the_same_of_a_task_that_is_over(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, TOOLS, clock(), no_worker_wait_ms=0) as engine:
        services = Services(engine)
        await services.commands.publish(T, VIEWED[name])
        run, _ = await services.commands.start(T, "g", {"x": "hi", "xs": ["a", "b"]}, request_id="r")
        await clock().advance(5)
        task = await services.queries.tasks.task(T, run.id)
        runs = (await services.queries.tasks.node_runs(T, run.id)).items
        own = {"current_node_key", "shared_json"} if task.status == "failed" else set()
        for kind, expected, table, left_out in (
            (Task, [task], "tasks", own),
            (NodeRun, runs, "node_runs", set()),
        ):
            columns = [field for field in kind.__struct_fields__ if field not in left_out]
            found = rows(tmp_path, f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2")
            assert found == sorted(
                (tuple(getattr(each, column) for column in columns) for each in expected), key=str
            )


@by_hand
async def test_the_tables_have_the_one_canceled_node_run_too(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()) as engine:
        services = Services(engine)
        run, _ = await services.commands.start(T, graph("a", a=local("endless")), {"x": 5})
        await settled()
        await services.commands.cancel(T, run.id)
        await services.queries.wait_for(T, run.id, 60)
        query = "SELECT node_key, attempt_no, status, action FROM node_runs ORDER BY attempt_no DESC"
        assert rows(tmp_path, query) == told((await services.queries.tasks.node_runs(T, run.id)).items)


@by_hand
async def test_the_tables_read_no_journal_but_that_of_the_task_they_are_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path, TOOLS, clock()):
        for table, column in (("tasks", "id"), ("node_runs", "task_id")):
            plan = rows(tmp_path, f"EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE {column} = 'x'")
            assert [step for *_, step in plan if step.startswith(("SCAN j", "SCAN o"))] == []
