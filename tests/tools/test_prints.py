"""What tools print on the standard streams of a command."""

from __future__ import annotations

import io

import pytest

from holdfast.tools.prints import Stream
from holdfast.tools.secrets import Secrets

CANARY = "canary-7f3a9b2c1d"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["key=", CANARY, "\n"], "key=***\n"),
        (["key=canary-7", "f3a9b2c1d", "\n"], "key=******\n"),
        (["key=canary-7\n", "f3a9b2c1d\n"], "key=***\n***\n"),
        (["key=canary", "\n", "key=bird\n"], "key=***\nkey=bird\n"),
    ],
    ids=["whole", "in two writes", "in two lines", "a beginning alone"],
)
def test_a_secret_that_is_printed_in_pieces_is_redacted(pieces: list[str], shown: str) -> None:
    stream = Stream(under := io.StringIO(), "stdout", Secrets(known=[CANARY]))
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    assert under.getvalue() == shown
