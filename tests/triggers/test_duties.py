"""Of several nodes one listens for a schedule; the others have nothing to tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.clock import SystemClock
from holdfast.spec.schedule import schedule_from_data
from holdfast.triggers import files, sources
from holdfast.triggers.files import Files
from holdfast.triggers.sources import Sources

pytestmark = pytest.mark.anyio


class Nodes:
    """The duty is ours once, and another node's after that."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_elsewhere = asyncio.Event()

    async def take_duty(self, what: str, seconds: float) -> bool:
        self.asked += seconds > 0
        if self.asked > 2:  # the second answer has been acted on
            self.is_elsewhere.set()
        return self.asked == 1

    async def position(self, tenant: str, schedule_id: str) -> str | None:
        return None


async def broken(position: str | None) -> AsyncIterator[Any]:
    raise ValueError("broken")
    yield


@pytest.mark.parametrize("kind", ["source", "file"])
async def test_what_is_wrong_at_a_node_is_not_told_while_another_one_listens(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((sources, "PAUSE_SECS"), (files, "AGAIN_SECS")):
        monkeypatch.setattr(module, name, 0)
    for module in (sources, files):
        monkeypatch.setattr(module, "ELSEWHERE_SECS", 0)
    nodes: Any = Nodes()
    where = {"source": f"{__name__}:broken"} if kind == "source" else {"path": str(tmp_path / "gone")}
    spec = schedule_from_data({"id": "s", "workflow": "w", "trigger": {"kind": kind, **where}})
    of_kind = Sources if kind == "source" else Files
    listening = of_kind(nodes, SystemClock(), nodes)
    listening.put("t", spec, "api")
    try:
        await asyncio.wait_for(nodes.is_elsewhere.wait(), 30)
        assert not listening.problems.get(("t", "s"))
    finally:
        listening.abandon()
