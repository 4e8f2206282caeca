"""Runs: starting, reading, explaining, cancelling and re-running them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from holdfast.api.types.common import (
    PAGE,
    WAIT_SECS_MAX,
    Cursor,
    Either,
    Limit,
    Name,
    Number,
    PathInAddress,
    Seq,
    StepPath,
    Text,
    Time,
    most,
)
from holdfast.api.types.waits import ApprovalLink, Wait
from holdfast.values import Error, Status, StepState


class FinalCallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the final callback of the run is sent."""

    url: str
    secret_env: str | None = None


class StartRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`workflow` is a published name, `spec` a definition in either notation, as data or as YAML text: give exactly one."""

    workflow: Name | None = None
    spec: dict[str, Any] | str | None = None
    number: Number | None = None  # release of the workflow; default: the published one
    inputs: dict[str, Any] = {}
    request_id: Text | None = None
    labels: dict[str, str] = {}
    wait_secs: Annotated[float, msgspec.Meta(ge=0, le=WAIT_SECS_MAX)] = 0
    parent_job_id: Text | None = None
    final_callback: FinalCallback | None = None
    final_callback_url: str | None = None
    # Start only if the plan still has this hash, as POST /plan gave it.
    plan_hash: Text | None = None

    EITHER: ClassVar[Either] = {"workflow": ("spec",), "spec": ("workflow", "number")}

    def __post_init__(self) -> None:
        if (self.workflow is None) == (self.spec is None):
            raise ValueError("give either `workflow`, a published name, or `spec`, a definition")
        if self.number is not None and self.workflow is None:
            raise ValueError("`number` is the release of a published workflow: give `workflow` too")


class Started(msgspec.Struct, frozen=True):
    """The run is durable: it will finish even if the server crashes."""

    run_id: str
    status: Status


class Paused(msgspec.Struct, frozen=True):
    """Every open step of the run waits for a callback: `task_ids` are their task ids, `task_id` is the oldest."""

    paused: bool
    task_id: str
    run_id: str
    task_ids: list[str]


class Progress(msgspec.Struct, frozen=True):
    completed_steps: int
    total_steps: int


class SetAside(msgspec.Struct, frozen=True):
    """Why an open run is set aside, and how to retry it."""

    reason: str
    retry: str


class Head(msgspec.Struct, frozen=True):
    """The first 2,048 characters of a value's JSON text. `bytes` is the length of all of it; null if the value is gathered from the
    steps inside and was not computed."""

    text: str
    bytes: int | None


Values = Literal["all", "head", "none"]


class ValuesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`values=none` leaves out inputs and outputs; with `head`, one over 2 KiB is null, and its beginning is in `heads`."""

    values: Values = "all"


class RunTrigger(msgspec.Struct, frozen=True):
    """The occurrence of a schedule that started a run. `scheduled_at` is its nominal time, without jitter."""

    schedule_id: str
    kind: str
    occurrence: str
    scheduled_at: str
    is_catchup: bool
    shifted_from: str = ""  # the local time that it was due at, if clocks skipped that


class Run(msgspec.Struct, frozen=True):
    """`set_aside` is null unless the run is open but set aside because it crashed the process or hit a bug."""

    run_id: str
    workflow: str
    version: str  # hash of the definition
    number: int | None  # of the version under its name, if it was published
    status: Status
    inputs: Any
    output: Any
    error: Error | None
    waits: list[Wait]
    progress: Progress
    labels: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None
    rerun_of: str | None = None
    parent_job_id: str | None = None
    set_aside: SetAside | None = None
    trigger: RunTrigger | None = None  # the schedule that started it
    reason: str | None = (
        None  # of a waiting run: the tool or worker that it lacks, or that no engine drives it
    )
    seq: int = 0  # of the last row of the journal that this includes
    heads: dict[str, Head] = {}


# The reason of a run that waits because the one process that may execute it has others to execute.
LEFT_ALONE: Final = "the process that has this file open executes other runs"


class ShortError(msgspec.Struct, frozen=True):
    """Why a run failed; the message has at most 200 characters here."""

    kind: str
    message: str
    path: str


