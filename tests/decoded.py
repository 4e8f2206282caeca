"""How much JSON this process decodes: a large value is to stay text, or be read in another process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import values


@contextmanager
def sizes_decoded() -> Iterator[list[int]]:
    """The sizes of all texts that the package decodes in this process into plain objects, as long as this is open."""
    sizes: list[int] = []
    decode = values.decode

    def noting(text: Any) -> Any:
        sizes.append(len(text))
        return decode(text)

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("holdfast.") and getattr(module, "decode", None) is decode:
                patch.setattr(module, "decode", noting)
        yield sizes
