"""L1 with waiting: the real engine and store on virtual time, where what is called answers later, or never, or twice.

    Caller      a call that paused: somebody who brings its answer, early, late, several times, by its id or its address
    Receiver    who is told of the ends of runs: fails, is down, hangs, has heard it and cannot say so, wants nothing more
    WaitWorld   the nodes and faults of World; clients who answer, approve, signal and cancel; the book of each run

Clients keep asking until they are told something that is final, and hold what they were told against the journals. The
wall clock ticks between two looks, is set back and forward by hours, and jumps while the machine sleeps. When faults have
stopped and nothing moves any more, every open run must say what it waits for; then everybody answers, and all must end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unittest import mock

from holdfast import limits
from holdfast.deliveries import outbox
from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import StartAttempt
from holdfast.engine.events import Destination
from holdfast.errors import (
    AmbiguousTask,
    Forbidden,
    HoldfastError,
    InvalidInputs,
    NotWaiting,
    RunIsOver,
    Unavailable,
)
from holdfast.ops.metrics import Orphans
from holdfast.runtime.clock import Clock
from holdfast.signing import Capability, is_signed, opened, webhook_signature
from holdfast.store.batch import Batch
from holdfast.store.records import CallbackDeliveryTried
from holdfast.tools.failures import ToolError
from holdfast.tools.registry import Context
from holdfast.values import DEFAULT_TENANT, Millis, RunId, decode, encode
from holdfast.views.explain import explain_live
from holdfast.waits import polling
from holdfast.waits.callbacks import Resumed
from tests.sim.checkers import hold
from tests.sim.knobs import SMALL_FOR_WAITS, small_limits
from tests.sim.loop import NODE
from tests.sim.waits_book import TICKS_MS, Book, number_in
from tests.sim.waits_loads import BOSS, NAMES, PEOPLE, TOPICS, waits_load
from tests.sim.workloads import KINDS_OF_ERROR, Workload
from tests.sim.world import EPOCH_MS, HARMLESS, LATE_MS_MAX, SimNode, World, to_its_end

HOUR_MS: Final = 3_600_000
SEEDS_PER_WORKLOAD: Final = 4
REST_SECONDS: Final = 120.0  # after the last fault: by then nothing is at work
DRAIN_SECONDS: Final = 5.0
SHARED_ID: Final = "task-x"  # more than one sender uses it
SECRET_ENV: Final = "SIM_KEY"
SECRET: Final = "a key of the simulation"
PLACES: Final = ("up", "flaky", "down", "gone", "never")
# Seconds before each further try of a delivery: then four times longer each, up to half a day, three days in all.
DELAYS_SECS: Final = (1, 5, 30, 120, 480, 1_920, 7_680, 30_720, 43_200, 43_200, 43_200, 43_200, 43_200, 2_244)

WAITS: Final = "SELECT path, attempt, kind, name, expires_at, resolved_at, outcome FROM wait WHERE run = ? AND kind <> 'key'"
DELIVERIES: Final = "SELECT id, run, n, url, tries, due_at, outcome, pos FROM outbox ORDER BY pos"
EARLY: Final = "SELECT task_id, meant, body, expires_at FROM early_result"


@dataclass
class Caller:
    """Who brings the answer of a call that was announced for later."""

    run_id: str
    path: str
    attempt: int
    task_id: str
    segment: str  # of the address that it was given to answer to, if it was
    value: int
    fails: bool
    how: str  # id, run (the id and its run) or address
    asked: int = 0
    told: str = ""
    patience: float = 0.1

    @property
    def answer(self) -> dict[str, Any]:
        return {"success": False, "error": f"no {self.value}"} if self.fails else {"v": self.value}


@dataclass
class CallbackDelivery:
    """What a receiver knows of one."""

    body: bytes
    calls: int = 0
    heard: int = 0
    failed_at: list[Millis] = field(default_factory=list)  # by the clock of the outbox that sent it
    is_over: set[str] = field(default_factory=set)  # nodes that were told that it was heard, or is not wanted
    at_work: Counter[str] = field(default_factory=Counter)  # nodes that are telling it right now


def clock_of(node: Any) -> Clock:
    """The clock by which a node sends deliveries."""
    clock: Clock = node.engine.outbox.clock
    return clock


class Receiver:
    def __init__(self, world: WaitWorld) -> None:
        self.world = world
        self.deliveries: dict[str, CallbackDelivery] = {}
        self.down_until = world.rng.choice((0.0, 3.0, 60.0))

    async def post(
        self, guard: Any, url: str, headers: dict[str, str], content: bytes, seconds: float, max_bytes: int
    ) -> None:
        """Stands for the product's own, which would open a connection."""
        world, node = self.world, NODE.get()
        name, place = headers["webhook-id"], url.partition("//")[2].partition(".")[0]
        world.say(f"{getattr(node, 'name', '?')} tells {url} {name}")
        world.guarded(partial(self.check, node, name, url, headers, content))
        delivery = self.deliveries.setdefault(name, CallbackDelivery(content))
        delivery.calls += 1
        who = getattr(node, "name", "")
        delivery.at_work[who] += 1
        try:
            await self.hear(place, delivery, seconds)
            delivery.is_over.add(who)
        except ToolError as error:
            delivery.failed_at.append(clock_of(node).now())
            delivery.is_over |= {who} if error.kind == "gone" else set()
            raise
        finally:
            delivery.at_work[who] -= 1
        world.counts["delivery heard"] += 1
        world.counts["delivery heard again"] += delivery.heard > 1

    async def hear(self, place: str, delivery: CallbackDelivery, seconds: float) -> None:
        world, rng = self.world, self.world.rng
        await asyncio.sleep(rng.choice((0.0, 0.01, 1.0)))
        if place == "gone":
            world.counts["receiver wants nothing more"] += 1
            raise ToolError("410", kind="gone")
        is_down = place == "never" or (place == "down" and world.loop.time() < self.down_until)
        if is_down or (place == "flaky" and not world.settled and rng.random() < 0.4):
            world.counts["receiver fails"] += 1
            if rng.random() < 0.2:
                world.counts["receiver hangs"] += 1
                await asyncio.sleep(seconds)
            raise ToolError("no answer", kind="network")
        delivery.heard += 1
        await asyncio.sleep(rng.choice((0.0, 0.0, 2.0, 20.0)))
        if place == "flaky" and not world.settled and rng.random() < 0.3:
            world.counts["receiver heard and could not say so"] += 1
            raise ToolError("cut off", kind="network")

    def check(self, node: Any, name: str, url: str, headers: dict[str, str], content: bytes) -> None:
        """What is told is true, and it is time to tell it."""
        world = self.world
        told = decode(content)
        book = world.books[told["run_id"]]
        hold(
            book.over and book.status == told["status"],
            "only the durable end of a run is told",
            name,
            told["status"],
        )
        known = self.deliveries.get(name)
        hold(known is None or known.body == content, "a delivery says the same each time", name)
        if node is not world.opened:
            world.counts["delivery of a stale node"] += 1
            return
        rows = {row[0]: row for row in world.deliveries()}
        hold(name in rows, "a delivery that is told is in the outbox", name)
        _, run, n, to, tries, due_at, outcome, _ = rows[name]
        hold((run, to) == (book.run.no, url), "a delivery goes where its run says", name, url)
        hold(outcome is None, "a delivery that is over is told no more", name, outcome)
        latest = max(world.clock_max, clock_of(node).now())
        hold(due_at <= latest, "a delivery is not told before its time", name, due_at, latest)
        who = getattr(node, "name", "")
        hold(known is None or not known.at_work[who], "a delivery is told once at a time", name)
        hold(known is None or who not in known.is_over, "who was heard tells it no more", name)
        earlier = [row for row in rows.values() if (row[1], row[3]) == (run, url) and row[2] < n]
        hold(
            all(row[6] for row in earlier),
            "deliveries of a run to one address go in their order",
            name,
            earlier,
        )
        self.check_signed(name, url, headers, content)
        if tries and world.is_calm and limits.now.final_callbacks_max > 2 and outbox.SENDING_TO_ONE_MAX > 1:
            late = min(world.now() - due_at, (world.loop.time() - world.jumped_at) * 1000)
            hold(late <= LATE_MS_MAX + 1, "a delivery is told again when its time has come", name, late)

    def check_signed(self, name: str, url: str, headers: dict[str, str], content: bytes) -> None:
        if "webhook-signature" not in headers:
            return
        at = int(headers["webhook-timestamp"])
        right = headers["webhook-signature"] == webhook_signature(SECRET, name, at, content)
        right = right and is_signed(SECRET, content, headers["X-Hub-Signature-256"])
        hold(right, "a delivery is signed", name, url)
        self.world.counts["signed delivery"] += 1


