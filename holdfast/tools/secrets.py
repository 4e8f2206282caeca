"""Secrets by tenant and name, and their values taken out of whatever is written.

Knows where secrets come from, whose they are, and every value that is configured or was handed out. Must not know the
journal, templates, or which step asked.

The environment's secrets (`HOLDFAST_SECRET_<NAME>`) belong to the tenant `default`; another tenant has those of them
that the operator lists for it, and what a provider returns for the tenant.
"""

from __future__ import annotations

import base64
import html
import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from holdfast.values import DEFAULT_TENANT

REDACTED: Final = "***"
REDACTED_CHARS_MIN: Final = 6  # to take a shorter one out of every text would take words apart
REMEMBERED_MAX: Final = 1_000  # values; beyond it the oldest, long since rotated, is dropped
LOOKED_AT_ONCE_BYTES: Final = (
    1024 * 1024
)  # the search holds the interpreter; other threads get their turn in between
FORM_BYTES_MAX: Final = 24  # for a character of a value: "%25F0%259F%2598%2580" is 20
LINE_CHARS_MIN: Final = 16  # of a secret of several lines, a line of this length is kept secret by itself
OURS: Final = "HOLDFAST_"
PLAIN_IN_ADDRESSES: Final = "/?:@!$'()*,;~"  # what clients leave as it is in a path or query
VARIABLE: Final = "HOLDFAST_SECRET_"

# Called with the name, and with `tenant=` if it has such a parameter; without one it knows secrets of `default` alone.
Provider = Callable[..., str | None]


class SecretUnavailable(Exception):
    """There is no such secret, or its provider failed. The message holds no value."""

    kind = "secret"


def from_environment(name: str) -> str | None:
    """`HOLDFAST_SECRET_<NAME>`, as written or in capitals. An empty one counts as missing."""
    return os.environ.get(VARIABLE + name) or os.environ.get(VARIABLE + name.upper()) or None