class FirstWait(msgspec.Struct, frozen=True):
    """What a waiting run waits for, of several the oldest; of timers only when the first is due."""

    path: str
    kind: str
    until: str | None
    since: str | None
    prompt: str
    name: str = ""  # of the signal, or the id of the task


LABELS_MAX: Final = 10
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * most("label_chars_max") + 1)]


class RunLine(msgspec.Struct, frozen=True):
    """The summary of a run in lists."""

    run_id: str
    workflow: str
    version: str
    status: Status
    labels: dict[str, str]
    created_at: str
    finished_at: str | None
    rerun_of: str | None = None
    rerun_as: str | None = None  # the newest run that reran it
    parent_job_id: str | None = None
    reason: str | None = (
        None  # of a waiting run: the tool or worker that it lacks, or that no engine drives it
    )
    number: int | None = None
    started_at: str | None = None
    error: ShortError | None = None
    wait: FirstWait | None = None


class RunFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`status` takes several words. A `label` is `team=x`, or `team` for any value, and may be repeated: all must match. `number` is a
    version of the `workflow`. `from` and `to` are times of creation, the first included, the second not."""

    status: Annotated[list[Status], msgspec.Meta(max_length=20)] = []
    workflow: Name | None = None
    number: Number | None = None
    label: Annotated[list[Label], msgspec.Meta(max_length=LABELS_MAX)] = []
    from_: Time | None = msgspec.field(default=None, name="from")
    to: Time | None = None


class RunsQuery(RunFilter, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`status` takes several words. A `label` is `team=x`, or `team` for any value, and may be repeated: all must match. `number` is a
    version of the `workflow`. `from` and `to` are times of creation, the first included, the second not. `id` is the first or last
    characters of a run id, and excludes other filters."""

    id: Annotated[str, msgspec.Meta(min_length=4, max_length=36)] | None = None
    cursor: Cursor | None = None
    limit: Limit = PAGE


BULK_MAX: Final = 500


