"""The framing of server-sent events: what is in a stream does not depend on how it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sdk.sse import MESSAGE_BYTES_MAX, Message, Parser, TooLarge

STREAM = (
    b"retry: 2000\nid: 4\n\n: a comment\n\nid: 4.1\ndata: one\n\r\ndata: two\rdata: lines\r\n\r\n"
    b'event: end\ndata:{"\xc3\xbc": 1}\nid: 5\nunknown: x\n\nid: \ndata\n\n'
)
MESSAGES = [
    Message("4", "message", ""),
    Message("4.1", "message", "one"),
    Message(None, "message", "two\nlines"),
    Message("5", "end", '{"ü": 1}'),
    Message("", "message", ""),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_means_the_same_however_it_is_cut(cuts: list[int]) -> None:
    parser = Parser()
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in pairwise(places)]
    assert [message for chunk in chunks for message in parser.feed(chunk)] == MESSAGES


def test_a_message_without_an_end_is_refused() -> None:
    parser = Parser()
    parser.feed(b"data: " + b"x" * (MESSAGE_BYTES_MAX - 10))
    with pytest.raises(TooLarge):
        parser.feed(b"x" * 10)


@given(st.binary())
def test_no_bytes_break_it(junk: bytes) -> None:
    assert all(isinstance(message, Message) for message in Parser().feed(junk))
