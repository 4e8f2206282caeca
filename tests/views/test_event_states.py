"""The state that events carry is the one that the engine has after the same row."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine.codec import decode_row
from holdfast.engine.fold import fold
from holdfast.engine.state import Run
from holdfast.values import Millis, RunId, RunNo
from holdfast.views.events import Events
from tests.journals.test_corpus import FILES, journal, name_of


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_events_of_every_journal_say_the_state_that_the_engine_has(path: Path) -> None:
    found = journal(path)
    run, events = (
        Run(RunNo(1), RunId(found.head["run"]), found.head["version"]),
        Events(RunId("00000000-0000-7000-8000-000000000001"), 1),
    )
    seen, last = [], "pending"
    for row in found.rows:
        event, decisions = decode_row(row["body"])
        orders = [found._whole(decision) for decision in decisions]
        fold(run, found._whole(event), orders, Millis(row["at"]), row["epoch"])
        told = events.take((row["seq"], row["epoch"], row["at"], row["kind"], row["body"]))
        if run.status != last:
            seen.append((row["seq"], run.status, {one["state"] for one in told}))
            last = run.status
    assert seen == [(seq, status, {status}) for seq, status, _ in seen]
