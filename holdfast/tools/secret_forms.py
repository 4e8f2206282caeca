"""The forms in which a secret value may appear in a text, and one pattern that finds all of them.

Knows how programs write and encode text. Does not know where secrets come from, or what is redacted.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

LINE_CHARS_MIN: Final = 16  # a line of a multi-line secret that is this long is redacted by itself
PLAIN_IN_ADDRESSES: Final = "/?:@!$'()*,;~"  # characters that clients do not escape in a path or query


def forms_of(value: str) -> set[str]:
    """All forms of a value, and of each line of a multi-line one."""
    return {form for part in (value, *_secret_lines(value)) for form in _ways_to_write(part)}


def one_pattern(forms: Iterable[str]) -> str:
    """All forms as one pattern, the longest first where one is part of another. They are grouped by their first two
    characters, so that at most places of a text little is compared."""
    grouped: dict[str, dict[str, list[str]]] = {}
    for form in sorted(forms, key=len, reverse=True):
        grouped.setdefault(form[0], {}).setdefault(form[1], []).append(re.escape(form[2:]))
    firsts = []
    for first, seconds in grouped.items():
        inner = "|".join(f"{re.escape(second)}(?:{'|'.join(rest)})" for second, rest in seconds.items())
        firsts.append(f"{re.escape(first)}(?:{inner})")
    return "|".join(firsts)


def _secret_lines(value: str) -> list[str]:
    """The lines of a secret such as a private key, which tools may print one by one; not its first and last line."""
    lines = value.splitlines() if "\n" in value else ()
    return [line for line in lines if len(line) >= LINE_CHARS_MIN and not line.startswith("-----")]


def _ways_to_write(value: str) -> set[str]:
    raw = value.encode("utf-8", "replace")
    return (
        _escaped(value, raw)
        | _in_addresses(value, raw)
        | _in_html(value)
        | _in_hexadecimal(raw)
        | _in_utf16(value)
        | _in_base64(value, raw)
    )


def _each(value: str, *patterns: str) -> set[str]:
    """Every character written by its number."""
    return {"".join(pattern.format(ord(character)) for character in value) for pattern in patterns}


def _in_utf16(value: str) -> set[str]:
    """In UTF-16, in hexadecimal and base64, as Windows programs and PowerShell write it."""
    found = set[str]()
    for name in ("utf-16-le", "utf-16-be"):
        raw = value.encode(name, "replace")
        found |= {raw.hex(), raw.hex().upper(), *_cores(raw)}
    return found


def _escaped(value: str, raw: bytes) -> set[str]:
    """Unchanged, and escaped as in JSON, Python or a shell. An error that quotes JSON escapes it a second time."""
    in_json = json.dumps(value, ensure_ascii=False)[1:-1]
    return {
        value,
        in_json,
        json.dumps(value)[1:-1],
        json.dumps(in_json, ensure_ascii=False)[1:-1],
        in_json.replace("/", "\\/"),
        repr(value)[1:-1],
        repr(repr(value)[1:-1])[1:-1],
        ascii(value)[1:-1],
        repr(raw)[2:-1],
        *_each(value, "\\u{:04x}", "\\u{:04X}", "\\u{{{:x}}}"),
        "".join(f"\\{byte:03o}" for byte in raw),
        value.replace("'", "'\"'\"'"),
    }


def _in_addresses(value: str, raw: bytes) -> set[str]:
    found = {
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
        quote(value, safe=PLAIN_IN_ADDRESSES, errors="replace"),
        quote(value, safe=PLAIN_IN_ADDRESSES + "=+&", errors="replace"),
        "".join(f"%{byte:02X}" for byte in raw),
    }
    found |= {re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), form) for form in found}
    return found | {quote(form, safe="") for form in found}  # a URL inside a URL


def _in_html(value: str) -> set[str]:
    return {
        html.escape(value),
        html.escape(value, quote=False),
        html.escape(value).replace("&#x27;", "&#39;"),
        *_each(value, "&#{};", "&#x{:x};", "&#x{:X};", "&#X{:X};", "&#{:03};", "&#x{:04x};"),
    }


def _in_hexadecimal(raw: bytes) -> set[str]:
    found = {raw.hex(), *(raw.hex(between) for between in ": -"), "".join(f"\\x{byte:02x}" for byte in raw)}
    return found | {form.upper() for form in found}


def _in_base64(value: str, raw: bytes) -> set[str]:
    """In base64, alone or inside of a longer text: also as part of JSON that is encoded, encoded a second time, and
    escaped for a URL."""
    in_json = {
        json.dumps(value)[1:-1].encode(),
        json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "replace"),
    }
    once = {core for text in (raw, *in_json) for core in _cores(text)}
    twice = {core for text in once for core in _cores(text.encode())}
    found = once | {core.replace("+", "-").replace("/", "_") for core in once} | twice
    return found | {core.replace("/", "\\/") for core in once} | {quote(core, safe="") for core in once}


def _cores(raw: bytes) -> set[str]:
    """The characters that the bytes alone decide, for each of the three places where they can begin in a group of three
    bytes. The first and last may hold bits of what stands beside them, and are left out."""
    found = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw + bytes(3)).decode()
        found.add(text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6])
    return found
