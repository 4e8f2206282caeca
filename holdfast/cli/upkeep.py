"""`holdfast backup` and `holdfast doctor`. Both only read the database, except to forget a key, retry a run or accept
a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.cli.file import acting, beside, finished, path_of, reading, reading_server
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import painted
from holdfast.cli.source import opened
from holdfast.cli.streams import UNWRITTEN, give, say, show_lines
from holdfast.config import Settings
from holdfast.ops.backup import back_up
from holdfast.ops.doctor import Finding, examine, examine_server
from holdfast.ops.upkeep import forget_key
from holdfast.store.artefact_place import artefacts_at
from holdfast.store.open import is_server, lock_of, open_file
from holdfast.tools.registry import Registry

UNSOUND: Final = 1


def backup_command(given: Given) -> int:
    return finished(_back_up(given))


async def _back_up(given: Given) -> int:
    target, settings = Path(given.argument or ""), settings_of(given)
    _refuse_server(settings)
    async with beside(settings, any_release=True) as store:
        made = back_up(store, target, as_copy=given.has("--as-copy"))
    return _report_backup(made, target, settings.artefacts, as_json=given.has("--json"))


def _report_backup(made: list[Path], target: Path, place: str | None, *, as_json: bool) -> int:
    size = target.stat().st_size
    if as_json:
        return (
            0 if give({"files": [str(path) for path in made], "bytes": size, "checked": True}) else UNWRITTEN
        )
    say(f"copied and checked: {', '.join(map(str, made))} ({size:,} bytes)")
    if place is not None:
        say(f"files of runs are in {place} and were not copied")
    return 0


def doctor_command(given: Given) -> int:
    settings, as_json = settings_of(given), given.has("--json")
    if given.has("--accept-loss"):
        return _accept_loss(settings, as_json=as_json)
    if (key := given.text("--forget-key")) is not None:
        return finished(_forget(settings, key, as_json=as_json))
    if (run_id := given.text("--retry-run")) is not None:
        return finished(_retry(settings, run_id, as_json=as_json))
    return finished(_doctor(settings, as_json=as_json))


async def _retry(settings: Settings, run_id: str, *, as_json: bool) -> int:
    """A running server continues the run at once; otherwise the next one does."""
    async with opened(settings) as source:
        run_id = await source.find(run_id)
        is_taken_up = await source.retry(run_id)
    if as_json:
        return 0 if give({"run_id": run_id, "taken_up": is_taken_up}) else UNWRITTEN
    say(f"run {run_id} is retried {'now' if is_taken_up else 'by the next holdfast up'}")
    return 0


def _accept_loss(settings: Settings, *, as_json: bool) -> int:
    _refuse_server(settings)
    path = path_of(settings, must_exist=True)
    with lock_of(settings.db):
        open_file(settings.db).accept_loss()
    if as_json:
        return 0 if give({"accepted": path}) else UNWRITTEN
    say(f"the current contents of {path} are accepted as complete; the next start uses them")
    return 0


async def _forget(settings: Settings, key: str, *, as_json: bool) -> int:
    async with acting(settings, Registry(), may_create=False) as engine:
        await forget_key(engine.store, engine.committer, key)
    if as_json:
        return 0 if give({"forgotten": key}) else UNWRITTEN
    say(f"forgot the output of the key {key!r}: the next step with this key runs again")
    return 0


def _refuse_server(settings: Settings) -> None:
    try:
        open_file(settings.db)
    except ValueError as error:
        raise Usage(str(error)) from None


async def _doctor(settings: Settings, *, as_json: bool) -> int:
    findings = await _findings(settings)
    is_sound = not any(finding.problems for finding in findings)
    if as_json:
        is_written = give({"ok": is_sound, "checks": findings})
    else:
        is_written = show_lines(line for finding in findings for line in _lines(finding))
        say(
            "all is well"
            if is_sound
            else "there are problems; keep a copy of the database before anything else"
        )
    if not is_written:
        return UNWRITTEN
    return 0 if is_sound else UNSOUND


async def _findings(settings: Settings) -> list[Finding]:
    place, path = settings.artefacts, path_of(settings)
    if not is_server(settings.db):
        async with reading(settings) as store:
            return await examine(store, artefacts_at(place, path))
    artefacts = None if place is None else artefacts_at(place, path)
    async with reading_server(settings) as server:
        return await examine_server(server, artefacts)


def _lines(finding: Finding) -> list[str]:
    note = f"  {finding.note}" if finding.note else ""
    if not finding.problems:
        return [f"{painted('ok', 'completed')}       {finding.check}{note}"]
    head = f"{painted('problem', 'failed')}  {finding.check}{note}"
    hint = [f"           what to do: {finding.hint}"] if finding.hint else []
    return [head, *(f"           {problem}" for problem in finding.problems), *hint]
