"""`holdfast runs`: list, show and explain, which only read, and cancel and rerun, which act on a file that nobody has."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from holdfast.cli.file import acting, finished, found, path_of, reading
from holdfast.cli.given import Usage, settings_of
from holdfast.cli.line import Given
from holdfast.cli.run import drive
from holdfast.cli.show import (
    MARKS,
    instant,
    is_in,
    now_ms,
    painted,
    shortened,
    span,
    state_of,
    step_data,
    table,
    told,
)  # fmt: skip
from holdfast.cli.streams import UNWRITTEN, give, put, reserve_stdout, say
from holdfast.config import Settings
from holdfast.plan.graph import Plan
from holdfast.runtime.advance import Live
from holdfast.runtime.app import Engine
from holdfast.runtime.explain import Explanation, Reason, explain
from holdfast.runtime.load import load_run
from holdfast.runtime.owners import holder_of
from holdfast.runtime.plans import Plans
from holdfast.runtime.queries import list_runs, output_of
from holdfast.runtime.steps import Steps, StepView, read_steps, steps_so_far
from holdfast.spec.problems import did_you_mean
from holdfast.store.base import RunRow
from holdfast.store.sqlite import SqliteStore
from holdfast.tools.registry import Registry
from holdfast.values import TERMINAL

LIST_DEFAULT: Final = 20
LIST_MAX: Final = 500
NO_INPUTS: Final = msgspec.Raw(b"{}")
OUTPUT_SHOWN_MAX: Final = 100  # characters of a value in a line


# -------------------------------------------------------------------------------------------------------- list


def list_command(given: Given) -> int:
    return finished(_list(settings_of(given), given, _limit(given)))


def _limit(given: Given) -> int:
    text = given.text("--limit") or str(LIST_DEFAULT)
    if not text.isdecimal() or not 1 <= int(text) <= LIST_MAX:
        raise Usage(f"--limit is a number from 1 to {LIST_MAX}, not {text!r}")
    return int(text)


async def _list(settings: Settings, given: Given, limit: int) -> int:
    wanted = {name: given.text(f"--{name}") for name in ("status", "workflow", "label")}
    cursor = given.text("--cursor")
    with reading(settings) as store:
        before = None if cursor is None else (await found(store, cursor)).no
        rows = await list_runs(store, **wanted, before=before, limit=limit + 1)
    shown = rows[:limit]
    after = shown[-1].id if len(rows) > limit else None
    if given.has("--json"):
        return _written(give({"runs": [row_data(row) for row in shown], "cursor": after}))
    if not shown:
        say(f"no runs in {path_of(settings)}" + (" that match" if any(wanted.values()) or cursor else ""))
        return 0
    now = now_ms()
    code = _written(put(table(_HEADS, [_cells(row, now) for row in shown]).encode()))
    if after:
        say(f"there are more; add --cursor {after}")
    return code


_HEADS: Final = ("RUN", "WORKFLOW", "STATUS", "AGE", "TOOK", "LABELS")


def _cells(row: RunRow, now: int) -> tuple[str, ...]:
    took = "" if row.finished_at is None else span(row.finished_at - row.created_at)
    labels = " ".join(f"{name}={value}" for name, value in _labels(row).items())
    mark = painted(f"{MARKS.get(row.status, ' ')} {row.status}", row.status)
    return row.id, row.workflow, mark, span(now - row.created_at), took, labels


def _labels(row: RunRow) -> dict[str, str]:
    return msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels else {}


def row_data(row: RunRow) -> dict[str, Any]:
    return {
        "run_id": row.id,
        "workflow": row.workflow,
        "version": row.version,
        "status": row.status,
        "labels": _labels(row),
        "rerun_of": row.rerun_of,
        "parent_job_id": row.parent_job_id,
        "created_at": instant(row.created_at),
        "finished_at": None if row.finished_at is None else instant(row.finished_at),
    }


# -------------------------------------------------------------------------------------------------------- show


def show_command(given: Given) -> int:
    return finished(_show(settings_of(given), given))


async def _show(settings: Settings, given: Given) -> int:
    with reading(settings) as store:
        row = await found(store, given.argument or "")
        plan = await _plan(store, settings, row)
        stored = await store.load(row.no)
        assert stored is not None
        run = await load_run(store, stored)
        steps = await read_steps(store, plan, run, every=given.has("--all-steps"))
        output = await output_of(store, plan, run) if run.status == "completed" else None
    if given.has("--json"):
        error = None if run.error is None else msgspec.to_builtins(run.error)
        data = {path: step_data(step) for path, step in steps.items()}
        more = {"inputs": run.inputs, "output": output, "error": error, "steps": data}
        return _written(give(row_data(row) | more))
    given_in = [f"inputs: {shortened(run.inputs, OUTPUT_SHOWN_MAX)}"] if run.inputs != NO_INPUTS else []
    lines = [*_headed(row), *given_in, *_tree(plan, steps)]
    if run.error is not None:
        lines.append(painted(f"{run.status}: {told(run.error)}", run.status))
    if run.status == "completed":
        lines.append(f"output: {shortened(output, OUTPUT_SHOWN_MAX)}")
    code = _written(put(("\n".join(lines) + "\n").encode(errors="surrogateescape")))
    if run.status not in TERMINAL:
        say(f"why it is not further: holdfast runs explain {row.id}")
    return code


def _headed(row: RunRow) -> list[str]:
    took = f", {span((row.finished_at or now_ms()) - row.created_at)}"
    labels = "".join(f" {name}={value}" for name, value in _labels(row).items())
    again = f", again from run {row.rerun_of}" if row.rerun_of else ""
    return [
        f"run {row.id} of {row.workflow}{again}",
        f"{painted(row.status, row.status)}, begun {instant(row.created_at)}{took}" + labels,
    ]


def _tree(plan: Plan, steps: dict[str, StepView]) -> list[str]:
    """Steps in the order of the plan, what is inside of one beneath it; of the rest that they are to come."""
    lines = []
    for name in plan.root.nodes:
        inner = [step for path, step in steps.items() if path != name and is_in(path, name)]
        if name in steps:
            lines += [_line(steps[name], ""), *(_line(step, "  ") for step in inner)]
        else:
            lines.append(painted(f"  · {name}", "cancelled"))
    return lines


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
    with reading(settings) as store:
        row = await found(store, given.argument or "")
        plan = await _plan(store, settings, row)
        why = await explain(store, row, plan, holder=holder_of(store.path), epoch=store.epoch_now())
    if given.has("--json"):
        return _written(give(_explanation_data(why)))
    by = f", driven by process {why.driven_by}" if why.driven_by is not None else ""
    lines = [f"run {row.id} of {row.workflow}: {painted(why.status, why.status)}{by}"]
    lines += [line for reason in why.reasons for line in _reason_lines(reason)]
    lines += [f"  and {why.more} more"] if why.more else []
    return _written(put(("\n".join(lines) + "\n").encode(errors="surrogateescape")))


def _reason_lines(reason: Reason) -> list[str]:
    now = now_ms()
    since = f" for {span(now - reason.since)}"
    until = "" if reason.until is None else f", until {instant(reason.until)} ({_left(reason.until - now)})"
    return [
        f"  {reason.path or 'the run'}  {reason.reason}{since}{until}",
        f"      unblocks: {reason.unblocks}",
    ]


def _left(ms: int) -> str:
    return f"in {span(ms)}" if ms > 0 else f"{span(-ms)} ago"


def _explanation_data(why: Explanation) -> dict[str, Any]:
    reasons = [
        {
            "path": reason.path,
            "reason": reason.reason,
            "since": instant(reason.since),
            "until": None if reason.until is None else instant(reason.until),
            "unblocks": reason.unblocks,
        }
        for reason in why.reasons
    ]
    head = {"run_id": why.run_id, "status": why.status, "driven_by": why.driven_by}
    return head | {"reasons": reasons, "more": why.more}


# ------------------------------------------------------------------------------------------------------ cancel


def cancel_command(given: Given) -> int:
    return finished(_cancel(settings_of(given), given))


async def _cancel(settings: Settings, given: Given) -> int:
    async with acting(settings, Registry(()), may_create=False) as engine:
        row = await found(engine.store, given.argument or "")
        await engine.cancel(row.id, given.text("--reason") or "")
        await engine.advance.drained()
        status = (await engine.row_of(row.id)).status
    if given.has("--json"):
        return _written(give({"run_id": row.id, "status": status}))
    say(f"run {row.id} is {status}")
    return 0


# ------------------------------------------------------------------------------------------------------- rerun


class Rerun(NamedTuple):
    """A new run of what a finished one was, from a step on."""

    row: RunRow
    step: str | None
    may_create: bool = False

    async def before(self, engine: Engine, *, every: bool) -> Steps:
        return Steps(every=every)

    async def begin(self, engine: Engine) -> Live:
        return await engine.rerun(self.row.id, self.step)


def rerun_command(given: Given) -> int:
    reserve_stdout()
    settings, step = settings_of(given), given.text("--from")
    row, kept, runs = _previewed(settings, given.argument or "", step)
    if given.has("--preview"):
        if given.has("--json"):
            return _written(give({"run_id": row.id, "taken_over": kept, "runs": runs}))
        return _written(put(_preview(row, kept, runs).encode()))
    if not given.has("--json"):
        say(_preview(row, kept, runs).rstrip())
    return drive(given, settings, Rerun(row, step))


def _previewed(settings: Settings, word: str, step: str | None) -> tuple[RunRow, list[str], list[str]]:
    """The run, the steps whose outcome is taken over, and those that run again."""

    async def look() -> int:
        with reading(settings) as store:
            row = await found(store, word)
            steps = (await steps_so_far(store, row.no)).by_path
            done = {path for path, step in steps.items() if step.status == "completed"}
            seen.append((row, list((await _plan(store, settings, row)).root.nodes), done))
        return 0

    seen: list[tuple[RunRow, list[str], set[str]]] = []
    finished(look())
    row, names, done = seen[0]
    if row.status not in TERMINAL:
        raise Usage(f"run {row.id} is {row.status}, not over; go on with: holdfast run --continue {row.id}")
    if step is not None and step not in names:
        hint = did_you_mean(step, names) or f"its steps are {', '.join(names[:20])}"
        raise Usage(f"{row.workflow} has no top-level step {step!r}; {hint}")
    at = names.index(step) if step is not None else 0
    if undone := [name for name in names[:at] if name not in done]:
        raise Usage(f"step {undone[0]!r} before {step!r} did not complete; begin with it: --from {undone[0]}")
    return row, names[:at], names[at:]


def _preview(row: RunRow, kept: list[str], runs: list[str]) -> str:
    lines = [f"again, as a new run: {row.workflow} of run {row.id}"]
    lines += [f"  ✓ {name}  taken over" for name in kept] + [f"  · {name}  runs" for name in runs]
    return "\n".join(lines) + "\n"


async def _plan(store: SqliteStore, settings: Settings, row: RunRow) -> Plan:
    return await Plans(store, settings.template_env).of_version(row.tenant, row.version)


def _written(is_written: bool) -> int:
    return 0 if is_written else UNWRITTEN
