"""The batch that one commit writes: every field declared once, with the statement that writes it and the run it belongs to.

To add a table, add a field here and its statement to the .sql files. Knows no dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from msgspec.structs import astuple

from holdfast.store.ownership import NewMail
from holdfast.store.records import (
    ApiKey,
    AssignmentRow,
    CallbackDeliveryTried,
    EarlyResult,
    JournalRow,
    KeyAnswer,
    KeyEnd,
    KeyName,
    NewCallbackDelivery,
    NewLogLine,
    NewRun,
    Publication,
    ReplyRow,
    Request,
    RunChange,
    TakenEarly,
    Verdict,
    Version,
    WaitClosed,
    WaitOpened,
    WorkerRow,
    Workflow,
)
from holdfast.store.schedule_records import Firing, ScheduleEnd, ScheduleRow
from holdfast.values import Millis, RunNo

RunOf = Callable[[Any], RunNo | None]
Values = Callable[[Any], tuple[Any, ...]]


class Field(NamedTuple):
    """Rows of one kind. They are written in the order of the fields, after the runs and their journals."""

    # Its name in the .sql files; "" if every store has code of its own for these rows.
    statement: str = ""
    # The run that a row belongs to. Rows of no run go along with any part of a batch.
    run: RunOf | None = None
    # The values of the statement, unless a row is the tuple of them.
    values: Values | None = None
    # May be committed by itself; other fields wait for a row of their run.
    alone: bool = False
    # Filled in below.
    name: str = ""
    place: int = 0


_no, _first = attrgetter("no"), itemgetter(0)


def _of_workflow(row: tuple[str, Workflow]) -> tuple[Any, ...]:
    tenant, flow = row
    return tenant, flow.name, flow.id, flow.description, flow.created_at


class Batch:
    """What becomes durable together. Filled by the parts of the runtime, written by the store.

    Few commits have more than rows of journals and changes of runs, so the list of any other field is made when it is first
    used.
    """

    __slots__ = ("__dict__", "changes", "is_settled", "new_runs", "rows")

    # What users name, and the requests that began runs.
    versions: Annotated[list[Version], Field("add_version", values=astuple)]
    # Text as written, tenant, hash. After the versions.
    sources: Annotated[list[tuple[str, str, str]], Field("put_source", alone=True)]
    workflows: Annotated[list[tuple[str, Workflow]], Field("add_workflow", values=_of_workflow, alone=True)]
    published: Annotated[list[Publication], Field(alone=True)]
    requests: Annotated[list[Request], Field("add_request", attrgetter("run"), astuple)]
    # A key that a step asks for (None), or lets go of.
    keys: Annotated[list[tuple[KeyName, KeyEnd | None]], Field(run=lambda entry: entry[0].no)]
    verdicts: list[Verdict]  # filled by the store: what became of keys
    api_keys: Annotated[list[ApiKey], Field("put_api_key", values=astuple, alone=True)]
    replies: Annotated[list[ReplyRow], Field(alone=True)]
    run_replies: Annotated[list[tuple[RunNo, ReplyRow]], Field(run=_first)]  # to what a row of the run says
    workers: Annotated[list[WorkerRow], Field("put_worker", values=astuple, alone=True)]
    heard_workers: Annotated[
        list[tuple[str, str, Millis]], Field("hear_worker", alone=True)
    ]  # tenant, id, at
    assignments: Annotated[list[AssignmentRow], Field("put_assignment", _no, astuple, alone=True)]
    blobs: Annotated[list[tuple[RunNo, str, bytes]], Field("put_blob", _first)]
    # Part, seq, body.
    snapshots: Annotated[list[tuple[RunNo, int, int, bytes]], Field("put_snapshot", _first)]
    # Part, body: of the stored board of a finished run.
    boards: Annotated[list[tuple[RunNo, str, bytes]], Field("put_board", _first, alone=True)]
    # SHA-256, size, at.
    artefacts: Annotated[list[tuple[RunNo, str, int, Millis]], Field("put_artefact", _first)]
    logs: Annotated[list[NewLogLine], Field("put_log", _no, alone=True)]
    traces: Annotated[list[tuple[RunNo, str]], Field("put_trace", _first)]
    forgotten_keys: Annotated[list[KeyAnswer], Field("forget_key", alone=True)]
    forgotten_workers: Annotated[list[tuple[str, str]], Field("forget_worker", alone=True)]  # tenant, id
    # After the assignments: one that is written and ended by the same commit is gone. Run, path, attempt.
    ended_assignments: Annotated[list[tuple[RunNo, str, int]], Field("end_assignment", _first, alone=True)]
    opened_waits: Annotated[list[WaitOpened], Field("open_wait", _no)]
    closed_waits: Annotated[list[WaitClosed], Field("close_wait", _no)]
    expired_early: Annotated[list[tuple[Millis]], Field("forget_early", alone=True)]  # due until then
    early_results: Annotated[list[EarlyResult], Field("put_early", alone=True)]
    taken_early: Annotated[list[TakenEarly], Field("take_early", _no, lambda taken: taken[:3], alone=True)]
    callback_deliveries: Annotated[list[NewCallbackDelivery], Field("put_callback_delivery", _no)]
    tried: Annotated[list[CallbackDeliveryTried], Field("callback_delivery_tried", alone=True)]
    forgotten_schedules: Annotated[list[tuple[str, str]], Field(alone=True)]  # tenant, id
    schedules: Annotated[list[ScheduleRow], Field("put_schedule", alone=True)]
    # What schedules decided, with the runs that they start. One that is lost drops its run from the batch.
    firings: Annotated[list[Firing], Field(run=_no, alone=True)]
    schedule_ends: Annotated[list[ScheduleEnd], Field("note_end", _no, lambda end: end[1:])]
    cleared_failures: Annotated[list[tuple[str, str, str]], Field("clear_failures", alone=True)]
    # Rows of the ledger without a run that were decided before then, so many at most.
    forgotten_ledger: Annotated[list[tuple[Millis, int]], Field("forget_ledger", alone=True)]
    # Minutes, the first included and the last not, whose counts of runs are added up by hour; and before which they are deleted.
    added_up_pulse: Annotated[list[tuple[int, int]], Field(alone=True)]
    forgotten_pulse: Annotated[list[tuple[int]], Field("forget_pulse", alone=True)]
    # Events for runs that other nodes drive; and, by run and dedup, mail whose event this commit appends.
    posted_mail: Annotated[list[NewMail], Field(alone=True)]
    read_mail: Annotated[list[tuple[RunNo, str]], Field("drop_mail", _first, alone=True)]
    # Finished runs that are deleted with all that belongs to them.
    forgotten: Annotated[list[RunNo], Field(run=lambda no: no, alone=True)]

    isolated: str | None = None  # the suspect that is alone from this commit on; "" clears it
    fatal_runs: str | None = None  # which runs crashed the process, as a whole (runtime/fatal_runs.py)
    awake_at: Millis | None = None  # an engine that fires schedules was awake
    outages: str | None = None  # when none was, as a whole (runtime/fires.py)
    is_probe = False  # write something that means nothing: can the store write and sync?
    probe_bytes = 0  # at least so many: what it could not write before

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []
        self.new_runs: dict[RunNo, NewRun] = {}
        self.changes: dict[RunNo, RunChange] = {}
        self.is_settled = False  # its outcome is known

    @property
    def has_rest(self) -> bool:
        """May there be anything that few commits have? Asked in every one."""
        return bool(self.__dict__)

    @property
    def is_due(self) -> bool:
        """Is there anything that does not wait for a row?"""
        if self.rows or self.changes:
            return True
        return bool(self.__dict__) and (
            self.isolated is not None or any(field.alone for field in self.fields())
        )

    @property
    def size(self) -> int:
        """About how many bytes its bodies take."""
        bodies = [row[-1] for row in self.rows] + [blob[-1] for blob in self.blobs]
        return sum(map(len, bodies)) + sum(len(snapshot[-1]) for snapshot in self.snapshots)

    def fields(self) -> list[Field]:
        """Those that have rows, in the order in which they are written."""
        filled = [FIELDS[name] for name, rows in self.__dict__.items() if rows and name in FIELDS]
        return sorted(filled, key=attrgetter("place"))

    def add(self, other: Batch) -> None:
        """Write another batch, which has other runs, together with this one."""
        self.rows += other.rows
        self.new_runs |= other.new_runs
        self.changes |= other.changes
        for name, value in other.__dict__.items():
            if isinstance(value, list):
                getattr(self, name).extend(value)
            else:
                setattr(self, name, value)

    def only(self, runs: set[RunNo]) -> Batch:
        """What of this batch belongs to some runs; what belongs to no run comes along."""
        part = Batch()
        part.rows = [row for row in self.rows if row[0] in runs]
        part.new_runs = {no: new for no, new in self.new_runs.items() if no in runs}
        part.changes = {no: change for no, change in self.changes.items() if no in runs}
        for name, value in self.__dict__.items():
            of = FIELDS[name].run if name in FIELDS else None
            part.__dict__[name] = (
                value if of is None else [row for row in value if (no := of(row)) is None or no in runs]
            )
        return part

    def without(self, runs: set[RunNo]) -> Batch:
        """The rest of this batch, once some runs are dropped."""
        every = {RunNo(row[0]) for row in self.rows} | self.new_runs.keys() | self.changes.keys()
        for field in self.fields():
            if field.run is not None:
                every |= {no for row in getattr(self, field.name) if (no := field.run(row)) is not None}
        return self.only(every - runs)


def _declared() -> dict[str, Field]:
    hints = get_type_hints(Batch, include_extras=True).items()
    fields = [(name, hint.__metadata__[0]) for name, hint in hints if hasattr(hint, "__metadata__")]
    return {name: field._replace(name=name, place=place) for place, (name, field) in enumerate(fields)}


class _Rows:
    """The list of a field, made when it is first used. `__getattr__` would do it too, and slow down every attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, batch: Batch, kind: type[Batch]) -> list[Any]:
        rows: list[Any] = []
        batch.__dict__[self._name] = rows
        return rows


FIELDS: Final = _declared()
for _name in (*FIELDS, "verdicts"):
    setattr(Batch, _name, _Rows(_name))
