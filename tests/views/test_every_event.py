"""Every event is handled, or named as ignored, wherever events are read: a new one must be considered in each place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast
from holdfast.engine import decide, fold, fold_events, nodes
from holdfast.engine.decisions import Decision
from holdfast.engine.events import Event
from holdfast.plan.graph import Call, Node

EVENTS = {kind.__name__ for kind in Event.__args__}
HOUSE = Path(holdfast.__file__).parent

# Every event, and who reads it beside `views/steps.py` and `views/node_runs.py`: those name all events, which mypy holds by
# `assert_never`. The modules that a line leaves out ignore that event. Explain and outputs read the folded run instead.
READ_BY: dict[str, set[str]] = {
    "RunStarted": {"views/run_lines.py", "views/events.py", "views/run_view.py"},
    "Adopted": {"views/board.py", "views/events.py", "views/run_view.py"},
    "StepSucceeded": {
        "views/board.py",
        "views/events.py",
        "views/progress.py",
        "ops/metrics.py",
        "ops/traces.py",
    },
    "StepFailed": {"views/board.py", "views/events.py", "ops/metrics.py", "ops/traces.py"},
    "AttemptTimedOut": {"views/board.py"},
    "AttemptReleased": {"views/board.py"},
    "Supplied": set(),
    "SuspectsTurn": set(),
    "TimerFired": {"views/events.py"},
    "CancelRequested": {"views/events.py"},
    "Continued": {"views/events.py"},
    "KeyGranted": set(),
    "KeyHeld": {"views/board.py"},
    "KeyAnswered": set(),
    "StepPaused": {"views/board.py"},
    "CallbackReceived": set(),
    "SignalReceived": set(),
    "ApprovalAnswered": {"views/waiting.py"},
}
READ_ALL = ("views/steps.py", "views/node_runs.py")
READ_SOME = sorted(set().union(*READ_BY.values()))


def reads_events(path: Path) -> bool:
    """Does a module tell events apart, and not only make them?"""
    named = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.MatchClass):
            named |= {name.id for name in ast.walk(node.cls) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            named |= {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    return bool(named & EVENTS)


def events_in(path: Path) -> set[str]:
    """The events that a module names in its code, its imports left out."""
    return {
        node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)
    } & EVENTS


def test_every_event_is_on_the_list() -> None:
    assert set(READ_BY) == EVENTS


@pytest.mark.parametrize("file", READ_SOME)
def test_a_view_reads_the_events_that_the_list_says(file: str) -> None:
    assert events_in(HOUSE / file) == {event for event, readers in READ_BY.items() if file in readers}


@pytest.mark.parametrize("file", READ_ALL)
def test_the_views_of_steps_name_every_event(file: str) -> None:
    assert events_in(HOUSE / file) == EVENTS
    assert "assert_never(event)" in (HOUSE / file).read_text("utf-8")


def test_no_other_module_of_these_packages_reads_events() -> None:
    packages = ("views", "ops", "deliveries", "waits", "workers")
    readers = {path for package in packages for path in (HOUSE / package).glob("*.py") if reads_events(path)}
    assert {path.relative_to(HOUSE).as_posix() for path in readers} == {*READ_ALL, *READ_SOME}


def test_the_engine_decides_and_folds_every_event_and_folds_every_decision() -> None:
    assert set(decide._ON) == set(fold_events.EVENTS) == set(Event.__args__)
    assert set(fold.DECISIONS) == set(Decision.__args__)


def test_the_engine_enters_every_node_of_a_plan() -> None:
    assert {Call, *nodes.ENTER} == set(Node.__args__)
