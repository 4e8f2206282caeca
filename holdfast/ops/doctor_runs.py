"""Checks that the rows of a run match its journal: its status, when it wakes, its waits and its jobs."""

from __future__ import annotations

from typing import Final

from holdfast.engine.state import Run
from holdfast.runtime.load import load_run
from holdfast.store.base import CheckedStore
from holdfast.store.records import RunRow
from holdfast.values import TERMINAL, RunNo

FOLDED_MAX: Final = 10_000  # finished runs that are folded, the newest first; open ones are all folded
WAITS_MAX: Final = 10_000  # waits of one run that are compared with its journal


class _Problems:
    def __init__(self) -> None:
        self.status: list[str] = []
        self.waits: list[str] = []
        self.wakes: list[str] = []
        self.jobs: list[str] = []

    def __len__(self) -> int:
        return len(self.status) + len(self.waits) + len(self.wakes) + len(self.jobs)


async def compared(store: CheckedStore, problems_max: int) -> list[tuple[str, list[str], str]]:
    """Fold all open runs and the newest finished ones; each result is a check, its problems and a note."""
    finished = [RunNo(row.no) for row in await store.newest(FOLDED_MAX)]
    runs = list(dict.fromkeys([*await store.open_runs(), *finished]))
    jobs: dict[int, list[tuple[str, int]]] = {}
    for row in await store.assignments():
        jobs.setdefault(row.no, []).append((row.path, row.attempt))
    found = _Problems()
    for no in runs:
        if len(found) >= problems_max:
            break
        await _compare(store, no, jobs.get(no, []), found)
    note = f"{len(runs)} runs: all that are open, and the newest"
    return [
        ("journals fold to the stored state of their runs", found.status, note),
        ("waits have their row", found.waits, note),
        ("waiting runs wake in time", found.wakes, note),
        ("jobs are of open attempts", found.jobs, note),
    ]


async def _compare(store: CheckedStore, no: RunNo, jobs: list[tuple[str, int]], found: _Problems) -> None:
    stored = await store.load(no)
    assert stored is not None
    row = stored.row
    try:
        run = await load_run(store, stored)
    except Exception as error:  # noqa: BLE001  # damage in a journal can show as any error
        found.status.append(f"run {row.id} cannot be folded: {type(error).__name__}: {error}")
        return
    if run.status != row.status:
        found.status.append(f"run {row.id} is {row.status}, its journal says {run.status}")
    found.waits += await _waits(store, run)
    found.wakes += _wakes(run, row)
    for path, attempt in jobs:
        step = run.steps.get(path)
        if step is None or (step.state, step.attempt) != ("running", attempt):
            found.jobs.append(f"a row says that a worker performs attempt {attempt} of step {path} of run {run.id}, and its journal does not")  # fmt: skip


def _wakes(run: Run, row: RunRow) -> list[str]:
    """A run that no process has in memory is loaded when its row says so: that must not be later than its first timer."""
    due = run.wake_at
    if row.status in TERMINAL or row.owner is not None or row.needs is not None or due is None:
        return []
    if row.wake_at is not None and row.wake_at <= due:
        return []
    return [f"run {run.id} has a timer that is due at {due}, and its row does not wake it by then"]


async def _waits(store: CheckedStore, run: Run) -> list[str]:
    rows = await store.waits_of_run(run.no, WAITS_MAX)
    if len(rows) >= WAITS_MAX:
        return []
    given = {(row.path, row.kind): (row.name, row.attempt, row.expires_at) for row in rows}
    waits = {(path, step.wait.kind): (step.wait, step.attempt) for path, step in run.steps.items() if step.wait is not None}  # fmt: skip
    wrong = [
        f"step {path} of run {run.id} waits for {kind} {waits[path, kind][0].name!r}, and no row says so: an answer would not "
        "find it"
        for path, kind in sorted(waits.keys() - given.keys())
    ]
    wrong += [
        f"a row says that step {path} of run {run.id} waits for {kind}, and its journal does not"
        for path, kind in sorted(given.keys() - waits.keys())
    ]
    for key in sorted(waits.keys() & given.keys()):
        wait, attempt = waits[key]
        if given[key] != (wait.name, attempt, wait.until):
            wrong.append(
                f"the row of what step {key[0]} of run {run.id} waits for has another name, attempt or end than its journal"
            )
    return wrong
