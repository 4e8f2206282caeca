"""What is shown of schedules, and why one did or did not fire: a real store, with rows as firing writes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from holdfast.errors import InvalidInputs, NotFound
from holdfast.schedule.records import Cursor, Owed, Pause, Reason
from holdfast.schedule.timing import Timing
from holdfast.spec.schedule import schedule_from_data
from holdfast.store.batch import Batch
from holdfast.store.schedule_records import Firing, LedgerEntry, NewCursor, ScheduleRow
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import DEFAULT_TENANT, Millis, rfc3339
from holdfast.views.schedule_why import REASONS, Verdict, WhyQueries
from holdfast.views.schedules import ScheduleQueries, next_fires
from tests.store.conformance.schedules import begins, commit, ends

pytestmark = pytest.mark.anyio


def at(*parts: int) -> int:
    return round(datetime(*parts, tzinfo=UTC).timestamp()) * 1000  # type: ignore[misc, arg-type]


MADE, NOW = at(2026, 3, 20), at(2026, 3, 28, 12)
NIGHTLY = {
    "id": "nightly",
    "workflow": "cleanup",
    "trigger": {"kind": "cron", "expression": "0 30 2 * * *", "timezone": "Europe/Berlin"},
}


class Desk:
    """A store with schedules in it, and the queries over it at one time."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(str(path))
        self.store.open_file()
        self.queries = ScheduleQueries(self.store, lambda: NOW)
        self.reasons = WhyQueries(self.store, self.queries)

    async def put(
        self, cursor: Cursor | None = None, *, next_at: int | None = NOW, slot: str = "", **keys: Any
    ) -> str:
        """Store a schedule; gives its id. Everything up to noon is decided unless `cursor` says otherwise."""
        spec = schedule_from_data({**NIGHTLY, **keys})
        where = DEFAULT_TENANT, spec.id
        moved = cursor or Cursor(MADE, NOW)
        batch = Batch()
        text = spec.canonical().decode()
        batch.schedules.append(
            ScheduleRow(*where, spec.trigger.kind, "api", "", 1_000, Millis(MADE), Millis(MADE), text)
        )
        body, owes = msgspec.json.encode(moved).decode(), bool(moved.waiting)
        due = None if next_at is None else Millis(next_at)
        batch.firings.append(Firing(cursor=NewCursor(*where, slot, moved.revision, due, owes, body)))
        await commit(self.store, batch)
        return spec.id

    async def fired(self, no: int, instant: int, late_ms: int = 20, **fields: Any) -> None:
        entry = self.entry(rfc3339(Millis(instant)), instant, at=Millis(instant + late_ms), **fields)
        batch = begins(no, name="nightly")
        batch.firings.append(Firing((entry._replace(outcome="fired", run=no),), no=no))  # type: ignore[arg-type]
        await commit(self.store, batch)

    async def skipped(self, reason: str, first: int, last: int, count: int, **fields: Any) -> None:
        entry = self.entry(f"{rfc3339(Millis(first))}/..", first, until=Millis(last), times=count, **fields)
        batch = Batch()
        batch.firings.append(Firing((entry._replace(reason=reason),)))
        await commit(self.store, batch)

    @staticmethod
    def entry(occurrence: str, instant: int, **fields: Any) -> LedgerEntry:
        entry = LedgerEntry(
            DEFAULT_TENANT,
            "nightly",
            "",
            occurrence,
            "skipped",
            "",
            Millis(instant),
            None,
            1,
            Millis(instant),
        )
        return entry._replace(**fields)

    async def why(self, when: str | None = None, limit: int = 20) -> list[Verdict]:
        return (await self.reasons.why(DEFAULT_TENANT, "nightly", when, limit)).items

    async def the_reason(self, when: str) -> tuple[str, str]:
        (found,) = await self.why(when)
        return found.outcome, found.reason


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path / "holdfast.db")
    yield found
    found.store.close_file()


# ------------------------------------------------------------------------------------------------- one and many


@pytest.mark.parametrize(
    ("keys", "cursor", "next_at", "status"),
    [
        ({}, None, NOW, "active"),
        ({"enabled": False}, None, None, "disabled"),
        ({}, Cursor(MADE, NOW, pauses=(Pause(NOW),)), None, "paused"),
        ({}, Cursor(MADE, NOW, pauses=(Pause(MADE, NOW),)), NOW, "active"),
        ({}, None, None, "ended"),
        ({}, Cursor(MADE, NOW, waiting=(Owed(MADE, NOW),)), None, "active"),
        ({"trigger": {"kind": "webhook", "path": "/h"}}, None, None, "active"),
    ],
)
async def test_the_status_says_whether_a_schedule_fires(
    desk: Desk, keys: dict[str, Any], cursor: Cursor | None, next_at: int | None, status: str
) -> None:
    await desk.put(cursor, next_at=next_at, **keys)
    assert (await desk.queries.schedule(DEFAULT_TENANT, "nightly")).status == status


