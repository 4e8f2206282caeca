"""Checks of a PostgreSQL database: what `holdfast doctor` asks of it. All reads of one check see one moment (`still`)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # it has no stubs

from holdfast.store.postgres.asking import Asking, bound, reason_of, rows, value, values
from holdfast.store.records import RunRow
from holdfast.store.statements import migrations
from holdfast.values import RunNo

_PARTS: Final = re.compile(r"^\s*(CREATE|DROP)(?: UNIQUE)? (TABLE|INDEX|VIEW) (\w+)", re.MULTILINE)


class Checks(Asking):
    newest = rows("newest_of_all", RunRow)
    open_runs = values("open_runs")
    has_blob = value("has_blob", bool)
    server_version = value("server_version", str)

    async def schema(self) -> int:
        """The number of the newest migration; other schemas are refused when the database is opened."""
        return migrations("postgres")[-1][0]

    async def missing_parts(self) -> list[str]:
        """The tables, indexes and views of this release's schema that the database lacks."""
        there = {tuple(row) for row in await self._ask("parts_of_schema")}
        return [f"there is no {kind} {name!r}" for kind, name in sorted(_wanted() - there)]

    def checks(self) -> list[str]:
        """The names of the queries that find violated invariants."""
        return [name for name in self._sql if name.startswith("check_")]

    async def check(self, name: str) -> list[str]:
        """The violations that one of these queries finds, as sentences."""
        try:
            async with bound().transaction():  # a query that fails leaves the others their moment
                return [str(row[0]) for row in await bound().fetch(self._sql[name])]
        except (asyncpg.DataError, asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError) as error:
            return [f"rows cannot be read: {reason_of(error)}"]

    def definitions(self) -> AsyncIterator[tuple[str, str, str, str | None]]:
        """Every definition: name, hash, text, and the hashes of the definitions that it refers to."""
        return self._each("every_definition")

    def every_schedule(self) -> AsyncIterator[tuple[str, str, str, str | None]]:
        """Every schedule with each of its cursors: tenant, id, definition, cursor."""
        return self._each("every_schedule")

    def blobs_named(self) -> AsyncIterator[tuple[RunNo, str]]:
        """Journal rows that refer to large values: run, body."""
        return self._each("rows_with_blobs")

    def blobs(self) -> AsyncIterator[tuple[RunNo, str, bytes | str]]:
        """Every large value: run, sha256, text."""
        return self._each("every_blob")

    def artefacts_named(self) -> AsyncIterator[tuple[str, str, int]]:
        """Artefacts that runs refer to: tenant, sha256, size."""
        return self._each("artefacts_named")

    async def _each(self, name: str) -> AsyncIterator[Any]:
        """The rows of an answer of any length, a few in memory at a time."""
        async for row in bound().cursor(self._sql[name]):
            yield tuple(row)


def _wanted() -> set[tuple[str, str]]:
    wanted = set[tuple[str, str]]()
    for _, script in migrations("postgres"):
        for verb, kind, name in _PARTS.findall(script):
            (wanted.add if verb == "CREATE" else wanted.discard)((kind.lower(), name))
    return wanted
