"""What the author of a tool says about its effects. Read by plans and by interfaces; changes nothing about a call."""

from __future__ import annotations

import msgspec


class Annotations(msgspec.Struct, frozen=True):
    """`destructive`: it deletes or overwrites what cannot be brought back, or acts outside where it cannot be undone.
    `read_only`: it changes nothing. `idempotent`: a second call with the same arguments changes nothing more. None: not said."""

    destructive: bool | None = None
    read_only: bool | None = None
    idempotent: bool | None = None

    def __post_init__(self) -> None:
        if self.destructive and self.read_only:
            raise ValueError(
                "a tool that changes nothing is not destructive: leave one of destructive and read_only out"
            )


UNSAID = Annotations()
