"""Where a PostgreSQL database is, and whether it is one that Holdfast can use: version, settings, schema. Never names a password."""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import msgspec

from holdfast.errors import SchemaTooNew, SchemaTooOld, StoreUnavailable
from holdfast.store.node_names import node_name, split_address
from holdfast.store.postgres.asking import READERS_MAX
from holdfast.store.promotion import Progress
from holdfast.store.statements import migrations, statements

log = logging.getLogger("holdfast")

CONNECT_SECONDS: Final = 10.0
CONNECTIONS: Final = (
    f"{READERS_MAX + 2} connections"  # one that writes, one that listens, and those that read
)
VERSION_MIN: Final = 15
LEASE_SECS_MIN, LEASE_SECS_MAX = 2, 300
MIGRATION_LOCK: Final = 0x686F6C64  # of pg_advisory_lock: one node at a time migrates or joins
# Of each session. A statement that waits for a lock, or a transaction whose client is gone, must not stop others. Statements have
# limits of ours (asking.py): one of the server that ends a commit while it waits for a standby would make it count without that.
SETTINGS: Final = {
    "application_name": "holdfast",
    "default_transaction_isolation": "read committed",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
    "jit": "off",
}
LOSING: Final = {
    "off": "a crash of the server",
    "local": "a standby that takes its place",
}  # synchronous_commit
FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")  # parts of an address
OURS: Final = ("lease_secs", "listen_dsn", "node", "unsafe")  # parts of an address that are not PostgreSQL's


TRUST: Final = "give the certificate of its authority with ?sslrootcert=FILE, and the name that its certificate has as the host"
OF_CONNECTING: Final[list[tuple[type[Exception], str]]] = [
    (asyncpg.InvalidAuthorizationSpecificationError, "give a user that may connect, or change pg_hba.conf"),
    (asyncpg.InvalidCatalogNameError, "make it with createdb"),
    (
        asyncpg.TooManyConnectionsError,
        f"a node needs {CONNECTIONS}: raise max_connections or the limit of the role or database, or use fewer nodes",
    ),
    (asyncpg.InsufficientPrivilegeError, "let the user in: GRANT CONNECT ON DATABASE … TO …"),
    (asyncpg.TargetServerAttributeNotMatched, "none of its hosts can be written to"),
    (ssl.SSLCertVerificationError, TRUST),
]
BY_WORDS: Final = {
    "rejected SSL upgrade": "it has no TLS: switch it on there (ssl = on), or give ?sslmode=disable if the network between can be trusted",
    "unsupported startup parameter": "a pool of connections is between: give the direct address of the server as listen_dsn",
    "root.crt": TRUST,
    "unrecognized configuration parameter": "the address has a part of that name, which neither Holdfast nor the server knows",
}


class Address:
    """An address `postgresql://user:password@host/database?…`, with the parts of the query that are Holdfast's own."""

    def __init__(self, url: str) -> None:
        parts = split_address(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        self.options = {name: value for name, value in query if name in OURS}
        kept = urlencode([(name, value) for name, value in query if name not in OURS])
        self.dsn = urlunsplit(parts._replace(scheme="postgresql", query=kept))
        self._dsns = each_host(self.dsn)
        hosts = parts.netloc.rpartition("@")[2] or dict(query).get("host", "the local socket")
        self.shown = f"postgresql://{hosts}{parts.path}"
        self.files = [value for name, value in query if name in FILES]
        self.promotion = ""  # the token of the move that this process makes (store/promotion.py)
        self.unsafe = self.options.get("unsafe", "") in ("1", "true", "yes")
        self.node = node_name(url)
        secs = self.options.get("lease_secs", "15")
        if not secs.isascii() or not secs.isdigit() or not LEASE_SECS_MIN <= int(secs) <= LEASE_SECS_MAX:
            raise ValueError(
                f"lease_secs is a number from {LEASE_SECS_MIN} to {LEASE_SECS_MAX}, not {secs[:20]!a}"
            )
        self.lease_ms = 1000 * int(secs)
        # For LISTEN, because a connection pooler does not pass notifications on.
        self.for_listening = Address(self.options["listen_dsn"]) if "listen_dsn" in self.options else self

    def session(self) -> dict[str, Any]:
        """How the driver makes a session. Behind a pool of connections each transaction may be another one's: it has the settings of
        its role, and keeps no prepared statement."""
        if "listen_dsn" in self.options:
            return {"statement_cache_size": 0}
        return {"server_settings": SETTINGS, "max_cached_statement_lifetime": 0}

    async def reach(self, *_: Any, **session: Any) -> Any:
        """A connection to the first of its servers that answers and can be written. Each has a part of the time, because a machine
        that has died says nothing. The one that was found is asked first from then on."""
        dsns = list(self._dsns)
        for dsn in dsns:
            try:
                connection = await asyncpg.connect(dsn, timeout=CONNECT_SECONDS / len(dsns), **session)
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched):
                if dsn == dsns[-1]:
                    raise
            else:
                self._dsns.sort(key=lambda each: each != dsn)
                return connection


def each_host(dsn: str) -> list[str]:
    """The same address for each of its servers."""
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    given = {name: query[name].split(",") for name in ("host", "port") if name in query}
    count = len(given.get("host", ()))
    columns = [each * count if len(each) == 1 else each for each in given.values()]
    if count < 2 or any(len(each) != count for each in columns):
        return [dsn]
    each_query = [{**query, **dict(zip(given, row, strict=True))} for row in zip(*columns, strict=True)]
    return [urlunsplit(parts._replace(query=urlencode(one))) for one in each_query]


async def connect(address: Address) -> Any:
    """A connection. Raises StoreUnavailable with the host, the reason and what to do."""
    try:
        return await address.reach(**address.session())
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise unreachable(address, error) from error


def unreachable(address: Address, error: Exception) -> StoreUnavailable:
    if isinstance(error, asyncpg.InvalidPasswordError):  # what the server says of it has nothing to add
        why = "the password is wrong; correct it in the address, or in the file that PGPASSFILE names"
    elif isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError | ssl.SSLError):
        why = f"the address cannot be read: {error}"
    else:
        why = f"{' '.join(str(error).split()) or 'no answer came'}; {_remedy(address, error)}"
    return StoreUnavailable(f"{address.shown} cannot be reached: {why}")


def _remedy(address: Address, error: Exception) -> str:
    for kind, remedy in OF_CONNECTING:
        if isinstance(error, kind):
            return remedy
    for words, remedy in BY_WORDS.items():
        if words in str(error):
            return remedy
    if missing := [path for path in address.files if not Path(path).is_file()]:
        return f"there is no file {missing[0]}, which the address names"
    return "is the server running, and is the address right?"


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
    if settings["statement_timeout"] != "0":
        raise StoreUnavailable(
            f"{address.shown} ends statements after {settings['statement_timeout']} ms (statement_timeout), which could make a commit count "
            "that its standby does not have; set it to 0 (ALTER ROLE … SET statement_timeout = 0)"
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
    await _keep_order(db, address)


async def _keep_order(db: Any, address: Address) -> None:
    """A database that was restored on another server has rows with ids of transactions that this one has not come to. Those of new rows
    go on from there, so positions in the feed that readers kept stay right."""
    sql = statements("postgres")
    last, mine, ahead = await db.fetchrow(sql["last_xid"])
    if last > mine:
        ahead += last - mine
        await db.execute(sql["set_xid_ahead"], ahead)
        await db.execute(sql["go_ahead"].format(ahead=int(ahead)))
        log.warning(
            "%s was restored on another server; its feed of events goes on where it was", address.shown
        )


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
