"""Time by hand, as users have it, for tests of the runtime itself: they take the clock of the loop they run on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from holdfast.testing import BEGAN, ManualClock, ManualLoop, settled

__all__ = ["BEGAN", "by_hand", "clock", "settled"]

P = ParamSpec("P")


def clock() -> ManualClock:
    """The clock of the loop that this test runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ManualLoop)
    return loop.clock


def by_hand(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on time by hand."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=ManualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
