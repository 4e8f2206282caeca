"""The heap of those who sleep: who is woken when, and how many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.runtime.clock import SystemClock
from holdfast.runtime.timers import WOKEN_AT_ONCE, Timers
from holdfast.values import Millis, RunNo

pytestmark = pytest.mark.anyio

LONG_AGO = Millis(1_000)


def a_crowd(size: int) -> list[RunNo]:
    return [RunNo(no) for no in range(1, size + 1)]


async def woken_by(timers: Timers, crowd: list[RunNo], woken: list[RunNo]) -> None:
    for no in crowd:
        timers.arm(no, LONG_AGO)
    while len(woken) < len(crowd):
        await asyncio.sleep(0)


def timers_that(wake: Callable[[RunNo], None]) -> Timers:
    timers = Timers(SystemClock())
    timers.begin(wake, lambda: None)
    return timers


async def test_of_a_crowd_that_is_due_at_once_others_get_their_turn_between() -> None:
    woken: list[RunNo] = []
    turns: list[int] = []

    def wake(no: RunNo) -> None:
        woken.append(no)
        asyncio.get_running_loop().call_soon(lambda: turns.append(len(woken)))

    timers = timers_that(wake)
    await woken_by(timers, a_crowd(3 * WOKEN_AT_ONCE), woken)
    await asyncio.sleep(0)
    assert set(turns) == {WOKEN_AT_ONCE, 2 * WOKEN_AT_ONCE, 3 * WOKEN_AT_ONCE}


async def test_each_of_a_crowd_is_woken_once_and_in_order() -> None:
    woken: list[RunNo] = []
    crowd = a_crowd(10 * WOKEN_AT_ONCE + 1)
    await woken_by(timers_that(woken.append), crowd, woken)
    assert woken == crowd


async def test_a_disarmed_timer_takes_no_other_timers_turn() -> None:
    woken: list[RunNo] = []
    timers = timers_that(woken.append)
    gone, left = a_crowd(2 * WOKEN_AT_ONCE)[:WOKEN_AT_ONCE], a_crowd(2 * WOKEN_AT_ONCE)[WOKEN_AT_ONCE:]
    for no in gone:
        timers.arm(no, LONG_AGO)
        timers.disarm(no)
    await woken_by(timers, left, woken)
    assert woken == left