async def test_a_schedule_is_shown_with_its_runs_and_failures(desk: Desk) -> None:
    await desk.put(Cursor(MADE, NOW, total_run_count=2), next_at=NOW + 1)
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    await desk.fired(2, at(2026, 3, 28, 1, 30))
    await commit(desk.store, ends(1, "no luck", name="nightly"))
    view = await desk.queries.schedule(DEFAULT_TENANT, "nightly")
    assert (view.open_runs, view.total_run_count, view.error_count, view.failures) == (1, 2, 1, 1)
    assert (view.last_error, view.next_at, view.timezone) == ("no luck", NOW + 1, "Europe/Berlin")
    assert view.words[0].startswith("at 02:30 every day, Europe/Berlin time")


@pytest.mark.parametrize(
    ("instants", "words"),
    [
        (["2030-01-01T00:00:00Z"], "once, at 2030-01-01T00:00:00.000Z"),
        (["2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"], "once at each of 2 listed instants"),
    ],
)
async def test_listed_instants_are_said_in_words(desk: Desk, instants: list[str], words: str) -> None:
    await desk.put(trigger={"kind": "at", "at": instants})
    assert (await desk.queries.schedule(DEFAULT_TENANT, "nightly")).words == [words]


async def test_a_stored_time_that_has_passed_is_not_shown_as_the_next_fire(desk: Desk) -> None:
    await desk.put(next_at=NOW)  # after an edit or a resume an engine looks at once
    view = await desk.queries.schedule(DEFAULT_TENANT, "nightly")
    assert view.next_at == at(2026, 3, 29, 1)


async def test_schedules_are_listed_page_by_page_in_the_order_of_their_ids(desk: Desk) -> None:
    for name in ("c", "a", "b"):
        await desk.put(id=name)
    first = await desk.queries.schedules(DEFAULT_TENANT, cursor=None, limit=2)
    second = await desk.queries.schedules(DEFAULT_TENANT, cursor=first.cursor, limit=2)
    assert [view.row.id for view in first.items + second.items] == ["a", "b", "c"]
    assert (first.cursor, second.cursor) == ("b", None)


async def test_another_tenant_sees_no_schedule(desk: Desk) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 28, 1, 30))
    assert (await desk.queries.schedules("other", cursor=None, limit=9)).items == []
    for look in (
        desk.queries.schedule("other", "nightly"),
        desk.queries.ledger("other", "nightly", cursor=None, limit=9),
        desk.queries.next_fires("other", "nightly", 3),
        desk.reasons.why("other", "nightly", None, 9),
    ):
        with pytest.raises(NotFound, match="no schedule 'nightly'"):
            await look


async def test_the_ledger_is_read_page_by_page_the_newest_first(desk: Desk) -> None:
    await desk.put()
    for no in (1, 2, 3):
        await desk.fired(no, at(2026, 3, 20 + no, 1, 30))
    first = await desk.queries.ledger(DEFAULT_TENANT, "nightly", cursor=None, limit=2)
    second = await desk.queries.ledger(DEFAULT_TENANT, "nightly", cursor=first.cursor, limit=2)
    assert [row.occurrence[:10] for row in first.items + second.items] == [
        "2026-03-23",
        "2026-03-22",
        "2026-03-21",
    ]
    assert second.cursor is None


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 40])
async def test_a_cursor_that_is_none_is_refused(desk: Desk, cursor: str) -> None:
    await desk.put()
    with pytest.raises(InvalidInputs, match="not a cursor of this list"):
        await desk.queries.ledger(DEFAULT_TENANT, "nightly", cursor=cursor, limit=2)


async def test_the_next_fires_have_their_jitter_and_what_clock_changes_do(desk: Desk) -> None:
    trigger = {**NIGHTLY["trigger"], "jitter_secs": 60}  # type: ignore[dict-item]
    await desk.put(trigger=trigger)
    _, (gap, after) = await desk.queries.next_fires(DEFAULT_TENANT, "nightly", 2)
    assert (gap.at, gap.local) == (at(2026, 3, 29, 1), "2026-03-29T03:00:00+02:00")
    assert "02:30:00 does not exist" in gap.note and after.note == ""
    assert gap.fires_at is not None and 0 <= gap.fires_at - gap.at <= 60_000
    _, again = await desk.queries.next_fires(DEFAULT_TENANT, "nightly", 2)
    assert again == [gap, after]


