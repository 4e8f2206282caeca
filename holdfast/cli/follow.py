"""Following a run: how it is shown while it runs, how its outcome is reported, and the exit code.

a run in this process     ──► run.py: Attendant ─┐
a run in another process  ──► Follower ──────────┴──► view, end, exit code
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any, Final

import msgspec

from holdfast.api.types import LEFT_ALONE, Run
from holdfast.cli.ask import decision, may_ask
from holdfast.cli.render import (
    FRAMES_PER_SECOND,
    Lines,
    Silence,
    Tree,
    View,
    error_line,
    is_in,
    ms_of,
    painted,
    span,
    step_data,
)
from holdfast.cli.safe import harmless
from holdfast.cli.source_protocol import NO_ENGINE, Answer, News, Source
from holdfast.cli.streams import UNWRITTEN, give, say
from holdfast.config import Settings
from holdfast.errors import HoldfastError, NotWaiting
from holdfast.stopping import stop_signals
from holdfast.values import TERMINAL, Error, segment
from holdfast.views.steps import Steps, StepView

COMPLETED: Final = 0
FAILED: Final = 1
CANCELLED: Final = 3
WAITS_FOR_OUTSIDE: Final = 4
EXIT_CODES: Final = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED, "interrupted": FAILED}
# exit code of a process that a signal ended, as in a shell: 129 for HUP, 130 for Ctrl-C, 143 for TERM
SIGNALLED: Final = 128


def chosen_view(settings: Settings, *, as_json: bool, all_steps: bool) -> View:
    if as_json:
        return Silence()
    if settings.log == "text" and sys.stderr.isatty() and not all_steps:  # a tree is cut to the screen
        return Tree()
    return Lines(every=all_steps)


@contextlib.contextmanager
def ticking(view: View) -> Iterator[None]:
    """Let a view redraw itself while this context is open."""

    async def tick() -> None:
        while True:
            view.tick()
            await asyncio.sleep(1 / FRAMES_PER_SECOND)

    task = asyncio.ensure_future(tick())
    try:
        yield
    finally:
        task.cancel()
        view.end()


def show_end(status: str, took_ms: int, output: Any, error: Error | None) -> bool:
    """Report how a run ended and write its output. Returns False if the output could not be written."""
    took = span(took_ms)
    if status == "completed":
        say(painted(f"completed in {took}", status, fd=2))
        return give(output)
    why = error or Error(status, f"the run is {status}")
    say(painted(f"{status} after {took}: {error_line(why)}", status, fd=2))
    return True


def result_data(
    run_id: str, status: str, output: Any, error: Error | None, steps: dict[str, StepView]
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "status": status,
        "output": output,
        "error": None if error is None else msgspec.to_builtins(error),
        "steps": {path: step_data(step) for path, step in steps.items()},
    }


class Follower:
    """Shows a run of another process. Leaving does not affect the run.

    With `leaves_stuck` it leaves when every open step waits for an external answer; on a terminal it asks for
    approvals first.
    """

    def __init__(
        self, source: Source, view: View, *, every: bool, as_json: bool = False, leaves_stuck: bool = False
    ) -> None:
        self._source, self._view = source, view
        self._every, self._as_json, self._leaves_stuck = every, as_json, leaves_stuck
        self._steps = Steps(every=every)
        self._names: list[str] = []
        self._asking: tuple[str, asyncio.Task[None]] | None = None  # for which approval
        self._asked: set[str] = set()
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def follow(self, run_id: str) -> int:
        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._leave, SIGNALLED + number)
        with ticking(self._view):
            watching = asyncio.ensure_future(self._watch(run_id))
            either: set[asyncio.Future[Any]] = {watching, self._left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._ask_no_more()
            if not watching.done():
                watching.cancel()
                await asyncio.wait([watching])
        if not self._left.done():
            watching.result()
        run = await self._source.run(run_id)
        if run.status in TERMINAL:
            return EXIT_CODES[run.status] if await self._is_end_shown(run) else UNWRITTEN
        if not self._left.done():
            return self._is_left_alone(run)
        return await self._part(run)

    def _is_left_alone(self, run: Run) -> int:
        """No engine drives the run, so nothing of it will change."""
        say(f"run {run.run_id} is waiting: {run.reason if run.reason == LEFT_ALONE else NO_ENGINE}")
        self._say_command("continue it", "run", "--continue", run.run_id)
        return WAITS_FOR_OUTSIDE

    async def _watch(self, run_id: str) -> None:
        run, self._names = await self._source.run(run_id), await self._source.names(run_id)
        has_begun = False

        def begin() -> None:
            self._view.begin(run_id, run.workflow, list(map(segment, self._names)), self._steps)

        async with aclosing(self._source.news(run_id)) as pages:
            async for news in pages:
                self._take(news, shows=has_begun)
                if news.has_more:
                    continue
                if not has_begun:  # past steps are shown at once, later ones as they happen
                    has_begun = True
                    begin()
                if run.reason == LEFT_ALONE:
                    return
                if self._leaves_stuck:
                    self._ask_or_leave(run_id, begin)

    def _take(self, news: News, *, shows: bool) -> None:
        for row in news.rows:
            changed = self._steps.take_row(row)
            if shows:
                self._view.changed(changed)
        for said in news.said:
            self._view.progressed(said.path, said.fraction, said.message)

    def _ask_or_leave(self, run_id: str, begin: Callable[[], None]) -> None:
        """If the run cannot continue without an external answer: ask the person for it, or leave."""
        stuck = self._steps.stuck
        gates = [step.path for step in stuck if step.reason == "approval"]
        if self._asking is not None:
            if self._asking[0] in gates:
                return
            self._ask_no_more()  # it was answered elsewhere, or expired
            begin()
        gate = next((path for path in gates if path not in self._asked), None)
        if gate is not None and may_ask() and not self._as_json:
            self._asked.add(gate)
            self._asking = gate, asyncio.ensure_future(self._ask(run_id, gate, begin))
        elif stuck and all(
            step.reason != "key" for step in stuck
        ):  # a key is held by a run that is driven there
            self._leave(WAITS_FOR_OUTSIDE)

    async def _ask(self, run_id: str, path: str, begin: Callable[[], None]) -> None:
        """Ask for an approval on the terminal; if it is left open, leave. The answer arrives as an event like any
        other."""
        try:
            waits = (await self._source.run(run_id)).waits
            detail = next(
                (wait.detail for wait in waits if (wait.path, wait.kind) == (path, "approval")), None
            )
            if detail is None:
                return  # its outcome will arrive as news
            self._view.end()
            said = await decision(path, detail)
            if said is None:
                self._leave(WAITS_FOR_OUTSIDE)
            elif not await self._source.approve(run_id, path, Answer(*said)):
                self._asking = None  # more approvers have to answer
                begin()
                self._ask_or_leave(run_id, begin)
        except NotWaiting as error:
            say(str(error))
        except HoldfastError as error:
            say(str(error))
            self._leave(WAITS_FOR_OUTSIDE)

    def _ask_no_more(self) -> None:
        if self._asking is not None:
            self._asking[1].cancel()
            self._asking = None

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)

    # ------------------------------------------------------------------------------------------------- the end

    async def _is_end_shown(self, run: Run) -> bool:
        if self._as_json:
            return await self._is_given(run)
        took = ms_of(run.finished_at or run.created_at) - ms_of(run.created_at)
        is_shown = show_end(run.status, took, run.output, run.error)
        if run.status == "failed":
            self._say_command("see each step and its traceback", "runs", "show", run.run_id, "--trace")
            self._say_command("after fixing the cause", "runs", "rerun", run.run_id, *self._from(run))
        return is_shown

    def _from(self, run: Run) -> tuple[str, ...]:
        """The top-level step that failed, from which to re-run."""
        path = "" if run.error is None else run.error.path
        steps = [name for name in self._names if path == segment(name) or is_in(path, segment(name))]
        return ("--from", steps[0]) if steps else ()

    async def _is_given(self, run: Run) -> bool:
        steps, _ = await self._source.steps(run.run_id, every=self._every)
        return give(result_data(run.run_id, run.status, run.output, run.error, steps))

    async def _part(self, run: Run) -> int:
        """Report that the run continues without this command, and what it waits for if that is the reason for
        leaving."""
        code = self._left.result()
        if self._as_json and not await self._is_given(run):
            return UNWRITTEN
        if code == WAITS_FOR_OUTSIDE:
            for reason in (await self._source.explain(run.run_id)).reasons:
                say(harmless(f"{reason.path or 'the run'}  {reason.reason}: {reason.unblocks}"))
        say(f"run {run.run_id} is {run.status} at {self._source.place}, and continues there")
        self._say_command("follow it again", "runs", "watch", run.run_id)
        return code

    def _say_command(self, why: str, *words: str) -> None:
        say(f"{why}: {shlex.join(['holdfast', *words, *self._source.flags])}")
