"""Reads of what belongs to single runs: waits, log lines, early callbacks and final callbacks, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.store.records import Letter, LogLine, OpenWait, WaitRow
from holdfast.store.sqlite.asking import Asking
from holdfast.values import Millis, RunId, RunNo


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

    async def open_waits(self, tenant: str, kind: str, limit: int) -> list[WaitRow]:
        return self._waits("open_waits", tenant, kind, limit)

    async def waits_open(self, after: OpenWait, limit: int) -> list[OpenWait]:
        """What is waited for now, of all tenants: whose, of which kind, and its place."""
        return [OpenWait(*row) for row in self._ask("waits_open", (*after, limit))]

    async def early_result(
        self, tenant: str, task_id: str, run_id: RunId, now: Millis
    ) -> tuple[str, str] | None:
        """The answer that came early for a run: the id of the run that it is meant for, if any, and what it says."""
        return next(iter(self._ask("early_of", (tenant, task_id, run_id, now))), None)

    async def early_room(self, tenant: str, now: Millis) -> tuple[int, int]:
        """How many answers of a tenant wait for their pause, and how many bytes they are."""
        count, total = next(iter(self._ask("early_room", (tenant, now))))
        return int(count), int(total)

    async def early_waits(self, limit: int) -> list[WaitRow]:
        """Open waits for which an early callback is stored."""
        return self._waits("early_waits", limit)

    def _letters(self, name: str, args: Any) -> list[Letter]:
        return [Letter(*row) for row in self._ask(name, args)]

    async def letters_due(
        self, now: Millis, full: Sequence[str], runs: Sequence[RunNo] | None, limit: int
    ) -> list[Letter]:
        """Letters whose time has come, the longest due first: none to `full` origins, and of `runs` alone, if given."""
        named = {
            "now": now,
            "full": msgspec.json.encode(full).decode(),
            "runs": None if runs is None else msgspec.json.encode(runs).decode(),
            "limit": limit,
        }
        return self._letters("letters_due", named)

    async def next_letter(self, after: Millis) -> Millis | None:
        at: Millis | None = self._ask("next_letter", (after,)).get
        return at

    async def letters_of_run(self, no: RunNo) -> list[Letter]:
        return self._letters("letters_of_run", (no,))

    async def dead_letters(self, tenant: str, after: int, limit: int) -> list[Letter]:
        return self._letters("dead_letters", (tenant, after, limit))

    async def letter(self, tenant: str, letter_id: str) -> Letter | None:
        return next(iter(self._letters("letter", (tenant, letter_id))), None)

    async def letters_by_state(self, limit: int) -> dict[str, int]:
        """The number of pending and of dead deliveries; `limit` means that many or more."""
        return dict(self._ask("letters_by_state", (limit,)))
