"""Authentication: the key of a request, its tenant and scopes, and whether a key is needed. Does not know routes.

Local mode (bound to loopback, and no key was ever created): every caller is admin of the tenant `default`. Guarded mode (anything
else): every route that is not open needs a key. Creating the first key guards a running server at once.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Final

from holdfast.api.principal import LOCAL_ID, Principal
from holdfast.errors import KeyNeeded, Unauthorised
from holdfast.ops.api_keys import EVERYTHING, ApiKeys, rights_of
from holdfast.values import DEFAULT_TENANT, sha256

BOOTSTRAP_ID: Final = "bootstrap"
BOOTSTRAP_CHARS_MIN: Final = 16  # chosen by people, and the only protection of a guarded server
_BEARER: Final = "bearer"


ANONYMOUS: Final = Principal(DEFAULT_TENANT, frozenset())  # the caller of an open route of a guarded server
LOCAL: Final = Principal(DEFAULT_TENANT, EVERYTHING, LOCAL_ID)
# A caller on the local socket, which only the owner of the database file can open: it is admin of a guarded server too.
OWNER: Final = Principal(DEFAULT_TENANT, EVERYTHING, LOCAL_ID)
BOOTSTRAP: Final = Principal(DEFAULT_TENANT, EVERYTHING, BOOTSTRAP_ID)


class Keys:
    """`host` is the address that the server is bound to; `bootstrap` is an admin key that is accepted but not stored."""

    def __init__(self, api_keys: ApiKeys, host: str, bootstrap: str | None = None) -> None:
        self.api_keys = api_keys
        self._is_reachable = not is_loopback(host)
        self._host = host
        if bootstrap is not None and len(bootstrap) < BOOTSTRAP_CHARS_MIN:
            raise KeyNeeded(
                f"HOLDFAST_API_KEY is shorter than {BOOTSTRAP_CHARS_MIN} characters, which can be guessed;"
                " create a longer one with `openssl rand -hex 32`"
            )
        self._bootstrap = None if bootstrap is None else sha256(bootstrap.encode())
        # by hash, never dropped; the rows say which keys are valid
        self._principals: dict[str, Principal] = {}

    @property
    def is_guarded(self) -> bool:
        return self._is_reachable or self._bootstrap is not None or self.api_keys.is_any

    def check_start(self) -> None:
        """Refuse to listen beyond loopback while no API key exists."""
        if self._is_reachable and self._bootstrap is None and not self.api_keys.is_any:
            raise KeyNeeded(
                f"{self._host} can be reached from other machines and there is no key; create one with"
                " `holdfast keys create me --scope admin`, or set HOLDFAST_API_KEY"
            )

    def principal_of(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller of a request. Raise Unauthorised."""
        if not self.is_guarded:
            return LOCAL
        key = _bearer(headers.get("authorization", ""))
        if self._bootstrap is not None and hmac.compare_digest(self._bootstrap, sha256(_bytes(key))):
            return BOOTSTRAP
        row = self.api_keys.known(key)
        if row is None:
            raise Unauthorised("this key is not known here, was revoked or has expired")
        known = self._principals.get(row.hash)
        if known is None:
            scopes = frozenset(row.scopes.split())
            every = EVERYTHING if "admin" in scopes else scopes
            own = rights_of(row)
            services = frozenset(row.services.split())
            known = Principal(row.tenant, every, row.id, services, own.tools, own.workflows, own.skips_gate)
            self._principals[row.hash] = known
        return known


def check_again(principal: Principal, api_keys: ApiKeys) -> None:
    """Check the caller of a streaming response again. Raise Unauthorised once the key is no longer valid."""
    if principal is OWNER or principal.key_id == BOOTSTRAP_ID:
        return
    is_local = principal.key_id == LOCAL_ID
    if api_keys.is_any if is_local else not api_keys.counts(principal.tenant, principal.key_id):
        raise Unauthorised(
            "a key is needed here by now" if is_local else "this key was revoked or has expired"
        )


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _bearer(header: str) -> str:
    word, _, key = header.partition(" ")
    if word.lower() != _BEARER or not key.strip():
        raise Unauthorised(
            "a key is needed here; send it as `Authorization: Bearer hf_…`, which holdfast's own commands do if"
            " HOLDFAST_API_KEY has it"
        )
    return key.strip()


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
