"""Reads of what belongs to single runs: waits, log lines, early callbacks and final callbacks, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.store.records import CallbackDelivery, LogLine, OpenWait, WaitRow
from holdfast.store.sqlite.asking import Asking
from holdfast.values import Millis, RunId, RunNo

NO_LIMIT: Final = 9_000_000_000_000_000  # stands for the time of a wait without one, as in the index


class WaitReads(Asking):
    def _waits(self, name: str, *args: Any) -> list[WaitRow]:
        return [WaitRow(*row) for row in self._ask(name, args)]

    async def waits_named(self, tenant: str, task_id: str, limit: int) -> list[WaitRow]:
        return self._waits("waits_named", tenant, task_id, limit)

    async def wait_at(self, no: RunNo, path: str, kind: str, attempt: int | None = None) -> WaitRow | None:
        """The wait of an attempt, or of the newest."""
        return next(iter(self._waits("wait_at", no, path, kind, attempt)), None)

    async def gate_decided(self, no: RunNo, path: str) -> WaitRow | None:
        """A decided or expired approval, by its path or by the id of its step."""
        return next(iter(self._waits("gate_decided", no, path)), None)

    async def gates_named(self, no: RunNo, step: str, limit: int) -> list[WaitRow]:
        """The open approvals of a step inside others, oldest first."""
        return self._waits("gates_named", no, step, limit)

    async def waits_of_run(self, no: RunNo, limit: int) -> list[WaitRow]:
        return self._waits("waits_of_run", no, limit)

    async def log_lines(
        self,
        no: RunNo,
        after: int,
        limit: int,
        *,
        path: str | None = None,
        attempt: int | None = None,
        level: str | None = None,
    ) -> list[LogLine]:
        """The lines of a run after number `after`, oldest first; with `path`, those of a step and of the steps inside it."""
        found = self._ask("log_lines", (no, after, path, attempt, level, limit))
        return [LogLine(*row) for row in found]

    async def waits_by_time(
        self, tenant: str, kinds: Sequence[str], after: int | None, limit: int
    ) -> list[tuple[int, WaitRow]]:
        """Open waits of some kinds behind the one with a number, each with its number: least time left first."""
        due, pos = -1, -1
        if after is not None:
            at = self._ask("place_of_wait", (after, tenant)).get
            due, pos = (NO_LIMIT, after) if at is None else (at, after)
        each = [list(self._ask("waits_by_time", (tenant, kind, due, pos, limit))) for kind in kinds]
        rows = sorted((row for found in each for row in found), key=lambda row: (row[0], row[1]))
        return [(row[1], WaitRow(*row[2:])) for row in rows[:limit]]

    async def count_waits(self, tenant: str, kind: str, most: int) -> int:
        """How many waits of a kind are open; it is not counted further than `most`."""
        found: int = self._ask("count_waits", (tenant, kind, most)).get
        return found

    async def first_waits(self, runs: Sequence[RunNo]) -> list[WaitRow]:
        """The oldest open wait of each of some runs."""
        return self._waits("first_waits", msgspec.json.encode(runs).decode())

    async def log_tail(self, no: RunNo, path: str, limit: int) -> list[LogLine]:
        """The newest lines of one step, oldest first."""
        return [LogLine(*row) for row in self._ask("log_tail", (no, path, limit))][::-1]

    async def open_waits(self, tenant: str, kind: str, limit: int) -> list[WaitRow]:
        return self._waits("open_waits", tenant, kind, limit)

    async def waits_open(self, after: OpenWait, limit: int) -> list[OpenWait]:
        """Open waits of all tenants after a position: each with its tenant, kind and position."""
        return [OpenWait(*row) for row in self._ask("waits_open", (*after, limit))]

    async def early_result(
        self, tenant: str, task_id: str, run_id: RunId, now: Millis
    ) -> tuple[str, bytes] | None:
        """The answer that came early for a run: the id of the run that it is meant for, if any, and what it says."""
        found: tuple[str, bytes] | None = await self._first("early_of", (tenant, task_id, run_id, now))
        return found

    async def early_room(self, tenant: str, now: Millis) -> tuple[int, int]:
        """How many answers of a tenant wait for their pause, and how many bytes they are."""
        count, total = next(iter(self._ask("early_room", (tenant, now))))
        return int(count), int(total)

    async def early_waits(self, limit: int) -> list[WaitRow]:
        """Open waits for which an early callback is stored."""
        return self._waits("early_waits", limit)

    def _callback_deliveries(self, name: str, args: Any) -> list[CallbackDelivery]:
        return [CallbackDelivery(*row) for row in self._ask(name, args)]

    async def callback_deliveries_due(
        self, now: Millis, full: Sequence[str], runs: Sequence[RunNo] | None, limit: int
    ) -> list[CallbackDelivery]:
        """Deliveries whose time has come, the longest due first: none to `full` origins, and of `runs` alone, if given."""
        named = {
            "now": now,
            "full": msgspec.json.encode(full).decode(),
            "runs": None if runs is None else msgspec.json.encode(runs).decode(),
            "limit": limit,
        }
        return self._callback_deliveries("callback_deliveries_due", named)

    async def next_callback_delivery(self, after: Millis) -> Millis | None:
        at: Millis | None = self._ask("next_callback_delivery", (after,)).get
        return at

    async def callback_deliveries_of_run(self, no: RunNo) -> list[CallbackDelivery]:
        return self._callback_deliveries("callback_deliveries_of_run", (no,))

    async def dead_letters(self, tenant: str, after: int, limit: int) -> list[CallbackDelivery]:
        return self._callback_deliveries("dead_letters", (tenant, after, limit))

    async def callback_delivery(self, tenant: str, delivery_id: str) -> CallbackDelivery | None:
        return next(iter(self._callback_deliveries("callback_delivery", (tenant, delivery_id))), None)

    async def callback_deliveries_by_state(self, limit: int) -> dict[str, int]:
        """The number of pending and of dead deliveries; `limit` means that many or more."""
        return dict(self._ask("callback_deliveries_by_state", (limit,)))
