"""`holdfast runs logs`: the log lines of a run's attempts, as they were, or as they come."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from holdfast.api.types import LEFT_ALONE, LogLine
from holdfast.cli.file import finished
from holdfast.cli.follow import WAITS_FOR_OUTSIDE
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, ms_of, painted
from holdfast.cli.safe import harmless, one_line
from holdfast.cli.source import opened
from holdfast.cli.source_protocol import NO_ENGINE, Source
from holdfast.cli.streams import UNWRITTEN, reserve_stdout, say, show
from holdfast.config import Settings
from holdfast.nearest import did_you_mean
from holdfast.values import TERMINAL, base_of, split

FOLLOW_SECONDS: Final = 0.5  # between two requests for new lines
BAD: Final = frozenset(("error", "critical", "stderr", "traceback"))


def command(given: Given) -> int:
    reserve_stdout()
    return finished(_logs(settings_of(given), given))


async def _logs(settings: Settings, given: Given) -> int:
    run, *rest = given.arguments
    step, as_json, follows = (rest[0] if rest else None), given.has("--json"), given.has("--follow")
    async with opened(settings) as source:
        run_id, after = await source.find(run), 0
        while True:
            shown = await source.run(run_id)
            is_finished = not follows or shown.status in TERMINAL
            seen = await _show_after(source, run_id, step, after, as_json=as_json)
            if seen is None:
                return UNWRITTEN
            if is_finished:  # asked before the lines were read: none can follow
                break
            if shown.reason in (NO_ENGINE, LEFT_ALONE):
                say(f"run {run_id} is waiting: {shown.reason}\ncontinue it: holdfast run --continue {run_id}")
                return WAITS_FOR_OUTSIDE
            after = seen
            await asyncio.sleep(FOLLOW_SECONDS)
        if step and not seen:
            _check_step(step, await source.names(run_id))
    if not seen:
        say(f"run {run_id} has logged nothing" + (f" in step {step}" if step else ""))
    return 0


def _check_step(path: str, names: list[str]) -> None:
    """Raise if the path begins with no step of the workflow."""
    frame, first = split(path)
    while frame:
        frame, first = split(frame)
    first = base_of(first)
    if first not in names:
        meant = did_you_mean(first, names) or f"its steps are {', '.join(names)}"
        raise Usage(f"the run has no step {one_line(path)!r}; {meant}")


async def _show_after(
    source: Source, run_id: str, step: str | None, after: int, *, as_json: bool
) -> int | None:
    """Print the lines after a number; gives the number of the last one, or None if they cannot be written."""
    while True:
        page = await source.logs(run_id, step, None, after)
        for line in page.items:
            if not show(_json(line) if as_json else _text(line)):
                return None
        after = page.last
        if page.cursor is None:
            return after


def _json(line: LogLine) -> str:
    return msgspec.json.encode(line).decode() + "\n"


def _text(line: LogLine) -> str:
    """`09:30:00.125  letters[1].write#2  info  two letters left`, with the further lines of a text indented."""
    head = f"{instant(ms_of(line.at))}  {line.path}#{line.attempt}  "
    level = painted(line.level, "failed") if line.level in BAD else line.level
    first, *more = harmless(line.text).rstrip("\n").split("\n")
    return f"{harmless(head)}{level}  {first}\n" + "".join(f"    {each}\n" for each in more)
