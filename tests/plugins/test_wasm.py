"""Plugins of WebAssembly: their interface, their budget, and what a wrong one gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import ScheduledRunCtx, ToolError
from holdfast.plugins import wasm
from holdfast.plugins.find import referenced
from holdfast.plugins.load import Loaded, clean_up, load
from holdfast.plugins.wasm import FUEL_CLEANUP, FUEL_RUN, FUEL_SCHEDULES, WasmPlugin
from tests.docs.pages import ROOT
from tests.plugins.wat import OK, compiled, text

CTX = ScheduledRunCtx("hourly", 1_700_000_000_000, run_count=3, total_run_count=5)
FOREVER = "(loop $again (br $again))"


def plugin(folder: Path, source: str) -> WasmPlugin:
    return WasmPlugin(compiled(folder / "cleaner.wasm", source))


async def loaded(path: Path) -> Loaded:
    return await load(referenced([str(path)]))


@pytest.mark.anyio
async def test_a_module_is_a_plugin_with_the_name_of_its_file(tmp_path: Path) -> None:
    [found] = (await loaded(compiled(tmp_path / "cleaner.wasm", text()))).plugins
    assert (found.name, found.priority) == ("cleaner", 1000)
    assert [spec.id for spec in found.schedules] == ["plugin:cleaner:hourly"]


def test_a_run_that_answers_ok_succeeds(tmp_path: Path) -> None:
    plugin(tmp_path, text()).run(CTX)


def test_a_run_that_answers_err_fails_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"^no table$"):
        plugin(tmp_path, text(run='{"err": "no table"}')).run(CTX)


def test_a_run_receives_its_context_as_json(tmp_path: Path) -> None:
    """The module answers with the bytes that it was given, as the message of an error."""
    echo = """
      (memory.copy (i32.const 4103) (local.get $at) (local.get $length))
      (memory.copy (i32.add (i32.const 4103) (local.get $length)) (i32.const 1024) (i32.const 1))
      (return (i64.or (i64.const 0x100000000000) (i64.extend_i32_u (i32.add (local.get $length) (i32.const 8)))))
    """
    source = text(before_run=echo, cleanup=None).replace(
        '(func (export "alloc")',
        '(data (i32.const 4096) "{\\"ok\\": ") (data (i32.const 1024) "}") (func (export "alloc")',
    )
    answer = plugin(tmp_path, source)._call("run", FUEL_RUN, b'{"schedule_id":"hourly"}')
    assert answer == {"schedule_id": "hourly"}


def test_the_example_of_the_documentation_is_a_plugin(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "plugins.md").read_text("utf-8")
    [example] = re.findall(r"```text\n(\(module.*?)```", page, re.DOTALL)
    one = plugin(tmp_path, example)
    assert one.schedules() == [{"id": "hourly", "cron": "@hourly"}]
    one.run(CTX)


def test_budgets_are_those_of_the_interface() -> None:
    assert (FUEL_RUN, FUEL_SCHEDULES, FUEL_CLEANUP) == (1_000_000_000, 10_000_000, 100_000_000)


def test_a_run_that_never_ends_uses_up_its_fuel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm, "FUEL_RUN", 100_000)
    with pytest.raises(ToolError, match=r"^run has used up its 100,000 units of fuel$"):
        plugin(tmp_path, text(before_run=FOREVER)).run(CTX)


def test_each_call_has_its_whole_budget(tmp_path: Path) -> None:
    """Two calls that use more than half of it each."""
    count = f"""(local $left i32) (local.set $left (i32.const {FUEL_SCHEDULES // 10}))
      (loop $again (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))"""
    source = text().replace(
        '(func (export "schedules")  (result i64) ', f'(func (export "schedules") (result i64) {count}'
    )
    one = plugin(tmp_path, source)
    assert one.schedules() == one.schedules()


def test_memory_does_not_survive_a_call(tmp_path: Path) -> None:
    trap_the_second_time = (
        "(if (i32.load (i32.const 6000)) (then unreachable)) (i32.store (i32.const 6000) (i32.const 1))"
    )
    one = plugin(tmp_path, text(before_run=trap_the_second_time))
    one.run(CTX)
    one.run(CTX)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (text(before_run="unreachable"), "run failed: wasm trap: wasm `unreachable` instruction executed"),
        (text(before_run="(return (i64.const -1))"), "the answer is"),
        (text(before_run="(return (i64.const 0xffff00000010))"), "outside of the memory"),
        (text(run="hello"), "the answer of run is not JSON"),
        (text(run="{}"), 'must be {"ok": …} or {"err": "message"}'),
        (text(run='{"err": 5}'), 'must be {"ok": …} or {"err": "message"}'),
        (text().replace("(i32.const 8192)", "(i32.const -1)"), "alloc returned"),
        (text().replace('"memory") 1', '"memory") 10000'), "exceeds memory limits"),
    ],
)
def test_a_module_that_misbehaves_fails_its_run(tmp_path: Path, source: str, words: str) -> None:
    one = plugin(tmp_path, source)
    with pytest.raises(ToolError) as failed:
        one.run(CTX)
    assert words in str(failed.value)


def test_a_module_that_asks_for_too_much_memory_does_not_get_it(tmp_path: Path) -> None:
    trap_if_given = "(if (i32.ne (memory.grow (i32.const 10000)) (i32.const -1)) (then unreachable))"
    plugin(tmp_path, text(before_run=trap_if_given)).run(CTX)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (text(schedules='{"err": "no table"}'), "schedules() failed: no table"),
        (text(schedules='{"ok": {}}'), "schedules() must return a list"),
        (text(schedules='{"ok": [{"id": "a", "corn": "5m"}]}'), 'unknown key "corn"'),
        ('(module (import "wasi_snapshot_preview1" "fd_write" (func)))', "a plugin gets no host functions"),
        ("(module)", "it exports no function run(i32, i32) -> i64"),
        (text().replace('"run") (param $at i32)', '"run") (param $at i64)'), "its function run must be"),
    ],
)
async def test_a_module_that_is_not_a_plugin_is_refused(tmp_path: Path, source: str, words: str) -> None:
    [refused] = (await loaded(compiled(tmp_path / "cleaner.wasm", source))).refused
    assert words in str(refused)


@pytest.mark.anyio
async def test_a_file_that_is_not_webassembly_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cleaner.wasm").write_bytes(b"hello")
    [refused] = (await loaded(tmp_path / "cleaner.wasm")).refused
    assert "is not a module of WebAssembly" in str(refused)


@pytest.mark.anyio
async def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    [refused] = (await loaded(tmp_path / "nowhere.wasm")).refused
    assert "there is no file" in str(refused)


@pytest.mark.anyio
async def test_cleanup_of_a_module_is_called_and_may_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = await loaded(compiled(tmp_path / "cleaner.wasm", text(cleanup='{"err": "still open"}')))
    await clean_up(found.plugins)
    assert "plugin cleaner: cleanup() failed: still open" in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("cleanup", [None, OK])
async def test_a_module_needs_no_cleanup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cleanup: str | None
) -> None:
    await clean_up((await loaded(compiled(tmp_path / "cleaner.wasm", text(cleanup=cleanup)))).plugins)
    assert caplog.text == ""
