"""Commands about schedules: definitions, pause and resume, firing by hand."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import AtLimit, InvalidSpec, LimitExceeded, ManagedByFile, NotFound
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.schedule_records import Origin
from holdfast.testing import TestEngine
from holdfast.triggers.schedules import Declared, Schedules
from holdfast.values import DEFAULT_TENANT as T
from holdfast.values import decode
from tests.triggers.scheduled import Gates, cron, forever, ledger, put, runs, state


async def schedules(engine: TestEngine) -> Schedules:
    return (await engine.open())._engine.schedules


def hook(name: str, path: str) -> ScheduleSpec:
    trigger = {"kind": "webhook", "path": path}
    return schedule_from_data({"id": name, "workflow": "work", "trigger": trigger})


class Told:
    """What a part that serves a kind of trigger is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None:
        self.said.append(("put", spec.id))

    def remove(self, tenant: str, schedule_id: str) -> None:
        self.said.append(("remove", schedule_id))


def minutes(calls: list[dict[str, Any]]) -> list[str]:
    return [call["x"][11:16] for call in calls]


# ------------------------------------------------------------------------------------------------------ definitions


async def test_putting_the_same_schedule_again_changes_nothing(engine: TestEngine) -> None:
    await put(engine, cron())
    before = await state(engine)
    assert await (await schedules(engine)).put(T, cron()) is False
    assert await state(engine) == before


async def test_an_edit_of_the_inputs_keeps_the_cursor(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron(expression="@every 50s"))
    await engine.advance(seconds=40)
    await (await schedules(engine)).put(T, cron(expression="@every 50s", inputs={"at": "edited"}))
    await engine.advance(seconds=11)
    assert work.calls == [{"x": "edited"}]
    found = await state(engine)
    assert found.schedule.updated_at > found.schedule.created_at


async def test_what_is_due_when_a_schedule_is_edited_fires_under_the_old_definition(
    engine: TestEngine,
) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron(inputs={"at": "old"}))
    opened.fires.is_open = False  # it comes to nothing before the edit
    await engine.advance(seconds=45)
    assert work.calls == []
    await opened.schedules.put(T, cron(expression="0 0 0 1 1 *", inputs={"at": "new"}))
    await engine.advance()
    assert work.calls == [{"x": "old"}]
    assert [row.occurrence for row in await ledger(engine)] == ["2023-11-14T22:14:00.000Z"]


async def test_a_schedule_that_a_file_defines_is_not_replaced_by_others(engine: TestEngine) -> None:
    opened = await put(engine)
    await opened.schedules.put(T, cron(), origin="file", source="/etc/jobs/a.schedules.yaml")
    with pytest.raises(ManagedByFile, match=r"the file /etc/jobs/a.schedules.yaml"):
        await opened.schedules.put(T, cron(overlap="buffer_one"))
    with pytest.raises(ManagedByFile):
        await opened.schedules.delete(T, "s")
    assert (await state(engine)).schedule.origin == "file"


async def test_a_deleted_schedule_fires_no_more_and_its_ledger_stays(engine: TestEngine) -> None:
    work = engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron(overlap="buffer_all"))
    await engine.advance(minutes=3)
    await opened.schedules.delete(T, "s")
    await engine.advance(minutes=3)
    assert len(work.calls) == 1
    fired, left = await ledger(engine)
    assert fired.outcome == "fired"
    assert (left.outcome, left.reason, left.times) == ("skipped", "deleted", 2)
    with pytest.raises(NotFound):
        await opened.schedules.delete(T, "s")


