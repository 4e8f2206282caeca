"""`holdfast runs watch`: follows one run until it ends, or the events of all runs. Executes nothing."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.cli.file import finished
from holdfast.cli.follow import EXIT_CODES, Follower, chosen_view
from holdfast.cli.options import settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, now_ms, painted
from holdfast.cli.safe import one_line
from holdfast.cli.source import opened
from holdfast.cli.source_protocol import Source
from holdfast.cli.streams import UNWRITTEN, reserve_stdout, show
from holdfast.config import Settings

if TYPE_CHECKING:
    from holdfast.sdk.client import LiveEvent

ID_SHOWN: Final = 12  # the last characters of an id are those that differ


def command(given: Given) -> int:
    reserve_stdout()
    return finished(_watch(settings_of(given), given))


async def _watch(settings: Settings, given: Given) -> int:
    word, as_json, all_steps = given.argument, given.has("--json"), given.has("--all-steps")
    async with opened(settings) as source:
        if word is None:
            await source.runs(cursor=None, limit=1)  # report an unreachable server now
        run_id = None if word is None else await source.find(word)
        if run_id is None or as_json:
            return await _print_events(source, run_id, as_json=as_json)
        view = chosen_view(settings, as_json=False, all_steps=all_steps)
        return await Follower(source, view, every=all_steps).follow(run_id)


async def _print_events(source: Source, run_id: str | None, *, as_json: bool) -> int:
    code = 0
    async with aclosing(source.events(run_id)) as events:
        async for event in events:
            line = msgspec.json.encode(event).decode() if as_json else one_line(_line(event))
            if not show(f"{line}\n"):
                return UNWRITTEN
            if event.kind == "workflow_terminal":
                code = EXIT_CODES[event.status] if run_id is not None else 0
    return code


def _line(event: LiveEvent) -> str:
    """`09:30:00.125  …  step_exit  letters[1].write  completed`"""
    detail = event.detail
    status = str(detail.get("status") or event.status)
    error = detail.get("error")
    why = f": {error['message']} [{error['kind']}]" if error else ""
    message = detail.get("message")
    said = f" {message}" if message is not None else ""
    when = instant(now_ms())[11:-1]
    step = event.current_step_id or "-"
    return f"{when}  …{event.workflow_id[-ID_SHOWN:]}  {event.kind}  {step}  {painted(status, status)}{why}{said}"
