"""Cancelling and re-running many runs with one request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

FAILS = {"name": "fails", "steps": [{"id": "s", "tool": "add", "args": {"a": "x", "b": 1}}]}
WAITS = {"name": "waits", "steps": [{"id": "ask", "kind": "approve", "prompt": "Go on?"}]}


async def bulk(ask: Asker, action: str, chosen: Any, **more: Any) -> Any:
    answer = await ask("POST", "/api/v1/runs/bulk", {"action": action, "filter": chosen, **more})
    assert answer.status == 200, answer.body
    return answer.body


async def statuses(ask: Asker) -> dict[str, int]:
    found = (await ask("GET", "/api/v1/runs/counts")).body["statuses"]
    return {status: runs for status, runs in found.items() if runs}


async def test_a_preview_says_which_runs_are_meant_and_changes_nothing(ask: Asker) -> None:
    waiting = [await ask.start(spec=WAITS) for _ in range(2)]
    done = await ask.done(spec=ADD, inputs={"a": 1})
    found = await bulk(ask, "cancel", {"ids": [*waiting, done["run_id"], "nothing"]}, preview=True)
    errors = {one["run_id"]: one["error"] for one in found["items"]}
    expected = dict.fromkeys(waiting) | {done["run_id"]: "run_is_over", "nothing": "not_found"}
    assert (errors, found["matched"], found["preview"]) == (expected, 2, True)
    assert (await statuses(ask)).get("cancelled") is None


async def test_runs_of_a_filter_are_cancelled(ask: Asker) -> None:
    for _ in range(3):
        await ask.start(spec=WAITS)
    other = await ask.start(spec={**WAITS, "name": "other"})
    found = await bulk(ask, "cancel", {"workflow": "waits", "status": ["waiting", "running", "pending"]})
    assert found["matched"] == 3
    assert (await statuses(ask))["cancelled"] == 3
    assert (await ask("GET", f"/api/v1/runs/{other}")).body["status"] != "cancelled"


async def test_each_part_of_a_filter_is_handled_once(ask: Asker) -> None:
    for _ in range(5):
        await ask.done(spec=FAILS)
    chosen, cursor, seen = {"workflow": "fails", "status": ["failed"], "to": "2100-01-01T00:00:00Z"}, None, []
    while True:
        part = await bulk(
            ask, "rerun", chosen, preview=True, limit=2, **({"cursor": cursor} if cursor else {})
        )
        seen += [one["run_id"] for one in part["items"]]
        if (cursor := part["cursor"]) is None:
            break
    assert len(seen) == len(set(seen)) == 5


async def test_reruns_name_the_new_runs(ask: Asker) -> None:
    failed = (await ask.done(spec=FAILS))["run_id"]
    open_run = await ask.start(spec=WAITS)
    found = await bulk(ask, "rerun", {"ids": [failed, open_run]}, failed=True)
    again, left = found["items"]
    assert (await ask("GET", f"/api/v1/runs/{again['new_run_id']}")).body["rerun_of"] == failed
    assert (left["new_run_id"], left["error"]) == (None, "run_is_open")


async def test_a_repeated_request_reruns_no_run_twice(ask: Asker) -> None:
    failed = (await ask.done(spec=FAILS))["run_id"]
    body = {"action": "rerun", "filter": {"ids": [failed]}}
    first, second = [
        (await ask("POST", "/api/v1/runs/bulk", body, headers={"Idempotency-Key": "k"})).body
        for _ in range(2)
    ]
    assert first == second
    assert len((await ask("GET", "/api/v1/runs")).body["items"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel", "filter": {}},
        {"action": "cancel", "filter": {"ids": []}},
        {"action": "cancel", "filter": {"ids": ["a"], "workflow": "n"}},
        {"action": "delete", "filter": {"workflow": "n"}},
        {"action": "cancel", "filter": {"workflow": "n"}, "limit": 501},
        {"action": "cancel", "filter": {"number": 2}},
        {"action": "cancel", "filter": {"ids": ["a"]}, "cursor": "b"},
        {"action": "cancel"},
    ],
)
async def test_a_wrong_request_changes_nothing(ask: Asker, body: Any) -> None:
    run_id = await ask.start(spec=WAITS)
    assert (await ask("POST", "/api/v1/runs/bulk", body)).status in (400, 422)
    assert (await ask("GET", f"/api/v1/runs/{run_id}")).body["status"] != "cancelled"
