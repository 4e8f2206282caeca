"""Idempotency keys under kill -9: fifty runs with one key, whose holder fails, hangs, is cancelled and dies in turn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.store.sqlite.store import SqliteStore
from tests.crash.checker import journals, query_file, unfinished
from tests.crash.processes import Driver, Place, Told

RUNS, KILLS = 50, 8
ROLES = ["fails", "hangs", "is cancelled", "dies", "fails", "dies", "is cancelled", "does well"]
LINE = """
name: line
inputs: {roles: {type: array}}
steps:
  - id: once
    tool: turn
    args: {roles: "{{inputs.roles}}"}
    timeout_secs: 0.1
    idempotency_key: "the one"
    idempotency_scope: global
output: "{{once}}"
"""


def killed_at_random(folder: Path, seed: int, kills: int) -> tuple[Place, Told]:
    """Lives of seeded length, until all runs have ended; the last ones are not killed."""
    place, told, rng = Place(folder), Told(), random.Random(seed)
    waiting = [(n, LINE, {"roles": ROLES}) for n in range(RUNS)]
    for life in range(200):
        per_life = RUNS // kills + 1 if life < kills else RUNS
        start, waiting = waiting[:per_life], waiting[per_life:]
        driver = Driver(place.order(start=start, attach=unfinished(place, told)))
        if life < kills:
            driver.hears(rng.choice((0.05, 0.3)) * rng.random() + 0.001)
            driver.process.kill() if rng.randrange(4) else driver.process.terminate()
        assert driver.end() in (0, -9, -15)
        told.take(driver)
        known = set(told.started.values())
        waiting = [each for each in start if each[0] not in known] + waiting
        if not waiting and not unfinished(place, told):
            return place, told
    raise AssertionError(f"{len(unfinished(place, told))} runs do not end")


def executions_that_overlap(place: Place) -> list[str]:
    """Executions that began while another of the same process was at work."""
    found: list[str] = []
    at_work: dict[str, str] = {}
    for line in place.effects.read_text(encoding="utf-8").splitlines():
        what, run, pid, _ = line.split(" ", 3)
        if what == "end":
            at_work.pop(pid)
            continue
        if pid in at_work:
            found.append(f"{run} began while {at_work[pid]} was at work")
        at_work[pid] = run
    return found


@pytest.fixture(scope="module", params=[1, 2, 3])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Told]:
    """What is left of fifty runs after their processes were killed."""
    return killed_at_random(tmp_path_factory.mktemp("line"), request.param, KILLS)


def test_one_execution_is_taken_for_the_success_and_all_others_take_its_output(
    left: tuple[Place, Told],
) -> None:
    place, told = left
    rows = [row for rows in journals(place).values() for row in rows]
    outputs = [row.event[3] for row in rows if row.event[0] == "step_succeeded" and row.decisions]
    assert len(outputs) == 1
    given = {value for status, value in told.ended.values() if status == "completed"}
    assert given == set(outputs)


def test_only_holders_that_failed_or_were_cancelled_end_otherwise(left: tuple[Place, Told]) -> None:
    place, _ = left
    ended: dict[str, set[str]] = {"completed": set(), "failed": set(), "cancelled": set()}
    for run, status in query_file(place, "SELECT id, status FROM run"):
        ended[status].add(run)
    played: dict[str, set[str]] = {role: set() for role in ROLES}
    for what, run, _, role in (line.split(" ", 3) for line in place.effects.read_text().splitlines()):
        if what == "begin":
            played[role].add(run)
    # On a busy machine one that does well may take longer than it has, and fails like one that hangs.
    late = {
        run
        for run, rows in journals(place).items()
        if any(row.event[0] == "attempt_timed_out" for row in rows)
    }
    assert ended["failed"] <= played["fails"] | late
    assert ended["cancelled"] <= played["is cancelled"]
    assert len(ended["completed"]) >= RUNS - len(ROLES) - len(late - played["hangs"])


def test_no_execution_begins_while_another_is_at_work(left: tuple[Place, Told]) -> None:
    assert executions_that_overlap(left[0]) == []


def test_every_role_was_played(left: tuple[Place, Told]) -> None:
    played = {line.split(" ", 3)[3] for line in left[0].effects.read_text().splitlines()}
    assert played == set(ROLES)


def test_no_key_is_left_held_and_no_step_is_left_in_line(left: tuple[Place, Told]) -> None:
    place, _ = left
    assert query_file(place, "SELECT key, output IS NULL FROM key") == [("the one", 0)]
    assert query_file(place, "SELECT * FROM wait") == []


@pytest.mark.anyio
async def test_the_file_passes_every_check(left: tuple[Place, Told]) -> None:
    store = SqliteStore(str(left[0].db))
    store.open_file_to_read()
    try:
        assert {name: found for name in store.checks() if (found := await store.check(name))} == {}
    finally:
        store.close_file()


# --------------------------------------------------------------------------------------- between any two commits


def ends_after_a_kill_at(folder: Path, commit: int, *, after: bool) -> dict[str, Any]:
    """Three runs with one key; the process dies at its n-th commit, and another one finishes them."""
    folder.mkdir()
    place, told = Place(folder), Told()
    patient = LINE.replace("timeout_secs: 0.1", "timeout_secs: 60")
    waiting = [(n, patient, {"roles": ["fails", "does well"]}) for n in range(3)]
    for kill_commit in (commit, 0):
        driver = Driver(
            place.order(
                start=waiting, attach=unfinished(place, told), kill_commit=kill_commit, kill_after=after
            )
        )
        assert driver.end() in (0, -9)
        told.take(driver)
        known = set(told.started.values())
        waiting = [each for each in waiting if each[0] not in known]
    assert not told.open and not waiting
    rows = [row for rows in journals(place).values() for row in rows]
    held = query_file(place, "SELECT count(*) FROM key WHERE output IS NULL")[0][0]
    successes = sum(row.event[0] == "step_succeeded" and bool(row.decisions) for row in rows)
    return {"held": held, "waits": query_file(place, "SELECT * FROM wait"), "successes": successes}


@pytest.mark.parametrize("after", [False, True], ids=["right before", "right after"])
def test_one_succeeds_wherever_between_two_commits_the_process_is_killed(tmp_path: Path, after: bool) -> None:
    for commit in range(1, 14):
        ends = ends_after_a_kill_at(tmp_path / f"{commit}", commit, after=after)
        assert ends == {"held": 0, "waits": [], "successes": 1}, f"killed at commit {commit}"


# ------------------------------------------------------------------------------------------------- artefacts

FILES = """
name: files
inputs: {names: {type: array}}
steps:
  - id: loop
    kind: foreach
    items: $.inputs.names
    concurrency: 3
    steps: [{id: s, tool: makes_file, args: {text: "{{item}}"}}]
