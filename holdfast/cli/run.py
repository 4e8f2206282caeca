"""`holdfast run`: executes one run to its end, shows it, and reports the outcome with its exit code.

It executes only this run; other open runs in the file are left unchanged. If a server owns the file, the server
executes the run and this command follows it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.cli.ask import decision, may_ask
from holdfast.cli.begin import Begin, Continue, Start, start_of
from holdfast.cli.check import report_unknown_tools
from holdfast.cli.executor import executor_lines
from holdfast.cli.file import acting, finished
from holdfast.cli.file_source import OwnedFileSource
from holdfast.cli.follow import (
    EXIT_CODES,
    SIGNALLED,
    WAITS_FOR_OUTSIDE,
    Follower,
    chosen_view,
    result_data,
    show_end,
    ticking,
)
from holdfast.cli.line import waits_in_line
from holdfast.cli.options import Usage, load_tools, read_spec, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import View, is_in, problem_lines
from holdfast.cli.safe import harmless
from holdfast.cli.server import Server, server_of
from holdfast.cli.source import serving
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say
from holdfast.config import Settings
from holdfast.errors import HoldfastError, NotWaiting, ToolMissing
from holdfast.nearest import did_you_mean
from holdfast.plan.graph import Call
from holdfast.runtime.engine import Engine
from holdfast.runtime.entries import Entry, read_back
from holdfast.runtime.resident_run import ResidentRun
from holdfast.spec.notation import Definition
from holdfast.spec.problems import Report
from holdfast.stopping import stop_signals
from holdfast.store.batch import Batch
from holdfast.tools.registry import Registry
from holdfast.values import RunNo
from holdfast.views.open_waits import approval_detail, ends_of_waits
from holdfast.views.outputs import output_of
from holdfast.views.step_pages import read_steps
from holdfast.views.steps import Steps, StepView

KEYS_SHOWN_MAX: Final = 5
WAITS_SHOWN_MAX: Final = 5
HUNG_UP: Final = SIGNALLED + signal.SIGHUP


class Order(NamedTuple):
    """What to run, and how to show it. `repeat` are the flags that a later --continue needs, `where` those that only
    reading needs."""

    begin: Begin
    repeat: tuple[str, ...]
    where: tuple[str, ...]
    tools: tuple[str, ...]
    as_json: bool
    all_steps: bool


def command(given: Given) -> int:
    """Execute the run and return the exit code."""
    reserve_stdout()
    settings = settings_of(given)
    run_id = given.text("--continue")
    if run_id is not None:
        if given.has("--input") or given.has("--inputs"):
            raise Usage("a run that is continued has its inputs already; leave -i and --inputs out")
        file = None if given.argument is None else Path(given.argument)
        return drive(
            given, settings, Continue(run_id, None if file is None else read_spec(file, settings), file)
        )
    if given.argument is None:
        raise Usage(
            "name the workflow to run, or the run to continue: holdfast run FILE, or holdfast run --continue RUN_ID"
        )
    return drive(given, settings, start_of(given, settings))


def drive(given: Given, settings: Settings, begin: Begin, *, at_program: bool = False) -> int:
    """Start or continue a run, and show it until its end. With `at_program`, a program that has the file open executes it."""
    shown = (given.has("--json"), given.has("--all-steps"))
    where = _repeated(given, "--db")
    again = _repeated(given, "--tools", "--allow-networks", "--db")
    order = Order(begin, again, where, settings.tools, *shown)
    tools: Registry | None = None

    def attempt() -> int:
        nonlocal tools
        server = server_of(settings)
        if server is not None and (server.kind == "server" or at_program and server.kind == "program"):
            return finished(_follow(order, settings, server, has_tools=given.has("--tools")))
        if tools is None:
            tools = load_tools(settings)
            if isinstance(begin, Start):
                _refuse_unknown_tools(begin.spec, tools.names(), settings.tools)
        return finished(_attend(order, settings, tools))

    return waits_in_line(given.text("--wait"), attempt)


def _refuse_unknown_tools(spec: Definition, known: Collection[str], looked_in: Collection[str]) -> None:
    """Check all tools first: a missing one would only be found when its step is reached, and the run, which keeps its
    definition, would wait for it."""
    report = Report(spec.origin.document, spec.origin.source)
    report_unknown_tools(spec, known, report)
    if not report.problems:
        return
    for line in problem_lines(report.problems, "error"):
        say(line)
    where = (
        f"the built-in tools and --tools {' '.join(looked_in)}" if looked_in else "the built-in tools only"
    )
    raise ToolMissing(f"tools were looked for in {where}; name the module that has them: --tools MODULE")


def _repeated(given: Given, *flags: str) -> tuple[str, ...]:
    """These flags as they were given, for a suggested command that must find the same files."""
    return tuple(word for flag in flags for value in given.texts(flag) for word in (flag, value))


# -------------------------------------------------------------------------------------------------- driving it


async def _attend(order: Order, settings: Settings, registry: Registry) -> int:
    async with acting(settings, registry, may_create=order.begin.may_create, answers=True) as engine:
        attendant = Attendant(
            engine, order, chosen_view(settings, as_json=order.as_json, all_steps=order.all_steps)
        )
        code = await attendant.attend()
    for line in attendant.parting():  # printed last: by then the suggested command finds the file unlocked
        say(line)
    return code if attendant.is_result_written else UNWRITTEN


async def _follow(order: Order, settings: Settings, server: Server, *, has_tools: bool) -> int:
    """Start the run at the server, which executes it, and follow it."""
    async with serving(server) as source:
        for line in await executor_lines(source.client, server, has_tools=has_tools):
            say(line)
        run_id = await order.begin.begin_at(source)
        view = chosen_view(settings, as_json=order.as_json, all_steps=order.all_steps)
        shown = source if server.kind == "server" else OwnedFileSource(settings, source)
        follower = Follower(shown, view, every=order.all_steps, as_json=order.as_json, leaves_stuck=True)
        return await follower.follow(run_id)


class Attendant:
    """Follows one run until it ends, waits for an external answer, or the person leaves."""

    def __init__(self, engine: Engine, order: Order, view: View) -> None:
        self._engine, self._order, self._view = engine, order, view
        self._steps = Steps(every=order.all_steps)
        self._resident: ResidentRun | None = None
        self._holders: list[str] = []
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._leaving: asyncio.Task[None] | None = None
        self.is_result_written = True

    async def attend(self) -> int:
        self._engine.door.watchers.append(self._on_commit)
        self._engine.dispatch.contexts.hearers.append(self._on_report)
        self._listen_to_signals()
        with ticking(self._view):
            begin = self._order.begin
            self._steps = await begin.before(self._engine, every=self._order.all_steps)
            resident = await begin.begin(self._engine)
            self._own_run(resident)
            ended = asyncio.ensure_future(self._engine.waiters.ended(resident.run.no))
            either: set[asyncio.Future[Any]] = {ended, self._left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return await self._report(ended.result(), EXIT_CODES[ended.result().run.status])
        ended.cancel()
        if self._leaving is not None:
            self._leaving.cancel()
        self._holders = await self._waits_for_keys(resident)
        return await self._report(resident, self._left.result())

    # ------------------------------------------------------------------------------------------------ watching

    def _on_commit(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        """Rows are durable: events and their decisions."""
        for entry, row in zip(entries, batch.rows, strict=True):
            resident = entry[0]
            if resident.run.no == self._own_run(resident).run.no:
                self._view.changed(self._steps.take(*read_back(entry, row), resident.run.at))
        if self._steps.stuck and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave_if_stuck())

    async def _leave_if_stuck(self) -> None:
        """Wait for pending rows: the row that ends a step may pass its key to a waiting step."""
        while self._steps.stuck and not self._left.done():
            await self._engine.door.drained()
            gate = next((step.path for step in self._steps.stuck if step.reason == "approval"), None)
            if gate is not None and may_ask() and not self._order.as_json:
                await self._ask(gate)
            elif self._steps.stuck:
                self._leave(WAITS_FOR_OUTSIDE)
        self._leaving = None

    async def _ask(self, path: str) -> None:
        """Ask for an approval on the terminal; if it is left open, the run stays open too."""
        resident = self._resident
        assert resident is not None
        self._view.end()
        said = await decision(path, approval_detail(resident.run, path))
        if said is None:
            return self._leave(WAITS_FOR_OUTSIDE)
        try:
            is_decided = await self._engine.approvals.approve(
                resident.run.tenant, resident.run.id, path, **said._asdict()
            )
        except HoldfastError as error:
            say(str(error))
            is_decided = isinstance(error, NotWaiting)  # it expired meanwhile
        if not is_decided:
            return self._leave(WAITS_FOR_OUTSIDE)
        self._view.begin(resident.run.id, resident.plan.name, list(resident.plan.root.main), self._steps)

    def _on_report(self, no: RunNo, path: str, attempt: int, kind: str, data: dict[str, Any]) -> None:
        """A tool reports progress. Its other messages are log lines."""
        if kind == "progress":
            self._view.progressed(path, data["fraction"], data["message"])

    def _own_run(self, resident: ResidentRun) -> ResidentRun:
        """The first run that starts here is ours."""
        if self._resident is None:
            self._resident = resident
            self._view.begin(resident.run.id, resident.plan.name, list(resident.plan.root.main), self._steps)
        return self._resident

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)
        elif (
            code > SIGNALLED and code != HUNG_UP
        ):  # a shell and its terminal both send HUP, which counts once
            os._exit(code)  # second request: everything is in the journal, so the file can be continued later

    def _listen_to_signals(self) -> None:
        """Ctrl-C requests a stop; nothing is interrupted here."""
        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._leave, SIGNALLED + number)

    # ----------------------------------------------------------------------------------------------- the end

    async def _report(self, resident: ResidentRun, code: int) -> int:
        run = resident.run
        status = run.status
        output = await output_of(self._engine.store, resident.plan, run) if status == "completed" else None
        if self._order.as_json:
            steps = await read_steps(self._engine.store, resident.plan, run, every=self._order.all_steps)
            self.is_result_written = give(result_data(run.id, status, output, run.error, steps))
        elif run.over:
            self.is_result_written = show_end(status, run.at - run.created_at, output, run.error)
        return code

    def parting(self) -> list[str]:
        """What the user can do next. Called when the engine is closed, because only then it is known which attempts
        were released."""
        resident = self._resident
        if resident is None or resident.run.status == "completed":
            return []
        if resident.run.over:
            return self._after_failure(resident) if resident.run.status == "failed" else []
        if self._left.result() != WAITS_FOR_OUTSIDE:
            return [*self._stopped(resident), f"continue with: {self._command(resident, [])}"]
        missing = [step for step in self._steps.stuck if step.reason == "no_tool"]
        waits = [harmless(f"step {path} waits for {what}") for path, what in ends_of_waits(resident.run)]
        served = [step for step in self._steps.stuck if step.reason == "no_worker"]
        lines = [*self._waits_for_tools(resident, missing), *self._holders, *waits[:WAITS_SHOWN_MAX]]
        if served:
            services = sorted({_call(resident, step.path).target for step in served})
            lines.append(
                harmless(f"run {resident.run.id} waits for a worker that serves {', '.join(services)}")
            )
            return [
                *lines,
                "workers need a server: holdfast up continues the run, holdfast worker MODULE serves it",
            ]
        return [*lines, f"continue with: {self._command(resident, missing)}"]

    def _after_failure(self, resident: ResidentRun) -> list[str]:
        path = resident.run.error.path if resident.run.error else ""
        step = next((name for name in resident.plan.root.nodes if path == name or is_in(path, name)), None)
        shown = ["holdfast", "runs", "show", resident.run.id, "--trace", *self._order.where]
        again = ["holdfast", "runs", "rerun", resident.run.id, *(("--from", step) if step else ())]
        return [
            f"see each step and its traceback: {shlex.join(shown)}",
            f"after fixing the cause: {shlex.join([*again, *self._order.repeat])}",
        ]

    def _stopped(self, resident: ResidentRun) -> list[str]:
        at_work = [step.path for step in self._steps.open if step.status == "running" and not step.is_scope]
        lost = [path for path in at_work if _call(resident, path).fails_on_crash]
        return [
            f"stopped; run {resident.run.id} is saved and can be continued",
            *(f"step {path} was running and must not run twice: it will fail as lost" for path in lost),
        ]

    async def _waits_for_keys(self, resident: ResidentRun) -> list[str]:
        """Each key that steps wait for, with the step that holds it."""
        lines: dict[str, str] = {}
        for path, step in resident.run.steps.items():
            if step.key is not None and step.state == "waiting" and len(lines) < KEYS_SHOWN_MAX:
                scope = "" if step.key.is_global else resident.run.id
                holder = await self._engine.store.key_holder(resident.run.tenant, scope, step.key.text)
                if holder is not None:
                    run_id, held_by = holder
                    lines[step.key.text] = (
                        f"run {resident.run.id} waits for the key {step.key.text!r} of step {path}, which step {held_by} "
                        f"of run {run_id} holds; continue that run with: holdfast run --continue {run_id}"
                    )
        return list(lines.values())

    def _waits_for_tools(self, resident: ResidentRun, missing: list[StepView]) -> list[str]:
        """Each tool that steps wait for, with the first of those steps and the name that was perhaps meant."""
        by_tool: dict[str, list[str]] = {}
        for step in missing:
            by_tool.setdefault(_call(resident, step.path).target, []).append(step.path)
        hints = {tool: did_you_mean(tool, self._engine.registry.names()) for tool in by_tool}
        lines = []
        for tool, paths in by_tool.items():
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            hint = f"; {hints[tool]}" if hints[tool] else ""
            lines.append(f"run {resident.run.id} waits for the tool {tool!r} of step {paths[0]}{more}{hint}")
        if any(hints.values()):
            lines.append(
                "a run keeps the definition that it started with: if the name is wrong, fix it and start a new run"
            )
        return lines

    def _command(self, resident: ResidentRun, missing: list[StepView]) -> str:
        parts = ["holdfast", "run", "--continue", resident.run.id, *self._order.repeat]
        return shlex.join(parts + (["--tools", self._likely_module()] if missing else []))

    def _likely_module(self) -> str:
        return "tools" if Path("tools.py").exists() and "tools" not in self._order.tools else "MODULE"


def _call(resident: ResidentRun, path: str) -> Call:
    node = resident.plan.node(path)
    assert isinstance(node, Call)
    return node
