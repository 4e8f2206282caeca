"""Callbacks and links of those who must not answer, and of programs that only look: forged, sent again, too late, of
another tenant, and a scanner that opens whatever it finds in a mail. None of them moves a run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.signing import Capability, new_key, sealed, signature
from tests.http.conftest import Answer, Holds
from tests.http.test_waits import BOOTSTRAP, PENDING, SECRET, Said, key, registry, segment

pytestmark = pytest.mark.anyio

PUBLIC = "https://flows.example.org"
NOTHING = (200, {"resumed": False, "reason": "unknown_task"})
GATE = {"name": "gate", "steps": [{"id": "gate", "kind": "approve", "prompt": "Sure?"}]}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Said]:
    db = f"sqlite:///{tmp_path / 'test.db'}"
    settings = Settings(db=db, port=0, key=BOOTSTRAP, resume_secret=SECRET, public_url=PUBLIC)
    told: list[str] = []
    async with serving(settings, registry=registry(told)) as server, aiohttp.ClientSession() as session:
        asker = Said(server, session, Holds())
        asker.told, asker.headers = told, {"authorization": f"Bearer {BOOTSTRAP}"}
        yield asker


async def paused(ask: Said, headers: dict[str, str], task_id: str = "T1", **rules: Any) -> str:
    """A run of whoever the key is of, that waits for a callback."""
    (step,) = PENDING["steps"]
    spec = {"name": "later", "steps": [{**step, **rules}]}  # type: ignore[dict-item]
    body = {"spec": spec, "inputs": {"name": task_id}, "wait_secs": 30}
    answer = await ask("POST", "/api/v1/runs", body, headers=headers)
    assert answer.status in (200, 202), answer.body  # a wait of a moment may be over already
    return str(answer.body["run_id"])


async def run_of(ask: Said, run_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    answer = await ask("GET", f"/api/v1/runs/{run_id}", headers=headers or ask.headers)
    assert answer.status == 200, answer.body
    return dict(answer.body)


async def until(ask: Said, run_id: str, *statuses: str) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while (run := await run_of(ask, run_id))["status"] not in statuses:
            await asyncio.sleep(0.005)
    return run


def signed(body: dict[str, Any]) -> dict[str, Any]:
    raw = json.dumps(body).encode()
    headers = {"content-type": "application/json", "x-hub-signature-256": signature(SECRET, raw)}
    return {"data": raw, "headers": headers}


# ------------------------------------------------------------------------------------------------------ callbacks


async def test_an_address_that_was_made_up_is_told_that_there_is_no_such_task(guarded: Said) -> None:
    run_id = await guarded.paused()
    server_key = guarded.serving.services.engine.store.server_key
    forged = [
        sealed(new_key(), Capability("default", run_id, "a", 1)),
        sealed(server_key, Capability("default", run_id, "a", 1, "approve")),
        sealed(server_key, Capability("other", run_id, "a", 1)),
        sealed(server_key, Capability("default", run_id, "a", 2)),
        sealed(server_key, Capability("default", run_id, "b", 1)),
        segment(guarded.told[0])[1:-10],
        segment(guarded.told[0])[1:].partition(".")[0],
        "x" * 5_000,
    ]
    for one in forged:
        assert await guarded.resume({"result": 1}, f"/{one}", headers={}) == NOTHING
    assert (await run_of(guarded, run_id))["status"] == "waiting"
    assert (await guarded.resume({"result": 2}, segment(guarded.told[0]), headers={}))[1]["resumed"]


async def test_an_address_that_is_only_looked_at_resumes_nothing(guarded: Said) -> None:
    run_id = await guarded.paused()
    path = f"/workflows/resume{segment(guarded.told[0])}"
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        assert (await guarded(method, path, headers={})).status == (204 if method == "OPTIONS" else 405)
    for body in (b"", b"null", b"[]", b"{", b"answer=approve"):
        headers = {"content-type": "application/json"}
        assert (await guarded("POST", path, data=body, headers=headers)).status == 400
    assert (await run_of(guarded, run_id))["status"] == "waiting"


async def test_a_callback_may_have_a_query_which_says_nothing(guarded: Said) -> None:
    """Senders add to the address that they were told, and are not told of it by a failure that they would repeat."""
    run_id = await guarded.paused()
    for path in ("", segment(guarded.told[0])):
        status, body = await guarded.resume({"task_id": "T1", "result": 1}, f"{path}?source=model&run_id=x")
        assert (status, body["reason"]) == (200, "already_resumed" if path else "resumed")
    assert (await guarded.ended(run_id))["output"] == {"a": 1}


async def test_a_callback_of_a_former_attempt_does_not_answer_the_next_one(guarded: Said) -> None:
    run_id = await paused(
        guarded, guarded.headers, retry={"max_attempts": 2, "backoff": "fixed", "initial_delay_ms": 0}
    )
    old = segment(guarded.told[0])
    assert (await guarded.resume({"success": False, "error": "no"}, old, headers={}))[1]["resumed"]
    async with asyncio.timeout(120):
        while len(guarded.told) < 2 or (await run_of(guarded, run_id))["status"] != "waiting":
            await asyncio.sleep(0.005)
    again = await guarded.resume({"result": "replayed"}, old, headers={})
    assert again == (200, {"resumed": False, "reason": "already_resumed"})
    await guarded.resume({"result": "new"}, segment(guarded.told[1]), headers={})
    assert (await until(guarded, run_id, "completed"))["output"] == {"a": "new"}


async def test_the_keys_of_two_senders_of_callbacks_do_not_meet(guarded: Said) -> None:
    """They may belong to different tenants, and each knows only its own URL."""
    theirs = await key(guarded, "admin", tenant="acme")
    await paused(guarded, guarded.headers)
    await paused(guarded, theirs, "T2")
    same = {"Idempotency-Key": "1"}
    for url in map(segment, guarded.told):
        first, again = [await guarded.resume({"result": url}, url, headers=same) for _ in range(2)]
        assert first == again == (200, {"resumed": True, "reason": "resumed"})
        answer = await guarded("POST", f"/workflows/resume{url}", {"result": "other"}, headers=same)
        assert (answer.status, answer.code) == (422, "request_conflict")


async def test_a_sender_cannot_fill_the_database_with_keys(guarded: Said) -> None:
    await guarded.paused()
    url = segment(guarded.told[0])
    for number in range(5):
        await guarded.resume({"result": 1}, url, headers={"Idempotency-Key": str(number)})
    db = apsw.Connection(guarded.serving.services.settings.db.removeprefix("sqlite:///"))
    assert list(db.execute("SELECT key FROM reply")) == [("0",)]
    db.close()


async def test_a_signed_callback_that_is_sent_again_changes_nothing(guarded: Said) -> None:
    run_id = await guarded.paused()
    sent = signed({"task_id": "T1", "result": "once"})
    told = [(await guarded("POST", "/workflows/resume", **sent)).body["reason"] for _ in range(3)]
    assert told == ["resumed", "already_resumed", "already_resumed"]
    assert (await guarded.ended(run_id))["output"] == {"a": "once"}


async def test_a_callback_after_its_time_is_told_so_however_it_comes(guarded: Said) -> None:
    run_id = await paused(guarded, guarded.headers, pending_ttl_secs=0.01, retry={"max_attempts": 1})
    assert (await until(guarded, run_id, "failed"))["error"]["kind"] == "resume_timeout"
    expired = (200, {"resumed": False, "reason": "expired"})
    assert await guarded.resume({"result": 1}, segment(guarded.told[0]), headers={}) == expired
    assert await guarded.resume({"task_id": "T1", "result": 1}) == expired
    assert (
        await guarded("POST", "/workflows/resume", **signed({"task_id": "T1", "result": 1}))
    ).body == expired[1]


async def test_no_tenant_resumes_a_wait_of_another_one(guarded: Said) -> None:
    theirs = await key(guarded, "run", "read", "resume", tenant="acme")
    run_id = await paused(guarded, theirs)
    body = {"task_id": "T1", "result": "stolen"}
    for answer in (
        await guarded.resume(body),
        await guarded.resume({**body, "run_id": run_id}),
        await guarded.resume(body, headers=await key(guarded, "resume", tenant="other")),
    ):
        assert answer[0] == 200 and not answer[1]["resumed"]
    assert not (await guarded("POST", "/workflows/resume", **signed(body))).body["resumed"]
    assert (await run_of(guarded, run_id, theirs))["status"] == "waiting"
    assert (await guarded.resume({**body, "result": "ours"}, headers=theirs))[1]["resumed"]


async def test_what_another_tenant_sent_before_the_pause_is_not_taken_by_it(guarded: Said) -> None:
    assert (await guarded.resume({"task_id": "T1", "result": "planted"}))[1]["reason"] == "parked"
    theirs = await key(guarded, "run", "read", "resume", tenant="acme")
    run_id = await paused(guarded, theirs)
    assert (await guarded.resume({"task_id": "T1", "result": "ours"}, headers=theirs))[1]["resumed"]
    async with asyncio.timeout(120):
        while not (run := await run_of(guarded, run_id, theirs))["finished_at"]:
            await asyncio.sleep(0.005)
    assert run["output"] == {"a": "ours"}


# ----------------------------------------------------------------------------------------------------------- links


async def linked(ask: Said, headers: dict[str, str] | None = None) -> tuple[str, str]:
    """A run that asks, and the path of a link to its question."""
    headers = headers or ask.headers
    started = await ask("POST", "/api/v1/runs", {"spec": GATE}, headers=headers)
    run_id = str(started.body["run_id"])
    async with asyncio.timeout(120):
        while not (await run_of(ask, run_id, headers))["waits"]:
            await asyncio.sleep(0.005)
    made = await ask("POST", f"/api/v1/runs/{run_id}/approvals/gate/links", {}, headers=headers)
    assert made.status == 200, made.body
    return run_id, str(made.body["url"]).removeprefix(PUBLIC)


async def fill(ask: Said, link: str, **more: Any) -> Answer:
    return await ask("POST", link, data={"answer": "approve"}, headers={"origin": PUBLIC}, **more)


async def answers_to(ask: Said, run_id: str) -> list[Any]:
    rows = (await ask("GET", f"/api/v1/runs/{run_id}/journal")).body["items"]
    return [row for row in rows if row["kind"] == "approval_answered"]


async def test_a_scanner_that_opens_whatever_is_in_a_mail_answers_nothing(guarded: Said) -> None:
    run_id, link = await linked(guarded)
    plain: dict[str, str] = {}
    prefetch = {"sec-purpose": "prefetch;prerender", "purpose": "prefetch", "x-moz": "prefetch"}
    for headers in (plain, prefetch, {"user-agent": "Scanner/1.0", "range": "bytes=0-10"}):
        for method in ("GET", "HEAD"):
            for query in ("", "?answer=approve", "?answer=deny&reason=x", "?utm_source=mail"):
                assert (await guarded(method, link + query, headers=headers)).status == 200
    for method in ("OPTIONS", "PUT", "PATCH", "DELETE", "PROPFIND"):
        assert (await guarded(method, link, headers=plain)).status in (204, 405)
    for href in re.findall(
        rb'(?:href|src|action)="([^"]+)"', (await guarded("GET", link, headers=plain)).body
    ):
        await guarded("GET", f"/approve/{href.decode()}", headers=plain)
    assert await answers_to(guarded, run_id) == []
    assert (await fill(guarded, link)).status == 200
    assert len(await answers_to(guarded, run_id)) == 1


async def test_a_link_that_a_mail_gateway_added_to_can_still_be_answered(guarded: Said) -> None:
    """A page that is sent back goes to the very address that it was opened at."""
    run_id, link = await linked(guarded)
    assert (await fill(guarded, f"{link}?utm_source=mail")).status == 200
    assert len(await answers_to(guarded, run_id)) == 1


async def test_what_is_sent_to_a_link_without_its_form_answers_nothing(guarded: Said) -> None:
    run_id, link = await linked(guarded)
    form = "application/x-www-form-urlencoded"
    for media, body in [
        ("", b""),
        (form, b""),
        (form, b"answer="),
        (form, b"url=https://flows.example.org&scan=1"),
        ("application/json", b""),
        ("application/json", b"{}"),
        ("application/json", b'{"approved": "yes"}'),
        ("text/plain", b"answer=approve"),
        ("multipart/form-data; boundary=x", b'--x\r\ncontent-disposition: form-data; name="answer"\r\n\r\n'),
    ]:
        answer = await guarded("POST", link, data=body, headers={"content-type": media} if media else {})
        assert 400 <= answer.status < 500, (media, body)
    assert await answers_to(guarded, run_id) == []


async def test_a_link_answers_for_its_own_tenant_whatever_key_is_sent_with_it(guarded: Said) -> None:
    theirs = await key(guarded, "admin", tenant="acme")
    run_id, link = await linked(guarded, theirs)
    own_id, _ = await linked(guarded)
    assert (await fill(guarded, link)).status == 200
    async with asyncio.timeout(120):
        while not (run := await run_of(guarded, run_id, theirs))["finished_at"]:
            await asyncio.sleep(0.005)
    assert run["status"] == "completed"
    assert (await run_of(guarded, own_id))["status"] == "waiting"


async def test_no_tenant_makes_or_answers_links_to_approvals_of_another_one(guarded: Said) -> None:
    theirs = await key(guarded, "admin", tenant="acme")
    run_id, _ = await linked(guarded, theirs)
    path = f"/api/v1/runs/{run_id}/approvals/gate"
    others = await key(guarded, "approve", tenant="other")
    for headers in (guarded.headers, others):
        assert (await guarded("POST", f"{path}/links", {}, headers=headers)).status == 404
        assert (await guarded("POST", path, {"approved": True}, headers=headers)).status == 404
    server_key = guarded.serving.services.engine.store.server_key
    for tenant in ("default", "other", ""):
        moved = sealed(server_key, Capability(tenant, run_id, "gate", 0, "approve"))
        assert (await fill(guarded, f"/approve/{moved}")).status == 404
    assert (await run_of(guarded, run_id, theirs))["status"] == "waiting"
