"""Workers that fetch their jobs, beside a world's nodes: they outlive every one of them, fall silent, and answer twice.

What they hold against the engine:

- a job is given out only when the start of its attempt is durable, and to one worker while its lease lasts
- an answer that was acknowledged is in the journal; one that is given within its lease while its step waits is taken
- who takes a run up lists as lost what nobody has, and nothing that a worker has
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.events import Adopted, AttemptReleased, StepFailed, StepSucceeded
from holdfast.errors import HoldfastError, NotFound, Superseded
from holdfast.plan.flow import CALL_TIMEOUT_MS
from holdfast.values import DEFAULT_TENANT, decode
from holdfast.workers.pull import Offer
from tests.sim.checkers import Shadow, hold
from tests.sim.graphs import result_of
from tests.sim.workloads import KINDS_OF_ERROR, TOOLS

if TYPE_CHECKING:
    from tests.sim.world import SimNode, World

Mark = tuple[str, str, int]  # run id, path, attempt

HELD: Final = "SELECT run, path, attempt FROM assignment"


@dataclass
class Job:
    """What a worker has fetched: until when the lease lasts at least, by the clock of the world."""

    offer: Offer
    until: float
    call_until: float  # and until when an answer is waited for at all
    result: Any = None
    error: str = ""
    asked: int = 0  # how often it was answered
    is_over: bool = False

    @property
    def mark(self) -> Mark:
        return self.offer.run_id, self.offer.path, self.offer.attempt


@dataclass
class Pull:
    world: World
    jobs: dict[Mark, Job] = field(default_factory=dict)
    answered: set[Mark] = field(default_factory=set)  # attempts whose outcome stands in a journal

    def begin(self) -> None:
        for name in ("puller0", "puller1"):
            self.world.later(self.world.rng.choice((0.0, 0.2)), partial(self.turn, name))

    async def join(self, node: SimNode) -> None:
        """Be known before anything is asked of a service; later on the table of workers has them."""
        for name in ("puller0", "puller1"):
            with contextlib.suppress(HoldfastError):  # it comes back when it is not known
                await node.engine.dispatch.workers.register(DEFAULT_TENANT, name, None, TOOLS[:3], "pull")

    def node(self) -> SimNode | None:
        """Whom a worker can reach now."""
        node = self.world.newest()
        return node if node.is_open and not (node.dead or node.paused or node.closing) else None

    def turn(self, name: str) -> None:
        world = self.world
        if (node := self.node()) is not None:
            node.do(self.fetch(node, name))
        world.later(world.rng.choice((0.05, 0.3, 2.0, 5.0)), partial(self.turn, name))

    async def fetch(self, node: SimNode, name: str) -> None:
        workers, rng, asked_at = node.engine.dispatch.workers, self.world.rng, self.world.loop.time()
        try:
            fetched = await workers.poll(
                DEFAULT_TENANT, name, None, rng.choice((1, 3)), rng.choice((0, 0, 1))
            )
        except NotFound:
            return await self.join(node)
        except HoldfastError:
            self.world.counts["poll refused"] += 1
            return
        for offer in fetched.assignments:
            self.world.guarded(partial(self.take, offer, asked_at))

    def take(self, offer: Offer, asked_at: float) -> None:
        world, now = self.world, self.world.loop.time()
        limit_ms = world.shadow_of(offer.run_id).step(offer.path).data.get("timeout_ms", CALL_TIMEOUT_MS)
        job = Job(offer, asked_at + offer.lease_secs, asked_at + (limit_ms / 1000 or math.inf))
        mark = job.mark
        world.say(f"a worker has fetched {mark}")
        hold(mark in world.starts, "a job is given out only after its start is durable", mark)
        key = hashlib.sha256(f"default/{offer.run_id}/{offer.path}".encode()).hexdigest()
        hold(offer.idempotency_key == key, "the key of a job is that of the step instance", mark)
        former = self.jobs.get(mark)
        if former is not None:
            hold(
                now >= former.until, "a job is with one worker while its lease lasts", mark, former.until, now
            )
            world.counts["job given out again"] += 1
        shadow = world.shadow_of(offer.run_id)
        given = {"input": decode(offer.input), "params": decode(offer.params)}
        call = shadow.calls.get(offer.path)
        if call is not None and call.attempt == offer.attempt and call.phase == "open":
            shadow.check_args(offer.path, given)
        self.jobs[mark] = job
        world.counts["job fetched"] += 1
        self.work(job)

    def work(self, job: Job) -> None:
        world, rng = self.world, self.world.rng
        if rng.random() < 0.25:
            job.error = rng.choice(KINDS_OF_ERROR)
        else:
            job.result = result_of(rng, job.offer.path, job.offer.attempt)
        if rng.random() < 0.1 and not world.settled:
            world.counts["worker fell silent"] += 1
            return
        seconds = rng.choice((0.0, 0.05, 0.7, 4.0, 45.0))
        if seconds > job.offer.lease_secs / 2 and rng.random() < 0.7:
            world.later(job.offer.lease_secs / 3, partial(self.beat, job))
        world.later(seconds, partial(self.answer, job))
        if rng.random() < 0.15:
            world.counts["answered twice"] += 1
            world.later(seconds + rng.choice((0.0, 0.01, 5.0)), partial(self.answer, job))

    def beat(self, job: Job) -> None:
        if job.is_over:
            return
        if (node := self.node()) is not None:
            node.do(self.beat_on(node, job))
        self.world.later(job.offer.lease_secs / 3, partial(self.beat, job))

    async def beat_on(self, node: SimNode, job: Job) -> None:
        asked_at = self.world.loop.time()
        try:
            await node.engine.dispatch.workers.job_heartbeat(DEFAULT_TENANT, job.offer.id, job.offer.token)
        except HoldfastError:
            return
        job.until = max(job.until, asked_at + job.offer.lease_secs)
        self.world.counts["lease renewed"] += 1

    def answer(self, job: Job) -> None:
        node = self.node()
        if node is None:
            return self.world.later(0.5, partial(self.answer, job))
        job.asked += 1
        node.do(self.answer_on(node, job))
        self.answer_later(job, 20.0)  # the node may die before it says that it has it

    def answer_later(self, job: Job, seconds: float) -> None:
        """Answer again, unless that was done meanwhile."""
        asked = job.asked

        def again() -> None:
            if not job.is_over and job.asked == asked:
                self.answer(job)

        self.world.later(seconds, again)

    async def answer_on(self, node: SimNode, job: Job) -> None:
        world, workers = self.world, node.engine.dispatch.workers
        offer, asked_at = job.offer, world.loop.time()
        try:
            said = job.error
            await workers.complete(DEFAULT_TENANT, offer.id, offer.token, job.result, said, said or None)
        except (Superseded, NotFound) as error:
            job.is_over = True
            world.counts["answer came too late"] += 1
            reason = repr(error)
            world.guarded(lambda: self.was_late(job, asked_at, reason))
        except HoldfastError:
            world.counts["answer refused for now"] += 1
            self.answer_later(job, 0.5)
        except asyncio.CancelledError:
            raise
        else:
            job.is_over = True
            world.counts["answer acknowledged"] += 1
            world.guarded(lambda: self.was_taken(job))

    def was_taken(self, job: Job) -> None:
        """An answer that counts is in the journal; one that was told to be taken when its run was over counts no more."""
        mark, over = job.mark, self.world.shadow_of(job.mark[0]).over
        hold(self.jobs[mark] is job or over, "only the answer of who has the job now is taken", mark)
        hold(mark in self.answered or over, "an answer that is acknowledged is durable", mark)

    def was_late(self, job: Job, asked_at: float, reason: str) -> None:
        """Refusing an answer is right if the step has moved on, or the lease was over."""
        mark = run_id, path, attempt = job.mark
        shadow = self.world.shadow_of(run_id)
        call = shadow.calls.get(path)
        waits = not shadow.over and call is not None and call.attempt == attempt and call.phase == "open"
        superseded = self.jobs[mark] is not job or shadow.is_interrupted_by_restart
        in_time = asked_at < min(job.until, job.call_until) and not superseded
        hold(not (waits and in_time), "an answer within its lease is taken", mark, reason)

    # ------------------------------------------------------------------------------------------------- journals

    def row(self, shadow: Shadow, event: object) -> None:
        """Called with each row that is committed, after its shadow has taken it."""
        if isinstance(event, StepSucceeded | StepFailed):
            self.answered.add((shadow.run_id, event.path, event.attempt))
        elif (
            isinstance(event, AttemptReleased)
            and (call := shadow.calls.get(event.path))
            and call.phase == "ready"
        ):
            job = self.jobs.get((shadow.run_id, event.path, event.attempt))
            with_worker = job is not None and self.world.loop.time() < job.until
            hold(not with_worker, "what a worker has is not given back", event)

    def adopts(self, shadow: Shadow, no: int, event: Adopted, held: set[tuple[int, str, int]]) -> None:
        """Called before the shadow has taken the row of an adoption: what workers have is not lost while a lease lasts."""
        shadow.held = {
            path
            for path, call in shadow.calls.items()
            if call.phase in ("open", "told") and (no, path, call.attempt) in held
        }
        shadow.held -= {path for path in shadow.held & set(event.lost) if self._is_late(shadow, path)}
        self.world.counts["job outlived its node"] += bool(shadow.held and event.restarted)
        kept = not shadow.held & set(event.lost) or (event.restarted and shadow.is_interrupted_by_restart)
        hold(kept, "what a worker has is not lost", event.lost, shadow.held)

    def _is_late(self, shadow: Shadow, path: str) -> bool:
        """Was a job fetched, and is its lease over by the clock of who fetched it?"""
        job = self.jobs.get((shadow.run_id, path, shadow.calls[path].attempt))
        return job is not None and self.world.loop.time() >= min(job.until, job.call_until)


def held_jobs(db: Any) -> set[tuple[int, str, int]]:
    return set(db.execute(HELD))