class WaitWorld(World):
    known_faults = (
        "crash", "crash in commit", "pause", "down", "unknown error", "slow commits", "clock jump", "suspend", "cancel",
        "close", "few places", "few residents", "missing tool",
    )  # fmt: skip
    harmless_faults = HARMLESS | {"suspend"}
    faults_at_a_handle = ("crash", "pause", "clock jump", "suspend", "cancel", "close", "down")
    settle_seconds = 20_000.0
    public_url = "https://holdfast.example"
    pauses_between_commits = True

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace, kind="waits")
        rng = self.rng
        self.rate = rng.choice((0.003, 0.01, 0.05))
        self.faults_until = rng.choice((2.0, 20.0, 200.0))
        self.clock_max = EPOCH_MS
        self.ticks = rng.random() < 0.5
        self.values = 0
        self.books: dict[str, Book] = {}
        self.callers: list[Caller] = []
        self.polled: dict[str, tuple[str, str, int]] = {}  # address → run, path, attempt
        self.looks: Counter[tuple[str, str, int]] = Counter()
        self.poll_answers: dict[int, tuple[str, str, int]] = {}
        # answers that are parked, as the table tells it
        self.early: dict[tuple[str, str], tuple[str, int]] = {}
        self.kept: set[int] = set()  # all that ever were
        self.parked: set[int] = set()  # and those whose sender was told so
        self.receiver = Receiver(self)
        self.told_of: dict[int, tuple[Destination, ...]] = {}
        self.is_drained = False
        self.shares_ids = rng.choice((0.1, 0.1, 0.7))  # how many senders have an id that others use too

    def chosen(self) -> list[Workload]:
        first = self.seed // SEEDS_PER_WORKLOAD
        return [waits_load(first + 1000 * more) for more in range(self.rng.choice((1, 2, 3)))]

    def deliveries(self) -> list[Any]:
        """The outbox, read to its end: a look that is left half done would keep writers out."""
        return list(self.anchor.execute(DELIVERIES))

    def value(self) -> int:
        self.values += 1
        return self.values

    def now(self) -> Millis:
        if self.ticks and self.rng.random() < 0.05:
            self.skew_ms += 1
        at = super().now()
        self.clock_max = max(self.clock_max, at)
        self.skew_ms_max = max(self.skew_ms_max, self.skew_ms)
        return at

    # ------------------------------------------------------------------------------------------------ faults

    def open_node(self) -> None:
        if "suspend" in self.faults and not self.settled and self.nodes and self.rng.random() < 0.3:
            self.counts["down for hours"] += 1
            self.jump(self.rng.choice((HOUR_MS, 9 * HOUR_MS)))
        if "down" in self.faults and not self.settled and self.nodes and self.rng.random() < 0.2:
            self.counts["database away at the opening"] += 1
            self.down_until = self.loop.time() + self.rng.choice((0.01, 1.0))
        super().open_node()

    def crash_rate(self, batch: Batch) -> float:
        """More likely where somebody was just promised something."""
        promises = (
            batch.opened_waits
            or batch.early_results
            or batch.taken_early
            or batch.callback_deliveries
            or batch.tried
        )
        return 0.15 if promises else 0.02

    def refusal(self, batch: Batch) -> BaseException | None:
        """As in other worlds, and more often where something that was kept is given, or a delivery was told."""
        was, at = self.refused_last, self.loop.time()
        if batch.taken_early and self.faulty("down", 0.3):
            self.counts["giving what was kept failed"] += 1
            self.down_until = max(self.down_until, at + self.rng.choice((0.01, 1.0)))
        found = super().refusal(batch)
        several = len({row[0] for row in batch.rows}) > 1 and not was and at > self.refused_at + 10
        if found is None and batch.taken_early and several and self.faulty("unknown error", 0.7):
            self.counts["giving what was kept failed for an unknown reason"] += 1
            self.refused_at, self.refused_last = at, True
            return RuntimeError("by the simulation: nobody knows")
        if found is None and batch.tried and self.faulty("unknown error", 0.1):
            self.counts["result of a delivery refused"] += 1
            return RuntimeError("by the simulation: nobody knows")
        return found

    def _suspend(self, node: SimNode) -> None:
        """The machine sleeps for hours: nothing runs, and the wall clock goes on."""
        self.counts["machine suspended"] += 1
        self.jump(self.rng.choice((HOUR_MS, 9 * HOUR_MS, 30 * HOUR_MS)))

    def _clock_jump(self, node: SimNode) -> None:
        by = self.rng.choice(
            (-26 * HOUR_MS, -HOUR_MS, -5_000, -100, 100, 4_000, 60_000, HOUR_MS, 26 * HOUR_MS)
        )
        self.counts["clock set back" if by < 0 else "clock set forward"] += 1
        self.jump(by)

    def jump(self, by: int) -> None:
        self.say(f"the clock jumps by {by / 1000:g} s")
        self.jumped_at = self.loop.time()
        self.skew_ms += by
        self.skew_ms_max = max(self.skew_ms_max, self.skew_ms)

    def settle(self) -> None:
        super().settle()
        self.later(REST_SECONDS, self.rest)

    # ----------------------------------------------------------------------------------------------- clients

    def destinations(self, which: int) -> tuple[Destination, ...]:
        """The same for each try of a start."""
        if which not in self.told_of:
            rng = random.Random(f"{self.seed} {which}")
            found = []
            for _ in range(rng.choice((0, 1, 1, 2, 3))):
                url = f"https://{rng.choice(PLACES)}.example/{rng.choice('ab')}"
                found.append(Destination(url, rng.choice((None, SECRET_ENV))))
            self.told_of[which] = tuple(dict.fromkeys(found))
        return self.told_of[which]

    def begin(self) -> None:
        for act in (self.talk, self.talk, self.vote):
            self.later(self.rng.choice((0.01, 0.4, 3.0)), act)

    def reachable(self) -> SimNode | None:
        node = self.newest()
        return node if node.is_open and not (node.dead or node.paused or node.closing) else None

    def open_books(self) -> list[Book]:
        return [book for book in self.books.values() if not book.over]

    def talk(self) -> None:
        """Somebody sends a signal, whether or not it is waited for."""
        node, known = self.reachable(), [book for book in self.open_books() if book.run_id in self.started]
        if self.settled:
            return
        if node is not None and known:
            book, rng = self.rng.choice(known), self.rng
            about = rng.choice((None, *TOPICS))
            node.do(self.signal(node, book, rng.choice((*NAMES, "ok")), about))
        self.later(self.rng.choice((0.1, 2.0, 15.0)), self.talk)

    async def signal(self, node: SimNode, book: Book, name: str, about: str | None) -> None:
        value = self.value()
        sent = value if name != "ok" else {"v": value}
        try:
            await node.engine.runs.signal(RunId(book.run_id), name, sent, correlation=about)
        except RunIsOver:
            self.guarded(
                lambda: hold(book.over, "a run is said to be over when that is durable", book.run_id)
            )
        except Unavailable:
            self.counts["signal refused"] += 1
        except HoldfastError as error:
            said = error
            self.guarded(lambda: hold(False, "a signal is taken or refused in order", repr(said)))
        else:
            self.counts["signal acknowledged"] += 1
            self.guarded(lambda: hold(book.signals[value] == 1, "an acknowledged signal is durable", value))

    def vote(self) -> None:
        """Somebody answers an approval, or something that is none."""
        node, known = self.reachable(), [book for book in self.open_books() if book.run_id in self.started]
        if self.settled:
            return
        if node is not None and known:
            book = self.rng.choice(known)
            gates = [path for path, _, kind in book.waits if kind == "approval"]
            if gates:
                path = self.rng.choice(gates)
                who = self.rng.choice((*PEOPLE, *PEOPLE, BOSS, "Mallory"))
                node.do(self.approve(node, book, path, who, approved=self.rng.random() < 0.7))
        self.later(self.rng.choice((0.1, 1.0, 8.0)), self.vote)

    async def approve(self, node: SimNode, book: Book, path: str, who: str, *, approved: bool) -> None:
        reason = f"no {self.value()}"
        asked = self.rng.choice((path, path, path.rpartition(".")[2]))
        was_open = self.is_gate_open(book, path)
        try:
            decided = await node.engine.approvals.approve(
                DEFAULT_TENANT, book.run_id, asked, approved=approved, by=who, reason=reason
            )
        except Forbidden:
            self.counts["approval by one who may not"] += 1
            hold_of = book.step(path).data.get("quorum", {}).get("of")
            self.guarded(lambda: hold(hold_of and who not in hold_of, "who may answer is heard", who, path))
        except NotWaiting as late:
            self.counts["approval too late"] += 1
            again, said = who in book.votes.get(path, {}), repr(late)
            still = was_open and self.is_gate_open(book, path) and asked == path and not again
            self.guarded(lambda: hold(not still, "an open gate can be answered", path, said))
        except InvalidInputs:
            self.counts["approval of one of several"] += 1
        except Unavailable:
            self.counts["approval refused"] += 1
        except HoldfastError as error:
            said = repr(error)
            self.guarded(lambda: hold(False, "an approval is taken or refused in order", said))
        else:
            self.counts["approval acknowledged"] += 1
            self.guarded(
                lambda: hold(book.voices[reason] == 1, "an acknowledged approval is durable", reason)
            )
            is_over = asked != path or not decided or not self.is_gate_open(book, path)
            self.guarded(lambda: hold(is_over, "a gate that is said to be decided is", path))

    def is_gate_open(self, book: Book, path: str) -> bool:
        step = book.run.steps.get(path)
        return step is not None and step.wait is not None and step.wait.kind == "approval"

    # ------------------------------------------------------------------------------------------ later answers

    async def perform(self, context: Context, args: dict[str, Any]) -> Any:
        self.effect(context, args)
        found = self.outcome(context, args)
        try:
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.3, 3.0, 25.0)))
        except asyncio.CancelledError:
            if self.rng.random() < 0.7:
                raise
            self.counts["cancellation swallowed"] += 1
            await asyncio.sleep(1.0)
        return self.given(found)

    def result(self, context: Context) -> Any:
        return self.given(self.outcome(context, {}))

    def given(self, found: Any) -> Any:
        if isinstance(found, ToolError):
            raise found
        return found

    def outcome(self, context: Context, args: dict[str, Any]) -> Any:
        """What a call will say: its answer, a failure, or that the answer comes later, for which somebody is sent out."""
        rng, path = self.rng, context.path
        value = self.value()
        if path.rpartition(".")[2].partition("~")[0] == "call":  # of a poll
            return {"v": value, "done": rng.random() < (0.4 if not self.settled else 1.0)}
        chance = rng.random()
        if chance < 0.15:
            return {"v": value}
        if chance < 0.22:
            return ToolError("by chance", kind=rng.choice(KINDS_OF_ERROR))
        return self.announced(context, args.get("callback_url", ""), value)

    def announced(self, context: Context, address: str, value: int) -> dict[str, Any]:
        rng = self.rng
        task_id = SHARED_ID if rng.random() < self.shares_ids else f"task-{value}"
        said: dict[str, Any] = {"pending": True, "task_id": task_id}
        mark = (context.run_id, context.path, context.attempt)
        if rng.random() < 0.5:
            said["poll_url"] = f"https://poll.example/{value}"
            self.polled[said["poll_url"]] = mark
        segment = address.rpartition("/")[2]
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            ways = ("id", "id", "id", "run", *(("address", "address", "address") if segment else ()))
            caller = Caller(*mark, task_id, segment, self.value(), rng.random() < 0.15, rng.choice(ways))
            self.callers.append(caller)
            self.later(rng.choice((0.0, 0.0, 0.01, 0.3, 3.0, 40.0)), partial(self.call_back, caller))
        return said

    def call_back(self, caller: Caller) -> None:
        if caller.told:
            return
        node = self.reachable()
        if node is None:
            caller.patience = min(2 * caller.patience, 60.0)
            return self.later(caller.patience, partial(self.call_back, caller))
        caller.asked += 1
        node.do(self.call_back_on(node, caller))
        self.later(25.0, partial(self.call_back, caller))  # the node may die before it says that it has it

    async def call_back_on(self, node: SimNode, caller: Caller) -> None:
        book, engine = self.books[caller.run_id], node.engine
        could = self.could_count(caller)
        try:
            if caller.how == "address":
                capability = opened(node.store.server_key, caller.segment, "resume")
                self.guarded(
                    lambda: hold(capability is not None, "an address that was given out is known", caller)
                )
                assert capability is not None
                told = await engine.callbacks.resume_by(capability, caller.answer)
            else:
                run_id = caller.run_id if caller.how == "run" else None
                told = await engine.callbacks.resume(DEFAULT_TENANT, caller.task_id, caller.answer, run_id)
        except AmbiguousTask:
            self.counts["ambiguous task id"] += 1
            caller.told = "" if caller.how == "id" else "ambiguous"
            caller.how = "run"
        except Unavailable:
            self.counts["callback refused"] += 1
        except HoldfastError as error:
            said = error
            self.guarded(lambda: hold(False, "a callback is taken or refused in order", repr(said)))
        else:
            self.say(f"{node.name} tells who answers {caller.task_id} with {caller.value}: {told.reason}")
            self.counts[f"callback {told.reason}"] += 1
            caller.told = told.reason
            still = could and self.could_count(caller)
            self.guarded(partial(self.check_told, book, caller, told, still))

    def could_count(self, caller: Caller) -> bool:
        """Is the answer one that is waited for at this moment, whatever else may come?"""
        book = self.books[caller.run_id]
        if caller.how == "address" and book.is_at_work(caller.path, caller.attempt):
            return (caller.path, caller.attempt) not in book.early
        noted = book.waits.get((caller.path, caller.attempt, "callback"))
        return noted is not None and noted.outcome is None and (noted.until or 0) > self.clock_max

    def check_told(self, book: Book, caller: Caller, told: Resumed, still: bool) -> None:
        """What a caller is told is so, and durable."""
        value, mark = caller.value, (caller.path, caller.attempt)
        if told.reason == "resumed":
            where = self.counted(value)
            hold(where is not None, "an answer that is acknowledged is durable", caller)
            hold(
                caller.how != "address" or where == (book, mark),
                "an answer is given to whom it is for",
                caller,
            )
        elif told.reason == "parked" and caller.how == "address":
            hold(value in book.journaled, "an answer that is kept for its pause is durable", caller)
        elif told.reason == "parked":
            self.parked.add(value)
            hold(self.is_kept(caller), "an answer that is kept for its pause is durable", caller, self.early)
        elif told.reason == "already_resumed":
            hold(self.was_resumed(caller), "only what has its answer is said to have it", caller)
        elif (
            told.reason == "unknown_task" or (*mark, "callback") in book.waits
        ):  # else it expired before it was durable
            hold(not still, "an answer that is waited for is taken", caller, told)

    def counted(self, value: int) -> tuple[Book, tuple[str, int]] | None:
        for book in self.books.values():
            if value in book.counted:
                return book, book.counted[value]
        return None

    def is_kept(self, caller: Caller) -> bool:
        """Does it stand among the parked ones, or was it given already, it or one like it that came before it?"""
        if (first := self.first_parked(caller)) is not None:
            return first == caller.value
        like = [other.value for other in self.callers if other.task_id == caller.task_id]
        return any(self.counted(value) is not None for value in like)

    def first_parked(self, caller: Caller) -> int | None:
        """The answer that waits for the pause of that name, whoever gave it."""
        kept = self.early.get((caller.task_id, caller.run_id if caller.how == "run" else ""))
        return None if kept is None else number_in_body(kept[0])

    def was_resumed(self, caller: Caller) -> bool:
        if caller.how == "address":
            book, mark = self.books[caller.run_id], (caller.path, caller.attempt)
            noted = book.waits.get((*mark, "callback"))
            return mark in book.early or (noted is not None and noted.outcome in ("resume", "poll"))
        if self.first_parked(caller) not in (None, caller.value):
            return True
        found = [one for book in self.books.values() for _, one in book.named(caller.task_id)]
        return any(one.outcome in ("resume", "poll") for one in found)

    # --------------------------------------------------------------------------------------------------- polls

    async def get(self, guard: Any, url: str, seconds: float) -> tuple[bytes, str]:
        """Stands for the product's own, which would open a connection."""
        rng, mark = self.rng, self.polled[url]
        self.looks[mark] += 1
        book = self.books[mark[0]]
        self.counts["poll"] += 1
        # A last look that nobody lived to make, or whose end could not be written, is made again.
        unwritten = self.counts["commit failed"] + self.counts["commit failed for an unknown reason"]
        allowed = book.polls[mark[1:]] + len(self.nodes) - 1 + unwritten
        self.guarded(lambda: hold(self.looks[mark] <= allowed, "it is asked for when that was decided", mark))
        await asyncio.sleep(rng.choice((0.0, 0.1, 2.0, 7.0)))
        chance = rng.random()
        if chance < 0.3:
            raise ToolError("nothing there", kind="network")
        if chance < 0.6:
            return encode({"pending": True, "task_id": "later"}), url
        value = self.value()
        self.poll_answers[value] = mark
        return encode({"success": False, "error": f"no {value}"} if chance < 0.65 else {"v": value}), url

    # ------------------------------------------------------------------------------------------------- journals

    def committed(self, node: SimNode, batch: Batch) -> None:
        hold(node is self.opened, "a stale node appends nothing", node.name, len(batch.rows))
        for new in batch.new_runs.values():
            book = Book(self.loads[new.version], new.id, new.no, self.kept)
            self.books[new.id] = self.shadows[new.no] = book  # type: ignore[assignment]  # as far as World asks, it is one
            self.rows[new.no], self.blobs[new.no] = [], {}
        for of, sha256, text in batch.blobs:
            self.blobs[of][sha256] = text
        for no, seq, epoch, at, kind, body in batch.rows:
            book = self.shadows[no]  # type: ignore[assignment]
            self.say(f"{node.name} run {no} row {seq}/{epoch} {body[:300]}")
            book.row(seq, epoch, at, body, self.blobs[no])
            self.check_lateness(book)
            self.writers[no] = node
            self.rows[no].append((seq, epoch, at, kind, body))
            for decision in decode_row(body)[1]:
                if isinstance(decision, StartAttempt):
                    self.starts.add((book.run_id, decision.path, decision.attempt))
        self.compare_live(node, batch)
        for no in {row[0] for row in batch.rows}:
            self.check_table(no)
        self.check_early()
        for tried in batch.tried:
            self.check_tried(tried)

    def check_lateness(self, shadow: Any) -> None:
        late, shadow.late_ms = shadow.late_ms, 0
        late = min(late, (self.loop.time() - self.jumped_at) * 1000) - shadow.look_ms
        if self.is_calm:
            hold(late <= LATE_MS_MAX + 1, "a due timer fires within a second", late, shadow.event)

    def check_table(self, no: int) -> None:
        """The table of waits says what the journal says, and the outbox has deliveries of runs that are over, and of no others."""
        book: Book = self.shadows[no]  # type: ignore[assignment]
        told = {
            (path, attempt, kind): (name, until, resolved_at, outcome)
            for path, attempt, kind, name, until, resolved_at, outcome in self.anchor.execute(WAITS, (no,))
        }
        mine = {
            key: (wait.name, wait.until, wait.resolved_at, wait.outcome) for key, wait in book.waits.items()
        }
        hold(told == mine, "the table of waits is that of the journal", told, mine)
        deliveries = [row[2:4] for row in self.deliveries() if row[1] == no]
        due = [(n, one.url) for n, one in enumerate(book.run.destinations)] if book.over else []
        hold(
            deliveries == due,
            "a run that is over has a delivery for each destination",
            no,
            book.status,
            deliveries,
            due,
        )

    def was_answered(self, task_id: str, meant: str) -> bool:
        """Is a wait over that an answer under this name is for?"""
        books: list[Book] = [book for book in self.shadows.values() if meant in ("", book.run.id)]  # type: ignore[misc]
        waits = [wait for book in books for (_, _, kind), wait in book.waits.items() if kind == "callback"]
        return any(wait.name == task_id and wait.resolved_at is not None for wait in waits)

    def check_early(self) -> None:
        """An answer that is kept for its pause goes when it is given, when another was quicker, or when its time is over."""
        now = {(task_id, meant): (body, until) for task_id, meant, body, until in self.anchor.execute(EARLY)}
        for name, (body, expires_at) in self.early.items():
            if now.get(name, ("",))[0] == body:
                continue
            number = number_in_body(body)
            gone = (
                number not in self.parked
                or self.counted(number or 0) is not None
                or self.was_answered(*name)
                or expires_at <= self.clock_max
            )
            hold(gone, "an answer that is kept for its pause is not lost", name, body)
        self.early = now
        self.kept |= {number_in_body(body) or 0 for body, _ in now.values()}
        given = [
            name for name, (body, _) in now.items() if self.counted(number_in_body(body) or 0) is not None
        ]
        hold(not given, "an answer that was kept for its pause is given once", given)

    def check_tried(self, tried: CallbackDeliveryTried) -> None:
        if tried.outcome is None and tried.was is None:
            (name,) = (row[0] for row in self.deliveries() if row[7] == tried.pos)
            since = tried.due_at - DELAYS_SECS[tried.tries - 1] * 1000
            failed = any(0 <= since - at <= TICKS_MS for at in self.receiver.deliveries[name].failed_at)
            hold(failed, "a delivery is tried again after 1 s, 5 s, 30 s and then later", tried)
            self.counts["delivery put off"] += 1
        elif tried.outcome == "dead":
            self.counts["dead letter"] += 1

    def check_wanted(self, run_id: str, path: str, number: int, args: dict[str, Any]) -> None:
        at_work = self.books[run_id].is_at_work(path, number)
        hold(at_work, "an attempt begins only while the run waits for it", run_id, path, number)

    # ---------------------------------------------------------------------------------------------------- the end

    def rest(self) -> None:
        """Nothing is at work any more: see that every open run says what it waits for."""
        node = self.reachable()
        waiting = any(book.run.active or book.run.todo for book in self.open_books())
        if node is None or waiting or len(self.acknowledged) < len(self.wanted):
            return self.later(DRAIN_SECONDS, self.rest)
        node.do(self.look_around(node))

    async def look_around(self, node: SimNode) -> None:
        engine = node.engine
        orphans = await Orphans(engine.store, engine.door, engine.wakes).count()
        self.guarded(lambda: hold(not orphans, "no open run lacks owner, time and named wait", orphans))
        for book in self.open_books():
            row = await engine.runs.row_of(RunId(book.run_id))
            told = await explain_live(engine.store, engine.memory, row, book.load.plan)
            named = book.over or (told.reasons and all(one.reason and one.unblocks for one in told.reasons))
            self.guarded(partial(hold, named, "an open run says what it waits for", book.run_id, told))
            self.counts["open run at rest"] += not book.over
        self.guarded(self.nothing_was_left)
        self.say("everybody answers")
        self.drain()

    def nothing_was_left(self) -> None:
        """No answer that is here is waited for."""
        for book in self.open_books():
            for path, attempt, kind, noted in book.open_waits():
                for meant in ("", book.run_id) if kind == "callback" else ():
                    answer, until = self.early.get((noted.name, meant), ("", 0))
                    given = not answer or until <= self.clock_max
                    hold(given, "an answer that is here is given to who waits for it", path, attempt, answer)

    def drain(self) -> None:
        """Everybody answers, and time flies where nobody has to."""
        self.is_drained = True
        node = self.reachable()
        if node is not None:
            busy = [self.answer_one(node, book) for book in self.open_books()]
            if not any(busy):
                self.fly()
        self.later(DRAIN_SECONDS, self.drain)

    def answer_one(self, node: SimNode, book: Book) -> bool:
        """Bring one run further, if somebody can."""
        open_waits = book.open_waits()
        if book.run.active or book.run.todo or not open_waits:
            return bool(book.run.active or book.run.todo)
        path, attempt, kind, _ = open_waits[0]
        if kind == "callback":
            capability = Capability(DEFAULT_TENANT, book.run_id, path, attempt)
            node.do(self.quietly(node.engine.callbacks.resume_by(capability, {"v": self.value()})))
        elif kind == "approval":
            for who in (*PEOPLE, BOSS):  # who may come last, once it was escalated
                node.do(self.approve(node, book, path, who, approved=True))
        else:
            for name in NAMES:
                node.do(self.signal(node, book, name, book.load.inputs["about"]))
        return True

    async def quietly(self, work: Any) -> None:
        with contextlib.suppress(HoldfastError):
            await work

    def fly(self) -> None:
        """The machine sleeps until the next thing is due."""
        dues = [at for book in self.open_books() for at in book.run.timers.values()]
        first: dict[tuple[int, str], Millis] = {}  # of each run and address: the others wait for it
        for _, run, _, url, _, due_at, outcome, _ in self.deliveries():
            if outcome is None:
                first.setdefault((run, url), due_at)
        dues += first.values()
        if dues and min(dues) > self.now():
            self.counts["time flies"] += 1
            self.jump(min(dues) - self.now() + 1)

    def is_over(self) -> bool:
        return super().is_over() and self.is_drained and all(row[6] for row in self.deliveries())

    def finish(self) -> None:
        super().finish()
        rows = {row[0]: row for row in self.deliveries()}
        for name, _, _, url, tries, _, outcome, _ in rows.values():
            known = self.receiver.deliveries.get(name, CallbackDelivery(b""))
            place = url.partition("//")[2].partition(".")[0]
            self.counts[f"delivery {outcome}"] += 1
            if outcome == "delivered":
                hold(known.heard, "a delivery that is delivered was heard", name, url)
            else:
                enough = place == "gone" or tries == len(DELAYS_SECS) + 1
                hold(
                    outcome == "dead" and enough,
                    "a delivery is given up when it was tried enough",
                    name,
                    tries,
                )
        for value, mark in self.poll_answers.items():
            book = self.books[mark[0]]
            hold(
                book.counted.get(value, mark[1:]) == mark[1:],
                "what a poll brings is for whom it was made",
                value,
            )


def number_in_body(body: str) -> int | None:
    answer = decode(body)
    if isinstance(answer, dict) and "error" in answer:
        return int(answer["error"].removeprefix("no "))
    return number_in(answer)


@contextmanager
def connections_of(world: WaitWorld) -> Iterator[None]:
    """The world's own receivers and pages in place of the network."""
    with (
        mock.patch.object(outbox, "post", world.receiver.post),
        mock.patch.object(polling, "get", world.get),
        mock.patch.dict(os.environ, {SECRET_ENV: SECRET}),
    ):
        yield


def simulate(seed: int, *, trace: bool = False) -> WaitWorld:
    """One seed, to its end. The world that comes back has its counters and its trace."""
    world = WaitWorld(seed, trace=trace)
    with connections_of(world):
        return to_its_end(world, seed, small_limits(world.rng, SMALL_FOR_WAITS))
