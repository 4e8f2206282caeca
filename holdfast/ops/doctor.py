"""Checks of a database. Reads only, and may run while another process owns the file."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import ArtefactsUnavailable, HoldfastError
from holdfast.ops.doctor_runs import compared
from holdfast.spec.notation import definition_from_stored
from holdfast.store.artefact_place import artefacts_at
from holdfast.store.artefacts import Artefacts
from holdfast.store.base import COPIED, Acknowledged, CheckedStore, StoreFile, StoreServer
from holdfast.store.lock import holder_of, read_lock
from holdfast.values import canonical, decode
from holdfast.views.schedules import unreadable

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
    "keep a copy of the database, then restore a backup; the runs named here cannot be trusted as they are"
)
DAMAGED: Final = (
    "stop the server, keep a copy of the files, and restore a backup; if there is none, sqlite3 holdfast.db .recover saves "
    "what can be read"
)


SERVER_DAMAGED: Final = "stop all nodes, and restore a backup of the database"


async def examine(store: StoreFile, artefacts: Artefacts | None = None) -> list[Finding]:
    """Run all checks on one snapshot of a file. Its artefacts are beside it, unless they are given."""
    acknowledged = store.acknowledged()  # read first: later commits are not missing
    file = store.check_file()
    findings = [Finding("file", file, "" if file else "every page is sound", DAMAGED if file else "")]
    if not file:
        schema = await _schema(store, DAMAGED)
        findings.append(schema)
        if not schema.problems:  # otherwise queries may return wrong results
            findings += [_identity(store), _commits(store, acknowledged)]
            findings += await _contents(store, artefacts or artefacts_at(None, store.path))
    return [*findings, *_machine(Path(store.path))]


async def examine_server(store: StoreServer, artefacts: Artefacts | None = None) -> list[Finding]:
    """Run the same checks on a server, which checks its files itself. Without a place of the artefacts, none are looked for: each node may
    have a folder of its own."""
    note = f"PostgreSQL {await store.server_version()}; pg_amcheck looks at its pages"
    findings = [Finding("server", note=note), await _schema(store, SERVER_DAMAGED)]
    if not findings[-1].problems:
        findings += await _contents(store, artefacts)
    return findings


async def _schema(store: CheckedStore, hint: str) -> Finding:
    missing = await store.missing_parts()
    return Finding("schema", missing, f"version {await store.schema()}", hint if missing else "")


async def _contents(store: CheckedStore, artefacts: Artefacts | None) -> list[Finding]:
    """What both dialects have: the rows, and what they refer to."""
    findings = [
        _found(name.removeprefix("check_").replace("_", " "), await store.check(name))
        for name in store.checks()
    ]
    findings += [await _large_values(store), await _payloads(store)]
    findings += [await _definitions(store), await _schedules(store)]
    if artefacts is None:
        findings.append(Finding("artefacts are there", note="not looked for; --artefacts names their place"))
    else:
        findings += await _artefacts(store, artefacts)
    return findings + [_found(*each) for each in await compared(store, PROBLEMS_MAX)]


def _found(check: str, problems: list[str], note: str = "") -> Finding:
    return Finding(check, problems[:PROBLEMS_MAX], note, RESTORE if problems else "")


def _identity(store: StoreFile) -> Finding:
    return Finding("identity", note=COPIED.format(path=store.path) if store.is_copied() else "its own")


def _commits(store: StoreFile, acknowledged: Acknowledged | None) -> Finding:
    """Check that no acknowledged commit is missing. A copy may be behind its original, which is noted but is not a problem."""
    note = store.behind() or f"up to position {store.feed_end_now()}"
    wrong = "" if store.is_copied() else store.lost(acknowledged)
    hint = (
        "restore the newest files or backup, or accept the loss: holdfast doctor --accept-loss"
        if wrong
        else ""
    )
    return Finding("acknowledged commits are there", [wrong] if wrong else [], note, hint)


async def _large_values(store: CheckedStore) -> Finding:
    missing, seen = [], 0
    async for no, body in store.blobs_named():
        for sha256 in _REFERENCE.findall(body):
            seen += 1
            if not await store.has_blob(no, sha256):
                missing.append(f"run number {no} refers to the value {sha256[:12]}…, which is not there")
    return _found("large values are there", missing, f"{seen} references")


_REFERENCE: Final = re.compile(r'\{"\$blob":"([0-9a-f]{64})"\}')


async def _payloads(store: CheckedStore) -> Finding:
    """Check that every large value matches its hash."""
    wrong, seen = [], 0
    async for no, sha256, body in store.blobs():
        seen += 1
        text = body.encode() if isinstance(body, str) else body
        if hashlib.sha256(text).hexdigest() != sha256:
            wrong.append(f"the value {sha256[:12]}… of run number {no} has other content than its hash says")
    return _found("large values have their hash", wrong, f"{seen} values")


async def _definitions(store: CheckedStore) -> Finding:
    """Check that every definition can be read and matches its hash."""
    wrong, seen = [], 0
    async for name, version, definition, uses in store.definitions():
        seen += 1
        try:
            text = definition_from_stored(definition).canonical()
        except (HoldfastError, msgspec.DecodeError) as error:
            wrong.append(f"the definition {version[:12]}… of {name} cannot be read: {str(error)[:200]}")
            continue
        content = text + (canonical(decode(uses.encode())) if uses else b"")
        if hashlib.sha256(content).hexdigest() != version:
            wrong.append(f"the definition {version[:12]}… of {name} has other content than its hash says")
    return _found("definitions have their hash", wrong, f"{seen} definitions")


async def _schedules(store: CheckedStore) -> Finding:
    """Check that every schedule, and how far it has come, can be read."""
    wrong, seen = [], set[tuple[str, str]]()
    async for tenant, schedule_id, body, cursor in store.every_schedule():
        seen.add((tenant, schedule_id))
        why = unreadable(body, cursor)
        if why:
            wrong.append(f"the schedule {schedule_id!a} of tenant {tenant} cannot be read: {why[:200]}")
    hint = "replace it: holdfast schedules put FILE" if wrong else ""
    return Finding("schedules can be read", wrong[:PROBLEMS_MAX], f"{len(seen)} schedules", hint)


async def _artefacts(store: CheckedStore, artefacts: Artefacts) -> list[Finding]:
    """A bucket is asked whether it has each file, and its size; to read them all could take days."""
    missing, wrong, seen = [], [], 0
    async for tenant, sha256, size in store.artefacts_named():
        try:
            found = artefacts.of(tenant).find(sha256) or (
                None if artefacts.is_remote else artefacts.find(sha256)
            )
        except ArtefactsUnavailable as error:
            return [
                Finding(
                    "artefacts are there", [str(error)], hint="repeat this command when it can be reached"
                )
            ]
        if found is None and artefacts.is_remote and not size:
            continue  # a run was given its name, and whether the file exists was never known
        seen += 1
        if found is None:
            missing.append(f"the artefact {sha256[:12]}… is not there")
        elif size and found.size != size:  # 0: a run that was only given it
            missing.append(f"the artefact {sha256[:12]}… has {found.size:,} bytes instead of {size:,}")
        elif found.path is not None and (digest := _digest_of(found.path)) != sha256:
            wrong.append(f"{found.path} has other content than its name says: its sha256 is {digest[:12]}…")
    there = _found("artefacts are there", missing, f"{seen} files")
    return (
        [there]
        if artefacts.is_remote
        else [there, _found("artefacts have their hash", wrong, f"{seen} files")]
    )


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _machine(path: Path) -> list[Finding]:
    free = shutil.disk_usage(path.absolute().parent).free
    wal = Path(f"{path}-wal")
    logged = wal.stat().st_size if wal.exists() else 0
    full = [f"only {_mib(free)} are free; steps cannot be written when the disk is full"]
    long = [
        "the WAL is not checkpointed into the file; check whether another program keeps the database open"
    ]
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
        "free" if left is None else f"free; process {left} ended without closing the file, which does no harm"
    )


def _mib(size: int) -> str:
    return f"{size / 1024 / 1024:,.1f} MiB"
