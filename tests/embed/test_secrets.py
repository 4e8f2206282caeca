"""Secrets reach the tool and nothing else: no file, log, event or error holds one."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, RunFailed

CANARY = 'c4nary"\\-ü-0451-xyz'

FLOW = """
name: flow
inputs: {who: {type: string}}
steps:
  - {id: whole, tool: show, args: {key: "{{secrets.token}}"}}
  - {id: inside, tool: show, args: {key: "Bearer {{secrets.token}} for {{inputs.who}}", deep: [{a: "{{secrets.token}}"}]}}
  - {id: later, tool: show, args: {key: "{{inside.said}}"}}
  - id: each
    kind: foreach
    items: $.inside.list
    steps: [{id: s, tool: show, args: {key: "{{secrets.token}}", n: "{{item}}"}, idempotency_key: "k-{{item}}"}]
  - {id: fails, tool: fails, args: {key: "{{secrets.token}}"}, retry: {max_attempts: 2, initial_delay_ms: 1}}
"""


def _tools(seen: list[Any]) -> list[Any]:
    async def show(ctx: Context, key: str, deep: Any = None, n: Any = None) -> Any:
        seen.append(key)
        ctx.log(f"using {key}", key=key)
        ctx.progress(0.5, message=key)
        return {"said": key, "list": [1, 2], key: [key, {"k": f"<{key}>"}]}

    def fails(key: str) -> None:
        raise RuntimeError(f"denied: {key!r} is wrong, says {{'token': {key!r}}}")

    return [show, fails]


def test_a_secret_is_in_no_file_log_event_or_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", CANARY)
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    told: list[str] = []

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=_tools(seen)) as hf:
            run = await hf.start(FLOW, {"who": "me"})
            told.extend([repr(event) async for event in run.events()])
            with pytest.raises(RunFailed) as failed:
                await run.result(timeout=60)
            told.append(repr(failed.value) + str(failed.value) + repr(failed.value.error))
            told.append(repr(await run.steps()))
            copy = [
                sys.executable,
                "-m",
                "holdfast.cli.main",
                "backup",
                str(tmp_path / "copy.db"),
                "--db",
                str(tmp_path / "a.db"),
            ]
            await asyncio.to_thread(subprocess.run, copy, capture_output=True, check=True)
            _no_hit(tmp_path)  # the write-ahead log is there as long as the engine is open
        _no_hit(tmp_path)

    asyncio.run(main())
    assert seen[:2] == [CANARY, f"Bearer {CANARY} for me"]
    assert CANARY not in "".join(told) and CANARY not in caplog.text


def _no_hit(folder: Path) -> None:
    forms = [CANARY.encode(), CANARY.encode("unicode_escape"), b"c4nary", b"0451-xyz"]
    for file in folder.rglob("*"):
        if file.is_file():
            text = file.read_bytes()
            assert not any(form in text for form in forms), f"{file.name} holds the secret"


def test_a_missing_secret_fails_the_step_with_kind_secret_and_says_where_to_put_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=_tools([])) as hf:
            run = await hf.start(
                '{"name": "f", "steps": [{"id": "s", "tool": "show", "args": {"key": "{{secrets.none}}"}}]}'
            )
            with pytest.raises(RunFailed, match="HOLDFAST_SECRET_none") as failed:
                await run.result(timeout=60)
            assert failed.value.error.kind == "secret"

    asyncio.run(main())


def test_a_provider_is_asked_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_token", "from the environment")
    seen: list[Any] = []

    async def main() -> None:
        vault = {"token": "from the vault"}
        async with Holdfast(str(tmp_path / "a.db"), tools=_tools(seen), secrets=[vault.get]) as hf:
            run = await hf.start(
                '{"name": "f", "steps": [{"id": "s", "tool": "show", "args": {"key": "{{secrets.token}}"}}]}'
            )
            await run.result(timeout=60)

    asyncio.run(main())
    assert seen == ["from the vault"]
