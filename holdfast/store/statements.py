"""Named queries and numbered migrations, read from the .sql files of one dialect.

Knows how the files are written. Does not know what the queries mean.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statements(dialect: str) -> dict[str, str]:
    """Every query of a dialect by its name."""
    found: dict[str, str] = {}
    for file in sorted(_folder(dialect).iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        _, *pieces = _NAME.split(file.read_text("utf-8"))
        for name, text in zip(pieces[::2], pieces[1::2], strict=True):
            assert name not in found, f"two queries are called {name}"
            found[name] = _plain(text)
    return found


@cache
def migrations(dialect: str) -> list[tuple[int, str]]:
    """(number, script) of every migration, ascending."""
    scripts = (_folder(dialect) / "migrations").iterdir()
    return sorted(
        (int(file.name[:3]), file.read_text("utf-8")) for file in scripts if file.name.endswith(".sql")
    )


@cache
def schema(dialect: str) -> str:
    """What all migrations together make of an empty database."""
    return str((_folder(dialect) / "schema.sql").read_text("utf-8"))


def owed(dialect: str, done: int) -> list[tuple[int, str]]:
    """The migrations that a database lacks. A new one gets today's schema at once, which takes a sixth of the time."""
    every = migrations(dialect)
    return [each for each in every if each[0] > done] if done else [(every[-1][0], schema(dialect))]


def _folder(dialect: str):  # type: ignore[no-untyped-def]  # Traversable moved between modules in 3.11 and 3.14
    return files(f"holdfast.store.{dialect}") / "sql"


def _plain(text: str) -> str:
    """Without comments and line breaks: a driver that caches statements by their text hashes every character on each use."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return " ".join(" ".join(lines).split()).removesuffix(";")
