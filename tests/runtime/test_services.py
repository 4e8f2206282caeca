"""Services of an engine: the order in which they are opened and closed, and what follows when one of them fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import EngineClosed, StoreUnavailable
from holdfast.runtime.service import Service
from tests.runtime.bench import Bench, bench
from tests.runtime.manual import by_hand, clock


class Noted(Service):
    """Writes down what it is asked to do; `fails` is the one thing that it cannot."""

    def __init__(self, name: str, said: list[str], fails: str = "") -> None:
        self._name, self._said, self._fails = name, said, fails

    def _note(self, what: str) -> None:
        self._said.append(f"{what} {self._name}")
        if what == self._fails:
            raise OSError(f"{self._name} does not {what}")

    async def open(self, *, drive: bool) -> None:
        self._note("open")

    async def close(self) -> None:
        self._note("close")

    def abandon(self, error: Exception | None = None) -> None:
        self._note("abandon" if error is None else f"abandon, {type(error).__name__},")

    async def restored(self) -> None:
        self._note("restore")
        if self._fails == "restore once":
            self._fails = ""
            raise StoreUnavailable("away")


def with_services(path: Path, *services: Service) -> Bench:
    engine = bench(path, [], clock())
    engine.services.extend(services)
    return engine


@by_hand
async def test_services_are_opened_in_order_and_closed_in_reverse(tmp_path: Path) -> None:
    said: list[str] = []
    engine = with_services(tmp_path, Noted("a", said), Noted("b", said))
    await engine.open()
    await engine.close()
    assert said == ["open a", "open b", "close b", "close a"]


@by_hand
async def test_services_are_abandoned_if_one_of_them_cannot_be_opened(tmp_path: Path) -> None:
    said: list[str] = []
    engine = with_services(tmp_path, Noted("a", said), Noted("b", said, "open"), Noted("c", said))
    with pytest.raises(OSError, match="b does not open"):
        await engine.open()
    assert said == ["open a", "open b", "abandon c", "abandon b", "abandon a"]
    assert not engine.is_open


@by_hand
async def test_services_that_are_still_open_are_abandoned_if_one_cannot_be_closed(tmp_path: Path) -> None:
    said: list[str] = []
    engine = with_services(tmp_path, Noted("a", said), Noted("b", said, "close"), Noted("c", said))
    await engine.open()
    said.clear()
    with pytest.raises(OSError, match="b does not close"):
        await engine.close()
    lost = f"abandon, {EngineClosed.__name__},"
    assert said == ["close c", "close b", f"{lost} b", f"{lost} a"]


@by_hand
async def test_a_restoration_begins_again_if_the_store_goes_away_during_it(tmp_path: Path) -> None:
    said: list[str] = []
    engine = with_services(tmp_path, Noted("a", said), Noted("b", said, "restore once"))
    await engine.open()
    said.clear()
    engine.restored()
    await clock().advance(5)
    assert said == ["restore a", "restore b", "restore a", "restore b"]
    await engine.close()


@by_hand
async def test_a_crash_says_nothing_to_callers_that_wait(tmp_path: Path) -> None:
    said: list[str] = []
    engine = with_services(tmp_path, Noted("a", said))
    await engine.open()
    engine.crash()
    assert said == ["open a", "abandon a"]
