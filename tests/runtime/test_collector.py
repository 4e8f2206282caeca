"""The thresholds of Python's garbage collector are raised, unless the user chose them."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.runtime.engine import GC_THRESHOLD, _spare_the_collector


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_this_interpreter_begins_with_is_raised() -> None:
    code = "import gc; print(*gc.get_threshold())"
    fresh = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True, text=True)
    gc.set_threshold(*map(int, fresh.stdout.split()))
    _spare_the_collector()
    assert gc.get_threshold() == GC_THRESHOLD


@pytest.mark.parametrize("default", [(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0)])
def test_what_other_versions_begin_with_is_raised(default: tuple[int, int, int]) -> None:
    gc.set_threshold(*default)
    _spare_the_collector()
    assert gc.get_threshold() == GC_THRESHOLD


@pytest.mark.parametrize("chosen", [(0, 10, 10), (701, 10, 10), (100_000, 50, 50), (2_000, 5, 5)])
def test_what_the_user_chose_is_left(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    _spare_the_collector()
    assert gc.get_threshold() == chosen
