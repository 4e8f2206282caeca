"""Presents runs, steps and workflows: turns what queries return into the records of types.py.

Knows both sides and no server: the CLI shows a file in the same form. Inputs and outputs of runs and steps are
passed on as JSON text: decoding 25 MiB would stall the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from holdfast.api import types
from holdfast.api.types import time_or_none, time_text
from holdfast.errors import Problem
from holdfast.runtime.resident_run import SERVICE
from holdfast.values import Millis
from holdfast.views import runs
from holdfast.views.definitions import Text, VersionView
from holdfast.views.explain import Explanation
from holdfast.views.open_waits import Wait
from holdfast.views.pages import Page
from holdfast.views.run_view import JournalEntry, RunView, Trigger
from holdfast.views.runs import CallbackDelivery, Definition, LogLine, Release, RunSummary, StepView
from holdfast.views.values import Head
from holdfast.views.workflows import Diff, WorkflowView

Links = Callable[[str, Wait], list[types.ApprovalLink]]  # of a run's wait


def no_links(run_id: str, one: Wait) -> list[types.ApprovalLink]:
    return []


def run(view: RunView, links: Links = no_links) -> types.Run:
    return types.Run(
        run_id=view.run_id,
        workflow=view.workflow,
        version=view.version,
        number=view.number,
        status="waiting" if view.is_left else view.status,
        inputs=view.inputs_text,
        output=view.output_text,
        error=view.error,
        waits=[wait(one, links(view.run_id, one)) for one in view.waits],
        progress=types.Progress(**view.progress),
        labels=view.labels,
        created_at=time_text(view.created_at),
        started_at=time_or_none(view.started_at),
        finished_at=time_or_none(view.finished_at),
        rerun_of=view.rerun_of,
        parent_job_id=view.parent_job_id,
        set_aside=None if view.set_aside is None else types.SetAside(*view.set_aside),
        trigger=trigger(view.trigger),
        reason=_reason_of(view),
        seq=view.seq,
        heads=heads(view.heads),
    )


def heads(found: Mapping[str, Head]) -> dict[str, types.Head]:
    return {name: types.Head(head.text, head.bytes) for name, head in found.items()}


def trigger(by: Trigger | None) -> types.RunTrigger | None:
    if by is None:
        return None
    at = time_text(Millis(by.scheduled_at))
    return types.RunTrigger(by.schedule_id, by.kind, by.occurrence, at, by.is_catchup, by.shifted_from)


def wait(one: Wait, links: list[types.ApprovalLink]) -> types.Wait:
    until, since = time_or_none(one.until), time_or_none(one.since)
    return types.Wait(one.path, one.kind, until, since, one.name, one.detail, links)


def _reason_of(view: RunView) -> str | None:
    """Why a run waits, if it is for something that a process or another run has to bring."""
    if view.is_left:
        return types.LEFT_ALONE
    if view.status != "waiting":
        return None
    kinds = sorted({wait.kind for wait in view.waits} & {"no_worker", "no_tool", "key"})
    return ", ".join(kinds) or None


def _reason_in_lists(line: RunSummary) -> str | None:
    if line.is_left:
        return types.LEFT_ALONE
    return None if line.row.needs is None else lacks_of(msgspec.json.decode(line.row.needs))


def run_line(line: RunSummary) -> types.RunLine:
    row, error, wait = line.row, line.error, line.wait
    return types.RunLine(
        run_id=row.id,
        workflow=row.workflow,
        version=row.version,
        status="waiting" if line.is_left else row.status,
        labels=runs.labels_of(row),
        created_at=time_text(row.created_at),
        finished_at=time_or_none(row.finished_at),
        rerun_of=row.rerun_of,
        rerun_as=line.rerun_as,
        parent_job_id=row.parent_job_id,
        reason=_reason_in_lists(line),
        number=row.number,
        started_at=time_or_none(line.started_at),
        error=None if error is None else types.ShortError(error.kind, error.message, error.path),
        wait=None
        if wait is None
        else types.FirstWait(
            wait.path,
            wait.kind,
            time_or_none(wait.until),
            time_or_none(wait.since),
            wait.prompt,
            wait.name,
        ),
    )


def lacks_of(needs: Iterable[str]) -> str:
    """What a run waits for, in words: `no_worker: sum`, or `no_tool: add`."""
    return ", ".join(
        f"no_worker: {need.removeprefix(SERVICE)}" if need.startswith(SERVICE) else f"no_tool: {need}"
        for need in sorted(needs)
    )


def journal(page: Page[JournalEntry]) -> types.JournalPage:
    lines = [
        types.JournalLine(one.seq, time_text(one.at), one.kind, one.body, one.jobs) for one in page.items
    ]
    return types.JournalPage(lines, None if page.cursor is None else int(page.cursor))


def logs(page: Page[LogLine], after: int) -> types.LogPage:
    lines = [log_line(one) for one in page.items]
    last = lines[-1].n if lines else after
    return types.LogPage(lines, None if page.cursor is None else last, last)


def log_line(one: LogLine) -> types.LogLine:
    return types.LogLine(one.n, time_text(one.at), one.path, one.attempt, one.level, one.text)


def step(view: StepView) -> types.Step:
    return types.Step(
        path=view.path,
        status=view.status,
        attempts=view.attempts,
        output=view.output,
        error=view.error,
        started_at=time_text(view.started),
        finished_at=time_or_none(view.finished),
        due_at=time_or_none(view.due),
        reason=view.reason,
        is_scope=view.is_scope,
        children=view.children,
        done=view.done,
        failed=view.failed,
        worker=list(view.worker),
        task_id=view.task_id,
        waits_since=time_or_none(view.waits_since),
        job_id=view.job_id,
    )


def explanation(found: Explanation, links: Mapping[str, list[types.ApprovalLink]] = {}) -> types.Explanation:
    """`links` are those of the approvals, by path."""
    reasons = [
        types.Reason(
            one.path,
            one.reason,
            time_text(one.since),
            time_or_none(one.until),
            one.unblocks,
            links.get(one.path, []),
            kind=one.reason,
        )
        for one in found.reasons
    ]
    by = trigger(found.trigger)
    return types.Explanation(found.run_id, found.status, found.driven_by, reasons, found.more, by)  # type: ignore[arg-type]


def release(one: Release, lacks: Sequence[Problem] = ()) -> types.Release:
    """A release; `lacks` is what its calls would wait for now, if it was just published."""
    return types.Release(
        name=one.name,
        number=one.number,
        version=one.version,
        status=one.status,
        id=one.id,
        flow_id=one.flow_id,
        created_at=time_text(one.created_at),
        warnings=list(map(str, lacks)),
    )


def workflow(one: Release, definition: Definition, text: Text) -> types.Workflow:
    return types.Workflow(
        name=one.name,
        number=one.number,
        version=one.version,
        status=one.status,
        id=one.id,
        flow_id=one.flow_id,
        created_at=time_text(one.created_at),
        definition=definition.to_data(),
        source=text.source,
        is_as_written=text.is_as_written,
    )


def version(one: VersionView) -> types.WorkflowVersion:
    return types.WorkflowVersion(
        version=one.version,
        name=one.name,
        definition=one.definition,
        source=one.text.source,
        is_as_written=one.text.is_as_written,
        uses=one.uses,
        created_at=time_text(one.created_at),
    )


def workflow_line(view: WorkflowView) -> types.WorkflowLine:
    one = view.workflow
    return types.WorkflowLine(
        name=one.name,
        flow_id=one.id,
        description=one.description,
        number=one.number,
        version=one.version,
        created_at=time_text(one.created_at),
        published_at=time_or_none(one.published_at),
    )


def callback_delivery(one: CallbackDelivery) -> types.CallbackDelivery:
    return types.CallbackDelivery(
        id=one.id,
        run_id=one.run_id,
        url=one.url,
        secret_env=one.secret_env,
        status=one.outcome or "waiting",  # type: ignore[arg-type]  # the store takes no other word
        tries=one.tries,
        last_error=one.last_error,
        created_at=time_text(one.created_at),
        next_try_at=time_text(one.due_at) if one.done_at is None else None,
        done_at=time_or_none(one.done_at),
    )


def diff(found: Diff) -> types.Diff:
    return types.Diff(name=found.name, from_=found.a, to=found.b, text=found.text, pointers=found.pointers)
