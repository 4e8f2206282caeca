"""`holdfast runs cancel` and `runs rerun` of many runs, by the filters of `runs list`: a preview first, then exactly those runs."""

from __future__ import annotations

import sys
from typing import Any, Final

from holdfast.api.types import BulkItem, RunLine
from holdfast.cli.ask import may_ask
from holdfast.cli.file import finished
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import painted, table
from holdfast.cli.source import opened
from holdfast.cli.source_protocol import PAGE, Source
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.config import Settings
from holdfast.values import TERMINAL

RUNS_MAX: Final = 10_000  # of one command
PART: Final = 100  # runs of one request
SHOWN_MAX: Final = 20

_FILTERS: Final = ("status", "workflow", "label")
_DONE: Final = {"cancel": "cancelled", "rerun": "rerun"}


def is_many(given: Given, action: str) -> bool:
    """Whether the command means the runs of a filter, not one run."""
    has_filter = any(given.has(f"--{name}") for name in _FILTERS)
    if has_filter and given.argument is not None:
        raise Usage(f"give the run or a filter, not both: {given.argument!r}")
    if not has_filter and given.argument is None:
        raise Usage(f"say which run, or which runs: holdfast runs {action} --workflow NAME --status STATUS")
    return has_filter


def command(given: Given, action: str) -> int:
    return finished(_many(settings_of(given), given, action))


async def _many(settings: Settings, given: Given, action: str) -> int:
    wanted = {name: given.text(f"--{name}") for name in _FILTERS}
    as_json = given.has("--json")
    async with opened(settings) as source:
        runs, is_cut = await _matching(source, wanted, action)
        if given.has("--preview"):
            return _previewed(runs, is_cut=is_cut, as_json=as_json, action=action)
        if runs and not given.has("--yes"):
            _agree(runs, action)
        items: list[BulkItem] = []
        for start in range(0, len(runs), PART):
            ids = [run.run_id for run in runs[start : start + PART]]
            items += await source.bulk(
                action, ids, failed=given.has("--failed"), reason=given.text("--reason") or ""
            )
    return _told(items, action, is_cut=is_cut, as_json=as_json)


async def _matching(source: Source, wanted: dict[str, Any], action: str) -> tuple[list[RunLine], bool]:
    """The runs of the filter that the action is for, up to RUNS_MAX, and whether there are more."""
    found: list[RunLine] = []
    cursor = None
    while True:
        page = await source.runs(cursor=cursor, limit=PAGE, **wanted)
        found += [run for run in page.items if (run.status in TERMINAL) == (action == "rerun")]
        cursor = page.cursor
        if cursor is None or len(found) >= RUNS_MAX:
            return found[:RUNS_MAX], cursor is not None or len(found) > RUNS_MAX


def _previewed(runs: list[RunLine], *, is_cut: bool, as_json: bool, action: str) -> int:
    if as_json:
        ids = [run.run_id for run in runs]
        return 0 if give({"action": action, "preview": True, "runs": ids, "more": is_cut}) else UNWRITTEN
    is_written = not runs or show(_table(runs))
    say(f"{_count(runs, is_cut=is_cut)} would be {_DONE[action]}; add --yes to do it")
    return 0 if is_written else UNWRITTEN


def _table(runs: list[RunLine]) -> str:
    rows = [(run.run_id, run.workflow, painted(run.status, run.status)) for run in runs[:SHOWN_MAX]]
    more = len(runs) - len(rows)
    return table(("RUN", "WORKFLOW", "STATUS"), rows) + (f"\n… and {more:,} more" if more else "")


def _count(runs: list[Any], *, is_cut: bool = False) -> str:
    return f"{len(runs):,}{'+' if is_cut else ''} run{'' if len(runs) == 1 else 's'}"


def _agree(runs: list[RunLine], action: str) -> None:
    """Ask the person at the terminal; without one, nothing is done unless the command says --yes."""
    if not may_ask():
        raise Usage(f"{_count(runs)} would be {_DONE[action]}: look at them with --preview, then add --yes")
    say(_table(runs))
    sys.stderr.write(f"{action} {_count(runs)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Usage("nothing was done")


def _told(items: list[BulkItem], action: str, *, is_cut: bool, as_json: bool) -> int:
    refused = [item for item in items if item.error is not None]
    code = 1 if refused else 0
    if as_json:
        return code if give({"action": action, "items": items, "more": is_cut}) else UNWRITTEN
    for item in refused[:SHOWN_MAX]:
        say(f"{item.run_id}: {item.message}")
    say(
        f"{_count(items[len(refused) :])} {_DONE[action]}"
        + (f", {len(refused):,} refused" if refused else "")
    )
    if is_cut:
        say(f"there are more; one command handles {RUNS_MAX:,} runs, so repeat it")
    return code
