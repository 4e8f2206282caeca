"""Why a schedule did or did not fire, and what would keep it from firing.

    when ──┬── an id of the ledger (a delivery, a run, a file) ──► its row
           ├── a time that has passed ──► the row of that occurrence, or of the stretch that it was skipped in
           └── a time to come ──► whether it is due then, and what would stop it as things are now

The ledger is read once, along its unique key. Knows what each reason means in words; decides nothing.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.errors import InvalidInputs, NotFound
from holdfast.schedule.cron import Tick
from holdfast.schedule.due import jitter_ms
from holdfast.schedule.of_spec import NEVER_FIRES
from holdfast.schedule.owed import Grids
from holdfast.schedule.preview import local_text
from holdfast.schedule.records import Schedule
from holdfast.schedule.timing import Grid, grid_of
from holdfast.schedule.wall import DAY
from holdfast.schedule.zones import zone
from holdfast.spec.moments import parse_moment
from holdfast.store.base import Store
from holdfast.store.schedule_records import LedgerKey, LedgerRow
from holdfast.values import Millis, rfc3339
from holdfast.views.schedules import STALLED, ScheduleQueries, ScheduleStatus, ScheduleView, detail_of

Outcome = Literal[
    "fired", "skipped", "failed", "buffered", "waiting", "undecided", "will_fire", "will_not_fire", "not_due", "unknown"
]  # fmt: skip

# Every reason in a ledger row: what happened, and what to do about it.
REASONS: Final[dict[str, tuple[str, str]]] = {
    "overlap": (
        "as many runs of the schedule were open as max_concurrent allows",
        "raise max_concurrent, or choose another overlap, such as buffer_one",
    ),
    "superseded": (
        "a newer occurrence replaced it while it waited",
        "overlap: buffer_all keeps every occurrence",
    ),
    "missed": (
        "no engine was awake when it was due",
        "missed_run_policy: run_once or run_all catches up; holdfast schedules backfill starts it now",
    ),
    "max_catchup": (
        "more occurrences were missed than max_catchup allows to be caught up",
        "raise max_catchup, or start it with holdfast schedules backfill",
    ),
    "paused": (
        "the schedule was paused",
        "holdfast schedules resume --missed catches up; holdfast schedules backfill starts it now",
    ),
    "excluded": ("exclude leaves this time out", "change exclude, or its calendar"),
    "dst_gap": ("clocks went forward over this local time", "dst: {gap: run_after} fires right after the gap"),
    NEVER_FIRES: (
        "no date from now to the end of 2100 matches",
        "holdfast schedules next shows the times of an expression",
    ),
    "unknown_workflow": ("no workflow of this name was published", "publish it, then start the occurrence with backfill, or a delivery with redeliver"),
    "invalid_inputs": ("the inputs did not fit the workflow", "correct inputs of the schedule"),
    "unresolved_template": (
        "strict_templates is set, and a placeholder of inputs could not be filled in",
        "correct the placeholder, or the payload of the sender",
    ),
    "sink_failed": ("the sink did not accept it", "correct the sink; a webhook can be sent again"),
    "deleted": ("the schedule was deleted while the occurrence waited", ""),
}  # fmt: skip
BUFFERED: Final = {
    "": "waits until a run of the schedule ends",
    "delayed": "waits until its delay has passed",
    "handing_over": "is being handed to the sink",
}
LATE: Final = {"store_unavailable": ", because the database could not be written"}
DISABLED: Final = ("the schedule is disabled", "disabled", "write enabled: true")
SLOTS_MAX: Final = 1_000
ROWS_READ_MAX: Final = 500  # ledger rows read backwards from the requested time
TICKS_MAX: Final = 500


class Verdict(msgspec.Struct, frozen=True):
    """The past or expected outcome of one occurrence, or of a period of occurrences with the same reason."""

    outcome: Outcome
    message: str
    reason: str = ""
    hint: str = ""
    occurrence: str = ""
    at: Millis | None = None
    local: str = ""
    until: Millis | None = None
    count: int = 1
    run_id: str | None = None
    decided_at: Millis | None = None
    slot: str = ""  # the node, of a schedule that fires on each of them
    warnings: tuple[str, ...] = ()


class Why(msgspec.Struct, frozen=True):
    schedule: str
    status: ScheduleStatus | Literal["deleted"]  # only its ledger is left
    items: list[Verdict]


class WhyQueries:
    def __init__(self, store: Store, queries: ScheduleQueries) -> None:
        self._store, self._queries = store, queries

    async def why(self, tenant: str, schedule_id: str, when: str | None, limit: int) -> Why:
        """The outcomes of the last occurrences; with `when`, of one occurrence or of one day, past or future."""
        try:
            view = await self._queries.schedule(tenant, schedule_id)
        except NotFound:
            return await self._of_deleted(tenant, schedule_id, limit)
        if when is None:
            rows = await self._store.ledger(tenant, schedule_id, None, limit)
            items = [*_from_now_on(view), *(verdict(row, view) for row in rows)]
            return Why(schedule_id, view.status, items[:limit])
        slots = dict.fromkeys((*view.slots, *await self._store.ledger_slots(tenant, schedule_id, SLOTS_MAX)))
        exact = [
            verdict(row, view)
            for slot in slots
            if (row := await self._store.ledger_row(LedgerKey(tenant, schedule_id, slot, when)))
        ]
        if exact:
            return Why(schedule_id, view.status, exact[:limit])
        if view.clock is None:
            message = f"there is no delivery {when!r} in the ledger of {schedule_id}"
            return Why(schedule_id, view.status, [Verdict("unknown", message, occurrence=when)])
        first, last = _range(when, view.timezone)
        found = [
            one
            for slot in slots
            for one in _verdicts(view, slot, await self._until(tenant, schedule_id, slot, last), first, last)
        ]
        known = {one.at for one in found if one.outcome != "unknown"}
        found = [one for one in found if one.outcome != "unknown" or one.at not in known]
        if not found:
            found = [_not_due(view, grid_of(view.clock.timing, view.registered_at), first)]
        return Why(schedule_id, view.status, sorted(found, key=_order)[:limit])

    async def _of_deleted(self, tenant: str, schedule_id: str, limit: int) -> Why:
        rows = await self._store.ledger(tenant, schedule_id, None, limit)
        if not rows:
            raise NotFound(f"there is no schedule {schedule_id!r}; see holdfast schedules list")
        return Why(schedule_id, "deleted", [verdict(row) for row in rows])

    async def _until(self, tenant: str, schedule_id: str, slot: str, last: int) -> list[LedgerRow]:
        key = LedgerKey(tenant, schedule_id, slot, f"{rfc3339(Millis(last))}/..")
        return await self._store.ledger_until(key, ROWS_READ_MAX)


def verdict(row: LedgerRow, view: ScheduleView | None = None) -> Verdict:
    """A row of the ledger in words."""
    what, hint = REASONS.get(row.reason, (row.reason, ""))
    detail = detail_of(row)
    message = str(detail.get("message", "")) or what
    if row.outcome == "fired":
        message, hint = _fired(row, str(detail.get("shifted_from", "")), str(detail.get("late", ""))), ""
    elif row.outcome == "buffered":
        message, hint = BUFFERED.get(row.reason, BUFFERED[""]), ""
    return Verdict(
        row.outcome,
        message,
        row.reason,
        hint,
        row.occurrence,
        row.scheduled_at,
        "" if view is None else local_text(row.scheduled_at, zone(view.timezone)),
        row.until,
        row.times,
        row.run_id,
        row.at,
        row.slot,
        tuple(map(str, detail.get("warnings", ()))),
    )


def _fired(row: LedgerRow, shifted_from: str, late: str) -> str:
    match row.reason:
        case "manual":
            return "fired by request"
        case "redelivery":
            return "fired by a redelivery"
        case "backfill":
            return "fired by a backfill"
        case _:
            pass
    if row.occurrence != rfc3339(row.scheduled_at):  # an event: it has no time to be late for
        return "fired"
    shifted = f", instead of {shifted_from[11:]}, which does not exist on this day" if shifted_from else ""
    caught_up = ", caught up" if row.is_catchup else ""
    return f"fired {_span(row.at - row.scheduled_at)} after its time{shifted}{caught_up}{LATE.get(late, '')}"


def _from_now_on(view: ScheduleView) -> list[Verdict]:
    """Why it does not fire any more, or not for now, whatever became of the occurrences before."""
    if view.status == "paused":
        message = "the schedule is paused" + (f": {view.paused_because}" if view.paused_because else "")
        resume = f"holdfast schedules resume {view.row.id} starts it again"
        return [Verdict("will_not_fire", message, "paused", resume)]
    if view.status == "disabled":
        return [Verdict("will_not_fire", *DISABLED)]
    return [
        Verdict("will_not_fire", note.message, note.code, note.hint)
        for note in view.notes
        if note.code in (NEVER_FIRES, STALLED)
    ]


def _span(ms: int) -> str:
    """How late something was, as short as it can be said."""
    if ms < 1_000:
        return f"{max(ms, 0)} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    minutes = ms // 60_000
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


# --------------------------------------------------------------------------------------------- a time, or a day


def _range(when: str, timezone: str) -> tuple[int, int]:
    """The instants that a text means, first and last: one, or a whole day of the schedule's zone."""
    moment = parse_moment(when)
    if moment is None:
        hint = "write 2026-03-29, 2026-03-29T02:30 or 2026-03-29T00:30:00Z, or the id of a delivery"
        raise InvalidInputs(f"{when!r} is neither a time nor an occurrence in the ledger; {hint}")
    home = zone(timezone)
    if not moment.is_local:
        return moment.ms, moment.ms
    second, rest = divmod(moment.ms, 1_000)
    first = home.first_instant_of(second) * 1_000 + rest
    if not moment.is_date:
        return first, first
    return first, home.first_instant_of(second + DAY) * 1_000 - 1