async def test_of_a_paused_schedule_no_occurrence_fires(desk: Desk) -> None:
    await desk.put(Cursor(MADE, NOW, pauses=(Pause(NOW),)), next_at=None)
    view = await desk.queries.schedule(DEFAULT_TENANT, "nightly")
    (first,) = next_fires(view, NOW, 1)
    assert (first.fires_at, first.note) == (None, "the schedule is paused")


async def test_a_webhook_has_no_next_fires(desk: Desk) -> None:
    await desk.put(trigger={"kind": "webhook", "path": "/h"})
    assert (await desk.queries.next_fires(DEFAULT_TENANT, "nightly", 3))[1] == []


# --------------------------------------------------------------------------------------------------- what was


async def test_the_last_occurrences_are_explained_the_newest_first(desk: Desk) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    await desk.skipped("overlap", at(2026, 3, 28, 1, 30), at(2026, 3, 28, 1, 30), 1)
    newest, fired = await desk.why()
    assert (newest.outcome, newest.reason, newest.local) == (
        "skipped",
        "overlap",
        "2026-03-28T02:30:00+01:00",
    )
    assert "max_concurrent" in newest.message and "buffer_one" in newest.hint
    assert (fired.outcome, fired.message) == ("fired", "fired 20 ms after its time")
    assert fired.run_id is not None


@pytest.mark.parametrize(
    ("late_ms", "fields", "message"),
    [
        (0, {}, "fired 0 ms after its time"),
        (1_250, {}, "fired 1.2 s after its time"),
        (90_000, {}, "fired 1 min after its time"),
        (9_000_000, {"is_catchup": True}, "fired 2 h 30 min after its time, caught up"),
        (9_000_000, {"reason": "backfill"}, "fired by a backfill"),
        (0, {"reason": "manual"}, "fired by request"),
        (
            5,
            {"detail": '{"shifted_from": "2026-03-29T02:30:00"}'},
            "fired 5 ms after its time, instead of 02:30:00, which does not exist on this day",
        ),
        (
            12_100,
            {"detail": '{"late": "store_unavailable"}'},
            "fired 12.1 s after its time, because the database could not be written",
        ),
    ],
)
async def test_a_fire_says_how_late_it_was_or_what_asked_for_it(
    desk: Desk, late_ms: int, fields: dict[str, Any], message: str
) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 27, 1, 30), late_ms, **fields)
    (found,) = await desk.why()
    assert (found.message, found.hint) == (message, "")


@pytest.mark.parametrize(
    "when", ["2026-03-27T02:30", "2026-03-27T01:30:00Z", "2026-03-27T01:30:00.000Z", "2026-03-27"]
)
async def test_an_occurrence_is_found_by_its_time_in_either_zone_or_by_its_day(desk: Desk, when: str) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    assert await desk.the_reason(when) == ("fired", "")


async def test_one_of_many_that_were_skipped_together_is_found(desk: Desk) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 21, 1, 30))
    await desk.skipped("missed", at(2026, 3, 22, 1, 30), at(2026, 3, 26, 1, 30), 5)
    await desk.fired(2, at(2026, 3, 24, 1, 30))  # by a backfill
    (day,) = await desk.why("2026-03-25T02:30")
    assert (day.outcome, day.reason, day.count) == ("skipped", "missed", 5)
    assert [one.outcome for one in await desk.why("2026-03-24")] == ["skipped", "fired"]
    assert await desk.the_reason("2026-03-21") == ("fired", "")


async def test_a_time_that_a_clock_change_left_out_is_found(desk: Desk) -> None:
    gap = at(2026, 3, 29, 1) - 1
    await desk.put(Cursor(MADE, gap), dst={"gap": "skip"})
    await desk.skipped("dst_gap", gap, gap, 1)
    assert [one.reason for one in await desk.why("2026-03-29")] == ["dst_gap"]


async def test_the_message_of_a_failure_is_shown(desk: Desk) -> None:
    await desk.put()
    detail = '{"message": "there is no workflow cleanup"}'
    await desk.skipped(
        "unknown_workflow", at(2026, 3, 27, 1, 30), at(2026, 3, 27, 1, 30), 1, outcome="failed", detail=detail
    )
    (found,) = await desk.why()
    assert (found.outcome, found.message) == ("failed", "there is no workflow cleanup")


