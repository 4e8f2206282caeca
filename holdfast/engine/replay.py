"""Apply stored rows to a run by fold alone. Nothing is decided, and effects are dropped because their commits have applied them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine.decisions import Decision
from holdfast.engine.events import Event
from holdfast.engine.fold import fold
from holdfast.engine.state import Run
from holdfast.values import Millis


def replay_row(run: Run, event: Event, decisions: Iterable[Decision], at: Millis, epoch: int) -> None:
    fold(run, event, decisions, at, epoch)
