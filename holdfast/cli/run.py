"""`holdfast run`: drives one run of a file to its end, shows it, and says how it ended by its exit code.

It drives only its own run: what else is open in the file stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.cli.show import FRAMES_PER_SECOND, Lines, Silence, Tree, View, give, say, span, step_data, told
from holdfast.embed import database_path
from holdfast.errors import HoldfastError, InvalidInputs, NotFound
from holdfast.plan.graph import Call
from holdfast.runtime.advance import Live
from holdfast.runtime.app import Engine
from holdfast.runtime.owners import Lock
from holdfast.runtime.queries import output_of
from holdfast.runtime.steps import Steps, StepView, read_steps, steps_so_far
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.sqlite import SqliteStore
from holdfast.tools.registry import Registry, load
from holdfast.values import DEFAULT_TENANT, Error, RunId, decode

COMPLETED: Final = 0
FAILED: Final = 1
CANCELLED: Final = 3
WAITS_FOR_OUTSIDE: Final = 4
EXIT_CODES: Final = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED, "interrupted": FAILED}
DEFAULT_DB: Final = "sqlite:///holdfast.db"
SIGNALLED: Final = 128  # the shell's way to say that a signal ended it: 130 for Ctrl-C, 143 for TERM


class Order(NamedTuple):
    """What the command line asked for."""

    file: Path | None
    pairs: tuple[str, ...]
    inputs: str | None
    db: str | None
    tools: tuple[str, ...]
    run_id: str | None
    as_json: bool
    all_steps: bool


class Usage(HoldfastError):
    """The command line itself cannot be followed."""

    code = "usage"


def run(order: Order) -> int:
    """Drive the run that was ordered; gives the exit code."""
    spec = None if order.file is None else read_spec(order.file)
    inputs = read_inputs(order)
    if spec is None and order.run_id is None:
        raise Usage(
            "name the file to run, or the run to go on with: holdfast run FILE, or holdfast run --continue ID"
        )
    registry = Registry(tool for reference in order.tools for tool in load_tools(reference))
    # Standard output is for the result alone, so that a program can read it; what tools print goes to the person.
    with contextlib.redirect_stdout(sys.stderr), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_attend(order, spec, inputs, registry))


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# --------------------------------------------------------------------------------------------- what was asked for


def read_spec(path: Path) -> WorkflowSpec:
    """The definition in a file, checked; raises InvalidSpec with every problem."""
    try:
        spec = WorkflowSpec.from_file(path)
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror}") from None
    spec.validate()
    return spec


def read_inputs(order: Order) -> dict[str, Any]:
    """The inputs: of --inputs, and of each -i on top of them."""
    if order.run_id is not None and (order.pairs or order.inputs is not None):
        raise Usage("a run that goes on has its inputs already; leave -i and --inputs out")
    inputs = _whole_inputs(order.inputs) if order.inputs is not None else {}
    for pair in order.pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise Usage(f"-i takes name=value, not {pair!r}")
        inputs[name] = _value(text)
    return inputs


def _whole_inputs(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"cannot read the inputs from {text[1:]}: {error}") from None
    try:
        data = decode(text)
    except msgspec.DecodeError as error:
        raise Usage(f"--inputs is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInputs('--inputs must be an object, such as {"name": "Ada"}')
    return data


def _value(text: str) -> Any:
    """JSON where it is JSON (`3`, `true`, `[1, 2]`), else the text itself."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        return text


