"""A secret belongs to a tenant: no other tenant uses it, and no value is written anywhere."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from holdfast import Context, Holdfast, RunFailed, tool
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.runtime.rights import Rights
from holdfast.tools.guard import Guard
from holdfast.tools.registry import Registry
from tests.http.conftest import Answer, Asker, Holds

pytestmark = pytest.mark.anyio

CANARIES = {"SHARED": "canary-shared-1b9d", "OWN": "canary-default/+7f3a", "PLAIN_KEY": "canary-plain-55c1"}
ADMIN = "canary-admin-key-90aa"


def forms(value: str) -> list[str]:
    raw = value.encode()
    whole = [base64.b64encode(b"x" * n + raw).decode() for n in range(3)]
    return [value, *whole, raw.hex(), raw.hex().upper(), quote(value, safe="")]


@tool
async def leak(context: Context, key: str = "") -> Any:
    """Says a value in every way that there is."""
    value = key or os.environ["LEAK"]
    written = [*forms(value), base64.b64encode(f"user:{value}".encode()).decode()]
    context.log(f"using {written}", fields={"v": written})
    context.progress(0.5, message=" ".join(written))
    return {"said": written, value: 1}


@tool
async def breaks(key: str = "") -> None:
    raise RuntimeError(f"denied: {forms(key or os.environ['LEAK'])}")


@tool(isolate="process")
def environment() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOLDFAST_SECRET_SHARED", CANARIES["SHARED"])
    monkeypatch.setenv("HOLDFAST_SECRET_OWN", CANARIES["OWN"])
    monkeypatch.setenv("PLAIN_KEY", CANARIES["PLAIN_KEY"])
    return Settings(
        db=settings.db,
        port=0,
        key=ADMIN,
        resume_secret="canary-resume-secret",
        tenants={"acme": {"secrets": ["SHARED"]}},
        allow_networks=("127.0.0.0/8",),
    )


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    registry = Registry([leak, breaks, environment], guard=Guard(allowed=["127.0.0.0/8"]))
    async with serving(settings, registry=registry) as server, aiohttp.ClientSession() as session:
        yield Asker(server, session, Holds())


async def key_of(ask: Asker, tenant: str) -> dict[str, str]:
    made = await ask.serving.services.api_keys.create(
        tenant, "k", ["read", "run", "resume"], rights=Rights(skips_gate=True)
    )
    return {"Authorization": f"Bearer {made.key}"}


async def start(ask: Asker, tenant: str, spec: dict[str, Any], **body: Any) -> Answer:
    return await ask(
        "POST", "/api/v1/runs", {"spec": spec, "wait_secs": 60, **body}, headers=await key_of(ask, tenant)
    )


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"name": "n", "steps": [{"id": "s", "tool": name, "args": args}]}


def nothing_leaked(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            text = file.read_bytes()
            for value in (*CANARIES.values(), ADMIN):
                assert not [form for form in forms(value) if form.encode() in text], file.name


# ------------------------------------------------------------------------------------------------- whose a secret is


@pytest.mark.parametrize(
    ("tenant", "name", "is_theirs"),
    [
        ("default", "SHARED", True),
        ("default", "OWN", True),
        ("acme", "SHARED", True),
        ("acme", "OWN", False),
        ("acme", "own", False),
        ("other", "SHARED", False),
        ("other", "OWN", False),
        ("other", "PLAIN_KEY", False),
        ("default", "PLAIN_KEY", False),
    ],
)
async def test_a_step_is_given_secrets_of_its_tenant_alone(
    ask: Asker, tenant: str, name: str, is_theirs: bool
) -> None:
    secret = f"{{{{secrets.{name}}}}}"
    for args in ({"value": secret}, {"value": [{"deep": f"Bearer {secret}"}]}):
        run = (await start(ask, tenant, calls("echo", **args))).body
        if is_theirs:
            assert run["status"] == "completed" and "***" in json.dumps(run["output"])
        else:
            assert (run["status"], run["error"]["kind"]) == ("failed", "secret")
            assert f"no secret '{name}'" in run["error"]["message"]
            assert tenant == "default" or f"[tenants.{tenant}]" in run["error"]["message"]


async def test_headers_of_a_request_are_given_secrets_of_its_tenant_alone(ask: Asker) -> None:
    request = {"url": ask.serving.address + "/healthz", "headers": {"X-Key": "{{secrets.OWN}}"}}
    assert (await start(ask, "default", calls("http_request", **request))).body["status"] == "completed"
    assert (await start(ask, "acme", calls("http_request", **request))).body["error"]["kind"] == "secret"


@pytest.mark.parametrize(
    ("tenant", "name", "is_theirs"),
    [
        ("default", "OWN", True),
        ("acme", "SHARED", True),
        ("acme", "OWN", False),
        ("other", "SHARED", False),
        ("acme", "PLAIN_KEY", False),
        ("default", "PLAIN_KEY", False),
        ("default", "PATH", False),
    ],
)
async def test_a_start_names_a_callback_secret_of_its_tenant_or_is_refused(
    ask: Asker, tenant: str, name: str, is_theirs: bool
) -> None:
    callback = {"url": "https://127.0.0.1:9/x", "secret_env": name}
    in_workflow = {**calls("echo"), "on_complete": [callback]}
    for answer in (
        await start(ask, tenant, calls("echo"), final_callback=callback),
        await start(ask, tenant, in_workflow),
    ):
        if is_theirs:
            assert answer.status == 200
        else:
            assert 400 <= answer.status < 500
            assert f"secret_env: there is no secret '{name}'" in answer.body["message"]
    listed = await ask("GET", "/api/v1/runs", headers=await key_of(ask, tenant))
    assert len(listed.body["items" if "items" in listed.body else "runs"]) == (2 if is_theirs else 0)


async def test_templates_read_no_variable_that_is_not_listed_for_them(ask: Asker) -> None:
    for name in ("PLAIN_KEY", "HOLDFAST_SECRET_OWN", "HOLDFAST_API_KEY", "PATH"):
        for tenant in ("default", "acme"):
            answer = await start(ask, tenant, calls("echo", value=f"{{{{env.{name}}}}}"))
            assert answer.status >= 400 or not answer.body.get("output")


async def test_a_provider_that_is_told_the_tenant_serves_runs_of_every_tenant(
    settings: Settings, tmp_path: Path
) -> None:
    def vault(name: str, tenant: str) -> str | None:
        return f"value-of-{tenant}" if name == "V" else None

    seen: list[str] = []

    @tool
    async def take(key: str) -> None:
        seen.append(key)

    async with Holdfast(settings.db, tools=[take], secrets=[vault]) as hf:
        for tenant in ("acme", "default"):
            await hf._engine.commands.start(tenant, calls("take", key="{{secrets.V}}"))
        while len(seen) < 2:
            await asyncio.sleep(0.01)
    assert sorted(seen) == ["value-of-acme", "value-of-default"]


# -------------------------------------------------------------------------------------------------------- redaction


@pytest.mark.parametrize("value", [CANARIES["SHARED"], CANARIES["OWN"], ADMIN, "canary-resume-secret"])
async def test_a_value_that_was_never_handed_out_is_written_nowhere(
    ask: Asker,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Here the tools know the values themselves, as the tool of any tenant may."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("LEAK", value)
    told = []
    for tenant in ("acme", "default"):
        for name in ("leak", "breaks"):
            run = (await start(ask, tenant, calls(name))).body
            key = await key_of(ask, tenant)
            told += [run] + [
                (await ask("GET", f"/api/v1/runs/{run['run_id']}/{part}", headers=key)).body
                for part in ("steps", "journal")
            ]
    text = json.dumps(told) + caplog.text
    assert "***" in text
    assert not [form for form in forms(value) if form in text]
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert not [form for form in forms(value) if form.encode() in file.read_bytes()], file.name


async def test_values_are_redacted_after_a_restart_and_where_they_come_from_outside(
    settings: Settings, tmp_path: Path
) -> None:
    value, registry = CANARIES["OWN"], Registry([leak, breaks])
    pauses = calls("echo", value={"pending": True, "task_id": "T1"})
    waits = {"name": "w", "steps": [{"id": "s", "kind": "wait_event", "signal_key": "go"}]}
    async with serving(settings, registry=registry) as server, aiohttp.ClientSession() as session:
        ask = Asker(server, session, Holds())
        paused = (await start(ask, "acme", pauses)).body["run_id"]
        waiting = (await start(ask, "acme", waits, wait_secs=1)).body["run_id"]
    async with serving(settings, registry=registry) as server, aiohttp.ClientSession() as session:
        ask = Asker(server, session, Holds())
        key = await key_of(ask, "acme")
        early = {"task_id": "not yet known", "result": {"v": forms(value)}}
        await ask("POST", "/workflows/resume", early, headers=key)
        await ask("POST", "/workflows/resume", {"task_id": "T1", "result": {"v": forms(value)}}, headers=key)
        await ask(
            "POST", f"/api/v1/runs/{waiting}/signals", {"key": "go", "value": forms(value)}, headers=key
        )
        for run_id in (paused, waiting):
            run = (await ask("GET", f"/api/v1/runs/{run_id}", headers=key)).body
            assert run["status"] == "completed" and "***" in json.dumps(run["output"])
        nothing_leaked(tmp_path)
    nothing_leaked(tmp_path)


async def test_what_a_provider_gave_before_a_restart_is_redacted_after_it(tmp_path: Path) -> None:
    value = "canary-of-the-vault"
    spec = {
        "name": "n",
        "steps": [
            {"id": "a", "tool": "give", "args": {"key": "{{secrets.V}}"}},
            {"id": "s", "tool": "wait"},
        ],
    }

    @tool
    async def give(key: str) -> None:
        assert key == value

    @tool
    async def wait() -> Any:
        return {"pending": True, "task_id": "T1"}

    async def opened(work: Any) -> Any:
        async with Holdfast(str(tmp_path / "a.db"), tools=[give, wait], secrets=[{"V": value}.get]) as hf:
            return await work(hf)

    async def begin(hf: Holdfast) -> str:
        run = await hf.start(spec)
        while "s" not in await run.steps() or (await run.steps())["s"].status != "waiting":
            await asyncio.sleep(0.01)
        return run.id

    async def end(hf: Holdfast) -> Any:
        await hf.resume("T1", {"v": value})
        return await (await hf.run(run_id)).result(60)

    run_id = await opened(begin)
    assert (await opened(end))["s"] == {"v": "***"}


# ---------------------------------------------------------------------------------------------------- process tools


async def test_a_process_tool_has_no_variable_of_holdfast_and_no_secret(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", ADMIN)
    monkeypatch.setenv("COPY", f"postgres://u:{CANARIES['OWN']}@db")
    monkeypatch.setenv("HARMLESS", "harmless")
    run = (await start(ask, "acme", calls("environment"))).body
    found = run["output"]["s"]
    assert found["HARMLESS"] == "harmless" and "PATH" in found
    assert not [name for name in found if re.match("HOLDFAST_|COPY", name)]
    assert "***" not in json.dumps(found)


async def test_an_embedded_engine_gives_process_tools_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_OWN", CANARIES["OWN"])
    async with Holdfast(str(tmp_path / "a.db"), tools=[environment]) as hf:
        found = (await (await hf.start(calls("environment"))).result(60))["s"]
        assert "PATH" in found and not [name for name in found if name.startswith("HOLDFAST_")]
        with pytest.raises(RunFailed, match="secret"):
            await (await hf.start(calls("echo", value="{{secrets.NONE}}"))).result(60)
