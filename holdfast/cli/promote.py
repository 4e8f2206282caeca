"""`holdfast promote`: the contents of a database file move to a server."""

from __future__ import annotations

import msgspec

from holdfast.cli.file import finished, path_of
from holdfast.cli.options import Usage, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.streams import UNWRITTEN, give, say
from holdfast.config import Settings
from holdfast.ops.promote import Promoted, copy_artefacts, give_up, promote
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefact_place import artefacts_at, folder_beside
from holdfast.store.open import database_path, is_server, lock_of, open_move


def command(given: Given) -> int:
    return finished(_promote(given))


async def _promote(given: Given) -> int:
    settings, to, as_json = settings_of(given), given.text("--to"), given.has("--json")
    settings = msgspec.structs.replace(settings, db=given.text("--from") or settings.db)
    if to is None and given.text("--artefacts"):
        return await _copy_files(settings, as_json=as_json)
    if to is None or not is_server(to):
        raise Usage("--to needs the address of a server: --to postgresql://user@host/database")
    if is_server(settings.db):
        raise Usage(
            "--from needs a database file, such as sqlite:///holdfast.db: servers are copied with pg_dump"
        )
    path_of(settings, must_exist=True)
    try:
        places = (
            ArtefactFiles(folder_beside(database_path(settings.db))),
            artefacts_at(settings.artefacts, database_path(to)),
        )
        source, target = open_move(settings.db, to)
    except ValueError as error:
        raise Usage(str(error)) from None
    lock = lock_of(settings.db)
    await lock.take_soon()
    try:
        source.open_file()
        try:
            if given.has("--cancel"):
                await give_up(source, target)
                return _told_of_end(source.path, target.path, as_json=as_json)
            lease_ms = 1000 * settings.worker_lease_secs
            promoted = await promote(source, target, places, lease_ms, say)
            return _told(
                promoted, settings.artefacts or str(folder_beside(database_path(to))), as_json=as_json
            )
        finally:
            await target.close()
            source.close_file()
    finally:
        lock.free()


async def _copy_files(settings: Settings, *, as_json: bool) -> int:
    """The files of runs go to another place, and the database stays where it is."""
    try:
        source = ArtefactFiles(folder_beside(database_path(settings.db)))
        count = copy_artefacts(source, artefacts_at(settings.artefacts, database_path(settings.db)))
    except ValueError as error:
        raise Usage(str(error)) from None
    if as_json:
        return (
            0
            if give({"artefacts": count, "from": str(source.folder), "to": settings.artefacts})
            else UNWRITTEN
        )
    say(
        f"{count:,} artefacts of {source.folder} are in {settings.artefacts} too; start with --artefacts and that address"
    )
    return 0


def _told(promoted: Promoted, place: str, *, as_json: bool) -> int:
    if as_json:
        return 0 if give(promoted) else UNWRITTEN
    artefacts = f" and {promoted.artefacts:,} artefacts (now in {place})" if promoted.artefacts else ""
    say(
        f"{promoted.source} was moved to {promoted.to}: {promoted.rows['run']:,} runs, of which {promoted.compared:,} are open and "
        f"were compared{artefacts}. Start nodes with --db and that address. The file stays as it is and cannot be used any more."
    )
    return 0


def _told_of_end(source: str, to: str, *, as_json: bool) -> int:
    if as_json:
        return 0 if give({"source": source, "cancelled": True}) else UNWRITTEN
    say(f"the move of {source} was given up: it can be used as before, and {to} has none of its rows")
    return 0
