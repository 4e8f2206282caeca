"""Lists of runs: which are wanted, and what a line says beside the row: when it began, why it failed, what it waits for first.

Reads two rows of the journal for each line, and no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import FinishRun
from holdfast.engine.events import RunStarted
from holdfast.errors import InvalidInputs
from holdfast.nearest import did_you_mean
from holdfast.store.base import Store
from holdfast.store.records import RunEdge, RunRow, WaitRow, Wanted
from holdfast.values import OPEN, TERMINAL, Error, Millis, RunId, RunNo, decode, is_text

MESSAGE_CHARS_MAX: Final = 200


class FirstWait(msgspec.Struct, frozen=True):
    path: str
    kind: str
    until: Millis | None
    since: Millis | None
    prompt: str
    name: str  # of the signal, or the id of the task


class RunSummary(msgspec.Struct, frozen=True):
    """A run in a list."""

    row: RunRow
    started_at: Millis | None
    error: Error | None
    wait: FirstWait | None
    rerun_as: RunId | None = None  # the newest run that reran it
    is_left: bool = False  # as in RunView


async def summaries(store: Store, rows: Sequence[RunRow]) -> list[RunSummary]:
    edges = await store.run_edges([row.no for row in rows])
    waiting = [row.no for row in rows if row.status == "waiting"]
    waits = {wait.no: wait for wait in await store.first_waits(waiting)} if waiting else {}
    return [_summary(row, edges.get(row.no), waits.get(row.no)) for row in rows]


def _summary(row: RunRow, edge: RunEdge | None, wait: WaitRow | None) -> RunSummary:
    if edge is None:  # it is being deleted
        return RunSummary(row, None, None, None)
    event, _ = decode_row(edge.first)
    is_driven = isinstance(event, RunStarted) and event.drive
    # A run that was accepted first begins a moment later; its exact time is shown with the run itself.
    began = edge.at if is_driven or row.status != "pending" else None
    return RunSummary(row, began, _error(edge.last), _first_wait(row, wait), edge.rerun_as)


def _error(last: str | None) -> Error | None:
    if last is None:
        return None
    _, decisions = decode_row(last)
    error = next((one.error for one in decisions if isinstance(one, FinishRun)), None)
    if error is None:
        return None
    return Error(error.kind, error.message[:MESSAGE_CHARS_MAX], error.path)


def _first_wait(row: RunRow, wait: WaitRow | None) -> FirstWait | None:
    if wait is not None:
        detail: Any = decode(wait.detail) if wait.detail else None
        known = detail if isinstance(detail, dict) else {}
        prompt, name = known.get("prompt"), wait.name or _signals(known)
        text = prompt[:MESSAGE_CHARS_MAX] if isinstance(prompt, str) else ""
        return FirstWait(wait.path, wait.kind, wait.expires_at, wait.since, text, name[:MESSAGE_CHARS_MAX])
    if row.status == "waiting" and row.wake_at is not None:
        return FirstWait("", "timer", row.wake_at, None, "", "")
    return None


def _signals(detail: dict[str, Any]) -> str:
    names = detail.get("names") or [detail.get("signal_key") or ""]
    return (" and " if detail.get("mode") == "all" else " or ").join(map(str, names))


def wanted_of(
    status: str | Sequence[str] | None,
    workflow: str | None,
    number: int | None,
    label: str | Sequence[str] | None,
    above: RunNo | None = None,
) -> Wanted:
    statuses = () if status is None else (status,) if isinstance(status, str) else tuple(status)
    for one in statuses:
        if one not in OPEN | TERMINAL:
            hint = did_you_mean(one, OPEN | TERMINAL)
            raise InvalidInputs(
                f"no run has the status {one!r}; {hint or 'one of ' + ', '.join(sorted(OPEN | TERMINAL))}"
            )
    if number is not None and workflow is None:
        raise InvalidInputs("a release number needs the name of its workflow")
    labels = () if label is None else (label,) if isinstance(label, str) else tuple(label)
    for text in (workflow, *labels):
        if text is not None and not is_text(text):
            raise InvalidInputs(f"{text!a:.50} has half of a surrogate pair in it, which no text can hold")
    pairs = [_label(one) for one in labels]
    return Wanted(
        status=statuses or None,
        workflow=workflow,
        number=number,
        label=pairs[0] if pairs else None,
        more_labels=tuple(pairs[1:]),
        above=above,
    )


def _label(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidInputs(f"a label is given as name or name=value, not {text!r}")
    return name, value if equals else None
