"""The queue of committed starts, and the slots in which they run. Does not know retries, which the engine decides.

A tool that never waits needs no task of its own: one runner calls many such tools in a row. If the runner is
suspended inside one, the rest moves to another runner, and that tool gets its own task from then on. Sync tools need
a thread, isolated tools a process; starts beyond their number wait in a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from holdfast.engine.events import (
    AttemptReleased,
    AttemptTimedOut,
    Event,
    StepFailed,
    StepPaused,
    StepSucceeded,
)
from holdfast.errors import LimitExceeded
from holdfast.execution.attempt import SHORT_BYTES_MAX, AtHand, Attempt, Key, Outcomes, is_mere
from holdfast.execution.contexts import Contexts
from holdfast.execution.crash_isolation import CrashIsolation
from holdfast.execution.deadlines import Deadlines
from holdfast.execution.inputs import CallbackUrl, Inputs, LargeArguments
from holdfast.execution.jobs import Jobs
from holdfast.execution.large_results import large_text
from holdfast.execution.logs import Logs, current
from holdfast.execution.outputs import Outputs
from holdfast.execution.queues import Queues
from holdfast.plan.graph import Call
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.large_arguments import Start
from holdfast.runtime.resident_run import ResidentRun, has_answer
from holdfast.runtime.service import Service
from holdfast.store.artefacts import Artefacts
from holdfast.tools.registry import Registry, Tool
from holdfast.tools.results import small_text
from holdfast.tools.secrets import SecretUnavailable
from holdfast.values import RunNo, decode, written
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

ATTEMPTS_MAX: Final = 1_000  # attempts running in one node
JOBS_MAX: Final = 10_000  # jobs at pull workers beyond this number take slots like other attempts
THREADS_MAX: Final = 32  # sync tools running in one node
SIMPLE: Final = frozenset({int, bool, type(None)})  # nothing about these can be bent or refused
# For tools that never wait, one after another, before the event loop gets its turn. In a server a request takes five
# turns on a new connection; a program of its own has nothing that waits as urgently, and longer turns make fewer commits.
LEASE_LOOK_SECONDS: Final = 1.0  # between two looks at a lease that may have expired
TURN_SECONDS: Final = 0.05
TURN_SECONDS_OF_SERVER: Final = 0.01
TURN_TASKS: Final = 50  # started in one turn: those that do not wait all finish in the next one


class Dispatch(Service):
    def __init__(
        self,
        door: Door,
        registry: Registry,
        clock: Clock,
        workers: Workers,
        outputs: Outputs,
        logs: Logs,
        artefacts: Artefacts | None,
        *,
        places: int = ATTEMPTS_MAX,
        threads: int = THREADS_MAX,
        processes: int | None = None,
        process_memory_bytes: int | None = None,
        turn_seconds: float = TURN_SECONDS,
        workdirs: Path | None = None,
        callback_url: CallbackUrl | None = None,
    ) -> None:
        self.door, self.registry, self.clock, self.places = door, registry, clock, places
        self.workers, self.secrets = workers, outputs.secrets
        self._monotonic, self._turn_seconds = clock.monotonic, turn_seconds
        self.attempts: dict[Key, Attempt] = {}
        self._large = workers.calls.arguments
        self.queues = Queues(door, places, self._large, threads, processes or os.cpu_count() or 1)
        self.queue, self._lines = self.queues.ready, self.queues.lines
        self.is_stopping = False
        # Asked right before each start, where another node may take the runs of this one over; None: no other can.
        self.may_start: Callable[[], bool] | None = None
        self.when_free: Callable[[], None] | None = None  # called when a slot is free and runs wait for one
        self._runner: asyncio.Task[None] | None = None
        # the attempt that the runner is performing; no other part knows it
        self._at_hand: AtHand | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pulled = workers.assignments
        self._pulled.when_waiting = self._make_use_of_place
        self.inputs = Inputs(self.secrets, callback_url)
        self.outcomes = Outcomes(
            door,
            clock,
            workers,
            outputs,
            threads=threads,
            processes=self._lines["process"].limit,
            process_memory_bytes=process_memory_bytes,
        )
        self.logs, logs.at_hand, self.outcomes.on_raised = logs, self._performed_here, logs.raised
        self.contexts = Contexts(logs, self.secrets, artefacts, workdirs)
        self.jobs = Jobs(door, workers, self.inputs, self.outcomes, self.secrets, self.contexts.listener)
        self.isolation = CrashIsolation(door, self._is_here)
        self._deadlines = Deadlines(clock, workers.pulse, self.attempts, self._time_out)

    @property
    def free_places(self) -> int:
        return self._room - len(self.attempts) - len(self.queues)

    @property
    def _room(self) -> int:
        """How many attempts may be open. Jobs that wait for a pull worker take no slot from the others."""
        return self.places + min(self._pulled.waiting, JOBS_MAX)

    def _make_use_of_place(self) -> None:
        if self.queue and self._runner is None and not self.is_stopping:
            asyncio.get_running_loop().call_soon(self._fill_places)

    def has(self, no: RunNo, path: str, number: int) -> bool:
        """Whether this attempt is running here, or waits for a slot."""
        attempt = self.attempts.get((no, path))
        return (no, path, number) in self.queues or (attempt is not None and attempt.number == number)

    def _is_here(self, key: Key) -> bool:
        return key in self.attempts or self.queues.has(*key)

    def attempts_of(self, no: RunNo) -> set[tuple[str, int]]:
        """The attempts of a run, as path and number, that are running here or wait for a slot."""
        at_work = {(path, attempt.number) for (run, path), attempt in self.attempts.items() if run == no}
        return at_work | {(path, number) for run, path, number in self.queues if run == no}

    # ------------------------------------------------------------------------------------------------ starting

    def start(self, resident: ResidentRun, path: str, number: int) -> None:
        if self.is_stopping:
            if not self.workers.holds((resident.run.no, path, number)):
                self.door.apply(resident, AttemptReleased(path, number, "stopping"))
        else:
            self.queue.append((resident.run.no, path, number))
            if self._runner is None:
                self._hire()

    def start_all(self, starts: list[Start]) -> None:
        """Start the first attempts of calls, as `start` does."""
        if self.is_stopping:
            for no, path, number in starts:
                if not self.workers.holds((no, path, number)):
                    self.door.deliver(no, AttemptReleased(path, number, "stopping"))
        else:
            self.queue.extend(starts)
            if self._runner is None:
                self._hire()

    def _begin(self, resident: ResidentRun, path: str, number: int) -> Attempt | None:
        """Turn a committed start into an attempt, if the run still waits for it and the tool is registered here.

        The caller must perform a returned attempt at once; an attempt that waits by nature has got a task.
        """
        run = resident.run
        step = run.steps.get(path)
        if step is None or step.attempt != number or step.state != "running":
            return None  # stopped or taken back before it started
        if self.may_start is not None and not self.may_start():
            asyncio.get_running_loop().call_later(LEASE_LOOK_SECONDS, self.start, resident, path, number)
            return None
        if step.target is not None:
            self.door.apply(resident, AttemptReleased(path, number, "stopping"))
            return None
        node: Call = resident.plan.root.nodes.get(path) or resident.plan.node(path)  # type: ignore[assignment]  # others are not started
        if node.service is not None:
            self._begin_job(resident, node, path, number)
            return None
        tool = self.registry.get(node.target) or self.registry.remote(node.target)
        if tool is None:
            self._give_back(resident, path, number, node.target)
            return None
        try:
            args = self.inputs.of_tool(resident, node, tool, path, number)
        except LargeArguments as large:
            self._begin_large(resident, node, tool, path, number, large.size)
            return None
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            self._refuse(resident, path, number, error)
            return None
        attempt = Attempt((run.no, path), number, tool, args, run.tenant)
        if tool.is_plain and node.is_plain and self.isolation.running is None:
            return attempt  # if it never waits, no other part can see it
        return self._launch(resident, node, attempt)

    def _begin_large(
        self, resident: ResidentRun, node: Call, tool: Tool, path: str, number: int, size: int
    ) -> None:
        """Begin an attempt whose arguments take room. They are opened in its own task."""
        run, line = resident.run, self._lines.get(tool.runs_in)
        if line is not None and line.taken >= line.limit:
            return line.waiting.append((run.no, path, number))
        if not self._large.take(size, (run.no, path, number)):
            return None
        try:
            given = self.inputs.text_of_tool(resident, path)
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            self._large.give_back(size)
            return self._refuse(resident, path, number, error)
        attempt = Attempt((run.no, path), number, tool, {}, run.tenant, large_bytes=size, given=given)
        attempt.bind = self.inputs.binder(resident, node, tool, path, number)
        self._launch(resident, node, attempt)

    def _begin_job(self, resident: ResidentRun, node: Call, path: str, number: int) -> None:
        """Pass the call of a service to the workers."""
        try:
            attempt = self.jobs.attempt(resident, node, path, number)
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            return self._refuse(resident, path, number, error)
        if attempt.job is not None and self.workers.lacks(attempt.job):
            return self.jobs.let_wait(attempt.job, AttemptReleased(path, number, "no_worker", waits=True))
        self._launch(resident, node, attempt)

    def _refuse(self, resident: ResidentRun, path: str, number: int, error: Exception) -> None:
        """Fail the attempt before it starts, because its inputs do not match the call."""
        self.door.apply(resident, StepFailed(path, number, self.outcomes.described(error, path, number)))

    def rejoin(self, resident: ResidentRun) -> None:
        """Wait again for jobs of a run that workers fetched before this process started; drop other jobs."""
        no = resident.run.no
        for path, number, is_stopping in self.jobs.still_wanted(resident):
            if not self.has(no, path, number):
                self._begin_job(resident, resident.plan.node(path), path, number)  # type: ignore[arg-type]  # only calls have jobs
                if is_stopping:
                    asyncio.get_running_loop().call_soon(self.stop, no, path)

    def rejoin_all(self) -> None:
        """Commits work again. A worker whose result could not be written sends it again, or is too late."""
        for no in {key[0] for key in self.workers.unheard()}:
            if (resident := self.door.residents.get(no)) is not None:
                self.rejoin(resident)
            else:
                for key in self.workers.held(no):
                    self.workers.forget_job(key)

    def _give_back(self, resident: ResidentRun, path: str, number: int, target: str) -> None:
        if not resident.lacks:
            log.warning(
                "run %s: step %s waits for the tool %r, which is not registered here",
                resident.run.id,
                path,
                target,
            )
        resident.lacks, resident.is_settled = True, False
        self.door.apply(resident, AttemptReleased(path, number, "no_tool", waits=True))

    def _launch(self, resident: ResidentRun, node: Call, attempt: Attempt) -> Attempt | None:
        run, tool, key = resident.run, attempt.tool, attempt.key
        line = self._lines.get(tool.runs_in)
        if line is not None:
            if line.taken >= line.limit:
                line.waiting.append((run.no, attempt.path, attempt.number))
                return None
            line.taken += 1
        self.attempts[key], attempt.is_known = attempt, True
        if tool.context is not None or tool.isolated:
            attempt.context = self.contexts.of(run, attempt)
            if tool.context is not None and not tool.isolated and attempt.given is None:
                attempt.args[tool.context] = attempt.context
        attempt.answer = node.answer
        if node.fails_on_crash:
            attempt.only_once = True
        if node.timeout_ms is not None:
            self._deadlines.add(attempt, node.timeout_ms)
        if self.isolation.running == key:
            attempt.is_isolated = True
        if not tool.suspends and attempt.given is None:
            return attempt
        attempt.task = self._task(self._perform(attempt))
        return None

    def _performed_here(self) -> Attempt | None:
        """The attempt that the code of this task belongs to."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # the loop is not running: this is code of the program that owns it
            return None
        if task is not None and task is self._runner:
            return None if self._at_hand is None else self._at_hand.as_attempt()
        return next((one for one in self.attempts.values() if one.task is task), None) if task else None

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _hire(self) -> None:
        self._at_hand = None
        runner = self._runner = self._task(self._run_queue())
        asyncio.get_running_loop().call_soon(self._relieve, runner)

    def _relieve(self, runner: asyncio.Task[None]) -> None:
        """Called right after a runner's first turn: if the runner is still in it, it is suspended inside a tool."""
        if self._runner is not runner:
            return
        self._runner, hand = None, self._at_hand
        if hand is not None:
            attempt = hand.as_attempt()
            self.attempts[attempt.key], attempt.is_known, attempt.has_begun = attempt, True, True
            attempt.task = runner
        if not self.is_stopping:
            self._fill_places()

    async def _run_queue(self) -> None:
        """Start and perform queued attempts one after another, while the data of a step is still in the CPU cache."""
        current.set(None)  # a tool may have caused this turn, and its context was copied
        me, door, queue, room = asyncio.current_task(), self.door, self.queue, self._room
        attempts, residents, monotonic = self.attempts, door.residents, self._monotonic
        began = monotonic()
        until, tasks, hand, secrets = began + self._turn_seconds, 0, AtHand(), self.secrets
        event: Event | None
        for _ in range(len(queue)):  # no more than this, so that the loop can run other tasks
            if not queue or len(attempts) >= room:
                break  # freeing a slot starts the rest
            if began > until or tasks >= TURN_TASKS:
                break  # large values take long: other callers are served between them
            start = queue.popleft()
            no, path, number = start
            if (resident := residents.get(no)) is None and no in door.away:
                queue.appendleft(start)
                break  # so does reloading the run
            self._at_hand = None  # what is said while arguments are made is in the log of no other attempt
            if resident is None or not self._take_up(hand, resident, path, number):
                tasks += 1 if monotonic() < until else TURN_TASKS
                continue
            self._at_hand, tool, began, event, text = hand, hand.tool, monotonic(), None, b""
            try:  # as Outcomes.of does it, without a coroutine for each
                output = await tool.fn(**hand.args)
                text = (
                    written(output)
                    if type(output) in SIMPLE
                    else small_text(output) or await large_text(output)
                )
                attempt = hand.attempt
                is_short = len(text) <= SHORT_BYTES_MAX or is_mere(text)
                if not is_short or secrets.are_known or (attempt is not None and attempt.answer is not None):
                    event = await self.outcomes.of_answer(hand.as_attempt(), text, began)
            except BaseException as error:
                event = self.outcomes.of_error(hand.as_attempt(), error, began)
            if self._runner is not me:
                tool.waits()
                attempt = hand.as_attempt()
                return self._answered(attempt, event or self._succeeded(attempt, text, began))
            attempt = hand.attempt
            if event is not None:
                self._settle(resident, hand.as_attempt(), event)
            elif attempt is not None and (attempt.is_known or attempt.lines is not None):
                self._settle(resident, attempt, self._succeeded(attempt, text, began))
            else:
                door.succeed(resident, path, number, text, int((monotonic() - began) * 1000))
        self._runner = None
        if queue and not door.is_stalled:
            self._fill_places()
        self.slot_is_free()

    def _take_up(self, hand: AtHand, resident: ResidentRun, path: str, number: int) -> bool:
        """Prepare the next call. One of which nothing is left to ask does without an Attempt; see ResidentRun.open_call."""
        way = resident.open_call
        if way is not None and way.name == path and self.may_start is None and self.isolation.running is None:
            call: Call = way.call  # type: ignore[assignment]  # which it has, if it is what led to a call
            tool = self.registry.get(call.target)
            if tool is not None and tool.is_plain and call.is_bare and not tool.takes_callback:
                try:
                    hand.args = tool.bind(decode(resident.run.steps[path].inputs))
                except (ValueError, LimitExceeded) as error:
                    self._refuse(resident, path, number, error)
                    return False
                hand.resident, hand.path, hand.number, hand.tool, hand.attempt = (
                    resident,
                    path,
                    number,
                    tool,
                    None,
                )
                return True
        attempt = self._begin(resident, path, number)
        if attempt is None:
            return False
        hand.tool, hand.args, hand.attempt = attempt.tool, attempt.args, attempt
        return True

    def _settle(self, resident: ResidentRun, attempt: Attempt, event: Event) -> None:
        """Apply the outcome of an attempt that the runner has performed."""
        if attempt.is_known:
            return self._answered(attempt, event)
        if attempt.lines is not None:
            self.logs.ended(attempt, self.door.batch)
        self.door.apply(resident, event)

    def _succeeded(self, attempt: Attempt, text: bytes, began: float) -> StepSucceeded:
        return StepSucceeded(attempt.path, attempt.number, Raw(text), int((self._monotonic() - began) * 1000))

    # ----------------------------------------------------------------------------------------------- performing

    async def _perform(self, attempt: Attempt) -> None:
        if attempt.stopped or self.is_stopping:
            with contextlib.suppress(asyncio.CancelledError):  # the end of the engine is not an outcome
                event: Event = self.outcomes.of_error(attempt, asyncio.CancelledError(), self._monotonic())
                self._answered(attempt, event)
            return
        attempt.has_begun = True
        current.set(attempt)
        event = await self.outcomes.of(attempt)
        current.set(None)  # what follows, and the tasks that it starts, are not part of the attempt
        if attempt.job is not None and isinstance(event, StepSucceeded | StepFailed | StepPaused):
            event.worker = attempt.job.worker
        self._answered(attempt, event)

    def _answered(self, attempt: Attempt, event: Event) -> None:
        if self.attempts.get(attempt.key) is attempt:  # an overlapping attempt may have replaced it
            del self.attempts[attempt.key]
        line = self._lines.get(attempt.tool.runs_in)
        if line is not None:
            line.taken -= 1
        if attempt.large_bytes:
            attempt.args = None
            self._large.give_back(attempt.large_bytes)
        if attempt.context is not None:
            attempt.context.close()
        if attempt.is_isolated:
            self.isolation.ended(attempt.key)
        if not self.is_stopping:
            if attempt.lines is not None:
                self.logs.ended(attempt, self.door.batch)
            for sha256, size in attempt.artefacts:
                self.door.batch.artefacts.append((attempt.no, sha256, size, self.clock.now()))
            if attempt.job is None:
                self.door.deliver(attempt.no, event)
            elif isinstance(event, AttemptReleased):
                self.jobs.let_wait(attempt.job, event)
            else:
                self.jobs.deliver(attempt.job, event)
            if (
                (line is not None and line.waiting)
                or self._large.waiting
                or (self.queue and self._runner is None)
            ):
                self._fill_places()
            self.slot_is_free()

    def slot_is_free(self) -> None:
        """An attempt has ended, or a run was evicted: load runs that wait for a slot."""
        if self.when_free is not None:
            self.when_free()

    def _fill_places(self) -> None:
        for line in self._lines.values():
            while line.taken < line.limit and (start := self.queues.first(line.waiting)) is not None:
                self._begin(*start)
        large = self._large
        while large.has_room() and (start := self.queues.first(large.waiting)) is not None:
            self._begin(*start)
        if self.queue and self._runner is None and len(self.attempts) < self._room:
            self._hire()

    # ------------------------------------------------------------------------------------------ stopping, time-outs

    def stop(self, no: RunNo, path: str) -> None:
        """Ask an attempt to stop. An async tool is cancelled, a process is killed; a sync tool can only check its
        Context."""
        attempt = self.attempts.get((no, path))
        # or its successor, which it overlaps, is the one that is meant
        if attempt is None or attempt.stopped:
            return self._stop_queued(no, path)
        attempt.stopped = True
        if attempt.context is not None:
            attempt.context.cancel()
        if attempt.job is not None and self.workers.stop(attempt.job):
            return  # the worker is notified, and answers
        # One that has not begun looks at `stopped` when it does; to cancel its task would be to lose its answer.
        if attempt.tool.runs_in != "thread" and attempt.has_begun and attempt.task is not None:
            attempt.task.cancel()

    def _stop_queued(self, no: RunNo, path: str) -> None:
        """An attempt that waits for a slot is released without having started."""
        number = self.queues.remove(no, path)
        if number is not None:
            self.door.deliver(no, AttemptReleased(path, number, "stopping"))

    def _time_out(self, attempt: Attempt) -> None:
        self.door.deliver(attempt.no, AttemptTimedOut(attempt.path, attempt.number))

    def resume(self) -> None:
        """Commits work again: start what waited for that."""
        self._fill_places()
        self.isolation.start_next()

    # ------------------------------------------------------------------------------------------------- the end

    async def close(self) -> None:
        if not self.door.committer.is_shut:
            self.release()
            await self.door.drained()
        self.abandon()

    def release(self) -> None:
        """Give back every open attempt without counting it: a graceful stop costs a step nothing.

        An attempt that has started and must not run twice is not given back: its outcome is unknown, so it is lost.
        """
        for (no, path), attempt in self.attempts.items():
            if self.workers.holds((no, path, attempt.number)):
                continue  # its worker continues, and the next owner of the run waits for the result
            if has_answer(self.door.residents.get(no), path):
                self.door.deliver(no, StepPaused(path, attempt.number, ""))
            elif not (attempt.has_begun and attempt.only_once):
                self.door.deliver(no, AttemptReleased(path, attempt.number, "stopping"))
        for no, path, number in self.queues:
            if not self.workers.holds((no, path, number)):
                self.door.deliver(no, AttemptReleased(path, number, "stopping"))
        self.queues.clear()
        self.abandon()

    def abandon(self, error: Exception | None = None) -> None:
        """Stop all calls silently. Their results are ignored from now on."""
        self.is_stopping = True
        self._deadlines.close()
        self.isolation.close()
        for attempt in self.attempts.values():
            if attempt.context is not None:
                attempt.context.cancel()
        for task in self._tasks:
            task.cancel()
        self.outcomes.close()
