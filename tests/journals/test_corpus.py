"""Journals of every release fold, in this one, to the state they folded to then, and their runs can go on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import __version__
from holdfast.engine.codec import blob_of, decode_row
from holdfast.engine.decide import decide
from holdfast.engine.decisions import Decision
from holdfast.engine.events import Adopted, Event
from holdfast.engine.fold import fold
from holdfast.engine.state import Run
from holdfast.plan.compile import compile_definition
from holdfast.spec.notation import definition_from_text
from holdfast.values import TERMINAL, Millis, RunId, RunNo
from tests.engine.driver import state_of
from tests.journals import make

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.jsonl"))


class Journal:
    """One file of the corpus."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        self.head: dict[str, Any] = lines[0]
        self.state: Any = lines[-1]["state"]
        self.blobs = {line["sha256"]: line["text"].encode() for line in lines if "sha256" in line}
        self.rows = [line for line in lines if "seq" in line]

    def folded(self) -> Run:
        run = Run(RunNo(1), RunId(self.head["run"]), self.head["version"])
        for row in self.rows:
            event, decisions = decode_row(row["body"])
            orders = [self._whole(decision) for decision in decisions]
            fold(run, self._whole(event), orders, Millis(row["at"]), row["epoch"])
        return run

    def _whole(self, part: Any) -> Any:
        values = {name: getattr(part, name) for name in part.__struct_fields__}
        large = {name: blob_of(value) for name, value in values.items() if isinstance(value, msgspec.Raw)}
        found = {name: msgspec.Raw(self.blobs[sha256]) for name, sha256 in large.items() if sha256}
        return msgspec.structs.replace(part, **found) if found else part


@cache
def journal(path: Path) -> Journal:
    return Journal(path)


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_journal_folds_to_the_state_it_folded_to_when_it_was_written(path: Path) -> None:
    assert state_of(journal(path).folded()) == journal(path).state


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_rows_are_numbered_without_gap_and_name_their_kind(path: Path) -> None:
    rows = journal(path).rows
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert [json.loads(row["body"])[1][0] for row in rows] == [row["kind"] for row in rows]
    assert [row["epoch"] for row in rows] == sorted(row["epoch"] for row in rows)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_run_of_the_corpus_can_be_taken_up_by_this_release(path: Path) -> None:
    one = journal(path)
    plan = compile_definition(definition_from_text(one.head["definition"]))
    run = one.folded()
    if not run.over:
        event = Adopted([path for path, _ in run.open_attempts()])
        decisions = decide(plan, run, event, run.at)
        fold(run, event, decisions, run.at, run.epoch + 1)
        assert run.status in TERMINAL or run.steps or run.todo or run.timers


def test_every_release_has_journals_and_this_one_too() -> None:
    folders = {path.parent.name for path in FILES}
    assert __version__ in folders
    assert all(len([path for path in FILES if path.parent.name == folder]) >= 25 for folder in folders)


def test_the_newest_journals_hold_every_kind_of_event_and_decision() -> None:
    events, decisions = set(), set()
    for path in FILES:
        if path.parent.name == __version__:
            for row in journal(path).rows:
                event, orders = decode_row(row["body"])
                events.add(type(event))
                decisions |= {type(order) for order in orders}
    assert events == set(Event.__args__)
    assert decisions == set(Decision.__args__)


def test_the_newest_journals_hold_every_state_of_a_run() -> None:
    states = {
        journal(path).state.get("status", "pending") for path in FILES if path.parent.name == __version__
    }
    assert states == {
        "pending",
        "running",
        "waiting",
        "cancelling",
        "completed",
        "failed",
        "cancelled",
        "interrupted",
    }


def test_making_journals_again_gives_the_same_journals(tmp_path: Path) -> None:
    make.write(tmp_path / "one")
    make.write(tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_text("utf-8") == (tmp_path / "two" / path.name).read_text("utf-8")


def test_the_corpus_is_small() -> None:
    for release in {path.parent for path in FILES}:
        assert sum(path.stat().st_size for path in FILES if path.parent == release) < 400_000
