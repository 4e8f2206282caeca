"""The whole server at a glance: the caller, and how many runs there are."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.version import VERSION
from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

FAILS = {"name": "fails", "steps": [{"id": "s", "tool": "add", "args": {"a": "x", "b": 1}}]}


async def start(ask: Asker, spec: Any, **more: Any) -> Any:
    body = {"spec": spec, "wait_secs": 20, **more}
    return (await ask("POST", "/api/v1/runs", body)).body


async def test_a_server_without_keys_says_that_the_caller_may_do_everything(ask: Asker) -> None:
    me = (await ask("GET", "/api/v1/me")).body
    assert (me["mode"], me["tenant"], me["key_id"], me["is_operator"]) == ("local", "default", None, True)
    assert me["scopes"] == ["read", "run", "approve", "resume", "worker", "admin"]
    assert me["release"] == VERSION


async def test_runs_are_counted_by_status_and_by_workflow(ask: Asker) -> None:
    for _ in range(2):
        await start(ask, ADD, inputs={"a": 1})
    await start(ask, FAILS)
    found = (await ask("GET", "/api/v1/runs/counts")).body
    assert (found["total"], found["items"], found["cursor"]) == (3, [], None)
    assert {status: runs for status, runs in found["statuses"].items() if runs} == {
        "completed": 2,
        "failed": 1,
    }
    assert len(found["statuses"]) == 8


async def test_counts_by_workflow_are_pages_in_the_order_of_names(ask: Asker) -> None:
    for name in ("c", "a", "b"):
        await start(ask, {**ADD, "name": name}, inputs={"a": 1})
    first = (await ask("GET", "/api/v1/runs/counts?by=workflow&limit=2")).body
    rest = (await ask("GET", f"/api/v1/runs/counts?by=workflow&limit=2&cursor={first['cursor']}")).body
    assert [one["workflow"] for one in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["items"] == [{"workflow": "c", "total": 1, "statuses": {"completed": 1}}]
    assert rest["cursor"] is None


@pytest.mark.parametrize("query", ["by=label", "limit=0", "cursor=zz&by=workflow", "cursor=61"])
async def test_a_wrong_question_about_counts_is_refused(ask: Asker, query: str) -> None:
    assert (await ask("GET", f"/api/v1/runs/counts?{query}")).status in (400, 422)


async def test_the_pulse_counts_runs_where_they_began_and_ended(ask: Asker) -> None:
    await start(ask, ADD, inputs={"a": 1})
    await start(ask, FAILS)
    found = (await ask("GET", "/api/v1/runs/pulse?buckets=24")).body
    assert len(found["items"]) == 24
    total = found["total"]
    assert (total["started"], total["completed"], total["failed"], total["cancelled"]) == (2, 1, 1, 0)
    assert 0 <= total["p50_ms"] <= total["p95_ms"]
    assert sum(one["started"] for one in found["items"]) == 2


async def test_the_pulse_of_a_workflow_has_its_runs_alone(ask: Asker) -> None:
    await start(ask, ADD, inputs={"a": 1})
    await start(ask, {**ADD, "name": "b"}, inputs={"a": 1})
    found = (await ask("GET", "/api/v1/runs/pulse?workflow=b")).body
    assert found["total"]["started"] == 1


async def test_the_pulse_of_a_time_without_runs_is_empty(ask: Asker) -> None:
    await start(ask, ADD, inputs={"a": 1})
    query = "from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z&buckets=1"
    found = (await ask("GET", f"/api/v1/runs/pulse?{query}")).body
    assert (found["total"]["started"], found["total"]["p50_ms"]) == (0, None)


@pytest.mark.parametrize(
    "query",
    [
        "buckets=0",
        "buckets=501",
        "from=yesterday",
        "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        "last=1d",
    ],
)
async def test_a_wrong_question_about_the_pulse_is_refused(ask: Asker, query: str) -> None:
    assert (await ask("GET", f"/api/v1/runs/pulse?{query}")).status in (400, 422)


async def test_the_pulse_of_old_times_is_counted_by_hour(ask: Asker) -> None:
    query = "from=2026-01-01T00:10:00Z&to=2026-01-02T00:10:00Z"
    found = (await ask("GET", f"/api/v1/runs/pulse?{query}")).body
    assert (found["bucket_ms"], len(found["items"])) == (3_600_000, 24)
    assert found["to"] == "2026-01-02T01:00:00.000Z"
