"""Writing a batch, on PostgreSQL: one statement made of the parts in sql/commits.sql, so one round trip.

    WITH append AS (…), add_run AS (…), …, mine AS (…) SELECT 1 / count(*) FROM mine

The parts of one statement see the database as it was before it. What depends on another part of its batch (keys that pass from
step to step, a job that is assigned and ended by one commit) is written by statements of their own in one transaction instead.
Knows no rule of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.store.batch import FIELDS, Batch
from holdfast.store.ownership import Kept
from holdfast.store.postgres.asking import without_nul
from holdfast.store.postgres.keys import Keys
from holdfast.store.records import NewRun, ReplyRow, RunChange
from holdfast.store.schedule_records import Firing, LedgerKey
from holdfast.values import RunNo

CHANNEL: Final = "holdfast_mail"
PROBE_BYTES_MAX: Final = 1024 * 1024
REPLY_MS: Final = 24 * 3600 * 1000  # how long a response is kept for repeated requests

Key = Callable[[Any], Any]

# Statements that may write a row once: of two entries for one row, the last one counts, or the first.
LAST_COUNTS: Final[dict[str, Key]] = {
    "put_api_key": itemgetter(0, 1),
    "put_reply": itemgetter(0, 1, 2),
    "put_worker": itemgetter(0, 1),
    "hear_worker": itemgetter(0, 1),
    "put_assignment": itemgetter(0, 1, 2),
    "put_snapshot": itemgetter(0, 1),
    "put_board": itemgetter(0, 1),
    "put_schedule": itemgetter(0, 1),
    "put_source": itemgetter(1, 2),
}
FIRST_COUNTS: Final[dict[str, Key]] = {
    "close_wait": itemgetter(2, 3, 4, 5),
    "callback_delivery_tried": itemgetter(5),
}
# Fields of one batch that may name the same row, with what names it in each. The first is written before the second.
SAME_ROWS: Final[Sequence[tuple[str, Key, str, Key]]] = (
    ("versions", lambda row: (row.tenant, row.hash), "sources", itemgetter(1, 2)),
    ("assignments", lambda row: (row.no, row.path, row.attempt), "ended_assignments", tuple),
    ("workers", lambda row: (row.tenant, row.id), "forgotten_workers", tuple),
    ("workers", lambda row: (row.tenant, row.id), "heard_workers", itemgetter(0, 1)),
    ("heard_workers", itemgetter(0, 1), "forgotten_workers", tuple),
    ("opened_waits", itemgetter(3, 4, 5, 1), "closed_waits", itemgetter(2, 3, 4, 5)),
    ("early_results", itemgetter(0, 1, 2), "taken_early", itemgetter(0, 1, 2)),
    ("expired_early", lambda row: None, "early_results", lambda row: None),
    ("schedule_ends", itemgetter(1, 2, 3), "cleared_failures", tuple),
    ("firings", lambda one: one.cursor and one.cursor[:3], "schedule_ends", itemgetter(1, 2, 3)),
    ("posted_mail", itemgetter(0, 1), "read_mail", tuple),
)
# Fields whose statements depend on each other's results.
IN_TURN: Final = frozenset({"published", "keys", "forgotten", "forgotten_schedules"})
# Fields that change what other nodes keep in memory. Keys: only new and revoked ones, not each use.
KEPT: Final[dict[str, Kept]] = {
    "forgotten_schedules": "schedules",
    "forgotten_workers": "workers",
    "schedules": "schedules",
    "workers": "workers",
}
CHECKED: Final = ("move_cursor", "add_cursor", "take_buffered", "add_entry")
UNIONS: Final = {"moved": "series, status, n", "beats": "series, minute, beat"}  # with their columns
FORGET: Final = "forget_runs_"


class Part(NamedTuple):
    """One statement with its values."""

    name: str
    args: tuple[Any, ...]


class Composed(NamedTuple):
    text: str
    args: list[Any]


class Writes:
    """The writes of one node. Runs that a batch says are ours become runs of `node` in its incarnation `epoch`."""

    def __init__(self, sql: dict[str, str], node: str, epoch: int) -> None:
        self._sql, self._node = sql, node
        self._owner: tuple[str, int] = (node, epoch)
        self.without_nul = False
        self._texts: dict[tuple[tuple[str, int], ...], str] = {}

    def is_in_turn(self, batch: Batch) -> bool:
        """Must parts of this batch be written one after the other?"""
        fields = batch.__dict__
        if any(fields.get(name) for name in IN_TURN) or any(one.takes for one in fields.get("firings", ())):
            return True
        if any(mail.no in batch.changes for mail in fields.get("posted_mail", ())):
            return True
        return any(
            not set(map(key, fields[first])).isdisjoint(map(other_key, fields[second]))
            for first, key, second, other_key in SAME_ROWS
            if fields.get(first) and fields.get(second)
        )

    def composed(self, batch: Batch, commit: int) -> Composed:
        """The whole batch as one statement."""
        parts = [*self._of_runs(batch), *self._of_rest(batch), *self._changes(batch)]
        return self._compose([*parts, self._mine(batch, commit)])

    async def in_turn(self, db: Any, batch: Batch, commit: int) -> None:
        """Write the batch within the transaction of a connection."""
        await self._execute(db, [*self._of_runs(batch), self._mine(batch, commit)])
        for field in batch.fields():
            if field.name == "keys":
                await Keys(db, self._sql, self._owner[1]).settle(batch)
            elif field.name == "published":
                await self._publish(db, batch)
            elif field.name == "forgotten":
                await self._forget(db, batch.forgotten)
            elif field.name == "forgotten_schedules":
                for name in ("forget_schedules", "forget_cursors", "forget_buffered"):
                    await self._execute(db, [Part(name, _columns(batch.forgotten_schedules))])
            elif field.name == "firings":
                for part in _firing_parts(batch.firings):
                    await self._execute(db, [part])
            elif parts := self._of_field(batch, field.name):
                await self._execute(db, parts)
        if meta := _meta_of(batch):
            await self._execute(db, [meta])
        if changes := self._changes(batch):
            await self._execute(db, changes)

    async def _execute(self, db: Any, parts: list[Part]) -> None:
        text, args = self._compose(parts)
        await db.fetch(text, *args)

    # ------------------------------------------------------------------------------------------- the parts

    def _mine(self, batch: Batch, commit: int) -> Part:
        lane = batch.isolated
        return Part("mine", (self._owner[1], commit, lane is not None, lane or None))

    def _of_runs(self, batch: Batch) -> list[Part]:
        parts: list[Part] = []
        if batch.rows:
            parts.append(Part("append", _columns(batch.rows)))
        new, changes = batch.new_runs, batch.changes
        if not changes:
            return parts
        counted, beats = list[str](), list[str]()
        if new:
            added = [self._added(run, changes[no]) for no, run in new.items()]
            parts.append(Part("add_run", _columns(added)))
            counted.append("count_new")
            beats.append("beats_of_new")
        if len(changes) > len(new):
            read = _read_of(batch)
            changed = [
                self._changed(no, changes[no], read.get(no, 0)) for no in sorted(changes) if no not in new
            ]
            parts.append(Part("change_run", _columns(changed)))
            counted.append("count_changed")
            if any(change.finished_at is not None for change in changes.values()):
                beats.append("beats_of_changed")
        parts += [Part(f"moved:{'+'.join(counted)}", ()), Part("add_to_tally", (self._node,))]
        if beats:
            parts += [Part(f"beats:{'+'.join(beats)}", ()), Part("add_to_pulse", (self._node,))]
        if labels := [label for run in new.values() if run.labels is not None for label in _labels_of(run)]:
            parts.append(Part("add_label", _columns(labels)))
        return parts

    def _added(self, new: NewRun, change: RunChange) -> tuple[Any, ...]:
        return (
            *(new.no, new.tenant, new.id, new.version, change.status),
            *(self._owner if change.owned else (None, None)),
            *(change.epoch, change.wake_at, change.needs, new.on_restart, new.labels, new.created_at),
            *(change.finished_at, new.parent_job_id, new.rerun_of, new.series),
            *(new.schedule, new.slot, new.is_catchup),
        )

    def _changed(self, no: RunNo, change: RunChange, read: int) -> tuple[Any, ...]:
        owner = self._owner if change.owned else (None, None)
        return (
            no,
            change.status,
            *owner,
            change.epoch,
            change.wake_at,
            change.needs,
            change.finished_at,
            read,
        )

    def _of_rest(self, batch: Batch) -> list[Part]:
        if not batch.has_rest:
            return []
        parts = [part for field in batch.fields() for part in self._of_field(batch, field.name)]
        meta = _meta_of(batch)
        return parts if meta is None else [*parts, meta]

    def _changes(self, batch: Batch) -> list[Part]:
        """Count what other nodes keep in memory and the batch changes."""
        kinds: set[Kept] = {kind for name, kind in KEPT.items() if batch.__dict__.get(name)}
        if any(
            row.last_used_at is None or row.revoked_at is not None
            for row in batch.__dict__.get("api_keys", ())
        ):
            kinds.add("keys")
        if any(change.needs is not None and not change.owned for change in batch.changes.values()):
            kinds.add("needs")  # another node may have the tool
        return [Part("count_changes", (sorted(kinds),))] if kinds else []

    def _of_field(self, batch: Batch, name: str) -> list[Part]:
        rows, field = getattr(batch, name), FIELDS[name]
        if name == "replies":
            return _reply_parts([*rows, *(row for _, row in batch.__dict__.get("run_replies", ()))])
        if name == "run_replies":
            return [] if batch.__dict__.get("replies") else _reply_parts([row for _, row in rows])
        if name == "firings":
            return _firing_parts(rows)
        if name == "posted_mail":
            return [Part("post_mail", _columns(rows)), Part("wake_for_mail", ())]
        if name == "ended_assignments":
            return [Part("end_assignment", (*_columns(rows), self._owner[1]))]
        if name == "added_up_pulse":
            return [Part("added_up_pulse", _columns(rows)), Part("add_up_pulse", (self._node,))]
        if name == "read_mail":
            read = {no: count for no, count in _read_of(batch).items() if no not in batch.changes}
            counted = Part("count_read", (list(read), list(read.values())))
            return [Part("drop_mail", _columns(rows)), counted]
        rows = list(map(field.values, rows)) if field.values else rows
        return [Part(field.statement, _columns(_once(field.statement, rows)))]

    def _compose(self, parts: list[Part]) -> Composed:
        checks = [(part.name, len(part.args[0])) for part in parts if part.name in CHECKED]
        names = tuple((part.name, len(part.args)) for part in parts)
        text = self._texts.get(names)
        if text is None:
            text = self._texts[names] = self._text(names)
        args = [*chain.from_iterable(part.args for part in parts), *(n for _, n in checks)]
        return Composed(text, without_nul(args) if self.without_nul else args)

    def _text(self, names: tuple[tuple[str, int], ...]) -> str:
        """The last column of the answer is what a commit of this node must be; the others, how many firings must have counted."""
        parts, checks, used = [], [], 0
        for name, args in names:
            table, _, unions = name.partition(":")
            if unions:
                counts = " UNION ALL ".join(self._sql[each] for each in unions.split("+"))
                parts.append(f"{table}({UNIONS[table]}) AS ({counts})")
                continue
            parts.append(f"{name} AS ({_shifted(self._sql[name], used)})")
            used += args
        counted = [name for name, _ in names if name in CHECKED]
        for place, name in enumerate(counted, start=used + 1):
            checks.append(f"1 / ((SELECT count(*) FROM {name}) = ${place}::bigint)::int")
        if "wake_for_mail" in dict(names):  # a hint to the owner; 0 if any node may take the run up
            checks.append(f"(SELECT count(pg_notify('{CHANNEL}', epoch::text)) FROM wake_for_mail)")
        if "put_assignment" in dict(names):
            checks.append(f"(SELECT count(pg_notify('{CHANNEL}', 'offers')) FROM put_assignment)")
        if "count_changes" in dict(names):
            checks.append(f"(SELECT count(pg_notify('{CHANNEL}', '0')) FROM count_changes)")
        if names[-1][0] == "mine":
            checks.append("1 / (SELECT count(*) FROM mine)")
        return f"WITH {', '.join(parts)} SELECT {', '.join(checks) or '1'}"

    async def _publish(self, db: Any, batch: Batch) -> None:
        for tenant, release, is_current, at, description in map(msgspec.structs.astuple, batch.published):
            named = (tenant, release.name, release.number)
            rest = (release.id, release.version, release.status, release.created_at)
            await db.fetch(self._sql["add_release"], *named, *rest)
            if description is not None:
                await db.fetch(self._sql["describe_workflow"], tenant, release.name, description)
            if is_current:
                await db.fetch(self._sql["make_current"], *named, release.version, at)

    async def _forget(self, db: Any, runs: list[RunNo]) -> None:
        await db.fetch(self._sql["count_forgotten"], runs, self._node)
        doomed = sorted((name for name in self._sql if name.startswith(FORGET)), key=_run_last)
        for name in doomed:
            await db.fetch(self._sql[name], runs)


def _run_last(name: str) -> bool:
    return name == f"{FORGET}run"  # the other statements still need its id


def _columns(rows: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(zip(*rows, strict=True))


def _once(name: str, rows: list[Any]) -> list[Any]:
    if (key := LAST_COUNTS.get(name)) is not None:
        return list({key(row): row for row in rows}.values()) if len(rows) > 1 else rows
    if (key := FIRST_COUNTS.get(name)) is not None and len(rows) > 1:
        return list({key(row): row for row in reversed(rows)}.values())[::-1]
    return rows


def _shifted(text: str, by: int) -> str:
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + by}", text)


def _labels_of(new: NewRun) -> Iterable[tuple[str, str, str, RunNo]]:
    assert new.labels is not None
    labels = msgspec.json.decode(new.labels, type=dict[str, str])
    return [(new.tenant, name, value, new.no) for name, value in labels.items()]


def _read_of(batch: Batch) -> dict[RunNo, int]:
    """How many letters of each run the batch removes."""
    read: dict[RunNo, int] = {}
    for no, _ in batch.__dict__.get("read_mail", ()):
        read[no] = read.get(no, 0) + 1
    return read


def _reply_parts(rows: list[ReplyRow]) -> list[Part]:
    kept = _once("put_reply", list(map(msgspec.structs.astuple, rows)))
    return [Part("put_reply", _columns(kept)), Part("forget_replies", (rows[-1].created_at - REPLY_MS,))]


def _firing_parts(firings: Sequence[Firing]) -> list[Part]:
    moved = [(*one.cursor, one.seen) for one in firings if one.cursor and one.seen is not None]
    added = [one.cursor for one in firings if one.cursor and one.seen is None]
    taken = [one.takes for one in firings if one.takes]
    entries = [entry for one in firings for entry in one.entries]
    written: list[Sequence[Any]] = [moved, added, taken, entries]
    return [Part(name, _columns(rows)) for name, rows in zip(CHECKED, written, strict=True) if rows]


def _meta_of(batch: Batch) -> Part | None:
    """What is said of the database as a whole."""
    said: dict[str, bytes] = {}
    if batch.fatal_runs is not None:
        said["deaths"] = batch.fatal_runs.encode()
    if batch.awake_at is not None:
        said["awake_at"] = str(batch.awake_at).encode()
    if batch.outages is not None:
        said["outages"] = batch.outages.encode()
    if batch.is_probe:
        said["probe"] = bytes(min(batch.probe_bytes, PROBE_BYTES_MAX))
    return Part("set_meta", (list(said), list(said.values()))) if said else None


def lost_keys(one: Firing) -> set[tuple[str, ...]]:
    """The rows that a firing writes."""
    return {(*entry.key, "") for entry in one.entries} | ({one.cursor[:3]} if one.cursor else set())


async def lost_firings(db: Any, sql: dict[str, str], firings: Iterable[Firing]) -> list[Firing]:
    """Those that cannot be written, and of those that write the same all but the first."""
    written: set[tuple[str, ...]] = set()
    lost = []
    for one in firings:
        keys = lost_keys(one)
        if keys & written or not await _is_possible(db, sql, one):
            lost.append(one)
        else:
            written |= keys
    return lost


async def _is_possible(db: Any, sql: dict[str, str], one: Firing) -> bool:
    async def outcome(key: LedgerKey) -> str | None:
        found: str | None = await db.fetchval(sql["outcome_of"], *key)
        return found

    if one.cursor is not None and await db.fetchval(sql["revision_of"], *one.cursor[:3]) != one.seen:
        return False
    if one.takes is not None and await outcome(one.takes) != "buffered":
        return False
    settled = [await outcome(entry.key) for entry in one.entries if entry.key != one.takes]
    return not any(found in ("fired", "buffered") for found in settled)
