"""Payloads become inputs: small ones here, larger ones in a thread, the largest in a process of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import LimitExceeded
from holdfast.runtime.apart import LARGE_BYTES
from holdfast.schedule.template import Rendered
from holdfast.triggers.payloads import SMALL_BYTES, InvalidPayload, rendered
from tests.small_limits import with_limits

pytestmark = pytest.mark.anyio
SIZES = [0, SMALL_BYTES, LARGE_BYTES]  # more than each


def text(size: int, **members: Any) -> bytes:
    return json.dumps({**members, "filling": "x" * size}).encode()


@pytest.mark.parametrize("size", SIZES)
async def test_a_payload_of_any_size_is_filled_in(size: int) -> None:
    inputs = {"a": "{{trigger.payload.n}}", "b": "{{trigger.kind}} {{trigger.payload.none}}"}
    made = await rendered(text(size, n=[1, "é"]), inputs, {"kind": "webhook"})
    assert made == Rendered(
        {"a": [1, "é"], "b": "webhook {{trigger.payload.none}}"}, ("trigger.payload.none",)
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrong", [b"{", b"\xff", b"NaN", b"[" * 65 + b"]" * 65])
async def test_what_is_not_json_is_refused_at_any_size(size: int, wrong: bytes) -> None:
    with pytest.raises(InvalidPayload):
        await rendered(b" " * size + wrong, {}, {})


@pytest.mark.parametrize("size", SIZES)
async def test_inputs_that_would_be_too_large_are_refused_at_any_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, value_bytes_max=size + 1_024)
    inputs = ["{{trigger.payload}}"] * 40
    with pytest.raises(LimitExceeded, match="value_bytes_max"):
        await rendered(text(size, n="x" * 50), inputs, {})


@pytest.mark.parametrize("given", [b"", b" \r\n\t"])
async def test_an_empty_payload_is_an_empty_object(given: bytes) -> None:
    assert await rendered(given, "{{trigger.payload}}", {}) == Rendered({})
