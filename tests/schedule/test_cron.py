"""The instants of expressions: over clock changes, in every zone, against brute force and against cronsim."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st

from holdfast.schedule.cron import LAST_MS, CronRule, InstantsRule, IntervalRule, Tick
from holdfast.schedule.zones import Zone, zone
from holdfast.spec.cron import Cron, CronError, Dst, Interval, parse_expression
from holdfast.spec.zones import zone_info, zone_names
from tests.schedule.oracle import EPOCH, backward, forward, instants, ms, transitions, utc

ZONES = sorted(zone_names())
DAY_MS = 86_400_000


def cron(text: str) -> Cron:
    found = parse_expression(text)
    assert isinstance(found, Cron)
    return found


def rule(text: str, name: str = "UTC", dst: Dst | None = None) -> CronRule:
    return CronRule(cron(text), zone(name), dst or Dst())


def local_fires(text: str, name: str, day: str, dst: Dst | None = None) -> list[str]:
    """The local times at which an expression fires from the start of a day until 24 hours later, with their offsets."""
    start = ms(datetime.fromisoformat(day).replace(tzinfo=zone_info(name)).astimezone(UTC))
    ticks = forward(rule(text, name, dst), start, start + DAY_MS)
    return [f"{utc(tick.at).astimezone(zone_info(name)):%H:%M%z}" for tick in ticks if tick.fires]


# ---------------------------------------------------------------------------------------------- clock changes

GAP_DAY = "2026-03-29"  # Berlin: 02:00 becomes 03:00
FOLD_DAY = "2026-10-25"  # Berlin: 03:00 becomes 02:00


@pytest.mark.parametrize(
    ("text", "dst", "fires"),
    [
        ("0 30 2 * * *", Dst(), ["03:00+0200"]),  # at the first instant after the gap, whatever its minutes
        ("0 30 2 * * *", Dst(gap="skip"), []),
        ("0 15,45 2 * * *", Dst(), ["03:00+0200"]),  # two times in the gap are one fire
        ("0 0 2,3 * * *", Dst(), ["03:00+0200"]),  # and so is a regular one at that instant
        ("0 0 2,3 * * *", Dst(gap="skip"), ["03:00+0200"]),
        ("0 30 1,2,3 * * *", Dst(), ["01:30+0100", "03:00+0200", "03:30+0200"]),
        ("0 */30 1-3 * * *", Dst(), ["01:00+0100", "01:30+0100", "03:00+0200", "03:30+0200"]),
        ("0 0 */2 * * *", Dst(), [f"{hour:02}:00+0{1 + (hour > 2)}00" for hour in range(0, 24, 2) if hour != 2] + ["00:00+0200"]),
    ],
)  # fmt: skip
def test_an_expression_meets_the_spring_gap_as_dst_says(text: str, dst: Dst, fires: list[str]) -> None:
    assert local_fires(text, "Europe/Berlin", GAP_DAY, dst) == fires


@pytest.mark.parametrize(
    ("text", "dst", "fires"),
    [
        ("0 30 2 * * *", Dst(), ["02:30+0200"]),
        ("0 30 2 * * *", Dst(fold="second"), ["02:30+0100"]),
        ("0 30 2 * * *", Dst(fold="both"), ["02:30+0200", "02:30+0100"]),
        (
            "0 */30 2 * * *",
            Dst(),
            ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"],
        ),  # elapsed: real time
        ("0 0,30 2 * * *", Dst(), ["02:00+0200", "02:30+0200"]),
        ("0 0,30 2 * * *", Dst(fold="second"), ["02:00+0100", "02:30+0100"]),
        ("0 0,30 2 * * *", Dst(fold="both"), ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]),
        (
            "0 30 1,3 * * *",
            Dst(fold="second"),
            ["01:30+0200", "03:30+0100"],
        ),  # outside the fold nothing changes
    ],
)
def test_an_expression_meets_the_autumn_fold_as_dst_says(text: str, dst: Dst, fires: list[str]) -> None:
    assert local_fires(text, "Europe/Berlin", FOLD_DAY, dst) == fires


def test_a_shifted_fire_says_which_local_time_it_stands_for() -> None:
    (tick,) = forward(
        rule("0 30 2 * * *", "Europe/Berlin"),
        ms(datetime(2026, 3, 29, tzinfo=UTC)),
        ms(datetime(2026, 3, 29, 12, tzinfo=UTC)),
    )
    assert tick == Tick(ms(datetime(2026, 3, 29, 1, tzinfo=UTC)), ms(datetime(2026, 3, 29, 2, 30, tzinfo=UTC)) // 1_000)  # fmt: skip


def test_a_skipped_time_is_a_tick_that_does_not_fire() -> None:
    start = ms(datetime(2026, 3, 29, tzinfo=UTC))
    ticks = list(forward(rule("0 30 2 * * *", "Europe/Berlin", Dst(gap="skip")), start, start + DAY_MS))
    assert [(tick.at, tick.fires) for tick in ticks] == [
        (ms(datetime(2026, 3, 29, 1, tzinfo=UTC)) - 1, False)
    ]


def test_a_whole_day_that_is_left_out_is_a_gap() -> None:
    assert local_fires("0 0 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00") == ["00:00+1400"]
    assert local_fires("0 0 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00", Dst(gap="skip")) == []


# --------------------------------------------------------------------------------------------- far away, never


@pytest.mark.parametrize("text", ["0 0 0 30 2 *", "0 0 0 31 4,6,9,11 *", "0 0 0 * * * 1999", "30 2 30 2 *"])
def test_an_impossible_date_never_fires(text: str) -> None:
    assert rule(text, "Europe/Berlin").after(ms(datetime(2026, 1, 1, tzinfo=UTC))) is None


def test_29_february_on_a_monday_is_found() -> None:
    found = [
        utc(tick.at).date().isoformat()
        for tick in forward(rule("0 0 0 29 2 MON"), ms(datetime(2026, 1, 1, tzinfo=UTC)), LAST_MS)
    ]
    assert found == ["2044-02-29", "2072-02-29"]  # fmt: skip


def test_the_search_ends_with_2100() -> None:
    last = rule("* * * * * *").before(LAST_MS + 10**12)
    assert last == Tick(ms(datetime(2100, 12, 31, 23, 59, 59, tzinfo=UTC)))
    assert rule("* * * * * *").after(last.at) is None


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        (
            "0 0 13 * 5",
            ["2026-02-06", "2026-02-13", "2026-02-20", "2026-02-27"],
        ),  # 5 fields: either day or weekday
        ("0 0 0 13 * FRI", ["2026-02-13"]),  # 6 fields: both
        ("0 0 0 13 * 6", ["2026-02-13"]),  # where 1 is Sunday
        ("0 0 */10 * 5", []),  # a field that begins with * is not restricted, so both must match
        ("0 0 13 * *", ["2026-02-13"]),
        ("0 0 * * 7", ["2026-02-01", "2026-02-08", "2026-02-15", "2026-02-22"]),
        ("0 0 ? * 0", ["2026-02-01", "2026-02-08", "2026-02-15", "2026-02-22"]),
        ("@weekly", ["2026-02-01", "2026-02-08", "2026-02-15", "2026-02-22"]),
        ("@monthly", ["2026-02-01"]),
        ("@yearly", []),
    ],
)
def test_day_and_weekday_combine_as_the_number_of_fields_says(text: str, fires: list[str]) -> None:
    start, end = ms(datetime(2026, 2, 1, tzinfo=UTC)), ms(datetime(2026, 3, 1, tzinfo=UTC))
    assert [utc(tick.at).date().isoformat() for tick in forward(rule(text), start, end)] == fires


# ---------------------------------------------------------------------------------------------- other rules


def test_an_interval_is_a_grid() -> None:
    every = IntervalRule(90_000, 1_000)
    assert [tick.at for tick in forward(every, 0, 300_000)] == [1_000, 91_000, 181_000, 271_000]
    assert [tick.at for tick in backward(every, 0, 271_000)] == [181_000, 91_000, 1_000]
    assert every.before(1_000) is None


def test_listed_instants_are_the_only_ones() -> None:
    listed = InstantsRule((300, 100, 200, 100))
    assert [tick.at for tick in forward(listed, 0, 10**9)] == [100, 200, 300]
    assert [tick.at for tick in backward(listed, 0, 10**9)] == [300, 200, 100]


# ----------------------------------------------------------------------------------------------- brute force

FIXED = ["0 {m} {h} * * *", "0 0,{m} {h},{k} * * *", "0 {m} {h}-{e} * * *", "0 {m}/13 {h} * * *"]
ELAPSED = ["0 */{s} * * * *", "0 {m} * * * *", "0 */{s} {h} * * *", "0 {m} */2 * * *"]
POLICIES = [Dst(gap, fold) for gap in ("run_after", "skip") for fold in ("first", "second", "both")]


def expression_near(rng: random.Random, local: datetime) -> str:
    """An expression with times around a local time, where a clock change is met."""
    hour = (local.hour + rng.choice((-1, 0, 0, 0, 1))) % 24
    text = rng.choice(FIXED + ELAPSED)
    end, other = min(hour + rng.randrange(3), 23), rng.randrange(24)
    minute = rng.choice((0, local.minute, rng.randrange(60)))
    return text.format(m=minute, h=hour, e=end, k=other, s=rng.choice((1, 7, 15, 30)))


def assert_same_as_brute_force(name: str, instant: int, rng: random.Random) -> None:
    around = EPOCH + timedelta(seconds=instant)
    start, end = (
        (around - timedelta(hours=30)).replace(second=0),
        (around + timedelta(hours=30)).replace(second=0),
    )
    text, dst = expression_near(rng, around.astimezone(zone_info(name))), rng.choice(POLICIES)
    expected = instants(cron(text), name, dst, start, end)
    tried = rule(text, name, dst)
    assert list(forward(tried, ms(start), ms(end))) == expected, (name, text, dst, around)
    assert list(backward(tried, ms(start), ms(end))) == expected[::-1], (name, text, dst, around)


def test_zones_agree_with_brute_force_at_their_clock_changes() -> None:
    rng = random.Random(20260329)
    for name in rng.sample(ZONES, 30):
        changes = changes_of(zone(name))
        for instant in [*rng.sample(changes, min(2, len(changes))), *some_instants(rng, 1)]:
            assert_same_as_brute_force(name, instant, rng)


@pytest.mark.long
@pytest.mark.parametrize("part", range(32))
def test_every_zone_agrees_with_brute_force_at_every_clock_change(part: int) -> None:
    rng = random.Random(part)
    for name in ZONES[part::32]:
        for instant in [*changes_of(zone(name)), *some_instants(rng, 5)]:
            assert_same_as_brute_force(name, instant, rng)


def some_instants(rng: random.Random, count: int) -> list[int]:
    start, end = ms(datetime(1990, 1, 1, tzinfo=UTC)) // 1_000, ms(datetime(2041, 1, 1, tzinfo=UTC)) // 1_000
    return [rng.randrange(start, end) for _ in range(count)]


def changes_of(a_zone: Zone, first: int = 1990, last: int = 2040) -> list[int]:
    at, end = (
        ms(datetime(first, 1, 1, tzinfo=UTC)) // 1_000,
        ms(datetime(last + 1, 1, 1, tzinfo=UTC)) // 1_000,
    )
    found = []
    while at < end:
        segment = a_zone.segment_at(at)
        if segment.before != segment.offset:
            found.append(segment.start)
        at = segment.end
    return found


def assert_all_transitions_are_found(name: str) -> None:
    """Held against the TZif file itself, up to its last entry; after that a zone goes on by a rule, or not at all."""
    start, end = ms(datetime(1990, 1, 1, tzinfo=UTC)) // 1_000, ms(datetime(2037, 1, 1, tzinfo=UTC)) // 1_000
    listed = [at for at, _, _ in transitions(name) if start <= at < end]
    last = listed[-1] if listed else start
    assert [at for at in changes_of(zone(name)) if at <= last] == listed, name


def test_the_transitions_of_a_zone_are_found() -> None:
    for name in random.Random(7).sample(ZONES, 30):
        assert_all_transitions_are_found(name)


@pytest.mark.long
def test_every_transition_of_every_zone_is_found() -> None:
    for name in ZONES:
        assert_all_transitions_are_found(name)


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "Asia/Gaza"]
)
def test_a_daily_time_fires_once_a_day_for_fifty_years(name: str) -> None:  # fmt: skip
    start, end = ms(datetime(1990, 1, 2, tzinfo=UTC)), ms(datetime(2040, 12, 30, tzinfo=UTC))
    for text in ("0 30 2 * * *", "0 0 0 * * *", "0 59 23 * * *"):
        days = [
            utc(tick.at).astimezone(zone_info(name)).date() for tick in forward(rule(text, name), start, end)
        ]
        assert len(days) == len(set(days)) == (days[-1] - days[0]).days + 1


# ------------------------------------------------------------------------------------------- a second opinion

FIELDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
NAMES = {
    3: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    4: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
}


def field_text(rng: random.Random, index: int) -> str:
    low, high = FIELDS[index]
    kind = rng.choice(("*", "*", "*", "value", "range", "step", "list", "name", "range step"))
    first = rng.randint(low, high)
    last = rng.randint(first, high)
    if kind == "name" and index in NAMES:
        return rng.choice(NAMES[index])
    return {
        "*": "*",
        "range": f"{first}-{last}",
        "step": f"*/{rng.randint(1, high)}",
        "list": ",".join(str(rng.randint(low, high)) for _ in range(rng.randint(2, 4))),
        "range step": f"{first}-{last}/{rng.randint(1, 9)}" if first < last else f"{first}",
    }.get(kind, str(first))


def test_ten_thousand_expressions_agree_with_cronsim() -> None:
    rng = random.Random(5)
    compared = 0
    for _ in range(10_000):
        text = " ".join(field_text(rng, index) for index in range(5))
        start = datetime(
            rng.randint(1991, 2037), rng.randint(1, 12), rng.randint(1, 28), rng.randrange(24), tzinfo=UTC
        )
        try:
            theirs = CronSim(text, start)
        except CronSimError:  # dates that no month has are refused there and never fire here
            assert rule(text).after(ms(start)) is None, text
            continue
        mine = rule(text)
        at = ms(start)
        for _ in range(3):
            tick = mine.after(at)
            expected = next(theirs, None)
            if expected is None:  # it gives up after 50 years
                assert tick is None or tick.at > ms(start.replace(year=start.year + 50)), text
                break
            assert tick is not None and tick.at == ms(expected), (text, start)
            at = tick.at
        compared += 1
    assert compared > 9_000


def test_cronsim_agrees_across_clock_changes() -> None:
    """Both follow Debian: a fixed time in the gap moves to its end, in the fold it fires the first time."""
    rng = random.Random(6)
    for name in ("Europe/Berlin", "America/New_York", "Australia/Sydney", "America/Santiago"):
        for instant in changes_of(zone(name), 2000, 2035):
            start = EPOCH + timedelta(seconds=instant, hours=-30)
            text = f"{rng.randrange(60)} {rng.randrange(5)} * * *"
            theirs = CronSim(text, start.astimezone(zone_info(name)))
            mine = forward(rule(text, name), ms(start), LAST_MS)
            for _ in range(3):
                assert next(mine).at == ms(next(theirs).astimezone(UTC)), (name, text, start)


# --------------------------------------------------------------------------------------------------- properties

TEXTS = [
    "0 30 2 * * *",
    "*/7 * * * * *",
    "0 0 9-17 ? * MON-FRI",
    "15 10 3 29 2 *",
    "0 0 0 1,15 * *",
    "0 */15 1-3 * * *",
]


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe"]),
    st.sampled_from(POLICIES),
    st.integers(ms(datetime(1990, 1, 1, tzinfo=UTC)), ms(datetime(2040, 1, 1, tzinfo=UTC))),
)
def test_before_is_the_inverse_of_after(text: str, name: str, dst: Dst, at: int) -> None:
    tried = rule(text, name, dst)
    following = tried.after(at)
    assert following is not None and following.at > at
    assert tried.before(following.at + 1) == following
    preceding = tried.before(at + 1)
    assert preceding is not None and preceding.at <= at
    assert tried.after(preceding.at) == following
    assert tried.before(following.at) == preceding


@given(st.text(" *,-/?@LW#.+0123456789msdwhjanJANevry\t", max_size=30))
def test_any_text_is_read_or_refused_with_a_hint(text: str) -> None:
    try:
        assert isinstance(parse_expression(text), Cron | Interval)
    except CronError as refused:
        assert all(problem.message and problem.hint for problem in refused.problems)
