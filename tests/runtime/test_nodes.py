"""Runs that another node drives: what is asked of them becomes mail, and their owner applies it. One process has a SQLite file,
so the store of these tests says of some runs that another node has them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from holdfast import RunIsOver
from holdfast.errors import NodeIsOver, StoreUnavailable
from holdfast.runtime.nodes import Nodes
from holdfast.store.ownership import Claim, Claimable
from holdfast.store.records import RunRow
from holdfast.values import Millis, RunNo
from tests.runtime.bench import Bench, Store, bench, opened, rows
from tests.runtime.manual import by_hand, clock

WAITS = '{name: n, steps: [{id: w, kind: wait_event, signal_key: go}], output: "{{ w }}"}'
GATE = "{name: n, steps: [{id: gate, kind: approve, prompt: go?}]}"


class Shared(Store):
    """A store that another node uses too: `elsewhere` are its runs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path / "h.db")
        self.elsewhere: set[RunNo] = set()
        self.declared = 0
        self.is_renewable = True

    async def claim(
        self, which: Claimable, now: Millis, limit: int, without: Collection[RunNo] = ()
    ) -> list[Claim]:
        return await super().claim(which, now, limit, {*without, *self.elsewhere})

    async def claim_run(self, no: RunNo, seen: RunRow | None = None) -> Claim | None:
        return None if no in self.elsewhere else await super().claim_run(no, seen)

    async def take_mail(self, limit: int) -> list[Any]:
        return [mail for mail in await super().take_mail(limit) if mail.no not in self.elsewhere]

    async def renew(self) -> None:
        if not self.is_renewable:
            raise NodeIsOver("its lease has expired")
        await super().renew()

    async def declare(self) -> None:
        self.declared += 1


def nodes(engine: Bench) -> Nodes:
    (found,) = (service for service in engine.services if isinstance(service, Nodes))
    return found


def mail(path: Path) -> int:
    return len(rows(path, "SELECT 1 FROM mail"))


def kinds(path: Path) -> list[str]:
    return [kind for (kind,) in rows(path, "SELECT kind FROM journal ORDER BY pos")]


@by_hand
async def test_a_signal_to_a_run_of_another_node_is_mail_until_the_run_is_ours(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    async with opened(tmp_path, [], clock(), store=store) as engine:
        run = await engine.begin(WAITS)
        await engine.door.drained()
        before = kinds(tmp_path)
        store.elsewhere.add(run._no)
        assert await engine.runs.signal(run.id, "go", 7) == "waiting"
        assert (kinds(tmp_path), mail(tmp_path)) == (before, 1)
        await nodes(engine).take_mail()
        assert mail(tmp_path) == 1
        store.elsewhere.clear()
        await nodes(engine).take_mail()
        assert await run.result() == 7
        assert mail(tmp_path) == 0


@by_hand
async def test_what_is_asked_of_a_run_of_another_node_is_checked_before_it_is_posted(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    async with opened(tmp_path, [], clock(), store=store) as engine:
        run = await engine.begin(WAITS)
        await engine.runs.cancel(run.id)
        await engine.door.drained()
        store.elsewhere.add(run._no)
        with pytest.raises(RunIsOver):
            await engine.runs.cancel(run.id)
        assert mail(tmp_path) == 0


@by_hand
async def test_mail_that_was_posted_before_a_crash_is_applied_by_the_next_process(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    engine = bench(tmp_path, [], clock(), store=store)
    await engine.open()
    run = await engine.begin(GATE)
    await engine.door.drained()
    store.elsewhere.add(run._no)
    assert await engine.approvals.approve("default", run.id, "gate", approved=True) is False
    engine.crash()
    async with opened(tmp_path, [], clock(), store=Shared(tmp_path)) as later:
        assert (await (await later.attach(run.id)).result())["gate"]["approved"] is True
        assert mail(tmp_path) == 0


@by_hand
async def test_mail_for_a_run_that_has_finished_meanwhile_is_dropped(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    async with opened(tmp_path, [], clock(), store=store) as engine:
        run = await engine.begin(WAITS)
        await engine.door.drained()
        store.elsewhere.add(run._no)
        await engine.runs.signal(run.id, "go", 1)
        await engine.runs.cancel(run.id)
        store.elsewhere.clear()
        await engine.runs.cancel(run.id)
        await nodes(engine).take_mail()
        assert mail(tmp_path) == 0
        assert kinds(tmp_path).count("cancel_requested") == 1


@by_hand
async def test_mail_that_cannot_be_written_is_refused_to_its_caller(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    async with opened(tmp_path, [], clock(), store=store) as engine:
        run = await engine.begin(WAITS)
        await engine.door.drained()
        store.elsewhere.add(run._no)
        store.refuse = lambda batch: StoreUnavailable("full")
        with pytest.raises(StoreUnavailable):
            await engine.runs.signal(run.id, "go", 1)
        store.refuse = lambda batch: None
        assert mail(tmp_path) == 0


@by_hand
async def test_a_node_that_shares_its_database_looks_for_mail_and_left_runs(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    store.look_every = 1.0
    async with opened(tmp_path, [], clock(), store=store) as engine:
        run = await engine.begin(WAITS)
        await engine.door.drained()
        store.elsewhere.add(run._no)
        await engine.runs.signal(run.id, "go", 7)
        store.elsewhere.clear()
        await clock().advance(seconds=1.5)
        assert store.declared == 1
        assert await run.result() == 7


@by_hand
async def test_a_node_keeps_its_lease_while_a_look_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, kept = Shared(tmp_path), list[int]()
    store.look_every = 1.0

    async def forever(now: Millis) -> Any:
        await asyncio.Event().wait()

    async def keep_lease() -> None:
        kept.append(clock().now())

    monkeypatch.setattr(store, "look", forever)
    monkeypatch.setattr(store, "keep_lease", keep_lease)
    async with opened(tmp_path, [], clock(), store=store):
        await clock().advance(seconds=10)
    assert len(kept) > 5


@by_hand
async def test_a_node_whose_lease_has_expired_writes_nothing_more(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    store.look_every = 1.0
    async with opened(tmp_path, [], clock(), store=store) as engine:
        run = await engine.begin(WAITS)
        await engine.door.drained()
        store.is_renewable = False
        await clock().advance(seconds=1.5)
        assert engine.door.is_over
        with pytest.raises(NodeIsOver):
            await engine.runs.signal(run.id, "go", 7)


@by_hand
async def test_a_run_that_another_node_drove_meanwhile_is_read_again(tmp_path: Path) -> None:
    store = Shared(tmp_path)
    async with opened(tmp_path, [], clock(), store=store) as engine:
        large = "x" * 5_000
        run = await engine.begin(
            "{name: n, steps: [{id: a, kind: wait_event, signal_key: go}, {id: w, kind: wait_event, signal_key: go}], "
            'output: ["{{ a }}", "{{ w }}"]}'
        )
        await engine.runs.signal(run.id, "go", large)
        await engine.door.drained()
        ((kept, epoch),) = rows(tmp_path, "SELECT max(seq), max(epoch) FROM journal")
        rows(tmp_path, "UPDATE run SET epoch = epoch + 3")
        await store.renew()  # a read of this turn may have begun a snapshot from before that
        await engine.runs.signal(run.id, "go", 2)
        assert await run.result() == [large, 2]
        ((seq, newest),) = rows(tmp_path, "SELECT max(seq), max(epoch) FROM journal")
        assert seq > kept and newest == epoch + 4
