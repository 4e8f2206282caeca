"""Checks that callbacks and approvals share: whether everything so far is durable, and whether an answer can be
stored."""

from __future__ import annotations

from typing import Any

from holdfast import limits
from holdfast.errors import InvalidInputs, LimitExceeded, NodeIsOver, StoreUnavailable
from holdfast.runtime.door import Door
from holdfast.values import JsonText, NotJson, encode


async def all_durable(door: Door) -> None:
    """Wait until everything applied so far is durable; raises if it will not be."""
    await door.caught_up()
    if door.is_over:
        raise NodeIsOver("another process owns this database now")
    if door.is_stalled:
        raise StoreUnavailable("the database cannot be written now; try again")


def answer_text(answer: Any) -> bytes:
    """An answer as JSON text; raises InvalidInputs or LimitExceeded."""
    try:
        text = answer.text if isinstance(answer, JsonText) else encode(answer)
    except NotJson as error:
        raise InvalidInputs(f"the answer is not JSON: {error}") from None
    if len(text) > limits.now.value_bytes_max:
        raise LimitExceeded(
            "input_too_large",
            f"an answer may have at most {limits.size(limits.now.value_bytes_max)}",
            "value_bytes_max",
        )
    return text
