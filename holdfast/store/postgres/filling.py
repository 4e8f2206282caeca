"""A PostgreSQL database that is filled with the contents of a file, in portions, by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import msgspec

from holdfast.errors import Refused, StoreUnavailable
from holdfast.store.postgres.asking import AWAY, without_nul
from holdfast.store.postgres.place import MIGRATION_LOCK, connect, examine, migrated
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.promotion import Heirloom, Progress

PORTION_ROWS: Final = 5_000
PORTION_BYTES: Final = 8 * 1024 * 1024
# Left to their defaults: commits get new positions, and no node has claimed anything yet.
NOT_FILLED: Final = frozenset({"xid", "claimant", "lease_until", "stop", "is_told", "report"})


class Filling(PostgresStore):
    """To be closed in any case."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._progress: Progress
        self._kinds: dict[str, dict[str, str]] = {}  # by table: its columns and their types

    async def reach(self, token: str) -> None:
        """Connect, and bring the schema up to date."""
        with _store_errors(self.path):
            self._address.promotion = token
            self._db = await connect(self._address)
            await examine(self._db, self._address)
            async with migrated(self._db, self._address):
                pass

    async def refuse_used(self, tables: Sequence[str]) -> None:
        """Refuse a database that has rows, or a node."""
        with _store_errors(self.path):
            if nodes := [row[0] for row in await self._db.fetch(self._sql["living_nodes"])]:
                raise Refused(f"{self.path} is served by the node {nodes[0]}; stop it first")
            for table in tables:
                if await self._db.fetchval(self._sql["is_table_used"].format(table=table)):
                    raise Refused(
                        f"{self.path} has rows already (in the table {table}); give an empty database: createdb makes one"
                    )

    async def begin(self, token: str, source: str, tables: Sequence[str], heirloom: Heirloom) -> Progress:
        """Begin to fill the database, or go on where another process was killed."""
        with _store_errors(self.path):
            async with self._db.transaction():
                await self._db.execute(self._sql["lock_schema"], MIGRATION_LOCK)  # no node joins
                known = await self._locked()
                if known is None or known.token != token:
                    await self.refuse_used(tables)
                    known = await self._begun(Progress(token, source), heirloom)
                self._progress = known
        return self._progress

    async def _locked(self) -> Progress | None:
        text = await self._db.fetchval(self._sql["lock_promotion"])
        return None if text is None else msgspec.json.decode(text, type=Progress)

    async def _begun(self, progress: Progress, heirloom: Heirloom) -> Progress:
        progress.epoch = await self._db.fetchval(self._sql["join_as_former"], self.node, heirloom.lane)
        await self._db.execute(self._sql["keep_meta"], "server_key", heirloom.server_key)
        if heirloom.fatal_runs is not None:
            await self._db.execute(self._sql["keep_meta"], "deaths", heirloom.fatal_runs.encode())
        await self._note(progress)
        return progress

    async def _note(self, progress: Progress) -> None:
        await self._db.execute(self._sql["keep_meta"], "promotion", msgspec.json.encode(progress))

    # ----------------------------------------------------------------------------------------------------- rows

    async def columns(self, table: str) -> list[str]:
        """The columns that are filled."""
        with _store_errors(self.path):
            found = await self._db.fetch(self._sql["columns_of"], f'"{table}"')
        self._kinds[table] = {name: kind for name, kind in found if name not in NOT_FILLED}
        return list(self._kinds[table])

    async def put(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Copy the rest of a table. Each portion is a commit of its own."""
        fits = [_FITTING.get(self._kinds[table][name]) for name in columns]
        for portion in _portions(tuple(value if fit is None else fit(value) for fit, value in zip(fits, row, strict=True)) for row in rows):  # fmt: skip
            with _store_errors(self.path):
                async with self._db.transaction():
                    if await self._locked() != self._progress:
                        raise Refused(f"another process fills {self.path} too; this one stops")
                    await self._db.copy_records_to_table(table, records=portion, columns=columns)
                    self._progress.rows[table] = self._progress.rows.get(table, 0) + len(portion)
                    await self._note(self._progress)

    async def count(self, table: str) -> int:
        with _store_errors(self.path):
            return int(await self._db.fetchval(self._sql["count_table"].format(table=table)))

    async def journal_bytes(self) -> int:
        with _store_errors(self.path):
            return int(await self._db.fetchval(self._sql["journal_bytes"]))

    async def open_readers(self) -> None:
        """Make the reads of a store possible, to compare what arrived."""
        with _store_errors(self.path):
            await self._db.execute("ANALYZE")
            await self._open_readers()

    # ------------------------------------------------------------------------------------------------------ end

    async def finish(self) -> None:
        """From now on nodes may join."""
        with _store_errors(self.path):
            async with self._db.transaction():
                if await self._locked() != self._progress:
                    raise Refused(f"another process fills {self.path} too; this one stops")
                for table, column in await self._db.fetch(self._sql["numbered_columns"]):
                    await self._db.execute(self._sql["follow_numbers"].format(table=table, column=column))
                self._progress.is_done = True
                await self._note(self._progress)

    async def cancel(self, token: str, tables: Sequence[str]) -> None:
        """Empty the database again, unless the move has finished."""
        with _store_errors(self.path):
            async with self._db.transaction():
                known = await self._locked()
                if known is None or known.token != token:
                    return
                if known.is_done:
                    raise Refused(
                        f"everything is in {self.path} already; repeat holdfast promote to end the move"
                    )
                await self._db.execute("TRUNCATE " + ", ".join(f'"{table}"' for table in tables))
                await self._db.execute(self._sql["forget_former"], known.epoch)
                await self._db.execute(self._sql["forget_meta"], ["promotion", "server_key", "deaths"])


def _portions(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    rows = iter(rows)
    for first in rows:
        portion, size = [], 0
        for row in chain([first], islice(rows, PORTION_ROWS - 1)):
            portion.append(row)
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if size >= PORTION_BYTES:
                break
        yield portion


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode()
    return value if value is None or "\0" not in value else without_nul(value)


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _boolean(value: Any) -> Any:
    return None if value is None else bool(value)


_FITTING: Final = {"text": _text, "bytea": _bytes, "boolean": _boolean}


@contextmanager
def _store_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (*AWAY, asyncpg.PostgresError) as error:
        raise StoreUnavailable(
            f"{path} cannot be filled now: {error or type(error).__name__}; repeat the command, and it goes on where it was"
        ) from error
