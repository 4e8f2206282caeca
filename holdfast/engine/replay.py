"""Take stored rows into a run: fold alone. Nothing is decided, and effects are dropped, since their commits did them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine.decisions import Decision
from holdfast.engine.events import Event
from holdfast.engine.fold import fold
from holdfast.engine.state import Run
from holdfast.values import Millis


def replay_row(run: Run, event: Event, decisions: Iterable[Decision], at: Millis, epoch: int) -> None:
    fold(run, event, decisions, at, epoch)
