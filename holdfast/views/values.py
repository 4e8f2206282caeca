"""How much of a value a reader gets: all of it, the first part of its text, or nothing."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.engine.codec import blob_of
from holdfast.runtime.load import whole
from holdfast.store.base import Store
from holdfast.values import NULL, RunNo

HEAD_BYTES: Final = 2_048

Values = Literal["all", "head", "none"]


class Head(msgspec.Struct, frozen=True):
    """The first part of a value's JSON text. `bytes` is the length of all of it; None if it was not computed."""

    text: str
    bytes: int | None


GATHERED: Final = Head("", None)  # of the output of a scope, which is gathered from the steps inside it


async def part_of(
    store: Store, no: RunNo, value: msgspec.Raw, values: Values
) -> tuple[msgspec.Raw, Head | None]:
    """Return a stored value as far as it is wanted: the value, or null and its head."""
    if values == "none":
        return NULL, None
    if values == "all":
        return await whole(store, no, value), None
    sha256 = blob_of(value)
    if sha256 is not None:
        head, size = await store.blob_head(no, sha256, HEAD_BYTES)
        return NULL, Head(head.decode(errors="ignore"), size)
    return cut(value)


def cut(value: msgspec.Raw) -> tuple[msgspec.Raw, Head | None]:
    """Return a value if it is short, else null and its head."""
    text = bytes(value)
    if len(text) <= HEAD_BYTES:
        return value, None
    return NULL, Head(text[:HEAD_BYTES].decode(errors="ignore"), len(text))
