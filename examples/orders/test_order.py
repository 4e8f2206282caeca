from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import RunFailed, ToolError
from holdfast.testing import TestEngine

ORDER = Path(__file__).with_name("order.yaml")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_BANK", "tr0ub4dor")


async def test_a_review_is_asked_for_after_three_days(engine: TestEngine) -> None:
    engine.fake_tool("charge", {"receipt": "R-1"})
    engine.fake_tool("pack", lambda item: f"box of {item}")
    send = engine.fake_tool("send", "sent")

    began = engine.now
    run = await engine.start(ORDER, {"order": 1, "items": ["book", "lamp"]})
    assert await run.status() == "waiting"
    assert len(send.calls) == 1

    await engine.advance(days=2, hours=23)
    assert len(send.calls) == 1
    await engine.advance(hours=1)
    assert send.calls[1] == {"text": "how was order 1?"}
    assert await run.status() == "completed"
    assert engine.now - began == timedelta(days=3)


async def test_a_crash_does_not_charge_twice(engine: TestEngine) -> None:
    charge = engine.fake_tool("charge", {"receipt": "R-1"})
    engine.fake_tool("pack", "box")
    engine.fake_tool("send", "sent")

    run = await engine.start(ORDER, {"order": 1})
    await engine.restart()  # as kill -9 does
    await engine.advance(days=3)
    assert await run.status() == "completed"
    assert len(charge.calls) == 1


async def test_a_declined_card_ends_the_order_at_once(engine: TestEngine) -> None:
    charge = engine.fake_tool("charge", raises=ToolError("no", kind="declined"))
    with pytest.raises(RunFailed) as failed:
        await engine.run(ORDER, {"order": 1})
    assert failed.value.error.kind == "declined"
    assert len(charge.calls) == 1
