"""Upkeep of a database: deleting what is old, copying it, and looking whether it is sound. Never touches an open run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import HoldfastError, NodeIsOver, NotFound, Refused, StoreUnavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.load import load_run
from holdfast.runtime.owners import holder_of, read_lock
from holdfast.store.artefacts import SCHEME, Artefacts
from holdfast.store.base import Batch, RunRow, Store, StoreFile
from holdfast.values import DEFAULT_TENANT, Millis, RunNo

log = logging.getLogger("holdfast")

FIRST_SECONDS: Final = 300.0  # after opening, when what was left behind has been taken up
AGAIN_SECONDS: Final = 3_600.0
PAUSE_SECONDS: Final = 0.05  # between two pieces: what runs goes first
RETIRED_MAX: Final = 200  # runs that one commit deletes: others wait for it
RETIRED_ROWS_MAX: Final = 10_000  # of these runs together; a longer one goes alone
KEYS_FORGOTTEN_MAX: Final = 500  # by one commit
DAY_MS: Final = 86_400_000
FOLDED_MAX: Final = 200  # runs that are folded to see whether they are what their row says, the newest
DISK_BYTES_MIN: Final = 256 * 1024 * 1024
WAL_BYTES_MAX: Final = 256 * 1024 * 1024


# --------------------------------------------------------------------------------------------------- retention


class Upkeep:
    """What the engine that drives a file does for it on the side: some minutes after opening, and every hour from then on.

    It goes by small pieces with a pause after each, so that runs are not kept waiting.
    """

    def __init__(self, store: Store, artefacts: Artefacts, retention_days: float | None) -> None:
        self._store, self._artefacts, self._days = store, artefacts, retention_days
        self._stopping = asyncio.Event()
        self._next: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self.by_itself = True  # else somebody else says when
        self._clock: Clock
        self._committer: Committer

    def begin(self, clock: Clock, committer: Committer) -> None:
        self._clock, self._committer = clock, committer
        self._wait(FIRST_SECONDS)

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()
        if self._next is not None:
            self._next.cancel()

    async def close(self) -> None:
        """Begin nothing more, and wait for the piece that is being done."""
        self.stop()
        if self._round is not None:
            await self._round

    def _wait(self, seconds: float) -> None:
        if self.by_itself:
            self._next = asyncio.get_running_loop().call_later(seconds, self.begin_round)

    def begin_round(self) -> None:
        self._round = asyncio.get_running_loop().create_task(self._tidy())

    async def _tidy(self) -> None:
        try:
            await self._retire()
            await self._by_pieces(lambda: forget_expired(self._store, self._committer, self._clock.now()))
            await self._sweep()
        except StoreUnavailable as error:
            log.warning("what is old is not deleted for now: %s", error)
        except NodeIsOver:
            self.stop()  # whoever has taken the file over sees to it
        except Exception:  # a defect here must not end anybody's runs
            log.exception("upkeep failed; it is tried again in an hour")
        if not self._stopping.is_set():
            self._wait(AGAIN_SECONDS)

    async def _retire(self) -> None:
        if self._days is not None:
            before = Millis(int(self._clock.now() - self._days * DAY_MS))
            await self._by_pieces(lambda: retire(self._store, self._committer, before))

    async def _sweep(self) -> None:
        """Shelf by shelf, so that the names of few files are in memory at a time."""
        files, now = self._artefacts, self._clock.now()
        if not files.folder.is_dir():
            return
        await asyncio.to_thread(files.sweep_unfinished, now)
        kept = await self._store.artefacts_of_keys()
        for shelf in await asyncio.to_thread(files.shelves):
            if self._stopping.is_set():
                return
            named = await self._store.artefacts_of_shelf(Path(shelf).name)
            await asyncio.to_thread(files.sweep, shelf, named | kept, now)

    async def _by_pieces(self, piece: Callable[[], Awaitable[int]]) -> None:
        while not self._stopping.is_set() and await piece():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), PAUSE_SECONDS)


async def retire(store: Store, committer: Committer, before: Millis, limit: int = RETIRED_MAX) -> int:
    """Delete some finished runs that ended before then, with all that belongs to them, in one commit; gives how many."""
    batch, rows = Batch(), 0
    for no, size in await store.finished_before(before, limit):
        rows += size
        if batch.forgotten and rows > RETIRED_ROWS_MAX:
            break
        batch.forgotten.append(no)
    if batch.forgotten:
        await committer.commit(batch)
    return len(batch.forgotten)


async def forget_expired(store: Store, committer: Committer, now: Millis) -> int:
    """Delete some answers of keys that count no more, in one commit; gives how many."""
    batch = Batch()
    batch.forgotten_keys = await store.expired_keys(now, KEYS_FORGOTTEN_MAX)
    if batch.forgotten_keys:
        await committer.commit(batch)
    return len(batch.forgotten_keys)


async def forget_key(store: Store, committer: Committer, key: str) -> None:
    """Delete the answer of a global key, so that the next step that has it is done."""
    answer = await store.answered_key(DEFAULT_TENANT, "", key)
    if answer is None:
        raise await _without_answer(store, key)
    batch = Batch()
    batch.forgotten_keys = [answer]
    await committer.commit(batch)


async def _without_answer(store: Store, key: str) -> HoldfastError:
    holder = await store.key_holder(DEFAULT_TENANT, "", key)
    if holder is None:
        return NotFound(
            f"there is no global key {key!r} in this database; a key of scope workflow belongs to its run alone"
        )
    run_id, path = holder
    return Refused(
        f"the key {key!r} is held by step {path} of run {run_id}, which is not over, and has no answer to forget; "
        f"let that run end, or cancel it: holdfast runs cancel {run_id}"
    )


# ------------------------------------------------------------------------------------------------------ backup


def back_up(store: StoreFile, target: Path) -> list[Path]:
    """Copy the file, and the artefacts beside it, to where nothing is yet; gives what was made.

    The database comes first: an artefact is on disk before the row that names it, so that a later look at the folder
    has all that the copy names.
    """
    artefacts = artefacts_of(Path(store.path)), artefacts_of(target)
    for path in (target, artefacts[1]):
        if path.exists():
            raise Refused(f"{path} is already there, and a backup overwrites nothing; name another file")
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        store.copy_to(str(partial))
        os.rename(partial, target)
        made = [target]
        if artefacts[0].is_dir():
            _copy_artefacts(*artefacts)
            made.append(artefacts[1])
        _sync(target.parent)
    except OSError as error:
        raise StoreUnavailable(f"the copy cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return made


def _copy_artefacts(source: Path, target: Path) -> None:
    target.mkdir()
    for file in (file for shelf in Artefacts(source).shelves() for file in (source / shelf).iterdir()):
        folder = target / file.parent.relative_to(source)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # swept meanwhile: nothing names it
            shutil.copy2(file, folder / file.name)
            _sync(folder / file.name)
    for folder in (*(path for path in target.rglob("*") if path.is_dir()), target):
        _sync(folder)


def artefacts_of(database: Path) -> Path:
    """The folder of a database's artefacts."""
    return database.with_name(f"{database.name}.artefacts")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------------------------------ doctor


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: sound if there is no problem."""

    check: str
    problems: list[str] = []
    note: str = ""


async def examine(store: StoreFile) -> list[Finding]:
    """Everything that data and machine can show about a database, as of one moment."""
    file = store.check_file()
    findings = [Finding("file", file, "" if file else "every page is sound")]
    if not file:  # else what a query finds means nothing
        findings.append(Finding("schema", note=f"version {store.schema()}"))
        findings += [
            Finding(name.removeprefix("check_").replace("_", " "), store.check(name))
            for name in store.checks()
        ]
        findings += [_large_values(store), _artefacts(store), await _folds(store)]
    return [*findings, *_machine(Path(store.path))]


def _large_values(store: StoreFile) -> Finding:
    missing, seen = [], 0
    for no, body in store.blobs_named():
        for sha256 in _REFERENCE.findall(body):
            seen += 1
            if not store.has_blob(no, sha256):
                missing.append(f"run number {no} refers to the value {sha256[:12]}…, which is not there")
    return Finding("large values are there", missing[:10], f"{seen} references")


_REFERENCE: Final = re.compile(r'\{"\$blob":"([0-9a-f]{64})"\}')


def _artefacts(store: StoreFile) -> Finding:
    artefacts, problems, seen = Artefacts(artefacts_of(Path(store.path))), [], 0
    for tenant, sha256, size in store.artefacts_named():
        seen += 1
        uri = SCHEME + sha256
        holder = next((one for one in (artefacts.of(tenant), artefacts) if one.has(sha256)), None)
        if holder is None:
            problems.append(f"the artefact {sha256[:12]}… is not there")
        elif size and (found := holder.path(uri).stat().st_size) != size:  # 0: a run that was only given it
            problems.append(f"the artefact {sha256[:12]}… has {found:,} bytes instead of {size:,}")
    return Finding("artefacts are there", problems[:10], f"{seen} files")


async def _folds(store: StoreFile) -> Finding:
    """Are the newest runs what their row says, by their journal?"""
    rows = store.newest(FOLDED_MAX)
    problems = [problem for row in rows if (problem := await _misfit(store, row))]
    return Finding("journals fold to what the runs are", problems[:10], f"the newest {len(rows)}")


async def _misfit(store: StoreFile, row: RunRow) -> str:
    stored = await store.load(RunNo(row.no))
    assert stored is not None
    try:
        run = await load_run(store, stored)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with a journal shows as some error or other
        return f"run {row.id} cannot be folded: {type(error).__name__}: {error}"
    return "" if run.status == row.status else f"run {row.id} is {row.status}, its journal says {run.status}"


def _machine(path: Path) -> list[Finding]:
    free = shutil.disk_usage(path.absolute().parent).free
    wal = Path(f"{path}-wal")
    logged = wal.stat().st_size if wal.exists() else 0
    full = [f"only {_mib(free)} are free; steps cannot be written when the disk is full"]
    long = ["the log is not moved into the file: has some program had the database open for long?"]
    return [
        Finding("lock", note=_lock(str(path))),
        Finding("log", long if logged > WAL_BYTES_MAX else [], _mib(logged)),
        Finding("disk", full if free < DISK_BYTES_MIN else [], f"{_mib(free)} free"),
    ]


def _lock(path: str) -> str:
    if holder := holder_of(path):
        return f"held by process {holder.get('pid')}"
    left = read_lock(f"{path}.lock").get("pid")
    return (
        "free" if left is None else f"free; process {left} ended without closing the file, which is no harm"
    )


def _mib(size: int) -> str:
    return f"{size / 1024 / 1024:,.1f} MiB"
