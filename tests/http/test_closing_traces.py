"""The last traces are sent also where the system gives no thread for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.execution.threads import thread_or_here


@pytest.mark.anyio
async def test_traces_are_closed_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    seen: list[str] = []
    await thread_or_here(lambda: seen.append("closed"))
    assert seen == ["closed"]
