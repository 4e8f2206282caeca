"""Commits rows that belong to no journal, for workers and deliveries, many of them at a time.

Knows commits, not what is written. A part that must not continue before its rows are durable waits for them. If a
commit fails, waiting callers get the error, and the rows are written again later; rewriting a row that was superseded
does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.errors import NodeIsOver
from holdfast.runtime.committer import Committer
from holdfast.store.batch import Batch

log = logging.getLogger("holdfast")

AGAIN_SECONDS: Final = 1.0

Waiter = asyncio.Future[None]


class Writes:
    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.batch = Batch()
        self._waiters: list[Waiter] = []
        self._handle: asyncio.Handle | None = None
        self._in_flight = False  # one commit at a time: a retried row must not overwrite a later one
        self._is_closed = False

    def soon(self) -> None:
        """Write the rows of the batch, without waiting for them."""
        if self._handle is None and not self._is_closed:
            self._handle = asyncio.get_running_loop().call_soon(self._flush)

    def durable(self) -> Waiter:
        """A future that is resolved when the rows of the batch are durable."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        if self._is_closed:
            waiter.set_exception(NodeIsOver("this engine is closed"))
            return waiter
        self._waiters.append(waiter)
        self.soon()
        return waiter

    def close(self) -> None:
        """Write the pending rows, and accept no more after them."""
        if self.batch.has_rest and not self._is_closed:
            self._submit()
        self.abandon()

    def abandon(self) -> None:
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
        self._notify(self._waiters, NodeIsOver("this engine is closed"))

    def _flush(self) -> None:
        self._handle = None
        if not self._in_flight:
            self._submit()

    def _submit(self) -> None:
        batch, waiters = self.batch, self._waiters
        self.batch, self._waiters = Batch(), []
        if batch.has_rest:
            self._in_flight = True
            self._committer.submit(batch, lambda error: self._done(batch, waiters, error))
        else:
            self._notify(waiters, None)

    def _done(self, batch: Batch, waiters: list[Waiter], error: BaseException | None) -> None:
        self._in_flight = False
        self._notify(waiters, error)
        if self._is_closed:
            return
        if error is None:
            if self.batch.has_rest or self._waiters:
                self.soon()
            return
        if isinstance(error, NodeIsOver | SystemExit):
            self._is_closed = True
            return
        log.error("rows of workers and deliveries could not be written; retrying: %s", error)
        self._keep(batch)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._flush)

    def _keep(self, old: Batch) -> None:
        """Put failed rows before the rows that were added since: of two rows with the same key, the later one counts."""
        new = self.batch
        new.workers[:0], new.forgotten_workers[:0] = old.workers, old.forgotten_workers
        new.assignments[:0], new.ended_assignments[:0] = old.assignments, old.ended_assignments
        new.tried[:0], new.heard_workers[:0] = old.tried, old.heard_workers

    @staticmethod
    def _notify(waiters: list[Waiter], error: BaseException | None) -> None:
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error if isinstance(error, Exception) else NodeIsOver(str(error)))
