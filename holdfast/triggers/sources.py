"""Sources: async generators of the user that yield events, such as a queue's messages or new rows of a table.

    async def orders(position: str | None) -> AsyncIterator[tuple[str, object]]:   # None the first time
        ...
        yield event_id, payload      # returns when the event is durable: then acknowledge it

The position is the id of the last event whose outcome is durable, and is stored by the commit of that event. A source that
raises or ends is started again from there, after a pause that doubles. Of several nodes on one database, one listens; it passes
the duty on when the source fails, so that a node that has the module gets its turn. Knows tasks and
pauses; what becomes of an event is decided by occurrences.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, InvalidInputs
from holdfast.runtime.clock import Clock
from holdfast.runtime.starts import encoded
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import SourceTrigger
from holdfast.store.base import Store
from holdfast.tools.references import resolved
from holdfast.triggers.occurrences import Delivery, Occurrences
from holdfast.triggers.tasks import ELSEWHERE_SECS, Duty, Tasks

log = logging.getLogger("holdfast.sources")

PAUSE_SECS: Final = 1.0
PAUSE_SECS_MAX: Final = 60.0

Generator = Callable[[str | None], AsyncGenerator[Any, None]]


class Sources(Tasks):
    def __init__(self, store: Store, clock: Clock, occurrences: Occurrences) -> None:
        super().__init__()
        self._store, self._clock, self._occurrences = store, clock, occurrences

    async def _listening(self, tenant: str, spec: ScheduleSpec) -> None:
        """Listen to a source for as long as its schedule exists."""
        pause = PAUSE_SECS
        ending = set(self._ending)  # of the schedule before it was changed: two must not listen at once
        if ending:
            await asyncio.wait(ending)
        duty = Duty(self._store, "source", tenant, spec)
        while True:
            count = 0
            try:
                if not await duty.is_ours():
                    self.problems.pop(
                        (tenant, spec.id), None
                    )  # what was wrong here keeps no event from being noticed
                    await asyncio.sleep(ELSEWHERE_SECS)
                    continue
                async for _ in self._events(tenant, spec):
                    count += 1
                    self.problems.pop((tenant, spec.id), None)
                why = "the source ended"
            except Exception as error:  # the user's code may raise anything
                why = f"{type(error).__name__}: {error}"
                log.warning(
                    "the source of schedule %s failed: %s",
                    spec.id,
                    why,
                    exc_info=not isinstance(error, HoldfastError),
                )
            pause = PAUSE_SECS if count else min(2 * pause, PAUSE_SECS_MAX)
            self.problems[tenant, spec.id] = (
                f"its source is not running: {why}; it is started again after {pause:g} s"
            )
            await duty.pass_on()
            await asyncio.sleep(pause)

    async def _events(self, tenant: str, spec: ScheduleSpec) -> AsyncGenerator[None, None]:
        """Once for each event whose outcome is durable."""
        assert isinstance(spec.trigger, SourceTrigger)
        generator = _generator(spec.trigger.source)
        position = await self._occurrences.position(tenant, spec.id)
        async with contextlib.aclosing(generator(position or None)) as events:
            async for event in events:
                await self._deliver(tenant, spec, event)
                yield

    async def _deliver(self, tenant: str, spec: ScheduleSpec, event: Any) -> None:
        name, payload = _checked(event)
        delivery = Delivery(
            tenant=tenant, spec=spec, occurrence=name, position=name, scheduled_at=self._clock.now()
        )
        try:
            text = encoded(payload, f"the payload of event {name!a:.80} is")
        except HoldfastError as error:  # it would be the same the next time
            await self._occurrences.reject(delivery, error)
        else:
            await self._occurrences.deliver(msgspec.structs.replace(delivery, payload=text))


def _generator(reference: str) -> Generator:
    _, found = resolved(reference, "sources")
    function = found[0] if found else None
    if not inspect.isasyncgenfunction(function):
        raise InvalidInputs(
            f"{reference} is not an async generator function; write `async def` with a `yield`"
        )
    return function


def _checked(event: Any) -> tuple[str, Any]:
    if not (isinstance(event, tuple) and len(event) == 2 and isinstance(event[0], str) and event[0]):
        raise InvalidInputs(f"a source yields (id, payload) with a text as id, not {event!r:.200}")
    most = limits.now.idempotency_key_chars_max
    if len(event[0]) > most:
        raise InvalidInputs(f"the id of an event has at most {most:,} characters, not {len(event[0]):,}")
    return event
