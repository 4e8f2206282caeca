"""ARCHITECTURE.md names files by hand: they must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
HOW_TO_ADD = re.search(r"^## How to add …\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:holdfast|tests|docs)/[\w./-]+)`")


@pytest.mark.parametrize("name", sorted(set(NAMED.findall(TEXT))))
def test_a_file_that_the_architecture_names_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_how_to_add_covers_every_kind_of_extension() -> None:
    assert HOW_TO_ADD is not None
    titles = re.findall(r"^\*\*(.+?)\*\*", HOW_TO_ADD[1], re.MULTILINE)
    assert titles == ["A step kind", "A field of a commit, or a table", "A store", "A trigger kind", "A route",
                      "A screen of the page", "A service", "A CLI command", "A built-in tool"]  # fmt: skip
