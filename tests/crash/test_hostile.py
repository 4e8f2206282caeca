"""Each attack of the soak reaches the defence that it is named after; one refused for another reason would test nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.crash.hostile import COMPLETES, STORING, Hostile, Target, hostile
from tests.sdk.processes import House

SLOW = {*STORING, "8,000 steps", "8,000 steps as YAML", "100 searches that are just allowed"}


class Recording(Target):
    """Keeps the run that an attack started, and the last response."""

    run: str | None = None
    body: Any = None

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        status, self.body = await super().post(path, body)
        if isinstance(self.body, dict) and "run_id" in self.body:
            self.run = self.body["run_id"]
        return status, self.body


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(Path(tmp_path_factory.mktemp("hostile")))
    try:
        house.up()
        yield house
    finally:
        house.close()


async def _sent(house: House, attack: Hostile) -> Recording:
    async with aiohttp.ClientSession() as session:
        target = Recording(session, house.address)
        await attack.send(target, attack.name.replace(" ", "-").replace(",", ""))
    return target


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=attack.name, marks=[pytest.mark.long] if attack.name in SLOW else [])
        for attack in hostile()
    ],
)
def test_an_attack_reaches_what_it_names(house: House, attack: Hostile) -> None:
    target = asyncio.run(_sent(house, attack))
    if target.run is None:
        assert attack.reaches in str(target.body)
        return
    run = house.ended(target.run)
    assert attack.reaches in (str(run["error"]) if run["error"] else COMPLETES), run["error"]
