"""Answers within a limit of tokens."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest
from holdfast.mcp.answers import fitted


def test_a_small_answer_is_whole() -> None:
    assert fitted({"a": 1}, 100) == ('{"a":1}', {"a": 1})


@given(st.text(min_size=1_000, max_size=5_000), st.integers(100, 400))
def test_the_parts_of_a_large_answer_are_its_text(text: str, tokens: int) -> None:
    data, cursor, parts = {"text": text}, None, []
    while True:
        raw, part = fitted(data, tokens, cursor)
        if "part" not in part:
            return  # it was small enough
        assert len(raw.encode()) <= tokens * 4
        parts.append(part["part"])
        cursor = part["cursor"]
        if cursor is None:
            break
    assert msgspec.json.decode("".join(parts)) == data


def test_a_part_uses_most_of_its_room_also_where_quotes_double() -> None:
    raw, part = fitted({"text": '"' * 50_000}, 2_000)
    assert 7_000 < len(raw) <= 8_000 and len(part["part"]) > 3_000
    raw, part = fitted({"text": "x" * 5_000}, 100)
    assert len(raw) <= 400 and len(part["part"]) > 200


@pytest.mark.parametrize("cursor", ["at-", "at-x", "12", "at--1", "at-" + "9" * 20])
def test_a_cursor_that_was_made_up_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        fitted({"a": 1}, 100, cursor)
