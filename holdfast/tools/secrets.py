"""Secrets by tenant and name, and redaction of their values.

Knows where secrets come from, which tenant owns them, and every value that is configured or was returned by a provider. Must not know
the journal, templates or steps.

The environment's secrets (`HOLDFAST_SECRET_<NAME>`) belong to the tenant `default`; another tenant has those of them
that the operator lists for it, and what a provider returns for the tenant.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.tools.secret_forms import forms_of, one_pattern
from holdfast.values import DEFAULT_TENANT

REDACTED: Final = "***"
REDACTED_CHARS_MIN: Final = 6  # redacting a shorter value would break ordinary words
REMEMBERED_MAX: Final = 1_000  # values; beyond that the oldest is dropped, because it was rotated long ago
# characters searched at once: a search holds the interpreter, and other threads run in between
SEARCHED_AT_ONCE_BYTES: Final = 1024 * 1024
FORM_BYTES_MAX: Final = 24  # for a character of a value: "%25F0%259F%2598%2580" is 20
OURS: Final = "HOLDFAST_"
TAIL_CHARS_MAX: Final = 4_096  # of the lines before, in which a value may have begun
VARIABLE: Final = "HOLDFAST_SECRET_"

# Called with the name, and with `tenant=` if it has such a parameter; without one it knows secrets of `default` alone.
Provider = Callable[..., str | None]


class SecretUnavailable(Exception):
    """The secret does not exist, or its provider failed. The message contains no value."""

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
        self._providers = [(provider, _takes_tenant(provider)) for provider in providers]
        self._tenants, self._callback_env = dict(tenants or {}), frozenset(callback_env)
        self.is_guarded = False  # then a plain variable signs nothing unless the operator lists it
        self._values: dict[str, None] = {}
        self._text: re.Pattern[str] | None = None  # all forms of all values; made when it is first needed
        self._json: re.Pattern[bytes] | None = None
        # The same forms by their first characters, and the length of the longest.
        self._beginnings: tuple[dict[str, list[str]], int] | None = None
        self.are_known = False  # is there any value that must not be written?
        listed = (os.environ.get(name) for name in self._callback_env)
        environment = (value for name, value in os.environ.items() if name.startswith(VARIABLE))
        for value in (*environment, *listed, *known):
            self._remember(value or "")

    # --------------------------------------------------------------------------------------------- handing out

    def get(self, name: str, tenant: str = DEFAULT_TENANT) -> str | None:
        for provider, takes_tenant in self._providers:
            if takes_tenant or tenant == DEFAULT_TENANT:
                value = _asked(provider, name, {"tenant": tenant} if takes_tenant else {})
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
        """Return the secret that `secret_env` of a callback names: a secret of the tenant. For `default` only, also a plain environment
        variable, in local mode or if the operator lists it, but never one of Holdfast's own."""
        is_open = tenant == DEFAULT_TENANT and (not self.is_guarded or name in self._callback_env)
        value = self._secret_env(name, tenant, is_open)
        if value is None:
            plain = f", or set {name} itself" if is_open else ""
            raise SecretUnavailable(
                f"secret_env: there is no secret {name!r}{self._hint(name, tenant)}{plain}"
            )
        return value

    def for_webhook(
        self, name: str, tenant: str = DEFAULT_TENANT, *, is_operators: bool = False
    ) -> str | None:
        """Return the secret that `secret_env` of a webhook names; None if it is missing or empty. The rules are those of callbacks,
        but a schedule that the operator wrote in a file or in code may name any variable except Holdfast's own."""
        is_listed = not self.is_guarded or name in self._callback_env
        try:
            return self._secret_env(name, tenant, tenant == DEFAULT_TENANT and (is_operators or is_listed))
        except SecretUnavailable:
            return None

    def _secret_env(self, name: str, tenant: str, is_open: bool) -> str | None:
        """Return a secret of the tenant; if `is_open`, also a plain environment variable."""
        value = self.get(name, tenant)
        if value is None and is_open and not name.startswith(OURS):
            value = self._remember(os.environ.get(name, "")) or None
        return value

    def environment(self) -> dict[str, str]:
        """Return the environment for tool processes: without Holdfast's own variables and without any that contains a known value. A tool
        receives the secrets it needs as arguments of its step."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OURS) and name not in self._callback_env and self.redact(value) == value
        }

    # ----------------------------------------------------------------------------------------------- redaction

    def redact(self, text: str) -> str:
        """Replace every known value in a text, in all forms of `_ways_to_write`."""
        if not self.are_known:
            return text
        pattern = self._pattern()
        text = pattern.sub(REDACTED, text)
        return _redacted_across_lines(text, pattern) if "\n" in text else text

    def lines(self) -> Callable[[str], str]:
        """Redacts the lines of one source, given one after the other: see `_Lines`."""
        return _Lines(self).redact

    def hidden(self, text: str) -> list[tuple[int, int]]:
        """Where values stand in a text, from and to; a value that only begins at its end counts too."""
        found = [match.span() for match in self._pattern().finditer(text)]
        begins = self._beginning(text)
        return found if begins is None else [*found, (begins, len(text))]

    def _beginning(self, text: str) -> int | None:
        """Where the end of a text begins that is the beginning of a value; short ones are not counted, see above."""
        found = self._beginnings
        if found is None:
            forms = self._forms()
            known = dict[str, list[str]]()
            for form in forms:
                known.setdefault(form[:REDACTED_CHARS_MIN], []).append(form)
            found = self._beginnings = known, max(map(len, forms), default=0)
        known, longest = found
        tail = min(longest, TAIL_CHARS_MAX)
        for at in range(max(0, len(text) - tail), len(text) - REDACTED_CHARS_MIN + 1):
            begun = known.get(text[at : at + REDACTED_CHARS_MIN])
            if begun is not None and any(form.startswith(text[at:]) for form in begun):
                return at
        return None

    def redact_json(self, text: bytes) -> bytes:
        """Replace every known value in JSON text, inside strings, keys and numbers. The result is JSON."""
        if not self.are_known or not self._is_in(text):
            return text
        return msgspec.json.encode(self._redacted(msgspec.json.decode(text)))

    def redact_value(self, value: Any) -> Any:
        """Replace every known value in a JSON value."""
        return self._redacted(value) if self.are_known else value

    def _is_in(self, text: bytes) -> bool:
        pattern = self._json
        if pattern is None:
            escaped = {msgspec.json.encode(form)[1:-1].decode("latin-1") for form in self._forms()}
            pattern = self._json = re.compile(one_pattern(escaped).encode("latin-1"))
        step = SEARCHED_AT_ONCE_BYTES
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

    def _pattern(self) -> re.Pattern[str]:
        # Tools log from their own threads, and meanwhile the loop may learn another value.
        pattern = self._text
        if pattern is None:
            pattern = self._text = re.compile(one_pattern(self._forms()))
        return pattern

    def _forms(self) -> set[str]:
        return {form for value in list(self._values) for form in forms_of(value)}

    def _remember(self, value: str) -> str:
        if value not in self._values and len(value) >= REDACTED_CHARS_MIN:
            if len(self._values) >= REMEMBERED_MAX:
                del self._values[next(iter(self._values))]
            self._values[value] = None
            self._text = self._json = self._beginnings = None
            self.are_known = True
        return value


def _takes_tenant(provider: Provider) -> bool:
    try:
        return "tenant" in inspect.signature(provider).parameters
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False


def _asked(provider: Provider, name: str, more: dict[str, str]) -> str | None:
    try:
        value = provider(name, **more)
    except Exception as error:  # its message may contain the secret
        raise SecretUnavailable(
            f"the provider of the secret {name!r} failed with {type(error).__name__}"
        ) from None
    if value is not None and not isinstance(value, str):
        raise SecretUnavailable(f"the secret {name!r} is not text but {type(value).__name__}")
    return value


# --------------------------------------------------------------------------------------------------------- lines


def _finds(pattern: re.Pattern[bytes], text: bytes) -> bool:
    """Return whether JSON text contains a value, perhaps broken by line ends."""
    if pattern.search(text):
        return True
    return b"\\n" in text and bool(pattern.search(text.replace(b"\\r", b"").replace(b"\\n", b"")))


class _Lines:
    """Redacts lines that are logged one after the other: of a value that is split over several lines, each part.

    Lines are not held back, so the first part of a value is recognised only if it has REDACTED_CHARS_MIN characters; a
    shorter one stays, and what follows it is redacted.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets, self._before = secrets, ""

    def redact(self, line: str) -> str:
        if not self._secrets.are_known:
            return line
        before, whole = self._before, self._before + line.rstrip("\r\n")
        self._before = whole[-TAIL_CHARS_MAX:]
        parts = list[str]()
        at, start = 0, len(before)
        for begin, end in sorted(self._secrets.hidden(whole)):
            if end - start <= at:
                continue  # it stands in the lines before, or inside of the last one
            if begin - start > at or not parts:  # else it goes on where the last one ended
                parts += [line[at : max(at, begin - start)], REDACTED]
            at = end - start
        return self._secrets.redact("".join((*parts, line[at:])))


def _redacted_across_lines(text: str, pattern: re.Pattern[str]) -> str:
    """Redact values in encoded text that is broken into lines, often of 64 or 76 characters."""
    joined = text.replace("\r", "").replace("\n", "")
    if not pattern.search(joined):
        return text
    places = [at for at, character in enumerate(text) if character not in "\r\n"]
    parts, at = [], 0
    for found in pattern.finditer(joined):
        parts += [text[at : places[found.start()]], REDACTED]
        at = places[found.end() - 1] + 1
    return "".join((*parts, text[at:]))
