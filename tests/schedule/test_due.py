"""What `due` decides, one rule at a time."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from holdfast.schedule.control import discarded, paused, registered, replaced, resumed
from holdfast.schedule.due import EXAMINED_MAX, due, jitter_ms
from holdfast.schedule.records import Cursor, Due, Outage, Running, Schedule, Skipped
from holdfast.schedule.timing import Timing
from holdfast.spec.cron import Dst
from holdfast.spec.moments import parse_moment
from holdfast.spec.triggers import Exclude, MissedRunPolicy

NOON = 1_774_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000  # 12:00 UTC on 2026-03-20
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
HOURLY = Timing(("0 0 * * * *",))
EACH_SECOND = Timing(("* * * * * *",))


def schedule(timing: Timing = HOURLY, **fields: Any) -> Schedule:
    return Schedule("s", timing, **fields)


def fired(answer: Due) -> list[int]:
    return [fire.at for fire in answer.fires]


def rows(answer: Due) -> list[tuple[str, int, int, int]]:
    return [(row.reason, row.first, row.last, row.count) for row in answer.skipped]


def drained(plan: Schedule, cursor: Cursor, now: int, outages: tuple[Outage, ...] = ()) -> tuple[Cursor, list[int], list[Skipped]]:  # fmt: skip
    """Ask until nothing is left, as if each run ended at once."""
    fires: list[int] = []
    skipped: dict[int, Skipped] = {}
    while True:
        answer = due(plan, cursor, Running(), now, outages=outages)
        fires += fired(answer)
        skipped |= {row.first: row for row in answer.skipped}
        if answer.cursor == cursor:
            return cursor, fires, list(skipped.values())
        assert answer.cursor.revision == cursor.revision + 1
        cursor = answer.cursor


# ------------------------------------------------------------------------------------------------ the plain case


def test_a_new_schedule_has_nothing_due_and_knows_its_next_time() -> None:
    answer = due(schedule(), registered(NOON + 5), Running(), NOON + 5)
    assert (answer.fires, answer.skipped, answer.next_at) == ((), (), NOON + HOUR)
    assert answer.cursor == registered(NOON + 5)


def test_an_occurrence_fires_at_its_time_and_once() -> None:
    at = NOON + HOUR
    answer = due(schedule(), registered(NOON), Running(), at)
    assert fired(answer) == [at] and answer.cursor.at == at and answer.next_at == at + HOUR
    assert not answer.fires[0].is_catchup
    assert fired(due(schedule(), answer.cursor, Running(1), at + 1)) == []


def test_a_disabled_schedule_never_fires() -> None:
    answer = due(schedule(enabled=False), registered(NOON), Running(), NOON + DAY)
    assert (fired(answer), answer.next_at) == ([], None)


def test_counts_go_on_where_they_were() -> None:
    cursor = msgspec.structs.replace(registered(NOON), total_run_count=41)
    (fire,) = due(schedule(), cursor, Running(run_count=2), NOON + HOUR).fires
    assert (fire.run_count, fire.total_run_count) == (3, 42)


def test_a_schedule_that_never_fires_again_has_no_next_time() -> None:
    once = schedule(Timing(instants=(NOON + 5,)))
    answer = due(once, registered(NOON), Running(), NOON + 5)
    assert fired(answer) == [NOON + 5] and answer.next_at is None


def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    cursor = due(schedule(), registered(NOON), Running(), NOON + HOUR).cursor
    answer = due(schedule(), cursor, Running(), NOON - DAY)
    assert fired(answer) == [] and answer.cursor is cursor and answer.next_at == NOON + 2 * HOUR


def test_rules_that_meet_fire_once() -> None:
    both = schedule(Timing(("0 0 * * * *", "0 */30 * * * *")), overlap="allow")
    assert fired(due(both, registered(NOON), Running(), NOON + HOUR)) == [NOON + HOUR // 2, NOON + HOUR]


# --------------------------------------------------------------------------------------------------- bounds


def test_nothing_fires_before_start_at_or_after_end_at() -> None:
    timing = Timing(
        ("0 0 * * * *",), start_at=parse_moment("2026-03-20T14:00Z"), end_at=parse_moment("2026-03-20T15:30Z")
    )
    plan = schedule(timing, overlap="allow")
    assert due(plan, registered(NOON), Running(), NOON).next_at == NOON + 2 * HOUR
    answer = due(plan, registered(NOON), Running(), NOON + DAY)
    assert fired(answer) == [NOON + 2 * HOUR, NOON + 3 * HOUR] and answer.next_at is None


def test_an_interval_begins_one_step_after_registration() -> None:
    every = schedule(Timing(("@every 25m",)), overlap="allow")
    assert fired(due(every, registered(NOON + 7), Running(), NOON + HOUR)) == [
        NOON + 7 + n * 25 * MINUTE for n in (1, 2)
    ]


def test_an_interval_with_a_start_begins_there() -> None:
    every = schedule(Timing(("@every 25m",), start_at=parse_moment("2026-03-20T12:10Z")), overlap="allow")
    assert fired(due(every, registered(NOON), Running(), NOON + HOUR)) == [
        NOON + n * MINUTE for n in (10, 35, 60)
    ]


# ---------------------------------------------------------------------------------------------------- overlap


def test_at_the_limit_a_tick_is_skipped_and_the_row_of_a_stretch_grows() -> None:
    first = due(schedule(), registered(NOON), Running(1), NOON + HOUR)
    assert rows(first) == [("overlap", NOON + HOUR, NOON + HOUR, 1)]
    second = due(schedule(), first.cursor, Running(1), NOON + 3 * HOUR)
    assert rows(second) == [("overlap", NOON + HOUR, NOON + 3 * HOUR, 3)]
    third = due(schedule(), second.cursor, Running(0), NOON + 4 * HOUR)
    assert (fired(third), rows(third)) == ([NOON + 4 * HOUR], [])
    fourth = due(schedule(), third.cursor, Running(1), NOON + 5 * HOUR)
    assert rows(fourth) == [("overlap", NOON + 5 * HOUR, NOON + 5 * HOUR, 1)]


def test_buffer_one_keeps_the_first_and_skips_the_rest() -> None:
    plan = schedule(overlap="buffer_one")
    held = due(plan, registered(NOON), Running(1), NOON + 3 * HOUR)
    assert (fired(held), rows(held)) == ([], [("overlap", NOON + 2 * HOUR, NOON + 3 * HOUR, 2)])
    assert fired(due(plan, held.cursor, Running(0), NOON + 3 * HOUR + 1)) == [NOON + HOUR]


def test_buffer_all_keeps_all_in_order_and_in_one_entry() -> None:
    plan = schedule(overlap="buffer_all")
    held = due(plan, registered(NOON), Running(1), NOON + 3 * HOUR)
    assert (fired(held), rows(held), len(held.cursor.waiting)) == ([], [], 1)
    _, fires, _ = drained(plan, held.cursor, NOON + 3 * HOUR)
    assert fires == [NOON + n * HOUR for n in (1, 2, 3)]


def test_cancel_previous_cancels_the_oldest_and_fires_when_it_has_ended() -> None:
    plan = schedule(overlap="cancel_previous")
    held = due(plan, registered(NOON), Running(1), NOON + HOUR)
    assert held.cancels_oldest and fired(held) == []
    again = due(plan, held.cursor, Running(1), NOON + HOUR + 1)
    assert again.cancels_oldest and again.cursor is held.cursor  # until it has ended
    assert fired(due(plan, held.cursor, Running(0), NOON + HOUR + 2)) == [NOON + HOUR]


def test_cancel_previous_keeps_only_the_newest_that_waits() -> None:
    plan = schedule(overlap="cancel_previous")
    held = due(plan, registered(NOON), Running(1), NOON + 3 * HOUR)
    assert rows(held) == [("superseded", NOON + HOUR, NOON + 2 * HOUR, 2)]
    assert fired(due(plan, held.cursor, Running(0), NOON + 3 * HOUR)) == [NOON + 3 * HOUR]


def test_allow_and_zero_lift_the_limit() -> None:
    for plan in (schedule(overlap="allow"), schedule(max_concurrent=0)):
        assert len(due(plan, registered(NOON), Running(50), NOON + 3 * HOUR).fires) == 3


def test_a_late_occurrence_is_not_skipped_for_a_run_that_starts_in_the_same_answer() -> None:
    plan, now = schedule(max_concurrent=2), NOON + 3 * HOUR
    answer = due(plan, registered(NOON), Running(0), now)
    assert len(answer.fires) == 2 and not rows(answer)
    assert answer.is_cut and answer.next_at == now
    assert fired(due(plan, answer.cursor, Running(1), now)) == [now]
    assert rows(due(plan, answer.cursor, Running(2), now)) == [("overlap", now, now, 1)]


# ----------------------------------------------------------------------------------------------------- missed

NIGHT = (Outage(NOON + 1, NOON + 5 * HOUR + 30 * MINUTE),)
WOKE = NOON + 5 * HOUR + 30 * MINUTE


def test_skip_leaves_one_row_for_an_outage() -> None:
    answer = due(schedule(), registered(NOON), Running(), WOKE, outages=NIGHT)
    assert (fired(answer), rows(answer)) == ([], [("missed", NOON + HOUR, NOON + 5 * HOUR, 5)])
    assert answer.next_at == NOON + 6 * HOUR


def test_run_once_catches_up_the_latest() -> None:
    answer = due(schedule(missed_run_policy="run_once"), registered(NOON), Running(), WOKE, outages=NIGHT)
    assert rows(answer) == [("missed", NOON + HOUR, NOON + 4 * HOUR, 4)]
    assert [(fire.at, fire.is_catchup) for fire in answer.fires] == [(NOON + 5 * HOUR, True)]


def test_run_all_catches_up_one_after_the_other() -> None:
    plan = schedule(missed_run_policy="run_all")
    answer = due(plan, registered(NOON), Running(), WOKE, outages=NIGHT)
    assert [(fire.at, fire.is_catchup) for fire in answer.fires] == [(NOON + HOUR, True)]
    waits = due(plan, answer.cursor, Running(1, 1), WOKE + 1, outages=NIGHT)
    assert fired(waits) == [] and waits.cursor is answer.cursor
    _, fires, skipped = drained(plan, answer.cursor, WOKE + 2, NIGHT)
    assert fires == [NOON + n * HOUR for n in (2, 3, 4, 5)] and skipped == []


def test_a_catch_up_is_not_skipped_for_overlap_and_a_regular_tick_beside_it_is() -> None:
    plan = schedule(missed_run_policy="run_all")
    begun = due(plan, registered(NOON), Running(), WOKE, outages=NIGHT)
    tick = due(plan, begun.cursor, Running(1, 1), NOON + 6 * HOUR, outages=NIGHT)
    assert rows(tick) == [("overlap", NOON + 6 * HOUR, NOON + 6 * HOUR, 1)]
    _, fires, _ = drained(plan, tick.cursor, NOON + 6 * HOUR, NIGHT)
    assert fires == [NOON + n * HOUR for n in (2, 3, 4, 5)]


def test_allow_fires_a_regular_tick_in_time_while_catch_up_goes_on() -> None:
    plan = schedule(missed_run_policy="run_all", overlap="allow")
    begun = due(plan, registered(NOON), Running(), WOKE, outages=NIGHT)
    assert fired(begun) == [NOON + HOUR]
    assert fired(due(plan, begun.cursor, Running(1, 1), NOON + 6 * HOUR, outages=NIGHT)) == [NOON + 6 * HOUR]


def test_only_the_newest_are_caught_up() -> None:
    plan = schedule(missed_run_policy="run_all", max_catchup=2)
    cursor, fires, skipped = drained(plan, registered(NOON), WOKE, NIGHT)
    assert fires == [NOON + 4 * HOUR, NOON + 5 * HOUR]
    assert skipped == [Skipped("max_catchup", NOON + HOUR, NOON + 3 * HOUR, 3)]
    assert not cursor.missed


def test_within_the_grace_a_tick_is_late_and_not_missed() -> None:
    woke = NOON + HOUR + 60_000
    answer = due(schedule(), registered(NOON), Running(), woke, outages=(Outage(NOON + 1, woke),))
    assert [(fire.at, fire.is_catchup) for fire in answer.fires] == [(NOON + HOUR, False)]
    later = due(schedule(), registered(NOON), Running(), woke + 1, outages=(Outage(NOON + 1, woke + 1),))
    assert rows(later) == [("missed", NOON + HOUR, NOON + HOUR, 1)]


def test_load_alone_makes_no_tick_missed() -> None:
    answer = due(schedule(), registered(NOON), Running(), NOON + HOUR + 10 * MINUTE)
    assert [(fire.at, fire.is_catchup) for fire in answer.fires] == [(NOON + HOUR, False)]


def test_a_tick_that_was_due_before_the_outage_is_not_missed() -> None:
    outage = Outage(NOON + HOUR + 1, NOON + 3 * HOUR + 30 * MINUTE)
    answer = due(schedule(overlap="allow"), registered(NOON), Running(), outage.woke_at, outages=(outage,))
    assert fired(answer) == [NOON + HOUR]
    assert rows(answer) == [("missed", NOON + 2 * HOUR, NOON + 3 * HOUR, 2)]


def test_the_grace_is_at_least_the_jitter() -> None:
    plan = schedule(jitter_ms=10 * MINUTE, grace_ms=0)
    woke = NOON + HOUR + 10 * MINUTE
    answer = due(plan, registered(NOON), Running(), woke, outages=(Outage(NOON + 1, woke),))
    assert fired(answer) == [NOON + HOUR]


def test_a_million_missed_are_owed_or_skipped_at_once() -> None:
    woke = NOON + 1_000_000_000
    outages = (Outage(NOON, woke),)
    plan = schedule(EACH_SECOND, missed_run_policy="run_all", max_catchup=0)
    answer = due(plan, registered(NOON), Running(), woke, outages=outages)
    assert fired(answer) == [NOON + 1_000] and len(answer.cursor.missed) == 1
    # those within the grace are late, not missed
    assert rows(answer) == [("overlap", woke - MINUTE, woke, 61)]
    skip = due(schedule(EACH_SECOND), registered(NOON), Running(), woke, outages=outages)
    assert rows(skip)[0] == ("missed", NOON + 1_000, woke - MINUTE - 1_000, 999_939)
    assert fired(skip) == [woke - MINUTE] and skip.examined < 10


def test_of_a_million_missed_the_newest_are_found_and_the_others_dropped_at_once() -> None:
    woke = NOON + 1_000_000_000
    plan = schedule(EACH_SECOND, missed_run_policy="run_all", max_catchup=5)
    answer = due(plan, registered(NOON), Running(), woke, 1, outages=(Outage(NOON, woke),))
    assert rows(answer) == [("max_catchup", NOON + 1_000, woke - MINUTE - 6_000, 999_934)]
    assert fired(answer) == [woke - MINUTE - 5_000] and answer.examined < 20


def test_a_long_pause_is_skipped_at_once() -> None:
    cursor = resumed(paused(registered(NOON), NOON), NOON + 1_000_000_000)
    answer = due(schedule(EACH_SECOND), cursor, Running(), NOON + 1_000_000_000)
    assert rows(answer) == [("paused", NOON + 1_000, NOON + 1_000_000_000, 1_000_000)]
    assert answer.examined < 10


# --------------------------------------------------------------------------------- jitter, exclusions, clocks


def test_jitter_is_a_hash_within_its_range() -> None:
    plan = schedule(jitter_ms=5_000)
    drawn = [jitter_ms(plan, NOON + n) for n in range(2_000)]
    assert drawn == [jitter_ms(plan, NOON + n) for n in range(2_000)]
    assert min(drawn) >= 0 and max(drawn) <= 5_000
    assert all(drawn.count(value) < 20 for value in set(drawn))
    counts = [sum(low <= value < low + 1_000 for value in drawn) for low in range(0, 5_000, 1_000)]
    assert min(counts) > 300  # 400 each, if it is uniform


def test_jitter_longer_than_the_period_swallows_no_tick() -> None:
    plan = schedule(Timing(("0 * * * * *",)), jitter_ms=10 * MINUTE, overlap="allow")
    cursor, found = registered(NOON), []
    now: int | None = NOON
    while now is not None and now < NOON + HOUR + 10 * MINUTE:
        answer = due(plan, cursor, Running(), now)
        found += [(fire.at, now - fire.at) for fire in answer.fires]
        cursor, now = answer.cursor, answer.next_at
    assert [at for at, _ in found][:60] == [NOON + n * MINUTE for n in range(1, 61)]
    assert all(0 <= lateness <= 10 * MINUTE for _, lateness in found)


def test_excluded_times_are_one_row_and_need_no_timer() -> None:
    day = parse_moment("2026-03-21")
    assert day is not None
    plan = schedule(Timing(("0 0 * * * *",), exclude=Exclude(dates=(day,))))
    cursor = registered(NOON + 11 * HOUR)
    assert due(plan, cursor, Running(), NOON + 11 * HOUR).next_at == NOON + 36 * HOUR
    answer = due(plan, cursor, Running(), NOON + 36 * HOUR)
    assert rows(answer) == [("excluded", NOON + 12 * HOUR, NOON + 35 * HOUR, 24)]
    assert fired(answer) == [NOON + 36 * HOUR]


def test_a_time_in_the_gap_that_is_skipped_has_its_row() -> None:
    timing = Timing(("0 30 2 * * *",), timezone="Europe/Berlin", dst=Dst(gap="skip"))
    gap_end = NOON + 8 * DAY + 13 * HOUR  # 2026-03-29 01:00 UTC
    cursor = registered(gap_end - DAY // 2)
    answer = due(schedule(timing), cursor, Running(), gap_end)
    assert (fired(answer), rows(answer)) == ([], [("dst_gap", gap_end - 1, gap_end - 1, 1)])
    shifted = due(schedule(msgspec.structs.replace(timing, dst=Dst())), cursor, Running(), gap_end)
    assert [(fire.at, fire.shifted_from) for fire in shifted.fires] == [(gap_end, gap_end // 1_000 + 5_400)]


# ------------------------------------------------------------------------------------------- pause and resume


def test_paused_occurrences_do_not_fire_and_are_one_row_after_resume() -> None:
    cursor = paused(registered(NOON), NOON + 1)
    while_paused = due(schedule(), cursor, Running(), NOON + 3 * HOUR)
    assert (fired(while_paused), while_paused.next_at) == ([], None)
    answer = due(
        schedule(), resumed(while_paused.cursor, NOON + 3 * HOUR + 1), Running(), NOON + 3 * HOUR + 1
    )
    assert (fired(answer), rows(answer)) == ([], [("paused", NOON + HOUR, NOON + 3 * HOUR, 3)])
    assert answer.next_at == NOON + 4 * HOUR


def test_resume_with_missed_catches_up_whatever_the_policy() -> None:
    cursor = resumed(paused(registered(NOON), NOON + 1), NOON + 3 * HOUR + 1, missed=True)
    _, fires, skipped = drained(schedule(missed_run_policy="skip"), cursor, NOON + 3 * HOUR + 1)
    assert (fires, skipped) == ([NOON + n * HOUR for n in (1, 2, 3)], [])


def test_a_tick_that_waits_for_its_jitter_when_paused_is_part_of_the_pause() -> None:
    plan = schedule(jitter_ms=30 * MINUTE)
    at = next(NOON + n * HOUR for n in range(1, 50) if jitter_ms(plan, NOON + n * HOUR) > MINUTE)
    cursor = paused(registered(at - 1), at + 1)
    answer = due(plan, resumed(cursor, at + 50 * MINUTE), Running(), at + 50 * MINUTE)
    assert (fired(answer), rows(answer)) == ([], [("paused", at, at, 1)])


def test_what_was_owed_before_a_pause_goes_on_after_it() -> None:
    plan = schedule(overlap="buffer_all")
    cursor = paused(due(plan, registered(NOON), Running(1), NOON + 2 * HOUR).cursor, NOON + 2 * HOUR + 1)
    assert fired(due(plan, cursor, Running(0), NOON + 2 * HOUR + 2)) == []
    _, fires, _ = drained(plan, resumed(cursor, NOON + 2 * HOUR + 3), NOON + 2 * HOUR + 3)
    assert fires == [NOON + HOUR, NOON + 2 * HOUR]


# ------------------------------------------------------------------------------------------------------- edits

HALF_HOURLY = Timing(("0 30 * * * *",))


def test_an_edit_that_keeps_the_grid_keeps_the_cursor() -> None:
    cursor = registered(NOON)
    assert (
        replaced(schedule(), schedule(jitter_ms=5, overlap="allow"), cursor, Running(), NOON + 1).cursor
        is cursor
    )


def test_another_grid_counts_from_the_edit_on() -> None:
    yearly = schedule(Timing(("0 0 0 1 1 *",)))
    cursor = registered(NOON - 50 * DAY)
    answer = replaced(yearly, schedule(overlap="allow"), cursor, Running(), NOON + 1)
    assert fired(answer) == []
    assert fired(due(schedule(overlap="allow"), answer.cursor, Running(), NOON + HOUR)) == [NOON + HOUR]


def test_what_is_due_under_the_old_grid_is_decided_by_it() -> None:
    answer = replaced(schedule(), schedule(HALF_HOURLY), registered(NOON), Running(), NOON + HOUR + 1)
    assert fired(answer) == [NOON + HOUR] and answer.cursor.at == NOON + HOUR + 1


def test_an_edit_loses_no_tick_that_waits_for_its_jitter() -> None:
    old, new = schedule(jitter_ms=30 * MINUTE), schedule(HALF_HOURLY, jitter_ms=30 * MINUTE)
    at = next(NOON + n * HOUR for n in range(1, 50) if jitter_ms(old, NOON + n * HOUR) > MINUTE)
    answer = replaced(old, new, registered(at - 1), Running(), at + 1)
    assert fired(answer) == []
    waits = due(new, answer.cursor, Running(), at + 1)
    assert (fired(waits), waits.next_at) == ([], at + jitter_ms(old, at))
    assert fired(due(new, waits.cursor, Running(), at + jitter_ms(old, at))) == [at]


def test_an_edit_keeps_what_is_to_be_caught_up() -> None:
    old = schedule(missed_run_policy="run_all")
    begun = due(old, registered(NOON), Running(), WOKE, outages=NIGHT)
    new = schedule(HALF_HOURLY, missed_run_policy="run_all")
    moved = replaced(old, new, begun.cursor, Running(1, 1), WOKE + 1, outages=NIGHT)
    _, fires, _ = drained(new, moved.cursor, WOKE + 1)
    assert fires == [NOON + n * HOUR for n in (2, 3, 4, 5)]


def test_an_edit_keeps_a_million_missed_occurrences_without_looking_at_each() -> None:
    old = schedule(EACH_SECOND, missed_run_policy="run_all", max_catchup=0)
    woke = NOON + 1_000_000_000 + 60_001
    begun = due(old, registered(NOON), Running(), woke, 1, outages=(Outage(NOON, woke),))
    new = schedule(HALF_HOURLY, missed_run_policy="run_all", max_catchup=0)
    moved = replaced(old, new, begun.cursor, Running(1, 1), woke, 1, outages=(Outage(NOON, woke),))
    assert (
        not moved.is_cut and moved.examined <= 61 and not any(row[0] == "max_catchup" for row in rows(moved))
    )
    left, row = discarded(new, moved.cursor, "deleted", 10)
    assert not left.owes and row is not None
    assert (row.first, row.last, row.count) == (NOON + 2_000, NOON + 1_000_000_000, 999_999)


def test_what_is_owed_of_earlier_grids_fires_in_order_and_is_then_forgotten() -> None:
    plans = [schedule(timing, missed_run_policy="run_all") for timing in (HOURLY, HALF_HOURLY, HOURLY)]
    cursor = due(plans[0], registered(NOON), Running(), WOKE, outages=NIGHT).cursor
    for old, new in itertools.pairwise(plans):
        cursor = replaced(old, new, cursor, Running(1, 1), WOKE + 1, outages=NIGHT).cursor
        cursor = msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
    assert list(cursor.earlier.values()) == [HOURLY]
    cursor, fires, _ = drained(plans[-1], cursor, WOKE + 1)
    assert fires == [NOON + n * HOUR for n in (2, 3, 4, 5)] and not cursor.earlier


def test_what_is_excluded_among_occurrences_of_an_earlier_grid_has_a_row_when_its_turn_comes() -> None:
    old = schedule(
        Timing(("0 0 * * * *",), exclude=Exclude(expressions=("* * 15,16 * * *",))),
        missed_run_policy="run_all",
    )
    begun = due(old, registered(NOON), Running(), WOKE, outages=NIGHT)
    moved = replaced(old, schedule(HALF_HOURLY), begun.cursor, Running(1, 1), WOKE + 1, outages=NIGHT)
    _, _, skipped = drained(schedule(HALF_HOURLY), moved.cursor, WOKE + 1)
    assert [(row.reason, row.count) for row in skipped] == [("excluded", 2)]


def test_what_is_excluded_after_a_tick_that_waits_for_its_jitter_has_a_row_after_an_edit() -> None:
    exclude = Exclude(expressions=("* * 14 * * *",))
    old = schedule(Timing(("0 0 * * * *",), exclude=exclude), jitter_ms=3 * HOUR)
    at = next(at for at in (NOON + HOUR + n * DAY for n in range(99)) if jitter_ms(old, at) > HOUR + 1)
    moved = replaced(old, schedule(HALF_HOURLY), registered(at - 1), Running(), at + HOUR + 1)
    _, fires, skipped = drained(schedule(HALF_HOURLY), moved.cursor, at + HOUR + 1)
    assert fires == [at] and [(row.reason, row.first) for row in skipped] == [("excluded", at + HOUR)]


def test_a_pause_goes_on_through_an_edit() -> None:
    cursor = paused(registered(NOON), NOON + 1)
    moved = replaced(schedule(), schedule(HALF_HOURLY), cursor, Running(), NOON + 2 * HOUR + 1)
    assert rows(moved) == [("paused", NOON + HOUR, NOON + 2 * HOUR, 2)]
    assert fired(due(schedule(HALF_HOURLY), moved.cursor, Running(), NOON + DAY)) == []
    answer = due(schedule(HALF_HOURLY), resumed(moved.cursor, NOON + 3 * HOUR), Running(), NOON + 3 * HOUR)
    assert rows(answer) == [("paused", NOON + 150 * MINUTE, NOON + 150 * MINUTE, 1)]


def test_a_schedule_that_is_enabled_again_has_missed_nothing() -> None:
    moved = replaced(schedule(enabled=False), schedule(), registered(NOON), Running(), NOON + DAY)
    answer = due(schedule(), moved.cursor, Running(), NOON + DAY)
    assert (fired(answer), rows(answer), answer.next_at) == ([], [], NOON + DAY + HOUR)


# ------------------------------------------------------------------------------------------ hostile exclusions

# Every second, but only the first of each hour is not excluded, by expressions that exclude one second at a time.
MOSTLY_EXCLUDED = Timing(
    ("* * * * * *",), exclude=Exclude(expressions=("1/2 * * * * *", "2/2 * * * * *", "0 1-59 * * * *"))
)


@pytest.mark.parametrize(
    ("policy", "most", "hours"),
    [("run_once", 1_000, [10]), ("run_all", 2, [9, 10]), ("run_all", 0, list(range(1, 11)))],
)
def test_a_search_through_many_exclusions_takes_several_bounded_answers(
    policy: MissedRunPolicy, most: int, hours: list[int]
) -> None:
    plan = schedule(MOSTLY_EXCLUDED, missed_run_policy=policy, max_catchup=most)
    woke = NOON + 11 * HOUR - MINUTE
    cursor, answers = registered(NOON), 0
    found: list[int] = []
    while True:
        before, cursor = cursor, msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
        answer = due(plan, cursor, Running(), woke, 1, outages=(Outage(NOON, woke),))
        assert answer.examined <= EXAMINED_MAX + 1
        cursor, found, answers = answer.cursor, found + fired(answer), answers + 1
        if not answer.is_cut:
            break
        assert cursor != before, "an answer that is cut has come further"
    assert found == [NOON + hour * HOUR for hour in hours]
    assert answers > 11 * 3_600 // EXAMINED_MAX


def test_an_answer_decides_on_fewer_occurrences_the_more_expressions_each_is_compared_with() -> None:
    one, ninety_nine = (
        Exclude(expressions=tuple(f"{n % 60} {n // 60} 0 1 1 *" for n in range(count))) for count in (1, 99)
    )
    woke = NOON + 2 * HOUR
    answers = [
        due(
            schedule(Timing(EACH_SECOND.expressions, exclude=exclude)),
            registered(NOON),
            Running(),
            woke,
            outages=(Outage(NOON, woke),),
        )
        for exclude in (one, ninety_nine)
    ]
    few, many = (sum(row.count for row in answer.skipped) for answer in answers)
    assert few == EXAMINED_MAX and 10 * many < few
    assert all(answer.is_cut and answer.examined <= 2 * EXAMINED_MAX for answer in answers)


def test_an_edit_amid_many_exclusions_looks_at_none_of_them() -> None:
    old = schedule(MOSTLY_EXCLUDED, missed_run_policy="run_all", max_catchup=0)
    woke = NOON + 4 * HOUR - MINUTE
    begun = due(old, registered(NOON), Running(1, 1), woke, outages=(Outage(NOON, woke),))
    moved = replaced(old, schedule(), begun.cursor, Running(1, 1), woke, outages=(Outage(NOON, woke),))
    assert moved.examined <= EXAMINED_MAX + 1


def test_a_schedule_that_is_mostly_excluded_is_decided_on_the_way() -> None:
    """The next fire would be late if all excluded occurrences had to be decided before it."""
    weekend = Timing(("* * * * * *",), exclude=Exclude(expressions=("* * * * * SAT,SUN",)))
    friday = NOON + DAY // 2 - 1  # NOON is on a Friday
    answer = due(schedule(weekend), registered(friday), Running(), friday)
    assert answer.next_at == friday + 1 + EXAMINED_MAX // 2 * 1_000
    later = due(schedule(weekend), answer.cursor, Running(), answer.next_at)
    assert (fired(later), rows(later)[0][0], later.is_cut) == ([], "excluded", False)


# -------------------------------------------------------------------------------------------------- the record


@pytest.mark.parametrize("limit", [1, 3])
def test_an_answer_has_at_most_so_many_fires(limit: int) -> None:
    plan = schedule(overlap="allow")
    answer = due(plan, registered(NOON), Running(), NOON + DAY, limit)
    assert len(answer.fires) == limit and answer.is_cut


def test_an_answer_that_is_cut_is_due_at_the_first_occurrence_that_it_left_undecided() -> None:
    answer = due(schedule(overlap="allow"), registered(NOON), Running(), NOON + DAY, 3)
    assert (
        answer.next_at == NOON + 4 * HOUR
    )  # not now: an outage is kept for as long as a stored time is in it


def test_a_cursor_survives_being_stored() -> None:
    held = due(
        schedule(overlap="buffer_all", missed_run_policy="run_all"),
        registered(NOON),
        Running(1),
        WOKE,
        outages=NIGHT,
    )
    cursor = paused(held.cursor, WOKE)
    assert msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor) == cursor
