"""Looking whether a database is sound. Reads only, beside the process that drives the file."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from holdfast.runtime.backup import artefacts_of
from holdfast.runtime.load import load_run
from holdfast.runtime.owners import holder_of, read_lock
from holdfast.store.artefacts import SCHEME, Artefacts
from holdfast.store.base import COPIED, RunRow, StoreFile
from holdfast.values import RunNo

FOLDED_MAX: Final = 200  # runs that are folded to see whether they are what their row says, the newest
DISK_BYTES_MIN: Final = 256 * 1024 * 1024
WAL_BYTES_MAX: Final = 256 * 1024 * 1024


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
        findings.append(
            Finding("identity", note=COPIED.format(path=store.path) if store.is_copied() else "its own")
        )
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
