"""Lists, counts and pages take as long with a million runs as with ten: no query of them looks at every row or sorts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from holdfast.store.batch import Batch
from holdfast.store.records import Wanted
from holdfast.store.sqlite import lists
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.statements import statements
from holdfast.values import DEFAULT_TENANT, RunNo
from tests.store.conformance.batches import T0, commit, listed, started

# What each query of a list is asked with; its plan does not depend on the values.
LISTS: dict[str, Any] = {
    "newest": {"tenant": "t", "before": 9, "statuses": None, "limit": 3, "looked_at": 9, "passed": 1},
    "stretches": {"tenant": "t", "before": 9, "statuses": None},
    "stretches_of_workflow": {"tenant": "t", "before": 9, "statuses": None, "workflow": "n", "number": 1},
    "stretches_of_workflows": {"tenant": "t", "before": 9, "statuses": None, "workflows": '["n"]'},
    "stretch": (1, "completed", 9, 3),
    "ahead": (1, "completed", 9, 3),
    "labelled": ("t", "team", 9, 3),
    "labelled_so": ("t", "team", "x", 9, 3),
    "has_label": ("t", 1, "team", None),
    "series_and_status": (1,),
    "runs_by_no": ("[1,2]",),
    "run_by_no": (1,),
    "run_by_id": ("t", "id"),
    "ids_beginning": ("t", "0198", 5),
    "ids_ending": ("t", "0198", 5, 100),
    "rows_of": (1, 0, 10),
    "last_row": (1,),
    "request_of": (1,),
    "names_artefact": ("sha256", "t"),
    "names_artefact_in": ("sha256", "t", '["n"]'),
    "workflows": ("t", "", 10),
    "workflow": ("t", "n"),
    "workflow_by_id": ("t", "flow-1"),
    "releases": ("t", "n", 9, 10),
    "release": ("t", "n", 1),
    "release_by_id": ("t", "ver-1"),
    "newest_published": ("t", "n"),
    "statuses_before": ("[1,2]",),
    "series_of": ("t", "n", 0),
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[apsw.Connection]:
    store = SqliteStore(str(tmp_path / "h.db"))
    store.open_file()
    store.close_file()
    connection = apsw.Connection(str(tmp_path / "h.db"))
    yield connection
    connection.close()


def plan_of(db: apsw.Connection, name: str) -> list[str]:
    return [row[3] for row in db.execute("EXPLAIN QUERY PLAN " + statements("sqlite")[name], LISTS[name])]


@pytest.mark.parametrize("name", LISTS)
def test_no_list_is_sorted(db: apsw.Connection, name: str) -> None:
    assert [step for step in plan_of(db, name) if "TEMP B-TREE" in step] == []


@pytest.mark.parametrize("name", [name for name in LISTS if name not in ("ids_ending", "newest")])
def test_no_list_looks_at_every_run(db: apsw.Connection, name: str) -> None:
    scans = [step for step in plan_of(db, name) if step.startswith("SCAN")]
    given = ("json_each", "asked")  # what was given may be gone through
    assert [step for step in scans if not any(word in step for word in given)] == []


def test_the_services_that_runs_need_are_found_by_the_runs_that_need_something(db: apsw.Connection) -> None:
    query = "EXPLAIN QUERY PLAN " + statements("sqlite")["services_in_need"]
    assert any("run_needs" in row[3] for row in db.execute(query, ("t", 9)))


@pytest.mark.parametrize("name", ["ids_ending", "newest"])
def test_what_looks_at_the_newest_runs_looks_at_a_bounded_number(name: str) -> None:
    inner = statements("sqlite")[name].partition("FROM (")[2].partition(")")[0]
    assert "ORDER BY no DESC LIMIT" in inner


@pytest.mark.parametrize(("name", "args"), [("early_waits", (9,)), ("waits_open", ("t", "callback", 5, 9))])
def test_no_question_about_waits_goes_through_those_it_is_not_about(
    db: apsw.Connection, name: str, args: tuple[Any, ...]
) -> None:
    plan = [row[3] for row in db.execute("EXPLAIN QUERY PLAN " + statements("sqlite")[name], args)]
    looks = [step for step in plan if "USING INDEX wait_" in step]
    assert looks and [step for step in plan if step.startswith(("SCAN w", "SCAN wait"))] == []
    # some of the columns of what it is to begin behind
    assert [step for step in looks if ">(?" in step] == []


@pytest.mark.anyio
@pytest.mark.parametrize("share_min", [1, 5, 64])
@pytest.mark.parametrize(
    "wanted",
    [Wanted(), Wanted(status=("completed", "failed")), Wanted(status="failed"), Wanted(workflow="b")],
    ids=["all", "two states", "one state", "one workflow"],
)
async def test_as_many_runs_are_left_out_as_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_min: int, wanted: Wanted
) -> None:
    monkeypatch.setattr(lists, "SHARE_MIN", share_min)
    store, chance = SqliteStore(str(tmp_path / "h.db")), Random(share_min)
    await store.open()
    batch = started(*range(1, 201), status="completed", owned=False, finished_at=T0)
    for no, new in batch.new_runs.items():
        new.workflow, new.tenant = chance.choice("aabc"), chance.choice([new.tenant, new.tenant, "other"])
        batch.changes[no].status = chance.choice(["completed", "completed", "failed", "cancelled"])
    await commit(store, batch)
    every = await listed(store, wanted)
    for count in range(1, len(every) + 2):
        below = await store.below_runs(DEFAULT_TENANT, None, count, wanted)
        rest = every[count:]
        if not rest:
            assert below is None
        else:
            assert [
                row.no for row in (await store.list_runs(DEFAULT_TENANT, below, 500, wanted)).rows
            ] == rest
    await store.close()


@pytest.mark.anyio
async def test_names_whose_runs_are_all_deleted_leave_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "h.db"))
    await store.open()
    batch = started(1, 2, status="completed", owned=False, finished_at=T0)
    batch.new_runs[RunNo(1)].workflow = "gone"
    await commit(store, batch)
    batch = Batch()
    batch.forgotten.append(RunNo(1))
    await commit(store, batch)
    again = started(3)
    again.new_runs[RunNo(3)].workflow = "gone"
    await commit(store, again)
    assert await listed(store, Wanted(workflow="gone")) == [3]
    batch = Batch()
    batch.forgotten.append(RunNo(2))
    await commit(store, batch)
    await store.close()
    db = apsw.Connection(str(tmp_path / "h.db"))
    assert list(db.execute("SELECT workflow FROM series")) == [("gone",)]
    assert list(db.execute("SELECT status, runs FROM tally")) == [("running", 1)]
    db.close()


@pytest.mark.parametrize("name", ["stretch", "ahead"])
def test_the_list_of_a_stretch_needs_nothing_but_its_index(db: apsw.Connection, name: str) -> None:
    assert plan_of(db, name) == [
        "SEARCH run USING COVERING INDEX run_listed (series=? AND status=? AND rowid<?)"
    ]
