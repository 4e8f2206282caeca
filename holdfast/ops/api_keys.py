"""API keys: creating, checking and revoking them. Does not know requests or the scopes of routes.

A key is shown once, when it is created; the database stores its hash. Only the process that owns the file changes it, so all keys are
held in memory: a key is valid from the moment it is durable until its revocation is.
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
from holdfast.runtime.again import Again
from holdfast.runtime.clock import Clock
from holdfast.runtime.gate import Gate
from holdfast.runtime.rights import Rights
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import ApiKey
from holdfast.values import DEFAULT_TENANT, Millis, encode, sha256

__all__ = ["ApiKey", "ApiKeys", "Made"]  # the record is for interfaces, which may not import the store

log = logging.getLogger("holdfast")

SCOPES: Final = ("read", "run", "approve", "resume", "worker", "admin")
EVERYTHING: Final = frozenset(SCOPES)
PREFIX: Final = "hf_"  # so that people and secret scanners recognise a key
KEY_BYTES: Final = 32
NAME_CHARS_MAX: Final = 200
USED_MS: Final = 3_600_000  # last_used_at is written this often at most

_TENANT = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?\Z")
NO_LIMIT: Final = Rights(
    skips_gate=False
)  # the default of a new key: every tool, with an approval before a destructive one

_SERVICE = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}\Z")


class Made(NamedTuple):
    """A new key, with its text, which is never shown again."""

    row: ApiKey
    key: str


class ApiKeys:
    """`when_first` is called when the first key is created."""

    def __init__(
        self, store: Store, clock: Clock, gate: Gate, when_first: Callable[[], None] = lambda: None
    ) -> None:
        self._store, self.clock, self._gate, self._when_first = store, clock, gate, when_first
        self._rows: dict[tuple[str, str], ApiKey] = {}  # by tenant and id, in the order of creation
        self._by_hash: dict[str, ApiKey] = {}  # valid keys by the hash of their secret
        self._writing: set[asyncio.Task[None]] = set()
        self._reading = Again(self._read, "the keys")

    async def load(self) -> None:
        """Read every key of the file, once, after the store was opened."""
        await self._read()
        self._store.on_change("keys", self._reading.ask)

    async def _read(self) -> None:
        """Other nodes make and revoke keys too."""
        for row in await self._store.api_keys():
            known = self._rows.get((row.tenant, row.id))
            if known is None or known.revoked_at is None and row.revoked_at is not None:
                self._keep(row)

    async def close(self) -> None:
        """Wait for writes in progress before the store is closed."""
        self._reading.close()
        await asyncio.gather(*self._writing)

    @property
    def is_any(self) -> bool:
        """Whether a key was ever created. Revoked keys count: revoking the last one must not open the server."""
        return bool(self._rows)

    def known(self, key: str) -> ApiKey | None:
        """Return the key that a caller presents, if it is valid."""
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
        """Return whether a key that was checked earlier is still valid."""
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
        rights: Rights = NO_LIMIT,
    ) -> Made:
        """Create a key; it is valid when this returns."""
        checked(tenant, name, scopes, services)
        check_rights(scopes, rights)
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
            tools=_stored(rights.tools),
            workflows=_stored(rights.workflows),
            skips_gate=int(rights.skips_gate),
        )
        await self._write(row)
        return Made(row, key)

    async def revoke(self, tenant: str, key_id: str) -> ApiKey:
        """Revoke a key. Revoking it again changes nothing."""
        row = self.one(tenant, key_id)
        if row.revoked_at is None:
            row = msgspec.structs.replace(row, revoked_at=self.clock.now())
            await self._write(row)
        return row

    def one(self, tenant: str, key_id: str) -> ApiKey:
        row = self._rows.get((tenant, key_id))
        if row is None:
            raise NotFound(
                f"there is no key {ascii(key_id)[1:-1]:.100}; list the keys with holdfast keys list"
            )
        return row

    def name_of(self, tenant: str, key_id: str) -> str:
        """Return the name of a key; the name of an unknown key is its id."""
        row = self._rows.get((tenant, key_id))
        return key_id if row is None else row.name

    def of_tenant(self, tenant: str) -> list[ApiKey]:
        """Return the keys of a tenant, oldest first, including revoked ones."""
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
            self._when_first()

    async def _write(self, row: ApiKey) -> None:
        """Make a key durable, and apply the change only then."""
        await self._commit(row)
        self._keep(row)

    def _note_use(self, row: ApiKey, now: Millis) -> None:
        used = msgspec.structs.replace(row, last_used_at=now)
        self._keep(used)  # set before writing: the next request must not write it again
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
        await self._gate.commit(batch)


def _counts(row: ApiKey, now: Millis) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now)


def checked(tenant: str, name: str, scopes: Collection[str], services: Sequence[str]) -> None:
    """Check the arguments of a new key. Raise InvalidInputs."""
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


def check_rights(scopes: Collection[str], rights: Rights) -> None:
    """Check the limits of a new key. Raise InvalidInputs."""
    for what, patterns in (("tools", rights.tools), ("workflows", rights.workflows)):
        if patterns is None:
            continue
        if "admin" in scopes:
            raise InvalidInputs(f"an admin key can create any other key, so it cannot be limited to {what}")
        most = limits.now.key_patterns_max
        if len(patterns) > most or not all(
            1 <= len(one) <= NAME_CHARS_MAX and one.isprintable() for one in patterns
        ):
            said = f"{most:,} names or patterns of 1 to {NAME_CHARS_MAX} characters ({limits.met('key_patterns_max')})"
            raise InvalidInputs(f"{what} are at most {said}")


def rights_of(row: ApiKey) -> Rights:
    """What the definitions of a key's holder may use."""
    return Rights(_patterns(row.tools), _patterns(row.workflows), bool(row.skips_gate))


def _stored(patterns: frozenset[str] | None) -> str | None:
    return None if patterns is None else encode(sorted(patterns)).decode()


def _patterns(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(msgspec.json.decode(text, type=list[str]))
