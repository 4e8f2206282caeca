"""`/api/v1/artefacts` where files are in a bucket: the same answers, read from there in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from holdfast import Context, tool
from holdfast.config import Settings
from holdfast.http import remote_file
from holdfast.http.serve import serving
from holdfast.tools.registry import Registry
from tests.http.conftest import Asker, Holds
from tests.s3 import S3
from tests.tools import isolated

pytestmark = pytest.mark.anyio

TEXT = b"0123456789" * 10


@tool
def make(context: Context) -> dict[str, Any]:
    (context.workdir / "a.txt").write_bytes(TEXT)
    return {"file_refs": [{"path": "a.txt", "name": "a.txt"}]}


@tool
def read(uri: str, context: Context) -> int:
    return len(context.artefact(uri).read_bytes())


@tool
async def fetch(uri: str, context: Context) -> int:
    path = await context.fetch(uri)
    assert path.parent == context.workdir
    return len(path.read_bytes())


@tool
async def block(uri: str, context: Context) -> int:
    return len(context.artefact(uri).read_bytes())


@pytest.fixture
async def ask(settings: Settings, s3: S3) -> AsyncIterator[Asker]:
    s3.make("of-a-server")
    settings = msgspec.structs.replace(settings, artefacts=s3.address("of-a-server"))
    registry = Registry([make, read, fetch, block, isolated.reads])
    async with serving(settings, registry=registry) as server, aiohttp.ClientSession() as session:
        yield Asker(server, session, Holds())


async def uri_of(ask: Asker) -> str:
    run = await ask.done(spec={"name": "makes", "steps": [{"id": "s", "tool": "make"}]})
    return str(run["output"]["s"]["file_refs"][0]["uri"])


async def path_of(ask: Asker) -> str:
    return f"/api/v1/artefacts/{(await uri_of(ask)).rpartition('/')[2]}"


async def read_by(ask: Asker, name: str, uri: str) -> dict[str, Any]:
    steps = [{"id": "s", "tool": name, "args": {"uri": "{{inputs.uri}}"}}]
    return await ask.done(spec={"name": "reads", "inputs": {"uri": {}}, "steps": steps}, inputs={"uri": uri})


async def test_a_file_is_given_whole_and_to_be_saved(ask: Asker) -> None:
    answer = await ask("GET", await path_of(ask))
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, TEXT, "100")
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["Content-Security-Policy"]


async def test_a_file_that_is_larger_than_a_piece_is_whole_too(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "PIECE_BYTES", 7)
    assert (await ask("GET", await path_of(ask))).body == TEXT


@pytest.mark.parametrize(
    ("asked", "status", "body", "told"),
    [
        ("bytes=1-6", 206, TEXT[1:7], "bytes 1-6/100"),
        ("bytes=95-", 206, TEXT[95:], "bytes 95-99/100"),
        ("bytes=-5", 206, TEXT[-5:], "bytes 95-99/100"),
        ("bytes=90-900", 206, TEXT[90:], "bytes 90-99/100"),
        ("bytes=100-", 416, b"", "bytes */100"),
        ("bytes=5-1", 200, TEXT, None),
        ("bytes=0-1,5-6", 200, TEXT, None),
        ("lines=1-2", 200, TEXT, None),
    ],
)
async def test_a_range_is_given_as_asked(
    ask: Asker, asked: str, status: int, body: bytes, told: str | None
) -> None:
    answer = await ask("GET", await path_of(ask), headers={"Range": asked})
    assert (answer.status, answer.body, answer.headers.get("Content-Range")) == (status, body, told)


async def test_a_range_of_other_content_gets_the_whole_file(ask: Asker) -> None:
    path = await path_of(ask)
    etag = (await ask("HEAD", path)).headers["ETag"]
    same = await ask("GET", path, headers={"Range": "bytes=0-0", "If-Range": etag})
    other = await ask("GET", path, headers={"Range": "bytes=0-0", "If-Range": '"other"'})
    assert (same.status, other.status) == (206, 200)


async def test_another_tenant_does_not_see_it(ask: Asker) -> None:
    path = await path_of(ask)
    made = await ask.serving.services.api_keys.create("other", "reader", ["read"])
    answer = await ask("GET", path, headers={"Authorization": f"Bearer {made.key}"})
    assert (answer.status, answer.code) == (404, "not_found")


async def test_a_name_of_a_file_that_was_never_stored_finds_nothing(ask: Asker) -> None:
    run = await read_by(ask, "read", f"artefact://sha256/{'a' * 64}")
    assert run["error"]["kind"] == "artefact" and "is not here" in run["error"]["message"]
    assert (await ask("GET", f"/api/v1/artefacts/{'a' * 64}")).status == 404


async def test_the_next_step_reads_a_file_whatever_kind_of_tool_it_is(ask: Asker) -> None:
    uri = await uri_of(ask)
    outputs = [(await read_by(ask, name, uri))["output"]["s"] for name in ("read", "fetch", "reads")]
    assert outputs == [100, 100, TEXT.decode()]


async def test_a_tool_that_would_hold_up_the_event_loop_is_told_what_to_use(ask: Asker) -> None:
    run = await read_by(ask, "block", await uri_of(ask))
    assert "await context.fetch(uri)" in run["error"]["message"]


async def test_a_bucket_that_goes_away_is_unavailable_and_the_run_can_still_be_read(
    ask: Asker, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await path_of(ask)
    found = ask.serving.services.queries._artefacts
    assert found is not None
    gone = msgspec.structs.replace(Settings(), artefacts="s3://bucket/x?endpoint=http://127.0.0.1:1")
    monkeypatch.setattr(remote_file, "PIECE_BYTES", 1)
    monkeypatch.setattr(found, "_prompt", bucket_of(gone))
    answer = await ask("GET", path)
    assert (answer.status, answer.code) == (503, "artefacts_unavailable")


def bucket_of(settings: Settings) -> Any:
    from holdfast.store.artefact_bucket import Bucket

    return Bucket(settings.artefacts or "").store({"max_retries": 0})
