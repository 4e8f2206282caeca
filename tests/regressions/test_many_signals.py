"""A run that waits and is signalled often is not read anew from its journal for each signal."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.store.records import Stored
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import RunNo

SIGNALS = 200
WAITING = {"name": "waiting", "steps": [{"id": "wait", "kind": "wait_event", "signal_key": "go"}]}


@pytest.mark.anyio
async def test_the_cost_of_a_signal_does_not_grow_with_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_read: list[int] = []
    load = SqliteStore.load

    async def counted(store: SqliteStore, no: RunNo) -> Stored | None:
        found = await load(store, no)
        rows_read.append(0 if found is None else len(found.rows))
        return found

    monkeypatch.setattr(SqliteStore, "load", counted)
    async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}") as hf:
        run = await hf.start(WAITING)
        for number in range(SIGNALS):
            await hf.signal(run.id, f"other-{number}", "x" * 100)
        await hf.signal(run.id, "go", 1)
        assert await run.result(timeout=30) == {"wait": 1}
    assert sum(rows_read) < 10 * SIGNALS, "each signal reads all those before it"
