"""Answers of many megabytes: they are taken as text, read in a process of their own, and mean the same as small ones."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.errors import InvalidRequest
from holdfast.http.json_body import read_large_members, read_members
from holdfast.plan.answers import head_of
from holdfast.runtime.apart import LARGE_BYTES

FILLING = b'"' + b"x" * LARGE_BYTES + b'"'


def read(body: bytes) -> dict[str, Any]:
    return {key: member.text for key, member in asyncio.run(read_large_members(body)).items()}


def test_a_large_body_is_read_as_a_small_one_is() -> None:
    small = b'{ "task_id": "t\\u0031", "data": [ 1, {"a": 1.0e2, "b": "\\/"} ], "none": null'
    large = read(small + b', "filling": ' + FILLING + b"}")
    assert large.pop("filling") == FILLING
    assert large == {key: member.text for key, member in read_members(small + b"}").items()}
    assert large["data"] == b'[1,{"a":100.0,"b":"/"}]'


@pytest.mark.parametrize(
    "beside",
    [b'"a": 1, "a": 2', b'"a": [1,]', b'"a": ' + b"[" * 65 + b"]" * 65, b'"a": 1e999', b'"a": "\\ud800"', b'"a": "\xff"'],
)  # fmt: skip
def test_a_large_body_is_refused_for_what_a_small_one_is_refused_for(beside: bytes) -> None:
    with pytest.raises((InvalidRequest, msgspec.DecodeError, UnicodeDecodeError)):
        read_members(b"{" + beside + b"}")
    with pytest.raises(InvalidRequest):
        read(b"{" + beside + b', "filling": ' + FILLING + b"}")


def test_a_large_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="object"):
        read(b"[" + FILLING + b"]")


def test_what_an_answer_says_of_itself_is_found_without_decoding_the_rest() -> None:
    text = b'{"data":[[[]]],"success":false,"error":{"kind":"k","message":"m"},"pending":true}'
    assert head_of(text) == {"success": False, "error": {"kind": "k", "message": "m"}, "pending": True}
    assert head_of(b'["pending"]') is None


def test_a_large_member_is_shown_by_its_beginning() -> None:
    head = head_of(b'{"error":' + FILLING + b"}")
    assert head is not None
    assert head["error"].startswith('"xxx')
    assert len(head["error"]) < LARGE_BYTES
