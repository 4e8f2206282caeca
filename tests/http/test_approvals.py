"""Approval links: whoever has one may answer, once; whoever only looks decides nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.signing import Capability, sealed
from tests.http.conftest import Answer, Asker, Holds

pytestmark = pytest.mark.anyio

PUBLIC = "https://flows.example.org/holdfast"
FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1},
        "note": {"type": "string", "title": "A note"},
        "urgent": {"type": "boolean"},
        "size": {"enum": ["small", "large", 3]},
        "more": {"type": "array"},
    },
    "required": ["amount"],
}
NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;</textarea></title>"


def gate(**rules: Any) -> dict[str, Any]:
    step = {"id": "gate", "kind": "approve", "prompt": "Ship {{inputs.what}}?", **rules}
    return {"name": "ship", "inputs": {"what": {"type": "string", "default": "it"}}, "steps": [step]}


class People(Asker):
    """Those who are sent links, and those who only ask the server."""

    async def waiting(self, what: str = "it", **rules: Any) -> str:
        run_id = await self.start(spec=gate(**rules), inputs={"what": what})
        await self.until(run_id, "waiting")
        return run_id

    async def until(self, run_id: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(120):
            while (run := await self("GET", f"/api/v1/runs/{run_id}")).body["status"] != status:
                await asyncio.sleep(0.01)
        return dict(run.body)

    async def link(self, run_id: str, by: str = "") -> str:
        """The path of a link to the gate of a run."""
        made = await self("POST", f"/api/v1/runs/{run_id}/approvals/gate/links", {"by": by})
        assert made.status == 200, made.body
        return str(made.body["url"]).removeprefix(PUBLIC)

    async def fill(self, link: str, **fields: str) -> Answer:
        """Send the page of a link back, as a browser does from a page of the public address."""
        headers = {"origin": "https://flows.example.org"}
        return await self("POST", link, data=fields, headers=headers)


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[People]:
    settings = Settings(db=f"sqlite:///{tmp_path / 'test.db'}", port=0, public_url=PUBLIC)
    async with serving(settings) as server, aiohttp.ClientSession() as session:
        yield People(server, session, Holds())


# ------------------------------------------------------------------------------------------------------ looking


async def test_opening_a_link_shows_the_question_and_decides_nothing(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting("the blue one"))
    for method in ("GET", "HEAD", "GET"):
        page = await ask(method, link)
        assert page.status == 200
    assert b"Ship the blue one?" in page.body and run_id.encode() in page.body
    assert (await ask.until(run_id, "waiting"))["waits"][0]["kind"] == "approval"


async def test_a_page_can_load_send_and_be_framed_by_nothing_of_others(ask: People) -> None:
    page = await ask("GET", await ask.link(await ask.waiting()))
    policy = page.headers["content-security-policy"]
    assert {"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert "script" not in policy and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["content-type"] == "text/html; charset=utf-8"


async def test_the_style_of_a_page_is_where_the_page_looks_for_it(ask: People) -> None:
    link = await ask.link(await ask.waiting())
    page = await ask("GET", link)
    href = re.search(rb'href="([^"]+)"', page.body)
    assert href is not None and href[1] == b"../approve.css"
    style = await ask("GET", "/approve.css")
    assert (style.status, style.headers["content-type"]) == (200, "text/css; charset=utf-8")


class Tags(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


async def test_whatever_stands_in_a_page_is_text(ask: People) -> None:
    form = {
        "type": "object",
        "properties": {
            NASTY: {"type": "string", "title": NASTY, "description": NASTY, "default": NASTY},
            "choice": {"enum": [NASTY, {NASTY: 1}]},
            "json": {"default": {NASTY: 1}},
        },
    }
    run_id = await ask.waiting(NASTY, form=form, quorum={"need": 1, "of": [NASTY]}, id="gate")
    link = await ask.link(run_id, by=NASTY)
    shown = await ask("GET", link)
    refused = await ask.fill(link, answer=NASTY, reason=NASTY, **{f"form.{NASTY}": NASTY})
    over = await ask.fill(link, answer="deny", reason=NASTY)
    for page in (shown, refused, over):
        tags = Tags(page.body)
        assert not {"script", "img"} & set(tags.found) and "onerror" not in tags.attributes
    assert (shown.status, refused.status, over.status) == (200, 400, 200)


async def test_a_page_shows_who_may_answer_until_when_and_how_many(ask: People) -> None:
    run_id = await ask.waiting(timeout_secs=3600, quorum={"need": 2, "of": ["ada", "bob", "eve"]})
    page = await ask("GET", await ask.link(run_id, by="bob"))
    until = (await ask.until(run_id, "waiting"))["waits"][0]["until"]
    for fact in ("ada, bob, eve", "<dd>bob</dd>", "<dd>2</dd>", f"<dd>{until}</dd>"):
        assert fact in page.body.decode()


# ---------------------------------------------------------------------------------------------------- answering


async def test_a_page_that_is_sent_back_approves_with_reason(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    page = await ask.fill(link, answer="approve", reason="looks\r\ngood")
    assert page.status == 200 and b"You approved this. That decides it." in page.body
    run = await ask.until(run_id, "completed")
    assert run["output"]["gate"] == {"approved": True, "reason": "looks\ngood", "by": "", "form": None}


async def test_a_page_that_is_sent_back_denies(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting(form=FORM))
    page = await ask.fill(link, answer="deny", reason="too late")
    assert page.status == 200 and b"You denied this." in page.body
    run = await ask.until(run_id, "failed")
    assert run["error"]["message"] == "approval denied: too late"


async def test_a_program_answers_in_json(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    told = await ask("POST", link, {"approved": True, "reason": "ok"})
    assert (told.status, told.body) == (200, {"run_id": run_id, "path": "gate", "decided": True})
    again = await ask("POST", link, {"approved": True})
    assert (again.status, again.code) == (409, "not_waiting")


async def test_a_link_answers_in_the_name_it_was_made_for(ask: People) -> None:
    run_id = await ask.waiting(quorum={"need": 1, "of": ["ada", "bob"]})
    await ask.fill(await ask.link(run_id, by="bob"), answer="approve", by="ada")
    assert (await ask.until(run_id, "completed"))["output"]["gate"]["by"] == "bob"


async def test_after_the_first_deciding_answer_a_link_says_what_was_decided(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    assert (await ask.fill(link, answer="approve")).status == 200
    seen, late = await ask("GET", link), await ask.fill(link, answer="deny")
    assert (seen.status, late.status) == (410, 409)
    for page in (seen, late):
        assert b"This was approved." in page.body and b"<form" not in page.body
    assert (await ask.until(run_id, "completed"))["output"]["gate"]["approved"] is True


async def test_a_link_to_a_denied_gate_says_so(ask: People) -> None:
    link = await ask.link(await ask.waiting())
    await ask.fill(link, answer="deny")
    assert b"This was denied." in (await ask("GET", link)).body


async def test_a_link_of_a_cancelled_run_asks_nothing_any_more(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    await ask("POST", f"/api/v1/runs/{run_id}/cancel", {})
    page = await ask("GET", link)
    assert page.status == 410 and b"This approval is closed" in page.body


async def test_of_many_who_use_a_link_at_once_one_decides(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    answers = await asyncio.gather(*(ask.fill(link, answer="approve", reason=str(n)) for n in range(10)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    reason = (await ask.until(run_id, "completed"))["output"]["gate"]["reason"]
    assert answers[int(reason)].status == 200


async def test_one_link_counts_once_towards_a_quorum(ask: People) -> None:
    run_id = await ask.waiting(quorum={"need": 2, "of": ["ada", "bob"]})
    ada, bob = await ask.link(run_id, by="ada"), await ask.link(run_id, by="bob")
    first, again = await ask.fill(ada, answer="approve"), await ask.fill(ada, answer="approve")
    assert (first.status, again.status) == (200, 409)
    assert b"More answers are needed" in first.body and b"ada has answered already" in again.body
    assert b"That decides it." in (await ask.fill(bob, answer="approve")).body
    await ask.until(run_id, "completed")


async def test_a_link_does_not_answer_another_gate_of_the_same_name(ask: People) -> None:
    await ask.serving.services.commands.publish("default", gate())
    spec = gate()
    spec["steps"].append({"id": "child", "kind": "workflow", "workflow": "ship"})
    run_id = await ask.start(spec={**spec, "name": "two"})
    await ask.until(run_id, "waiting")
    link = await ask.link(run_id)
    await ask.fill(link, answer="approve")
    async with asyncio.timeout(120):
        while [wait["path"] for wait in (await ask.until(run_id, "waiting"))["waits"]] != ["child.gate"]:
            await asyncio.sleep(0.01)
    assert (await ask.fill(link, answer="deny")).status == 409
    (wait,) = (await ask.until(run_id, "waiting"))["waits"]
    assert wait["path"] == "child.gate"


# --------------------------------------------------------------------------------------------------------- forms


async def test_the_fields_of_a_form_become_its_values(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting(form=FORM))
    page = await ask("GET", link)
    for part in ('type="number"', "A note", 'type="checkbox"', "<option", "more, as JSON"):
        assert part in page.body.decode()
    fields = {"amount": "7", "note": "007", "urgent": "on", "size": '"large"', "more": "[1]"}
    await ask.fill(link, answer="approve", **{f"form.{name}": text for name, text in fields.items()})
    form = (await ask.until(run_id, "completed"))["output"]["gate"]["form"]
    assert form == {"amount": 7, "note": "007", "urgent": True, "size": "large", "more": [1]}


async def test_fields_that_are_left_empty_are_absent(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting(form=FORM))
    empty = {"form.note": "", "form.size": "", "form.more": ""}
    await ask.fill(link, answer="approve", **{"form.amount": "1"}, **empty)
    form = (await ask.until(run_id, "completed"))["output"]["gate"]["form"]
    assert form == {"amount": 1, "urgent": False}


@pytest.mark.parametrize("amount", ["", "0", "many", "[1", "1e999"])
async def test_a_form_that_does_not_fit_is_shown_again_as_it_was_filled_in(ask: People, amount: str) -> None:
    link = await ask.link(run_id := await ask.waiting(form=FORM))
    page = await ask.fill(link, answer="approve", reason="why not", **{"form.amount": amount})
    assert page.status == 422 and b'role="alert"' in page.body and b"why not" in page.body
    await ask.until(run_id, "waiting")
    assert (await ask.fill(link, answer="approve", **{"form.amount": "2"})).status == 200


async def test_a_form_that_is_no_object_is_json(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting(form={"type": "array"}))
    await ask.fill(link, answer="approve", form="[1, 2]")
    assert (await ask.until(run_id, "completed"))["output"]["gate"]["form"] == [1, 2]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"answer=perhaps", 400),
        (b"reason=x", 400),
        (b"answer=approve&reason=%ff", 400),
        (b"\xff\xfe", 400),
        (b"&".join(b"a=%d" % n for n in range(2_000)), 400),
        (b"answer=approve&reason=" + b"x" * 20_000, 422),
        (b"answer=approve&reason=%00%ed%a0%80", 400),
    ],
)
async def test_a_page_that_cannot_be_read_decides_nothing(ask: People, data: bytes, status: int) -> None:
    link = await ask.link(run_id := await ask.waiting())
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert (await ask("POST", link, data=data, headers=headers)).status == status
    await ask.until(run_id, "waiting")


# ------------------------------------------------------------------------------------------------- forged, foreign


async def test_all_invalid_links_get_the_same_response(ask: People) -> None:
    run_id = await ask.waiting()
    link = await ask.link(run_id)
    key = ask.serving.services.engine.store.server_key
    forged = [
        "x",
        "x.y",
        "%00.%ff",
        link.rpartition("/")[2][:-2],
        sealed(b"0" * 32, Capability("default", run_id, "gate", 0, "approve")),
        sealed(key, Capability("default", run_id, "gate", 0, "resume")),
        sealed(key, Capability("other", run_id, "gate", 0, "approve")),
        sealed(key, Capability("default", run_id, "nowhere", 0, "approve")),
    ]
    pages = [await ask("GET", f"/approve/{segment}") for segment in forged if "%ff" not in segment]
    answers = [await ask.fill(f"/approve/{one}", answer="approve") for one in forged if "%ff" not in one]
    assert {(page.status, page.body) for page in (*pages, *answers)} == {(404, pages[0].body)}
    told = await ask("POST", f"/approve/{forged[4]}", {"approved": True})
    assert (told.status, told.code) == (404, "not_found")
    await ask.until(run_id, "waiting")


async def test_a_link_whose_time_is_over_holds_no_more(ask: People) -> None:
    run_id = await ask.start(spec=gate(timeout_secs=0.01))
    await ask.until(run_id, "failed")
    capability = Capability("default", run_id, "gate", 0, "approve")
    link = f"/approve/{sealed(ask.serving.services.engine.store.server_key, capability)}"
    assert (await ask("GET", link)).status == 404
    assert (await ask.fill(link, answer="approve")).status == 404


async def test_a_page_of_another_origin_cannot_answer(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    for origin in ("https://evil.example", "null"):
        answer = await ask("POST", link, data={"answer": "approve"}, headers={"origin": origin})
        assert answer.status == 403
    await ask.until(run_id, "waiting")


async def test_a_link_opens_without_a_key_where_keys_are_needed(ask: People) -> None:
    link = await ask.link(run_id := await ask.waiting())
    made = await ask("POST", "/api/v1/keys", {"name": "me", "scopes": ["admin"]})
    assert (await ask("GET", f"/api/v1/runs/{run_id}")).status == 401
    assert (await ask("GET", link)).status == 200
    assert (await ask.fill(link, answer="approve")).status == 200
    headers = {"authorization": f"Bearer {made.body['key']}"}
    assert (await ask("GET", f"/api/v1/runs/{run_id}", headers=headers)).body["status"] == "completed"


async def test_a_link_holds_after_the_server_was_started_anew(tmp_path: Path) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'test.db'}", port=0, public_url=PUBLIC)
    async with aiohttp.ClientSession() as session:
        async with serving(settings) as server:
            ask = People(server, session, Holds())
            link = await ask.link(run_id := await ask.waiting())
        async with serving(settings) as server:
            ask = People(server, session, Holds())
            assert (await ask.fill(link, answer="approve")).status == 200
            await ask.until(run_id, "completed")


# ------------------------------------------------------------------------------------------- who is given which link


async def keyed(ask: People, *names_and_scopes: tuple[str, str]) -> dict[str, dict[str, str]]:
    """Keys with one scope each, as headers, by name."""
    found: dict[str, dict[str, str]] = {}
    admin: dict[str, str] = {}
    for name, scope in (("root", "admin"), *names_and_scopes):
        made = await ask("POST", "/api/v1/keys", {"name": name, "scopes": [scope, "read"]}, headers=admin)
        found[name] = {"authorization": f"Bearer {made.body['key']}"}
        admin = admin or found[name]
    return found


async def links_shown(ask: People, run_id: str, headers: dict[str, str]) -> list[str]:
    """For whom there are links in what is shown of a run, and the same in why it waits."""
    run = await ask("GET", f"/api/v1/runs/{run_id}", headers=headers)
    why = await ask("GET", f"/api/v1/runs/{run_id}/explain", headers=headers)
    links = run.body["waits"][0]["links"]
    (reason,) = [one for one in why.body["reasons"] if one["reason"] == "approval"]
    assert reason["links"] == links
    assert all(link["url"].startswith(f"{PUBLIC}/approve/") for link in links)
    return [link["by"] for link in links]


async def test_those_who_may_approve_are_shown_the_links_that_they_may_give_out(ask: People) -> None:
    free = await ask.waiting()
    named = await ask.waiting(
        quorum={"need": 2, "of": ["ada", "bob"]}, escalate={"after_secs": 60, "to": "eve"}
    )
    counted = await ask.waiting(quorum={"need": 2})
    keys = await keyed(ask, ("ada", "approve"), ("zoe", "approve"), ("ron", "run"))
    assert await links_shown(ask, free, keys["ada"]) == [""]
    assert await links_shown(ask, named, keys["ada"]) == ["ada"]
    assert await links_shown(ask, named, keys["zoe"]) == []
    assert await links_shown(ask, counted, keys["zoe"]) == ["zoe"]
    assert await links_shown(ask, named, keys["root"]) == ["ada", "bob", "eve"]
    for run_id in (free, named, counted):
        assert await links_shown(ask, run_id, keys["ron"]) == []


async def test_a_link_of_an_approver_who_has_answered_is_not_listed(ask: People) -> None:
    run_id = await ask.waiting(quorum={"need": 2, "of": ["ada", "bob", "eve"]})
    keys = await keyed(ask, ("ada", "approve"))
    path = f"/api/v1/runs/{run_id}/approvals/gate"
    answer = await ask("POST", path, {"approved": True}, headers=keys["ada"])
    assert answer.status == 200, answer.body
    assert await links_shown(ask, run_id, keys["root"]) == ["bob", "eve"]
    assert await links_shown(ask, run_id, keys["ada"]) == []


async def test_only_an_admin_makes_a_link_in_the_name_of_another_person(ask: People) -> None:
    path = f"/api/v1/runs/{await ask.waiting()}/approvals/gate/links"
    keys = await keyed(ask, ("ada", "approve"), ("ron", "run"))
    for name, by, status in [
        ("ada", "ada", 200),
        ("ada", "", 200),
        ("ada", "bob", 403),
        ("root", "bob", 200),
    ]:
        assert (await ask("POST", path, {"by": by}, headers=keys[name])).status == status
    assert (await ask("POST", path, {}, headers=keys["ron"])).status == 403


@pytest.mark.parametrize("quorum", [{"need": 1, "of": ["ada"]}, {"need": 2}])
async def test_a_gate_that_asks_for_names_has_no_link_without_one(
    ask: People, quorum: dict[str, Any]
) -> None:
    run_id = await ask.waiting(quorum=quorum)
    answer = await ask("POST", f"/api/v1/runs/{run_id}/approvals/gate/links", {})
    assert (answer.status, answer.code) == (422, "invalid_inputs")


async def test_a_gate_that_is_not_open_has_no_link(ask: People) -> None:
    run_id = await ask.waiting()
    await ask.fill(await ask.link(run_id), answer="approve")
    for path, status in (("gate", 409), ("nowhere", 409)):
        answer = await ask("POST", f"/api/v1/runs/{run_id}/approvals/{path}/links", {})
        assert (answer.status, answer.code) == (status, "not_waiting")


async def test_a_gate_of_a_graph_is_answered_by_link(ask: People) -> None:
    flow = {
        "name": "graph",
        "start": "gate",
        "nodes": {"gate": {"kind": "approval", "params": {"approval_key": "ok"}}},
        "edges": [],
    }
    run_id = await ask.start(spec=flow)
    await ask.until(run_id, "waiting")
    link = await ask.link(run_id)
    assert (await ask.fill(link, answer="approve")).status == 200
    await ask.until(run_id, "completed")
    assert b"This was answered." in (await ask("GET", link)).body
