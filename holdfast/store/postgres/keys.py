"""Idempotency keys within one transaction, on PostgreSQL. What a commit means for keys is said by tests/store/conformance/."""

from __future__ import annotations

from typing import Any

from holdfast.store.batch import Batch
from holdfast.store.records import KeyEnd, KeyName, Verdict
from holdfast.values import Millis, RunNo


class Keys:
    """A requester gets the key, waits, or receives the stored output; a release passes it on."""

    def __init__(self, db: Any, sql: dict[str, str], epoch: int) -> None:
        self._db, self._sql, self._epoch = db, sql, epoch

    async def settle(self, batch: Batch) -> None:
        verdicts: list[Verdict] = []
        for name, end in batch.keys:
            verdicts += [await self._ask(name)] if end is None else await self._let_go(name, end)
        batch.verdicts = verdicts

    async def _run(self, name: str, *args: Any) -> Any:
        return await self._db.fetch(self._sql[name], *args)

    async def _ask(self, name: KeyName) -> Verdict:
        tenant, scope, key, no, path, at = name
        await self._run("take_key", tenant, scope, key, no, path, at)
        ((holder, held_at, output),) = await self._run("key_state", tenant, scope, key)
        if output is None and (holder, held_at) != (no, path):
            await self._run("wait_for_key", tenant, scope, key, no, path, at)
            return no, path, "held", None
        await self._run("wait_no_more", no, path)
        return no, path, "granted" if output is None else "answered", output

    async def _let_go(self, name: KeyName, end: KeyEnd) -> list[Verdict]:
        tenant, scope, key, no, path, at = name
        await self._run("wait_no_more", no, path)
        state = await self._run("key_state", tenant, scope, key)
        if not state or tuple(state[0]) != (no, path, None):
            return []  # it only asked
        if end.output is not None:
            await self._run("answer_key", end.output, end.expires_at, tenant, scope, key)
        most = 1 if end.output is None else None
        waiters = await self._run("waiters_of_key", tenant, scope, key, most)
        if end.output is None:
            if not waiters:
                await self._run("free_key", tenant, scope, key)
            for next_run, next_path in waiters:
                await self._run("pass_key_on", next_run, next_path, tenant, scope, key)
        return [await self._tell(RunNo(run), at_path, end, at) for run, at_path in waiters]

    async def _tell(self, no: RunNo, path: str, end: KeyEnd, at: Millis) -> Verdict:
        await self._run("wait_no_more", no, path)
        await self._run("make_due", at, no, self._epoch)
        return no, path, "granted" if end.output is None else "answered", end.output
