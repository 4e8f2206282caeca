"""No key of any tenant reads the server's own files, or a file of another tenant."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import Context, Holdfast, RunFailed, tool
from holdfast.config import Settings, load
from holdfast.http.serve import serving
from holdfast.store.roots import RootRefused
from holdfast.tools.registry import Registry
from tests import forks
from tests.http.conftest import Asker, Holds

pytestmark = pytest.mark.anyio


@tool
def make(context: Context, text: str) -> dict[str, Any]:
    (context.workdir / "f.txt").write_text(text)
    return {"file_refs": [{"path": "f.txt"}]}


@tool
def read(context: Context, uri: str) -> str:
    return context.artefact(uri).read_text()


@tool
def link(context: Context, target: str) -> dict[str, Any]:
    os.link(target, context.workdir / "innocent.txt")
    return {"file_refs": [{"path": "innocent.txt"}]}


class Far:
    """A server whose tools answer whatever they are asked to."""

    servers = ("far",)

    async def call(self, server: str, name: str, args: dict[str, Any], context: Context) -> Any:
        return args["value"]


@pytest.fixture
async def ask(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asker]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report").write_text("to hand out")
    (tmp_path / "holdfast.toml").write_text('artefact_roots = ["out"]')
    settings = load({"db": settings.db, "port": 0})
    registry = Registry([make, read, link], remote=Far())
    async with serving(settings, registry=registry) as server, aiohttp.ClientSession() as session:
        yield Asker(server, session, Holds())


def calls(name: str, **args: Any) -> dict[str, Any]:
    far, _, short = name.rpartition("/")
    step = {"id": "s", "tool": short, "args": args, **({"dcc": far} if far else {})}
    return {"name": "n", "steps": [step], "output": "{{s}}"}


async def key_of(ask: Asker, tenant: str) -> dict[str, str]:
    made = await ask.serving.services.api_keys.create(tenant, "k", ["read", "run", "resume"])
    return {"Authorization": f"Bearer {made.key}"}


async def done(ask: Asker, key: dict[str, str], **body: Any) -> Any:
    answer = await ask("POST", "/api/v1/runs", {"wait_secs": 60, **body}, headers=key)
    assert answer.status == 200, answer.body
    return answer.body


async def failure(ask: Asker, key: dict[str, str], spec: dict[str, Any]) -> str:
    run = await done(ask, key, spec=spec)
    assert (run["status"], run["error"]["kind"]) == ("failed", "artefact"), run
    return str(run["error"]["message"])


@pytest.mark.parametrize(
    "path",
    ["test.db", "{}/test.db", "test.db-wal", "test.db.lock", "holdfast.toml", "{}/holdfast.toml", "./test.db",
     "out/../test.db", "/proc/self/cwd/test.db", "/proc/self/environ", "/etc/passwd", "/dev/zero", __file__],
)  # fmt: skip
async def test_a_tenants_key_reads_no_file_of_the_server(ask: Asker, tmp_path: Path, path: str) -> None:
    entry = {"path": path.format(tmp_path)}
    key = await key_of(ask, "acme")
    for name in ("echo", "transform"):
        told = await failure(ask, key, calls(name, value={"file_refs": [entry]}))
        assert told.startswith("file_refs[0]: ") and "outside of the folders" in told
    nested = await failure(ask, key, calls("echo", value={"context": {"file_refs": [entry]}}))
    assert "outside of the folders" in nested
    assert not list(tmp_path.glob("test.db.artefacts/**/*[0-9a-f]"))


async def test_a_hard_link_to_the_database_is_not_handed_out(ask: Asker, tmp_path: Path) -> None:
    for name in ("test.db", "test.db-wal", "test.db.lock", "holdfast.toml"):
        told = await failure(ask, await key_of(ask, "acme"), calls("link", target=str(tmp_path / name)))
        assert "a file of the server itself" in told


async def test_a_listed_folder_gives_files_to_tools_of_this_machine_alone(ask: Asker) -> None:
    key, entry = await key_of(ask, "acme"), {"file_refs": [{"path": "out/report"}]}
    run = await done(ask, key, spec=calls("echo", value=entry))
    sha256 = run["output"]["file_refs"][0]["uri"].rpartition("/")[2]
    answer = await ask("GET", f"/api/v1/artefacts/{sha256}", headers=key)
    assert (answer.status, answer.body) == (200, b"to hand out")
    told = await failure(ask, key, calls("far/anything", value=entry))
    assert "an answer from outside cannot name files of this machine" in told


async def test_a_callback_names_no_file_even_of_a_listed_folder(ask: Asker) -> None:
    key = await key_of(ask, "acme")
    paused = await done(ask, key, spec=calls("echo", value={"pending": True, "task_id": "T1"}))
    answer = {"task_id": "T1", "result": {"file_refs": [{"path": "out/report"}]}}
    await ask("POST", "/workflows/resume", answer, headers=key)
    run = (await ask("GET", f"/api/v1/runs/{paused['run_id']}", headers=key)).body
    assert run["error"]["kind"] == "artefact", run


async def test_the_hash_of_another_tenants_file_gives_nothing(ask: Asker) -> None:
    acme, other = await key_of(ask, "acme"), await key_of(ask, "other")
    run = await done(ask, acme, spec=calls("make", text="of acme"))
    uri = run["output"]["file_refs"][0]["uri"]
    address = f"/api/v1/artefacts/{uri.rpartition('/')[2]}"
    inputs = {"name": "n", "inputs": {"x": {}}, "steps": [{"id": "s", "tool": "echo", "args": {"value": "{{inputs.x}}"}}]}  # fmt: skip
    await done(ask, other, spec=inputs, inputs={"x": uri})
    keyed = calls("echo", value={"file_refs": [{"uri": uri}]})
    keyed["steps"][0] |= {"idempotency_key": "k", "idempotency_scope": "global"}
    for _ in range(2):
        await done(ask, other, spec=keyed)
    first = await done(ask, other, spec=calls("echo", value=uri))
    assert (await ask("POST", f"/api/v1/runs/{first['run_id']}/rerun", {}, headers=other)).status == 202
    assert (await ask("GET", address, headers=other)).status == 404
    assert (await ask("GET", address, headers=acme)).body == b"of acme"
    told = await failure(ask, other, calls("read", uri=uri))
    assert "is not here" in told
    assert (await done(ask, acme, spec=calls("read", uri=uri)))["output"] == "of acme"


async def test_tenants_that_make_the_same_bytes_have_a_file_each(ask: Asker, tmp_path: Path) -> None:
    keys = {tenant: await key_of(ask, tenant) for tenant in ("acme", "other", "default")}
    runs = {tenant: await done(ask, key, spec=calls("make", text="same")) for tenant, key in keys.items()}
    assert len({run["output"]["file_refs"][0]["uri"] for run in runs.values()}) == 1
    assert len([path for path in tmp_path.glob("test.db.artefacts/**/*") if len(path.name) == 64]) == 3


# ------------------------------------------------------------------------------------------------------- at the start


@pytest.mark.parametrize("root", [".", "..", "/", "flows", "a.db.work", "{tests}", "/proc"])
async def test_a_root_that_holds_the_servers_files_is_refused_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("flows", "a.db.work"):
        (tmp_path / name).mkdir()
    root = root.format(tests=Path(__file__).parent)
    settings = Settings(db="sqlite:///a.db", port=0, flows="flows", artefact_roots=(root,))
    with pytest.raises(RootRefused, match="artefact_roots"):
        async with serving(settings, registry=Registry([make])):
            pass
    if root != "flows":  # which an embedded engine has none of
        with pytest.raises(ValueError, match="artefact_roots"):
            Holdfast("sqlite:///a.db", tools=[make], artefact_roots=[root])


def test_the_command_refuses_such_a_root_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("{name: n, steps: [{id: s, tool: echo}]}")
    found = forks.run(
        "holdfast", ["run", "hello.yaml", "--artefact-root", "."], cwd=tmp_path, env=dict(os.environ)
    )
    assert found.returncode == 2
    assert "artefact_roots" in found.stderr and "list a folder that has only files" in found.stderr


@pytest.mark.parametrize("way", ["flag", "environment", "file"])
def test_a_folder_is_listed_by_flag_environment_and_file(tmp_path: Path, way: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("x")
    (tmp_path / "f.yaml").write_text(
        "{name: n, steps: [{id: s, tool: echo, args: {value: {file_refs: [{path: out/a.txt}]}}}]}"
    )
    if way == "file":
        (tmp_path / "holdfast.toml").write_text('artefact_roots = ["out"]')
    flags = ["--artefact-root", "out"] if way == "flag" else []
    given = {"HOLDFAST_ARTEFACT_ROOTS": "out"} if way == "environment" else {}
    found = forks.run("holdfast", ["run", "f.yaml", *flags], cwd=tmp_path, env={**os.environ, **given})
    assert found.returncode == 0, found.stderr
    assert "artefact://sha256/" in found.stdout


async def test_an_embedded_engine_hands_out_the_work_folder_and_listed_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("x")
    (tmp_path / "b.txt").write_text("x")
    async with Holdfast("sqlite:///a.db", artefact_roots=["out"]) as hf:
        run = await hf.start(calls("echo", value={"file_refs": [{"path": "out/a.txt"}]}))
        assert hf.artefact((await run.result())["file_refs"][0]["uri"]).read_text() == "x"
        for path in ("b.txt", "a.db"):
            run = await hf.start(calls("echo", value={"file_refs": [{"path": path}]}))
            with pytest.raises(RunFailed, match="outside of the folders") as failed:
                await run.result()
            assert failed.value.error.kind == "artefact"
