"""L1: the real engine (door, timers, owners, dispatch) and the real SQLite store, in memory, on virtual time.

    SimStore   the real store behind a thin wrapper: commits are delayed, fail, or are the last thing a node does
    SimNode    one incarnation of the engine on the database
    World      the nodes, the clients who start, cancel and look, the faults, and one shadow per run

The wrapper mirrors what was committed; every row goes through the shadow of its run at that moment. Tools check that
their start is durable when they are called, and count what they did.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, Final, TypeVar

import apsw
import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import StartAttempt
from holdfast.engine.events import Adopted, Destination, StepFailed, StepSucceeded
from holdfast.errors import (
    HoldfastError,
    InvalidInputs,
    NodeIsOver,
    NotFound,
    RunIsOver,
    StoreUnavailable,
    Unavailable,
)
from holdfast.plan.graph import Call
from holdfast.runtime.load import load_run
from holdfast.runtime.plans import Known, Ready
from holdfast.runtime.rerun import Again
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.starts import RerunRun
from holdfast.spec.inputs import Inputs
from holdfast.store.batch import Batch
from holdfast.store.records import ReadRow
from holdfast.store.sqlite.store import SqliteStore
from holdfast.tools.registry import Context, Registry, Tool, ToolError
from holdfast.values import Error, Millis, RunId, RunNo, encode
from holdfast.views.outputs import output_of
from tests.runtime.bench import engine_on, started
from tests.sim.checkers import Shadow, Violation, check_same, hold
from tests.sim.graph_checkers import GraphShadow, shadow_of
from tests.sim.graphs import result_of
from tests.sim.keys import KeyBook, KeyLaw, check_tables
from tests.sim.knobs import small_limits
from tests.sim.loop import NODE, SimLoop
from tests.sim.pull import Pull, held_jobs
from tests.sim.pure import LOADS, at_once
from tests.sim.workloads import KINDS_OF_ERROR, TOOLS, Workload

EPOCH_MS: Final = 1_700_000_000_000
TURNS_MAX: Final = 60_000
# Callers that cancel or look in one instant. A fault comes with some handles of the loop, and where reads suspend, a cancel is so many
# handles that it brings about more than one other: time would stand still.
ASKS_MAX: Final = 500
SETTLE_SECONDS: Final = 3_000.0
FAULTS: Final = (
    "crash", "crash in commit", "pause", "down", "unknown error", "slow commits", "clock jump", "late answers",
    "cancel", "close", "few places", "few residents", "missing tool", "poison",
)  # fmt: skip
HARMLESS: Final = frozenset({"cancel", "late answers", "clock jump"})
AT_A_HANDLE: Final = ("crash", "pause", "clock jump", "late answers", "cancel", "close", "down")
RERUNS: Final = {"woven": (0, 1, 2), "graph": (1, 2, 4), "waits": (0,), "recover": (0,)}
LATE_MS_MAX: Final = 1_000  # a due timer fires within a second, also after the clock was set
SEEDS_PER_WORKLOAD: Final = 5

log = logging.getLogger("holdfast")

AnyWorld = TypeVar("AnyWorld", bound="World")


class SimClock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Millis:
        return self._world.now()

    def monotonic(self) -> float:
        return self._world.loop.time()

    def new_id(self) -> RunId:
        return RunId(f"run-{self._world.rng.getrandbits(64):016x}")


class Nowhere:
    """A database in memory has no files: nothing happens to them, and nothing is written beside them."""

    log_path = ""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **named: None


class SimStore(SqliteStore):
    """The real store, in memory. Its commits happen when, and if, the world lets them."""

    def __init__(self, world: World, node: SimNode) -> None:
        super().__init__(world.path, threads=False)
        self.world, self.sim_node = world, node
        self.slow: list[tuple[Batch, Callable[[BaseException | None], None]]] = []  # commits on their way

    def _open(self) -> None:
        self.world.end_looks(self)
        super()._open()
        self.world.opened = self.sim_node  # until here, the one before may append

    def _claim(self) -> None:
        pass

    def _note_place(self) -> tuple[bool, bool]:
        return False, False

    def _watch_files(self, *, is_copy: bool) -> None:
        self._place = self._mark = Nowhere()  # type: ignore[assignment]

    def close_file(self) -> None:
        """As the writer's thread does it: what was submitted is written first."""
        while self.slow:
            self._write_now(*self.slow.pop(0))
        super().close_file()

    def quit(self) -> None:
        """Let the connections of a node go that never closed them."""
        for name in ("_read", "_write"):
            if hasattr(self, name):
                getattr(self, name).close()

    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        world, loop = self.world, self.world.loop
        if self.sim_node.dead:
            return
        if self.slow or world.faulty("slow commits", 0.3):  # nobody overtakes a commit that is on its way
            world.counts["slow commit"] += 1
            self.slow.append((batch, done))
            if len(self.slow) == 1:
                loop.call_later(world.rng.choice((0.001, 0.2, 3.0)), self._write_slow)
        else:
            self._write_now(batch, done)

    def _write_slow(self) -> None:
        while self.slow:
            self._write_now(*self.slow.pop(0))
            if self.slow and self.world.pauses_between_commits:
                self.world.loop.call_later(self.world.rng.choice((0.0, 0.001, 0.1)), self._write_slow)
                return

    def _write_now(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None:
        world, node = self.world, self.sim_node
        if node.dead:
            return
        refusal = world.refusal(batch)
        if refusal is not None:
            world.say(f"{node.name} commit refused: {refusal!r}")
            return done(refusal)
        crash_rate = world.crash_rate(batch)
        if world.faulty("crash in commit", crash_rate):
            world.counts["crash before the commit"] += 1
            return world.crash(node)
        answers: list[BaseException | None] = []
        world.held = held_jobs(world.anchor)
        world.end_looks(self)
        super().submit(batch, answers.append)
        if answers[0] is None:
            world.guarded(lambda: world.committed(node, batch))
        elif isinstance(answers[0], NodeIsOver):
            world.counts["stale commit refused"] += 1
        else:
            world.guarded(partial(world.not_taken, batch, answers[0]))
        if world.faulty("crash in commit", crash_rate):
            world.counts["crash after the commit, before anyone knew"] += 1
            return world.crash(node)
        done(answers[0])


class SimNode:
    def __init__(self, world: World, *, whole: bool) -> None:
        self.world = world
        self.name = f"node{len(world.nodes)}"
        self.dead = self.paused = self.closing = self.is_open = False
        self.held: list[asyncio.Handle] = []
        self.found: set[tuple[int, str, int]] = set()  # jobs that workers had when it came
        self.tools = set(TOOLS if whole else TOOLS[:3])
        self.context = contextvars.copy_context()
        self.context.run(NODE.set, self)
        self.store = SimStore(world, self)
        rng = world.rng
        places = rng.choice((1, 2)) if "few places" in world.faults else 1000
        resident_max = rng.choice((1, 2)) if "few residents" in world.faults else 20_000
        registry = Registry([Tool(tool, name) for name, tool in world.tools.items() if name in self.tools])
        self.engine = engine_on(
            world.read_through(self.store),
            registry,
            SimClock(world),
            attempts_max=places,
            resident_max=resident_max,
            public_url=world.public_url,
        )
        knows = rng.random() < 0.8  # else plans are made anew, from the stored definitions
        for load in world.wanted:
            if knows:
                self.engine.plans._by_version.put(load.plan.version, load.plan, 0)
            if knows or load.whole.uses:  # those that it names are published nowhere
                ready = Ready(load.whole, load.plan, Inputs(load.spec.inputs))
                known = Known(load.spec, load.plan.version, frozenset(), ready)
                self.engine.plans._known.put(id(load.spec), known, 0)

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Something that happens on this node, and dies with it."""
        task = self.world.loop.create_task(work, context=self.context.copy())
        task.set_name(self.name)


class World:
    known_faults: tuple[str, ...] = FAULTS
    harmless_faults: frozenset[str] = HARMLESS
    faults_at_a_handle: tuple[str, ...] = AT_A_HANDLE
    downtimes: tuple[float, ...] = (0.0, 0.1, 20.0)
    settle_seconds: float = SETTLE_SECONDS
    public_url: str | None = None
    pauses_between_commits = False  # of those that are slow: something else may happen in between

    def __init__(self, seed: int, *, trace: bool = False, kind: str = "plain") -> None:
        self.seed, self.rng, self.kind = seed, random.Random(seed), kind
        self.woven, self.is_graph = kind == "woven", kind == "graph"
        rng = self.rng
        self.path = f"file:/sim{seed}?vfs=memdb"
        self.anchor = apsw.Connection(self.path, flags=_FLAGS)  # keeps the database while nobody has it open
        with self.anchor.backup("main", new_file(), "main") as backup:
            backup.step()
        self.is_calm = rng.random() < 0.12  # nothing holds anybody up: what is due must happen in time
        self.faults = {
            fault
            for fault in self.known_faults
            if rng.random() < 0.4 and (not self.is_calm or fault in self.harmless_faults)
        }
        self.rate = rng.choice((0.01, 0.03, 0.1))
        self.faults_until = rng.choice((0.5, 5.0, 30.0))
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self.loop = SimLoop(rng, shuffles=rng.random() < 0.6)
        self.loop.before = self.before
        self.skew_ms = 0
        self.skew_ms_max = 0
        self.jumped_at = -1_000.0
        self.down_until = -1.0
        self.refused_last = False
        self.refused_at = -1_000.0
        self.failure: BaseException | None = None
        self.nodes: list[SimNode] = []
        self.opened: SimNode | None = None  # the newest incarnation: the only one that may append
        self.shadows: dict[int, Shadow] = {}
        self.rows: dict[int, list[ReadRow]] = {}
        self.blobs: dict[int, dict[str, bytes]] = {}
        self.writers: dict[int, SimNode] = {}  # who appended the last row
        self.starts: set[tuple[str, str, int]] = set()
        self.effects: Counter[tuple[str, str, int]] = Counter()
        self.keys: dict[str, tuple[str, str]] = {}
        self.loads = {load.plan.version: load for load in self.chosen()}
        self.wanted = list(self.loads.values())
        if self.woven:  # runs of one definition meet under its keys
            self.wanted = [load for load in self.wanted for _ in range(rng.choice((1, 2, 4)))]
        self.acknowledged: set[int] = set()  # which of the wanted runs were
        self.book, self.law = KeyBook(), KeyLaw()
        self.started: dict[str, int] = {}  # acknowledged starts: id → number
        self.cancelled: set[str] = set()  # acknowledged cancels
        self.asks: Counter[float] = Counter()  # of callers, by the time at which they came
        # A step that takes its process down whenever it runs, as long as there is one to take down.
        calls = sorted(
            {name for load in self.wanted for name, info in load.steps.items() if info.kind == "tool"}
        )
        self.poison = rng.choice(calls) if "poison" in self.faults and calls and rng.random() < 0.5 else ""
        self.answers: list[tuple[int, StepSucceeded | StepFailed]] = []
        self.settled = False
        self.tools = {name: self.make_tool(name) for name in TOOLS}
        self.pull = Pull(self)
        self.held: set[tuple[int, str, int]] = set()  # jobs of workers, before the last commit

    def chosen(self) -> list[Workload]:
        first = self.seed // SEEDS_PER_WORKLOAD
        return [LOADS[self.kind](first + 1000 * more) for more in range(self.rng.choice((1, 1, 2, 3)))]

    # --------------------------------------------------------------------------------------------------- running

    def run(self) -> None:
        try:
            self.open_node()
            for which in range(len(self.wanted)):
                self.later(self.rng.choice((0.0, 0.01, 0.5)), partial(self.start, which))
            self.begin()
            for _ in range(self.rng.choice(RERUNS[self.kind]) if self.kind != "plain" else 0):
                self.later(self.rng.choice((1.0, 4.0, 20.0)), self.do_again)
            for _ in range(self.rng.choice((0, 1, 3)) if "cancel" in self.faults else 0):
                self.later(self.rng.choice((0.001, 0.3, 2.0)), self.ask)
            self.later(self.faults_until + 0.001, self.settle)
            self.loop.run_until(self.is_over)
            if not self.is_over():
                self.complain()
            self.finish()
        finally:
            for node in self.nodes:
                node.engine.dispatch.is_stopping = True  # what is collected now is no answer
                node.engine.dispatch.outcomes.close()
            self.loop.dispose()
            for node in self.nodes:
                node.store.quit()
            self.anchor.close()

    def read_through(self, store: SimStore) -> Any:
        """The store as an engine sees it."""
        return store

    def begin(self) -> None:
        """Those who are there beside the nodes and the clients."""
        if self.is_graph:
            self.pull.begin()

    def now(self) -> Millis:
        """The wall clock, as it stands."""
        return Millis(EPOCH_MS + int(self.loop.time() * 1000) + self.skew_ms)

    def is_over(self) -> bool:
        if self.failure is not None:
            raise self.failure
        # What a node that is gone left unheard is no mistake: its callbacks went with it.
        errors = [
            error for error in self.loop.errors if not isinstance(error.get("exception"), StoreUnavailable)
        ]
        if errors:
            error = errors[0]
            raise Violation(f"no callback fails: {error}") from error.get("exception")
        if self.loop.time() > self.faults_until + self.settle_seconds or self.loop.turns > TURNS_MAX:
            self.complain()
        if not self.settled:
            return False
        if self.newest().closing:
            return False
        ends = len(self.acknowledged) == len(self.wanted)
        over = ends and all(shadow.over for shadow in self.shadows.values()) and self.newest().is_open
        return over and not held_jobs(self.anchor)  # which go with the next commit

    def complain(self) -> None:
        stuck = {
            no: (shadow.status, sorted(shadow.run.steps.items()), shadow.timers, shadow.run.todo)
            for no, shadow in self.shadows.items()
            if not shadow.over
        }
        engine = self.newest().engine
        resident = {no: resident.run.status for no, resident in engine.door.residents.items()}
        at_work, queued = list(engine.dispatch.attempts), list(engine.dispatch.queue)
        where = (
            f"in memory {resident}, at work {at_work}, queued {queued}, set aside {engine.door.quarantined}"
        )
        where += (
            f", jobs {held_jobs(self.anchor)}, after {self.loop.time():.1f} s and {self.loop.turns} turns"
        )
        raise Violation(f"once faults stop every run becomes terminal: {stuck}, {where}")

    def newest(self) -> SimNode:
        return self.nodes[-1]

    def end_looks(self, of_others_than: SimStore) -> None:
        """Who looks at a file keeps nobody from writing to it; in memory it does."""
        for node in self.nodes:
            if node.store is not of_others_than:
                node.store._end_look()

    def later(self, delay: float, act: Callable[[], None]) -> None:
        self.loop.call_later(delay, act, context=contextvars.Context())

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.loop.time():>10.4f} {text}")

    def guarded(self, check: Callable[[], None]) -> None:
        """Checks are made amid the engine's own frames: what they find must not be caught there."""
        try:
            check()
        except BaseException as error:  # noqa: BLE001  # told when the engine has its handler off
            self.failure = self.failure or error

    # ---------------------------------------------------------------------------------------------------- faults

    def crash_rate(self, batch: Batch) -> float:
        """How likely a crash is right before a commit, and right after it."""
        return 0.02

    def faulty(self, fault: str, rate: float) -> bool:
        if fault not in self.faults or self.settled or self.loop.time() > self.faults_until:
            return False
        return self.rng.random() < rate

    def before(self, node: Any) -> None:
        """Asked before every handle: does something happen to its node right now?"""
        if (
            self.settled
            or not isinstance(node, SimNode)
            or node is not self.newest()
            or node.dead
            or node.paused
        ):
            return
        if self.rng.random() >= self.rate or self.loop.time() > self.faults_until:
            return
        possible = [fault for fault in self.faults_at_a_handle if fault in self.faults]
        if possible:
            getattr(self, "_" + self.rng.choice(possible).replace(" ", "_"))(node)

    def crash_if_stalled(self, node: SimNode) -> None:
        if node is self.newest() and not node.dead and node.engine.door.is_stalled:
            self._crash(node)

    def _crash(self, node: SimNode) -> None:
        self.counts["crash while closing" if node.closing else "crash at a handle"] += 1
        if node.engine.door.is_stalled:
            self.counts["crash while the database was away"] += 1
        self.crash(node)

    def crash(self, node: SimNode) -> None:
        self.say(f"{node.name} dies")
        node.dead = True
        if node is self.newest():
            self.later(self.rng.choice(self.downtimes), self.open_node)

    def _pause(self, node: SimNode) -> None:
        self.say(f"{node.name} is paused")
        node.paused = True
        self.counts["pause"] += 1
        if self.rng.random() < 0.6:
            self.later(self.rng.choice((0.0, 1.0)), lambda: self.take_over(node))
        self.later(self.rng.choice((0.01, 3.0, 40.0)), lambda: self.resume(node))

    def resume(self, node: SimNode) -> None:
        self.say(f"{node.name} goes on")
        node.paused = False
        if node is not self.newest():
            self.counts["stale node goes on"] += 1
            # the lock is another's: it would not have come this far
            node.dead = node.dead or not node.is_open
        held, node.held = node.held, []
        self.loop.give_back(held)

    def take_over(self, former: SimNode) -> None:
        if former is self.newest() and not former.dead and not former.closing:
            self.counts["takeover from a live node"] += 1
            self.open_node()

    def _clock_jump(self, node: SimNode) -> None:
        self.counts["clock jump"] += 1
        self.jumped_at = self.loop.time()
        self.skew_ms += self.rng.choice((-3_600_000, -5_000, -100, 100, 4_000, 60_000, 3_600_000))
        self.skew_ms_max = max(self.skew_ms_max, self.skew_ms)

    def _down(self, node: SimNode) -> None:
        self.counts["database away"] += 1
        self.down_until = self.loop.time() + self.rng.choice((0.01, 1.0, 12.0))
        if "cancel" in self.faults:
            self.later(0.001, self.ask)
        if "crash" in self.faults and self.rng.random() < 0.3:
            self.later(self.rng.choice((0.005, 0.15, 2.0)), lambda: self.crash_if_stalled(node))

    def _late_answers(self, node: SimNode) -> None:
        if self.answers:
            no, event = self.rng.choice(self.answers)
            self.counts["late answer"] += 1
            node.context.copy().run(node.engine.door.deliver, RunNo(no), event)

    def _cancel(self, node: SimNode) -> None:
        if self.started:
            run_id = self.rng.choice(list(self.started))
            ask = self.cancel if self.rng.random() < 0.5 else self.look
            self.asks[self.loop.time()] += 1
            if self.asks[self.loop.time()] <= ASKS_MAX:
                node.do(ask(node, run_id))

    def ask(self) -> None:
        node = self.newest()
        if node.is_open and not (node.dead or node.closing or node.paused):
            self._cancel(node)

    def _close(self, node: SimNode) -> None:
        if not node.closing and node is self.opened:
            node.closing = True
            self.counts["graceful close"] += 1
            node.do(self.close(node))

    def refusal(self, batch: Batch) -> BaseException | None:
        """Why the store does not take this batch now, if it does not."""
        was, self.refused_last = self.refused_last, False
        if self.loop.time() < self.down_until and not self.settled:
            self.counts["commit failed"] += 1
            return StoreUnavailable("by the simulation: no space left")
        # A run that is refused twice is set aside, and should be: once is what it must survive.
        again = self.loop.time() < self.refused_at + 10
        if batch.rows and not was and self.faulty("unknown error", 0.03) and not again:
            self.refused_at = self.loop.time()
            self.counts["commit failed for an unknown reason"] += 1
            self.refused_last = True
            return RuntimeError("by the simulation: nobody knows")
        return None

    def not_taken(self, batch: Batch, error: BaseException) -> None:
        """The store has refused a batch by itself."""
        hold(False, "the store takes every batch of its owner", repr(error))

    def settle(self) -> None:
        """Faults stop: what is paused goes on, and the last incarnation has every tool."""
        self.say("faults stop")
        self.settled = True
        self.jumped_at = self.loop.time()
        self.skew_ms = self.skew_ms_max  # else a timer may rightly be an hour away
        for node in self.nodes:
            if node.paused:
                self.resume(node)
        node = self.newest()
        if not node.dead and not node.closing and "rare" not in node.tools:
            node.closing = True
            node.do(self.close(node))

    # ----------------------------------------------------------------------------------------- nodes and clients

    def open_node(self) -> None:
        whole = self.settled or "missing tool" not in self.faults or self.rng.random() < 0.3
        node = SimNode(self, whole=whole)
        self.say(f"{node.name} opens, faults {sorted(self.faults)}")
        self.nodes.append(node)
        if self.woven and self.started and not self.settled and self.rng.random() < 0.15:
            node.closing = True
            node.do(self.visit(node, self.rng.choice(list(self.started))))
        else:
            node.do(self.open(node))

    async def open(self, node: SimNode) -> None:
        node.found = held_jobs(self.anchor) if self.started else set()
        await node.engine.open()
        if self.is_graph and not self.started:
            await self.pull.join(node)
        node.is_open = True

    async def visit(self, node: SimNode, run_id: str) -> None:
        """Take the file to cancel one run, drive nothing, and leave."""
        await node.engine.open(drive=False)
        await self.cancel(node, run_id)
        self.counts["visit"] += 1
        await self.close(node)

    async def close(self, node: SimNode) -> None:
        self.say(f"{node.name} closes")
        await node.engine.close()
        if node.dead:
            return  # it died on the way, and the next one is seen to
        self.say(f"{node.name} has closed")
        door = node.engine.door
        if node is self.opened and not (door.is_over or door.is_stalled):
            self.guarded(lambda: self.nothing_is_open(node))
        node.dead = True
        if node is self.newest():
            self.later(self.rng.choice(self.downtimes), self.open_node)

    def is_only_once(self, shadow: Shadow, path: str) -> bool:
        """One that must not be done twice is not given back once it has begun: it is lost instead."""
        node = shadow.load.plan.node(path)
        return isinstance(node, Call) and node.fails_on_crash

    def nothing_is_open(self, node: SimNode) -> None:
        held = held_jobs(self.anchor)
        for no, shadow in self.shadows.items():
            ours = self.writers.get(no) is node and not shadow.over  # else it was not taken up here yet
            at_work = [
                path
                for path, step in shadow.run.open_attempts()
                if ours and not self.is_only_once(shadow, path) and (no, path, step.attempt) not in held
            ]
            hold(not at_work, "a graceful stop leaves no attempt open: it costs a step nothing", at_work)
        self.counts["closed in order"] += 1

    def start(self, which: int) -> None:
        node = self.newest()
        if node.dead or node.closing or node.paused or not node.is_open:
            return self.later(0.3, lambda: self.start(which))
        self.later(60.0, lambda: self.start_again(which))  # the node may die before it answers
        node.do(self.start_on(node, which))

    async def start_on(self, node: SimNode, which: int) -> None:
        load = self.wanted[which]
        try:
            resident = await started(
                node.engine, load.spec, load.inputs, final_callbacks=self.destinations(which)
            )
        except Unavailable:
            self.counts["start refused"] += 1
            return
        self.acknowledged.add(which)
        self.has_started(node, resident)

    def destinations(self, which: int) -> tuple[Destination, ...]:
        """Who is told of the end of a run, besides those that its workflow names."""
        return ()

    def has_started(self, node: SimNode, resident: ResidentRun) -> None:
        self.started[resident.run.id] = resident.run.no
        self.say(f"{node.name} has started run {resident.run.no}: {resident.run.id}")
        durable = self.shadows.get(resident.run.no)
        self.guarded(
            lambda: hold(
                durable and durable.run_id == resident.run.id,
                "an acknowledged run is durable",
                resident.run.id,
            )
        )
        if self.rng.random() < 0.5:
            node.do(self.wait_on(node, resident.run.no))

    def start_again(self, which: int) -> None:
        if which not in self.acknowledged:
            self.start(which)

    def do_again(self) -> None:
        """Let a run that is over be done again, from the beginning or from one of its steps."""
        node, over = self.newest(), [shadow for shadow in self.shadows.values() if shadow.over]
        if over and node.is_open and not (node.dead or node.closing or node.paused):
            node.do(self.rerun_on(node, self.rng.choice(over)))

    async def rerun_on(self, node: SimNode, shadow: Shadow) -> None:
        step, done = self.first_again(shadow)
        try:
            order = RerunRun(run_id=RunId(shadow.run_id), again=Again(() if step is None else (step,)))
            resident = (await node.engine.starts.rerun(order)).resident
            assert resident is not None
        except Unavailable:
            return
        except InvalidInputs as error:
            said = error
            self.guarded(lambda: hold(not done, "what is complete can be begun after", step, repr(said)))
            return
        self.guarded(lambda: hold(done, "only what is complete can be begun after", step, shadow.run_id))
        if isinstance(shadow, GraphShadow) and step is not None:
            new = self.shadows[resident.run.no]
            assert isinstance(new, GraphShadow)
            was, is_now = shadow.before[step], new.given
            self.guarded(lambda: hold(was == is_now, "a rerun has the variables as they were", was, is_now))
        self.has_started(node, resident)

    def first_again(self, shadow: Shadow) -> tuple[str | None, bool]:
        """A step to begin a rerun with, and whether the run came that far."""
        if isinstance(shadow, GraphShadow):
            step = self.rng.choice((None, *shadow.load.data["nodes"], *(one for one in shadow.before if one)))
            return step, step is None or step in shadow.before
        names = [step["id"] for step in shadow.load.data["steps"]]
        step = self.rng.choice((None, *names))
        return step, step is None or all(name in shadow.finished for name in names[: names.index(step)])

    async def wait_on(self, node: SimNode, no: int) -> None:
        try:
            resident = await node.engine.waiters.ended(RunNo(no))
        except (HoldfastError, asyncio.CancelledError):
            return
        shadow = self.shadows[no]
        self.guarded(
            lambda: hold(
                shadow.over and resident.run.status == shadow.status, "an end that is told is durable", no
            )
        )
        self.counts["end told"] += 1

    async def cancel(self, node: SimNode, run_id: str) -> None:
        shadow = self.shadows[self.started[run_id]]
        try:
            await node.engine.runs.cancel(RunId(run_id))
        except RunIsOver:
            self.guarded(lambda: hold(shadow.over, "a run is said to be over when that is durable", run_id))
        except Unavailable:
            self.counts["cancel refused"] += 1
        except HoldfastError as error:
            said = error
            self.guarded(lambda: hold(False, "a cancel is taken or refused in order", repr(said)))
        else:
            self.counts["cancel acknowledged"] += 1
            self.cancelled.add(run_id)
            asked = shadow.over or shadow.ending == "cancelled"
            self.guarded(lambda: hold(asked, "an acknowledged cancel is durable", run_id))

    async def look(self, node: SimNode, run_id: str) -> None:
        try:
            await node.engine.runs.find(RunId(run_id))
        except Unavailable:
            return
        except (NotFound, HoldfastError) as error:
            said = error
            self.guarded(lambda: hold(False, "what was acknowledged is there", run_id, repr(said)))

    # ------------------------------------------------------------------------------------------------- the journal

    def committed(self, node: SimNode, batch: Batch) -> None:
        """The store has taken a batch: hold every row against the shadow of its run."""
        hold(node is self.opened, "a stale node appends nothing", node.name, len(batch.rows))
        for new in batch.new_runs.values():
            self.shadows[new.no] = shadow_of(self.loads[new.version], new.id, new.no)
            self.rows[new.no], self.blobs[new.no] = [], {}
        for of, sha256, text in batch.blobs:
            self.blobs[of][sha256] = text
        for no, seq, epoch, at, kind, body in batch.rows:
            shadow = self.shadows[no]
            self.say(f"{node.name} run {no} row {seq}/{epoch} {_TOKEN.sub('token', body)[:300]}")
            event, decisions = decode_row(body)
            if isinstance(event, Adopted):
                self.pull.adopts(shadow, no, event, self.held | node.found)
            shadow.row(seq, epoch, at, body, self.blobs[no])
            self.pull.row(shadow, event)
            self.law.row(shadow)
            self.check_lateness(shadow)
            self.writers[no] = node
            self.rows[no].append((seq, epoch, at, kind, body))
            for decision in decisions:
                if isinstance(decision, StartAttempt):
                    self.starts.add((shadow.run_id, decision.path, decision.attempt))
        self.compare_live(node, batch)
        if self.woven:
            self.check_keys(node, batch)

    def check_keys(self, node: SimNode, batch: Batch) -> None:
        """The store gave what is promised, and what it wrote down is true of the runs."""
        told: list[Any] = []
        for (_, scope, key, no, path, at), end in batch.keys:
            name, who = (scope, key), (int(no), path)
            if end is None:
                told.append(self.book.ask(name, who, at))
            else:
                told += self.book.let_go(name, who, end.output, end.expires_at)
        said = [((int(no), path), verdict, output) for no, path, verdict, output in batch.verdicts]
        hold(said == told, "a key is given to who asked first, and answered for all", said, told)
        check_tables(node.store._write, self.shadows)

    def check_lateness(self, shadow: Shadow) -> None:
        late, shadow.late_ms = shadow.late_ms, 0
        jumped = (self.loop.time() - self.jumped_at) * 1000 <= LATE_MS_MAX
        if self.is_calm and not jumped:
            hold(late <= LATE_MS_MAX, "a due timer fires within a second", late, shadow.event)

    def compare_live(self, node: SimNode, batch: Batch) -> None:
        for no in {row[0] for row in batch.rows}:
            resident, shadow = node.engine.door.residents.get(RunNo(no)), self.shadows[no]
            if (
                resident is not None
                and resident.run.seq == shadow.run.seq
                and resident.run.epoch == shadow.run.epoch
            ):
                check_same(resident.run, shadow.run, "replay of the rows equals the live state")

    # --------------------------------------------------------------------------------------------------- the tools

    def make_tool(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def tool(context: Context, **args: Any) -> Any:
            return await self.perform(context, args)

        async def quick(context: Context, **args: Any) -> Any:
            self.effect(context, args)
            return self.result(context)

        return quick if name == "t1" else tool

    async def perform(self, context: Context, args: dict[str, Any]) -> Any:
        self.effect(context, args)
        rng = self.rng
        node = NODE.get()
        info = self.shadow_of(context.run_id).step(context.path)
        if info.id == self.poison and node is self.newest():
            self.later(rng.choice((0.0, 0.1)), lambda: self.poisoned(node))
        limit = info.timeout_ms
        seconds = rng.choice((0.0, 0.001, 0.05, 0.7, 4.0, 30.0))
        stubborn = rng.choice((0.0, 0.0, 0.0, 1.0, 15.0))
        try:
            await asyncio.sleep(10_000.0 if limit is not None and rng.random() < 0.3 else seconds)
        except asyncio.CancelledError:
            if not stubborn:
                raise
            self.counts["cancellation swallowed"] += 1
            await asyncio.sleep(stubborn)
        return self.result(context)

    def poisoned(self, node: Any) -> None:
        if node is self.newest() and not node.dead:
            self.counts["crash by a step"] += 1
            self.crash(node)

    def result(self, context: Context) -> Any:
        rng = self.rng
        path, number = context.path, context.attempt
        no: int = self.shadow_of(context.run_id).run.no
        if rng.random() < 0.25:
            kind = rng.choice(KINDS_OF_ERROR)
            self.answers.append((no, StepFailed(path, number, Error(kind, "late", path, number))))
            raise ToolError("by chance", kind=kind)
        value = {
            "v": f"{path}@{number}",
            "xs": [rng.randrange(50) for _ in range(rng.randrange(4))],
            "flag": rng.random() < 0.5,
            "pad": "x" * rng.choice((0, 0, 0, 0, 1500, 40_000 if rng.random() < 0.1 else 0)),
        }
        if self.is_graph:
            value = result_of(rng, path, number)
        self.answers.append((no, StepSucceeded(path, number, msgspec.Raw(encode(value)))))
        return value

    def shadow_of(self, run_id: str) -> Shadow:
        return next(shadow for shadow in self.shadows.values() if shadow.run_id == run_id)

    def effect(self, context: Context, args: dict[str, Any]) -> None:
        self.guarded(lambda: self.check_effect(context, args))

    def check_effect(self, context: Context, args: dict[str, Any]) -> None:
        node = NODE.get()
        run_id, path, number = context.run_id, context.path, context.attempt
        mark = (run_id, path, number)
        self.say(f"{getattr(node, 'name', '?')} begins {path} attempt {number} of {run_id}")
        hold(mark in self.starts, "an attempt begins only after its start is durable", mark)
        self.effects[mark] += 1
        hold(self.effects[mark] == 1, "an attempt begins once", mark)
        key = hashlib.sha256(f"default/{run_id}/{path}".encode()).hexdigest()
        hold(context.idempotency_key == key, "the key is that of the step instance", mark)
        hold(self.keys.setdefault(key, (run_id, path)) == (run_id, path), "two instances have two keys", mark)
        if node is not self.opened:
            self.counts["late start of a stale node"] += 1
            return
        may_begin = run_id not in self.cancelled or self.shadow_of(run_id).follows_an_end(path)
        hold(may_begin, "after a cancel is acknowledged no attempt begins", mark)
        self.check_wanted(run_id, path, number, args)

    def check_wanted(self, run_id: str, path: str, number: int, args: dict[str, Any]) -> None:
        """The run waits for this attempt, and handler it what it should."""
        shadow = self.shadow_of(run_id)
        phase = shadow.phase_of(path, number)
        hold(phase == "open", "an attempt begins only while the run waits for it", run_id, path, phase)
        if isinstance(shadow, GraphShadow):
            args = shadow.unspread(path, args)
        shadow.check_args(path, args)

    # ---------------------------------------------------------------------------------------------------- the end

    def finish(self) -> None:
        node = self.newest()
        hold(not node.engine.door.quarantined, "no run is set aside", node.engine.door.quarantined)
        for task in self.loop.tasks:
            if task.done() and not task.cancelled() and self.is_failure(task.exception()):
                raise Violation(f"no task of the engine fails: {task.exception()!r}") from task.exception()
        for run_id, no in self.started.items():
            hold(self.shadows[no].run_id == run_id, "what was acknowledged is there", run_id)
        for run_id in self.cancelled:
            shadow = self.shadow_of(run_id)
            hold(shadow.ends_as_asked, "an acknowledged cancel ends a run cancelled", run_id, shadow.status)
        for no, shadow in self.shadows.items():
            self.check_stored(node.store, RunNo(no), shadow)
            self.counts.update(shadow.counts)
        self.counts["rows"] += sum(map(len, self.rows.values()))
        for name in node.store.checks():
            found = at_once(node.store.check(name))
            hold(not found, "nothing is found that must not be", name, found)
        left = [*self.book.holders, *(one for line in self.book.lines.values() for one in line)]
        hold(not left, "no key is held and nobody waits when all runs are over", left)

    def is_failure(self, error: BaseException | None) -> bool:
        """Whether a task that ended so is a mistake."""
        return error is not None

    def check_stored(self, store: SqliteStore, no: RunNo, shadow: Shadow) -> None:
        rows = at_once(store.journal(no, 0, -1))
        hold(rows == self.rows[no], "the journal holds each row once", no)
        stored = at_once(store.load(no))
        assert stored is not None
        hold(
            stored.row.status == shadow.status, "the run row's status is that of the fold", stored.row.status
        )
        hold(stored.row.owner is None, "nobody owns a run that is over", no)
        run = at_once(load_run(store, stored))
        check_same(run, shadow.run, "a snapshot and the rows after it equal the fold of all rows")
        self.counts["snapshot loaded"] += bool(stored.parts)
        if shadow.status == "completed":
            shadow.check_output(at_once(output_of(store, shadow.load.plan, run)))


_TOKEN: Final = re.compile(r"\b[0-9a-f]{32}\b")  # of a worker: like no other, in every process
_FLAGS: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


@cache
def new_file() -> apsw.Connection:
    """A database with nothing in it but its tables: to make these anew for each seed would take longer than the seed."""
    store = SqliteStore("file:/new?vfs=memdb", threads=False)
    store._write = store._connect()
    store._migrate()
    return store._write


def simulate(seed: int, *, trace: bool = False, kind: str = "plain") -> World:
    """One seed, to its end. The world that comes back has its counters and its trace."""
    world = World(seed, trace=trace, kind=kind)
    return to_its_end(world, seed, small_limits(world.rng))


def to_its_end(world: AnyWorld, seed: int, small: AbstractContextManager[Any]) -> AnyWorld:
    was, log.disabled = log.disabled, True
    try:
        with small as limits:
            world.say(f"seed {seed}, faults {sorted(world.faults)}, limits {limits}")
            world.run()
    except Exception as error:
        error.add_note(f"world seed {seed}")
        error.__dict__["world"] = world
        raise
    finally:
        log.disabled = was
    return world
