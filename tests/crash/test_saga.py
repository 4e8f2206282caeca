"""A saga of twelve calls under kill -9 at every commit: each completed call is undone exactly once, the last one first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.checker import journals, query_file, unfinished
from tests.crash.processes import Driver, Place, Told

STEPS = 12


def saga(last: str) -> str:
    """Calls at the top level, in a loop and in branches, twelve in all; then the call that ends the saga."""

    def call(step: str, value: str) -> str:
        undo = "{tool: add, args: {a: '{{ output }}', b: 1000}}"
        return f"{{id: {step}, tool: add, args: {{a: {value}, b: 1}}, compensate: {undo}}}"

    top = "\n".join(f"  - {call(f's{n}', str(n))}" for n in range(6))
    branches = "\n".join(f"      - [{call(f'p{n}', str(n))}]" for n in range(3))
    return f"""
name: saga
steps:
{top}
  - id: loop
    kind: foreach
    items: $.inputs.items
    steps: [{call("l", '"{{ item }}"')}]
  - id: par
    kind: parallel
    branches:
{branches}
  - {{id: last, tool: {last}}}
finally:
  - {{id: bye, tool: add, args: {{a: 1, b: 1}}}}
"""


def killed_at(folder: Path, spec: str, commit: int, *, after: bool) -> tuple[Place, int]:
    """The process dies at its n-th commit, and another one goes on. Also returns the exit code of the first."""
    folder.mkdir()
    place, told = Place(folder), Told()
    waiting, codes = [(1, spec, {"items": [7, 8, 9]})], []
    for kill_commit in (commit, 0):
        order = place.order(
            start=waiting, attach=unfinished(place, told), kill_commit=kill_commit, kill_after=after
        )
        driver = Driver(order)
        codes.append(driver.end())
        told.take(driver)
        waiting = [] if told.started else waiting
    assert codes[1] == 0 and codes[0] in (0, -9)
    return place, codes[0]


def problems(place: Place, status: str) -> list[str]:
    """What is wrong with how a run undid its calls. There are two runs if the first process died before it said that it had started one."""
    found: list[str] = []
    effects = [line.split(" ") for line in place.effects.read_text(encoding="utf-8").splitlines()]
    for run, rows in journals(place).items():
        orders = [order for row in rows for order in row.decisions]
        done = [order[1] for order in orders if order[0] == "undoable"]
        undone = [order[1] for order in orders if order[0] == "undo"]
        first = [order[1] for order in orders if order[0] == "start" and order[2] == 1]
        begun = [path.removesuffix(".compensate") for path in first if path.endswith(".compensate")]
        if len(done) != STEPS or len(set(done)) != STEPS:
            found.append(f"calls that completed: {done}")
        if undone != done[::-1] or begun != undone:
            found.append(f"completed {done}, undone {undone}, begun {begun}")
        if orders[-1][:2] != ["finish", status] or first[-1] != "bye":
            found.append(f"it ended by {orders[-1]}, and the last step was {first[-1]}")
        paths = dict.fromkeys(path for of, path, *_ in effects if of == run and path.endswith(".compensate"))
        if list(paths) != [f"{path}.compensate" for path in undone]:
            found.append(f"compensations were executed in the order {list(paths)}")
    if query_file(place, "SELECT DISTINCT status FROM run") != [(status,)]:
        found.append("the run has not ended as it should")
    return found


@pytest.mark.parametrize(
    ("last", "status", "after"),
    [
        pytest.param("fails", "failed", False, id="failed-right before"),
        pytest.param("fails", "failed", True, id="failed-right after", marks=pytest.mark.long),
        pytest.param(
            "cancels_its_run", "cancelled", False, id="cancelled-right before", marks=pytest.mark.long
        ),
        pytest.param("cancels_its_run", "cancelled", True, id="cancelled-right after"),
    ],
)
def test_every_call_is_undone_once_wherever_the_process_is_killed(
    tmp_path: Path, last: str, status: str, after: bool
) -> None:
    spec, kills = saga(last), 0
    for commit in range(1, 60):
        place, code = killed_at(tmp_path / f"{commit}", spec, commit, after=after)
        assert problems(place, status) == [], f"killed at commit {commit}"
        kills += code == -9
        if code == 0:
            break
    assert kills > 2 * STEPS, "the saga has too few commits to show anything"
