"""Committed starts and the slots in which they run. Does not know retries, which the engine decides.

A tool that never waits needs no task of its own: one runner calls many such tools in a row (`runner`). Sync tools need
a thread, isolated tools a process; starts beyond their number wait in a queue. A start becomes an attempt in `beginning`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from holdfast.engine.events import (
    AttemptReleased,
    AttemptTimedOut,
    Event,
    StepFailed,
    StepPaused,
    StepSucceeded,
)
from holdfast.execution.attempt import Attempt, Key, Outcomes
from holdfast.execution.beginning import Beginning
from holdfast.execution.contexts import Contexts
from holdfast.execution.crash_isolation import CrashIsolation
from holdfast.execution.deadlines import Deadlines
from holdfast.execution.inputs import CallbackUrl, Inputs
from holdfast.execution.jobs import Jobs
from holdfast.execution.logs import Logs, current
from holdfast.execution.outputs import Outputs
from holdfast.execution.queues import Queues
from holdfast.execution.runner import Runner
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.large_arguments import Start
from holdfast.runtime.resident_run import ResidentRun, has_answer
from holdfast.runtime.service import Service
from holdfast.store.artefacts import Artefacts
from holdfast.tools.registry import Registry
from holdfast.values import RunNo
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

ATTEMPTS_MAX: Final = 1_000  # attempts running in one node
RELEASED_AT_ONCE: Final = 100  # starts that are released in one turn of the loop because their run stops
JOBS_MAX: Final = 10_000  # jobs at pull workers beyond this number take slots like other attempts
THREADS_MAX: Final = 32  # sync tools running in one node
# For tools that never wait, one after another, before the event loop gets its turn. In a server a request takes five
# turns on a new connection; a program of its own has nothing that waits as urgently, and longer turns make fewer commits.
TURN_SECONDS: Final = 0.05
TURN_SECONDS_OF_SERVER: Final = 0.01


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
        may_start: Callable[[], bool] | None = None,
    ) -> None:
        """`may_start` is asked right before each start, where another node may take over the runs of this one; None: no other can."""
        self.door, self.registry, self.clock, self.places = door, registry, clock, places
        self.workers, self.secrets, self._monotonic = workers, outputs.secrets, clock.monotonic
        self.attempts: dict[Key, Attempt] = {}
        self._large = workers.calls.arguments
        self.queues = Queues(door, places, self._large, threads, processes or os.cpu_count() or 1)
        self.queue, self._lines = self.queues.ready, self.queues.lines
        self.is_stopping = False
        self.when_free: Callable[[], None] | None = None  # called when a slot is free and runs wait for one
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
        self._beginning = self._make_beginning(may_start)
        self._runner = self._make_runner(turn_seconds)

    def _make_beginning(self, may_start: Callable[[], bool] | None) -> Beginning:
        return Beginning(
            self.door,
            self.registry,
            self.workers,
            self.inputs,
            self.outcomes,
            self.contexts,
            self.jobs,
            self.isolation,
            self._deadlines,
            self.queues,
            self.attempts,
            may_start=may_start,
            again=self.start,
            perform=self._perform_apart,
        )

    def _make_runner(self, turn_seconds: float) -> Runner:
        return Runner(
            self.door,
            self.outcomes,
            self.logs,
            self.secrets,
            self._beginning,
            self.queue,
            self.attempts,
            turn_seconds=turn_seconds,
            monotonic=self._monotonic,
            room=self._room,
            spawn=self._task,
            answered=self._answered,
            on_suspended=self._fill_places,
            on_end=self._turn_has_ended,
        )

    @property
    def free_places(self) -> int:
        return self._room() - len(self.attempts) - len(self.queues)

    def _room(self) -> int:
        """How many attempts may be open. Jobs that wait for a pull worker take no slot from the others."""
        return self.places + min(self._pulled.waiting, JOBS_MAX)

    def _make_use_of_place(self) -> None:
        if self.queue and self._runner.task is None:
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
            if self._runner.task is None:
                self._runner.hire()

    def start_all(self, starts: list[Start]) -> None:
        """Start the first attempts of calls, as `start` does."""
        if self.is_stopping:
            for no, path, number in starts:
                if not self.workers.holds((no, path, number)):
                    self.door.deliver(no, AttemptReleased(path, number, "stopping"))
        else:
            self.queue.extend(starts)
            if self._runner.task is None:
                self._runner.hire()

    def rejoin(self, resident: ResidentRun) -> None:
        """Wait again for jobs of a run that workers fetched before this process started; drop other jobs."""
        no = resident.run.no
        for path, number, is_stopping in self.jobs.still_wanted(resident):
            if not self.has(no, path, number):
                self._beginning.begin_job(resident, resident.plan.node(path), path, number)  # type: ignore[arg-type]  # only calls have jobs
                if is_stopping:
                    asyncio.get_running_loop().call_soon(self.stop_all, [(no, path)])

    def rejoin_all(self) -> None:
        """Commits work again. A worker whose result could not be written sends it again, or is too late."""
        for no in {key[0] for key in self.workers.unheard()}:
            if (resident := self.door.residents.get(no)) is not None:
                self.rejoin(resident)
            else:
                for key in self.workers.held(no):
                    self.workers.forget_job(key)

    def _performed_here(self) -> Attempt | None:
        """The attempt that the code of this task belongs to."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # the loop is not running: this is code of the program that owns it
            return None
        if task is not None and task is self._runner.task:
            return self._runner.attempt
        return next((one for one in self.attempts.values() if one.task is task), None) if task else None

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ----------------------------------------------------------------------------------------------- performing

    def _perform_apart(self, attempt: Attempt) -> None:
        """Perform an attempt that waits by nature in a task of its own."""
        attempt.task = self._task(self._perform(attempt))

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
                or (self.queue and self._runner.task is None)
            ):
                self._fill_places()
            self.slot_is_free()

    def slot_is_free(self) -> None:
        """An attempt has ended, or a run was evicted: load runs that wait for a slot."""
        if self.when_free is not None:
            self.when_free()

    def _turn_has_ended(self) -> None:
        """The runner has left the queue."""
        if self.queue and not self.door.is_stalled:
            self._fill_places()
        self.slot_is_free()

    def _fill_places(self) -> None:
        if self.is_stopping:
            return
        for line in self._lines.values():
            while line.taken < line.limit and (start := self.queues.first(line.waiting)) is not None:
                self._beginning.begin(*start)
        large = self._large
        while large.has_room() and (start := self.queues.first(large.waiting)) is not None:
            self._beginning.begin(*start)
        if self.queue and self._runner.task is None and len(self.attempts) < self._room():
            self._runner.hire()

    # ------------------------------------------------------------------------------------------ stopping, time-outs

    def stop_all(self, stops: Iterable[Key]) -> None:
        """Ask attempts to stop. Those that wait for a slot are released without having started."""
        queued: set[Key] = set()
        for key in stops:
            attempt = self.attempts.get(key)
            # or its successor, which it overlaps, is the one that is meant
            if attempt is None or attempt.stopped:
                queued.add(key)
            else:
                self._stop(attempt)
        if queued and self.queues:
            self.queues.take_out(queued)
            self._release_stopped()

    def _release_stopped(self) -> None:
        """Release starts that were taken out of their queues, a part of them in each turn of the loop."""
        stopped = self.queues.stopped
        for _ in range(min(RELEASED_AT_ONCE, len(stopped))):
            no, path, number = stopped.popleft()
            self.door.deliver(no, AttemptReleased(path, number, "stopping"))
        if stopped:
            asyncio.get_running_loop().call_soon(self._release_stopped)

    def _stop(self, attempt: Attempt) -> None:
        """Ask one that has a slot. An async tool is cancelled, a process is killed; a sync tool can only check its Context."""
        attempt.stopped = True
        if attempt.context is not None:
            attempt.context.cancel()
        if attempt.job is not None and self.workers.stop(attempt.job):
            return  # the worker is notified, and answers
        # One that has not begun looks at `stopped` when it does; to cancel its task would be to lose its answer.
        if attempt.tool.runs_in != "thread" and attempt.has_begun and attempt.task is not None:
            attempt.task.cancel()

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
