"""What the services that take answers from outside need of the engine, and the checks that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from holdfast import limits
from holdfast.engine.events import Event
from holdfast.errors import InvalidInputs, LimitExceeded, NodeIsOver, StoreUnavailable
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Advance, Live
from holdfast.runtime.replies import Kept
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import RunRow
from holdfast.tools.registry import Registry
from holdfast.values import NotJson, RunId, Status, encode


class Host(Protocol):
    """The engine, as far as it holds runs and writes events to them."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def advance(self) -> Advance: ...
    @property
    def dispatch(self) -> Dispatch: ...
    @property
    def registry(self) -> Registry: ...

    async def row_of(self, run_id: RunId, tenant: str = ...) -> RunRow: ...
    async def hold(self, row: RunRow) -> Live: ...
    async def tell(
        self, live: Live, event: Event, keep: Callable[[Status], Kept] | None = None
    ) -> Status: ...
    async def commit(self, batch: Batch) -> None: ...
    def looked(self, live: Live) -> None: ...


async def all_durable(host: Host) -> None:
    """Wait until everything applied so far is durable; raises if it will not be."""
    await host.advance.caught_up()
    if host.advance.is_over:
        raise NodeIsOver("another process has taken this file over")
    if host.advance.is_stalled:
        raise StoreUnavailable("the database cannot be written now; try again")


def answer_text(answer: Any) -> bytes:
    """An answer as JSON text; raises InvalidInputs or LimitExceeded."""
    try:
        text = bytes(answer) if isinstance(answer, msgspec.Raw) else encode(answer)
    except NotJson as error:
        raise InvalidInputs(f"the answer is not JSON: {error}") from None
    if len(text) > limits.now.value_bytes_max:
        raise LimitExceeded(
            "input_too_large",
            f"an answer is at most {limits.size(limits.now.value_bytes_max)}",
            "value_bytes_max",
        )
    return text
