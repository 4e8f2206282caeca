"""A worker whose server will not have it any more, in this process: what it raises is what is looked at."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import tool
from holdfast.errors import Forbidden
from holdfast.sdk import worker as sdk
from tests.runtime.served import Answer, Asked, said, served

pytestmark = pytest.mark.anyio


@tool
async def double(n: int) -> int:
    return 2 * n


def forgetful() -> Answer:
    """Takes a worker in once, forgets it, and refuses it from then on."""
    known = {"id": "w", "url": "", "services": ["double"], "load": 0, "last_heartbeat": "2026-01-01T00:00:00.000Z",
             "status": "online", "type": "pull"}  # fmt: skip
    taken: list[Asked] = []

    async def answer(asked: Asked) -> bytes | None:
        if not asked.line.startswith("POST /api/v1/workers "):
            return await said({"error": "not_found", "message": "register it first"}, status=404)(asked)
        taken.append(asked)
        if len(taken) == 1:
            return await said(known)(asked)
        return await said({"error": "forbidden", "message": "not with this key"}, status=403)(asked)

    return answer


@pytest.mark.parametrize("pull", [True, False])
async def test_a_worker_that_may_not_register_again_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, pull: bool
) -> None:
    monkeypatch.setattr(sdk, "HEARTBEAT_SECS", 0.0)
    async with served(forgetful()) as server:
        worker = sdk.Worker([double], server.url, pull=pull, url="http://127.0.0.1:0", worker_id="w")
        with pytest.raises(Forbidden, match="not with this key"):
            await asyncio.wait_for(worker.run(), 120)
