"""A synchronous standby takes the place of its primary, which ends in the middle of everything: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import pytest

from tests.cluster import node
from tests.cluster.checker import all_have_ended, problems_of
from tests.postgres import Instance, programs_of_the_package

pytestmark = pytest.mark.anyio

NAMES = ("a", "b")
SECONDS = 120.0  # for what takes a moment, on a machine that is busy
IS_SYNCHRONOUS = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


@pytest.fixture
def pair() -> Iterator[tuple[Instance, Instance]]:
    """A primary that commits nothing before its standby has it, and that standby."""
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        primary, standby = (Instance(Path(folder, name), programs_of_the_package()) for name in ("1", "2"))
        primary.init()
        primary.start()
        try:
            standby.copy(primary)
            standby.start()
            try:
                yield primary, standby
            finally:
                standby.stop()
        finally:
            with suppress(Exception):  # a test has stopped it
                primary.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.05)


async def wait_for_standby(primary: Instance) -> None:
    connection = await asyncpg.connect(primary.url)
    await connection.execute("CREATE DATABASE holdfast")
    await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await connection.execute("SELECT pg_reload_conf()")
    async with asyncio.timeout(SECONDS):
        while not await connection.fetchval(IS_SYNCHRONOUS):
            await asyncio.sleep(0.05)
    await connection.close()


async def test_nothing_acknowledged_is_lost_when_a_standby_takes_over(
    pair: tuple[Instance, Instance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    primary, standby = pair
    await wait_for_standby(primary)
    hosts = f"host={primary.folder},{standby.folder}&target_session_attrs=read-write"
    url = f"postgresql://postgres:@/holdfast?{hosts}&unsafe=1"
    nodes = [
        asyncio.create_task(node.main(f"{url}&node={name}", name, tmp_path, part, len(NAMES)))
        for part, name in enumerate(NAMES)
    ]
    try:
        await until(lambda: len(node.lines(tmp_path / "started")) >= 8)
        primary.stop()
        await asyncio.to_thread(standby.promote)
        before = len(node.lines(tmp_path / "started"))
        await until(lambda: len(node.lines(tmp_path / "started")) >= before + 8)
        (tmp_path / "stop").touch()
        connection = await asyncpg.connect(standby.url.replace("/postgres?", "/holdfast?"))
        async with asyncio.timeout(SECONDS):
            while not await all_have_ended(connection, tmp_path):
                await asyncio.sleep(0.05)
        assert await problems_of(connection, tmp_path) == []
        await connection.close()
    finally:
        for task in nodes:
            task.cancel()
        assert [one for one in await asyncio.gather(*nodes, return_exceptions=True) if not isinstance(one, asyncio.CancelledError)] == []  # fmt: skip
