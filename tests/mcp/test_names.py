"""How workflows are called as tools."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.mcp.names import tool_name
from holdfast.runtime.rights import matches

FITS = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


@pytest.mark.parametrize("name", ["hello", "a.b-c_D9", "x" * 64])
def test_a_name_that_is_a_tool_name_stays(name: str) -> None:
    assert tool_name(name) == name


@given(st.text(min_size=1, max_size=200))
def test_every_name_is_spelled_as_a_tool_name(name: str) -> None:
    assert FITS.match(tool_name(name))


def test_two_names_that_differ_only_in_other_characters_stay_apart() -> None:
    first, second = tool_name("skill::a b"), tool_name("skill::a/b")
    assert first != second
    assert first.startswith("skill_a_b_")


def test_a_workflow_that_is_called_like_a_tool_of_ours_is_spelled() -> None:
    assert tool_name("workflows_run", {"workflows_run"}) != "workflows_run"


@pytest.mark.parametrize(
    ("name", "patterns", "fits"),
    [
        ("report", ["*"], True),
        ("report", ["rep*"], True),
        ("report", ["x", "r?port"], True),
        ("report", ["Rep*"], False),
    ],
)
def test_patterns_name_workflows_as_files_are_named(name: str, patterns: list[str], fits: bool) -> None:
    assert matches(name, patterns) is fits
