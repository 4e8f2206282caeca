"""A plugin of WebAssembly whose file is replaced while the engine runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.embed import Holdfast
from holdfast.ops.plugin_files import PluginFiles
from holdfast.plugins.find import referenced
from holdfast.plugins.load import load
from holdfast.testing import TestEngine
from tests.plugins.wat import compiled, text
from tests.triggers.scheduled import ledger, runs

MINUTELY = text(schedules='{"ok": [{"id": "minutely", "cron": "* * * * *"}]}')
HOURLY = text(schedules='{"ok": [{"id": "hourly", "cron": "0 * * * *"}]}')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return compiled(tmp_path / "cleaner.wasm", MINUTELY)


async def watched(engine: TestEngine, file: Path) -> tuple[Holdfast, PluginFiles]:
    """An engine with the plugin, and its file."""
    loaded = await load(referenced([str(file)]))
    engine.options["plugins"] = [one.plugin for one in loaded.plugins]
    hf = await engine.open()
    plugins = hf._engine.plugins
    plugins.use(loaded)
    return hf, PluginFiles([str(file)], plugins.replace)


def replaced(file: Path, source: str) -> None:
    other = compiled(file.with_suffix(".new"), source)
    os.replace(other, file)


async def test_a_replaced_file_is_loaded_anew(engine: TestEngine, file: Path) -> None:
    hf, files = await watched(engine, file)
    replaced(file, HOURLY)
    await files.scan()
    stored = await hf._engine.store.schedules("default", "", 10)
    assert [row.id for row in stored] == ["plugin:cleaner:hourly"]


async def test_runs_after_the_replacement_are_those_of_the_new_module(engine: TestEngine, file: Path) -> None:
    _, files = await watched(engine, file)
    await engine.advance(minutes=1)
    replaced(file, MINUTELY.replace("(i64.const 8796093022220)", "unreachable"))
    await files.scan()
    await engine.advance(minutes=1)
    assert [run.status for run in await runs(engine)] == ["completed", "failed"]


async def test_the_old_module_is_cleaned_up(
    engine: TestEngine, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replaced(file, text(cleanup='{"err": "the old one"}'))
    _, files = await watched(engine, file)
    replaced(file, HOURLY)
    await files.scan()
    assert "plugin cleaner: cleanup() failed: the old one" in caplog.text


async def test_a_file_that_cannot_be_used_leaves_the_old_one_running(
    engine: TestEngine, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, files = await watched(engine, file)
    file.write_bytes(b"half of a file")
    await files.scan()
    await engine.advance(minutes=1)
    assert "is not a module of WebAssembly" in caplog.text
    assert [row.outcome for row in await ledger(engine, "plugin:cleaner:minutely")] == ["fired"]


async def test_a_file_that_has_not_changed_is_not_loaded(engine: TestEngine, file: Path) -> None:
    hf, files = await watched(engine, file)
    before = hf._engine.plugins.loaded
    await files.scan()
    assert hf._engine.plugins.loaded is before


async def test_a_file_that_is_gone_leaves_the_plugin_running(engine: TestEngine, file: Path) -> None:
    _, files = await watched(engine, file)
    file.unlink()
    await files.scan()
    await engine.advance(minutes=1)
    assert len(await runs(engine)) == 1
