"""Fires schedules: starts a run for a due occurrence, and commits the run, the cursor and the ledger row together.

Knows how runs are started and counted. deciding.py knows which schedules are due and which occurrences fire;
starting.py knows what an occurrence starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec

from holdfast.errors import HoldfastError, NodeIsOver, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.commits import FiringLost
from holdfast.runtime.committer import Committer
from holdfast.runtime.door import Door
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.starts import StartRun, Starts
from holdfast.schedule.due import jitter_ms
from holdfast.schedule.records import Cursor, Fire, Running
from holdfast.store.base import Store
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import Firing, ScheduleState
from holdfast.triggers.ahead import FIRES_MAX, PORTION, Basis, Portion, Portions, is_plain
from holdfast.triggers.deciding import Decided, Deciding, order_of
from holdfast.triggers.last_row import LastRow
from holdfast.triggers.rows import Key, entry, key_of
from holdfast.triggers.starting import Occasion, Target, Targets, detail_of, is_final, known, reason_of
from holdfast.values import Millis

log = logging.getLogger("holdfast")

Cancel = Callable[..., Awaitable[None]]


class Fires(Deciding):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        door: Door,
        starts: Starts,
        cancel: Cancel,
        *,
        manual_clock: bool = False,
    ) -> None:
        super().__init__(store, clock, committer, manual_clock=manual_clock)
        self._door, self._starts, self._cancel = door, starts, cancel
        self.targets = Targets(starts)
        self._ahead = Portions()
        self._newest: dict[Key, Millis] = {}  # when the last run of a schedule has started
        self.prepares = not door.shares_runs  # other nodes could change what the decisions depend on
        self._cancelling: dict[Key, asyncio.Task[None]] = {}
        self._ends: dict[
            Key, deque[LastRow]
        ] = {}  # of runs whose schedules owe occurrences, until these are decided
        self._following: dict[Key, asyncio.Task[None]] = {}
        if self.prepares:
            door.on_scheduled_end = self._ending

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*super()._tasks, *self._cancelling.values(), *self._following.values()]

    def run_ended(self, resident: ResidentRun) -> None:
        """A run of a schedule has ended, and its end is durable."""
        assert resident.schedule is not None
        key = (resident.run.tenant, resident.schedule, resident.slot)
        if not any(end.run.no == resident.run.no for end in self._ends.get(key, ())):
            self.ended(key)
        if resident.run.status != "completed":
            self.ask(key)  # the schedule may have to pause after too many failures

    def running(self, state: ScheduleState) -> Running:
        key = key_of(state.cursor)
        return Running(state.open, state.catchups, self.run_counts[key], self._newest.get(key))

    async def _start_all(self, decisions: list[Decided]) -> list[Firing]:
        """Start the runs of decisions; returns the decisions whose run could not be started."""
        fires = [(one, *await self._target(one)) for one in decisions]
        orders = [
            self._order(one, occasion, target)
            for one, occasion, target in fires
            if not isinstance(target, Exception)
        ]
        failed = iter(await self._starts.start_all(orders))
        return await self._outcomes(
            (one, occasion, target if isinstance(target, Exception) else next(failed))
            for one, occasion, target in fires
        )

    async def _outcomes(self, fires: Iterable[tuple[Decided, Occasion, Exception | None]]) -> list[Firing]:
        """Note which runs have started; returns the decisions whose run could not be started."""
        refused: list[Firing] = []
        undecided: list[Exception] = []
        for one, occasion, error in fires:
            if error is None:
                self._started(one)
            elif isinstance(error, FiringLost):
                refused += await self._lost(one)
            elif is_final(error):
                refused.append(self._refused(one, occasion, error))
            else:
                undecided.append(error)
        if undecided:
            raise undecided[0]
        return refused

    # ------------------------------------------------------------------------------------ one run after another

    def _ending(self, resident: ResidentRun) -> None:
        """The commit that is collected ends a run. If occurrences wait for that, the next one is to start in the same commit: then
        a long catch-up takes one commit for each instead of two."""
        assert resident.schedule is not None
        key = (resident.run.tenant, resident.schedule, resident.slot)
        if key not in self._owing or not self.is_open or self._is_held or self._is_closed:
            return
        if self.deciding.locked() and self._ends and key not in self._ends:
            return  # another schedule goes on, which waits for this very commit
        ends = self._ends.setdefault(key, deque())
        ends.append(LastRow(resident.run, self._door.commits))
        if len(ends) == 1:
            self._following[key] = asyncio.get_running_loop().create_task(self._follow(key, ends))

    async def _follow(self, key: Key, ends: deque[LastRow]) -> None:
        """Decide about a schedule at each end of a run, which may come before the one before is done with."""
        try:
            while ends:
                if not await self._goes_on(key, ends[0]):
                    self.ask(key)
                ends.popleft().release()
        except NodeIsOver:
            self._is_closed = True
        except Unavailable:
            self._query_later()
        finally:
            for end in ends:
                end.release()
            del self._ends[key], self._following[key]

    async def _goes_on(self, key: Key, end: LastRow) -> bool:
        """Start the next run of a schedule with the end of one; False if the schedule is to be asked once that is durable."""
        async with self.deciding:
            one = await self._decided_after(key, end)
            if one is None:
                return False
            await self.carry_out([one])
            if one.due.next_at is not None:
                self.timers.due_in_store(Millis(one.due.next_at))
        return one.known.run_limit == 1 and key not in self._wanted

    async def _decided_after(self, key: Key, end: LastRow) -> Decided | None:
        """The decision about a schedule once a run has ended whose end is not durable yet; None if it has to wait for that."""
        states = await self._store.schedule_states([key[:2]])
        state = next((one for one in states if key_of(one.cursor) == key), None)
        now = self.timers.check_clock()
        if state is None or not end.is_collected or self.outages.is_unstored:
            return None
        if known(state.schedule.body).spec.pause_after_failures:
            return None  # the commit counts the failures
        is_catchup = end.run.trigger is not None and end.run.trigger.is_catchup
        state = state._replace(open=state.open - 1, catchups=state.catchups - is_catchup)
        one = self.decide(state, now)
        return one if one is not None and len(one.due.fires) == 1 else None

    # ------------------------------------------------------------------------------------------ before they are due

    async def _prepare(self, at: Millis) -> None:
        changes = self._ahead.changes
        states = [
            state
            for state in await self._store.due_schedules(at, FIRES_MAX)
            if (key := key_of(state.cursor)) not in self._ahead and key not in self.broken
        ]
        states.sort(key=order_of)
        for start in range(0, len(states), PORTION):
            async with self.deciding:
                # what was asked for meanwhile comes first, and may have changed the schedules that were read
                if self._is_asked or self._wanted or self._is_closed or self._ahead.changes != changes:
                    return
                if not self._ahead.is_full:
                    await self._prepare_portion(states[start : start + PORTION], at)
            await asyncio.sleep(0)

    async def _prepare_portion(self, states: list[ScheduleState], at: Millis) -> None:
        basis = self._basis
        fires = []
        for state in states:
            may_pause = known(state.schedule.body).spec.pause_after_failures and state.cursor.failures
            one = None if may_pause else self.decide(state, at)
            if one is None or not is_plain(one):
                continue
            occasion, target = await self._target(one, at)
            if not isinstance(target, Exception):  # the ledger gets the error of another one when it is due
                fires.append((one, occasion, self._order(one, occasion, target)))
        if not fires:
            return
        try:
            starts = await self._starts.prepare([order for *_, order in fires], at)
        except Exception as error:  # noqa: BLE001  # the same error has its outcome when they are due
            log.debug("fires cannot be made ready: %s", error)
            return
        keys = frozenset(one.key for one, *_ in fires)
        self._ahead.add(Portion(at, keys, [(one, occasion) for one, occasion, _ in fires], starts, basis))

    async def _fire_ahead(self, now: Millis) -> None:
        async with self.deciding:
            portions = self._ahead.due(now, self._basis)
            count = sum(len(portion.fires) for portion in portions)
            if not portions or not self._starts.can_enter(count):
                return
            self._door.hold()
            try:
                await self._enter(portions)
            except BaseException:  # they are read again
                self._wanted.update(dict.fromkeys(key for portion in portions for key in portion.keys))
                raise
            finally:
                self._door.let_go()

    async def _enter(self, portions: list[Portion]) -> None:
        """Start the runs of portions: the next one fills a commit while the one before is being written."""
        before: Portion | None = None
        for portion in portions:
            self._starts.enter(portion.starts)
            if before is not None:
                await self._starts.settled(before.starts)
            await asyncio.sleep(0)  # its commit begins before the next portion is added
            before = portion
        refused: list[Firing] = []
        for portion in portions:
            errors = await self._starts.outcomes(portion.starts)
            await asyncio.sleep(0)  # the steps of the last portion begin before the fires of all are noted
            refused += await self._outcomes(
                (one, occasion, error) for (one, occasion), error in zip(portion.fires, errors, strict=True)
            )
        await self.commit(refused)
        for portion in portions:
            for one, _ in portion.fires:
                self._settled(one)

    @property
    def _basis(self) -> Basis:
        return Basis(self.outages.stretches, self._starts.names)

    def _changed(self, key: Key) -> None:
        self._ahead.drop(key)

    def _all_changed(self) -> None:
        self._ahead.drop_all()

    # --------------------------------------------------------------------------------------------------- starting

    async def _target(self, one: Decided, at: Millis | None = None) -> tuple[Occasion, Target | Exception]:
        (fire,) = one.due.fires
        occasion = self._occasion(one, fire, self._clock.now() if at is None else at)
        try:
            return occasion, await self.targets.of(occasion)
        except Exception as error:  # noqa: BLE001  # it is the outcome of this occurrence, or of all starts: see below
            return occasion, error

    def _started(self, one: Decided) -> None:
        """The run of an occurrence is durable."""
        self.run_counts[one.key] += 1
        (fire,), schedule = one.due.fires, one.known.clock
        if fire.is_catchup:  # what is due beside it is skipped at the limit, however late both are
            self._newest.pop(one.key, None)
        else:
            self._newest[one.key] = self._clock.now()
        self.tally.add(one.key[1], "fired", _reason(fire))
        if schedule is not None and not fire.is_catchup:
            self.tally.started_late(self._clock.now() - fire.at - jitter_ms(schedule, fire.at))

    def _order(self, one: Decided, occasion: Occasion, target: Target) -> StartRun:
        firing = partial(self._fired, one, occasion, target.warnings)
        return StartRun(
            definition=target.definition,
            inputs=target.inputs,
            tenant=occasion.tenant,
            number=target.number,
            trigger=occasion.by,
            slot=one.key[2],
            firing=firing,
        )

    def _fired(self, one: Decided, occasion: Occasion, warnings: tuple[str, ...], new: NewRun) -> Firing:
        (fire,), schedule = one.due.fires, one.known.clock
        late = ""
        if self._away is not None and schedule is not None and not fire.is_catchup:
            late = self.late_because(fire.at + jitter_ms(schedule, fire.at), new.created_at)
        detail = detail_of(warnings=warnings, shifted_from=occasion.by.shifted_from, late=late)
        if self._door.batch.awake_at != new.created_at:  # else the run before it has said so
            self._door.batch.awake_at = self.heartbeat(new.created_at)
        reason = _reason(fire)
        if (ends := self._ends.get(one.key)) is not None:
            ends[0].release()
        return one.firing(entry(one.key, occasion.by, "fired", reason, new.created_at, detail, new), run=new)

    async def _lost(self, one: Decided) -> list[Firing]:
        """Another process has decided about the schedule: ask again. Or the occurrence has a run already: go on to the next."""
        (state,) = await self._store.schedule_states([one.key[:2]]) or (None,)
        if state is None or state.cursor.revision != one.state.cursor.revision:
            self._wanted[one.key] = None
            return []
        log.warning("an occurrence of schedule %s has a run already", one.key[1])
        return [one.firing(cursor=_uncounted(one.due.cursor))]

    def _refused(self, one: Decided, occasion: Occasion, error: Exception) -> Firing:
        """The occurrence is decided, but its run could not be started."""
        log.warning("schedule %s could not start its run: %s", one.key[1], error)
        if not isinstance(error, HoldfastError):
            log.error("this is a bug, or a bug of a plugin", exc_info=error)
        self.tally.add(one.key[1], "failed", reason_of(error))
        row = entry(
            one.key, occasion.by, "failed", reason_of(error), occasion.at, detail_of(message=str(error))
        )
        return one.firing(row, cursor=_uncounted(one.due.cursor))

    def _make_room(self, key: Key) -> None:
        """Cancel the oldest open run."""
        if key not in self._cancelling:
            task = self._cancelling[key] = asyncio.get_running_loop().create_task(self._cancelled(key))
            task.add_done_callback(lambda done: self._cancelling.pop(key, None))

    async def _cancelled(self, key: Key) -> None:
        tenant, schedule_id, _ = key
        try:
            run_id = await self._store.oldest_run_of(*key)
            row = await self._store.run_by_id(tenant, run_id) if run_id is not None else None
            if row is not None and row.status != "cancelling":
                await self._cancel(row.id, f"schedule {schedule_id} has the next run", tenant=tenant)
        except Unavailable:
            self.ask(key)
        except HoldfastError as error:  # it has ended meanwhile
            log.info("a run of schedule %s was not cancelled: %s", schedule_id, error)


def _reason(fire: Fire) -> str:
    return "backfill" if fire.is_backfill else ""


def _uncounted(cursor: Cursor) -> Cursor:
    """The cursor of a decision whose run did not start."""
    return msgspec.structs.replace(cursor, total_run_count=cursor.total_run_count - 1)
