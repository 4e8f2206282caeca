"""Plugins in the text format of WebAssembly, compiled for tests."""

from __future__ import annotations

from pathlib import Path

from wasmtime import wat2wasm

OK = '{"ok": null}'
SCHEDULES = '{"ok": [{"id": "hourly", "cron": "@hourly", "description": "Every hour."}]}'


def text(schedules: str = SCHEDULES, run: str = OK, cleanup: str | None = OK, before_run: str = "") -> str:
    """A module whose functions answer these texts."""
    parts = [
        '(module (memory (export "memory") 1)',
        '(func (export "alloc") (param i32) (result i32) (i32.const 8192))',
        _function("schedules", "", schedules, 0),
        _function("run", "(param $at i32) (param $length i32)", run, 2048, before_run),
    ]
    if cleanup is not None:
        parts.append(_function("cleanup", "", cleanup, 4096))
    return "\n".join([*parts, ")"])


def _function(name: str, params: str, answer: str, at: int, before: str = "") -> str:
    quoted = answer.replace("\\", "\\\\").replace('"', '\\"')
    packed = at << 32 | len(answer.encode())
    data = f'(data (i32.const {at}) "{quoted}")'
    return f'{data} (func (export "{name}") {params} (result i64) {before} (i64.const {packed}))'


def compiled(path: Path, source: str) -> Path:
    path.write_bytes(wat2wasm(source))
    return path
