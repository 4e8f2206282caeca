"""ARCHITECTURE.md names files by hand: they must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
HOW_TO_ADD = re.search(r"^## How to add …\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:holdfast|tests|docs)/[\w./-]+)`")
ROOMS = "|".join(path.name for path in (ROOT / "holdfast").iterdir() if (path / "__init__.py").exists())
MODULE = re.compile(rf"`((?:{ROOMS})/[\w/]+)")
METHODS_OF_MCP = {"tools/call", "tools/list"}


@pytest.mark.parametrize("name", sorted(set(NAMED.findall(TEXT))))
def test_a_file_that_the_architecture_names_exists(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("name", sorted(set(MODULE.findall(TEXT)) - METHODS_OF_MCP))
def test_a_module_that_the_architecture_names_exists(name: str) -> None:
    found = ROOT / "holdfast" / name
    assert found.is_dir() or any(found.parent.glob(f"{found.name}.*"))


def test_how_to_add_covers_every_kind_of_extension() -> None:
    assert HOW_TO_ADD is not None
    titles = re.findall(r"^\*\*(.+?)\*\*", HOW_TO_ADD[1], re.MULTILINE)
    assert titles == ["A step kind", "A field of a commit, or a table", "A store", "A trigger kind", "A route",
                      "A screen of the page", "A service", "A setting", "A limit", "A CLI command", "A built-in tool", "A tool of the MCP server"]  # fmt: skip


def files_for(title: str) -> set[str]:
    """The files of holdfast/ that the page names for one kind of extension."""
    assert HOW_TO_ADD is not None
    part = re.search(rf"^\*\*{title}\*\*(.*?)(?=^\*\*|\Z)", HOW_TO_ADD[1], re.MULTILINE | re.DOTALL)
    assert part is not None
    return {name for name in NAMED.findall(part[1]) if name.startswith("holdfast/")}


def files_that_name(*words: str) -> set[str]:
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "holdfast").rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    }


@pytest.mark.parametrize("record", ["ApproveBody", "WaitEventBody", "PollBody", "RemoteBody"])
def test_only_the_files_for_a_step_kind_name_the_record_of_a_step(record: str) -> None:
    assert files_that_name(record) <= files_for("A step kind")


def test_only_the_files_for_a_trigger_kind_name_the_record_of_a_trigger_with_a_clock() -> None:
    assert files_that_name("IntervalTrigger", "AtTrigger") <= files_for("A trigger kind")


def test_only_the_table_of_fields_and_the_sql_files_name_a_plain_statement_of_a_commit() -> None:
    assert files_that_name("put_trace", "put_artefact") <= files_for("A field of a commit, or a table")