async def test_a_fire_has_its_warnings(desk: Desk) -> None:
    await desk.put()
    warning = "{{trigger.payload.x}} was left as it is: nothing has that name"
    await desk.fired(1, at(2026, 3, 27, 1, 30), detail=f'{{"warnings": ["{warning}"]}}')
    (found,) = await desk.why()
    assert found.warnings == (warning,)


async def test_an_event_is_not_late(desk: Desk) -> None:
    await desk.put(trigger={"kind": "webhook", "path": "/h"})
    batch = begins(1, name="nightly")
    (no,) = batch.new_runs
    entry = desk.entry("evt_1", NOW, at=Millis(NOW + 20), outcome="fired", run=no)
    batch.firings.append(Firing((entry,), no=no))
    await commit(desk.store, batch)
    (found,) = await desk.why()
    assert found.message == "fired"


async def test_a_delivery_is_found_by_its_id(desk: Desk) -> None:
    await desk.put(trigger={"kind": "webhook", "path": "/h"})
    batch = Batch()
    batch.firings.append(Firing((desk.entry("evt_1", NOW, reason="overlap"),)))
    await commit(desk.store, batch)
    assert await desk.the_reason("evt_1") == ("skipped", "overlap")
    assert await desk.the_reason("evt_2") == ("unknown", "")


async def test_every_node_of_a_node_local_schedule_is_explained(desk: Desk) -> None:
    for node in ("a", "b"):
        await desk.put(slot=node, locking="node_local")
    await desk.skipped("overlap", at(2026, 3, 27, 1, 30), at(2026, 3, 27, 1, 30), 1, slot="b")
    await desk.fired(1, at(2026, 3, 27, 1, 30), slot="a")
    found = await desk.why("2026-03-27")
    assert [(one.slot, one.outcome) for one in found] == [("a", "fired"), ("b", "skipped")]
    found = await desk.why(rfc3339(Millis(at(2026, 3, 27, 1, 30))))
    assert [(one.slot, one.outcome) for one in found] == [("a", "fired")]
    found = await desk.why("2026-03-29")
    assert [(one.slot, one.outcome) for one in found] == [("a", "will_fire"), ("b", "will_fire")]
    found = await desk.why("2026-03-29T09:00")
    assert [one.outcome for one in found] == ["not_due"]
    view = await desk.queries.schedule(DEFAULT_TENANT, "nightly")
    assert view.slots == ("a", "b")


async def test_rows_of_a_slot_that_the_schedule_had_before_are_explained(desk: Desk) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 27, 1, 30), slot="old-node")
    (found,) = await desk.why("2026-03-27T02:30")
    assert (found.slot, found.outcome) == ("old-node", "fired")


async def test_the_ledger_of_a_deleted_schedule_still_says_why(desk: Desk) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    batch = Batch()
    batch.forgotten_schedules.append((DEFAULT_TENANT, "nightly"))
    await commit(desk.store, batch)
    found = await desk.reasons.why(DEFAULT_TENANT, "nightly", None, 9)
    assert (found.status, [one.outcome for one in found.items]) == ("deleted", ["fired"])


def test_every_reason_has_words() -> None:
    assert set(get_args(Reason)) <= set(REASONS)
    assert [reason for reason, (what, _) in REASONS.items() if not what] == []


# --------------------------------------------------------------------------------------------- what was not, or will be


@pytest.mark.parametrize(
    ("when", "cursor", "keys", "outcome", "reason"),
    [
        ("2026-04-01", None, {}, "will_fire", ""),
        ("2026-04-01", None, {"enabled": False}, "will_not_fire", "disabled"),
        ("2026-04-01", Cursor(MADE, NOW, pauses=(Pause(NOW),)), {}, "will_not_fire", "paused"),
        ("2026-04-01", None, {"exclude": {"dates": ["2026-04-01"]}}, "will_not_fire", "excluded"),
        ("2026-03-29", None, {"dst": {"gap": "skip"}}, "will_not_fire", "dst_gap"),
        ("2026-03-29T02:30", None, {"dst": {"gap": "skip"}}, "will_not_fire", "dst_gap"),
        ("2026-03-29T02:30", None, {}, "will_fire", ""),
        ("2026-04-01T02:31", None, {}, "not_due", ""),
        ("2026-04-01", None, {"end_at": "2026-03-31"}, "not_due", ""),
        ("2026-03-10", None, {}, "unknown", "not_registered"),
        ("2026-03-25", None, {}, "unknown", "forgotten"),
        ("2026-03-28", Cursor(MADE, at(2026, 3, 28)), {}, "undecided", ""),
        ("2026-03-28", Cursor(MADE, NOW, waiting=(Owed(at(2026, 3, 28), NOW),)), {}, "waiting", ""),
        ("2026-03-28", Cursor(MADE, NOW, missed=(Owed(0, NOW, 1),), earlier={1: Timing(instants=(at(2026, 3, 28, 1, 30),))}), {}, "waiting", ""),
    ],
)  # fmt: skip
async def test_a_time_without_a_row_is_explained(
    desk: Desk, when: str, cursor: Cursor | None, keys: dict[str, Any], outcome: str, reason: str
) -> None:
    await desk.put(cursor, **keys)
    assert await desk.the_reason(when) == (outcome, reason)


