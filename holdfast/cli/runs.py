"""`holdfast runs`: list, show, explain, cancel and rerun, through a server or from a file. Formats the results."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from holdfast.api.types import Explanation, LogLine, Reason, Run, RunLine, RunTrigger
from holdfast.cli import many
from holdfast.cli.file import finished
from holdfast.cli.options import Usage, edited_inputs, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import (
    MARKS,
    error_line,
    instant,
    is_in,
    ms_of,
    now_ms,
    painted,
    shortened,
    span,
    state_of,
    step_data,
    table,
)  # fmt: skip
from holdfast.cli.run import drive
from holdfast.cli.safe import harmless
from holdfast.cli.server_source import ServerSource
from holdfast.cli.source import opened
from holdfast.cli.source_protocol import Source
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say, show, show_lines
from holdfast.config import Settings
from holdfast.runtime.engine import Engine
from holdfast.runtime.rerun import Again
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.starts import RerunRun
from holdfast.spec.triggers import CLOCK_KINDS
from holdfast.values import TERMINAL, RunId, base_of, segment
from holdfast.views.steps import Steps, StepView

LIST_DEFAULT: Final = 20
LIST_MAX: Final = 500
OUTPUT_SHOWN_MAX: Final = 100  # characters of a value in a line


# -------------------------------------------------------------------------------------------------------- list


def list_command(given: Given) -> int:
    return finished(_list(settings_of(given), given, _limit(given)))


def _limit(given: Given) -> int:
    text = given.text("--limit") or str(LIST_DEFAULT)
    if not text.isdecimal() or not 1 <= int(text) <= LIST_MAX:
        raise Usage(f"--limit must be a number from 1 to {LIST_MAX}, not {text!r}")
    return int(text)


async def _list(settings: Settings, given: Given, limit: int) -> int:
    wanted = {name: given.text(f"--{name}") for name in ("status", "workflow", "label")}
    before = given.text("--cursor")
    async with opened(settings) as source:
        runs, after = await _listed(source, wanted, before, limit)
    if given.has("--json"):
        return _written(give({"items": runs, "cursor": after}))
    if runs:
        now = now_ms()
        code = _written(show(table(_HEADS, [_cells(run, now) for run in runs])))
    else:
        code = 0
        say(f"no runs in {source.place}" + (" that match" if any(wanted.values()) or before else ""))
    if after:
        say(f"there are more; add --cursor {after}")
    return code


async def _listed(
    source: Source, wanted: dict[str, str | None], cursor: str | None, limit: int
) -> tuple[list[RunLine], str | None]:
    """As many runs as requested. One page scans a bounded number of runs, so it may contain few that match."""
    runs: list[RunLine] = []
    while True:
        page = await source.runs(cursor=cursor, limit=limit - len(runs), **wanted)
        runs += page.items
        cursor = page.cursor
        if cursor is None or len(runs) >= limit:
            return runs, cursor


_HEADS: Final = ("RUN", "WORKFLOW", "STATUS", "AGE", "TOOK", "LABELS")


def _cells(run: RunLine, now: int) -> tuple[str, ...]:
    created = ms_of(run.created_at)
    took = "" if run.finished_at is None else span(ms_of(run.finished_at) - created)
    labels = " ".join(f"{name}={value}" for name, value in run.labels.items())
    why = "" if run.reason is None else f" ({run.reason})"
    mark = painted(f"{MARKS.get(run.status, ' ')} {run.status}{why}", run.status)
    return run.run_id, run.workflow, mark, span(now - created), took, labels


# -------------------------------------------------------------------------------------------------------- show


def show_command(given: Given) -> int:
    return finished(_show(settings_of(given), given))


async def _show(settings: Settings, given: Given) -> int:
    async with opened(settings) as source:
        run_id = await source.find(given.argument or "")
        run = await source.run(run_id)
        steps, names = await source.steps(run_id, every=given.has("--all-steps"))
        traces = await _tracebacks(source, run_id) if given.has("--trace") else []
    if given.has("--json"):
        data = {path: {**step_data(step), "job_id": step.job_id} for path, step in steps.items()}
        shown = {"tracebacks": traces} if given.has("--trace") else {}
        return _written(give(msgspec.to_builtins(run) | {"steps": data} | shown))
    given_in = [f"inputs: {shortened(run.inputs, OUTPUT_SHOWN_MAX)}"] if run.inputs else []
    lines = [*_headed(run), *given_in, *_tree(names, steps)]
    if run.error is not None:
        lines.append(painted(f"{run.status}: {error_line(run.error)}", run.status))
    if run.set_aside is not None:
        lines.append(painted(f"set aside: {run.set_aside.reason}", "failed"))
        lines.append(f"to retry it: {run.set_aside.retry}")
    if run.status == "completed":
        lines.append(f"output: {shortened(run.output, OUTPUT_SHOWN_MAX)}")
    lines += [line for one in traces for line in _trace_lines(one)]
    code = _written(show_lines(lines))
    if run.status not in TERMINAL:
        say(f"why it is waiting: holdfast runs explain {run.run_id}")
    return code


async def _tracebacks(source: Source, run_id: str) -> list[LogLine]:
    """Where the tools of failed attempts raised, oldest first."""
    found: list[LogLine] = []
    after: int | None = 0
    while after is not None:
        page = await source.logs(run_id, None, "traceback", after)
        found += page.items
        after = page.cursor
    return found


def _trace_lines(one: LogLine) -> list[str]:
    return [
        painted(f"attempt {one.attempt} of {one.path} raised:", "failed"),
        *one.text.rstrip("\n").split("\n"),
    ]


def _headed(run: Run) -> list[str]:
    created = ms_of(run.created_at)
    until = now_ms() if run.finished_at is None else ms_of(run.finished_at)
    labels = "".join(f" {name}={value}" for name, value in run.labels.items())
    again = f", rerun of {run.rerun_of}" if run.rerun_of else ""
    why = "" if run.reason is None else f" ({run.reason})"
    return [
        f"run {run.run_id} of {run.workflow}{again}",
        *_started_by(run.trigger),
        f"{painted(run.status, run.status)}{why}, started {instant(created)}, {span(until - created)}"
        + labels,
    ]


def _started_by(trigger: RunTrigger | None) -> list[str]:
    if trigger is None:
        return []
    late = ", caught up" if trigger.is_catchup else ""
    when = f"due at {trigger.scheduled_at}" if trigger.kind in CLOCK_KINDS else trigger.occurrence
    return [f"started by schedule {harmless(trigger.schedule_id)}, {harmless(when)}{late}"]


def _tree(names: list[str], steps: dict[str, StepView]) -> list[str]:
    """Steps in the order in which they were reached, with inner steps indented, and the names of steps that follow."""
    lines = []
    for path, step in steps.items():
        if step.is_top:
            inner = [one for one in steps.values() if not one.is_top and is_in(one.path, path)]
            lines += [_line(step, ""), *(_line(one, "  ") for one in inner)]
    reached = {base_of(path) for path, step in steps.items() if step.is_top}
    to_come = [name for name in names if segment(name) not in reached]
    return lines + [painted(f"  · {name}", "cancelled") for name in to_come]


def _line(step: StepView, indent: str) -> str:
    gave = ""
    if step.status == "completed":
        gave = f"  → {shortened(msgspec.json.decode(step.output), OUTPUT_SHOWN_MAX)}"
    mark = painted(f"{MARKS[step.status]} {step.path}", step.status)
    return f"  {indent}{mark}  {state_of(step, now_ms())}{gave}"


# ----------------------------------------------------------------------------------------------------- explain


def explain_command(given: Given) -> int:
    return finished(_explain(settings_of(given), given))


async def _explain(settings: Settings, given: Given) -> int:
    async with opened(settings) as source:
        run_id = await source.find(given.argument or "")
        why = await source.explain(run_id)
        workflow = (await source.run(run_id)).workflow
    if given.has("--json"):
        return _written(give(why))
    return _written(show_lines(_explained(why, workflow)))


def _explained(why: Explanation, workflow: str) -> list[str]:
    by = f", executed by process {why.driven_by}" if why.driven_by is not None else ""
    lines = [f"run {why.run_id} of {workflow}: {painted(why.status, why.status)}{by}"]
    lines += _started_by(why.trigger)
    lines += [line for reason in why.reasons for line in _reason_lines(reason)]
    return lines + ([f"  and {why.more} more"] if why.more else [])


def _reason_lines(reason: Reason) -> list[str]:
    now = now_ms()
    since = f" for {span(now - ms_of(reason.since))}"
    until = "" if reason.until is None else f", until {reason.until} ({_left(ms_of(reason.until) - now)})"
    return [
        f"  {reason.path or 'the run'}  {reason.reason}{since}{until}",
        f"      unblocks: {harmless(reason.unblocks)}",
        *(f"      or{f' as {link.by}' if link.by else ''}: {link.url}" for link in reason.links),
    ]


def _left(ms: int) -> str:
    return f"in {span(ms)}" if ms > 0 else f"{span(-ms)} ago"


# ------------------------------------------------------------------------------------------------------ cancel


def cancel_command(given: Given) -> int:
    if many.is_many(given, "cancel"):
        return many.command(given, "cancel")
    return finished(_cancel(settings_of(given), given))


async def _cancel(settings: Settings, given: Given) -> int:
    async with opened(settings) as source:
        run_id = await source.find(given.argument or "")
        status = await source.cancel(run_id, given.text("--reason") or "")
    if given.has("--json"):
        return _written(give({"run_id": run_id, "status": status}))
    say(f"run {run_id} is {status}")
    return 0


# ------------------------------------------------------------------------------------------------------- rerun


class Rerun(NamedTuple):
    """Re-run a finished run, whole or in part."""

    run_id: str
    again: Again
    inputs: dict[str, Any]
    may_create: bool = False

    async def before(self, engine: Engine, *, every: bool) -> Steps:
        return Steps(every=every)

    async def begin(self, engine: Engine) -> ResidentRun:
        order = RerunRun(run_id=RunId(self.run_id), again=self.again, inputs=self.inputs)
        begun = await engine.starts.rerun(order)
        assert begun.resident is not None
        return begun.resident

    async def begin_at(self, server: ServerSource) -> str:
        again = self.again
        started = await server.client.rerun(
            self.run_id, paths=again.paths, failed=again.failed, inputs=self.inputs or None
        )
        return started.run_id


class Previewed(NamedTuple):
    """What a re-run would copy, and what it would run."""

    run: Run
    taken_over: list[str]
    runs: list[str]


def rerun_command(given: Given) -> int:
    if many.is_many(given, "rerun"):
        return _rerun_many(given)
    reserve_stdout()
    settings = settings_of(given)
    again = Again(tuple(given.texts("--from") or ()), given.has("--failed"))
    seen: list[Previewed] = []
    finished(_fetch_preview(settings, given.argument or "", again, seen))
    found = seen[0]
    inputs = edited_inputs(found.run.inputs, given.text("--inputs"), given.texts("--input"))
    run_id = found.run.run_id
    if given.has("--preview"):
        if given.has("--json"):
            data = {"run_id": run_id, "taken_over": found.taken_over, "runs": found.runs}
            return _written(give(data))
        return _written(show_lines(_preview(found)))
    if not given.has("--json"):
        say("\n".join(_preview(found)))
    return drive(given, settings, Rerun(run_id, again, inputs), at_program=True)


def _rerun_many(given: Given) -> int:
    for flag in ("--from", "--input", "--inputs"):
        if given.has(flag):
            raise Usage(f"{flag} is for the rerun of one run")
    return many.command(given, "rerun")


async def _fetch_preview(settings: Settings, word: str, again: Again, seen: list[Previewed]) -> int:
    async with opened(settings) as source:
        run = await source.run(await source.find(word))
        if run.status not in TERMINAL:
            hint = f"continue it with: holdfast run --continue {run.run_id}"
            raise Usage(f"run {run.run_id} is {run.status}, not finished; {hint}")
        found = await source.preview(run.run_id, again)
    seen.append(Previewed(run, found.copied, found.runs))
    return 0


def _preview(found: Previewed) -> list[str]:
    head = f"re-run of {found.run.run_id} ({found.run.workflow}) as a new run"
    kept = [f"  ✓ {name}  copied" for name in found.taken_over]
    return [head, *kept, *(f"  · {name}  runs" for name in found.runs)]


def _written(is_written: Any) -> int:
    return 0 if is_written else UNWRITTEN
