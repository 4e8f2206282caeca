"""Where a PostgreSQL database is, and whether it is one that Holdfast can use: version, settings, schema. Never names a password."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import msgspec

from holdfast.errors import SchemaTooNew, SchemaTooOld, StoreUnavailable
from holdfast.store.node_names import node_name
from holdfast.store.promotion import Progress
from holdfast.store.statements import migrations, statements

CONNECT_SECONDS: Final = 10.0
VERSION_MIN: Final = 15
LEASE_SECS_MIN, LEASE_SECS_MAX = 2, 300
MIGRATION_LOCK: Final = 0x686F6C64  # of pg_advisory_lock: one node at a time migrates or joins
# Of each session. A statement that waits for a lock, or a transaction whose client is gone, must not stop others.
SETTINGS: Final = {
    "application_name": "holdfast",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "jit": "off",
}
LOSING: Final = {
    "off": "a crash of the server",
    "local": "a standby that takes its place",
}  # synchronous_commit
OURS: Final = ("lease_secs", "listen_dsn", "node", "unsafe")  # parts of an address that are not PostgreSQL's


class Address:
    """An address `postgresql://user:password@host/database?…`, with the parts of the query that are Holdfast's own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        self.options = {name: value for name, value in query if name in OURS}
        kept = urlencode([(name, value) for name, value in query if name not in OURS])
        self.dsn = urlunsplit(parts._replace(scheme="postgresql", query=kept))
        hosts = parts.netloc.rpartition("@")[2] or dict(query).get("host", "the local socket")
        self.shown = f"postgresql://{hosts}{parts.path}"
        self.promotion = ""  # the token of the move that this process makes (store/promotion.py)
        self.unsafe = self.options.get("unsafe", "") in ("1", "true", "yes")
        self.node = node_name(url)
        secs = self.options.get("lease_secs", "15")
        if not secs.isascii() or not secs.isdigit() or not LEASE_SECS_MIN <= int(secs) <= LEASE_SECS_MAX:
            raise ValueError(
                f"lease_secs is a number from {LEASE_SECS_MIN} to {LEASE_SECS_MAX}, not {secs[:20]!a}"
            )
        self.lease_ms = 1000 * int(secs)

    def for_listening(self) -> Address:
        """The address for LISTEN, because a connection pooler does not pass notifications on."""
        return Address(self.options["listen_dsn"]) if "listen_dsn" in self.options else self

    def session(self) -> dict[str, Any]:
        """How the driver makes a session. Behind a pool of connections each transaction may be another one's: it has the settings of
        its role, and keeps no prepared statement."""
        if "listen_dsn" in self.options:
            return {"timeout": CONNECT_SECONDS, "statement_cache_size": 0}
        return {
            "timeout": CONNECT_SECONDS,
            "server_settings": SETTINGS,
            "max_cached_statement_lifetime": 0,
        }


async def connect(address: Address) -> Any:
    """A connection. Raises StoreUnavailable with the host, the reason and what to do."""
    try:
        return await asyncpg.connect(address.dsn, **address.session())
    except asyncpg.InvalidPasswordError:
        why = "the password is wrong; correct it in the address, or in the file that PGPASSFILE names"
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        why = f"{error}; give a user that may connect, or change pg_hba.conf"
    except asyncpg.InvalidCatalogNameError as error:
        why = f"{error}; make it with createdb"
    except asyncpg.TooManyConnectionsError as error:
        why = f"{error}; raise max_connections, or use fewer nodes"
    except asyncpg.TargetServerAttributeNotMatched as error:
        why = f"{error}; none of its hosts can be written to"
    except (
        OSError,
        TimeoutError,
        asyncio.CancelledError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    ) as error:
        if isinstance(error, asyncio.CancelledError):
            raise
        why = f"{str(error) or 'no answer came'}; is the server running, and is the address right?"
    except ValueError as error:
        why = f"the address cannot be read: {error}"
    raise StoreUnavailable(f"{address.shown} cannot be reached: {why}")


