"""`/api/v1/artefacts`: what a run made, to be saved and never to be shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from holdfast import Context, tool
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.tools.registry import Registry
from tests.http.conftest import Asker, Holds

pytestmark = pytest.mark.anyio

PAGE = b"<script>alert(1)</script>"


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    @tool
    def make(context: Context) -> dict[str, Any]:
        (context.workdir / "page.html").write_bytes(PAGE)
        return {"file_refs": [{"path": "page.html"}]}

    async with serving(settings, registry=Registry([make])) as server, aiohttp.ClientSession() as session:
        yield Asker(server, session, Holds())


async def artefact_of(ask: Asker) -> str:
    run = await ask.done(spec={"name": "makes", "steps": [{"id": "s", "tool": "make"}]})
    return str(run["output"]["s"]["file_refs"][0]["uri"]).rpartition("/")[2]


async def test_an_artefact_is_given_as_a_file_to_save(ask: Asker) -> None:
    sha256 = await artefact_of(ask)
    answer = await ask("GET", f"/api/v1/artefacts/{sha256}")
    assert (answer.status, answer.body) == (200, PAGE)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


async def test_a_part_of_an_artefact_can_be_asked_for(ask: Asker) -> None:
    sha256 = await artefact_of(ask)
    answer = await ask("GET", f"/api/v1/artefacts/{sha256}", headers={"Range": "bytes=1-6"})
    assert (answer.status, answer.body) == (206, PAGE[1:7])


async def test_another_tenant_does_not_see_it(ask: Asker) -> None:
    sha256 = await artefact_of(ask)
    keys = ask.serving.services.api_keys
    made = await keys.create("other", "reader", ["read"])
    answer = await ask("GET", f"/api/v1/artefacts/{sha256}", headers={"Authorization": f"Bearer {made.key}"})
    assert (answer.status, answer.code) == (404, "not_found")