def _verdicts(view: ScheduleView, slot: str, rows: list[LedgerRow], first: int, last: int) -> list[Verdict]:
    """The outcomes of all occurrences in a slot that were due from `first` to `last`. A slot without a cursor has
    only its rows."""
    covering = [row for row in rows if (row.until or row.scheduled_at) >= first]
    found = [verdict(row, view) for row in covering]
    clock = view.clock
    if clock is None or slot not in view.slots:
        return found
    single = {row.scheduled_at for row in covering if row.until is None}
    stretches = [(row.scheduled_at, row.until) for row in covering if row.until is not None]
    cursor = view.cursors[view.slots.index(slot)]
    of_slot = msgspec.structs.replace(view, slots=(slot,), cursors=(cursor,))
    grid = grid_of(clock.timing, cursor.registered_at)
    return found + [
        _undecided(of_slot, clock, grid, tick)
        for tick in _ticks(grid, first, last)
        if tick.at not in single and not any(start <= tick.at <= end for start, end in stretches)
    ]


def _order(one: Verdict) -> tuple[int, str]:
    return one.at or 0, one.slot


def _ticks(grid: Grid, first: int, last: int) -> list[Tick]:
    """The occurrences from one instant to another. A local time that was skipped in a gap is a tick one millisecond before the gap ends."""
    found: list[Tick] = []
    tick = grid.after(first - 2)
    while tick is not None and tick.at <= last and len(found) < TICKS_MAX:
        if tick.at >= first or tick.shifted_from is not None:
            found.append(tick)
        tick = grid.after(tick.at)
    return found