async def examine(db: Any, address: Address) -> None:
    """Refuse a server that is too old, read-only, or set so that a commit may be lost."""
    sql = statements("postgres")
    settings = dict(await db.fetch(sql["settings"]))
    version = int(settings["server_version_num"]) // 10_000
    if version < VERSION_MIN:
        raise StoreUnavailable(
            f"{address.shown} is PostgreSQL {version}; Holdfast needs {VERSION_MIN} or later: upgrade the server"
        )
    if await db.fetchval(sql["is_standby"]) or settings["transaction_read_only"] == "on":
        raise StoreUnavailable(
            f"{address.shown} can only be read: give the address of the primary, or several hosts with target_session_attrs=read-write"
        )
    if (waits_for := settings["synchronous_commit"]) in LOSING:
        raise StoreUnavailable(
            f"{address.shown} has synchronous_commit={waits_for}, so {LOSING[waits_for]} loses commits that were acknowledged; set it "
            "to on (ALTER ROLE … SET synchronous_commit = on, or ALTER DATABASE …)"
        )
    if "off" in (settings["fsync"], settings["full_page_writes"]) and not address.unsafe:
        raise StoreUnavailable(
            f"{address.shown} has fsync or full_page_writes off, so a power cut can destroy it; set both to on, or accept the loss "
            "of all data with ?unsafe=1 in the address"
        )


@asynccontextmanager
async def migrated(db: Any, address: Address) -> AsyncIterator[None]:
    """Bring the schema up to date. What the caller adds is of the same transaction: one node at a time migrates and joins."""
    async with db.transaction():
        await db.execute(statements("postgres")["lock_schema"], MIGRATION_LOCK)
        await _migrate(db, address)
        yield


async def _migrate(db: Any, address: Address) -> None:
    done = await schema_of(db, address)
    for number, name, script in migrations_with_sums():
        if number > len(done):
            await db.execute(script)
            await db.execute(statements("postgres")["add_migration"], number, name)


def migrations_with_sums() -> list[tuple[int, str, str]]:
    """(number, checksum, script) of every migration, ascending."""
    return [
        (number, hashlib.sha256(script.encode()).hexdigest(), script)
        for number, script in migrations("postgres")
    ]


async def _refuse_half_filled(db: Any, address: Address) -> None:
    """Refuse a database that a move from a file has not finished filling."""
    text = await db.fetchval(statements("postgres")["meta"], "promotion")
    found = None if text is None else msgspec.json.decode(text, type=Progress)
    if found is not None and not found.is_done and found.token != address.promotion:
        raise StoreUnavailable(
            f"{address.shown} is being filled from {found.source}, and this has not finished; repeat the command holdfast promote, "
            "or give the move up with holdfast promote --cancel"
        )


async def schema_of(db: Any, address: Address, *, needs_all: bool = False) -> list[int]:
    """The migrations that the database has. Refused if they are not those of this release."""
    sql = statements("postgres")
    tables = [row[0] for row in await db.fetch(sql["tables"])]
    known = migrations_with_sums()
    if "migration" not in tables or (tables and "journal" not in tables):
        if tables:
            raise StoreUnavailable(
                f"{address.shown} has tables of another program ({', '.join(tables[:3])}); give Holdfast a database of its own, or a "
                "schema of its own with ?options=-csearch_path%3DNAME"
            )
        if needs_all:
            raise SchemaTooOld(
                f"{address.shown} has no tables of Holdfast yet; holdfast run or up makes them"
            )
        await db.execute(sql["make_migrations"])
        return []
    rows = await db.fetch(sql["applied_migrations"])
    if len(rows) > len(known):
        raise SchemaTooNew(
            f"{address.shown} was written by a newer release (schema {len(rows)}, this one knows {len(known)}); upgrade holdfast"
        )
    for (number, checksum), (_, ours, _) in zip(rows, known, strict=False):
        if checksum != ours:
            raise StoreUnavailable(
                f"{address.shown}: migration {number:03} there is not the one of this release; it was changed, or the database was "
                "made by a development version"
            )
    await _refuse_half_filled(db, address)
    if needs_all and len(rows) < len(known):
        raise SchemaTooOld(
            f"{address.shown} was written by an older release (schema {len(rows)}, this one needs {len(known)}); "
            "holdfast run brings it up to date"
        )
    return [row[0] for row in rows]