async def test_a_time_to_come_says_what_would_stop_it(desk: Desk) -> None:
    await desk.put()
    await desk.fired(1, at(2026, 3, 28, 1, 30))
    (found,) = await desk.why("2026-04-01")
    assert (found.outcome, found.reason) == ("will_fire", "overlap")
    assert "unless max_concurrent is still reached then (1 open run now)" in found.message


async def test_a_time_at_which_nothing_is_due_names_its_neighbours(desk: Desk) -> None:
    await desk.put()
    (found,) = await desk.why("2026-04-01T12:00")
    assert found.message == (
        "the schedule is not due at this time; the previous is 2026-04-01T00:30:00.000Z, the next is 2026-04-02T00:30:00.000Z"
    )


@pytest.mark.parametrize("when", [None, "2026-02-28"])
async def test_a_schedule_that_never_fires_says_so(desk: Desk, when: str | None) -> None:
    await desk.put(trigger={"kind": "cron", "expression": "0 30 2 30 2 *"}, next_at=None)
    (found,) = await desk.why(when)
    assert found.reason == "never_fires" and "never fires" in found.message


async def test_a_schedule_that_has_ended_says_so_before_its_last_occurrences(desk: Desk) -> None:
    await desk.put(trigger={"kind": "at", "at": "2026-03-27T01:30:00Z"}, next_at=None)
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    assert [(one.outcome, one.reason) for one in await desk.why()] == [
        ("will_not_fire", "never_fires"),
        ("fired", ""),
    ]


async def test_a_schedule_that_is_paused_says_so_before_its_last_occurrences(desk: Desk) -> None:
    await desk.put(Cursor(MADE, NOW, pauses=(Pause(NOW),)), next_at=None)
    await desk.fired(1, at(2026, 3, 27, 1, 30))
    stopped, _ = await desk.why()
    assert (stopped.outcome, stopped.reason, stopped.message) == (
        "will_not_fire",
        "paused",
        "the schedule is paused",
    )
    assert stopped.hint == "holdfast schedules resume nightly starts it again"


async def test_a_schedule_that_paused_itself_says_what_made_it(desk: Desk) -> None:
    await desk.put(Cursor(MADE, NOW, pauses=(Pause(NOW),)), next_at=None, pause_after_failures=2)
    for no in (1, 2):
        await desk.fired(no, at(2026, 3, 26 + no, 1, 30))
        await commit(desk.store, ends(no, "no luck", name="nightly"))
    stopped, *_ = await desk.why()
    assert stopped.message == "the schedule is paused: its last 2 runs have failed"


async def test_a_disabled_schedule_says_so(desk: Desk) -> None:
    await desk.put(enabled=False, next_at=None)
    assert [(one.outcome, one.reason) for one in await desk.why()] == [("will_not_fire", "disabled")]


async def test_a_schedule_that_excludes_everything_is_explained_at_once(desk: Desk) -> None:
    every_second = {"kind": "cron", "expression": "* * * * * *"}
    await desk.put(trigger=every_second, exclude={"expressions": ["* * * * * *"]})
    (found,) = await desk.why("2036-04-01T12:00:00.500Z")
    assert found.outcome == "not_due"


@pytest.mark.parametrize("when", ["yesterday", "2026-02-30", ""])
async def test_a_text_that_is_no_time_is_refused(desk: Desk, when: str) -> None:
    await desk.put()
    with pytest.raises(InvalidInputs, match="neither a time nor an occurrence"):
        await desk.why(when)


async def test_a_schedule_that_does_not_exist_is_not_found(desk: Desk) -> None:
    with pytest.raises(NotFound):
        await desk.why()
