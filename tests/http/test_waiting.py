"""Everything that waits for somebody outside, in one list."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

QUORUM = {
    "name": "gate",
    "steps": [
        {
            "id": "ask",
            "kind": "approve",
            "prompt": "Ship?",
            "timeout_secs": 600,
            "form": {"type": "object", "properties": {"carrier": {"type": "string"}}},
            "quorum": {"need": 2, "of": ["ada", "bob", "eve"]},
        }
    ],
}


def signal(name: str, secs: int | None) -> dict[str, Any]:
    step = {
        "id": "s",
        "kind": "wait_event",
        "signal_key": "go",
        **({} if secs is None else {"timeout_secs": secs}),
    }
    return {"name": name, "steps": [step]}


async def waits(ask: Asker, query: str = "") -> Any:
    answer = await ask("GET", f"/api/v1/waits?{query}")
    assert answer.status == 200, answer.body
    return answer.body


async def until(ask: Asker, count: int) -> None:
    async with asyncio.timeout(60):
        while sum((await waits(ask))["counts"].values()) < count:
            await asyncio.sleep(0.01)


async def test_an_approval_says_what_is_asked_and_who_has_answered(ask: Asker) -> None:
    run_id = await ask.start(spec=QUORUM)
    await until(ask, 1)
    await ask("POST", f"/api/v1/runs/{run_id}/approvals/ask", {"approved": True, "by": "ada", "form": {}})
    (item,) = (await waits(ask))["items"]
    assert (item["run_id"], item["workflow"], item["path"], item["kind"]) == (
        run_id,
        "gate",
        "ask",
        "approval",
    )
    assert (item["prompt"], item["may_answer"]) == ("Ship?", True)
    assert item["form"] == QUORUM["steps"][0]["form"]  # type: ignore[index]
    assert item["answers"] == {"need": 2, "have": 1, "by": ["ada"]}
    assert item["since"] < item["until"]
    await ask("POST", f"/api/v1/runs/{run_id}/approvals/ask", {"approved": True, "by": "bob", "form": {}})
    found = await waits(ask)
    assert (found["items"], found["counts"]["approval"]) == ([], 0)


async def test_least_time_left_comes_first_and_pages_follow_each_other(ask: Asker) -> None:
    for name, secs in (("c", None), ("b", 900), ("a", 300), ("d", None)):
        await ask.start(spec=signal(name, secs))
    await ask.start(spec=QUORUM)
    await until(ask, 5)
    found, cursor = [], ""
    while True:
        page = await waits(ask, f"limit=2{cursor}")
        found += [item["workflow"] for item in page["items"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert found[:3] == ["a", "gate", "b"]
    assert sorted(found[3:]) == ["c", "d"]
    assert page["counts"] == {"approval": 1, "signal": 4, "callback": 0, "condition": 0, "key": 0}


async def test_waits_are_found_by_kind_and_workflow(ask: Asker) -> None:
    await ask.start(spec=signal("a", 300))
    await ask.start(spec=signal("b", 300))
    await ask.start(spec=QUORUM)
    await until(ask, 3)
    assert [item["workflow"] for item in (await waits(ask, "workflow=b"))["items"]] == ["b"]
    assert [item["workflow"] for item in (await waits(ask, "kind=approval,callback"))["items"]] == ["gate"]
    assert (await waits(ask, "kind=approval&workflow=a"))["items"] == []


@pytest.mark.parametrize("query", ["kind=timer", "cursor=x", "limit=0", "status=open"])
async def test_a_wrong_question_about_waits_is_refused(ask: Asker, query: str) -> None:
    assert (await ask("GET", f"/api/v1/waits?{query}")).status in (400, 422)
