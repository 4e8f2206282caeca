"""Broken messages do not harm the server: a short campaign, and the long one of tests/mcp/frames.py."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.mcp.frames import TURN_MS_MAX, campaign, over_http, over_stdio


@pytest.mark.parametrize("over", [over_http, over_stdio])
def test_the_server_lives_through_broken_messages(over: object, tmp_path: Path) -> None:
    count, _ = asyncio.run(over(tmp_path, random.Random(7), 1.0))  # type: ignore[operator]
    assert count > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_no_broken_message_keeps_the_server_busy(seed: int) -> None:
    assert campaign(20.0, seed) <= TURN_MS_MAX
