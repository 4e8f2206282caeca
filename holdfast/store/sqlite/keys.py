"""Idempotency keys within one commit, on SQLite. What a commit means for keys is said by tests/store/conformance/."""

from __future__ import annotations

from typing import Any, Final

import apsw

from holdfast.store.batch import Batch
from holdfast.store.records import KeyEnd, KeyName, Verdict
from holdfast.store.sqlite.executing import execute
from holdfast.values import Millis, RunNo

ALL: Final = -1  # as a limit


class Keys:
    """Idempotency keys within one commit: a requester gets the key, waits, or receives the stored output; a release passes it on."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str]) -> None:
        self._db, self._sql = db, sql

    def settle(self, batch: Batch) -> None:
        batch.verdicts = []
        for name, end in batch.keys:
            batch.verdicts += [self._ask(name)] if end is None else self._let_go(name, end)

    def _run(self, name: str, *args: Any) -> apsw.Cursor:
        return execute(self._db, self._sql[name], args)

    def _ask(self, name: KeyName) -> Verdict:
        tenant, scope, key, no, path, at = name
        self._run("take_key", tenant, scope, key, no, path, at)
        ((holder, held_at, output),) = self._run("key_state", tenant, scope, key)
        if output is None and (holder, held_at) != (no, path):
            self._run("wait_for_key", tenant, scope, key, no, path, at)
            return no, path, "held", None
        self._run("wait_no_more", no, path)
        return no, path, "granted" if output is None else "answered", output

    def _let_go(self, name: KeyName, end: KeyEnd) -> list[Verdict]:
        tenant, scope, key, no, path, at = name
        self._run("wait_no_more", no, path)
        state = self._run("key_state", tenant, scope, key).get
        if state is None or tuple(state) != (no, path, None):
            return []  # it only asked
        if end.output is not None:
            self._run("answer_key", end.output, end.expires_at, tenant, scope, key)
        waiters = list(self._run("waiters_of_key", tenant, scope, key, 1 if end.output is None else ALL))
        if end.output is None:
            if not waiters:
                self._run("free_key", tenant, scope, key)
            for next_run, next_path in waiters:
                self._run("pass_key_on", next_run, next_path, tenant, scope, key)
        return [self._tell(RunNo(run), at_path, end, at) for run, at_path in waiters]

    def _tell(self, no: RunNo, path: str, end: KeyEnd, at: Millis) -> Verdict:
        self._run("wait_no_more", no, path)
        self._run("make_due", at, no)
        return no, path, "granted" if end.output is None else "answered", end.output