class Secrets:
    """Asks the providers in turn; the environment is the last.

    `tenants` are the environment's secrets that each other tenant may use; `callback_env` the plain variables that sign
    callbacks of `default` on a guarded server; `known` are values that are never handed out, and redacted like those
    that are.
    """

    def __init__(
        self,
        providers: Iterable[Provider] = (),
        *,
        tenants: Mapping[str, Collection[str]] | None = None,
        callback_env: Collection[str] = (),
        known: Iterable[str | None] = (),
    ) -> None:
        self._providers = [(provider, _is_told_the_tenant(provider)) for provider in providers]
        self._tenants, self._callback_env = dict(tenants or {}), frozenset(callback_env)
        self.is_guarded = False  # then a plain variable signs nothing unless the operator lists it
        self._values: dict[str, None] = {}
        self._text: re.Pattern[str] | None = None  # all forms of all values; made when it is first needed
        self._json: re.Pattern[bytes] | None = None
        self.are_known = False  # is there any value that must not be written?
        listed = (os.environ.get(name) for name in self._callback_env)
        environment = (value for name, value in os.environ.items() if name.startswith(VARIABLE))
        for value in (*environment, *listed, *known):
            self._remember(value or "")

    # --------------------------------------------------------------------------------------------- handing out

    def get(self, name: str, tenant: str = DEFAULT_TENANT) -> str | None:
        for provider, is_told in self._providers:
            if is_told or tenant == DEFAULT_TENANT:
                value = _asked(provider, name, {"tenant": tenant} if is_told else {})
                if value:
                    return self._remember(value)
        listed = self._tenants.get(tenant, ())
        if tenant != DEFAULT_TENANT and name not in listed:
            name = name.upper()  # as the environment is asked, but never for a variable that is not listed
            if name not in listed:
                return None
        return self._remember(from_environment(name) or "") or None

    def require(self, name: str, tenant: str = DEFAULT_TENANT) -> str:
        value = self.get(name, tenant)
        if value is None:
            raise SecretUnavailable(f"there is no secret {name!r}{self._hint(name, tenant)}")
        return value

    def _hint(self, name: str, tenant: str) -> str:
        if tenant == DEFAULT_TENANT:
            return f"; set {VARIABLE}{name} or add a provider that has it"
        if name in self._tenants.get(tenant, ()):
            return f" of tenant {tenant!r}; set {VARIABLE}{name} where the engine runs"
        return (
            f" of tenant {tenant!r}; the operator lists it under [tenants.{tenant}] secrets in holdfast.toml"
        )

    def for_callback(self, name: str, tenant: str = DEFAULT_TENANT) -> str:
        """What `secret_env` of a callback names: a secret of the tenant. A plain variable of the environment, for `default`
        alone, in local mode or if the operator lists it; it may be guessed from what it signs, so none of our own."""
        value = self.get(name, tenant)
        is_open = tenant == DEFAULT_TENANT and (not self.is_guarded or name in self._callback_env)
        if value is None and is_open and not name.startswith(OURS):
            value = self._remember(os.environ.get(name, "")) or None
        if value is None:
            plain = f", or set {name} itself" if is_open else ""
            raise SecretUnavailable(
                f"secret_env: there is no secret {name!r}{self._hint(name, tenant)}{plain}"
            )
        return value

    def environment(self) -> dict[str, str]:
        """The environment without Holdfast's own variables and without any that holds a known value: what a process that
        runs a tool is given. A secret that the tool needs is an argument of its step."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OURS) and name not in self._callback_env and self.redact(value) == value
        }

    # ----------------------------------------------------------------------------------------------- redaction

    def redact(self, text: str) -> str:
        """The text with every known value replaced, however it is written: see `_ways_to_write`."""
        if not self.are_known:
            return text
        # Tools log from their own threads, and meanwhile the loop may learn another value.
        pattern = self._text
        if pattern is None:
            pattern = self._text = re.compile(_one_pattern(self._forms()))
        text = pattern.sub(REDACTED, text)
        return _redacted_across_lines(text, pattern) if "\n" in text else text

    def redact_json(self, text: bytes) -> bytes:
        """JSON text with every known value replaced, inside of strings, keys and numbers. It stays JSON."""
        if not self.are_known or not self._is_in(text):
            return text
        return msgspec.json.encode(self._redacted(msgspec.json.decode(text)))

    def redact_value(self, value: Any) -> Any:
        """A JSON value that came from outside, with every known value replaced."""
        return self._redacted(value) if self.are_known else value

    def _is_in(self, text: bytes) -> bool:
        pattern = self._json
        if pattern is None:
            escaped = {msgspec.json.encode(form)[1:-1].decode("latin-1") for form in self._forms()}
            pattern = self._json = re.compile(_one_pattern(escaped).encode("latin-1"))
        step = LOOKED_AT_ONCE_BYTES
        if len(text) <= step:
            return _finds(pattern, text)
        longest = max(map(len, list(self._values))) * FORM_BYTES_MAX
        return any(_finds(pattern, text[at : at + step + longest]) for at in range(0, len(text), step))

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self._redacted(part) for part in value]
        if isinstance(value, dict):
            return {self.redact(key): self._redacted(part) for key, part in value.items()}
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = msgspec.json.encode(value).decode()
            return REDACTED if self.redact(written) != written else value
        return value

    def _forms(self) -> set[str]:
        parts = (part for value in list(self._values) for part in (value, *_secret_lines(value)))
        return {form for part in parts for form in _ways_to_write(part)}

    def _remember(self, value: str) -> str:
        if value not in self._values and len(value) >= REDACTED_CHARS_MIN:
            if len(self._values) >= REMEMBERED_MAX:
                del self._values[next(iter(self._values))]
            self._values[value] = None
            self._text = self._json = None
            self.are_known = True
        return value


def _is_told_the_tenant(provider: Provider) -> bool:
    try:
        return "tenant" in inspect.signature(provider).parameters
    except (TypeError, ValueError):  # some functions written in C do not say what they take
        return False


def _asked(provider: Provider, name: str, told: dict[str, str]) -> str | None:
    try:
        value = provider(name, **told)
    except Exception as error:  # its words may hold what it should have kept
        raise SecretUnavailable(
            f"the provider of the secret {name!r} failed with {type(error).__name__}"
        ) from None
    if value is not None and not isinstance(value, str):
        raise SecretUnavailable(f"the secret {name!r} is not text but {type(value).__name__}")
    return value


# --------------------------------------------------------------------------------------------------------- lines


def _finds(pattern: re.Pattern[bytes], text: bytes) -> bool:
    """Is there a value in JSON text, perhaps with ends of lines in it?"""
    if pattern.search(text):
        return True
    return b"\\n" in text and bool(pattern.search(text.replace(b"\\r", b"").replace(b"\\n", b"")))


def _redacted_across_lines(text: str, pattern: re.Pattern[str]) -> str:
    """Encoded text is often broken into lines of 64 or 76 characters, wherever in it a value stands."""
    joined = text.replace("\r", "").replace("\n", "")
    if not pattern.search(joined):
        return text
    places = [at for at, character in enumerate(text) if character not in "\r\n"]
    parts, at = [], 0
    for found in pattern.finditer(joined):
        parts += [text[at : places[found.start()]], REDACTED]
        at = places[found.end() - 1] + 1
    return "".join((*parts, text[at:]))


def _secret_lines(value: str) -> list[str]:
    """The lines of a secret such as a private key, which tools may print one by one; not those around it."""
    lines = value.splitlines() if "\n" in value else ()
    return [line for line in lines if len(line) >= LINE_CHARS_MIN and not line.startswith("-----")]


# ----------------------------------------------------------------------------------------------------- the forms


def _ways_to_write(value: str) -> set[str]:
    """As it is; escaped as in JSON, Python, HTML or an address; in base64 wherever it begins in what was encoded; in
    hexadecimal."""
    in_json = json.dumps(value, ensure_ascii=False)[1:-1]
    in_ascii = json.dumps(value)[1:-1]
    in_python = repr(value)[1:-1]
    raw = value.encode("utf-8", "replace")
    in_address = {
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
        quote(value, safe=PLAIN_IN_ADDRESSES, errors="replace"),
        quote(value, safe=PLAIN_IN_ADDRESSES + "=+&", errors="replace"),
        "".join(f"%{byte:02X}" for byte in raw),
    }
    in_address |= {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in in_address}
    in_address |= {quote(form, safe="") for form in in_address}  # an address inside an address
    in_html = {
        html.escape(value),
        html.escape(value, quote=False),
        html.escape(value).replace("&#x27;", "&#39;"),
    }
    # What is escaped once is often quoted in a text that is escaped again: an error that repeats JSON, for one.
    in_json_twice = json.dumps(in_json, ensure_ascii=False)[1:-1]
    in_hex = {raw.hex(), *(raw.hex(between) for between in ": -")}
    in_hex |= {form.upper() for form in in_hex}
    plain = {value, in_json, in_ascii, in_python, in_json_twice, in_json.replace("/", "\\/")}
    return plain | in_address | in_html | in_hex | _in_base64(raw)


def _in_base64(raw: bytes) -> set[str]:
    """The characters that the value alone decides, for each of the three places where it can begin in a group of three
    bytes. The first and last may hold bits of what stands beside it, and are left out."""
    found = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw + bytes(3)).decode()
        core = text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        found |= {core, core.replace("+", "-").replace("/", "_"), core.replace("/", "\\/")}
    return found


def _one_pattern(forms: Iterable[str]) -> str:
    """All forms as one pattern, the longest first where one is part of another. Parted by their first two characters, so
    that at most places of a text little is compared."""
    parted: dict[str, dict[str, list[str]]] = {}
    for form in sorted(forms, key=len, reverse=True):
        parted.setdefault(form[0], {}).setdefault(form[1], []).append(re.escape(form[2:]))
    firsts = []
    for first, seconds in parted.items():
        inner = "|".join(f"{re.escape(second)}(?:{'|'.join(rest)})" for second, rest in seconds.items())
        firsts.append(f"{re.escape(first)}(?:{inner})")
    return "|".join(firsts)
