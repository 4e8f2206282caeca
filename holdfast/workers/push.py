"""Calls push workers: one attempt of a step tries one worker after another until one succeeds.

    POST {url}/exec/{service}   {"input": …, "params": {…}}   →   {"result": …, "error": "", "error_kind"?: …}

Knows the order of workers and what a response means. Does not know retries of the step (the engine decides them), or HTTP.
A response that cannot be parsed, is too large or never comes counts as a failed call, and the next worker is tried.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from holdfast import limits
from holdfast.plan.graph import ServiceRule
from holdfast.runtime.apart import LARGE_BYTES, apart
from holdfast.runtime.large_arguments import LargeArguments
from holdfast.runtime.places import Places
from holdfast.tools.context import Context
from holdfast.tools.failures import KIND_CHARS_MAX, ToolError
from holdfast.tools.guard import Guard
from holdfast.tools.limit import Limit
from holdfast.tools.post import Broken, Poster
from holdfast.values import NotJson, RunId, RunNo, encode, written
from holdfast.workers.registry import WorkerRegistry
from holdfast.workers.worker import Worker

REMEMBERED_MAX: Final = 10_000  # steps whose last worker is remembered
CALLS_MAX: Final = 1_000  # calls at once, each with a connection
CALLS_TO_ONE_MAX: Final = 500  # of these, to one worker: a worker that hangs leaves room for the rest


Line = tuple[str, str]  # level, or the stream that it was printed to, and text
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical", "stdout", "stderr"})


class Job(msgspec.Struct, eq=False):
    """One attempt of a step at a service. `worker` is the id and URL of the worker that performed it, or tried last."""

    tenant: str
    no: RunNo
    run_id: RunId
    path: str
    attempt: int
    service: str
    body: bytes  # {"input": …, "params": {…}}
    idempotency_key: str
    rule: ServiceRule
    context: Context  # for its logs and progress
    only_once: bool = False
    waits: bool = False  # for a worker, if none serves it
    traceparent: str | None = None
    worker: tuple[str, ...] = ()
    large_body: Callable[[], bytes] | None = None  # makes a large body each time it is sent
    large_bytes: int = 0
    address: Callable[[], str] | None = None  # makes the callback URL for a later result

    @property
    def key(self) -> tuple[RunNo, str, int]:
        return self.no, self.path, self.attempt

    def keep(self, logs: Iterable[Line]) -> None:
        """Keep lines that the worker logged or printed with the attempt."""
        for level, text in logs:
            self.context.printed(level, text)

    def body_for(self, worker: Worker) -> bytes:
        """The request body for a worker, including a callback URL if the service supports it and the step sets none."""
        body = self.body if self.large_body is None else self.large_body()
        if self.address is None or self.service not in worker.called_back:
            return body
        parts = _members(body)
        parts["params"] = with_address(parts["params"], self.address)
        return written(parts)


def with_address(params: msgspec.Raw, address: Callable[[], str]) -> msgspec.Raw:
    """Add a callback URL to the params of a call, unless they have one. A large member stays text."""
    if bytes(memoryview(params)[:1]) != b"{":
        return params
    members = _members(params)
    if "callback_url" not in members:
        members["callback_url"] = msgspec.Raw(written(address()))
    return msgspec.Raw(written(members))


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Answer(msgspec.Struct, gc=False):
    """The response of a worker; unknown fields are ignored."""

    result: Any = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    error_kind: str | None = None
    traceback: Any = None  # these two are kept if they are as ours
    logs: Any = None


class WorkerFailed(ToolError):
    """A worker responded with a failure."""


class Unreached(ToolError):
    """A worker did not respond; another one may be tried."""


class NoWorker(Unreached):
    """No worker can make the call now, and the call waits for one. `lost` is how many had it and ended before they answered."""

    def __init__(self, message: str, lost: int = 0) -> None:
        super().__init__(message, kind="no_worker")
        self.lost = lost


class _Gone(ToolError):
    """A worker had the call, and its registration expired before it answered."""


class _Garbled(Broken):
    """A worker answered, and its response cannot be used."""


_answer: Final = msgspec.json.Decoder(Answer).decode


class Calls:
    def __init__(self, registry: WorkerRegistry, guard: Guard) -> None:
        self._registry, self._poster = registry, Poster(guard)
        self._places = Places(CALLS_MAX, CALLS_TO_ONE_MAX)
        self.arguments = LargeArguments()
        # the worker that failed at a step is tried first in its next attempt
        self._last: OrderedDict[tuple[RunNo, str], str] = OrderedDict()

    async def call(self, job: Job) -> bytes:
        """The result of the first worker that succeeds. Raises the error of the last one, or that there is no worker."""
        tried: set[str] = set()
        last: ToolError | None = None
        answers = lost = 0
        waits = job.waits
        while (worker := self._next(job, tried)) is not None:
            if isinstance(last, WorkerFailed) and job.rule.attempt_delay_ms:
                await asyncio.sleep(job.rule.attempt_delay_ms / 1000)
            tried.add(worker.id)
            job.worker = worker.name
            try:
                result = await self._ask(worker, job)
            except ToolError as error:
                if job.only_once and error.kind in ("unknown", "timeout"):
                    raise  # the work may have been done, and must not be repeated
                last = error
                if job.waits and self._is_away(worker, job, error):
                    lost += error.kind != "unsent"
                    continue
                waits = False
                answers += isinstance(error, WorkerFailed) or error.kind == "timeout"
                if job.rule.max_attempts and answers >= job.rule.max_attempts:
                    break
            else:
                self._last.pop((job.no, job.path), None)
                return result
        message = f"no worker: none is registered and alive for {job.service!r}"
        if waits:
            raise NoWorker(message, lost)
        if last is None:
            raise ToolError(message, kind="no_worker")
        self._remember(job)
        failed = ToolError if answers else Unreached
        refused = failed(f"all workers failed: {last}"[: limits.now.error_chars_max], kind=last.kind)
        refused.traceback_text = last.traceback_text
        raise refused

    def _is_away(self, worker: Worker, job: Job, error: ToolError) -> bool:
        """Whether a call failed because its worker is gone, and not because of an answer. It gets no calls until it is back."""
        is_away = isinstance(error, _Gone) or (
            error.kind in ("unsent", "unknown") and not isinstance(error, _Garbled)
        )
        if is_away:
            self._registry.unreached(worker)
            job.context.log(f"worker {worker.id} could not be reached, waiting for a worker: {error}")
        return is_away

    def _next(self, job: Job, tried: set[str]) -> Worker | None:
        """The next worker: the same as in the previous attempt, otherwise by load or in order. Evaluated before each
        call."""
        # After a restart, a call that cannot wait for a heartbeat is better made than failed.
        able = self._registry.able(job.tenant, job.service, "http", even_if_awaited=not job.waits)
        left = [worker for worker in able if worker.id not in tried]
        if not left:
            return None
        if job.attempt > 1 and not tried:
            former = self._last.get((job.no, job.path))
            for worker in left:
                if worker.id == former:
                    return worker
        free = [w for w in left if w.in_flight < CALLS_TO_ONE_MAX] or left
        return min(free, key=lambda worker: worker.burden) if job.rule.weighted_by_load else free[0]

    def _remember(self, job: Job) -> None:
        self._last[job.no, job.path] = job.worker[0]
        if len(self._last) > REMEMBERED_MAX:
            self._last.popitem(last=False)

    async def _ask(self, worker: Worker, job: Job) -> bytes:
        """The response of one worker. The timeout starts when there is a slot for the call."""
        async with self._places.at((worker.tenant, worker.id)), self.arguments.room_for(job.large_bytes):
            return await self._asked(worker, job)

    async def _asked(self, worker: Worker, job: Job) -> bytes:
        timeout_ms = job.rule.call_timeout_ms
        limit = Limit(timeout_ms / 1000 if timeout_ms else None)
        worker.in_flight += 1
        if not timeout_ms:
            worker.limits.add(limit)
        try:
            async with limit:
                return await _result(await self._post(worker, job), job)
        except TimeoutError:
            how = f"did not respond within {timeout_ms / 1000:g} s" if timeout_ms else "stopped responding"
            failed = ToolError if timeout_ms else _Gone
            raise failed(f"worker {worker.id} {how}", kind="timeout") from None
        except Broken as error:
            raise type(error)(f"worker {worker.id}: {error}") from None
        finally:
            worker.in_flight -= 1
            worker.limits.discard(limit)

    async def _post(self, worker: Worker, job: Job) -> bytes:
        assert worker.address is not None
        head = worker.heads.get(job.service)
        if head is None:
            head = worker.heads[job.service] = worker.address.head(f"/exec/{quote(job.service, safe='')}")
        head = b"%bIdempotency-Key: %b\r\n" % (head, job.idempotency_key.encode())
        if job.traceparent is not None:
            head += f"traceparent: {job.traceparent}\r\n".encode()
        return await self._poster.post(worker.address, head, job.body_for(worker), fresh=job.only_once)


async def _result(text: bytes, job: Job) -> bytes:
    """The result in a response; raises its failure if it reports one. A large response is read in a separate process."""
    if len(text) <= LARGE_BYTES:
        return _result_in(text, job.keep)
    made = await apart(_result_apart, text)
    said = msgspec.json.decode(made[: made.index(b"\n")], type=_Said)
    job.keep(said.logs)
    if said.broken is not None:
        raise _Garbled(said.broken)
    if said.failed is not None:
        raise failure_of(said.failed, said.kind, said.traceback)
    return made[made.index(b"\n") + 1 :]


class _Said(msgspec.Struct, omit_defaults=True):
    """In front of the result: why there is none."""

    broken: str | None = None
    failed: str | None = None
    kind: str = ""
    traceback: str | None = None
    logs: list[Line] = []


def _result_apart(text: bytes) -> bytes:
    logs: list[Line] = []
    try:
        result = _result_in(text, logs.extend)
        return written(_Said(logs=logs)) + b"\n" + result
    except Broken as error:
        return written(_Said(broken=str(error), logs=logs)) + b"\n"
    except WorkerFailed as error:
        said = _Said(failed=str(error), kind=error.kind, traceback=error.traceback_text, logs=logs)
        return written(said) + b"\n"


def _result_in(text: bytes, keep: Callable[[list[Line]], None]) -> bytes:
    try:
        answer = _answer(text)
        if answer.logs:
            keep(_lines_in(answer.logs))
        if answer.result is msgspec.UNSET and answer.error is msgspec.UNSET:
            raise NotJson("it has neither `result` nor `error`")
        if not answer.error:
            return encode(None if answer.result is msgspec.UNSET else answer.result)
    except (msgspec.MsgspecError, NotJson, UnicodeDecodeError, RecursionError) as error:
        raise _Garbled(f"its response cannot be parsed: {error}") from None
    raise failure_of(answer.error, answer.error_kind, answer.traceback)


def failure_of(error: str, kind: str | None, traceback: Any = None) -> WorkerFailed:
    failed = WorkerFailed(error[: limits.now.error_chars_max], kind=(kind or "worker_error")[:KIND_CHARS_MAX])
    if isinstance(traceback, str) and traceback:
        failed.traceback_text = traceback
    return failed


def _lines_in(said: Any) -> list[Line]:
    """Lines in the response of any worker; what has another shape is left out."""
    found = said if isinstance(said, list) else []
    lines = [one for one in found if isinstance(one, dict) and isinstance(one.get("message"), str)]
    return [(_level(one.get("level")), one["message"]) for one in lines[: limits.now.log_lines_max + 1]]


def _level(said: Any) -> str:
    return said if isinstance(said, str) and said in LEVELS else "info"
