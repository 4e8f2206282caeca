"""Webhooks: what a sender is answered, to the byte, and what becomes of what it sent."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import standardwebhooks

from holdfast import limits, tool
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.signing import signature, webhook_signature
from holdfast.spec.schedule import schedule_from_data
from holdfast.store.schedule_records import LedgerRow, Origin
from holdfast.tools.registry import Registry
from tests.http.conftest import ADD, Asker, Holds

pytestmark = pytest.mark.anyio

SECRET = "It's a Secret to Everybody"
BOOTSTRAP = "0123456789abcdef-bootstrap"
BODY = b'{"n": 40, "who": "Ada"}'
NONE: Mapping[str, str] = {}


class Raw(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


class Sender:
    """Sends to the webhooks of a server."""

    def __init__(self, asker: Asker) -> None:
        self.ask, self.engine = asker, asker.serving.services.engine

    async def schedule(
        self, _id: str = "upload", *, origin: Origin = "api", tenant: str = "default", **keys: Any
    ) -> None:
        trigger = {"kind": "webhook", "path": f"/hooks/{_id}", **keys.pop("trigger", {})}
        data = {
            "id": _id,
            "workflow": "sum",
            "inputs": {"a": "{{trigger.payload.n}}"},
            "max_concurrent": 0,
            **keys,
        }
        await self.engine.schedules.put(
            tenant, schedule_from_data({**data, "trigger": trigger}), origin=origin
        )

    async def __call__(
        self,
        body: bytes = BODY,
        headers: Mapping[str, str] = NONE,
        *,
        path: str = "/hooks/upload",
        method: str = "POST",
        **more: str,
    ) -> Raw:
        headers = {**headers, **more}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = self.ask.serving.address + path
        sent = io.BytesIO(body) if len(body) > 1_000_000 else body
        async with self.ask.session.request(method, url, data=sent, headers=named) as answer:
            return Raw(answer.status, await answer.read(), answer.headers)

    async def runs(self) -> list[dict[str, Any]]:
        return list((await self.ask("GET", "/api/v1/runs?limit=500")).body["items"])

    async def ledger(self, schedule_id: str = "upload") -> list[LedgerRow]:
        return await self.engine.store.ledger("default", schedule_id, None, 100)


@pytest.fixture
async def send(ask: Asker) -> Sender:
    return Sender(ask)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Sender]:
    async for sender in guarded_with(tmp_path):
        yield sender


async def guarded_with(tmp_path: Path, **settings: Any) -> AsyncIterator[Sender]:
    import aiohttp

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    own = Settings(db=f"sqlite:///{tmp_path / 'guarded.db'}", port=0, key=BOOTSTRAP, **settings)
    async with serving(own, registry=Registry([add])) as server, aiohttp.ClientSession() as session:
        await server.services.commands.publish("default", ADD)
        yield Sender(Asker(server, session, Holds()))


async def settled(send: Sender) -> None:
    """Until rows that no sender waits for are written, and what waits has been looked at."""
    await send.engine.kinds.occurrences.skips.close()
    while send.engine.kinds.waiting.is_busy:
        await asyncio.sleep(0)


def hub(body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    return {"x_hub_signature_256": signature(secret, body)}


# ------------------------------------------------------------------------------------------------------- accepted


async def test_a_delivery_starts_a_run_and_is_answered_with_its_inputs(send: Sender) -> None:
    await send.schedule()
    answer = await send()
    (run,) = await send.runs()
    assert answer.status == 202
    said = f'{{"status":"enqueued","schedule_id":"upload","workflow":"sum","inputs":{{"a":40}},"run_id":"{run["run_id"]}"}}'
    assert answer.body == said.encode()


async def test_echo_inputs_false_leaves_the_inputs_out_of_the_answer(send: Sender) -> None:
    await send.schedule(echo_inputs=False)
    answer = await send()
    (run,) = await send.runs()
    said = f'{{"status":"enqueued","schedule_id":"upload","workflow":"sum","run_id":"{run["run_id"]}"}}'
    assert (answer.status, answer.body) == (202, said.encode())


@pytest.mark.parametrize("body", [b"[1,2]", b"7", b'"text"', b"null", b'{"n":1}'])
async def test_any_json_is_a_payload_whatever_its_content_type(send: Sender, body: bytes) -> None:
    await send.schedule(inputs={"a": 1, "all": "{{trigger.payload}}"}, workflow="held")
    answer = await send(body, content_type="text/plain")
    assert answer.status == 202
    assert json.loads(answer.body)["inputs"]["all"] == json.loads(body)


@pytest.mark.parametrize("body", [b"", b"  \n"])
async def test_an_empty_body_counts_as_an_empty_object(send: Sender, body: bytes) -> None:
    await send.schedule(inputs={"all": "{{trigger.payload}}"}, workflow="held")
    answer = await send(body)
    assert (answer.status, json.loads(answer.body)["inputs"]) == (202, {"all": {}})


async def test_templates_can_name_the_schedule_the_workflow_and_the_kind(send: Sender) -> None:
    inputs = {"s": "{{trigger.schedule_id}} {{trigger.workflow}} {{trigger.kind}} {{trigger.is_catchup}}"}
    await send.schedule(inputs=inputs, workflow="held")
    assert json.loads((await send()).body)["inputs"] == {"s": "upload held webhook false"}


# ----------------------------------------------------------------------------------------------------- signatures


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    return SECRET


SIGNED = {"secret_env": "HOOK_SECRET"}


@pytest.mark.usefixtures("secret")
async def test_a_body_signed_as_github_signs_it_is_accepted(send: Sender) -> None:
    await send.schedule(trigger=SIGNED)
    assert (await send(headers=hub())).status == 202


@pytest.mark.usefixtures("secret")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x_hub_signature_256": ""},
        {"x_hub_signature_256": signature("wrong", BODY)},
        {"x_hub_signature_256": signature(SECRET, BODY).upper()},
        {"x_hub_signature_256": signature(SECRET, BODY).removeprefix("sha256=")},
        {"x_hub_signature_256": signature(SECRET, BODY)[:-1]},
        {"x_hub_signature_256": signature(SECRET, BODY) + "é"},
        {"x_hub_signature": "sha1=00"},
        {"webhook_id": "1", "webhook_timestamp": "1", "webhook_signature": "v1,AAAA"},
        {**hub(), "webhook_id": "1", "webhook_timestamp": "1", "webhook_signature": "v1,AAAA"},
    ],
)
async def test_any_other_signature_is_refused_before_the_body_is_parsed(
    send: Sender, headers: dict[str, str]
) -> None:
    await send.schedule(trigger=SIGNED)
    answer = await send(headers=headers)
    assert (answer.status, answer.body) == (401, b'{"error":"invalid_signature"}')
    assert (await send(b"not JSON", headers)).status == 401
    assert await send.runs() == []


@pytest.mark.usefixtures("secret")
async def test_a_signature_that_is_sent_twice_is_refused(send: Sender) -> None:
    await send.schedule(trigger=SIGNED)
    headers = [("x-hub-signature-256", signature(SECRET, BODY))] * 2
    url = send.ask.serving.address + "/hooks/upload"
    async with send.ask.session.post(url, data=BODY, headers=headers) as answer:
        assert (answer.status, await answer.read()) == (401, b'{"error":"invalid_signature"}')


async def test_messages_of_standard_webhooks_are_accepted_within_their_time(
    send: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    monkeypatch.setenv("HOOK_SECRET", secret)
    await send.schedule(trigger=SIGNED)
    now = datetime.now(UTC)
    signed = standardwebhooks.Webhook(secret).sign("msg_1", now, BODY.decode())
    about = {
        "webhook_id": "msg_1",
        "webhook_timestamp": str(int(now.timestamp())),
        "webhook_signature": signed,
    }
    assert (await send(headers=about)).status == 202
    (row,) = await send.ledger()
    assert row.occurrence == "msg_1"
    old = int(now.timestamp()) - 301
    late = {
        "webhook_id": "msg_2",
        "webhook_timestamp": str(old),
        "webhook_signature": webhook_signature(secret, "msg_2", old, BODY),
    }
    assert (await send(headers=late)).status == 401


async def test_either_secret_is_accepted_while_one_replaces_the_other(
    send: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEW_SECRET", "the new one")
    monkeypatch.setenv("OLD_SECRET", "the old one")
    await send.schedule(trigger={"secret_env": ["NEW_SECRET", "OLD_SECRET"]})
    assert (await send(headers=hub(secret="the new one"))).status == 202
    assert (await send(headers=hub(secret="the old one"))).status == 202
    monkeypatch.delenv("OLD_SECRET")
    assert (await send(headers=hub(secret="the new one"))).status == 202
    assert (await send(headers=hub(secret="the old one"))).status == 401


@pytest.mark.parametrize("value", [None, ""])
async def test_a_missing_or_empty_secret_is_the_servers_fault(
    send: Sender, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("HOOK_SECRET", value)
    await send.schedule(trigger=SIGNED)
    for headers in ({}, hub(secret="")):
        answer = await send(headers=headers)
        assert (answer.status, answer.body) == (
            500,
            b'{"error":"webhook_secret_missing","env":"HOOK_SECRET"}',
        )


@pytest.mark.parametrize("value", [None, ""])
async def test_a_secret_that_is_missing_when_the_schedule_is_loaded_is_a_warning(
    send: Sender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("HOOK_SECRET", value)
    await send.schedule(trigger=SIGNED)
    (warned,) = [one for one in caplog.messages if "HOOK_SECRET" in one]
    assert (
        warned == "schedule upload: HOOK_SECRET is not set; its webhook /hooks/upload answers 500 until it is"
    )


@pytest.mark.usefixtures("secret")
async def test_a_secret_that_is_set_or_not_needed_is_no_warning(
    send: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    await send.schedule(trigger=SIGNED)
    await send.schedule("rotated", trigger={"secret_env": ["NOT_SET_YET", "HOOK_SECRET"]})
    await send.schedule("off", enabled=False, trigger={"secret_env": "NOT_SET_YET"})
    await send.schedule("unsigned")
    assert not [one for one in caplog.messages if "is not set" in one]


@pytest.mark.usefixtures("secret")
async def test_a_secret_that_is_removed_while_the_server_runs_is_missing_at_the_next_request(
    send: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send.schedule(trigger=SIGNED)
    assert (await send(headers=hub())).status == 202
    monkeypatch.delenv("HOOK_SECRET")
    assert (await send(headers=hub())).status == 500


# -------------------------------------------------------------------------------------------------- guarded mode


@pytest.mark.usefixtures("secret")
async def test_on_a_guarded_server_a_signed_webhook_needs_no_key(guarded: Sender) -> None:
    await guarded.schedule(trigger=SIGNED, origin="file")
    assert (await guarded(headers=hub())).status == 202
    assert (await guarded()).status == 401


@pytest.mark.usefixtures("secret")
async def test_a_schedule_made_over_the_api_of_a_guarded_server_cannot_name_any_variable(
    guarded: Sender,
) -> None:
    await guarded.schedule(trigger=SIGNED, origin="api")
    answer = await guarded(headers=hub())
    assert (answer.status, answer.body) == (500, b'{"error":"webhook_secret_missing","env":"HOOK_SECRET"}')


async def test_a_secret_of_the_tenant_is_found_on_a_guarded_server(
    guarded: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_HOOK_SECRET", SECRET)
    await guarded.schedule(trigger=SIGNED, origin="api")
    assert (await guarded(headers=hub())).status == 202


async def test_another_tenant_does_not_get_the_secrets_of_the_default_one(
    guarded: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_HOOK_SECRET", SECRET)
    await guarded.schedule(trigger=SIGNED, tenant="acme")
    assert (await guarded(headers=hub())).status == 500


async def test_an_unsigned_webhook_is_answered_on_a_guarded_server_only_if_it_says_so(
    guarded: Sender,
) -> None:
    await guarded.schedule("open", origin="file", allow_unsigned=True)
    assert (await guarded(path="/hooks/open")).status == 202


async def test_a_webhook_has_a_rate_of_its_own_by_path_and_address(tmp_path: Path) -> None:
    async for sender in guarded_with(tmp_path, rate_per_webhook=1, rate_per_address=1):
        for name in ("one", "two"):
            await sender.schedule(name, origin="file", allow_unsigned=True)
        burst = limits.DEFAULTS.burst_secs_max
        found = [(await sender(path="/hooks/one")).status for _ in range(burst + 1)]
        assert found == [*[202] * burst, 429]
        assert b"rate_per_webhook" in (await sender(path="/hooks/one")).body
        assert (await sender(path="/hooks/two")).status == 202


# ------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_any_method_but_post_is_refused(send: Sender, method: str) -> None:
    await send.schedule()
    answer = await send(method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_disabled_schedule_has_no_webhook(send: Sender) -> None:
    await send.schedule(enabled=False)
    assert (await send()).status == 404


@pytest.mark.parametrize(
    "path", ["/hooks", "/hooks/upload/", "/hooks/upload/x", "/hooks%2Fupload", "/Hooks/upload"]
)
async def test_only_the_exact_path_is_a_webhook(send: Sender, path: str) -> None:
    await send.schedule()
    import yarl

    url = yarl.URL(send.ask.serving.address + path, encoded=True)
    async with send.ask.session.post(url, data=BODY) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    "body", [b"{", b"not JSON", b"{'a': 1}", b'{"a": NaN}', b"\xff", b'{"a":1} x', b"[" * 65 + b"]" * 65]
)
async def test_what_is_not_json_is_refused(send: Sender, body: bytes) -> None:
    await send.schedule()
    answer = await send(body)
    assert answer.status == 400
    said = json.loads(answer.body)
    assert list(said) == ["error", "message"] and said["error"] == "invalid_json"
    assert await send.ledger() == []


async def test_a_body_over_25_mib_is_refused(send: Sender) -> None:
    await send.schedule()
    answer = await send(b'"' + b"x" * limits.DEFAULTS.webhook_bytes_max + b'"')
    assert answer.status == 413
    assert b"webhook_bytes_max" in answer.body


async def test_a_body_of_25_mib_is_accepted(send: Sender) -> None:
    await send.schedule()
    text = b'{"n":1,"x":"'
    body = text + b"x" * (limits.DEFAULTS.webhook_bytes_max - len(text) - 2) + b'"}'
    answer = await send(body)
    assert (answer.status, json.loads(answer.body)["inputs"]) == (202, {"a": 1})


async def test_a_delivery_is_refused_while_nothing_can_be_written_and_accepted_afterwards(
    send: Sender,
) -> None:
    await send.schedule()
    file = Path(send.engine.store.path)  # type: ignore[attr-defined]
    away = file.rename(file.with_name("away"))
    answer = await send(x_github_delivery="d1")
    assert answer.status == 503
    assert json.loads(answer.body)["error"] == "store_gone"
    away.rename(file)
    async with asyncio.timeout(60):
        while (await send.ask("GET", "/readyz")).status != 200:
            await asyncio.sleep(0.05)
    assert (await send(x_github_delivery="d1")).status == 202
    assert len(await send.runs()) == 1


async def test_an_unknown_workflow_is_a_row_of_the_ledger_and_500(send: Sender) -> None:
    await send.schedule(workflow="summ")
    answer = await send(x_github_delivery="d1")
    said = json.loads(answer.body)
    assert (answer.status, list(said), said["error"]) == (500, ["error", "message"], "sink_failed")
    (row,) = await send.ledger()
    assert (row.occurrence, row.outcome, row.reason) == ("d1", "failed", "unknown_workflow")


async def test_inputs_that_the_workflow_does_not_accept_are_500(send: Sender) -> None:
    await send.schedule(inputs={"a": "{{trigger.payload.who}}"})
    answer = await send()
    assert (answer.status, json.loads(answer.body)["error"]) == (500, "sink_failed")
    (row,) = await send.ledger()
    assert (row.outcome, row.reason) == ("failed", "invalid_inputs")


async def test_strict_templates_refuse_a_payload_that_lacks_something(send: Sender) -> None:
    await send.schedule(strict_templates=True, inputs={"a": "{{trigger.payload.none}}", "b": "{{trigger.x}}"})
    answer = await send()
    said = b'{"error":"unresolved_template","schedule_id":"upload","placeholders":["trigger.payload.none","trigger.x"]}'
    assert (answer.status, answer.body) == (422, said)
    (row,) = await send.ledger()
    assert (row.outcome, row.reason, row.run_id) == ("failed", "unresolved_template", None)


async def test_a_placeholder_that_leads_nowhere_is_left_and_the_ledger_warns(send: Sender) -> None:
    await send.schedule(
        inputs={"x": "{{ trigger.payload.none }}", "y": "a {{ trigger.payload.none }}"}, workflow="held"
    )
    answer = await send()
    assert json.loads(answer.body)["inputs"] == {
        "x": "{{ trigger.payload.none }}",
        "y": "a {{trigger.payload.none}}",
    }
    (row,) = await send.ledger()
    assert row.outcome == "fired"
    (warning,) = json.loads(row.detail or "{}")["warnings"]
    assert "{{trigger.payload.none}}" in warning


# ------------------------------------------------------------------------------------------------------ repetitions


@pytest.mark.parametrize("header", ["x_github_delivery", "webhook_id", "svix_id"])
async def test_a_delivery_that_is_repeated_gets_the_first_answer_and_starts_nothing(
    send: Sender, header: str
) -> None:
    await send.schedule()
    first = await send(headers={header: "d1"})
    again = await send(b'{"n": 7}', {header: "d1"})
    assert (again.status, again.body) == (202, first.body)
    assert len(await send.runs()) == 1


async def test_equal_bodies_are_two_deliveries_by_default(send: Sender) -> None:
    await send.schedule()
    assert (await send()).body != (await send()).body
    assert len(await send.runs()) == 2


async def test_dedup_body_recognises_a_repeated_body(send: Sender) -> None:
    await send.schedule(dedup="body")
    first = await send(x_github_delivery="d1")
    assert (await send(x_github_delivery="d2")).body == first.body
    assert (await send(b'{"n": 1}', x_github_delivery="d1")).body != first.body


async def test_dedup_none_starts_a_run_for_each_delivery(send: Sender) -> None:
    await send.schedule(dedup="none")
    for _ in range(2):
        assert (await send(x_github_delivery="d1")).status == 202
    assert len(await send.runs()) == 2


async def test_ten_thousand_repetitions_start_one_run(send: Sender) -> None:
    await send.schedule()
    bodies: set[bytes] = set()

    async def repeat(times: int) -> None:
        for _ in range(times):
            answer = await send(x_github_delivery="d1")
            assert answer.status == 202
            bodies.add(answer.body)

    await asyncio.gather(*(repeat(100) for _ in range(100)))
    assert len(bodies) == 1 and len(await send.runs()) == 1


async def test_a_delivery_that_was_refused_may_be_sent_again(send: Sender) -> None:
    await send.schedule(workflow="later")
    assert (await send(x_github_delivery="d1")).status == 500
    await send.ask.serving.services.commands.publish("default", {**ADD, "name": "later"})
    assert (await send(x_github_delivery="d1")).status == 202
    (row,) = await send.ledger()
    assert row.outcome == "fired"


@pytest.mark.parametrize("given", ["x" * 256, "a b"])
async def test_an_id_that_is_too_long_or_has_blanks_is_refused(send: Sender, given: str) -> None:
    await send.schedule()
    assert (await send(x_github_delivery=given)).status == 400


# --------------------------------------------------------------------------------------------------- open runs


async def test_at_the_limit_of_open_runs_a_delivery_is_refused(send: Sender) -> None:
    await send.schedule(workflow="held", max_concurrent=1, inputs={})
    assert (await send()).status == 202
    answer = await send()
    said = b'{"error":"max_concurrent_exceeded","schedule_id":"upload","in_flight":1,"max_concurrent":1}'
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, said, "5")


async def test_of_200_deliveries_at_once_one_is_accepted_at_a_limit_of_one(send: Sender) -> None:
    await send.schedule(workflow="held", max_concurrent=1, inputs={})
    found = await asyncio.gather(*(send() for _ in range(200)))
    assert sorted(answer.status for answer in found) == [202, *[429] * 199]
    assert len(await send.runs()) == 1


async def test_deliveries_that_are_refused_are_one_row_of_the_ledger(send: Sender) -> None:
    await send.schedule(workflow="held", max_concurrent=1, inputs={})
    for _ in range(4):
        await send()
    await settled(send)
    refused, fired = await send.ledger()
    assert (fired.outcome, refused.outcome, refused.reason, refused.times) == (
        "fired",
        "skipped",
        "overlap",
        3,
    )


async def test_the_outcomes_of_deliveries_are_counted_once_each(send: Sender) -> None:
    await send.schedule("held", workflow="held", max_concurrent=1, overlap="buffer_one", inputs={})
    await send.schedule("lost", workflow="unknown")
    for given in ("d1", "d1", "d2", "d2", "d3"):
        await send(path="/hooks/held", x_github_delivery=given)
    await send(path="/hooks/lost")
    counts = send.engine.fires.tally.occurrences
    assert counts == {
        ("", "held", "fired", ""): 1,  # of d1; d2 waits, and is counted when it starts
        ("", "held", "skipped", "overlap"): 1,
        ("", "lost", "failed", "unknown_workflow"): 1,
    }
    send.ask.holds.free.set()
    while counts["", "held", "fired", ""] < 2:
        await asyncio.sleep(0)


async def test_a_delivery_that_waits_is_answered_and_starts_when_there_is_room(send: Sender) -> None:
    await send.schedule(
        workflow="held", max_concurrent=1, overlap="buffer_one", inputs={"n": "{{trigger.payload.n}}"}
    )
    await send(b'{"n":1}', x_github_delivery="d1")
    waits = await send(b'{"n":2}', x_github_delivery="d2")
    said = b'{"status":"buffered","schedule_id":"upload","workflow":"held","inputs":{"n":2}}'
    assert (waits.status, waits.body) == (202, said)
    assert (await send(b'{"n":3}', x_github_delivery="d3")).status == 429
    send.ask.holds.free.set()
    await settled(send)
    while len(runs := await send.runs()) < 2:
        await asyncio.sleep(0)
    again = await send(b'{"n":2}', x_github_delivery="d2")
    assert (again.status, again.body) == (202, said)
    assert len(runs) == 2


async def test_a_delivery_that_a_newer_one_replaced_starts_nothing_when_it_is_repeated(send: Sender) -> None:
    await send.schedule(workflow="held", max_concurrent=1, overlap="cancel_previous", inputs={"n": 1})
    await send(x_github_delivery="d1")
    send.engine.kinds.waiting._is_open = False  # so that it goes on waiting
    replaced = await send(x_github_delivery="d2")
    await send(x_github_delivery="d3")
    again = await send(x_github_delivery="d2")
    assert (again.status, again.body) == (202, replaced.body)
    outcomes = {row.occurrence: (row.outcome, row.reason) for row in await send.ledger()}
    assert outcomes["d2"] == ("skipped", "superseded")


async def test_a_paused_schedule_refuses_deliveries(send: Sender) -> None:
    await send.schedule()
    await send.engine.schedules.pause("default", "upload")
    answer = await send()
    assert (answer.status, answer.body) == (409, b'{"error":"schedule_paused","schedule_id":"upload"}')
    await send.engine.schedules.resume("default", "upload")
    assert (await send()).status == 202


# -------------------------------------------------------------------------------------------------- come and go


async def test_a_webhook_moves_with_an_edit_and_goes_with_its_schedule(send: Sender) -> None:
    await send.schedule()
    await send.schedule(trigger={"path": "/hooks/moved"})
    assert (await send()).status == 404
    assert (await send(path="/hooks/moved")).status == 202
    await send.engine.schedules.delete("default", "upload")
    assert (await send(path="/hooks/moved")).status == 404


# ------------------------------------------------------------------------------------------------------ redelivery


async def redelivered(send: Sender, delivery: str, schedule_id: str = "upload", **headers: str) -> Any:
    path = f"/api/v1/schedules/{schedule_id}/redeliver"
    return await send.ask("POST", path, {"delivery": delivery}, headers=headers)


async def test_a_delivery_is_delivered_again_with_the_payload_that_was_kept(send: Sender) -> None:
    await send.schedule()
    await send(headers={"x_github_delivery": "d1"})
    answer = await redelivered(send, "d1")
    assert answer.status == 202 and answer.body["occurrence"].startswith("redelivery:")
    first, second = await send.runs()
    assert first["run_id"] != second["run_id"]
    inputs = [
        (await send.ask("GET", f"/api/v1/runs/{run['run_id']}")).body["inputs"] for run in (first, second)
    ]
    assert inputs[0] == inputs[1]
    assert [row.reason for row in await send.ledger()] == ["redelivery", ""]


async def test_a_delivery_that_could_not_start_a_run_is_delivered_again_once_it_can(send: Sender) -> None:
    await send.schedule(workflow="later")
    assert (await send(headers={"x_github_delivery": "d1"})).status == 500
    await send.schedule(workflow="sum")
    assert (await redelivered(send, "d1")).status == 202


async def test_only_a_delivery_of_the_ledger_whose_payload_was_kept_is_delivered_again(
    send: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send.schedule()
    assert (await redelivered(send, "d1")).code == "not_found"
    assert (await redelivered(send, "d1", "nothing")).code == "not_found"
    monkeypatch.setattr(limits, "now", limits.chosen({"delivery_bytes_max": 10}))
    await send(headers={"x_github_delivery": "d1"})
    answer = await redelivered(send, "d1")
    assert (answer.status, answer.code) == (422, "invalid_inputs") and "was not kept" in answer.body[
        "message"
    ]


async def test_a_redelivery_at_the_limit_of_open_runs_is_refused(send: Sender) -> None:
    await send.schedule(workflow="held", inputs={}, max_concurrent=1)
    assert (await send(headers={"x_github_delivery": "d1"})).status == 202
    assert (await redelivered(send, "d1")).code == "max_concurrent_exceeded"


async def test_a_redelivery_needs_the_scope_run_and_stays_within_its_tenant(guarded: Sender) -> None:
    await guarded.schedule(tenant="other", origin="file", allow_unsigned=True, workflow="none")
    await guarded(headers={"x_github_delivery": "d1"})
    assert (await redelivered(guarded, "d1")).status == 401
    admin = {"authorization": f"Bearer {BOOTSTRAP}"}
    made = {"name": "reader", "scopes": ["read"]}
    key = (await guarded.ask("POST", "/api/v1/keys", made, headers=admin)).body["key"]
    assert (await redelivered(guarded, "d1", authorization=f"Bearer {key}")).status == 403
    assert (await redelivered(guarded, "d1", **admin)).code == "not_found"
