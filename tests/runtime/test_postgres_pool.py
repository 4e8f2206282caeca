"""Nodes behind a pool of connections that gives each transaction another session: PgBouncer, where it is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from holdfast import Holdfast, RunCancelled, tool
from holdfast.store.postgres.store import PostgresStore
from tests.postgres import Server, unprivileged

pytestmark = pytest.mark.anyio

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SETTINGS = """
[databases]
* = host={server}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 5432
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 3
"""
WAITING = {
    "name": "w",
    "inputs": {"n": {"type": "integer"}},
    "steps": [
        {"id": "a", "tool": "add", "args": {"a": 1}, "idempotency_key": "{{ inputs.n }}"},
        {"id": "go", "kind": "wait_event", "signal_key": "go"},
        {"id": "b", "tool": "add", "args": {"a": "{{ go }}"}},
    ],
}


@tool
async def add(a: int) -> int:
    return a + 1


def behind(pool: str, direct: str) -> str:
    """The address of a database through a pool, with the direct one for LISTEN."""
    return f"{pool}&listen_dsn={quote(direct, safe='')}"


@pytest.fixture
async def database(postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return await postgres_server.new_database(empty=True)


async def test_behind_a_pool_nothing_is_kept_in_a_session(database: str) -> None:
    store = PostgresStore(behind(database, database))
    await store.open()
    await store.renew()
    kept = "SELECT name FROM pg_prepared_statements UNION ALL SELECT 'lock' FROM pg_locks WHERE locktype = 'advisory'"
    async with store._pool.acquire() as reader:
        for session in (store._db, reader):
            assert await session.fetch(kept) == []
    await store.close()


@pytest.fixture
def pool(postgres_server: Server) -> Iterator[str]:
    """The folder of its socket."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    with tempfile.TemporaryDirectory(prefix="holdfast-pool-") as folder:
        os.chmod(folder, 0o777)
        Path(folder, "users").write_text('"postgres" ""\n')
        settings = Path(folder, "settings")
        settings.write_text(SETTINGS.format(server=postgres_server.folder, folder=folder))
        owner = postgres_server.folder.stat().st_uid  # who may reach the socket of the server
        process = subprocess.Popen([PROGRAM, "--quiet", settings], **unprivileged(owner))
        try:
            yield folder
        finally:
            process.terminate()
            process.wait()


async def test_nodes_behind_pgbouncer_start_signal_and_cancel_runs_of_each_other(
    pool: str, database: str, postgres_server: Server
) -> None:
    async with asyncio.timeout(60):
        while not Path(pool, ".s.PGSQL.5432").exists():
            await asyncio.sleep(0.01)
    url = behind(f"postgresql://postgres@{urlsplit(database).path}?host={pool}&unsafe=1", database)
    async with Holdfast(f"{url}&node=a", tools=[add]) as a, Holdfast(f"{url}&node=b", tools=[add]) as b:
        runs = [await (a, b)[n % 2].start(WAITING, {"n": n}) for n in range(20)]
        for n, run in enumerate(runs[:-1]):
            await (b, a)[n % 2].signal(run.id, "go", n)
        assert [(await run.result(timeout=60))["b"] for run in runs[:-1]] == [n + 1 for n in range(19)]
        await a.cancel(runs[-1].id)
        with pytest.raises(RunCancelled):
            await runs[-1].result(timeout=60)
    sessions = await postgres_server.connect(database)
    counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    assert await sessions.fetchval(counted) <= 1 + 3
    await sessions.close()
