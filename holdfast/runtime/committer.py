"""The committer: the only caller of the store's commit. A failed commit means the same, whichever part asked for it.

    what failed                what follows
    a sync                     the process ends: what the disk holds is unknown
    another process owns it    this node is fenced off and writes nothing more
    the store is unavailable   stalled: every commit is refused at once, and a probe tries to write after 0.1 s, doubling to 5 s
    anything else              the batch is at fault; the part that sent it decides (the door sends its runs one by one)

Knows batches and their outcomes, not what is in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from holdfast.errors import NodeIsOver, StoreUnavailable
from holdfast.store.base import Store
from holdfast.store.batch import Batch

log = logging.getLogger("holdfast")

PROBE_SECONDS: Final = 0.1
PROBE_SECONDS_MAX: Final = 5.0

Done = Callable[[BaseException | None], None]


class Node(Protocol):
    """The rest of the process: what it does when commits stop, work again, or will never work again."""

    def stalled(self, error: BaseException) -> None: ...
    def restored(self) -> None: ...
    def over(self, error: BaseException) -> None: ...


class Committer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.node: Node | None = None
        self.is_stalled = self.is_over = False
        self.is_shut = False  # stalled or over: nothing is taken
        self._delay = PROBE_SECONDS  # before the next probe; reset when a commit other than a probe succeeds
        self._owed = 0  # bytes of the commit that failed: a probe must be able to write as much
        self._probing: asyncio.TimerHandle | None = None
        self._is_closed = False

    def submit(self, batch: Batch, done: Done) -> None:
        """Write a batch. `done` is called once, with what went wrong or with None when it is durable."""
        if self.is_shut:
            return done(self._refusal())
        self._send(batch, partial(self._settled, batch, done))

    async def commit(self, batch: Batch, after: Callable[[], None] = lambda: None) -> None:
        """Write a batch; it is durable when this returns. Cancelling the caller stops neither the commit nor `after`."""
        reply: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def settled(error: BaseException | None) -> None:
            after()
            reply.set_result(error)

        self.submit(batch, settled)
        error = await asyncio.shield(reply)
        if error is not None:
            raise error if isinstance(error, Exception) else NodeIsOver(str(error))

    def abandon(self) -> None:
        """Take nothing more, as after a kill."""
        self.is_over = self.is_shut = True
        self.close()

    def close(self) -> None:
        """Probe no more, and ignore the answer of a probe that is on its way."""
        self._is_closed = True
        if self._probing is not None:
            self._probing.cancel()

    def _send(self, batch: Batch, done: Done) -> None:
        """An exception before the store has taken the batch is an outcome like any other: the commit failed."""
        try:
            self._store.submit(batch, done)
        except Exception as error:
            if batch.is_settled:
                raise  # by what was done about the outcome
            log.exception("a commit could not be handed to the store")
            done(StoreUnavailable(f"the database cannot be written now: {error}"))

    def _settled(self, batch: Batch, done: Done, error: BaseException | None) -> None:
        batch.is_settled = True
        if error is None:
            if not batch.is_probe:
                self._delay = PROBE_SECONDS
        elif isinstance(error, NodeIsOver | SystemExit):
            self.end(error)
        elif isinstance(error, StoreUnavailable):
            return self._stall(batch, done, error)
        done(error)

    def _refusal(self) -> Exception:
        if self.is_over:
            return NodeIsOver("another process has taken over the database; this one can write nothing more")
        return StoreUnavailable("the database cannot be written now; try again")

    # ------------------------------------------------------------------------------------------ when it goes wrong

    def end(self, error: BaseException) -> None:
        """This process may write nothing more: another one has taken over, or the disk did not sync."""
        if not self.is_over:
            self.abandon()
            if self.node is not None:
                self.node.over(error)

    def _stall(self, batch: Batch, done: Done, error: StoreUnavailable) -> None:
        is_first = not self.is_shut  # whether this is the first of the pending commits to fail
        self.is_stalled = self.is_shut = True
        self._owed = max(self._owed, batch.size)
        done(error)
        if is_first and not self._is_closed:
            log.error(
                "a commit failed and nothing of it counts; commits are refused until one works: %s", error
            )
            if self.node is not None:
                self.node.stalled(error)
            self._probe_later()

    def _probe_later(self) -> None:
        self._probing = asyncio.get_running_loop().call_later(self._delay, self._probe)
        self._delay = min(2 * self._delay, PROBE_SECONDS_MAX)

    def _probe(self) -> None:
        probe = Batch()
        probe.is_probe, probe.probe_bytes = True, self._owed
        self._send(probe, partial(self._probed, probe))

    def _probed(self, probe: Batch, error: BaseException | None) -> None:
        probe.is_settled = True
        if self._is_closed:
            return
        if isinstance(error, NodeIsOver | SystemExit):
            self.end(error)
        elif error is not None:
            self._probe_later()
        else:
            self.is_stalled = self.is_shut = False
            self._owed = 0
            if self.node is not None:
                self.node.restored()