def load_tools(reference: str) -> list[Any]:
    """The tools of `module` or `module:object`, which may lie in this folder."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        tools = load(reference)
    except HoldfastError:
        raise
    except Exception as error:  # noqa: BLE001  # importing runs the user's code, which may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        raise Usage(f"cannot load tools from {reference!r}: {why}") from None
    if not tools:
        raise Usage(
            f"{reference!r} has no tools: mark its functions with @tool, or name one as module:object"
        )
    return tools


# -------------------------------------------------------------------------------------------------- driving it


async def _attend(order: Order, spec: WorkflowSpec | None, inputs: dict[str, Any], registry: Registry) -> int:
    try:
        path = database_path(order.db or DEFAULT_DB)
        lock = Lock(path)
        lock.take()
    except ValueError as error:
        raise Usage(str(error)) from None
    except OSError as error:
        raise Usage(f"cannot open {path}: {error.strerror}") from None
    try:
        engine = Engine(SqliteStore(path), registry)
        await engine.open(drive=False)
        attendant = Attendant(engine, order, _view(order))
        try:
            code = await attendant.attend(spec, inputs)
        finally:
            await engine.close()
    finally:
        lock.free()
    for line in attendant.parting:  # said last: whoever follows it finds the file free
        say(line)
    return code


def _view(order: Order) -> View:
    if order.as_json:
        return Silence()
    return Tree() if sys.stderr.isatty() else Lines()


class Attendant:
    """Stays with one run until it ends, waits for somebody else, or the person leaves."""

    def __init__(self, engine: Engine, order: Order, view: View) -> None:
        self._engine, self._order, self._view = engine, order, view
        self._steps = Steps()
        self._live: Live | None = None
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.parting: list[str] = []  # how to go on, if the run is not over

    async def attend(self, spec: WorkflowSpec | None, inputs: dict[str, Any]) -> int:
        self._engine.listeners.append(self._heard)
        self._listen_to_signals()
        with self._ticking():
            live = await (self._go_on(spec) if self._order.run_id else self._start(spec, inputs))
            self._hear_of(live)
            ended = asyncio.ensure_future(self._engine.ended(live.run.no))
            either: set[asyncio.Future[Any]] = {ended, self._left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return await self._report(ended.result(), EXIT_CODES[ended.result().run.status])
        ended.cancel()
        return await self._report(live, self._left.result())

    async def _start(self, spec: WorkflowSpec | None, inputs: dict[str, Any]) -> Live:
        assert spec is not None
        return await self._engine.start(spec, inputs)

    async def _go_on(self, spec: WorkflowSpec | None) -> Live:
        """Take the ordered run up: what happened so far is read first, then it is ours."""
        engine, run_id = self._engine, RunId(self._order.run_id or "")
        row = await engine.store.run_by_id(DEFAULT_TENANT, run_id)
        if row is None:
            raise NotFound(f"no run {run_id} in {self._order.db or DEFAULT_DB}")
        self._steps = await steps_so_far(engine.store, row.no)
        if spec is not None and engine.plans.of_spec(spec).version != row.version:
            say(f"{self._order.file} has changed since; the run goes on with the version that it began with")
        return await engine.take_up(run_id)

    # ------------------------------------------------------------------------------------------------ watching

    def _heard(self, live: Live, event: Any, decisions: Any) -> None:
        """A row is durable: a fact and what follows from it."""
        if live.run.no != self._hear_of(live).run.no:
            return
        self._view.changed(self._steps.take(event, decisions, live.run.at))
        if self._steps.without_tool:
            self._leave(WAITS_FOR_OUTSIDE)

    def _hear_of(self, live: Live) -> Live:
        """The first run that is heard of is ours."""
        if self._live is None:
            self._live = live
            self._view.begin(live.run.id, live.plan.name, list(live.plan.root.nodes), self._steps)
            self._view.changed(list(self._steps.by_path.values()))
        return self._live

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)
        elif code > SIGNALLED:
            os._exit(code)  # asked twice: the journal has everything, the file is fit to go on

    def _listen_to_signals(self) -> None:
        """Ctrl-C asks to stop; it does not stop anything by itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._leave, SIGNALLED + number)

    @contextlib.contextmanager
    def _ticking(self) -> Iterator[None]:
        async def tick() -> None:
            while True:
                self._view.tick()
                await asyncio.sleep(1 / FRAMES_PER_SECOND)

        task = asyncio.ensure_future(tick())
        try:
            yield
        finally:
            task.cancel()
            self._view.end()

    # ----------------------------------------------------------------------------------------------- the end

    async def _report(self, live: Live, code: int) -> int:
        run = live.run
        status = run.status
        output = await output_of(self._engine.store, live.plan, run) if status == "completed" else None
        if self._order.as_json:
            steps = await read_steps(self._engine.store, live.plan, run, every=self._order.all_steps)
            error = None if run.error is None else msgspec.to_builtins(run.error)
            data = {path: step_data(step) for path, step in steps.items()}
            give({"run_id": run.id, "status": status, "output": output, "error": error, "steps": data})
        else:
            self._tell_end(live, output)
        if code >= WAITS_FOR_OUTSIDE:
            self.parting = self._how_to_go_on(live, code)
        return code

    def _tell_end(self, live: Live, output: Any) -> None:
        run = live.run
        if not run.over:
            return
        took = span(run.at - run.created_at)
        if run.status == "completed":
            say(f"completed in {took}")
            return give(output)
        error = run.error or Error(run.status, f"the run is {run.status}")
        say(f"{run.status} after {took}: {told(error)}")

    def _how_to_go_on(self, live: Live, code: int) -> list[str]:
        missing = self._steps.without_tool if code == WAITS_FOR_OUTSIDE else []
        lines = [f"run {live.run.id} waits for {tool}" for tool in _tools_of(live, missing)]
        if not missing:
            lines = [f"stopped; run {live.run.id} is kept and goes on where it was"]
        return [*lines, f"go on with: {self._command(live, missing)}"]

    def _command(self, live: Live, missing: list[StepView]) -> str:
        order = self._order
        parts = ["holdfast", "run", *([str(order.file)] if order.file else []), "--continue", live.run.id]
        parts += [part for reference in order.tools for part in ("--tools", reference)]
        parts += ["--tools", self._likely_module()] if missing else []
        return " ".join(parts + (["--db", order.db] if order.db else []))

    def _likely_module(self) -> str:
        return "tools" if Path("tools.py").exists() and "tools" not in self._order.tools else "MODULE"


def _tools_of(live: Live, missing: list[StepView]) -> list[str]:
    """Each tool that steps wait for, with the first of those steps."""
    by_tool: dict[str, list[str]] = {}
    for step in missing:
        node = live.plan.node(step.path)
        assert isinstance(node, Call)
        by_tool.setdefault(node.target, []).append(step.path)
    more = {tool: f" and {len(paths) - 1} more" if len(paths) > 1 else "" for tool, paths in by_tool.items()}
    return [f"the tool {tool!r} of step {paths[0]}{more[tool]}" for tool, paths in by_tool.items()]
