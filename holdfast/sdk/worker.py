"""A worker: serves @tool functions as services of a Holdfast server, by push or pull.

    worker = Worker([resize], "http://127.0.0.1:8070", pull=True)
    await worker.run()          # until worker.stop()

Registers, and registers again when the server no longer knows it; sends a heartbeat with its load every few seconds; finishes running
calls when it is stopped. Knows the API of the server, nothing of its internals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from holdfast.api.types import Accepted, Assignment, Assignments, Lease
from holdfast.api.types import Worker as Registered
from holdfast.config import DEFAULT_HOST, DEFAULT_PORT
from holdfast.errors import HoldfastError, NotFound, Superseded, Unavailable
from holdfast.sdk.connection import Connection
from holdfast.sdk.hearing import Heard, Hearing
from holdfast.sdk.perform import CONCURRENCY, Performer, failed
from holdfast.sdk.push import Push
from holdfast.tools.context import Context
from holdfast.values import RunId

log = logging.getLogger("holdfast.worker")

API: Final = "/api/v1"
DEFAULT_SERVER: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
DEFAULT_URL: Final = "http://localhost:8080"
HEARTBEAT_SECS: Final = 5.0
AGAIN_SECS: Final = 2.0  # before a registration or result that failed is sent again
POLL_SECS: Final = 20.0
POLL_MAX: Final = 100
PROGRESS_SECS: Final = 1.0  # between two heartbeats that report progress
ANSWER_PATIENCE_SECS: Final = 3_600.0  # how long to retry reporting a result to an unreachable server
STOP_SECS: Final = 30.0  # for running calls to finish when the worker is stopped


class Worker:
    def __init__(
        self,
        tools: Iterable[Any],
        server: str | None = None,
        *,
        pull: bool = False,
        url: str | None = None,
        worker_id: str | None = None,
        key: str | None = None,
        socket: str | None = None,
        concurrency: int = CONCURRENCY,
        stop_secs: float = STOP_SECS,
    ) -> None:
        self.id = worker_id or f"worker-{time.time_ns()}"
        self.server = (
            server or os.environ.get("HOLDFAST_SERVER") or os.environ.get("REGISTRY_URL") or DEFAULT_SERVER
        )
        self._url = url or os.environ.get("WORKER_URL") or DEFAULT_URL
        self._performer = Performer(tools, concurrency)
        self._key, self._stop_secs = key or os.environ.get("HOLDFAST_API_KEY") or None, stop_secs
        self._connection = Connection(
            self.server, self._key, socket=socket, timeout=POLL_SECS + 10, patience=0
        )
        self._is_pull = pull
        self._push: Push | None = None
        self._jobs: dict[str, _Job] = {}
        self._stopping = asyncio.Event()
        self.is_registered = asyncio.Event()

    @property
    def services(self) -> list[str]:
        return self._performer.services

    @property
    def url(self) -> str:
        """The URL at which it is called; empty for a pull worker."""
        return "" if self._push is None else self._push.url

    def stop(self) -> None:
        """Accept no more calls, finish the running ones, and return from `run`."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`."""
        with Hearing():
            await self._run()

    async def _run(self) -> None:
        working: list[asyncio.Task[None]] = []
        try:
            if not self._is_pull:
                self._push = Push(self._performer, self._url, self._stop_secs)
                working.append(asyncio.create_task(self._push.serve()))
                await self._push.is_up()
            await self._unless_stopped(self._register())
            working.append(beating := asyncio.create_task(self._beat()))
            if self._is_pull:
                working.append(asyncio.create_task(self._fetch()))
            await self._stopped_or_broken(working)
            beating.cancel()
            await self._leave()
            await self._finish(working)
        finally:
            for task in working:
                task.cancel()
            for job in self._jobs.values():
                job.task.cancel()
            await asyncio.gather(*working, *(job.task for job in self._jobs.values()), return_exceptions=True)
            if self._push is not None:
                self._push.close()
            self._performer.close()
            await self._connection.close()

    async def _stopped_or_broken(self, working: list[asyncio.Task[None]]) -> None:
        """Wait for `stop`, or for a task that failed for good, such as one whose key was revoked; then the worker fails too."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            done, _ = await asyncio.wait([stopping, *working], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            stopping.cancel()

    async def _finish(self, working: list[asyncio.Task[None]]) -> None:
        if self._push is not None:
            self._push.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_secs):
                await asyncio.gather(*working, return_exceptions=True)
                await asyncio.gather(*(job.task for job in self._jobs.values()), return_exceptions=True)
                return
        log.warning(
            "%d jobs were not finished in time; the server will give them to other workers",
            self._performer.in_progress,
        )

    # --------------------------------------------------------------------------------------------- being known

    async def _register(self) -> None:
        later = self._performer.called_back
        services = [
            {"name": name, "supports_async_callback": True} if name in later else name
            for name in self.services
        ]
        body: dict[str, Any] = {"id": self.id, "services": services, "kind": "http", "url": self.url}
        if self._is_pull:
            body = {"id": self.id, "services": services, "kind": "pull"}
        while True:
            try:
                await self._connection.ask("POST", f"{API}/workers", Registered, body=body)
                break
            except Unavailable as error:
                log.warning("not registered yet, trying again: %s", error)
                await asyncio.sleep(AGAIN_SECS)
        how = f"fetching from {self.server}" if self._is_pull else f"at {self.url}"
        log.info("worker %s serves %s, %s", self.id, ", ".join(self.services), how)
        self.is_registered.set()

    async def _beat(self) -> None:
        """Send a heartbeat with the load; register again if the server does not know this worker. An outage is logged once."""
        is_away = False
        while True:
            await asyncio.sleep(HEARTBEAT_SECS)
            try:
                await self._connection.ask(
                    "POST",
                    f"{API}/workers/{quote(self.id, safe='')}/heartbeat",
                    Registered,
                    body={"load": self._performer.in_progress},
                )
                if is_away:
                    log.warning("the server answers heartbeats again")
                is_away = False
            except NotFound:
                is_away = False
                await self._register()
            except HoldfastError as error:
                if not is_away:
                    log.warning("no heartbeat, retrying every %g s: %s", HEARTBEAT_SECS, error)
                is_away = True

    async def _leave(self) -> None:
        """Deregister. A server that cannot be reached will notice by the missing heartbeats."""
        with contextlib.suppress(HoldfastError):
            await self._connection.ask("DELETE", f"{API}/workers/{quote(self.id, safe='')}", Registered)

    async def _unless_stopped(self, work: Awaitable[None]) -> None:
        doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (doing, stopping):
            if not task.done():
                task.cancel()
        if doing.done():
            doing.result()

    # ------------------------------------------------------------------------------------------------- fetching

    async def _fetch(self) -> None:
        while not self._stopping.is_set():
            free = self._performer.concurrency - len(self._jobs)
            if free <= 0:
                await asyncio.wait(
                    [job.task for job in self._jobs.values()], return_when=asyncio.FIRST_COMPLETED
                )
                continue
            try:
                fetched = await self._connection.ask(
                    "POST",
                    f"{API}/assignments/poll",
                    Assignments,
                    body={"worker_id": self.id, "limit": min(free, POLL_MAX), "wait_secs": POLL_SECS},
                )
            except NotFound:
                if not self._stopping.is_set():
                    await self._register()
                continue
            except HoldfastError as error:
                log.warning("no jobs: %s", error)
                await asyncio.sleep(AGAIN_SECS)
                continue
            for assignment in fetched.assignments:
                self._take(assignment)
            for name in fetched.cancel:
                if name in self._jobs:
                    self._jobs[name].cancel()

    def _take(self, assignment: Assignment) -> None:
        job = self._jobs[assignment.id] = _Job(assignment, self._performer, self._ask)
        job.task.add_done_callback(lambda _: self._is_over(job, assignment.id))

    def _is_over(self, job: _Job, name: str) -> None:
        # else it was offered again, and taken, before the former try had ended
        if self._jobs.get(name) is job:
            del self._jobs[name]

    async def _ask(self, assignment: Assignment, what: str, answer: Any, body: Any) -> Any:
        path = f"{API}/assignments/{quote(assignment.id, safe='')}/{what}"
        said = {"token": assignment.token, **body}
        return await self._connection.ask("POST", path, answer, body=said, request_key="")


Ask = Callable[[Assignment, str, Any, Any], Awaitable[Any]]


class _Job:
    """One fetched job: run it, report its progress and its result."""

    def __init__(self, assignment: Assignment, performer: Performer, ask: Ask) -> None:
        self._assignment, self._performer, self._ask = assignment, performer, ask
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._progress: dict[str, Any] | None = None
        self._heard = Heard(self._tell)
        self._is_ours = True
        self._context = Context(
            RunId(assignment.run_id),
            assignment.path,
            assignment.attempt,
            assignment.idempotency_key,
            emit=self._emit,
        )
        self._work = asyncio.create_task(self._perform())
        self.task = asyncio.create_task(self._run())

    def cancel(self) -> None:
        self._context.cancel()
        self._work.cancel()

    async def _perform(self) -> bytes:
        job = self._assignment
        return await self._performer.perform(job.service, job.input, job.params, self._context, self._heard)

    async def _run(self) -> None:
        beating = asyncio.create_task(self._beat())
        try:
            await asyncio.wait([self._work])
            if self._is_ours:
                await self._answer()
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            beating.cancel()

    async def _answer(self) -> None:
        error = failed(self._work)
        body: dict[str, Any] = {"result": msgspec.Raw(self._work.result())} if error is None else {**error}
        if logs := self._heard.taken(is_end=True):
            body["logs"] = logs
        try:
            async with asyncio.timeout(ANSWER_PATIENCE_SECS):
                while True:
                    try:
                        await self._ask(self._assignment, "complete", Accepted, body)
                        return
                    except Unavailable as away:
                        log.warning("cannot report a result, retrying: %s", away)
                        await asyncio.sleep(AGAIN_SECS)
        except (Superseded, NotFound) as late:
            log.warning("a result came too late: %s", late)
        except (HoldfastError, TimeoutError) as refused:
            log.error("an answer could not be given: %s", refused)

    async def _beat(self) -> None:
        """Renew the lease, report progress, and check whether to stop."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._assignment.lease_secs / 3):
                    await self._news.wait()
            self._news.clear()
            progress, self._progress = self._progress, None
            said: dict[str, Any] = {} if progress is None else {"progress": progress}
            if logs := self._heard.taken():
                said["logs"] = logs
            try:
                lease = await self._ask(self._assignment, "heartbeat", Lease, said)
                if lease.cancel and not self._work.done():
                    self.cancel()
            except (Superseded, NotFound):
                self._is_ours = self._work.done()  # then the response to the result decides
                self.cancel()
                return
            except HoldfastError as error:
                log.warning("no heartbeat of a job: %s", error)
            await asyncio.sleep(min(PROGRESS_SECS, self._assignment.lease_secs / 3))

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "progress":
            progress = {"done": data.get("done", data["fraction"]), "message": data["message"]}
            self._progress = progress | ({"total": data["total"]} if "total" in data else {})
            self._tell()
        else:
            self._heard.emit(kind, data)

    def _tell(self) -> None:
        """There is something to send; called from any thread."""
        with contextlib.suppress(RuntimeError):  # the worker has ended
            self._loop.call_soon_threadsafe(self._news.set)
