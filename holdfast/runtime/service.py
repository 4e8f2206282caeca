"""A service: a part of the engine that is opened and closed with it.

    open     in the order of the engine's list, after the store
    restored in the same order, after commits failed and work again
    close    in reverse, before the store: finish what is in progress
    abandon  in reverse: stop at once, write nothing

The engine uses only these four methods. A service overrides the ones that it needs.
"""

from __future__ import annotations


class Service:
    async def open(self, *, drive: bool) -> None:
        """Start. Without `drive` the engine continues no run by itself, and acts only on runs that a caller names."""

    async def close(self) -> None:
        """Finish open work. After this returns, the service starts and writes nothing.

        May be called after `abandon`. If it raises, the services that are still open are abandoned.
        """
        self.abandon()

    def abandon(self, error: Exception | None = None) -> None:
        """Stop now, without waiting and without writing. `error` is raised in callers that wait for this service;
        without one, as after a kill, they get no response. May be called twice."""

    async def restored(self) -> None:
        """Commits work again: do what was missed. If a service raises StoreUnavailable, all services are called again
        from the first."""
