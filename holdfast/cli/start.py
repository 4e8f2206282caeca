"""`holdfast start`: starts a run of a file or of a published workflow, and follows it unless told to detach."""

from __future__ import annotations

import shlex

from holdfast.cli.begin import Start, start_of
from holdfast.cli.file import acting, finished
from holdfast.cli.follow import Follower, chosen_view
from holdfast.cli.options import settings_of
from holdfast.cli.parser import Given
from holdfast.cli.run import drive
from holdfast.cli.server import server_of
from holdfast.cli.source import opened, serving
from holdfast.cli.streams import UNWRITTEN, give, reserve_stdout, say, show
from holdfast.config import Settings
from holdfast.errors import RunIsOver
from holdfast.store.open import shown
from holdfast.tools.registry import Registry


def command(given: Given) -> int:
    reserve_stdout()
    settings = settings_of(given)
    start = start_of(given, settings)
    if given.has("--detach"):
        return finished(_detached(settings, start, as_json=given.has("--json")))
    try:
        return drive(given, settings, start, at_program=True)
    except RunIsOver as error:  # the request is repeated, and the run that it started has finished
        return finished(_shown(settings, given, str(error.run_id)))


async def _detached(settings: Settings, start: Start, *, as_json: bool) -> int:
    """Start the run, print its id and leave it to the server, or to the next one that opens the file."""
    server = server_of(settings)
    if server is not None:
        async with serving(server) as source:
            run_id, flags = await start.begin_at(source), source.flags
    else:
        async with acting(settings, Registry([])) as engine:
            run_id, flags = (await start.begun(engine, drive=False)).run_id, ()
            place = () if settings.db == Settings().db else ("--db", shown(settings.db))
        say("no server has this database open; the run starts as soon as one does")
        say(f"start one with: {shlex.join(['holdfast', 'up', *place])}")
        flags = place
    say(f"follow it with: {shlex.join(['holdfast', 'runs', 'watch', run_id, *flags])}")
    is_written = give({"run_id": run_id}) if as_json else show(f"{run_id}\n")
    return 0 if is_written else UNWRITTEN


async def _shown(settings: Settings, given: Given, run_id: str) -> int:
    async with opened(settings) as source:
        view = chosen_view(settings, as_json=given.has("--json"), all_steps=given.has("--all-steps"))
        follower = Follower(source, view, every=given.has("--all-steps"), as_json=given.has("--json"))
        return await follower.follow(run_id)
