"""A database file, opened for a command: to read it while another process may own it, or to change it as its owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final

from holdfast.answering import Answering
from holdfast.cli import logs
from holdfast.cli.options import Usage
from holdfast.config import Settings
from holdfast.errors import NotFound
from holdfast.runtime.compose import engine_of
from holdfast.runtime.engine import Engine
from holdfast.store.base import Store, StoreFile, StoreServer
from holdfast.store.open import database_path, is_server, lock_of, open_file, open_server, open_url
from holdfast.store.records import RunRow, Wanted
from holdfast.threads import no_thread_now
from holdfast.tools import prints
from holdfast.tools.registry import Registry
from holdfast.values import DEFAULT_TENANT, OPEN, RunId

LAST: Final = "last"
ID_PART_MIN: Final = 4  # characters of an id that are enough to search for it
CANDIDATES_MAX: Final = 5
STUBBORN_SECS: Final = 1.0  # for tasks that are cancelled a second time, after their grace period


def path_of(settings: Settings, *, must_exist: bool = False) -> str:
    try:
        path = database_path(settings.db)
        if is_server(settings.db):
            open_url(
                settings.db
            )  # connects to nothing; says what is wrong with the address, or which package is missing
            return path
    except ValueError as error:
        raise Usage(str(error)) from None
    if os.path.isdir(path):
        raise Usage(f"{path} is a folder, not a database; --db names a file")
    if must_exist and not os.path.exists(path):
        raise NotFound(f"there is no database {path}; --db names another")
    return path


@contextlib.asynccontextmanager
async def beside(settings: Settings, *, any_release: bool = False) -> AsyncIterator[StoreFile]:
    """Open the file for reading while another process writes to it. Nothing is locked or changed. With `any_release`,
    a file of an older release can be copied. Of a server, commands for files are refused."""
    path_of(settings)
    store: Any = open_url(settings.db) if is_server(settings.db) else open_file(settings.db)
    await store.open_to_read(any_release=any_release)
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[StoreFile]:
    """A snapshot of the file at one moment. Nothing is locked or changed."""
    async with beside(settings) as store, store.still():
        yield store


@contextlib.asynccontextmanager
async def reading_server(settings: Settings) -> AsyncIterator[StoreServer]:
    """The same of a database on a server."""
    path_of(settings)
    store = open_server(settings.db)
    await store.open_to_read()
    try:
        async with store.still():
            yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def acting(
    settings: Settings, registry: Registry, *, may_create: bool = True, answers: bool = False
) -> AsyncIterator[Engine]:
    """Lock the file and open an engine on it that acts only on the runs that it is asked about. With `answers`, other processes
    can reach it on the local socket."""
    path_of(settings, must_exist=not may_create)
    lock = lock_of(settings.db, answers="own" if answers else None)
    await lock.take_soon()
    try:
        engine = engine_of(settings, registry)
        if is_server(settings.db):  # beside the node of that name, not in its place
            engine.store.node += f"~{os.getpid()}"
        answering = Answering(lock.socket, engine, settings)
        logs.redact_with(engine.secrets)
        prints.install(engine.secrets)
        await engine.open(drive=False)
        engine.commands.drives = False
        answering.begin()
        try:
            yield engine
        finally:
            await answering.end()
            await engine.close()
    finally:
        lock.free()


def finished(work: Coroutine[Any, Any, int]) -> int:
    """Run a command to its end on a loop of its own."""
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        return runner.run(_alone(work))
    finally:
        _close(runner)


def _close(runner: asyncio.Runner) -> None:
    """Close the loop. That starts a thread which waits for those of the loop; without one, the process ends all the same."""
    try:
        runner.close()
    except RuntimeError as error:
        if not no_thread_now(error):
            raise


async def _alone(work: Coroutine[Any, Any, int]) -> int:
    """Do not wait for a tool that does not stop: otherwise the loop would never stop waiting for its task."""
    code = await work
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=STUBBORN_SECS))[1]:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the engine is closed, and all output is written
    return code


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def found(store: Store, word: str, *, is_open: bool = False) -> RunRow:
    """The run that a word refers to: its id, a unique part of it, or `last`."""
    word = word.strip().lower().removesuffix("…")
    row = await store.run_by_id(DEFAULT_TENANT, RunId(word))
    if row is None and word == LAST:
        row = await _last(store, is_open=is_open)
    if row is None:
        row = await store.run_by_id(DEFAULT_TENANT, await _whole_id(store, word))
    assert row is not None
    return row


async def _last(store: Store, *, is_open: bool) -> RunRow:
    """The newest run, or the newest unfinished one."""
    statuses = sorted(OPEN) if is_open else [None]
    pages = [await store.list_runs(DEFAULT_TENANT, None, 1, Wanted(status=one)) for one in statuses]
    rows = [row for page in pages for row in page.rows]
    if not rows:
        raise NotFound(f"there is no {'open ' if is_open else ''}run in this database")
    return max(rows, key=lambda row: row.no)


async def _whole_id(store: Store, part: str) -> RunId:
    near = await store.ids_like(DEFAULT_TENANT, part, CANDIDATES_MAX + 1) if len(part) >= ID_PART_MIN else []
    return RunId(the_one(part, near))


def the_one(part: str, near: Sequence[str]) -> str:
    """The only id that contains this part; raises if there is none or several."""
    if not near:
        raise NotFound(f"no run {part} in this database; see holdfast runs list")
    if len(near) > 1:
        more = ", …" if len(near) > CANDIDATES_MAX else ""
        raise Usage(f"{part} could be {', '.join(near[:CANDIDATES_MAX])}{more}; give more of the id")
    return near[0]
