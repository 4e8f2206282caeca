"""Committed starts become calls, and their outcomes events. Retries are the engine's to decide, not known here.

A tool that never waits needs no task of its own: one runner calls many of them in turn, and the moment it is found
waiting inside one, the rest goes to another runner and that tool gets a task from then on. Sync tools run in threads,
isolated ones in processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from holdfast import limits
from holdfast.engine.decisions import Decision, StartAttempt
from holdfast.engine.draft import Draft
from holdfast.engine.events import (
    AttemptReleased,
    AttemptTimedOut,
    Event,
    StepFailed,
    StepPaused,
    StepSucceeded,
)
from holdfast.engine.state import is_open
from holdfast.errors import HoldfastError, Superseded, Unavailable
from holdfast.execution.threads import Threads
from holdfast.plan.answers import Later, head_of, later
from holdfast.plan.expr import resolved
from holdfast.plan.graph import Answer, Call
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Advance, Live
from holdfast.store.artefacts import Artefacts
from holdfast.store.batch import Batch
from holdfast.store.records import AssignmentRow
from holdfast.tools.failures import ArgumentsMisfit, OutputTooLarge, described
from holdfast.tools.registry import Context, Registry, Tool
from holdfast.tools.secrets import LOOKED_AT_ONCE_BYTES, Secrets, SecretUnavailable
from holdfast.tools.threads import in_thread
from holdfast.values import Error, RunNo, decode, encode, idempotency_key, job_id, written
from holdfast.workers.push import Job
from holdfast.workers.service import Workers

if TYPE_CHECKING:
    from holdfast.tools.processes import Processes

log = logging.getLogger("holdfast")

ATTEMPTS_MAX: Final = 1_000  # attempts at work in one node
JOBS_MAX: Final = 10_000  # more of these at workers who fetch them take places like other attempts
THREADS_MAX: Final = 32  # sync tools at work in one node
LANE_SECONDS: Final = 5.0  # a suspect that has lived this long is not what kills the process
Key = tuple[RunNo, str]
Start = tuple[RunNo, str, int]
AttemptListener = Callable[[RunNo, str, int, str, dict[str, Any]], None]

STALE_ENTRIES: Final = 1_000
SIMPLE: Final = frozenset({int, bool, type(None)})  # nothing about these can be bent or refused
TURN_SECONDS: Final = (
    0.05  # for tools that never wait, one after another, before the event loop gets its turn
)
SHORT_BYTES_MAX: Final = len(
    '{"file_refs":[]'
)  # a shorter answer can neither name a file nor say that it is not the answer
PENDING: Final = b'"pending":true'


class Attempt(msgspec.Struct, eq=False):
    key: Key
    number: int
    tool: Tool
    args: dict[str, Any]
    tenant: str
    task: asyncio.Task[None] | None = None
    context: Context | None = None
    job: Job | None = None  # what a worker is asked to do
    answer: Answer | None = None  # what of its answer is the output
    artefacts: Sequence[tuple[str, int]] = ()  # what was stored for its output
    has_begun: bool = False
    is_suspect: bool = False
    only_once: bool = False
    stopped: bool = False
    is_known: bool = False  # it stands in `open`

    @property
    def no(self) -> RunNo:
        return self.key[0]

    @property
    def path(self) -> str:
        return self.key[1]


class Line:
    """Threads or processes: how many there are and are taken, and the starts that wait for one."""

    __slots__ = ("limit", "taken", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit, self.taken, self.waiting = limit, 0, deque[Start]()


class Dispatch:
    def __init__(
        self,
        advance: Advance,
        registry: Registry,
        clock: Clock,
        *,
        places: int = ATTEMPTS_MAX,
        threads: int = THREADS_MAX,
        processes: int | None = None,
        process_memory_bytes: int | None = None,
        workdirs: Path | None = None,
        secrets: Secrets | None = None,
        artefacts: Artefacts | None = None,
        workers: Workers,
    ) -> None:
        self.workers = workers
        self._pulse = self.workers.pulse
        self._pulse.watch(lambda: bool(self._deadlines), self._paused)
        self._jobs = self.workers.assignments
        self._jobs.show_late, self._jobs.when_waiting = self._show_late, self._make_use_of_place
        self.advance, self.registry, self.clock, self.places = advance, registry, clock, places
        self.secrets, self.artefacts = secrets or Secrets(), artefacts
        self._monotonic = clock.monotonic
        self.open: dict[tuple[RunNo, str], Attempt] = {}
        self.queue: deque[Start] = deque()  # starts that wait for a place
        self._lines = {"thread": Line(threads), "process": Line(processes or os.cpu_count() or 1)}
        self._queues = (self.queue, *(line.waiting for line in self._lines.values()))
        self.is_stopping = False
        self.when_free: Callable[[], None] | None = None  # somebody waits for a place
        # Told, on the loop, what tools say of their attempts: run, path, attempt, `log` or `progress`, and the data.
        self.hearers: list[AttemptListener] = []
        # What the work of an attempt is told of its trace: that of the run as it came, unless somebody makes spans.
        self.traceparent: Callable[[Live, str, int], str | None] = lambda live, path, number: (
            live.trace or None
        )
        # Where the later answer of an attempt may be sent to; None while there is no address that others could call.
        self.callback_url: Callable[[Live, str, int], str] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._at_hand: Attempt | None = None  # what the runner performs, and nobody else has to know of
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = Threads(threads)
        self._processes: Processes | None = None
        self._process_memory_bytes, self._workdirs = process_memory_bytes, workdirs
        self._deadlines: list[tuple[float, RunNo, str, int]] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._suspects: dict[Key, None] = {}  # in the order of their turns
        self._alone: tuple[RunNo, str] | None = None

    @property
    def free_places(self) -> int:
        return self._room - len(self.open) - sum(map(len, self._queues))

    @property
    def _room(self) -> int:
        """How many attempts may be open: what waits at a worker that fetches its jobs takes no place from the others."""
        return self.places + min(self._jobs.waiting, JOBS_MAX)

    def _make_use_of_place(self) -> None:
        if self.queue and self._runner is None and not self.is_stopping:
            asyncio.get_running_loop().call_soon(self._fill_places)

    @property
    def waiting(self) -> dict[str, int]:
        """How many starts wait for what."""
        return {"place": len(self.queue), **{name: len(line.waiting) for name, line in self._lines.items()}}

    def line_of(self, no: RunNo, path: str) -> tuple[str, int] | None:
        """The limit that a start waits for, if it has not begun, and how many places there are."""
        lines = (
            ("attempts_max", self.places, self.queue),
            *((f"{name}s", line.limit, line.waiting) for name, line in self._lines.items()),
        )
        for name, limit, waiting in lines:
            if any(start[:2] == (no, path) for start in waiting):
                return name, limit
        return None

    def has(self, no: RunNo, path: str, number: int) -> bool:
        """Is this attempt at work here, or waiting for a place?"""
        attempt = self.open.get((no, path))
        waits = any((no, path, number) in queue for queue in self._queues)
        return waits or (attempt is not None and attempt.number == number)

    # ---------------------------------------------------------------------------------------------------- jobs

    def put_jobs(self, live: Live, decisions: list[Decision], batch: Batch) -> None:
        """A job for those who fetch is a row of the commit that starts its attempt, and what ends the attempt before it has
        begun takes the row along: no crash comes between, so what nobody had is not lost."""
        run, jobs = live.run, self._jobs
        for decision in decisions:
            if type(decision) is StartAttempt:
                path, service = decision.path, self._service_of(live, decision.path)
                if service is not None and self.workers.is_fetched(run.tenant, service):
                    jobs.start(AssignmentRow(run.no, path, decision.attempt, service), batch)
        for key in jobs.not_begun(run.no):
            if run.over or not is_open(run, *key[1:]):
                batch.ended_assignments.append(key)

    def jobs_are_put(self, batch: Batch) -> None:
        """The rows of a commit are on disk, or gone."""
        self._jobs.open(batch.assignments)
        self._jobs.rows_are_gone(batch.ended_assignments)

    def _service_of(self, live: Live, path: str) -> str | None:
        """What is asked of workers in a step, if anything is."""
        node = live.plan.node(path)
        if not isinstance(node, Call) or node.service is None:
            return None
        if not node.service.is_given:
            return node.target
        try:
            service = decode(self._resolved(live, _service.decode(live.run.steps[path].inputs).service))
        except (ValueError, SecretUnavailable):
            return None  # it fails when it begins
        return service if type(service) is str else None

    # ------------------------------------------------------------------------------------------------ starting

    def start(self, live: Live, path: str, number: int) -> None:
        if self.is_stopping:
            if not self.workers.holds((live.run.no, path, number)):
                self.advance.offer(live, AttemptReleased(path, number, "stopping"))
        else:
            self.queue.append((live.run.no, path, number))
            if self._runner is None:
                self._hire()

    def _begin(self, live: Live, path: str, number: int) -> Attempt | None:
        """A committed start becomes an attempt, if the run still waits for it and the tool is here.

        What is returned is to be performed by the caller, at once; what waits by nature has got a task.
        """
        run = live.run
        step = run.steps.get(path)
        if step is None or step.attempt != number or step.state != "running":
            return None  # stopped or taken back before it began
        if step.target is not None:
            self.advance.offer(live, AttemptReleased(path, number, "stopping"))
            return None
        node: Call = live.plan.root.nodes.get(path) or live.plan.node(path)  # type: ignore[assignment]  # others are not started
        if node.service is not None:
            self._hand_out(live, node, path, number)
            return None
        tool = self.registry.get(node.target) or self.registry.remote(node.target)
        if tool is None:
            self._give_back(live, path, number, node.target)
            return None
        try:
            text = written(step.inputs)
            args = decode(self._resolved(live, text) if text.find(b'"$') >= 0 else text)
            if self.callback_url is not None and self._tells_address(node, tool):
                self._tell_address(live, path, number, args["params"] if node.spreads else args)
            if node.spreads:
                args = tool.spread(args["input"], args["params"])
            if type(args) is not dict:
                raise ArgumentsMisfit(f"the arguments of a tool are an object, not {type(args).__name__}")
            if not tool.isolated:  # its process does it, since what they become could not be sent
                args = tool.bind(args)
        except (ValueError, SecretUnavailable) as error:
            self.advance.offer(live, StepFailed(path, number, self._error(error, path, number)))
            return None
        attempt = Attempt((run.no, path), number, tool, args, run.tenant)
        if tool.is_plain and node.is_plain and self._alone is None:
            return attempt  # if it never waits nobody can meet it, and nobody has to be told of it
        return self._launch(live, node, attempt)

    def _hand_out(self, live: Live, node: Call, path: str, number: int) -> None:
        """A call of a service is for a worker to do."""
        rule, run, text, service = node.service, live.run, bytes(live.run.steps[path].inputs), node.target
        assert rule is not None
        try:
            if rule.is_given or text.find(b'"$') >= 0 or self._tells_address(node):
                text = self._resolved(live, text)
            if rule.is_given or self._tells_address(node):
                given = decode(text)
                service = given.pop("service", service)
                if self._tells_address(node):
                    self._tell_address(live, path, number, given["params"])
                text = written(given)
            if type(service) is not str or not service:
                raise ArgumentsMisfit(f"the name of a service is a text, not {service!r:.50}")
        except (ValueError, SecretUnavailable) as error:
            return self.advance.offer(live, StepFailed(path, number, self._error(error, path, number)))
        attempt = Attempt((run.no, path), number, _SERVICE, {}, run.tenant)
        stable = idempotency_key(run.tenant, run.id, path)
        context = Context(
            run.id, path, number, stable, tell=self._listener(attempt), redact=self.secrets.redact
        )
        attempt.job = Job(run.tenant, run.no, run.id, path, number, service, text, stable, rule, context)
        attempt.job.only_once, attempt.job.traceparent = (
            node.fails_on_crash,
            self.traceparent(live, path, number),
        )
        if self.callback_url is not None:
            attempt.job.address = functools.partial(self.callback_url, live, path, number)
        self._launch(live, node, attempt)

    def _tells_address(self, node: Call, tool: Tool | None = None) -> bool:
        """Is a call told where its later answer may be sent to?"""
        asks = (node.pending is not None and node.pending.has_callback) or (
            tool is not None and tool.takes_callback
        )
        return asks and self.callback_url is not None

    def _tell_address(self, live: Live, path: str, number: int, args: Any) -> None:
        """In memory alone: whoever has the address may answer."""
        assert self.callback_url is not None
        if type(args) is dict and "callback_url" not in args:
            args["callback_url"] = self.callback_url(live, path, number)

    def rejoin(self, live: Live) -> None:
        """Wait again for the jobs of a run that workers have had since before this process; others are nobody's."""
        no, steps = live.run.no, live.run.steps
        for key in self.workers.held(no):
            _, path, number = key
            step = steps.get(path)
            if step is None or step.attempt != number or step.state != "running":
                self.workers.forget_job(key)
            elif not self.has(no, path, number):
                self._hand_out(live, live.plan.node(path), path, number)  # type: ignore[arg-type]  # only calls have jobs
                if step.target is not None:
                    asyncio.get_running_loop().call_soon(self.stop, no, path)

    def rejoin_all(self) -> None:
        """Commits work again. A worker whose answer could not be written answers once more, or comes too late."""
        for no in {key[0] for key in self.workers.unheard()}:
            if (live := self.advance.live.get(no)) is not None:
                self.rejoin(live)
            else:
                for key in self.workers.held(no):
                    self.workers.forget_job(key)

    def _show_late(self, key: tuple[RunNo, str, int], outcome: bytes | BaseException) -> None:
        """An answer that changes nothing stands in the journal all the same, while the run is open."""
        no, path, number = key
        if (live := self.advance.live.get(no)) is None:
            return
        if isinstance(outcome, bytes):
            output = self.secrets.redact_json(outcome) if self.secrets.are_known else outcome
            self.advance.offer(live, StepSucceeded(path, number, msgspec.Raw(output)))
        else:
            self.advance.offer(live, StepFailed(path, number, self._error(outcome, path, number)))

    def _give_back(self, live: Live, path: str, number: int, target: str) -> None:
        if not live.lacks_tool:
            log.warning("run %s: step %s waits for the tool %r, which is not here", live.run.id, path, target)
        live.lacks_tool, live.is_settled = True, False
        self.advance.offer(live, AttemptReleased(path, number, "no_tool"))

    def _launch(self, live: Live, node: Call, attempt: Attempt) -> Attempt | None:
        run, tool, key = live.run, attempt.tool, attempt.key
        line = self._lines.get(tool.runs_in)
        if line is not None:
            if line.taken >= line.limit:
                line.waiting.append((run.no, attempt.path, attempt.number))
                return None
            line.taken += 1
        self.open[key], attempt.is_known = attempt, True
        if tool.context is not None:
            stable = idempotency_key(run.tenant, run.id, attempt.path)
            attempt.context = Context(
                run.id,
                attempt.path,
                attempt.number,
                stable,
                tell=self._listener(attempt),
                workdirs=self._workdirs,
                redact=self.secrets.redact,
                artefacts=None if self.artefacts is None else self.artefacts.of(run.tenant),
            )
            if not tool.isolated:
                attempt.args[tool.context] = attempt.context
        attempt.answer = node.answer
        if node.fails_on_crash:
            attempt.only_once = True
        if node.timeout_ms is not None:
            self._limit(attempt, node.timeout_ms)
        if self._alone == key:
            attempt.is_suspect = True
        if not tool.suspends:
            return attempt
        attempt.task = self._task(self._perform(attempt))
        return None

    def _listener(self, attempt: Attempt) -> Callable[[str, dict[str, Any]], None]:
        """How a tool, in whatever thread it is, tells of its attempt; while nobody hears it, it costs nothing."""
        loop = asyncio.get_running_loop()

        def tell(kind: str, data: dict[str, Any]) -> None:
            if self.hearers:
                with contextlib.suppress(RuntimeError):  # it told of itself after the engine had closed
                    loop.call_soon_threadsafe(self._hear, attempt, kind, data)

        return tell

    def _hear(self, attempt: Attempt, kind: str, data: dict[str, Any]) -> None:
        for hearer in list(self.hearers):
            hearer(*attempt.key, attempt.number, kind, data)

    def _resolved(self, live: Live, text: bytes | Raw) -> bytes:
        draft = Draft(live.plan, live.run, live.run.at)
        secret_of = functools.partial(self.secrets.require, tenant=live.run.tenant)
        return resolved(bytes(text), draft.text_at, secret_of)

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
        """Called right after a runner's first turn: if it is still there, it waits inside a tool."""
        if self._runner is not runner:
            return
        self._runner, attempt = None, self._at_hand
        if attempt is not None:
            self.open[attempt.key], attempt.is_known, attempt.has_begun = attempt, True, True
            attempt.task = runner
        if not self.is_stopping:
            self._fill_places()

    async def _run_queue(self) -> None:
        """Begin and perform what is queued, one after another: all that a step touches is still warm for its answer."""
        me, advance, queue, room = asyncio.current_task(), self.advance, self.queue, self._room
        monotonic, secrets = self._monotonic, self.secrets
        began, until = 0.0, monotonic() + TURN_SECONDS
        for _ in range(len(queue)):  # no more than this, so that the loop gets its turn
            if not queue or len(self.open) >= room:
                break  # whoever makes room sees to the rest
            if began > until:
                break  # large values take their time: those who ask meanwhile are answered between them
            no, path, number = queue[0]
            live = advance.live.get(no)
            if live is None and no in advance.away:
                break  # so does whoever brings the run back
            queue.popleft()
            if live is None or (attempt := self._begin(live, path, number)) is None:
                continue
            self._at_hand = attempt
            tool, began = attempt.tool, monotonic()
            try:  # as _outcome does it, without a coroutine for each
                output = await tool.fn(**attempt.args)
                text = written(output) if type(output) in SIMPLE else tool.result(output)
                is_long = len(text) > SHORT_BYTES_MAX or attempt.answer is not None or secrets.are_known
                event: Event = (
                    await self._told(attempt, text, began)
                    if is_long
                    else StepSucceeded(path, number, Raw(text), int((monotonic() - began) * 1000))
                )
            except BaseException as error:
                event = self._failure_of(attempt, error, began)
            if self._runner is not me:
                attempt.tool.waits()
                return self._answered(attempt, event)
            if attempt.is_known:
                self._answered(attempt, event)
            else:
                advance.offer(live, event)
        self._runner = None
        if queue and not advance.is_stalled:
            self._fill_places()
        if self.when_free is not None:
            self.when_free()

    # ----------------------------------------------------------------------------------------------- performing

    async def _perform(self, attempt: Attempt) -> None:
        if attempt.stopped or self.is_stopping:
            error = asyncio.CancelledError()
            if self._is_ours(error, attempt):
                self._answered(attempt, self._failure(attempt, error, self._monotonic()))
            return
        attempt.has_begun = True
        event = await self._outcome(attempt)
        if attempt.job is not None and isinstance(event, StepSucceeded | StepFailed | StepPaused):
            event.worker = attempt.job.worker
        self._answered(attempt, event)

    async def _outcome(self, attempt: Attempt) -> Event:
        began, tool = self._monotonic(), attempt.tool
        try:
            if tool.runs_in == "loop":
                text = tool.result(await tool.fn(**attempt.args))
            elif tool.runs_in == "thread":
                text = tool.result(await self._threads.call(tool.fn, attempt.args, lambda: attempt.stopped))
            elif tool.runs_in == "process":
                text = await self._in_process(attempt)
            else:
                assert attempt.job is not None
                text = await self.workers.call(attempt.job)
            return await self._told(attempt, text, began)
        except BaseException as error:
            return self._failure_of(attempt, error, began)

    async def _told(self, attempt: Attempt, text: bytes, began: float) -> StepSucceeded | StepPaused:
        """What an answer says: the output, or that there will be one."""
        path, number = attempt.key[1], attempt.number
        if text.find(PENDING) >= 0 and (found := self._later(path, text)) is not None:
            ran_ms = int((self._monotonic() - began) * 1000)
            return StepPaused(path, number, found.task_id, found.poll_url, found.estimated_secs, ran_ms)
        text = await self._refined(attempt, text)
        return StepSucceeded(path, number, Raw(text), int((self._monotonic() - began) * 1000))

    def _later(self, path: str, text: bytes) -> Later | None:
        answer = self.secrets.redact_value(head_of(text))
        found = later(answer)
        if found is None and answer is not None and answer.get("pending") is True:
            log.warning(
                "step %s: pending is true and task_id is no text, so this is taken for its output", path
            )
        return found

    async def _refined(self, attempt: Attempt, text: bytes) -> bytes:
        """What of an answer is the output, with its files put away and its secrets taken out."""
        if attempt.answer is not None:
            text = encode(attempt.answer(decode(text)))
        if text.find(b'"file_refs"') >= 0 and attempt.job is None:  # a worker's files are not here
            workdir = None if attempt.context is None else attempt.context.made_workdir
            text, attempt.artefacts = await self.with_files(
                text, attempt.tenant, self._job_id(attempt), workdir, from_outside=attempt.tool.is_remote
            )
        if self.secrets.are_known:
            text = await self.redacted(text)
        if len(text) > limits.now.value_bytes_max:
            raise OutputTooLarge
        return text

    def know_secrets(self, live: Live) -> None:
        """A run that an earlier process left may have been given secrets there: they are known before it goes on."""
        for name in live.plan.secrets:
            with contextlib.suppress(SecretUnavailable):  # the step that needs it says so
                self.secrets.get(name, live.run.tenant)

    async def redacted(self, text: bytes) -> bytes:
        """An output with its secrets taken out; a large one in a thread, so that the loop gets its turn."""
        if not self.secrets.are_known or len(text) <= LOOKED_AT_ONCE_BYTES:
            return self.secrets.redact_json(text)
        return await in_thread(self.secrets.redact_json, text)

    def _job_id(self, attempt: Attempt) -> str:
        live = self.advance.live.get(attempt.no)
        return "" if live is None else job_id(live.run.id, attempt.path, attempt.number)

    async def with_files(
        self,
        text: bytes,
        tenant: str,
        made_by: str,
        workdir: Path | None = None,
        *,
        from_outside: bool = False,
    ) -> tuple[bytes, Sequence[tuple[str, int]]]:
        """Store what an output's file_refs name, before the row that names it; gives the output that names what was
        stored, and that."""
        output = decode(text)
        holder = output if isinstance(output, dict) and "file_refs" in output else None
        if holder is None and isinstance(output, dict) and isinstance(output.get("context"), dict):
            holder = output["context"] if "file_refs" in output["context"] else None
        if holder is None or self.artefacts is None:
            return text, ()
        keep = functools.partial(self.artefacts.of(tenant).keep, from_outside=from_outside)
        kept, stored = await in_thread(keep, holder["file_refs"], made_by, workdir)
        holder["file_refs"] = output["file_refs"] = kept
        return encode(output), stored

    async def _in_process(self, attempt: Attempt) -> bytes:
        if self._processes is None:
            from holdfast.tools.processes import Processes

            self._processes = Processes(
                self._lines["process"].limit,
                memory_bytes=self._process_memory_bytes,
                environment=self.secrets.environment,
            )
        return await self._processes.call(attempt.tool, attempt.args, attempt.context)

    def _is_ours(self, error: BaseException, attempt: Attempt) -> bool:
        """A tool may raise anything at all. Only our own end is not the tool's."""
        if isinstance(error, asyncio.CancelledError) and not attempt.stopped:
            return not self.is_stopping and self._was_not_asked(attempt)
        if attempt.task is not None and isinstance(error, asyncio.CancelledError):
            attempt.task.uncancel()
        return not (isinstance(error, GeneratorExit) and self.is_stopping)

    def _failure_of(self, attempt: Attempt, error: BaseException, began: float) -> StepFailed:
        if not self._is_ours(error, attempt):
            raise error
        return self._failure(attempt, error, began)

    def _was_not_asked(self, attempt: Attempt) -> bool:
        return attempt.task is None or attempt.task.cancelling() == 0

    def _failure(self, attempt: Attempt, error: BaseException, began: float) -> StepFailed:
        ran_ms = int((self.clock.monotonic() - began) * 1000)
        path, number = attempt.path, attempt.number
        return StepFailed(path, number, self._error(error, path, number), ran_ms)

    def _error(self, error: BaseException, path: str, number: int) -> Error:
        kind, message = described(error, self.secrets.redact)
        return Error(kind, message, path, number)

    def _answered(self, attempt: Attempt, event: Event) -> None:
        if self.open.get(attempt.key) is attempt:  # one that overlaps it may have taken its place
            del self.open[attempt.key]
        line = self._lines.get(attempt.tool.runs_in)
        if line is not None:
            line.taken -= 1
        if attempt.context is not None:
            attempt.context.close()
        if attempt.is_suspect:
            self._pass_lane(attempt)
        if not self.is_stopping:
            for sha256, size in attempt.artefacts:
                self.advance.batch.artefacts.append((attempt.no, sha256, size, self.clock.now()))
            if attempt.job is None:
                self.advance.deliver(attempt.no, event)
            else:
                self._deliver_job(attempt.job, event)
            if (line is not None and line.waiting) or (self.queue and self._runner is None):
                self._fill_places()
            if self.when_free is not None:
                self.when_free()

    def _deliver_job(self, job: Job, event: Event) -> None:
        """A worker that waits to hear whether its answer counts is told when that is durable, with the row of its job gone
        in the same commit; if it will not be, the worker has to answer again, and nobody keeps its answer."""
        if not self.workers.is_answered(job):
            self.advance.deliver(job.no, event)
            return self.workers.settled(job, None)
        if (refusal := self._refusal_of(job)) is not None:
            self.advance.deliver(job.no, event)
            return self.workers.settled(job, refusal)
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(lambda done: self.workers.settled(job, done.exception()))
        self.advance.deliver(job.no, event, reply)
        if not reply.done():  # else there is no row of it, and will be none
            self.advance.batch.ended_assignments.append(job.key)

    def _refusal_of(self, job: Job) -> HoldfastError | None:
        """Why what a worker answers can count for nothing, if it is so."""
        live, advance = self.advance.live.get(job.no), self.advance
        if live is not None:
            if not is_open(live.run, job.path, job.attempt):
                return Superseded(
                    f"run {job.run_id} does not wait for this attempt any more: it was given up"
                )
        elif job.no in advance.quarantined:
            return Unavailable(
                f"run {job.run_id} was set aside; answer again when the server was started anew"
            )
        elif job.no not in advance.away:
            return Superseded(f"run {job.run_id} is over")
        return None

    def _fill_places(self) -> None:
        for line in self._lines.values():
            while line.taken < line.limit and (start := self._next(line.waiting)) is not None:
                self._begin(*start)
        if self.queue and self._runner is None and len(self.open) < self._room:
            self._hire()

    def _next(self, waiting: deque[Start]) -> tuple[Live, str, int] | None:
        """The first start that waits; none while its run is away, until commits work again."""
        while waiting:
            no, path, number = waiting[0]
            live = self.advance.live.get(no)
            if live is None and no in self.advance.away:
                return None
            waiting.popleft()
            if live is not None:
                return live, path, number
        return None

    # ------------------------------------------------------------------------------------------ stopping, time-outs

    def stop(self, no: RunNo, path: str) -> None:
        """Tell an attempt to stop. An async tool is cancelled, a process killed; a sync one can only look at its Context."""
        attempt = self.open.get((no, path))
        if (
            attempt is None or attempt.stopped
        ):  # or its successor, which it overlaps, is the one that is meant
            return self._stop_queued(no, path)
        attempt.stopped = True
        if attempt.context is not None:
            attempt.context.cancel()
        if attempt.job is not None and self.workers.stop(attempt.job):
            return  # whoever fetched it is told, and answers
        # One that has not begun looks at `stopped` when it does; to cancel its task would be to lose its answer.
        if attempt.tool.runs_in != "thread" and attempt.has_begun and attempt.task is not None:
            attempt.task.cancel()

    def _stop_queued(self, no: RunNo, path: str) -> None:
        """One that waits for a place answers by never having begun."""
        for waiting in self._queues:
            for entry in waiting:
                if entry[:2] == (no, path):
                    waiting.remove(entry)
                    return self.advance.deliver(no, AttemptReleased(path, entry[2], "stopping"))

    def _limit(self, attempt: Attempt, timeout_ms: int) -> None:
        due = self.clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (due, attempt.no, attempt.path, attempt.number))
        if len(self._deadlines) > STALE_ENTRIES + 2 * len(self.open):  # most of them have answered long ago
            self._deadlines = [entry for entry in self._deadlines if entry[1:3] in self.open]
            heapq.heapify(self._deadlines)
        self._pulse.start()
        if self._deadlines[0][0] == due:
            self._arm_sweep(timeout_ms / 1000)

    def _paused(self, seconds: float) -> None:
        """Tools of this process could not go on either, and answers of others were not read: that time does not count."""
        self._deadlines = [(due + seconds, *start) for due, *start in self._deadlines]  # type: ignore[misc]  # still a heap

    def _arm_sweep(self, delay: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = asyncio.get_running_loop().call_later(max(0.0, delay), self._sweep_deadlines)

    def _sweep_deadlines(self) -> None:
        self._sweep = None
        self._pulse.look()
        now = self.clock.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, no, path, number = heapq.heappop(self._deadlines)
            attempt = self.open.get((no, path))
            if attempt is not None and attempt.number == number and not attempt.stopped:
                self.advance.deliver(no, AttemptTimedOut(path, number))
        if self._deadlines:
            self._arm_sweep(self._deadlines[0][0] - now)

    # ------------------------------------------------------------------------------------------------- suspects

    def suspect(self, no: RunNo, path: str) -> None:
        """A step that was there at two crashes starts only when no other suspect is at work."""
        if (no, path) not in self._suspects and self._alone != (no, path):
            self._suspects[no, path] = None
            self._next_suspect()

    def _next_suspect(self) -> None:
        while self._alone is None and self._suspects and not (self.is_stopping or self.advance.is_stalled):
            no, path = next(iter(self._suspects))
            del self._suspects[no, path]
            live = self.advance.live.get(no)
            step = None if live is None else live.run.steps.get(path)
            if live is not None and step is not None and step.state == "ready" and step.reason == "suspect":
                self._alone = (no, path)
                self.advance.enter_lane(live, path)
                asyncio.get_running_loop().call_later(LANE_SECONDS, self._has_lived, no, path)

    def _has_lived(self, no: RunNo, path: str) -> None:
        if self._alone == (no, path):
            self._alone = None
            self.advance.leave_lane()
            self._next_suspect()

    def _pass_lane(self, attempt: Attempt) -> None:
        if self._alone == attempt.key:
            self._alone = None
            self.advance.leave_lane()
            asyncio.get_running_loop().call_soon(self._next_suspect)

    def leave_lost_lane(self) -> None:
        """If the commit that let a suspect in had failed, nobody is in the lane."""
        waits = any(entry[:2] == self._alone for queue in self._queues for entry in queue)
        if self._alone is not None and self._alone not in self.open and not waits:
            self._alone = None

    def resume(self) -> None:
        """Commits work again: begin what waited for that."""
        self._fill_places()
        self._next_suspect()

    # ------------------------------------------------------------------------------------------------- the end

    def release(self) -> None:
        """Give back every open attempt, uncounted: a graceful stop costs a step nothing.

        One that has begun and must not be done twice is not given back: its outcome is unknown, so it is lost.
        """
        for (no, path), attempt in self.open.items():
            if self.workers.holds((no, path, attempt.number)):
                continue  # it goes on at its worker, and whoever takes the run up waits for it again
            if self._has_answer(no, path):
                self.advance.deliver(no, StepPaused(path, attempt.number, ""))
            elif not (attempt.has_begun and attempt.only_once):
                self.advance.deliver(no, AttemptReleased(path, attempt.number, "stopping"))
        for waiting in self._queues:
            for no, path, number in waiting:
                if not self.workers.holds((no, path, number)):
                    self.advance.deliver(no, AttemptReleased(path, number, "stopping"))
            waiting.clear()
        self.abandon()

    def _has_answer(self, no: RunNo, path: str) -> bool:
        """Did the later answer of an attempt come before the attempt said that there would be one?"""
        live = self.advance.live.get(no)
        step = None if live is None else live.run.steps.get(path)
        return step is not None and step.parked is not None and step.target is None

    def abandon(self) -> None:
        """Stop all calls and say nothing: what they answer from here on is nobody's."""
        self.is_stopping = True
        if self._sweep is not None:
            self._sweep.cancel()
        for attempt in self.open.values():
            if attempt.context is not None:
                attempt.context.cancel()
        for task in self._tasks:
            task.cancel()
        self._threads.close()
        if self._processes is not None:
            self._processes.close()


class _Service(Tool):
    """Stands for whatever a worker does: it waits by nature, and takes none of our threads or processes."""

    def __init__(self) -> None:
        super().__init__(_nothing, "service")
        self.runs_in, self.suspends, self.is_plain = "worker", True, False


async def _nothing() -> None:
    pass


_SERVICE: Final = _Service()


class _Named(msgspec.Struct):
    """Of what a call was given: the service that it is for."""

    service: Raw


_service: Final = msgspec.json.Decoder(_Named)