class BulkFilter(RunFilter, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Runs by their `ids`, or by what a list of runs is filtered by. At least one member is given: all runs are never meant."""

    ids: Annotated[list[str], msgspec.Meta(max_length=BULK_MAX)] = []

    def mistake(self) -> str | None:
        """Why no run can be meant by it. The schema of the filter cannot say this."""
        filters = (self.status, self.workflow, self.number, self.label, self.from_, self.to)
        if not self.ids and not any(filters):
            return "`filter` is empty: say which runs, by `ids` or for example by `workflow` and `status`"
        return "`ids` excludes other filters" if self.ids and any(filters) else None


class BulkRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Cancel or rerun many runs. `preview` changes nothing and says what would be done. `failed` reruns only what failed in each run.
    Up to `limit` runs are handled; `cursor` of the response requests the next part."""

    filter: BulkFilter
    action: Literal["cancel", "rerun"]
    preview: bool = False
    failed: bool = False
    reason: str = ""
    cursor: Cursor | None = None
    limit: Limit = PAGE


class BulkItem(msgspec.Struct, frozen=True):
    """One run. `error` is the code of the reason for which it is left alone, `run_is_over` for example, and null otherwise."""

    run_id: str
    status: Status | None
    new_run_id: str | None = None  # of a rerun
    error: str | None = None
    message: str = ""


class BulkPage(msgspec.Struct, frozen=True):
    """`matched` counts the runs of this part that the action is for. `cursor` is null in the last part."""

    action: str
    preview: bool
    items: list[BulkItem]
    matched: int
    cursor: str | None


class RunPage(msgspec.Struct, frozen=True):
    """Newest first. `cursor` requests the next page; null on the last one."""

    items: list[RunLine]
    cursor: str | None


class JournalQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows whose seq is greater than `after`. `cursor` is an alias that every list has."""

    after: Seq | None = None
    cursor: Seq | None = None
    limit: Limit = PAGE


class JournalLine(msgspec.Struct, frozen=True):
    """One event with the decisions it caused, as stored."""

    seq: int
    at: str
    kind: str
    body: Any
    jobs: dict[str, str] = {}  # ids of the attempts in this row, by path and number: `a#1`


class JournalPage(msgspec.Struct, frozen=True):
    """`cursor` requests the next page; null on the last one."""

    items: list[JournalLine]
    cursor: int | None


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`step` selects the lines of a step and of the steps inside it, by path; `level` is one level: `info`, `warning`, `stdout`,
    `traceback` and so on."""

    step: PathInAddress | None = None
    level: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    cursor: Seq | None = None
    limit: Limit = PAGE


class LogLine(msgspec.Struct, frozen=True):
    """A line that an attempt logged or printed, or, with the level `traceback`, where its tool raised an exception."""

    n: int
    at: str
    path: str
    attempt: int
    level: str
    text: str


class LogPage(msgspec.Struct, frozen=True):
    """Oldest first. `cursor` requests the next page; null on the last one. `last` is the number of the newest line here: lines
    that are logged later have greater numbers."""

    items: list[LogLine]
    cursor: int | None
    last: int


class StepsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without `every` and without filters: the top-level steps and those that failed.

    `under` selects the steps inside a step or an item (`loop`, `loop[3]`). `status` and `kind` take several words. With
    `values=none` outputs are left out; with `head`, one over 2 KiB is null, and its beginning is in `heads`.
    """

    every: bool = False
    under: PathInAddress | None = None
    status: Annotated[list[StepState], msgspec.Meta(max_length=20)] = []
    kind: Annotated[list[Name], msgspec.Meta(max_length=20)] = []
    values: Values = "all"
    cursor: Cursor | None = None
    limit: Limit = PAGE


class Step(msgspec.Struct, frozen=True):
    """A step that the run has reached. `due_at` is when a waiting or retrying one continues by itself. `task_id` is the id
    under which a later result was announced, `waits_since` when it last began to wait for an answer from outside."""

    path: str
    status: StepState
    attempts: int
    output: Any
    error: Error | None
    started_at: str
    finished_at: str | None
    due_at: str | None
    reason: str
    is_scope: bool
    children: int
    done: int
    failed: int
    worker: list[str]  # id and URL of the worker that ran it, if any
    task_id: str = ""
    waits_since: str | None = None
    job_id: str | None = None  # of its latest attempt, as events and artefacts name it
    kind: str = ""  # as the definition calls it
    heads: dict[str, Head] = {}


class StepPage(msgspec.Struct, frozen=True):
    """`names` are the top-level steps in the order of the definition, reached or not."""

    items: list[Step]
    names: list[str]
    cursor: str | None
    seq: int = 0


class Reason(msgspec.Struct, frozen=True):
    """One open item, and what would unblock it. An empty path is the run itself. `kind` is the kind of wait, if it is one;
    `reason` is its former name, and always the same."""

    path: str
    reason: str
    since: str
    until: str | None
    unblocks: str
    links: list[ApprovalLink] = []
    kind: str = ""


class Explanation(msgspec.Struct, frozen=True):
    run_id: str
    status: Status
    driven_by: int | None  # the pid of the process that runs it now
    reasons: list[Reason]
    more: int  # further reasons, not listed
    trigger: RunTrigger | None = None  # the schedule that started it


class CancelRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class RerunRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Re-run a finished run, from its beginning or only in part; the rest is copied from it.

    `from_step` is a step to start from, by id or by path (`br.s`, `loop[3].s`), or an item (`loop[3]`); `paths` names
    several. `failed` re-runs what failed, limited to those paths if any are given. `inputs` replace those of the same name.
    With `preview` nothing is started: the response says what would run.
    """

    from_step: StepPath | None = None
    preview: bool = False
    failed: bool = False
    paths: Annotated[list[StepPath], msgspec.Meta(max_length=most("rerun_paths_max"))] = []
    inputs: dict[str, Any] | None = None


class RerunPreview(msgspec.Struct, frozen=True):
    copied: list[str]  # top-level steps whose outcome is copied
    runs: list[str]  # top-level steps that run, and paths inside steps that run in part
