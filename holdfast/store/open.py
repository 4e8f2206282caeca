"""From the address of a database to its store. The only module that names a dialect.

    sqlite:///holdfast.db    a SQLite file; a path without a scheme means the same
    postgresql://user@host/database?node=NAME    a PostgreSQL server, which many nodes share; NAME is that of this one

Knows what an address means. Does not open anything: that is `await store.open()`, or `await store.open_to_read()`.
"""

from __future__ import annotations

import os
from typing import Final

from holdfast.store.base import Store, StoreFile, StoreServer
from holdfast.store.lock import Answers, Lock
from holdfast.store.node_names import node_name, shown_address
from holdfast.store.promotion import Source, Target
from holdfast.store.sqlite.store import SqliteStore

SQLITE: Final = ("sqlite:///", "sqlite://")
POSTGRESQL: Final = ("postgresql", "postgres")
USE_ANOTHER: Final = (
    "give a SQLite file, such as sqlite:///holdfast.db, or a server, postgresql://user@host/database"
)


def open_url(url: str, *, durability: str = "full", shares_loop: bool = False, threads: bool = True) -> Store:
    """The store of a database.

    With the durability `relaxed`, a power cut may take the last commits. With `shares_loop`, commits leave the event loop to
    other work, as a server needs. Without `threads`, each commit is made on the event loop: for a test that moves the clock by
    hand. Raises ValueError if the address is not one of this release.
    """
    if is_server(url):
        return _postgres(url)
    return SqliteStore(
        database_path(url),
        name=database_name(url),
        durability=durability,
        shares_loop=shares_loop,
        threads=threads,
    )


def is_server(url: str) -> bool:
    """Is the database on a server, which other nodes may use at the same time? Otherwise it is one file."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.lower() in POSTGRESQL


def shown(url: str) -> str:
    """The address as it may be shown: without a password."""
    return shown_address(url) if is_server(url) else url


def _postgres(url: str) -> StoreServer:
    try:
        from holdfast.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ValueError(
            "PostgreSQL needs a package that is not installed: pip install 'holdfast-engine[postgres]'"
        ) from None
    return PostgresStore(url)


def open_move(source: str, target: str) -> tuple[Source, Target]:
    """A database file, and the server that its contents move to. Raises ValueError if they cannot be."""
    _postgres(target)
    from holdfast.store.postgres.filling import Filling
    from holdfast.store.sqlite.moving import MovingFile

    return MovingFile(database_path(source), name=database_name(source)), Filling(target)


def open_file(url: str) -> StoreFile:
    """The store of a database that is one file, to look at it. Raises ValueError if it is none."""
    if is_server(url):
        raise ValueError(f"{shown(url)} is on a server, which has tools of its own for that, such as pg_dump")
    return SqliteStore(database_path(url), name=database_name(url))


def open_server(url: str) -> StoreServer:
    """The store of a database on a server, to look at it."""
    return _postgres(url)


def lock_of(url: str, address: str | None = None, *, answers: Answers | None = None) -> Lock:
    """The lock of a database, to be held while it is open; other processes then find this one at the address, and with `answers`
    on the local socket."""
    return Lock(database_path(url), address, answers=answers)


def database_path(url: str) -> str:
    """The path of the file that an address names. Artefacts and work folders are beside it.

    A link is another name of its file: lock, log and artefacts are found beside the file itself.
    """
    name = database_name(url)
    return os.path.realpath(name) if os.path.islink(name) else name


def database_name(url: str) -> str:
    """The same, but links are left as they are. Of a server it is a name for the files of this node, in the working folder."""
    if is_server(url):
        return f"holdfast-{node_name(url)}"
    if ":memory:" in url:
        raise ValueError("a database in memory would survive nothing; give the name of a file")
    for prefix in SQLITE:
        if url.startswith(prefix):
            return url[len(prefix) :]
    scheme, separator, _ = url.partition("://")
    if not separator:
        return url
    raise ValueError(f"{scheme[:50]!a}:// is no database that Holdfast can use; {USE_ANOTHER}")
