"""How deep a JSON text nests, found without reading it into objects.

Knows brackets, strings and escapes, nothing else of JSON. Must stay cheap for any text, since it looks at requests
before they are parsed: the text is taken in chunks, and each step below is one call of the interpreter's C code
for a whole chunk, never one per character.

    chunk ─► without escapes ─► brackets and quotes ─► without strings ─► eight brackets to a byte ─► depths

For a text that is not JSON the answer is about the part before its first mistake, which is all that a parser reads.
"""

from __future__ import annotations

from binascii import unhexlify
from codecs import escape_decode
from typing import Final

CHUNK: Final = 32 * 1024
_LIMIT_MAX: Final = 100  # a depth, and what one byte of brackets adds to it, fit into seven bits


def is_deeper(text: bytes, limit: int) -> bool:
    """Does the text nest deeper than this? Stops at the first bracket that does."""
    assert limit <= _LIMIT_MAX
    if len(text) <= CHUNK and text.count(b"[") + text.count(b"{") <= limit:
        return False  # nearly every value
    depth, quoted, pending, at = 0, False, b"", 0
    while at < len(text):
        chunk = _chunk(text, at)
        at += len(chunk)
        brackets, quoted = _outside_strings(chunk, quoted)
        brackets = pending + brackets
        whole = len(brackets) & ~7
        pending = brackets[whole:]
        after = _depth_after(brackets[:whole], depth, limit)
        if after is None:
            return _is_deeper(brackets, depth, limit)
        depth = after
    return _is_deeper(pending, depth, limit)


# ------------------------------------------------------------------------------------------- what counts

_OPEN, _CLOSE = b"1", b"0"


def _chunk(text: bytes, at: int) -> bytes:
    """A chunk does not end within an escape."""
    chunk = text[at : at + CHUNK]
    if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 == 0:
        return chunk
    return chunk + (text[at + CHUNK : at + CHUNK + 1] or b"\\")


def _class_table(opening: bytes, closing: bytes, quote: bytes, rest: bytes) -> bytes:
    table = bytearray(rest * 256)
    for characters, shown in ((b"[{", opening), (b"]}", closing), (b'"', quote), (b"\\", b"\\")):
        for character in characters:
            table[character] = shown[0]
    return bytes(table)


_MARKS: Final = _class_table(_OPEN, _CLOSE, b'"', b" ")
_NO_MARK: Final = bytes(set(range(256)) - set(b'[{]}"'))
# Letters that Python's own escapes know: decoding those turns what follows a backslash into a control character,
# and leaves the rest as it is.
_ESCAPABLE: Final = _class_table(b"a", b"b", b"f", b"n")
_UNESCAPED: Final = bytes.maketrans(b"abf", _OPEN + _CLOSE + b'"')
_ESCAPED: Final = bytes(set(range(256)) - set(b"abf"))


def _outside_strings(chunk: bytes, quoted: bool) -> tuple[bytes, bool]:
    """The brackets of a chunk that stand outside strings, as `1` and `0`, and whether it ends inside a string."""
    if b"\\" in chunk:
        marks = escape_decode(chunk.translate(_ESCAPABLE))[0].translate(_UNESCAPED, _ESCAPED)
    else:
        marks = chunk.translate(_MARKS, _NO_MARK)
    if b'"' not in marks:
        return (b"" if quoted else marks), quoted
    # Two quotes beside each other end and begin a string, or begin and end one: neither changes what is inside.
    pieces = marks.replace(b'""', b"").split(b'"')
    return b"".join(pieces[quoted::2]), quoted ^ (len(pieces) % 2 == 0)


# ------------------------------------------------------------------------------------------ how deep it is


def _packing(values: int) -> bytes:
    """Bytes of two digits below `values` become one digit."""
    table = bytearray(256)
    for high in range(values):
        for low in range(values):
            table[high << 4 | low] = b"0123456789abcdef"[high * values + low]
    return bytes(table)


def _peak(brackets: int) -> int:
    depth = peak = 0
    for bit in range(7, -1, -1):
        depth += 1 if brackets >> bit & 1 else -1
        peak = max(peak, depth)
    return peak


_PAIRS, _FOURS = _packing(2), _packing(4)
_OPENED_TWICE: Final = bytes(2 * byte.bit_count() for byte in range(256))  # 8 more than the depth changes
_PEAK: Final = bytes(_peak(byte) for byte in range(256))


def _depth_after(brackets: bytes, depth: int, limit: int) -> int | None:
    """The depth after these brackets, a multiple of eight, or None if it is not between 0 and the limit throughout.

    With one byte for eight brackets, and all the bytes as one long number, the depth before each byte is a digit to
    the base 256 of one quotient: if `before` has those digits and `changes` has the differences, then shifting by
    one digit says `256 * (before + changes) = before - depth + after * 256**count`. The quotient is right where all
    its digits are small: then no digit can have been carried over into the next.
    """
    if not brackets:
        return depth
    eights = unhexlify(unhexlify(unhexlify(brackets).translate(_PAIRS)).translate(_FOURS))
    count = len(eights)
    ones = (1 << 8 * count) // 255  # 0x0101…01
    changes = int.from_bytes(eights.translate(_OPENED_TWICE), "little") - (ones << 3)
    after = depth + 2 * int.from_bytes(eights, "little").bit_count() - len(brackets)
    before = ((after << 8 * count) - depth - (changes << 8)) // 255
    highest = before + int.from_bytes(eights.translate(_PEAK), "little")
    too_large = before | (highest + (127 - limit) * ones)
    return None if after < 0 or too_large & (ones << 7) else after


def _is_deeper(brackets: bytes, depth: int, limit: int) -> bool:
    """The same, one by one: do they go over the limit before they close more than was opened?"""
    for bracket in brackets:
        depth += 1 if bracket == _OPEN[0] else -1
        if depth < 0 or depth > limit:
            return depth > limit
    return False
