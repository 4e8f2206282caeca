"""A scheduler for another system's jobs: it decides when, and hands each fire to a sink.

    handle, router = SchedulerService(SchedulerConfig.from_dir("./schedules"), MySink()).start()
    app.mount("/", router)                     # the webhooks, as an ASGI app
    handle.mark_terminal("nightly_cleanup")    # when a job has ended
    handle.shutdown()

The scheduler has a thread and an event loop of its own, so it works in any program, with or without a loop. Knows threads and
loops; which occurrences fire, and what is stored, is known to triggers/.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

import msgspec

from holdfast import config
from holdfast.compat.schedules import ScheduleSpec, schedules_in_folder, written_from
from holdfast.http.hook_app import HookApp
from holdfast.triggers.sink_scheduler import SinkScheduler, check
from holdfast.triggers.sinks import JobSink, TriggerFire

__all__ = [
    "JobSink",
    "SchedulerConfig",
    "SchedulerHandle",
    "SchedulerService",
    "TriggerFire",
    "WebhookRouter",
]

log = logging.getLogger("holdfast")

T = TypeVar("T")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SINK_THREADS: Final = 8  # for sinks that are not coroutines: a slow call does not hold up the others
STOP_SECS: Final = 15.0


class SchedulerConfig(msgspec.Struct, frozen=True):
    """The schedules of a scheduler."""

    schedules: tuple[ScheduleSpec, ...] = ()

    @classmethod
    def from_dir(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the schedule files of a folder, not of those beneath it. Raises InvalidSpec with the problems of all of them."""
        return cls(schedules_in_folder(folder))


class SchedulerService:
    """Fires schedules of kind cron, interval, at and webhook into a sink.

    `db` is the database with their cursors and their ledger, by default that of the settings. One process at a time has it. A sink
    that is a coroutine function is awaited on the loop that `start` was called on, if there is one. A fire that the sink does
    not accept (it returns a text, or raises) is offered again after 1, 5 and 30 seconds; a webhook is answered with 500
    instead. After a crash the sink may get a fire a second time, with the same `schedule_id` and `scheduled_at`.
    """

    def __init__(self, cfg: SchedulerConfig, sink: JobSink, *, db: str | None = None) -> None:
        if not callable(getattr(sink, "enqueue", None)):
            raise TypeError(f"a sink has a method enqueue(fire); {type(sink).__name__} has none")
        self._specs = [written_from(spec) for spec in cfg.schedules]
        check(self._specs)
        self._sink, self._db = sink, db

    def start(self) -> tuple[SchedulerHandle, WebhookRouter]:
        """Begin to fire; gives the handle of the scheduler, and its webhooks as an ASGI app.

        Raises DatabaseInUse if another process has the database, and InvalidSpec if it has other schedules with these ids or paths.
        """
        db = self._db or config.load().db
        thread = _LoopThread()
        try:
            offers = _Offers(self._sink, _running_loop())
            scheduler = thread.run(_made(db, offers.offer))
            thread.run(scheduler.open(self._specs))
        except BaseException:
            thread.stop()
            raise
        router = WebhookRouter(thread, HookApp(scheduler.hooks, scheduler.events, scheduler.clock))
        return SchedulerHandle(thread, scheduler, offers, len(self._specs)), router


async def _made(db: str, offer: Callable[[TriggerFire], Awaitable[str | None]]) -> SinkScheduler:
    return SinkScheduler(db, offer)  # on the loop that it will use


