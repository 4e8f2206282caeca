"""Lists of runs: what they are filtered by, and what a line says."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

FAILS = {"name": "fails", "steps": [{"id": "s", "tool": "fail", "args": {"n": 7}}]}
GATE = {"name": "gate", "steps": [{"id": "ask", "kind": "approve", "prompt": "Ship 9 boxes?"}]}
PAID = {"name": "paid", "steps": [{"id": "s", "kind": "wait_event", "any": ["paid", "refused"]}]}
NAP = {"name": "nap", "steps": [{"id": "t", "kind": "timer", "delay_ms": 3_600_000}]}


async def listed(ask: Asker, **query: Any) -> list[Any]:
    answer = await ask("GET", "/api/v1/runs?" + urlencode(query, doseq=True))
    assert answer.status == 200, answer.body
    return list(answer.body["items"])


async def waiting(ask: Asker, spec: Any, **more: Any) -> str:
    run_id = await ask.start(spec=spec, **more)
    async with asyncio.timeout(60):
        while (await ask("GET", f"/api/v1/runs/{run_id}")).body["status"] != "waiting":
            await asyncio.sleep(0.01)
    return run_id


async def test_a_line_says_when_a_run_began_why_it_failed_and_what_it_waits_for(ask: Asker) -> None:
    failed = await ask.done(spec=FAILS)
    gate, nap = await waiting(ask, GATE), await waiting(ask, NAP)
    paid = await waiting(ask, PAID)
    by_id = {line["run_id"]: line for line in await listed(ask)}
    line = by_id[failed["run_id"]]
    assert line["started_at"] == failed["started_at"]
    assert (line["error"]["path"], line["wait"]) == ("s", None)
    assert "7 is refused" in line["error"]["message"]
    wait = by_id[gate]["wait"]
    assert (wait["path"], wait["kind"], wait["prompt"]) == ("ask", "approval", "Ship 9 boxes?")
    assert by_id[gate]["error"] is None
    assert (by_id[paid]["wait"]["kind"], by_id[paid]["wait"]["name"]) == ("signal", "paid or refused")
    assert (by_id[nap]["wait"]["kind"], by_id[nap]["wait"]["until"] is None) == ("timer", False)


async def test_a_long_message_is_shortened_in_a_list(ask: Asker) -> None:
    await ask.done(spec={**FAILS, "steps": [{"id": "s", "tool": "fail", "args": {"n": int("1" * 500)}}]})
    (line,) = await listed(ask)
    assert len(line["error"]["message"]) == 200


async def test_runs_of_several_statuses_are_listed_together(ask: Asker) -> None:
    failed = await ask.done(spec=FAILS)
    done = await ask.done(workflow="sum", inputs={"a": 1})
    gate = await waiting(ask, GATE)
    both = [failed["run_id"], done["run_id"]]
    assert sorted(line["run_id"] for line in await listed(ask, status="failed,completed")) == sorted(both)
    assert sorted(line["run_id"] for line in await listed(ask, status=["failed", "completed"])) == sorted(
        both
    )
    assert [line["run_id"] for line in await listed(ask, status="waiting")] == [gate]


async def test_all_labels_must_match_and_a_value_may_have_a_comma(ask: Asker) -> None:
    for labels in ({"team": "x", "place": "a,b"}, {"team": "x", "place": "c"}, {"team": "y"}):
        await ask.done(workflow="sum", inputs={"a": 1}, labels=labels)

    async def places(*labels: str) -> list[Any]:
        return [line["labels"].get("place") for line in await listed(ask, label=labels)]

    assert await places("team=x") == ["c", "a,b"]
    assert await places("team=x", "place=a,b") == ["a,b"]
    assert await places("team", "place") == ["c", "a,b"]
    assert await places("team=y", "place") == []


async def test_runs_are_found_by_the_version_of_their_workflow(ask: Asker) -> None:
    first = await ask.done(workflow="sum", inputs={"a": 1})
    changed = {**FAILS, "name": "sum"}
    await ask("POST", "/api/v1/workflows", changed)
    await ask.done(workflow="sum")
    assert [line["run_id"] for line in await listed(ask, workflow="sum", number=1)] == [first["run_id"]]
    assert [line["number"] for line in await listed(ask, workflow="sum")] == [2, 1]
    assert (await ask("GET", "/api/v1/runs?number=1")).status == 422


async def test_runs_are_found_by_the_time_of_their_creation(ask: Asker) -> None:
    runs = []
    for _ in range(4):
        runs.append(await ask.done(workflow="sum", inputs={"a": 1}))
        await asyncio.sleep(0.005)  # so that no two have the same millisecond
    made = [run["created_at"] for run in runs]

    async def between(**query: str) -> list[str]:
        return [line["created_at"] for line in await listed(ask, **query)][::-1]

    assert await between(**{"from": made[1]}) == made[1:]
    assert await between(to=made[2]) == made[:2]
    assert await between(**{"from": made[1], "to": made[3], "limit": "1"}) == made[2:3]
    assert await between(**{"from": "2100-01-01T00:00:00Z"}) == []
    assert await between(to="1970-01-01T00:00:00+01:00") == []
    page = (await ask("GET", "/api/v1/runs?" + urlencode({"from": made[1], "limit": 3}))).body
    assert page["cursor"] is None


@pytest.mark.parametrize(
    "query", ["from=yesterday", "to=2026-01-01T00:00:00", "status=lost", "label=", "label==x"]
)
async def test_a_wrong_filter_is_refused(ask: Asker, query: str) -> None:
    assert (await ask("GET", f"/api/v1/runs?{query}")).status in (400, 422)
