"""One attempt and its outcome: calls a tool, and turns what it returns or raises into an event.

Knows where each kind of tool runs: async tools on the event loop, sync tools in threads, isolated tools in processes,
services at workers. Does not know queues, slots or retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from holdfast import limits
from holdfast.engine.events import AttemptReleased, Event, StepFailed, StepPaused, StepSucceeded
from holdfast.execution.large_arguments import on_text, opened
from holdfast.execution.large_results import large_head_of, large_text
from holdfast.execution.outputs import Outputs
from holdfast.execution.threads import Threads
from holdfast.plan.answers import Later, later
from holdfast.plan.view import Answer
from holdfast.runtime.apart import yield_after
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.resident_run import ResidentRun
from holdfast.store.records import NewLogLine
from holdfast.tools import prints
from holdfast.tools.failures import OutputTooLarge, described
from holdfast.tools.registry import Context, Tool
from holdfast.tools.results import small_text
from holdfast.tools.tracebacks import traceback_of
from holdfast.values import Error, RunNo, job_id, written
from holdfast.workers.push import Job, NoWorker
from holdfast.workers.service import Workers

if TYPE_CHECKING:
    from holdfast.tools.processes import Processes

log = logging.getLogger("holdfast")

Key = tuple[RunNo, str]  # run and path
PENDING: Final = b'"pending":true'
FILES: Final = b'"file_refs"'
# a shorter answer can neither name a file nor say that it is not the answer
SHORT_BYTES_MAX: Final = len('{"file_refs":[]')
MERE_BYTES_MAX: Final = 4 * 1024


class Lines:
    """The log lines of one attempt that are not written yet, and how much it has logged in all."""

    __slots__ = ("count", "printed", "redact", "rows", "size")

    def __init__(self) -> None:
        self.rows: list[NewLogLine] = []
        self.count = self.size = 0
        self.redact: Callable[[str], str] | None = None  # of the lines that it logs with `logging` or prints
        self.printed: dict[str, prints.Lines] | None = None  # lines without an end, by stream


class Attempt(msgspec.Struct, eq=False):
    key: Key
    number: int
    tool: Tool
    args: Any  # by name, or as AtHand has them; for a tool in a process also their text
    tenant: str
    task: asyncio.Task[None] | None = None
    context: Context | None = None
    job: Job | None = None  # the job for a worker
    answer: Answer | None = None  # the rule that selects the output from the response
    artefacts: Sequence[tuple[str, int]] = ()  # files that were stored for its output
    has_begun: bool = False
    is_isolated: bool = False  # it runs under crash isolation
    only_once: bool = False
    stopped: bool = False
    large_bytes: int = 0  # of its arguments, if they take room
    given: bytes | None = None  # the text of large arguments, until they are opened
    bind: Callable[[Any], dict[str, Any]] | None = None  # makes its arguments from the value of that text
    is_known: bool = False  # it stands in the dispatcher's `open`
    lines: Lines | None = None  # what it has logged, if anything

    @property
    def no(self) -> RunNo:
        return self.key[0]

    @property
    def path(self) -> str:
        return self.key[1]


class AtHand:
    """What the runner is performing. An Attempt is made of it when another part asks for it, which is rare."""

    __slots__ = ("args", "attempt", "number", "path", "resident", "tool")
    args: Any  # a tuple in the order of the parameters, or a mapping by name
    attempt: Attempt | None
    number: int
    path: str
    resident: ResidentRun
    tool: Tool

    def as_attempt(self) -> Attempt:
        if self.attempt is None:
            run = self.resident.run
            self.attempt = Attempt((run.no, self.path), self.number, self.tool, self.args, run.tenant)
        return self.attempt


class Outcomes:
    """Makes the call of an attempt, and reports its outcome."""

    def __init__(
        self,
        door: Door,
        clock: Clock,
        workers: Workers,
        outputs: Outputs,
        *,
        threads: int,
        processes: int,
        process_memory_bytes: int | None,
    ) -> None:
        self._door, self._workers, self._monotonic = door, workers, clock.monotonic
        self._outputs, self._secrets = outputs, outputs.secrets
        self._threads = Threads(threads)
        self._processes: Processes | None = None
        self._processes_max, self._process_memory_bytes = processes, process_memory_bytes
        self._is_closed = False
        # Called with the traceback of what a tool raised.
        self.on_raised: Callable[[Attempt, str], None] = lambda attempt, text: None

    def close(self) -> None:
        """Stop the threads and processes. Attempts that end after this have no outcome."""
        self._is_closed = True
        self._threads.close()
        if self._processes is not None:
            self._processes.close()

    async def of(self, attempt: Attempt) -> Event:
        began, tool = self._monotonic(), attempt.tool
        try:
            if attempt.given is not None and (made := await self._of_large(attempt)) is not None:
                return await self.of_answer(attempt, made, began)
            if tool.runs_in == "loop":
                text = await _text(await tool.fn(**attempt.args))
            elif tool.runs_in == "thread":
                text = await _text(await self._threads.call(tool.fn, attempt.args, lambda: attempt.stopped))
            elif tool.runs_in == "process":
                text = await self._in_process(attempt)
            else:
                assert attempt.job is not None
                text = await self._workers.call(attempt.job)
            return await self.of_answer(attempt, text, began)
        except BaseException as error:
            return self.of_error(attempt, error, began)

    async def _of_large(self, attempt: Attempt) -> bytes | None:
        """Open large arguments, or make the result from their text if the tool can."""
        assert attempt.given is not None
        text, attempt.given, tool = attempt.given, None, attempt.tool
        if attempt.bind is None and (made := on_text(tool)) is not None:
            return await made(text)
        if not tool.isolated:
            assert attempt.bind is not None
            attempt.args = await opened(text, attempt.bind, tool.unread)
            if tool.context is not None:
                attempt.args[tool.context] = attempt.context
        elif attempt.bind is None:
            attempt.args = Raw(text)
        else:
            attempt.args = await opened(text, lambda value: Raw(written(attempt.bind(value))))  # type: ignore[misc]
        return None

    async def _in_process(self, attempt: Attempt) -> bytes:
        if self._processes is None:
            from holdfast.tools.processes import Processes

            self._processes = Processes(
                self._processes_max,
                memory_bytes=self._process_memory_bytes,
                environment=self._secrets.environment,
            )
        return await self._processes.call(attempt.tool, attempt.args, attempt.context)

    # ------------------------------------------------------------------------------------------------- answers

    async def of_answer(self, attempt: Attempt, text: bytes, began: float) -> StepSucceeded | StepPaused:
        """Interpret a response: either it is the output, or it announces a later result."""
        path, number = attempt.key[1], attempt.number
        if text.find(PENDING) >= 0 and (found := await self._later(path, text)) is not None:
            ran_ms = int((self._monotonic() - began) * 1000)
            return StepPaused(path, number, found.task_id, found.poll_url, found.estimated_secs, ran_ms)
        text = await self._refined(attempt, text)
        return StepSucceeded(path, number, Raw(text), int((self._monotonic() - began) * 1000))

    async def _later(self, path: str, text: bytes) -> Later | None:
        answer = self._secrets.redact_value(await large_head_of(text))
        found = later(answer)
        if found is None and answer is not None and answer.get("pending") is True:
            log.warning(
                "step %s: pending is true and task_id is not text, so the response is used as the output",
                path,
            )
        return found

    async def _refined(self, attempt: Attempt, text: bytes) -> bytes:
        """The output in a response, with its files stored and its secrets redacted."""
        if attempt.answer is not None:
            text = await self._outputs.by_rule(attempt.answer, text)
        # files of a worker are not on this machine
        if text.find(FILES) >= 0 and attempt.job is None:
            workdir = None if attempt.context is None else attempt.context.made_workdir
            text, attempt.artefacts = await self._outputs.with_files(
                text, attempt.tenant, self._job_id(attempt), workdir, from_outside=attempt.tool.is_remote
            )
        if self._secrets.are_known:
            text = await self._outputs.redacted(text)
        if len(text) > limits.now.value_bytes_max:
            raise OutputTooLarge
        await yield_after(text)  # deciding what follows takes long enough
        return text

    def _job_id(self, attempt: Attempt) -> str:
        resident = self._door.residents.get(attempt.no)
        return "" if resident is None else job_id(resident.run.id, attempt.path, attempt.number)

    # ------------------------------------------------------------------------------------------------- errors

    def of_error(self, attempt: Attempt, error: BaseException, began: float) -> StepFailed | AttemptReleased:
        """Turn any exception of a tool into an outcome. Only the end of the engine is raised again."""
        if not self._is_of_tool(attempt, error):
            raise error
        if isinstance(error, NoWorker):
            return AttemptReleased(attempt.path, attempt.number, "no_worker", waits=True, lost=error.lost)
        ran_ms = int((self._monotonic() - began) * 1000)
        path, number = attempt.path, attempt.number
        if not isinstance(error, asyncio.CancelledError) and (text := traceback_of(error)):
            self.on_raised(attempt, text)
        return StepFailed(path, number, self.described(error, path, number), ran_ms)

    def _is_of_tool(self, attempt: Attempt, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError) and not attempt.stopped:
            return not self._is_closed and (attempt.task is None or attempt.task.cancelling() == 0)
        if attempt.task is not None and isinstance(error, asyncio.CancelledError):
            attempt.task.uncancel()
        return not (isinstance(error, GeneratorExit) and self._is_closed)

    def described(self, error: BaseException, path: str, number: int) -> Error:
        kind, message = described(error, self._secrets.redact)
        return Error(kind, message, path, number)


def is_mere(text: bytes) -> bool:
    """Return whether an answer is just an output: it names no file, and does not announce a later result."""
    if len(text) > min(MERE_BYTES_MAX, limits.now.value_bytes_max):
        return False
    return text.find(PENDING) < 0 and text.find(FILES) < 0


async def _text(value: Any) -> bytes:
    text = small_text(value)
    return await large_text(value) if text is None else text