async def test_a_deleted_schedule_that_comes_back_begins_anew(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(minutes=1)
    await opened.schedules.delete(T, "s")
    await engine.advance(minutes=5)
    await opened.schedules.put(T, cron())
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:14", "22:20"]


async def test_a_schedule_can_change_its_kind_of_trigger(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await opened.schedules.put(T, hook("s", "/hooks/s"))
    await engine.advance(minutes=2)
    assert work.calls == [] and (await state(engine)).cursor.next_at is None
    await opened.schedules.put(T, cron())
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:16"]


async def test_a_set_is_swapped_in_one_commit(engine: TestEngine) -> None:
    opened = await put(engine, cron("mine"))
    folder = "/jobs"

    def declared(*specs: ScheduleSpec) -> list[Declared]:
        return [Declared(spec, f"{folder}/{spec.id}.schedules.yaml") for spec in specs]

    plan = await opened.schedules.swap(T, "file", folder, declared(cron("a"), cron("b"), cron("c")))
    assert (plan.added, str(plan)) == (("a", "b", "c"), "+3 ~0 -0")
    commits = []
    submit = opened.store.submit
    opened.store.submit = lambda batch, done: (commits.append(batch), submit(batch, done))  # type: ignore[method-assign, assignment, func-returns-value]
    plan = await opened.schedules.swap(
        T, "file", folder, declared(cron("b"), cron("c", overlap="buffer_one"), cron("d"))
    )
    assert plan == (("d",), ("c",), ("a",), ("b",))
    assert len([batch for batch in commits if batch.schedules]) == 1
    names = [row.id for row in await opened.store.schedules(T, "", 9)]
    assert names == ["b", "c", "d", "mine"]


async def test_a_set_with_the_id_of_another_schedule_is_refused_whole(engine: TestEngine) -> None:
    opened = await put(engine, cron("mine"))
    with pytest.raises(ManagedByFile):
        await opened.schedules.swap(
            T, "file", "/jobs", [Declared(cron("a"), "/jobs/a"), Declared(cron("mine"), "/jobs/a")]
        )
    assert [row.id for row in await opened.store.schedules(T, "", 9)] == ["mine"]


async def test_sets_of_two_folders_do_not_touch_each_other(engine: TestEngine) -> None:
    opened = await put(engine)
    await opened.schedules.swap(T, "file", "/jobs", [Declared(cron("a"), "/jobs/a")])
    await opened.schedules.swap(T, "file", "/jobs2", [Declared(cron("b"), "/jobs2/b")])
    await opened.schedules.swap(T, "file", "/jobs", [])
    assert [row.id for row in await opened.store.schedules(T, "", 9)] == ["b"]


async def test_two_schedules_cannot_have_one_webhook_path(engine: TestEngine) -> None:
    opened = await put(engine, hook("a", "/hooks/x"))
    with pytest.raises(InvalidSpec, match=r"the path /hooks/x belongs to schedule 'a'"):
        await opened.schedules.put(T, hook("b", "/hooks/x"))
    with pytest.raises(InvalidSpec, match="belongs to another tenant"):
        await opened.schedules.put("other", hook("b", "/hooks/x"))
    await opened.schedules.put(T, hook("a", "/hooks/y"))
    await opened.schedules.put(T, hook("b", "/hooks/x"))


async def test_watchers_hear_of_each_change(engine: TestEngine) -> None:
    opened, told = await put(engine), Told()
    opened.schedules.watchers.append(told)
    await opened.schedules.put(T, cron())
    await opened.schedules.put(T, cron())
    await opened.schedules.delete(T, "s")
    assert told.said == [("put", "s"), ("remove", "s")]


async def test_a_schedule_that_was_set_aside_fires_once_it_is_replaced(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    opened.fires.broken[T, "s", ""] = "a mistake"
    await engine.advance(minutes=1)
    assert work.calls == []
    await opened.schedules.put(T, cron(max_concurrent=2))
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:14", "22:15"]


# ------------------------------------------------------------------------------------------------- pause and resume


async def test_what_is_due_during_a_pause_is_skipped_and_in_the_ledger(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await opened.schedules.pause(T, "s")
    await engine.advance(minutes=3)
    await opened.schedules.resume(T, "s")
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:17"]
    skipped, _ = await ledger(engine)
    assert (skipped.outcome, skipped.reason, skipped.times) == ("skipped", "paused", 3)


async def test_what_was_due_during_a_pause_is_caught_up_on_request(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await opened.schedules.pause(T, "s")
    await engine.advance(minutes=3)
    await opened.schedules.resume(T, "s", missed=True)
    await engine.advance(seconds=1)
    assert minutes(work.calls) == ["22:14", "22:15", "22:16"]
    assert all(row.is_catchup for row in await ledger(engine))


async def test_a_pause_survives_a_restart(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await opened.schedules.pause(T, "s")
    await engine.restart()
    await engine.advance(minutes=3)
    assert work.calls == []


async def test_a_schedule_is_paused_after_so_many_failures(engine: TestEngine) -> None:
    work = engine.fake_tool("work", raises=ValueError("no"))
    opened = await put(engine, cron(pause_after_failures=2))
    await engine.advance(minutes=5)
    assert len(work.calls) == 2
    found = await state(engine)
    assert (found.cursor.error_count, found.cursor.failures, found.cursor.next_at) == (2, 2, None)
    assert "no" in found.cursor.last_error
    engine.fake_tool("work")
    await opened.schedules.resume(T, "s")
    await engine.advance(minutes=2)
    assert (await state(engine)).cursor.failures == 0
    assert [run.status for run in await runs(engine)] == ["failed", "failed", "completed", "completed"]


async def test_a_success_between_failures_keeps_a_schedule_going(engine: TestEngine) -> None:
    answers = [ValueError("no"), None, ValueError("no"), None]
    work = engine.fake_tool("work", side_effect=answers)
    await put(engine, cron(pause_after_failures=2))
    await engine.advance(minutes=4)
    assert len(work.calls) == 4


async def test_a_pause_for_failures_does_not_depend_on_the_process_that_saw_them(engine: TestEngine) -> None:
    work = engine.fake_tool("work", raises=ValueError("no"))
    opened = await put(engine, cron(pause_after_failures=1))
    opened.fires.run_ended = lambda resident: None  # type: ignore[method-assign]  # it is killed before it acts on it
    await engine.advance(minutes=1)
    await engine.restart()
    await engine.advance(minutes=2)
    assert len(work.calls) == 1


# ------------------------------------------------------------------------------------------------------ firing by hand


async def test_a_schedule_can_be_fired_by_hand(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    fired = await opened.schedules.fire(T, "s")
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:13", "22:14"]
    by_hand, _ = await ledger(engine)
    assert (by_hand.occurrence, by_hand.run_id, by_hand.reason) == (fired.occurrence, fired.run_id, "manual")


async def test_firing_by_hand_counts_open_runs(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron())
    await opened.schedules.fire(T, "s")
    with pytest.raises(AtLimit, match="1 open runs and max_concurrent is 1"):
        await opened.schedules.fire(T, "s")
    await engine.advance(minutes=1)
    assert [row.reason for row in await ledger(engine)] == ["manual", "overlap"]


async def test_a_paused_schedule_can_be_fired_by_hand(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await opened.schedules.pause(T, "s")
    await opened.schedules.fire(T, "s")
    await engine.advance(minutes=1)
    assert len(work.calls) == 1


async def test_firing_by_hand_tells_the_caller_what_is_wrong(engine: TestEngine) -> None:
    opened = await put(engine, cron(workflow="unknown"))
    with pytest.raises(NotFound, match="no workflow 'unknown'"):
        await opened.schedules.fire(T, "s")
    assert await ledger(engine) == []


async def test_the_payload_of_a_fire_by_hand_is_filled_in(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron(inputs={"at": "{{trigger.payload.x}}"}))
    await opened.schedules.fire(T, "s", {"x": 7})
    await engine.advance()
    assert work.calls == [{"x": 7}]


# ----------------------------------------------------------------------------------------------------------- backfill


async def test_a_backfill_fires_what_is_missing_and_nothing_else(engine: TestEngine) -> None:
    work, gates = engine.fake_tool("work"), Gates()
    opened = await put(engine, cron())
    await engine.advance(minutes=2)
    engine.fake_tool("work", side_effect=gates)
    await engine.advance(minutes=3)  # the first of them stays open, the others are skipped
    gates.open()
    work = engine.fake_tool("work")
    await engine.advance()
    since, until = opened.clock.now() - 600_000, opened.clock.now()
    seen = await opened.schedules.backfill(T, "s", since, until, preview=True)  # type: ignore[arg-type]
    assert (seen.count, seen.settled) == (7, 3)
    assert work.calls == []
    await opened.schedules.backfill(T, "s", since, until)  # type: ignore[arg-type]
    await engine.advance(seconds=1)
    assert minutes(work.calls) == ["22:09", "22:10", "22:11", "22:12", "22:13", "22:17", "22:18"]
    again = await opened.schedules.backfill(T, "s", since, until)  # type: ignore[arg-type]
    assert (again.count, again.settled) == (0, 10)
    rows = await ledger(engine)
    assert [row.reason for row in rows].count("backfill") == 7
    assert [row.times for row in rows if row.outcome == "skipped"] == [2]


async def test_a_backfill_goes_on_after_a_crash(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron())
    now = opened.clock.now()
    await opened.schedules.backfill(T, "s", now - 300_000, now)  # type: ignore[arg-type]
    await engine.advance()
    engine.fake_tool("work")
    await engine.restart()
    await engine.advance(seconds=1)
    assert [run.status for run in await runs(engine)] == ["completed"] * 5


async def test_a_backfill_keeps_the_rate_that_was_asked_for(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron(overlap="allow", max_concurrent=0))
    now = opened.clock.now()
    await opened.schedules.backfill(T, "s", now - 300_000, now, max_per_sec=2)  # type: ignore[arg-type]
    await engine.advance(seconds=0.1)
    assert len(work.calls) == 1
    await engine.advance(seconds=1)
    assert len(work.calls) == 3


async def test_what_the_run_knows_of_its_schedule_is_in_the_first_row(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(minutes=1)
    (run,) = await runs(engine)
    (_, _, _, _, body), *_ = await opened.store.journal(run.no, 0, 1)
    assert decode(body)[1][-1][:4] == ["s", "cron", "2023-11-14T22:14:00.000Z", 1_700_000_040_000]


async def test_what_was_due_before_a_pause_does_not_fire_in_it(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron(overlap="buffer_all"))
    await engine.advance(minutes=2)  # the second waits for the run of the first
    opened.fires.hold()
    await engine.advance(minutes=1)  # nothing is decided about the third yet
    await opened.schedules.pause(T, "s")
    (open_run,) = await runs(engine)
    await opened.runs.cancel(open_run.id)
    await engine.advance(seconds=11)
    await engine.restart()
    await engine.advance(minutes=1)
    assert [run.status for run in await runs(engine)] == ["cancelled"]


async def test_a_pause_in_a_file_that_no_engine_drives_includes_what_is_due_already(
    engine: TestEngine,
) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron(grace_secs=3_600))
    opened.fires.is_open = False
    await engine.advance(minutes=3)
    await opened.schedules.pause(T, "s")
    await engine.restart()
    await (await engine.open())._engine.schedules.resume(T, "s")
    await engine.advance()
    (row,) = await ledger(engine)
    assert (work.calls, row.reason, row.times) == ([], "paused", 3)


async def test_an_edit_is_refused_while_too_much_of_earlier_definitions_is_owed(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.triggers.definitions.EARLIER_BYTES_MAX", 250)
    engine.fake_tool("work", forever)
    opened = await put(engine, cron(overlap="buffer_all"))
    await engine.advance(seconds=121)
    await opened.schedules.put(T, cron(expression="30 * * * * *", overlap="buffer_all"))
    await engine.advance(seconds=60)
    with pytest.raises(LimitExceeded, match="owes occurrences of many earlier"):
        await opened.schedules.put(T, cron(expression="15 * * * * *", overlap="buffer_all"))
    assert "30 * * * * *" in (await state(engine)).schedule.body
