"""How deep a JSON text nests, and how many members its objects have, found without reading it into objects.

Knows brackets, colons, strings and escapes, nothing else of JSON. Must stay cheap for any text, since it reads
requests before they are parsed: the text is taken in chunks, and each step below is one call of the interpreter's C
code for a whole chunk, never one per character.

    chunk ─► without escapes ─► marks and quotes ─► without strings ─► eight brackets to a byte ─► depths

A pass in C takes about 1 ns per byte, and one object of Python 20 ns: there is no object for each string or bracket.

For a text that is not JSON the answer is about the part before its first mistake, which is all that a parser reads.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from codecs import escape_decode
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

import msgspec

CHUNK: Final = 32 * 1024
TOKENS_MAX: Final = 300_000  # read one by one while a text is cut: 0.1 s
INNER: Final = 2  # the depth within a member of the outermost array or object
_LIMIT_MAX: Final = 100  # a depth, and what one byte of brackets adds to it, fit into seven bits


def is_deeper(text: bytes, limit: int) -> bool:
    """Does the text nest deeper than this? Stops at the first bracket that does."""
    assert limit <= _LIMIT_MAX
    if len(text) <= CHUNK and text.count(b"[") + text.count(b"{") <= limit:
        return False  # nearly every value
    depth, pending, quoted = 0, b"", False
    for chunk in _chunks(text):
        outside, quoted = _BRACKETS.outside(chunk, quoted)
        brackets = pending + outside
        whole = len(brackets) & ~7
        after = _depth_after(brackets[:whole], depth, limit)
        if after is None:
            return _is_deeper(brackets, depth, limit)
        depth, pending = after, brackets[whole:]
    return _is_deeper(pending, depth, limit)


def count_members(text: bytes) -> int:
    """The total number of members of all objects in a JSON text: one for each colon outside strings."""
    return _count(text, _COLONS)


def count_commas(text: bytes, most: int) -> int:
    """The number of commas outside strings, which is nearly the number of values; where it exceeds `most`, only that it does."""
    return _count(text, _COMMAS, most)


def _count(text: bytes, marks: _Marks, most: float = inf) -> int:
    count, quoted = 0, False
    for chunk in _chunks(text):
        found, quoted = marks.outside(chunk, quoted)
        count += len(found)
        if count > most:
            break
    return count


def has_few_members(text: bytes, most: int) -> bool:
    """Has the outermost array or object at most this many members? The answer may be no for one that has fewer, never yes for one
    that has more: commas are counted in every chunk that reaches the outermost level."""
    if text.count(b",") < most:
        return True
    depth, quoted, commas = 0, False, 0
    for chunk in _chunks(text):
        brackets, quoted = _BRACKETS.outside(chunk, quoted)
        whole = brackets + _OPEN * (-len(brackets) % 8)
        if depth < INNER or _depth_after(whole, depth - INNER, _LIMIT_MAX) is None:
            commas += chunk.count(b",")
            if commas >= most:
                return False
        depth += 2 * brackets.count(_OPEN) - len(brackets)
    return True


def cuts(text: bytes, spacing: int) -> Iterator[int]:
    """Offsets of commas between members of the outermost array or object, at least `spacing` bytes apart.

    Few of the commas are looked for: the depth at the beginning of a chunk is known, and the next comma at the outermost level is
    usually near. There may be fewer cuts than could be, in a text whose members are large and made of many small values.
    """
    depth, quoted, at, due, tokens = 0, False, 0, spacing, TOKENS_MAX
    for chunk in _chunks(text):
        end = at + len(chunk)
        if at >= due and tokens > 0:
            found, read = _next_comma(text, at, end, depth, quoted)
            tokens -= read
            if found is not None:
                yield found
                due = found + spacing
        brackets, quoted = _BRACKETS.outside(chunk, quoted)
        depth += 2 * brackets.count(_OPEN) - len(brackets)
        at = end


def few_members(text: bytes, most: int) -> dict[str, bytes] | None:
    """The members of a compact object, each as its text; None if there are more than `most`, or if it is something else."""
    if text[:1] != b"{" or text == b"{}":
        return {} if text == b"{}" else None
    found, begin = dict[str, bytes](), 1
    for end in (*_outer_commas(text, most), len(text) - 1):
        key = _TOKEN.match(text, begin)
        if key is None or text[key.end() : key.end() + 1] != b":" or len(found) == most:
            return None
        found[msgspec.json.decode(key[0], type=str)] = text[key.end() + 1 : end]
        begin = end + 1
    return found


def _outer_commas(text: bytes, most: int) -> list[int]:
    """The offsets of the first `most` commas between members of the outermost object. Chunks within one member are not searched."""
    depth, quoted, at, found = 0, False, 0, list[int]()
    for chunk in _chunks(text):
        brackets, is_quoted = _BRACKETS.outside(chunk, quoted)
        whole = brackets + _OPEN * (-len(brackets) % 8)
        end = at + len(chunk)
        if depth < INNER or _depth_after(whole, depth - INNER, _LIMIT_MAX) is None:
            reached, inner, within = at, depth, quoted
            while len(found) < most:
                comma, _ = _next_comma(text, reached, end, inner, within)
                if comma is None:
                    break
                found.append(comma)
                reached, inner, within = comma + 1, 1, False
        depth += 2 * brackets.count(_OPEN) - len(brackets)
        at, quoted = end, is_quoted
    return found


# A string may go on after the part that is searched.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)|[\[\]{},]', re.DOTALL)
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def _next_comma(text: bytes, at: int, end: int, depth: int, quoted: bool) -> tuple[int | None, int]:
    """The first comma of the outermost level between two offsets, and how many tokens were read for it."""
    if quoted:
        rest = _REST_OF_STRING.match(text, at, end)
        if rest is None:
            return None, 1
        at = rest.end()
    read = 0
    for read, token in enumerate(_TOKEN.finditer(text, at, end), 1):
        kind = text[token.start()]
        if kind in b"[{":
            depth += 1
        elif kind in b"]}":
            depth -= 1
        elif kind == ord(",") and depth == 1:
            return token.start(), read
    return None, read


# ------------------------------------------------------------------------------------------- what counts

_OPEN, _CLOSE = b"1", b"0"


class _Marks:
    """Characters that count, and what they become.

    Where there are escapes, all characters first become letters that Python's own escapes know: decoding those turns
    whatever follows a backslash into a control character, and leaves the rest as it is.
    """

    def __init__(self, shown: dict[bytes, bytes]) -> None:
        classes = (b'"', *shown)
        letters = [b"a", b"b", b"f"][: len(classes)]
        escapable = bytearray(b"n" * 256)
        for letter, characters in zip(letters, classes, strict=True):
            for character in characters:
                escapable[character] = letter[0]
        escapable[ord("\\")] = ord("\\")
        self.escapable = bytes(escapable)
        self.plain, self.escaped = _Tables(classes, shown.values()), _Tables(letters, shown.values())

    def outside(self, chunk: bytes, quoted: bool) -> tuple[bytes, bool]:
        """The marks of a chunk that are outside strings, and whether it ends inside one. `quoted`: it begins inside a string."""
        if b"\\" in chunk:
            return self.escaped.outside(escape_decode(chunk.translate(self.escapable))[0], quoted)
        return self.plain.outside(chunk, quoted)


class _Tables:
    """Finds marks outside strings in a chunk without escapes, in a number of calls that does not depend on the chunk.

    As UTF-8, a quote is one byte and any other mark two. So each quote moves what follows by one byte: the first bytes of
    the marks outside strings stand at even offsets, and those of the marks inside at odd ones.
    """

    def __init__(self, classes: Iterable[bytes], shown: Iterable[bytes]) -> None:
        self.quote, *marks = classes
        one, two, first = bytearray(256), bytearray(256), bytearray(256)
        one[self.quote[0]], two[self.quote[0]] = ord('"'), ord('"')
        for characters, mark, letter in zip(marks, shown, "\x80\xc0", strict=False):
            for character in characters:
                one[character], two[character] = mark[0], ord(letter)
            first[letter.encode()[0]] = mark[0]
        self.one, self.two, self.first = bytes(one), bytes(two), bytes(first)
        self.others, self.rest = (bytes(byte for byte in range(256) if not of[byte]) for of in (one, first))

    def outside(self, chunk: bytes, quoted: bool) -> tuple[bytes, bool]:
        if self.quote not in chunk:
            return b"" if quoted else chunk.translate(self.one, self.others), quoted
        both = chunk.translate(self.two, self.others)
        pairs = both.decode("latin-1").encode()
        is_odd = len(pairs) % 2 != 0  # by its quotes alone: a mark is two bytes
        return pairs[quoted::2].translate(self.first, self.rest), quoted != is_odd


_BRACKETS: Final = _Marks({b"[{": _OPEN, b"]}": _CLOSE})
_COLONS: Final = _Marks({b":": b":"})
_COMMAS: Final = _Marks({b",": b","})


def _chunks(text: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        chunk = _chunk(text, at)
        at += len(chunk)
        yield chunk


def _chunk(text: bytes, at: int) -> bytes:
    """A chunk does not end within an escape."""
    chunk = text[at : at + CHUNK]
    if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 == 0:
        return chunk
    return chunk + (text[at + CHUNK : at + CHUNK + 1] or b"\\")


# ------------------------------------------------------------------------------------------ how deep it is


def _packing(values: int) -> bytes:
    """Bytes of two digits below `values` become one digit."""
    table = bytearray(256)
    for high in range(values):
        for low in range(values):
            table[high << 4 | low] = b"0123456789abcdef"[high * values + low]
    return bytes(table)


def _extremes(brackets: int) -> tuple[int, int]:
    """How far the depth rises above and falls below what it was, within eight brackets."""
    depth = peak = dip = 0
    for bit in range(7, -1, -1):
        depth += 1 if brackets >> bit & 1 else -1
        peak, dip = max(peak, depth), max(dip, -depth)
    return peak, dip


_PAIRS, _FOURS = _packing(2), _packing(4)
_OPENED_TWICE: Final = bytes(2 * byte.bit_count() for byte in range(256))  # 8 more than the depth changes
_PEAK, _DIP = map(bytes, zip(*map(_extremes, range(256)), strict=True))


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
    lowest = before - int.from_bytes(eights.translate(_DIP), "little")
    outside = before | lowest | (highest + (127 - limit) * ones)
    return None if after < 0 or outside & (ones << 7) else after


def _lowest(brackets: bytes, depth: int) -> int:
    lowest = depth
    for bracket in brackets:
        depth += 1 if bracket == _OPEN[0] else -1
        lowest = min(lowest, depth)
    return lowest


def _is_deeper(brackets: bytes, depth: int, limit: int) -> bool:
    """The same, one by one: do they go over the limit before they close more than was opened?"""
    for bracket in brackets:
        depth += 1 if bracket == _OPEN[0] else -1
        if depth < 0 or depth > limit:
            return depth > limit
    return False
