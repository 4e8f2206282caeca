"""Reads that suspend, in a simulated world: those of a database behind a network do.

The store of the simulation answers at once. With `python -m tests.sim --layer world --seeds 0:500 --yield-reads 1`, each read of an
engine that is open takes a few turns of the loop. Opening and closing stay at one instant, because the world relies on it.
"""

from __future__ import annotations

from functools import wraps
from random import Random
from typing import Any

import pytest

from holdfast.runtime import compose
from holdfast.runtime.engine import Engine, Parts
from tests.sim import schedule_world, world
from tests.store.yielding import TURNS_MAX, Yielding


class WhileOpen(Yielding):
    """Reads take turns only while the engine is open."""

    def __init__(self, store: Any, random: Random) -> None:
        super().__init__(store, random)
        object.__setattr__(self, "is_open", False)

    async def _turns(self) -> None:
        if object.__getattribute__(self, "is_open"):
            await super()._turns()


def suspend_reads(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Put the wrapper around the store of every engine that is made from here on. A world gives its seed to the name of its file."""
    parts_of, open_, close = compose.parts_of, Engine.open, Engine.close

    @wraps(parts_of)
    def wrapped(store: Any, *args: Any, **named: Any) -> Parts:
        return parts_of(WhileOpen(store, Random(f"{seed} {store.path}")), *args, **named)

    async def opening(engine: Engine, *args: Any, **named: Any) -> None:
        await open_(engine, *args, **named)
        object.__setattr__(engine.store, "is_open", True)

    async def closing(engine: Engine, *args: Any, **named: Any) -> None:
        object.__setattr__(engine.store, "is_open", False)
        await close(engine, *args, **named)

    patch.setattr(compose, "parts_of", wrapped)
    patch.setattr(Engine, "open", opening)
    patch.setattr(Engine, "close", closing)
    more = 2 * (TURNS_MAX + 1)
    patch.setattr(world, "TURNS_MAX", world.TURNS_MAX * more)
    patch.setattr(schedule_world, "TURNS_MAX", schedule_world.TURNS_MAX * more)
    patch.setattr(schedule_world, "TURNS_PER_COMMIT", schedule_world.TURNS_PER_COMMIT * more)
