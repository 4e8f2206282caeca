"""Secrets by name, and their values taken out of whatever is written.

Knows providers and the values it handed out. Must not know the journal, templates, or who asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

REDACTED: Final = "***"
REDACTED_CHARS_MIN: Final = 6  # to take a shorter one out of every text would take words apart
REMEMBERED_MAX: Final = 1_000  # values; beyond it the oldest, long rotated away, is forgotten
VARIABLE: Final = "HOLDFAST_SECRET_"

Provider = Callable[[str], str | None]


class SecretUnavailable(Exception):
    """There is no such secret, or its provider failed. The message holds no value."""

    kind = "secret"


def from_environment(name: str) -> str | None:
    """`HOLDFAST_SECRET_<NAME>`, as written or in capitals. An empty one counts as missing."""
    return os.environ.get(VARIABLE + name) or os.environ.get(VARIABLE + name.upper()) or None


class Secrets:
    """Asks the providers in turn; the environment is the last. Remembers what it handed out, to redact it."""

    def __init__(self, providers: Iterable[Provider] = ()) -> None:
        self._providers = (*providers, from_environment)
        self._values: dict[str, tuple[str, ...]] = {}  # value → the ways it may be written
        self._forms: tuple[str, ...] = ()  # of all values, longest first: one may be part of another
        self.are_out = False  # was any value handed out that must not be written?

    def get(self, name: str) -> str | None:
        for provider in self._providers:
            try:
                value = provider(name)
            except Exception as error:  # its words may hold what it should have kept
                raise SecretUnavailable(
                    f"the provider of the secret {name!r} failed with {type(error).__name__}"
                ) from None
            if value is not None and not isinstance(value, str):
                raise SecretUnavailable(f"the secret {name!r} is not text but {type(value).__name__}")
            if value:
                self._remember(value)
                return value
        return None

    def require(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise SecretUnavailable(
                f"there is no secret {name!r}; set {VARIABLE}{name} or add a provider that has it"
            )
        return value

    def redact(self, text: str) -> str:
        """The text with every known value replaced, also where it is escaped as in JSON, Python or an address."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        return text

    def redact_json(self, text: bytes) -> bytes:
        """JSON text with every known value replaced, inside of strings, keys and numbers. It stays JSON."""
        if not self._forms:
            return text
        readable = text.decode()
        if not any(form in readable for form in self._forms):
            return text
        return msgspec.json.encode(self._redacted(msgspec.json.decode(text)))

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

    def _remember(self, value: str) -> None:
        if value in self._values or len(value) < REDACTED_CHARS_MIN:
            return
        if len(self._values) >= REMEMBERED_MAX:
            del self._values[next(iter(self._values))]
        self._values[value] = _ways_to_write(value)
        forms = {form for forms in self._values.values() for form in forms}
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        self.are_out = True


def _ways_to_write(value: str) -> tuple[str, ...]:
    in_json = json.dumps(value, ensure_ascii=False)[1:-1]
    in_ascii = json.dumps(value)[1:-1]
    in_python = repr(value)[1:-1]
    in_address = (
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    )
    # What is escaped once is often quoted in a text that is escaped again: an error that repeats JSON, for one.
    in_json_twice = json.dumps(in_json, ensure_ascii=False)[1:-1]
    return (value, in_json, in_ascii, in_python, in_json_twice, in_json.replace("/", "\\/"), *in_address)