class SchedulerHandle:
    """A scheduler that runs. Its methods may be called from any thread."""

    def __init__(self, thread: _LoopThread, scheduler: SinkScheduler, offers: _Offers, count: int) -> None:
        self._thread, self._scheduler, self._offers, self._count = thread, scheduler, offers, count
        self._is_shut = False

    def mark_terminal(self, schedule_id: str) -> None:
        """A job of a schedule has ended, so that the next one may begin. An unknown id changes nothing."""
        self._scheduler.in_flight.end(schedule_id)
        self._thread.call(self._scheduler.ended, schedule_id)

    def in_flight(self, schedule_id: str) -> int:
        """How many jobs of a schedule have not ended."""
        return self._scheduler.in_flight.count(schedule_id)

    def schedule_count(self) -> int:
        """How many schedules there are, enabled or not."""
        return self._count

    def shutdown(self) -> None:
        """Stop, and give the database back. What the sink has not accepted yet is offered again by the next scheduler."""
        if self._is_shut:
            return
        self._is_shut = True
        self._offers.close()
        try:
            self._thread.run(self._scheduler.close(), STOP_SECS)
        finally:
            self._thread.stop()


class WebhookRouter:
    """The webhooks of a scheduler: an ASGI app, to be mounted in the server of the program."""

    def __init__(self, thread: _LoopThread, app: HookApp) -> None:
        self._thread, self._app = thread, app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        here, is_answered = asyncio.get_running_loop(), False

        async def receive_there() -> Message:
            return await asyncio.wrap_future(_begun_on(here, receive()))

        async def send_there(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await asyncio.wrap_future(_begun_on(here, send(message)))

        try:
            await asyncio.wrap_future(self._thread.begin(self._app(scope, receive_there, send_there)))
        except (RuntimeError, asyncio.CancelledError):
            if not self._thread.is_stopped:
                raise
            if scope["type"] == "http" and not is_answered:
                await _unavailable(send)


async def _unavailable(send: Send) -> None:
    body = b'{"error":"unavailable","message":"the scheduler has been shut down"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ----------------------------------------------------------------------------------------------- threads and loops


class _Offers:
    """Calls the sink. `home` is the loop of the program, if it has one: coroutines of the sink belong there."""

    def __init__(self, sink: JobSink, home: asyncio.AbstractEventLoop | None) -> None:
        self._sink, self._home = sink, home
        self._at_home: set[Future[Any]] = set()
        self._threads = ThreadPoolExecutor(SINK_THREADS, thread_name_prefix="holdfast-sink")

    async def offer(self, fire: TriggerFire) -> str | None:
        """Why the sink did not accept a fire; None if it did."""
        try:
            said: Any
            if inspect.iscoroutinefunction(self._sink.enqueue):
                said = self._sink.enqueue(fire)
            else:
                said = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._sink.enqueue, fire
                )
            if inspect.isawaitable(said):
                said = await self._awaited(said)
        except Exception as error:  # noqa: BLE001  # it is the sink's answer
            return str(error) or type(error).__name__
        return None if said is None else str(said) or "the sink did not say why"

    async def _awaited(self, said: Awaitable[Any]) -> Any:
        if self._home is None or not self._home.is_running():
            return await said
        work = _begun_on(self._home, said)
        self._at_home.add(work)
        work.add_done_callback(self._at_home.discard)
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        """Call the sink no more. The loop of the program stands still while it calls this, so what runs there is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if _running_loop() is self._home:
            for work in list(self._at_home):
                work.cancel()


def _begun_on(loop: asyncio.AbstractEventLoop, work: Awaitable[T]) -> Future[T]:
    """Something that is awaited on another loop."""

    async def awaited() -> T:
        return await work

    return asyncio.run_coroutine_threadsafe(awaited(), loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _LoopThread:
    """An event loop in a thread of its own. It ends with the program, also if it is never stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.is_stopped = False
        self._thread = threading.Thread(target=self._serve, name="holdfast-scheduler", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=1))
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run something on the loop; raises RuntimeError if it is stopped."""
        if self.is_stopped:
            work.close()
            raise RuntimeError("the scheduler has been shut down")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], secs: float | None = None) -> T:
        """The result of something on the loop, which this thread waits for."""
        return self.begin(work).result(secs)

    def call(self, do: Callable[..., None], *args: Any) -> None:
        if not self.is_stopped:
            self._loop.call_soon_threadsafe(do, *args)

    def stop(self) -> None:
        self.is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECS)