"""


def artefacts_named(value: Any) -> set[str]:
    """The hashes of all artefacts that a value refers to."""
    text = msgspec.json.encode(value).decode()
    return {part[:64] for part in text.split("artefact://sha256/")[1:]}


@pytest.mark.parametrize("after", [False, True], ids=["right before", "right after"])
def test_no_row_names_an_artefact_that_is_missing(tmp_path: Path, after: bool) -> None:
    for commit in range(2, 9):
        (tmp_path / f"{commit}").mkdir()
        place, told = Place(tmp_path / f"{commit}"), Told()
        start = [(1, FILES, {"names": [f"{commit}-{n}" for n in range(5)]})]
        for kill_commit in (commit, 0):
            left = [] if told.started else start
            driver = Driver(
                place.order(start=left, attach=told.open, kill_commit=kill_commit, kill_after=after)
            )
            assert driver.end() in (0, -9)
            told.take(driver)
            folder = Path(f"{place.db}.artefacts")
            files = {path.name for path in folder.glob("??/*")}
            rows = {sha256 for (sha256,) in query_file(place, "SELECT sha256 FROM artefact")}
            named = {
                sha256
                for rows in journals(place).values()
                for row in rows
                for sha256 in artefacts_named(row.event)
            }
            assert rows <= files, f"killed at commit {commit}"
            assert named <= rows, f"killed at commit {commit}"
        assert len(rows) == 5
