"""Keys of callers: made, known again, revoked. Knows how they are kept, not what a request is or which route wants what.

A key is shown once, when it is made; the file keeps its hash. Only the process that owns the file changes it, so all of
them are held in memory: a key counts from the moment in which it is durable, and a revoked one no longer does.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, InvalidInputs, LimitExceeded, NotFound
from holdfast.runtime.engine import Engine
from holdfast.store.batch import Batch
from holdfast.store.records import ApiKey
from holdfast.values import DEFAULT_TENANT, Millis, sha256

__all__ = ["ApiKey", "ApiKeys", "Made"]  # the record is handed on to those who know no store

log = logging.getLogger("holdfast")

SCOPES: Final = ("read", "run", "approve", "resume", "worker", "admin")
EVERYTHING: Final = frozenset(SCOPES)
PREFIX: Final = "hf_"  # lets people, and those who scan for leaked keys, see what it is
KEY_BYTES: Final = 32
NAME_CHARS_MAX: Final = 200
USED_MS: Final = 3_600_000  # last_used_at is written this often at most

_TENANT = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?\Z")
_SERVICE = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}\Z")


class Made(NamedTuple):
    """A new key, with the one and only sight of it."""

    row: ApiKey
    key: str


class ApiKeys:
    def __init__(self, engine: Engine) -> None:
        self._engine, self.clock = engine, engine.clock
        self._rows: dict[tuple[str, str], ApiKey] = {}  # by tenant and id, in the order of their making
        self._by_hash: dict[str, ApiKey] = {}  # of those that count
        self._writing: set[asyncio.Task[None]] = set()
        self.when_first: Callable[[], None] = lambda: None  # called when the first key is created

    async def load(self) -> None:
        """Read every key of the file; asked once, after the store was opened."""
        for row in await self._engine.store.api_keys():
            self._keep(row)

    async def close(self) -> None:
        """Let what is being written end, before the store is closed."""
        await asyncio.gather(*self._writing)

    @property
    def is_any(self) -> bool:
        """Was a key ever made? One that was revoked counts: revoking the last must not open the server to everybody."""
        return bool(self._rows)

    def known(self, key: str) -> ApiKey | None:
        """The key that a caller shows, if it counts now."""
        digest = sha256(key.encode("utf-8", "surrogateescape"))
        row = self._by_hash.get(digest)
        if row is None or not hmac.compare_digest(row.hash, digest):
            return None
        now = self.clock.now()
        if not _counts(row, now):
            return None
        if row.last_used_at is None or now - row.last_used_at >= USED_MS:
            self._note_use(row, now)
        return row

    def counts(self, tenant: str, key_id: str) -> bool:
        """Does a key that was known some time ago still count?"""
        row = self._rows.get((tenant, key_id))
        return row is not None and _counts(row, self.clock.now())

    # ------------------------------------------------------------------------------------------------ changes

    async def create(
        self,
        tenant: str,
        name: str,
        scopes: Collection[str],
        *,
        services: Sequence[str] = (),
        expires_at: Millis | None = None,
    ) -> Made:
        """A new key; it counts when this returns."""
        checked(tenant, name, scopes, services)
        now = self.clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInputs("the key would have expired before it is made; give a later time")
        if len(self._rows) >= limits.now.keys_max:
            raise LimitExceeded(
                "too_many_keys", f"there are {limits.now.keys_max:,} keys, revoked ones counted", "keys_max"
            )
        key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        words = " ".join(scope for scope in SCOPES if scope in scopes)
        row = ApiKey(
            tenant=tenant,
            id=f"key-{secrets.token_hex(8)}",
            name=name,
            hash=sha256(key.encode()),
            scopes=words,
            services=" ".join(services),
            created_at=now,
            expires_at=expires_at,
        )
        await self._write(row)
        return Made(row, key)

    async def revoke(self, tenant: str, key_id: str) -> ApiKey:
        """Let a key count no longer. Again is the same as once."""
        row = self.one(tenant, key_id)
        if row.revoked_at is None:
            row = msgspec.structs.replace(row, revoked_at=self.clock.now())
            await self._write(row)
        return row

    def one(self, tenant: str, key_id: str) -> ApiKey:
        row = self._rows.get((tenant, key_id))
        if row is None:
            raise NotFound(f"no key {ascii(key_id)[1:-1]:.100} here; holdfast keys list shows those that are")
        return row

    def name_of(self, tenant: str, key_id: str) -> str:
        """What its maker called a key; one that was never made is called as it is."""
        row = self._rows.get((tenant, key_id))
        return key_id if row is None else row.name

    def of_tenant(self, tenant: str) -> list[ApiKey]:
        """Its keys, the oldest first, revoked ones too."""
        return sorted(
            (row for row in self._rows.values() if row.tenant == tenant),
            key=lambda row: (row.created_at, row.id),
        )

    # ------------------------------------------------------------------------------------------------ keeping

    def _keep(self, row: ApiKey) -> None:
        is_first = not self._rows
        self._rows[row.tenant, row.id] = row
        if row.revoked_at is None:
            self._by_hash[row.hash] = row
        else:
            self._by_hash.pop(row.hash, None)
        if is_first:
            self.when_first()

    async def _write(self, row: ApiKey) -> None:
        """Make a key durable, and only then let it count as it now is."""
        await self._commit(row)
        self._keep(row)

    def _note_use(self, row: ApiKey, now: Millis) -> None:
        used = msgspec.structs.replace(row, last_used_at=now)
        self._keep(used)  # at once: the next request must not write it again
        task = asyncio.get_running_loop().create_task(self._write_use(used))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_use(self, row: ApiKey) -> None:
        try:
            await self._commit(row)
        except HoldfastError as error:
            log.info("when the key %s was used could not be written: %s", row.id, error)

    async def _commit(self, row: ApiKey) -> None:
        batch = Batch()
        batch.api_keys.append(row)
        await self._engine.commit(batch)


def _counts(row: ApiKey, now: Millis) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now)


def checked(tenant: str, name: str, scopes: Collection[str], services: Sequence[str]) -> None:
    """Can a key be made of this? Raises InvalidInputs."""
    if not _TENANT.match(tenant):
        raise InvalidInputs(
            f"a tenant is named by up to 64 of a-z, 0-9, - and _, not {tenant[:100]!a}; the"
            f" default is {DEFAULT_TENANT!r}"
        )
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise InvalidInputs(f"a key's name has 1 to {NAME_CHARS_MAX} printable characters")
    unknown = sorted(set(scopes) - EVERYTHING)
    if unknown or not scopes:
        said = f"there is no scope {unknown[0][:100]!a}" if unknown else "a key needs a scope"
        raise InvalidInputs(f"{said}; the scopes are {', '.join(SCOPES)}")
    if services and "worker" not in scopes:
        raise InvalidInputs("services are named for keys of the scope worker only")
    if len(services) > limits.now.key_services_max or not all(map(_SERVICE.match, services)):
        most = f"{limits.now.key_services_max:,} names without spaces ({limits.met('key_services_max')})"
        raise InvalidInputs(f"services are at most {most}")
