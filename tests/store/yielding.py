"""A store whose reads suspend, as those of a database behind a network do.

SQLite answers on the event loop, so between a question and its answer nothing else happens, and a caller may come to rely on
that without noticing. `Yielding` wraps any store: each read gives way to the loop by seed, before and after it asks.
The tests of the rooms that drive runs have such a store (tests/conftest.py); `pytest --yield-reads=SEED` gives it to all.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from random import Random
from typing import Any, Final

import pytest

from holdfast.runtime import compose
from holdfast.runtime.engine import Parts

TURNS_MAX: Final = 3  # of the loop, before a read and again after it

Read = Callable[..., Coroutine[Any, Any, Any]]


class Yielding:
    """Any store, with reads that take a few turns of the loop."""

    def __init__(self, store: Any, random: Random) -> None:
        object.__setattr__(self, "_store", store)
        object.__setattr__(self, "_random", random)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._yielding(found) if inspect.iscoroutinefunction(found) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._store, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._store, name)

    def _yielding(self, read: Read) -> Read:
        @wraps(read)
        async def asked(*args: Any, **named: Any) -> Any:
            await self._turns()
            try:
                return await read(*args, **named)
            finally:
                await self._turns()

        return asked

    async def _turns(self) -> None:
        for _ in range(self._random.randint(0, TURNS_MAX)):
            await asyncio.sleep(0)


def yield_in_all_reads(patch: pytest.MonkeyPatch, seed: str) -> None:
    """Put the wrapper around the store of every part of an engine that is made from here on."""
    make = compose.parts_of

    @wraps(make)
    def parts_of(store: Any, *args: Any, **named: Any) -> Parts:
        return make(Yielding(store, Random(seed)), *args, **named)

    patch.setattr(compose, "parts_of", parts_of)
