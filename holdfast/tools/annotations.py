"""What the author of a tool declares about its effects. Plans and interfaces read it; calls are not affected."""

from __future__ import annotations

import msgspec


class Annotations(msgspec.Struct, frozen=True):
    """`destructive`: it deletes or overwrites data for good, or has an outside effect that cannot be undone.
    `read_only`: it changes nothing. `idempotent`: a second call with the same arguments changes nothing more. None: not declared."""

    destructive: bool | None = None
    read_only: bool | None = None
    idempotent: bool | None = None

    def __post_init__(self) -> None:
        if self.destructive and self.read_only:
            raise ValueError(
                "a tool that changes nothing is not destructive: leave one of destructive and read_only out"
            )


UNSAID = Annotations()
