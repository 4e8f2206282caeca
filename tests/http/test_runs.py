"""`/api/v1/runs`: started, listed, looked at, stopped and run again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

UNKNOWN = "01a1e29d-0000-7000-8000-000000000000"


async def test_a_start_is_answered_before_the_run_is_over(ask: Asker) -> None:
    answer = await ask("POST", "/api/v1/runs", {"workflow": "held"})
    assert answer.status == 202 and set(answer.body) == {"run_id", "status"}
    assert answer.body["status"] in ("pending", "running")
    ask.holds.free.set()


async def test_with_wait_secs_the_answer_is_the_whole_run_at_its_end(ask: Asker) -> None:
    run = await ask.done(workflow="sum", inputs={"a": 1}, labels={"team": "x"}, parent_job_id="job-7")
    assert run["status"] == "completed" and run["output"] == 3 and run["error"] is None
    assert run["inputs"] == {"a": 1} and run["labels"] == {"team": "x"} and run["parent_job_id"] == "job-7"
    assert run["workflow"] == "sum" and run["number"] == 1
    assert run["progress"] == {"completed_steps": 1, "total_steps": 1}


async def test_when_wait_secs_are_over_the_run_goes_on_and_the_answer_is_202(ask: Asker) -> None:
    answer = await ask("POST", "/api/v1/runs", {"workflow": "held", "wait_secs": 0.01})
    assert answer.status == 202
    ask.holds.free.set()
    run_id = answer.body["run_id"]
    view = await ask.serving.services.queries.wait_for("default", run_id, 120)
    assert view.status == "completed"


async def test_times_are_utc_with_milliseconds(ask: Asker) -> None:
    run = await ask.done(workflow="sum", inputs={"a": 1})
    for name in ("created_at", "started_at", "finished_at"):
        assert len(run[name]) == 24 and run[name].endswith("Z") and run[name][19] == "."


@pytest.mark.parametrize("spec", [ADD, "name: sum\nsteps:\n- {id: s, tool: add, args: {a: 1, b: 2}}\n"])
async def test_a_definition_may_be_sent_along_as_data_or_as_text(ask: Asker, spec: Any) -> None:
    inputs = {"a": 1} if isinstance(spec, dict) else {}
    run = await ask.done(spec=spec, inputs=inputs)
    assert run["status"] == "completed" and run["number"] is None


async def test_a_graph_may_be_sent_along(ask: Asker) -> None:
    node = {"kind": "local", "service": "add", "params": {"a": 1, "b": 2}, "post": {"output_key": "sum"}}
    run = await ask.done(spec={"name": "graph", "start": "n", "nodes": {"n": node}, "edges": []})
    assert run["status"] == "completed" and run["output"] == {"sum": 3}


async def test_the_number_chooses_another_version(ask: Asker) -> None:
    later = {**ADD, "steps": [{"id": "s", "tool": "add", "args": {"a": 0, "b": 0}}]}
    assert (await ask("POST", "/api/v1/workflows", later)).body["number"] == 2
    assert (await ask.done(workflow="sum", number=1, inputs={"a": 1}))["output"] == 3


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({}, 400, "invalid_request", None),
        ({"workflow": "sum", "spec": ADD}, 400, "invalid_request", None),
        ({"workflow": "sum", "typo": 1}, 400, "invalid_request", "/typo"),
        ({"workflow": 1}, 400, "invalid_request", "/workflow"),
        ({"workflow": "sum", "wait_secs": 61}, 400, "invalid_request", "/wait_secs"),
        ({"workflow": "sum", "labels": {"a": 1}}, 400, "invalid_request", "/labels"),
        ({"workflow": "sum", "number": 0}, 400, "invalid_request", "/number"),
        ({"workflow": "sum", "number": 9}, 404, "not_found", None),
        ({"workflow": "som"}, 404, "not_found", None),
        ({"workflow": "sum"}, 422, "invalid_inputs", "/a"),
        ({"workflow": "sum", "inputs": {"a": "x"}}, 422, "invalid_inputs", "/a"),
        ({"spec": {"name": "x"}}, 422, "invalid_spec", None),
        ({"spec": "x: ["}, 422, "invalid_spec", None),
        ({"spec": "sum"}, 422, "invalid_spec", None),
        (
            {"workflow": "sum", "inputs": {"a": 1}, "final_callback_url": "ftp://x"},
            422,
            "invalid_inputs",
            None,
        ),
        ({"workflow": "sum", "final_callback": {"url": "http://x", "key": 1}}, 400, "invalid_request", None),
    ],
)
async def test_a_start_that_cannot_be_is_refused_with_code_and_place(
    ask: Asker, body: dict[str, Any], status: int, code: str, pointer: str | None
) -> None:
    answer = await ask("POST", "/api/v1/runs", body)
    assert (answer.status, answer.code) == (status, code)
    if pointer is not None:
        assert answer.body["details"][0]["pointer"] == pointer
    assert (await ask("GET", "/api/v1/runs")).body["items"] == []


async def test_a_list_is_filtered_and_goes_on_where_its_cursor_says(ask: Asker) -> None:
    ids = [
        (await ask.done(workflow="sum", inputs={"a": n}, labels={"n": str(n)}))["run_id"] for n in range(3)
    ]
    first = await ask("GET", "/api/v1/runs?limit=2&workflow=sum&status=completed")
    assert [line["run_id"] for line in first.body["items"]] == ids[:0:-1]
    second = await ask(
        "GET", f"/api/v1/runs?limit=2&workflow=sum&status=completed&cursor={first.body['cursor']}"
    )
    assert [line["run_id"] for line in second.body["items"]] == ids[:1]
    labelled = await ask("GET", "/api/v1/runs?label=n=1")
    assert [line["run_id"] for line in labelled.body["items"]] == [ids[1]]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=1.5",
        "status=nope",
        "status=null",
        "typo=1",
        "limit=1&limit=2",
    ],
)
async def test_a_query_that_cannot_be_read_is_refused(ask: Asker, query: str) -> None:
    answer = await ask("GET", f"/api/v1/runs?{query}")
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_a_cursor_does_not_say_how_many_runs_the_server_has(ask: Asker) -> None:
    for a in range(4):
        await ask("POST", "/api/v1/runs", {"workflow": "sum", "inputs": {"a": a}})
    cursors = [(await ask("GET", f"/api/v1/runs?limit={limit}")).body["cursor"] for limit in (1, 2, 3)]
    assert len({cursor[:8] for cursor in cursors}) == 3 and all(len(cursor) == 22 for cursor in cursors)
    for old in ("1", "3", "ff", cursors[0][:-1], cursors[0] + "A"):
        answer = await ask("GET", f"/api/v1/runs?cursor={old}")
        assert answer.status == 422 and "not a cursor of this list" in answer.body["message"]


async def test_a_cursor_that_no_page_gave_is_refused(ask: Asker) -> None:
    answer = await ask("GET", "/api/v1/runs?cursor=nope")
    assert (answer.status, answer.code) == (422, "invalid_inputs")


async def test_a_run_is_found_by_the_end_of_its_id(ask: Asker) -> None:
    ids = [(await ask.done(workflow="sum", inputs={"a": n}))["run_id"] for n in range(2)]
    found = await ask("GET", f"/api/v1/runs?id={ids[0][-12:]}")
    assert [line["run_id"] for line in found.body["items"]] == ids[:1]


@pytest.mark.parametrize("path", ["", "/journal", "/steps", "/explain"])
async def test_a_run_that_is_not_there_is_404(ask: Asker, path: str) -> None:
    answer = await ask("GET", f"/api/v1/runs/{UNKNOWN}{path}")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_the_journal_is_listed_page_by_page(ask: Asker) -> None:
    run_id = (await ask.done(workflow="sum", inputs={"a": 1}))["run_id"]
    first = (await ask("GET", f"/api/v1/runs/{run_id}/journal?limit=1")).body
    assert [line["seq"] for line in first["items"]] == [1] and first["items"][0]["kind"] == "run_started"
    second = (await ask("GET", f"/api/v1/runs/{run_id}/journal?after={first['cursor']}")).body
    assert [line["seq"] for line in second["items"]] == [2] and second["cursor"] is None


async def test_steps_are_told_with_the_names_of_those_not_reached(ask: Asker) -> None:
    spec = {"name": "two", "steps": [{"id": "one", "tool": "hold"}, {"id": "two", "tool": "hold"}]}
    run_id = await ask.start(spec=spec)
    await ask.holds.began.wait()
    page = (await ask("GET", f"/api/v1/runs/{run_id}/steps")).body
    assert [step["path"] for step in page["items"]] == ["one"] and page["names"] == ["one", "two"]
    assert page["items"][0]["status"] == "running"
    ask.holds.free.set()


async def test_explain_says_what_would_unblock_a_run(ask: Asker) -> None:
    run_id = await ask.start(spec={"name": "lacks", "steps": [{"id": "s", "tool": "nowhere"}]})

    async def told() -> list[dict[str, Any]]:
        return list((await ask("GET", f"/api/v1/runs/{run_id}/explain")).body["reasons"])

    async with asyncio.timeout(120):
        while (reasons := await told())[0]["reason"] == "at_work":  # until it has found out
            await asyncio.sleep(0.005)
    assert [one["reason"] for one in reasons] == ["no_tool"]
    assert "nowhere" in reasons[0]["unblocks"]


async def test_a_cancelled_run_ends_so(ask: Asker) -> None:
    run_id = await ask.start(workflow="held")
    await ask.holds.began.wait()
    answer = await ask("POST", f"/api/v1/runs/{run_id}/cancel", {"reason": "enough"})
    assert answer.status == 200 and answer.body["status"] in ("cancelling", "cancelled")
    view = await ask.serving.services.queries.wait_for("default", run_id, 120)
    assert view.status == "cancelled"


async def test_a_run_that_is_over_cannot_be_cancelled(ask: Asker) -> None:
    run_id = (await ask.done(workflow="sum", inputs={"a": 1}))["run_id"]
    answer = await ask("POST", f"/api/v1/runs/{run_id}/cancel")
    assert (answer.status, answer.code) == (409, "run_is_over")


async def test_a_run_that_is_open_cannot_be_run_again(ask: Asker) -> None:
    run_id = await ask.start(workflow="held")
    answer = await ask("POST", f"/api/v1/runs/{run_id}/rerun")
    assert (answer.status, answer.code) == (409, "run_is_open")
    ask.holds.free.set()


TWO = {
    "name": "two",
    "steps": [
        {"id": "one", "tool": "add", "args": {"a": 1, "b": 1}},
        {"id": "two", "tool": "add", "args": {"a": 2, "b": 2}},
    ],
}


async def test_a_preview_says_what_a_rerun_would_do_and_does_nothing(ask: Asker) -> None:
    run_id = (await ask.done(spec=TWO))["run_id"]
    answer = await ask("POST", f"/api/v1/runs/{run_id}/rerun", {"from_step": "two", "preview": True})
    assert answer.status == 200 and answer.body == {"copied": ["one"], "runs": ["two"]}
    assert len((await ask("GET", "/api/v1/runs")).body["items"]) == 1


async def test_a_rerun_is_a_run_that_names_the_first(ask: Asker) -> None:
    run_id = (await ask.done(spec=TWO))["run_id"]
    answer = await ask("POST", f"/api/v1/runs/{run_id}/rerun", {"from_step": "two"})
    assert answer.status == 202
    view = await ask.serving.services.queries.wait_for("default", answer.body["run_id"], 120)
    assert view.status == "completed" and view.rerun_of == run_id


async def test_a_step_that_is_not_there_cannot_be_run_from(ask: Asker) -> None:
    run_id = (await ask.done(spec=TWO))["run_id"]
    answer = await ask("POST", f"/api/v1/runs/{run_id}/rerun", {"from_step": "three"})
    assert (answer.status, answer.code) == (404, "not_found")


# ------------------------------------------------------------------------------------------------ idempotency


@pytest.mark.parametrize("where", ["header", "body"])
async def test_a_hundred_identical_starts_make_one_run(ask: Asker, where: str) -> None:
    body: dict[str, Any] = {"workflow": "sum", "inputs": {"a": 1}}
    if where == "body":
        body["request_id"] = "order-7"
    headers = {"Idempotency-Key": "order-7"} if where == "header" else {}
    answers = await asyncio.gather(*[ask("POST", "/api/v1/runs", body, headers=headers) for _ in range(100)])
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body["run_id"] for answer in answers}) == 1
    assert len((await ask("GET", "/api/v1/runs")).body["items"]) == 1


async def test_the_same_key_for_other_inputs_is_refused(ask: Asker) -> None:
    first = {"workflow": "sum", "inputs": {"a": 1}, "request_id": "order-7"}
    await ask("POST", "/api/v1/runs", first)
    answer = await ask("POST", "/api/v1/runs", {**first, "inputs": {"a": 2}})
    assert (answer.status, answer.code) == (422, "request_conflict")


@pytest.mark.parametrize("wait", [{}, {"wait_secs": 30}])
async def test_a_start_under_its_key_is_answered_as_the_first_time_after_the_run_moved_on(
    ask: Asker, wait: dict[str, int]
) -> None:
    body, headers = {"workflow": "held", **wait}, {"Idempotency-Key": "order-7"}
    if wait:
        body["workflow"], body["inputs"] = "sum", {"a": 1}
    first = await ask("POST", "/api/v1/runs", body, headers=headers)
    run_id = first.body["run_id"]
    if not wait:
        await ask("POST", f"/api/v1/runs/{run_id}/cancel", {})
    await ask.serving.services.queries.wait_for("default", run_id, 120)
    second = await ask("POST", "/api/v1/runs", body, headers=headers)
    assert (second.status, second.body) == (first.status, first.body)
    for other in ({**body, "wait_secs": 7}, {**body, "labels": {"x": "y"}}, {**body, "inputs": {"a": 2}}):
        refused = await ask("POST", "/api/v1/runs", other, headers=headers)
        assert (refused.status, refused.code) == (422, "request_conflict")
    assert len((await ask("GET", "/api/v1/runs")).body["items"]) == 1


async def test_two_keys_that_differ_are_refused(ask: Asker) -> None:
    body = {"workflow": "sum", "inputs": {"a": 1}, "request_id": "one"}
    answer = await ask("POST", "/api/v1/runs", body, headers={"Idempotency-Key": "two"})
    assert (answer.status, answer.code) == (422, "invalid_inputs")


async def test_the_same_rerun_twice_makes_one_run(ask: Asker) -> None:
    run_id = (await ask.done(spec=TWO))["run_id"]
    again = [
        await ask("POST", f"/api/v1/runs/{run_id}/rerun", {}, headers={"Idempotency-Key": "again"})
        for _ in range(2)
    ]
    assert again[0].status == 202 and again[0].body["run_id"] == again[1].body["run_id"]


async def test_another_post_under_its_key_is_answered_and_not_done_again(ask: Asker) -> None:
    run_id = await ask.start(workflow="held")
    path, headers = f"/api/v1/runs/{run_id}/cancel", {"Idempotency-Key": "stop"}
    first = await ask("POST", path, {}, headers=headers)
    await ask.serving.services.queries.wait_for("default", run_id, 120)
    second = await ask("POST", path, {}, headers=headers)  # without the key it would be 409 by now
    assert (first.status, first.body) == (second.status, second.body) == (200, first.body)


async def test_another_post_under_a_key_that_was_used_is_refused(ask: Asker) -> None:
    run_id = await ask.start(workflow="held")
    path, headers = f"/api/v1/runs/{run_id}/cancel", {"Idempotency-Key": "stop"}
    await ask("POST", path, {}, headers=headers)
    answer = await ask("POST", path, {"reason": "other"}, headers=headers)
    assert (answer.status, answer.code) == (422, "request_conflict")


async def test_a_post_that_failed_may_be_tried_again_under_its_key(ask: Asker) -> None:
    headers = {"Idempotency-Key": "again"}
    path = "/api/v1/workflows/later/rollback"
    assert (await ask("POST", path, {"number": 1}, headers=headers)).status == 404
    await ask("POST", "/api/v1/workflows", {**ADD, "name": "later"})
    assert (await ask("POST", path, {"number": 1}, headers=headers)).status == 200
