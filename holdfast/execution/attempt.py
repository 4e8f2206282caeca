"""One attempt and its outcome: a tool is called, and what it returns or raises becomes an event.

Knows where each kind of tool runs: async ones on the event loop, sync ones in threads, isolated ones in processes,
services at workers. Does not know of queues and places, or of retries.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from holdfast import limits
from holdfast.engine.events import Event, StepFailed, StepPaused, StepSucceeded
from holdfast.execution.threads import Threads
from holdfast.plan.answers import Later, head_of, later
from holdfast.plan.graph import Answer
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Advance
from holdfast.store.artefacts import Artefacts
from holdfast.tools.failures import OutputTooLarge, described
from holdfast.tools.registry import Context, Tool
from holdfast.tools.secrets import LOOKED_AT_ONCE_BYTES, Secrets
from holdfast.tools.threads import in_thread
from holdfast.values import Error, RunNo, decode, encode, job_id
from holdfast.workers.push import Job
from holdfast.workers.service import Workers

if TYPE_CHECKING:
    from holdfast.tools.processes import Processes

log = logging.getLogger("holdfast")

Key = tuple[RunNo, str]  # run and path
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
    is_isolated: bool = False  # it has its turn in crash isolation
    only_once: bool = False
    stopped: bool = False
    is_known: bool = False  # it stands in the dispatcher's `open`

    @property
    def no(self) -> RunNo:
        return self.key[0]

    @property
    def path(self) -> str:
        return self.key[1]


class Outcomes:
    """Makes the call of an attempt, and reports its outcome."""

    def __init__(
        self,
        advance: Advance,
        clock: Clock,
        workers: Workers,
        secrets: Secrets,
        artefacts: Artefacts | None,
        *,
        threads: int,
        processes: int,
        process_memory_bytes: int | None,
    ) -> None:
        self._advance, self._workers, self._secrets = advance, workers, secrets
        self._artefacts, self._monotonic = artefacts, clock.monotonic
        self._threads = Threads(threads)
        self._processes: Processes | None = None
        self._processes_max, self._process_memory_bytes = processes, process_memory_bytes
        self._is_closed = False

    def close(self) -> None:
        """End the threads and processes. An attempt that ends from here on has no outcome."""
        self._is_closed = True
        self._threads.close()
        if self._processes is not None:
            self._processes.close()

    async def of(self, attempt: Attempt) -> Event:
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
                text = await self._workers.call(attempt.job)
            return await self.of_answer(attempt, text, began)
        except BaseException as error:
            return self.of_error(attempt, error, began)

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
        """What an answer says: the output, or that there will be one later."""
        path, number = attempt.key[1], attempt.number
        if text.find(PENDING) >= 0 and (found := self._later(path, text)) is not None:
            ran_ms = int((self._monotonic() - began) * 1000)
            return StepPaused(path, number, found.task_id, found.poll_url, found.estimated_secs, ran_ms)
        text = await self._refined(attempt, text)
        return StepSucceeded(path, number, Raw(text), int((self._monotonic() - began) * 1000))

    def _later(self, path: str, text: bytes) -> Later | None:
        answer = self._secrets.redact_value(head_of(text))
        found = later(answer)
        if found is None and answer is not None and answer.get("pending") is True:
            log.warning(
                "step %s: pending is true and task_id is no text, so this is taken for its output", path
            )
        return found

    async def _refined(self, attempt: Attempt, text: bytes) -> bytes:
        """What of an answer is the output, with its files stored and its secrets redacted."""
        if attempt.answer is not None:
            text = encode(attempt.answer(decode(text)))
        if text.find(b'"file_refs"') >= 0 and attempt.job is None:  # a worker's files are not here
            workdir = None if attempt.context is None else attempt.context.made_workdir
            text, attempt.artefacts = await self.with_files(
                text, attempt.tenant, self._job_id(attempt), workdir, from_outside=attempt.tool.is_remote
            )
        if self._secrets.are_known:
            text = await self.redacted(text)
        if len(text) > limits.now.value_bytes_max:
            raise OutputTooLarge
        return text

    def _job_id(self, attempt: Attempt) -> str:
        live = self._advance.live.get(attempt.no)
        return "" if live is None else job_id(live.run.id, attempt.path, attempt.number)

    async def redacted(self, text: bytes) -> bytes:
        """A JSON text with its secrets redacted; a large one in a thread, so that the event loop goes on."""
        if not self._secrets.are_known or len(text) <= LOOKED_AT_ONCE_BYTES:
            return self._secrets.redact_json(text)
        return await in_thread(self._secrets.redact_json, text)

    async def with_files(
        self,
        text: bytes,
        tenant: str,
        made_by: str,
        workdir: Path | None = None,
        *,
        from_outside: bool = False,
    ) -> tuple[bytes, Sequence[tuple[str, int]]]:
        """Store the files that an output's file_refs name, before the row that names them is written.

        Returns the output, whose file_refs now name what was stored, and the digest and size of each stored file.
        """
        output = decode(text)
        holder = output if isinstance(output, dict) and "file_refs" in output else None
        if holder is None and isinstance(output, dict) and isinstance(output.get("context"), dict):
            holder = output["context"] if "file_refs" in output["context"] else None
        if holder is None or self._artefacts is None:
            return text, ()
        keep = functools.partial(self._artefacts.of(tenant).keep, from_outside=from_outside)
        kept, stored = await in_thread(keep, holder["file_refs"], made_by, workdir)
        holder["file_refs"] = output["file_refs"] = kept
        return encode(output), stored

    # ------------------------------------------------------------------------------------------------- errors

    def of_error(self, attempt: Attempt, error: BaseException, began: float) -> StepFailed:
        """A tool may raise anything at all; only the end of the engine is not the tool's, and raised again."""
        if not self._is_of_tool(attempt, error):
            raise error
        ran_ms = int((self._monotonic() - began) * 1000)
        path, number = attempt.path, attempt.number
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
