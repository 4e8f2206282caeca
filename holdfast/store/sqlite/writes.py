"""Writing a batch, on SQLite: binds its rows to statements. Knows no rule of the engine, and neither begins nor ends a transaction.

journals ──► runs and their counts ──► the other fields, in the order of store/batch.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import groupby
from operator import iconcat
from typing import Any, Final

import apsw
import msgspec

from holdfast.store.base import Fenced
from holdfast.store.batch import Batch
from holdfast.store.records import NewRun, Publication, ReplyRow, RunChange
from holdfast.store.sqlite.executing import execute_all
from holdfast.store.sqlite.firings import Firings, LostFirings
from holdfast.store.sqlite.keys import Keys
from holdfast.store.sqlite.lists import Tallies
from holdfast.values import RunNo

ROWS_PER_STATEMENT_MAX: Final = 256
MANY_ROWS: Final = (
    "append",
    "add_run",
    "change_run",
    "move_cursor",
    "add_entry",
    "clear_failures",
)  # statements made to take many
NO_OWNER: Final = (None, None)
PROBE_BYTES_MIN: Final = 16
PROBE_BYTES_MAX: Final = 1024 * 1024
REPLY_MS: Final = 24 * 3600 * 1000  # how long a response is kept for repeated requests


class Writes:
    """The writes of one node. Runs that a batch says are ours become runs of `node` in its incarnation `epoch`."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str], node: str, epoch: int) -> None:
        self._write, self._sql, self._node = db, sql, node
        self._owner: tuple[str, int] = (node, epoch)
        self._writer = (
            db.cursor()
        )  # of every commit: one for each statement costs as much as a short statement
        self._tallies = Tallies(db.cursor(), sql)
        self._many = {name: _many_rows(sql[name]) for name in MANY_ROWS}
        doomed = [name for name in sql if name.startswith("forget_run_")]
        doomed.sort(key=lambda name: name == "forget_run_row")  # last: the other statements still need its id
        self._forget = [sql[name] for name in doomed]
        self._put_own: dict[str, Callable[[Batch], None]] = {
            "published": self._publish,
            "keys": self._settle_keys,
            "replies": self._put_replies,
            "run_replies": self._put_run_replies,
            "forgotten": self._forget_all,
            "forgotten_schedules": self._forget_schedules,
            "firings": self._put_firings,
            "schedule_ends": self._note_ends,
            "added_up_pulse": self._add_up_pulse,
            "posted_mail": self._post_mail,
        }

    def put(self, batch: Batch) -> int:
        """Write a batch within a transaction. Returns the number of its last row of a journal; 0 if it has none."""
        self._put_many("append", batch.rows)
        pos = self._write.last_insert_rowid() if batch.rows else 0
        if batch.new_runs or batch.changes:
            self._put_runs(batch)
        if batch.has_rest:
            self._put_rest(batch)
        return pos

    def forget(self) -> None:
        """The transaction was taken back: what is remembered of its counts is wrong."""
        self._tallies.forget()

    def fenced(self, error: BaseException, batch: Batch) -> Fenced | None:
        """The runs and firings for which another process was first, if that is what an error means."""
        if isinstance(error, LostFirings):
            return Fenced([], Firings(self._writer, self._sql, self._put_many).lost(batch.firings))
        taken = self._taken(batch) if isinstance(error, apsw.ConstraintError) else []
        return Fenced(taken) if taken else None

    def _put_many(self, name: str, rows: list[Any]) -> None:
        """Write rows in as few statements as there are powers of two in their number: each text is prepared once, and
        the thread gives the interpreter up once per statement, not once per row."""
        many, execute, start = self._many[name], self._writer.execute, 0
        if len(rows) == 1:
            execute(many[1], rows[0])
            return
        while start < len(rows):
            size = min(1 << ((len(rows) - start).bit_length() - 1), ROWS_PER_STATEMENT_MAX)
            execute(many[size], reduce(iconcat, rows[start : start + size], []))
            start += size

    def _put_runs(self, batch: Batch) -> None:
        new, changes = batch.new_runs, batch.changes
        moved, beats = self._tallies.before(batch)
        if new:
            self._put_many("add_run", [self._added(run, changes[no]) for no, run in new.items()])
            self._tallies.label(new.values())
        if len(changes) > len(new):
            known = [self._changed(no, change) for no, change in changes.items() if no not in new]
            self._put_many("change_run", known)
        self._tallies.add(moved, beats)

    def _added(self, new: NewRun, change: RunChange) -> tuple[Any, ...]:
        owner, owner_epoch = self._owner if change.owned else NO_OWNER
        return (
            new.no, new.tenant, new.id, new.version,
            change.status, owner, owner_epoch, change.epoch, change.wake_at, change.needs,
            new.on_restart, new.labels, new.created_at, change.finished_at,
            new.parent_job_id, new.rerun_of, new.series, new.schedule, new.slot, new.is_catchup,
        )  # fmt: skip

    def _changed(self, no: RunNo, change: RunChange) -> tuple[Any, ...]:
        owner = self._owner if change.owned else NO_OWNER
        return (no, change.status, *owner, change.epoch, change.wake_at, change.needs, change.finished_at)

    def _put_rest(self, batch: Batch) -> None:
        """What few commits have, field by field."""
        for field in batch.fields():
            rows = getattr(batch, field.name)
            if (put := self._put_own.get(field.name)) is not None:
                put(batch)
            else:
                values = list(map(field.values, rows)) if field.values else rows
                execute_all(self._writer, self._sql[field.statement], values)
        if batch.isolated is not None:
            self._write.execute(self._sql["set_lane"], (batch.isolated or None, self._node))
        if batch.fatal_runs is not None:
            self._write.execute(self._sql["set_deaths"], (batch.fatal_runs,))
        if batch.awake_at is not None:
            self._write.execute(self._sql["set_awake"], (batch.awake_at,))
        if batch.outages is not None:
            self._write.execute(self._sql["set_outages"], (batch.outages,))
        if batch.is_probe:
            size = min(max(batch.probe_bytes, PROBE_BYTES_MIN), PROBE_BYTES_MAX)
            self._write.execute(self._sql["probe"], (size,))

    def _publish(self, batch: Batch) -> None:
        for publication in batch.published:
            self._publish_one(publication)

    def _publish_one(self, publication: Publication) -> None:
        release = publication.release
        named: dict[str, Any] = {
            "tenant": publication.tenant,
            "name": release.name,
            "number": release.number,
            "version": release.version,
        }
        at = {"at": release.created_at}
        self._write.execute(
            self._sql["add_release"], named | at | {"id": release.id, "status": release.status}
        )
        if publication.description is not None:
            described = (publication.tenant, release.name, publication.description)
            self._write.execute(self._sql["describe_workflow"], described)
        if publication.is_current:
            self._write.execute(self._sql["make_current"], named | {"at": publication.at})

    def _put_replies(self, batch: Batch) -> None:
        self._keep_replies(batch.replies)

    def _put_run_replies(self, batch: Batch) -> None:
        self._keep_replies([row for _, row in batch.run_replies])

    def _keep_replies(self, rows: list[ReplyRow]) -> None:
        self._write.execute(self._sql["forget_replies"], (rows[-1].created_at - REPLY_MS,))
        execute_all(self._writer, self._sql["put_reply"], list(map(msgspec.structs.astuple, rows)))

    def _forget_all(self, batch: Batch) -> None:
        self._forget_runs(batch.forgotten)

    def _forget_runs(self, runs: Sequence[RunNo]) -> None:
        self._tallies.without(runs)
        for no in runs:
            for statement in self._forget:
                self._write.execute(statement, (no,))

    def _forget_schedules(self, batch: Batch) -> None:
        for name in ("forget_schedule", "forget_cursors", "forget_buffered"):
            self._writer.executemany(self._sql[name], batch.forgotten_schedules)

    def _add_up_pulse(self, batch: Batch) -> None:
        for name in ("add_up_pulse", "forget_added_up_pulse"):
            self._writer.executemany(self._sql[name], batch.added_up_pulse)

    def _settle_keys(self, batch: Batch) -> None:
        Keys(self._write, self._sql).settle(batch)

    def _post_mail(self, batch: Batch) -> None:
        execute_all(self._writer, self._sql["post_mail"], batch.posted_mail)
        self._writer.executemany(
            self._sql["wake_for_mail"], [(mail.at, mail.no) for mail in batch.posted_mail]
        )

    def _put_firings(self, batch: Batch) -> None:
        Firings(self._writer, self._sql, self._put_many).put(batch.firings)

    def _note_ends(self, batch: Batch) -> None:
        """In their order. Runs that have not failed share a statement: `executemany` uses up a place in the cache of prepared
        statements for each row, so that a hundred rows would drop nearly all others."""
        for has_failed, ends in groupby(batch.schedule_ends, lambda end: end.error is not None):
            if has_failed:
                self._writer.executemany(self._sql["note_end"], [end[1:] for end in ends])
            else:
                self._put_many("clear_failures", [end[1:4] for end in ends])

    def _taken(self, batch: Batch) -> list[RunNo]:
        runs: dict[int, None] = {}
        for run, seq, *_ in batch.rows:
            if next(iter(self._write.execute(self._sql["rows_of"], (run, seq - 1, 1))), (0,))[0] == seq:
                runs[run] = None
        return [RunNo(run) for run in runs]


def _many_rows(statement: str) -> dict[int, str]:
    """A statement that takes one row of values, made to take 1, 2, 4 … of them."""
    head, row, tail = re.split(r"(?<=VALUES )(\([?, ]+\))", statement, maxsplit=1)
    row = row.replace(" ", "")  # the driver hashes the text on each use
    sizes = [1 << power for power in range(ROWS_PER_STATEMENT_MAX.bit_length())]
    return {size: head + ",".join([row] * size) + tail for size in sizes} | {1: _of_one(statement)}


def _of_one(statement: str) -> str:
    """An update from a table of values, made to take one row: SQLite would make two temporary tables for it."""
    return re.sub(r"\bb\.column(\d+)", r"?\1", re.sub(r"\s+FROM \(VALUES .*\) AS b\b", "", statement))
