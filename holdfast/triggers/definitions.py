"""The definitions of schedules: create or replace one or a whole set, delete.

A command holds the same lock as automatic fires, and is durable when it returns. An edit keeps the cursor;
schedule/control.py computes the new one. The caller checks permissions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast import limits
from holdfast.errors import InvalidSpec, LimitExceeded, ManagedByFile, NotFound, Problem
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.schedule import control
from holdfast.schedule.due import EXAMINED_MAX, due
from holdfast.schedule.records import Cursor, Reason, Running, Skipped
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import WebhookTrigger
from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.schedule_records import Firing, Origin, ScheduleRow, ScheduleState
from holdfast.triggers.deciding import Decided, Deciding
from holdfast.triggers.rows import Key, asked_at, cursor_of, cursor_row, entry_of_stretch, key_of
from holdfast.triggers.starting import Known, known
from holdfast.values import Millis
from holdfast.views.schedules import is_time, unreadable, unreadable_state

PAGE: Final = 1_000
TRIES_MAX: Final = 10  # if another process changes a schedule meanwhile
# Of the timings that a schedule had before edits and owes occurrences of: they are part of its cursor, which each fire writes.
EARLIER_BYTES_MAX: Final = 512 * 1024
PRIORITY: Final = 1_000


class Declared(NamedTuple):
    """A schedule to store. `source` is where it was read from: a file or a plugin."""

    spec: ScheduleSpec
    source: str = ""
    priority: int = PRIORITY


class Plan(NamedTuple):
    """What storing a set of schedules changes, by their ids."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"+{len(self.added)} ~{len(self.changed)} -{len(self.removed)}"


class Watcher(Protocol):
    """Is notified of created and deleted schedules: for trigger kinds that need a path, a folder or a task per schedule."""

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None: ...
    def remove(self, tenant: str, schedule_id: str) -> None: ...


