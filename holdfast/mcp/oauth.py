"""Access tokens of an existing issuer, as `[mcp.oauth]` names it. Issues none of its own.

A token is a JWT that the issuer has signed for our audience. Its scopes are those of the issuer: those that are called like ours
(`read`, `run`, `approve`, …) are the scopes of its holder. Keys of the issuer are fetched when a token names one that is not known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import jwt

from holdfast.api.principal import Principal
from holdfast.config import OAuth
from holdfast.errors import Forbidden, Unauthorised
from holdfast.ops.api_keys import EVERYTHING

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "ES256",
    "ES384",
    "EdDSA",
)  # never one with a shared secret
FETCH_SECONDS: Final = 10.0
FETCH_PAUSE_SECONDS: Final = 10.0  # between two fetches: a token may name any key
BODY_BYTES_MAX: Final = 256 * 1024
METADATA: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class Tokens:
    def __init__(self, settings: OAuth, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._monotonic = settings, monotonic
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None

    async def principal_of(self, token: str) -> Principal:
        """The holder of a token. Raise Unauthorised, or Forbidden if it lacks a scope that is required."""
        try:
            key = await self._key(str(jwt.get_unverified_header(token).get("kid") or ""))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(ALGORITHMS),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Unauthorised(f"this token is not accepted: {error}") from None
        scopes = _scopes(claims)
        missing = sorted(set(self._settings.scopes) - scopes)
        if missing:
            raise Forbidden(f"this token lacks the scope {missing[0]!r}")
        subject = str(claims.get("sub") or claims.get("client_id") or "token")
        own = EVERYTHING if "admin" in scopes else EVERYTHING & scopes
        return Principal(self._settings.tenant, own, f"oauth:{subject}")

    async def _key(self, kid: str) -> jwt.PyJWK:
        if kid not in self._keys and self._may_fetch():
            self._fetched_at = self._monotonic()
            self._keys = await self._fetched()
        found = self._keys.get(kid) or (
            next(iter(self._keys.values())) if not kid and len(self._keys) == 1 else None
        )
        if found is None:
            raise Unauthorised("this token is signed by a key that its issuer does not publish")
        return found

    def _may_fetch(self) -> bool:
        return self._fetched_at is None or self._monotonic() - self._fetched_at >= FETCH_PAUSE_SECONDS

    async def _fetched(self) -> dict[str, jwt.PyJWK]:
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                url = self._settings.jwks_url or await self._jwks_url(session)
                found = jwt.PyJWKSet.from_dict(await _json(session, url))
        except (aiohttp.ClientError, TimeoutError, ValueError, jwt.PyJWTError) as error:
            raise Unauthorised(f"the keys of the issuer cannot be read: {error}") from None
        return {str(one.key_id or ""): one for one in found.keys}

    async def _jwks_url(self, session: aiohttp.ClientSession) -> str:
        for path in METADATA:
            try:
                found = await _json(session, self._settings.issuer.rstrip("/") + path)
            except (aiohttp.ClientError, ValueError):
                continue
            if isinstance(found.get("jwks_uri"), str):
                return str(found["jwks_uri"])
        raise ValueError("its metadata names no jwks_uri; set jwks_url")


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"{url} answered with {answer.status}")
        raw = await answer.content.read(BODY_BYTES_MAX + 1)
        if len(raw) > BODY_BYTES_MAX:
            raise ValueError(f"{url} answered with more than {BODY_BYTES_MAX:,} bytes")
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise ValueError(f"{url} did not answer with an object")
        return found


def _scopes(claims: dict[str, Any]) -> set[str]:
    """The scopes of a token: words in `scope`, or a list in `scp`."""
    said = claims.get("scope", claims.get("scp", ""))
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    return {str(word) for word in words}