def _undecided(view: ScheduleView, clock: Schedule, grid: Grid, tick: Tick) -> Verdict:
    """An occurrence without a row in the ledger: it is in the future, waits, or is no longer known."""

    def said(outcome: Outcome, message: str, reason: str = "", hint: str = "") -> Verdict:
        at, local = Millis(tick.at), local_text(tick.at, zone(view.timezone))
        return Verdict(outcome, message, reason, hint, rfc3339(at), at, local, slot=view.slots[0])

    def stopped(reason: str) -> Verdict:
        message, hint = REASONS[reason]
        return said("will_not_fire", message, reason, hint)

    if tick.at <= view.registered_at:
        registered = rfc3339(Millis(view.registered_at))
        return said("unknown", f"the schedule has existed since {registered}", "not_registered")
    if not view.spec.enabled:
        return said("will_not_fire", *DISABLED)
    if not tick.fires:
        return stopped("dst_gap")
    if grid.is_excluded(tick):
        return stopped("excluded")
    if any(Grids(clock.timing, cursor).promised(tick.at) for cursor in view.cursors):
        return said("waiting", "waits until a run of the schedule ends")
    if view.paused_since is not None and tick.at > view.paused_since:
        return said(
            "will_not_fire", "the schedule is paused", "paused", "holdfast schedules resume starts it again"
        )
    if all(tick.at <= cursor.at for cursor in view.cursors):
        hint = "rows are deleted with their runs; an earlier definition may have had other times"
        return said("unknown", "the ledger has no row for this time", "forgotten", hint)
    if tick.at <= view.as_of:
        return said("undecided", "it is due, and no engine has decided on it yet", hint="start holdfast up")
    return said("will_fire", *_prospect(view, clock, tick))


def _prospect(view: ScheduleView, clock: Schedule, tick: Tick) -> tuple[str, str, str]:
    """When an occurrence to come fires, and what would stop it if nothing changed until then."""
    fires_at = rfc3339(Millis(tick.at + jitter_ms(clock, tick.at)))
    if clock.run_limit and view.open_runs >= clock.run_limit and clock.overlap == "skip":
        runs = f"{view.open_runs} open run" + ("s" if view.open_runs != 1 else "")
        message = f"fires at {fires_at}, unless max_concurrent is still reached then ({runs} now)"
        return message, "overlap", REASONS["overlap"][1]
    return f"fires at {fires_at}", "", ""


def _not_due(view: ScheduleView, grid: Grid, at: int) -> Verdict:
    before, after = _fire_before(grid, at), grid.fire_after(at)
    near = [
        f"the {which} is {rfc3339(Millis(tick.at))}"
        for which, tick in (("previous", before), ("next", after))
        if tick is not None
    ]
    message = "the schedule is not due at this time" + (
        f"; {', '.join(near)}" if near else "; it never fires"
    )
    reason = "" if near else NEVER_FIRES
    return Verdict("not_due", message, reason, at=Millis(at), local=local_text(at, zone(view.timezone)))


def _fire_before(grid: Grid, at: int) -> Tick | None:
    """The last occurrence before an instant that fires, unless too many before it are excluded."""
    tick = grid.before(at)
    for _ in range(TICKS_MAX):
        if tick is None or grid.fires(tick):
            return tick
        tick = grid.before(tick.at)
    return None
