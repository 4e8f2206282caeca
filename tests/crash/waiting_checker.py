"""What servers left behind, against what those outside were told: rows by apsw, JSON by the standard library, and what
the doctor makes of the file beside it.

Of every run: it has ended as it must, its rows are 1..n, every attempt has a fate, and every loss a line in the log. Of
every answer that was acknowledged: it has counted, and once. Of whatever was done: it has an attempt of its own. Of every
end: it was told, signed, under one id.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.cli.file import reading
from holdfast.config import Settings
from holdfast.ops.doctor import Finding, examine
from tests.crash.checker import Row, check_log, journals, query_file
from tests.crash.outside import CallbackDelivery, Outside
from tests.crash.processes import Place
from tests.crash.waiting_flows import Kind, View, kind_of

TERMINAL = {"completed", "failed", "cancelled", "interrupted"}
ENDS = {"step_succeeded": "succeeded", "step_failed": "failed", "attempt_released": "released"}
LEFT = {"wait": "resolved_at IS NULL", "assignment": "1", "outbox": "outcome IS NOT 'delivered'"}

Attempt = tuple[str, int]  # path, number
Fates = dict[Attempt, str]


class Found(msgspec.Struct):
    """What the checker saw; `problems` are sentences, and a good end has none."""

    problems: list[str] = []
    statuses: dict[str, int] = {}
    answers: dict[str, int] = {}  # of the slow service, by what it was told
    outlived: int = 0  # waits that were open when their server died, and ended well
    lost: int = 0  # attempts that were at work then
    given_up: int = 0  # runs of a step that was alone at work when a server died, three times over
    deliveries: int = 0  # that arrived, each as often as it did


def check(place: Place, outside: Outside, views: list[View], killed_at: list[int]) -> Found:
    found = Found(list(outside.problems), Counter(view["status"] for view in views))
    found.problems += _wrong_in_file(place, views)
    found.problems += _wrong_under_keys(views)
    found.problems += [f"{one} was sent while it was being sent" for one in outside.crossed]
    found.answers = Counter(said.reason for said in outside.said)
    found.deliveries = len(outside.deliveries)
    log, by_run = place.log.read_text(), journals(place)
    effects = _effects(place) + outside.jobs
    for view in views:
        run = OneRun(view, by_run.get(view["run_id"], []), outside, found, killed_at)
        run.everything(effects, log)
    return found


def _effects(place: Place) -> Counter[tuple[str, str, int]]:
    lines = [line.split() for line in place.effects.read_text().splitlines()]
    return Counter((run, path, int(attempt)) for _, _, run, path, attempt, _ in lines)


async def _examined(place: Place) -> list[Finding]:
    async with reading(Settings(db=f"sqlite:///{place.db}")) as store:
        return await examine(store)


def _wrong_in_file(place: Place, views: list[View]) -> Iterator[str]:
    findings = asyncio.run(_examined(place))
    yield from (f"the doctor says: {problem}" for finding in findings for problem in finding.problems)
    stored = dict(query_file(place, "SELECT id, status FROM run"))
    if stored != {view["run_id"]: view["status"] for view in views}:
        yield f"{len(views)} runs were acknowledged, stored are {Counter(stored.values())}"
    for table, what in LEFT.items():
        if left := query_file(place, f"SELECT * FROM {table} WHERE {what}"):
            yield f"{len(left)} rows are left in {table}, such as {left[0]}"


def _wrong_under_keys(views: list[View]) -> Iterator[str]:
    """Runs with one idempotency key have one output."""
    outputs: dict[str, set[str]] = defaultdict(set)
    for view in views:
        if "key" in view["inputs"] and view["status"] == "completed":
            outputs[view["inputs"]["key"]].add(view["output"])
    for key, found in outputs.items():
        if len(found) > 1:
            yield f"runs under {key} gave {found}"


class OneRun:
    def __init__(
        self, view: View, rows: list[Row], outside: Outside, found: Found, killed_at: list[int]
    ) -> None:
        self._view, self._rows, self._outside, self._found = view, rows, outside, found
        self._killed_at, self._id, self._name = killed_at, view["run_id"], view["inputs"]["name"]
        self._kind: Kind = kind_of(int(self._name[1:]))

    def _say(self, problem: str) -> None:
        self._found.problems.append(f"{self._id} ({self._name}): {problem}")

    def everything(self, effects: Counter[tuple[str, str, int]], log: str) -> None:
        if [row.seq for row in self._rows] != list(range(1, len(self._rows) + 1)):
            self._say(f"its rows are not 1..n: {[row.seq for row in self._rows]}")
        fates = self._fates()
        check_log(self._id, fates, log, self._say)
        self._executions(fates, effects)
        self._answers()
        self._callback_deliveries()
        if self._view["status"] == "failed" and self._view["error"]["kind"] == "lost":
            self._found.given_up += 1
            return
        for problem in self._kind.wrong(self._view):
            self._say(problem)
        self._approvals()
        self._signals()

    # --------------------------------------------------------------------------------------------------- attempts

    def _fates(self) -> Fates:
        """What became of every attempt; what waits is not lost with its server."""
        fates: Fates = {}
        latest: dict[str, int] = {}
        paused_at: dict[Attempt, int] = {}
        for row in self._rows:
            kind, *rest = row.event
            if kind == "step_paused":
                paused_at[rest[0], rest[1]] = row.at
                self._meets(fates, (rest[0], rest[1]), "paused", {"open", "answered"})
            elif kind == "callback_received":
                self._found.outlived += self._was_killed(paused_at.get((rest[0], rest[1])), row.at)
                self._meets(fates, (rest[0], rest[1]), "answered", {"open", "paused"})
            elif kind in ENDS:
                self._meets(fates, (rest[0], rest[1]), ENDS[kind], {"open"})
            elif kind == "adopted":
                for path in rest[0] if rest else []:
                    self._found.lost += 1
                    self._meets(fates, (path, latest.get(path, 0)), "lost", {"open"})
            for order in row.decisions:
                if order[0] == "start":
                    if fates.get((order[1], order[2] - 1)) == "succeeded":
                        self._say(f"{order[1]} is done again after it succeeded")
                    fates[order[1], order[2]], latest[order[1]] = "open", order[2]
        return fates

    def _meets(self, fates: Fates, attempt: Attempt, fate: str, before: set[str]) -> None:
        if fates.get(attempt) not in before:
            self._say(f"{attempt} is {fate}, and was {fates.get(attempt)} before")
        fates[attempt] = fate

    def _was_killed(self, since: int | None, until: int) -> bool:
        return since is not None and any(since < killed < until for killed in self._killed_at)

    def _executions(self, fates: Fates, effects: Counter[tuple[str, str, int]]) -> None:
        """Whatever was done has its attempt, and was done once in it; and who fetched a job is waited for."""
        for (run, path, attempt), count in effects.items():
            if run == self._id and (count > 1 or (path, attempt) not in fates):
                self._say(f"attempt {attempt} of {path} was done {count} times")
        starts = Counter(path.rpartition(".")[2] for path, _ in fates)
        for (name, step), count in self._outside.executed.items():
            if name == self._name and count > starts[step]:
                self._say(f"{step} was done {count} times, and started {starts[step]} times")
        for run, path, attempt in self._outside.jobs:
            if run == self._id and fates.get((path, attempt)) == "lost":
                self._say(f"attempt {attempt} of {path} was lost, and whoever had fetched it was at it")

    # ----------------------------------------------------------------------------------------------------- answers

    def _answers(self) -> None:
        """Every callback that was acknowledged is the one that counted, or was told that another one was."""
        tasks = {row.event[3]: (row.event[1], row.event[2]) for row in self._of("step_paused")}
        counted: dict[Attempt, list[Any]] = defaultdict(list)
        for row in self._of("callback_received"):
            counted[row.event[1], row.event[2]].append(row.event[3:5])  # what it gave, or its error
        for attempt, values in counted.items():
            if len(values) > 1:
                self._say(f"{attempt} was answered {len(values)} times: {values}")
        for task, attempt in tasks.items():
            self._answers_of(task, counted[attempt])

    def _answers_of(self, task: str, counted: list[Any]) -> None:
        said = [one for one in self._outside.said if one.task == task]
        resumed = [one.value for one in said if one.reason == "resumed"]
        if len(resumed) > 1:
            self._say(f"{len(resumed)} answers of {task} were told that they count: {resumed}")
        elif resumed and not any(resumed[0] in str(value) for value in counted):
            self._say(f"{resumed[0]} was told that it counts, and {counted} did")
        is_kept = any(one.reason == "parked" for one in said)
        if is_kept and not counted and self._view["status"] != "cancelled":
            self._say(f"answers of {task} were kept, and none has counted")

    def _approvals(self) -> None:
        for path, need in self._kind.gates.items():
            by = [row.event[4] for row in self._of("approval_answered") if row.event[1] == path]
            told = self._outside.decided[self._id, path]
            if len(by) != need or len(set(by)) != need:
                self._say(f"{path} was answered by {by}, and {need} were needed")
            if unheard := [who for who, _ in told if who not in by]:
                self._say(f"{unheard} were told that they have answered {path}, and {by} did")
            if sum(decided for _, decided in told) > 1:
                self._say(f"{path} was decided more than once: {told}")

    def _signals(self) -> None:
        if (count := len(self._of("signal_received"))) != self._kind.signals:
            self._say(f"it got {count} signals, and {self._kind.signals} were sent")

    def _of(self, kind: str) -> list[Row]:
        return [row for row in self._rows if row.event[0] == kind]

    # ----------------------------------------------------------------------------------------------------- deliveries

    def _callback_deliveries(self) -> None:
        by_path: dict[str, list[CallbackDelivery]] = defaultdict(list)
        for delivery in self._outside.deliveries:
            if delivery.run_id == self._id:
                by_path[delivery.received.path].append(delivery)
        wanted = {"/start"} | ({"/workflow"} if "on_complete" in self._kind.spec("") else set())
        if by_path.keys() != wanted:
            self._say(f"its end was told at {sorted(by_path)}, and not at {sorted(wanted)}")
        for path, sent in by_path.items():
            if len({delivery.received.id for delivery in sent}) != 1:
                self._say(
                    f"its end was told at {path} under several ids: {[one.received.id for one in sent]}"
                )
            if not any(delivery.taken for delivery in sent) or not all(delivery.is_ours for delivery in sent):
                self._say(f"its end was not taken at {path}, or not signed")
            bodies = [delivery.received.body for delivery in sent]
            if any(body != {name: self._view.get(name) for name in body} for body in bodies):
                self._say(f"what was told at {path} is not what is shown")
            times = [int(delivery.received.headers["webhook-timestamp"]) for delivery in sent]
            if times != sorted(times):
                self._say(f"what was told at {path} came out of order: {times}")
