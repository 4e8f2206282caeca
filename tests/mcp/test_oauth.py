"""Tokens of an existing issuer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from holdfast.config import OAuth, Settings
from tests.mcp.conftest import asked

pytestmark = pytest.mark.anyio
AUDIENCE = "https://holdfast.example/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextlib.asynccontextmanager
async def issuer() -> AsyncIterator[str]:
    """An issuer on loopback: its metadata and its keys."""
    address = ""

    async def metadata(request: web.Request) -> web.Response:
        return web.json_response({"issuer": address, "jwks_uri": f"{address}/jwks"})

    async def keys(request: web.Request) -> web.Response:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return web.json_response({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]})

    app = web.Application()
    app.add_routes([web.get("/.well-known/oauth-authorization-server", metadata), web.get("/jwks", keys)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield address
    finally:
        await runner.cleanup()


def token(address: str, key: Any = KEY, algorithm: str = "RS256", **claims: Any) -> dict[str, str]:
    own = {
        "iss": address,
        "aud": AUDIENCE,
        "exp": time.time() + 600,
        "sub": "ada",
        "scope": "read run",
        **claims,
    }
    made = jwt.encode(
        {name: one for name, one in own.items() if one is not None}, key, algorithm, {"kid": "one"}
    )
    return {"authorization": f"Bearer {made}"}


async def test_a_token_of_the_issuer_has_its_scopes_and_no_others(settings: Settings) -> None:
    async with issuer() as address:
        oauth = OAuth(address, AUDIENCE, scopes=("read",))
        own = msgspec.structs.replace(settings, mcp=msgspec.structs.replace(settings.mcp, oauth=oauth))
        async with asked(own) as ask:
            refused = await ask("tools/list")
            assert refused.status == 401
            assert "/.well-known/oauth-protected-resource/mcp" in refused.headers["www-authenticate"]
            async with ask.session.get(
                f"{ask.server.address}/.well-known/oauth-protected-resource/mcp"
            ) as found:
                said = await found.json()
            assert (said["resource"], said["authorization_servers"]) == (AUDIENCE, [address])

            good = token(address)
            result = await ask.tool("hello", {"name": "Ada"}, headers=good)
            assert result["content"][0]["text"] == "Hello, Ada!"
            run_id = (await ask.tool("gate", headers=good))["structuredContent"]["run_id"]
            approve = {"run_id": run_id, "path": "ok", "approved": True}
            denied = await ask.tool("workflows_approve", approve, headers=good)
            assert denied["structuredContent"]["error"] == "forbidden"

            for bad in (
                token(address, OTHER),
                token(address, aud="https://other.example"),
                token("https://other.example"),
                token(address, exp=time.time() - 60),
                token(address, exp=None),
                token(address, "a shared secret that is long enough for it", "HS256"),
                {"authorization": "Bearer a.b.c"},
            ):
                answer = await ask("tools/list", headers=bad)
                assert answer.status == 401, bad
                assert "resource_metadata" in answer.headers["www-authenticate"]
            assert (await ask("tools/list", headers=token(address, scope="run"))).status == 403
            # A token is for /mcp; the API keeps to keys.
            await ask.server.services.api_keys.create("default", "k", ["admin"])
            async with ask.session.get(f"{ask.server.address}/api/v1/runs", headers=good) as api:
                assert api.status == 401
