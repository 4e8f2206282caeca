"""The thresholds of Python's garbage collector are raised where that is asked for, unless the user chose them."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.runtime.collector import HAS_FROZEN, THRESHOLD, expect_cycles, tune


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Each test finds a process in which nothing was excluded."""
    before, had_frozen = gc.get_threshold(), HAS_FROZEN.is_set()
    HAS_FROZEN.clear()
    gc.unfreeze()
    yield
    gc.freeze()
    gc.set_threshold(*before)
    if had_frozen:
        HAS_FROZEN.set()


def test_what_this_interpreter_begins_with_is_raised() -> None:
    code = "import gc; print(*gc.get_threshold())"
    fresh = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True, text=True)
    gc.set_threshold(*map(int, fresh.stdout.split()))
    tune()
    assert gc.get_threshold() == THRESHOLD


@pytest.mark.parametrize("default", [(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0)])
def test_what_other_versions_begin_with_is_raised(default: tuple[int, int, int]) -> None:
    gc.set_threshold(*default)
    tune()
    assert gc.get_threshold() == THRESHOLD


@pytest.mark.parametrize("chosen", [(0, 10, 10), (701, 10, 10), (100_000, 50, 50), (2_000, 5, 5)])
def test_what_the_user_chose_is_left(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    tune()
    assert gc.get_threshold() == chosen


def test_fewer_objects_are_collected_at_a_time_where_a_library_leaves_cycles() -> None:
    gc.set_threshold(700, 10, 10)
    tune()
    expect_cycles()
    young, middle, old = gc.get_threshold()
    assert 0 < young < THRESHOLD[0] and young * middle < THRESHOLD[0] * THRESHOLD[1]
    assert young * middle * old == THRESHOLD[0] * THRESHOLD[1] * THRESHOLD[2]


def test_a_library_that_leaves_cycles_does_not_change_what_the_user_chose() -> None:
    gc.set_threshold(701, 10, 10)
    tune()
    expect_cycles()
    assert gc.get_threshold() == (701, 10, 10)


def test_a_library_that_leaves_cycles_does_not_tune_the_collector() -> None:
    gc.set_threshold(700, 10, 10)
    expect_cycles()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.anyio
async def test_an_embedded_engine_leaves_the_collector_alone(tmp_path: Path) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    async with Holdfast(str(tmp_path / "h.db")):
        assert (gc.get_threshold(), gc.get_freeze_count()) == before


@pytest.mark.anyio
async def test_an_embedded_engine_tunes_the_collector_if_it_is_asked_to(tmp_path: Path) -> None:
    gc.set_threshold(700, 10, 10)
    async with Holdfast(str(tmp_path / "h.db"), tune_gc=True):
        assert gc.get_threshold() == THRESHOLD
        assert gc.get_freeze_count() > 0


@pytest.mark.anyio
async def test_a_second_engine_does_not_keep_what_the_first_left(tmp_path: Path) -> None:
    async with Holdfast(str(tmp_path / "h.db"), tune_gc=True):
        frozen = gc.get_freeze_count()
    async with Holdfast(str(tmp_path / "h.db"), tune_gc=True):
        assert gc.get_freeze_count() <= frozen
