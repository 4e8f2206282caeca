"""Backfills: which occurrences of the past have no run, and how those fire."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.schedule.control import backfilled, discarded, missing, paused, registered, replaced
from holdfast.schedule.due import due
from holdfast.schedule.records import Cursor, Owed, Running, Schedule
from holdfast.schedule.timing import Timing
from holdfast.spec.moments import parse_moment
from holdfast.spec.triggers import Exclude

NOON = 1_774_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000
HOUR, DAY = 3_600_000, 86_400_000
HOURLY = Timing(("0 0 * * * *",))


def schedule(timing: Timing = HOURLY, **fields: Any) -> Schedule:
    return Schedule("s", timing, **fields)


def at(hours: int) -> Cursor:
    """The cursor of a schedule that was registered at noon and has come so many hours further."""
    return msgspec.structs.replace(registered(NOON), at=NOON + hours * HOUR)


def hours(instants: Any) -> list[int]:
    return [(instant - NOON) // HOUR for instant in instants]


def asked(cursor: Cursor, *instants: int, every_ms: int = 0) -> Cursor:
    return backfilled(cursor, stretches(cursor, *instants), every_ms)


def stretches(cursor: Cursor, *hours: int) -> tuple[Owed, ...]:
    """Those of a request that finds no run at these hours, and one at each of the others."""
    settled = {NOON + hour * HOUR for hour in range(24)} - {NOON + hour * HOUR for hour in hours}
    return missing(schedule(), cursor, NOON, NOON + DAY, settled, 100).stretches


def test_what_has_no_run_is_missing() -> None:
    found = missing(schedule(), at(5), NOON, NOON + DAY, {NOON + 2 * HOUR, NOON + 4 * HOUR}, 100)
    assert (hours(found.instants), found.settled, found.next_from) == ([0, 1, 3, 5], 2, None)


def test_the_search_goes_on_where_it_stopped() -> None:
    found = missing(schedule(), at(5), NOON, NOON + DAY, set(), 4)
    assert hours(found.instants) == [0, 1, 2, 3] and found.next_from is not None
    found = missing(schedule(), at(5), found.next_from, NOON + DAY, set(), 4)
    assert (hours(found.instants), found.next_from) == ([4, 5], None)


def test_what_will_fire_anyway_is_not_missing() -> None:
    cursor = msgspec.structs.replace(
        at(9), missed=(Owed(NOON, NOON + 2 * HOUR),), waiting=(Owed(NOON + 3 * HOUR, NOON + 4 * HOUR),)
    )
    cursor = asked(cursor, 6, 7)
    found = missing(schedule(), cursor, NOON, NOON + DAY, set(), 100)
    assert (hours(found.instants), found.settled) == ([0, 3, 5, 8, 9], 5)


def test_excluded_occurrences_are_not_missing() -> None:
    day = parse_moment("2026-03-20")
    assert day is not None
    closed = schedule(Timing(HOURLY.expressions, exclude=Exclude(dates=(day,))))
    found = missing(closed, at(48), NOON, NOON + 14 * HOUR, set(), 100)
    assert hours(found.instants) == [12, 13, 14]


def test_neighbours_are_one_stretch() -> None:
    made = stretches(at(9), 1, 2, 3, 5, 6, 9)
    assert [(hours([one.after + 1, one.until])) for one in made] == [[1, 3], [5, 6], [9, 9]]


def test_a_stretch_goes_on_where_the_search_stopped() -> None:
    once = missing(schedule(), at(9), NOON, NOON + DAY, {NOON + 2 * HOUR}, 5)
    assert once.is_open and once.next_from is not None
    then = missing(schedule(), at(9), once.next_from, NOON + DAY, set(), 100, once.stretches[-1])
    joined = (*once.stretches[:-1], *then.stretches)
    assert [(hours([one.after + 1, one.until])) for one in joined] == [[0, 1], [3, 9]]


def test_a_backfill_fires_one_after_the_other_where_one_run_may_be_open() -> None:
    cursor, fired = asked(at(9), 1, 2, 3), []
    for _ in range(3):
        answer = due(schedule(), cursor, Running(), NOON + 9 * HOUR + 5)
        (fire,) = answer.fires
        assert fire.is_catchup and fire.is_backfill
        assert not due(schedule(), answer.cursor, Running(1, 1), NOON + 9 * HOUR + 5).fires
        fired.append(fire.at)
        cursor = answer.cursor
    assert hours(fired) == [1, 2, 3] and not cursor.owes


def test_a_backfill_fires_together_where_any_number_may_be_open() -> None:
    answer = due(schedule(overlap="allow"), asked(at(9), 1, 2, 5), Running(4), NOON + 9 * HOUR + 5)
    assert hours(fire.at for fire in answer.fires) == [1, 2, 5]


def test_a_backfill_keeps_its_rate() -> None:
    plan, cursor = schedule(overlap="allow"), asked(at(9), 1, 2, every_ms=250)
    now = NOON + 9 * HOUR + 5
    answer = due(plan, cursor, Running(), now)
    assert len(answer.fires) == 1 and answer.next_at == now + 250
    assert not due(plan, answer.cursor, Running(), now + 249).fires
    assert len(due(plan, answer.cursor, Running(), now + 250).fires) == 1


def test_a_pause_holds_a_backfill_back() -> None:
    cursor = paused(asked(at(9), 1), NOON + 9 * HOUR + 5)
    answer = due(schedule(), cursor, Running(), NOON + 10 * HOUR)
    assert not answer.fires and answer.cursor.backfills


def test_regular_occurrences_go_before_a_backfill() -> None:
    answer = due(schedule(max_concurrent=2), asked(at(9), 1), Running(1), NOON + 10 * HOUR)
    assert hours(fire.at for fire in answer.fires) == [10]
    answer = due(schedule(overlap="buffer_all"), asked(at(9), 1), Running(1), NOON + 10 * HOUR)
    answer = due(schedule(overlap="buffer_all"), answer.cursor, Running(), NOON + 10 * HOUR + 1)
    assert hours(fire.at for fire in answer.fires) == [10]


def test_an_edit_of_the_grid_keeps_a_backfill() -> None:
    daily = schedule(Timing(("0 0 0 * * *",)))
    answer = replaced(schedule(), daily, asked(at(9), 1, 2, 5), Running(1), NOON + 9 * HOUR)
    cursor, fired = answer.cursor, []
    while cursor.backfills:
        answer = due(daily, cursor, Running(), NOON + 9 * HOUR)
        fired += [fire.at for fire in answer.fires]
        cursor = answer.cursor
    assert hours(fired) == [1, 2, 5]


def test_what_a_deleted_schedule_owes_is_counted() -> None:
    cursor = msgspec.structs.replace(
        at(9), missed=(Owed(NOON, NOON + 2 * HOUR),), waiting=(Owed(NOON + 3 * HOUR, NOON + 4 * HOUR),)
    )
    left, row = discarded(schedule(), cursor, "deleted", 100)
    assert not left.owes and row is not None
    assert (hours([row.first, row.last]), row.count, row.reason) == ([1, 4], 3, "deleted")
