"""What is counted of schedules, and how long their ledger is kept."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.api.services import Services
from holdfast.ops.upkeep import forget_ledger
from holdfast.runtime.engine import Engine
from holdfast.testing import TestEngine
from holdfast.triggers.tally import OTHER, Tally
from holdfast.values import DEFAULT_TENANT as T
from holdfast.values import Millis
from tests.small_limits import with_limits
from tests.triggers.scheduled import cron, forever, ledger, put


async def counts(engine: Engine, services: Services) -> dict[tuple[str, ...], float]:
    text = (await services.metrics.text(services.history, {})).decode()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {
        (one.name, *(one.labels[name] for name in sorted(one.labels) if one.labels[name])): one.value
        for one in samples
    }


async def test_occurrences_are_counted_by_what_became_of_them(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron(), cron("other", workflow="unknown"))
    services = Services(opened)
    await engine.advance(minutes=4)
    found = await counts(opened, services)
    name = "holdfast_schedule_occurrences_total"
    assert found[name, "fired", "s"] == 1
    assert found[name, "skipped", "overlap", "s"] == 3
    assert found[name, "failed", "unknown_workflow", "other"] == 4
    assert found["holdfast_schedule_lateness_seconds_count",] == 1


async def test_the_next_fire_of_a_schedule_is_shown(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron(), cron("never", expression="0 0 0 30 2 *"))
    found = await counts(opened, Services(opened))
    assert found["holdfast_schedule_next_fire_seconds", "s"] == 1_700_000_040
    assert ("holdfast_schedule_next_fire_seconds", "never") not in found
    assert found["holdfast_schedules_overdue_seconds",] == 0


async def test_fires_by_hand_and_backfills_have_their_reason(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron())
    await opened.schedules.fire(T, "s")
    await engine.advance()
    now = opened.clock.now()
    await opened.schedules.backfill(T, "s", Millis(now - 120_000), now)
    await engine.advance(seconds=1)
    tally = opened.fires.tally.occurrences
    assert tally == {("", "s", "fired", "manual"): 1, ("", "s", "fired", "backfill"): 2}


def test_labels_are_bounded_and_those_of_plugins_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, metrics_schedules_max=2)
    tally = Tally()
    assert tally.label("plugin:mail:hourly") == ("mail", "hourly")
    assert tally.label("a") == ("", "a")
    assert tally.label("b") == OTHER
    assert tally.label("a") == ("", "a")


async def test_old_rows_of_the_ledger_are_deleted_and_those_of_kept_runs_stay(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron())
    await engine.advance(minutes=3)
    await engine.advance(days=1)
    assert await forget_ledger(opened.store, opened.committer, opened.clock.now()) == 1
    assert [row.outcome for row in await ledger(engine)] == ["fired"]
    assert await forget_ledger(opened.store, opened.committer, opened.clock.now()) == 0
