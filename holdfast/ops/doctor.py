"""Looking whether a database is sound. Reads only, beside the process that drives the file."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from holdfast.engine.state import Run
from holdfast.ops.backup import artefacts_of
from holdfast.runtime.load import load_run
from holdfast.runtime.ownership import holder_of, read_lock
from holdfast.store.artefacts import SCHEME, Artefacts
from holdfast.store.base import COPIED, StoreFile
from holdfast.store.sqlite.mark import Marked, lost
from holdfast.values import RunNo

FOLDED_MAX: Final = 10_000  # runs that are folded to see whether they are what their row says, the newest
WAITS_MAX: Final = 10_000  # of one run that are compared with its journal
PROBLEMS_MAX: Final = 10  # reported by one check
DISK_BYTES_MIN: Final = 256 * 1024 * 1024
WAL_BYTES_MAX: Final = 256 * 1024 * 1024


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: sound if there is no problem. `hint` says how to fix one."""

    check: str
    problems: list[str] = []
    note: str = ""
    hint: str = ""


RESTORE: Final = (
    "keep a copy of the files, then restore a backup; the runs named here cannot be trusted as they are"
)
DAMAGED: Final = (
    "stop the server, keep a copy of the files, and restore a backup; if there is none, sqlite3 holdfast.db .recover saves "
    "what can be read"
)


async def examine(store: StoreFile) -> list[Finding]:
    """Everything that data and machine can show about a database, as of one moment."""
    marked = store.marked()  # first: commits that come later are no loss
    file = store.check_file()
    findings = [Finding("file", file, "" if file else "every page is sound", DAMAGED if file else "")]
    if not file:  # else what a query finds means nothing
        findings.append(Finding("schema", note=f"version {store.schema()}"))
        findings += [_identity(store), _commits(store, marked)]
        findings += [
            _found(name.removeprefix("check_").replace("_", " "), store.check(name))
            for name in store.checks()
        ]
        findings += [_large_values(store), _payloads(store), *_artefacts(store), *await _runs(store)]
    return [*findings, *_machine(Path(store.path))]


def _found(check: str, problems: list[str], note: str = "") -> Finding:
    return Finding(check, problems[:PROBLEMS_MAX], note, RESTORE if problems else "")


def _identity(store: StoreFile) -> Finding:
    return Finding("identity", note=COPIED.format(path=store.path) if store.is_copied() else "its own")


def _commits(store: StoreFile, marked: Marked | None) -> Finding:
    """Was more acknowledged than is there? A copy is behind its original, as was meant."""
    pos = store.last_pos_now()
    wrong = "" if store.is_copied() else lost(store.path, marked, pos)
    hint = (
        "restore the newest files or backup, or accept the loss: holdfast doctor --accept-loss"
        if wrong
        else ""
    )
    return Finding(
        "acknowledged commits are there", [wrong] if wrong else [], f"up to position {pos:,}", hint
    )


def _large_values(store: StoreFile) -> Finding:
    missing, seen = [], 0
    for no, body in store.blobs_named():
        for sha256 in _REFERENCE.findall(body):
            seen += 1
            if not store.has_blob(no, sha256):
                missing.append(f"run number {no} refers to the value {sha256[:12]}…, which is not there")
    return _found("large values are there", missing, f"{seen} references")


_REFERENCE: Final = re.compile(r'\{"\$blob":"([0-9a-f]{64})"\}')


def _payloads(store: StoreFile) -> Finding:
    """Is every large value the one that its hash names?"""
    wrong, seen = [], 0
    for no, sha256, body in store.blobs():
        seen += 1
        text = body.encode() if isinstance(body, str) else body
        if hashlib.sha256(text).hexdigest() != sha256:
            wrong.append(f"the value {sha256[:12]}… of run number {no} has other content than its hash says")
    return _found("large values have their hash", wrong, f"{seen} values")


def _artefacts(store: StoreFile) -> list[Finding]:
    artefacts, missing, wrong, seen = Artefacts(artefacts_of(Path(store.path))), [], [], 0
    for tenant, sha256, size in store.artefacts_named():
        seen += 1
        holder = next((one for one in (artefacts.of(tenant), artefacts) if one.has(sha256)), None)
        if holder is None:
            missing.append(f"the artefact {sha256[:12]}… is not there")
            continue
        path = holder.path(SCHEME + sha256)
        if size and (found := path.stat().st_size) != size:  # 0: a run that was only given it
            missing.append(f"the artefact {sha256[:12]}… has {found:,} bytes instead of {size:,}")
        elif (digest := _digest_of(path)) != sha256:
            wrong.append(f"{path} has other content than its name says: its sha256 is {digest[:12]}…")
    return [
        _found("artefacts are there", missing, f"{seen} files"),
        _found("artefacts have their hash", wrong, f"{seen} files"),
    ]


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _runs(store: StoreFile) -> list[Finding]:
    """Whether the rows of runs match their journals: all open runs, and the newest finished ones."""
    finished = [RunNo(row.no) for row in store.newest(FOLDED_MAX)]
    runs = list(dict.fromkeys([*store.open_runs(), *finished]))
    misfits: list[str] = []
    waits: list[str] = []
    for no in runs:
        if len(misfits) + len(waits) >= PROBLEMS_MAX:
            break
        await _look_at(store, no, misfits, waits)
    note = f"{len(runs)} runs: all that are open, and the newest"
    return [
        _found("journals fold to what the runs are", misfits, note),
        _found("waits have their row", waits, note),
    ]


async def _look_at(store: StoreFile, no: RunNo, misfits: list[str], waits: list[str]) -> None:
    stored = await store.load(no)
    assert stored is not None
    row = stored.row
    try:
        run = await load_run(store, stored)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with a journal shows as some error or other
        misfits.append(f"run {row.id} cannot be folded: {type(error).__name__}: {error}")
        return
    if run.status != row.status:
        misfits.append(f"run {row.id} is {row.status}, its journal says {run.status}")
    waits += await _misfitting_waits(store, run)


async def _misfitting_waits(store: StoreFile, run: Run) -> list[str]:
    rows = {(row.path, row.kind) for row in await store.waits_of_run(run.no, WAITS_MAX)}
    steps = {(path, step.wait.kind): step.wait for path, step in run.steps.items() if step.wait is not None}
    if len(rows) >= WAITS_MAX:
        return []
    missing = [
        f"step {path} of run {run.id} waits for {kind} {steps[path, kind].name!r}, and no row says so: an answer would not "
        "find it"
        for path, kind in sorted(steps.keys() - rows)
    ]
    return missing + [
        f"a row says that step {path} of run {run.id} waits for {kind}, and its journal does not"
        for path, kind in sorted(rows - steps.keys())
    ]


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
