"""Upkeep of a database: deleting what is old, copying it, and looking whether it is sound. Never touches an open run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import Refused, StoreUnavailable
from holdfast.runtime.load import load_run
from holdfast.runtime.owners import holder_of, read_lock
from holdfast.store.base import Batch, RunRow, Store, StoreFile
from holdfast.values import DEFAULT_TENANT, Millis, RunNo

RETIRED_MAX: Final = 200  # runs that one commit deletes: others wait for it
FOLDED_MAX: Final = 200  # runs that are folded to see whether they are what their row says, the newest
DISK_BYTES_MIN: Final = 256 * 1024 * 1024
WAL_BYTES_MAX: Final = 256 * 1024 * 1024


# --------------------------------------------------------------------------------------------------- retention


async def retire(store: Store, before: Millis, limit: int) -> int:
    """Delete up to `limit` finished runs that ended before then, with all that belongs to them; gives how many."""
    retired = 0
    while retired < limit:
        size = min(RETIRED_MAX, limit - retired)
        doomed = await store.finished_before(before, size)
        if doomed:
            batch = Batch()
            batch.forgotten = doomed
            await _committed(store, batch)
        retired += len(doomed)
        if len(doomed) < size:
            break
        await asyncio.sleep(0)  # what runs goes first
    return retired


async def _committed(store: Store, batch: Batch) -> None:
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None) -> None:
        if error is None:
            reply.set_result(None)
        else:
            reply.set_exception(error if isinstance(error, Exception) else StoreUnavailable(str(error)))

    store.submit(batch, done)
    await reply


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
    for file in source.glob("??/*"):
        folder = target / file.parent.name
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # swept meanwhile: nothing names it
            shutil.copy2(file, folder / file.name)
            _sync(folder / file.name)
    for folder in (*target.glob("??"), target):
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
    folder, problems, seen = artefacts_of(Path(store.path)), [], 0
    for sha256, size in store.artefacts_named():
        seen += 1
        file = folder / sha256[:2] / sha256
        if not file.is_file():
            problems.append(f"the artefact {sha256[:12]}… is not there")
        elif file.stat().st_size != size:
            problems.append(
                f"the artefact {sha256[:12]}… has {file.stat().st_size:,} bytes instead of {size:,}"
            )
    return Finding("artefacts are there", problems[:10], f"{seen} files")


async def _folds(store: StoreFile) -> Finding:
    """Are the newest runs what their row says, by their journal?"""
    rows = await store.list_runs(DEFAULT_TENANT, None, FOLDED_MAX)
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
