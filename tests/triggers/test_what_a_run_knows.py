"""What a run, its tools and its readers know of the schedule that started it."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast import Context, RunTrigger, tool
from holdfast.api import present
from holdfast.api.services import Services
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT as T
from tests.triggers.scheduled import cron, put, runs

SEEN: list[RunTrigger | None] = []
DUE = RunTrigger("s", "cron", "2023-11-14T22:14:00.000Z", datetime(2023, 11, 14, 22, 14, tzinfo=UTC))


@tool
async def work(x: object, context: Context) -> None:
    SEEN.append(context.trigger)


@tool(name="work", isolate="process")
def work_apart(x: object, context: Context) -> str:
    assert context.trigger is not None
    return f"{context.trigger.schedule_id} at {context.trigger.scheduled_at:%H:%M}"


async def test_a_tool_learns_what_started_its_run(engine: TestEngine) -> None:
    SEEN.clear()
    engine.tool(work)
    await put(engine, cron())
    await engine.advance(minutes=1)
    await engine.run({"name": "n", "steps": [{"id": "a", "tool": "work", "args": {"x": 1}}]})
    assert [DUE, None] == SEEN


async def test_a_tool_in_a_process_of_its_own_learns_it_too(engine: TestEngine) -> None:
    engine.tool(work_apart)
    await put(engine, cron())
    await engine.advance(minutes=1)
    (run,) = await runs(engine)
    assert await (await engine.attach(run.id)).result() == {"a": "s at 22:14"}


async def test_a_rerun_knows_the_occurrence_and_does_not_count_as_a_run_of_the_schedule(
    engine: TestEngine,
) -> None:
    SEEN.clear()
    engine.tool(work)
    await put(engine, cron())
    await engine.advance(minutes=1)
    (run,) = await runs(engine)
    again = await (await engine.open()).rerun(run.id)
    await engine.finish(again)
    assert SEEN == [DUE, DUE]
    assert [row.schedule for row in await runs(engine)] == ["s", None]


async def test_a_run_and_its_explanation_name_the_schedule(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(minutes=1)
    (run,) = await runs(engine)
    queries = Services(opened).queries
    shown = present.run(await queries.run(T, run.id))
    assert shown.trigger is not None
    assert (shown.trigger.schedule_id, shown.trigger.scheduled_at) == ("s", "2023-11-14T22:14:00.000Z")
    assert present.explanation(await queries.explain(T, run.id)).trigger == shown.trigger


async def test_a_local_time_that_clocks_skip_is_named(engine: TestEngine) -> None:
    SEEN.clear()
    engine.tool(work)
    trigger = {"kind": "cron", "expression": "0 30 2 * * *", "timezone": "Europe/Berlin"}
    await put(engine, cron(trigger=trigger, start_at="2024-03-31"))
    await engine.advance(days=138)  # to 31 March 2024, when 02:30 does not exist
    assert SEEN[0] is not None
    assert (SEEN[0].scheduled_at, SEEN[0].shifted_from) == (
        datetime(2024, 3, 31, 1, 0, tzinfo=UTC),
        "2024-03-31T02:30:00",
    )
