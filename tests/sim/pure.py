"""L0: decide and fold alone, under a seeded discrete-event driver. No asyncio, no store but a list of rows.

    Disk    what is durable: rows, snapshot parts, blobs, who owns the run, who has the lane, who has which key
    Node    one engine process: its run in memory, rows on their way to disk, attempts at work, its own wall clock
    World   time, chance and faults

The driver models the protocol as it is promised (commit, then act; adopt by a row; fence by (run, seq); failed commits
drop state and keep stimuli). So what breaks here is the engine's core, not the driver's idea of a runtime.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from holdfast.engine.codec import encode_parts, encode_row
from holdfast.engine.decide import decide
from holdfast.engine.decisions import Continue, Decision, FinishRun, StartAttempt, StopAttempt
from holdfast.engine.effects import Effect, KeyWork
from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    AttemptTimedOut,
    CancelRequested,
    Continued,
    Event,
    KeyAnswered,
    KeyGranted,
    KeyHeld,
    RunStarted,
    StepFailed,
    StepSucceeded,
    SuspectsTurn,
    TimerFired,
)
from holdfast.engine.fold import fold
from holdfast.engine.state import Run, sizes_of, timer_of
from holdfast.engine.step import NO_EFFECTS
from holdfast.engine.step import step as take_step
from holdfast.runtime.load import load_run
from holdfast.store.records import ReadRow, RunRow, Stored
from holdfast.values import DEFAULT_TENANT, Error, Millis, RunId, RunNo, encode
from holdfast.views.outputs import output_of
from tests.sim.checkers import Violation, check_same, hold
from tests.sim.graph_checkers import shadow_of
from tests.sim.graphs import graph_load, result_of
from tests.sim.keys import Answer, KeyBook, KeyLaw, Name, Told
from tests.sim.knobs import small_limits
from tests.sim.recover import recover_load
from tests.sim.workloads import KINDS_OF_ERROR, Workload, workload

EPOCH_MS: Final = 1_700_000_000_000
STEPS_MAX: Final = 6_000  # turns of one seed; more is a livelock
FAULTS: Final = (
    "crash", "pause", "failing commits", "slow commits", "clock jump", "duplicates", "cancel", "close", "gap",
    "poison",
    "visitor",
)  # fmt: skip
RESTART_MS: Final = (1, 50, 2_000, 30_000)
SEEDS_PER_WORKLOAD: Final = 4

LOADS: Final[dict[str, Callable[[int], Workload]]] = {
    "plain": workload,
    "woven": partial(workload, woven=True),
    "graph": graph_load,
    "recover": recover_load,
}

Result = TypeVar("Result")


@dataclass(slots=True)
class Entry:
    seq: int
    epoch: int
    at: int
    event: Event
    decisions: list[Decision]
    body: str
    blobs: list[tuple[str, bytes]]
    lane: str | None
    parts: list[tuple[int, bytes]]
    asked: bool  # somebody waits for the answer
    keys: list[KeyWork]


@dataclass(slots=True)
class Attempt:
    path: str
    number: int
    stopped: bool = False
    answered: bool = False
    heeds: bool = True


@dataclass
class Disk:
    rows: list[ReadRow] = field(default_factory=list)
    parts: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    owner: Node | None = None
    epoch: int = 0
    lane: str = ""
    keys: KeyBook = field(default_factory=KeyBook)

    async def journal(self, no: RunNo, after: int, limit: int) -> list[ReadRow]:
        return self.rows[after : after + limit]

    async def blob(self, no: RunNo, sha256: str) -> bytes:
        return self.blobs[sha256]


class World:
    def __init__(self, seed: int, *, trace: bool = False, kind: str = "plain") -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.aside = random.Random(seed)  # for what is looked at and changes nothing
        self.load: Workload = LOADS[kind](seed // SEEDS_PER_WORKLOAD)
        self.faults = {fault for fault in FAULTS if self.rng.random() < 0.55}
        self.rate = self.rng.choice((0.02, 0.05, 0.15))
        self.faults_until = self.rng.choice((200, 3_000, 20_000, 90_000))
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self.now, self.turn = 0, 0
        self.queue: list[tuple[int, float, int, Callable[[], None]]] = []
        self.disk = Disk()
        self.shadow = shadow_of(self.load, f"run-{seed}")
        self.nodes: list[Node] = []
        self.effects: Counter[tuple[str, int]] = Counter()
        self.acknowledged: list[tuple[str, int]] = []
        # A step that takes its process down whenever it runs, as long as there is one to take down.
        calls = sorted(name for name, info in self.load.steps.items() if info.kind == "tool")
        self.poison = (
            self.rng.choice(calls) if "poison" in self.faults and calls and self.rng.random() < 0.5 else ""
        )
        self.late: list[Event] = []  # answers of attempts that went down with their node
        self.law = KeyLaw()
        self.rivals = 0

    # ---------------------------------------------------------------------------------------------- the clock

    def after(self, delay: int, act: Callable[[], None]) -> None:
        self.turn += 1
        heapq.heappush(self.queue, (self.now + delay, self.rng.random(), self.turn, act))

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:>8} {text}")

    def faulty(self, fault: str, rate: float | None = None) -> bool:
        """Does this fault happen now? Never once faults have stopped."""
        if fault not in self.faults or self.now > self.faults_until:
            return False
        return self.rng.random() < (self.rate if rate is None else rate)

    def run(self) -> None:
        node = Node(self)
        self.disk.owner = node
        node.begin()
        if "cancel" in self.faults and self.rng.random() < 0.5:
            self.after(self.rng.choice((0, 10, 400, 5_000)), self.cancel)
        for name in sorted(
            {("", info.key) for info in self.load.steps.values() if info.key and info.is_global}
        ):
            if self.rng.random() < 0.9:
                self.after(self.rng.choice((0, 0, 20, 1_500)), partial(self.rival, self.text_of(name)))
        turns = 0
        while self.queue and not (self.shadow.over and self.quiet()):
            self.now, _, _, act = heapq.heappop(self.queue)
            turns += 1
            hold(turns < STEPS_MAX, "a run comes to its end", self.shadow.status)
            act()
            self.mischief()
        self.finish()

    def quiet(self) -> bool:
        owner = self.disk.owner
        return owner is None or not owner.entries and not owner.in_flight

    # ------------------------------------------------------------------------------------------------- faults

    def mischief(self) -> None:
        owner = self.disk.owner
        if owner is None or owner.dead or self.shadow.over or self.now > self.faults_until:
            return
        if self.faulty("crash"):
            during = "crash during commit" if owner.in_flight else "crash"
            self.counts["crash while a commit is acknowledged" if owner.committed_unseen else during] += 1
            self.crash(owner)
        elif self.faulty("pause", self.rate / 2):
            self.counts["pause with takeover"] += 1
            owner.paused = True
            self.after(self.rng.choice(RESTART_MS), lambda: self.take_over(owner))
            self.after(self.rng.choice((100, 40_000)), owner.resume)
        elif self.faulty("clock jump"):
            self.counts["clock jump"] += 1
            owner.skew += self.rng.choice((-3_600_000, -5_000, -50, 50, 2_000, 30_000, 3_600_000))
            owner.arm()
        elif self.faulty("close", self.rate / 2) and not owner.paused:
            owner.close()
        elif self.faulty("duplicates") and self.late:
            self.counts["late answer of a dead node"] += 1
            owner.deliver(self.rng.choice(self.late))

    def crash(self, node: Node) -> None:
        self.say(f"{node.name} dies")
        node.dead = True
        for attempt in node.attempts:
            if not attempt.answered:
                self.late.append(node.outcome(attempt))
        self.after(self.rng.choice(RESTART_MS), lambda: self.take_over(node))

    def take_over(self, former: Node) -> None:
        """Another node takes the run, if nobody else has meanwhile. The former one may be alive and not know."""
        if self.disk.owner is not former or self.shadow.over:
            return
        if not former.dead:
            self.counts["takeover from a live node"] += 1
        node = Node(self)
        self.disk.owner = node
        if self.disk.rows and self.faulty("visitor", 0.2):
            node.visit()
        else:
            node.adopt()

    # ------------------------------------------------------------------------------------------ others with the same keys

    def text_of(self, name: Name) -> Name:
        item = self.load.inputs["xs"][0] if self.load.inputs["xs"] else 0
        text = name[1].replace("{{inputs.n}}", str(self.load.inputs["n"])).replace("{{item}}", str(item))
        return name[0], text

    def rival(self, name: Name) -> None:
        """A step of another run, which comes to its end, asks for a key."""
        self.rivals += 1
        who = (0, f"rival{self.rivals}")
        self.say(f"{who[1]} asks for {name}")
        self.tell([self.disk.keys.ask(name, who, EPOCH_MS + self.now)], name)

    def rival_ends(self, name: Name, path: str) -> None:
        output = b'{"v":"a rival\'s"}' if self.rng.random() < 0.5 else None
        expires_at = EPOCH_MS + self.now + 3_000 if self.rng.random() < 0.5 else None
        self.say(f"{path} lets {name} go, leaving {output!r}")
        if output is not None:
            self.law.answers[name] = self.law.former[name] = Answer(output, expires_at)
        del self.law.holders[name]
        self.counts["a rival lets a key go"] += 1
        self.tell(self.disk.keys.let_go(name, (0, path), output, expires_at), name)
        if self.rng.random() < 0.5 and self.now < self.faults_until:
            self.after(self.rng.choice((0, 0, 400, 5_000)), lambda: self.rival(name))

    def tell(self, told: list[Told], name: Name) -> None:
        """Tell rivals what became of a key, and the run if somebody has it: else whoever takes it up asks again."""
        for (no, path), verdict, output in told:
            if no == 0 and verdict == "granted":
                hold(self.law.holders.setdefault(name, (0, path)) == (0, path), "one holder at a time", name)
                self.law.answers.pop(name, None)
                self.after(
                    self.rng.choice((0, 50, 600, 2_000, 4_000, 30_000)), partial(self.rival_ends, name, path)
                )
            elif no and (owner := self.disk.owner) is not None:
                owner.soon(0, partial(owner.told, path, verdict, output))

    def cancel(self) -> None:
        owner = self.disk.owner
        if owner is not None and not owner.dead and not owner.paused and owner.state is not None:
            owner.apply(CancelRequested("by the simulation"), asked=True)
        if self.rng.random() < 0.3:
            self.after(self.rng.choice((5, 3_000)), self.cancel)

    # ------------------------------------------------------------------------------------------------- the end

    def finish(self) -> None:
        shadow = self.shadow
        hold(
            shadow.over,
            "once faults stop every run becomes terminal",
            shadow.status,
            sorted(shadow.run.steps),
        )
        self.check_reload()
        for what, seq in self.acknowledged:
            hold(seq <= len(self.disk.rows), "what was acknowledged is there", what, seq)
        if shadow.status == "completed":
            self.check_output()
        mine = [name for name, (no, _) in self.disk.keys.holders.items() if no]
        waiting = [one for line in self.disk.keys.lines.values() for one in line if one[0]]
        hold(not mine and not waiting, "a run that is over holds no key and waits for none", mine, waiting)
        self.counts.update(shadow.counts)
        self.counts["rows"] += len(self.disk.rows)

    def stored(self, upto: int | None = None, *, snapshots: bool = True) -> Stored:
        row = RunRow(
            RunNo(1), DEFAULT_TENANT, RunId(self.shadow.run_id), self.load.plan.version, "running", 0, None, None,
            None, None, None, Millis(0), None,
        )  # fmt: skip
        parts = [(part, body) for part, (_, body) in sorted(self.disk.parts.items())] if snapshots else []
        seq = self.disk.parts[0][0] if parts else 0
        return Stored(row, parts, seq, self.disk.rows[seq:upto])

    def load_state(self, **how: Any) -> Run:
        """What the product makes of the stored rows."""
        return at_once(load_run(self.disk, self.stored(**how)))  # type: ignore[arg-type]  # it asks for blobs alone

    def check_reload(self) -> None:
        check_same(
            self.load_state(snapshots=False), self.shadow.run, "replay of the rows equals the live state"
        )
        if self.disk.parts:
            check_same(self.load_state(), self.shadow.run, "a snapshot equals the fold of the rows before it")
            self.counts["snapshot loaded"] += 1
        if "gap" in self.faults and len(self.disk.rows) > 2:
            self.check_gap()

    def check_gap(self) -> None:
        """A journal that lacks a row is refused, not folded into something else."""
        stored = self.stored(snapshots=False)
        without = self.rng.randrange(len(stored.rows) - 1)
        stored.rows = [row for index, row in enumerate(stored.rows) if index != without]
        self.counts["gap"] += 1
        try:
            at_once(load_run(self.disk, stored))  # type: ignore[arg-type]
        except AssertionError:
            return
        except Exception as error:  # noqa: BLE001  # any other way to break is the wrong one
            raise Violation(f"a journal with a gap is refused as such, not by {error!r}") from None
        raise Violation("a journal with a gap is refused")

    def check_output(self) -> None:
        run = self.load_state()
        self.shadow.check_output(at_once(output_of(self.disk, self.load.plan, run)))  # type: ignore[arg-type]


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never waits, except to let others have their turn."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        result: Result = done.value
        return result
    raise AssertionError("a coroutine of the list-of-rows store waits for something")


class Node:
    """One engine process, as the protocol says that it behaves."""

    def __init__(self, world: World) -> None:
        self.world, self.rng, self.disk = world, world.rng, world.disk
        self.name = f"node{len(world.nodes)}"
        world.nodes.append(self)
        self.skew = self.rng.choice((0, 0, 0, -400, 400)) if "clock jump" in world.faults else 0
        self.state: Run | None = None
        self.entries: list[Entry] = []
        self.attempts: list[Attempt] = []
        self.again: list[Event] = []
        self.held: list[Callable[[], None]] = []
        self.suspects: list[str] = []
        self.alone = ""
        self.lane: str | None = None
        self.in_flight = self.stalled = self.dead = self.paused = self.over = self.closing = False
        self.committed_unseen = self.visiting = False

    def wall(self) -> int:
        return EPOCH_MS + self.world.now + self.skew

    def soon(self, delay: int, act: Callable[[], None]) -> None:
        """Do something later on this node: not if it is dead by then, and not before a pause is over."""

        def turn() -> None:
            if self.dead or self.over:
                return
            if self.paused:
                self.held.append(turn)
            else:
                act()

        self.world.after(delay, turn)

    def resume(self) -> None:
        self.paused = False
        held, self.held = self.held, []
        for turn in held:
            turn()

    # ------------------------------------------------------------------------------------------------ the door

    def begin(self) -> None:
        run = self.state = Run(RunNo(1), RunId(self.world.shadow.run_id), self.world.load.plan.version)
        run.epoch = self.disk.epoch
        drive = self.rng.random() < 0.95
        self.apply(RunStarted(msgspec.Raw(encode(self.world.load.inputs)), drive), asked=True)
        if not drive:
            run.epoch = self.disk.epoch = self.disk.epoch + 1
            self.apply(Adopted([], "", True))

    def adopt(self, *, drive: bool = True) -> None:
        self.disk.epoch += 1
        lane, self.disk.lane = self.disk.lane, ""
        if not self.disk.rows:
            self.world.counts["start was never durable"] += 1
            return self.begin()
        run = self.reload()
        run.epoch = self.disk.epoch
        lost = [path for path, _ in run.open_attempts()]
        self.world.say(f"{self.name} adopts, lost {lost}")
        self.apply(Adopted(lost, lane if lane in lost else "", drive, restarted=True))

    def visit(self) -> None:
        """Take the run to say something to it, and leave it to whoever comes next: nothing starts here."""
        self.world.counts["visit"] += 1
        self.visiting = True
        self.adopt(drive=False)
        if self.rng.random() < 0.3:
            self.apply(CancelRequested("by a visitor"), asked=True)
        self.close()

    def wake(self) -> None:
        """Take up a run that its owner released: a row of its own only if something is to be done now."""
        self.disk.epoch += 1
        run = self.reload()
        run.epoch = self.disk.epoch
        if run.active or run.todo or run.status == "pending" or run.waits_for_key():
            self.apply(Adopted([path for path, _ in run.open_attempts()]))
        else:
            self.arm()

    def reload(self) -> Run:
        run = self.state = self.world.load_state()
        check_same(run, self.world.shadow.run, "what is loaded is what was committed")
        return run

    def deliver(self, event: Event) -> None:
        if self.stalled or self.state is None:
            self.again.append(event)
        else:
            self.apply(event)

    def apply(self, event: Event, *, asked: bool = False) -> None:
        run = self.state
        if run is None or run.over or self.dead or self.over:
            return
        if self.stalled:
            return None if asked or isinstance(event, SuspectsTurn) else self.again.append(event)
        at = Millis(max(self.wall(), run.at))
        decisions = decide(self.world.load.plan, run, event, at)
        stepped = self.stepped(run, event, at)
        effects = fold(run, event, decisions, at, run.epoch)
        if stepped is not None:
            self.world.counts["the short way"] += stepped[1] is NO_EFFECTS
            hold(stepped[0] == decisions, "a step decides the same by either way", stepped[0], decisions)
            hold([*stepped[1]] == effects, "a step has the same effects by either way", stepped[1], effects)
            check_same(stepped[2], run, "a step comes to the same by either way")
        body, blobs = encode_row(event, decisions)
        parts = encode_parts(run) if self.rng.random() < 0.08 else []
        lane, self.lane = self.lane, None
        keys = [effect for effect in effects if isinstance(effect, KeyWork)]
        self.world.say(
            f"{self.name} {run.seq}/{run.epoch} {_brief(event)} -> {', '.join(map(_brief, decisions))}"
        )
        self.entries.append(
            Entry(run.seq, run.epoch, at, event, decisions, body, blobs, lane, parts, asked, keys)
        )
        self.soon(0, self.flush)

    def stepped(
        self, run: Run, event: Event, at: Millis
    ) -> tuple[list[Decision], Sequence[Effect], Run] | None:
        """What `step` makes of an event that may take the short way, on a copy."""
        if not isinstance(event, StepSucceeded | TimerFired) or self.world.aside.random() < 0.6:
            return None
        copy = msgspec.json.decode(msgspec.json.encode(run), type=Run)
        sizes_of(copy).update(sizes_of(run))
        return *take_step(self.world.load.plan, copy, event, at, run.epoch), copy

    # ------------------------------------------------------------------------------------------------- commits

    def flush(self) -> None:
        if self.in_flight or self.stalled or not self.entries:
            return
        batch, self.entries = self.entries, []
        self.in_flight = True
        slow = self.world.faulty("slow commits", 0.3)
        self.world.counts["slow commit"] += slow
        delay = self.rng.choice((300, 2_000)) if slow else self.rng.choice((0, 0, 1, 3))
        fails = self.world.faulty("failing commits")
        # The store works on while the process is paused, but a batch of a dead one never reaches it.
        self.world.after(delay, lambda: None if self.dead else self.commit(batch, fails=fails))

    def commit(self, batch: list[Entry], *, fails: bool) -> None:
        disk = self.disk
        if fails:
            self.world.counts["commit failed"] += 1
            return self.soon(0, lambda: self.stall(batch))
        first = batch[0].seq
        hold(first <= len(disk.rows) + 1, "a batch continues the journal", first, len(disk.rows))
        if first <= len(disk.rows):
            self.world.counts["fenced"] += 1
            return self.soon(0, self.fenced)
        if disk.owner is not self:
            self.world.counts["former owner appended before the adoption"] += 1
        told: list[Told] = []
        for entry in batch:
            self.append(entry)
            told += self.settle(entry)
        self.committed_unseen = True
        self.soon(self.rng.choice((0, 0, 5)), lambda: self.done(batch, told))

    def settle(self, entry: Entry) -> list[Told]:
        """What the commit does with the keys of a row. Rivals are told at once, the run's own steps by its node."""
        mine: list[Told] = []
        for work in entry.keys:
            name = ("" if work.key.is_global else self.world.shadow.run_id, work.key.text)
            if work.asks:
                told = [self.disk.keys.ask(name, (1, work.path), entry.at)]
            else:
                ttl = self.world.shadow.step(work.path).key_ttl_ms
                output = None if work.output is None else bytes(work.output)
                expires_at = entry.at + ttl if ttl is not None else None
                told = self.disk.keys.let_go(name, (1, work.path), output, expires_at)
            self.world.tell([one for one in told if one[0][0] == 0], name)
            mine += [one for one in told if one[0][0] == 1]
        return mine

    def told(self, path: str, verdict: str, output: bytes | None) -> None:
        run = self.state
        if run is None or self.stalled:
            return  # whoever takes the run up asks again
        if verdict == "granted":
            self.apply(KeyGranted(path))
        elif verdict == "held":
            self.apply(KeyHeld(path))
        else:
            self.apply(KeyAnswered(path, msgspec.Raw(output or b"null")))
        if self.rng.random() < 0.1 and verdict == "granted":
            self.apply(KeyGranted(path))  # asked for twice, and granted twice

    def append(self, entry: Entry) -> None:
        disk, shadow = self.disk, self.world.shadow
        for sha256, text in entry.blobs:
            disk.blobs[sha256] = text
        disk.rows.append((entry.seq, entry.epoch, entry.at, "", entry.body))
        shadow.row(entry.seq, entry.epoch, entry.at, entry.body, disk.blobs)
        self.world.law.row(shadow)
        for part, body in entry.parts:
            disk.parts[part] = (entry.seq, body)
        if entry.parts:
            self.world.counts["snapshot"] += 1
            check_same(
                self.world.load_state(), shadow.run, "a snapshot equals the fold of the rows before it"
            )
        if entry.lane is not None:
            disk.lane = entry.lane

    def done(self, batch: list[Entry], told: list[Told]) -> None:
        self.in_flight = self.committed_unseen = False
        for entry in batch:
            if entry.asked:
                self.world.acknowledged.append((_brief(entry.event), entry.seq))
            for decision in entry.decisions:
                self.carry_out(decision)
        for (_, path), verdict, output in told:
            self.told(path, verdict, output)
        self.live_is_replayed()
        self.arm()
        self.flush()

    def live_is_replayed(self) -> None:
        run = self.state
        if run is not None and run.seq == len(self.disk.rows) and self.disk.owner is self:
            check_same(run, self.world.shadow.run, "replay of the rows equals the live state")

    def fenced(self) -> None:
        """Somebody else appended. Ours still: fold what came and try the next number. Another's: forget it."""
        self.in_flight = False
        self.entries.clear()
        self.state = None
        self.alone, self.suspects = "", []
        if self.disk.owner is self:
            self.world.counts["fenced while adopting"] += 1
            self.adopt()
        else:
            self.over = True

    def stall(self, batch: list[Entry]) -> None:
        """The commit failed: forget the state, keep the stimuli."""
        self.in_flight, self.stalled, self.state = False, True, None
        for entry in [*batch, *self.entries]:
            told = entry.asked or isinstance(entry.event, SuspectsTurn | Continued | TimerFired)
            if not told or isinstance(entry.event, RunStarted):
                self.again.append(entry.event)
        self.entries.clear()
        self.soon(self.rng.choice((100, 700, 6_000)), self.restore)

    def restore(self) -> None:
        self.stalled = False
        self.alone, self.suspects = "", []
        again, self.again = self.again, []
        if self.disk.owner is not self:
            self.over = True
        elif not self.disk.rows:
            self.begin()
        elif any(
            isinstance(event, Adopted | RunStarted) for event in again
        ):  # or a former owner's start has landed
            self.adopt()
            self.offer_again(again)
        else:
            run = self.reload()
            self.begin_what_was_passed_over(run)
            if run.todo:
                self.apply(Continued())
            self.offer_again(again)
            if self.state is not None and self.state.waits_for_key():
                run.epoch = self.disk.epoch = self.disk.epoch + 1
                self.apply(Adopted([]))
            self.arm()

    def offer_again(self, again: list[Event]) -> None:
        for event in again:
            if not isinstance(event, Adopted | RunStarted):
                self.apply(event)

    def begin_what_was_passed_over(self, run: Run) -> None:
        """A start that was durable was not begun because the run had moved on in memory; that was lost again."""
        for path, step in run.open_attempts():
            if self.world.effects[path, step.attempt] == 0:
                self.world.counts["start taken up after a failed commit"] += 1
                self.begin_attempt(path, step.attempt)
                if step.target is not None:
                    self.stop_attempt(path)

    # ------------------------------------------------------------------------------------------ carrying out

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, StartAttempt):
            self.begin_attempt(decision.path, decision.attempt)
        elif isinstance(decision, StopAttempt):
            self.stop_attempt(decision.path)
        elif isinstance(decision, Continue):
            self.apply(Continued())
        elif isinstance(decision, FinishRun):
            for attempt in self.attempts:
                attempt.stopped = True

    def begin_attempt(self, path: str, number: int) -> None:
        run = self.state
        step = None if run is None else run.steps.get(path)
        if step is None or step.attempt != number or step.state != "running":
            return
        if self.closing:
            return self.deliver(AttemptReleased(path, number, "stopping"))
        self.world.effects[path, number] += 1
        hold(self.world.effects[path, number] == 1, "an attempt begins once", path, number)
        attempt = Attempt(path, number, heeds=self.rng.random() < 0.8)
        self.attempts.append(attempt)
        takes = self.rng.choice((0, 1, 5, 80, 900, 6_000, 45_000))
        self.soon(takes, lambda: self.answer(attempt))
        info = self.world.shadow.step(path)
        if info.id == self.world.poison:
            self.soon(self.rng.choice((0, 0, 1, 60)), self.poisoned)
        limit = info.timeout_ms
        if limit is not None:
            self.soon(limit, lambda: self.time_out(attempt))

    def poisoned(self) -> None:
        if self.disk.owner is self and not self.world.shadow.over:
            self.world.counts["crash by a step"] += 1
            self.world.crash(self)

    def answer(self, attempt: Attempt) -> None:
        if attempt.answered or self.closing:
            return
        attempt.answered = True
        if self.alone == attempt.path:
            self.alone, self.lane = "", ""
            self.disk.lane = ""
            self.next_suspect()
        event = self.outcome(attempt)
        self.deliver(event)
        if self.world.faulty("duplicates", 0.2):
            self.world.counts["duplicated answer"] += 1
            self.soon(self.rng.choice((0, 30, 4_000)), lambda: self.deliver(event))

    def outcome(self, attempt: Attempt) -> Event:
        path, number, rng = attempt.path, attempt.number, self.rng
        if attempt.stopped and attempt.heeds:
            return StepFailed(path, number, Error("cancelled", "told to stop", path, number))
        if rng.random() < 0.3:
            return StepFailed(path, number, Error(rng.choice(KINDS_OF_ERROR), "by chance", path, number))
        if "nodes" in self.world.load.data:
            return StepSucceeded(path, number, msgspec.Raw(encode(result_of(rng, path, number))))
        value = {
            "v": f"{path}@{number}",
            "xs": [rng.randrange(50) for _ in range(rng.randrange(4))],
            "flag": rng.random() < 0.5,
            "pad": "x" * rng.choice((0, 0, 0, 500)),
        }
        return StepSucceeded(path, number, msgspec.Raw(encode(value)))

    def time_out(self, attempt: Attempt) -> None:
        if not attempt.answered and not attempt.stopped:
            self.world.counts["attempt timed out"] += 1
            self.deliver(AttemptTimedOut(attempt.path, attempt.number))

    def stop_attempt(self, path: str) -> None:
        for attempt in self.attempts:
            if attempt.path == path and not attempt.answered and not attempt.stopped:
                attempt.stopped = True
                if attempt.heeds:
                    self.soon(self.rng.choice((0, 2, 3_000)), lambda attempt=attempt: self.answer(attempt))  # type: ignore[misc]

    # -------------------------------------------------------------------------------------------------- timers

    def arm(self) -> None:
        run = self.state
        if run is None or run.over or self.dead or self.over or self.visiting:
            return
        wake_at = run.wake_at
        if wake_at is not None:
            self.soon(max(0, wake_at - self.wall()), self.fire)
        for path, step in run.steps.items():
            waits = step.reason == "suspect" and f"suspect {path}" not in run.timers
            if waits and path not in self.suspects and self.alone != path:
                self.suspects.append(path)
        self.next_suspect()

    def fire(self) -> None:
        run = self.state
        if run is None or self.stalled:
            return
        for key in [key for key, due in run.timers.items() if due <= self.wall()]:
            timer, path = timer_of(key)
            self.apply(TimerFired(path, timer))
            if self.world.faulty("duplicates", 0.05):
                self.world.counts["duplicated timer"] += 1
                self.apply(TimerFired(path, timer))

    def next_suspect(self) -> None:
        while (
            self.suspects
            and not self.alone
            and not self.closing
            and not self.stalled
            and self.state is not None
        ):
            path = self.suspects.pop(0)
            step = self.state.steps.get(path)
            if step is not None and step.state == "ready" and step.reason == "suspect":
                self.alone = self.lane = path
                self.apply(SuspectsTurn(path))
                self.soon(5_000, partial(self.has_lived, path))

    def has_lived(self, path: str) -> None:
        if self.alone == path:
            self.alone, self.lane = "", ""
            self.disk.lane = ""
            self.next_suspect()

    # ----------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Stop gracefully: give open attempts back, and let another node wake the run."""
        if self.stalled or self.state is None or self.closing:
            return
        self.world.counts["graceful close"] += 1
        self.closing = True
        for attempt in self.attempts:
            if not attempt.answered:
                attempt.answered = True
                if self.alone == attempt.path:
                    self.lane = ""
                self.deliver(AttemptReleased(attempt.path, attempt.number, "stopping"))
        self.soon(50, self.release)

    def release(self) -> None:
        if self.stalled or self.in_flight or self.entries:
            return self.soon(50, self.release)
        if self.disk.owner is not self or self.world.shadow.over:
            return
        self.dead = True
        self.disk.lane = ""
        open_now = self.world.shadow.run.open_attempts()
        hold(not open_now, "a graceful stop leaves no attempt open", open_now)
        node = Node(self.world)
        self.disk.owner = node
        self.world.after(self.rng.choice(RESTART_MS), node.wake)


def _brief(part: Any) -> str:
    fields = [getattr(part, name) for name in part.__struct_fields__]
    shown = [repr(bytes(one)[:60].decode()) if isinstance(one, msgspec.Raw) else str(one) for one in fields]
    return f"{type(part).__name__}({', '.join(shown)})"


def simulate(seed: int, *, trace: bool = False, kind: str = "plain") -> World:
    """One seed, to its end. The world that comes back has its counters and its trace."""
    world = World(seed, trace=trace, kind=kind)
    with small_limits(world.rng) as limits:
        world.say(
            f"seed {seed}, workload {world.load.number}, faults {sorted(world.faults)}, limits {limits}"
        )
        try:
            world.run()
        except Exception as error:
            error.add_note(f"pure seed {seed}")
            error.__dict__["world"] = world
            raise
    return world