class Definitions:
    def __init__(self, store: Store, clock: Clock, committer: Committer, fires: Deciding) -> None:
        self._store, self._clock, self._committer = store, clock, committer
        self._fires = fires
        self.watchers: list[Watcher] = []

    # ---------------------------------------------------------------------------------------------- definitions

    async def put(
        self,
        tenant: str,
        spec: ScheduleSpec,
        *,
        origin: Origin = "api",
        source: str = "",
        priority: int = PRIORITY,
    ) -> bool:
        """Create a schedule, or replace one of the same origin; an edit keeps its progress. Returns whether it is
        new."""
        declared = Declared(spec, source, priority)
        async with self._fires.command():
            row = await self._store.schedule(tenant, spec.id)
            state = (await self._states(tenant, [spec.id])).get(spec.id)
            is_new = state is not None and (self._is_elsewhere(state) or unreadable_state(state) != "")
            if is_new or row != self._row(tenant, declared, origin, row):
                await self._apply(tenant, origin, [declared], [])
        return row is None

    async def delete(self, tenant: str, schedule_id: str, *, origin: Origin = "api") -> None:
        """Delete a schedule. Its ledger is kept, and records the occurrences that will not fire any more."""
        async with self._fires.command():
            row = await self.found(tenant, schedule_id)
            if row.origin != origin:
                raise ManagedByFile(row.id, row.origin, row.source)
            await self._apply(tenant, origin, [], [schedule_id])

    async def plan(self, tenant: str, origin: Origin, source: str, declared: Sequence[Declared]) -> Plan:
        """What `swap` would do."""
        known_rows = {row.id: row async for row in self._of_set(tenant, origin, source)}
        wanted = {
            one.spec.id: self._row(tenant, one, origin, known_rows.get(one.spec.id)) for one in declared
        }
        return Plan(
            tuple(name for name in wanted if name not in known_rows),
            tuple(name for name, row in wanted.items() if name in known_rows and known_rows[name] != row),
            tuple(name for name in known_rows if name not in wanted),
            tuple(name for name, row in wanted.items() if known_rows.get(name) == row),
        )

    async def swap(self, tenant: str, origin: Origin, source: str, declared: Sequence[Declared]) -> Plan:
        """Make the stored schedules of an origin and `source` equal to a declared set, in one commit.

        Raises ManagedByFile or InvalidSpec, and changes nothing, if one of them has the id or the path of another
        schedule.
        """
        async with self._fires.command():
            plan = await self.plan(tenant, origin, source, declared)
            changing = {*plan.added, *plan.changed, *await self._not_here(tenant, declared)}
            await self._apply(
                tenant, origin, [one for one in declared if one.spec.id in changing], plan.removed
            )
        return plan

    async def _not_here(self, tenant: str, declared: Sequence[Declared]) -> list[str]:
        """Schedules that each node fires for itself, and that this one has not been given yet."""
        local = [one.spec.id for one in declared if one.spec.locking == "node_local"]
        return [
            name for name, state in (await self._states(tenant, local)).items() if self._is_elsewhere(state)
        ]

    def _is_elsewhere(self, state: ScheduleState) -> bool:
        """Is it decided by another node only?"""
        return state.cursor.slot not in self._store.slots

    async def _of_set(self, tenant: str, origin: Origin, source: str) -> AsyncIterator[ScheduleRow]:
        after = ""
        while rows := await self._store.schedules(tenant, after, PAGE, origin):
            for row in rows:
                if row.source == source or row.source.startswith(f"{source.rstrip('/')}/"):
                    yield row
            after = rows[-1].id

    async def _apply(
        self, tenant: str, origin: Origin, declared: Sequence[Declared], removed: Sequence[str]
    ) -> None:
        """Store definitions with their cursors, and delete removed schedules, in one commit."""
        if not declared and not removed:
            return
        await self._check_paths(tenant, declared, removed)
        for _ in range(TRIES_MAX):
            batch = Batch()
            states = await self._states(tenant, [*(one.spec.id for one in declared), *removed])
            await self._check_count(tenant, sum(one.spec.id not in states for one in declared) - len(removed))
            for one in declared:
                await self._put_into(batch, tenant, origin, one, states.get(one.spec.id))
            for schedule_id in removed:
                if (state := states.get(schedule_id)) is not None:
                    await self._remove_into(batch, state)
            if await self._is_committed(batch):
                return self._notify(tenant, origin, declared, removed)
        raise RuntimeError(f"another process keeps changing the schedules of tenant {tenant}")

    async def _check_count(self, tenant: str, more: int) -> None:
        most = limits.now.schedules_max
        if more > 0 and await self._store.count_schedules(tenant) + more > most:
            raise LimitExceeded("schedules_max", f"a tenant may have {most:,} schedules")

    def _notify(
        self, tenant: str, origin: Origin, declared: Sequence[Declared], removed: Sequence[str]
    ) -> None:
        named = {*removed, *(one.spec.id for one in declared)}
        for key in [key for key in self._fires.broken if key[0] == tenant and key[1] in named]:
            del self._fires.broken[key]
        for watcher in self.watchers:
            for schedule_id in removed:
                watcher.remove(tenant, schedule_id)
            for one in declared:
                watcher.put(tenant, one.spec, origin)
        self._fires.query()

    async def _put_into(
        self, batch: Batch, tenant: str, origin: Origin, declared: Declared, state: ScheduleState | None
    ) -> None:
        if state is not None and state.schedule.origin != origin:
            raise ManagedByFile(state.schedule.id, state.schedule.origin, state.schedule.source)
        if state is not None and self._is_elsewhere(state):
            state = None  # it is decided elsewhere, and has not been here yet
        row = self._row(tenant, declared, origin, None if state is None else state.schedule)
        key = self._key(tenant, declared.spec)
        new = known(row.body)
        # another slot: nothing of the old one counts there
        if state is not None and key_of(state.cursor) != key:
            await self._remove_into(batch, state)
            state = None
        batch.schedules.append(row)
        if state is None:
            batch.firings.append(self._first(key, new))
        elif unreadable_state(state):
            batch.firings.append(self._first(key, new, state.cursor.revision))
        else:
            batch.firings.append(await self._replaced(state, new))

    def _first(self, key: Key, new: Known, revision: int | None = None) -> Firing:
        """The cursor of a new schedule, or the replacement of a damaged cursor with this revision."""
        now = self._clock.now()
        cursor = control.registered(now)
        next_at = None if new.clock is None else due(new.clock, cursor, Running(), now).next_at
        if revision is None:
            return Firing(cursor=cursor_row(key, cursor, next_at))
        cursor = msgspec.structs.replace(cursor, revision=revision + 1)
        return Firing((), cursor_row(key, cursor, next_at), revision)

    async def _replaced(self, state: ScheduleState, new: Known) -> Firing:
        """The cursor of a schedule under a new definition. Occurrences that are due under the old one fire first."""
        old, now = known(state.schedule.body), await self._fires.begin()
        while old.clock is not None and new.clock is not None:
            running = self._fires.running(state)
            answer = control.replaced(
                old.clock, new.clock, cursor_of(state), running, now, 1, outages=self._fires.outages.stretches
            )
            if not answer.fires and not answer.is_cut:
                _check_earlier(new, answer.cursor)
                next_at = asked_at(state, now)
                decided = Decided(
                    key_of(state.cursor), state, old, msgspec.structs.replace(answer, next_at=next_at), now
                )
                return decided.firing()
            await self._fires.carry_out([Decided(key_of(state.cursor), state, old, answer, now)])
            state = (await self._states(state.schedule.tenant, [state.schedule.id]))[state.schedule.id]
        return await self._of_other_kind(state, old, new, now)

    async def _of_other_kind(self, state: ScheduleState, old: Known, new: Known, now: Millis) -> Firing:
        """The cursor of a schedule that had no clock before, or has none from now on."""
        cursor = cursor_of(state)
        rows: tuple[Skipped, ...] = ()
        if old.clock is not None:
            cursor, rows = await self._discarded(old, cursor, "superseded")
        moved = msgspec.structs.replace(cursor, at=max(cursor.at, now), revision=state.cursor.revision + 1)
        key = key_of(state.cursor)
        entries = tuple(entry_of_stretch(key, row, now) for row in rows)
        return Firing(
            entries, cursor_row(key, moved, None if new.clock is None else now), state.cursor.revision
        )

    async def _remove_into(self, batch: Batch, state: ScheduleState) -> None:
        key = key_of(state.cursor)
        if unreadable_state(state):
            return batch.forgotten_schedules.append(key[:2])
        old, now = known(state.schedule.body), self._clock.now()
        if old.clock is not None:
            _, rows = await self._discarded(old, cursor_of(state), "deleted")
            if rows:
                batch.firings.append(Firing(tuple(entry_of_stretch(key, row, now) for row in rows)))
        return batch.forgotten_schedules.append(key[:2])

    async def _discarded(
        self, old: Known, cursor: Cursor, reason: Reason
    ) -> tuple[Cursor, tuple[Skipped, ...]]:
        """A cursor without pending occurrences, and the ledger rows for those it had. There may be a million of them,
        so they are written in parts."""
        assert old.clock is not None
        rows: list[Skipped] = []
        while cursor.owes:
            cursor, row = control.discarded(old.clock, cursor, reason, EXAMINED_MAX)
            if row is not None:
                rows.append(row)
            await asyncio.sleep(0)
        return cursor, tuple(rows)

    async def _check_paths(self, tenant: str, declared: Sequence[Declared], removed: Sequence[str]) -> None:
        """Refuse a webhook path that another schedule has, of any tenant: a path belongs to the server."""
        paths = {
            one.spec.trigger.path: one for one in declared if isinstance(one.spec.trigger, WebhookTrigger)
        }
        ours = {one.spec.id for one in declared} | {*removed}
        after, problems = ("", ""), []
        while paths and (rows := await self._store.schedules_of_kind("webhook", after, PAGE)):
            for row in rows:
                if unreadable(row.body, None):
                    continue  # it serves no path
                trigger = known(row.body).spec.trigger
                if (row.tenant == tenant and row.id in ours) or not isinstance(trigger, WebhookTrigger):
                    continue
                if (one := paths.get(trigger.path)) is not None:
                    other = f"schedule {row.id!r}" if row.tenant == tenant else "another tenant"
                    message = f"schedule {one.spec.id!r}: the path {trigger.path} belongs to {other}"
                    problems.append(
                        Problem("duplicate_path", message, hint="choose another path", source=one.source)
                    )
            after = rows[-1].tenant, rows[-1].id
        if problems:
            raise InvalidSpec(problems)

    # -------------------------------------------------------------------------------------------------- reading

    async def found(self, tenant: str, schedule_id: str) -> ScheduleRow:
        row = await self._store.schedule(tenant, schedule_id)
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id!r}; see holdfast schedules list")
        return row

    async def _states(self, tenant: str, ids: Sequence[str]) -> dict[str, ScheduleState]:
        found: dict[str, ScheduleState] = {}
        for start in range(0, len(ids), PAGE):
            asked = [(tenant, one) for one in ids[start : start + PAGE]]
            states = await self._store.schedule_states(asked, every_slot=True)
            states.sort(
                key=lambda state: state.cursor.slot in self._store.slots
            )  # of several slots, prefer one of this node
            found |= {state.schedule.id: state for state in states}
        return found

    def _row(
        self, tenant: str, declared: Declared, origin: Origin, before: ScheduleRow | None
    ) -> ScheduleRow:
        """The row of a schedule; the stored one if nothing changes."""
        spec, now = declared.spec, self._clock.now()
        row = ScheduleRow(
            tenant,
            spec.id,
            spec.trigger.kind,
            origin,
            declared.source,
            declared.priority,
            now,
            now,
            spec.canonical().decode(),
        )
        if before is None or not (is_time(before.created_at) and is_time(before.updated_at)):
            return row
        same = row._replace(created_at=before.created_at, updated_at=before.updated_at)
        return before if same == before else row._replace(created_at=before.created_at)

    def _key(self, tenant: str, spec: ScheduleSpec) -> Key:
        return tenant, spec.id, self._store.node if spec.locking == "node_local" else ""

    async def _is_committed(self, batch: Batch) -> bool:
        """Commit changes; False if another process has changed one of the schedules meanwhile."""
        if not batch.has_rest:
            return True
        try:
            await self._committer.commit(batch)
        except Fenced:
            return False
        return True


def _check_earlier(new: Known, cursor: Cursor) -> None:
    if len(msgspec.json.encode(cursor.earlier)) > EARLIER_BYTES_MAX:
        owes = f"schedule {new.spec.id!r} still owes occurrences of many earlier definitions"
        raise LimitExceeded("earlier_bytes", f"{owes}; wait until it has caught up, or delete it")
